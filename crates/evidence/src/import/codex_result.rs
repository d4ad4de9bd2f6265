//! What a Codex rollout says of how a call ended: its code, and the files a patch changed.

use agent_protocol::Code;
use serde_json::Value;

use super::change::{FileChange, Side};
use super::place::Root;
use super::{CallEnd, Part, content_text, text_at};

/// Reads the output of a call. `input` is what the call was given, where the record has it.
pub(super) fn result(
    id: String,
    output: &Value,
    input: Option<&Value>,
    cwd: Option<&str>,
    root: &Root,
) -> CallEnd {
    let parsed = match output {
        Value::String(text) => serde_json::from_str::<Value>(text).ok(),
        other => Some(other.clone()),
    };
    let facts = parsed.filter(Value::is_object);
    let text = facts
        .as_ref()
        .and_then(|facts| {
            let content = facts.get("output").or_else(|| facts.get("content"))?;
            Some(content_text(content))
        })
        .unwrap_or_else(|| content_text(output));
    let exit_code = facts
        .as_ref()
        .and_then(|facts| facts.pointer("/metadata/exit_code")?.as_i64())
        .or_else(|| exit_code(&text))
        .and_then(|code| i32::try_from(code).ok());
    let says_no = facts
        .as_ref()
        .is_some_and(|facts| facts.get("success") == Some(&Value::Bool(false)));
    let code = match failure(&text) {
        Some(code) if exit_code != Some(0) => code,
        _ if exit_code.is_some_and(|code| code != 0) => Code::ExitNonzero,
        _ if says_no => Code::InternalError,
        _ => Code::Ok,
    };
    // A patch is the input of its call; whether it was applied is what its result says.
    let patch = input.filter(|_| code == Code::Ok).and_then(patch_in);
    let workdir = input.and_then(|input| text_at(input, &["workdir"])).or(cwd);
    CallEnd {
        id,
        text,
        code,
        exit_code: exit_code.or_else(|| denied_exit_code(output)),
        parts: output.as_array().map_or_else(Vec::new, |blocks| {
            blocks.iter().filter_map(Part::of).collect()
        }),
        changes: patch
            .as_ref()
            .map(|patch| patch.changes(root, workdir))
            .unwrap_or_default(),
        diff: patch.map(|patch| patch.text),
    }
}

/// `Process exited with code 1`, `Exit code: 1`.
fn exit_code(text: &str) -> Option<i64> {
    let head: String = text.lines().take(6).collect::<Vec<_>>().join("\n");
    let after = ["Process exited with code ", "Exit code: "]
        .iter()
        .find_map(|words| head.split_once(words))?
        .1;
    number(after)
}

/// `failed in sandbox …, exit code: 1, stdout: …`.
fn denied_exit_code(output: &Value) -> Option<i32> {
    let text = output.as_str()?.strip_prefix("failed in sandbox")?;
    let (_, after) = text.split_once("exit code: ")?;
    i32::try_from(number(after)?).ok()
}

fn number(text: &str) -> Option<i64> {
    let digits = text.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// The code for what the program says instead of a result. Only its own words count, which stand at
/// the beginning; what a command printed may say anything.
fn failure(text: &str) -> Option<Code> {
    let text = text.trim_start();
    let head = text.lines().next().unwrap_or_default();
    let starts = |words: &[&str]| words.iter().any(|words| text.starts_with(words));
    let has = |words: &[&str]| words.iter().any(|words| head.contains(words));
    if has(&["rejected by user", "user rejected"]) {
        return Some(Code::UserDenied);
    }
    if starts(&["aborted by user", "aborted"]) {
        return Some(Code::Cancelled);
    }
    let is_patch = starts(&[
        "apply_patch verification failed",
        "error: invalid hunk",
        "error: invalid patch",
        "error: Failed to find",
        "error: Failed to read",
        "patch rejected",
    ]);
    let is_run = starts(&[
        "failed in sandbox",
        "execution error",
        "exec_command failed",
    ]);
    let is_call = starts(&["unsupported call", "unsupported custom tool call"]);
    let is_input = starts(&["failed to parse function arguments"]);
    Some(match () {
        () if is_call => Code::UnknownTool,
        () if is_input => Code::SchemaInvalid,
        () if is_patch && has(&["invalid hunk", "invalid patch"]) => Code::SchemaInvalid,
        () if is_patch && has(&["No such file", "Failed to read"]) => Code::FileNotFound,
        () if is_patch && has(&["Failed to find"]) => Code::TargetNotFound,
        () if is_patch => Code::RuntimePreconditionFailed,
        () if is_run && has(&["timed out"]) => Code::Timeout,
        () if is_run && has(&["denied", "rejected"]) => Code::SandboxViolation,
        () if is_run => Code::SpawnFailed,
        () if head.starts_with("command timed out") => Code::Timeout,
        () => return None,
    })
}

/// A patch in the program's own notation.
pub(super) struct Patch {
    pub(super) text: String,
}

/// The patch in a call's input: the input itself, one of its fields, or what a shell hands on.
pub(super) fn patch_in(input: &Value) -> Option<Patch> {
    let text = match input {
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let given = ["command", "cmd", "input", "patch"]
                .iter()
                .find_map(|name| fields.get(*name))?;
            match given {
                Value::String(text) => text.clone(),
                Value::Array(words) => {
                    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
                    words.join("\n")
                }
                _ => return None,
            }
        }
        _ => return None,
    };
    let at = text.find("*** Begin Patch")?;
    let rest = &text[at..];
    let end = rest
        .find("*** End Patch")
        .map_or(rest.len(), |at| at + "*** End Patch".len());
    Some(Patch {
        text: rest[..end].to_owned(),
    })
}

