//! Hand-made sessions: the events a real one would have, without an engine. Used by the tests, the
//! benches and the example.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "shared by several programs, each of which uses a part; all values are written here"
)]

use std::sync::Arc;

use agent_protocol::id::{ActionId, ModelRequestId, ToolCallId, TurnId};
use agent_protocol::payload::conversation::*;
use agent_protocol::payload::model::*;
use agent_protocol::payload::permission::*;
use agent_protocol::payload::process::*;
use agent_protocol::payload::tool::*;
use agent_protocol::payload::{SideEffect, SideEffectKind, Usage};
use agent_protocol::status::{Mode, Status, VerificationStatus};
use agent_protocol::{ActionHappened, Code, Event, Payload, Phase, Refs, Scope, Timestamp};
use serde_json::{Value, json};

/// Builds events with contiguous sequences and a clock that stands still unless told.
pub struct Script {
    pub events: Vec<Arc<Event>>,
    millis: i64,
    turn: TurnId,
    turns: u32,
    calls: u32,
    requests: u32,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            events: Vec::new(),
            millis: 1_794_800_000_000,
            turn: "turn_1".parse().unwrap(),
            turns: 0,
            calls: 0,
            requests: 0,
        }
    }
}

pub const DIFF: &str = "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1,7 +1,7 @@\n /// Adds two numbers.\n pub fn add(left: i64, right: i64) -> i64 {\n-    left - right\n+    left + right\n }\n \n #[cfg(test)]\n mod tests {\n";

impl Script {
    pub fn wait(&mut self, millis: i64) -> &mut Self {
        self.millis += millis;
        self
    }

    pub fn push(&mut self, scope: Scope, payload: impl Into<Payload>) -> &mut Self {
        let sequence = self.events.len() as u64;
        self.events.push(Arc::new(Event {
            event_id: format!("ev_{sequence}").parse().unwrap(),
            timestamp: Timestamp::from_unix_millis(self.millis),
            sequence,
            schema_version: "1".into(),
            runtime_id: "rt_1".parse().unwrap(),
            session_id: "ses_1".parse().unwrap(),
            scope,
            payload: payload.into(),
            refs: Refs::default(),
            prev: String::new(),
        }));
        self.millis += 1;
        self
    }

    fn in_turn(&self) -> Scope {
        Scope {
            turn_id: Some(self.turn.clone()),
            ..Scope::default()
        }
    }

    fn in_call(&self, call: &ToolCallId) -> Scope {
        Scope {
            tool_call_id: Some(call.clone()),
            ..self.in_turn()
        }
    }

    pub fn session(&mut self) -> &mut Self {
        self.push(
            Scope::default(),
            SessionCreated {
                agent_version: "0.1.0".into(),
                mode: Some(Mode::Ask),
                ..SessionCreated::default()
            },
        )
    }

    pub fn user(&mut self, text: &str) -> &mut Self {
        self.turns += 1;
        self.turn = format!("turn_{}", self.turns).parse().unwrap();
        let scope = self.in_turn();
        self.push(
            scope.clone(),
            TurnSubmitted {
                text: Some(text.into()),
                status: Status::Accepted,
                ..TurnSubmitted::default()
            },
        );
        self.push(
            scope,
            TurnStarted {
                model: "scripted/demo".into(),
                mode: Mode::Ask,
                ..TurnStarted::default()
            },
        )
    }

    pub fn queued(&mut self, text: &str) -> &mut Self {
        let turn_id: TurnId = format!("turn_q{}", self.events.len()).parse().unwrap();
        let scope = Scope {
            turn_id: Some(turn_id.clone()),
            ..Scope::default()
        };
        self.push(
            scope.clone(),
            TurnSubmitted {
                text: Some(text.into()),
                status: Status::Queued,
                ..TurnSubmitted::default()
            },
        );
        self.push(
            scope,
            QueueChanged {
                op: QueueOperation::Added,
                queued_turn_id: Some(turn_id.clone()),
                order: vec![turn_id],
                policy: QueuePolicy::Queue,
            },
        )
    }

