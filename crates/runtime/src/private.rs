//! Files only their owner can read, written so that nobody ever sees half of one.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

const OWNER_ONLY: u32 = 0o600;

/// Writes `content` unless there is a file already.
pub fn write_once(file: &Path, content: &[u8]) -> io::Result<()> {
    create_parent(file)?;
    agent_fs::create(file, content, OWNER_ONLY, true)
}

/// The same for what can be made again: a power cut may leave the file empty.
pub fn draft_once(file: &Path, content: &[u8]) -> io::Result<()> {
    create_parent(file)?;
    agent_fs::create(file, content, OWNER_ONLY, false)
}

/// Writes `content` in place of whatever is there.
pub fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    create_parent(file)?;
    agent_fs::replace(file, content, OWNER_ONLY)
}

/// A directory for its owner alone, with those above it.
pub fn create_directory(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(directory)
}

fn create_parent(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), create_directory)
}
