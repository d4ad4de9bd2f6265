//! A session that is told in pieces: read once for what is known at its end, and again, one event at a
//! time, for the telling. What is held in memory grows with the calls and turns, not with the log.

use std::collections::{BTreeMap, BTreeSet};

use agent_log::{AnchorStore, Damage, SessionDirectory};
use agent_protocol::Event;
use agent_protocol::id::SessionId;

use super::entry::Entry;
use super::lineage::{Lineage, parent_of, tell_inherited};
use super::read::{Integrity, Range, ReplayError, load_text, replay_each};
use super::summary::Summary;
use super::timeline::{Teller, Timeline};
use agent_history::describe::{Kind, Tone};

/// A session as it is known at the end of a range, whose entries are told when they are asked for.
pub struct Streamed<'a> {
    session: &'a SessionDirectory,
    pub range: Range,
    /// Everything up to the end of the range.
    pub timeline: Timeline,
    pub integrity: Integrity,
    pub(super) outline: Outline,
    /// The last event that was read, so that every telling ends where the first did.
    last: Option<u64>,
}

/// The little of all entries that has to be known before the first of them is told.
#[derive(Debug, Default)]
pub(super) struct Outline {
    pub(super) kinds: BTreeMap<Kind, u64>,
    /// By the number of the call.
    pub(super) calls: BTreeMap<u64, CallOutline>,
}

/// The entries of one call.
#[derive(Debug, Default)]
pub(super) struct CallOutline {
    pub(super) sequences: Vec<u64>,
    pub(super) kinds: BTreeSet<Kind>,
    /// How each verification in it struck the eye.
    pub(super) evidence: Vec<Tone>,
}

impl Outline {
    fn take(&mut self, entry: &Entry) {
        *self.kinds.entry(entry.description.kind).or_default() += 1;
        let Some(number) = entry.call else {
            return;
        };
        let call = self.calls.entry(number).or_default();
        call.sequences.push(entry.sequence);
        call.kinds.insert(entry.description.kind);
        if entry.description.kind == Kind::Evidence {
            call.evidence.push(entry.description.tone);
        }
    }
}

impl<'a> Streamed<'a> {
    /// Reads a session once.
    ///
    /// # Errors
    /// When the log cannot be read at all.
    pub fn read(
        session: &'a SessionDirectory,
        anchors: Option<&AnchorStore>,
        range: Range,
    ) -> Result<Self, ReplayError> {
        let mut outline = Outline::default();
        let mut last = None;
        let (timeline, integrity) = replay_each(session, anchors, range, |entry, event| {
            outline.take(&entry);
            last = Some(event.sequence);
        })?;
        Ok(Self {
            session,
            range,
            timeline,
            integrity,
            outline,
            last,
        })
    }

    pub(super) fn session_id(&self) -> &SessionId {
        self.session.id()
    }

    pub(super) fn summary(&self) -> Summary {
        self.timeline.summary()
    }

    /// Tells the entries of the range, the oldest first.
    ///
    /// # Errors
    /// When the log cannot be read any more.
    pub fn each(&self, mut each: impl FnMut(Entry, Event)) -> Result<(), ReplayError> {
        let Some(last) = self.last else {
            return Ok(());
        };
        let artifacts = self.session.artifacts().ok();
        let mut teller = Teller::default();
        for item in self.session.reader()? {
            let item = item?;
            let is_copy = item.damage.as_ref().is_some_and(Damage::is_copy);
            let Some(event) = item
                .event
                .filter(|event| !is_copy && event.sequence <= last)
            else {
                continue;
            };
            if self.range.from.is_some_and(|from| event.sequence < from) {
                teller.pass(&event);
            } else {
                let mut entry = teller.tell(&event);
                load_text(&mut entry.description, artifacts.as_ref());
                each(entry, event);
            }
        }
        Ok(())
    }

    /// What a branch has in common with where it came from, when its beginning is in the range.
    pub(super) fn lineage(&self) -> Option<Lineage> {
        if self.range.from.is_some() {
            return None;
        }
        let parent = parent_of(self.session)?;
        let told = tell_inherited(self.session, |_, _| {});
        Some(Lineage { parent, told })
    }

    /// Tells what was inherited. Numbered on its own: sequences, turns and calls are the parent's.
    pub(super) fn each_inherited(&self, each: impl FnMut(Entry, &Event)) {
        // Why it cannot be told is in the lineage.
        let _ = tell_inherited(self.session, each);
    }
}
