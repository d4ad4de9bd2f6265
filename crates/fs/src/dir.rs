//! Open directory, and everything below it by relative paths without links.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags, Stat, StatxFlags};
use rustix::io::Errno;

use crate::beneath::{STEP, beneath};

/// Open directory. Paths are relative to it, and no link on the way is followed; at the end of a path a link
/// stands for itself.
#[derive(Debug)]
pub struct Dir {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The directory that holds a path.
enum Parent<'a> {
    Own(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(descriptor) => *descriptor,
            Self::Opened(descriptor) => descriptor.as_fd(),
        }
    }
}

impl Dir {
    /// Opens a directory wherever `path` leads: what leads to it belongs to the user and may hold links.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, STEP.difference(OFlags::NOFOLLOW))
    }

    /// The same for a directory that may not itself be a link.
    ///
    /// # Errors
    /// When it cannot be opened; `ENOTDIR` for a link.
    pub fn open_nofollow(path: &Path) -> io::Result<Self> {
        Self::open_with(path, STEP)
    }

    fn open_with(path: &Path, flags: OFlags) -> io::Result<Self> {
        Ok(Self {
            descriptor: rustix::fs::openat(CWD, path, flags, Mode::empty())?,
            path: path.to_owned(),
        })
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// # Errors
    /// When there are no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            descriptor: self.descriptor.try_clone()?,
            path: self.path.clone(),
        })
    }

    /// The directory at `relative`.
    ///
    /// # Errors
    /// When there is none, or it cannot be entered.
    pub fn dir(&self, relative: &Path) -> io::Result<Self> {
        Ok(Self {
            descriptor: beneath(self, relative, STEP, Mode::empty())?,
            path: self.path.join(relative),
        })
    }

    /// The directory that holds `relative`, as one of its own.
    ///
    /// # Errors
    /// When there is none, or it cannot be entered.
    pub fn parent<'p>(&self, relative: &'p Path) -> io::Result<(Self, &'p OsStr)> {
        let (above, name) = split(relative)?;
        Ok((self.dir(above)?, name))
    }

    /// The directory that holds `relative`, made with those above it that are missing; how many were made is given
    /// back too.
    ///
    /// # Errors
    /// When one cannot be made or entered. Those made before that stay.
    pub fn make_parent<'p>(
        &self,
        relative: &'p Path,
        mode: u32,
    ) -> io::Result<(Self, &'p OsStr, usize)> {
        let (above, name) = split(relative)?;
        let (mut at, mut made) = (self.try_clone()?, 0);
        for component in above.components() {
            let Component::Normal(step) = component else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            let step = Path::new(step);
            at = match at.dir(step) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match rustix::fs::mkdirat(&at, step, Mode::from_raw_mode(mode)) {
                        Ok(()) => made += 1,
                        Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    at.dir(step)?
                }
                other => other?,
            };
        }
        Ok((at, name, made))
    }

    fn parent_of<'a, 'p>(&'a self, relative: &'p Path) -> io::Result<(Parent<'a>, &'p OsStr)> {
        let (above, name) = split(relative)?;
        let parent = if above.as_os_str().is_empty() {
            Parent::Own(self.as_fd())
        } else {
            Parent::Opened(beneath(self, above, STEP, Mode::empty())?)
        };
        Ok((parent, name))
    }

    /// Opens what is at `relative`.
    ///
    /// # Errors
    /// When it cannot be opened; `ELOOP` for a link.
    pub fn open_at(&self, relative: &Path, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
        beneath(self, relative, flags, Mode::from_raw_mode(mode))
    }

    /// Opens a regular file with these flags. A pipe or device in its place answers at once.
    ///
    /// # Errors
    /// When it cannot be opened; `InvalidInput` if it is something else than a regular file.
    pub fn open_file(&self, relative: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(self.open_at(relative, flags, mode)?);
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// As [`Self::open_file`].
    pub fn file(&self, relative: &Path) -> io::Result<File> {
        self.open_file(relative, OFlags::RDONLY, 0)
    }

    /// The beginning of a regular file, at most this much.
    ///
    /// # Errors
    /// As [`Self::open_file`], or when it cannot be read.
    pub fn read(&self, relative: &Path, most: u64) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        self.file(relative)?.take(most).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Status of `relative`, as `lstat` returns it.
    ///
    /// # Errors
    /// When there is nothing, or it cannot be read.
    pub fn stat(&self, relative: &Path) -> io::Result<Stat> {
        let (parent, name) = self.parent_of(relative)?;
        Ok(rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    #[must_use]
    pub fn kind(&self, relative: &Path) -> Option<FileType> {
        Some(kind_of(&self.stat(relative).ok()?))
    }

    #[must_use]
    pub fn exists(&self, relative: &Path) -> bool {
        self.stat(relative).is_ok()
    }

    /// Birth time of `relative` or, where the file system records none, the time of its last change.
    ///
    /// # Errors
    /// When there is nothing, or it cannot be read.
    pub fn created(&self, relative: &Path) -> io::Result<SystemTime> {
        let (parent, name) = self.parent_of(relative)?;
        let wanted = StatxFlags::BTIME | StatxFlags::CTIME;
        let data = rustix::fs::statx(parent, name, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
        let is_known = data.stx_mask & StatxFlags::BTIME.bits() != 0;
        let time = if is_known {
            data.stx_btime
        } else {
            data.stx_ctime
        };
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Ok(SystemTime::UNIX_EPOCH + Duration::new(seconds, time.tv_nsec))
    }

    /// Target of the link at `relative`.
    ///
    /// # Errors
    /// When there is none; `EINVAL` for something that is no link.
    pub fn link(&self, relative: &Path) -> io::Result<PathBuf> {
        let (parent, name) = self.parent_of(relative)?;
        let target = rustix::fs::readlinkat(parent, name, Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// Opens a directory to be listed.
    ///
    /// # Errors
    /// When there is none, or it may not be listed.
    pub fn listing(&self, relative: &Path) -> io::Result<OwnedFd> {
        self.open_at(relative, OFlags::RDONLY | OFlags::DIRECTORY, 0)
    }

    /// The names in a directory, in order.
    ///
    /// # Errors
    /// When there is none, or it may not be listed.
    pub fn names(&self, relative: &Path) -> io::Result<Vec<OsString>> {
        let listing = self.listing(relative)?;
        let mut buffer = Vec::with_capacity(8 << 10);
        let mut entries = RawDir::new(listing, buffer.spare_capacity_mut());
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Makes a file where nothing is, and the directories above it that are missing.
    ///
    /// # Errors
    /// When something is there, or it cannot be made.
    pub fn create(&self, relative: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        let (parent, name, _) = self.make_parent(relative, 0o755)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let made = parent.open_file(Path::new(name), flags, 0o600)?;
        (&made).write_all(content)?;
        Ok(rustix::fs::fchmod(made, Mode::from_raw_mode(mode))?)
    }

    /// Makes a link where nothing is, and the directories above it that are missing.
    ///
    /// # Errors
    /// When something is there, or it cannot be made.
    pub fn create_link(&self, relative: &Path, target: &Path) -> io::Result<()> {
        let (parent, name, _) = self.make_parent(relative, 0o755)?;
        Ok(rustix::fs::symlinkat(target, parent, name)?)
    }

    /// Makes a directory where nothing is.
    ///
    /// # Errors
    /// When something is there, or it cannot be made.
    pub fn make_dir(&self, relative: &Path, mode: u32) -> io::Result<()> {
        let (parent, name) = self.parent_of(relative)?;
        Ok(rustix::fs::mkdirat(
            parent,
            name,
            Mode::from_raw_mode(mode),
        )?)
    }

    /// Sets the permission bits of a file or directory.
    ///
    /// # Errors
    /// When there is neither, or it belongs to another user.
    pub fn set_mode(&self, relative: &Path, mode: u32) -> io::Result<()> {
        let mode = Mode::from_raw_mode(mode);
        match self.open_at(relative, OFlags::RDONLY | OFlags::NONBLOCK, 0) {
            Ok(opened) => Ok(rustix::fs::fchmod(opened, mode)?),
            // One that may not be read can still be given its bits, by its name; it is no link, or the system would
            // not have said that it may not be read.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let (parent, name) = self.parent_of(relative)?;
                Ok(rustix::fs::chmodat(parent, name, mode, AtFlags::empty())?)
            }
            Err(error) => Err(error),
        }
    }

    /// Renames a file, replacing what has that name.
    ///
    /// # Errors
    /// When it cannot be renamed.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from, name), (to, new)) = (self.parent_of(from)?, self.parent_of(to)?);
        Ok(rustix::fs::renameat(from, name, to, new)?)
    }

    /// Adds a hard link to a file under a name that must be free.
    ///
    /// # Errors
    /// When it cannot be given one.
    pub fn add_name(&self, file: &Path, new: &Path) -> io::Result<()> {
        let ((from, name), (to, new)) = (self.parent_of(file)?, self.parent_of(new)?);
        Ok(rustix::fs::linkat(from, name, to, new, AtFlags::empty())?)
    }

    /// Moves an entry to a free name, in this directory or in another. Modes that were set to
    /// prevent that are no obstacle to the owner.
    ///
    /// # Errors
    /// When it cannot be moved, to another file system for example.
    pub fn move_to(&self, relative: &Path, other: &Self, target: &Path) -> io::Result<()> {
        let (from, name) = self.parent_of(relative)?;
        let (to, new) = other.parent_of(target)?;
        match rename_new(from.as_fd(), name, to.as_fd(), new) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let had = open_to_owner(from.as_fd())?;
                let inside = rustix::fs::openat(&from, name, STEP, Mode::empty());
                let _ = inside.map(|directory| open_to_owner(directory.as_fd()));
                let moved = rename_new(from.as_fd(), name, to.as_fd(), new);
                rustix::fs::chmod(by_descriptor(from.as_fd()), had)?;
                moved
            }
            other => other,
        }
    }

    /// Removes a file or link.
    ///
    /// # Errors
    /// When there is none, or it cannot be removed.
    pub fn remove_file(&self, relative: &Path) -> io::Result<()> {
        let (parent, name) = self.parent_of(relative)?;
        Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?)
    }

    /// Removes a directory, which has to be empty.
    ///
    /// # Errors
    /// When there is none, or it cannot be removed.
    pub fn remove_dir(&self, relative: &Path) -> io::Result<()> {
        let (parent, name) = self.parent_of(relative)?;
        Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
    }

    /// Makes new names in this directory survive a power cut.
    ///
    /// # Errors
    /// When the system cannot promise it.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.listing(Path::new(""))?)?)
    }

    /// Returns once everything written to the file system of this directory is on disk.
    ///
    /// # Errors
    /// When the system cannot promise it.
    pub fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(self.listing(Path::new(""))?)?)
    }
}

