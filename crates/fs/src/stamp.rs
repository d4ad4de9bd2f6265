//! File metadata, compared to see whether a file is still the same.

use std::fs::File;
use std::io;
use std::time::SystemTime;

use rustix::fs::{FileType, Stat};

/// Metadata of a file at one moment; any later change shows in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub size: u64,
    /// Kind and permission bits.
    pub mode: u32,
    pub owner: u32,
    pub group: u32,
    pub links: u64,
    pub device: u64,
    pub inode: u64,
    /// Nanoseconds since the epoch.
    pub modified: i64,
    /// Time of the last change to content or metadata, in the same unit; no program can set it.
    pub changed: i64,
}

impl Stamp {
    #[must_use]
    pub fn of(stat: &Stat) -> Self {
        let nanoseconds = |seconds: i64, part: u64| {
            let part = i64::try_from(part).unwrap_or(0);
            seconds.saturating_mul(1_000_000_000).saturating_add(part)
        };
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode,
            owner: stat.st_uid,
            group: stat.st_gid,
            links: stat.st_nlink,
            device: stat.st_dev,
            inode: stat.st_ino,
            modified: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            changed: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// The same without what a directory's entries change in it, for snapshots that hold those entries too.
    #[must_use]
    pub fn of_entry(stat: &Stat) -> Self {
        let stamp = Self::of(stat);
        if stamp.kind() != FileType::Directory {
            return stamp;
        }
        Self {
            size: 0,
            links: 0,
            inode: 0,
            modified: 0,
            changed: 0,
            ..stamp
        }
    }

    /// # Errors
    /// When the file's status cannot be read.
    pub fn of_file(file: &File) -> io::Result<Self> {
        Ok(Self::of(&rustix::fs::fstat(file)?))
    }

    #[must_use]
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    /// The permission bits alone.
    #[must_use]
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// Time of the last change of content, in milliseconds.
    #[must_use]
    pub fn modified_ms(&self) -> i64 {
        self.modified.div_euclid(1_000_000)
    }

    /// True if both are of the same file with the same content. A name more or less changes the number of names
    /// and the time of change only.
    #[must_use]
    pub fn is_same_content(&self, other: &Self) -> bool {
        let content = |stamp: &Self| {
            let Self {
                device,
                inode,
                size,
                modified,
                mode,
                ..
            } = *stamp;
            (device, inode, size, modified, mode)
        };
        content(self) == content(other)
    }
}

/// The time as files tell it: that of a file made just now, in memory.
///
/// # Errors
/// When no file can be made in memory.
pub fn now() -> io::Result<SystemTime> {
    let file = rustix::fs::memfd_create(c"now", rustix::fs::MemfdFlags::CLOEXEC)?;
    File::from(file).metadata()?.modified()
}