    pub fn request(&mut self) -> ModelRequestId {
        self.requests += 1;
        let id: ModelRequestId = format!("mrq_{}", self.requests).parse().unwrap();
        let scope = self.in_turn();
        self.push(
            scope.clone(),
            ContextResolved {
                included: vec![
                    ContextItem {
                        source: "system".into(),
                        tokens: 1800,
                        ..ContextItem::default()
                    },
                    ContextItem {
                        source: "instructions".into(),
                        reference: Some("AGENTS.md".into()),
                        tokens: 420,
                        ..ContextItem::default()
                    },
                ],
                budget: ContextBudget {
                    window_tokens: Some(128_000),
                    estimated_tokens: 4200,
                    ..ContextBudget::default()
                },
                ..ContextResolved::default()
            },
        );
        self.push(
            scope,
            ModelRequested {
                provider: "scripted".into(),
                model: "demo".into(),
                model_request_id: id.clone(),
                ..ModelRequested::default()
            },
        );
        id
    }

    pub fn think(&mut self, id: &ModelRequestId, text: &str) -> &mut Self {
        let scope = self.in_turn();
        self.push(
            scope,
            ReasoningDelta {
                model_request_id: id.clone(),
                bytes: text.len() as u64,
                text: Some(text.into()),
                ..ReasoningDelta::default()
            },
        )
    }

    pub fn delta(&mut self, id: &ModelRequestId, index: usize, text: &str) -> &mut Self {
        let scope = self.in_turn();
        self.push(
            scope,
            ModelDelta {
                model_request_id: id.clone(),
                index: index as u64,
                text: text.into(),
            },
        )
    }

    pub fn answered(&mut self, id: &ModelRequestId, text: &str) -> &mut Self {
        let scope = self.in_turn();
        self.push(
            scope.clone(),
            ModelCompleted {
                model_request_id: id.clone(),
                stop_reason: "end_turn".into(),
                text: Some(text.into()).filter(|text: &String| !text.is_empty()),
                usage: Usage {
                    input: Some(4200),
                    output: Some(310),
                    ..Usage::default()
                },
                ..ModelCompleted::default()
            },
        );
        self.push(
            scope,
            CostRecorded {
                model_request_id: id.clone(),
                amount: Some(0.012),
                currency: "USD".into(),
                session_total: Some(0.012 * f64::from(self.requests)),
                ..CostRecorded::default()
            },
        )
    }

    /// The model says `text` in one piece.
    pub fn says(&mut self, text: &str) -> &mut Self {
        let id = self.request();
        self.delta(&id, 0, text);
        self.answered(&id, text)
    }

    pub fn intent(&mut self, tool: &str, input: Value) -> ToolCallId {
        self.calls += 1;
        let call: ToolCallId = format!("call_{}", self.calls).parse().unwrap();
        let scope = self.in_call(&call);
        self.push(
            scope.clone(),
            ToolIntent {
                tool_name: tool.into(),
                raw_input: Some(input.clone()),
                ..ToolIntent::default()
            },
        );
        self.push(
            scope,
            ToolArgs {
                safe_args: Some(input),
                ..ToolArgs::default()
            },
        );
        call
    }

    pub fn evaluated(
        &mut self,
        call: &ToolCallId,
        decision: Effect,
        rule: Option<&str>,
    ) -> &mut Self {
        let scope = self.in_call(call);
        let matched = rule.map(|rule| MatchedRule {
            rule: rule.into(),
            effect: decision,
            origin: RuleOrigin {
                layer: Layer::Project,
                file: Some(".agent/config.toml".into()),
                line: Some(4),
            },
            on: None,
        });
        self.push(
            scope,
            PermissionEvaluated {
                decision,
                decision_source: match (rule, decision) {
                    (Some(_), _) => DecisionSource::Rule,
                    (None, Effect::Ask) => DecisionSource::Default,
                    (None, _) => DecisionSource::Mode,
                },
                reason: match decision {
                    Effect::Ask => "no rule allows it and it is not known to be read-only".into(),
                    _ => "reading inside the project".into(),
                },
                matched: matched.into_iter().collect(),
                mode: Mode::Ask,
                suggested_rule: (decision == Effect::Ask).then(|| "bash(cargo test *)".into()),
                ..PermissionEvaluated::default()
            },
        )
    }

    /// No rule decided, and the gate took the call for `class`.
    pub fn judged(&mut self, call: &ToolCallId, to: Effect, class: ActionClass) -> &mut Self {
        self.evaluated(call, to, None);
        let event = Arc::make_mut(self.events.last_mut().unwrap());
        if let Payload::PermissionEvaluated(evaluated) = &mut event.payload {
            evaluated.action_class = class;
        }
        self
    }

