//! The walk when a command has ended, which the sandbox starts for its search and which finds the changes as well.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use agent_sandbox::{NameSearch, WorkspaceWalk};
use agent_tool_runtime::Cancel;

use super::{ChangeTracker, Purpose, Scan};
use crate::search::Denied;

/// Scan made at the end of one command.
#[derive(Debug, Default)]
pub(crate) struct AfterWalk(Mutex<Option<Walked>>);

/// A scan, and how much had been told of changes when it began.
#[derive(Debug)]
pub(crate) struct Walked {
    pub(crate) scan: Scan,
    pub(super) settled: u64,
}

impl AfterWalk {
    /// The walk as the sandbox starts it, through the project at `root` without what is `denied`.
    pub(crate) fn of(
        tracker: &Arc<ChangeTracker>,
        root: PathBuf,
        denied: Denied,
    ) -> (Arc<Self>, WorkspaceWalk) {
        let after = Arc::new(Self::default());
        let (tracker, kept) = (Arc::clone(tracker), Arc::clone(&after));
        let walk = WorkspaceWalk::new(move |names: &NameSearch| {
            let settled = tracker.settled();
            let hides = |path: &[u8]| denied.hides(path);
            let cancel = Cancel::new();
            let scan = tracker.scan(&root, &cancel, Purpose::After, Some(&hides), Some(names));
            let walked = scan.ok().map(|scan| Walked { scan, settled });
            let is_made = walked.is_some();
            *kept.0.lock().unwrap_or_else(PoisonError::into_inner) = walked;
            is_made
        });
        (after, walk)
    }

    /// The scan, if the sandbox has left the project as it was then.
    pub(crate) fn take(&self, finished: &agent_sandbox::Finished) -> Option<Walked> {
        let mut walked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        walked.take().filter(|_| !finished.changed_after_walk)
    }
}
