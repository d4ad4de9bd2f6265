//! A directory tree that a command may be changing while we look at it: every place is reached
//! by descriptor and one name at a time, so that no link on the way leads anywhere else.

use std::ffi::{OsStr, OsString};
use std::io;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, StatxFlags,
};

/// A directory and what is below it. Paths are relative to it.
#[derive(Debug)]
pub(crate) struct Tree {
    path: PathBuf,
    directory: OwnedFd,
}

const STEP: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// One name after the other, none of them a link.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// The time as files tell it: that of a file made just now, in memory.
pub(crate) fn now() -> io::Result<SystemTime> {
    let file = rustix::fs::memfd_create(c"now", rustix::fs::MemfdFlags::CLOEXEC)?;
    std::fs::File::from(file).metadata()?.modified()
}

impl Tree {
    /// The one way in that follows links; `path` was resolved before.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let directory = rustix::fs::open(path, STEP, Mode::empty())?;
        Ok(Self {
            path: path.to_owned(),
            directory,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn directory(&self, relative: &Path) -> io::Result<OwnedFd> {
        if relative.as_os_str().is_empty() {
            return self.directory.try_clone();
        }
        match rustix::fs::openat2(&self.directory, relative, STEP, Mode::empty(), INSIDE) {
            Err(rustix::io::Errno::NOSYS) => self.directory_by_steps(relative),
            other => Ok(other?),
        }
    }

    /// In a sandbox like ours there is no call that does it at once.
    fn directory_by_steps(&self, relative: &Path) -> io::Result<OwnedFd> {
        let mut at = self.directory.try_clone()?;
        for component in relative.components() {
            let Component::Normal(name) = component else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            at = rustix::fs::openat(&at, name, STEP, Mode::empty())?;
        }
        Ok(at)
    }

    /// A directory to be listed.
    pub(crate) fn open_directory(&self, relative: &Path) -> io::Result<OwnedFd> {
        const FLAGS: OFlags = OFlags::RDONLY
            .union(OFlags::DIRECTORY)
            .union(OFlags::NOFOLLOW)
            .union(OFlags::CLOEXEC);
        let here = Path::new(".");
        let path = if relative.as_os_str().is_empty() {
            here
        } else {
            relative
        };
        match rustix::fs::openat2(&self.directory, path, FLAGS, Mode::empty(), INSIDE) {
            Err(rustix::io::Errno::NOSYS) => {
                let place = self.directory_by_steps(relative)?;
                Ok(rustix::fs::openat(place, here, FLAGS, Mode::empty())?)
            }
            other => Ok(other?),
        }
    }

    /// When something was made or, where the file system does not know, when it was last changed.
    pub(crate) fn made(&self, relative: &Path) -> io::Result<SystemTime> {
        let (parent, name) = self.place(relative)?;
        let wanted = StatxFlags::BTIME | StatxFlags::CTIME;
        let data = rustix::fs::statx(parent, name, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
        let known = data.stx_mask & StatxFlags::BTIME.bits() != 0;
        let time = if known {
            data.stx_btime
        } else {
            data.stx_ctime
        };
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Ok(SystemTime::UNIX_EPOCH + Duration::new(seconds, time.tv_nsec))
    }

    /// The directory that holds a path, and its name there.
    fn place<'a>(&self, relative: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let name = relative.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = relative.parent().unwrap_or(Path::new(""));
        Ok((self.directory(parent)?, name))
    }

    pub(crate) fn metadata(&self, relative: &Path) -> io::Result<Stat> {
        let (parent, name) = self.place(relative)?;
        Ok(rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    pub(crate) fn kind(&self, relative: &Path) -> Option<FileType> {
        let data = self.metadata(relative).ok()?;
        Some(FileType::from_raw_mode(data.st_mode))
    }

    pub(crate) fn exists(&self, relative: &Path) -> bool {
        self.metadata(relative).is_ok()
    }

    /// Where a link points.
    pub(crate) fn link(&self, relative: &Path) -> io::Result<PathBuf> {
        let (parent, name) = self.place(relative)?;
        let target = rustix::fs::readlinkat(parent, name, Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// The names in a directory, in order; none if it is not one or may not be read.
    pub(crate) fn names(&self, relative: &Path) -> Vec<OsString> {
        let read = || -> io::Result<Vec<OsString>> {
            let opened = self.open_directory(relative)?;
            let mut names = Vec::new();
            for entry in Dir::new(opened)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    names.push(OsStr::from_bytes(name).to_owned());
                }
            }
            names.sort();
            Ok(names)
        };
        read().unwrap_or_default()
    }

    /// The beginning of a regular file, at most this much.
    pub(crate) fn read(&self, relative: &Path, most: u64) -> io::Result<Vec<u8>> {
        let (parent, name) = self.place(relative)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = std::fs::File::from(rustix::fs::openat(parent, name, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut content = Vec::new();
        file.take(most).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Makes a file where nothing is, and the directories above it that are missing.
    pub(crate) fn create(&self, relative: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        self.make_parents(relative)?;
        let (parent, name) = self.place(relative)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600))?;
        std::fs::File::from(made.try_clone()?).write_all(content)?;
        Ok(rustix::fs::fchmod(made, Mode::from_raw_mode(mode))?)
    }

    /// Makes a link where nothing is.
    pub(crate) fn create_link(&self, relative: &Path, target: &Path) -> io::Result<()> {
        self.make_parents(relative)?;
        let (parent, name) = self.place(relative)?;
        Ok(rustix::fs::symlinkat(target, parent, name)?)
    }

    pub(crate) fn make_parents(&self, relative: &Path) -> io::Result<()> {
        let mut at = self.directory.try_clone()?;
        for component in relative.parent().unwrap_or(Path::new("")).components() {
            let Component::Normal(name) = component else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            at = rustix::fs::openat(&at, name, STEP, Mode::empty())?;
        }
        Ok(())
    }

    /// Gives something another name, in this tree or in another, where nothing has it yet. Modes
    /// that were set to prevent that are no obstacle to the owner.
    pub(crate) fn take_to(&self, relative: &Path, other: &Self, target: &Path) -> io::Result<()> {
        let (from, name) = self.place(relative)?;
        let (to, new) = other.place(target)?;
        match rename(from.as_fd(), name, to.as_fd(), new) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let opened = open_up(from.as_fd())?;
                let inside = rustix::fs::openat(&from, name, STEP, Mode::empty());
                let _ = inside.map(|directory| open_up(directory.as_fd()));
                let moved = rename(from.as_fd(), name, to.as_fd(), new);
                rustix::fs::chmod(by_descriptor(from.as_fd()), opened)?;
                moved
            }
            other => other,
        }
    }
}

fn rename(from: BorrowedFd<'_>, name: &OsStr, to: BorrowedFd<'_>, new: &OsStr) -> io::Result<()> {
    match rustix::fs::renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        // Some file systems cannot promise it. Nobody else writes where we move things to.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS)
            if rustix::fs::statat(to, new, AtFlags::SYMLINK_NOFOLLOW).is_err() =>
        {
            Ok(rustix::fs::renameat(from, name, to, new)?)
        }
        other => Ok(other?),
    }
}

/// Lets the owner of a directory change it; gives back the mode it had.
fn open_up(directory: BorrowedFd<'_>) -> io::Result<Mode> {
    let mode = Mode::from_raw_mode(rustix::fs::fstat(directory)?.st_mode & 0o7777);
    rustix::fs::chmod(by_descriptor(directory), mode | Mode::RWXU)?;
    Ok(mode)
}

/// A descriptor that was opened only to lead somewhere takes no change of mode; its name does.
fn by_descriptor(descriptor: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_on_the_way_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        std::fs::create_dir_all(base.join("inside/plain")).unwrap();
        std::fs::create_dir_all(base.join("outside")).unwrap();
        std::fs::write(base.join("outside/file"), "theirs").unwrap();
        std::fs::write(base.join("inside/plain/file"), "ours").unwrap();
        std::os::unix::fs::symlink("../outside", base.join("inside/link")).unwrap();
        let tree = Tree::open(&base.join("inside")).unwrap();
        let (plain, linked) = (Path::new("plain/file"), Path::new("link/file"));
        assert_eq!(tree.read(plain, 9).unwrap(), b"ours");
        assert_eq!(tree.read(plain, 2).unwrap(), b"ou");
        assert!(tree.read(linked, 9).is_err() && !tree.exists(linked));
        assert!(tree.read(Path::new("../outside/file"), 9).is_err());
        assert!(tree.names(Path::new("link")).is_empty());
        assert_eq!(tree.names(Path::new("")), ["link", "plain"]);
        assert!(tree.take_to(linked, &tree, Path::new("stolen")).is_err());
        assert!(tree.create(Path::new("link/new"), 0o644, b"x").is_err());
        assert_eq!(
            tree.link(Path::new("link")).unwrap(),
            Path::new("../outside")
        );

        tree.create(Path::new("a/b/new"), 0o640, b"made").unwrap();
        assert!(tree.create(Path::new("a/b/new"), 0o640, b"again").is_err());
        tree.take_to(Path::new("a/b/new"), &tree, plain)
            .unwrap_err();
        tree.take_to(Path::new("a/b/new"), &tree, Path::new("moved"))
            .unwrap();
        assert_eq!(std::fs::read(base.join("inside/moved")).unwrap(), b"made");
        assert_eq!(std::fs::read(base.join("outside/file")).unwrap(), b"theirs");
    }

    #[test]
    fn modes_do_not_keep_the_owner_from_moving_something() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let mode = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&inner, 0o555);
        mode(&folder.path().join("a"), 0o555);
        let tree = Tree::open(folder.path()).unwrap();
        tree.take_to(Path::new("a/b"), &tree, Path::new("taken"))
            .unwrap();
        assert!(folder.path().join("taken").exists());
        let left = std::fs::metadata(folder.path().join("a")).unwrap();
        assert_eq!(left.permissions().mode() & 0o7777, 0o555);
    }
}