    pub fn asks(&mut self, call: &ToolCallId, asked: ActionRequired) -> ActionId {
        let action: ActionId = format!("act_{}", self.events.len()).parse().unwrap();
        let scope = Scope {
            action_id: Some(action.clone()),
            ..self.in_call(call)
        };
        self.push(scope, asked);
        action
    }

    pub fn resolved(
        &mut self,
        call: &ToolCallId,
        action: &ActionId,
        decision: ActionDecision,
        note: Option<&str>,
    ) -> &mut Self {
        let scope = Scope {
            action_id: Some(action.clone()),
            ..self.in_call(call)
        };
        self.push(
            scope,
            ActionResolved {
                decision,
                decided_by: DecidedBy::User,
                payload: note.map(|note| ActionAnswer {
                    note: Some(note.into()),
                    ..ActionAnswer::default()
                }),
                latency_ms: 2400,
                ..ActionResolved::default()
            },
        )
    }

    pub fn started(&mut self, call: &ToolCallId, tool: &str, sandboxed: bool) -> &mut Self {
        let scope = self.in_call(call);
        self.push(
            scope.clone(),
            ToolStarted {
                tool_name: tool.into(),
                executor: format!("local:{tool}@1"),
                sandboxed,
                ..ToolStarted::default()
            },
        );
        if sandboxed {
            self.push(
                scope,
                SandboxApplied {
                    mechanism: "namespaces+landlock+seccomp".into(),
                    status: SandboxStatus::Full,
                    network: "off".into(),
                    write_roots: vec!["/project".into()],
                    ..SandboxApplied::default()
                },
            );
        }
        self
    }

    pub fn output(&mut self, call: &ToolCallId, text: &str) -> &mut Self {
        let scope = self.in_call(call);
        self.push(
            scope,
            ProcessOutput {
                bytes: text.len() as u64,
                preview: Some(text.into()),
                ..ProcessOutput::default()
            },
        )
    }

    pub fn observed(
        &mut self,
        call: &ToolCallId,
        tool: &str,
        code: Code,
        summary: &str,
        preview: &str,
    ) -> &mut Self {
        self.observation(
            call,
            ToolObservation {
                tool_name: tool.into(),
                ok: code.is_ok(),
                phase: code.facts().phase,
                code,
                title: tool.into(),
                summary: summary.into(),
                preview: Some(preview.into()),
                action_happened: ActionHappened::Yes,
                facts: ObservationFacts {
                    duration_ms: Some(1240),
                    exit_code: (tool == "bash").then_some(i32::from(code == Code::ExitNonzero)),
                    ..ObservationFacts::default()
                },
                ..ToolObservation::default()
            },
        )
    }

    pub fn observation(&mut self, call: &ToolCallId, observation: ToolObservation) -> &mut Self {
        let scope = self.in_call(call);
        self.push(scope, observation)
    }

    pub fn edited(&mut self, call: &ToolCallId, diff: &str) -> &mut Self {
        self.observation(
            call,
            ToolObservation {
                tool_name: "edit".into(),
                ok: true,
                phase: Phase::Execute,
                code: Code::Ok,
                title: "edit".into(),
                summary: "1 replacement in src/lib.rs".into(),
                content: vec![ContentBlock {
                    format: ContentFormat::Diff,
                    text: Some(diff.into()),
                    ..ContentBlock::default()
                }],
                side_effects: vec![changed("src/lib.rs")],
                facts: ObservationFacts {
                    duration_ms: Some(3),
                    data: ToolData {
                        lines_added: Some(1),
                        lines_removed: Some(1),
                        ..ToolData::default()
                    },
                    ..ObservationFacts::default()
                },
                ..ToolObservation::default()
            },
        )
    }

    pub fn completed(&mut self, status: VerificationStatus) -> &mut Self {
        let scope = self.in_turn();
        self.push(
            scope,
            TurnCompleted {
                outcome: TurnOutcome::Completed,
                stop_reason: "end_turn".into(),
                verification: Verification {
                    status,
                    command: (status != VerificationStatus::Unverified)
                        .then(|| "cargo test".into()),
                    ..Verification::default()
                },
                files_changed: vec![changed("src/lib.rs")],
                usage: Usage {
                    input: Some(12_400),
                    output: Some(820),
                    ..Usage::default()
                },
                cost: Some(0.036),
                duration_ms: Some(24_500),
                ..TurnCompleted::default()
            },
        )
    }

