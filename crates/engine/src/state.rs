//! What the engine knows, all of it folded from events: the conversation, the facts of the session
//! and of the running turn. Live and after a restart it is the same fold over the same lines.

use std::collections::{BTreeMap, HashMap, HashSet};

use agent_history::fold::{ChangedFiles, is_work};
use agent_protocol::id::{
    ActionId, ArtifactId, ContextId, EvidenceId, InvocationId, ToolCallId, TurnId,
};
use agent_protocol::payload::conversation::{EvidenceChanged, EvidenceKind, EvidenceStatus};
use agent_protocol::payload::model::CompactionTrigger;
use agent_protocol::payload::permission::{DecisionSource, Effect};
use agent_protocol::payload::process::ProcessCompleted;
use agent_protocol::payload::tool::ToolResult;
use agent_protocol::payload::{SideEffect, Usage};
use agent_protocol::{Code, Event, Payload, Phase};
use agent_tool_runtime::OpenCalls;

use crate::conversation::{ArtifactText, Conversation};
use crate::fact_sheet::FactSheet;
use crate::verification::failures::Failures;
use crate::verification::{
    CheckRun, CheckStatus, FoundCheck, Shown, Track, VerificationState, checks_in,
};

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
    /// Calls that have not started.
    pub open_calls: OpenCalls,
    /// What ran and how it ended, over all turns: what a final text is compared with.
    pub track: Track,
    /// Whether files were taken back after the last verification.
    pub is_undone: bool,
    /// Sessions this one goes on from, the oldest first.
    pub parents: Vec<String>,
    /// The id that a compaction promised for the next model input.
    pub next_context: Option<ContextId>,
    /// A compaction that has begun and not ended.
    pub compacting: Option<CompactionTrigger>,
    verification_patterns: Vec<Vec<String>>,
    commands: HashMap<ToolCallId, String>,
    /// Where commands run and what they printed.
    processes: HashMap<ToolCallId, Process>,
    /// Commands that go on in the background.
    background: HashMap<ToolCallId, Background>,
}

/// What the events of a process add to its call.
#[derive(Default)]
struct Process {
    cwd: Option<String>,
    output: Option<ArtifactId>,
}

/// A command in the background, with how many changes there were when it began.
struct Background {
    command: String,
    cwd: Option<String>,
    turn_id: Option<TurnId>,
    changes: u64,
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
    pub usage: Usage,
    pub cost: Cost,
    /// Model requests, each counted once over all its attempts.
    pub requests: u64,
    /// Calls that were asked for.
    pub calls: u64,
    /// Calls that were refused for permission.
    pub refused: u64,
    pub commands: Vec<CommandRun>,
    /// A command was not run because no sandbox could be made.
    pub sandbox_missing: bool,
    files: ChangedFiles,
    /// Calls that changed project files, each with the number of changes when it ended.
    changed_by: Vec<(ToolCallId, u64)>,
    /// Calls that were not known only to read.
    writers: HashSet<InvocationId>,
    /// Verifications that ran and are not yet recorded as evidence.
    pending: Vec<VerificationRun>,
}

/// How a command ended, and what led to it.
struct EndedCommand<'a> {
    command: String,
    cwd: Option<String>,
    exit_code: i32,
    pipe_status: Option<&'a [i32]>,
    output: Option<ArtifactId>,
    evidence_ids: Vec<EvidenceId>,
    changes: u64,
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
    /// The name its record will have, where the call's result says so.
    pub evidence_id: Option<EvidenceId>,
    pub command: String,
    pub found: FoundCheck,
    /// All that the command printed.
    pub output: Option<ArtifactId>,
    /// How many changes of project files there were when it ended, its own included.
    pub changes: u64,
}

