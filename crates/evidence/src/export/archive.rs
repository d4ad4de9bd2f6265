//! A `tar.zst` that is made while it is written: a member is read when its turn comes, and only the
//! block at hand is in memory.

use std::collections::VecDeque;
use std::io::{self, Cursor, Read, Write};

use super::evidence::PackError;

/// A file of the archive.
pub(super) struct Member<'a> {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) content: Content<'a>,
}

/// Where the bytes of a member come from.
pub(super) enum Content<'a> {
    Bytes(Vec<u8>),
    /// A source of at least as many bytes as were promised.
    Source(Box<dyn FnOnce() -> Result<Source<'a>, PackError> + 'a>),
}

/// What gives the bytes of a member.
pub(super) type Source<'a> = Box<dyn Read + 'a>;

/// Writes the members into a directory `id` of an archive, each last changed at `modified`.
pub(super) fn write<'a>(
    id: &'a str,
    modified: i64,
    members: Vec<Member<'a>>,
    out: &mut dyn Write,
) -> Result<(), PackError> {
    let mut tar = Tar {
        id,
        modified,
        members: members.into(),
        parts: VecDeque::new(),
        ended: false,
        failed: None,
    };
    let mut out = Sure { out, failed: None };
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    ruzstd::encoding::compress(&mut tar, &mut out, level);
    match (tar.failed, out.failed) {
        (Some(failed), _) => Err(failed),
        (None, Some(failed)) => Err(PackError::Write(failed)),
        (None, None) => out.out.flush().map_err(PackError::Write),
    }
}

/// The archive before it is compressed. The compressor cannot be told of a failure, so that one ends
/// the archive and is kept.
struct Tar<'a> {
    id: &'a str,
    modified: i64,
    members: VecDeque<Member<'a>>,
    /// What is left of the member at hand.
    parts: VecDeque<Part<'a>>,
    ended: bool,
    failed: Option<PackError>,
}

enum Part<'a> {
    Bytes(Cursor<Vec<u8>>),
    Source(io::Take<Source<'a>>),
}

impl<'a> Tar<'a> {
    fn begin(&mut self, member: Member<'a>) -> Result<(), PackError> {
        let header = header(self.id, &member.name, member.bytes, self.modified);
        let header = header.map_err(PackError::Write)?;
        let body = match member.content {
            Content::Bytes(bytes) => Part::Bytes(Cursor::new(bytes)),
            Content::Source(open) => Part::Source(open()?.take(member.bytes)),
        };
        let padding = member.bytes.next_multiple_of(BLOCK) - member.bytes;
        self.parts = VecDeque::from([Part::Bytes(Cursor::new(header)), body, zeros(padding)]);
        Ok(())
    }

    fn read_part(&mut self, buffer: &mut [u8]) -> Result<usize, PackError> {
        loop {
            let count = match self.parts.front_mut() {
                Some(Part::Bytes(bytes)) => bytes.read(buffer),
                Some(Part::Source(source)) => source.read(buffer),
                None => match self.members.pop_front() {
                    Some(member) => {
                        self.begin(member)?;
                        continue;
                    }
                    None if self.ended => return Ok(0),
                    // Two empty blocks end an archive.
                    None => {
                        self.ended = true;
                        self.parts.push_back(zeros(2 * BLOCK));
                        continue;
                    }
                },
            };
            match count {
                Ok(0) => {}
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(PackError::Write(error)),
            }
            if let Some(Part::Source(source)) = self.parts.pop_front()
                && source.limit() > 0
            {
                let changed = io::Error::other("a file became shorter while it was packed");
                return Err(PackError::Write(changed));
            }
        }
    }
}

impl Read for Tar<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.failed.is_some() || buffer.is_empty() {
            return Ok(0);
        }
        Ok(self.read_part(buffer).unwrap_or_else(|error| {
            self.failed = Some(error);
            0
        }))
    }
}

/// Takes everything, and keeps the first failure: the compressor would panic on it.
struct Sure<'a> {
    out: &'a mut dyn Write,
    failed: Option<io::Error>,
}

impl Write for Sure<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed.is_none() {
            self.failed = self.out.write_all(bytes).err();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Members begin and end at multiples of this.
const BLOCK: u64 = 512;

fn zeros(count: u64) -> Part<'static> {
    let count = usize::try_from(count).unwrap_or_default();
    Part::Bytes(Cursor::new(vec![0; count]))
}

/// The header of one file, as POSIX wrote it down in 1988.
fn header(id: &str, name: &str, bytes: u64, modified: i64) -> io::Result<Vec<u8>> {
    let (directory, file) = match name.rsplit_once('/') {
        Some((directory, file)) => (format!("{id}/{directory}"), file),
        None => (id.to_owned(), name),
    };
    if file.len() > 100 || directory.len() > 155 || bytes > 0o77_777_777_777 {
        return Err(io::Error::other(format!(
            "`{name}` does not fit a tar header"
        )));
    }
    let mut block = vec![0_u8; 512];
    let mut put = |at: usize, text: &str| {
        block[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    put(0, file);
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{bytes:011o}\0"));
    put(136, &format!("{modified:011o}\0"));
    // The sum of the header is taken with spaces in its own place.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\0");
    put(263, "00");
    put(345, &directory);
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    let text = format!("{sum:06o}\0 ");
    block[148..156].copy_from_slice(text.as_bytes());
    Ok(block)
}
