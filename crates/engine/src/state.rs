//! What the engine knows, all of it folded from events: the conversation, the facts of the session
//! and of the running turn. Live and after a restart it is the same fold over the same lines.

use std::collections::{BTreeMap, HashMap};

use agent_protocol::id::{ActionId, ArtifactId, EvidenceId, ToolCallId, TurnId};
use agent_protocol::payload::conversation::EvidenceKind;
use agent_protocol::payload::model::FileRef;
use agent_protocol::payload::tool::ToolResult;
use agent_protocol::payload::{SideEffect, SideEffectKind, Usage};
use agent_protocol::{Code, Event, Payload, Phase};
use agent_tool_runtime::shell::commands_behind_exit;

use crate::conversation::{ArtifactText, Conversation};
use crate::fact_sheet::FactSheet;
use crate::verification::claims::Shown;
use crate::verification::{Runner, VerificationState, recognise};

/// The fold of a session.
#[derive(Default)]
pub struct SessionState {
    pub conversation: Conversation,
    pub facts: FactSheet,
    /// Model requests made in this session, over all their attempts.
    pub requests: u64,
    /// What the session cost so far; `None` as soon as one request's cost is unknown.
    pub cost: Cost,
    pub catalog: Option<ArtifactId>,
    pub preamble: Option<ArtifactId>,
    pub turn: TurnFacts,
    /// Questions nobody has answered, with the call each belongs to.
    pub open_actions: BTreeMap<ActionId, Option<ToolCallId>>,
    verification_patterns: Vec<Vec<String>>,
    commands: HashMap<ToolCallId, String>,
    new_files: Vec<FileRef>,
}

/// Money, honestly: an unknown part makes the whole unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    known: f64,
    unknown: bool,
}

impl Cost {
    fn add(&mut self, amount: Option<f64>) {
        match amount {
            Some(amount) => self.known += amount,
            None => self.unknown = true,
        }
    }

    /// The whole sum, if all of it is known.
    #[must_use]
    pub fn total(self) -> Option<f64> {
        (!self.unknown).then_some(self.known)
    }

    /// What is known to have been spent.
    #[must_use]
    pub fn known(self) -> f64 {
        self.known
    }
}

/// The fold of the running (or last) turn.
#[derive(Default)]
pub struct TurnFacts {
    pub turn_id: Option<TurnId>,
    pub verification: VerificationState,
    pub shown: Vec<Shown>,
    pub usage: Usage,
    pub cost: Cost,
    /// Calls that were refused for permission.
    pub refused: u64,
    pub commands: Vec<CommandRun>,
    /// A command was not run because no sandbox could be made.
    pub sandbox_missing: bool,
    files: BTreeMap<String, SideEffect>,
    /// Verifications that ran and are not yet recorded as evidence.
    pending: Vec<VerificationRun>,
}

/// A command and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRun {
    pub command: String,
    pub exit_code: Option<i32>,
}

/// A verification that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationRun {
    pub tool_call_id: ToolCallId,
    pub command: String,
    pub runner: Runner,
    pub exit_code: i32,
}

impl SessionState {
    /// `verification_patterns` are the configured verification commands, word by word.
    #[must_use]
    pub fn new(verification_patterns: Vec<Vec<String>>) -> Self {
        Self {
            verification_patterns,
            ..Self::default()
        }
    }

    /// Takes in one event.
    pub fn apply(&mut self, event: &Event, artifact: ArtifactText<'_>) {
        self.conversation.apply(event, artifact);
        self.facts.apply(event);
        match &event.payload {
            Payload::TurnStarted(_) => {
                self.turn = TurnFacts {
                    turn_id: event.scope.turn_id.clone(),
                    ..TurnFacts::default()
                };
            }
            Payload::ModelRequested(requested) => {
                self.requests = self.requests.max(requested.request_no);
            }
            Payload::ModelCompleted(completed) => self.turn.add_usage(&completed.usage),
            Payload::CostRecorded(cost) => {
                self.cost.add(cost.amount);
                self.turn.cost.add(cost.amount);
            }
            Payload::ToolCatalogResolved(catalog) => {
                self.catalog = Some(catalog.catalog_ref.clone())
            }
            Payload::ContextResolved(_) => {
                let preamble = event
                    .refs
                    .0
                    .get("preamble")
                    .and_then(|_| event.refs.artifact_ids().next());
                self.preamble = preamble.or_else(|| self.preamble.take());
            }
            Payload::ToolArgs(args) => {
                let command = args
                    .safe_args
                    .as_ref()
                    .and_then(|args| args.get("command")?.as_str());
                if let (Some(call), Some(command)) = (&event.scope.tool_call_id, command) {
                    self.commands.insert(call.clone(), command.to_owned());
                }
            }
            Payload::ToolResult(result) => self.result(event, result),
            Payload::ToolFailed(failed) => {
                if failed.phase == Phase::Permission {
                    self.turn.refused += 1;
                }
                self.turn.sandbox_missing |= failed.code == Code::SandboxUnavailable;
                failed
                    .side_effects
                    .iter()
                    .for_each(|effect| self.turn.changed(effect));
                let command = event
                    .scope
                    .tool_call_id
                    .as_ref()
                    .and_then(|call| self.commands.remove(call));
                if let Some(command) = command.filter(|_| failed.invocation_id.is_some()) {
                    self.turn.commands.push(CommandRun {
                        command,
                        exit_code: None,
                    });
                }
            }
            Payload::EvidenceChanged(evidence) if evidence.kind == EvidenceKind::Verification => {
                self.turn.verified(&evidence.evidence_id);
            }
            Payload::ActionRequired(_) => {
                if let Some(action) = &event.scope.action_id {
                    self.open_actions
                        .insert(action.clone(), event.scope.tool_call_id.clone());
                }
            }
            Payload::ActionResolved(_) => {
                if let Some(action) = &event.scope.action_id {
                    self.open_actions.remove(action);
                }
            }
            _ => {}
        }
    }

