//! The end of the file: whole lines that wait to be written, and the care that no half line stays.

use std::fs::File;
use std::io::{self, Write as _};

use super::error::WriteFailure;

/// Lines are gathered up to this many bytes, whoever asked for it.
pub(super) const MOST_GATHERED: usize = 64 * 1024;

/// Buffer between an accepted event and the kernel.
pub(super) struct Tail {
    /// Whole lines with their newlines, accepted and not yet written.
    pending: Vec<u8>,
    /// Bytes of whole lines in the file.
    written: u64,
    /// Bytes of a half-written line are behind `written` and have to be cut off first.
    must_cut: bool,
    /// True if the file was looked at since it was last synced. Once is enough: what is not synced
    /// yet is not promised to anyone, and a sync looks again before it promises.
    is_checked: bool,
}

impl Tail {
    /// The end of a file that has this many bytes.
    pub(super) fn new(written: u64) -> Self {
        Self {
            pending: Vec::with_capacity(8 * 1024),
            written,
            must_cut: false,
            is_checked: false,
        }
    }

    /// Adds a line; [`Tail::forget`] takes it back.
    pub(super) fn push(&mut self, line: &[u8]) {
        self.pending.extend_from_slice(line);
        self.pending.push(b'\n');
    }

    /// Takes back what was added to the pending lines from `length` on.
    pub(super) fn forget(&mut self, length: usize) {
        self.pending.truncate(length);
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Writes every pending line with one call. When that fails, the file ends where it ended
    /// before and all lines still wait.
    pub(super) fn flush(&mut self, file: &File) -> Result<(), WriteFailure> {
        if self.must_cut || !self.is_checked {
            self.check(file)?;
        }
        let mut out = file;
        let mut rest = self.pending.as_slice();
        while !rest.is_empty() {
            let failure = match out.write(rest) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(count) => {
                    rest = &rest[count..];
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            if rest.len() < self.pending.len() {
                // A failure to cut now is met again, and reported, by the next attempt.
                self.must_cut = true;
                let _ = self.cut(file);
            }
            return Err(WriteFailure::Io(failure));
        }
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Looks whether the file is still there and still ends where it should.
    pub(super) fn check(&mut self, file: &File) -> Result<(), WriteFailure> {
        let stat = rustix::fs::fstat(file).map_err(|error| WriteFailure::Io(error.into()))?;
        if stat.st_nlink == 0 {
            return Err(WriteFailure::Gone);
        }
        if self.must_cut {
            self.cut(file).map_err(WriteFailure::Io)?;
        } else if u64::try_from(stat.st_size) != Ok(self.written) {
            return Err(WriteFailure::Foreign {
                expected: self.written,
                found: u64::try_from(stat.st_size).unwrap_or(0),
            });
        }
        self.is_checked = true;
        Ok(())
    }

    /// The next write looks at the file again.
    pub(super) fn synced(&mut self) {
        self.is_checked = false;
    }

    fn cut(&mut self, file: &File) -> io::Result<()> {
        file.set_len(self.written)?;
        self.must_cut = false;
        Ok(())
    }
}
