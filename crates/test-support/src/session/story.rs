//! A session with one of everything: a call that works, one that is asked for, one that is refused,
//! one that is not valid, a command in a sandbox, a queue, evidence and an end.

use agent_log::{Recorded, SessionWriter};
use agent_protocol::id::{ArtifactId, StepId, ThreadId, ToolCallId, TurnId};
use agent_protocol::payload::conversation::*;
use agent_protocol::payload::model::*;
use agent_protocol::payload::permission::*;
use agent_protocol::payload::process::*;
use agent_protocol::payload::tool::*;
use agent_protocol::payload::{SideEffect, SideEffectKind, Usage};
use agent_protocol::status::{Mode, Status, VerificationStatus};
use agent_protocol::{Code, Payload, Phase, Refs, Scope};
use sha2::{Digest as _, Sha256};

/// The command of every call of `bash`.
pub const COMMAND: &str = "cargo test";
/// What the model says, at every request.
pub const ANSWER: &str = "I will look.";

/// The hash that the arguments of a call are recorded with.
pub fn args_sha256(intent: &ToolIntent) -> String {
    let text = intent.raw_input.as_ref().unwrap().to_string();
    let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    ArtifactId::from_digest(&digest).hex().to_owned()
}

/// Tells a story to a writer.
pub struct Teller<'a> {
    pub writer: &'a SessionWriter,
    pub scope: Scope,
    /// Changes the next observation shows.
    pub effects: Vec<SideEffect>,
    /// What the turn so far shows about verification.
    verification: VerificationStatus,
    /// Calls of the turn that were refused.
    refused: u64,
}

impl<'a> Teller<'a> {
    pub fn new(writer: &'a SessionWriter) -> Self {
        let thread: ThreadId = writer.mint();
        Self {
            writer,
            scope: Scope {
                thread_id: Some(thread),
                ..Scope::default()
            },
            effects: Vec::new(),
            verification: VerificationStatus::NotApplicable,
            refused: 0,
        }
    }

    pub fn tell(&self, payload: impl Into<Payload>) -> Recorded {
        self.writer
            .append(&self.scope, payload, Refs::default())
            .unwrap()
    }

    /// One turn with every kind of call, and its end.
    pub fn turn(&mut self, prompt: &str) {
        self.begin_turn(prompt);
        self.ask_model(1);
        self.read_call();
        self.invalid_call();
        self.denied_call();
        self.edit_call(ActionDecision::AllowOnce);
        self.edit_call(ActionDecision::Deny);
        self.bash_call();
        self.end_turn();
    }

    pub fn begin_turn(&mut self, prompt: &str) {
        self.scope.turn_id = Some(self.writer.mint::<TurnId>());
        self.scope.step_id = None;
        self.verification = VerificationStatus::NotApplicable;
        self.refused = 0;
        self.tell(TurnSubmitted {
            text: Some(prompt.into()),
            source: TurnSource::Cli,
            status: Status::Accepted,
            ..TurnSubmitted::default()
        });
        self.tell(TurnStarted {
            model: "scripted/one".into(),
            mode: Mode::Ask,
            budget: Budget {
                max_steps: Some(50),
                ..Budget::default()
            },
        });
        let catalog = self
            .writer
            .put_artifact(
                &self.scope,
                ArtifactKind::Catalog,
                "application/json",
                b"[\"read\"]",
                None,
            )
            .unwrap();
        self.tell(ToolCatalogResolved {
            catalog_hash: catalog.artifact_id.hex().into(),
            catalog_ref: catalog.artifact_id,
            mode: Mode::Ask,
            tools: vec![CatalogEntry {
                tool_name: "read".into(),
                version: "1".into(),
                policy: CatalogPolicy::Allowed,
                is_read_only: true,
                ..CatalogEntry::default()
            }],
            ..ToolCatalogResolved::default()
        });
    }

    pub fn ask_model(&mut self, request_no: u64) {
        self.hear(request_no, ANSWER);
    }

