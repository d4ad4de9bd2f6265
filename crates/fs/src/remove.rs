//! Removal of a whole tree, whatever modes and depth a command gave it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use crate::beneath::STEP;
use crate::dir::open_to_owner;

/// Removes a directory with all that is in it. Modes that forbid it and trees deeper than any path
/// can name are no obstacle to their owner; links are removed and not followed.
///
/// # Errors
/// When something in it belongs to another user, or is a mount point.
pub fn remove_tree(directory: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => remove_deep(directory),
        _ => Ok(()),
    }
}

/// Empties directory after directory, each one's own directories being moved to the top first, so
/// that two levels are all there ever is to walk.
fn remove_deep(directory: &Path) -> io::Result<()> {
    let top = rustix::fs::open(directory, STEP, Mode::empty())?;
    open_to_owner(top.as_fd())?;
    let mut next: u64 = 0;
    loop {
        let directories = remove_files(top.as_fd())?;
        let Some(name) = directories.into_iter().next() else {
            break;
        };
        let inner = enter(top.as_fd(), &name)?;
        for deeper in remove_files(inner.as_fd())? {
            // A directory has to be writable to be moved: it changes its parent.
            drop(enter(inner.as_fd(), &deeper)?);
            loop {
                next += 1;
                let free = format!(".{next}");
                let flags = rustix::fs::RenameFlags::NOREPLACE;
                match rustix::fs::renameat_with(&inner, &deeper, &top, &free, flags) {
                    Err(rustix::io::Errno::EXIST) => {}
                    moved => break moved?,
                }
            }
        }
        rustix::fs::unlinkat(&top, &name, AtFlags::REMOVEDIR)?;
    }
    std::fs::remove_dir(directory)
}

/// Opens a directory of ours and makes it one that can be changed.
fn enter(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let directory = rustix::fs::openat(parent, name, STEP, Mode::empty())?;
    open_to_owner(directory.as_fd())?;
    Ok(directory)
}

/// Removes all that is not a directory; gives back the directories.
fn remove_files(directory: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
    let mut directories = Vec::new();
    for entry in Dir::new(listed)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let data = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(data.st_mode).is_dir() {
            directories.push(OsStr::from_bytes(name.to_bytes()).to_owned());
        } else {
            rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
        }
    }
    Ok(directories)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_links_are_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let private = folder.path().join("private");
        std::fs::create_dir(&private).unwrap();
        std::fs::write(folder.path().join("kept"), "kept").unwrap();
        for path in ["a/b", ".1"] {
            std::fs::create_dir_all(private.join(path)).unwrap();
            std::fs::write(private.join(path).join("file"), "").unwrap();
        }
        std::os::unix::fs::symlink("../kept", private.join("link")).unwrap();
        std::os::unix::fs::symlink("..", private.join("a/up")).unwrap();
        for (path, mode) in [("a/b", 0o000), ("a", 0o555), ("", 0o000)] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(private.join(path), mode).unwrap();
        }
        remove_tree(&private).unwrap();
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 1, "what the link led to, and nothing else");
        remove_tree(&private).unwrap();
    }

    #[test]
    fn the_slow_way_removes_everything_at_any_depth() {
        let folder = tempfile::tempdir().unwrap();
        let private = folder.path().join("private");
        for path in ["a/b/c", "a/b/.1", ".1/.2", ".2"] {
            std::fs::create_dir_all(private.join(path)).unwrap();
            std::fs::write(private.join(path).join("file"), "").unwrap();
        }
        // Deeper than a path can name, and than there are descriptors.
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut at = rustix::fs::open(&private, flags, Mode::empty()).unwrap();
        for _ in 0..1200 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "d", flags, Mode::empty()).unwrap();
        }
        remove_deep(&private).unwrap();
        assert!(!private.exists());
    }
}
