//! Temporary files that replace their target by a rename, so that a reader finds the old content or the new, never
//! half.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::Dir;

/// New file or link beside its target; removed when dropped unless it took the target's name.
#[derive(Debug)]
pub struct TempFile {
    directory: OwnedFd,
    name: OsString,
    file: File,
    is_placed: bool,
}

impl TempFile {
    /// Makes an empty file in `directory` under a name of its own.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(directory: &Dir, mode: u32) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        for _ in 0..1000 {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!(".agent-{}-{number}.tmp", std::process::id());
            match Self::make(directory, OsStr::new(&name), mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other,
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Makes an empty file under a given name, in place of one that a killed process left there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn named(directory: &Dir, name: &OsStr, mode: u32) -> io::Result<Self> {
        match Self::make(directory, name, mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
                Self::make(directory, name, mode)
            }
            other => other,
        }
    }

    /// The same for a link to `target`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn link(directory: &Dir, name: &OsStr, target: &OsStr) -> io::Result<Self> {
        let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        rustix::fs::symlinkat(target, directory, name)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
        Self::of(directory, name, file)
    }

    fn make(directory: &Dir, name: &OsStr, mode: u32) -> io::Result<Self> {
        const FLAGS: OFlags = OFlags::RDWR
            .union(OFlags::CREATE)
            .union(OFlags::EXCL)
            .union(OFlags::NOFOLLOW)
            .union(OFlags::CLOEXEC);
        let file = rustix::fs::openat(directory, name, FLAGS, Mode::from_raw_mode(mode))?;
        Self::of(directory, name, file)
    }

    fn of(directory: &Dir, name: &OsStr, file: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            directory: directory.as_fd().try_clone_to_owned()?,
            name: name.to_owned(),
            file: File::from(file),
            is_placed: false,
        })
    }

    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Renames the file to `name`, replacing what is there.
    ///
    /// # Errors
    /// When it cannot be renamed; the temporary file is gone then.
    pub fn replace(mut self, name: &OsStr) -> io::Result<File> {
        rustix::fs::renameat(&self.directory, &self.name, &self.directory, name)?;
        self.is_placed = true;
        self.file.try_clone()
    }

    /// Renames the file to `name`, which must not exist.
    ///
    /// # Errors
    /// `AlreadyExists`, or when it cannot be renamed; the temporary file is gone then.
    pub fn create(mut self, name: &OsStr) -> io::Result<File> {
        let (directory, temp) = (&self.directory, &self.name);
        match rustix::fs::renameat_with(directory, temp, directory, name, RenameFlags::NOREPLACE) {
            // Some file systems do not know the flag; a second name does not replace anything either, and the
            // first is removed on drop.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(directory, temp, directory, name, AtFlags::empty())?;
            }
            other => {
                other?;
                self.is_placed = true;
            }
        }
        self.file.try_clone()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
    }
}

/// Replaces the file at `path` atomically and syncs it.
///
/// # Errors
/// When it cannot be written; what was there is unchanged then.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let (directory, name) = parent(path)?;
    let temp = TempFile::new(&directory, mode)?;
    temp.file().write_all(content)?;
    temp.file().sync_all()?;
    temp.replace(name)?;
    Ok(())
}

/// Creates the file at `path` unless there is one. It is synced only if `is_synced`: without, a power
/// cut may leave it empty.
///
/// # Errors
/// When it cannot be written.
pub fn create(path: &Path, content: &[u8], mode: u32, is_synced: bool) -> io::Result<()> {
    let (directory, name) = parent(path)?;
    let temp = TempFile::new(&directory, mode)?;
    temp.file().write_all(content)?;
    if is_synced {
        temp.file().sync_all()?;
    }
    match temp.create(name) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// The directory of a path that belongs to the user, links and all, and the name there.
fn parent(path: &Path) -> io::Result<(Dir, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    Ok((Dir::open(above)?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let listed = std::fs::read_dir(folder).unwrap();
        let names = listed.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_whole_or_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        create(&file, b"first", 0o600, true).unwrap();
        create(&file, b"second", 0o600, false).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"first");
        replace(&file, b"third", 0o600).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"third");
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn a_temp_file_that_takes_no_name_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Dir::open(folder.path()).unwrap();
        drop(TempFile::new(&directory, 0o600).unwrap());
        std::fs::write(folder.path().join("taken"), "theirs").unwrap();
        let temp = TempFile::named(&directory, OsStr::new("left"), 0o600).unwrap();
        let problem = temp.create(OsStr::new("taken")).unwrap_err();
        assert_eq!(problem.kind(), io::ErrorKind::AlreadyExists);
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        let link = TempFile::link(&directory, OsStr::new("left"), OsStr::new("away")).unwrap();
        link.replace(OsStr::new("folder")).unwrap_err();
        assert_eq!(names(folder.path()), ["folder", "taken"]);
        // A leftover of a killed process is replaced.
        std::fs::write(folder.path().join("left"), "half").unwrap();
        let temp = TempFile::named(&directory, OsStr::new("left"), 0o600).unwrap();
        temp.replace(OsStr::new("taken")).unwrap();
        assert_eq!(names(folder.path()), ["folder", "taken"]);
        assert!(
            std::fs::read(folder.path().join("taken"))
                .unwrap()
                .is_empty()
        );
    }
}
