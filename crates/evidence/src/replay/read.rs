//! Reading a session for replay: the log event by event, and whether it is what was written.

use std::sync::Arc;

use agent_history::Description;
use agent_log::{
    AnchorError, AnchorStore, ArtifactStore, Damage, DamageKind, Head, PlaceError, ReadError,
    SessionDirectory,
};
use agent_protocol::Event;
use agent_protocol::id::SessionId;

use super::entry::Entry;
use super::lineage::{Lineage, parent_of, tell_inherited};
use super::timeline::Timeline;

/// Words of a person or a model that are told from their artifact; more are only named.
const MOST_WORDS: u64 = 1 << 20;
/// How much damage is kept by its place; the rest is counted.
const MOST_DAMAGE: usize = 100;

/// Why a session could not be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Anchor(#[from] AnchorError),
}

/// Which part of a session is shown. What is said about calls, turns and the session is what is
/// known at the last event of it; of the whole log also whether somebody still writes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Range {
    /// The first event that is shown.
    pub from: Option<u64>,
    /// The last event that is read.
    pub to: Option<u64>,
}

/// What following the whole log showed, also beyond the range.
#[derive(Debug, Clone)]
pub struct Integrity {
    pub lines: u64,
    /// The first places, at most a hundred.
    pub damage: Vec<Damage>,
    pub damage_count: u64,
    /// Bytes of an unfinished last line, which was never acknowledged.
    pub torn_bytes: Option<u64>,
    pub anchored: Anchored,
    pub head: Head,
}

/// What the anchor says, which is kept apart from the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchored {
    /// No anchor of this session is kept here.
    Missing,
    /// The log holds what was anchored, up to this event.
    Agrees(u64),
    /// The log was anchored at this event with another content.
    Differs(u64),
    /// The log had reached this event, and ends before it.
    CutOff(u64),
}

impl Integrity {
    /// Whether nothing speaks against the log.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.damage_count == 0
            && !matches!(self.anchored, Anchored::Differs(_) | Anchored::CutOff(_))
    }

    /// The verdict in words.
    #[must_use]
    pub fn in_words(&self) -> String {
        let chain = if self.damage_count == 0 {
            format!("chain intact over {} lines", self.lines)
        } else {
            let places = if self.damage_count == 1 {
                "1 place"
            } else {
                &format!("{} places", self.damage_count)
            };
            format!("chain broken in {places}")
        };
        let anchor = match self.anchored {
            Anchored::Missing => "no anchor here, so a cut-off end would not be noticed".into(),
            Anchored::Agrees(sequence) => format!("anchor agrees up to event {sequence}"),
            Anchored::Differs(sequence) => format!("anchor differs at event {sequence}"),
            Anchored::CutOff(sequence) => {
                format!("the end is cut off: event {sequence} was anchored")
            }
        };
        let torn = match self.torn_bytes {
            Some(bytes) => format!("; an unfinished last line of {bytes} bytes"),
            None => String::new(),
        };
        format!("{chain}; {anchor}{torn}")
    }
}

/// A session that was read and told.
#[derive(Debug)]
pub struct Replayed {
    pub session_id: SessionId,
    pub range: Range,
    /// What was there before its own first event, when that is in the range.
    pub inherited: Option<Inherited>,
    /// The entries of the range, with the events they tell.
    pub entries: Vec<(Entry, Arc<Event>)>,
    /// Everything up to the end of the range.
    pub timeline: Timeline,
    pub integrity: Integrity,
}

/// What a branch has in common with where it came from.
#[derive(Debug)]
pub struct Inherited {
    pub lineage: Lineage,
    /// Numbered on their own: sequences, turns and calls are those of the parent.
    pub entries: Vec<(Entry, Arc<Event>)>,
}

impl Inherited {
    fn read(session: &SessionDirectory) -> Option<Self> {
        let parent = parent_of(session)?;
        let mut entries = Vec::new();
        let told = tell_inherited(session, |entry, event| {
            entries.push((entry, Arc::new(event.clone())));
        });
        let lineage = Lineage { parent, told };
        Some(Self { lineage, entries })
    }
}

/// Reads a session and tells the range of it.
///
/// # Errors
/// When the log cannot be read at all.
pub fn replay(
    session: &SessionDirectory,
    anchors: Option<&AnchorStore>,
    range: Range,
) -> Result<Replayed, ReplayError> {
    let mut entries = Vec::new();
    let (timeline, integrity) = replay_each(session, anchors, range, |entry, event| {
        entries.push((entry, Arc::new(event)));
    })?;
    Ok(Replayed {
        session_id: session.id().clone(),
        range,
        inherited: match range.from {
            None => Inherited::read(session),
            Some(_) => None,
        },
        entries,
        timeline,
        integrity,
    })
}

/// The same for whoever needs one entry at a time.
///
/// # Errors
/// When the log cannot be read at all.
pub fn replay_each(
    session: &SessionDirectory,
    anchors: Option<&AnchorStore>,
    range: Range,
    mut each: impl FnMut(Entry, Event),
) -> Result<(Timeline, Integrity), ReplayError> {
    let anchor = match anchors {
        Some(anchors) => anchors.read(session.id())?,
        None => None,
    };
    // Asked before and after reading: work that ended meanwhile, or began, was nobody's fault.
    let was_held = session.holder().is_some();
    let mut reader = session.reader()?;
    let artifacts = session.artifacts().ok();
    let mut timeline = Timeline::default();
    let mut damage = Vec::new();
    let mut damage_count = 0;
    let mut torn_bytes = None;
    let mut lines = 0;
    let mut anchored = anchor.as_ref().map_or(Anchored::Missing, |anchor| {
        Anchored::CutOff(anchor.sequence)
    });
    while let Some(item) = reader.next() {
        let item = item?;
        lines += 1;
        let mut is_copy = false;
        if let Some(found) = item.damage {
            match found.kind {
                DamageKind::TornTail { bytes } => {
                    torn_bytes = Some(bytes);
                    lines -= 1;
                }
                _ => {
                    is_copy = found.is_copy();
                    damage_count += 1;
                    if damage.len() < MOST_DAMAGE {
                        damage.push(found);
                    }
                }
            }
        }
        let Some(event) = item.event else {
            continue;
        };
        if let Some(anchor) = &anchor
            && anchor.sequence == event.sequence
        {
            anchored = if reader.head().hash == anchor.hash {
                Anchored::Agrees(anchor.sequence)
            } else {
                Anchored::Differs(anchor.sequence)
            };
        }
        if is_copy || range.to.is_some_and(|to| event.sequence > to) {
            continue;
        }
        if range.from.is_some_and(|from| event.sequence < from) {
            timeline.pass(&event);
        } else {
            let mut entry = timeline.take(&event);
            load_text(&mut entry.description, artifacts.as_ref());
            each(entry, event);
        }
    }
    if range.to.is_none() && !was_held && session.holder().is_none() {
        timeline.nobody_writes();
    }
    let integrity = Integrity {
        lines,
        damage,
        damage_count,
        torn_bytes,
        anchored,
        head: reader.head(),
    };
    Ok((timeline, integrity))
}

/// Reads the text that stands in an artifact because it was too long for its event.
pub(super) fn load_text(description: &mut Description, artifacts: Option<&ArtifactStore>) {
    let kept = description.text_ref.as_ref().zip(artifacts);
    if let Some(bytes) = kept.and_then(|(kept, artifacts)| artifacts.read(kept, MOST_WORDS).ok()) {
        description.set_text(String::from_utf8_lossy(&bytes).into_owned());
    }
}
