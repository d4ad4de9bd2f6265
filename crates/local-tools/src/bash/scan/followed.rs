//! What a command in the background changes. It is told once it has ended, against the project as it
//! was at its start; what other calls changed meanwhile is theirs and is taken out here.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use agent_sandbox::ExternalWrites;
use agent_tool_runtime::{Cancel, JournalError};

use super::changes::{Changes, KeepImage, touched};
use super::{Look, Purpose, Watch};
use crate::search::walk::Hides;
use agent_fs::Stamp;

/// The project as it was when a background command began, less what others did since.
#[derive(Debug)]
pub(crate) struct Followed {
    before: Mutex<Look>,
    /// Tells the command's sandbox the same.
    external_writes: ExternalWrites,
}

impl Watch {
    /// Follows a background command that began when the project looked like this.
    pub(crate) fn follow(&self, before: Look, external_writes: ExternalWrites) -> Arc<Followed> {
        let followed = Arc::new(Followed {
            before: Mutex::new(before),
            external_writes,
        });
        let mut all = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&followed));
        followed
    }

    /// What a background command that has ended changed.
    pub(crate) fn changes_of(
        &self,
        followed: &Followed,
        root: &Path,
        denied: Hides<'_>,
        keep: KeepImage<'_>,
    ) -> Result<Changes, JournalError> {
        // While another command runs, what it began with is where this one's changes end; later
        // ones cannot be told apart and are listed with the other.
        // The lock keeps a foreground command from beginning or ending until these changes are told.
        let foreground = self.foreground();
        let after = match &*foreground {
            Some(look) => Arc::clone(look),
            None => match self.look(root, &Cancel::new(), Purpose::After, Some(denied)) {
                Ok(look) => Arc::new(look),
                Err(error) => {
                    return Ok(Changes {
                        note: Some(format!(
                            "Changes to project files could not be looked for: {error}."
                        )),
                        ..Changes::default()
                    });
                }
            },
        };
        let before = std::mem::take(&mut *followed.before());
        let changes = self.compare(root, &before, &after, keep)?;
        self.settle(&before, &after);
        drop(foreground);
        Ok(changes)
    }

    /// A command in the foreground begins.
    pub(crate) fn foreground_begins(&self, before: &Arc<Look>) {
        *self.foreground() = Some(Arc::clone(before));
    }

    /// It has ended, and its changes are these.
    pub(crate) fn foreground_ends(&self, looks: Option<(&Look, &Look)>) {
        let mut foreground = self.foreground();
        if let Some((before, after)) = looks {
            self.settle(before, after);
        }
        *foreground = None;
    }

    /// What lies between these looks has been told.
    fn settle(&self, before: &Look, after: &Look) {
        let followed = self.all_followed();
        if followed.is_empty() {
            return;
        }
        for (path, _, now) in touched(before, after) {
            for known in &followed {
                known.set(path, now);
            }
        }
    }

    /// A tool has written this file and tells of it itself.
    pub(crate) fn settle_file(&self, root: &Path, relative: &Path) {
        use std::os::unix::ffi::OsStrExt as _;
        let followed = self.all_followed();
        if followed.is_empty() {
            return;
        }
        for known in &followed {
            known.external_writes.add(relative);
        }
        // The directories above it may be new as well.
        for path in relative.ancestors().filter(|path| *path != Path::new("")) {
            let now = rustix::fs::lstat(root.join(path)).ok();
            let now = now.map(|stat| Stamp::of_entry(&stat));
            for known in &followed {
                known.set(path.as_os_str().as_bytes(), now);
            }
        }
    }

    fn all_followed(&self) -> Vec<Arc<Followed>> {
        let all = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(std::sync::Weak::upgrade).collect()
    }

    fn foreground(&self) -> std::sync::MutexGuard<'_, Option<Arc<Look>>> {
        let foreground = self.foreground.lock();
        foreground.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Followed {
    fn before(&self) -> std::sync::MutexGuard<'_, Look> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, path: &[u8], now: Option<Stamp>) {
        let mut before = self.before();
        match now {
            Some(seen) => before.files.insert(path.to_vec(), seen),
            None => before.files.remove(path),
        };
    }
}
