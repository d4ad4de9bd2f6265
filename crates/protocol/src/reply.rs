//! Replies to [control commands](crate::command), and why a command could not be carried out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{ActionId, ProcessId, SessionId, ToolCallId, TurnId};
use crate::payload::SideEffect;
use crate::payload::conversation::RefusedFile;
use crate::payload::permission::{Effect, PermissionEvaluated};
use crate::payload::tool::{CatalogEntry, ToolObservation};
use crate::record::{record, words};

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum Reply {
    /// The fate of a command that changes something.
    Answer(ControlAnswer),
    /// The files that were put back.
    Undone(UndoReport),
    /// The result of one call.
    Called(Box<CallReport>),
    Session(Box<SessionReply>),
    /// The read model of one thread.
    Thread(Value),
    Tools(Vec<CatalogEntry>),
    /// Background commands, the oldest first.
    Processes(Vec<ProcessView>),
    /// The read model of the surroundings of commands.
    Environment(Value),
    Permission(Box<PermissionEvaluated>),
    Rule(Box<RulePreview>),
    Exported(Export),
}

words! {
    /// Fate of a command.
    Acknowledgement {
        /// Nothing was there to act on; the reason says what.
        NoOp = "no_op",
        Accepted = "accepted",
        Queued = "queued",
        Refused = "refused",
    }
}

words! {
    /// Code of an answer or notice that says more than yes.
    AnswerCode {
        /// The input was submitted before, under the same key.
        SubmittedBefore = "submitted_before",
        NoSuchTurn = "no_such_turn",
        NoSuchInput = "no_such_input",
        NoSuchQuestion = "no_such_question",
        NoSuchProcess = "no_such_process",
        QuestionClosed = "question_closed",
        TurnIsRunning = "turn_is_running",
        NothingWaits = "nothing_waits",
        NothingToCompact = "nothing_to_compact",
        NothingToUndo = "nothing_to_undo",
        /// The rule was not saved; the answer holds once.
        RuleNotSaved = "rule_not_saved",
        /// The mode could not be set, so the answer denies.
        ModeNotSet = "mode_not_set",
        ImageNotAttached = "image_not_attached",
        FileNotAttached = "file_not_attached",
        NothingToAdd = "nothing_to_add",
        AlreadyThere = "already_there",
    }
}

record! {
    /// The answer to a command that changes something.
    ControlAnswer {
        acknowledgement: Acknowledgement,
        turn_id?: TurnId,
        /// The kind of reason there is.
        code?: AnswerCode,
        reason?: String,
        /// What went otherwise than was asked for.
        notices*: ControlNotice,
    }
}

record! {
    /// Something that went otherwise than was asked for.
    ControlNotice { code: AnswerCode, message: String, }
}

impl ControlAnswer {
    #[must_use]
    pub fn accepted() -> Self {
        Self {
            acknowledgement: Acknowledgement::Accepted,
            ..Self::default()
        }
    }

    /// The answer when there is nothing to act on.
    #[must_use]
    pub fn no_op(code: AnswerCode, reason: impl Into<String>) -> Self {
        Self {
            code: Some(code),
            reason: Some(reason.into()),
            ..Self::default()
        }
    }

    /// The answer about a turn.
    #[must_use]
    pub fn of_turn(self, turn_id: TurnId) -> Self {
        Self {
            turn_id: Some(turn_id),
            ..self
        }
    }
}

record! {
    /// The outcome of an undo.
    UndoReport {
        /// How many paths are as they were again.
        paths: u64,
        /// The files that keep what somebody else had written.
        beside*: String,
        restored*: SideEffect,
        refused*: RefusedFile,
        /// The last event before the undo: going back to it takes the undo back.
        before: u64,
    }
}

record! {
    /// A background command.
    ProcessView {
        process_id: ProcessId,
        /// Its first words.
        command: String,
        running: bool,
        /// How it ended, in words.
        ended?: String,
        /// How long it has run, or ran.
        runtime_ms: u64,
        /// Bytes that it printed.
        bytes: u64,
        /// The end of them, masked.
        tail: String,
    }
}

/// The result of a call that no model made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum CallReport {
    /// The call ended.
    Observed {
        tool_call_id: ToolCallId,
        observation: Box<ToolObservation>,
        /// The text a model would see, whole.
        model_text: String,
    },
    /// The call waits for an answer, and with it the turn.
    LeftOpen {
        tool_call_id: ToolCallId,
        action_id: ActionId,
    },
    /// What came was no call; nothing was done.
    Rejected {
        /// As it stands in the log, masked.
        message: String,
    },
}

record! {
    /// A session and a piece of its log.
    SessionReply {
        session_id: SessionId,
        /// All read models.
        models: Value,
        /// The log's own objects.
        events*: Value,
        /// The beginning of the next piece, if there is more.
        next?: u64,
    }
}

record! {
    /// What a rule would do if it were saved with the answer to a question.
    RulePreview {
        /// The rule as it would be saved.
        rule: String,
        /// The reason that it cannot be; nothing else is said then.
        problem?: String,
        /// The next wider rule that can be saved.
        wider?: String,
        examples*: RuleExample,
    }
}

record! {
    /// A call that asks without the rule, as it would be decided with it.
    RuleExample {
        /// The command or the path.
        call: String,
        decision: Effect,
        /// The session has made this call; others are made up.
        from_session: bool,
        /// The rule that holds it back all the same.
        held_by?: String,
    }
}

record! {
    /// An exported document.
    Export {
        media_type: String,
        text?: String,
        /// The bytes of what is no text.
        base64?: String,
    }
}

words! {
    /// Reason why a command was not carried out.
    ControlErrorCode {
        /// It was tried and failed.
        Failed = "failed",
        /// It cannot be done as it was asked for; nothing was started.
        NotStarted = "not_started",
        /// This session was opened without what the command needs.
        Unavailable = "unavailable",
        NotFound = "not_found",
        /// The question was not asked here: the log was written elsewhere.
        ForeignQuestion = "foreign_question",
        /// The question takes no answer any more.
        QuestionExpired = "question_expired",
        /// What was shown before is not so any more; nothing was changed.
        PlanChanged = "plan_changed",
        /// The session has ended.
        SessionEnded = "session_ended",
    }
}

record! {
    /// Error of a control command.
    ControlError {
        code: ControlErrorCode,
        /// The cause and the causes behind it.
        message: String,
        hints*: String,
    }
}

impl ControlError {
    #[must_use]
    pub fn new(code: ControlErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hints: Vec::new(),
        }
    }
}

impl std::fmt::Display for ControlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ControlError {}
