//! What a part of a session changed, as unified diffs from the images it kept.

use std::path::Path;

use agent_history::workspace::{Gap, Images, NetChange, PathState, Workspace};
use agent_local_tools::diff::{Diff, changed_range, unified};
use agent_local_tools::{Encoding, file};
use agent_log::SessionDirectory;
use agent_protocol::id::SessionId;

use super::extent::{Chosen, Extent, Span};
use super::tree::{self, Tree};
use crate::error::{OrFail as _, RuntimeError};

/// What a part of a session changed.
pub struct SessionDiff {
    pub session_id: SessionId,
    pub span: Span,
    /// In the order of paths.
    pub files: Vec<FileDiff>,
    /// What may have changed besides.
    pub gaps: Vec<Gap>,
}

/// What became of one path.
pub struct FileDiff {
    pub net: NetChange,
    pub change: Shown,
}

/// The change of content, as far as it can be shown.
pub enum Shown {
    Text(Diff),
    /// Not text; the sizes say what there is.
    Binary,
    /// Only the mode, or a directory.
    NoContent,
    /// One of the two contents is not kept.
    Unknown(String),
}

impl SessionDiff {
    /// Compares what `extent` of the session began and ended with. Content that no image has is
    /// taken from the project where its hash shows that it is still the same.
    pub fn make(
        root: &Path,
        session: &SessionDirectory,
        extent: &Extent,
        chosen: &Chosen,
    ) -> Result<Self, RuntimeError> {
        let workspace = Workspace::read(session).or_usage()?;
        let span = extent.span(&workspace)?;
        let sources = Sources {
            images: Images::new(session.artifacts().or_usage()?),
            tree: Tree::open(root).or_usage()?,
        };
        let files = workspace
            .between(span.from, span.to)
            .into_iter()
            .filter(|net| chosen.has(&net.path))
            .map(|net| FileDiff {
                change: sources.compare(&net),
                net,
            })
            .collect();
        let inside = |gap: &&Gap| {
            span.from.is_none_or(|from| gap.sequence > from) && gap.sequence <= span.to
        };
        let gaps = workspace.gaps().iter().filter(inside);
        Ok(Self {
            session_id: session.id().clone(),
            span,
            files,
            gaps: gaps.filter(|_| chosen.is_all()).cloned().collect(),
        })
    }

    /// Lines added and removed over all files.
    pub fn totals(&self) -> (u64, u64) {
        let texts = self.files.iter().filter_map(FileDiff::counts);
        texts.fold((0, 0), |sum, (added, removed)| {
            (sum.0 + added, sum.1 + removed)
        })
    }

    /// The whole diff as text for people; not yet masked or escaped.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for file in &self.files {
            text.push_str(&file.text());
        }
        text
    }
}

/// Where bytes come from.
struct Sources {
    images: Images,
    tree: Tree,
}

impl Sources {
    fn compare(&self, net: &NetChange) -> Shown {
        let sides = [&net.before, &net.after];
        if sides.iter().all(|state| state.content().is_none()) {
            return match sides.iter().any(|state| **state == PathState::Unknown) {
                true => Shown::Unknown("the log does not show what it was".to_owned()),
                false => Shown::NoContent,
            };
        }
        let hash = |state: &PathState| state.content().and_then(|content| content.sha256.clone());
        if hash(&net.before).is_some() && hash(&net.before) == hash(&net.after) {
            return Shown::NoContent;
        }
        let (before, after) = match (self.bytes(net, &net.before), self.bytes(net, &net.after)) {
            (Ok(before), Ok(after)) => (before, after),
            (Err(why), _) => return Shown::Unknown(format!("content before: {why}")),
            (_, Err(why)) => return Shown::Unknown(format!("content after: {why}")),
        };
        let head = |bytes: &[u8]| bytes[..bytes.len().min(file::HEAD)].to_vec();
        let is_binary = |bytes: &[u8]| file::binary_kind(&head(bytes)).is_some();
        if is_binary(&before) || is_binary(&after) {
            return Shown::Binary;
        }
        let encoding = Encoding::of(if before.is_empty() { &after } else { &before });
        let changes: Vec<_> = changed_range(&before, &after).into_iter().collect();
        Shown::Text(unified(&net.path, &before, &after, encoding, &changes))
    }

    fn bytes(&self, net: &NetChange, state: &PathState) -> Result<Vec<u8>, String> {
        let Some(content) = state.content() else {
            return Ok(Vec::new());
        };
        let error = match self.images.read(state) {
            Ok(bytes) => return Ok(bytes),
            Err(error) => error,
        };
        let name = Path::new(&*net.path);
        let now = (tree::refusal(&net.path).is_none())
            .then(|| self.tree.read(name).ok())
            .flatten();
        match now {
            Some(bytes) if content.sha256.as_ref() == Some(&file::hash_bytes(&bytes)) => Ok(bytes),
            _ => Err(error.to_string()),
        }
    }
}

