//! Evidence by its hash: whole outputs, diffs, images of files, model inputs.
//!
//! An artifact is written whole under a temporary name and then given the name that is the hash of its
//! bytes, so that whoever finds the name finds all of it; the same bytes are kept once. The disk is not
//! waited for: it is told to begin, and the next sync of the log waits for all artifacts stored since
//! the one before, and only then for the lines that name them. Most file systems need one trip to the
//! disk for all of that. After a power cut before the sync, a name may be there without its bytes; an
//! event that names it was promised to nobody, and storing the same bytes again replaces it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use agent_protocol::id::ArtifactId;
use rustix::fs::Advice;
use sha2::{Digest, Sha256};

use crate::place::{Place, PlaceError};

/// The directory of a session that holds its artifacts.
pub(crate) const ARTIFACTS: &str = "artifacts";

const STAGED_PREFIX: &str = ".staged-";
const COPY_BYTES: usize = 128 * 1024;

/// Reason an artifact could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error("artifact {artifact_id} is missing: `{path}` is not there")]
    Missing {
        artifact_id: ArtifactId,
        path: PathBuf,
    },
    #[error("artifact {artifact_id} was altered: its bytes now have the hash {found}")]
    Altered {
        artifact_id: ArtifactId,
        found: ArtifactId,
    },
    #[error("artifact {artifact_id} has {bytes} bytes, more than the {limit} asked for at once")]
    TooLarge {
        artifact_id: ArtifactId,
        bytes: u64,
        limit: u64,
    },
    #[error("cannot write an artifact in `{path}`; no event names it, nothing was lost")]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read artifact {artifact_id}")]
    Read {
        artifact_id: ArtifactId,
        source: io::Error,
    },
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// Stored content: its id and size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub artifact_id: ArtifactId,
    pub bytes: u64,
    /// False when the same bytes were there already.
    pub is_new: bool,
}

/// One file of the store.
#[derive(Debug, Clone)]
pub struct ArtifactFile {
    pub artifact_id: ArtifactId,
    pub bytes: u64,
    pub modified_millis: i64,
}

/// The artifacts of one session. A cheap handle.
#[derive(Debug, Clone)]
pub struct ArtifactStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    place: Place,
    unsynced: Mutex<Unsynced>,
    staged: AtomicU64,
}

/// What is not yet safe from a power cut; [`ArtifactStore::sync`] makes it so.
#[derive(Debug, Default)]
struct Unsynced {
    files: Vec<(ArtifactId, File)>,
    /// There are new names in the directory.
    names: bool,
    /// The disk refused one, and the system tells that once only.
    is_lost: bool,
}

/// So many new artifacts are held open before the disk is waited for.
const MOST_UNSYNCED: usize = 64;

impl ArtifactStore {
    pub(crate) fn new(place: Place) -> Self {
        Self {
            shared: Arc::new(Shared {
                place,
                unsynced: Mutex::default(),
                staged: AtomicU64::new(0),
            }),
        }
    }

    /// Stores `bytes` under their name; the next sync of the log makes both safe from a power cut.
    ///
    /// # Errors
    /// When they could not be written; nothing then has that name that did not have it before.
    pub fn put(&self, bytes: &[u8]) -> Result<Stored, ArtifactError> {
        // Content that is there already needs no second write.
        let artifact_id = ArtifactId::from_digest(&Sha256::digest(bytes).into());
        if let Ok(found) = self.verify(&artifact_id) {
            return Ok(Stored {
                artifact_id,
                bytes: found,
                is_new: false,
            });
        }
        let mut writer = self.writer()?;
        writer
            .file
            .write_all(bytes)
            .map_err(|source| self.write_error(source))?;
        writer.bytes = bytes.len() as u64;
        writer.give_name(artifact_id)
    }

