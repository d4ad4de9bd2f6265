//! The session's log as the tool runtime sees it.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use agent_log::SessionWriter;
use agent_protocol::id::{ArtifactId, EvidenceId, IdMint, ToolCallId};
use agent_protocol::payload::ArtifactRef;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::tool::ToolData;
use agent_protocol::{Event, Payload, Refs, Scope, Timestamp};
use agent_tool_runtime::{ArtifactWriter, Journal, JournalError, Recorded, Unrevealed};

/// Writes the facts of tool calls into a session.
pub struct SessionJournal {
    writer: SessionWriter,
    mint: Arc<IdMint>,
    images: Mutex<Images>,
    checks: Option<Checks>,
}

/// Counts the verification records that a command with this result will have.
pub type CountChecks = Box<dyn Fn(&str, &ToolData) -> usize + Send + Sync>;

/// Names the verification records of a call in its result, before they are written.
struct Checks {
    count: CountChecks,
    /// Commands that have not ended.
    commands: Mutex<HashMap<ToolCallId, String>>,
}

impl Checks {
    fn name(&self, scope: &Scope, payload: &mut Payload, mint: &IdMint) {
        let Some(call) = &scope.tool_call_id else {
            return;
        };
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        match payload {
            Payload::ToolArgs(args) => {
                let command = args.safe_args.as_ref();
                let command = command.and_then(|args| args.get("command")?.as_str());
                if let Some(command) = command {
                    commands.insert(call.clone(), command.to_owned());
                }
            }
            Payload::ToolResult(result) => {
                if let Some(command) = commands.remove(call) {
                    let ids = (0..(self.count)(&command, &result.data))
                        .map(|_| mint.mint::<EvidenceId>().to_string());
                    result.evidence_refs.extend(ids);
                }
            }
            Payload::ToolFailed(_) => drop(commands.remove(call)),
            _ => {}
        }
    }
}

/// Which artifacts are images of files, as far as the log was looked at.
#[derive(Default)]
struct Images {
    /// Bytes of the log.
    looked_at: u64,
    /// Whether each is also something else.
    known: BTreeMap<ArtifactId, bool>,
}

impl Images {
    /// Takes in whole lines of a log; gives back how many bytes they had. What a fork goes on from is
    /// an artifact with the lines of its parent.
    fn take(
        &mut self,
        mut log: impl BufRead,
        open: &dyn Fn(&ArtifactId) -> io::Result<File>,
    ) -> io::Result<u64> {
        let mut taken = 0;
        let mut line = Vec::new();
        loop {
            line.clear();
            let count = log.read_until(b'\n', &mut line)?;
            if !line.ends_with(b"\n") {
                return Ok(taken);
            }
            taken += count as u64;
            // Most lines are about something else and need not be parsed.
            if !line.starts_with(br#"{"type":"artifact.changed""#) {
                continue;
            }
            let event = Event::from_line(line.trim_ascii_end()).ok();
            let Some(Payload::ArtifactChanged(changed)) = event.map(|event| event.payload) else {
                continue;
            };
            if changed.producer_ref.as_deref() == Some("history") {
                self.take(BufReader::new(open(&changed.artifact_id)?), open)?;
            }
            let is_image = matches!(changed.kind, ArtifactKind::Before | ArtifactKind::After);
            if is_image {
                self.known.entry(changed.artifact_id).or_insert(false);
            } else {
                self.known.insert(changed.artifact_id, true);
            }
        }
    }
}

impl SessionJournal {
    /// `mint` is the one the session was opened with.
    #[must_use]
    pub fn new(writer: SessionWriter, mint: Arc<IdMint>) -> Self {
        Self {
            writer,
            mint,
            images: Mutex::default(),
            checks: None,
        }
    }

    /// The same with a way to know which calls verify something: their results then name the records
    /// of it.
    #[must_use]
    pub fn naming_checks(mut self, count: CountChecks) -> Self {
        let commands = Mutex::default();
        self.checks = Some(Checks { count, commands });
        self
    }
}

/// Larger artifacts are not looked through for a secret.
const LARGEST_SOURCE: u64 = 16 << 20;
/// Nor more than this together.
const MOST_SOURCES: u64 = 256 << 20;

impl SessionJournal {
    /// The artifacts of the session, the latest first, each read when its turn comes.
    fn readable_artifacts(&self) -> impl Iterator<Item = Vec<u8>> {
        let store = self.writer.artifacts().clone();
        let mut left = MOST_SOURCES;
        // Nothing is listed before the first is asked for.
        std::iter::once_with(move || {
            let mut files = store.list().unwrap_or_default();
            files.sort_by_key(|file| std::cmp::Reverse(file.modified_millis));
            files.into_iter().filter_map(move |file| {
                if file.bytes > LARGEST_SOURCE.min(left) {
                    return None;
                }
                left -= file.bytes;
                store.read(&file.artifact_id, LARGEST_SOURCE).ok()
            })
        })
        .flatten()
    }
}

impl Journal for SessionJournal {
    fn append(
        &self,
        scope: &Scope,
        mut payload: Payload,
        refs: Refs,
    ) -> Result<Recorded, JournalError> {
        if let Some(checks) = &self.checks {
            checks.name(scope, &mut payload, &self.mint);
        }
        let recorded = self
            .writer
            .append(scope, payload, refs)
            .map_err(|error| JournalError::new("record a step of a tool call", error))?;
        Ok(Recorded {
            event_id: recorded.event_id,
            sequence: recorded.sequence,
            payload: recorded.payload,
        })
    }

