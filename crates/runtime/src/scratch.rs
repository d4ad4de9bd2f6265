//! Where a session's commands have their temporary files: below the user's state, removed at the end,
//! and by the next session when the end never came.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::private;

/// A directory that is ours as long as this lives.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Locked: whoever looks for what was left behind can tell that this was not.
    _held: File,
}

impl Scratch {
    /// Makes a directory called `name`, or nearly so where that one is in use, and removes in passing
    /// what killed agents left beside it.
    pub fn new(state: &Path, name: &str) -> io::Result<Self> {
        let all = state.join("tmp");
        let scratch = Self::make(&all, name)?;
        let own = scratch.path.clone();
        // Nobody waits for it: what is not removed now is removed by the next one.
        let _ = std::thread::Builder::new()
            .name("sweeper".to_owned())
            .spawn(move || sweep(&all, &own));
        Ok(scratch)
    }

    fn make(all: &Path, name: &str) -> io::Result<Self> {
        let mut number = 0;
        loop {
            let path = match number {
                0 => all.join(name),
                number => all.join(format!("{name}-{number}")),
            };
            if let Some(held) = hold(&path)? {
                return Ok(Self { path, _held: held });
            }
            number += 1;
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what is in it, for whoever is done before all others have let go.
    pub fn clear(&self) {
        // What a command left there is nobody's; a directory that cannot be removed is only litter.
        let _ = agent_fs::remove_tree(&self.path);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Makes a directory and locks it; nothing when somebody else has it.
fn hold(path: &Path) -> io::Result<Option<File>> {
    private::create_directory(path)?;
    let held = match File::open(path) {
        // Taken for a leftover and removed before we could lock it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    if flock(&held, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    let identity = |data: std::fs::Metadata| (data.dev(), data.ino());
    let ours = identity(held.metadata()?);
    let there = path.symlink_metadata().map(identity).ok();
    Ok((there == Some(ours)).then_some(held))
}

/// Removes the directories that nobody holds.
fn sweep(all: &Path, own: &Path) {
    for entry in std::fs::read_dir(all).into_iter().flatten().flatten() {
        let path = entry.path();
        if path == own {
            continue;
        }
        if let Ok(left) = File::open(&path)
            && flock(&left, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = agent_fs::remove_tree(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_holds_is_removed_and_the_rest_stays() {
        let state = tempfile::tempdir().unwrap();
        let all = state.path().join("tmp");
        // Without the sweepers of `new`, which would take part while we look.
        let scratch = |name: &str| Scratch::make(&all, name).unwrap();
        let (one, two) = (scratch("one"), scratch("two"));
        let left = all.join("left");
        std::fs::create_dir_all(left.join("command-1")).unwrap();
        sweep(&all, one.path());
        assert!(!left.exists());
        assert!(one.path().exists() && two.path().exists());
        let again = scratch("two");
        assert_eq!(again.path(), all.join("two-1"));
        let path = two.path().to_path_buf();
        drop(two);
        assert!(!path.exists());
    }
}