    /// Asks the model, which says `answer`.
    pub fn hear(&mut self, request_no: u64, answer: &str) {
        self.scope.step_id = Some(self.writer.mint::<StepId>());
        let request = ModelRequested {
            request_no,
            attempt: 1,
            provider: "scripted".into(),
            model: "one".into(),
            strategy: "scripted".into(),
            model_request_id: self.writer.mint(),
            ..ModelRequested::default()
        };
        let id = request.model_request_id.clone();
        self.tell(ContextResolved {
            model_request_no: request_no,
            context_id: self.writer.mint(),
            ..ContextResolved::default()
        });
        self.tell(request);
        self.tell(ModelDelta {
            model_request_id: id.clone(),
            index: 0,
            text: answer.into(),
        });
        self.tell(ModelCompleted {
            model_request_id: id.clone(),
            stop_reason: "tool_use".into(),
            text: Some(answer.into()),
            usage: Usage {
                input: Some(100),
                output: Some(20),
                ..Usage::default()
            },
            ..ModelCompleted::default()
        });
        self.tell(CostRecorded {
            model_request_id: id,
            amount: Some(0.25),
            currency: "USD".into(),
            ..CostRecorded::default()
        });
    }

    /// Starts a call: intent, validation, arguments.
    pub fn propose(&mut self, tool: &str, ok: bool) -> ToolIntent {
        self.scope.tool_call_id = Some(self.writer.mint::<ToolCallId>());
        let intent = ToolIntent {
            intent_id: self.writer.mint(),
            tool_name: tool.into(),
            raw_input: Some(match tool {
                "bash" => serde_json::json!({ "command": COMMAND, "description": "a test" }),
                _ => serde_json::json!({ "path": "src/lib.rs", "old_string": "a" }),
            }),
            raw_input_sha256: "0".repeat(64),
            ..ToolIntent::default()
        };
        self.tell(intent.clone());
        self.tell(ToolValidation {
            intent_id: intent.intent_id.clone(),
            ok,
            layer: ValidationLayer::Schema,
            code: (!ok).then_some(Code::SchemaInvalid),
            ..ToolValidation::default()
        });
        if ok {
            self.tell(ToolArgs {
                safe_args: intent.raw_input.clone(),
                args_sha256: args_sha256(&intent),
                ..ToolArgs::default()
            });
        }
        intent
    }

    pub fn decide(&self, decision: Effect) -> Recorded {
        self.tell(PermissionEvaluated {
            decision,
            decision_source: DecisionSource::Mode,
            reason: "the mode says so".into(),
            mode: Mode::Ask,
            ..PermissionEvaluated::default()
        })
    }

    pub fn start(&self, intent: &ToolIntent, permission: &Recorded) -> ToolStarted {
        let started = ToolStarted {
            invocation_id: self.writer.mint(),
            intent_id: intent.intent_id.clone(),
            tool_name: intent.tool_name.clone(),
            executor: "local:test@1".into(),
            args_sha256: args_sha256(intent),
            cwd: ".".into(),
            permission_ref: permission.event_id.to_string(),
            ..ToolStarted::default()
        };
        self.tell(started.clone());
        started
    }

    pub fn observe(
        &mut self,
        intent: &ToolIntent,
        started: Option<&ToolStarted>,
        phase: Phase,
        code: Code,
    ) {
        let effects = std::mem::take(&mut self.effects);
        self.tell(ToolObservation {
            observation_id: self.writer.mint(),
            intent_id: intent.intent_id.clone(),
            invocation_id: started.map(|started| started.invocation_id.clone()),
            tool_name: intent.tool_name.clone(),
            ok: code.is_ok(),
            phase,
            code,
            title: intent.tool_name.clone(),
            summary: format!("{} ended with {code}", intent.tool_name),
            model_text: Some("text for the model".into()),
            user_text: "text for the user".into(),
            side_effects: effects,
            ..ToolObservation::default()
        });
        self.writer.sync().unwrap();
        self.scope.tool_call_id = None;
        self.scope.action_id = None;
        self.scope.process_id = None;
    }

