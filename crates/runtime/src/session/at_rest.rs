//! A session in which nothing works: its log is held for writing, its questions can be answered and its
//! changes to files undone.

use agent_log::{AnchorStore, OwnEvents, SessionDirectory, SessionWriter};
use agent_protocol::command::{ControlCommand, RespondAction, Undo};
use agent_protocol::id::ActionId;
use agent_protocol::payload::conversation::{SessionChanges, SessionUpdated};
use agent_protocol::payload::permission::{
    ActionDecision, ActionRequired, ActionResolved, DecidedBy,
};
use agent_protocol::reply::{AnswerCode, ControlAnswer, ControlError, ControlErrorCode, Reply};
use agent_protocol::status::Status;
use agent_protocol::{Payload, Refs, Scope, Timestamp};

use super::reading::Reading;
use super::{failed, unavailable};
use crate::Runtime;
use crate::config::Overrides;
use crate::error::{OrFail as _, RuntimeError};

/// A session whose log is held, and nothing else.
pub(super) struct SessionAtRest {
    runtime: Runtime,
    directory: SessionDirectory,
    writer: SessionWriter,
    /// The events that this account wrote.
    own: OwnEvents,
    anchors: AnchorStore,
    /// True if this user's state has an anchor of the session.
    is_known: bool,
}

/// A question, and its place in the log.
struct Asked {
    sequence: u64,
    scope: Scope,
    at: Timestamp,
    required: ActionRequired,
}

impl SessionAtRest {
    pub(super) fn open(
        runtime: &Runtime,
        directory: &SessionDirectory,
        program: &str,
    ) -> Result<Self, RuntimeError> {
        let anchors = AnchorStore::new(&runtime.host.directories.state);
        let is_known = (anchors.read(directory.id())).is_ok_and(|anchor| anchor.is_some());
        let config = runtime.config(&Overrides::default())?;
        let env = runtime.session_env_with(&config, program)?;
        let opened = directory.open_writer(env).or_usage()?;
        Ok(Self {
            runtime: runtime.clone(),
            directory: directory.clone(),
            writer: opened.writer,
            own: opened.own,
            anchors,
            is_known,
        })
    }

    pub(super) fn directory(&self) -> &SessionDirectory {
        &self.directory
    }

    pub(super) fn writer(&self) -> &SessionWriter {
        &self.writer
    }

    pub(super) fn handle(&self, command: ControlCommand) -> Result<Reply, ControlError> {
        let reading = Reading {
            session: &self.directory,
            anchors: &self.anchors,
            redactor: self.writer.redactor(),
        };
        if let Some(answer) = reading.answer(&command) {
            return answer;
        }
        match command {
            ControlCommand::RespondAction(response) => self.respond(response),
            ControlCommand::Undo(asked) => self.undo(&asked),
            // Nothing runs that would have to be stopped.
            ControlCommand::EndSession(_) => Ok(Reply::Answer(ControlAnswer::accepted())),
            _ => Err(unavailable(
                "nothing works in this session; open it to work in it",
            )),
        }
    }

    /// Records an answer. Nothing is run: the next run resumes exactly the call that was asked about.
    fn respond(&self, response: RespondAction) -> Result<Reply, ControlError> {
        let action_id = &response.action_id;
        let Some(asked) = self.find(action_id)? else {
            let reason = format!("there is no open question {action_id}");
            let answer = ControlAnswer::no_op(AnswerCode::NoSuchQuestion, reason);
            return Ok(Reply::Answer(answer));
        };
        if !self.own.contains(asked.sequence) {
            return Err(ControlError::new(
                ControlErrorCode::ForeignQuestion,
                format!(
                    "question {action_id} was not asked on this machine: the log was written elsewhere and cannot be trusted"
                ),
            ));
        }
        let expiry = asked.required.expires_at(asked.at);
        if expiry.is_some_and(|end| self.writer.now() >= end) {
            // The question is closed by what happened to it, so that nothing waits for it any more.
            let no = RespondAction {
                decision: ActionDecision::Deny,
                ..RespondAction::default()
            };
            self.resolve(&asked, DecidedBy::Timeout, no)?;
            return Err(ControlError::new(
                ControlErrorCode::QuestionExpired,
                format!("question {action_id} has expired and can no longer be answered"),
            ));
        }
        if (response.answer.as_ref())
            .is_some_and(|answer| answer.saved_rule.is_some() || answer.mode.is_some())
        {
            return Err(unavailable(
                "a rule is saved, and a mode set, only in a session that is being worked in",
            ));
        }
        self.resolve(&asked, DecidedBy::User, response)?;
        Ok(Reply::Answer(ControlAnswer::accepted()))
    }

    /// Records what became of a question; it survives a power cut once this returns.
    fn resolve(
        &self,
        asked: &Asked,
        decided_by: DecidedBy,
        response: RespondAction,
    ) -> Result<(), ControlError> {
        let resolved = ActionResolved {
            decision: response.decision,
            decided_by,
            payload: response.answer,
            scope: response.scope,
            latency_ms: self.writer.now().millis_since(asked.at),
        };
        let appended = self.writer.append(&asked.scope, resolved, Refs::default());
        appended.map_err(|error| failed(&error))?;
        self.writer
            .sync_and_anchor()
            .map_err(|error| failed(&error))
    }

    /// The question `action_id`, if it is open.
    fn find(&self, action_id: &ActionId) -> Result<Option<Asked>, ControlError> {
        let mut open = None;
        for item in self.directory.reader().map_err(|error| failed(&error))? {
            let item = item.map_err(|error| failed(&error))?;
            let concerns = |scope: &Scope| scope.action_id.as_ref() == Some(action_id);
            let Some(event) = item.event.filter(|event| concerns(&event.scope)) else {
                continue;
            };
            match event.payload {
                Payload::ActionRequired(required) => {
                    open = Some(Asked {
                        sequence: event.sequence,
                        scope: Scope {
                            causation_id: Some(event.event_id),
                            ..event.scope
                        },
                        at: event.timestamp,
                        required,
                    });
                }
                Payload::ActionResolved(_) => open = None,
                _ => {}
            }
        }
        Ok(open)
    }

    fn undo(&self, asked: &Undo) -> Result<Reply, ControlError> {
        let (directory, writer) = (&self.directory, &self.writer);
        let undone = super::undo::undo(&self.runtime, directory, writer, asked, self.is_known)?;
        if let Reply::Undone(_) = undone {
            // The end of the session is where its head is anchored.
            let ended = SessionUpdated {
                changed: SessionChanges {
                    status: Some(Status::Ended),
                    ..SessionChanges::default()
                },
                reason: "the undo ended".to_owned(),
            };
            let recorded = self
                .writer
                .append(&Scope::default(), ended, Refs::default());
            recorded.map_err(|error| {
                let error = failed(&error);
                let doing =
                    "the files are restored, but the end of the session could not be recorded";
                ControlError {
                    message: format!("{doing}: {}", error.message),
                    ..error
                }
            })?;
        }
        Ok(undone)
    }
}