impl Patch {
    /// The files it changes. What it adds is known to the byte; of the rest only that it changed.
    pub(super) fn changes(&self, root: &Root, cwd: Option<&str>) -> Vec<FileChange> {
        let mut changes: Vec<FileChange> = Vec::new();
        let path = |given: &str| root.relative(given.trim(), cwd);
        for line in self.text.lines() {
            let change = |given: &str, before, after| FileChange {
                path: path(given),
                before,
                after,
            };
            if let Some(given) = line.strip_prefix("*** Update File: ") {
                changes.push(change(given, Side::Unknown, Side::Unknown));
            } else if let Some(given) = line.strip_prefix("*** Delete File: ") {
                changes.push(change(given, Side::Unknown, Side::Missing));
            } else if let Some(given) = line.strip_prefix("*** Add File: ") {
                changes.push(change(given, Side::Missing, Side::Text(String::new())));
            } else if let Some(given) = line.strip_prefix("*** Move to: ") {
                if let Some(moved) = changes.last_mut() {
                    moved.after = Side::Missing;
                }
                changes.push(change(given, Side::Missing, Side::Unknown));
            } else if let (
                Some(added),
                Some(FileChange {
                    after: Side::Text(text),
                    ..
                }),
            ) = (line.strip_prefix('+'), changes.last_mut())
            {
                text.push_str(added);
                text.push('\n');
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_the_programs_own_words_are_a_failure() {
        for (text, code) in [
            (
                "apply_patch verification failed: Failed to find expected lines in a",
                Some(Code::TargetNotFound),
            ),
            (
                "apply_patch verification failed: invalid hunk at line 3",
                Some(Code::SchemaInvalid),
            ),
            (
                "failed in sandbox None with execution error: command timed out",
                Some(Code::Timeout),
            ),
            (
                "execution error: Io(Custom { kind: NotFound })",
                Some(Code::SpawnFailed),
            ),
            ("exec command rejected by user", Some(Code::UserDenied)),
            ("ok\nerror: Failed to find x", None),
            ("", None),
        ] {
            assert_eq!(failure(text), code, "{text}");
        }
        let root = Root::default();
        let printed = "{\"output\":\"execution error in my test\",\"metadata\":{\"exit_code\":0}}";
        let end = result("c".into(), &printed.into(), None, None, &root);
        assert_eq!((end.code, end.exit_code), (Code::Ok, Some(0)));
    }

    #[test]
    fn a_patch_names_its_files() {
        let text = "x <<'EOF'\n*** Begin Patch\n*** Add File: a\n+1\n+\n*** Update File: b\n*** Move to: c\n@@\n-x\n+y\n*** Delete File: d\n*** End Patch\nEOF";
        let patch = patch_in(&serde_json::json!({ "command": ["bash", "-lc", text] })).unwrap();
        let root = Root::of(Path::new("/p"), Some("/r"));
        let changes: Vec<_> = patch
            .changes(&root, None)
            .into_iter()
            .map(|c| (c.path, c.before, c.after))
            .collect();
        assert_eq!(
            changes,
            [
                ("a".into(), Side::Missing, Side::Text("1\n\n".into())),
                ("b".into(), Side::Unknown, Side::Missing),
                ("c".into(), Side::Missing, Side::Unknown),
                ("d".into(), Side::Unknown, Side::Missing),
            ]
        );
    }
}
