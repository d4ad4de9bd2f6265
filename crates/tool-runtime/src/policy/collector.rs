//! Takes the output of a command as it comes, with bounded memory: every byte goes to an artifact,
//! and what will be shown is kept beside it.

use std::collections::VecDeque;
use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;

use agent_protocol::Scope;
use agent_protocol::payload::ArtifactRef;
use agent_protocol::payload::conversation::ArtifactKind;

use super::excerpt::{CollectLimits, Excerpt};
use super::piece::{hidden_in, masked_piece};
use crate::context::ExecutionContext;
use crate::journal::{ArtifactWriter, Journal, JournalError};

/// Which stream a piece of output came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// A piece of the output that was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Where in the whole output it starts.
    pub offset: u64,
    pub bytes: Vec<u8>,
    /// Which parts of it were stderr, as offsets in the whole output.
    pub stderr: Vec<(u64, u64)>,
}

impl Segment {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// A whole output, most of it by reference.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectedOutput {
    /// All bytes as they came, without marks.
    pub artifact: Option<ArtifactRef>,
    /// Which ranges were stderr, one `start end` per line; nothing when none were.
    pub index: Option<ArtifactRef>,
    pub total_bytes: u64,
    pub stderr_bytes: u64,
    pub lines: u64,
    /// In order, without overlap.
    pub segments: Vec<Segment>,
}

/// The collector. `push` what comes, then `finish`.
pub struct Collector {
    journal: Arc<dyn Journal>,
    scope: Scope,
    producer: String,
    output: Box<dyn ArtifactWriter>,
    index: Option<Box<dyn ArtifactWriter>>,
    excerpt: Excerpt,
    limits: CollectLimits,
    stderr: StderrRanges,
    stderr_bytes: u64,
    lines: u64,
    /// The end of what came: [`TAIL_BYTES`], and what a secret in them may begin in.
    tail: Vec<u8>,
}

/// A progress display needs no more of the end than this.
const TAIL_BYTES: usize = 2_000;
/// So much of the end is kept, so that a secret at the beginning of what is shown is still known.
const KEPT_TAIL: usize = 32 << 10;

impl Collector {
    /// Starts an output artifact of this call.
    ///
    /// # Errors
    /// When the artifact cannot be created.
    pub fn start(context: &ExecutionContext, limits: CollectLimits) -> Result<Self, JournalError> {
        Ok(Self {
            output: context.artifact_writer(ArtifactKind::CommandOutput, "text/plain")?,
            journal: context.journal(),
            scope: context.scope().clone(),
            producer: context.invocation_id().to_string(),
            index: None,
            excerpt: Excerpt::new(limits),
            limits,
            stderr: StderrRanges::default(),
            stderr_bytes: 0,
            lines: 0,
            tail: Vec::new(),
        })
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// When the artifact cannot be written.
    pub fn push(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), JournalError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let failed = |error| JournalError::new("write the output of a command", error);
        self.output.write_all(bytes).map_err(failed)?;
        let start = self.excerpt.total();
        if stream == Stream::Stderr {
            let length = bytes.len() as u64;
            self.stderr_bytes += length;
            if let Some((from, to)) = self.stderr.add(start, start + length) {
                self.write_index(from, to)?;
            }
            let tail_start = start.saturating_sub(self.limits.tail as u64);
            self.stderr.forget(self.limits.head as u64, tail_start);
        }
        self.excerpt.push(bytes);
        self.lines += memchr::memchr_iter(b'\n', bytes).count() as u64;
        self.note_tail(bytes);
        Ok(())
    }

    fn write_index(&mut self, from: u64, to: u64) -> Result<(), JournalError> {
        let index = match &mut self.index {
            Some(index) => index,
            none => none.insert(self.journal.artifact_writer(
                &self.scope,
                ArtifactKind::OutputIndex,
                "text/plain",
                &self.producer,
            )?),
        };
        writeln!(index, "{from} {to}")
            .map_err(|error| JournalError::new("write the index of a command's output", error))
    }

    fn note_tail(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(KEPT_TAIL)..];
        self.tail.extend_from_slice(bytes);
        // Moved seldom, because lines may come one by one.
        if self.tail.len() > 2 * KEPT_TAIL {
            self.tail.drain(..self.tail.len() - KEPT_TAIL);
        }
    }

    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.excerpt.total()
    }

    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The last line so far, for progress displays; masked, not escaped.
    #[must_use]
    pub fn last_line(&self) -> String {
        let trimmed = self.tail.trim_ascii_end();
        let start = memchr::memrchr(b'\n', trimmed).map_or(0, |newline| newline + 1);
        let start = start.max(trimmed.len().saturating_sub(TAIL_BYTES));
        String::from_utf8_lossy(&self.masked(start..trimmed.len())).into_owned()
    }

    /// The last `bytes` bytes so far, or as many as a display needs; masked, not escaped.
    #[must_use]
    pub fn tail(&self, bytes: u64) -> Vec<u8> {
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX);
        let start = self.tail.len().saturating_sub(wanted.min(TAIL_BYTES));
        self.masked(start..self.tail.len())
    }

    /// A part of the tail.
    fn masked(&self, part: Range<usize>) -> Vec<u8> {
        if part.is_empty() {
            return Vec::new();
        }
        let hidden = hidden_in(
            0..self.tail.len() as u64,
            |bytes| self.journal.secrets(bytes),
            |_| self.tail.clone(),
        );
        masked_piece(&self.tail[part.clone()], part.start as u64, &hidden)
    }

    /// Completes the artifact.
    ///
    /// # Errors
    /// When it cannot be completed.
    pub fn finish(mut self) -> Result<CollectedOutput, JournalError> {
        if let Some((from, to)) = self.stderr.open.take() {
            self.write_index(from, to)?;
            self.stderr.kept.push_back((from, to));
        }
        let artifact = self.output.finish()?;
        let index = self.index.map(ArtifactWriter::finish).transpose()?;
        let total_bytes = self.excerpt.total();
        let mut segments = self.excerpt.finish();
        for segment in &mut segments {
            segment.stderr = self.stderr.within(segment.offset, segment.end());
        }
        Ok(CollectedOutput {
            artifact: Some(artifact),
            index,
            total_bytes,
            stderr_bytes: self.stderr_bytes,
            lines: self.lines,
            segments,
        })
    }
}

/// Which parts were stderr, as far as they may still be shown. The index artifact has them all.
#[derive(Default)]
struct StderrRanges {
    kept: VecDeque<(u64, u64)>,
    /// The range that may still grow.
    open: Option<(u64, u64)>,
}

/// More ranges than this are thinned out; the marks in a preview are a convenience.
const MAX_RANGES: usize = 65_536;

impl StderrRanges {
    /// Adds a range and returns the one before it once that is complete.
    fn add(&mut self, from: u64, to: u64) -> Option<(u64, u64)> {
        match &mut self.open {
            Some(open) if open.1 == from => {
                open.1 = to;
                None
            }
            open => {
                let complete = open.replace((from, to));
                self.kept.extend(complete);
                complete
            }
        }
    }

    /// Drops what is neither in the head nor near the end, except when it may be in a window.
    fn forget(&mut self, head_end: u64, tail_start: u64) {
        if self.kept.len() > MAX_RANGES {
            self.kept
                .retain(|(from, to)| *from < head_end || *to > tail_start);
        }
    }

    fn within(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.kept
            .iter()
            .map(|(from, to)| ((*from).max(start), (*to).min(end)))
            .filter(|(from, to)| from < to)
            .collect()
    }
}
