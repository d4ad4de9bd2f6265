//! Changes that a command makes in the project, found by walking through it before and after.
//!
//! Before a command the metadata of everything that no ignore rule names is read, and the content
//! of small files that are not yet kept is copied into an unnamed file. Afterwards all metadata is read
//! again; where it differs, the content decides. The copies are kept between commands, so that only the first one
//! pays for them. Everything is bounded, and what was not kept is said. Both walks also serve the sandbox, which
//! looks for protected names in them.
//!
//! [`ChangeTracker::scan`] is one walk, `changes` compares two, `images` holds the copies, `after` is the walk that
//! the sandbox starts, and `followed` keeps what commands in the background did apart from what others did meanwhile.

mod after;
mod changes;
mod followed;
mod images;
mod scanner;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use agent_fs::{Dir, Snapshot};
use agent_sandbox::NameSearch;
use agent_tool_runtime::Cancel;

pub(crate) use after::{AfterWalk, Walked};
pub(crate) use changes::Changes;
pub(crate) use followed::Followed;

use crate::search::walk::{Depth, Hides, Walk};
use images::Images;
use scanner::{Progress, Scanner};

/// Bounds on the cost of walking through a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLimits {
    /// With more files than this, changes are not found.
    pub files: usize,
    /// The same for the time of one walk.
    pub time: Duration,
    /// After this much of it nothing more is copied; the next walk goes on with that.
    pub copy_time: Duration,
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
            time: Duration::from_secs(5),
            copy_time: Duration::from_secs(2),
            image_bytes: 1 << 20,
            store_bytes: 128 << 20,
            listed: 2_000,
        }
    }
}

/// Changes to the project's files during a session, with their images from before.
#[derive(Debug)]
pub(crate) struct ChangeTracker {
    limits: ScanLimits,
    /// Directory of the unnamed file.
    folder: PathBuf,
    images: RwLock<Images>,
    /// Commands in the background whose changes are still to be told.
    followed: Mutex<Vec<Weak<Followed>>>,
    /// The project as it was when the command in the foreground began, while it runs.
    foreground: Mutex<Option<Arc<Scan>>>,
    /// Counts what was told of changes, by whom ever.
    settled: AtomicU64,
}

/// The project at one moment.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(super) files: Snapshot,
    /// The reason why it is not complete.
    pub(crate) incomplete: Option<String>,
    /// Existing paths that deny rules name, relative to the project.
    pub(crate) denied: Vec<Vec<u8>>,
}

/// Purpose of a walk through the project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To know what there is before a command, with copies of what it may change.
    Before,
    /// To know what there is.
    After,
    /// To find what deny rules name, also where ignore rules would not go.
    Denied,
}

impl ChangeTracker {
    pub(crate) fn new(folder: &Path, limits: ScanLimits) -> Self {
        Self {
            limits,
            folder: folder.to_owned(),
            images: RwLock::default(),
            followed: Mutex::default(),
            foreground: Mutex::default(),
            settled: AtomicU64::new(0),
        }
    }

