//! A change to a file as another program's record shows it: the exact text before and after where
//! it can be known, and nothing where it cannot.

use std::time::Duration;

use agent_protocol::payload::SideEffectKind;
use serde_json::Value;

use crate::compare;

/// How long a diff is looked for before a longer one will do.
const LONGEST: Duration = Duration::from_millis(500);

/// One side of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Side {
    Missing,
    Unknown,
    Text(String),
}

/// A file that a call changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileChange {
    /// Relative to the root of the record.
    pub(super) path: String,
    pub(super) before: Side,
    pub(super) after: Side,
}

impl FileChange {
    pub(super) fn kind(&self) -> SideEffectKind {
        match (&self.before, &self.after) {
            (Side::Missing, _) => SideEffectKind::Created,
            (_, Side::Missing) => SideEffectKind::Deleted,
            _ => SideEffectKind::Modified,
        }
    }

    /// The diff between both texts, if they are known.
    pub(super) fn diff(&self) -> Option<String> {
        let text = |side: &Side| match side {
            Side::Missing => Some(String::new()),
            Side::Text(text) => Some(text.clone()),
            Side::Unknown => None,
        };
        let names = (format!("a/{}", self.path), format!("b/{}", self.path));
        Some(compare::unified(
            &text(&self.before)?,
            &text(&self.after)?,
            (&names.0, &names.1),
            LONGEST,
        ))
    }
}

/// `original` with one replacement, made as Claude Code makes it: what is replaced by nothing takes
/// its line break along.
pub(super) fn replaced(original: &str, old: &str, new: &str, all: bool) -> Option<String> {
    if old.is_empty() {
        return original.is_empty().then(|| new.to_owned());
    }
    let line = format!("{old}\n");
    let takes_line = new.is_empty() && !old.ends_with('\n') && original.contains(&line);
    let old = if takes_line { line.as_str() } else { old };
    if !original.contains(old) {
        return None;
    }
    Some(if all {
        original.replace(old, new)
    } else {
        original.replacen(old, new, 1)
    })
}

/// True if a `structuredPatch` says the same of the lines after the change. White space does not
/// count: the patch has tabs as spaces.
pub(super) fn agrees(patch: &Value, after: &str) -> bool {
    let lines: Vec<&str> = after.lines().collect();
    let bare = |line: &str| line.split_whitespace().collect::<String>();
    let hunks = patch.as_array().into_iter().flatten();
    hunks.into_iter().all(|hunk| {
        let start = hunk.get("newStart").and_then(Value::as_u64).unwrap_or(1);
        let mut at = usize::try_from(start.saturating_sub(1)).unwrap_or(usize::MAX);
        let told = hunk.get("lines").and_then(Value::as_array);
        told.into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .filter(|line| line.starts_with([' ', '+']))
            .all(|line| {
                let found = lines.get(at).map(|line| bare(line));
                at = at.saturating_add(1);
                // Where the text ends with a line break, the patch may end with an empty line.
                found.unwrap_or_default() == bare(&line[1..])
            })
    })
}

/// The hunks of a `structuredPatch` as a unified diff.
pub(super) fn unified(path: &str, patch: &Value) -> Option<String> {
    let mut diff = format!("--- a/{path}\n+++ b/{path}\n");
    let hunks = patch.as_array()?;
    for hunk in hunks {
        let number = |name: &str| hunk.get(name).and_then(Value::as_u64).unwrap_or(0);
        diff.push_str(&format!(
            "@@ -{},{} +{},{} @@\n",
            number("oldStart"),
            number("oldLines"),
            number("newStart"),
            number("newLines")
        ));
        let lines = hunk.get("lines")?.as_array()?.iter();
        for line in lines.filter_map(Value::as_str) {
            diff.push_str(line);
            diff.push('\n');
        }
    }
    (!hunks.is_empty()).then_some(diff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_is_made_as_it_was_made_then() {
        let made = |old, new, all| replaced("a\nb\na\n", old, new, all);
        assert_eq!(made("a", "c", false).as_deref(), Some("c\nb\na\n"));
        assert_eq!(made("a", "c", true).as_deref(), Some("c\nb\nc\n"));
        assert_eq!(made("b", "", false).as_deref(), Some("a\na\n"));
        assert_eq!(made("b\n", "", false).as_deref(), Some("a\na\n"));
        assert_eq!(made("x", "y", false), None);
        assert_eq!(replaced("", "", "new\n", false).as_deref(), Some("new\n"));
    }

    #[test]
    fn a_patch_that_tells_something_else_is_noticed() {
        let patch = serde_json::json!([{"newStart": 2, "lines": [" b", "-  x", "+  y"]}]);
        assert!(agrees(&patch, "a\nb\n\ty\n"));
        assert!(!agrees(&patch, "a\nb\n\tz\n"));
        assert!(agrees(&Value::Null, "anything"));
    }
}
