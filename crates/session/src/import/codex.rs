//! Codex's rollout files: lines of `{timestamp, type, payload}`, and an older form in which the
//! items of the conversation stand on the lines themselves.

use std::collections::BTreeMap;

use agent_protocol::Timestamp;
use agent_protocol::payload::Usage;
use serde_json::Value;

use super::{Outcome, Program, Record, Said, content_text, text_at, time_of};

pub(super) fn is_own(line: &Value) -> bool {
    let kind = text_at(line, &["type"]);
    let is_wrapped = matches!(
        kind,
        Some("session_meta" | "response_item" | "turn_context" | "event_msg")
    ) && line.get("payload").is_some();
    let is_old_head = kind.is_none()
        && line.get("id").is_some()
        && line.get("instructions").is_some()
        && line.get("timestamp").is_some();
    is_wrapped || is_old_head
}

pub(super) fn read(lines: &[&Value]) -> Record {
    let mut record = Record {
        program: Program::Codex,
        version: None,
        title: None,
        said: Vec::new(),
        left_out: BTreeMap::new(),
    };
    // What the user typed is an event of its own in newer files; items then only repeat it.
    let has_prompts = lines
        .iter()
        .any(|line| text_at(line, &["payload", "type"]) == Some("user_message"));
    let mut reader = Reader {
        record: &mut record,
        has_prompts,
        model: None,
    };
    let mut last = None;
    for line in lines {
        let time = time_of(line).or(last);
        last = time;
        reader.line(line, time);
    }
    record
}

struct Reader<'a> {
    record: &'a mut Record,
    has_prompts: bool,
    model: Option<String>,
}

