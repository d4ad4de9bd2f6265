//! State of one thread: its conversation, its fact sheet and the facts of its running turn.

use std::collections::BTreeMap;

use agent_history::fold::{ChildThreads, Owner, is_work};
use agent_protocol::id::{ArtifactId, ContextId, EvidenceId, ThreadId, ToolCallId, TurnId};
use agent_protocol::payload::SideEffect;
use agent_protocol::payload::conversation::EvidenceKind;
use agent_protocol::payload::model::CompactionTrigger;
use agent_protocol::payload::permission::{DecisionSource, Effect};
use agent_protocol::payload::process::ProcessCompleted;
use agent_protocol::payload::tool::ToolResult;
use agent_protocol::{Code, Event, Payload, Phase};

use super::turn::{CommandRun, TurnFacts, VerificationRun};
use crate::conversation::{ArtifactText, Conversation};
use crate::fact_sheet::FactSheet;
use crate::verification::{Track, checks_in};

/// Fold of the events of one thread. Feed it every event of the session; it passes over those of
/// other threads.
#[derive(Debug, Default)]
pub struct ThreadState {
    /// The thread; without an id it is the main thread of the session.
    thread_id: Option<ThreadId>,
    children: ChildThreads,
    pub conversation: Conversation,
    pub facts: FactSheet,
    pub turn: TurnFacts,
    /// Commands and verifications of all turns, which a final text is compared with.
    pub track: Track,
    /// True if files were restored after the last verification.
    pub is_undone: bool,
    /// Id that a compaction promised for the next model input.
    pub next_context: Option<ContextId>,
    /// Trigger of a compaction that has begun and not ended.
    pub compacting: Option<CompactionTrigger>,
    verification_patterns: Vec<Vec<String>>,
    commands: BTreeMap<ToolCallId, String>,
    processes: BTreeMap<ToolCallId, Process>,
    /// Commands that go on in the background.
    background: BTreeMap<ToolCallId, Background>,
}

/// What the events of a process add to its call.
#[derive(Debug, Default)]
struct Process {
    cwd: Option<String>,
    output: Option<ArtifactId>,
}

/// A command in the background, with how many changes there were when it began.
#[derive(Debug)]
struct Background {
    command: String,
    cwd: Option<String>,
    turn_id: Option<TurnId>,
    changes: u64,
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

impl ThreadState {
    /// State of the main thread of a session. `verification_patterns` are the configured
    /// verification commands, word by word.
    #[must_use]
    pub fn main(verification_patterns: Vec<Vec<String>>) -> Self {
        Self {
            verification_patterns,
            ..Self::default()
        }
    }

    /// State of a thread that has a parent.
    #[must_use]
    pub fn child(thread_id: ThreadId, verification_patterns: Vec<Vec<String>>) -> Self {
        Self {
            thread_id: Some(thread_id),
            ..Self::main(verification_patterns)
        }
    }

    /// Takes in one event if it is this thread's or the session's; `false` if it is another
    /// thread's.
    pub fn apply(&mut self, event: &Event, artifact: ArtifactText<'_>) -> bool {
        let is_own = match self.children.owner(event) {
            Owner::Session => true,
            Owner::Main => self.thread_id.is_none(),
            Owner::Child(id) => self.thread_id.as_ref() == Some(id),
        };
        if is_own {
            self.take(event, artifact);
        }
        is_own
    }

    fn take(&mut self, event: &Event, artifact: ArtifactText<'_>) {
        self.conversation.apply(event, artifact);
        self.facts.apply(event, artifact);
        match &event.payload {
            // A fork inherits what was said and done, not what was open, allowed or paid.
            Payload::SessionCreated(created) if created.parent.is_some() => {
                self.compacting = None;
                self.turn = TurnFacts::default();
                self.commands.clear();
                self.processes.clear();
                self.background.clear();
            }
            Payload::TurnStarted(_) => {
                self.turn = self.turn.next(event.scope.turn_id.clone());
            }
            Payload::ModelRequested(requested) => {
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
            Payload::CostRecorded(cost) => self.turn.cost.add(cost.amount),
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