impl VerificationRun {
    /// The record of it. `covers_edits` says that it ran after the last change.
    #[must_use]
    pub fn record(
        &self,
        evidence_id: EvidenceId,
        covers_edits: bool,
        failed: Failures,
    ) -> EvidenceChanged {
        EvidenceChanged {
            evidence_id,
            kind: EvidenceKind::Verification,
            status: match self.found.status {
                CheckStatus::Passed => EvidenceStatus::Passed,
                CheckStatus::Failed => EvidenceStatus::Failed,
                CheckStatus::NotJudged => EvidenceStatus::CouldNotBeJudged,
            },
            command: Some(self.command.clone()),
            cwd: self.found.cwd.clone(),
            exit_code: self.found.exit_code,
            check: Some(self.found.check.clone()),
            reason: self.found.reason.map(str::to_owned),
            failures: (!failed.found.is_empty()).then_some(failed.found),
            failures_left_out: (failed.left_out > 0).then_some(failed.left_out),
            covers_edits: Some(covers_edits),
            artifacts: Vec::new(),
        }
    }
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

    /// Whether events of a class can change anything here, or in what the tools and the authority
    /// remember. The others are much of a long log, and need not be parsed to go on with it.
    #[must_use]
    pub fn depends_on(type_name: &str) -> bool {
        !matches!(
            type_name,
            "artifact.changed"
                | "model.delta"
                | "output.redacted"
                | "output.spilled"
                | "process.output"
                | "reasoning.delta"
                | "reasoning.summary"
                | "routing.candidates.resolved"
                | "routing.decided"
                | "routing.single_candidate"
                | "run.status"
                | "sandbox.applied"
                | "thread.updated"
                | "tool.progress"
        )
    }

