//! New content in the place of a file, whole or not at all.
//!
//! The new content is written beside the target, given the target's mode, owner and extended
//! attributes, synced, and renamed over it, after the target's content was compared once more under
//! a lock. A file with several names is written in place, because a rename would part them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_fs::{Dir, Stamp, TempFile};
use agent_protocol::{ActionHappened, Code};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::path::{ProjectPath, Roots};

/// Tries while another program holds its lock on the file.
const LOCK_PATIENCE: usize = 100;
const LOCK_STEP: Duration = Duration::from_millis(20);

/// Precondition of a replacement.
#[derive(Clone, Copy, Debug)]
pub enum Expected<'a> {
    /// Nothing.
    Missing,
    /// Exactly this content.
    Content {
        /// The bytes, to put them back when writing in place fails half-way.
        bytes: &'a [u8],
        /// Their hash.
        sha256: &'a str,
    },
}

/// Result of a replacement.
#[derive(Debug)]
pub struct Replaced {
    /// Stamp of the file as it is now.
    pub stamp: Stamp,
    /// Other names the same file has, which changed with it.
    pub other_names: u64,
    /// Directories that had to be made.
    pub directories: usize,
}

/// Reason the content could not be put in place.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceProblem {
    /// The file is not the one that was read.
    #[error("`{name}` changed after it was read; nothing was written")]
    Stale {
        /// The path.
        name: String,
    },
    /// The file or its directory may not be written.
    #[error("`{name}` may not be written: {reason}; nothing was written")]
    ReadOnly {
        /// The path.
        name: String,
        /// By whose word.
        reason: String,
    },
    /// The system failed before anything changed.
    #[error("cannot write `{name}`: {source}; nothing was written")]
    Write {
        /// The path.
        name: String,
        /// The reason.
        source: io::Error,
    },
    /// Writing in place stopped half-way and the old bytes could not be put back.
    #[error(
        "cannot write `{name}` in place: {source}; it may be damaged, its old content is kept as an artifact"
    )]
    Damaged {
        /// The path.
        name: String,
        /// The reason.
        source: io::Error,
    },
}

impl ReplaceProblem {
    /// The code of the call.
    pub fn code(&self) -> Code {
        match self {
            Self::Stale { .. } => Code::StaleFileBaseline,
            Self::ReadOnly { .. } => Code::PermissionDenied,
            Self::Write { .. } | Self::Damaged { .. } => Code::IoError,
        }
    }

    /// State of the file after the problem: changed, unchanged or unknown.
    pub fn action_happened(&self) -> ActionHappened {
        match self {
            Self::Damaged { .. } => ActionHappened::Unknown,
            _ => ActionHappened::No,
        }
    }
}

/// Puts `content` at `path` if what is there is what was `expected`.
pub fn replace(
    roots: &Roots,
    path: &ProjectPath,
    expected: Expected<'_>,
    content: &[u8],
) -> Result<Replaced, ReplaceProblem> {
    let name = path.name();
    let failed = |source: io::Error| classify(&name, source);
    match expected {
        Expected::Missing => create_like(roots, path, content, None),
        Expected::Content { bytes, sha256 } => {
            let (directory, file_name, _) = roots.open_parent(path, false).map_err(failed)?;
            let target = Target::open(directory, file_name, &name)?;
            if target.stamp.links > 1 {
                target.write_in_place(bytes, sha256, content)
            } else {
                target.rename_over(bytes, sha256, content)
            }
        }
    }
}

/// Puts a new file at `path`, with owner, mode and attributes of the one it is `like`.
pub fn create_like(
    roots: &Roots,
    path: &ProjectPath,
    content: &[u8],
    like: Option<&File>,
) -> Result<Replaced, ReplaceProblem> {
    let name = path.name();
    let (directory, file_name, made) = roots
        .open_parent(path, true)
        .map_err(|source| classify(&name, source))?;
    match create(&directory, file_name, &name, content, like) {
        Ok(stamp) => Ok(Replaced {
            stamp,
            other_names: 0,
            directories: made,
        }),
        Err(problem) => {
            remove_made(path, made);
            Err(problem)
        }
    }
}

