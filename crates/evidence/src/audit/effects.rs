//! Whether recorded changes to files hang together: with their images, with each other, and with
//! what the turn says it changed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use agent_history::fold::ChangedFiles;
use agent_protocol::id::{ArtifactId, ProcessId, ToolCallId};
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::permission::Access;
use agent_protocol::payload::tool::ToolResult;
use agent_protocol::payload::{SideEffect, SideEffectKind};
use agent_protocol::{Code, Event, Payload};

use super::AuditReport;

#[derive(Default)]
pub(super) struct EffectCheck {
    /// Bytes of each artifact as recorded.
    images: HashMap<ArtifactId, u64>,
    /// Images a call kept of the files it was about to change, and what was to be made of them.
    kept: Vec<KeptImage>,
    /// Images that a change names.
    claimed: HashSet<ArtifactId>,
    /// What each file was after the latest change; a missing hash is a missing file.
    files: HashMap<String, Option<String>>,
    /// Calls that were started as reading only.
    read_only: HashSet<ToolCallId>,
    /// What calls that name their file themselves were given.
    named_paths: HashMap<ToolCallId, Vec<String>>,
    /// The hosts of each call that the gate decided about, as addresses.
    hosts: HashMap<ToolCallId, Vec<String>>,
    /// Calls that gave a result, with the command they left running.
    results: HashMap<ToolCallId, Option<ProcessId>>,
    ended_processes: HashSet<ProcessId>,
    /// What the result of each call said it changed, until it is shown.
    effects: HashMap<ToolCallId, Vec<SideEffect>>,
    /// What became of each file since the running turn began.
    turn: ChangedFiles,
    /// What commands in the background changed meanwhile. One that ends while the turn is being
    /// closed may or may not be in the turn's account.
    behind: HashSet<String>,
    /// Calls whose lists of changes are cut in their lines.
    clipped_calls: HashSet<ToolCallId>,
    turn_is_clipped: bool,
}

struct KeptImage {
    artifact_id: ArtifactId,
    call: ToolCallId,
    sequence: u64,
}

impl EffectCheck {
    pub(super) fn take(&mut self, event: &Event, report: &mut AuditReport) {
        match &event.payload {
            Payload::ArtifactChanged(artifact) => {
                self.images
                    .insert(artifact.artifact_id.clone(), artifact.bytes);
                let is_image = matches!(artifact.kind, ArtifactKind::Before | ArtifactKind::After);
                if let (Some(call), true) = (&event.scope.tool_call_id, is_image) {
                    self.kept.push(KeptImage {
                        artifact_id: artifact.artifact_id.clone(),
                        call: call.clone(),
                        sequence: event.sequence,
                    });
                }
            }
            Payload::TurnStarted(_) => {
                self.turn = ChangedFiles::default();
                self.behind.clear();
                self.turn_is_clipped = false;
            }
            Payload::PermissionEvaluated(evaluated) => {
                let hosts = evaluated.resources.iter();
                let hosts = hosts.filter(|resource| resource.access == Access::Connect);
                if let Some(call) = &event.scope.tool_call_id {
                    let known = self.hosts.entry(call.clone()).or_default();
                    known.extend(hosts.map(|host| host.given.clone()));
                }
            }
            Payload::ToolArgs(args) => {
                if let Some(call) = &event.scope.tool_call_id {
                    let paths = args.normalised_paths.clone();
                    self.named_paths.insert(call.clone(), paths);
                }
            }
            Payload::ToolStarted(started) => {
                if let Some(call) = &event.scope.tool_call_id {
                    if started.flags.is_read_only {
                        self.read_only.insert(call.clone());
                    }
                    // The path of a command is where it runs; a call that locks a path changes that file.
                    let locked = started.plan.lock_key.as_ref();
                    let named = self.named_paths.get(call);
                    if !named.is_some_and(|named| locked.is_some_and(|key| named.contains(key))) {
                        self.named_paths.remove(call);
                    }
                }
            }
            Payload::ToolResult(result) => {
                self.changed(event, &result.side_effects, report);
                self.result(event, result, report);
            }
            Payload::ToolFailed(failed) => self.changed(event, &failed.side_effects, report),
            // What a command in the background did is told when it ends, in whatever turn that is.
            Payload::ProcessCompleted(ended) => {
                self.ended_processes.insert(ended.process_id.clone());
                self.background(event, &ended.side_effects, report);
            }
            Payload::ProcessTerminated(ended) => {
                self.ended_processes.insert(ended.process_id.clone());
                self.background(event, &ended.side_effects, report);
            }
            Payload::ToolObservation(observation) => {
                let Some(call) = &event.scope.tool_call_id else {
                    return;
                };
                let recorded = self.effects.remove(call).unwrap_or_default();
                // A list that did not fit into its line is whole in an artifact, and clipped here.
                let is_clipped =
                    self.clipped_calls.contains(call) || clipped(event, "side_effects");
                if !is_clipped && recorded != observation.side_effects {
                    report.error_at(
                        event,
                        "observation_effects_differ",
                        format!(
                            "call {call}: {} changes were recorded, {} were shown, and they are not the same",
                            recorded.len(),
                            observation.side_effects.len()
                        ),
                    );
                }
            }
            Payload::HistoryRollbackCompleted(rollback) => {
                for effect in &rollback.files_restored {
                    self.check_one(event, effect, report);
                }
            }
            Payload::TurnCompleted(completed) => {
                self.turn_ends(event, &completed.files_changed, report);
            }
            // Whoever repaired the log after a crash did not know what had changed.
            Payload::TurnFailed(failed) if failed.code == Code::Lost.as_str() => {
                self.turn = ChangedFiles::default();
            }
            Payload::TurnFailed(failed) => {
                self.turn_ends(event, &failed.files_changed, report);
            }
            _ => {}
        }
    }