    /// Stores many contents with one trip to the disk; the results are in the order of `parts`.
    ///
    /// # Errors
    /// When one could not be written; none then has a name that did not have it before, or all that
    /// have one are complete.
    pub fn put_all(&self, parts: &[&[u8]]) -> Result<Vec<Stored>, ArtifactError> {
        let mut results = Vec::with_capacity(parts.len());
        let mut writers = Vec::new();
        let mut names = std::collections::HashSet::new();
        for bytes in parts {
            let artifact_id = ArtifactId::from_digest(&Sha256::digest(bytes).into());
            let is_new = names.insert(artifact_id.clone()) && self.verify(&artifact_id).is_err();
            if is_new {
                let mut writer = self.writer()?;
                writer
                    .file
                    .write_all(bytes)
                    .map_err(|source| self.write_error(source))?;
                writers.push((artifact_id.clone(), writer));
            }
            results.push(Stored {
                artifact_id,
                bytes: bytes.len() as u64,
                is_new,
            });
        }
        if let Some((_, first)) = writers.first() {
            // One call for the whole file system is much cheaper than one for each file.
            rustix::fs::syncfs(&first.file).map_err(|error| self.write_error(error.into()))?;
        }
        for (artifact_id, mut writer) in writers {
            if let Some(name) = writer.staged_name.take()
                && let Err(error) = self.shared.place.rename(&name, artifact_id.hex())
            {
                writer.staged_name = Some(name);
                return Err(error.into());
            }
            self.unsynced().names = true;
        }
        Ok(results)
    }

    /// Starts an artifact whose bytes come bit by bit.
    ///
    /// # Errors
    /// When the temporary file could not be made.
    pub fn writer(&self) -> Result<ArtifactWriter, ArtifactError> {
        let number = self.shared.staged.fetch_add(1, Ordering::Relaxed);
        let name = format!("{STAGED_PREFIX}{}-{number}", std::process::id());
        let file = self.shared.place.create_new(&name)?;
        Ok(ArtifactWriter {
            store: self.clone(),
            file,
            early: None,
            early_at: 0,
            staged_name: Some(name),
            hasher: Sha256::new(),
            bytes: 0,
        })
    }

    /// Opens an artifact for reading in pieces. The bytes are not checked; see
    /// [`ArtifactStore::verify`].
    ///
    /// # Errors
    /// When it is missing or cannot be opened.
    pub fn open(&self, artifact_id: &ArtifactId) -> Result<File, ArtifactError> {
        self.shared.place.read(artifact_id.hex()).map_err(|error| {
            if error.is_not_found() {
                ArtifactError::Missing {
                    artifact_id: artifact_id.clone(),
                    path: self.path_of(artifact_id),
                }
            } else {
                error.into()
            }
        })
    }

    /// Reads a whole artifact of at most `limit` bytes and checks that it is what its name says.
    ///
    /// # Errors
    /// When it is missing, too large, unreadable or altered.
    pub fn read(&self, artifact_id: &ArtifactId, limit: u64) -> Result<Vec<u8>, ArtifactError> {
        let read_error = |source| ArtifactError::Read {
            artifact_id: artifact_id.clone(),
            source,
        };
        let file = self.open(artifact_id)?;
        let mut bytes = Vec::new();
        // One byte past the limit tells "exactly full" from "cut short" without a second read.
        let mut capped = file.take(limit.saturating_add(1));
        capped.read_to_end(&mut bytes).map_err(read_error)?;
        if bytes.len() as u64 > limit {
            let size = capped.into_inner().metadata().map_err(read_error)?.len();
            return Err(ArtifactError::TooLarge {
                artifact_id: artifact_id.clone(),
                bytes: size,
                limit,
            });
        }
        same(artifact_id, Sha256::digest(&bytes).into())?;
        Ok(bytes)
    }

    /// Checks that an artifact is what its name says, with bounded memory, and returns its size.
    ///
    /// # Errors
    /// When it is missing, unreadable or altered.
    pub fn verify(&self, artifact_id: &ArtifactId) -> Result<u64, ArtifactError> {
        let (digest, total) = self.measure(artifact_id)?;
        same(artifact_id, digest)?;
        Ok(total)
    }

