//! Import: the session file of another program as a session of ours, as far as its facts go.
//!
//! Each format is read into a list of [`Said`], which is all they have in common: who said what,
//! which tool was called with what, what came back, what was counted. That becomes events. What the
//! other program did not record (who allowed a call, what confined it, which bytes a model was
//! sent) gets no event, so every reader finds it unknown; the session itself says that it was
//! imported, and from where.

mod claude_code;
mod codex;
mod write;

use std::collections::BTreeMap;

use agent_protocol::Timestamp;
use agent_protocol::payload::Usage;
use serde_json::Value;

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
    pub said: Vec<(Timestamp, Said)>,
    /// Lines that were left out, by what they are.
    pub left_out: BTreeMap<String, u64>,
}

/// One thing such a record says.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    Prompt(String),
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
    },
    Result {
        id: String,
        text: String,
        outcome: Outcome,
        exit_code: Option<i32>,
        /// A unified diff, where the record has one.
        diff: Option<String>,
        /// Files it changed, with whether they are new.
        changed: Vec<(String, bool)>,
    },
    Counted(Usage),
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    Failed,
    /// Somebody said no.
    Refused,
}

/// Reads a file of one of the known formats.
///
/// # Errors
/// When it is none of them.
pub fn read(text: &str) -> Result<Record, ImportError> {
    let lines: Vec<Option<Value>> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| serde_json::from_str(line).ok())
        .collect();
    let known: Vec<&Value> = lines.iter().flatten().collect();
    let mut record = if known.iter().take(50).any(|line| codex::is_own(line)) {
        codex::read(&known)
    } else if known.iter().take(50).any(|line| claude_code::is_own(line)) {
        claude_code::read(&known)
    } else {
        return Err(ImportError::UnknownFormat);
    };
    let broken = lines.iter().filter(|line| line.is_none()).count() as u64;
    if broken > 0 {
        record
            .left_out
            .insert("lines that are no JSON".into(), broken);
    }
    if record.said.is_empty() {
        return Err(ImportError::Empty);
    }
    Ok(record)
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
