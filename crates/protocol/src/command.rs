//! Control commands: the only way to change a session. Every command is a value with a method name, so
//! that a screen, a program and a peer in another process send the same; what it did is in the log.
//! [`Reply`](crate::reply::Reply) is what comes back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{ActionId, ProcessId, SessionId, ThreadId, TurnId};
use crate::payload::conversation::{InputPart, QueuePolicy, TurnSource};
use crate::payload::permission::{ActionAnswer, ActionDecision, GrantScope};
use crate::record::{record, words};
use crate::status::{Mode, Thinking};

/// Declares the commands: each variant with its parameters and its method name.
macro_rules! commands {
    ($($(#[$meta:meta])* $variant:ident $(($params:ty))? = $name:literal,)*) => {
        /// A request to a session: `{"method": …, "params": …}`.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "method", content = "params")]
        pub enum ControlCommand {
            $($(#[$meta])* #[serde(rename = $name)] $variant $(($params))?,)*
        }

        impl ControlCommand {
            /// The method name of every command.
            pub const NAMES: &'static [&'static str] = &[$($name,)*];

            /// The method name.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$variant { .. } => $name,)* }
            }
        }
    };
}

commands! {
    /// Take an input.
    SubmitTurn(SubmitTurn) = "submit_turn",
    /// Stop the running turn.
    InterruptTurn(InterruptTurn) = "interrupt_turn",
    /// Answer a pending question, and save the rule that comes with the answer.
    RespondAction(RespondAction) = "respond_action",
    /// Try a rule that could be saved with the answer to a pending question.
    PreviewRule(PreviewRule) = "preview_rule",
    /// Resume what an earlier run left: the open turn, then the inputs that are not held.
    ResumeThread(ResumeThread) = "resume_thread",
    RemoveQueuedTurn(QueuedTurn) = "remove_queued_turn",
    PromoteQueuedTurn(QueuedTurn) = "promote_queued_turn",
    SetMode(SetMode) = "set_mode",
    SetModel(SetModel) = "set_model",
    /// Have commands run, and relative paths begin, in another directory of the project.
    ChangeDirectory(ChangeDirectory) = "change_directory",
    /// Let a directory outside the project be read, until the session ends.
    AddDirectory(AddDirectory) = "add_directory",
    SetThinking(SetThinking) = "set_thinking",
    /// Shorten the history now.
    Compact = "compact",
    /// Put files back as they were.
    Undo(Undo) = "undo",
    /// Run the command that a user typed behind `!`.
    Shell(Shell) = "shell",
    /// Begin a turn of calls that no model makes.
    BeginCalls(BeginCalls) = "begin_calls",
    /// Make one call of that turn.
    CallTool(CallTool) = "call_tool",
    /// Record that something which should have been a call of that turn was none.
    RejectCall(RejectCall) = "reject_call",
    /// End that turn.
    EndCalls = "end_calls",
    GetSession(Window) = "get_session",
    GetThreadRead(ThreadQuery) = "get_thread_read",
    GetToolInventory(ToolInventoryQuery) = "get_tool_inventory",
    GetExecutionEnvironment = "get_execution_environment",
    /// Judge a call without making it.
    EvaluatePermission(PermissionQuery) = "evaluate_permission",
    /// Show the background commands of this run and the end of what they printed.
    GetProcesses(ProcessQuery) = "get_processes",
    /// End a command that runs in the background.
    TerminateProcess(TerminateProcess) = "terminate_process",
    ExportReplay(ExportRequest) = "export_replay",
    ExportEvidence(ExportRequest) = "export_evidence",
    ExportReview(ExportRequest) = "export_review",
    /// End the session: what runs is stopped, and nothing more is taken.
    EndSession(EndSession) = "end_session",
}

words! {
    /// Kind of sender.
    PeerKind {
        /// A program that embeds the runtime, or a test.
        Program = "program",
        Screen = "screen",
        /// A run without a screen.
        Headless = "headless",
        /// A command of the command line, such as `agent respond`.
        CommandLine = "command_line",
        Editor = "editor",
    }
}

record! {
    /// The sender of a command.
    Peer {
        kind: PeerKind,
        /// The name it gives itself, such as `agent run`.
        program: String,
    }
}

impl Peer {
    #[must_use]
    pub fn new(kind: PeerKind, program: impl Into<String>) -> Self {
        Self {
            kind,
            program: program.into(),
        }
    }

    /// The source of an input from this peer, as events name it.
    #[must_use]
    pub const fn source(&self) -> TurnSource {
        match self.kind {
            PeerKind::Screen => TurnSource::Tui,
            PeerKind::Headless | PeerKind::CommandLine => TurnSource::Cli,
            PeerKind::Program | PeerKind::Editor => TurnSource::Service,
        }
    }
}

record! {
    /// An input.
    #[serde(default)]
    SubmitTurn {
        text: String,
        parts*: InputPart,
        /// What to do while another turn runs.
        when_busy: QueuePolicy,
        /// The same key twice is one turn.
        idempotency_key?: String,
    }
}
words! {
    /// Reason to stop a turn.
    InterruptReason {
        /// The user does not want it any more.
        User = "user",
        /// Its time is over.
        Timeout = "timeout",
        /// The program was told to end.
        Terminated = "terminated",
    }
}
record! {
    /// The turn to stop; without an id the one that runs.
    #[serde(default)]
    InterruptTurn { turn_id?: TurnId, reason: InterruptReason, }
}
record! {
    /// An answer to a pending question; the only thing that resumes a paused call.
    RespondAction {
        action_id: ActionId,
        decision: ActionDecision,
        #[serde(default)]
        scope: GrantScope,
        answer?: ActionAnswer,
    }
}
record! {
    /// A rule, as somebody wrote it, for the call of a pending question.
    PreviewRule { action_id: ActionId, rule: String, }
}
record! {
    /// The session to resume.
    ResumeThread { session_id: SessionId, thread_id?: ThreadId, }
}
record! {
    /// An input that waits.
    QueuedTurn { turn_id: TurnId, }
}
record! {
    /// The new ceiling of what happens without a question.
    SetMode { mode: Mode, }
}
record! {
    /// The model of the next turn, as `provider/model`.
    SetModel { model: String, }
}
record! {
    /// A directory of the project; a relative path begins at the one that was chosen last.
    ChangeDirectory { path: String, }
}
record! {
    /// A directory; a relative path begins at the project.
    AddDirectory { path: String, }
}
record! {
    /// How much the model may think, from the next request on.
    SetThinking { thinking: Thinking, }
}
record! {
    /// A command line, as the user typed it, and whether it asks for the network.
    Shell {
        command: String,
        #[serde(default)]
        network: bool,
    }
}

/// The changes to undo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum UndoExtent {
    /// The last turn whose changes are still there, and everything after it.
    #[default]
    LastChange,
    /// One turn: its number from 1, its id or a beginning of it, or `last`.
    Turn { turn: String },
    /// Everything after an event.
    After { sequence: u64 },
    /// The whole session.
    Session,
}

words! {
    /// Treatment of a path that somebody else changed.
    OnConflict {
        /// Leave it as it is.
        Keep = "keep",
        /// Put back what it was; the log keeps what is overwritten.
        Restore = "restore",
        /// Put back what it was, and keep what is there beside it as `.orig`.
        Orig = "orig",
    }
}
record! {
    /// The treatment of one path.
    ConflictDecision { path: String, on_conflict: OnConflict, }
}
record! {
    /// Changes to files to be undone.
    #[serde(default)]
    Undo {
        extent: UndoExtent,
        /// Only these files, or what is in these directories.
        files*: String,
        on_conflict: OnConflict,
        /// For single paths, before `on_conflict`.
        decisions*: ConflictDecision,
        /// The fingerprint of the plan that was shown; with another one nothing is done.
        expected_plan?: String,
        /// True if the conversation goes on in a fork from there; the record says so.
        with_conversation: bool,
    }
}
record! {
    /// A turn of calls.
    BeginCalls {
        /// Its text in the log.
        title: String,
    }
}
record! {
    /// A call: a name and unchecked JSON text.
    CallTool { tool: String, arguments: String, reason?: String, }
}
record! {
    /// A line of input that is no call.
    RejectCall { line: u64, problem: String, }
}
record! {
    /// A part of a session's log.
    #[serde(default)]
    Window { cursor?: u64, limit?: u64, }
}
record! {
    ThreadQuery { thread_id: ThreadId, }
}
record! {
    /// The tools to list.
    #[serde(default)]
    ToolInventoryQuery { mode?: Mode, include_hidden: bool, }
}
record! {
    /// A call to judge.
    PermissionQuery { tool: String, input: Value, mode?: Mode, }
}
record! {
    /// The background commands to show.
    #[serde(default)]
    ProcessQuery {
        /// This one alone.
        process_id?: ProcessId,
        /// The most bytes of output of each, from its end.
        tail_bytes: u64,
    }
}
record! {
    TerminateProcess { process_id: ProcessId, }
}
record! {
    /// The reason that a running turn is stopped with.
    #[serde(default)]
    EndSession { reason: InterruptReason, }
}
record! {
    /// The part of a session to export.
    #[serde(default)]
    ExportRequest { turn_id?: TurnId, include_images: bool, }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One command of each kind, in the order of [`ControlCommand::NAMES`].
    fn all() -> Vec<ControlCommand> {
        let parameters = |name: &str| match name {
            "respond_action" => r#"{"action_id":"act_1","decision":"allow_once"}"#,
            "preview_rule" => r#"{"action_id":"act_1","rule":"bash(ls *)"}"#,
            "resume_thread" => r#"{"session_id":"ses_1"}"#,
            "remove_queued_turn" | "promote_queued_turn" => r#"{"turn_id":"turn_1"}"#,
            "set_mode" => r#"{"mode":"auto"}"#,
            "set_model" => r#"{"model":"ollama/qwen3"}"#,
            "set_thinking" => r#"{"thinking":"high"}"#,
            "undo" => r#"{"extent":{"of":"after","sequence":3}}"#,
            "shell" => r#"{"command":"ls"}"#,
            "change_directory" => r#"{"path":"src"}"#,
            "add_directory" => r#"{"path":"/srv/docs"}"#,
            "begin_calls" => r#"{"title":"agent call read"}"#,
            "call_tool" => r#"{"tool":"read","arguments":"{}"}"#,
            "reject_call" => r#"{"line":1,"problem":"not JSON"}"#,
            "get_thread_read" => r#"{"thread_id":"thr_1"}"#,
            "evaluate_permission" => r#"{"tool":"read","input":{}}"#,
            "terminate_process" => r#"{"process_id":"proc_1"}"#,
            _ => "{}",
        };
        let units = ["compact", "end_calls", "get_execution_environment"];
        let text = |name: &&str| match units.contains(name) {
            true => format!(r#"{{"method":"{name}"}}"#),
            false => format!(r#"{{"method":"{name}","params":{}}}"#, parameters(name)),
        };
        let commands = ControlCommand::NAMES.iter().map(text);
        commands
            .map(|text| {
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
            })
            .collect()
    }

    #[test]
    fn every_command_is_a_value_that_bears_its_method_name() {
        for (command, name) in all().iter().zip(ControlCommand::NAMES) {
            assert_eq!(command.name(), *name);
            let value = serde_json::to_value(command).unwrap();
            assert_eq!(value["method"], *name);
            assert_eq!(
                serde_json::from_value::<ControlCommand>(value).unwrap(),
                *command
            );
        }
    }

    #[test]
    fn an_unknown_method_and_a_missing_parameter_are_refused() {
        for text in [
            r#"{"method":"write_process_stdin","params":{}}"#,
            r#"{"method":"respond_action","params":{"decision":"allow_once"}}"#,
            r#"{"method":"set_mode","params":{"mode":"anything"}}"#,
        ] {
            assert!(
                serde_json::from_str::<ControlCommand>(text).is_err(),
                "{text}"
            );
        }
    }
}