/// Looks whether what is `expected` is there and may be replaced. Changes nothing.
pub fn check(
    roots: &Roots,
    path: &ProjectPath,
    expected: Expected<'_>,
) -> Result<(), ReplaceProblem> {
    let name = path.name();
    match expected {
        Expected::Missing => match std::fs::symlink_metadata(path.absolute()) {
            Ok(_) => Err(ReplaceProblem::Stale { name }),
            Err(_) => Ok(()),
        },
        Expected::Content { sha256, .. } => {
            let (directory, file_name, _) = roots
                .open_parent(path, false)
                .map_err(|source| classify(&name, source))?;
            Target::open(directory, file_name, &name)?.compare(sha256)
        }
    }
}

/// A file under another name in its directory, until it is certain that it goes.
#[derive(Debug)]
pub struct SetAside {
    directory: Dir,
    name: std::ffi::OsString,
    aside: std::ffi::OsString,
    shown: String,
}

/// Takes a file with this content out of the way.
pub fn set_aside(
    roots: &Roots,
    path: &ProjectPath,
    sha256: &str,
) -> Result<SetAside, ReplaceProblem> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let shown = path.name();
    let failed = |source: io::Error| classify(&shown, source);
    let (directory, file_name, _) = roots.open_parent(path, false).map_err(failed)?;
    let target = Target::open(directory, file_name, &shown)?;
    target.compare(sha256)?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let aside = format!(".agent-{}-{number}.removed", std::process::id()).into();
    let (directory, name) = (target.directory, target.file_name);
    directory
        .rename(Path::new(&name), Path::new(&aside))
        .map_err(failed)?;
    Ok(SetAside {
        directory,
        name,
        aside,
        shown,
    })
}

impl SetAside {
    /// Gives the file its name back, unless something else has it now.
    pub fn put_back(self) -> Result<(), ReplaceProblem> {
        let (name, aside) = (Path::new(&self.name), Path::new(&self.aside));
        if self.directory.exists(name) {
            return Err(ReplaceProblem::Stale { name: self.shown });
        }
        self.directory
            .rename(aside, name)
            .map_err(|source| classify(&self.shown, source))
    }

    /// Removes the file.
    pub fn remove(&self) -> Result<(), ReplaceProblem> {
        self.directory
            .remove_file(Path::new(&self.aside))
            .map_err(|source| classify(&self.shown, source))?;
        // A directory that cannot be synced does not bring the file back.
        let _ = self.directory.sync();
        Ok(())
    }
}

fn classify(name: &str, source: io::Error) -> ReplaceProblem {
    let name = name.to_owned();
    match Errno::from_io_error(&source) {
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => ReplaceProblem::ReadOnly {
            name,
            reason: source.to_string(),
        },
        // A link where a directory was, or nothing where the file was.
        Some(Errno::LOOP | Errno::XDEV | Errno::NOENT | Errno::NOTDIR) => {
            ReplaceProblem::Stale { name }
        }
        _ => ReplaceProblem::Write { name, source },
    }
}

fn create(
    directory: &Dir,
    file_name: &OsStr,
    name: &str,
    content: &[u8],
    like: Option<&File>,
) -> Result<Stamp, ReplaceProblem> {
    let created = (|| {
        let draft = TempFile::new(directory, 0o666)?;
        draft.file().write_all(content)?;
        if let Some(like) = like {
            let old = Stamp::of_file(like)?;
            // Where files may not be given away, the new one is our own, as with any other program.
            agent_fs::copy_metadata(draft.file(), &old, Some(like))?;
            rustix::fs::fchmod(draft.file(), Mode::from_raw_mode(old.permissions()))?;
        }
        draft.file().sync_all()?;
        let stamp = Stamp::of_file(draft.file())?;
        draft.create(file_name)?;
        Ok(stamp)
    })();
    let stamp = created.map_err(|source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => ReplaceProblem::Stale {
            name: name.to_owned(),
        },
        _ => classify(name, source),
    })?;
    // The content is in place; a directory that cannot be synced does not undo that.
    let _ = directory.sync();
    Ok(stamp)
}

/// Removes the directories that were made for a file, if they are empty.
pub fn remove_made(path: &ProjectPath, made: usize) {
    for directory in path.absolute().ancestors().skip(1).take(made) {
        // Only empty ones go: somebody may have put something there meanwhile.
        let _ = std::fs::remove_dir(directory);
    }
}