    /// The hash and the size of what is there under a name.
    pub fn measure(&self, artifact_id: &ArtifactId) -> Result<([u8; 32], u64), ArtifactError> {
        let mut file = self.open(artifact_id)?;
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; COPY_BYTES];
        let mut total = 0;
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    hasher.update(&buffer[..count]);
                    total += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(ArtifactError::Read {
                        artifact_id: artifact_id.clone(),
                        source,
                    });
                }
            }
        }
        Ok((hasher.finalize().into(), total))
    }

    /// Every artifact that is there, in the order of their ids.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn list(&self) -> Result<Vec<ArtifactFile>, ArtifactError> {
        let mut files: Vec<ArtifactFile> = self
            .shared
            .place
            .entries()?
            .into_iter()
            .filter(|entry| !entry.is_directory)
            .filter_map(|entry| {
                Some(ArtifactFile {
                    artifact_id: format!("sha256:{}", entry.name).parse().ok()?,
                    bytes: entry.bytes,
                    modified_millis: entry.modified_millis,
                })
            })
            .collect();
        files.sort_by(|a, b| a.artifact_id.cmp(&b.artifact_id));
        Ok(files)
    }

    /// Path of an artifact's bytes.
    #[must_use]
    pub fn path_of(&self, artifact_id: &ArtifactId) -> PathBuf {
        self.shared.place.path().join(artifact_id.hex())
    }

    /// Makes all artifacts stored so far, and their names, survive a power cut.
    ///
    /// # Errors
    /// When the disk refused one of them: it is removed, because what is not on disk must not look as
    /// if it were, and no later call succeeds.
    pub(crate) fn sync(&self) -> Result<(), ArtifactError> {
        self.sync_all(&mut self.unsynced())
    }

    /// The lock is held to the end: whoever stores and syncs meanwhile waits for these too.
    fn sync_all(&self, unsynced: &mut Unsynced) -> Result<(), ArtifactError> {
        if unsynced.is_lost {
            return Err(self.write_error(io::Error::other("an earlier artifact did not get there")));
        }
        let place = &self.shared.place;
        let mut refused = None;
        for (artifact_id, file) in unsynced.files.drain(..) {
            if let Err(source) = file.sync_data() {
                // Best effort: its hash tells too.
                let _ = place.remove_file(artifact_id.hex());
                refused = Some(source);
            }
        }
        if let Some(source) = refused {
            unsynced.is_lost = true;
            return Err(self.write_error(source));
        }
        if unsynced.names {
            place.sync()?;
            unsynced.names = false;
        }
        Ok(())
    }

    fn unsynced(&self) -> MutexGuard<'_, Unsynced> {
        let unsynced = &self.shared.unsynced;
        unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes an artifact. The event that says so comes first; see `prune`.
    pub(crate) fn remove(&self, artifact_id: &ArtifactId) -> Result<(), PlaceError> {
        self.shared.place.remove_file(artifact_id.hex())
    }

    /// Removes what a killed writer left behind. Only for the holder of the lease.
    pub(crate) fn remove_staged(&self) -> Result<(), PlaceError> {
        for entry in self.shared.place.entries()? {
            if entry.name.starts_with(STAGED_PREFIX) && !entry.is_directory {
                self.shared.place.remove_file(&entry.name)?;
            }
        }
        Ok(())
    }

    pub(crate) fn write_error(&self, source: io::Error) -> ArtifactError {
        ArtifactError::Write {
            path: self.shared.place.path().to_owned(),
            source,
        }
    }
}

fn same(expected: &ArtifactId, digest: [u8; 32]) -> Result<(), ArtifactError> {
    let found = ArtifactId::from_digest(&digest);
    if found == *expected {
        Ok(())
    } else {
        Err(ArtifactError::Altered {
            artifact_id: expected.clone(),
            found,
        })
    }
}

/// So many bytes are sent to the disk at a time while more are coming.
const EARLY_BYTES: u64 = 32 << 20;

/// An artifact in the making. Dropping it unfinished leaves nothing behind.
#[derive(Debug)]
pub struct ArtifactWriter {
    store: ArtifactStore,
    file: File,
    /// Sends a long artifact to the disk while it grows, so that its end does not wait for all of it.
    early: Option<JoinHandle<io::Result<()>>>,
    /// Bytes written when that began last.
    early_at: u64,
    staged_name: Option<String>,
    hasher: Sha256,
    bytes: u64,
}

impl ArtifactWriter {
    /// Bytes written so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Begins to send what there is to the disk, unless that is still going on.
    fn sync_early(&mut self) -> io::Result<()> {
        if self
            .early
            .as_ref()
            .is_some_and(|early| !early.is_finished())
        {
            return Ok(());
        }
        self.end_early()?;
        let file = self.file.try_clone()?;
        self.early_at = self.bytes;
        let early = std::thread::Builder::new().name("artifact".to_owned());
        self.early = Some(early.spawn(move || file.sync_data())?);
        Ok(())
    }

