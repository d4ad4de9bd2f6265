//! Codex's rollout files: lines of `{timestamp, type, payload}`, and an older form in which the
//! items of the conversation stand on the lines themselves.

use std::collections::HashMap;
use std::path::Path;

use agent_protocol::Timestamp;
use agent_protocol::payload::Usage;
use agent_protocol::payload::conversation::InputPartKind;
use agent_protocol::payload::model::CompactionTrigger;
use serde_json::Value;

use super::codex_result::result;
use super::place::Root;
use super::tools::own_call;
use super::{Entry, Part, Program, Record, Said, content_text, text_at, time_of};

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

pub(super) fn read(lines: &[&Value], project: &Path) -> Record {
    let has = |kind: &str| {
        let of = |line: &Value| text_at(line, &["payload", "type"]) == Some(kind);
        lines.iter().any(|line| of(line))
    };
    let cwd = lines
        .iter()
        .find_map(|line| text_at(line, &["payload", "cwd"]));
    let root = Root::of(project, cwd);
    let mut reader = Reader {
        record: Record::new(Program::Codex),
        // What the user typed is an event of its own in newer files; items then only repeat it.
        has_prompts: has("user_message"),
        has_compacted: lines
            .iter()
            .any(|line| text_at(line, &["type"]) == Some("compacted")),
        calls: calls(lines),
        model: None,
        cwd: None,
        total: None,
        root,
    };
    let mut last = None;
    for line in lines {
        let time = time_of(line).or(last);
        last = time;
        reader.line(line, time);
    }
    let mut record = reader.record;
    record.root = reader.root.as_text();
    record
}

/// What each call was given: a result may stand before its call.
fn calls(lines: &[&Value]) -> HashMap<String, Value> {
    let mut calls = HashMap::new();
    for line in lines {
        let item = line.get("payload").unwrap_or(line);
        if let (Some(id), Some(input)) = (text_at(item, &["call_id"]), input_of(item)) {
            calls.insert(id.to_owned(), input);
        }
    }
    calls
}

fn input_of(item: &Value) -> Option<Value> {
    let given = item
        .get("arguments")
        .or_else(|| item.get("input"))
        .or_else(|| item.get("action"))?;
    Some(readable(given.clone()))
}

struct Reader {
    record: Record,
    has_prompts: bool,
    has_compacted: bool,
    calls: HashMap<String, Value>,
    model: Option<String>,
    cwd: Option<String>,
    /// The last total that was told; the same one again is no new request.
    total: Option<Value>,
    root: Root,
}

impl Reader {
    fn line(&mut self, line: &Value, time: Option<Timestamp>) {
        let payload = line.get("payload").unwrap_or(line);
        let kind = text_at(line, &["type"]);
        match (kind, time) {
            (Some("session_meta"), _) => {
                self.record.version = text_at(payload, &["cli_version"]).map(str::to_owned);
                self.cwd = text_at(payload, &["cwd"]).map(str::to_owned);
            }
            (Some("turn_context"), _) => {
                self.model = text_at(payload, &["model"]).map(str::to_owned);
                if let Some(cwd) = text_at(payload, &["cwd"]) {
                    self.cwd = Some(cwd.to_owned());
                }
            }
            (Some("compacted"), Some(time)) => {
                let summary = text_at(payload, &["message"]).unwrap_or_default();
                self.compacted(time, summary);
            }
            (Some("event_msg"), Some(time)) => self.event(payload, time),
            (Some("response_item"), Some(time)) => self.item(payload, time),
            // The older form.
            (Some(_), Some(time)) if line.get("payload").is_none() => self.item(line, time),
            (None, _) => {}
            (Some(other), _) => self.record.leave_out(format!("`{other}` records")),
        }
    }

    fn say(&mut self, time: Timestamp, said: Said) {
        let agent = None;
        self.record.said.push(Entry { time, agent, said });
    }

