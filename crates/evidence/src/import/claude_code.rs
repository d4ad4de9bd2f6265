//! Claude Code's session files: one JSON object per line, of type `user`, `assistant`, `system`,
//! `summary` and others. Tool results come inside messages of the user; what sub-agents did stands in
//! `progress` records, on lines marked as a side chain, or in files of its own.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use agent_protocol::Timestamp;
use agent_protocol::payload::Usage;
use agent_protocol::payload::model::CompactionTrigger;
use agent_protocol::status::Mode;
use serde_json::{Value, json};

use super::claude_result::result;
use super::place::Root;
use super::tools::own_call;
use super::words::{Words, words_of};
use super::{Entry, Part, Program, Record, Said, text_at, time_of};

/// The model's name on messages that the program wrote itself.
const SYNTHETIC: &str = "<synthetic>";

pub(super) fn is_own(line: &Value) -> bool {
    let kind = text_at(line, &["type"]);
    let is_message = matches!(kind, Some("user" | "assistant")) && line.get("message").is_some();
    let is_summary = kind == Some("summary") && line.get("leafUuid").is_some();
    is_summary || (is_message && line.get("sessionId").is_some())
}

/// Reads the lines of a session, and those of its sub-agents that stand in other files.
pub(super) fn read(lines: &[&Value], side_lines: &[&Value], project: &Path) -> Record {
    let is_message =
        |line: &&&Value| matches!(text_at(line, &["type"]), Some("user" | "assistant"));
    let mut messages = lines.iter().filter(is_message).peekable();
    // A file in which everything is beside the main chain is the record of a sub-agent itself.
    let is_subagent =
        messages.peek().is_some() && messages.all(|line| is_true(line, "isSidechain"));
    let cwd = lines.iter().find_map(|line| text_at(line, &["cwd"]));
    let all = || lines.iter().chain(side_lines).copied();
    let mut reader = Reader {
        root: Root::of(project, cwd),
        record: Record::new(Program::ClaudeCode),
        usages: usages(all()),
        counted: HashSet::new(),
        tasks: tasks(all()),
        chains: HashMap::new(),
        agents: HashSet::new(),
        seen: HashSet::new(),
        command: None,
        compaction: None,
        mode: None,
        titles: Titles::default(),
        last: None,
    };
    reader.record.is_subagent = is_subagent;
    for line in lines {
        reader.line(line);
    }
    reader.end_compaction(None);
    for line in side_lines {
        reader.line(line);
    }
    let Reader {
        mut record,
        root,
        titles,
        ..
    } = reader;
    record.root = root.as_text();
    record.title = titles.custom.or(titles.made).or(titles.summary);
    record.mode = record.said.iter().find_map(|entry| match entry.said {
        Said::Mode(mode) => Some(mode),
        _ => None,
    });
    if !side_lines.is_empty() {
        record.said.sort_by_key(|entry| entry.time.unix_millis());
    }
    record.doubts.extend(doubt(&record));
    record
}

/// Versions that wrote the count of the beginning for every answer.
fn doubt(record: &Record) -> Option<String> {
    let version = record.version.as_deref()?;
    let last: u64 = version.strip_prefix("2.1.")?.parse().ok()?;
    let outputs = record.said.iter().filter_map(|entry| match &entry.said {
        Said::Counted(usage) => usage.output,
        _ => None,
    });
    let (count, sum) = outputs.fold((0_u64, 0_u64), |(count, sum), output| {
        (count + 1, sum.saturating_add(output))
    });
    let is_low = count > 2 && sum < count.saturating_mul(10);
    ((12..30).contains(&last) && is_low).then(|| {
        format!(
            "Claude Code {version} did not record how many tokens came out; the count is too low"
        )
    })
}

