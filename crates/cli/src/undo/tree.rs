//! The project's files on disk: looked at and put back beneath the root, never through a link.
//!
//! Names come from a log, which a repository may bring along, so each is opened from the root's own
//! descriptor with links forbidden on the way. The last name may be a link: then the link itself is
//! meant, not what it leads to. New content is written beside its place and renamed over it, so that
//! whoever looks, also after a kill, finds the old file or the new one.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Component, Path, PathBuf};

use agent_session::workspace::{Content, PathState};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, XattrFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

const BUFFER: usize = 128 << 10;

/// An open project root.
pub(crate) struct Tree {
    root: OwnedFd,
    path: PathBuf,
}

/// What is at a path now.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) state: PathState,
    stamp: Option<Stamp>,
}

/// What the system says of a file; a later change shows in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
    mode: u32,
    links: u64,
    owner: (u32, u32),
}

impl Seen {
    /// Nothing is there.
    pub(crate) fn nothing() -> Self {
        Self {
            state: PathState::Missing,
            stamp: None,
        }
    }

    /// What could not be looked at.
    pub(crate) fn unknown() -> Self {
        Self {
            state: PathState::Unknown,
            stamp: None,
        }
    }
}

impl Tree {
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            root: rustix::fs::open(root, flags, Mode::empty())?,
            path: root.to_owned(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at `name` and hashes it.
    pub(crate) fn look(&self, name: &Path) -> io::Result<Seen> {
        let nothing = Seen::nothing();
        let (directory, file_name) = match self.parent(name) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(nothing),
            // A file where a directory was: then nothing is below it.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTDIR) => {
                return Ok(nothing);
            }
            Err(error) => return Err(error),
        };
        let stat = match rustix::fs::statat(&directory, &file_name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(nothing),
            Err(error) => return Err(error.into()),
        };
        let mode = stat.st_mode & 0o7777;
        let state = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let file = open_file(&directory, &file_name)?;
                let (sha256, bytes) = hash(file, stat.st_size)?;
                PathState::File(Content {
                    sha256: Some(sha256),
                    bytes: Some(bytes),
                    mode: Some(mode),
                    ..Content::default()
                })
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&directory, &file_name, Vec::new())?;
                let target = target.as_bytes();
                PathState::Symlink(Content {
                    sha256: Some(agent_text::sha256_hex(target)),
                    bytes: Some(target.len() as u64),
                    ..Content::default()
                })
            }
            FileType::Directory => PathState::Directory { mode: Some(mode) },
            FileType::Fifo => special("pipe"),
            FileType::Socket => special("socket"),
            _ => special("device"),
        };
        Ok(Seen {
            state,
            stamp: Some(Stamp::of(&stat)),
        })
    }

    /// The bytes of what was seen: a file's content or a link's target.
    pub(crate) fn read(&self, name: &Path) -> io::Result<Vec<u8>> {
        let (directory, file_name) = self.parent(name)?;
        match rustix::fs::readlinkat(&directory, &file_name, Vec::new()) {
            Ok(target) => return Ok(target.into_bytes()),
            Err(Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
        let mut bytes = Vec::new();
        open_file(&directory, &file_name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The names in the directory `name`.
    pub(crate) fn names(&self, name: &Path) -> io::Result<Vec<OsString>> {
        let (directory, file_name) = self.parent(name)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let directory = rustix::fs::openat(&directory, &file_name, flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&directory)? {
            let entry = entry?;
            let entry = entry.file_name().to_bytes();
            if entry != b"." && entry != b".." {
                names.push(OsStr::from_bytes(entry).to_owned());
            }
        }
        Ok(names)
    }

    /// Puts a file with `content` at `name` if what is there is still what was `seen`.
    pub(crate) fn put_file(
        &self,
        name: &Path,
        seen: &Seen,
        content: &[u8],
        mode: Option<u32>,
    ) -> io::Result<()> {
        let (directory, file_name) = self.parent(name)?;
        let old = seen
            .stamp
            .filter(|_| matches!(seen.state, PathState::File(_)));
        if let Some(old) = old
            && old.links > 1
        {
            // A rename would part the file from its other names.
            still(&directory, &file_name, seen)?;
            return write_in_place(&directory, &file_name, content, mode);
        }
        let staged = staged_name(name);
        let _ = rustix::fs::unlinkat(&directory, &staged, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let new_mode = if old.is_some() { 0o600 } else { 0o666 };
        let file = rustix::fs::openat(
            &directory,
            &staged,
            flags | OFlags::CLOEXEC,
            Mode::from_raw_mode(new_mode),
        )?;
        let mut file = Staged {
            directory: &directory,
            name: &staged,
            file: File::from(file),
            renamed: false,
        };
        file.file.write_all(content)?;
        if let Some(old) = old {
            if !dress(&directory, &file_name, &file.file, &old)? {
                drop(file);
                still(&directory, &file_name, seen)?;
                return write_in_place(&directory, &file_name, content, mode);
            }
            if mode.is_none() {
                rustix::fs::fchmod(&file.file, permissions(old.mode, false))?;
            }
        }
        if let Some(mode) = mode {
            rustix::fs::fchmod(&file.file, permissions(mode, false))?;
        }
        file.rename_to(&file_name, seen)
    }

    /// Puts a link to `target` at `name`.
    pub(crate) fn put_link(&self, name: &Path, seen: &Seen, target: &[u8]) -> io::Result<()> {
        let (directory, file_name) = self.parent(name)?;
        let staged = staged_name(name);
        let _ = rustix::fs::unlinkat(&directory, &staged, AtFlags::empty());
        rustix::fs::symlinkat(OsStr::from_bytes(target), &directory, &staged)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let link = rustix::fs::openat(&directory, &staged, flags, Mode::empty())?;
        let mut staged = Staged {
            directory: &directory,
            name: &staged,
            file: File::from(link),
            renamed: false,
        };
        staged.rename_to(&file_name, seen)
    }

    /// Makes the directory `name`.
    pub(crate) fn make_directory(&self, name: &Path) -> io::Result<()> {
        let (directory, file_name) = self.parent(name)?;
        match rustix::fs::mkdirat(&directory, &file_name, Mode::from_raw_mode(0o777)) {
            Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets the permission bits of a file or directory.
    pub(crate) fn set_mode(&self, name: &Path, mode: u32) -> io::Result<()> {
        let (directory, file_name) = self.parent(name)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let stat = rustix::fs::statat(&directory, &file_name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
        let mode = permissions(mode, is_directory);
        match rustix::fs::openat(&directory, &file_name, flags, Mode::empty()) {
            Ok(file) => Ok(rustix::fs::fchmod(file, mode)?),
            // One that may not be read can still be given its bits, by its name; it is no link, or
            // the system would not have said that it may not be read.
            Err(Errno::ACCESS) => Ok(rustix::fs::chmodat(
                &directory,
                &file_name,
                mode,
                AtFlags::empty(),
            )?),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the file or link at `name` if it is still what was `seen`.
    pub(crate) fn remove_file(&self, name: &Path, seen: &Seen) -> io::Result<()> {
        let (directory, file_name) = self.parent(name)?;
        still(&directory, &file_name, seen)?;
        Ok(rustix::fs::unlinkat(
            &directory,
            &file_name,
            AtFlags::empty(),
        )?)
    }

    /// Removes the directory `name`, which has to be empty.
    pub(crate) fn remove_directory(&self, name: &Path) -> io::Result<()> {
        let (directory, file_name) = self.parent(name)?;
        Ok(rustix::fs::unlinkat(
            &directory,
            &file_name,
            AtFlags::REMOVEDIR,
        )?)
    }

    /// Gives what is at `name` a second name beside it that nothing has yet, and says which.
    pub(crate) fn keep_beside(&self, name: &Path) -> io::Result<PathBuf> {
        let (directory, file_name) = self.parent(name)?;
        for number in 0..1000_u32 {
            let mut beside = file_name.clone();
            beside.push(".orig");
            if number > 0 {
                beside.push(format!(".{number}"));
            }
            match rustix::fs::linkat(
                &directory,
                &file_name,
                &directory,
                &beside,
                AtFlags::empty(),
            ) {
                Ok(()) => return Ok(name.with_file_name(beside)),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Removes what a killed undo may have left beside `name`.
    pub(crate) fn sweep(&self, name: &Path) {
        if let Ok((directory, _)) = self.parent(name) {
            let _ = rustix::fs::unlinkat(&directory, staged_name(name), AtFlags::empty());
        }
    }

    /// Returns once everything written to the project's file system is on disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.root)?)
    }

    /// The directory that holds `name`, and its name there.
    fn parent(&self, name: &Path) -> io::Result<(OwnedFd, OsString)> {
        let file_name = name.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let above = match name.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => Path::new("."),
        };
        let directory = beneath(&self.root, above)?;
        Ok((directory, file_name.to_owned()))
    }
}

/// Whether `name` is a path we would ever write: relative, without `..`, and neither the record
/// itself nor a repository's own files.
pub(crate) fn refusal(name: &str) -> Option<&'static str> {
    let path = Path::new(name);
    if name.is_empty() || path.is_absolute() {
        return Some("it is outside of the project");
    }
    if name.contains(char::REPLACEMENT_CHARACTER) {
        return Some("its name is not text, and the log does not have its bytes");
    }
    for component in path.components() {
        match component {
            Component::Normal(part) if part == ".git" => {
                return Some("undo does not touch a repository's own files");
            }
            Component::Normal(part) if part == agent_session::AGENT_DIRECTORY => {
                return Some("undo does not touch `.agent`");
            }
            Component::Normal(_) => {}
            _ => return Some("it is outside of the project"),
        }
    }
    None
}

impl Stamp {
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
            mode: stat.st_mode,
            links: stat.st_nlink,
            owner: (stat.st_uid, stat.st_gid),
        }
    }

    /// A second name or another one less changes the number of names and the time of change only.
    fn same_content(&self, other: &Self) -> bool {
        (self.device, self.inode, self.size, self.modified, self.mode)
            == (
                other.device,
                other.inode,
                other.size,
                other.modified,
                other.mode,
            )
    }
}

/// A new file beside the target; gone again unless it was renamed.
struct Staged<'a> {
    directory: &'a OwnedFd,
    name: &'a OsStr,
    file: File,
    renamed: bool,
}

impl Staged<'_> {
    fn rename_to(&mut self, file_name: &OsStr, seen: &Seen) -> io::Result<()> {
        still(self.directory, file_name, seen)?;
        let renamed = if seen.stamp.is_none() {
            rustix::fs::renameat_with(
                self.directory,
                self.name,
                self.directory,
                file_name,
                RenameFlags::NOREPLACE,
            )
        } else {
            rustix::fs::renameat(self.directory, self.name, self.directory, file_name)
        };
        let renamed = match renamed {
            // Not every file system knows the flag; nothing was there a moment ago.
            Err(Errno::INVAL | Errno::NOSYS) if seen.stamp.is_none() => {
                rustix::fs::renameat(self.directory, self.name, self.directory, file_name)
            }
            other => other,
        };
        renamed?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = rustix::fs::unlinkat(self.directory, self.name, AtFlags::empty());
        }
    }
}

/// Always the same name for the same target, so that a repeated undo finds what a killed one left.
fn staged_name(name: &Path) -> OsString {
    let digest = Sha256::digest(name.as_os_str().as_bytes());
    format!(".agent-undo-{}", &agent_text::hex(&digest)[..16]).into()
}

/// Fails unless what is there is what was seen.
fn still(directory: &OwnedFd, file_name: &OsStr, seen: &Seen) -> io::Result<()> {
    let now = match rustix::fs::statat(directory, file_name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(Stamp::of(&stat)),
        Err(Errno::NOENT) => None,
        Err(error) => return Err(error.into()),
    };
    let same = match (&now, &seen.stamp) {
        (None, None) => true,
        (Some(now), Some(then)) => now.same_content(then),
        _ => false,
    };
    if same {
        return Ok(());
    }
    Err(io::Error::other("it changed a moment ago"))
}

/// Gives the new file owner and attributes of the old one; says whether it could.
fn dress(directory: &OwnedFd, file_name: &OsStr, new: &File, old: &Stamp) -> io::Result<bool> {
    let own = Stamp::of(&rustix::fs::fstat(new)?);
    if own.owner != old.owner {
        let owner = rustix::fs::Uid::from_raw(old.owner.0);
        let group = rustix::fs::Gid::from_raw(old.owner.1);
        if rustix::fs::fchown(new, Some(owner), Some(group)).is_err() {
            return Ok(false);
        }
    }
    if let Ok(old) = open_file(directory, file_name) {
        copy_attributes(&old, new);
    }
    Ok(true)
}

/// The bits of a record that are put back. Not those with which a program runs as its owner: a record may
/// come from somebody else.
fn permissions(mode: u32, is_directory: bool) -> Mode {
    // To a directory the group's bit only says who owns what is made in it.
    Mode::from_raw_mode(mode & if is_directory { 0o3777 } else { 0o1777 })
}

/// Copies extended attributes, access lists among them; one that may not be set is left out.
fn copy_attributes(from: &File, to: &File) {
    let mut names = [0_u8; 4096];
    let Ok(length) = rustix::fs::flistxattr(from, &mut names[..]) else {
        return;
    };
    for name in names[..length].split(|byte| *byte == 0) {
        let mut value = vec![0_u8; 64 << 10];
        if !name.is_empty()
            && let Ok(length) = rustix::fs::fgetxattr(from, name, &mut value[..])
        {
            let _ = rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty());
        }
    }
}

fn write_in_place(
    directory: &OwnedFd,
    file_name: &OsStr,
    content: &[u8],
    mode: Option<u32>,
) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::openat(
        directory,
        file_name,
        flags,
        Mode::empty(),
    )?);
    file.write_all_at(content, 0)?;
    file.set_len(content.len() as u64)?;
    if let Some(mode) = mode {
        rustix::fs::fchmod(&file, permissions(mode, false))?;
    }
    Ok(())
}

fn open_file(directory: &OwnedFd, file_name: &OsStr) -> io::Result<File> {
    // Without NONBLOCK, a pipe in place of a file would hold us for ever.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, file_name, flags, Mode::empty())?;
    Ok(File::from(file))
}

/// Opens the directory `relative` beneath `root` without a single link on the way.
fn beneath(root: &OwnedFd, relative: &Path) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for _ in 0..8 {
        match rustix::fs::openat2(root, relative, flags, Mode::empty(), resolve) {
            // A rename somewhere in the tree makes the kernel unsure; it asks to try again.
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => break,
            other => return Ok(other?),
        }
    }
    let mut at = rustix::io::fcntl_dupfd_cloexec(root.as_fd(), 0)?;
    for component in relative.components() {
        match component {
            Component::Normal(name) => at = step(&at, name, flags | OFlags::NOFOLLOW)?,
            Component::CurDir => {}
            _ => return Err(Errno::XDEV.into()),
        }
    }
    Ok(at)
}

/// One step of the way; a link is told from a file in the way.
fn step(at: &OwnedFd, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    match rustix::fs::openat(at, name, flags, Mode::empty()) {
        Err(Errno::NOTDIR) => {
            let stat = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
            Err(if is_link { Errno::LOOP } else { Errno::NOTDIR }.into())
        }
        other => Ok(other?),
    }
}

fn hash(mut file: File, size: i64) -> io::Result<(String, u64)> {
    let mut hasher = Sha256::new();
    // One byte more than the file has, so that its end shows at once.
    let capacity = usize::try_from(size).map_or(BUFFER, |size| (size + 1).min(BUFFER));
    let mut buffer = vec![0; capacity];
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((agent_text::hex(&hasher.finalize()), bytes)),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                bytes += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn special(kind: &str) -> PathState {
    PathState::Special {
        kind: kind.to_owned(),
    }
}
