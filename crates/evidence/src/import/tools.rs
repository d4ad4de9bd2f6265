//! Calls of other programs in our words: which of our tools does the same, and with what input. It
//! says what a call was about, for comparing and judging; it is never run.

use serde_json::{Map, Value, json};

use super::codex_result::patch_in;
use super::place::Root;
use super::text_at;

/// A call as one of our tools would have been called.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OwnCall {
    pub(super) tool: &'static str,
    pub(super) input: Value,
    /// Files it names, relative to the root.
    pub(super) paths: Vec<String>,
}

/// Tells a call in our words; nothing where we have no such tool, or the input is not understood.
pub(super) fn own_call(
    tool: &str,
    input: &Value,
    cwd: Option<&str>,
    root: &Root,
) -> Option<OwnCall> {
    let call = Foreign { input, cwd, root };
    match tool {
        "Bash" => call.bash(text_at(input, &["command"])?, None),
        "shell" | "shell_command" | "exec_command" | "container.exec" | "local_shell" => {
            let given = input.get("command").or_else(|| input.get("cmd"))?;
            let workdir =
                text_at(input, &["workdir"]).or_else(|| text_at(input, &["working_directory"]));
            match patch_in(input) {
                Some(patch) => call.patch(&patch),
                None => call.bash(&script_of(given)?, workdir),
            }
        }
        "apply_patch" => call.patch(&patch_in(input)?),
        "Read" | "NotebookRead" | "view_image" => call.file("read", &["offset", "limit"]),
        "Edit" | "MultiEdit" | "NotebookEdit" => {
            let fields = ["old_string", "new_string", "replace_all", "edits"];
            call.file("edit", &fields)
        }
        "Write" => call.file("write", &["content"]),
        "Grep" => call.grep(),
        "Glob" => call.search("glob", &["pattern"]),
        "LS" => {
            let mut own = call.search("glob", &[])?;
            own.input["pattern"] = "*".into();
            Some(own)
        }
        "BashOutput" | "TaskOutput" => call.process("process_output"),
        "KillShell" | "KillBash" | "TaskStop" => call.process("process_kill"),
        _ => None,
    }
}

struct Foreign<'a> {
    input: &'a Value,
    cwd: Option<&'a str>,
    root: &'a Root,
}

impl Foreign<'_> {
    /// The named fields as they came.
    fn fields(&self, names: &[&str]) -> Map<String, Value> {
        let mut fields = Map::new();
        for name in names {
            if let Some(value) = self.input.get(name).filter(|value| !value.is_null()) {
                fields.insert((*name).to_owned(), value.clone());
            }
        }
        fields
    }

    fn path(&self) -> Option<String> {
        let given = ["file_path", "path", "notebook_path"]
            .iter()
            .find_map(|name| text_at(self.input, &[name]))?;
        Some(self.root.relative(given, self.cwd))
    }

    #[expect(clippy::unnecessary_wraps, reason = "one shape for all tools")]
    fn bash(&self, command: &str, workdir: Option<&str>) -> Option<OwnCall> {
        let mut input = self.fields(&["description"]);
        input.insert("command".into(), command.into());
        let elsewhere = match workdir {
            Some(workdir) => Some(self.root.relative(workdir, self.cwd)),
            None => self.cwd.map(|cwd| self.root.relative(cwd, None)),
        };
        if let Some(cwd) = elsewhere.filter(|cwd| cwd != ".") {
            input.insert("cwd".into(), cwd.into());
        }
        for (theirs, ours) in [
            ("timeout", "timeout_ms"),
            ("timeout_ms", "timeout_ms"),
            ("run_in_background", "background"),
        ] {
            if let Some(value) = self.input.get(theirs).filter(|value| !value.is_null()) {
                input.insert(ours.to_owned(), value.clone());
            }
        }
        Some(OwnCall {
            tool: "bash",
            input: input.into(),
            paths: Vec::new(),
        })
    }

    fn file(&self, tool: &'static str, fields: &[&str]) -> Option<OwnCall> {
        let path = self.path()?;
        let mut input = self.fields(fields);
        input.insert("path".into(), path.clone().into());
        Some(OwnCall {
            tool,
            input: input.into(),
            paths: vec![path],
        })
    }

    fn search(&self, tool: &'static str, fields: &[&str]) -> Option<OwnCall> {
        let mut input = self.fields(fields);
        let path = self.path();
        if let Some(path) = &path {
            input.insert("path".into(), path.clone().into());
        }
        Some(OwnCall {
            tool,
            input: input.into(),
            paths: path.into_iter().collect(),
        })
    }

    fn grep(&self) -> Option<OwnCall> {
        let mut own = self.search("grep", &["pattern", "glob", "type", "multiline"])?;
        own.input.get("pattern")?;
        let mode = match text_at(self.input, &["output_mode"]) {
            Some("content") => "lines",
            Some("count") => "count",
            _ => "files",
        };
        own.input["mode"] = mode.into();
        if self.input.get("-i") == Some(&Value::Bool(true)) {
            own.input["case"] = "insensitive".into();
        }
        let around = ["-C", "-A", "-B"]
            .iter()
            .filter_map(|name| self.input.get(name)?.as_u64());
        if let Some(context) = around.max() {
            own.input["context"] = context.into();
        }
        if let Some(limit) = self.input.get("head_limit").filter(|limit| limit.is_u64()) {
            own.input["limit"] = limit.clone();
        }
        Some(own)
    }

    fn process(&self, tool: &'static str) -> Option<OwnCall> {
        let id = ["bash_id", "shell_id", "task_id"]
            .iter()
            .find_map(|name| text_at(self.input, &[name]))?;
        Some(OwnCall {
            tool,
            input: json!({ "process_id": id }),
            paths: Vec::new(),
        })
    }

    /// A patch is a write where it makes one file, and otherwise an edit of each file it names.
    fn patch(&self, patch: &super::codex_result::Patch) -> Option<OwnCall> {
        let workdir = text_at(self.input, &["workdir"]).or(self.cwd);
        let changes = patch.changes(self.root, workdir);
        let paths: Vec<String> = changes.iter().map(|change| change.path.clone()).collect();
        let first = paths.first()?;
        let mut input = json!({ "path": first, "patch": patch.text });
        if let [only] = &*changes
            && let (super::change::Side::Missing, super::change::Side::Text(text)) =
                (&only.before, &only.after)
        {
            return Some(OwnCall {
                tool: "write",
                input: json!({ "path": first, "content": text }),
                paths,
            });
        }
        if paths.len() > 1 {
            input["also"] = json!(paths[1..]);
        }
        Some(OwnCall {
            tool: "edit",
            input,
            paths,
        })
    }
}

