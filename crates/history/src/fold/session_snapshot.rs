//! `session_snapshot`: the shell of a session, its threads and its latest events.

use std::collections::VecDeque;

use agent_protocol::id::{SessionId, ThreadId};
use agent_protocol::payload::conversation::{SessionCreated, SessionParent, ThreadRole};
use agent_protocol::status::{Mode, Status};
use agent_protocol::{Event, Payload, Timestamp};
use serde::{Deserialize, Serialize};

use super::served::Served;
use super::{Cursor, Fact, Fold, Step};
use crate::{describe, imported_from};
use agent_text::brief;

const RECENT: usize = 50;

/// The session as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionSnapshot {
    pub cursor: Cursor,
    pub session_id: Option<SessionId>,
    pub title: Option<String>,
    pub status: Fact<Status>,
    pub mode: Fact<Mode>,
    /// The one that answered last, as the server named it; before an answer the one that is asked.
    pub model: Fact<String>,
    served: Served,
    pub agent_version: Option<String>,
    pub project_root_hash: Option<String>,
    pub parent: Option<SessionParent>,
    pub created_at: Option<Timestamp>,
    pub last_event_at: Option<Timestamp>,
    pub threads: Vec<ThreadBrief>,
    pub turn_count: u64,
    /// The latest events worth a line, the oldest first.
    pub recent: VecDeque<RecentItem>,
    /// How often an unknown class or shape was passed over.
    pub not_understood: u64,
}

/// A thread of the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadBrief {
    pub thread_id: ThreadId,
    pub role: ThreadRole,
    pub parent_thread_id: Option<ThreadId>,
}

/// One of the latest events, in a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecentItem {
    pub sequence: u64,
    pub timestamp: Timestamp,
    pub r#type: String,
    pub summary: String,
}

impl Fold for SessionSnapshot {
    fn fold(&mut self, event: &Event) {
        match self.cursor.step(event) {
            Step::Again => return,
            Step::AfterGap => {
                self.status.doubt();
                self.mode.doubt();
                self.model.doubt();
            }
            Step::Next => {}
        }
        self.last_event_at = Some(event.timestamp);
        if let Some(summary) = summary(event) {
            let item = RecentItem {
                sequence: event.sequence,
                timestamp: event.timestamp,
                r#type: event.payload.type_name().to_owned(),
                summary,
            };
            if self.recent.len() >= RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(item);
        }
        if let Some(answered) = self.served.take(event)
            && !answered.is_aside
        {
            self.model = Fact::Known(answered.model);
        }
        match &event.payload {
            Payload::SessionCreated(created) => {
                self.session_id = Some(event.session_id.clone());
                self.title.clone_from(&created.title);
                self.mode = mode_of(created);
                self.agent_version = Some(created.agent_version.clone());
                self.project_root_hash = Some(created.project_root_hash.clone());
                self.parent.clone_from(&created.parent);
                self.created_at = Some(event.timestamp);
                self.status = Fact::Known(Status::Idle);
            }
            Payload::SessionUpdated(updated) => {
                let changed = &updated.changed;
                if changed.title.is_some() {
                    self.title.clone_from(&changed.title);
                }
                if let Some(mode) = changed.mode {
                    self.mode = Fact::Known(mode);
                }
                if let Some(model) = &changed.model {
                    self.model = Fact::Known(model.clone());
                }
                if let Some(status) = changed.status {
                    self.status = Fact::Known(status);
                }
            }
            Payload::ThreadStarted(started) => {
                if let Some(thread_id) = &event.scope.thread_id {
                    self.threads.push(ThreadBrief {
                        thread_id: thread_id.clone(),
                        role: started.role,
                        parent_thread_id: started.parent_thread_id.clone(),
                    });
                }
            }
            Payload::TurnSubmitted(_) => self.turn_count += 1,
            Payload::TurnStarted(started) => {
                self.mode = Fact::Known(started.mode);
                self.model = Fact::Known(started.model.clone());
                self.status = Fact::Known(Status::Running);
            }
            Payload::RunStatus(status) => self.status = Fact::Known(status.phase),
            Payload::ActionRequired(_) => self.status = Fact::Known(Status::WaitingPermission),
            Payload::ActionResolved(_) => self.status = Fact::Known(Status::Running),
            Payload::TurnCompleted(_) | Payload::TurnFailed(_) => {
                self.status = Fact::Known(Status::Idle);
            }
            Payload::PolicyChanged(policy) => {
                if let Some(mode) = policy.changed.mode {
                    self.mode = Fact::Known(mode);
                }
            }
            Payload::Unknown(_) => self.not_understood += 1,
            _ => {}
        }
    }
}

/// The mode a session begins in. Imports of 0.1.0 wrote `read-only` whatever the record said; those
/// do not say where the record was made.
pub(super) fn mode_of(created: &SessionCreated) -> Fact<Mode> {
    let is_told = imported_from(created).is_none() || created.recorded_in.is_some();
    created
        .mode
        .filter(|_| is_told)
        .map_or(Fact::Unknown, Fact::Known)
}

/// The event in a short line, if it is one a reader of the session looks for.
fn summary(event: &Event) -> Option<String> {
    let is_news = matches!(
        event.payload,
        Payload::TurnSubmitted(_)
            | Payload::TurnCompleted(_)
            | Payload::TurnFailed(_)
            | Payload::ModelCompleted(_)
            | Payload::ToolIntent(_)
            | Payload::ToolObservation(_)
            | Payload::ActionRequired(_)
            | Payload::ActionResolved(_)
            | Payload::RuntimeWarning(_)
            | Payload::RuntimeError(_)
    );
    is_news.then(|| brief(&describe(event).text, 160))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_of_an_import_is_that_of_the_record_or_unknown() {
        let created = |json: &str| serde_json::from_str::<SessionCreated>(json).unwrap();
        let head = r#""project_root_hash":"x","agent_version":"1""#;
        let own = created(&format!(r#"{{{head},"mode":"read-only"}}"#));
        assert_eq!(mode_of(&own), Fact::Known(Mode::ReadOnly));
        let before = created(&format!(
            r#"{{{head},"mode":"read-only","profile":"imported:codex"}}"#
        ));
        assert_eq!(mode_of(&before), Fact::Unknown, "0.1.0 wrote it always");
        let import = r#""profile":"imported:claude-code","recorded_in":"/srv/shop""#;
        let told = created(&format!(r#"{{{head},"mode":"full",{import}}}"#));
        assert_eq!(mode_of(&told), Fact::Known(Mode::Full));
        let untold = created(&format!("{{{head},{import}}}"));
        assert_eq!(mode_of(&untold), Fact::Unknown);
    }
}
