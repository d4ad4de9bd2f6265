//! What compaction must not lose, computed from the log: the user's own words, files read and
//! changed, commands with their exit codes, refusals, open questions and the state of verification.
//! Only the prose around it is left to a model.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::Write as _;

use agent_protocol::id::{ActionId, EvidenceId, ToolCallId, TurnId};
use agent_protocol::payload::SideEffect;
use agent_protocol::payload::conversation::EvidenceChanged;
use agent_protocol::payload::permission::Effect;
use agent_protocol::{Event, Payload, Phase};
use agent_session::verification::describe_failure;

/// Commands and refusals that are listed one by one; older ones are counted.
const RECENT: usize = 40;
/// Bytes of one user request that are repeated.
const REQUEST_LIMIT: usize = 4_000;

/// The fold.
#[derive(Clone, Debug, Default)]
pub struct FactSheet {
    requests: Vec<(TurnId, String)>,
    submitted: HashMap<TurnId, String>,
    read: BTreeMap<String, String>,
    changed: BTreeMap<String, SideEffect>,
    commands: Recent,
    refusals: Recent,
    incidents: Recent,
    open_actions: BTreeMap<ActionId, String>,
    evidence: Vec<(EvidenceId, String)>,
    summaries: HashMap<ToolCallId, String>,
    turns: BTreeSet<TurnId>,
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
    pub fn apply(&mut self, event: &Event) {
        match &event.payload {
            Payload::TurnSubmitted(submitted) => {
                if let (Some(turn), Some(text)) = (&event.scope.turn_id, &submitted.text) {
                    self.submitted.insert(turn.clone(), text.clone());
                }
            }
            Payload::TurnStarted(_) => {
                if let Some(turn) = &event.scope.turn_id {
                    self.turns.insert(turn.clone());
                    if let Some(text) = self.submitted.remove(turn) {
                        self.requests.push((turn.clone(), text));
                    }
                }
            }
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
                if let Some(call) = &event.scope.tool_call_id {
                    self.summaries
                        .insert(call.clone(), process.command_summary.clone());
                }
            }
            Payload::ToolResult(result) => {
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
                if let (Some(command), Some(code)) = (command, result.data.exit_code) {
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

    /// Questions nobody has answered.
    #[must_use]
    pub fn open_actions(&self) -> Vec<ActionId> {
        self.open_actions.keys().cloned().collect()
    }

    /// Verification records so far.
    #[must_use]
    pub fn evidence(&self) -> Vec<EvidenceId> {
        self.evidence.iter().map(|(id, _)| id.clone()).collect()
    }

    /// What went wrong so far.
    #[must_use]
    pub fn incidents(&self) -> Vec<String> {
        self.incidents.lines.iter().cloned().collect()
    }

    /// The turns whose requests are repeated word for word.
    #[must_use]
    pub fn requests(&self) -> Vec<TurnId> {
        self.requests.iter().map(|(turn, _)| turn.clone()).collect()
    }

    /// The sheet as the model reads it.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out =
            String::from("Facts from the session log about the conversation before this point.\n");
        let _ = writeln!(out, "\nWhat the user asked, word for word");
        for (_, request) in &self.requests {
            let shown: String = request.chars().take(REQUEST_LIMIT).collect();
            let cut = if shown.len() < request.len() {
                " [cut here]"
            } else {
                ""
            };
            let _ = writeln!(out, "- {}{cut}", shown.replace('\n', "\n  "));
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
                "\nFiles read (their content is no longer shown; read them again when needed)"
            );
            for (path, hash) in only_read {
                let _ = writeln!(out, "- {path} ({})", short(hash));
            }
        }
        self.commands
            .write(&mut out, "Commands and their exit codes");
        self.refusals.write(&mut out, "Refused");
        self.incidents.write(&mut out, "Incidents");
        if !self.open_actions.is_empty() {
            let _ = writeln!(out, "\nQuestions that are still open");
            for (id, title) in &self.open_actions {
                let _ = writeln!(out, "- {id}: {title}");
            }
        }
        if let Some((_, last)) = self.evidence.last() {
            let _ = writeln!(out, "\nLast verification\n- {last}");
        }
        out
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