/// What a shell was given: a script, or words of which a shell's own script is one.
fn script_of(given: &Value) -> Option<String> {
    let words = match given {
        Value::String(script) => return Some(script.clone()),
        Value::Array(words) => words,
        _ => return None,
    };
    let words: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
    let words = words?;
    if let [shell, flag, script] = &*words {
        let name = shell.rsplit('/').next().unwrap_or(shell);
        let is_script = flag.starts_with('-') && !flag.starts_with("--") && flag.ends_with('c');
        if matches!(name, "bash" | "sh" | "zsh" | "dash") && is_script {
            return Some((*script).to_owned());
        }
    }
    let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    (!quoted.is_empty()).then(|| quoted.join(" "))
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn own(tool: &str, input: Value) -> Option<(&'static str, Value)> {
        let root = Root::of(Path::new("/p"), Some("/srv/shop"));
        let own = own_call(tool, &input, Some("/srv/shop/sub"), &root)?;
        Some((own.tool, own.input))
    }

    #[test]
    fn calls_are_told_in_our_words() {
        let bash = |command: &str| json!({"command": command, "cwd": "sub"});
        for (tool, input, expected) in [
            (
                "Bash",
                json!({"command": "ls", "timeout": 5}),
                (
                    "bash",
                    json!({"command": "ls", "cwd": "sub", "timeout_ms": 5}),
                ),
            ),
            (
                "shell",
                json!({"command": ["bash", "-lc", "ls | wc"]}),
                ("bash", bash("ls | wc")),
            ),
            (
                "exec_command",
                json!({"cmd": "ls", "workdir": "/srv/shop"}),
                ("bash", json!({"command": "ls"})),
            ),
            (
                "shell",
                json!({"command": ["git", "commit", "-m", "it's"]}),
                ("bash", bash(r"git commit -m 'it'\''s'")),
            ),
            (
                "Read",
                json!({"file_path": "/srv/shop/a.rs", "offset": 10, "limit": 5}),
                ("read", json!({"path": "a.rs", "offset": 10, "limit": 5})),
            ),
            (
                "Write",
                json!({"file_path": "/etc/x", "content": "y"}),
                ("write", json!({"path": "/etc/x", "content": "y"})),
            ),
            (
                "Grep",
                json!({"pattern": "x", "output_mode": "content", "-A": 3, "-i": true}),
                (
                    "grep",
                    json!({"pattern": "x", "mode": "lines", "case": "insensitive", "context": 3}),
                ),
            ),
            (
                "apply_patch",
                "*** Begin Patch\n*** Add File: n\n+x\n*** End Patch".into(),
                ("write", json!({"path": "sub/n", "content": "x\n"})),
            ),
        ] {
            let found = own(tool, input);
            assert_eq!(found, Some(expected), "{tool}");
        }
        assert_eq!(own("Task", json!({"prompt": "x"})), None);
        assert_eq!(own("Bash", json!({})), None);
        assert_eq!(own("Grep", json!({"path": "x"})), None);
    }
}
