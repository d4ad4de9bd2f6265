//! Reading a log: in a stream, tolerant of what is newer, exact about what is damaged.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use agent_protocol::id::SessionId;
use agent_protocol::{Event, LineError, Payload, SCHEMA_VERSION, UnknownReason};

use crate::hash::{Hash, hash_of, named};
use crate::line::{Line, Lines, Link, link_of};

/// The log could not be read at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the event log `{path}`")]
pub struct ReadError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// A place where the log is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Counts from 1.
    pub line: u64,
    /// Of the first byte of that line.
    pub offset: u64,
    /// The line's own sequence, where that can be read.
    pub sequence: Option<u64>,
    pub kind: DamageKind,
}

impl Damage {
    /// True if the line repeats an earlier one.
    pub fn is_copy(&self) -> bool {
        matches!(self.kind, DamageKind::RepeatedSequence { .. })
    }
}

/// Kind of damage at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DamageKind {
    /// The line does not follow from the one before it.
    BadHash {
        expected: String,
        found: String,
    },
    /// Lines are missing before this one, or it was moved forwards.
    MissingSequence {
        expected: u64,
        found: u64,
    },
    /// The line is a copy of an earlier one.
    RepeatedSequence {
        expected: u64,
        found: u64,
    },
    /// The line was moved backwards.
    OutOfOrder {
        expected: u64,
        found: u64,
    },
    /// The event belongs to another session.
    OtherSession {
        found: String,
    },
    NotUtf8 {
        at: u64,
    },
    /// A NUL byte, which is never written.
    Nul {
        at: u64,
    },
    /// Not JSON, or without what every event has.
    NotAnEvent {
        message: String,
    },
    /// Longer than a line may be.
    Oversized {
        bytes: u64,
    },
    /// The last line has no end: it was being written when the writer died.
    TornTail {
        bytes: u64,
    },
}

impl DamageKind {
    /// A stable word for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::BadHash { .. } => "bad_hash",
            Self::MissingSequence { .. } => "missing_sequence",
            Self::RepeatedSequence { .. } => "repeated_sequence",
            Self::OutOfOrder { .. } => "out_of_order",
            Self::OtherSession { .. } => "other_session",
            Self::NotUtf8 { .. } => "not_utf8",
            Self::Nul { .. } => "nul_byte",
            Self::NotAnEvent { .. } => "not_an_event",
            Self::Oversized { .. } => "oversized_line",
            Self::TornTail { .. } => "torn_tail",
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} (byte {}): ", self.line, self.offset)?;
        match &self.kind {
            DamageKind::BadHash { expected, found } => write!(
                f,
                "it was written after a line with the hash {found}, but the line before it has {expected}: one of the two was changed"
            ),
            DamageKind::MissingSequence { expected, found } => {
                write!(
                    f,
                    "sequence {found} where {expected} belongs: lines are missing or moved"
                )
            }
            DamageKind::RepeatedSequence { expected, found } => {
                write!(
                    f,
                    "sequence {found} where {expected} belongs: the line is repeated"
                )
            }
            DamageKind::OutOfOrder { expected, found } => {
                write!(
                    f,
                    "sequence {found} where {expected} belongs: lines are swapped"
                )
            }
            DamageKind::OtherSession { found } => {
                write!(f, "the event belongs to another session, {found}")
            }
            DamageKind::NotUtf8 { at } => write!(f, "not UTF-8 from byte {at} on"),
            DamageKind::Nul { at } => write!(f, "a NUL at byte {at}"),
            DamageKind::NotAnEvent { message } => write!(f, "not an event: {message}"),
            DamageKind::Oversized { bytes } => {
                write!(f, "the line has {bytes} bytes, more than a line may have")
            }
            DamageKind::TornTail { bytes } => write!(
                f,
                "the last line is cut short after {bytes} bytes; it was never acknowledged"
            ),
        }
    }
}

/// End of a log: what the next line has to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The sequence the next event gets; also the number of events.
    pub next_sequence: u64,
    /// The hash of the last line, or of the session id while there is none.
    pub hash: Hash,
    /// Bytes up to here.
    pub bytes: u64,
}

impl Head {
    /// The head of a log without a line.
    #[must_use]
    pub fn start(session_id: &SessionId) -> Self {
        Self {
            next_sequence: 0,
            hash: hash_of(session_id.as_str().as_bytes()),
            bytes: 0,
        }
    }

    /// The hash as the next line's `prev` writes it.
    #[must_use]
    pub fn prev(&self) -> String {
        named(&self.hash)
    }
}

/// Follows the chain line by line.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    head: Head,
    /// The hashes of the latest lines, to tell a repeated line from a swapped one.
    latest: [Hash; Chain::REMEMBERED],
    position: usize,
}

impl Chain {
    const REMEMBERED: usize = 64;