#[must_use]
pub fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The part of a path above its last name, and that name.
fn split(relative: &Path) -> io::Result<(&Path, &OsStr)> {
    let name = relative.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok((relative.parent().unwrap_or(Path::new("")), name))
}

fn rename_new(
    from: BorrowedFd<'_>,
    name: &OsStr,
    to: BorrowedFd<'_>,
    new: &OsStr,
) -> io::Result<()> {
    match rustix::fs::renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        // Some file systems cannot promise it. Only we write where things are moved to.
        Err(Errno::INVAL | Errno::NOSYS)
            if rustix::fs::statat(to, new, AtFlags::SYMLINK_NOFOLLOW).is_err() =>
        {
            Ok(rustix::fs::renameat(from, name, to, new)?)
        }
        other => Ok(other?),
    }
}

/// Lets the owner of a directory change it; gives back the mode it had.
pub(crate) fn open_to_owner(directory: BorrowedFd<'_>) -> io::Result<Mode> {
    let mode = Mode::from_raw_mode(rustix::fs::fstat(directory)?.st_mode & 0o7777);
    rustix::fs::chmod(by_descriptor(directory), mode | Mode::RWXU)?;
    Ok(mode)
}

/// Path of a descriptor: the mode of one opened with `O_PATH` can only be changed by name.
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
        let dir = Dir::open(&base.join("inside")).unwrap();
        let (plain, linked) = (Path::new("plain/file"), Path::new("link/file"));
        assert_eq!(dir.read(plain, 9).unwrap(), b"ours");
        assert_eq!(dir.read(plain, 2).unwrap(), b"ou");
        assert!(dir.read(linked, 9).is_err() && !dir.exists(linked));
        assert!(dir.read(Path::new("../outside/file"), 9).is_err());
        assert!(dir.names(Path::new("link")).is_err());
        assert_eq!(dir.names(Path::new("")).unwrap(), ["link", "plain"]);
        assert!(dir.move_to(linked, &dir, Path::new("stolen")).is_err());
        assert!(dir.create(Path::new("link/new"), 0o644, b"x").is_err());
        assert_eq!(
            dir.link(Path::new("link")).unwrap(),
            Path::new("../outside")
        );

        dir.create(Path::new("a/b/new"), 0o640, b"made").unwrap();
        assert!(dir.create(Path::new("a/b/new"), 0o640, b"again").is_err());
        dir.move_to(Path::new("a/b/new"), &dir, plain).unwrap_err();
        dir.move_to(Path::new("a/b/new"), &dir, Path::new("moved"))
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
        let dir = Dir::open(folder.path()).unwrap();
        dir.move_to(Path::new("a/b"), &dir, Path::new("taken"))
            .unwrap();
        assert!(folder.path().join("taken").exists());
        let left = std::fs::metadata(folder.path().join("a")).unwrap();
        assert_eq!(left.permissions().mode() & 0o7777, 0o555);
    }
}
