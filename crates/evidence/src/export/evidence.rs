//! An evidence pack: one file with the log, its artifacts, a report, an audit and the hashes of all
//! of them, and how to check it without trusting whoever made it.
//!
//! The same session gives the same bytes, wherever and whenever it is packed. Images of files are
//! left out unless they are asked for, because they are exact copies and may hold secrets; what was
//! left out is listed. Of every other artifact that holds a secret there is a masked copy instead,
//! unless the bytes as they came are asked for.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};

use agent_log::{
    AnchorStore, ArtifactError, ArtifactStore, MASKED_COPIES, MaskedReader, Redactor,
    SessionDirectory,
};
use agent_protocol::id::ArtifactId;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::{Event, Payload};
use sha2::{Digest as _, Sha256};

use super::archive::{self, Content, Member, Source};
use super::{ExportError, export_jsonl};
use crate::audit::{AuditError, AuditReport};
use crate::replay::ReplayError;
use crate::report::report;

/// The file in a pack that lists artifacts which are not in it.
pub(crate) const LEFT_OUT: &str = "LEFT_OUT";

/// The file in a pack that lists artifacts of which it has a masked copy: the hash of the original,
/// which is its name, and the hash of the copy.
pub(crate) const MASKED: &str = "MASKED";

/// What goes into a pack besides what always does.
#[derive(Debug, Clone, Copy)]
pub struct Contents<'a> {
    /// The exact images of files.
    pub images: bool,
    /// What masks artifacts; without it they are packed as they are.
    pub masked_by: Option<&'a Redactor>,
}

/// Why a pack was not made.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error("cannot read artifact {artifact_id} for the pack")]
    Artifact {
        artifact_id: ArtifactId,
        source: ArtifactError,
    },
    /// Outputs are kept as they came, and nobody here can tell where in them these secrets are.
    #[error(
        "its log masks {}, which this shell does not know: it could not be masked in outputs either",
        .rules.iter().map(|rule| format!("`{rule}`")).collect::<Vec<_>>().join(", ")
    )]
    Unmaskable { rules: BTreeSet<String> },
    #[error("cannot write the pack")]
    Write(#[source] io::Error),
}

/// What is in a pack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packed {
    pub files: u64,
    pub artifacts: u64,
    /// Images of files that were left out.
    pub left_out: u64,
    /// Artifacts of which there is a masked copy.
    pub masked: u64,
    /// Artifacts the log names that are not there.
    pub missing: u64,
}

/// Writes the pack of a session as `tar.zst`. Log and artifacts are read while they are written, so
/// that their size does not matter.
///
/// # Errors
/// When something cannot be read, or the pack not be written; what was written is no pack then.
pub fn export_evidence(
    session: &SessionDirectory,
    anchors: Option<&AnchorStore>,
    audit: &AuditReport,
    contents: Contents<'_>,
    out: &mut dyn Write,
) -> Result<Packed, PackError> {
    let (log_bytes, log_hash) = measure_log(session)?;
    let report = report(session, anchors)?;
    let modified = report
        .summary()
        .last_event_at
        .map_or(0, |time| time.unix_millis().max(0) / 1000);
    let id = session.id().as_str();
    let mut packed = Packed::default();
    let store = session.artifacts().ok();
    let mut files = Files::default();
    let json = |value: &serde_json::Value| {
        let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
        text.push('\n');
        text
    };
    // Where the session was kept is nobody's business.
    let mut summary = report.to_json();
    summary["events_path"] = "events.jsonl".into();
    files.text("report.json", json(&summary));
    files.text("report.md", report.to_markdown());
    files.text("audit.json", json(&audit.to_json()));

    let Chosen {
        kept,
        images,
        left_out,
    } = chosen(session, contents.images)?;
    packed.left_out = left_out.len() as u64;
    if let Some(redactor) = contents.masked_by {
        let rules = not_masked_again(session, redactor)?;
        if !rules.is_empty() {
            return Err(PackError::Unmaskable { rules });
        }
    }
    let mut masked_list = String::new();
    if !left_out.is_empty() {
        let list = left_out.iter().map(|artifact| format!("{artifact}\n"));
        files.text(LEFT_OUT, list.collect());
    }
    for artifact_id in kept {
        let present = store.as_ref().and_then(|store| {
            let bytes = store.verify(&artifact_id).ok()?;
            Some((store, bytes))
        });
        let Some((store, bytes)) = present else {
            packed.missing += 1;
            continue;
        };
        let redactor = contents.masked_by;
        let redactor = redactor.filter(|_| !images.contains(&artifact_id));
        if let Some(redactor) = redactor
            && let Some((bytes, hash)) = masked_copy(store, &artifact_id, redactor)?
        {
            packed.masked += 1;
            masked_list.push_str(&format!("{artifact_id} sha256:{hash}\n"));
            let name = format!("{MASKED_COPIES}/{}", artifact_id.hex());
            let open = move || -> Result<Source<'_>, PackError> {
                let file = open_artifact(store, &artifact_id)?;
                Ok(Box::new(MaskedReader::new(redactor, file)))
            };
            files.source(name, bytes, hash, Box::new(open));
            continue;
        }
        packed.artifacts += 1;
        // It was hashed again a moment ago, and its name is its hash.
        let hash = artifact_id.hex().to_owned();
        let open = move || -> Result<Source<'_>, PackError> {
            Ok(Box::new(open_artifact(store, &artifact_id)?))
        };
        files.source(format!("artifacts/{hash}"), bytes, hash, Box::new(open));
    }
    if !masked_list.is_empty() {
        files.text(MASKED, masked_list);
    }
    let head = audit.events.saturating_sub(1);
    let is_masked = contents.masked_by.is_some();
    files.text("README.txt", readme(id, head, &packed, is_masked));
    let open = || -> Result<Source<'_>, PackError> {
        Ok(Box::new(session.open_log().map_err(ExportError::from)?))
    };
    files.source("events.jsonl".into(), log_bytes, log_hash, Box::new(open));
    let members = files.with_sums();
    packed.files = members.len() as u64;
    archive::write(id, modified, members, out)?;
    Ok(packed)
}

