//! A copy of the project as it was when the session began.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::error::Context as _;
use agent_history::workspace::Images;
use agent_log::{AGENT_DIRECTORY, SessionDirectory};
use agent_protocol::payload::conversation::RefusedFile;

use crate::error::{OrFail as _, RuntimeError};
use crate::undo::{Chosen, Extent, Plan, restore_without_record};

/// A project that only exists for one run.
pub struct Copy {
    pub root: PathBuf,
    /// Files that are not as they were when the session began, with the reasons.
    pub not_rebuilt: Vec<RefusedFile>,
    keep: bool,
}

/// Copies the project at `root` to `directory`, and takes the session's changes back there.
pub fn copy_start(
    root: &Path,
    session: &SessionDirectory,
    directory: &Path,
    keep: bool,
) -> Result<Copy, RuntimeError> {
    let doing = || format!("cannot copy the project to `{}`", directory.display());
    fs::create_dir(directory).with_context(doing).or_usage()?;
    let directory = fs::canonicalize(directory).with_context(doing).or_usage()?;
    // From here on a failure removes what was copied.
    let mut copy = Copy {
        root: directory,
        not_rebuilt: Vec::new(),
        keep,
    };
    if copy.root.starts_with(root) {
        return Err(RuntimeError::usage(
            "the copy would be inside the project; choose another directory",
        ));
    }
    copy_tree(root, &copy.root, true)
        .with_context(doing)
        .or_fail()?;
    let plan = Plan::make(&copy.root, session, &Extent::All, &Chosen::default())?;
    let images = Images::new(session.artifacts().or_usage()?);
    copy.not_rebuilt = restore_without_record(&copy.root, &images, &plan)?;
    let gaps = plan.gaps.iter().map(|gap| RefusedFile {
        path: format!("event {}", gap.sequence),
        reason: gap.reason.clone(),
    });
    copy.not_rebuilt.extend(gaps);
    Ok(copy)
}

impl Drop for Copy {
    fn drop(&mut self) {
        if !self.keep {
            // A directory that cannot be removed is only litter.
            let _ = agent_fs::remove_tree(&self.root);
        }
    }
}

/// Copies everything but the record of sessions. Pipes, sockets and devices are left out.
fn copy_tree(from: &Path, to: &Path, is_root: bool) -> io::Result<()> {
    if is_root {
        // A project of its own, whatever lies above it.
        fs::create_dir(to.join(AGENT_DIRECTORY))?;
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let metadata = source.symlink_metadata()?;
        if metadata.is_symlink() {
            symlink(fs::read_link(&source)?, &target)?;
        } else if metadata.is_dir() {
            if is_root && entry.file_name() == AGENT_DIRECTORY {
                copy_settings(&source, &target)?;
                continue;
            }
            fs::create_dir(&target)?;
            copy_tree(&source, &target, false)?;
            fs::set_permissions(&target, metadata.permissions())?;
        } else if metadata.is_file() {
            // Shares the bytes where the file system can.
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

/// The files beside the sessions.
fn copy_settings(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
