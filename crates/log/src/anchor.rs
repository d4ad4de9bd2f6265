//! Anchors: how far a log had come, written down where the project cannot reach.
//!
//! The chain shows that no line was changed, removed or moved; only a fact kept elsewhere shows
//! that the end was not cut off. Each session has one small file in user state with the sequence
//! and hash of its last line at the last end of a turn, question or answer, and with the ranges of
//! events that this installation wrote. A log that came with a repository can claim answers of its
//! reader; an answer counts only where these ranges hold it.

use std::path::{Path, PathBuf};

use agent_protocol::id::SessionId;
use serde_json::{Value, json};

use crate::hash::Hash;
use crate::place::{Place, PlaceError};
use crate::reader::Head;

/// A point a log had reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    pub session_id: SessionId,
    /// Of the last line.
    pub sequence: u64,
    pub hash: Hash,
    /// The session's directory, to tell a deleted log from one that was never here.
    pub directory: PathBuf,
    pub own: OwnEvents,
}

impl Anchor {
    /// The anchor of a log that ends at `head`; an empty log has none. `own` is what this
    /// installation wrote before this run, which began at `since`.
    pub(crate) fn of(
        session_id: &SessionId,
        head: Head,
        directory: &Path,
        own: &OwnEvents,
        since: u64,
    ) -> Option<Self> {
        let sequence = head.next_sequence.checked_sub(1)?;
        Some(Self {
            session_id: session_id.clone(),
            sequence,
            hash: head.hash,
            directory: directory.to_owned(),
            own: own.with(since, sequence),
        })
    }
}

/// The events of a log that this installation wrote, as inclusive ranges of sequences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnEvents(Vec<(u64, u64)>);

impl OwnEvents {
    /// True if this installation wrote the event with this sequence.
    #[must_use]
    pub fn contains(&self, sequence: u64) -> bool {
        self.0
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&sequence))
    }

    /// These events and those from `first` to `last`, which come after all of them.
    #[must_use]
    fn with(&self, first: u64, last: u64) -> Self {
        let mut ranges = self.0.clone();
        match ranges.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ if first <= last => ranges.push((first, last)),
            _ => {}
        }
        Self(ranges)
    }
}

/// Reason an anchor could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum AnchorError {
    #[error("cannot use the anchors in user state")]
    Place(#[from] PlaceError),
    #[error("the anchor `{path}` is not readable as one")]
    Malformed { path: PathBuf },
}

/// The directory in user state that holds the anchors.
#[derive(Debug, Clone)]
pub struct AnchorStore {
    directory: PathBuf,
}

impl AnchorStore {
    /// Anchors are kept in `anchors/` below `state_directory`, which is made when first needed.
    #[must_use]
    pub fn new(state_directory: &Path) -> Self {
        Self {
            directory: state_directory.join("anchors"),
        }
    }

    /// Writes the anchor in place of the one before.
    ///
    /// # Errors
    /// When it could not be written; the one before then still stands.
    pub fn write(&self, anchor: &Anchor) -> Result<(), AnchorError> {
        let place = match Place::open(&self.directory) {
            Ok(place) => place,
            Err(error) if error.is_not_found() => {
                // What leads to user state belongs to the user; only the last step is ours.
                let parent = self.directory.parent().unwrap_or(&self.directory);
                std::fs::create_dir_all(parent).map_err(|source| PlaceError::Io {
                    operation: "create",
                    path: parent.to_owned(),
                    source,
                })?;
                Place::open_or_create(&self.directory)?
            }
            Err(error) => return Err(error.into()),
        };
        let text = json!({
            "session_id": anchor.session_id.as_str(),
            "sequence": anchor.sequence,
            "hash": format!("sha256:{}", agent_text::hex(&anchor.hash)),
            "directory": anchor.directory.to_string_lossy(),
            "own": anchor.own.0,
        })
        .to_string();
        place.replace_file(&file_name(&anchor.session_id), text.as_bytes())?;
        Ok(())
    }

    /// The anchor of a session, if it has one.
    ///
    /// # Errors
    /// When there is one that cannot be read.
    pub fn read(&self, session_id: &SessionId) -> Result<Option<Anchor>, AnchorError> {
        use std::io::Read as _;
        let name = file_name(session_id);
        let path = self.directory.join(&name);
        let opened = Place::open(&self.directory).and_then(|place| place.read(&name));
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut text = String::new();
        let malformed = || AnchorError::Malformed { path: path.clone() };
        file.take(64 * 1024)
            .read_to_string(&mut text)
            .map_err(|_| malformed())?;
        parse(&text)
            .filter(|anchor| anchor.session_id == *session_id)
            .map(Some)
            .ok_or_else(malformed)
    }

    /// The ids of all sessions that have an anchor, sorted.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn session_ids(&self) -> Result<Vec<SessionId>, AnchorError> {
        let place = match Place::open(&self.directory) {
            Ok(place) => place,
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut ids: Vec<SessionId> = place
            .entries()?
            .iter()
            .filter_map(|entry| entry.name.strip_suffix(".json")?.parse().ok())
            .collect();
        ids.sort();
        Ok(ids)
    }
}

fn file_name(session_id: &SessionId) -> String {
    format!("{session_id}.json")
}

fn parse(text: &str) -> Option<Anchor> {
    let value: Value = serde_json::from_str(text).ok()?;
    let sequence = value["sequence"].as_u64()?;
    let own = match value.get("own") {
        Some(ranges) => OwnEvents(serde_json::from_value(ranges.clone()).ok()?),
        // Anchors of earlier versions did not tell whose events they were.
        None => OwnEvents::default(),
    };
    Some(Anchor {
        session_id: value["session_id"].as_str()?.parse().ok()?,
        sequence,
        hash: agent_text::hex::from_hex(
            value["hash"].as_str()?.strip_prefix("sha256:")?.as_bytes(),
        )?,
        directory: value["directory"].as_str()?.into(),
        own,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_events_grow_and_keep_their_gaps() {
        let own = OwnEvents::default().with(0, 4).with(5, 9).with(20, 21);
        assert_eq!(own, OwnEvents(vec![(0, 9), (20, 21)]));
        assert_eq!(own.with(22, 21), own, "nothing was added yet");
        for (sequence, expected) in [(0, true), (9, true), (10, false), (19, false), (21, true)] {
            assert_eq!(own.contains(sequence), expected, "{sequence}");
        }
    }

    #[test]
    fn an_anchor_is_found_again() {
        let state = tempfile::tempdir().unwrap();
        let store = AnchorStore::new(&state.path().join("not/yet/there"));
        let id: SessionId = "ses_1".parse().unwrap();
        assert!(store.read(&id).unwrap().is_none());
        let anchor = Anchor {
            session_id: id.clone(),
            sequence: 7,
            hash: [3; 32],
            directory: "/somewhere".into(),
            own: OwnEvents(vec![(0, 3), (6, 7)]),
        };
        store.write(&anchor).unwrap();
        store.write(&anchor).unwrap();
        assert_eq!(store.read(&id).unwrap(), Some(anchor));
        assert_eq!(store.session_ids().unwrap(), vec![id.clone()]);
        let path = state.path().join("not/yet/there/anchors/ses_1.json");
        std::fs::write(path, "{}").unwrap();
        assert!(matches!(
            store.read(&id),
            Err(AnchorError::Malformed { .. })
        ));
    }
}