    /// The system tells of a failed write once: what was heard there counts.
    fn end_early(&mut self) -> io::Result<()> {
        match self.early.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(synced)) => synced,
            Some(Err(_)) => Err(io::Error::other("the thread that syncs it ended early")),
        }
    }

    /// Gives the artifact its name; the next sync of the log makes it safe from a power cut.
    ///
    /// # Errors
    /// When it could not be written or named; nothing then has that name that did not have it.
    pub fn finish(mut self) -> Result<Stored, ArtifactError> {
        let digest = std::mem::take(&mut self.hasher).finalize().into();
        let artifact_id = ArtifactId::from_digest(&digest);
        let bytes = self.bytes;
        if self.store.verify(&artifact_id).is_ok() {
            return Ok(Stored {
                artifact_id,
                bytes,
                is_new: false,
            });
        }
        self.end_early()
            .map_err(|source| self.store.write_error(source))?;
        self.give_name(artifact_id)
    }

    fn give_name(mut self, artifact_id: ArtifactId) -> Result<Stored, ArtifactError> {
        let place = &self.store.shared.place;
        // The disk may begin now; a system that does not take the hint does it all in the end.
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
        let file = self
            .file
            .try_clone()
            .map_err(|source| self.store.write_error(source))?;
        if let Some(name) = self.staged_name.take()
            && let Err(error) = place.rename(&name, artifact_id.hex())
        {
            self.staged_name = Some(name);
            return Err(error.into());
        }
        let mut unsynced = self.store.unsynced();
        unsynced.names = true;
        unsynced.files.push((artifact_id.clone(), file));
        if unsynced.files.len() >= MOST_UNSYNCED {
            self.store.sync_all(&mut unsynced)?;
        }
        drop(unsynced);
        Ok(Stored {
            artifact_id,
            bytes: self.bytes,
            is_new: true,
        })
    }
}

impl Write for ArtifactWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.bytes += count as u64;
        if self.bytes - self.early_at >= EARLY_BYTES {
            self.sync_early()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for ArtifactWriter {
    fn drop(&mut self) {
        if let Some(name) = self.staged_name.take() {
            // Best effort: the next opening of the session removes what is left.
            let _ = self.store.shared.place.remove_file(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, ArtifactStore) {
        let directory = tempfile::tempdir().unwrap();
        let store = ArtifactStore::new(Place::open(directory.path()).unwrap());
        (directory, store)
    }

    #[test]
    fn a_long_one_goes_to_the_disk_while_it_grows() {
        let (_directory, store) = store();
        let mut writer = store.writer().unwrap();
        let piece = vec![7; 1 << 20];
        let mut begun = 0;
        for _ in 0..80 {
            writer.write_all(&piece).unwrap();
            begun = begun.max(writer.early_at);
        }
        assert!(begun >= EARLY_BYTES);
        let stored = writer.finish().unwrap();
        assert_eq!(store.verify(&stored.artifact_id).unwrap(), 80 << 20);
    }

    #[test]
    fn the_same_bytes_are_kept_once_and_privately() {
        use std::os::unix::fs::PermissionsExt as _;
        let (directory, store) = store();
        let first = store.put(b"evidence").unwrap();
        let second = store.put(b"evidence").unwrap();
        assert!(first.is_new && !second.is_new);
        assert_eq!(first.artifact_id, second.artifact_id);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        let metadata = std::fs::metadata(store.path_of(&first.artifact_id)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        assert_eq!(store.read(&first.artifact_id, 8).unwrap(), b"evidence");
        assert!(matches!(
            store.read(&first.artifact_id, 7),
            Err(ArtifactError::TooLarge { bytes: 8, .. })
        ));
    }

    #[test]
    fn streaming_gives_the_same_name_and_leaves_nothing_when_dropped() {
        let (directory, store) = store();
        let mut writer = store.writer().unwrap();
        writer.write_all(b"evi").unwrap();
        writer.write_all(b"dence").unwrap();
        let streamed = writer.finish().unwrap();
        assert_eq!(
            store.put(b"evidence").unwrap().artifact_id,
            streamed.artifact_id
        );
        drop(store.writer().unwrap());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_altered_or_missing_artifact_is_found_and_rewritten() {
        let (_directory, store) = store();
        let stored = store.put(b"evidence").unwrap();
        let path = store.path_of(&stored.artifact_id);
        std::fs::write(&path, b"evidencE").unwrap();
        assert!(matches!(
            store.read(&stored.artifact_id, 100),
            Err(ArtifactError::Altered { .. })
        ));
        assert!(store.put(b"evidence").unwrap().is_new);
        assert_eq!(store.read(&stored.artifact_id, 100).unwrap(), b"evidence");
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(
            store.verify(&stored.artifact_id),
            Err(ArtifactError::Missing { .. })
        ));
    }

    #[test]
    fn a_link_in_place_of_an_artifact_is_refused() {
        let (directory, store) = store();
        let stored = store.put(b"evidence").unwrap();
        let path = store.path_of(&stored.artifact_id);
        std::fs::rename(&path, directory.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        let error = store.open(&stored.artifact_id).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
    }
}