/// An existing file, opened and locked.
struct Target {
    directory: Dir,
    file_name: std::ffi::OsString,
    name: String,
    file: File,
    stamp: Stamp,
}

impl Target {
    fn open(directory: Dir, file_name: &OsStr, name: &str) -> Result<Self, ReplaceProblem> {
        let failed = |source: io::Error| classify(name, source);
        let path = Path::new(file_name);
        for _ in 0..4 {
            let file = directory.file(path).map_err(failed)?;
            let stamp = Stamp::of_file(&file).map_err(failed)?;
            // Root may write anything; the bit still says what the owner wants.
            if stamp.mode & 0o222 == 0 {
                return Err(ReplaceProblem::ReadOnly {
                    name: name.to_owned(),
                    reason: format!("its mode is {:04o}", stamp.permissions()),
                });
            }
            let writable = directory.open_file(path, OFlags::WRONLY, 0);
            drop(writable.map_err(failed)?);
            lock(&file).map_err(failed)?;
            let now = directory.stat(path).map_err(failed)?;
            // The program that held the lock may have renamed another file over this one.
            if (now.st_dev, now.st_ino) == (stamp.device, stamp.inode) {
                return Ok(Self {
                    directory,
                    file_name: file_name.to_owned(),
                    name: name.to_owned(),
                    file,
                    stamp,
                });
            }
        }
        Err(ReplaceProblem::Stale {
            name: name.to_owned(),
        })
    }

    fn compare(&self, sha256: &str) -> Result<(), ReplaceProblem> {
        let found = agent_fs::hash(&self.file).map_err(|source| classify(&self.name, source))?;
        if found.sha256 == sha256 {
            Ok(())
        } else {
            Err(ReplaceProblem::Stale {
                name: self.name.clone(),
            })
        }
    }

    fn rename_over(
        self,
        before: &[u8],
        sha256: &str,
        content: &[u8],
    ) -> Result<Replaced, ReplaceProblem> {
        let failed = |source: io::Error| classify(&self.name, source);
        let draft = TempFile::new(&self.directory, 0o600).map_err(failed)?;
        draft.file().write_all(content).map_err(failed)?;
        if !agent_fs::copy_metadata(draft.file(), &self.stamp, Some(&self.file)).map_err(failed)? {
            // Another owner whom we cannot give the new file to: keep the file itself.
            drop(draft);
            return self.write_in_place(before, sha256, content);
        }
        let mode = Mode::from_raw_mode(self.stamp.permissions());
        rustix::fs::fchmod(draft.file(), mode).map_err(|error| failed(error.into()))?;
        draft.file().sync_all().map_err(failed)?;
        self.compare(sha256)?;
        let file = draft.replace(&self.file_name).map_err(failed)?;
        let _ = self.directory.sync();
        Ok(Replaced {
            stamp: Stamp::of_file(&file).map_err(failed)?,
            other_names: 0,
            directories: 0,
        })
    }

    fn write_in_place(
        self,
        before: &[u8],
        sha256: &str,
        content: &[u8],
    ) -> Result<Replaced, ReplaceProblem> {
        let failed = |source: io::Error| classify(&self.name, source);
        let path = Path::new(&self.file_name);
        let writable = self.directory.open_file(path, OFlags::WRONLY, 0);
        let writable = writable.map_err(failed)?;
        let stamp = Stamp::of_file(&writable).map_err(failed)?;
        if (stamp.device, stamp.inode) != (self.stamp.device, self.stamp.inode) {
            return Err(ReplaceProblem::Stale { name: self.name });
        }
        self.compare(sha256)?;
        if let Err(source) = overwrite(&writable, content) {
            return Err(match overwrite(&writable, before) {
                Ok(()) => classify(&self.name, source),
                Err(_) => ReplaceProblem::Damaged {
                    name: self.name,
                    source,
                },
            });
        }
        let stamp = Stamp::of_file(&writable).map_err(failed)?;
        Ok(Replaced {
            stamp,
            other_names: stamp.links.saturating_sub(1),
            directories: 0,
        })
    }
}

fn overwrite(file: &File, content: &[u8]) -> io::Result<()> {
    agent_fs::overwrite(file, content)?;
    file.sync_all()
}

