//! Where a path leads, found out before anything is decided about it.
//!
//! A path from the model is text. [`Roots::resolve`] walks it component by component, follows
//! every symbolic link itself, and gives a [`ProjectPath`]: a place beneath one of the roots, free
//! of links and `..`. Opening one goes through `openat2` from the root's descriptor with links
//! forbidden, so that a component swapped for a link in between is an error and not an escape.

mod follow;
mod open;
mod similar;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use agent_fs::Dir;
use agent_protocol::Code;
use rustix::fs::OFlags;

pub(crate) use open::{OpenProblem, open_file};

use follow::follow;
use similar::similar;

/// As many links as the kernel itself would follow.
const MAX_LINKS: usize = 40;
/// The kernel's bound on a path, its final NUL included.
const MAX_PATH_BYTES: usize = 4096;

/// The directories the file tools may reach. The first is the project.
#[derive(Debug)]
pub struct Roots {
    roots: Vec<Root>,
    /// The whole file system, for what may be read although it is in none of the roots.
    outside: Root,
    home: Option<PathBuf>,
}

#[derive(Debug)]
struct Root {
    path: PathBuf,
    directory: Dir,
    writable: bool,
}

/// What a path is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Any root will do.
    Read,
    /// Only a root that may be written.
    Write,
}

/// What was found at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A device, pipe or socket, by its name.
    Special(&'static str),
    /// Nothing yet; the part of the path that exists is resolved.
    Missing,
}

/// A resolved place beneath a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectPath {
    root: usize,
    relative: PathBuf,
    absolute: PathBuf,
    found: Found,
}

impl ProjectPath {
    /// The place without links, absolute.
    pub fn absolute(&self) -> &Path {
        &self.absolute
    }

    /// The place relative to its root.
    pub fn relative(&self) -> &Path {
        &self.relative
    }

    /// What was there when it was resolved.
    pub fn found(&self) -> Found {
        self.found
    }

    /// The name the log uses: relative inside the project, absolute elsewhere.
    pub fn name(&self) -> String {
        let shown = if self.root == 0 {
            &self.relative
        } else {
            &self.absolute
        };
        if shown.as_os_str().is_empty() {
            ".".to_owned()
        } else {
            shown.to_string_lossy().into_owned()
        }
    }
}

/// Reason a path leads nowhere. Nothing was opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum PathProblem {
    /// No characters at all.
    #[error("the path is empty")]
    Empty,
    /// No file name can hold this byte.
    #[error("the path holds a NUL character")]
    Nul,
    /// Longer than the system can open.
    #[error("the path has {bytes} bytes, and this system takes at most {}", MAX_PATH_BYTES - 1)]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// One of its names is.
    #[error("a name in the path has {bytes} bytes, more than this file system takes")]
    NameTooLong {
        /// Its length.
        bytes: usize,
    },
    /// It leads out of the workspace.
    #[error("`{given}` leads outside the workspace `{workspace}`")]
    Outside {
        /// As the model wrote it.
        given: String,
        /// The project root.
        workspace: String,
    },
    /// A part of it does not exist.
    #[error("`{missing}` does not exist{}", similar(.near.as_deref()))]
    NotFound {
        /// The first part that is missing.
        missing: String,
        /// A name in the same directory that looks alike.
        near: Option<String>,
    },
    /// A part of it that would have to be a directory is none.
    #[error("`{given}` does not exist: `{path}` is not a directory")]
    NotADirectory {
        /// As the model wrote it.
        given: String,
        /// What is there instead.
        path: String,
    },
    /// It names a directory that is not there, where a file is to be made.
    #[error("`{given}` ends with a slash and names a directory, not a file")]
    NamesDirectory {
        /// As the model wrote it.
        given: String,
    },
    /// Links that lead to each other.
    #[error("`{given}` goes through more than {MAX_LINKS} symbolic links")]
    Links {
        /// As the model wrote it.
        given: String,
    },
    /// The system did not let us look.
    #[error("cannot look up `{path}`: {source}")]
    Lookup {
        /// Where it failed.
        path: String,
        /// The reason.
        source: io::Error,
    },
}

impl PathProblem {
    /// The code of the call that named this path.
    pub fn code(&self) -> Code {
        match self {
            Self::Empty
            | Self::Nul
            | Self::TooLong { .. }
            | Self::NameTooLong { .. }
            | Self::NamesDirectory { .. }
            | Self::Links { .. } => Code::RuntimePreconditionFailed,
            Self::Outside { .. } => Code::OutsideWorkspace,
            Self::NotFound { .. } | Self::NotADirectory { .. } => Code::FileNotFound,
            Self::Lookup { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Code::PermissionDenied
            }
            Self::Lookup { .. } => Code::IoError,
        }
    }
}