    pub(crate) fn new(head: Head) -> Self {
        Self {
            head,
            latest: [[0; 32]; Self::REMEMBERED],
            position: 0,
        }
    }

    pub(crate) fn head(&self) -> Head {
        self.head
    }

    /// Takes the next line; says what is wrong with its place, if anything is.
    pub(crate) fn follow(&mut self, line: &Line<'_>) -> Option<Damage> {
        let damage = |sequence, kind| Damage {
            line: line.number,
            offset: line.offset,
            sequence,
            kind,
        };
        let hash = line.hash();
        let found = match line.text() {
            None => Some(damage(None, DamageKind::Oversized { bytes: line.length })),
            Some(_) if !line.is_terminated => {
                return Some(damage(None, DamageKind::TornTail { bytes: line.length }));
            }
            Some(text) => match check_text(text) {
                Err(kind) => Some(damage(link_of(text).map(|link| link.sequence), kind)),
                Ok(link) => self
                    .compare(link, &hash)
                    .map(|kind| damage(Some(link.sequence), kind)),
            },
        };
        if let Some(Damage {
            kind: DamageKind::RepeatedSequence { .. },
            ..
        }) = found
        {
            // A copy adds nothing; the original stays the head.
            self.head.bytes = line.end();
            return found;
        }
        self.position = (self.position + 1) % Self::REMEMBERED;
        self.latest[self.position] = hash;
        self.head = Head {
            next_sequence: found
                .as_ref()
                .and_then(|damage| damage.sequence)
                .unwrap_or(self.head.next_sequence)
                .saturating_add(1),
            hash,
            bytes: line.end(),
        };
        found
    }

    fn compare(&self, link: Link, hash: &Hash) -> Option<DamageKind> {
        let (expected, found) = (self.head.next_sequence, link.sequence);
        if found == expected {
            return (link.prev != self.head.hash).then(|| DamageKind::BadHash {
                expected: named(&self.head.hash),
                found: named(&link.prev),
            });
        }
        Some(if found > expected {
            DamageKind::MissingSequence { expected, found }
        } else if self.latest.contains(hash) {
            DamageKind::RepeatedSequence { expected, found }
        } else {
            DamageKind::OutOfOrder { expected, found }
        })
    }
}

fn check_text(text: &[u8]) -> Result<Link, DamageKind> {
    if let Some(at) = memchr::memchr(0, text) {
        return Err(DamageKind::Nul { at: at as u64 });
    }
    if let Err(error) = std::str::from_utf8(text) {
        return Err(DamageKind::NotUtf8 {
            at: error.valid_up_to() as u64,
        });
    }
    link_of(text).ok_or_else(|| DamageKind::NotAnEvent {
        message: "it has no sequence or no hash of the line before".into(),
    })
}

/// Result of following the whole chain.
#[derive(Debug, Clone)]
pub struct ChainReport {
    pub head: Head,
    /// The first places, at most [`ChainReport::MOST`] of them.
    pub damage: Vec<Damage>,
    /// Number of places in all.
    pub damage_count: u64,
}

impl ChainReport {
    /// Limit of places that are kept.
    pub const MOST: usize = 1000;
}

/// Follows the chain of a whole log without parsing its events.
///
/// # Errors
/// When the log cannot be read.
pub fn verify_chain(log: impl Read, session_id: &SessionId) -> io::Result<ChainReport> {
    let mut lines = Lines::new(log);
    let mut chain = Chain::new(Head::start(session_id));
    let mut report = ChainReport {
        head: chain.head(),
        damage: Vec::new(),
        damage_count: 0,
    };
    while let Some(line) = lines.next_line()? {
        if let Some(damage) = chain.follow(&line) {
            report.damage_count += 1;
            if report.damage.len() < ChainReport::MOST {
                report.damage.push(damage);
            }
        }
    }
    report.head = chain.head();
    Ok(report)
}

/// One line of a log as far as it could be understood.
#[derive(Debug, Clone, PartialEq)]
pub struct LogItem {
    /// Counts from 1.
    pub line_number: u64,
    /// Of the line's first byte.
    pub offset: u64,
    /// The exact bytes without the newline; empty when the line is oversized.
    pub line: Vec<u8>,
    /// Missing when the line is not an event.
    pub event: Option<Event>,
    pub damage: Option<Damage>,
}

/// Reads a log event by event with memory that does not depend on its size.
pub struct LogReader<R = File> {
    lines: Lines<R>,
    chain: Chain,
    session_id: SessionId,
    path: PathBuf,
    notes: Option<Notes>,
    stopped: bool,
}

impl<R: Read> LogReader<R> {
    /// Reads the log of `session_id`; `path` is only named in errors.
    pub fn new(source: R, session_id: SessionId, path: PathBuf) -> Self {
        Self {
            lines: Lines::new(source),
            chain: Chain::new(Head::start(&session_id)),
            session_id,
            path,
            notes: None,
            stopped: false,
        }
    }

