//! The content of an open file: hashed without keeping it, or overwritten.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;

use sha2::{Digest as _, Sha256};

const CHUNK: usize = 256 << 10;

/// The hash of a file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashed {
    /// In hexadecimal digits.
    pub sha256: String,
    pub bytes: u64,
}

/// Hashes a file from its beginning, without keeping it.
///
/// # Errors
/// When the file cannot be read.
pub fn hash(mut file: &File) -> io::Result<Hashed> {
    file.seek(SeekFrom::Start(0))?;
    // One byte more than the file has, so that its end shows at once.
    let size = usize::try_from(file.metadata()?.len()).unwrap_or(CHUNK);
    let mut chunk = vec![0; size.saturating_add(1).min(CHUNK)];
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
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
