//! Content of regular files: opened, hashed without keeping it, or overwritten.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};

const CHUNK: usize = 256 << 10;

/// The hash of a file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashed {
    /// In hexadecimal digits.
    pub sha256: String,
    pub bytes: u64,
}

/// Opens a regular file for reading, wherever `path` leads. A pipe or device in its place answers at once: its
/// writer may never come.
///
/// # Errors
/// When it cannot be opened; `InvalidInput` if it is something else than a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let at_once = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::options()
        .read(true)
        .custom_flags(at_once.bits().cast_signed())
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        let kind = io::ErrorKind::InvalidInput;
        Err(io::Error::new(kind, "not a regular file"))
    }
}

/// Hashes a file from its beginning, without keeping it.
///
/// It reads one byte more than the file has when it begins: a file that grows meanwhile has the hash of
/// no state it was ever in, and one that grows as fast as it is read comes to an end all the same.
///
/// # Errors
/// When the file cannot be read.
pub fn hash(mut file: &File) -> io::Result<Hashed> {
    file.seek(SeekFrom::Start(0))?;
    let size = match file.metadata()?.len() {
        // Files that the kernel makes while they are read have no length.
        0 => CHUNK as u64,
        length => length.saturating_add(1),
    };
    let mut chunk = vec![0; usize::try_from(size).unwrap_or(CHUNK).min(CHUNK)];
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    let mut file = file.take(size);
    loop {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => {
                hasher.update(&chunk[..count]);
                bytes += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Hashed {
        sha256: agent_text::hex(&hasher.finalize()),
        bytes,
    })
}

/// Writes `content` over what an open file holds. A failure may leave a part of it.
///
/// # Errors
/// When the file cannot be written.
pub fn overwrite(file: &File, content: &[u8]) -> io::Result<()> {
    file.write_all_at(content, 0)?;
    file.set_len(content.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that grows as fast as it is read.
    #[test]
    fn hashing_comes_to_an_end() {
        let endless = File::open("/dev/zero").unwrap();
        assert_eq!(hash(&endless).unwrap().bytes, CHUNK as u64);
    }

    #[test]
    fn the_whole_file_is_hashed() {
        let file = tempfile::tempfile().unwrap();
        for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let content = vec![7; length];
            overwrite(&file, &content).unwrap();
            let hashed = hash(&file).unwrap();
            assert_eq!(hashed.bytes, length as u64);
            assert_eq!(
                hashed.sha256,
                agent_text::hex(&Sha256::digest(&content)),
                "{length}"
            );
        }
    }
}
