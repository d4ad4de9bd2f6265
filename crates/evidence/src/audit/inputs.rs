//! What the model was sent, against what the log says was said: each prompt, answer, call and
//! observation has to stand in the first request after it, byte for byte.
//!
//! The requests themselves are artifacts under their own hash, so whoever changes the words of an
//! event and chains the log anew still contradicts them.

use std::collections::HashMap;

use agent_log::{ArtifactStore, read_after};
use agent_protocol::id::{ArtifactId, EventId, TurnId};
use agent_protocol::payload::conversation::{QueueOperation, QueuePolicy};
use agent_protocol::payload::model::ModelRequested;
use agent_protocol::payload::tool::{CatalogEntry, ToolCatalogResolved};
use agent_protocol::{Event, Payload};
use memchr::memmem;

use super::{AuditReport, Finding, Severity};

/// Texts that did not fit into their event are at most this large.
const TEXT_LIMIT: u64 = 64 << 20;
/// What is said between two requests is far less than this; what is more is not waited for.
const MOST_PENDING: usize = 64 << 20;
/// The model of a turn that asks none.
const NO_MODEL: &str = "none";

#[derive(Default)]
pub(super) struct InputCheck {
    /// What the next request has to hold.
    pending: Vec<Part>,
    pending_bytes: usize,
    /// Whether the running turn asks no model, so that nothing it says is sent to one.
    is_mute: bool,
    submitted: HashMap<TurnId, Part>,
    /// The request before, of which the next one may be kept as a difference.
    last: Option<(ArtifactId, Vec<u8>)>,
    /// Events of the session a fork came from, which compaction counts too.
    base: u64,
    is_compacting: bool,
}

/// Something that was said.
struct Part {
    sequence: u64,
    event_id: EventId,
    what: &'static str,
    /// As it may stand in a request; one of them is enough.
    forms: Vec<String>,
}

impl InputCheck {
    pub(super) fn take(
        &mut self,
        event: &Event,
        artifacts: Option<&ArtifactStore>,
        report: &mut AuditReport,
    ) {
        let text = |text: Option<&String>, kept: Option<&ArtifactId>| {
            text.cloned().or_else(|| {
                let bytes = artifacts?.read(kept?, TEXT_LIMIT).ok()?;
                Some(String::from_utf8_lossy(&bytes).into_owned())
            })
        };
        match &event.payload {
            Payload::SessionCreated(created) => {
                let parent = created.parent.as_ref();
                self.base = parent.map_or(0, |parent| parent.sequence.saturating_add(1));
            }
            Payload::TurnSubmitted(submitted) => {
                let said = text(submitted.text.as_ref(), submitted.input_ref.as_ref());
                let part = said.and_then(|said| Part::of(event, "the prompt", &said));
                if let (Some(turn), Some(part)) = (&event.scope.turn_id, part) {
                    self.submitted.insert(turn.clone(), part);
                }
            }
            Payload::TurnStarted(started) => {
                self.is_mute = started.model == NO_MODEL;
                self.enter(event.scope.turn_id.as_ref());
            }
            Payload::QueueChanged(change)
                if change.op == QueueOperation::Started && change.policy == QueuePolicy::Steer =>
            {
                self.enter(change.queued_turn_id.as_ref());
            }
            Payload::ModelCompleted(completed) if !self.is_compacting => {
                let said = text(completed.text.as_ref(), completed.text_ref.as_ref());
                self.wait_for(said.and_then(|said| Part::of(event, "the answer", &said)));
            }
            Payload::ToolIntent(intent) if intent.model_request_id.is_some() => {
                let input = intent.raw_input.as_ref().filter(|input| input.is_object());
                // Some dialects send arguments as they are, others as text.
                if let Some(plain) = input.map(ToString::to_string) {
                    let mut part = Part::empty(event, "the call");
                    part.forms = vec![escaped(&plain), plain];
                    self.wait_for(Some(part));
                }
            }
            Payload::ToolObservation(shown) => {
                let said = text(shown.model_text.as_ref(), shown.model_text_ref.as_ref());
                self.wait_for(said.and_then(|said| Part::of(event, "the observation", &said)));
            }
            Payload::ContextCompactionStarted(_) => self.is_compacting = true,
            Payload::ContextCompactionFailed(_) => self.is_compacting = false,
            Payload::ContextCompactionCompleted(compaction) => {
                self.is_compacting = false;
                // What the summary stands for is not sent again.
                let base = self.base;
                self.pending
                    .retain(|part| base.saturating_add(part.sequence) > compaction.up_to_sequence);
            }
            Payload::ToolCatalogResolved(catalog) => {
                check_catalog(event, catalog, artifacts, report);
            }
            Payload::ModelRequested(requested) => {
                self.requested(event, requested, artifacts, report);
            }
            _ => {}
        }
    }

