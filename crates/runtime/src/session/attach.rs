//! What an input names with `@`. Images are kept as artifacts of the session before the input is recorded; for a
//! file or a directory the call is chosen that shows it when the input becomes a part of the conversation.

use std::path::{Path, PathBuf};

use agent_local_tools::{listing, showing};
use agent_protocol::Scope;
use agent_protocol::command::SubmitTurn;
use agent_protocol::payload::conversation::{ArtifactKind, AttachedCall, InputPart, InputPartKind};
use agent_protocol::reply::{AnswerCode, ControlNotice};
use agent_tool_runtime::{Journal, JournalError};

use crate::Runtime;

/// An image larger than this is not sent to a model.
const LARGEST_IMAGE: u64 = 20 << 20;
/// The most files and directories of one input.
const MOST_FILES: usize = 20;

/// Keeps the images that the parts of `submit` name, and finds the files. What cannot be attached is left out,
/// with a notice.
pub(super) fn attach(
    journal: &dyn Journal,
    scope: &Scope,
    runtime: &Runtime,
    submit: &mut SubmitTurn,
) -> Result<Vec<ControlNotice>, JournalError> {
    let mut notices = Vec::new();
    let mut attached = Vec::new();
    let mut files = 0;
    for mut part in std::mem::take(&mut submit.parts) {
        let Some(name) = part.name.clone().filter(|_| part.artifact.is_none()) else {
            attached.push(part);
            continue;
        };
        if part.kind == InputPartKind::Image {
            let problem = keep_image(journal, scope, runtime, &name, &mut part)?;
            notices.extend(problem.map(|problem| ControlNotice {
                code: AnswerCode::ImageNotAttached,
                message: format!("the image was not attached: {problem}"),
            }));
            attached.push(part);
            continue;
        }
        if part.kind != InputPartKind::File {
            attached.push(part);
            continue;
        }
        files += 1;
        let problem = match find(runtime, &name, &mut part) {
            true if files > MOST_FILES => Some(format!(
                "`@{name}` was not attached: a message takes {MOST_FILES} files"
            )),
            true => {
                attached.push(part);
                None
            }
            // A word with `@` need not be a file, but one like a path was meant to be.
            false => looks_like_a_path(&name)
                .then(|| format!("`@{name}` was not attached: there is no such file")),
        };
        notices.extend(problem.map(|message| ControlNotice {
            code: AnswerCode::FileNotAttached,
            message,
        }));
    }
    submit.parts = attached;
    Ok(notices)
}

/// Keeps an image as an artifact; gives back why that was not possible.
fn keep_image(
    journal: &dyn Journal,
    scope: &Scope,
    runtime: &Runtime,
    name: &str,
    part: &mut InputPart,
) -> Result<Option<String>, JournalError> {
    let path = runtime.host.cwd.join(name);
    let length = std::fs::metadata(&path).map(|facts| facts.len());
    part.bytes = length.as_ref().copied().unwrap_or_default();
    let read = match length {
        Ok(length) if length > LARGEST_IMAGE => {
            Err(format!("`{name}` is too large ({length} bytes)"))
        }
        Ok(_) => std::fs::read(&path).map_err(|error| format!("`{name}`: {error}")),
        Err(error) => Err(format!("`{name}`: {error}")),
    };
    match read {
        Ok(bytes) => {
            let media_type = part.media_type.clone().unwrap_or_default();
            let kind = ArtifactKind::UserInput;
            let kept = journal.put_artifact(scope, kind, &media_type, &bytes, "")?;
            part.artifact = Some(kept.artifact_id);
            Ok(None)
        }
        Err(problem) => Ok(Some(problem)),
    }
}

/// Finds the file or directory of this name, with the lines that are meant, and the call that shows it. False if
/// there is none; whether it may be read is decided when it is.
fn find(runtime: &Runtime, name: &str, part: &mut InputPart) -> bool {
    let (path, facts, lines) = match place(runtime, name) {
        Some((path, facts)) => (path, facts, None),
        None => {
            let Some((file, lines)) = lines_of(name) else {
                return false;
            };
            match place(runtime, file) {
                Some((path, facts)) => (path, facts, Some(lines)),
                None => return false,
            }
        }
    };
    part.bytes = if facts.is_file() { facts.len() } else { 0 };
    let (tool_name, input) = match facts.is_dir() {
        true => listing(&path),
        false => showing(&path, lines),
    };
    part.shown_by = Some(AttachedCall { tool_name, input });
    true
}

/// The path for a tool, as seen from the project or else from the working directory.
fn place(runtime: &Runtime, name: &str) -> Option<(String, std::fs::Metadata)> {
    let root = runtime.project.root();
    let facts = |path: &Path| std::fs::metadata(path).ok();
    if let Some(below) = name.strip_prefix("~/") {
        let facts = facts(&runtime.home().join(below))?;
        return Some((name.to_owned(), facts));
    }
    if let Some(facts) = facts(&root.join(name)) {
        return Some((name.to_owned(), facts));
    }
    let elsewhere: PathBuf = runtime.host.cwd.join(name);
    let facts = facts(&elsewhere)?;
    Some((elsewhere.to_str()?.to_owned(), facts))
}

/// The file and the lines of `src/a.rs:10-40`, `src/a.rs:10` and `src/a.rs#L10-L40`.
fn lines_of(name: &str) -> Option<(&str, (u64, u64))> {
    let (file, lines) = name.rsplit_once("#L").or_else(|| name.rsplit_once(':'))?;
    let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
    let first: u64 = first.parse().ok()?;
    let last: u64 = last.trim_start_matches('L').parse().ok()?;
    (first >= 1 && last >= first).then_some((file, (first, last)))
}

fn looks_like_a_path(name: &str) -> bool {
    let (_, last) = name.rsplit_once('/').unwrap_or(("", name));
    last.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expected: Option<(&str, (u64, u64))>) {
        assert_eq!(lines_of(name), expected, "{name}");
    }

    #[test]
    fn lines_stand_behind_the_name() {
        check("src/a.rs:10-40", Some(("src/a.rs", (10, 40))));
        check("src/a.rs:7", Some(("src/a.rs", (7, 7))));
        check("src/a.rs#L10-L40", Some(("src/a.rs", (10, 40))));
        check("src/a.rs#L3", Some(("src/a.rs", (3, 3))));
        check("a:b.rs:2", Some(("a:b.rs", (2, 2))));
        check("src/a.rs", None);
        check("src/a.rs:0-3", None);
        check("src/a.rs:9-3", None);
        check("host:port", None);
    }
}