    /// Every image was kept because a file was to change, so a change has to name it.
    pub(super) fn finish(&self, report: &mut AuditReport) {
        for image in &self.kept {
            let is_over = match self.results.get(&image.call) {
                None => false,
                Some(None) => true,
                Some(Some(process)) => self.ended_processes.contains(process),
            };
            let is_clipped = self.clipped_calls.contains(&image.call);
            if is_over && !is_clipped && !self.claimed.contains(&image.artifact_id) {
                report.add(super::Finding {
                    severity: super::Severity::Error,
                    code: "image_unclaimed".into(),
                    sequence: Some(image.sequence),
                    event_id: None,
                    artifact_id: Some(image.artifact_id.clone()),
                    message: format!(
                        "call {} kept an image of a file, and no recorded change names it",
                        image.call
                    ),
                });
            }
        }
    }

    /// What a tool says of the file it wrote, against what it says it changed.
    fn result(&mut self, event: &Event, result: &ToolResult, report: &mut AuditReport) {
        let Some(call) = &event.scope.tool_call_id else {
            return;
        };
        let hosts = self.hosts.remove(call).unwrap_or_default();
        if let Some(web) = &result.data.web
            && !hosts.iter().any(|given| is_at(given, &web.host))
        {
            report.error_at(
                event,
                "fetched_elsewhere",
                format!(
                    "call {call} was let through for {} and fetched from `{}`",
                    match hosts.is_empty() {
                        true => "no host".to_owned(),
                        false => format!("`{}`", hosts.join("`, `")),
                    },
                    web.host
                ),
            );
        }
        let in_background = result.data.background == Some(true);
        let process = result.data.process_id.as_ref();
        let process = process.filter(|_| in_background);
        let process = process.and_then(|id| id.parse().ok());
        self.results.insert(call.clone(), process);
        let Some(named) = self.named_paths.remove(call) else {
            return;
        };
        let baseline = result.data.baseline.as_ref();
        for effect in &result.side_effects {
            let path = effect.path.as_str();
            let other_hash = baseline.is_some_and(|baseline| {
                baseline.path == path && effect.sha256_after.as_ref() != Some(&baseline.sha256)
            });
            if other_hash {
                report.error_at(
                    event,
                    "effect_contradicts_itself",
                    format!("`{path}` was written with other bytes than the change says"),
                );
            }
            // A new file may need new directories.
            let is_named = named.iter().any(|named| {
                named == path
                    || named
                        .strip_prefix(path)
                        .is_some_and(|rest| rest.starts_with('/'))
            });
            if !is_named && !named.is_empty() {
                report.error_at(
                    event,
                    "effect_elsewhere",
                    format!(
                        "call {call} was let through for `{}` and changed `{path}`",
                        named.join("`, `")
                    ),
                );
            }
        }
    }

    fn background(&mut self, event: &Event, effects: &[SideEffect], report: &mut AuditReport) {
        if clipped(event, "side_effects") {
            self.clipped_calls.extend(event.scope.tool_call_id.clone());
            self.turn_is_clipped = true;
        }
        for effect in effects {
            self.check_one(event, effect, report);
            self.turn.take(effect);
            self.behind.insert(effect.path.clone());
        }
    }

    fn changed(&mut self, event: &Event, effects: &[SideEffect], report: &mut AuditReport) {
        if effects.is_empty() {
            return;
        }
        if let Some(call) = &event.scope.tool_call_id {
            if self.read_only.contains(call) {
                report.error_at(
                    event,
                    "read_only_changed_files",
                    format!(
                        "call {call} was let through as reading only and changed `{}`",
                        effects[0].path
                    ),
                );
            }
            if clipped(event, "side_effects") {
                self.clipped_calls.insert(call.clone());
                self.turn_is_clipped = true;
            }
            self.effects.insert(call.clone(), effects.to_vec());
        }
        for effect in effects {
            self.check_one(event, effect, report);
            self.turn.take(effect);
        }
    }