    /// Takes in one event.
    pub fn apply(&mut self, event: &Event, artifact: ArtifactText<'_>) {
        self.conversation.apply(event, artifact);
        self.facts.apply(event, artifact);
        self.open_calls.apply(event);
        match &event.payload {
            // A fork inherits what was said and done, not what was open, allowed or paid.
            Payload::SessionCreated(created) if created.parent.is_some() => {
                let parent = created.parent.iter();
                self.parents
                    .extend(parent.map(|parent| parent.session_id.to_string()));
                self.compacting = None;
                self.turn = TurnFacts::default();
                self.cost = Cost::default();
                self.open_actions.clear();
                self.open_calls = OpenCalls::default();
                self.commands.clear();
                self.processes.clear();
                self.background.clear();
            }
            Payload::TurnStarted(_) => {
                self.turn = TurnFacts {
                    turn_id: event.scope.turn_id.clone(),
                    verification: self.turn.verification.next_turn(),
                    ..TurnFacts::default()
                };
            }
            Payload::ModelRequested(requested) => {
                self.requests = self.requests.max(requested.request_no);
                self.turn.requests += u64::from(requested.attempt == 1);
            }
            Payload::ModelCompleted(completed) => {
                self.turn.add_usage(&completed.usage);
                // A summary is no answer of the turn's.
                if self.compacting.is_none() {
                    self.turn.usage.model.clone_from(&completed.usage.model);
                }
            }
            Payload::ModelFailed(failed) => {
                if let Some(usage) = &failed.usage {
                    self.turn.add_usage(usage);
                }
            }
            Payload::CostRecorded(cost) => {
                self.cost.add(cost.amount);
                self.turn.cost.add(cost.amount);
            }
            Payload::ToolCatalogResolved(catalog) => {
                self.catalog = Some(catalog.catalog_ref.clone())
            }
            Payload::ContextCompactionStarted(started) => self.compacting = Some(started.trigger),
            Payload::ContextCompactionFailed(_) => self.compacting = None,
            Payload::ContextCompactionCompleted(completed) => {
                self.compacting = None;
                let next = completed.continuation_ref.as_ref();
                self.next_context = next.and_then(|next| next.parse().ok());
            }
            Payload::ContextResolved(resolved) => {
                let kept = self.next_context.take();
                self.next_context = kept.filter(|next| *next != resolved.context_id);
                let preamble = event
                    .refs
                    .0
                    .get("preamble")
                    .and_then(|_| event.refs.artifact_ids().next());
                self.preamble = preamble.or_else(|| self.preamble.take());
            }
            Payload::ToolIntent(_) => self.turn.calls += 1,
            Payload::ToolArgs(args) => {
                let command = args
                    .safe_args
                    .as_ref()
                    .and_then(|args| args.get("command")?.as_str());
                if let (Some(call), Some(command)) = (&event.scope.tool_call_id, command) {
                    self.commands.insert(call.clone(), command.to_owned());
                }
            }
            Payload::PermissionEvaluated(evaluated) => {
                self.turn.sandbox_missing |= evaluated.decision == Effect::Deny
                    && evaluated.decision_source == DecisionSource::Sandbox;
            }
            Payload::ToolStarted(started) if !started.flags.is_read_only => {
                self.turn.writers.insert(started.invocation_id.clone());
            }
            Payload::ToolResult(result) => self.result(event, result),
            Payload::ProcessStarted(started) => {
                if let Some(call) = &event.scope.tool_call_id {
                    let process = self.processes.entry(call.clone()).or_default();
                    process.cwd = Some(started.cwd.clone());
                }
            }
            // What a command in the background did is known when it has ended.
            Payload::ProcessCompleted(ended) => {
                let own = self.changed(event, &ended.side_effects);
                let Some(call) = &event.scope.tool_call_id else {
                    return;
                };
                match self.background.remove(call) {
                    Some(begun) => self.background_ended(call, begun, ended, own),
                    None => {
                        let process = self.processes.entry(call.clone()).or_default();
                        process.output.clone_from(&ended.output_ref);
                    }
                }
            }
            Payload::ProcessTerminated(ended) => {
                self.changed(event, &ended.side_effects);
                if let Some(call) = &event.scope.tool_call_id {
                    self.background.remove(call);
                    self.processes.remove(call);
                }
            }
            Payload::ToolFailed(failed) => {
                if failed.phase == Phase::Permission {
                    self.turn.refused += 1;
                }
                self.turn.sandbox_missing |= failed.code == Code::SandboxUnavailable;
                self.changed(event, &failed.side_effects);
                let call = event.scope.tool_call_id.as_ref();
                call.and_then(|call| self.processes.remove(call));
                let command = call.and_then(|call| self.commands.remove(call));
                if let Some(command) = command.filter(|_| failed.invocation_id.is_some()) {
                    self.turn.commands.push(CommandRun {
                        command,
                        exit_code: None,
                    });
                }
            }
            // What was taken back is not the turn's work, but what ran before ran on other files.
            Payload::HistoryRollbackCompleted(rollback) => {
                let work = rollback.files_restored.iter().filter(|file| is_work(file));
                let count = work.count();
                (0..count).for_each(|_| self.turn.verification.file_changed());
                if count > 0 {
                    self.track.files_changed();
                    self.is_undone = self.track.last(|_| true).is_some();
                }
            }
            Payload::EvidenceChanged(evidence) if evidence.kind == EvidenceKind::Verification => {
                if let Some(shown) = self.turn.verified(evidence) {
                    self.track.verified(shown);
                    self.is_undone = false;
                }
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

    fn result(&mut self, event: &Event, result: &ToolResult) {
        self.changed(event, &result.side_effects);
        let Some(call) = &event.scope.tool_call_id else {
            return;
        };
        let Some(command) = self.commands.remove(call) else {
            return;
        };
        let process = self.processes.remove(call).unwrap_or_default();
        let exit_code = result.data.exit_code;
        self.turn.commands.push(CommandRun {
            command: command.clone(),
            exit_code,
        });
        match exit_code {
            Some(exit_code) => {
                let ids = result.evidence_refs.iter();
                let ended = EndedCommand {
                    command,
                    cwd: process.cwd,
                    exit_code,
                    pipe_status: result.data.pipe_status.as_deref(),
                    output: process.output,
                    evidence_ids: ids.filter_map(|id| id.parse().ok()).collect(),
                    changes: self.turn.verification.changes(),
                };
                self.ended(call, ended);
            }
            None if result.data.background == Some(true) => {
                let begun = Background {
                    command,
                    cwd: process.cwd,
                    turn_id: self.turn.turn_id.clone(),
                    changes: self.turn.verification.changes(),
                };
                self.background.insert(call.clone(), begun);
            }
            None => {}
        }
    }

    /// Takes changes of files in; gives back how many of them the work is about.
    fn changed(&mut self, event: &Event, effects: &[SideEffect]) -> u64 {
        let before = self.turn.verification.changes();
        for effect in effects {
            self.turn.changed(effect);
        }
        let after = self.turn.verification.changes();
        if after > before {
            self.track.files_changed();
            if let Some(call) = &event.scope.tool_call_id {
                self.turn.changed_by.push((call.clone(), after));
            }
        }
        after - before
    }

    /// A command ended; the checks in it wait to be recorded.
    fn ended(&mut self, call: &ToolCallId, ended: EndedCommand<'_>) {
        self.track.ran(&ended.command, ended.exit_code);
        let found = checks_in(
            &ended.command,
            ended.exit_code,
            ended.pipe_status,
            ended.cwd.as_deref(),
            &self.verification_patterns,
        );
        let mut ids = ended.evidence_ids.into_iter();
        for found in found {
            self.turn.pending.push(VerificationRun {
                tool_call_id: call.clone(),
                evidence_id: ids.next(),
                command: ended.command.clone(),
                found,
                output: ended.output.clone(),
                changes: ended.changes,
            });
        }
    }

    /// A command in the background speaks for the files as they were when it began.
    fn background_ended(
        &mut self,
        call: &ToolCallId,
        begun: Background,
        ended: &ProcessCompleted,
        own: u64,
    ) {
        let Some(exit_code) = ended.exit_code else {
            return;
        };
        if begun.turn_id == self.turn.turn_id {
            let ended = EndedCommand {
                command: begun.command,
                cwd: begun.cwd,
                exit_code,
                pipe_status: ended.pipe_status.as_deref(),
                output: ended.output_ref.clone(),
                evidence_ids: Vec::new(),
                changes: begun.changes + own,
            };
            self.ended(call, ended);
        } else {
            // What changed since is not known here any more, so that it proves nothing.
            self.track.ran(&begun.command, exit_code);
        }
    }
}

impl TurnFacts {
    /// Verifications that ended and wait to be recorded as evidence, oldest first.
    #[must_use]
    pub fn pending_verifications(&self) -> Vec<VerificationRun> {
        self.pending.clone()
    }

    /// Whether anything came of the turn that an answer without words could leave unsaid: a change,
    /// a command, or a refusal, which has an ending of its own. Looking around is nothing.
    #[must_use]
    pub fn did_something(&self) -> bool {
        !self.changed_by.is_empty()
            || !self.commands.is_empty()
            || self.refused > 0
            || self.sandbox_missing
    }

    /// Files that differ from what they were when the turn began, by path.
    #[must_use]
    pub fn files_changed(&self) -> Vec<SideEffect> {
        self.files.list()
    }

    fn changed(&mut self, effect: &SideEffect) {
        if self.files.take(effect) && effect.ignored != Some(true) {
            self.verification.file_changed();
        }
    }

    /// The calls whose changes a run saw that ended after `changes` of them, the newest last.
    #[must_use]
    pub fn changed_by(&self, changes: u64) -> Vec<&ToolCallId> {
        let seen = self.changed_by.iter().filter(|(_, at)| *at <= changes);
        seen.map(|(call, _)| call).collect()
    }

    /// The oldest verification that waited is recorded now.
    fn verified(&mut self, evidence: &EvidenceChanged) -> Option<Shown> {
        if self.pending.is_empty() {
            return None;
        }
        let pending = self.pending.remove(0);
        // As it is in the log, so that everyone who reads the log comes to the same.
        let run = CheckRun::of(evidence, pending.changes);
        let shown = Shown {
            evidence_id: Some(evidence.evidence_id.clone()),
            command: run.command.clone(),
            check: run.check.clone().unwrap_or_default(),
            cwd: run.cwd.clone(),
            runner: pending.found.runner,
            status: run.status,
            reason: run.reason.clone(),
            stale: self.verification.changes() > run.changes,
        };
        self.verification
            .verified(evidence.evidence_id.clone(), run);
        Some(shown)
    }

    /// True if a call with this invocation could change something.
    pub(crate) fn may_change(&self, invocation: &InvocationId) -> bool {
        self.writers.contains(invocation)
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
    }
}