    fn enter(&mut self, turn: Option<&TurnId>) {
        let part = turn.and_then(|turn| self.submitted.remove(turn));
        self.wait_for(part);
    }

    fn wait_for(&mut self, part: Option<Part>) {
        let Some(part) = part.filter(|_| !self.is_mute) else {
            return;
        };
        self.pending_bytes += part.forms.iter().map(String::len).sum::<usize>();
        if self.pending_bytes > MOST_PENDING {
            self.pending.clear();
            self.pending_bytes = 0;
        }
        self.pending.push(part);
    }

    fn requested(
        &mut self,
        event: &Event,
        requested: &ModelRequested,
        artifacts: Option<&ArtifactStore>,
        report: &mut AuditReport,
    ) {
        let pending = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let (Some(artifacts), Some(input)) = (artifacts, &requested.input_ref) else {
            return;
        };
        // What is missing or altered is found where artifacts are checked.
        let Ok(body) = read_after(artifacts, input, self.last.as_ref()) else {
            return;
        };
        let is_other = agent_text::sha256_hex(&body) != bare(&requested.input_hash);
        if is_other || body.len() as u64 != requested.input_bytes {
            report.error_at(
                event,
                "input_hash_differs",
                "the model input that is kept is not the one that is said to have been sent".into(),
            );
        }
        if let (Some(said), Some(kept)) =
            (&requested.tool_catalog_hash, &requested.tool_catalog_ref)
            && bare(said) != kept.hex()
        {
            report.error_at(
                event,
                "catalog_differs",
                "the request names a catalogue and the hash of another".into(),
            );
        }
        for part in pending {
            let is_held = |form: &String| memmem::find(&body, form.as_bytes()).is_some();
            if !part.forms.iter().any(is_held) {
                report.add(Finding {
                    severity: Severity::Error,
                    code: "model_input_differs".into(),
                    sequence: Some(part.sequence),
                    event_id: Some(part.event_id),
                    artifact_id: Some(input.clone()),
                    message: format!(
                        "{} of event {} is not what the model was sent in event {}",
                        part.what, part.sequence, event.sequence
                    ),
                });
            }
        }
        self.last = Some((input.clone(), body));
    }
}

impl Part {
    fn empty(event: &Event, what: &'static str) -> Self {
        Self {
            sequence: event.sequence,
            event_id: event.event_id.clone(),
            what,
            forms: Vec::new(),
        }
    }

    /// Nothing for a text that no dialect would send.
    fn of(event: &Event, what: &'static str, text: &str) -> Option<Self> {
        if text.trim().is_empty() {
            return None;
        }
        Some(Self {
            forms: vec![escaped(text)],
            ..Self::empty(event, what)
        })
    }
}

/// A text as it stands inside of a JSON string.
fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn bare(hash: &str) -> &str {
    hash.trim_start_matches("sha256:")
}

/// The event has the tools in short, the artifact in full; they are the same tools.
fn check_catalog(
    event: &Event,
    catalog: &ToolCatalogResolved,
    artifacts: Option<&ArtifactStore>,
    report: &mut AuditReport,
) {
    let is_other_hash = bare(&catalog.catalog_hash) != catalog.catalog_ref.hex();
    let kept = artifacts
        .and_then(|artifacts| artifacts.read(&catalog.catalog_ref, TEXT_LIMIT).ok())
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .and_then(|text| serde_json::from_str::<Vec<CatalogEntry>>(&text).ok());
    let facts = |entry: &CatalogEntry| {
        (
            entry.tool_name.clone(),
            entry.version.clone(),
            entry.definition_hash.clone(),
            entry.policy,
        )
    };
    let is_other_list = kept.is_some_and(|kept| {
        !catalog.tools.is_empty()
            && !event.refs.0.contains_key("tools")
            && kept.iter().map(facts).ne(catalog.tools.iter().map(facts))
    });
    if is_other_hash || is_other_list {
        report.error_at(
            event,
            "catalog_differs",
            "the tools the event lists are not those of the catalogue that is kept".into(),
        );
    }
}
