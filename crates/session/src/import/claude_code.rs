//! Claude Code's session files: one JSON object per line, of type `user`, `assistant`, `system`,
//! `summary` and others. Tool results come inside messages of the user.

use std::collections::{BTreeMap, HashSet};

use agent_protocol::Timestamp;
use agent_protocol::payload::Usage;
use serde_json::Value;

use super::{Outcome, Program, Record, Said, content_text, text_at, time_of};

pub(super) fn is_own(line: &Value) -> bool {
    let kind = text_at(line, &["type"]);
    let is_message = matches!(kind, Some("user" | "assistant")) && line.get("message").is_some();
    let is_summary = kind == Some("summary") && line.get("leafUuid").is_some();
    is_summary || (is_message && line.get("sessionId").is_some())
}

pub(super) fn read(lines: &[&Value]) -> Record {
    let mut record = Record {
        program: Program::ClaudeCode,
        version: None,
        title: None,
        said: Vec::new(),
        left_out: BTreeMap::new(),
    };
    let mut counted = HashSet::new();
    let mut last = None;
    for line in lines {
        let kind = text_at(line, &["type"]).unwrap_or("no type");
        if record.version.is_none() {
            record.version = text_at(line, &["version"]).map(str::to_owned);
        }
        let time = time_of(line).or(last);
        last = time;
        let is_side = line.get("isSidechain") == Some(&Value::Bool(true));
        let is_meta = line.get("isMeta") == Some(&Value::Bool(true));
        let mut left_out = |what: &str| {
            *record.left_out.entry(what.to_owned()).or_default() += 1;
        };
        match (kind, time) {
            ("summary", _) => record.title = text_at(line, &["summary"]).map(str::to_owned),
            ("user" | "assistant", _) if is_side => left_out("subagent messages"),
            ("user", _) if is_meta => left_out("notes of the program"),
            ("user", Some(time)) => {
                let other = user(line, time, &mut record.said);
                other.iter().for_each(|kind| left_out(kind));
            }
            ("assistant", Some(time)) => {
                let own = &mut record.said;
                let other = assistant(line, time, own, &mut counted);
                other.iter().for_each(|kind| left_out(kind));
            }
            (other, _) => left_out(&format!("`{other}` records")),
        }
    }
    record
}

/// Takes a message of the user, and gives the kinds of blocks in it that are not told.
fn user(line: &Value, time: Timestamp, said: &mut Vec<(Timestamp, Said)>) -> Vec<String> {
    let mut other = Vec::new();
    let content = line.pointer("/message/content").unwrap_or(&Value::Null);
    let mut words = Vec::new();
    if let Value::String(text) = content {
        words.push(text.clone());
    }
    for block in content.as_array().into_iter().flatten() {
        match text_at(block, &["type"]) {
            Some("text") => words.extend(text_at(block, &["text"]).map(str::to_owned)),
            Some("tool_result") => said.push((time, result(block, line.get("toolUseResult")))),
            kind => other.push(blocks_of(kind)),
        }
    }
    let prompt = words.join("\n");
    if !prompt.trim().is_empty() {
        said.push((time, Said::Prompt(prompt)));
    }
    other
}

fn blocks_of(kind: Option<&str>) -> String {
    format!("`{}` blocks", kind.unwrap_or("unnamed"))
}

