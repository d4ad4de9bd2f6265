//! `execution_environment`: where commands run, with what, and which of them still do. Names of
//! variables only, never their values.

use std::collections::BTreeMap;

use agent_protocol::id::ProcessId;
use agent_protocol::payload::process::ProcessLimits;
use agent_protocol::{Event, Payload, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Cursor, Fact, Fold, Step};
use agent_text::brief;

/// The surroundings of the latest command, and the commands that have not ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutionEnvironment {
    pub cursor: Cursor,
    pub cwd: Fact<String>,
    pub read_roots: Vec<String>,
    pub write_roots: Vec<String>,
    pub env_keys: Vec<String>,
    pub limits: Fact<ProcessLimits>,
    pub network: Fact<String>,
    /// Commands whose end the log does not show.
    pub active: BTreeMap<ProcessId, ProcessBrief>,
    pub started_count: u64,
    pub ended_count: u64,
}

/// Whether a command still runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// The writer that watched it is gone.
    #[default]
    Unknown,
    Running,
}

/// A command that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessBrief {
    pub command_summary: String,
    pub cwd: String,
    pub background: bool,
    pub state: ProcessState,
    pub os_pid: Option<u32>,
    pub started_at: Timestamp,
    pub sequence: u64,
}

impl ExecutionEnvironment {
    fn doubt_processes(&mut self) {
        for process in self.active.values_mut() {
            process.state = ProcessState::Unknown;
        }
    }
}

impl Fold for ExecutionEnvironment {
    fn fold(&mut self, event: &Event) {
        match self.cursor.step(event) {
            Step::Again => return,
            Step::AfterGap => {
                self.cwd.doubt();
                self.limits.doubt();
                self.network.doubt();
                self.doubt_processes();
            }
            Step::Next => {}
        }
        match &event.payload {
            Payload::SandboxApplied(applied) => {
                self.cwd = Fact::Known(applied.cwd.clone());
                self.read_roots.clone_from(&applied.read_roots);
                self.write_roots.clone_from(&applied.write_roots);
                self.env_keys.clone_from(&applied.env_keys);
                self.limits = Fact::Known(applied.process_limits.clone());
                self.network = Fact::Known(applied.network.clone());
            }
            Payload::ProcessStarted(started) => {
                self.started_count += 1;
                self.cwd = Fact::Known(started.cwd.clone());
                let process = ProcessBrief {
                    command_summary: brief(&started.command_summary, 200),
                    cwd: started.cwd.clone(),
                    background: started.background,
                    state: ProcessState::Running,
                    os_pid: started.os_pid,
                    started_at: event.timestamp,
                    sequence: event.sequence,
                };
                self.active.insert(started.process_id.clone(), process);
            }
            Payload::ProcessCompleted(completed) => {
                if let Some(cwd) = &completed.cwd_after {
                    self.cwd = Fact::Known(cwd.clone());
                }
                self.end(&completed.process_id);
            }
            Payload::ProcessTerminated(terminated) => self.end(&terminated.process_id),
            Payload::ProcessFailed(failed) => {
                if let Some(process_id) = &failed.process_id {
                    self.end(process_id);
                }
            }
            // Whoever takes over a session did not see what became of its commands.
            Payload::RuntimeWarning(warning) if warning.code == "stale_lease" => {
                self.doubt_processes();
            }
            Payload::HistoryReconstructed(_) => self.doubt_processes(),
            _ => {}
        }
    }
}

impl ExecutionEnvironment {
    fn end(&mut self, process_id: &ProcessId) {
        if self.active.remove(process_id).is_some() {
            self.ended_count += 1;
        }
    }
}
