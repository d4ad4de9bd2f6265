//! Where a path leads, found out before anything is decided about it.
//!
//! A path from the model is text. [`Roots::resolve`] walks it component by component, follows
//! every symbolic link itself, and gives a [`ProjectPath`]: a place beneath one of the roots, free
//! of links and `..`. Opening one goes through `openat2` from the root's descriptor with links
//! forbidden, so that a component swapped for a link in between is an error and not an escape.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use agent_protocol::Code;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// As many links as the kernel itself would follow.
const MAX_LINKS: usize = 40;
/// The kernel's bound on a path, its final NUL included.
const MAX_PATH_BYTES: usize = 4096;
/// A directory with more names is not searched for a similar one.
const MAX_NAMES_COMPARED: usize = 5_000;

/// The directories the file tools may reach. The first is the project.
#[derive(Debug)]
pub struct Roots {
    roots: Vec<Root>,
    home: Option<PathBuf>,
}

#[derive(Debug)]
struct Root {
    path: PathBuf,
    directory: OwnedFd,
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

/// Why a path leads nowhere. Nothing was opened or changed.
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
        /// Why.
        source: io::Error,
    },
}

fn similar(near: Option<&str>) -> String {
    near.map_or_else(String::new, |name| format!("; `{name}` does"))
}

