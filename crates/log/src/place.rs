//! Directories and files that are opened step by step, never through a symbolic link.
//!
//! A project is not ours: a repository may bring a link where our log or our artifacts belong, and
//! following it would write into a place nobody agreed to. Every step below `.agent` is therefore
//! taken from an open directory, by one name, and a link in the way is refused by its name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use agent_fs::{Dir, Stamp, TempFile};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Reason a file or directory could not be reached.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("cannot use `{path}`: it is a symbolic link, and a session is never kept behind one")]
    Symlink { path: PathBuf },
    #[error("cannot use `{path}`: it is not {expected}")]
    WrongKind {
        path: PathBuf,
        expected: &'static str,
    },
    #[error("cannot {operation} `{path}`")]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl PlaceError {
    /// True if there is simply nothing at that place.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// True if it was to be made or changed, and not only looked at.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Self::Io { operation, .. } if !matches!(*operation, "open" | "list"))
    }
}

/// An open directory of ours.
#[derive(Debug)]
pub struct Place(Dir);

impl Place {
    /// The same directory once more.
    pub(crate) fn try_clone(&self) -> Result<Self, PlaceError> {
        let cloned = self.0.try_clone();
        cloned
            .map(Self)
            .map_err(|source| self.failed("open", source))
    }

    /// Opens the directory `path`. What leads to it belongs to the user and may hold links; the
    /// directory itself may not be one.
    pub fn open(path: &Path) -> Result<Self, PlaceError> {
        Dir::open_nofollow(path).map(Self).map_err(|source| {
            let kind = || Some(path.symlink_metadata().ok()?.is_symlink());
            explain(path, "open", source, kind)
        })
    }

    /// Opens the directory `path` and makes it first if it is missing.
    pub(crate) fn open_or_create(path: &Path) -> Result<Self, PlaceError> {
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Self::open(path),
            Err(error) => Err(PlaceError::Io {
                operation: "create",
                path: path.to_owned(),
                source: error.into(),
            }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn child(&self, name: &str) -> Result<Self, PlaceError> {
        let child = self.0.dir(Path::new(name));
        child
            .map(Self)
            .map_err(|error| self.error("open", name, error))
    }

    pub fn child_or_create(&self, name: &str) -> Result<Self, PlaceError> {
        match self.create_child(name) {
            Err(PlaceError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
                self.child(name)
            }
            other => other,
        }
    }

    /// Makes a new directory; an existing one is an error.
    pub(crate) fn create_child(&self, name: &str) -> Result<Self, PlaceError> {
        let made = self.0.make_dir(Path::new(name), 0o700);
        made.map_err(|error| self.error("create", name, error))?;
        self.child(name)
    }

    /// Opens a regular file for reading.
    pub fn read(&self, name: &str) -> Result<File, PlaceError> {
        self.open_file(name, OFlags::RDONLY, "open")
    }

    /// Opens a regular file for reading and appending.
    pub(crate) fn append(&self, name: &str) -> Result<File, PlaceError> {
        self.open_file(name, OFlags::RDWR | OFlags::APPEND, "open for writing")
    }

    /// Opens a regular file for reading and writing, and makes it if it is missing.
    pub(crate) fn read_write(&self, name: &str) -> Result<File, PlaceError> {
        self.open_file(name, OFlags::RDWR | OFlags::CREATE, "open for writing")
    }

    /// Makes a new regular file; an existing one is an error.
    pub(crate) fn create_new(&self, name: &str) -> Result<File, PlaceError> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        self.open_file(name, flags, "create")
    }

    /// Gives a file another name, replacing what had it.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), PlaceError> {
        let renamed = self.0.rename(Path::new(from), Path::new(to));
        renamed.map_err(|error| self.error("rename to", to, error))
    }

    pub fn remove_file(&self, name: &str) -> Result<(), PlaceError> {
        let removed = self.0.remove_file(Path::new(name));
        removed.map_err(|error| self.error("remove", name, error))
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self, name: &str) -> Result<(), PlaceError> {
        let removed = self.0.remove_dir(Path::new(name));
        removed.map_err(|error| self.error("remove", name, error))
    }