    fn compacted(&mut self, time: Timestamp, summary: &str) {
        let said = Said::Compacted {
            trigger: CompactionTrigger::Threshold,
            tokens_before: 0,
            summary: summary.to_owned(),
        };
        self.say(time, said);
    }

    fn event(&mut self, payload: &Value, time: Timestamp) {
        match text_at(payload, &["type"]) {
            Some("user_message") => {
                let text = text_at(payload, &["message"]).unwrap_or_default();
                self.prompt(time, text.to_owned(), images(payload));
            }
            Some("token_count") => self.count(payload, time),
            Some("turn_aborted") => self.say(time, Said::Interrupted),
            Some("context_compacted") if self.has_compacted => {}
            Some("context_compacted") => self.compacted(time, ""),
            // These repeat what the items say.
            Some("agent_message" | "agent_reasoning" | "exec_command_end" | "patch_apply_end") => {}
            other => {
                let what = format!("`{}` events", other.unwrap_or("unnamed"));
                self.record.leave_out(what);
            }
        }
    }

    fn prompt(&mut self, time: Timestamp, text: String, parts: Vec<Part>) {
        for _ in parts.iter().filter(|part| part.bytes.is_none()) {
            self.record.leave_out("`image` blocks");
        }
        let joins = false;
        self.say(time, Said::Prompt { text, parts, joins });
    }

    /// Counts a request. The count is repeated when limits are refreshed.
    fn count(&mut self, payload: &Value, time: Timestamp) {
        let total = payload.pointer("/info/total_token_usage");
        if total.is_some() && total == self.total.as_ref() {
            return;
        }
        self.total = total.cloned();
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

    fn item(&mut self, item: &Value, time: Timestamp) {
        let id = || text_at(item, &["call_id"]).unwrap_or_default().to_owned();
        match text_at(item, &["type"]).unwrap_or("message") {
            "message" => {
                let content = item.get("content").unwrap_or(&Value::Null);
                let text = content_text(content);
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
                        let blocks = content.as_array().into_iter().flatten();
                        let parts = blocks.filter_map(Part::of).collect();
                        self.prompt(time, text, parts);
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
                let input = input_of(item).unwrap_or(Value::Null);
                let tool = text_at(item, &["name"]).unwrap_or("shell").to_owned();
                let own = own_call(&tool, &input, self.cwd.as_deref(), &self.root);
                self.say(
                    time,
                    Said::Call {
                        id: id(),
                        tool,
                        input,
                        own,
                    },
                );
            }
            "function_call_output" | "custom_tool_call_output" => {
                let id = id();
                let input = self.calls.get(&id);
                let output = item.get("output").unwrap_or(&Value::Null);
                let end = result(id, output, input, self.cwd.as_deref(), &self.root);
                self.say(time, Said::Result(end));
            }
            other => self.record.leave_out(format!("`{other}` items")),
        }
    }
}

/// The images of a prompt: in it, or by the names of their files.
fn images(payload: &Value) -> Vec<Part> {
    let list = |name: &str| {
        let list = payload.get(name).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str)
    };
    let named = list("local_images").map(|path| Part {
        kind: InputPartKind::Image,
        name: Some(path.to_owned()),
        media_type: None,
        bytes: None,
    });
    list("images").map(Part::of_url).chain(named).collect()
}

/// Arguments are JSON inside a string.
fn readable(given: Value) -> Value {
    match &given {
        Value::String(text) => serde_json::from_str(text).unwrap_or(given),
        _ => given,
    }
}

/// What the program itself puts into the user's place.
fn is_preamble(text: &str) -> bool {
    let text = text.trim_start();
    [
        "<environment_context>",
        "<user_instructions>",
        "<permissions instructions>",
        "<turn_aborted>",
        "<user_shell_command>",
        "<skill>",
        "# AGENTS.md instructions",
    ]
    .iter()
    .any(|mark| text.starts_with(mark))
}
