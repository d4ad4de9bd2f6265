//! The control plane whole: every control command, each with a typed answer. In process now; what
//! serves it over another transport later adds no meaning of its own.
//!
//! Commands that change something go through [`Control`] and leave events behind. Questions are
//! answered from the log, or from what decides right now, and change nothing.

use std::sync::Arc;

use agent_evidence::audit::{AuditError, audit};
use agent_evidence::export::{Contents, PackError, export_evidence};
use agent_evidence::replay::{Range, ReplayError, Replayed, replay};
use agent_evidence::report::report;
use agent_history::fold::{ExecutionEnvironment, ReadModels, ThreadReadModel};
use agent_history::{CacheError, load_read_models};
use agent_log::{AnchorStore, PlaceError, ReadError, Redactor, SessionDirectory};
use agent_protocol::command::{
    Acknowledgement, ControlAnswer, ControlCommand, ExportRequest, InterruptTurn, PermissionQuery,
    ToolInventoryQuery, Window,
};
use agent_protocol::id::{ProcessId, SessionId, ThreadId};
use agent_protocol::payload::conversation::{SessionChanges, SessionUpdated, TurnSource};
use agent_protocol::payload::permission::{
    DecidedBy, GrantScope, PermissionEvaluated, PolicyChanged, PolicyChanges,
};
use agent_protocol::payload::tool::{CatalogEntry, CatalogPolicy};
use agent_protocol::status::{Mode, Status};
use agent_protocol::{Event, Payload, Refs, Scope};
use agent_tool_runtime::{Authority as _, Journal, JournalError, Pipeline};

use crate::authority::SessionAuthority;
use crate::control::Control;
use crate::interrupt::InterruptReason;

/// Events one answer holds at most.
const MOST_EVENTS: u64 = 1_000;

/// Background commands, as far as the control plane reaches them.
pub trait ProcessControl: Send + Sync {
    /// Asks a running command to end; false when no such command runs.
    fn terminate(&self, process_id: &ProcessId) -> bool;
}

/// What comes back for a command.
#[derive(Debug)]
pub enum Reply {
    /// What became of a command that changes something.
    Answer(ControlAnswer),
    Session(Box<SessionReply>),
    Thread(Box<ThreadReadModel>),
    Tools(Vec<CatalogEntry>),
    Environment(Box<ExecutionEnvironment>),
    Permission(Box<PermissionEvaluated>),
    /// An evidence pack, as `tar.zst`.
    Evidence(Vec<u8>),
    /// The story of the whole session, or the entries of one turn.
    Replay(Box<Replayed>),
    /// A review of the session, as Markdown.
    Review(String),
    /// This runtime cannot do it, and why.
    Unavailable {
        reason: String,
    },
}

/// A session and a piece of its log.
#[derive(Debug)]
pub struct SessionReply {
    pub session_id: SessionId,
    pub models: ReadModels,
    pub events: Vec<Event>,
    /// Where the next piece begins, if there is more.
    pub next: Option<u64>,
}

/// A command could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum PlaneError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Models(#[from] CacheError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Pack(#[from] PackError),
}

/// Everything a command may concern.
pub struct ControlPlane {
    pub control: Arc<Control>,
    pub authority: Arc<SessionAuthority>,
    pub pipeline: Pipeline,
    pub journal: Arc<dyn Journal>,
    pub session: SessionDirectory,
    pub thread_id: ThreadId,
    pub processes: Arc<dyn ProcessControl>,
    /// What exports are checked against.
    pub anchors: Option<AnchorStore>,
    /// What masks the outputs in them.
    pub redactor: Arc<Redactor>,
}

impl ControlPlane {
    /// Carries out one command on behalf of `source`.
    ///
    /// # Errors
    /// When the log cannot be written or read; what was asked for has not happened then.
    pub fn handle(&self, command: ControlCommand, source: TurnSource) -> Result<Reply, PlaneError> {
        Ok(match command {
            ControlCommand::SubmitTurn(submit) => {
                Reply::Answer(self.control.submit(submit, source)?)
            }
            ControlCommand::InterruptTurn(interrupt) => {
                Reply::Answer(self.control.interrupt(&interrupt, InterruptReason::User))
            }
            ControlCommand::RespondAction(response) => {
                Reply::Answer(self.control.respond(response))
            }
            ControlCommand::RemoveQueuedTurn(queued) => {
                Reply::Answer(self.control.remove_queued(&queued.turn_id)?)
            }
            ControlCommand::PromoteQueuedTurn(queued) => {
                Reply::Answer(self.control.promote_queued(&queued.turn_id)?)
            }
            ControlCommand::ResumeThread(resume) => {
                if resume.session_id != *self.session.id() {
                    return Ok(unavailable(
                        "this control plane serves one session; open the other one",
                    ));
                }
                Reply::Answer(self.control.resume())
            }
            ControlCommand::SetMode(mode) => self.set_mode(mode)?,
            ControlCommand::SetModel(_) => unavailable("the model is chosen when a run begins"),
            ControlCommand::Compact => Reply::Answer(self.control.ask_to_compact()),
            ControlCommand::GetSession(window) => self.session(&window)?,
            ControlCommand::GetThreadRead(thread_id) => self.thread(&thread_id)?,
            ControlCommand::GetToolInventory(query) => self.tools(&query),
            ControlCommand::GetExecutionEnvironment => {
                let models = load_read_models(&self.session)?.models;
                Reply::Environment(Box::new(models.execution_environment))
            }
            ControlCommand::EvaluatePermission(query) => self.evaluate(&query),
            // Commands run with standard input closed, so that none waits for one.
            ControlCommand::WriteProcessStdin(_) => {
                unavailable("commands have no standard input here")
            }
            ControlCommand::TerminateProcess(process_id) => {
                let ended = self.processes.terminate(&process_id);
                Reply::Answer(acknowledge(ended, "no such command is running"))
            }
            ControlCommand::ExportReplay(request) => self.replay(&request)?,
            ControlCommand::ExportEvidence(request) => {
                let audited = audit(&self.session, self.anchors.as_ref())?;
                let mut pack = Vec::new();
                let contents = Contents {
                    images: request.include_images,
                    masked_by: Some(&self.redactor),
                };
                let anchors = self.anchors.as_ref();
                export_evidence(&self.session, anchors, &audited, contents, &mut pack)?;
                Reply::Evidence(pack)
            }
            ControlCommand::ExportReview(_) => {
                Reply::Review(report(&self.session, self.anchors.as_ref())?.to_review())
            }
            ControlCommand::EndSession => self.end()?,
        })
    }