    /// Walks through the project. With a rule that denies something, no bound ends the search for what
    /// it names: a command that could read it must not be started. The same holds for `names`, which has a bound of
    /// its own.
    ///
    /// # Errors
    /// When the project cannot be opened; `Interrupted` when the call was cancelled meanwhile.
    pub(crate) fn scan(
        &self,
        root: &Path,
        cancel: &Cancel,
        purpose: Purpose,
        denied: Option<Hides<'_>>,
        names: Option<&NameSearch>,
    ) -> io::Result<Scan> {
        let start = Dir::open(root)?.listing(Path::new(""))?;
        let keep = purpose == Purpose::Before;
        let end = {
            let mut images = self.images.write().unwrap_or_else(PoisonError::into_inner);
            if keep {
                images.open(&self.folder);
            }
            images.end()
        };
        let hidden = Mutex::new(Vec::new());
        let finds_denied = denied.is_some() && purpose != Purpose::After;
        let progress = Progress {
            tracker: self,
            count: AtomicUsize::new(0),
            end: AtomicU64::new(end),
            stop: cancel.child(),
            given_up: AtomicBool::new(purpose == Purpose::Denied),
            goes_on: finds_denied || names.is_some(),
            began: Instant::now(),
            keep,
        };
        let walk = Walk {
            start,
            start_path: root,
            project: root,
            denied: &|path| {
                let hides = denied.is_some_and(|denied| denied(path));
                if hides {
                    hidden
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(path.to_vec());
                }
                hides
            },
            depth: match finds_denied {
                true => Depth::IgnoredForDenied,
                false => Depth::Wanted,
            },
            names,
            cancel: &progress.stop,
        };
        let (scanners, _) = walk.run(|| Scanner::new(&progress));
        if cancel.is_raised() {
            // What was not met would be taken for new afterwards, and not be hidden.
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut files = Snapshot::with_capacity(progress.count());
        let mut images = self.images.write().unwrap_or_else(PoisonError::into_inner);
        for scanner in scanners {
            files.extend(scanner.files, scanner.closed);
            images.extend(scanner.images);
        }
        drop(images);
        let incomplete = if progress.count() > self.limits.files {
            let most = self.limits.files;
            Some(format!("the project has more than {most} files"))
        } else if progress.was_late() {
            let time = self.limits.time.as_secs();
            Some(format!("looking at the project took longer than {time} s"))
        } else {
            None
        };
        let mut denied = hidden.into_inner().unwrap_or_else(PoisonError::into_inner);
        denied.sort_unstable();
        Ok(Scan {
            files,
            incomplete,
            denied,
        })
    }

    /// Number that differs once anybody has told of changes since.
    fn settled(&self) -> u64 {
        self.settled.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use agent_tool_runtime::CancelReason;

    use super::*;

    /// Closing a directory deletes nothing, and opening one creates nothing.
    #[test]
    fn what_is_in_a_closed_directory_is_neither_deleted_nor_created() {
        use std::os::unix::fs::PermissionsExt as _;
        let project = tempfile::tempdir().unwrap();
        let root = project.path();
        let set = |path: &str, mode: u32| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(root.join(path), mode).unwrap();
        };
        std::fs::create_dir_all(root.join("dir/deep")).unwrap();
        for name in ["dir/a.txt", "dir/deep/b.txt", "dirty.txt"] {
            std::fs::write(root.join(name), "one").unwrap();
        }
        set("", 0o755);
        // For root no directory is closed, so somebody else looks.
        let look = |purpose| {
            std::thread::scope(|scope| {
                let looking = scope.spawn(|| {
                    if rustix::process::getuid().is_root() {
                        let nobody = rustix::thread::Uid::from_raw(65_534);
                        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
                    }
                    let tracker = ChangeTracker::new(root, ScanLimits::default());
                    tracker
                        .scan(root, &Cancel::new(), purpose, None, None)
                        .unwrap()
                });
                looking.join().unwrap()
            })
        };
        let open = look(Purpose::Before);
        set("dir", 0o000);
        std::fs::remove_file(root.join("dirty.txt")).unwrap();
        let closed = look(Purpose::After);
        set("dir", 0o755);
        let names = |before: &Scan, after: &Scan| -> Vec<String> {
            let differences = before.files.diff(&after.files).into_iter();
            differences
                .map(|it| {
                    let path = String::from_utf8_lossy(it.path);
                    format!("{path} {} {}", it.before.is_some(), it.after.is_some())
                })
                .collect()
        };
        let changed = names(&open, &closed);
        assert_eq!(changed, ["dirty.txt true false", "dir true true"]);
        let changed = names(&closed, &open);
        assert_eq!(changed, ["dir true true", "dirty.txt false true"]);
        let tracker = ChangeTracker::new(root, ScanLimits::default());
        let kept = |_: &[u8]| unreachable!("nothing was copied");
        let told = tracker.compare(root, &open, &closed, &kept).unwrap();
        assert!(told.note.unwrap().contains("`dir`"));
    }

    #[test]
    fn a_scan_that_was_cancelled_is_none() {
        let project = tempfile::tempdir().unwrap();
        std::fs::write(project.path().join("a.txt"), "one").unwrap();
        let tracker = ChangeTracker::new(project.path(), ScanLimits::default());
        let cancel = Cancel::new();
        let look = |purpose| tracker.scan(project.path(), &cancel, purpose, None, None);
        assert_eq!(look(Purpose::Before).unwrap().files.len(), 1);
        cancel.raise(CancelReason::Interrupted);
        for purpose in [Purpose::Before, Purpose::Denied] {
            let error = look(purpose).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        }
    }
}
