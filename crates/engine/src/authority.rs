//! Who decides in a session: the gate, the mode in force, and the people at the desk.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_protocol::id::ActionId;
use agent_protocol::payload::permission::{ActionDecision, Effect, GrantScope};
use agent_protocol::payload::tool::CatalogPolicy;
use agent_protocol::status::Mode;
use agent_protocol::{Clock, Event, Payload};
use agent_tool_runtime::gate::{
    ApprovalKey, Denial, DiskFacts, Gate, GateRequest, Rule, SandboxLevel, Setting,
};
use agent_tool_runtime::{
    Answer, Authority, Cancel, Decision, PermissionRequest, Question, ToolDefinition,
};

use crate::desk::Desk;

/// Asks whether the project's git tree holds changes that are in no commit; `None` when unknown.
pub type TreeIsDirty = Box<dyn Fn() -> Option<bool> + Send + Sync>;

/// What does not change while a session runs.
pub struct Place {
    pub home: PathBuf,
    pub sandbox: SandboxLevel,
    pub tree_is_dirty: TreeIsDirty,
    /// How long a question stays open.
    pub ask_timeout: Option<Duration>,
    pub command_timeout_ms: Option<u64>,
    pub output_limit: Option<u64>,
}

/// The authority of one session.
pub struct SessionAuthority {
    gate: Mutex<Gate>,
    mode: Mutex<Mode>,
    turn: Mutex<String>,
    /// Questions seen in the log, by what an answer to them would hold for.
    asked: Mutex<Vec<(ActionId, ApprovalKey)>>,
    place: Place,
    desk: Arc<Desk>,
    clock: Arc<dyn Clock>,
}

impl SessionAuthority {
    #[must_use]
    pub fn new(
        rules: Vec<Rule>,
        mode: Mode,
        place: Place,
        desk: Arc<Desk>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            gate: Mutex::new(Gate {
                rules,
                ..Gate::default()
            }),
            mode: Mutex::new(mode),
            turn: Mutex::default(),
            asked: Mutex::default(),
            place,
            desk,
            clock,
        }
    }

    /// Takes a fact of an earlier run into account: grants and denials are in the log.
    pub fn apply(&self, event: &Event) {
        match &event.payload {
            Payload::TurnStarted(_) => {
                if let Some(turn) = &event.scope.turn_id {
                    *lock(&self.turn) = turn.to_string();
                }
            }
            Payload::ActionRequired(required) => {
                if let (Some(action), Some(key)) = (&event.scope.action_id, &required.approval_key)
                {
                    lock(&self.asked).push((action.clone(), ApprovalKey::from_log(key.as_str())));
                }
            }
            Payload::ActionResolved(resolved) => {
                let Some(action) = &event.scope.action_id else {
                    return;
                };
                let mut asked = lock(&self.asked);
                let Some(at) = asked.iter().position(|(known, _)| known == action) else {
                    return;
                };
                let (_, key) = asked.remove(at);
                drop(asked);
                let note = resolved
                    .payload
                    .as_ref()
                    .and_then(|answer| answer.note.clone());
                self.remember(key, resolved.decision, resolved.scope, note);
            }
            Payload::PolicyChanged(changed) => {
                if let Some(mode) = changed.changed.mode {
                    *lock(&self.mode) = mode;
                }
            }
            _ => {}
        }
    }

    /// The session works on this turn now; a denial holds to a turn's end.
    pub fn turn_begins(&self, turn: &str) {
        turn.clone_into(&mut lock(&self.turn));
    }

    /// Changes the ceiling; the caller records it.
    pub fn set_mode(&self, mode: Mode) {
        *lock(&self.mode) = mode;
    }

    /// Adds a rule the user saved; the caller records it and writes it to its file.
    pub fn add_rule(&self, rule: Rule) {
        lock(&self.gate).rules.push(rule);
    }

    fn remember(
        &self,
        key: ApprovalKey,
        decision: ActionDecision,
        scope: GrantScope,
        note: Option<String>,
    ) {
        let mut gate = lock(&self.gate);
        match decision {
            ActionDecision::AllowSession => gate.grants.grant(key, GrantScope::Session),
            ActionDecision::AllowOnce => gate.grants.grant(key, scope),
            ActionDecision::Deny | ActionDecision::Abort => {
                let turn = lock(&self.turn).clone();
                gate.grants.deny(key, Denial { turn, note });
            }
            ActionDecision::Answer => {}
        }
    }
}

impl Authority for SessionAuthority {
    fn mode(&self) -> Mode {
        *lock(&self.mode)
    }

    fn decide(&self, request: &PermissionRequest<'_>) -> Decision {
        let turn = lock(&self.turn).clone();
        let setting = Setting {
            workspace: request.workspace,
            home: &self.place.home,
            mode: self.mode(),
            sandbox: self.place.sandbox,
            turn: &turn,
            hooks: &[],
            timeout_ms: self.place.command_timeout_ms,
            output_limit: self.place.output_limit,
        };
        let call = GateRequest {
            tool: &request.tool.name,
            input: request.input,
            semantics: request.semantics,
        };
        let facts = DiskFacts {
            dirty: || (self.place.tree_is_dirty)(),
        };
        let judgement = lock(&self.gate).evaluate(&call, &setting, &facts);
        Decision {
            evaluated: judgement.evaluated,
            confinement: judgement.confinement,
            ask_timeout: self.place.ask_timeout,
            approval_key: Some(judgement.key.as_str().to_owned()),
        }
    }

    fn ask(&self, question: &Question, cancel: &Cancel) -> Answer {
        let answer = self.desk.ask(question, self.clock.now(), cancel);
        if let (
            Answer::Decided {
                decision,
                scope,
                note,
                ..
            },
            Some(key),
        ) = (&answer, &question.required.approval_key)
        {
            self.remember(
                ApprovalKey::from_log(key.as_str()),
                *decision,
                *scope,
                note.clone(),
            );
        }
        answer
    }

    fn forecast(&self, definition: &ToolDefinition) -> CatalogPolicy {
        let name = definition.name.as_str();
        let gate = lock(&self.gate);
        let whole_tool = |effect: Effect| {
            gate.rules
                .iter()
                .any(|rule| rule.effect == effect && rule.text == name)
        };
        if whole_tool(Effect::Deny) {
            return CatalogPolicy::Denied;
        }
        if definition.needs_sandbox {
            return match self.place.sandbox {
                SandboxLevel::Full => CatalogPolicy::Sandboxed,
                SandboxLevel::Partial | SandboxLevel::Off => CatalogPolicy::Ask,
                SandboxLevel::Unavailable => CatalogPolicy::Denied,
            };
        }
        let free = definition.is_read_only
            || matches!(self.mode(), Mode::AcceptEdits | Mode::Auto | Mode::Full);
        if free && !whole_tool(Effect::Ask) {
            CatalogPolicy::Allowed
        } else {
            CatalogPolicy::Ask
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