    fn set_mode(&self, mode: Mode) -> Result<Reply, PlaneError> {
        let changed = PolicyChanged {
            scope: GrantScope::Session,
            changed: PolicyChanges {
                mode: Some(mode),
                ..PolicyChanges::default()
            },
            by: DecidedBy::User,
            reason: "chosen by the user".to_owned(),
        };
        self.authority.set_mode(mode, || self.append(changed))?;
        Ok(Reply::Answer(acknowledge(true, "")))
    }

    fn end(&self) -> Result<Reply, PlaneError> {
        let ended = SessionUpdated {
            changed: SessionChanges {
                status: Some(Status::Ended),
                ..SessionChanges::default()
            },
            reason: "the user ended the session".to_owned(),
        };
        self.control
            .interrupt(&InterruptTurn::default(), InterruptReason::Terminated);
        self.append(ended)?;
        Ok(Reply::Answer(acknowledge(true, "")))
    }

    fn session(&self, window: &Window) -> Result<Reply, PlaneError> {
        let models = load_read_models(&self.session)?.models;
        let from = window.cursor.unwrap_or(0);
        let limit = window.limit.unwrap_or(MOST_EVENTS).min(MOST_EVENTS);
        let mut reply = SessionReply {
            session_id: self.session.id().clone(),
            models,
            events: Vec::new(),
            next: None,
        };
        for item in self.session.reader()? {
            let Some(event) = item?.event.filter(|event| event.sequence >= from) else {
                continue;
            };
            if reply.events.len() as u64 == limit {
                reply.next = Some(event.sequence);
                break;
            }
            reply.events.push(event);
        }
        Ok(Reply::Session(Box::new(reply)))
    }

    fn thread(&self, thread_id: &ThreadId) -> Result<Reply, PlaneError> {
        let threads = load_read_models(&self.session)?.models.threads;
        Ok(match threads.threads.get(thread_id.as_str()) {
            Some(thread) => Reply::Thread(Box::new(thread.clone())),
            None => unavailable("there is no such thread in this session"),
        })
    }

    fn tools(&self, query: &ToolInventoryQuery) -> Reply {
        if query.mode.is_some_and(|mode| mode != self.authority.mode()) {
            return unavailable("the tools are those of the mode in force");
        }
        let visible = |entry: &CatalogEntry| {
            query.include_hidden || entry.policy != CatalogPolicy::Unavailable
        };
        let tools = self.pipeline.catalogue().into_iter().filter(visible);
        Reply::Tools(tools.collect())
    }

    fn evaluate(&self, query: &PermissionQuery) -> Reply {
        let mode = query.mode.unwrap_or(self.authority.mode());
        match self
            .authority
            .evaluate(&query.tool, &query.input, mode, self.pipeline.workspace())
        {
            Some(evaluated) => Reply::Permission(Box::new(evaluated)),
            None => unavailable("this is not a call: no such tool, or its input names nothing"),
        }
    }

    fn replay(&self, request: &ExportRequest) -> Result<Reply, PlaneError> {
        let mut replayed = replay(&self.session, self.anchors.as_ref(), Range::default())?;
        if request.turn_id.is_some() {
            let concerns = |event: &Event| event.scope.turn_id == request.turn_id;
            replayed.entries.retain(|(_, event)| concerns(event));
        }
        Ok(Reply::Replay(Box::new(replayed)))
    }

    fn append(&self, payload: impl Into<Payload>) -> Result<(), PlaneError> {
        let scope = Scope {
            thread_id: Some(self.thread_id.clone()),
            ..Scope::default()
        };
        self.journal
            .append(&scope, payload.into(), Refs::default())?;
        self.journal.sync()?;
        Ok(())
    }
}

fn unavailable(reason: &str) -> Reply {
    Reply::Unavailable {
        reason: reason.to_owned(),
    }
}

fn acknowledge(done: bool, otherwise: &str) -> ControlAnswer {
    ControlAnswer {
        acknowledgement: if done {
            Acknowledgement::Accepted
        } else {
            Acknowledgement::NoOp
        },
        turn_id: None,
        reason: (!done).then(|| otherwise.to_owned()),
    }
}
