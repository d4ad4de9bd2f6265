//! The question: what is asked when the gate says so, and what follows from the answer.

use std::sync::Arc;

use agent_protocol::id::{ActionId, EventId};
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::permission::{
    ActionAnswer, ActionDecision, ActionRequired, ActionResolved, ActionType, DecidedBy,
    DecisionSource, Effect, GrantScope, PermissionEvaluated, PermissionRequested,
    PermissionResolved,
};
use agent_protocol::payload::tool::PermissionFacts;
use agent_protocol::status::Mode;
use agent_protocol::{Code, Payload, Phase, Refs, Timestamp};
use serde_json::Value;

use crate::authority::{Answer, Decision, PendingCall, Question};
use crate::call::{Call, Refusal};
use crate::cancel::Cancel;
use crate::journal::JournalError;
use crate::pipeline::Shared;
use crate::registry::Registered;
use crate::tool::Prepared;
use agent_policy::Subject;
use agent_text::visible_excerpt;

const CALL_DECISIONS: [ActionDecision; 4] = [
    ActionDecision::AllowOnce,
    ActionDecision::AllowSession,
    ActionDecision::Deny,
    ActionDecision::Abort,
];
const PLAN_DECISIONS: [ActionDecision; 3] = [
    ActionDecision::AllowOnce,
    ActionDecision::Deny,
    ActionDecision::Abort,
];

/// Why a call may go on.
pub(crate) struct Grant {
    pub(crate) permission_ref: EventId,
    pub(crate) action_id: Option<ActionId>,
    pub(crate) facts: PermissionFacts,
}

/// What came of a question.
pub(crate) enum Asked {
    Granted(Grant),
    Edited { input: Value, grant: Grant },
    Refused(Refusal),
    Aborted(Refusal),
    LeftOpen(ActionId),
}
impl Shared {
    pub(crate) fn ask(
        &self,
        call: &mut Call,
        tool: &Registered,
        prepared: &Prepared,
        decision: &Decision,
        binding: &str,
        cancel: &Cancel,
    ) -> Result<Asked, JournalError> {
        let journal = &*self.journal;
        let asked_at = journal.now();
        let action_id: ActionId = journal.ids().mint();
        let expires_at = decision.ask_timeout.map(|wait| {
            let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
            Timestamp::from_unix_millis(asked_at.unix_millis().saturating_add(millis))
        });
        let mut risk_facts = prepared.semantics.risk_facts.clone();
        for risk in &decision.evaluated.risk {
            if !risk_facts.contains(risk) {
                risk_facts.push(risk.clone());
            }
        }
        let mut refs = Refs::default();
        let diff_ref = match &prepared.preview {
            Some(preview) => {
                let producer = call.intent_id.as_str();
                let artifact = journal.put_artifact(
                    &call.scope,
                    ArtifactKind::Diff,
                    "text/x-diff",
                    &preview.diff,
                    producer,
                )?;
                refs.add("diff", &artifact.artifact_id);
                Some(artifact.artifact_id)
            }
            None => None,
        };
        call.scope.action_id = Some(action_id.clone());
        let requested = PermissionRequested {
            action_id: action_id.clone(),
            risk_facts: risk_facts.clone(),
            expires_at,
        };
        self.record(&mut call.scope, requested, Refs::default())?;
        let is_plan = tool.definition().subject == Subject::Plan;
        let required = ActionRequired {
            action_type: match is_plan {
                true => ActionType::Plan,
                false => ActionType::ToolPermission,
            },
            title: question_title(call, tool, prepared),
            prompt: match is_plan {
                true => "Approve the plan?".to_owned(),
                false => question_prompt(call, prepared, &decision.evaluated),
            },
            risk_facts,
            tool_name: Some(tool.definition().name.clone()),
            safe_args: Some(call.input.clone()),
            diff_ref,
            decisions: match is_plan {
                // The next plan is another one.
                true => PLAN_DECISIONS.to_vec(),
                false => CALL_DECISIONS.to_vec(),
            },
            schema: None,
            timeout_ms: decision
                .ask_timeout
                .map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            policy: Some(decision.evaluated.reason.clone()),
            suggested_rule: decision.evaluated.suggested_rule.clone(),
            approval_key: Some(
                decision
                    .approval_key
                    .clone()
                    .unwrap_or_else(|| binding.to_owned()),
            ),
            cwd: prepared.plan.cwd.clone(),
        };
        // Whoever reads the question in the log may answer at once.
        let pending = self.pending(call, tool, prepared, decision.evaluated.mode);
        self.authority.expect_answer(&action_id, pending);
        let recorded = self
            .record(&mut call.scope, required.clone(), refs)
            .and_then(|recorded| journal.sync().map(|()| recorded));
        let recorded = match recorded {
            Ok(recorded) => recorded,
            Err(error) => {
                let reason = "it could not be recorded, so nobody was asked";
                self.authority.withdraw(&action_id, reason);
                return Err(error);
            }
        };
        let required = match recorded.payload {
            Payload::ActionRequired(required) => required,
            _ => required,
        };
        let question = Question {
            action_id: action_id.clone(),
            tool_call_id: call.tool_call_id.clone(),
            asked_at,
            expires_at,
            required,
        };
        let answer = self.authority.ask(&question, cancel);
        let asked = self.resolve(call, &action_id, asked_at, answer)?;
        call.scope.action_id = None;
        Ok(asked)
    }

