//! Takes the output of a command as it comes, with bounded memory: every byte goes to an artifact,
//! and what will be shown is kept beside it.

use std::collections::VecDeque;

use agent_protocol::payload::ArtifactRef;
use agent_protocol::payload::conversation::ArtifactKind;

use crate::context::ExecutionContext;
use crate::journal::{ArtifactWriter, JournalError};

/// Which stream a piece of output came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// How much is kept in memory for the preview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectLimits {
    /// Bytes from the start. Output that is no longer than this is kept whole.
    pub head: usize,
    /// Bytes from the end.
    pub tail: usize,
}

impl Default for CollectLimits {
    fn default() -> Self {
        Self {
            head: 32 * 1024,
            tail: 16 * 1024,
        }
    }
}

/// A piece of the output that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where in the whole output it starts.
    pub offset: u64,
    pub bytes: Vec<u8>,
    /// Which parts of it were stderr, as offsets in the whole output.
    pub stderr: Vec<(u64, u64)>,
}

/// A whole output, most of it by reference.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectedOutput {
    /// All bytes as they came; nothing when there were none.
    pub artifact: Option<ArtifactRef>,
    /// Which ranges were stderr; nothing when none were.
    pub index: Option<ArtifactRef>,
    pub total_bytes: u64,
    pub stderr_bytes: u64,
    pub lines: u64,
    /// In order, without overlap.
    pub segments: Vec<Segment>,
}

/// The collector. `push` what comes, then `finish`.
pub struct Collector {
    writer: Box<dyn ArtifactWriter>,
    limits: CollectLimits,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    stderr_bytes: u64,
    lines: u64,
}

impl Collector {
    /// Starts an output artifact of this call.
    ///
    /// # Errors
    /// When the artifact cannot be created.
    pub fn start(context: &ExecutionContext, limits: CollectLimits) -> Result<Self, JournalError> {
        let writer =
            context.artifact_writer(ArtifactKind::CommandOutput, "application/octet-stream")?;
        Ok(Self {
            writer,
            limits,
            head: Vec::new(),
            tail: VecDeque::new(),
            total: 0,
            stderr_bytes: 0,
            lines: 0,
        })
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// When the artifact cannot be written.
    pub fn push(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), JournalError> {
        self.writer
            .write_all(bytes)
            .map_err(|error| JournalError::new("write the output of a command", error))?;
        let room = self
            .limits
            .head
            .saturating_sub(self.head.len())
            .min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        self.tail
            .extend(&bytes[bytes.len().saturating_sub(self.limits.tail)..]);
        let excess = self.tail.len().saturating_sub(self.limits.tail);
        self.tail.drain(..excess);
        self.total += bytes.len() as u64;
        if stream == Stream::Stderr {
            self.stderr_bytes += bytes.len() as u64;
        }
        self.lines += memchr::memchr_iter(b'\n', bytes).count() as u64;
        Ok(())
    }

    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The last line so far, for progress displays.
    #[must_use]
    pub fn last_line(&self) -> String {
        let (front, back) = self.tail.as_slices();
        let last = if back.is_empty() { front } else { back };
        let line = last.trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
        String::from_utf8_lossy(line.unwrap_or_default()).into_owned()
    }

    /// Completes the artifact.
    ///
    /// # Errors
    /// When it cannot be completed.
    pub fn finish(self) -> Result<CollectedOutput, JournalError> {
        let artifact = self.writer.finish()?;
        let mut segments = vec![Segment {
            offset: 0,
            bytes: self.head,
            stderr: Vec::new(),
        }];
        let shown = segments[0].bytes.len() as u64;
        let tail_start = self.total - self.tail.len() as u64;
        let skip = shown.saturating_sub(tail_start);
        let rest: Vec<u8> = self
            .tail
            .into_iter()
            .skip(usize::try_from(skip).unwrap_or(usize::MAX))
            .collect();
        if !rest.is_empty() {
            segments.push(Segment {
                offset: tail_start.max(shown),
                bytes: rest,
                stderr: Vec::new(),
            });
        }
        Ok(CollectedOutput {
            artifact: Some(artifact),
            index: None,
            total_bytes: self.total,
            stderr_bytes: self.stderr_bytes,
            lines: self.lines,
            segments,
        })
    }
}