impl Reader<'_> {
    fn line(&mut self, line: &Value, time: Option<Timestamp>) {
        let payload = line.get("payload").unwrap_or(line);
        let kind = text_at(line, &["type"]);
        match (kind, time) {
            (Some("session_meta"), _) => {
                self.record.version = text_at(payload, &["cli_version"]).map(str::to_owned);
            }
            (Some("turn_context"), _) => {
                self.model = text_at(payload, &["model"]).map(str::to_owned);
            }
            (Some("event_msg"), Some(time)) => self.event(payload, time),
            (Some("response_item"), Some(time)) => self.item(payload, time),
            // The older form.
            (Some(_), Some(time)) if line.get("payload").is_none() => self.item(line, time),
            (None, _) => {}
            (Some(other), _) => self.left_out(&format!("`{other}` records")),
        }
    }

    fn left_out(&mut self, what: &str) {
        *self.record.left_out.entry(what.to_owned()).or_default() += 1;
    }

    fn say(&mut self, time: Timestamp, said: Said) {
        self.record.said.push((time, said));
    }

    fn event(&mut self, payload: &Value, time: Timestamp) {
        match text_at(payload, &["type"]) {
            Some("user_message") => {
                let text = text_at(payload, &["message"]).unwrap_or_default();
                self.say(time, Said::Prompt(text.to_owned()));
            }
            Some("token_count") => {
                let Some(usage) = payload.pointer("/info/last_token_usage") else {
                    return;
                };
                let number = |name: &str| usage.get(name).and_then(Value::as_u64);
                let usage = Usage {
                    model: self.model.clone(),
                    input: number("input_tokens"),
                    output: number("output_tokens"),
                    total: number("total_tokens"),
                    cached_input: number("cached_input_tokens"),
                    reasoning: number("reasoning_output_tokens"),
                    ..Usage::default()
                };
                self.say(time, Said::Counted(usage));
            }
            // These repeat what the items say.
            Some("agent_message" | "agent_reasoning" | "exec_command_end" | "patch_apply_end") => {}
            other => self.left_out(&format!("`{}` events", other.unwrap_or("unnamed"))),
        }
    }

    fn item(&mut self, item: &Value, time: Timestamp) {
        let id = || text_at(item, &["call_id"]).unwrap_or_default().to_owned();
        match text_at(item, &["type"]).unwrap_or("message") {
            "message" => {
                let text = content_text(item.get("content").unwrap_or(&Value::Null));
                match text_at(item, &["role"]) {
                    Some("assistant") => {
                        let model = self.model.clone();
                        self.say(
                            time,
                            Said::Answer {
                                text,
                                model,
                                stop_reason: None,
                            },
                        );
                    }
                    Some("user") if !self.has_prompts && !is_preamble(&text) => {
                        self.say(time, Said::Prompt(text));
                    }
                    _ => {}
                }
            }
            "reasoning" => {
                let text = content_text(item.get("summary").unwrap_or(&Value::Null));
                if !text.is_empty() {
                    self.say(time, Said::Reasoning(text));
                }
            }
            "function_call" | "custom_tool_call" | "local_shell_call" => {
                let given = item
                    .get("arguments")
                    .or_else(|| item.get("input"))
                    .or_else(|| item.get("action"))
                    .cloned()
                    .unwrap_or(Value::Null);
                let tool = text_at(item, &["name"]).unwrap_or("shell").to_owned();
                let input = readable(given);
                self.say(
                    time,
                    Said::Call {
                        id: id(),
                        tool,
                        input,
                    },
                );
            }
            "function_call_output" | "custom_tool_call_output" => {
                let result = self.result(id(), item.get("output").unwrap_or(&Value::Null));
                self.say(time, result);
            }
            other => self.left_out(&format!("`{other}` items")),
        }
    }

    fn result(&self, id: String, output: &Value) -> Said {
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
        let is_refused = text.contains("rejected by user") || text.contains("user rejected");
        let has_failed = exit_code.is_some_and(|code| code != 0)
            || facts
                .as_ref()
                .is_some_and(|facts| facts.get("success") == Some(&Value::Bool(false)));
        let outcome = match (is_refused, has_failed) {
            (true, _) => Outcome::Refused,
            (false, true) => Outcome::Failed,
            (false, false) => Outcome::Ok,
        };
        // A patch is the input of its call; whether it was applied is what its result says.
        let patch = (outcome == Outcome::Ok)
            .then(|| self.patch_of(&id))
            .flatten();
        Said::Result {
            id,
            text,
            outcome,
            exit_code,
            changed: patch.as_deref().map(patched_files).unwrap_or_default(),
            diff: patch,
        }
    }

    fn patch_of(&self, id: &str) -> Option<String> {
        let mut said = self.record.said.iter().rev();
        let input = said.find_map(|(_, said)| match said {
            Said::Call {
                id: call, input, ..
            } if call == id => Some(input),
            _ => None,
        })?;
        let text = match input {
            Value::String(text) => text.clone(),
            Value::Object(fields) => {
                let command = fields.get("command")?.as_array()?;
                command
                    .iter()
                    .filter_map(Value::as_str)
                    .collect::<Vec<_>>()
                    .join("\n")
            }
            _ => return None,
        };
        let at = text.find("*** Begin Patch")?;
        Some(text[at..].to_owned())
    }
}

/// `Process exited with code 1`, `Exit code: 1`.
fn exit_code(text: &str) -> Option<i64> {
    let head: String = text.lines().take(6).collect::<Vec<_>>().join("\n");
    let after = ["Process exited with code ", "Exit code: "]
        .iter()
        .find_map(|words| head.split_once(words))?
        .1;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn patched_files(patch: &str) -> Vec<(String, bool)> {
    let named = |line: &str| {
        let path = line
            .strip_prefix("*** Update File: ")
            .map(|path| (path, false));
        let path = path.or_else(|| {
            line.strip_prefix("*** Delete File: ")
                .map(|path| (path, false))
        });
        let path = path.or_else(|| line.strip_prefix("*** Add File: ").map(|path| (path, true)));
        path.map(|(path, is_new)| (path.trim().to_owned(), is_new))
    };
    patch.lines().filter_map(named).collect()
}

/// Arguments are JSON inside a string.
fn readable(given: Value) -> Value {
    match &given {
        Value::String(text) => serde_json::from_str(text).unwrap_or(given),
        _ => given,
    }
}

/// What the program itself puts before the first prompt.
fn is_preamble(text: &str) -> bool {
    let text = text.trim_start();
    [
        "<environment_context>",
        "<user_instructions>",
        "# AGENTS.md instructions",
    ]
    .iter()
    .any(|mark| text.starts_with(mark))
}