    fn refuse(&mut self, intent: &ToolIntent, phase: Phase, code: Code) {
        self.refused += u64::from(phase == Phase::Permission);
        self.tell(ToolFailed {
            phase,
            category: "refused".into(),
            code,
            message: "it was not done".into(),
            action_happened: agent_protocol::ActionHappened::No,
            ..ToolFailed::default()
        });
        self.observe(intent, None, phase, code);
    }

    pub fn read_call(&mut self) {
        let intent = self.propose("read", true);
        let permission = self.decide(Effect::Allow);
        let started = self.start(&intent, &permission);
        self.tell(ToolResult {
            invocation_id: started.invocation_id.clone(),
            exit: ToolExit::Ok,
            ok: true,
            code: Code::Ok,
            ..ToolResult::default()
        });
        self.observe(&intent, Some(&started), Phase::Execute, Code::Ok);
    }

    pub fn invalid_call(&mut self) {
        let intent = self.propose("read", false);
        self.refuse(&intent, Phase::Validate, Code::SchemaInvalid);
    }

    pub fn denied_call(&mut self) {
        let intent = self.propose("write", true);
        self.decide(Effect::Deny);
        self.refuse(&intent, Phase::Permission, Code::PolicyDenied);
    }

    /// Asks, and stops before the answer.
    pub fn ask_for(&mut self, tool: &str) -> ToolIntent {
        let intent = self.propose(tool, true);
        self.decide(Effect::Ask);
        self.scope.action_id = Some(self.writer.mint());
        let action_id = self.scope.action_id.clone().unwrap();
        self.tell(PermissionRequested {
            action_id,
            ..PermissionRequested::default()
        });
        self.tell(ActionRequired {
            action_type: ActionType::ToolPermission,
            title: format!("{tool} wants to change a file"),
            tool_name: Some(tool.into()),
            ..ActionRequired::default()
        });
        self.writer.sync().unwrap();
        intent
    }

    pub fn edit_call(&mut self, decision: ActionDecision) {
        let intent = self.ask_for("edit");
        self.tell(ActionResolved {
            decision,
            decided_by: DecidedBy::User,
            ..ActionResolved::default()
        });
        let effect = if decision == ActionDecision::Deny {
            Effect::Deny
        } else {
            Effect::Allow
        };
        let permission = self.tell(PermissionResolved {
            decision: effect,
            decision_source: DecisionSource::Human,
            action_id: self.scope.action_id.clone().unwrap(),
            ..PermissionResolved::default()
        });
        if effect == Effect::Deny {
            self.refuse(&intent, Phase::Permission, Code::UserDenied);
            return;
        }
        let started = self.start(&intent, &permission);
        let put = |kind, bytes: &[u8]| {
            self.writer
                .put_artifact(&self.scope, kind, "text/plain", bytes, None)
                .unwrap()
        };
        let before = put(ArtifactKind::Before, b"a\n");
        let diff = put(ArtifactKind::Diff, b"-a\n+b\n");
        self.effects = vec![SideEffect {
            kind: SideEffectKind::Modified,
            path: "src/lib.rs".into(),
            before_ref: Some(before.artifact_id.clone()),
            ..SideEffect::default()
        }];
        self.tell(ToolResult {
            invocation_id: started.invocation_id.clone(),
            exit: ToolExit::Ok,
            ok: true,
            code: Code::Ok,
            side_effects: self.effects.clone(),
            artifact_refs: vec![diff],
            ..ToolResult::default()
        });
        self.verification = match self.verification {
            VerificationStatus::NotApplicable | VerificationStatus::Unverified => {
                VerificationStatus::Unverified
            }
            _ => VerificationStatus::Stale,
        };
        self.observe(&intent, Some(&started), Phase::Execute, Code::Ok);
    }

    /// A verification that failed, and its evidence.
    pub fn bash_call(&mut self) {
        let call = self.command(1);
        self.evidence(Some(call), EvidenceStatus::Failed, 1);
        self.verification = VerificationStatus::Failed;
    }

