//! Directories and files that are opened step by step, never through a symbolic link.
//!
//! A project is not ours: a repository may bring a link where our log or our artifacts belong, and
//! following it would write into a place nobody agreed to. Every step below `.agent` is therefore
//! taken from an open directory, by one name, and a link in the way is refused by its name.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};

/// Why a file or directory could not be reached.
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
    /// Whether there is simply nothing at that place.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether it was to be made or changed, and not only looked at.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Self::Io { operation, .. } if !matches!(*operation, "open" | "list"))
    }
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Place {
    directory: OwnedFd,
    path: PathBuf,
}

impl Place {
    /// The same directory once more.
    pub(crate) fn try_clone(&self) -> Result<Self, PlaceError> {
        let directory = self.directory.try_clone();
        Ok(Self {
            directory: directory.map_err(|source| PlaceError::Io {
                operation: "open",
                path: self.path.clone(),
                source,
            })?,
            path: self.path.clone(),
        })
    }

    /// Opens the directory `path`. What leads to it belongs to the user and may hold links; the
    /// directory itself may not be one.
    pub(crate) fn open(path: &Path) -> Result<Self, PlaceError> {
        let directory = open_directory(CWD.as_fd(), path, path)?;
        Ok(Self {
            directory,
            path: path.to_owned(),
        })
    }

    /// Opens the directory `path` and makes it first if it is missing.
    pub(crate) fn open_or_create(path: &Path) -> Result<Self, PlaceError> {
        make_directory(CWD.as_fd(), path, path)?;
        Self::open(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn child(&self, name: &str) -> Result<Self, PlaceError> {
        let path = self.path.join(name);
        let directory = open_directory(self.directory.as_fd(), Path::new(name), &path)?;
        Ok(Self { directory, path })
    }

    pub(crate) fn child_or_create(&self, name: &str) -> Result<Self, PlaceError> {
        let path = self.path.join(name);
        make_directory(self.directory.as_fd(), Path::new(name), &path)?;
        self.child(name)
    }

    /// Makes a new directory; an existing one is an error.
    pub(crate) fn create_child(&self, name: &str) -> Result<Self, PlaceError> {
        rustix::fs::mkdirat(&self.directory, name, Mode::RWXU)
            .map_err(|error| self.error("create", name, error))?;
        self.child(name)
    }

    /// Opens a regular file for reading.
    pub(crate) fn read(&self, name: &str) -> Result<File, PlaceError> {
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
        rustix::fs::renameat(&self.directory, from, &self.directory, to)
            .map_err(|error| self.error("rename to", to, error))
    }

    pub(crate) fn remove_file(&self, name: &str) -> Result<(), PlaceError> {
        rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())
            .map_err(|error| self.error("remove", name, error))
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self, name: &str) -> Result<(), PlaceError> {
        rustix::fs::unlinkat(&self.directory, name, AtFlags::REMOVEDIR)
            .map_err(|error| self.error("remove", name, error))
    }

    /// Writes a whole small file: beside its place first, then renamed over it.
    pub(crate) fn replace_file(&self, name: &str, bytes: &[u8]) -> Result<(), PlaceError> {
        let (staged, file) = self.stage(name, bytes)?;
        file.sync_all().map_err(|source| PlaceError::Io {
            operation: "write",
            path: self.path.join(name),
            source,
        })?;
        self.rename(&staged, name)?;
        self.sync()
    }

    /// The same for what may be lost or torn by a power cut, because its reader would notice.
    pub(crate) fn replace_unsynced(&self, name: &str, bytes: &[u8]) -> Result<(), PlaceError> {
        let (staged, _) = self.stage(name, bytes)?;
        self.rename(&staged, name)
    }

    /// Writes `bytes` under a name beside `name`.
    fn stage(&self, name: &str, bytes: &[u8]) -> Result<(String, File), PlaceError> {
        use std::io::Write as _;
        let staged = format!(".{name}.{}.new", std::process::id());
        match self.remove_file(&staged) {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        let mut file = self.create_new(&staged)?;
        match file.write_all(bytes) {
            Ok(()) => Ok((staged, file)),
            Err(source) => {
                // On a full disk, half a file is room that is missing elsewhere.
                let _ = self.remove_file(&staged);
                Err(PlaceError::Io {
                    operation: "write",
                    path: self.path.join(name),
                    source,
                })
            }
        }
    }

    /// Makes new names in this directory survive a power cut.
    pub(crate) fn sync(&self) -> Result<(), PlaceError> {
        rustix::fs::fsync(&self.directory).map_err(|error| PlaceError::Io {
            operation: "sync",
            path: self.path.clone(),
            source: error.into(),
        })
    }

    /// The names in this directory with the size of what they name, in no order. Whatever is
    /// neither a file nor a directory is left out.
    pub(crate) fn entries(&self) -> Result<Vec<PlaceEntry>, PlaceError> {
        let mut found = Vec::new();
        let listing = rustix::fs::Dir::read_from(&self.directory)
            .map_err(|error| self.error("list", "", error))?;
        for entry in listing {
            let entry = entry.map_err(|error| self.error("list", "", error))?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name == "." || name == ".." {
                continue;
            }
            // A name that vanishes between listing and looking is simply not there.
            let Ok(stat) = rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW)
            else {
                continue;
            };
            let kind = FileType::from_raw_mode(stat.st_mode);
            if kind == FileType::RegularFile || kind == FileType::Directory {
                found.push(PlaceEntry {
                    name: name.to_owned(),
                    is_directory: kind == FileType::Directory,
                    bytes: u64::try_from(stat.st_size).unwrap_or(0),
                    modified_millis: millis(stat.st_mtime, stat.st_mtime_nsec),
                });
            }
        }
        Ok(found)
    }

    fn open_file(
        &self,
        name: &str,
        flags: OFlags,
        operation: &'static str,
    ) -> Result<File, PlaceError> {
        // Without NONBLOCK, a pipe in place of a file would hold us for ever.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&self.directory, name, flags, mode)
            .map_err(|error| self.error(operation, name, error))?;
        let stat = rustix::fs::fstat(&file).map_err(|error| self.error(operation, name, error))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            Ok(file.into())
        } else {
            Err(PlaceError::WrongKind {
                path: self.path.join(name),
                expected: "a regular file",
            })
        }
    }

