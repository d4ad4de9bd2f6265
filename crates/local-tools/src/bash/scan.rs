//! What a command did to the project's files, found by looking before and after.
//!
//! Before a command every file that no ignore rule names is looked at (not read), and the bytes of
//! small files that are not yet in the store are copied into an unnamed file. Afterwards all are
//! looked at again; where the system's own record of a file differs, the content decides. The store
//! is kept between commands, so that only the first one pays for it. Everything is bounded, and
//! what was not kept is said.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::{ArtifactRef, SideEffect, SideEffectKind};
use agent_tool_runtime::{Cancel, CancelReason, ExecutionContext, JournalError};
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::file::{hash, hash_bytes};
use crate::search::walk::{Met, Skipped, Visitor, Walk};

/// Bounds on what looking at a project may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLimits {
    /// With more files than this, changes are not looked for.
    pub files: usize,
    /// The same for the time one look may take.
    pub time: Duration,
    /// Larger files have no image from before.
    pub image_bytes: u64,
    /// All images together.
    pub store_bytes: u64,
    /// More changes than this are counted but not listed one by one.
    pub listed: usize,
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self {
            files: 200_000,
            time: Duration::from_secs(3),
            image_bytes: 1 << 20,
            store_bytes: 128 << 20,
            listed: 150,
        }
    }
}

/// The images of a session, and how to look.
#[derive(Debug)]
pub(crate) struct Watch {
    limits: ScanLimits,
    /// Where the unnamed file is made.
    folder: PathBuf,
    store: RwLock<Store>,
}

#[derive(Debug, Default)]
struct Store {
    file: Option<File>,
    images: HashMap<Vec<u8>, Image>,
}

#[derive(Clone, Copy, Debug)]
struct Image {
    seen: Seen,
    offset: u64,
}

/// What the system says of a file; equal means untouched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    mode: u32,
}

/// The project at one moment.
pub(crate) struct Look {
    files: HashMap<Vec<u8>, Seen>,
    /// Why it is not complete.
    pub(crate) incomplete: Option<String>,
    /// Existing paths that deny rules name, relative to the project.
    pub(crate) denied: Vec<Vec<u8>>,
}

/// What changed.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) effects: Vec<SideEffect>,
    pub(crate) artifacts: Vec<ArtifactRef>,
    /// Said to the model: what is not in the list, and why.
    pub(crate) note: Option<String>,
}

impl Watch {
    pub(crate) fn new(folder: &Path, limits: ScanLimits) -> Self {
        Self {
            limits,
            folder: folder.to_owned(),
            store: RwLock::default(),
        }
    }

