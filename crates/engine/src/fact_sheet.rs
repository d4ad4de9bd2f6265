//! What compaction must not lose, computed from the log: the user's own words, files read and
//! changed, commands with their exit codes, those that still run, refusals, open questions and the
//! state of verification. Only the prose around it is left to a model.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use agent_history::verification::describe_failure;
use agent_protocol::id::{
    ActionId, ArtifactId, EvidenceId, ProcessId, RuntimeId, ToolCallId, TurnId,
};
use agent_protocol::payload::SideEffect;
use agent_protocol::payload::conversation::EvidenceChanged;
use agent_protocol::payload::model::Preserved;
use agent_protocol::payload::permission::Effect;
use agent_protocol::payload::plan::PlanItem;
use agent_protocol::{Event, Payload, Phase};

use crate::conversation::ArtifactText;
use crate::user_words::UserWords;

/// Commands and refusals that are listed one by one; older ones are counted.
const RECENT: usize = 40;

/// The fold.
#[derive(Clone, Debug, Default)]
pub struct FactSheet {
    words: UserWords,
    /// Commands that run in the background, by the program that started them; they end with it.
    running: BTreeMap<ProcessId, String>,
    runtime: Option<RuntimeId>,
    read: BTreeMap<String, String>,
    changed: BTreeMap<String, SideEffect>,
    commands: Recent,
    refusals: Recent,
    incidents: Recent,
    open_actions: BTreeMap<ActionId, String>,
    evidence: Vec<(EvidenceId, String)>,
    summaries: BTreeMap<ToolCallId, String>,
    turns: BTreeSet<TurnId>,
    plan: Vec<PlanItem>,
}

#[derive(Clone, Debug, Default)]
struct Recent {
    lines: VecDeque<String>,
    older: usize,
}

impl Recent {
    fn push(&mut self, line: String) {
        self.lines.push_back(line);
        if self.lines.len() > RECENT {
            self.lines.pop_front();
            self.older += 1;
        }
    }

    fn write(&self, out: &mut String, title: &str) {
        if self.lines.is_empty() {
            return;
        }
        let _ = writeln!(out, "\n{title}");
        if self.older > 0 {
            let _ = writeln!(out, "- ({} older ones are in the session log)", self.older);
        }
        for line in &self.lines {
            let _ = writeln!(out, "- {line}");
        }
    }
}

impl FactSheet {
    /// Takes in one event.
    pub fn apply(&mut self, event: &Event, artifact: ArtifactText<'_>) {
        self.words.apply(event, artifact);
        if self.runtime.as_ref() != Some(&event.runtime_id) {
            self.runtime = Some(event.runtime_id.clone());
            self.running.clear();
        }
        match &event.payload {
            // A fork inherits what was said and done, not what was open.
            Payload::SessionCreated(created) if created.parent.is_some() => {
                self.open_actions.clear();
                self.running.clear();
                self.summaries.clear();
            }
            Payload::TurnStarted(_) => self.turns.extend(event.scope.turn_id.clone()),
            Payload::PermissionEvaluated(decision) if decision.decision == Effect::Deny => {
                self.refusals
                    .push(format!("refused by policy: {}", decision.reason));
            }
            Payload::ActionRequired(action) => {
                if let Some(id) = &event.scope.action_id {
                    self.open_actions.insert(id.clone(), action.title.clone());
                }
            }
            Payload::ActionResolved(_) => {
                if let Some(id) = &event.scope.action_id {
                    self.open_actions.remove(id);
                }
            }
            Payload::ProcessStarted(process) => {
                let summary = &process.command_summary;
                if process.background {
                    let id = process.process_id.clone();
                    self.running.insert(id, summary.clone());
                }
                if let Some(call) = &event.scope.tool_call_id {
                    self.summaries.insert(call.clone(), summary.clone());
                }
            }
            Payload::ProcessCompleted(ended) => {
                let command = self.running.remove(&ended.process_id);
                if let (Some(command), Some(code)) = (command, ended.exit_code) {
                    self.commands.push(format!(
                        "`{command}` (in the background) exited with {code}"
                    ));
                }
            }
            Payload::ProcessTerminated(ended) => {
                if let Some(command) = self.running.remove(&ended.process_id) {
                    self.commands
                        .push(format!("`{command}` (in the background) was ended"));
                }
            }
            Payload::ToolResult(result) => {
                if let Some(plan) = &result.data.plan {
                    self.plan.clone_from(plan);
                }
                if let Some(baseline) = &result.data.baseline {
                    self.read
                        .insert(baseline.path.clone(), baseline.sha256.clone());
                }
                for effect in &result.side_effects {
                    self.changed(effect);
                }
                let command = event
                    .scope
                    .tool_call_id
                    .as_ref()
                    .and_then(|call| self.summaries.remove(call));
                let in_background = result.data.background == Some(true);
                if let (Some(command), Some(code), false) =
                    (command, result.data.exit_code, in_background)
                {
                    self.commands
                        .push(format!("`{command}` exited with {code}"));
                }
            }
            Payload::ToolFailed(failed) => {
                for effect in &failed.side_effects {
                    self.changed(effect);
                }
                if let Some(command) = event
                    .scope
                    .tool_call_id
                    .as_ref()
                    .and_then(|call| self.summaries.remove(call))
                {
                    self.commands.push(format!(
                        "`{command}` ended without a result: {}",
                        failed.code
                    ));
                } else if failed.phase == Phase::Permission {
                    self.refusals.push(failed.message.clone());
                }
            }
            Payload::EvidenceChanged(evidence) => {
                let command = evidence.command.as_deref().unwrap_or("verification");
                let status = evidence.status.as_str().replace('_', " ");
                let mut line = format!("`{command}`: {status}");
                if let Some(reason) = &evidence.reason {
                    let _ = write!(line, " ({reason})");
                }
                if evidence.failures.is_some() {
                    let _ = write!(
                        line,
                        "; its output names as failed: {}",
                        failed_tests(evidence)
                    );
                }
                self.evidence.push((evidence.evidence_id.clone(), line));
            }
            Payload::TurnFailed(failed) => self
                .incidents
                .push(format!("a turn ended early: {}", failed.message)),
            Payload::RuntimeError(error) => self.incidents.push(error.message.clone()),
            _ => {}
        }
    }

