//! The gate step: runtime validation, the decision, the question where there is one, and at the end
//! the only place that builds a [`ToolInvocation`].

use std::panic::{AssertUnwindSafe, catch_unwind};

use agent_protocol::id::{ActionId, EventId, InvocationId};
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::permission::{
    ActionAnswer, ActionDecision, ActionRequired, ActionResolved, ActionType, DecidedBy,
    DecisionSource, Effect, GrantScope, PermissionEvaluated, PermissionRequested,
    PermissionResolved,
};
use agent_protocol::payload::tool::{PermissionFacts, ToolArgs, ToolValidation, ValidationLayer};
use agent_protocol::{Code, Payload, Phase, Refs, Timestamp};
use serde_json::{Value, json};

use crate::authority::{Answer, Confinement, Decision, PermissionRequest, Question};
use crate::cancel::Cancel;
use crate::context::RuntimeContext;
use crate::escape::visible_line;
use crate::hash::sha256_hex;
use crate::invocation::{Admitted, ToolInvocation};
use crate::journal::JournalError;
use crate::pipeline::{Call, Refusal, Shared, panic_words};
use crate::registry::Registered;
use crate::result::ValidationFailure;
use crate::tool::Prepared;

/// What the gate step came to.
pub(crate) enum Admission {
    Admitted(Box<Admit>),
    Refused(Refusal),
    /// Refused, and the person does not want the rest of the turn either.
    Aborted(Refusal),
    LeftOpen(ActionId),
}

/// An admitted call with the facts its start is recorded with.
pub(crate) struct Admit {
    pub(crate) invocation: ToolInvocation,
    pub(crate) flags: agent_protocol::payload::tool::CallFlags,
    pub(crate) plan: crate::tool::Plan,
    pub(crate) confinement: Confinement,
    pub(crate) args_sha256: String,
    pub(crate) permission_ref: EventId,
    pub(crate) action_id: Option<ActionId>,
    pub(crate) permission: PermissionFacts,
}

/// After so many questions about one call, the world moves too fast for an answer to hold.
const MAX_ROUNDS: usize = 3;

/// Why a call may go on.
struct Grant {
    permission_ref: EventId,
    action_id: Option<ActionId>,
    facts: PermissionFacts,
}

enum Asked {
    Granted(Grant),
    Edited { input: Value, grant: Grant },
    Refused(Refusal),
    Aborted(Refusal),
    LeftOpen(ActionId),
}

impl Shared {
    /// Takes a call through validation and permission. `before_asking` is called before a question
    /// is put to anybody, so that everything earlier has its result in the log by then.
    pub(crate) fn admit(
        &self,
        call: &mut Call,
        cancel: &Cancel,
        before_asking: &mut dyn FnMut() -> Result<(), JournalError>,
    ) -> Result<Admission, JournalError> {
        let Some(tool) = call.tool.clone() else {
            return Ok(Admission::Refused(Refusal::default()));
        };
        // Set once a person has put in an input of their own.
        let mut edited: Option<Grant> = None;
        for _ in 0..MAX_ROUNDS {
            let prepared = match self.validate(call, &tool) {
                Ok(prepared) => prepared,
                Err((layer, refusal)) => {
                    self.record_invalid(call, layer, &refusal)?;
                    return Ok(Admission::Refused(refusal));
                }
            };
            let args_sha256 = self.record_valid(call, &prepared)?;
            let mut decision = self.decide(call, &tool, &prepared);
            let binding = self.binding(call, &tool, &prepared, &decision.confinement);
            if edited.is_some() && decision.evaluated.decision == Effect::Ask {
                decision.evaluated.decision = Effect::Allow;
                decision.evaluated.decision_source = DecisionSource::Human;
                decision.evaluated.reason = "the user put in this input and approved it".to_owned();
            }
            let evaluated = self.record_decision(call, &prepared, &mut decision, &binding)?;
            let facts = permission_facts(&decision.evaluated);
            let grant = match decision.evaluated.decision {
                Effect::Deny => {
                    return Ok(Admission::Refused(denied(&decision, &evaluated, facts)));
                }
                Effect::Allow => edited.take().unwrap_or(Grant {
                    permission_ref: evaluated,
                    action_id: None,
                    facts,
                }),
                Effect::Ask => {
                    before_asking()?;
                    match self.ask(call, &tool, &prepared, &decision, &binding, cancel)? {
                        Asked::Granted(grant) => grant,
                        Asked::Edited { input, grant } => {
                            if let Err(bad) = tool.schema.check(&input) {
                                let refusal = Refusal {
                                    phase: Phase::Validate,
                                    code: bad.code,
                                    message: bad.message,
                                    errors: bad.errors,
                                    ..Refusal::default()
                                };
                                self.record_invalid(call, ValidationLayer::Schema, &refusal)?;
                                return Ok(Admission::Refused(refusal));
                            }
                            call.input = input;
                            edited = Some(grant);
                            continue;
                        }
                        Asked::Refused(refusal) => return Ok(Admission::Refused(refusal)),
                        Asked::Aborted(refusal) => return Ok(Admission::Aborted(refusal)),
                        Asked::LeftOpen(action_id) => return Ok(Admission::LeftOpen(action_id)),
                    }
                }
            };
            let prepared = if grant.action_id.is_some() {
                // Somebody took time to answer: what they saw must still be so.
                match self.validate(call, &tool) {
                    // The key covers what the gate looked at besides: a script's bytes, for one.
                    Ok(now)
                        if self.binding(call, &tool, &now, &decision.confinement) == binding
                            && self.decide(call, &tool, &now).approval_key
                                == decision.approval_key =>
                    {
                        now
                    }
                    // The next round finds what changed, and asks about that.
                    _ => {
                        edited = None;
                        continue;
                    }
                }
            } else {
                prepared
            };
            return Ok(Admission::Admitted(Box::new(self.admitted(
                call,
                prepared,
                decision.confinement,
                args_sha256,
                grant,
            ))));
        }
        let reason = format!(
            "what the call rests on changed {MAX_ROUNDS} times while it waited for an approval"
        );
        let evaluated = PermissionEvaluated {
            decision: Effect::Deny,
            decision_source: DecisionSource::Timeout,
            reason: reason.clone(),
            mode: self.authority.mode(),
            ..PermissionEvaluated::default()
        };
        let recorded = self.record(&mut call.scope, evaluated.clone(), Refs::default())?;
        Ok(Admission::Refused(Refusal {
            phase: Phase::Permission,
            code: Code::ApprovalExpired,
            message: reason,
            permission: Some(permission_facts(&evaluated)),
            decided_by: Some(recorded.event_id.to_string()),
            ..Refusal::default()
        }))
    }