    /// The call as it is kept while a question about it is open.
    pub(crate) fn pending(
        &self,
        call: &Call,
        tool: &Registered,
        prepared: &Prepared,
        mode: Mode,
    ) -> PendingCall {
        PendingCall {
            tool: tool.definition().clone(),
            input: call.input.clone(),
            semantics: prepared.semantics.clone(),
            flags: prepared.flags.clone(),
            workspace: Arc::clone(&self.workspace),
            mode,
            origin: call.origin,
        }
    }

    /// Records an answer, and what follows from it.
    pub(crate) fn resolve(
        &self,
        call: &mut Call,
        action_id: &ActionId,
        asked_at: Timestamp,
        answer: Answer,
    ) -> Result<Asked, JournalError> {
        let resolution = match answer {
            Answer::LeftOpen => return Ok(Asked::LeftOpen(action_id.clone())),
            answer => Resolution::of(answer),
        };
        let resolved = ActionResolved {
            decision: resolution.decision,
            decided_by: resolution.decided_by,
            payload: resolution.payload(),
            scope: resolution.scope,
            latency_ms: self.journal.now().millis_since(asked_at),
        };
        let action_event = self.record(&mut call.scope, resolved, Refs::default())?;
        self.follow(call, action_id, &action_event.event_id, None, resolution)
    }

    /// What follows from an answer that is in the log. `permission_event` is the decision on the
    /// call where that is there too.
    pub(crate) fn follow(
        &self,
        call: &mut Call,
        action_id: &ActionId,
        action_event: &EventId,
        permission_event: Option<EventId>,
        resolution: Resolution,
    ) -> Result<Asked, JournalError> {
        let allowed = matches!(
            resolution.decision,
            ActionDecision::AllowOnce | ActionDecision::AllowSession
        );
        let source = match resolution.decided_by {
            DecidedBy::User => DecisionSource::Human,
            DecidedBy::Policy => DecisionSource::Policy,
            DecidedBy::Timeout => DecisionSource::Timeout,
            DecidedBy::Cancel => DecisionSource::Cancel,
        };
        let permission = PermissionResolved {
            decision: if allowed { Effect::Allow } else { Effect::Deny },
            decision_source: source,
            scope: resolution.scope,
            action_id: action_id.clone(),
            rule_saved: resolution.saved_rule.clone(),
            note: resolution.note.clone(),
        };
        let permission_ref = match permission_event {
            Some(event_id) => event_id,
            None => {
                let refs = Refs::default().with("action", action_event);
                self.record(&mut call.scope, permission, refs)?.event_id
            }
        };
        let facts = PermissionFacts {
            decision: if allowed { "allow" } else { "deny" }.to_owned(),
            source: source.to_string(),
            reason: resolution.words.to_owned(),
            rule: resolution.saved_rule,
            note: resolution.note.clone(),
        };
        if allowed {
            let grant = Grant {
                permission_ref,
                action_id: Some(action_id.clone()),
                facts,
            };
            return Ok(match resolution.edited_input {
                Some(input) => Asked::Edited { input, grant },
                None => Asked::Granted(grant),
            });
        }
        let note = resolution
            .note
            .map(|note| format!("; they said: {note}"))
            .unwrap_or_default();
        let refusal = Refusal {
            phase: Phase::Permission,
            code: resolution.code,
            message: format!("{}: {}{note}", call.tool_name, resolution.words),
            permission: Some(facts),
            decided_by: Some(permission_ref.to_string()),
            ..Refusal::default()
        };
        Ok(if resolution.decision == ActionDecision::Abort {
            Asked::Aborted(refusal)
        } else {
            Asked::Refused(refusal)
        })
    }
}