impl PathProblem {
    /// The code of the call that named this path.
    pub fn code(&self) -> Code {
        match self {
            Self::Empty | Self::Nul | Self::TooLong { .. } | Self::Links { .. } => {
                Code::RuntimePreconditionFailed
            }
            Self::Outside { .. } => Code::OutsideWorkspace,
            Self::NotFound { .. } => Code::FileNotFound,
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
        let walked = walk(&start, untrusted_path);
        let (absolute, found) = match walked {
            Ok(place) => place,
            // What is missing outside is none of the model's business.
            Err((at, _)) if self.root_of(&at, access).is_none() => return Err(outside()),
            Err((_, problem)) => return Err(problem),
        };
        let (root, relative) = self.root_of(&absolute, access).ok_or_else(outside)?;
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

    /// Opens `path` without following links; a change since it was resolved is an error.
    pub fn open_beneath(&self, path: &ProjectPath, flags: OFlags) -> io::Result<OwnedFd> {
        let root = &self.roots[path.root];
        let relative = if path.relative.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &path.relative
        };
        beneath(&root.directory, relative, flags, Mode::empty())
    }

    /// Opens the directory that holds `path`, and makes the missing part of it if asked to.
    /// Gives back also how many directories were made.
    pub fn open_parent(
        &self,
        path: &ProjectPath,
        make: bool,
    ) -> io::Result<(OwnedFd, OsString, usize)> {
        let name = path
            .relative
            .file_name()
            .ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?
            .to_owned();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut directory = self.roots[path.root].directory.try_clone()?;
        let mut made = 0;
        for component in path.relative.parent().unwrap_or(Path::new("")).components() {
            let component = Path::new(component.as_os_str());
            directory = match beneath(&directory, component, flags, Mode::empty()) {
                Ok(next) => next,
                Err(error) if make && error.kind() == io::ErrorKind::NotFound => {
                    match rustix::fs::mkdirat(&directory, component, Mode::from_raw_mode(0o777)) {
                        Ok(()) => made += 1,
                        Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    beneath(&directory, component, flags, Mode::empty())?
                }
                Err(error) => return Err(error),
            };
        }
        Ok((directory, name, made))
    }
}

impl Root {
    fn open(path: &Path, writable: bool) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        let directory = rustix::fs::open(
            &path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self {
            path,
            directory,
            writable,
        })
    }
}

/// Opens `relative` beneath `directory` without a single link on the way.
fn beneath(
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
fn step_by_step(
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

type Walked = Result<(PathBuf, Found), (PathBuf, PathProblem)>;

/// Follows `start` to a place without links. A failure says how far it came.
fn walk(start: &Path, given: &str) -> Walked {
    let mut at = PathBuf::from("/");
    let mut found = Found::Directory;
    let mut links = 0;
    let mut todo: VecDeque<OsString> = names(start);
    while let Some(name) = todo.pop_front() {
        if name == ".." {
            at.pop();
            found = Found::Directory;
            continue;
        }
        let next = at.join(&name);
        let missing = |near| PathProblem::NotFound {
            missing: next.display().to_string(),
            near,
        };
        match fs::symlink_metadata(&next) {
            Ok(metadata) if metadata.is_symlink() => {
                links += 1;
                if links > MAX_LINKS {
                    return Err((
                        at,
                        PathProblem::Links {
                            given: given.to_owned(),
                        },
                    ));
                }
                let target = fs::read_link(&next).map_err(|source| {
                    (
                        at.clone(),
                        PathProblem::Lookup {
                            path: next.display().to_string(),
                            source,
                        },
                    )
                })?;
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                for name in names(&target).into_iter().rev() {
                    todo.push_front(name);
                }
            }
            Ok(metadata) => {
                found = found_kind(&metadata);
                if found != Found::Directory && !todo.is_empty() {
                    return Err((next.clone(), missing(None)));
                }
                at.push(true_name(&at, name, &metadata));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if todo.iter().any(|name| name == "..") {
                    return Err((next.clone(), missing(None)));
                }
                let place = todo
                    .iter()
                    .fold(next.clone(), |place, name| place.join(name));
                return Ok((place, Found::Missing));
            }
            Err(source) => {
                let path = next.display().to_string();
                return Err((next, PathProblem::Lookup { path, source }));
            }
        }
    }
    Ok((at, found))
}

fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}

fn found_kind(metadata: &fs::Metadata) -> Found {
    use std::os::unix::fs::FileTypeExt;
    let kind = metadata.file_type();
    if kind.is_file() {
        Found::File
    } else if kind.is_dir() {
        Found::Directory
    } else if kind.is_fifo() {
        Found::Special("a named pipe")
    } else if kind.is_socket() {
        Found::Special("a socket")
    } else {
        Found::Special("a device")
    }
}

/// The name as the directory spells it. Where letter case does not matter, `.GIT` opens `.git`,
/// and every later decision has to see the latter.
fn true_name(directory: &Path, name: OsString, metadata: &fs::Metadata) -> OsString {
    let Some(text) = name.to_str() else {
        return name;
    };
    let swapped: String = text
        .chars()
        .map(|letter| {
            if letter.is_ascii_lowercase() {
                letter.to_ascii_uppercase()
            } else {
                letter.to_ascii_lowercase()
            }
        })
        .collect();
    let same_file =
        |other: &fs::Metadata| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino());
    if swapped == text
        || !fs::symlink_metadata(directory.join(&swapped)).is_ok_and(|other| same_file(&other))
    {
        return name;
    }
    let Ok(entries) = fs::read_dir(directory) else {
        return name;
    };
    let mut spelled = None;
    for entry in entries.flatten() {
        if entry.file_name() == name {
            return name;
        }
        if entry.file_name().to_string_lossy().to_lowercase() == text.to_lowercase() {
            spelled = Some(entry.file_name());
        }
    }
    spelled.unwrap_or(name)
}

/// A name beside `missing` that differs only in letter case or by one slip, as a fact for the model.
pub(crate) fn similar_name(missing: &Path) -> Option<String> {
    let wanted = missing.file_name()?.to_str()?.to_lowercase();
    let mut best: Option<(usize, String)> = None;
    for entry in fs::read_dir(missing.parent()?)
        .ok()?
        .take(MAX_NAMES_COMPARED)
        .flatten()
    {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let distance = slips(&wanted, &name.to_lowercase());
        let allowed = if wanted.len() > 4 { 2 } else { 1 };
        if distance <= allowed
            && best
                .as_ref()
                .is_none_or(|known| (distance, &name) < (known.0, &known.1))
        {
            best = Some((distance, name));
        }
    }
    best.map(|(_, name)| name)
}

/// Levenshtein distance, for names that are at most 255 bytes long.
fn slips(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Place {
        _folder: tempfile::TempDir,
        base: PathBuf,
        workspace: Roots,
    }

    fn place() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(folder.path()).unwrap();
        for directory in ["shop/src", "shop-backup", "home/.ssh", "reference"] {
            fs::create_dir_all(base.join(directory)).unwrap();
        }
        for file in [
            "shop/src/main.rs",
            "shop-backup/a",
            "home/.ssh/key",
            "reference/book",
        ] {
            fs::write(base.join(file), "x").unwrap();
        }
        let links = [
            ("../../home/.ssh/key", "shop/src/key"),
            ("../home", "shop/cache"),
            ("main.rs", "shop/src/alias.rs"),
            ("new.rs", "shop/src/dangling.rs"),
            ("loop-b", "shop/loop-a"),
            ("loop-a", "shop/loop-b"),
            ("/proc/self/root", "shop/magic"),
        ];
        for (target, link) in links {
            symlink(target, base.join(link)).unwrap();
        }
        symlink(base.join("shop/src"), base.join("shop/absolute")).unwrap();
        let mut workspace = Roots::open(&base.join("shop"), Some(&base.join("home"))).unwrap();
        workspace.add_root(&base.join("reference"), false).unwrap();
        Place {
            _folder: folder,
            base,
            workspace,
        }
    }