impl Roots {
    /// Opens the project at `root`. `home` is what a leading `~` stands for.
    pub fn open(root: &Path, home: Option<&Path>) -> io::Result<Self> {
        Ok(Self {
            roots: vec![Root::open(root, true)?],
            outside: Root::open(Path::new("/"), false)?,
            home: home.map(Path::to_owned),
        })
    }

    /// Adds a directory whose files may be read, and written if `writable`.
    pub fn add_root(&mut self, root: &Path, writable: bool) -> io::Result<()> {
        self.roots.push(Root::open(root, writable)?);
        Ok(())
    }

    /// The project root, without links.
    pub fn root(&self) -> &Path {
        &self.roots[0].path
    }

    /// Finds out where `untrusted_path` leads. Relative paths start at the project root.
    pub fn resolve(
        &self,
        untrusted_path: &str,
        access: Access,
    ) -> Result<ProjectPath, PathProblem> {
        self.resolve_also(untrusted_path, access, &|_| false)
    }

    /// Like [`Self::resolve`]; what is to be read may also be a place outside of which `reads_outside` is true.
    pub fn resolve_also(
        &self,
        untrusted_path: &str,
        access: Access,
        reads_outside: &dyn Fn(&Path) -> bool,
    ) -> Result<ProjectPath, PathProblem> {
        if untrusted_path.is_empty() {
            return Err(PathProblem::Empty);
        }
        if untrusted_path.contains('\0') {
            return Err(PathProblem::Nul);
        }
        if untrusted_path.len() >= MAX_PATH_BYTES {
            return Err(PathProblem::TooLong {
                bytes: untrusted_path.len(),
            });
        }
        let outside = || PathProblem::Outside {
            given: untrusted_path.to_owned(),
            workspace: self.root().display().to_string(),
        };
        let start = match untrusted_path.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                let home = self.home.as_ref().ok_or_else(outside)?;
                home.join(rest.trim_start_matches('/'))
            }
            _ => self.root().join(untrusted_path),
        };
        let walked = follow(&start, untrusted_path);
        let (absolute, found) = match walked {
            Ok(place) => place,
            // What is missing outside is none of the model's business.
            Err((at, _))
                if self.root_of(&at, access).is_none()
                    && !(access == Access::Read && reads_outside(&at)) =>
            {
                return Err(outside());
            }
            Err((_, problem)) => return Err(problem),
        };
        let elsewhere = || {
            let relative = absolute.strip_prefix(&self.outside.path).ok()?;
            (access == Access::Read && reads_outside(&absolute))
                .then(|| (self.roots.len(), relative.to_owned()))
        };
        let (root, relative) = self
            .root_of(&absolute, access)
            .or_else(elsewhere)
            .ok_or_else(outside)?;
        if untrusted_path.ends_with('/') {
            let given = untrusted_path.to_owned();
            match found {
                Found::File | Found::Special(_) => {
                    let path = absolute.display().to_string();
                    return Err(PathProblem::NotADirectory { given, path });
                }
                Found::Missing if access == Access::Write => {
                    return Err(PathProblem::NamesDirectory { given });
                }
                Found::Missing | Found::Directory => {}
            }
        }
        Ok(ProjectPath {
            root,
            relative,
            absolute,
            found,
        })
    }

    fn root_of(&self, absolute: &Path, access: Access) -> Option<(usize, PathBuf)> {
        self.roots.iter().enumerate().find_map(|(index, root)| {
            if access == Access::Write && !root.writable {
                return None;
            }
            let relative = absolute.strip_prefix(&root.path).ok()?;
            Some((index, relative.to_owned()))
        })
    }

    fn root_at(&self, index: usize) -> &Root {
        self.roots.get(index).unwrap_or(&self.outside)
    }

    /// Opens `path` without following links; a change since it was resolved is an error.
    pub fn open_beneath(&self, path: &ProjectPath, flags: OFlags) -> io::Result<OwnedFd> {
        let root = self.root_at(path.root);
        root.directory.open_at(&path.relative, flags, 0)
    }

    /// Opens the directory that holds `path`, and makes the missing part of it if asked to.
    /// Gives back also how many directories were made.
    pub fn open_parent<'p>(
        &self,
        path: &'p ProjectPath,
        make: bool,
    ) -> io::Result<(Dir, &'p OsStr, usize)> {
        let root = &self.root_at(path.root).directory;
        if path.relative.as_os_str().is_empty() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if make {
            return root.make_parent(&path.relative, 0o777);
        }
        let (directory, name) = root.parent(&path.relative)?;
        Ok((directory, name, 0))
    }
}

impl Root {
    fn open(path: &Path, writable: bool) -> io::Result<Self> {
        let path = std::fs::canonicalize(path)?;
        Ok(Self {
            directory: Dir::open(&path)?,
            path,
            writable,
        })
    }
}