    /// Looks at the project; with `keep`, copies what may be needed to undo the command.
    pub(crate) fn look(
        &self,
        root: &Path,
        cancel: &Cancel,
        keep: bool,
        denied: &(dyn Fn(&[u8]) -> bool + Sync),
    ) -> io::Result<Look> {
        let start = rustix::fs::open(
            root,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let room = {
            let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
            if keep && store.file.is_none() {
                store.file = tempfile::tempfile_in(&self.folder).ok();
            }
            store.used()
        };
        let hidden = Mutex::new(Vec::new());
        let look = Looking {
            watch: self,
            count: AtomicUsize::new(0),
            end: AtomicU64::new(room),
            stop: cancel.child(),
            began: Instant::now(),
            keep,
        };
        let walk = Walk {
            start,
            start_path: root,
            project: root,
            denied: &|path| {
                let hides = denied(path);
                if hides {
                    hidden
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(path.to_vec());
                }
                hides
            },
            cancel: &look.stop,
        };
        let (lookers, _) = walk.run(|| Looker {
            look: &look,
            files: Vec::new(),
            images: Vec::new(),
            buffer: Vec::new(),
        });
        let mut files = HashMap::new();
        let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
        for looker in lookers {
            files.extend(looker.files);
            store.images.extend(looker.images);
        }
        drop(store);
        let count = look.count.load(Ordering::Relaxed);
        let incomplete = if count > self.limits.files {
            Some(format!(
                "the project has more than {} files",
                self.limits.files
            ))
        } else if look.stop.is_raised() && !cancel.is_raised() {
            Some(format!(
                "looking at the project took longer than {} s",
                self.limits.time.as_secs()
            ))
        } else {
            None
        };
        Ok(Look {
            files,
            incomplete,
            denied: hidden.into_inner().unwrap_or_else(PoisonError::into_inner),
        })
    }

    /// Compares two looks and keeps the evidence.
    pub(crate) fn compare(
        &self,
        root: &Path,
        before: &Look,
        after: &Look,
        context: &ExecutionContext,
    ) -> Result<Changes, JournalError> {
        if let Some(reason) = before.incomplete.as_ref().or(after.incomplete.as_ref()) {
            let note = format!("Changes to project files were not looked for: {reason}.");
            return Ok(Changes {
                note: Some(note),
                ..Changes::default()
            });
        }
        let mut touched: Vec<(&Vec<u8>, Option<Seen>, Option<Seen>)> = Vec::new();
        for (path, seen) in &before.files {
            match after.files.get(path) {
                None => touched.push((path, Some(*seen), None)),
                Some(now) if now != seen => touched.push((path, Some(*seen), Some(*now))),
                Some(_) => {}
            }
        }
        for (path, now) in &after.files {
            if !before.files.contains_key(path) {
                touched.push((path, None, Some(*now)));
            }
        }
        touched.sort_unstable_by_key(|(path, _, now)| (now.is_some(), path.as_slice()));
        let mut changes = Changes::default();
        let mut unlisted = 0;
        for (path, was, now) in touched {
            if changes.effects.len() >= self.limits.listed {
                unlisted += 1;
                continue;
            }
            self.note_change(root, path, was, now, context, &mut changes)?;
        }
        if unlisted > 0 {
            changes.note = Some(format!(
                "{unlisted} more files were changed and are not listed."
            ));
        }
        Ok(changes)
    }

    fn note_change(
        &self,
        root: &Path,
        path: &[u8],
        was: Option<Seen>,
        now: Option<Seen>,
        context: &ExecutionContext,
        changes: &mut Changes,
    ) -> Result<(), JournalError> {
        let place = crate::search::walk::as_path(path);
        let image = was.and_then(|seen| self.image(path, seen));
        let sha256_before = image.as_deref().map(hash_bytes);
        let sha256_after =
            now.and_then(|_| open_now(&root.join(place)).and_then(|file| hash(&file).ok()));
        let same_content = sha256_before.is_some() && sha256_before == sha256_after;
        let same_mode = was.map(|seen| seen.mode) == now.map(|seen| seen.mode);
        if same_content && same_mode {
            // Touched, or written with what was there.
            return Ok(());
        }
        let kind = match (was, now) {
            (None, _) => SideEffectKind::Created,
            (Some(_), None) => SideEffectKind::Deleted,
            (Some(_), Some(_)) if same_content => SideEffectKind::ModeChanged,
            _ => SideEffectKind::Modified,
        };
        let before = match &image {
            Some(bytes) if !same_content => Some(context.put_artifact(
                ArtifactKind::Before,
                "application/octet-stream",
                bytes,
            )?),
            _ => None,
        };
        let no_image = was.filter(|_| image.is_none()).map(|seen| {
            if seen.size > self.limits.image_bytes {
                "too_large"
            } else {
                "not_kept"
            }
            .to_owned()
        });
        changes.effects.push(SideEffect {
            kind,
            path: place.to_string_lossy().into_owned(),
            sha256_before,
            sha256_after,
            before_ref: before.as_ref().map(|artifact| artifact.artifact_id.clone()),
            bytes_before: was.map(|seen| seen.size),
            bytes_after: now.map(|seen| seen.size),
            mode_before: was.map(|seen| seen.mode & 0o7777),
            mode_after: now.map(|seen| seen.mode & 0o7777),
            no_image,
            ..SideEffect::default()
        });
        changes.artifacts.extend(before);
        Ok(())
    }

    /// The bytes of a file as it was when it was seen like this.
    fn image(&self, path: &[u8], seen: Seen) -> Option<Vec<u8>> {
        let store = self.store.read().unwrap_or_else(PoisonError::into_inner);
        let image = store.images.get(path).filter(|image| image.seen == seen)?;
        let mut bytes = vec![0; usize::try_from(seen.size).ok()?];
        store
            .file
            .as_ref()?
            .read_exact_at(&mut bytes, image.offset)
            .ok()?;
        Some(bytes)
    }
}

fn open_now(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    file.metadata().ok()?.is_file().then_some(file)
}

impl Store {
    /// Where the next image goes.
    fn used(&self) -> u64 {
        self.images
            .values()
            .map(|image| image.offset + image.seen.size)
            .max()
            .unwrap_or(0)
    }
}

/// One look in progress.
struct Looking<'a> {
    watch: &'a Watch,
    count: AtomicUsize,
    /// The end of the store.
    end: AtomicU64,
    stop: Cancel,
    began: Instant,
    keep: bool,
}

struct Looker<'a> {
    look: &'a Looking<'a>,
    files: Vec<(Vec<u8>, Seen)>,
    images: Vec<(Vec<u8>, Image)>,
    buffer: Vec<u8>,
}

impl Visitor for Looker<'_> {
    fn file(&mut self, met: &Met<'_>, _: &mut Skipped) {
        let look = self.look;
        let count = look.count.fetch_add(1, Ordering::Relaxed);
        let late = count.is_multiple_of(1024) && look.began.elapsed() > look.watch.limits.time;
        if count > look.watch.limits.files || late {
            look.stop.raise(CancelReason::Timeout);
            return;
        }
        let Ok(stat) = rustix::fs::statat(met.directory, met.name, AtFlags::SYMLINK_NOFOLLOW)
        else {
            return;
        };
        let seen = Seen {
            inode: stat.st_ino,
            size: stat.st_size as u64,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
            mode: stat.st_mode,
        };
        if look.keep && seen.size <= look.watch.limits.image_bytes {
            self.keep(met, seen);
        }
        self.files.push((met.path.to_vec(), seen));
    }
}

impl Looker<'_> {
    /// Copies the file into the store unless this version is there. What cannot be read is not kept.
    fn keep(&mut self, met: &Met<'_>, seen: Seen) {
        let store = self
            .look
            .watch
            .store
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let known = store
            .images
            .get(met.path)
            .is_some_and(|image| image.seen == seen);
        let Some(spool) = store.file.as_ref().filter(|_| !known) else {
            return;
        };
        let limit = self.look.watch.limits.store_bytes;
        if self.look.end.load(Ordering::Relaxed) + seen.size > limit {
            return;
        }
        let Ok(file) = met.open() else {
            return;
        };
        self.buffer.clear();
        let read = file.take(seen.size + 1).read_to_end(&mut self.buffer);
        if read.ok().is_none_or(|read| read as u64 != seen.size) {
            return;
        }
        let offset = self.look.end.fetch_add(seen.size, Ordering::Relaxed);
        if spool.write_all_at(&self.buffer, offset).is_ok() {
            self.images
                .push((met.path.to_vec(), Image { seen, offset }));
        }
    }
}
