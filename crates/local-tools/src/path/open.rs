//! Opening what was resolved, without a single link on the way.

use std::fs::File;
use std::io;

use agent_protocol::Code;
use rustix::fs::OFlags;
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

/// Reason a file could not be opened. Nothing was changed.
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
        /// The reason.
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
