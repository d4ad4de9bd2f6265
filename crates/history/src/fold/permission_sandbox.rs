//! `permission_sandbox_summary`: what was decided, what is still asked, what boundary held.

use std::collections::BTreeMap;

use agent_protocol::id::{ActionId, ToolCallId, TurnId};
use agent_protocol::payload::permission::{ActionType, DecisionSource, Effect, GrantScope};
use agent_protocol::payload::process::{Detection, SandboxStatus, ViolationKind};
use agent_protocol::status::Mode;
use agent_protocol::{Event, Payload, Timestamp};
use serde::{Deserialize, Serialize};

use super::session_snapshot::mode_of;
use super::{Cursor, Fact, Fold, Step, push_bounded};
use agent_text::brief;

const RECENT: usize = 20;
const GRANTS: usize = 200;

/// Decisions and boundaries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PermissionSandboxSummary {
    pub cursor: Cursor,
    pub mode: Fact<Mode>,
    pub decisions: DecisionCounts,
    /// How often each source decided.
    pub sources: BTreeMap<DecisionSource, u64>,
    /// Questions nobody has answered, in the order they were asked.
    pub pending: Vec<PendingAction>,
    /// Answers that hold for longer than one call.
    pub grants: Vec<Grant>,
    /// The latest refusals.
    pub refusals: Vec<Refusal>,
    /// The boundary around the latest command; that of another command may differ.
    pub sandbox: Fact<SandboxBrief>,
    pub violation_count: u64,
    /// The latest violations. An empty list does not say that there were none.
    pub violations: Vec<ViolationBrief>,
    pub policy_changes: u64,
}

/// How often the gate said what; an answer of no to what it asked is a denial as well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionCounts {
    pub allow: u64,
    pub ask: u64,
    pub deny: u64,
}

/// A question that waits for an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingAction {
    pub action_id: ActionId,
    pub action_type: ActionType,
    pub tool_call_id: Option<ToolCallId>,
    pub turn_id: Option<TurnId>,
    pub tool_name: Option<String>,
    pub title: String,
    pub prompt: String,
    pub risk_facts: Vec<String>,
    pub suggested_rule: Option<String>,
    pub asked_at: Timestamp,
    pub sequence: u64,
}

/// An answer that holds for longer than one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    pub scope: GrantScope,
    pub decision: Effect,
    pub rule: Option<String>,
    pub sequence: u64,
}

/// A call that was not let through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    pub tool_call_id: Option<ToolCallId>,
    pub source: DecisionSource,
    pub reason: String,
    pub sequence: u64,
}

/// The boundary around a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SandboxBrief {
    pub profile_id: String,
    pub mechanism: String,
    pub status: SandboxStatus,
    pub network: String,
    pub sequence: u64,
}

/// Something a command tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ViolationBrief {
    pub kind: ViolationKind,
    pub target: Option<String>,
    pub detection: Detection,
    pub count: u64,
    pub sequence: u64,
}

impl Fold for PermissionSandboxSummary {
    fn fold(&mut self, event: &Event) {
        match self.cursor.step(event) {
            Step::Again => return,
            Step::AfterGap => {
                self.mode.doubt();
                self.sandbox.doubt();
            }
            Step::Next => {}
        }
        match &event.payload {
            Payload::SessionCreated(created) => self.mode = mode_of(created),
            Payload::TurnStarted(started) => self.mode = Fact::Known(started.mode),
            Payload::SessionUpdated(updated) => {
                if let Some(mode) = updated.changed.mode {
                    self.mode = Fact::Known(mode);
                }
            }
            Payload::PolicyChanged(changed) => {
                self.policy_changes += 1;
                if let Some(mode) = changed.changed.mode {
                    self.mode = Fact::Known(mode);
                }
            }
            Payload::PermissionEvaluated(evaluated) => {
                match evaluated.decision {
                    Effect::Allow => self.decisions.allow += 1,
                    Effect::Ask => self.decisions.ask += 1,
                    Effect::Deny => {
                        self.decisions.deny += 1;
                        self.refuse(event, evaluated.decision_source, &evaluated.reason);
                    }
                }
                *self.sources.entry(evaluated.decision_source).or_default() += 1;
            }
            Payload::PermissionResolved(resolved) => {
                if resolved.decision == Effect::Deny {
                    self.decisions.deny += 1;
                    let reason = resolved.note.as_deref().unwrap_or("refused");
                    self.refuse(event, resolved.decision_source, reason);
                }
                if resolved.scope != GrantScope::Once || resolved.rule_saved.is_some() {
                    let grant = Grant {
                        scope: resolved.scope,
                        decision: resolved.decision,
                        rule: resolved.rule_saved.clone(),
                        sequence: event.sequence,
                    };
                    push_bounded(&mut self.grants, grant, GRANTS);
                }
            }
            Payload::ActionRequired(required) => {
                if let Some(action_id) = &event.scope.action_id {
                    self.pending.push(PendingAction {
                        action_id: action_id.clone(),
                        action_type: required.action_type,
                        tool_call_id: event.scope.tool_call_id.clone(),
                        turn_id: event.scope.turn_id.clone(),
                        tool_name: required.tool_name.clone(),
                        title: required.title.clone(),
                        prompt: brief(&required.prompt, 2000),
                        risk_facts: required.risk_facts.clone(),
                        suggested_rule: required.suggested_rule.clone(),
                        asked_at: event.timestamp,
                        sequence: event.sequence,
                    });
                }
            }
            Payload::ActionResolved(_) => {
                self.pending
                    .retain(|action| Some(&action.action_id) != event.scope.action_id.as_ref());
            }
            Payload::SandboxApplied(applied) => {
                self.sandbox = Fact::Known(SandboxBrief {
                    profile_id: applied.profile_id.clone(),
                    mechanism: applied.mechanism.clone(),
                    status: applied.status,
                    network: applied.network.clone(),
                    sequence: event.sequence,
                });
            }
            Payload::SandboxViolation(violation) => {
                self.violation_count = self.violation_count.saturating_add(violation.count.max(1));
                let brief = ViolationBrief {
                    kind: violation.kind,
                    target: violation.target.clone(),
                    detection: violation.detection,
                    count: violation.count,
                    sequence: event.sequence,
                };
                push_bounded(&mut self.violations, brief, RECENT);
            }
            _ => {}
        }
    }
}

impl PermissionSandboxSummary {
    fn refuse(&mut self, event: &Event, source: DecisionSource, reason: &str) {
        let refusal = Refusal {
            tool_call_id: event.scope.tool_call_id.clone(),
            source,
            reason: brief(reason, 300),
            sequence: event.sequence,
        };
        push_bounded(&mut self.refusals, refusal, RECENT);
    }
}