    /// Writes a whole small file: beside its place first, then renamed over it.
    pub(crate) fn replace_file(&self, name: &str, bytes: &[u8]) -> Result<(), PlaceError> {
        self.replace(name, bytes, true)?;
        self.sync()
    }

    /// The same for what may be lost or torn by a power cut, because its reader would notice.
    pub fn replace_unsynced(&self, name: &str, bytes: &[u8]) -> Result<(), PlaceError> {
        self.replace(name, bytes, false)
    }

    fn replace(&self, name: &str, bytes: &[u8], is_synced: bool) -> Result<(), PlaceError> {
        let write = || {
            let draft = TempFile::new(&self.0, 0o600)?;
            draft.file().write_all(bytes)?;
            if is_synced {
                draft.file().sync_all()?;
            }
            draft.replace(OsStr::new(name))
        };
        match write() {
            Ok(_) => Ok(()),
            Err(error) => Err(self.error("write", name, error)),
        }
    }

    /// Makes new names in this directory survive a power cut.
    pub(crate) fn sync(&self) -> Result<(), PlaceError> {
        self.0.sync().map_err(|source| self.failed("sync", source))
    }

    /// The names in this directory with the size of what they name, in order. Whatever is
    /// neither a file nor a directory is left out.
    pub(crate) fn entries(&self) -> Result<Vec<PlaceEntry>, PlaceError> {
        let names = self.0.names(Path::new(""));
        let names = names.map_err(|source| self.failed("list", source))?;
        let entry = |name: OsString| {
            let name = name.into_string().ok()?;
            // A name that vanishes between listing and looking is simply not there.
            let stamp = Stamp::of(&self.0.stat(Path::new(&name)).ok()?);
            let is_directory = stamp.kind().is_dir();
            (is_directory || stamp.kind().is_file()).then(|| PlaceEntry {
                name,
                is_directory,
                bytes: stamp.size,
                modified_millis: stamp.modified_ms(),
            })
        };
        Ok(names.into_iter().filter_map(entry).collect())
    }

    fn open_file(
        &self,
        name: &str,
        flags: OFlags,
        operation: &'static str,
    ) -> Result<File, PlaceError> {
        let opened = self.0.open_file(Path::new(name), flags, 0o600);
        opened.map_err(|error| self.error(operation, name, error))
    }

    fn failed(&self, operation: &'static str, source: io::Error) -> PlaceError {
        PlaceError::Io {
            operation,
            path: self.path().to_owned(),
            source,
        }
    }

    fn error(&self, operation: &'static str, name: &str, error: io::Error) -> PlaceError {
        let is_link = || Some(self.0.kind(Path::new(name))?.is_symlink());
        explain(&self.path().join(name), operation, error, is_link)
    }
}

/// Entry of a directory.
#[derive(Debug, Clone)]
pub(crate) struct PlaceEntry {
    pub(crate) name: String,
    pub(crate) is_directory: bool,
    pub(crate) bytes: u64,
    pub(crate) modified_millis: i64,
}

/// An error with what is in the way: a link, or something else than what was expected.
fn explain(
    path: &Path,
    operation: &'static str,
    source: io::Error,
    is_link: impl FnOnce() -> Option<bool>,
) -> PlaceError {
    let path = path.to_owned();
    let wrong = match Errno::from_io_error(&source) {
        Some(Errno::LOOP | Errno::MLINK | Errno::NOTDIR) => "a directory",
        None if source.kind() == io::ErrorKind::InvalidInput => "a regular file",
        _ => {
            return PlaceError::Io {
                operation,
                path,
                source,
            };
        }
    };
    match is_link() {
        Some(true) => PlaceError::Symlink { path },
        Some(false) => PlaceError::WrongKind {
            path,
            expected: wrong,
        },
        None => PlaceError::Io {
            operation,
            path,
            source,
        },
    }
}