impl FileDiff {
    /// Lines added and removed, where lines were compared.
    pub fn counts(&self) -> Option<(u64, u64)> {
        match &self.change {
            Shown::Text(diff) => Some((diff.added, diff.removed)),
            _ => None,
        }
    }

    /// What became of it, in one word or two.
    pub fn word(&self) -> &'static str {
        match (&self.net.before, &self.net.after) {
            (PathState::Unknown, _) | (_, PathState::Unknown) => "unknown",
            (PathState::Missing, _) => "created",
            (_, PathState::Missing) => "deleted",
            (before, after) if before.file_type() != after.file_type() => "changed kind",
            _ if matches!(self.change, Shown::NoContent) => "mode changed",
            _ => "changed",
        }
    }

    /// This file's part of the diff, with a header as git writes it.
    pub fn text(&self) -> String {
        let mut text = self.header();
        if let Shown::Text(diff) = &self.change {
            text.push_str(body(&diff.shown));
        }
        text
    }

    /// The same as exact bytes, for programs that apply it.
    pub fn exact(&self) -> Vec<u8> {
        let mut bytes = self.header().into_bytes();
        if let Shown::Text(diff) = &self.change {
            bytes.extend(after_lines(&diff.exact, 2));
        }
        bytes
    }

    fn header(&self) -> String {
        let path = &self.net.path;
        let (before, after) = (&self.net.before, &self.net.after);
        if matches!(before, PathState::Directory { .. })
            || matches!(after, PathState::Directory { .. })
        {
            return format!("# directory {path} {}{}\n", self.word(), self.modes());
        }
        let (left, right) = (quoted("a/", path), quoted("b/", path));
        let mut text = format!("diff --git {left} {right}\n");
        let mode = |state: &PathState| match state {
            PathState::Symlink(_) => "120000".to_owned(),
            state => format!("100{:03o}", state.mode().unwrap_or(0o644) & 0o777),
        };
        match (before.exists(), after.exists()) {
            (false, _) => text.push_str(&format!("new file mode {}\n", mode(after))),
            (_, false) => text.push_str(&format!("deleted file mode {}\n", mode(before))),
            _ if mode(before) != mode(after) => {
                text.push_str(&format!(
                    "old mode {}\nnew mode {}\n",
                    mode(before),
                    mode(after)
                ));
            }
            _ => {}
        }
        let sides = (
            if before.exists() {
                left
            } else {
                "/dev/null".to_owned()
            },
            if after.exists() {
                right
            } else {
                "/dev/null".to_owned()
            },
        );
        match &self.change {
            Shown::Text(diff) if diff.added + diff.removed > 0 => {
                text.push_str(&format!("--- {}\n+++ {}\n", sides.0, sides.1));
            }
            Shown::Text(_) | Shown::NoContent => {}
            Shown::Binary => {
                text.push_str(&format!(
                    "Binary files {} and {} differ\n",
                    sides.0, sides.1
                ));
            }
            Shown::Unknown(why) => text.push_str(&format!("# {why}\n")),
        }
        text
    }

    fn modes(&self) -> String {
        match (self.net.before.mode(), self.net.after.mode()) {
            (Some(before), Some(after)) if before != after => {
                format!(" ({before:04o} to {after:04o})")
            }
            _ => String::new(),
        }
    }
}

/// Without the two lines that name the files: ours know more.
fn body(diff: &str) -> &str {
    let mut rest = diff;
    for _ in 0..2 {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    rest
}

fn after_lines(bytes: &[u8], lines: usize) -> Vec<u8> {
    let mut parts = bytes.splitn(lines + 1, |byte| *byte == b'\n');
    parts.nth(lines).unwrap_or_default().to_vec()
}

/// A path as git writes it: in quotes with escapes where it holds anything unusual.
fn quoted(prefix: &str, path: &str) -> String {
    use std::fmt::Write as _;
    let plain = |byte: u8| matches!(byte, 0x20..0x7f) && byte != b'"' && byte != b'\\';
    if path.bytes().all(plain) {
        return format!("{prefix}{path}");
    }
    let mut text = format!("\"{prefix}");
    for byte in path.bytes() {
        match byte {
            b'"' | b'\\' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            byte if plain(byte) => text.push(char::from(byte)),
            byte => {
                let _ = write!(text, "\\{byte:03o}");
            }
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_names_are_quoted_as_git_does() {
        assert_eq!(quoted("a/", "src/my file.rs"), "a/src/my file.rs");
        assert_eq!(quoted("a/", "grün"), r#""a/gr\303\274n""#);
        assert_eq!(quoted("b/", "a\"b\n\u{1b}"), r#""b/a\"b\n\033""#);
    }

    #[test]
    fn the_two_names_are_left_out() {
        assert_eq!(body("--- a\n+++ b\n@@ -1 +1 @@\n"), "@@ -1 +1 @@\n");
        assert_eq!(after_lines(b"--- a\n+++ b\nx\ny", 2), b"x\ny");
    }
}
