//! What a command did to the project, found by looking before and after.
//!
//! Before a command everything that no ignore rule names is looked at (not read), and the content
//! of small files that are not yet kept is copied into an unnamed file. Afterwards all is looked at
//! again; where the system's own record of a file differs, the content decides. The copies are kept
//! between commands, so that only the first one pays for them. Everything is bounded, and what was
//! not kept is said.
//!
//! [`Watch::look`] is one look, `changes` compares two, `images` holds the copies, and `followed`
//! keeps what commands in the background did apart from what others did meanwhile.

mod changes;
mod followed;
mod images;
mod scanner;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use agent_fs::Stamp;
use agent_tool_runtime::Cancel;
use rustix::fs::{Mode, OFlags};

pub(crate) use changes::Changes;
pub(crate) use followed::Followed;

use crate::search::walk::{Depth, Hides, Walk};
use images::Images;
use scanner::{Looking, Scanner};

/// Bounds on what looking at a project may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLimits {
    /// With more files than this, changes are not looked for.
    pub files: usize,
    /// The same for the time one look may take.
    pub time: Duration,
    /// After this much of it nothing more is copied; the next look goes on with that.
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

/// The images of a session, and how to look.
#[derive(Debug)]
pub(crate) struct Watch {
    limits: ScanLimits,
    /// Where the unnamed file is made.
    folder: PathBuf,
    images: RwLock<Images>,
    /// Commands in the background whose changes are still to be told.
    followed: Mutex<Vec<Weak<Followed>>>,
    /// What the project was when the command in the foreground began, while it runs.
    foreground: Mutex<Option<Arc<Look>>>,
}

/// The project at one moment.
#[derive(Debug, Default)]
pub(crate) struct Look {
    files: HashMap<Vec<u8>, Stamp>,
    /// Why it is not complete.
    pub(crate) incomplete: Option<String>,
    /// Directories that could not be looked into, relative to the project: nothing is known of what is in them.
    closed: Vec<Vec<u8>>,
    /// Existing paths that deny rules name, relative to the project.
    pub(crate) denied: Vec<Vec<u8>>,
}

/// What a look is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To know what there is before a command, with copies of what it may change.
    Before,
    /// To know what there is.
    After,
    /// To find what deny rules name, also where ignore rules would not look.
    Denied,
}

impl Watch {
    pub(crate) fn new(folder: &Path, limits: ScanLimits) -> Self {
        Self {
            limits,
            folder: folder.to_owned(),
            images: RwLock::default(),
            followed: Mutex::default(),
            foreground: Mutex::default(),
        }
    }

    /// Looks at the project. With a rule that denies something, no bound ends the search for what
    /// it names: a command that could read it must not be started.
    ///
    /// # Errors
    /// When the project cannot be opened; `Interrupted` when the call was cancelled meanwhile.
    pub(crate) fn look(
        &self,
        root: &Path,
        cancel: &Cancel,
        purpose: Purpose,
        denied: Option<Hides<'_>>,
    ) -> io::Result<Look> {
        let start = rustix::fs::open(
            root,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let keep = purpose == Purpose::Before;
        let end = {
            let mut images = self.images.write().unwrap_or_else(PoisonError::into_inner);
            if keep {
                images.open(&self.folder);
            }
            images.end()
        };
        let hidden = Mutex::new(Vec::new());
        let look = Looking {
            watch: self,
            count: AtomicUsize::new(0),
            end: AtomicU64::new(end),
            stop: cancel.child(),
            given_up: AtomicBool::new(purpose == Purpose::Denied),
            goes_on: denied.is_some() && purpose != Purpose::After,
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
            depth: if denied.is_some() && purpose != Purpose::After {
                Depth::IgnoredForDenied
            } else {
                Depth::Wanted
            },
            cancel: &look.stop,
        };
        let (scanners, _) = walk.run(|| Scanner::new(&look));
        if cancel.is_raised() {
            // What was not looked at would be taken for new afterwards, and not be hidden.
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut files = HashMap::with_capacity(look.count());
        let mut closed = Vec::new();
        let mut images = self.images.write().unwrap_or_else(PoisonError::into_inner);
        for scanner in scanners {
            files.extend(scanner.files);
            images.extend(scanner.images);
            closed.extend(scanner.closed);
        }
        drop(images);
        let incomplete = if look.count() > self.limits.files {
            let most = self.limits.files;
            Some(format!("the project has more than {most} files"))
        } else if look.was_late() {
            let time = self.limits.time.as_secs();
            Some(format!("looking at the project took longer than {time} s"))
        } else {
            None
        };
        let mut denied = hidden.into_inner().unwrap_or_else(PoisonError::into_inner);
        denied.sort_unstable();
        Ok(Look {
            files,
            incomplete,
            closed,
            denied,
        })
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
                    let watch = Watch::new(root, ScanLimits::default());
                    watch.look(root, &Cancel::new(), purpose, None).unwrap()
                });
                looking.join().unwrap()
            })
        };
        let open = look(Purpose::Before);
        set("dir", 0o000);
        std::fs::remove_file(root.join("dirty.txt")).unwrap();
        let closed = look(Purpose::After);
        set("dir", 0o755);
        let names = |before, after| -> Vec<String> {
            let touched = changes::touched(before, after).into_iter();
            touched
                .map(|(path, was, now)| {
                    let path = String::from_utf8_lossy(path);
                    format!("{path} {} {}", was.is_some(), now.is_some())
                })
                .collect()
        };
        let changed = names(&open, &closed);
        assert_eq!(changed, ["dirty.txt true false", "dir true true"]);
        let changed = names(&closed, &open);
        assert_eq!(changed, ["dir true true", "dirty.txt false true"]);
        let watch = Watch::new(root, ScanLimits::default());
        let kept = |_: &[u8]| unreachable!("nothing was copied");
        let told = watch.compare(root, &open, &closed, &kept).unwrap();
        assert!(told.note.unwrap().contains("`dir`"));
    }

    #[test]
    fn a_look_that_was_cancelled_is_none() {
        let project = tempfile::tempdir().unwrap();
        std::fs::write(project.path().join("a.txt"), "one").unwrap();
        let watch = Watch::new(project.path(), ScanLimits::default());
        let cancel = Cancel::new();
        let look = |purpose| watch.look(project.path(), &cancel, purpose, None);
        assert_eq!(look(Purpose::Before).unwrap().files.len(), 1);
        cancel.raise(CancelReason::Interrupted);
        for purpose in [Purpose::Before, Purpose::Denied] {
            let error = look(purpose).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        }
    }
}
