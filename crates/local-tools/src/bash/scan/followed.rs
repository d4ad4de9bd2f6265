//! Changes by a command in the background. They are told once it has ended, against the project as it
//! was at its start; what other calls changed meanwhile is theirs and is taken out here.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use agent_sandbox::ExternalWrites;
use agent_tool_runtime::{Cancel, JournalError};

use super::changes::{Changes, KeepImage};
use super::{ChangeTracker, Purpose, Scan, Walked};
use crate::search::walk::Hides;
use agent_fs::{Dir, Stamp};

/// The project as it was when a background command began, less what others did since.
#[derive(Debug)]
pub(crate) struct Followed {
    before: Mutex<Scan>,
    /// Tells the command's sandbox the same.
    external_writes: ExternalWrites,
}

impl ChangeTracker {
    /// Follows a background command that began when the project looked like this.
    pub(crate) fn follow(&self, before: Scan, external_writes: ExternalWrites) -> Arc<Followed> {
        let followed = Arc::new(Followed {
            before: Mutex::new(before),
            external_writes,
        });
        let mut all = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&followed));
        followed
    }

    /// The changes by a background command that has ended. `walked` is the walk that was made at its end; it counts
    /// if nothing has been told since it began.
    pub(crate) fn changes_of(
        &self,
        followed: &Followed,
        root: &Path,
        walked: Option<Walked>,
        denied: Hides<'_>,
        keep: KeepImage<'_>,
    ) -> Result<Changes, JournalError> {
        // While another command runs, what it began with is where this one's changes end; later
        // ones cannot be told apart and are listed with the other.
        // The lock keeps a foreground command from beginning or ending until these changes are told.
        let foreground = self.foreground();
        let walked = walked.filter(|walked| walked.settled == self.settled());
        let after = match (&*foreground, walked) {
            (Some(scan), _) => Arc::clone(scan),
            (None, Some(walked)) => Arc::new(walked.scan),
            (None, None) => {
                match self.scan(root, &Cancel::new(), Purpose::After, Some(denied), None) {
                    Ok(scan) => Arc::new(scan),
                    Err(error) => {
                        return Ok(Changes {
                            note: Some(format!(
                                "Changes to project files could not be looked for: {error}."
                            )),
                            ..Changes::default()
                        });
                    }
                }
            }
        };
        let before = std::mem::take(&mut *followed.before());
        let changes = self.compare(root, &before, &after, keep)?;
        self.settle(&before, &after);
        drop(foreground);
        Ok(changes)
    }

    /// A command in the foreground begins.
    pub(crate) fn foreground_begins(&self, before: &Arc<Scan>) {
        *self.foreground() = Some(Arc::clone(before));
    }

    /// It has ended, and its changes are these.
    pub(crate) fn foreground_ends(&self, scans: Option<(&Scan, &Scan)>) {
        let mut foreground = self.foreground();
        self.settled.fetch_add(1, Ordering::SeqCst);
        if let Some((before, after)) = scans {
            self.settle(before, after);
        }
        *foreground = None;
    }

    /// The changes between these scans have been told.
    fn settle(&self, before: &Scan, after: &Scan) {
        self.settled.fetch_add(1, Ordering::SeqCst);
        let followed = self.all_followed();
        if followed.is_empty() {
            return;
        }
        for difference in before.files.diff(&after.files) {
            for known in &followed {
                known.before().files.set(difference.path, difference.after);
            }
        }
    }

    /// A tool has written this file and tells of it itself.
    pub(crate) fn settle_file(&self, root: &Path, relative: &Path) {
        self.settled.fetch_add(1, Ordering::SeqCst);
        let followed = self.all_followed();
        if followed.is_empty() {
            return;
        }
        for known in &followed {
            known.external_writes.add(relative);
        }
        // The directories above it may be new as well.
        let Ok(root) = Dir::open(root) else {
            return;
        };
        for path in relative.ancestors().filter(|path| *path != Path::new("")) {
            let now = root.stat(path).ok().map(|stat| Stamp::of_entry(&stat));
            for known in &followed {
                known.before().files.set(path.as_os_str().as_bytes(), now);
            }
        }
    }

    fn all_followed(&self) -> Vec<Arc<Followed>> {
        let all = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(std::sync::Weak::upgrade).collect()
    }

    fn foreground(&self) -> std::sync::MutexGuard<'_, Option<Arc<Scan>>> {
        let foreground = self.foreground.lock();
        foreground.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Followed {
    fn before(&self) -> std::sync::MutexGuard<'_, Scan> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