fn open_artifact(store: &ArtifactStore, artifact_id: &ArtifactId) -> Result<File, PackError> {
    store
        .open(artifact_id)
        .map_err(|source| PackError::Artifact {
            artifact_id: artifact_id.clone(),
            source,
        })
}

/// Names of secrets that were masked when the session was recorded and would not be now.
fn not_masked_again(
    session: &SessionDirectory,
    redactor: &Redactor,
) -> Result<BTreeSet<String>, PackError> {
    let mut rules = BTreeSet::new();
    let mut look = |event: &Event| {
        let Payload::OutputRedacted(masked) = &event.payload else {
            return;
        };
        let again = |placeholder| redactor.masks_again(&masked.rule, placeholder);
        let mut each = masked.placeholders.iter();
        let all = match masked.placeholders.is_empty() {
            true => again(None),
            false => each.all(|placeholder| again(Some(placeholder))),
        };
        if !all {
            rules.insert(masked.rule.clone());
        }
    };
    for item in session.reader().map_err(ExportError::from)? {
        if let Some(event) = item.map_err(ExportError::from)?.event {
            look(&event);
        }
    }
    // What cannot be told is a finding of the audit, which is in the pack.
    let _ = agent_log::fork::inherited(session, &mut look);
    Ok(rules)
}

/// The size and hash of the masked copy of an artifact; nothing when there is nothing to mask.
fn masked_copy(
    store: &ArtifactStore,
    artifact_id: &ArtifactId,
    redactor: &Redactor,
) -> Result<Option<(u64, String)>, PackError> {
    let file = open_artifact(store, artifact_id)?;
    let mut measure = Measure::default();
    io::copy(&mut MaskedReader::new(redactor, file), &mut measure).map_err(PackError::Write)?;
    let (bytes, hash) = measure.finish();
    Ok((hash != artifact_id.hex()).then_some((bytes, hash)))
}

/// Counts and hashes what is written.
#[derive(Default)]
struct Measure {
    bytes: u64,
    hash: Sha256,
}

impl Measure {
    fn finish(self) -> (u64, String) {
        (self.bytes, agent_text::hex(&self.hash.finalize()))
    }
}

impl Write for Measure {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        self.hash.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How long the log is up to its last whole line, and the hash of that part. Whatever is appended
/// later does not change it.
fn measure_log(session: &SessionDirectory) -> Result<(u64, String), PackError> {
    let mut measure = Measure::default();
    export_jsonl(session, &mut measure)?;
    Ok(measure.finish())
}

/// The files of a pack with their hashes.
#[derive(Default)]
struct Files<'a>(Vec<(Member<'a>, String)>);

impl<'a> Files<'a> {
    fn text(&mut self, name: &str, text: String) {
        let hash = agent_text::sha256_hex(text.as_bytes());
        let member = Member {
            name: name.to_owned(),
            bytes: text.len() as u64,
            content: Content::Bytes(text.into_bytes()),
        };
        self.0.push((member, hash));
    }

    fn source(
        &mut self,
        name: String,
        bytes: u64,
        hash: String,
        open: Box<dyn FnOnce() -> Result<Source<'a>, PackError> + 'a>,
    ) {
        let content = Content::Source(open);
        let member = Member {
            name,
            bytes,
            content,
        };
        self.0.push((member, hash));
    }

    /// All of them by name, and last the list of their hashes.
    fn with_sums(mut self) -> Vec<Member<'a>> {
        self.0.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        let lines = self.0.iter();
        let lines = lines.map(|(member, hash)| format!("{hash}  {}\n", member.name));
        let sums: String = lines.collect();
        self.text("SHA256SUMS", sums);
        self.0.into_iter().map(|(member, _)| member).collect()
    }
}

