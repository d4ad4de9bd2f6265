//! Opening what was resolved, without a single link on the way.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use agent_protocol::Code;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::follow::found_kind;
use super::similar::{similar, similar_name};
use super::{Found, ProjectPath, Roots};

/// Opens `path` for reading if it is a regular file. A pipe or device answers at once.
pub(crate) fn open_file(roots: &Roots, path: &ProjectPath) -> Result<File, OpenProblem> {
    let name = path.name();
    match path.found {
        Found::File => {}
        Found::Directory => {
            return Err(OpenProblem::NotAFile {
                name,
                what: "a directory",
            });
        }
        Found::Special(what) => return Err(OpenProblem::NotAFile { name, what }),
        Found::Missing => {
            return Err(OpenProblem::Missing {
                name,
                near: similar_name(&path.absolute),
            });
        }
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match roots.open_beneath(path, flags) {
        Ok(descriptor) => File::from(descriptor),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(OpenProblem::Missing { name, near: None });
        }
        Err(source) => return Err(OpenProblem::Open { name, source }),
    };
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(metadata) => {
            let what = match found_kind(&metadata) {
                Found::Special(what) => what,
                _ => "a directory",
            };
            Err(OpenProblem::NotAFile { name, what })
        }
        Err(source) => Err(OpenProblem::Open { name, source }),
    }
}

/// Why a file could not be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenProblem {
    /// Something else than a regular file.
    #[error("`{name}` is {what}, not a regular file")]
    NotAFile {
        /// The path.
        name: String,
        /// What it is.
        what: &'static str,
    },
    /// There is no such file.
    #[error("`{name}` does not exist{}", similar(.near.as_deref()))]
    Missing {
        /// The path.
        name: String,
        /// A name in the same directory that looks alike.
        near: Option<String>,
    },
    /// The system refused.
    #[error("cannot open `{name}`: {source}")]
    Open {
        /// The path.
        name: String,
        /// Why.
        source: io::Error,
    },
}

impl OpenProblem {
    /// The code of the call that named this file.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::NotAFile { .. } => Code::NotAFile,
            Self::Missing { .. } => Code::FileNotFound,
            // The component became a link, or left the root, after it was resolved.
            Self::Open { source, .. } => match Errno::from_io_error(source) {
                Some(Errno::LOOP | Errno::XDEV) => Code::OutsideWorkspace,
                Some(Errno::ACCESS | Errno::PERM) => Code::PermissionDenied,
                _ => Code::IoError,
            },
        }
    }
}

/// Opens `relative` beneath `directory` without a single link on the way.
pub(super) fn beneath(
    directory: impl AsFd,
    relative: &Path,
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    for _ in 0..8 {
        match rustix::fs::openat2(&directory, relative, flags, mode, resolve) {
            // A rename somewhere in the tree makes the kernel unsure; it asks to try again.
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => {
                return step_by_step(directory.as_fd(), relative, flags, mode);
            }
            other => return Ok(other?),
        }
    }
    step_by_step(directory.as_fd(), relative, flags, mode)
}

/// The same for kernels and filters without `openat2`.
pub(super) fn step_by_step(
    directory: std::os::fd::BorrowedFd<'_>,
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
        let last = components.peek().is_none();
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        at = rustix::fs::openat(&at, name, if last { flags } else { step }, mode)?;
    }
    Ok(at)
}
