//! Whether every artifact the log names was recorded, is there, and is what its name says.

use std::collections::{BTreeMap, HashSet};
use std::error::Error as _;

use agent_history::fold::{ArtifactCheckpointSummary, Fold as _};
use agent_log::{ArtifactError, ArtifactState, ArtifactStore, SessionDirectory};
use agent_protocol::id::{ArtifactId, EventId};
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::{Event, Payload};
use agent_text::counted;

use super::{AuditReport, Finding, Severity};
use crate::export::{LEFT_OUT, MASKED};

#[derive(Default)]
pub(super) struct ArtifactCheck {
    recorded: ArtifactCheckpointSummary,
    /// Named by an event before any event recorded them.
    unrecorded: BTreeMap<ArtifactId, u64>,
    /// A fork names artifacts of the session it came from.
    is_fork: bool,
}

impl ArtifactCheck {
    pub(super) fn take(&mut self, event: &Event, report: &mut AuditReport) {
        self.recorded.fold(event);
        if let Payload::SessionCreated(created) = &event.payload {
            self.is_fork = created.parent.is_some();
        }
        let named = named_artifacts(&event.payload);
        for artifact_id in named.into_iter().cloned().chain(event.refs.artifact_ids()) {
            let is_recorded = self.recorded.inventory.artifacts.contains_key(&artifact_id);
            if !is_recorded && !self.unrecorded.contains_key(&artifact_id) {
                self.unrecorded.insert(artifact_id.clone(), event.sequence);
                if !self.is_fork {
                    let event_id = Some(event.event_id.clone());
                    report.add(unrecorded(&artifact_id, event.sequence, event_id));
                }
            }
        }
    }

    pub(super) fn finish(&self, session: &SessionDirectory, report: &mut AuditReport) {
        report.artifacts = self.recorded.inventory.kept_count;
        let store = match session.artifacts() {
            Ok(store) => store,
            Err(_) if self.recorded.inventory.artifacts.is_empty() => return,
            Err(error) => {
                report.error(
                    "artifacts_unreadable",
                    None,
                    format!(
                        "the log names {}, but: {}",
                        counted(self.recorded.inventory.artifacts.len() as u64, "artifact"),
                        with_causes(&error)
                    ),
                );
                return;
            }
        };
        let left_out = left_out(session);
        let masked = MaskedCopies::of(session);
        let (mut left_out_count, mut masked_count) = (0_u64, 0_u64);
        for (artifact_id, artifact) in &self.recorded.inventory.artifacts {
            if artifact.state == ArtifactState::Expired {
                continue;
            }
            let is_image = matches!(artifact.kind, ArtifactKind::Before | ArtifactKind::After);
            if is_image && left_out.contains(artifact_id.as_str()) {
                left_out_count += 1;
                continue;
            }
            let (code, message) = match store.verify(artifact_id) {
                Ok(bytes) if bytes == artifact.bytes => continue,
                Err(ArtifactError::Missing { .. }) if masked.has(artifact_id) => {
                    match masked.check(artifact_id) {
                        Ok(()) => {
                            masked_count += 1;
                            continue;
                        }
                        Err(problem) => problem,
                    }
                }
                Ok(bytes) => (
                    "artifact_size",
                    format!(
                        "artifact {artifact_id} has {bytes} bytes, recorded were {}",
                        artifact.bytes
                    ),
                ),
                Err(error @ ArtifactError::Missing { .. }) => {
                    ("artifact_missing", error.to_string())
                }
                Err(error @ ArtifactError::Altered { .. }) => {
                    ("artifact_altered", error.to_string())
                }
                Err(error) => ("artifact_unreadable", with_causes(&error)),
            };
            report.add(Finding {
                severity: Severity::Error,
                code: code.into(),
                sequence: Some(artifact.sequence),
                event_id: None,
                artifact_id: Some(artifact_id.clone()),
                message,
            });
        }
        let inherited = match self.is_fork {
            true => self.inherited(session, &store, (&left_out, &masked), report),
            false => HashSet::new(),
        };
        let recorded = self.recorded.inventory.artifacts.keys();
        let known: HashSet<&ArtifactId> = recorded.chain(&inherited).collect();
        if left_out_count > 0 {
            report.note(
                "artifact_left_out",
                None,
                format!(
                    "{} of files left out of this pack",
                    counted(left_out_count, "image")
                ),
            );
        }
        if masked_count > 0 {
            let copies = match masked_count {
                1 => "1 artifact of this pack is a masked copy".to_owned(),
                count => format!("{count} artifacts of this pack are masked copies"),
            };
            report.note(
                "artifact_masked",
                None,
                format!("{copies}; MASKED has the hashes of the originals"),
            );
        }
        let unnamed = store.list().unwrap_or_default();
        let unnamed = unnamed
            .iter()
            .filter(|file| !known.contains(&file.artifact_id))
            .count() as u64;
        if unnamed > 0 {
            report.note(
                "artifact_unnamed",
                None,
                format!(
                    "{} that no event names; a killed writer leaves such",
                    counted(unnamed, "artifact file")
                ),
            );
        }
    }
}