    fn check_one(&mut self, event: &Event, effect: &SideEffect, report: &mut AuditReport) {
        let path = &effect.path;
        self.claimed
            .extend(effect.before_ref.iter().chain(&effect.after_ref).cloned());
        let images = [
            (
                "before",
                &effect.before_ref,
                &effect.sha256_before,
                effect.bytes_before,
            ),
            (
                "after",
                &effect.after_ref,
                &effect.sha256_after,
                effect.bytes_after,
            ),
        ];
        for (when, image, hash, bytes) in images {
            let Some(image) = image else {
                continue;
            };
            let recorded = self.images.get(image);
            let other_hash = hash
                .as_deref()
                .is_some_and(|hash| hash.trim_start_matches("sha256:") != image.hex());
            let other_size = recorded
                .zip(bytes)
                .is_some_and(|(recorded, bytes)| *recorded != bytes);
            if other_hash || other_size {
                report.error_at(
                    event,
                    "image_differs",
                    format!("the image of `{path}` {when} the change is not of the file the change names"),
                );
            }
        }
        let (before, after) = (&effect.sha256_before, &effect.sha256_after);
        let same_content = before.is_some() && before == after;
        let same_mode = effect.mode_before == effect.mode_after;
        let contradiction = match effect.kind {
            SideEffectKind::Created => before.is_some(),
            SideEffectKind::Deleted => after.is_some(),
            SideEffectKind::Modified => same_content && same_mode,
            SideEffectKind::ModeChanged => same_mode && effect.mode_before.is_some(),
        };
        if contradiction {
            report.error_at(
                event,
                "effect_contradicts_itself",
                format!(
                    "`{path}` is said to be {}, but its hashes say otherwise",
                    effect.kind.as_str().replace('_', " ")
                ),
            );
        }
        let had_content = matches!(
            effect.kind,
            SideEffectKind::Modified | SideEffectKind::Deleted
        );
        // Links and directories have no content to keep an image of.
        let is_file = effect.file_type.is_none();
        if had_content && is_file && effect.before_ref.is_none() && effect.no_image.is_none() {
            report.warn_at(
                event,
                "image_missing",
                format!("`{path}` changed, and neither an image of before nor a reason for its absence is recorded"),
            );
        }
        if let Some(known) = self.files.get(path)
            && before.is_some()
            && known != before
        {
            report.note(
                "changed_outside",
                Some(event.sequence),
                format!("`{path}` was not as the session had left it: something else changed it in between"),
            );
        }
        self.files.insert(path.clone(), after.clone());
    }

    fn turn_ends(&mut self, event: &Event, said: &[SideEffect], report: &mut AuditReport) {
        let files = std::mem::take(&mut self.turn).list();
        if std::mem::take(&mut self.turn_is_clipped) || clipped(event, "files_changed") {
            return;
        }
        let recorded: BTreeMap<&str, &SideEffect> = files
            .iter()
            .map(|effect| (effect.path.as_str(), effect))
            .collect();
        let said: BTreeMap<&str, &SideEffect> = said
            .iter()
            .map(|effect| (effect.path.as_str(), effect))
            .collect();
        let paths: BTreeSet<&str> = recorded.keys().chain(said.keys()).copied().collect();
        let odd: Vec<&str> = paths
            .into_iter()
            .filter(|path| match (recorded.get(path), said.get(path)) {
                // An account that only names its files says nothing else of them.
                (Some(recorded), Some(said)) => {
                    sides(said) != NOTHING && sides(recorded) != sides(said)
                }
                _ => true,
            })
            .filter(|path| !self.behind.contains(*path))
            .collect();
        if odd.is_empty() {
            return;
        }
        report.error_at(
            event,
            "files_changed_differ",
            format!(
                "the turn's end and its calls do not say the same of its changes; they differ in `{}`",
                odd.join("`, `")
            ),
        );
    }
}

type Sides<'a> = (Option<&'a str>, Option<&'a str>, Option<u32>, Option<u32>);

const NOTHING: Sides<'static> = (None, None, None, None);

/// What a change made of a file, without where the images are.
fn sides(effect: &SideEffect) -> Sides<'_> {
    (
        effect.sha256_before.as_deref(),
        effect.sha256_after.as_deref(),
        effect.mode_before,
        effect.mode_after,
    )
}

/// Whether a list of the event is only the beginning of the one in an artifact.
fn clipped(event: &Event, role: &str) -> bool {
    event.refs.0.contains_key(role)
}

/// True if an address, as the gate has it, is at this host.
fn is_at(address: &str, host: &str) -> bool {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let port = rest.strip_prefix(host);
    port.is_some_and(|port| port.is_empty() || port.starts_with(':'))
}
