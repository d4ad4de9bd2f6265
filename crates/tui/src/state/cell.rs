//! Cells: what a transcript is made of. A cell is values only; how it looks is `view`'s business.

use agent_protocol::id::{ArtifactId, ToolCallId, TurnId};
use agent_protocol::payload::SideEffectKind;
use agent_protocol::payload::permission::{ActionClass, Effect};
use agent_protocol::payload::process::SandboxStatus;
use agent_protocol::status::VerificationStatus;
use agent_protocol::{CallState, Code, Phase, Timestamp};

use super::look::Look;

/// The most bytes of an output a cell keeps; the rest is in the artifact.
pub const KEPT_TEXT: usize = 4096;
/// The most bytes of a diff a cell keeps.
pub const KEPT_DIFF: usize = 32_768;
/// Lines of running output on the screen.
pub const LIVE_LINES: usize = 5;

/// One entry of the transcript.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The sequence of the event that made it.
    pub sequence: u64,
    /// Grows with every change, so that a drawing of it can be kept.
    pub version: u32,
    /// Nothing more will change.
    pub done: bool,
    pub kind: CellKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CellKind {
    User(UserCell),
    Assistant(AssistantCell),
    Reasoning(ReasoningCell),
    Tool(Box<ToolCell>),
    TurnEnd(Box<TurnEnd>),
    Notice(Notice),
}

/// What the user said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserCell {
    pub text: String,
    pub turn_id: Option<TurnId>,
    /// Names of attached files and images.
    pub attachments: Vec<String>,
}

/// What the model said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssistantCell {
    pub text: String,
    /// How many bytes of the text are recorded; the rest is on its way.
    pub recorded: usize,
    /// The stream broke off here.
    pub interrupted: bool,
}

/// What the model thought, as far as it is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReasoningCell {
    pub text: String,
    pub bytes: u64,
    /// Characters of what is told of it.
    pub characters: u64,
    /// The text is from the log; until then it is what was heard on its way there.
    pub recorded: bool,
}

impl ReasoningCell {
    /// The log begins to tell: what was heard before gives way.
    pub fn record(&mut self) {
        if !self.recorded {
            *self = Self {
                recorded: true,
                ..Self::default()
            };
        }
    }
}

/// Something unusual, or a short answer of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub level: NoticeLevel,
    pub text: String,
    /// More of it, shown when folded out.
    pub detail: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeLevel {
    Information,
    Warning,
    Error,
}

/// Stage of a call as the screen shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallStage {
    /// Asked for, being checked.
    #[default]
    Proposed,
    /// A person has to decide.
    Asking,
    /// Allowed, not yet running.
    Waiting,
    Running,
    Ended,
}

impl CallStage {
    /// The stage of a call in this state. A call that ended is shown as ended once it was observed.
    #[must_use]
    pub fn of(state: &CallState) -> Self {
        let is_approved = state.is_pending() && state.answer() == Some(Effect::Allow);
        if state.is_observed() {
            Self::Ended
        } else if state.has_started() {
            Self::Running
        } else if state.awaits_answer() {
            Self::Asking
        } else if state.is_allowed() || is_approved {
            Self::Waiting
        } else {
            Self::Proposed
        }
    }
}

/// One tool call from intent to observation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCell {
    pub call_id: Option<ToolCallId>,
    pub tool: String,
    /// The command, path or pattern, in one line.
    pub target: String,
    /// What it looks at, if it is a kind of call that may do nothing else.
    pub look: Option<Look>,
    /// What the gate took it for.
    pub class: Option<ActionClass>,
    /// Rules that were saved with the answer that let it through.
    pub saved: Vec<String>,
    /// The user asked for it, and no model.
    pub own: bool,
    pub state: CallState,
    pub stage: CallStage,
    pub started_at: Option<Timestamp>,
    /// It says while it runs how far it is.
    pub takes_a_while: bool,
    pub duration_ms: Option<u64>,
    pub outcome: Option<Outcome>,
    pub permission: Option<Permission>,
    pub sandbox: Option<SandboxStatus>,
    pub live: LiveOutput,
    pub detail: Detail,
    /// Each decision on the way, in words: the answer to "why".
    pub chain: Vec<String>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub ok: bool,
    pub code: Code,
    pub phase: Phase,
    pub summary: String,
    pub exit_code: Option<i32>,
    /// A command failed inside a pipeline, whatever the exit code says.
    pub pipeline_failed: bool,
}

impl Outcome {
    /// Whether somebody or some rule said no; that is not a failure of the tool.
    #[must_use]
    pub fn refused(&self) -> bool {
        self.phase == Phase::Permission
            && matches!(
                self.code,
                Code::UserDenied
                    | Code::PolicyDenied
                    | Code::ApprovalUnavailable
                    | Code::ApprovalExpired
                    | Code::PermissionDenied
            )
    }
}

