//! Anchors: how far a log had come, written down where the project cannot reach.
//!
//! The chain shows that no line was changed, removed or moved; only a fact kept elsewhere shows
//! that the end was not cut off. Each session has one small file in user state with the sequence
//! and hash of its last line at the last end of a turn.

use std::path::{Path, PathBuf};

use agent_protocol::id::SessionId;
use serde_json::{Value, json};

use crate::hash::{Hash, from_hex, hex};
use crate::log::reader::Head;
use crate::place::{Place, PlaceError};

/// A point a log had reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    pub session_id: SessionId,
    /// Of the last line.
    pub sequence: u64,
    pub hash: Hash,
    /// Where the session was kept, to tell a deleted log from one that was never here.
    pub directory: PathBuf,
}

impl Anchor {
    /// The anchor of a log that ends at `head`; an empty log has none.
    pub(crate) fn of(session_id: &SessionId, head: Head, directory: &Path) -> Option<Self> {
        Some(Self {
            session_id: session_id.clone(),
            sequence: head.next_sequence.checked_sub(1)?,
            hash: head.hash,
            directory: directory.to_owned(),
        })
    }
}

/// Why an anchor could not be written or read.
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
            "hash": format!("sha256:{}", hex(&anchor.hash)),
            "directory": anchor.directory.to_string_lossy(),
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
    Some(Anchor {
        session_id: value["session_id"].as_str()?.parse().ok()?,
        sequence: value["sequence"].as_u64()?,
        hash: from_hex(value["hash"].as_str()?.strip_prefix("sha256:")?.as_bytes())?,
        directory: value["directory"].as_str()?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