    fn check(place: &Place, given: &str, expected: &str) {
        let got = match place.workspace.resolve(given, Access::Write) {
            Ok(path) => path.name(),
            Err(problem) => problem.code().to_string(),
        };
        assert_eq!(got, expected, "{given}");
    }

    #[test]
    fn every_way_out_is_found() {
        let place = place();
        let base = place.base.display().to_string();
        check(&place, "src/main.rs", "src/main.rs");
        check(&place, "./src/../src//main.rs", "src/main.rs");
        check(&place, &format!("{base}/shop/src/main.rs"), "src/main.rs");
        check(
            &place,
            &format!("{base}/home/../shop/src/main.rs"),
            "src/main.rs",
        );
        check(&place, "src/alias.rs", "src/main.rs");
        check(&place, "absolute/main.rs", "src/main.rs");
        check(&place, "src/dangling.rs", "src/new.rs");
        check(&place, "new/deep/file", "new/deep/file");
        check(&place, ".", ".");
        check(&place, "../shop-backup/a", "outside_workspace");
        check(
            &place,
            &format!("{base}/shop-backup/a"),
            "outside_workspace",
        );
        check(
            &place,
            &format!("{base}/shop-backup/none"),
            "outside_workspace",
        );
        check(&place, "src/key", "outside_workspace");
        check(&place, "cache/x", "outside_workspace");
        check(&place, "magic/etc/passwd", "outside_workspace");
        check(&place, "~/.ssh/key", "outside_workspace");
        check(&place, "~", "outside_workspace");
        check(&place, "~other", "~other");
        check(&place, "/dev/zero", "outside_workspace");
        check(
            &place,
            &format!("{base}/reference/book"),
            "outside_workspace",
        );
        check(&place, "none/../../shop-backup/a", "file_not_found");
        check(&place, "src/main.rs/x", "file_not_found");
        check(&place, "loop-a", "runtime_precondition_failed");
        check(&place, "", "runtime_precondition_failed");
        check(&place, "a\0b", "runtime_precondition_failed");
        check(&place, &"x/".repeat(2048), "runtime_precondition_failed");
        check(&place, &"x".repeat(4095), "io_error");
        let book = format!("{base}/reference/book");
        assert_eq!(
            place.workspace.resolve(&book, Access::Read).unwrap().name(),
            book
        );
    }

    #[test]
    fn a_component_swapped_for_a_link_is_not_followed() {
        let place = place();
        let path = place
            .workspace
            .resolve("src/main.rs", Access::Read)
            .unwrap();
        fs::rename(place.base.join("shop/src"), place.base.join("shop/old")).unwrap();
        symlink(place.base.join("home/.ssh"), place.base.join("shop/src")).unwrap();
        fs::write(place.base.join("home/.ssh/main.rs"), "secret").unwrap();
        let problem = open_file(&place.workspace, &path).unwrap_err();
        assert_eq!(problem.code(), Code::OutsideWorkspace, "{problem}");
        let root = &place.workspace.roots[0].directory;
        let stepped = step_by_step(
            root.as_fd(),
            path.relative(),
            OFlags::RDONLY | OFlags::NOFOLLOW,
            Mode::empty(),
        );
        assert!(stepped.is_err());
        assert!(place.workspace.open_parent(&path, true).is_err());
    }

    #[test]
    fn only_regular_files_are_opened_and_nothing_hangs() {
        let place = place();
        let pipe = place.base.join("shop/pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let _socket =
            std::os::unix::net::UnixListener::bind(place.base.join("shop/socket")).unwrap();
        for (name, code) in [
            ("pipe", Code::NotAFile),
            ("socket", Code::NotAFile),
            ("src", Code::NotAFile),
            ("src/Main.rs", Code::FileNotFound),
        ] {
            let path = place.workspace.resolve(name, Access::Read).unwrap();
            let problem = open_file(&place.workspace, &path).unwrap_err();
            assert_eq!(problem.code(), code, "{problem}");
        }
        let path = place
            .workspace
            .resolve("src/Main.rs", Access::Read)
            .unwrap();
        let problem = open_file(&place.workspace, &path).unwrap_err();
        assert_eq!(
            problem.to_string(),
            "`src/Main.rs` does not exist; `main.rs` does"
        );
    }
}