impl ArtifactCheck {
    /// Follows what a fork took over, and looks at the artifacts that it names; gives their ids.
    fn inherited(
        &self,
        session: &SessionDirectory,
        store: &ArtifactStore,
        (left_out, masked): (&HashSet<String>, &MaskedCopies),
        report: &mut AuditReport,
    ) -> HashSet<ArtifactId> {
        let mut named = ArtifactCheckpointSummary::default();
        let mut inherited = HashSet::new();
        let told = agent_log::fork::inherited(session, &mut |event| {
            named.fold(event);
            if let Payload::ArtifactChanged(changed) = &event.payload {
                inherited.insert(changed.artifact_id.clone());
            }
        });
        if let Err(error) = told {
            let message = format!("the history the fork came with cannot be relied on: {error}");
            let message = match error.source() {
                Some(source) => format!("{message}: {source}"),
                None => message,
            };
            report.error("history_unreadable", Some(1), message);
            return inherited;
        }
        let mut missing = 0;
        for (artifact_id, artifact) in &named.inventory.artifacts {
            let own = self.recorded.inventory.artifacts.get(artifact_id);
            let is_expired = |state: &ArtifactState| *state == ArtifactState::Expired;
            if own.is_some()
                || is_expired(&artifact.state)
                // What a model was sent does not come along.
                || artifact.kind == ArtifactKind::ModelInput
                || left_out.contains(artifact_id.as_str())
            {
                continue;
            }
            match store.verify(artifact_id) {
                Ok(_) => report.artifacts += 1,
                Err(ArtifactError::Missing { .. }) if masked.has(artifact_id) => {
                    if let Err((code, message)) = masked.check(artifact_id) {
                        report.add(Finding {
                            severity: Severity::Error,
                            code: code.into(),
                            sequence: Some(1),
                            event_id: None,
                            artifact_id: Some(artifact_id.clone()),
                            message,
                        });
                    }
                }
                Err(ArtifactError::Missing { .. }) => missing += 1,
                Err(error) => report.add(Finding {
                    severity: Severity::Error,
                    code: "artifact_altered".into(),
                    sequence: Some(1),
                    event_id: None,
                    artifact_id: Some(artifact_id.clone()),
                    message: with_causes(&error),
                }),
            }
        }
        if missing > 0 {
            let what = counted(missing, "artifact");
            let message = format!("{what} of the history the fork came with not kept here");
            report.warning("inherited_missing", Some(1), message);
        }
        // A fork may name what its history recorded, and nothing else that it did not record.
        for (artifact_id, sequence) in &self.unrecorded {
            if !inherited.contains(artifact_id) {
                report.add(unrecorded(artifact_id, *sequence, None));
            }
        }
        inherited
    }
}