    /// Files that were read or written since the last call, as they were then.
    pub(crate) fn take_new_files(&mut self) -> Vec<FileRef> {
        std::mem::take(&mut self.new_files)
    }

    fn result(&mut self, event: &Event, result: &ToolResult) {
        if let Some(baseline) = &result.data.baseline {
            self.new_files.push(FileRef {
                path: baseline.path.clone(),
                sha256: baseline.sha256.clone(),
                range: baseline.range.clone(),
            });
        }
        result
            .side_effects
            .iter()
            .for_each(|effect| self.turn.changed(effect));
        let Some(call) = &event.scope.tool_call_id else {
            return;
        };
        let Some(command) = self.commands.remove(call) else {
            return;
        };
        let exit_code = result.data.exit_code;
        self.turn.commands.push(CommandRun {
            command: command.clone(),
            exit_code,
        });
        let Some(exit_code) = exit_code else { return };
        let runner = commands_behind_exit(&command)
            .iter()
            .find_map(|words| recognise(words, &self.verification_patterns));
        if let Some(runner) = runner {
            self.turn.pending.push(VerificationRun {
                tool_call_id: call.clone(),
                command,
                runner,
                exit_code,
            });
        }
    }
}

impl TurnFacts {
    /// Verifications that ended and wait to be recorded as evidence, oldest first.
    #[must_use]
    pub fn pending_verifications(&self) -> Vec<VerificationRun> {
        self.pending.clone()
    }

    /// Files that differ from what they were when the turn began, by path.
    #[must_use]
    pub fn files_changed(&self) -> Vec<SideEffect> {
        let differs = |effect: &&SideEffect| {
            effect.sha256_before != effect.sha256_after || effect.mode_before != effect.mode_after
        };
        self.files.values().filter(differs).cloned().collect()
    }

    fn changed(&mut self, effect: &SideEffect) {
        self.verification.files_changed();
        self.shown.iter_mut().for_each(|run| run.stale = true);
        match self.files.get_mut(&effect.path) {
            None => {
                self.files.insert(effect.path.clone(), effect.clone());
            }
            // From the first before to the last after.
            Some(known) => {
                known.kind = match (known.sha256_before.is_some(), effect.sha256_after.is_some()) {
                    (false, _) => SideEffectKind::Created,
                    (true, false) => SideEffectKind::Deleted,
                    (true, true) => SideEffectKind::Modified,
                };
                known.sha256_after.clone_from(&effect.sha256_after);
                known.after_ref.clone_from(&effect.after_ref);
                known.bytes_after = effect.bytes_after;
                known.mode_after = effect.mode_after;
            }
        }
    }

    fn verified(&mut self, evidence: &EvidenceId) {
        if self.pending.is_empty() {
            return;
        }
        let run = self.pending.remove(0);
        self.verification
            .verified(evidence.clone(), &run.command, run.exit_code);
        self.shown.push(Shown {
            command: run.command,
            runner: run.runner,
            exit_code: run.exit_code,
            stale: false,
        });
    }

    fn add_usage(&mut self, usage: &Usage) {
        let sum = |total: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *total = Some(total.unwrap_or(0) + more);
            }
        };
        sum(&mut self.usage.input, usage.input);
        sum(&mut self.usage.output, usage.output);
        sum(&mut self.usage.total, usage.total);
        sum(&mut self.usage.cached_input, usage.cached_input);
        sum(&mut self.usage.cache_write, usage.cache_write);
        sum(&mut self.usage.reasoning, usage.reasoning);
        if usage.model.is_some() {
            self.usage.model.clone_from(&usage.model);
        }
    }
}