/// The usage of each message: it stands on several lines, and only the last ones have the whole.
fn usages<'a>(lines: impl Iterator<Item = &'a Value>) -> HashMap<String, Usage> {
    let mut usages: HashMap<String, Usage> = HashMap::new();
    for line in lines {
        // Of a sub-agent, the message is one level further in.
        let nested = line.pointer("/data/message/message");
        let Some(message) = nested.or_else(|| line.get("message")) else {
            continue;
        };
        let (Some(id), Some(usage)) = (text_at(message, &["id"]), usage_of(message)) else {
            continue;
        };
        match usages.get_mut(id) {
            Some(known) if known.output > usage.output => {}
            Some(known) => *known = usage,
            None => {
                usages.insert(id.to_owned(), usage);
            }
        }
    }
    usages
}

fn usage_of(message: &Value) -> Option<Usage> {
    let usage = message.get("usage")?;
    let number = |name: &str| usage.get(name).and_then(Value::as_u64);
    let cached = number("cache_read_input_tokens");
    let written = number("cache_creation_input_tokens");
    Some(Usage {
        model: text_at(message, &["model"]).map(str::to_owned),
        // What was sent is what was new, what was read from the cache and what was put there.
        input: number("input_tokens").map(|fresh| {
            fresh
                .saturating_add(cached.unwrap_or(0))
                .saturating_add(written.unwrap_or(0))
        }),
        output: number("output_tokens"),
        cached_input: cached,
        cache_write: written,
        ..Usage::default()
    })
}

/// A call that began a sub-agent.
struct Task {
    call: String,
    role: String,
    prompt: String,
    agent: Option<String>,
}

/// The calls that began sub-agents, with the agents their results name.
fn tasks<'a>(lines: impl Iterator<Item = &'a Value>) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    for line in lines {
        let blocks = line.pointer("/message/content").and_then(Value::as_array);
        for block in blocks.into_iter().flatten() {
            let text = |path: &[&str]| text_at(block, path).unwrap_or_default().to_owned();
            match text_at(block, &["type"]) {
                Some("tool_use") if matches!(text_at(block, &["name"]), Some("Task" | "Agent")) => {
                    tasks.push(Task {
                        call: text(&["id"]),
                        role: text(&["input", "subagent_type"]),
                        prompt: text(&["input", "prompt"]),
                        agent: None,
                    });
                }
                Some("tool_result") => {
                    let agent = text_at(line, &["toolUseResult", "agentId"]);
                    let id = text(&["tool_use_id"]);
                    if let Some(task) = tasks.iter_mut().find(|task| task.call == id) {
                        task.agent = agent.map(str::to_owned);
                    }
                }
                _ => {}
            }
        }
    }
    tasks
}

#[derive(Default)]
struct Titles {
    /// By the user, by the program, and of the conversation before.
    custom: Option<String>,
    made: Option<String>,
    summary: Option<String>,
}

struct Reader {
    root: Root,
    record: Record,
    usages: HashMap<String, Usage>,
    counted: HashSet<String>,
    tasks: Vec<Task>,
    /// The sub-agent of each message beside the main chain.
    chains: HashMap<String, String>,
    /// Sub-agents whose beginning was told.
    agents: HashSet<String>,
    /// Messages of sub-agents, which may stand in two places.
    seen: HashSet<String>,
    /// A command that may turn out to have asked the model.
    command: Option<(Timestamp, String)>,
    /// A compaction whose summary has not come yet.
    compaction: Option<(Timestamp, CompactionTrigger, u64)>,
    mode: Option<Mode>,
    titles: Titles,
    last: Option<Timestamp>,
}

/// A message, with whom it belongs to and where it was written.
struct Message<'a> {
    line: &'a Value,
    agent: Option<String>,
    time: Timestamp,
    cwd: Option<&'a str>,
}