    fn changed(&mut self, effect: &SideEffect) {
        match self.changed.get_mut(&effect.path) {
            // The first before-image and the last after-image span all changes of a file.
            Some(known) => {
                known.kind = effect.kind;
                known.sha256_after.clone_from(&effect.sha256_after);
            }
            None => {
                self.changed.insert(effect.path.clone(), effect.clone());
            }
        }
    }

    /// Turns that have begun.
    #[must_use]
    pub fn turns(&self) -> Vec<TurnId> {
        self.turns.iter().cloned().collect()
    }

    /// The sheet as the model reads it, about everything up to an event, and what it holds. What the
    /// user said takes about `room` bytes; `keep` keeps what of that is not repeated whole.
    ///
    /// # Errors
    /// Those of `keep`.
    pub(crate) fn write<E>(
        &self,
        up_to_sequence: u64,
        room: usize,
        keep: &mut dyn FnMut(&str) -> Result<ArtifactId, E>,
    ) -> Result<(String, Preserved), E> {
        let mut out =
            String::from("Facts from the session log about the conversation before this point.\n");
        let words = self.words.write(&mut out, up_to_sequence, room, keep)?;
        self.write_facts(&mut out);
        let preserved = Preserved {
            action_ids: self.open_actions.keys().cloned().collect(),
            incidents: self.incidents.lines.iter().cloned().collect(),
            evidence_ids: self.evidence.iter().map(|(id, _)| id.clone()).collect(),
            requests: words.whole,
            excerpts: words.excerpts,
            process_ids: self.running.keys().cloned().collect(),
        };
        Ok((out, preserved))
    }

    fn write_facts(&self, out: &mut String) {
        if !self.plan.is_empty() {
            let _ = writeln!(out, "\nThings to do, as last set with `plan`");
            for item in &self.plan {
                let _ = writeln!(out, "- {}", item.line());
            }
        }
        if !self.changed.is_empty() {
            let _ = writeln!(out, "\nFiles changed in this session");
            for (path, effect) in &self.changed {
                let hash = effect.sha256_after.as_deref().unwrap_or("gone");
                let _ = writeln!(out, "- {path}: {} (now {})", effect.kind, short(hash));
            }
        }
        let only_read: Vec<_> = self
            .read
            .iter()
            .filter(|(path, _)| !self.changed.contains_key(*path))
            .collect();
        if !only_read.is_empty() {
            let _ = writeln!(
                out,
                "\nFiles read (what of their content does not follow below is no longer shown; read it again when needed)"
            );
            for (path, hash) in only_read {
                let _ = writeln!(out, "- {path} ({})", short(hash));
            }
        }
        if !self.running.is_empty() {
            let _ = writeln!(
                out,
                "\nCommands that run in the background (process_output shows what they print, process_kill ends them)"
            );
            for (id, command) in &self.running {
                let _ = writeln!(out, "- {id}: `{command}`");
            }
        }
        self.commands.write(out, "Commands and their exit codes");
        self.refusals.write(out, "Refused");
        self.incidents.write(out, "Incidents");
        if !self.open_actions.is_empty() {
            let _ = writeln!(out, "\nQuestions that are still open");
            for (id, title) in &self.open_actions {
                let _ = writeln!(out, "- {id}: {title}");
            }
        }
        if let Some((_, last)) = self.evidence.last() {
            let _ = writeln!(out, "\nLast verification\n- {last}");
        }
    }
}

/// Failing tests that are repeated in the sheet.
const FAILURES: usize = 20;

fn failed_tests(evidence: &EvidenceChanged) -> String {
    let failures = evidence.failures.iter().flatten();
    let shown: Vec<String> = failures.take(FAILURES).map(describe_failure).collect();
    shown.join(", ")
}

fn short(hash: &str) -> &str {
    let hex = hash.strip_prefix("sha256:").unwrap_or(hash);
    hex.get(..12).unwrap_or(hex)
}
