//! Names that look alike, as a fact for whoever slipped.

use std::fs;
use std::path::Path;

/// A directory with more names is not searched for a similar one.
const MAX_NAMES_COMPARED: usize = 5_000;

/// The end of a message about something missing.
pub(super) fn similar(near: Option<&str>) -> String {
    near.map_or_else(String::new, |name| format!("; `{name}` does"))
}

/// A name beside `missing` that differs only in letter case or by one slip, as a fact for the model.
pub(crate) fn similar_name(missing: &Path) -> Option<String> {
    let wanted = missing.file_name()?.to_str()?.to_lowercase();
    let mut best: Option<(usize, String)> = None;
    for entry in fs::read_dir(missing.parent()?)
        .ok()?
        .take(MAX_NAMES_COMPARED)
        .flatten()
    {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let distance = agent_text::nearest::distance(&wanted, &name.to_lowercase());
        let allowed = if wanted.len() > 4 { 2 } else { 1 };
        if distance <= allowed
            && best
                .as_ref()
                .is_none_or(|known| (distance, &name) < (known.0, &known.1))
        {
            best = Some((distance, name));
        }
    }
    best.map(|(_, name)| name)
}