impl Reader {
    fn line(&mut self, line: &Value) {
        let kind = text_at(line, &["type"]).unwrap_or("no type");
        if self.record.version.is_none() {
            self.record.version = text_at(line, &["version"]).map(str::to_owned);
        }
        let time = time_of(line).or(self.last);
        self.last = time;
        let title = |name: &str| text_at(line, &[name]).or_else(|| text_at(line, &["title"]));
        match (kind, time) {
            ("summary", _) => self.titles.summary = text_at(line, &["summary"]).map(str::to_owned),
            ("custom-title", _) => self.titles.custom = title("customTitle").map(str::to_owned),
            ("ai-title", _) => self.titles.made = title("aiTitle").map(str::to_owned),
            ("progress", Some(time))
                if text_at(line, &["data", "type"]) == Some("agent_progress") =>
            {
                self.progress(line, time);
            }
            ("attachment", Some(time))
                if text_at(line, &["attachment", "type"]) == Some("queued_command") =>
            {
                self.queued(line, time);
            }
            ("system", Some(time)) if text_at(line, &["subtype"]) == Some("compact_boundary") => {
                self.end_compaction(None);
                let facts = line.get("compactMetadata");
                let trigger = match facts.and_then(|facts| text_at(facts, &["trigger"])) {
                    Some("manual") => CompactionTrigger::User,
                    _ => CompactionTrigger::Threshold,
                };
                let tokens = facts.and_then(|facts| facts.get("preTokens")?.as_u64());
                self.compaction = Some((time, trigger, tokens.unwrap_or(0)));
            }
            ("user", Some(time)) if is_true(line, "isCompactSummary") => {
                let content = line.pointer("/message/content").unwrap_or(&Value::Null);
                self.compaction
                    .get_or_insert((time, CompactionTrigger::Threshold, 0));
                self.end_compaction(Some(super::content_text(content)));
            }
            ("user", _) if is_true(line, "isMeta") => {
                self.record.leave_out("notes of the program");
            }
            ("user" | "assistant", Some(time)) => {
                let agent = self.agent_of(line);
                self.message(&Message {
                    line,
                    agent,
                    time,
                    cwd: text_at(line, &["cwd"]),
                });
            }
            (other, _) => self.record.leave_out(format!("`{other}` records")),
        }
    }

    fn say(&mut self, message: &Message<'_>, said: Said) {
        self.record.said.push(Entry {
            time: message.time,
            agent: message.agent.clone(),
            said,
        });
    }

    fn say_at(&mut self, time: Timestamp, said: Said) {
        let agent = None;
        self.record.said.push(Entry { time, agent, said });
    }

    /// The sub-agent a line belongs to, if it is beside the main chain.
    fn agent_of(&mut self, line: &Value) -> Option<String> {
        if self.record.is_subagent || !is_true(line, "isSidechain") {
            return None;
        }
        let uuid = text_at(line, &["uuid"]).unwrap_or_default();
        let parent = text_at(line, &["parentUuid"]).and_then(|parent| self.chains.get(parent));
        let agent = text_at(line, &["agentId"])
            .map(str::to_owned)
            .or_else(|| parent.cloned())
            .unwrap_or_else(|| uuid.to_owned());
        self.chains.insert(uuid.to_owned(), agent.clone());
        Some(agent)
    }

    /// What a sub-agent did, told while it worked.
    fn progress(&mut self, line: &Value, time: Timestamp) {
        let Some(inner) = line.pointer("/data/message") else {
            self.record.leave_out("`progress` records");
            return;
        };
        let agent = text_at(line, &["data", "agentId"]).unwrap_or("unnamed");
        let call = text_at(line, &["parentToolUseID"]).or_else(|| text_at(line, &["toolUseID"]));
        if let Some(call) = call
            && let Some(task) = self.tasks.iter_mut().find(|task| task.call == call)
        {
            task.agent.get_or_insert_with(|| agent.to_owned());
        }
        let message = Message {
            line: inner,
            agent: Some(agent.to_owned()),
            time: time_of(inner).unwrap_or(time),
            cwd: text_at(line, &["cwd"]),
        };
        let objective = text_at(line, &["data", "prompt"]).unwrap_or_default();
        self.begin_agent(&message, objective);
        self.message(&message);
    }