/// The artifacts the log names.
struct Chosen {
    /// Those that go into the pack.
    kept: BTreeSet<ArtifactId>,
    /// Those of them that are images of files, asked for as they are.
    images: BTreeSet<ArtifactId>,
    /// Images that do not go into it.
    left_out: BTreeSet<ArtifactId>,
}

fn chosen(session: &SessionDirectory, with_images: bool) -> Result<Chosen, PackError> {
    let mut kept = BTreeSet::new();
    let mut images = BTreeSet::new();
    let reader = session.reader().map_err(ExportError::from)?;
    for item in reader {
        let Some(event) = item.map_err(ExportError::from)?.event else {
            continue;
        };
        match event.payload {
            Payload::ArtifactChanged(artifact) => {
                let is_image = matches!(artifact.kind, ArtifactKind::Before | ArtifactKind::After);
                let place = if is_image { &mut images } else { &mut kept };
                place.insert(artifact.artifact_id);
            }
            Payload::OutputExpired(expired) => {
                kept.remove(&expired.artifact_id);
                images.remove(&expired.artifact_id);
            }
            _ => {}
        }
    }
    // A fork also has what its history names, as far as it came along.
    if let Ok(store) = session.artifacts() {
        let mut share = |event: &Event| {
            let Payload::ArtifactChanged(artifact) = &event.payload else {
                return;
            };
            let id = &artifact.artifact_id;
            if artifact.kind == ArtifactKind::ModelInput || store.open(id).is_err() {
                return;
            }
            let is_image = matches!(artifact.kind, ArtifactKind::Before | ArtifactKind::After);
            let place = if is_image { &mut images } else { &mut kept };
            place.insert(id.clone());
        };
        // What cannot be told is a finding of the audit, which is in the pack.
        let _ = agent_log::fork::inherited(session, &mut share);
    }
    // The same bytes may be an image and something that is shown.
    let left_out = match with_images {
        true => BTreeSet::new(),
        false => images.difference(&kept).cloned().collect(),
    };
    match with_images {
        true => kept.extend(images.iter().cloned()),
        false => images.clear(),
    }
    Ok(Chosen {
        kept,
        images,
        left_out,
    })
}

fn readme(id: &str, head: u64, packed: &Packed, is_masked: bool) -> String {
    let masked = match (is_masked, packed.masked) {
        (false, _) => {
            "Artifacts are packed as they came: what a command printed is not masked.\n\n"
                .to_owned()
        }
        (true, 0) => {
            "Artifacts were looked through for secrets; none had to be masked.\n\n".to_owned()
        }
        (true, count) => format!(
            "{count} artifacts hold secrets. In their place, masked/ has masked copies under the names\n\
             of the originals; MASKED lists the hash of each original and that of its copy.\n\n"
        ),
    };
    let images = if packed.left_out > 0 {
        format!(
            "{} images of files before and after their changes were left out, because they are\n\
             exact copies; LEFT_OUT lists them, and the audit names them as left out.\n\n",
            packed.left_out
        )
    } else {
        String::new()
    };
    format!(
        "Evidence of session {id}, events 0 to {head}.\n\n\
         events.jsonl   the log, byte by byte: one event per line, each with the hash of the\n\
         \x20              line before it\n\
         artifacts/     what the log names, each file under its SHA-256\n\
         report.json    what was done, decided, verified and spent; no prompt text\n\
         report.md      the same for people\n\
         audit.json     what `agent audit` found when the pack was made\n\
         SHA256SUMS     the hashes of all other files\n\n\
         {images}{masked}\
         To check the pack:\n\n\
         \x20 sha256sum -c SHA256SUMS      nothing was changed since the pack was made\n\
         \x20 agent audit ./               the chain holds, and calls and turns make sense\n\
         \x20 agent replay ./              the story\n\n\
         from inside this directory, which has to keep its name. Without `agent`: the `prev` of\n\
         each line is the SHA-256 of the line before, the first line's that of the session id,\n\
         and an artifact's name is its own.\n\n\
         {BY_HAND}\n\
         What this shows: the lines follow from each other, and the artifacts are those they\n\
         name. What it does not show: that nobody wrote the log anew from some line on, or cut\n\
         its end, before the pack was made. For that, compare the hash of the last line with\n\
         one that was kept elsewhere.\n"
    )
}

/// Follows the chain with what every system has; nothing else is needed to believe the pack.
const BY_HAND: &str = r#"  hash() { sha256sum | cut -c1-64; }
  prev=$(basename "$PWD" | tr -d '\n' | hash)
  while IFS= read -r line; do
    case $line in *"\"prev\":\"sha256:$prev\"}") ;; *) echo "broken: $line"; exit 1 ;; esac
    prev=$(printf %s "$line" | hash)
  done < events.jsonl && echo "chain whole, last line sha256:$prev"
  [ ! -d artifacts ] ||
    (cd artifacts && for file in *; do echo "$file  $file"; done | sha256sum -c --quiet)
"#;
