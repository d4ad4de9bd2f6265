//! Masks bytes of any length while they are read.

use std::io::{self, Read};

use super::{Masked, Redactor};

/// A secret that is longer than this is found in parts only.
pub(crate) const LONGEST_SECRET: usize = 256 << 10;

/// So much is looked at together.
const WINDOW: usize = 4 * LONGEST_SECRET;

/// Gives what `inner` gives with every secret masked, whatever the length. What is cut off is never
/// inside a secret: before a piece is given, all that could belong to it was read.
pub struct MaskedReader<'a, R> {
    redactor: &'a Redactor,
    inner: R,
    /// What was read: first what was given already, kept because a secret is known by what stands
    /// before it, too.
    window: Vec<u8>,
    given: usize,
    /// Masked and not yet taken.
    ready: Vec<u8>,
    taken: usize,
    ended: bool,
}

impl<'a, R: Read> MaskedReader<'a, R> {
    pub fn new(redactor: &'a Redactor, inner: R) -> Self {
        Self {
            redactor,
            inner,
            window: Vec::new(),
            given: 0,
            ready: Vec::new(),
            taken: 0,
            ended: false,
        }
    }

    /// Reads and masks the next piece.
    fn advance(&mut self) -> io::Result<()> {
        let keep = self.given.saturating_sub(LONGEST_SECRET);
        self.window.drain(..keep);
        self.given -= keep;
        let wanted = (WINDOW + self.given).saturating_sub(self.window.len());
        let read = (&mut self.inner)
            .take(wanted as u64)
            .read_to_end(&mut self.window)?;
        self.ended = read < wanted;
        let end = match self.ended {
            true => self.window.len(),
            false => self.window.len() - LONGEST_SECRET,
        };
        let secrets = self.redactor.secrets_in(&self.window);
        self.ready.clear();
        self.taken = 0;
        self.given = mask_part(&self.window, &secrets, self.given, end, &mut self.ready);
        Ok(())
    }
}

/// Adds the part of `bytes` from `from` to `to` masked; gives back where it ended, which is behind a
/// secret that lies across `to`.
pub(crate) fn mask_part(
    bytes: &[u8],
    secrets: &[Masked],
    from: usize,
    to: usize,
    out: &mut Vec<u8>,
) -> usize {
    let mut at = from;
    for secret in secrets {
        let range = &secret.range;
        if range.end <= at || range.start >= to {
            continue;
        }
        out.extend_from_slice(&bytes[at..range.start.max(at)]);
        out.extend_from_slice(secret.placeholder.as_bytes());
        at = range.end;
    }
    if at < to {
        out.extend_from_slice(&bytes[at..to]);
        at = to;
    }
    at
}

impl<R: Read> Read for MaskedReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.ready.len() {
            if self.ended {
                return Ok(0);
            }
            self.advance()?;
        }
        let count = buffer.len().min(self.ready.len() - self.taken);
        buffer[..count].copy_from_slice(&self.ready[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}