    pub fn failed(&mut self, status: Status, message: &str) -> &mut Self {
        let scope = self.in_turn();
        self.push(
            scope,
            TurnFailed {
                status,
                category: "model".into(),
                code: "server_error".into(),
                message: message.into(),
                ..TurnFailed::default()
            },
        )
    }
}

pub fn changed(path: &str) -> SideEffect {
    SideEffect {
        kind: SideEffectKind::Modified,
        path: path.into(),
        ..SideEffect::default()
    }
}

/// The question before `cargo test`.
pub fn ask_command(command: &str) -> ActionRequired {
    ActionRequired {
        action_type: ActionType::ToolPermission,
        title: "bash cargo test".into(),
        prompt: "The model wants to run a command.".into(),
        risk_facts: vec![
            "runs build scripts, macros and tests of the project and its dependencies".into(),
            "runs in the sandbox: it can write only to the project".into(),
            "has no network".into(),
            "times out after 120 s".into(),
            "shows at most 30000 characters of its output to the model".into(),
        ],
        tool_name: Some("bash".into()),
        safe_args: Some(json!({"command": command, "description": "run the tests"})),
        suggested_rule: Some("bash(cargo test *)".into()),
        cwd: Some("crates/sum".into()),
        decisions: vec![ActionDecision::AllowOnce, ActionDecision::Deny],
        ..ActionRequired::default()
    }
}

/// The question before an edit.
pub fn ask_edit(diff: Option<agent_protocol::id::ArtifactId>) -> ActionRequired {
    ActionRequired {
        action_type: ActionType::ToolPermission,
        title: "edit src/lib.rs".into(),
        risk_facts: vec![
            "changes `src/lib.rs`".into(),
            "keeps a copy of the file, so that it can be undone".into(),
        ],
        tool_name: Some("edit".into()),
        safe_args: Some(json!({
            "path": "src/lib.rs", "old_string": "    left - right", "new_string": "    left + right"
        })),
        diff_ref: diff,
        suggested_rule: Some("edit(src/**)".into()),
        decisions: vec![ActionDecision::AllowOnce, ActionDecision::Deny],
        ..ActionRequired::default()
    }
}

pub const ANSWER: &str = "I found it: `add` subtracts.\n\n## Plan\n\n- change the operator in `src/lib.rs`\n- run the tests\n\n```rust\npub fn add(left: i64, right: i64) -> i64 {\n    left + right\n}\n```\n\n| file | change |\n|------|--------|\n| src/lib.rs | `-` becomes `+` |\n";

/// A whole small session, as the demonstration has it.
pub fn demo() -> Script {
    let mut script = Script::default();
    script
        .session()
        .user("The tests fail. Find out why and fix it.");
    let id = script.request();
    script.think(
        &id,
        "The user wants the failing test fixed. First look at the code.\nThen run the tests.",
    );
    script.answered(&id, "I will look at the code first.");
    let read = script.intent("read", json!({"path": "src/lib.rs"}));
    script
        .evaluated(&read, Effect::Allow, None)
        .started(&read, "read", false);
    script.observed(
        &read,
        "read",
        Code::Ok,
        "14 lines",
        "1 /// Adds two numbers.\n2 pub fn add",
    );
    script.says(ANSWER);
    let edit = script.intent(
        "edit",
        json!({"path": "src/lib.rs", "old_string": "left - right", "new_string": "left + right"}),
    );
    script.evaluated(&edit, Effect::Ask, None);
    let action = script.asks(&edit, ask_edit(None));
    script.resolved(&edit, &action, ActionDecision::AllowOnce, None);
    script.started(&edit, "edit", false).edited(&edit, DIFF);
    let test = script.intent("bash", json!({"command": "cargo test"}));
    script.evaluated(&test, Effect::Allow, Some("bash(cargo test *)"));
    script.started(&test, "bash", true);
    script.output(
        &test,
        "running 3 tests\ntest a ... ok\ntest b ... ok\ntest c ... ok\n",
    );
    script.observed(
        &test,
        "bash",
        Code::Ok,
        "3 passed",
        "running 3 tests\ntest result: ok. 3 passed",
    );
    script.says("Fixed: the tests pass now.");
    script.completed(VerificationStatus::Passed);
    script
}