    fn error(&self, operation: &'static str, name: &str, error: rustix::io::Errno) -> PlaceError {
        explain(
            self.directory.as_fd(),
            Path::new(name),
            &self.path.join(name),
            operation,
            error,
        )
    }
}

/// What a directory holds under one name.
#[derive(Debug, Clone)]
pub(crate) struct PlaceEntry {
    pub(crate) name: String,
    pub(crate) is_directory: bool,
    pub(crate) bytes: u64,
    pub(crate) modified_millis: i64,
}

fn millis(seconds: impl TryInto<i64>, nanos: impl TryInto<i64>) -> i64 {
    let seconds: i64 = seconds.try_into().unwrap_or(0);
    let nanos: i64 = nanos.try_into().unwrap_or(0);
    seconds
        .saturating_mul(1000)
        .saturating_add(nanos / 1_000_000)
}

fn open_directory(
    from: std::os::fd::BorrowedFd<'_>,
    name: &Path,
    shown: &Path,
) -> Result<OwnedFd, PlaceError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(from, name, flags, Mode::empty())
        .map_err(|error| explain(from, name, shown, "open", error))
}

fn make_directory(
    from: std::os::fd::BorrowedFd<'_>,
    name: &Path,
    shown: &Path,
) -> Result<(), PlaceError> {
    match rustix::fs::mkdirat(from, name, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(explain(from, name, shown, "create", error)),
    }
}

fn explain(
    from: std::os::fd::BorrowedFd<'_>,
    name: &Path,
    shown: &Path,
    operation: &'static str,
    error: rustix::io::Errno,
) -> PlaceError {
    use rustix::io::Errno;
    if matches!(error, Errno::LOOP | Errno::NOTDIR | Errno::MLINK) {
        let kind = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)
            .map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Ok(FileType::Symlink) => {
                return PlaceError::Symlink {
                    path: shown.to_owned(),
                };
            }
            Ok(_) if error == Errno::NOTDIR => {
                return PlaceError::WrongKind {
                    path: shown.to_owned(),
                    expected: "a directory",
                };
            }
            _ => {}
        }
    }
    PlaceError::Io {
        operation,
        path: shown.to_owned(),
        source: error.into(),
    }
}