    /// Reads on from a place that was verified before; `source` has to stand at `head.bytes`.
    pub fn continuing(source: R, session_id: SessionId, path: PathBuf, head: Head) -> Self {
        Self {
            lines: Lines::continuing(source, head.next_sequence, head.bytes),
            chain: Chain::new(head),
            session_id,
            path,
            notes: None,
            stopped: false,
        }
    }

    /// Also notes the fields this version does not know, which makes reading slower.
    #[must_use]
    pub fn noting(mut self) -> Self {
        self.notes = Some(Notes::default());
        self
    }

    /// Classes, fields and shapes not understood so far; empty unless [`LogReader::noting`].
    pub fn notes(&self) -> Notes {
        self.notes.clone().unwrap_or_default()
    }

    /// End of the lines read so far.
    pub fn head(&self) -> Head {
        self.chain.head()
    }

    fn read_item(&mut self) -> io::Result<Option<LogItem>> {
        let Some(line) = self.lines.next_line()? else {
            return Ok(None);
        };
        let mut damage = self.chain.follow(&line);
        let torn = !line.is_terminated;
        let mut event = None;
        if let (Some(text), false) = (line.text(), torn) {
            let read = match &mut self.notes {
                None => Event::from_line(text),
                Some(notes) => Event::from_line_noting(text).map(|(event, fields)| {
                    notes.take(&event, &fields);
                    event
                }),
            };
            match read {
                Ok(read) => {
                    if read.session_id != self.session_id && damage.is_none() {
                        damage = Some(Damage {
                            line: line.number,
                            offset: line.offset,
                            sequence: Some(read.sequence),
                            kind: DamageKind::OtherSession {
                                found: read.session_id.to_string(),
                            },
                        });
                    }
                    event = Some(read);
                }
                Err(error) if damage.is_none() => {
                    damage = Some(Damage {
                        line: line.number,
                        offset: line.offset,
                        sequence: link_of(text).map(|link| link.sequence),
                        kind: kind_of(&error),
                    });
                }
                Err(_) => {}
            }
        }
        Ok(Some(LogItem {
            line_number: line.number,
            offset: line.offset,
            line: line.text().map(<[u8]>::to_vec).unwrap_or_default(),
            event,
            damage,
        }))
    }
}

fn kind_of(error: &LineError) -> DamageKind {
    match error {
        LineError::NotUtf8 { valid_up_to } => DamageKind::NotUtf8 {
            at: *valid_up_to as u64,
        },
        LineError::NotAnEvent { source } | LineError::Unwritable { source } => {
            DamageKind::NotAnEvent {
                message: source.to_string(),
            }
        }
    }
}

impl<R: Read> Iterator for LogReader<R> {
    type Item = Result<LogItem, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.stopped {
            return None;
        }
        match self.read_item() {
            Ok(item) => item.map(Ok),
            Err(source) => {
                self.stopped = true;
                let path = self.path.clone();
                Some(Err(ReadError { path, source }))
            }
        }
    }
}

/// Content that a reader did not understand, and kept or passed over: a newer version may have
/// written it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// Count of each unknown class.
    pub unknown_types: BTreeMap<String, u64>,
    /// Count of each unknown field, as `type: path`.
    pub unknown_fields: BTreeMap<String, u64>,
    /// Count of payloads of a known class in another shape, with an example.
    pub unknown_shapes: BTreeMap<String, (u64, String)>,
    /// Number of lines of each other schema version.
    pub other_versions: BTreeMap<String, u64>,
}

impl Notes {
    /// A hostile log could hold endless kinds of unknown things; the first ones tell enough.
    const MOST: usize = 200;

    /// True if everything was understood.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn take(&mut self, event: &Event, fields: &[String]) {
        if let Payload::Unknown(unknown) = &event.payload {
            match &unknown.reason {
                UnknownReason::Type => count(&mut self.unknown_types, &unknown.type_name),
                UnknownReason::Shape(message) => {
                    let known = self.unknown_shapes.contains_key(&unknown.type_name);
                    if known || self.unknown_shapes.len() < Self::MOST {
                        self.unknown_shapes
                            .entry(unknown.type_name.clone())
                            .or_insert_with(|| (0, message.clone()))
                            .0 += 1;
                    }
                }
            }
        }
        if event.schema_version != SCHEMA_VERSION {
            count(&mut self.other_versions, &event.schema_version);
        }
        for field in fields {
            let name = format!("{}: {field}", event.payload.type_name());
            count(&mut self.unknown_fields, &name);
        }
    }
}

fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    if let Some(number) = counts.get_mut(name) {
        *number += 1;
    } else if counts.len() < Notes::MOST {
        counts.insert(name.to_owned(), 1);
    }
}
