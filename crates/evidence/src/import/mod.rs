//! Import: the session file of another program as a session of ours, as far as its facts go.
//!
//! Each format is read into a list of `Said`, which is all they have in common: who said what,
//! which tool was called with what, what came back, what was counted. That becomes events. Names and
//! inputs of tools are also told in our words (`tools`), beside the other program's own, so that
//! calls can be compared and judged; nothing of that is ever run. What the other program did not
//! record (who allowed a call, what confined it, which bytes a model was sent) gets no event, so
//! every reader finds it unknown; the session itself says that it was imported, and from where.

mod call;
mod change;
mod claude_code;
mod claude_result;
mod codex;
mod codex_result;
mod count;
mod place;
mod tools;
mod words;
mod write;

use std::collections::BTreeMap;
use std::path::Path;

use agent_protocol::payload::Usage;
use agent_protocol::payload::conversation::InputPartKind;
use agent_protocol::payload::model::CompactionTrigger;
use agent_protocol::status::Mode;
use agent_protocol::{Code, Timestamp};
use base64::Engine as _;
use serde_json::Value;

use change::FileChange;
use tools::OwnCall;

pub use write::{ImportError, Imported, SourceClock, write};

/// The program whose record it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    ClaudeCode,
    Codex,
}

impl Program {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
        }
    }
}

/// A record that was read and can be written as a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub program: Program,
    pub version: Option<String>,
    pub title: Option<String>,
    /// The directory that its paths are relative to here.
    root: Option<String>,
    /// Of the beginning, where the record has one.
    mode: Option<Mode>,
    /// The record of a sub-agent: what it was asked came from a model.
    is_subagent: bool,
    said: Vec<Entry>,
    /// Lines that were left out, by what they are.
    pub left_out: BTreeMap<String, u64>,
    /// What is known to be wrong in the record.
    doubts: Vec<String>,
}

impl Record {
    fn new(program: Program) -> Self {
        Self {
            program,
            version: None,
            title: None,
            root: None,
            mode: None,
            is_subagent: false,
            said: Vec::new(),
            left_out: BTreeMap::new(),
            doubts: Vec::new(),
        }
    }

    fn leave_out(&mut self, what: impl Into<String>) {
        *self.left_out.entry(what.into()).or_default() += 1;
    }
}

/// One thing a record says, and when.
#[derive(Debug, Clone, PartialEq)]
struct Entry {
    time: Timestamp,
    /// The sub-agent that it is about; nothing for the conversation itself.
    agent: Option<String>,
    said: Said,
}

/// One thing such a record says.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    Prompt {
        text: String,
        parts: Vec<Part>,
        /// It came while the model worked, and joined that work.
        joins: bool,
    },
    Reasoning(String),
    Answer {
        text: String,
        model: Option<String>,
        stop_reason: Option<String>,
    },
    Call {
        id: String,
        tool: String,
        input: Value,
        /// The same in our words, where we have such a tool.
        own: Option<OwnCall>,
    },
    Result(CallEnd),
    Counted(Usage),
    /// Older history was replaced by a summary.
    Compacted {
        trigger: CompactionTrigger,
        tokens_before: u64,
        summary: String,
    },
    /// The user stopped the turn.
    Interrupted,
    Mode(Mode),
    /// The model could not be asked.
    ModelFailed(String),
    /// A sub-agent began.
    Delegated {
        /// The call that began it.
        call: Option<String>,
        role: String,
        objective: String,
    },
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
struct CallEnd {
    id: String,
    text: String,
    code: Code,
    exit_code: Option<i32>,
    parts: Vec<Part>,
    changes: Vec<FileChange>,
    /// A diff, where the images do not make one.
    diff: Option<String>,
}

/// An image or a document in a message.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    kind: InputPartKind,
    name: Option<String>,
    media_type: Option<String>,
    bytes: Option<Vec<u8>>,
}

/// Reads a file of one of the known formats. `project` is where it is imported to, `side_files` are
/// records of the session's sub-agents that stand in files of their own.
///
/// # Errors
/// When it is none of them.
pub fn read(text: &str, side_files: &[String], project: &Path) -> Result<Record, ImportError> {
    let lines = lines_of(text);
    let known: Vec<&Value> = lines.iter().flatten().collect();
    let mut broken = lines.iter().filter(|line| line.is_none()).count() as u64;
    let mut record = if known.iter().take(50).any(|line| codex::is_own(line)) {
        codex::read(&known, project)
    } else if known.iter().take(50).any(|line| claude_code::is_own(line)) {
        let side: Vec<Option<Value>> = side_files.iter().flat_map(|text| lines_of(text)).collect();
        broken += side.iter().filter(|line| line.is_none()).count() as u64;
        let side: Vec<&Value> = side.iter().flatten().collect();
        claude_code::read(&known, &side, project)
    } else {
        return Err(ImportError::UnknownFormat);
    };
    if broken > 0 {
        record
            .left_out
            .insert("lines that are no JSON".into(), broken);
    }
    let speaks = |entry: &Entry| !matches!(entry.said, Said::Mode(_) | Said::Counted(_));
    if !record.said.iter().any(speaks) {
        let is_timed = known.iter().any(|line| time_of(line).is_some());
        return Err(if is_timed {
            ImportError::Empty
        } else {
            ImportError::NoTimes
        });
    }
    Ok(record)
}

/// The lines as JSON; a mark of the byte order before the first costs nothing.
fn lines_of(text: &str) -> Vec<Option<Value>> {
    text.trim_start_matches('\u{feff}')
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn text_at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    let mut at = value;
    for name in path {
        at = at.get(name)?;
    }
    at.as_str()
}

fn time_of(line: &Value) -> Option<Timestamp> {
    Timestamp::parse(text_at(line, &["timestamp"])?)
}

/// The text of a content that is a string or a list of blocks.
fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| text_at(block, &["text"]));
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

impl Part {
    /// An image or document block; nothing for any other block.
    fn of(block: &Value) -> Option<Self> {
        let kind = match text_at(block, &["type"])? {
            "image" => InputPartKind::Image,
            "document" => InputPartKind::File,
            "input_image" => {
                return Some(Self::of_url(text_at(block, &["image_url"]).unwrap_or("")));
            }
            _ => return None,
        };
        let data = text_at(block, &["source", "data"]);
        let bytes = match text_at(block, &["source", "type"]) {
            Some("text") => data.map(|text| text.as_bytes().to_vec()),
            _ => data.and_then(decoded),
        };
        Some(Self {
            kind,
            name: text_at(block, &["title"]).map(str::to_owned),
            media_type: text_at(block, &["source", "media_type"]).map(str::to_owned),
            bytes,
        })
    }

    /// An image that is given as a `data:` address, or as one that leads elsewhere.
    fn of_url(url: &str) -> Self {
        let data = url
            .strip_prefix("data:")
            .and_then(|rest| rest.split_once(";base64,"));
        Self {
            kind: InputPartKind::Image,
            name: None,
            media_type: data.map(|(media_type, _)| media_type.to_owned()),
            bytes: data.and_then(|(_, data)| decoded(data)),
        }
    }
}

fn decoded(data: &str) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(data).ok()
}