    fn validate(
        &self,
        call: &Call,
        tool: &Registered,
    ) -> Result<Prepared, (ValidationLayer, Refusal)> {
        self.check_visible(tool)
            .map_err(|refusal| (ValidationLayer::Visibility, refusal))?;
        let context = RuntimeContext {
            workspace: &self.workspace,
            mode: self.authority.mode(),
            baselines: &self.baselines,
            journal: &*self.journal,
        };
        let validated = catch_unwind(AssertUnwindSafe(|| {
            tool.tool.validate(&call.input, &context)
        }))
        .unwrap_or_else(|panic| {
            let words = panic_words(&*panic);
            let message = format!(
                "the tool `{}` failed while checking its input: {words}",
                call.tool_name
            );
            Err(ValidationFailure::new(Code::InternalError, message))
        });
        validated.map_err(|failure| (ValidationLayer::Runtime, validation_refusal(failure)))
    }

    fn record_valid(&self, call: &mut Call, prepared: &Prepared) -> Result<String, JournalError> {
        let validation = ToolValidation {
            intent_id: call.intent_id.clone(),
            ok: true,
            layer: ValidationLayer::Runtime,
            ..ToolValidation::default()
        };
        self.record(&mut call.scope, validation, Refs::default())?;
        let args_sha256 = sha256_hex(call.input.to_string().as_bytes());
        let args = ToolArgs {
            safe_args: Some(call.input.clone()),
            args_sha256: args_sha256.clone(),
            normalised_paths: prepared.normalised_paths.clone(),
            ..ToolArgs::default()
        };
        self.record(&mut call.scope, args, Refs::default())?;
        Ok(args_sha256)
    }

    fn record_decision(
        &self,
        call: &mut Call,
        prepared: &Prepared,
        decision: &mut Decision,
        binding: &str,
    ) -> Result<EventId, JournalError> {
        let evaluated = &mut decision.evaluated;
        evaluated.binding = Some(binding.to_owned());
        if evaluated.resources.is_empty() {
            evaluated.resources = prepared
                .semantics
                .resources
                .iter()
                .map(|resource| resource.to_resource())
                .collect();
        }
        let recorded = self.record(&mut call.scope, evaluated.clone(), Refs::default())?;
        Ok(recorded.event_id)
    }

    fn decide(&self, call: &Call, tool: &Registered, prepared: &Prepared) -> Decision {
        self.authority.decide(&PermissionRequest {
            tool: tool.definition(),
            input: &call.input,
            semantics: &prepared.semantics,
            flags: &prepared.flags,
            workspace: &self.workspace,
        })
    }

    /// What an approval holds for. Any change of it makes the approval void.
    fn binding(
        &self,
        call: &Call,
        tool: &Registered,
        prepared: &Prepared,
        confinement: &Confinement,
    ) -> String {
        let resources: Vec<_> = prepared
            .semantics
            .resources
            .iter()
            .map(|resource| json!([resource.access.as_str(), resource.given, resource.resolved]))
            .collect();
        let baselines: Vec<_> = prepared
            .baselines
            .iter()
            .map(|baseline| json!([baseline.path, baseline.sha256]))
            .collect();
        let command = prepared
            .semantics
            .command
            .as_ref()
            .map(|command| json!([command.text, command.cwd]));
        let bound = json!({
            "tool": [tool.definition().name, tool.definition_hash()],
            "input": call.input,
            "resources": resources,
            "baselines": baselines,
            "command": command,
            "network": prepared.semantics.network,
            "leaves_sandbox": prepared.semantics.leaves_sandbox,
            "preview": prepared.preview.as_ref().map(|preview| sha256_hex(&preview.diff)),
            "cwd": prepared.plan.cwd,
            "background": prepared.plan.background,
            "sandbox": format!("{confinement:?}"),
        });
        format!("sha256:{}", sha256_hex(bound.to_string().as_bytes()))
    }

