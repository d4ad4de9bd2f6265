//! A regular file as it is at one moment: its bytes, their hash, and what the system says of it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use agent_fs::Stamp;
use agent_protocol::payload::tool::Baseline;
use sha2::{Digest, Sha256};

use crate::encoding::Encoding;

/// Files up to this size are hashed whole, can be edited, and get a baseline.
pub const MAX_WHOLE_FILE: u64 = 256 << 20;

/// Files up to this size are read in pages.
pub const MAX_PAGED_FILE: u64 = 1 << 30;

const CHUNK: usize = 256 << 10;

/// The whole content of a file.
#[derive(Debug)]
pub struct Snapshot {
    pub content: Vec<u8>,
    pub sha256: String,
    pub encoding: Encoding,
    pub stamp: Stamp,
}

impl Snapshot {
    /// Baseline of this version, as the session remembers it.
    pub fn baseline(&self, path: &str, range: Option<String>) -> Baseline {
        Baseline {
            path: path.to_owned(),
            size: self.content.len() as u64,
            mtime_ms: Some(self.stamp.modified_ms()),
            sha256: self.sha256.clone(),
            range,
        }
    }
}

/// Reads and hashes a whole file in one pass. It may shrink or grow meanwhile: the content is what
/// was read.
pub fn load(mut file: &File) -> io::Result<Snapshot> {
    let stamp = Stamp::of_file(file)?;
    file.seek(SeekFrom::Start(0))?;
    let capacity = usize::try_from(stamp.size.min(MAX_WHOLE_FILE)).unwrap_or(0);
    let mut content = Vec::with_capacity(capacity + 1);
    let mut hasher = Sha256::new();
    loop {
        let from = content.len();
        let read = file.by_ref().take(CHUNK as u64).read_to_end(&mut content)?;
        if read == 0 {
            break;
        }
        hasher.update(&content[from..]);
        if content.len() as u64 > MAX_WHOLE_FILE {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
    }
    let encoding = Encoding::of(&content);
    Ok(Snapshot {
        content,
        sha256: agent_text::hex(&hasher.finalize()),
        encoding,
        stamp,
    })
}

/// The hash of bytes in hand.
pub fn hash_bytes(bytes: &[u8]) -> String {
    agent_text::sha256_hex(bytes)
}

/// Kind of binary content, judged by its first bytes; nothing for text.
pub fn binary_kind(head: &[u8]) -> Option<&'static str> {
    const SIGNATURES: [(&[u8], &str); 22] = [
        (b"\x89PNG\r\n\x1a\n", "PNG image"),
        (b"\xFF\xD8\xFF", "JPEG image"),
        (b"GIF87a", "GIF image"),
        (b"GIF89a", "GIF image"),
        (b"BM", "BMP image"),
        (b"%PDF-", "PDF document"),
        (b"PK\x03\x04", "ZIP archive"),
        (b"PK\x05\x06", "ZIP archive"),
        (b"\x1F\x8B", "gzip archive"),
        (b"BZh", "bzip2 archive"),
        (b"\xFD7zXZ\0", "xz archive"),
        (b"\x28\xB5\x2F\xFD", "zstd archive"),
        (b"7z\xBC\xAF\x27\x1C", "7z archive"),
        (b"\x7FELF", "ELF program"),
        (b"\xCA\xFE\xBA\xBE", "Java class or Mach-O program"),
        (b"\xCF\xFA\xED\xFE", "Mach-O program"),
        (b"\0asm", "WebAssembly module"),
        (b"SQLite format 3\0", "SQLite database"),
        (b"OggS", "Ogg media"),
        (b"ID3", "MP3 audio"),
        (b"wOF2", "font"),
        (b"\xFF\xFE\0\0", "UTF-32 text"),
    ];
    let zero_inside = memchr::memchr(0, head).is_some();
    for (signature, name) in SIGNATURES {
        // Two or three plain letters are a coincidence unless the rest is binary too.
        let certain = signature.len() > 3 || !signature.is_ascii() || zero_inside;
        if head.starts_with(signature) && certain {
            return Some(name);
        }
    }
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        return Some("WebP image");
    }
    let wide = head.starts_with(b"\xFF\xFE") || head.starts_with(b"\xFE\xFF");
    (zero_inside && !wide).then_some("binary data")
}

/// Number of bytes [`binary_kind`] wants to see.
pub const HEAD: usize = 8 << 10;

/// The first bytes of a file.
pub fn head(mut file: &File) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD);
    file.seek(SeekFrom::Start(0))?;
    file.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &[u8], expected: Option<&str>) {
        assert_eq!(binary_kind(head), expected, "{head:?}");
    }

    #[test]
    fn kinds_are_told_by_their_first_bytes() {
        check(b"\x89PNG\r\n\x1a\n....", Some("PNG image"));
        check(b"RIFF\0\0\0\0WEBPVP8 ", Some("WebP image"));
        check(b"%PDF-1.7\n", Some("PDF document"));
        check(b"BM is a company\n", None);
        check(b"ID3 is an algorithm\n", None);
        check(b"a\0b", Some("binary data"));
        check(b"\xFF\xFEa\0", None);
        check(b"\xFF\xFE\0\0a\0\0\0", Some("UTF-32 text"));
        check(b"", None);
    }

    #[test]
    fn one_pass_gives_content_and_hash() {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 600_000], 0).unwrap();
        let snapshot = load(&file).unwrap();
        assert_eq!(snapshot.content.len(), 600_000);
        assert_eq!(snapshot.sha256, hash_bytes(&[7; 600_000]));
        assert_eq!(snapshot.sha256, agent_fs::hash(&file).unwrap().sha256);
    }
}
