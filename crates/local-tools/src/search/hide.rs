//! Found lines without the secrets in them. A line alone does not always show that it belongs to
//! one: a key of many lines is known by what stands around it.

use std::borrow::Cow;
use std::fs::File;

use agent_tool_runtime::Journal;
use agent_tool_runtime::policy::piece::{Hidden, hidden_in, masked_piece, read_range};

use super::find::Line;

/// So much of a file is looked at together.
const TOGETHER: u64 = 64 << 10;

/// A whole line with its secrets masked, before anything of it is cut off.
pub(super) fn masked_line<'a>(line: &'a [u8], journal: Option<&dyn Journal>) -> Cow<'a, [u8]> {
    let secrets = journal.map(|journal| journal.secrets(line));
    let secrets = secrets.unwrap_or_default();
    if secrets.is_empty() {
        return Cow::Borrowed(line);
    }
    let hidden: Vec<Hidden> = secrets
        .into_iter()
        .map(|(place, placeholder)| Hidden {
            start: place.start as u64,
            end: place.end as u64,
            placeholder,
        })
        .collect();
    Cow::Owned(masked_piece(line, 0, &hidden))
}

/// Replaces lines that are the inside of a key.
pub(super) fn hide_keys(lines: &mut [Line], file: &File, journal: &dyn Journal) {
    let mut looked_at = 0..0;
    let mut hidden: Vec<Hidden> = Vec::new();
    for line in lines {
        if !may_be_inside(&line.text) {
            continue;
        }
        let end = line.start + line.text.len() as u64;
        if line.start < looked_at.start || end > looked_at.end {
            looked_at = line.start..end.max(line.start + TOGETHER);
            let secrets = |bytes: &[u8]| journal.secrets(bytes);
            hidden = hidden_in(looked_at.clone(), secrets, |range| read_range(file, range));
        }
        line.text = masked_piece(&line.text, line.start, &hidden);
    }
}

/// Base64 and nothing else, as the lines of a key are.
fn may_be_inside(line: &[u8]) -> bool {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    line.len() >= 8 && line.trim_ascii().iter().all(is_base64)
}
