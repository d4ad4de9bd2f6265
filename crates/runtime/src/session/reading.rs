//! Commands that ask: answered from the log, they change nothing.

use agent_evidence::audit::audit;
use agent_evidence::export::{Contents, export_evidence};
use agent_evidence::replay::{Range, Streamed};
use agent_evidence::report::report;
use agent_history::load_read_models;
use agent_log::{AnchorStore, Redactor, SessionDirectory};
use agent_protocol::command::{ControlCommand, ExportRequest, Window};
use agent_protocol::id::{ThreadId, TurnId};
use agent_protocol::reply::{ControlError, ControlErrorCode, Export, Reply, SessionReply};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;

use super::failed;

/// Events one answer holds at most.
const MOST_EVENTS: u64 = 1_000;

/// A log to answer from.
pub(super) struct Reading<'a> {
    pub(super) session: &'a SessionDirectory,
    /// What exports are checked against.
    pub(super) anchors: &'a AnchorStore,
    /// The masking of outputs in them.
    pub(super) redactor: &'a Redactor,
}

impl Reading<'_> {
    /// The reply to `command`, if it only asks for what the log says.
    pub(super) fn answer(&self, command: &ControlCommand) -> Option<Result<Reply, ControlError>> {
        Some(match command {
            ControlCommand::GetSession(window) => self.window(window),
            ControlCommand::GetThreadRead(query) => self.thread(&query.thread_id),
            ControlCommand::GetExecutionEnvironment => self.environment(),
            ControlCommand::ExportReplay(request) => self.replay(request),
            ControlCommand::ExportEvidence(request) => self.evidence(request),
            ControlCommand::ExportReview(_) => self.review(),
            _ => return None,
        })
    }

    fn window(&self, window: &Window) -> Result<Reply, ControlError> {
        let models = load_read_models(self.session).map_err(|error| failed(&error))?;
        let from = window.cursor.unwrap_or(0);
        let limit = window.limit.unwrap_or(MOST_EVENTS).min(MOST_EVENTS);
        let mut reply = SessionReply {
            session_id: self.session.id().clone(),
            models: value(&models.models)?,
            ..SessionReply::default()
        };
        for item in self.session.reader().map_err(|error| failed(&error))? {
            let item = item.map_err(|error| failed(&error))?;
            let Some(event) = item.event.filter(|event| event.sequence >= from) else {
                continue;
            };
            if reply.events.len() as u64 == limit {
                reply.next = Some(event.sequence);
                break;
            }
            let line = event.to_line().map_err(|error| failed(&error))?;
            let event = serde_json::from_slice(&line).map_err(|error| failed(&error))?;
            reply.events.push(event);
        }
        Ok(Reply::Session(Box::new(reply)))
    }

    fn thread(&self, thread_id: &ThreadId) -> Result<Reply, ControlError> {
        let models = load_read_models(self.session).map_err(|error| failed(&error))?;
        match models.models.threads.threads.get(thread_id.as_str()) {
            Some(thread) => Ok(Reply::Thread(value(thread)?)),
            None => Err(ControlError::new(
                ControlErrorCode::NotFound,
                "there is no such thread in this session",
            )),
        }
    }

    fn environment(&self) -> Result<Reply, ControlError> {
        let models = load_read_models(self.session).map_err(|error| failed(&error))?;
        let environment = value(&models.models.execution_environment)?;
        Ok(Reply::Environment(environment))
    }

    fn replay(&self, request: &ExportRequest) -> Result<Reply, ControlError> {
        let range = match &request.turn_id {
            Some(turn_id) => self.range_of(turn_id)?,
            None => Range::default(),
        };
        let story = Streamed::read(self.session, Some(self.anchors), range);
        let story = story.map_err(|error| failed(&error))?;
        let text = serde_json::to_string(&story).map_err(|error| failed(&error))?;
        Ok(document("application/json", text))
    }

    /// The events between the first and the last one of a turn.
    fn range_of(&self, turn_id: &TurnId) -> Result<Range, ControlError> {
        let mut range = Range::default();
        for item in self.session.reader().map_err(|error| failed(&error))? {
            let item = item.map_err(|error| failed(&error))?;
            let of_turn = |scope: &agent_protocol::Scope| scope.turn_id.as_ref() == Some(turn_id);
            if let Some(event) = item.event.filter(|event| of_turn(&event.scope)) {
                range.from.get_or_insert(event.sequence);
                range.to = Some(event.sequence);
            }
        }
        if range.to.is_some() {
            return Ok(range);
        }
        Err(ControlError::new(
            ControlErrorCode::NotFound,
            "there is no such turn in this session",
        ))
    }

    fn evidence(&self, request: &ExportRequest) -> Result<Reply, ControlError> {
        let anchors = Some(self.anchors);
        let audited = audit(self.session, anchors).map_err(|error| failed(&error))?;
        let contents = Contents {
            images: request.include_images,
            masked_by: Some(self.redactor),
        };
        let mut pack = Vec::new();
        export_evidence(self.session, anchors, &audited, contents, &mut pack)
            .map_err(|error| failed(&error))?;
        Ok(Reply::Exported(Export {
            media_type: "application/zstd".to_owned(),
            base64: Some(STANDARD.encode(pack)),
            ..Export::default()
        }))
    }

    fn review(&self) -> Result<Reply, ControlError> {
        let report = report(self.session, Some(self.anchors)).map_err(|error| failed(&error))?;
        Ok(document("text/markdown", report.to_review()))
    }
}

fn document(media_type: &str, text: String) -> Reply {
    Reply::Exported(Export {
        media_type: media_type.to_owned(),
        text: Some(text),
        ..Export::default()
    })
}

fn value(model: &impl Serialize) -> Result<Value, ControlError> {
    serde_json::to_value(model).map_err(|error| failed(&error))
}
