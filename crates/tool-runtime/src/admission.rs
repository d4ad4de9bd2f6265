//! The gate step: runtime validation and the decision, and at the end the only place that builds a
//! [`ToolInvocation`]. Where the decision is to ask, `question` does.

use std::panic::{AssertUnwindSafe, catch_unwind};

use agent_protocol::id::{ActionId, EventId, InvocationId};
use agent_protocol::payload::permission::{DecisionSource, Effect, PermissionEvaluated};
use agent_protocol::payload::tool::{PermissionFacts, ToolArgs, ToolValidation, ValidationLayer};
use agent_protocol::{Code, Phase, Refs};
use serde_json::{Value, json};

use crate::authority::{Decision, PermissionRequest};
use crate::call::{Call, Refusal, panic_words, schema_refusal};
use crate::cancel::Cancel;
use crate::context::RuntimeContext;
use crate::invocation::{Admitted, ToolInvocation};
use crate::journal::JournalError;
use crate::pipeline::Shared;
use crate::question::{Asked, Grant};
use crate::registry::Registered;
use crate::result::ValidationFailure;
use crate::tool::Prepared;
use agent_policy::{Confinement, PROOF_TIMEOUT};
use agent_text::sha256_hex;

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
        self.rounds(call, &tool, None, cancel, before_asking)
    }

    /// Takes a call on with the input a person put in instead.
    pub(crate) fn admit_edited(
        &self,
        call: &mut Call,
        tool: &Registered,
        input: Value,
        grant: Grant,
        cancel: &Cancel,
        before_asking: &mut dyn FnMut() -> Result<(), JournalError>,
    ) -> Result<Admission, JournalError> {
        if let Err(bad) = tool.schema.check(&input) {
            let refusal = schema_refusal(bad);
            self.record_invalid(call, ValidationLayer::Schema, &refusal)?;
            return Ok(Admission::Refused(refusal));
        }
        call.input = input;
        self.rounds(call, tool, Some(grant), cancel, before_asking)
    }

    /// Validates, decides and asks until an answer holds. `edited` is set once a person has put in
    /// an input of their own.
    fn rounds(
        &self,
        call: &mut Call,
        tool: &Registered,
        mut edited: Option<Grant>,
        cancel: &Cancel,
        before_asking: &mut dyn FnMut() -> Result<(), JournalError>,
    ) -> Result<Admission, JournalError> {
        for _ in 0..MAX_ROUNDS {
            let prepared = match self.validate(call, tool) {
                Ok(prepared) => prepared,
                Err((layer, refusal)) => {
                    self.record_invalid(call, layer, &refusal)?;
                    return Ok(Admission::Refused(refusal));
                }
            };
            let args_sha256 = self.record_valid(call, &prepared)?;
            let mut decision = self.decide(call, tool, &prepared);
            let binding = self.binding(call, tool, &prepared, &decision.confinement);
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
                    match self.ask(call, tool, &prepared, &decision, &binding, cancel)? {
                        Asked::Granted(grant) => grant,
                        Asked::Edited { input, grant } => {
                            if let Err(bad) = tool.schema.check(&input) {
                                let refusal = schema_refusal(bad);
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
                match self.validate(call, tool) {
                    // The key covers what the gate looked at besides: a script's bytes, for one.
                    Ok(now)
                        if self.binding(call, tool, &now, &decision.confinement) == binding
                            && self.is_still_approved(call, tool, &now, &decision) =>
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

    pub(crate) fn validate(
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
            reads_outside: &|path| self.authority.reads_outside(path),
            reading: &call.reading,
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

    pub(crate) fn decide(&self, call: &Call, tool: &Registered, prepared: &Prepared) -> Decision {
        self.authority.decide(&PermissionRequest {
            tool: tool.definition(),
            input: &call.input,
            semantics: &prepared.semantics,
            flags: &prepared.flags,
            workspace: &self.workspace,
            origin: call.origin,
        })
    }

    /// True if the approval of what was `asked` about holds: it is the same still, and nothing denies
    /// it since.
    fn is_still_approved(
        &self,
        call: &Call,
        tool: &Registered,
        prepared: &Prepared,
        asked: &Decision,
    ) -> bool {
        let now = self.decide(call, tool, prepared);
        now.approval_key == asked.approval_key && now.evaluated.decision != Effect::Deny
    }

    /// What an approval holds for. Any change of it makes the approval void.
    pub(crate) fn binding(
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

    pub(crate) fn admitted(
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
        if confinement.by_proof {
            plan.timeout = plan.timeout.map(|timeout| timeout.min(PROOF_TIMEOUT));
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
