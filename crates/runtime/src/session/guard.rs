//! The end of a session, and the background commands that end with it.

use std::sync::Arc;

use agent_local_tools::Processes;
use agent_log::SessionWriter;
use agent_protocol::command::ProcessQuery;
use agent_protocol::id::{ProcessId, ThreadId};
use agent_protocol::payload::conversation::{SessionChanges, SessionUpdated};
use agent_protocol::reply::ProcessView;
use agent_protocol::status::Status;
use agent_protocol::{Refs, Scope};
use agent_tool_runtime::Journal;

use crate::Scratch;
use crate::error::{OrFail as _, RuntimeError};

/// The end of a session in order: background commands are ended and recorded, then the end itself.
pub(crate) struct ShutdownGuard {
    pub(super) writer: SessionWriter,
    pub(super) journal: Arc<dyn Journal>,
    pub(super) processes: Arc<Processes>,
    pub(super) thread_id: ThreadId,
    /// Where commands had their temporary files; removed with the last who holds it.
    pub(super) scratch: Arc<Scratch>,
}

impl ShutdownGuard {
    /// Asks a background command to end; false when no such command runs.
    pub(crate) fn terminate(&self, process_id: &ProcessId) -> bool {
        self.processes.terminate(process_id)
    }

    /// Background commands that closing will end.
    pub(crate) fn running(&self) -> Vec<(ProcessId, String)> {
        self.processes.running()
    }

    /// The background commands of this run, with the end of what they printed.
    pub(crate) fn processes(&self, query: &ProcessQuery) -> Vec<ProcessView> {
        self.processes.views(query, &*self.journal)
    }

    pub(crate) fn close(self) -> Result<(), RuntimeError> {
        self.processes.shutdown();
        self.scratch.clear();
        // A cache is worth no failure; what is wrong with the log shows in the next event.
        let _ = agent_history::refresh_read_models(&self.writer);
        let scope = Scope {
            thread_id: Some(self.thread_id.clone()),
            ..Scope::default()
        };
        let ended = SessionUpdated {
            changed: SessionChanges {
                status: Some(Status::Ended),
                ..SessionChanges::default()
            },
            reason: "the program ended".to_owned(),
        };
        self.journal
            .append(&scope, ended.into(), Refs::default())
            .or_fail()?;
        self.journal.sync().or_fail()
    }
}