    /// A command from its intent to its observation.
    pub fn command(&mut self, exit_code: i32) -> ToolCallId {
        let intent = self.propose("bash", true);
        let permission = self.decide(Effect::Allow);
        let started = self.start(&intent, &permission);
        let sandbox = self.tell(SandboxApplied {
            profile_id: "default".into(),
            mechanism: "landlock".into(),
            status: SandboxStatus::Full,
            network: "off".into(),
            cwd: "/project".into(),
            env_keys: vec!["PATH".into()],
            ..SandboxApplied::default()
        });
        self.scope.process_id = Some(self.writer.mint());
        let process_id = self.scope.process_id.clone().unwrap();
        self.tell(ProcessStarted {
            process_id: process_id.clone(),
            command_summary: COMMAND.into(),
            argv0: "bash".into(),
            cwd: "/project".into(),
            sandbox_ref: sandbox.event_id.to_string(),
            ..ProcessStarted::default()
        });
        let output = self
            .writer
            .put_artifact(
                &self.scope,
                ArtifactKind::CommandOutput,
                "text/plain",
                b"1 failed\n",
                None,
            )
            .unwrap();
        self.tell(ProcessCompleted {
            process_id,
            exit_code: Some(exit_code),
            output_ref: Some(output.artifact_id.clone()),
            ..ProcessCompleted::default()
        });
        let (exit, code) = match exit_code {
            0 => (ToolExit::Ok, Code::Ok),
            _ => (ToolExit::Error, Code::ExitNonzero),
        };
        self.tell(ToolResult {
            invocation_id: started.invocation_id.clone(),
            exit,
            ok: code.is_ok(),
            code,
            artifact_refs: vec![output],
            data: ToolData {
                exit_code: Some(exit_code),
                ..ToolData::default()
            },
            ..ToolResult::default()
        });
        let call = self.scope.tool_call_id.clone().unwrap();
        self.observe(&intent, Some(&started), Phase::Execute, code);
        call
    }

    /// What a verification is said to have shown.
    pub fn evidence(&mut self, call: Option<ToolCallId>, status: EvidenceStatus, exit_code: i32) {
        self.scope.tool_call_id = call;
        self.tell(EvidenceChanged {
            evidence_id: self.writer.mint(),
            kind: EvidenceKind::Verification,
            status,
            command: Some(COMMAND.into()),
            exit_code: Some(exit_code),
            ..EvidenceChanged::default()
        });
        self.scope.tool_call_id = None;
    }

    pub fn end_turn(&mut self) {
        self.scope.step_id = None;
        self.tell(TurnCompleted {
            outcome: match (self.refused, self.verification) {
                (0, _) | (_, VerificationStatus::Passed) => TurnOutcome::Completed,
                _ => TurnOutcome::Degraded,
            },
            stop_reason: "end_turn".into(),
            final_text: Some(ANSWER.into()),
            verification: Verification {
                status: self.verification,
                ..Verification::default()
            },
            ..TurnCompleted::default()
        });
        self.scope.turn_id = None;
    }

    pub fn queue_input(&mut self, text: &str) -> TurnId {
        let turn_id: TurnId = self.writer.mint();
        let scope = Scope {
            turn_id: Some(turn_id.clone()),
            ..self.scope.clone()
        };
        let submitted = TurnSubmitted {
            text: Some(text.into()),
            status: Status::Queued,
            ..TurnSubmitted::default()
        };
        self.writer
            .append(&scope, submitted, Refs::default())
            .unwrap();
        self.tell(QueueChanged {
            op: QueueOperation::Added,
            queued_turn_id: Some(turn_id.clone()),
            order: vec![turn_id.clone()],
            ..QueueChanged::default()
        });
        turn_id
    }

    pub fn end_session(&self) {
        let scope = Scope::default();
        let ended = SessionUpdated {
            changed: SessionChanges {
                status: Some(Status::Ended),
                ..SessionChanges::default()
            },
            reason: "done".into(),
        };
        self.writer.append(&scope, ended, Refs::default()).unwrap();
    }
}

/// Two turns and an end.
pub fn whole_story(writer: &SessionWriter) {
    let mut teller = Teller::new(writer);
    teller.tell(ThreadStarted::default());
    teller.turn("fix the test");
    teller.turn("and again");
    teller.end_session();
}
