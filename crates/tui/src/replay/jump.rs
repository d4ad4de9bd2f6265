//! Where a step or a jump leads: the next event of a kind, before or after this one.

use agent_protocol::payload::permission::Effect;
use agent_protocol::{Event, Payload, Phase};

/// What to go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The beginning of a call.
    Call,
    /// The beginning of a turn.
    Turn,
    /// A change to a project file.
    Edit,
    /// A rule, the mode or a person said no.
    Denial,
    /// A call, a command, a turn or a model request failed.
    Failure,
    /// A question, or its answer.
    Approval,
    /// An event whose line holds this text, whatever its case.
    Text(String),
}

impl Mark {
    /// Whether `event` is one.
    #[must_use]
    pub fn is_at(&self, event: &Event) -> bool {
        match (self, &event.payload) {
            (Self::Text(text), _) => holds(event, text),
            (Self::Call, Payload::ToolIntent(_))
            | (Self::Turn, Payload::TurnStarted(_))
            | (Self::Failure, Payload::TurnFailed(_) | Payload::ModelFailed(_))
            | (Self::Approval, Payload::ActionRequired(_) | Payload::ActionResolved(_)) => true,
            (Self::Edit, Payload::ToolResult(result)) => !result.side_effects.is_empty(),
            (Self::Edit, Payload::ToolFailed(failed)) => !failed.side_effects.is_empty(),
            (Self::Edit, Payload::HistoryRollbackCompleted(undone)) => {
                !undone.files_restored.is_empty()
            }
            (Self::Denial, Payload::PermissionEvaluated(said)) => said.decision == Effect::Deny,
            (Self::Denial, Payload::PermissionResolved(said)) => said.decision == Effect::Deny,
            // What was refused did not fail; it is a denial.
            (Self::Failure, Payload::ToolFailed(failed)) => failed.phase != Phase::Permission,
            (Self::Failure, Payload::ToolResult(result)) => !result.ok,
            _ => false,
        }
    }

    /// As in "no further …".
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Call => "call".to_owned(),
            Self::Turn => "turn".to_owned(),
            Self::Edit => "change to a file".to_owned(),
            Self::Denial => "denial".to_owned(),
            Self::Failure => "failure".to_owned(),
            Self::Approval => "question".to_owned(),
            Self::Text(text) => format!("event with `{}`", crate::safe::one_line(text)),
        }
    }

    /// The mark a key goes to; its capital letter goes back.
    #[must_use]
    pub fn of_key(key: char) -> Option<Self> {
        Some(match key.to_ascii_lowercase() {
            'c' => Self::Call,
            't' => Self::Turn,
            'e' => Self::Edit,
            'd' => Self::Denial,
            'f' => Self::Failure,
            'p' => Self::Approval,
            _ => return None,
        })
    }
}

fn holds(event: &Event, text: &str) -> bool {
    let mut line = Vec::new();
    if event.write_line(&mut line).is_err() {
        return false;
    }
    let line = String::from_utf8_lossy(&line).to_lowercase();
    // The envelope is full of ids and hashes nobody looks for.
    let payload = line
        .find("\"payload\"")
        .map_or(line.as_str(), |at| &line[at..]);
    let kind = event.payload.type_name();
    payload.contains(&text.to_lowercase()) || kind.contains(&text.to_lowercase())
}