    /// Tells once that a sub-agent began, and of which call.
    fn begin_agent(&mut self, message: &Message<'_>, prompt: &str) {
        let Some(agent) = &message.agent else {
            return;
        };
        if !self.agents.insert(agent.clone()) {
            return;
        }
        let by_agent = |task: &&Task| task.agent.as_ref() == Some(agent);
        let by_prompt = |task: &&Task| task.agent.is_none() && task.prompt == prompt;
        let found = self.tasks.iter().find(by_agent);
        let found = found.or_else(|| self.tasks.iter().find(by_prompt));
        let said = Said::Delegated {
            call: found.map(|task| task.call.clone()),
            role: found.map(|task| task.role.clone()).unwrap_or_default(),
            objective: prompt.to_owned(),
        };
        self.say(message, said);
    }

    fn message(&mut self, message: &Message<'_>) {
        if message.agent.is_some()
            && let Some(uuid) = text_at(message.line, &["uuid"])
            && !self.seen.insert(uuid.to_owned())
        {
            return;
        }
        if message.agent.is_none() {
            self.end_compaction(None);
            self.take_mode(message);
        }
        match text_at(message.line, &["type"]) {
            Some("assistant") => self.assistant(message),
            _ => self.user(message),
        }
    }

    fn take_mode(&mut self, message: &Message<'_>) {
        let mode = match text_at(message.line, &["permissionMode"]) {
            Some("default") => Mode::Ask,
            Some("acceptEdits") => Mode::AcceptEdits,
            Some("auto") => Mode::Auto,
            Some("bypassPermissions") => Mode::Full,
            Some("plan") => Mode::Plan,
            _ => return,
        };
        if self.mode.replace(mode) != Some(mode) {
            self.say(message, Said::Mode(mode));
        }
    }

    fn end_compaction(&mut self, summary: Option<String>) {
        if let Some((time, trigger, tokens_before)) = self.compaction.take() {
            let said = Said::Compacted {
                trigger,
                tokens_before,
                summary: summary.unwrap_or_default(),
            };
            self.say_at(time, said);
        }
    }

    /// A prompt that the user typed while the model worked.
    fn queued(&mut self, line: &Value, time: Timestamp) {
        let prompt = line.pointer("/attachment/prompt").unwrap_or(&Value::Null);
        let is_prompt = matches!(
            text_at(line, &["attachment", "commandMode"]),
            Some("prompt") | None
        );
        match words_of(&super::content_text(prompt)) {
            Words::Prompt(text) if is_prompt => {
                let parts = prompt.as_array().into_iter().flatten();
                let parts = parts.filter_map(Part::of).collect();
                let joins = true;
                self.say_at(time, Said::Prompt { text, parts, joins });
            }
            Words::Note(what) | Words::Local(what) => self.record.leave_out(what),
            _ => self.record.leave_out("queued commands"),
        }
    }

    fn user(&mut self, message: &Message<'_>) {
        let content = message
            .line
            .pointer("/message/content")
            .unwrap_or(&Value::Null);
        let blocks: Vec<Value> = match content {
            Value::String(text) => vec![json!({ "type": "text", "text": text })],
            Value::Array(blocks) => blocks.clone(),
            _ => Vec::new(),
        };
        let is_result = |block: &&Value| text_at(block, &["type"]) == Some("tool_result");
        let results = blocks.iter().filter(is_result).count();
        // What stands beside the message is about its only result.
        let facts = message.line.get("toolUseResult").filter(|_| results == 1);
        let (mut prompt, mut parts) = (Vec::new(), Vec::new());
        let mut is_interrupted = false;
        for block in &blocks {
            match text_at(block, &["type"]) {
                Some("text") => match words_of(text_at(block, &["text"]).unwrap_or_default()) {
                    Words::Prompt(text) => prompt.push(text),
                    Words::Interrupted => is_interrupted = true,
                    Words::Command(typed) if message.agent.is_none() => {
                        self.record.leave_out("slash commands");
                        self.command = Some((message.time, typed));
                    }
                    Words::Command(_) => self.record.leave_out("slash commands"),
                    Words::Local(what) => {
                        self.command = None;
                        self.record.leave_out(what);
                    }
                    Words::Note(what) => self.record.leave_out(what),
                },
                Some("tool_result") => {
                    let end = result(block, facts, &self.root);
                    self.count_missing(&end.parts);
                    self.say(message, Said::Result(end));
                }
                kind => match Part::of(block) {
                    Some(part) => parts.push(part),
                    None => self.record.leave_out(blocks_of(kind)),
                },
            }
        }
        self.count_missing(&parts);
        let text = prompt.join("\n");
        if message.agent.is_some() {
            self.begin_agent(message, &text);
        } else if !text.is_empty() || !parts.is_empty() {
            self.command = None;
            let joins = results > 0;
            self.say(message, Said::Prompt { text, parts, joins });
        }
        if is_interrupted && message.agent.is_none() {
            self.command = None;
            self.say(message, Said::Interrupted);
        }
    }

