//! The project's files on disk: looked at and put back beneath the root, never through a link.
//!
//! Names come from a log, which a repository may bring along, so each is opened from the root's own
//! descriptor with links forbidden on the way. The last name may be a link: then the link itself is
//! meant, not what it leads to. New content is written beside its place and renamed over it, so that
//! a reader, also after a kill, finds the old file or the new one.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use agent_fs::{Dir, Hashed, Stamp, TempFile};
use agent_history::workspace::{Content, PathState};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// An open project root.
pub(super) struct Tree(Dir);

/// State of a path on disk, with the stamp that shows a later change.
#[derive(Clone, Debug)]
pub struct FoundPath {
    pub state: PathState,
    stamp: Option<Stamp>,
}

impl FoundPath {
    /// Nothing is there.
    pub fn nothing() -> Self {
        Self {
            state: PathState::Missing,
            stamp: None,
        }
    }

    /// A path that could not be read.
    pub fn unknown() -> Self {
        Self {
            state: PathState::Unknown,
            stamp: None,
        }
    }
}

impl Tree {
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        Dir::open(root).map(Self)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Reads the state of `name` and hashes it.
    pub(super) fn look(&self, name: &Path) -> io::Result<FoundPath> {
        let stat = match self.0.stat(name) {
            Ok(stat) => stat,
            // A file where a directory was: then nothing is below it.
            Err(error) if is_nothing(&error) => return Ok(FoundPath::nothing()),
            Err(error) => return Err(error),
        };
        let stamp = Stamp::of(&stat);
        let mode = stamp.permissions();
        let state = match stamp.kind() {
            FileType::RegularFile => {
                let Hashed { sha256, bytes } = agent_fs::hash(&self.0.file(name)?)?;
                PathState::File(Content {
                    sha256: Some(sha256),
                    bytes: Some(bytes),
                    mode: Some(mode),
                    ..Content::default()
                })
            }
            FileType::Symlink => {
                let target = self.0.link(name)?;
                let target = target.as_os_str().as_bytes();
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
        Ok(FoundPath {
            state,
            stamp: Some(stamp),
        })
    }

    /// The bytes of what was seen: a file's content or a link's target.
    pub(super) fn read(&self, name: &Path) -> io::Result<Vec<u8>> {
        match self.0.link(name) {
            Ok(target) => Ok(target.into_os_string().into_vec()),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                self.0.read(name, u64::MAX)
            }
            Err(error) => Err(error),
        }
    }

    /// The names in the directory `name`.
    pub(super) fn names(&self, name: &Path) -> io::Result<Vec<OsString>> {
        self.0.names(name)
    }

    /// Puts a file with `content` at `name` if what is there is still what was `seen`.
    pub(super) fn put_file(
        &self,
        name: &Path,
        seen: &FoundPath,
        content: &[u8],
        mode: Option<u32>,
    ) -> io::Result<()> {
        let (directory, file_name) = self.0.parent(name)?;
        let is_file = matches!(seen.state, PathState::File(_));
        let Some(old) = seen.stamp.filter(|_| is_file) else {
            let draft = TempFile::named(&directory, &staged_name(name), 0o666)?;
            draft.file().write_all(content)?;
            if let Some(mode) = mode {
                rustix::fs::fchmod(draft.file(), permissions(mode, false))?;
            }
            return place(draft, &directory, file_name, seen);
        };
        // A rename would part the file from its other names.
        if old.links > 1 {
            still(&directory, file_name, seen)?;
            return write_in_place(&directory, file_name, content, mode);
        }
        let draft = TempFile::named(&directory, &staged_name(name), 0o600)?;
        draft.file().write_all(content)?;
        let attributes = directory.file(Path::new(file_name)).ok();
        if !agent_fs::copy_metadata(draft.file(), &old, attributes.as_ref())? {
            drop(draft);
            still(&directory, file_name, seen)?;
            return write_in_place(&directory, file_name, content, mode);
        }
        let mode = permissions(mode.unwrap_or(old.mode), false);
        rustix::fs::fchmod(draft.file(), mode)?;
        place(draft, &directory, file_name, seen)
    }

    /// Puts a link to `target` at `name`.
    pub(super) fn put_link(&self, name: &Path, seen: &FoundPath, target: &[u8]) -> io::Result<()> {
        let (directory, file_name) = self.0.parent(name)?;
        let draft = TempFile::link(&directory, &staged_name(name), OsStr::from_bytes(target))?;
        place(draft, &directory, file_name, seen)
    }

    /// Makes the directory `name`.
    pub(super) fn make_directory(&self, name: &Path) -> io::Result<()> {
        self.0.make_dir(name, 0o777)
    }

    /// Sets the permission bits of a file or directory.
    pub(super) fn set_mode(&self, name: &Path, mode: u32) -> io::Result<()> {
        let is_directory = agent_fs::kind_of(&self.0.stat(name)?).is_dir();
        let mode = permissions(mode, is_directory);
        self.0.set_mode(name, mode.as_raw_mode())
    }

    /// Removes the file or link at `name` if it is still what was `seen`.
    pub(super) fn remove_file(&self, name: &Path, seen: &FoundPath) -> io::Result<()> {
        let (directory, file_name) = self.0.parent(name)?;
        still(&directory, file_name, seen)?;
        directory.remove_file(Path::new(file_name))
    }

    /// Removes the directory `name`, which has to be empty.
    pub(super) fn remove_directory(&self, name: &Path) -> io::Result<()> {
        self.0.remove_dir(name)
    }

    /// Gives what is at `name` a second name beside it that nothing has yet, and says which.
    pub(super) fn keep_beside(&self, name: &Path) -> io::Result<PathBuf> {
        let file_name = name.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        for number in 0..1000_u32 {
            let mut beside = file_name.to_owned();
            beside.push(".orig");
            if number > 0 {
                beside.push(format!(".{number}"));
            }
            let beside = name.with_file_name(beside);
            match self.0.add_name(name, &beside) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other.map(|()| beside),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Removes what a killed undo may have left beside `name`.
    pub(super) fn sweep(&self, name: &Path) {
        let _ = self.0.remove_file(&name.with_file_name(staged_name(name)));
    }

    /// Returns once everything written to the project's file system is on disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// True if nothing is there, or something that nothing can be below.
fn is_nothing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::NOTDIR)
}

/// Reason for which `name` is a path we would never write: not relative, with `..`, the record
/// itself or a repository's own files.
pub(super) fn refusal(name: &str) -> Option<&'static str> {
    let path = Path::new(name);
    if name.is_empty() || path.is_absolute() {
        return Some("it is outside the project");
    }
    if name.contains(char::REPLACEMENT_CHARACTER) {
        return Some("its name is not UTF-8, and the log does not have its bytes");
    }
    for component in path.components() {
        match component {
            Component::Normal(part) if part == ".git" => {
                return Some("undo does not touch files in `.git`");
            }
            Component::Normal(part) if part == agent_log::AGENT_DIRECTORY => {
                return Some("undo does not touch `.agent`");
            }
            Component::Normal(_) => {}
            _ => return Some("it is outside the project"),
        }
    }
    None
}

/// Gives a draft its name if what has it is still what was seen.
fn place(draft: TempFile, directory: &Dir, file_name: &OsStr, seen: &FoundPath) -> io::Result<()> {
    still(directory, file_name, seen)?;
    match seen.stamp {
        None => draft.create(file_name)?,
        Some(_) => draft.replace(file_name)?,
    };
    Ok(())
}

/// Always the same name for the same target, so that a repeated undo finds what a killed one left.
fn staged_name(name: &Path) -> OsString {
    let digest = agent_text::sha256_hex(name.as_os_str().as_bytes());
    format!(".agent-undo-{}", &digest[..16]).into()
}

/// Fails unless what is there is what was seen.
fn still(directory: &Dir, file_name: &OsStr, seen: &FoundPath) -> io::Result<()> {
    let now = match directory.stat(Path::new(file_name)) {
        Ok(stat) => Some(Stamp::of(&stat)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let is_same = match (&now, &seen.stamp) {
        (None, None) => true,
        (Some(now), Some(then)) => now.is_same_content(then),
        _ => false,
    };
    if is_same {
        return Ok(());
    }
    Err(io::Error::other("it changed a moment ago"))
}

/// The bits of a record that are put back. Not those with which a program runs as its owner: a record may
/// come from somebody else.
fn permissions(mode: u32, is_directory: bool) -> Mode {
    // To a directory the group's bit only says who owns what is made in it.
    Mode::from_raw_mode(mode & if is_directory { 0o3777 } else { 0o1777 })
}

fn write_in_place(
    directory: &Dir,
    file_name: &OsStr,
    content: &[u8],
    mode: Option<u32>,
) -> io::Result<()> {
    let file = directory.open_file(Path::new(file_name), OFlags::WRONLY, 0)?;
    agent_fs::overwrite(&file, content)?;
    if let Some(mode) = mode {
        rustix::fs::fchmod(&file, permissions(mode, false))?;
    }
    Ok(())
}

fn special(kind: &str) -> PathState {
    PathState::Special {
        kind: kind.to_owned(),
    }
}