    fn sync(&self) -> Result<(), JournalError> {
        self.writer
            .sync()
            .map_err(|error| JournalError::new("make the steps of a tool call safe", error))
    }

    fn gather(&self) -> Box<dyn Send> {
        Box::new(self.writer.gather())
    }

    fn put_artifact(
        &self,
        scope: &Scope,
        kind: ArtifactKind,
        media_type: &str,
        bytes: &[u8],
        producer: &str,
    ) -> Result<ArtifactRef, JournalError> {
        // Text that was too long for its event is masked as it would have been in there. Diffs are
        // shown to people; images of files are exact, because undo needs them.
        let is_text = matches!(
            kind,
            ArtifactKind::UserInput | ArtifactKind::ModelOutput | ArtifactKind::Summary
        ) && media_type.starts_with("text/");
        let masked = match std::str::from_utf8(bytes) {
            Ok(text) if is_text || kind == ArtifactKind::Diff => {
                Some(self.writer.redactor().mask(text))
            }
            _ => None,
        };
        let bytes = masked.as_deref().map_or(bytes, str::as_bytes);
        self.writer
            .put_artifact(
                scope,
                kind,
                media_type,
                bytes,
                (!producer.is_empty()).then(|| producer.to_owned()),
            )
            .map_err(|error| JournalError::new(format!("keep a {kind} artifact"), error))
    }

    fn artifact_writer(
        &self,
        scope: &Scope,
        kind: ArtifactKind,
        media_type: &str,
        producer: &str,
    ) -> Result<Box<dyn ArtifactWriter>, JournalError> {
        let file = self
            .writer
            .artifact_writer()
            .map_err(|error| JournalError::new(format!("start a {kind} artifact"), error))?;
        Ok(Box::new(Streamed {
            writer: self.writer.clone(),
            scope: scope.clone(),
            kind,
            media_type: media_type.to_owned(),
            producer: producer.to_owned(),
            file: BufWriter::new(file),
        }))
    }

    fn open_artifact(&self, id: &ArtifactId) -> Result<File, JournalError> {
        self.writer
            .artifacts()
            .open(id)
            .map_err(|error| JournalError::new(format!("open the artifact {id}"), error))
    }

    fn may_be_shown(&self, id: &ArtifactId) -> Result<bool, JournalError> {
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        let open = |id: &ArtifactId| self.writer.artifacts().open(id).map_err(io::Error::other);
        let mut look = || -> io::Result<()> {
            let mut log = File::open(self.writer.log_path())?;
            log.seek(SeekFrom::Start(images.looked_at))?;
            images.looked_at += images.take(BufReader::new(log), &open)?;
            Ok(())
        };
        look().map_err(|error| JournalError::new("look an artifact up in the log", error))?;
        Ok(images.known.get(id).copied().unwrap_or(false))
    }

    fn reveal(
        &self,
        text: &str,
        literal: &[u8],
        sources: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<Option<String>, Unrevealed> {
        let mut sources = sources.chain(self.readable_artifacts());
        let revealed = self.writer.redactor().resolve(text, literal, &mut sources);
        revealed.map_err(|unresolved| Unrevealed {
            placeholder: unresolved.placeholder,
        })
    }

    fn placeholder_in<'a>(&self, text: &'a str) -> Option<&'a str> {
        let first = agent_log::placeholders(text).into_iter().next()?;
        Some(&text[first])
    }

    fn secrets(&self, bytes: &[u8]) -> Vec<(Range<usize>, String)> {
        let secrets = self.writer.redactor().secrets_in(bytes).into_iter();
        secrets
            .map(|secret| (secret.range, secret.placeholder))
            .collect()
    }

    fn mask(&self, text: &str) -> String {
        self.writer.redactor().mask(text).into_owned()
    }

    fn now(&self) -> Timestamp {
        self.writer.now()
    }

    fn ids(&self) -> &IdMint {
        &self.mint
    }
}

/// An artifact whose bytes come bit by bit. Small pieces are gathered before they are written.
struct Streamed {
    writer: SessionWriter,
    scope: Scope,
    kind: ArtifactKind,
    media_type: String,
    producer: String,
    file: BufWriter<agent_log::ArtifactWriter>,
}

impl Write for Streamed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl ArtifactWriter for Streamed {
    fn finish(self: Box<Self>) -> Result<ArtifactRef, JournalError> {
        let kind = self.kind;
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            JournalError::new(format!("complete a {kind} artifact"), error)
        };
        let file = self
            .file
            .into_inner()
            .map_err(|error| failed(error.into_error().into()))?;
        let stored = file.finish().map_err(|error| failed(error.into()))?;
        let producer = Some(self.producer);
        self.writer
            .record_artifact(&self.scope, &stored, kind, &self.media_type, producer)
            .map_err(|error| JournalError::new(format!("record a {kind} artifact"), error))
    }
}

/// The bytes of an artifact, as far as a text of the conversation goes.
pub(crate) fn read_artifact(journal: &dyn Journal, id: &ArtifactId) -> Option<Vec<u8>> {
    /// More than any text the conversation holds; an artifact beyond it was not written by us.
    const LIMIT: u64 = 64 << 20;
    let mut bytes = Vec::new();
    journal
        .open_artifact(id)
        .ok()?
        .take(LIMIT)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(bytes)
}
