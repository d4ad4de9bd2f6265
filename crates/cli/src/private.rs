//! Files only their owner can read, written so that nobody ever sees half of one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Writes `content` unless there is a file already.
pub(crate) fn write_once(file: &Path, content: &[u8]) -> io::Result<()> {
    name_once(&write_draft(file, content)?.0, file)
}

/// The same for what can be made again: a power cut may leave the file empty.
pub(crate) fn draft_once(file: &Path, content: &[u8]) -> io::Result<()> {
    name_once(&write_unsynced(file, content)?.0, file)
}

fn name_once(draft: &Path, file: &Path) -> io::Result<()> {
    let linked = match fs::hard_link(draft, file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    };
    fs::remove_file(draft)?;
    linked
}

/// Writes `content` in place of whatever is there.
pub(crate) fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let (draft, _) = write_draft(file, content)?;
    fs::rename(&draft, file).inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    })
}

/// A directory for its owner alone, with those above it.
pub(crate) fn create_directory(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(directory)
}

/// The content in a file beside its target, on disk.
fn write_draft(file: &Path, content: &[u8]) -> io::Result<(PathBuf, File)> {
    let (draft, opened) = write_unsynced(file, content)?;
    opened.sync_all()?;
    Ok((draft, opened))
}

/// The content in a file beside its target.
fn write_unsynced(file: &Path, content: &[u8]) -> io::Result<(PathBuf, File)> {
    if let Some(directory) = file.parent() {
        create_directory(directory)?;
    }
    let draft = file.with_extension(format!("new.{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut opened = options.open(&draft)?;
    opened.write_all(content)?;
    Ok((draft, opened))
}