/// An answer taken apart.
pub(crate) struct Resolution {
    decision: ActionDecision,
    decided_by: DecidedBy,
    scope: GrantScope,
    note: Option<String>,
    edited_input: Option<Value>,
    saved_rule: Option<String>,
    /// The code when the answer is no.
    code: Code,
    words: &'static str,
}

impl Resolution {
    pub(crate) fn of(answer: Answer) -> Self {
        let no = |decided_by, code, words| Self {
            decision: ActionDecision::Deny,
            decided_by,
            scope: GrantScope::Once,
            note: None,
            edited_input: None,
            saved_rule: None,
            code,
            words,
        };
        match answer {
            Answer::Decided {
                decision,
                decided_by,
                scope,
                note,
                edited_input,
                saved_rule,
            } => {
                let words = match (decision, decided_by) {
                    (ActionDecision::AllowOnce | ActionDecision::AllowSession, DecidedBy::User) => {
                        "the user approved it"
                    }
                    (ActionDecision::AllowOnce | ActionDecision::AllowSession, _) => {
                        "the policy for questions approved it"
                    }
                    (ActionDecision::Abort, _) => "the user refused it and ended the turn",
                    (_, DecidedBy::User) => "the user refused it",
                    _ => "the policy for questions refused it",
                };
                Self {
                    decision,
                    decided_by,
                    scope,
                    note,
                    edited_input,
                    saved_rule,
                    code: if decided_by == DecidedBy::User {
                        Code::UserDenied
                    } else {
                        Code::ApprovalUnavailable
                    },
                    words,
                }
            }
            Answer::Unavailable => no(
                DecidedBy::Policy,
                Code::ApprovalUnavailable,
                "it needs an approval, and nobody can be asked in this run",
            ),
            Answer::Expired => no(
                DecidedBy::Timeout,
                Code::ApprovalExpired,
                "nobody answered the question in time",
            ),
            Answer::Cancelled | Answer::LeftOpen => no(
                DecidedBy::Cancel,
                Code::Cancelled,
                "the turn was cancelled while the question was open",
            ),
        }
    }

    fn payload(&self) -> Option<ActionAnswer> {
        let answer = ActionAnswer {
            note: self.note.clone(),
            edited_input: self.edited_input.clone(),
            answer: None,
            saved_rule: self.saved_rule.clone(),
            // A fact of its own: `policy.changed`.
            mode: None,
        };
        (answer != ActionAnswer::default()).then_some(answer)
    }
}

fn question_title(call: &Call, tool: &Registered, prepared: &Prepared) -> String {
    if tool.definition().subject == Subject::Plan {
        return "a plan".to_owned();
    }
    let about = match &prepared.semantics.command {
        Some(command) => command.text.clone(),
        None if prepared.normalised_paths.is_empty() => {
            let title = tool.definition().title_of(&call.input);
            title.unwrap_or_default().to_owned()
        }
        None => prepared.normalised_paths.join(", "),
    };
    visible_excerpt(&format!("{} {about}", call.tool_name), 120)
}

fn question_prompt(call: &Call, prepared: &Prepared, evaluated: &PermissionEvaluated) -> String {
    let what = match &prepared.semantics.command {
        Some(command) => format!("run `{}`", visible_excerpt(&command.text, 2_000)),
        None if prepared.normalised_paths.is_empty() => format!("use `{}`", call.tool_name),
        None => format!(
            "{} {}",
            call.tool_name,
            visible_excerpt(&prepared.normalised_paths.join(", "), 500)
        ),
    };
    format!(
        "Allow the agent to {what}? ({})",
        visible_excerpt(&evaluated.reason, 500)
    )
}