fn unrecorded(artifact_id: &ArtifactId, sequence: u64, event_id: Option<EventId>) -> Finding {
    Finding {
        severity: Severity::Error,
        code: "artifact_unrecorded".into(),
        sequence: Some(sequence),
        event_id,
        message: format!(
            "event {sequence} names artifact {artifact_id}, which no `artifact.changed` before it records"
        ),
        artifact_id: Some(artifact_id.clone()),
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    text
}

/// What an evidence pack says it does not hold. A session in its own place is no pack.
fn left_out(session: &SessionDirectory) -> HashSet<String> {
    if session.is_in_store() {
        return HashSet::new();
    }
    let list = std::fs::read_to_string(session.path().join(LEFT_OUT)).unwrap_or_default();
    list.lines().map(str::to_owned).collect()
}

/// The masked copies of an evidence pack, as it lists them.
#[derive(Default)]
struct MaskedCopies {
    /// The hash of the copy by its original.
    listed: BTreeMap<ArtifactId, ArtifactId>,
    store: Option<ArtifactStore>,
}

impl MaskedCopies {
    /// A session in its own place has its artifacts as they came.
    fn of(session: &SessionDirectory) -> Self {
        if session.is_in_store() {
            return Self::default();
        }
        let list = std::fs::read_to_string(session.path().join(MASKED)).unwrap_or_default();
        let pair = |line: &str| {
            let (original, copy) = line.split_once(' ')?;
            Some((original.parse().ok()?, copy.parse().ok()?))
        };
        Self {
            listed: list.lines().filter_map(pair).collect(),
            store: session.masked_copies().ok(),
        }
    }

    fn has(&self, original: &ArtifactId) -> bool {
        self.listed.contains_key(original)
    }

    /// Looks whether the copy is there and is what the list says.
    fn check(&self, original: &ArtifactId) -> Result<(), (&'static str, String)> {
        let copy = self.store.as_ref().map(|store| store.measure(original));
        match (copy, self.listed.get(original)) {
            (Some(Ok((digest, _))), Some(expected)) => {
                let found = ArtifactId::from_digest(&digest);
                if found == *expected {
                    return Ok(());
                }
                let message = format!(
                    "the masked copy of artifact {original} was altered: its bytes now have the hash {found}"
                );
                Err(("artifact_altered", message))
            }
            _ => {
                let message = format!("the masked copy of artifact {original} is missing");
                Err(("artifact_missing", message))
            }
        }
    }
}

/// Every artifact a payload names, apart from the event that records it.
fn named_artifacts(payload: &Payload) -> Vec<&ArtifactId> {
    let mut named: Vec<&ArtifactId> = Vec::new();
    match payload {
        Payload::TurnSubmitted(payload) => {
            named.extend(&payload.input_ref);
            named.extend(payload.input_parts.iter().flat_map(|part| &part.artifact));
        }
        Payload::TurnCompleted(payload) => named.extend(&payload.final_text_ref),
        Payload::ModelRequested(payload) => {
            named.extend(&payload.input_ref);
            named.extend(&payload.tool_catalog_ref);
        }
        Payload::ModelCompleted(payload) => {
            named.extend(&payload.text_ref);
            named.extend(&payload.continuation_ref);
        }
        Payload::ReasoningSummary(payload) => named.extend(&payload.text_ref),
        Payload::ToolCatalogResolved(payload) => named.push(&payload.catalog_ref),
        Payload::ToolIntent(payload) => {
            named.extend(&payload.raw_input_ref);
            named.extend(&payload.own_input_ref);
        }
        Payload::ToolArgs(payload) => named.extend(&payload.args_ref),
        Payload::ToolResult(payload) => {
            named.extend(&payload.result_ref);
            named.extend(
                payload
                    .artifact_refs
                    .iter()
                    .map(|artifact| &artifact.artifact_id),
            );
            named.extend(images(&payload.side_effects));
        }
        Payload::ToolFailed(payload) => {
            named.extend(
                payload
                    .partial_refs
                    .iter()
                    .map(|artifact| &artifact.artifact_id),
            );
            named.extend(images(&payload.side_effects));
        }
        Payload::ToolObservation(payload) => {
            named.extend(&payload.model_text_ref);
            named.extend(payload.content.iter().flat_map(|block| &block.artifact));
            named.extend(
                payload
                    .artifact_refs
                    .iter()
                    .map(|artifact| &artifact.artifact_id),
            );
            named.extend(images(&payload.side_effects));
        }
        Payload::ActionRequired(payload) => named.extend(&payload.diff_ref),
        Payload::ProcessCompleted(payload) => {
            named.extend(images(&payload.side_effects));
            named.extend(&payload.output_ref);
            named.extend(&payload.output_index_ref);
        }
        Payload::ProcessTerminated(payload) => {
            named.extend(images(&payload.side_effects));
            named.extend(&payload.output_ref);
            named.extend(&payload.output_index_ref);
        }
        Payload::ContextCompactionCompleted(payload) => named.push(&payload.summary_ref),
        Payload::EvidenceChanged(payload) => {
            named.extend(
                payload
                    .artifacts
                    .iter()
                    .map(|artifact| &artifact.artifact_id),
            );
        }
        Payload::HookCompleted(payload) => named.extend(&payload.updated_input_ref),
        _ => {}
    }
    named
}

fn images(effects: &[agent_protocol::payload::SideEffect]) -> impl Iterator<Item = &ArtifactId> {
    effects
        .iter()
        .flat_map(|effect| effect.before_ref.iter().chain(&effect.after_ref))
}