fn lock(file: &File) -> io::Result<()> {
    for _ in 0..LOCK_PATIENCE {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_STEP),
            // Not every file system has locks; the comparison still holds.
            Err(Errno::NOTSUP | Errno::NOLCK | Errno::INVAL) => return Ok(()),
            other => return Ok(other?),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::WouldBlock,
        "another program holds a lock on it",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;
    use crate::path::Access;
    use rustix::fs::XattrFlags;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    struct Place {
        folder: tempfile::TempDir,
        roots: Roots,
    }

    fn place(content: &str) -> Place {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), content).unwrap();
        let roots = Roots::open(folder.path(), None).unwrap();
        Place { folder, roots }
    }

    impl Place {
        fn put(
            &self,
            name: &str,
            before: Option<&str>,
            after: &str,
        ) -> Result<Replaced, ReplaceProblem> {
            let path = self.roots.resolve(name, Access::Write).unwrap();
            let sha256 = file::hash_bytes(before.unwrap_or_default().as_bytes());
            let expected = match before {
                Some(text) => Expected::Content {
                    bytes: text.as_bytes(),
                    sha256: &sha256,
                },
                None => Expected::Missing,
            };
            replace(&self.roots, &path, expected, after.as_bytes())
        }

        fn names(&self) -> Vec<String> {
            let mut names: Vec<String> = fs::read_dir(self.folder.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.folder.path().join(name)).unwrap()
        }
    }

    #[test]
    fn mode_and_attributes_survive() {
        let place = place("old");
        let file = place.folder.path().join("a");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o4751)).unwrap();
        let attribute = rustix::fs::setxattr(&file, "user.note", b"kept", XattrFlags::empty());
        place.put("a", Some("old"), "new").unwrap();
        assert_eq!(place.text("a"), "new");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o4751);
        if attribute.is_ok() {
            let mut value = [0; 4];
            rustix::fs::getxattr(&file, "user.note", &mut value[..]).unwrap();
            assert_eq!(&value, b"kept");
        }
        assert_eq!(place.names(), ["a"]);
    }

    #[test]
    fn links_survive() {
        let place = place("old");
        let root = place.folder.path();
        fs::hard_link(root.join("a"), root.join("b")).unwrap();
        symlink("a", root.join("c")).unwrap();
        let replaced = place.put("c", Some("old"), "new content").unwrap();
        assert_eq!(replaced.other_names, 1);
        assert_eq!(
            (place.text("a"), place.text("b")),
            ("new content".into(), "new content".into())
        );
        assert!(root.join("c").is_symlink());
        assert_eq!(place.names(), ["a", "b", "c"]);
    }

    #[test]
    fn what_changed_meanwhile_is_not_overwritten() {
        let place = place("theirs");
        for links in [1, 2] {
            if links == 2 {
                fs::hard_link(place.folder.path().join("a"), place.folder.path().join("b"))
                    .unwrap();
            }
            let problem = place.put("a", Some("read"), "ours").unwrap_err();
            assert_eq!(problem.code(), Code::StaleFileBaseline);
            assert_eq!(place.text("a"), "theirs");
        }
        assert_eq!(
            place.put("a", None, "ours").unwrap_err().code(),
            Code::StaleFileBaseline
        );
        assert_eq!(place.names(), ["a", "b"]);
    }

    #[test]
    fn the_read_only_bit_holds_for_everyone() {
        let place = place("old");
        fs::set_permissions(
            place.folder.path().join("a"),
            fs::Permissions::from_mode(0o444),
        )
        .unwrap();
        let problem = place.put("a", Some("old"), "new").unwrap_err();
        assert_eq!(problem.code(), Code::PermissionDenied);
        assert_eq!(place.text("a"), "old");
    }

    #[test]
    fn missing_directories_are_made_and_unmade() {
        let place = place("old");
        let replaced = place.put("deep/er/file", None, "new").unwrap();
        assert_eq!(replaced.directories, 2);
        assert_eq!(place.text("deep/er/file"), "new");
        let long = format!("other/{}", "x".repeat(250));
        place.put(&long, None, "fits").unwrap();
        let path = place.roots.resolve("third/x", Access::Write).unwrap();
        fs::create_dir_all(place.folder.path().join("third/x")).unwrap();
        let problem = replace(&place.roots, &path, Expected::Missing, b"new").unwrap_err();
        assert_eq!(problem.code(), Code::StaleFileBaseline);
    }
}