/// What is said of a command that the user typed.
pub const TYPED: &str = "typed by you";

/// Who let the call through or stopped it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Nothing had to be asked; the words say why.
    Allowed(String),
    AllowedByRule(String),
    AllowedByYou(String),
    DeniedByYou(String),
    DeniedByRule(String),
    Denied(String),
}

/// What a running command prints, the end of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveOutput {
    pub lines: Vec<String>,
    /// The line that is still being written.
    pub partial: String,
    pub line_count: u64,
    pub bytes: u64,
}

impl LiveOutput {
    /// Takes in a piece of output; keeps its last lines.
    pub fn push(&mut self, text: &str) {
        // Of a long piece only the end can be on the screen; what is before is only counted.
        let tail_start = tail_of(text, LIVE_LINES + 1);
        self.line_count += text[..tail_start].bytes().filter(|b| *b == b'\n').count() as u64;
        if tail_start > 0 {
            self.lines.clear();
            self.partial.clear();
        }
        let mut rest = &text[tail_start..];
        while let Some(end) = rest.find('\n') {
            self.partial.push_str(clip(&rest[..end], 2048));
            let line = std::mem::take(&mut self.partial);
            self.lines.push(crate::safe::one_line(&line));
            self.line_count += 1;
            rest = &rest[end + 1..];
        }
        self.partial.push_str(clip(rest, 2048));
        if self.partial.len() > 8192 {
            self.partial.clear();
        }
        let surplus = self.lines.len().saturating_sub(LIVE_LINES);
        self.lines.drain(..surplus);
    }
}

/// Where the last `lines` lines of `text` begin.
fn tail_of(text: &str, lines: usize) -> usize {
    let mut seen = 0;
    for (at, byte) in text.bytes().enumerate().rev() {
        if byte == b'\n' {
            seen += 1;
            if seen > lines {
                return at + 1;
            }
        }
    }
    0
}

/// What a cell shows when folded out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detail {
    pub output: String,
    pub diff: String,
    /// Bytes of output that are not in `output`.
    pub omitted_bytes: u64,
    /// The runtime gave the model less than there is.
    pub truncated: bool,
    pub artifacts: Vec<ArtifactId>,
    pub changed: Vec<FileChange>,
    /// What was wrong with the input, by place.
    pub errors: Vec<String>,
    /// What the boundary refused.
    pub violations: Vec<String>,
    /// The network is among it.
    pub no_network: bool,
    pub lines_added: Option<u64>,
    pub lines_removed: Option<u64>,
}

/// A changed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    pub kind: SideEffectKind,
    pub path: String,
}

/// The last word on a turn, from the facts in the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnEnd {
    /// Why it stopped before its end, in words.
    pub problem: Option<String>,
    pub cancelled: bool,
    /// Something that was needed was refused or is missing.
    pub degraded: bool,
    pub verification: Option<VerificationStatus>,
    pub verified_by: Option<String>,
    pub files: Vec<FileChange>,
    pub cost: Option<f64>,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub duration_ms: Option<u64>,
    pub refused_calls: u64,
}

/// `text` cut to `limit` bytes at a character.
#[must_use]
pub fn clip(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    &text[..text.floor_char_boundary(limit)]
}

/// The beginning and the end of `text` with `limit` bytes together, and how many are left out.
/// Errors tend to be at the end, so the end gets the larger part.
#[must_use]
pub fn head_and_tail(text: &str, limit: usize) -> (String, u64) {
    if text.len() <= limit {
        return (text.to_owned(), 0);
    }
    let head = text.floor_char_boundary(limit / 3);
    let tail = text.ceil_char_boundary(text.len() - (limit - limit / 3));
    let left_out = tail - head;
    let kept = format!(
        "{}\n[… {left_out} bytes not shown here …]\n{}",
        &text[..head],
        &text[tail..]
    );
    (kept, left_out as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_output_keeps_its_end_and_counts_all() {
        let mut live = LiveOutput::default();
        live.push("one\ntw");
        live.push("o\nthree\n");
        assert_eq!(live.lines, ["one", "two", "three"]);
        let many: String = (0..1000).map(|n| format!("{n}\n")).collect();
        live.push(&many);
        assert_eq!(live.lines, ["995", "996", "997", "998", "999"]);
        assert_eq!(live.line_count, 1003);
    }

    #[test]
    fn long_text_keeps_both_ends() {
        let (kept, left_out) = head_and_tail(&"é".repeat(1000), 300);
        assert!(kept.len() < 360, "{}", kept.len());
        assert_eq!(left_out, 1700);
        assert_eq!(head_and_tail("short", 300), ("short".to_owned(), 0));
    }
}