    /// What is named and not there.
    fn count_missing(&mut self, parts: &[Part]) {
        for part in parts.iter().filter(|part| part.bytes.is_none()) {
            let kind = match part.kind {
                agent_protocol::payload::conversation::InputPartKind::Image => "image",
                _ => "document",
            };
            self.record.leave_out(blocks_of(Some(kind)));
        }
    }

    fn assistant(&mut self, message: &Message<'_>) {
        let Some(answer) = message.line.get("message") else {
            return;
        };
        let content = answer.get("content").unwrap_or(&Value::Null);
        if text_at(answer, &["model"]) == Some(SYNTHETIC) {
            if is_true(message.line, "isApiErrorMessage") {
                self.say(message, Said::ModelFailed(super::content_text(content)));
            } else {
                self.record.leave_out("notes of the program");
            }
            return;
        }
        if message.agent.is_some() {
            self.begin_agent(message, "");
        } else if let Some((time, text)) = self.command.take() {
            // The command was one that asks the model, so the user did ask.
            self.say_at(
                time,
                Said::Prompt {
                    text,
                    parts: Vec::new(),
                    joins: false,
                },
            );
        }
        let blocks: Vec<Value> = match content {
            Value::String(text) => vec![json!({ "type": "text", "text": text })],
            Value::Array(blocks) => blocks.clone(),
            _ => Vec::new(),
        };
        for block in &blocks {
            self.answered(message, answer, block);
        }
        self.count(message, answer);
    }

    fn answered(&mut self, message: &Message<'_>, answer: &Value, block: &Value) {
        let text = |name: &str| text_at(block, &[name]).unwrap_or_default().to_owned();
        let said = match text_at(block, &["type"]) {
            Some("text") => Said::Answer {
                text: text("text"),
                model: text_at(answer, &["model"]).map(str::to_owned),
                stop_reason: text_at(answer, &["stop_reason"]).map(str::to_owned),
            },
            // Newer versions keep only its signature.
            Some("thinking") if text("thinking").is_empty() => return,
            Some("thinking") => Said::Reasoning(text("thinking")),
            Some("tool_use") => {
                let input = block.get("input").cloned().unwrap_or(Value::Null);
                let tool = text_at(block, &["name"]).unwrap_or("unknown").to_owned();
                Said::Call {
                    id: text("id"),
                    own: own_call(&tool, &input, message.cwd, &self.root),
                    tool,
                    input,
                }
            }
            kind => return self.record.leave_out(blocks_of(kind)),
        };
        self.say(message, said);
    }

    /// Counts a message once, whatever number of lines it has.
    fn count(&mut self, message: &Message<'_>, answer: &Value) {
        let usage = match text_at(answer, &["id"]) {
            Some(id) if !self.counted.insert(id.to_owned()) => None,
            Some(id) => self.usages.get(id).cloned(),
            None => usage_of(answer),
        };
        if let Some(usage) = usage {
            self.say(message, Said::Counted(usage));
        }
    }
}

fn is_true(line: &Value, name: &str) -> bool {
    line.get(name) == Some(&Value::Bool(true))
}

fn blocks_of(kind: Option<&str>) -> String {
    format!("`{}` blocks", kind.unwrap_or("unnamed"))
}