    fn ask(
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
        let required = ActionRequired {
            action_type: ActionType::ToolPermission,
            title: question_title(call, prepared),
            prompt: question_prompt(call, prepared, &decision.evaluated),
            risk_facts,
            tool_name: Some(tool.definition().name.clone()),
            safe_args: Some(call.input.clone()),
            diff_ref,
            decisions: vec![
                ActionDecision::AllowOnce,
                ActionDecision::AllowSession,
                ActionDecision::Deny,
                ActionDecision::Abort,
            ],
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
        let recorded = self.record(&mut call.scope, required.clone(), refs)?;
        journal.sync()?;
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

    /// Records an answer, and what follows from it.
    fn resolve(
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
        let refs = Refs::default().with("action", &action_event.event_id);
        let recorded = self.record(&mut call.scope, permission, refs)?;
        let facts = PermissionFacts {
            decision: if allowed { "allow" } else { "deny" }.to_owned(),
            source: source.to_string(),
            reason: resolution.words.to_owned(),
            rule: resolution.saved_rule,
            note: resolution.note.clone(),
        };
        if allowed {
            let grant = Grant {
                permission_ref: recorded.event_id,
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
            decided_by: Some(recorded.event_id.to_string()),
            ..Refusal::default()
        };
        Ok(if resolution.decision == ActionDecision::Abort {
            Asked::Aborted(refusal)
        } else {
            Asked::Refused(refusal)
        })
    }

    fn admitted(
        &self,
        call: &Call,
        prepared: Prepared,
        confinement: Confinement,
        args_sha256: String,
        grant: Grant,
    ) -> Admit {
        let invocation_id: InvocationId = self.journal.ids().mint();
        let mut plan = prepared.plan;
        if plan.timeout.is_none() {
            plan.timeout = call
                .tool
                .as_ref()
                .and_then(|tool| tool.definition().default_timeout);
        }
        let cwd = plan.cwd.as_ref().map_or_else(
            || self.workspace.root.clone(),
            |cwd| self.workspace.root.join(cwd),
        );
        let invocation = ToolInvocation::admit(Admitted {
            invocation_id,
            intent_id: call.intent_id.clone(),
            tool_call_id: call.tool_call_id.clone(),
            raw_input: call.input.clone(),
            input: prepared.input,
            confinement: confinement.clone(),
            plan: plan.clone(),
            cwd,
        });
        Admit {
            invocation,
            flags: prepared.flags,
            plan,
            confinement,
            args_sha256,
            permission_ref: grant.permission_ref,
            action_id: grant.action_id,
            permission: grant.facts,
        }
    }
}

/// An answer taken apart.
struct Resolution {
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
    fn of(answer: Answer) -> Self {
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
        };
        (answer != ActionAnswer::default()).then_some(answer)
    }
}

fn validation_refusal(failure: ValidationFailure) -> Refusal {
    Refusal {
        phase: Phase::Validate,
        code: failure.code,
        message: failure.message,
        errors: failure.errors,
        bodies: failure.bodies,
        read_more: failure.read_more,
        ..Refusal::default()
    }
}

fn denied(decision: &Decision, evaluated: &EventId, facts: PermissionFacts) -> Refusal {
    let reason = &decision.evaluated.reason;
    Refusal {
        phase: Phase::Permission,
        code: Code::PolicyDenied,
        message: format!("denied by policy: {reason}"),
        permission: Some(facts),
        decided_by: Some(evaluated.to_string()),
        ..Refusal::default()
    }
}

fn permission_facts(evaluated: &PermissionEvaluated) -> PermissionFacts {
    PermissionFacts {
        decision: evaluated.decision.to_string(),
        source: evaluated.decision_source.to_string(),
        reason: evaluated.reason.clone(),
        rule: evaluated
            .matched
            .iter()
            .find(|matched| matched.effect == evaluated.decision)
            .map(|matched| matched.rule.clone()),
        note: None,
    }
}

fn question_title(call: &Call, prepared: &Prepared) -> String {
    let about = match &prepared.semantics.command {
        Some(command) => command.text.clone(),
        None => prepared.normalised_paths.join(", "),
    };
    visible_line(&format!("{} {about}", call.tool_name), 120)
}

fn question_prompt(call: &Call, prepared: &Prepared, evaluated: &PermissionEvaluated) -> String {
    let what = match &prepared.semantics.command {
        Some(command) => format!("run `{}`", visible_line(&command.text, 2_000)),
        None if prepared.normalised_paths.is_empty() => format!("use `{}`", call.tool_name),
        None => format!(
            "{} {}",
            call.tool_name,
            visible_line(&prepared.normalised_paths.join(", "), 500)
        ),
    };
    format!(
        "Allow the agent to {what}? ({})",
        visible_line(&evaluated.reason, 500)
    )
}