fn result(block: &Value, facts: Option<&Value>) -> Said {
    let text = content_text(block.get("content").unwrap_or(&Value::Null));
    let is_error = block.get("is_error") == Some(&Value::Bool(true));
    let is_refused = is_error
        && [
            "doesn't want to proceed",
            "Request interrupted",
            "permission to use",
        ]
        .iter()
        .any(|words| text.contains(words));
    let patch = facts.and_then(|facts| facts.get("structuredPatch"));
    let path = facts.and_then(|facts| text_at(facts, &["filePath"]));
    let is_new = facts.and_then(|facts| text_at(facts, &["type"])) == Some("create");
    let has_changed = !is_error && path.is_some() && (patch.is_some() || is_new);
    Said::Result {
        id: text_at(block, &["tool_use_id"])
            .unwrap_or_default()
            .to_owned(),
        exit_code: is_error.then(|| exit_code(&text)).flatten(),
        outcome: match (is_refused, is_error) {
            (true, _) => Outcome::Refused,
            (false, true) => Outcome::Failed,
            (false, false) => Outcome::Ok,
        },
        diff: patch.and_then(|patch| unified(path?, patch)),
        changed: path
            .filter(|_| has_changed)
            .map(|path| (path.to_owned(), is_new))
            .into_iter()
            .collect(),
        text,
    }
}

/// `Exit code 2` at the beginning of a failed command's text.
fn exit_code(text: &str) -> Option<i32> {
    let after = text
        .strip_prefix("Error: ")
        .unwrap_or(text)
        .strip_prefix("Exit code ")?;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// The hunks of a `structuredPatch` as a unified diff.
fn unified(path: &str, patch: &Value) -> Option<String> {
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
        for line in hunk
            .get("lines")?
            .as_array()?
            .iter()
            .filter_map(Value::as_str)
        {
            diff.push_str(line);
            diff.push('\n');
        }
    }
    (!hunks.is_empty()).then_some(diff)
}

/// Takes a message of the model, and gives the kinds of blocks in it that are not told.
fn assistant(
    line: &Value,
    time: Timestamp,
    said: &mut Vec<(Timestamp, Said)>,
    counted: &mut HashSet<String>,
) -> Vec<String> {
    let mut other = Vec::new();
    let Some(message) = line.get("message") else {
        return other;
    };
    let content = message.get("content").unwrap_or(&Value::Null);
    let blocks: Vec<Value> = match content {
        Value::String(text) => vec![serde_json::json!({ "type": "text", "text": text })],
        Value::Array(blocks) => blocks.clone(),
        _ => Vec::new(),
    };
    for block in &blocks {
        match text_at(block, &["type"]) {
            Some("text") => said.push((
                time,
                Said::Answer {
                    text: text_at(block, &["text"]).unwrap_or_default().to_owned(),
                    model: text_at(message, &["model"]).map(str::to_owned),
                    stop_reason: text_at(message, &["stop_reason"]).map(str::to_owned),
                },
            )),
            Some("thinking") => {
                let text = text_at(block, &["thinking"]).unwrap_or_default();
                if !text.is_empty() {
                    said.push((time, Said::Reasoning(text.to_owned())));
                }
            }
            Some("tool_use") => said.push((
                time,
                Said::Call {
                    id: text_at(block, &["id"]).unwrap_or_default().to_owned(),
                    tool: text_at(block, &["name"]).unwrap_or("unknown").to_owned(),
                    input: block.get("input").cloned().unwrap_or(Value::Null),
                },
            )),
            kind => other.push(blocks_of(kind)),
        }
    }
    // A message is written once per block, each time with the usage of the whole.
    let id = text_at(message, &["id"]).unwrap_or_default().to_owned();
    if let Some(usage) = message.get("usage")
        && (id.is_empty() || counted.insert(id))
    {
        let number = |name: &str| usage.get(name).and_then(Value::as_u64);
        let fresh = number("input_tokens");
        let cached = number("cache_read_input_tokens");
        let written = number("cache_creation_input_tokens");
        said.push((
            time,
            Said::Counted(Usage {
                model: text_at(message, &["model"]).map(str::to_owned),
                // What was sent is what was new, what was read from the cache and what was put there.
                input: fresh.map(|fresh| {
                    fresh
                        .saturating_add(cached.unwrap_or(0))
                        .saturating_add(written.unwrap_or(0))
                }),
                output: number("output_tokens"),
                cached_input: cached,
                cache_write: written,
                ..Usage::default()
            }),
        ));
    }
    other
}
