//! Opening below a directory without following a link.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Flags that open a directory only to lead on from it, which needs no right to list it.
pub(crate) const STEP: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens `relative` below `directory`; an empty path is the directory itself.
///
/// # Errors
/// `ELOOP` for a link on the way or at its end, `EXDEV` for a path that leads out, and what the system says.
pub fn beneath(
    directory: impl AsFd,
    relative: &Path,
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
        .union(ResolveFlags::NO_MAGICLINKS)
        .union(ResolveFlags::NO_SYMLINKS);
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let relative = if relative.as_os_str().is_empty() {
        Path::new(".")
    } else {
        relative
    };
    for _ in 0..8 {
        match rustix::fs::openat2(&directory, relative, flags, mode, RESOLVE) {
            // A rename somewhere in the tree makes the kernel unsure; it asks to try again.
            Err(Errno::AGAIN) => {}
            // `NOTDIR` is said of a file in the way and of a link; the steps tell them apart.
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::NOTDIR) => break,
            other => return Ok(other?),
        }
    }
    step_by_step(directory.as_fd(), relative, flags, mode)
}

/// The same for kernels and filters without `openat2`, a sandbox like ours among them.
fn step_by_step(
    directory: BorrowedFd<'_>,
    relative: &Path,
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let mut at = directory.try_clone_to_owned()?;
    let mut components = relative.components().peekable();
    while let Some(component) = components.next() {
        let name = match component {
            Component::Normal(name) => name,
            Component::CurDir => OsStr::new("."),
            _ => return Err(Errno::XDEV.into()),
        };
        let is_last = components.peek().is_none();
        at = step(&at, name, if is_last { flags } else { STEP }, mode)?;
    }
    Ok(at)
}

/// Opens one component; a link fails with `ELOOP`, a file in the way with `ENOTDIR`.
fn step(at: &OwnedFd, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    match rustix::fs::openat(at, name, flags, mode) {
        Err(Errno::NOTDIR) => {
            let stat = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let is_link = FileType::from_raw_mode(stat.st_mode).is_symlink();
            Err(if is_link { Errno::LOOP } else { Errno::NOTDIR }.into())
        }
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways of opening open the same and refuse the same.
    #[test]
    fn both_ways_agree() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("plain/deep")).unwrap();
        std::fs::write(root.join("plain/file"), "").unwrap();
        std::fs::write(folder.path().join("outside"), "").unwrap();
        for (target, name) in [
            ("plain", "link"),
            ("../..", "plain/up"),
            ("file", "plain/to"),
        ] {
            std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        }
        let top = rustix::fs::open(&root, STEP, Mode::empty()).unwrap();
        let read = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let cases = [
            (".", read, None),
            ("plain/deep", STEP, None),
            ("plain/file", read, None),
            ("plain/./file", read, None),
            ("plain/to", read, Some(Errno::LOOP)),
            ("link", STEP, Some(Errno::LOOP)),
            ("link/file", read, Some(Errno::LOOP)),
            ("plain/up/outside", read, Some(Errno::LOOP)),
            ("plain/file/more", read, Some(Errno::NOTDIR)),
            ("plain/none", read, Some(Errno::NOENT)),
            ("../outside", read, Some(Errno::XDEV)),
            ("/etc", STEP, Some(Errno::XDEV)),
        ];
        for (path, flags, expected) in cases {
            let path = Path::new(path);
            let at_once = beneath(&top, path, flags, Mode::empty());
            let stepped = step_by_step(top.as_fd(), path, flags, Mode::empty());
            for opened in [at_once, stepped] {
                let problem = opened.err().and_then(|error| Errno::from_io_error(&error));
                assert_eq!(problem, expected, "{}", path.display());
            }
        }
    }
}
