//! Searching files: what matched, kept within bounds, in a fixed order.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use agent_protocol::Refs;
use agent_protocol::payload::ArtifactRef;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::tool::{OutputSpilled, ReadMore};
use agent_tool_runtime::{ExecutionContext, ExecutionFailure, Journal, Omission};
use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{
    BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch,
};

use serde_json::{Value, json};

use super::hide::{hide_keys, masked_line};
use super::scope::Scope;
use super::walk::{Entry, Skipped, Visitor, Walk, as_path, note_unopened};
use crate::encoding::{Detector, Encoding};
use crate::file::MAX_WHOLE_FILE;

/// A file is held in memory whole when matches may span lines.
const MAX_MULTILINE_FILE: u64 = 32 << 20;
/// A result lists at most so many lines or files.
pub(crate) const MAX_LIMIT: usize = 5_000;
/// And so many characters of them.
const LIST_CHARACTERS: usize = 27_000;
/// No listing is longer, with all the context around its lines.
const MAX_LISTING: usize = 4 << 20;
/// Bytes shown of one line.
const MAX_LINE: usize = 500;

/// A search: its pattern and its options.
pub(crate) struct Search {
    pub(crate) matcher: RegexMatcher,
    pub(crate) show: Show,
    pub(crate) limit: usize,
    pub(crate) multiline: bool,
    /// Knows what is secret; without it nothing is masked.
    pub(crate) journal: Option<Arc<dyn Journal>>,
}

/// Form in which matches are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    Lines { context: usize },
    Files,
    Counts,
}

/// Matches of a search.
#[derive(Debug, Default)]
pub(crate) struct Finding {
    pub(crate) matches: u64,
    pub(crate) files: u64,
    /// Of the matching lines, or of the names of files, whichever is asked for.
    pub(crate) bytes: u64,
    pub(crate) skipped: Skipped,
    /// The first by path.
    hits: Vec<Hit>,
}

#[derive(Debug)]
struct Hit {
    path: Vec<u8>,
    matches: u64,
    lines: Vec<Line>,
    /// That of the file, where a line is not UTF-8.
    encoding: Option<Encoding>,
}

#[derive(Debug)]
pub(super) struct Line {
    number: u64,
    /// Its offset in the file.
    pub(super) start: u64,
    /// Bytes of the whole line.
    length: u64,
    matched: bool,
    /// It does not follow the one before it.
    gap: bool,
    pub(super) text: Vec<u8>,
}

impl Search {
    /// Searches all files the walk meets and the scope wants.
    pub(crate) fn run(&self, walk: Walk<'_>, scope: &Scope) -> Finding {
        let (workers, skipped) = walk.run(|| Worker {
            search: self,
            scope,
            searcher: self.searcher(),
            finding: Finding::default(),
            held: 0,
        });
        let mut finding = Finding {
            skipped,
            ..Finding::default()
        };
        for worker in workers {
            finding.matches += worker.finding.matches;
            finding.files += worker.finding.files;
            finding.bytes += worker.finding.bytes;
            finding.hits.extend(worker.finding.hits);
        }
        finding.keep_first(self.limit, self.show);
        finding
    }

    /// Searches one file that was named.
    pub(crate) fn one_file(&self, file: &File) -> Finding {
        let mut finding = Finding::default();
        let mut searcher = self.searcher();
        self.look_into(file, &[], &mut searcher, &mut finding);
        finding
    }

    fn searcher(&self) -> Searcher {
        let mut builder = SearcherBuilder::new();
        builder
            .binary_detection(BinaryDetection::quit(0))
            // A mapped file that is cut short meanwhile would end the process.
            .memory_map(MmapChoice::never())
            .line_number(matches!(self.show, Show::Lines { .. }))
            .multi_line(self.multiline);
        if let Show::Lines { context } = self.show {
            builder.before_context(context).after_context(context);
        }
        builder.build()
    }

    /// A line as far as it is shown, without its end.
    fn clipped(&self, line: &[u8]) -> Vec<u8> {
        if line.len() <= MAX_LINE {
            return clip(line, &self.matcher);
        }
        clip(&masked_line(line, self.journal.as_deref()), &self.matcher)
    }

    /// Searches one file; gives back how many lines it now holds.
    fn look_into(
        &self,
        file: &File,
        path: &[u8],
        searcher: &mut Searcher,
        finding: &mut Finding,
    ) -> usize {
        let limit = if self.multiline {
            MAX_MULTILINE_FILE
        } else {
            MAX_WHOLE_FILE
        };
        match rustix::fs::fstat(file) {
            Ok(stat) if stat.st_size as u64 > limit => {
                finding.skipped.too_large += 1;
                return 0;
            }
            Ok(stat) if stat.st_size == 0 => return 0,
            Ok(_) => {}
            Err(_) => {
                finding.skipped.unreadable += 1;
                return 0;
            }
        }
        let mut collector = Collect {
            search: self,
            lines: Vec::new(),
            matches: 0,
            bytes: 0,
            binary: false,
            gap: false,
            matched_lines: 0,
        };
        let searched = searcher.search_file(&self.matcher, file, &mut collector);
        if searched.is_err() {
            finding.skipped.unreadable += 1;
            return 0;
        }
        if collector.binary {
            finding.skipped.binary += 1;
            return 0;
        }
        if collector.matches == 0 {
            return 0;
        }
        finding.matches += collector.matches;
        finding.files += 1;
        finding.bytes += match self.show {
            Show::Lines { .. } => collector.bytes,
            Show::Files | Show::Counts => path.len() as u64 + 1,
        };
        if let Some(journal) = &self.journal {
            hide_keys(&mut collector.lines, file, &**journal);
        }
        let held = collector.lines.len() + 1;
        let is_text = |line: &Line| std::str::from_utf8(&line.text).is_ok();
        finding.hits.push(Hit {
            path: path.to_vec(),
            matches: collector.matches,
            encoding: (!collector.lines.iter().all(is_text)).then(|| encoding_of(file)),
            lines: collector.lines,
        });
        held
    }
}

struct Worker<'a> {
    search: &'a Search,
    scope: &'a Scope,
    searcher: Searcher,
    finding: Finding,
    /// Lines and files in hand.
    held: usize,
}

impl Visitor for Worker<'_> {
    fn file(&mut self, entry: &Entry<'_>, skipped: &mut Skipped) {
        if !self.scope.wants(as_path(entry.path)) {
            return;
        }
        let file = match entry.open() {
            Ok(file) => file,
            Err(error) => {
                note_unopened(error, skipped);
                return;
            }
        };
        self.held +=
            self.search
                .look_into(&file, entry.path, &mut self.searcher, &mut self.finding);
        skipped.add(&std::mem::take(&mut self.finding.skipped));
        // Only the first by path can be shown in the end; the rest is let go now and then.
        if self.held > 4 * self.search.limit + 4096 {
            self.finding.keep_first(self.search.limit, self.search.show);
            self.held = self
                .finding
                .hits
                .iter()
                .map(|hit| hit.lines.len() + 1)
                .sum();
        }
    }
}

impl Finding {
    fn keep_first(&mut self, limit: usize, show: Show) {
        self.hits
            .sort_unstable_by(|left, right| left.path.cmp(&right.path));
        let mut room = limit;
        let kept = self.hits.iter().take_while(|hit| {
            let fits = room > 0;
            let used = if matches!(show, Show::Lines { .. }) {
                hit.lines.iter().filter(|line| line.matched).count()
            } else {
                1
            };
            room = room.saturating_sub(used);
            fits
        });
        let kept = kept.count();
        self.hits.truncate(kept);
    }

    /// The matches as text, up to `limit` matches or files.
    pub(crate) fn render(&self, scope: &Scope, show: Show, limit: usize) -> Listing {
        let mut listing = Listing::default();
        for hit in &self.hits {
            let name = if hit.path.is_empty() {
                scope.path.name()
            } else {
                scope.name_of(&hit.path)
            };
            let name_bytes = hit.path.len() as u64 + 1;
            match show {
                Show::Files => listing.push(&format!("{name}\n"), 1, name_bytes),
                Show::Counts => {
                    listing.push(&format!("{name}:{}\n", hit.matches), 1, name_bytes);
                }
                Show::Lines { .. } => {
                    let between = if listing.text.is_empty() { "" } else { "\n" };
                    let mut head = format!("{between}{name}\n");
                    for line in &hit.lines {
                        if line.matched && listing.whole().matches >= limit as u64 {
                            return listing;
                        }
                        let mark = if line.matched { ':' } else { '-' };
                        let gap = if line.gap { "--\n" } else { "" };
                        let shown = match hit.encoding {
                            Some(encoding) => encoding.decode(&line.text),
                            None => String::from_utf8_lossy(&line.text),
                        };
                        let row = format!("{head}{gap}{}{mark}{shown}\n", line.number);
                        head.clear();
                        let (matches, bytes) = if line.matched {
                            (1, line.length)
                        } else {
                            (0, 0)
                        };
                        listing.push(&row, matches, bytes);
                    }
                }
            }
            if listing.text.len() > MAX_LISTING || listing.whole().matches >= limit as u64 {
                break;
            }
        }
        listing
    }
}

/// Found lines or names as text, which may be cut behind any row.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) text: String,
    rows: Vec<Row>,
}

/// Counts of a listing up to the end of a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row {
    pub(crate) end: usize,
    /// Matching lines, or files.
    pub(crate) matches: u64,
    /// Bytes of those.
    pub(crate) bytes: u64,
}

impl Listing {
    pub(crate) fn push(&mut self, row: &str, matches: u64, bytes: u64) {
        self.text.push_str(row);
        let before = self.whole();
        self.rows.push(Row {
            end: self.text.len(),
            matches: before.matches + matches,
            bytes: before.bytes + bytes,
        });
    }

    pub(crate) fn whole(&self) -> Row {
        self.rows.last().copied().unwrap_or_default()
    }

    /// As much from the beginning as fits.
    fn first(&self, characters: usize) -> Row {
        let fit = self.rows.partition_point(|row| row.end <= characters);
        fit.checked_sub(1)
            .map_or_else(Row::default, |last| self.rows[last])
    }

    /// The part for the model, and how to see the rest: what this listing has and the part lacks is
    /// kept as an artifact, and for what is not in it either, `input` asks again with a higher limit.
    /// `all` is what there is of matches and bytes.
    pub(crate) fn shown(
        &self,
        all: (u64, u64),
        tool: &str,
        input: &Value,
        context: &ExecutionContext,
    ) -> Result<Shown, ExecutionFailure> {
        let (whole, first) = (self.whole(), self.first(LIST_CHARACTERS));
        let mut shown = Shown {
            text: self.text[..first.end].to_owned(),
            returned: first.matches,
            omission: None,
            artifact: None,
        };
        if first.matches == all.0 {
            return Ok(shown);
        }
        let mut read_more = None;
        if first.end < whole.end {
            let kept = context.mask(&self.text);
            let offset = context.mask(&shown.text).len();
            let kind = ArtifactKind::ToolResult;
            let artifact = context.put_artifact(kind, "text/plain", kept.as_bytes())?;
            let refs = Refs::default().with("output", &artifact.artifact_id);
            let spilled = OutputSpilled {
                artifact_id: artifact.artifact_id.clone(),
                bytes: artifact.bytes,
                threshold: LIST_CHARACTERS as u64,
            };
            context.emit_with(None, spilled, refs)?;
            read_more = Some(ReadMore {
                tool: "read_artifact".to_owned(),
                input_hint: json!({"artifact_id": artifact.artifact_id, "offset": offset}),
            });
            shown.artifact = Some(artifact);
        } else if whole.matches < MAX_LIMIT as u64 {
            let mut again = input.clone();
            again["limit"] = all.0.min(MAX_LIMIT as u64).into();
            read_more = Some(ReadMore {
                tool: tool.to_owned(),
                input_hint: again,
            });
        }
        shown.omission = Some(Omission {
            bytes: (whole.end - first.end) as u64 + all.1.saturating_sub(whole.bytes),
            read_more,
        });
        Ok(shown)
    }
}

/// A listing within the bounds of a result.
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) returned: u64,
    pub(crate) omission: Option<Omission>,
    pub(crate) artifact: Option<ArtifactRef>,
}

/// As `read` would find it, so that an edit can name what a search showed.
fn encoding_of(file: &File) -> Encoding {
    let mut detector = Detector::default();
    let mut chunk = vec![0; 64 << 10];
    let mut at = 0;
    while let Ok(count @ 1..) = file.read_at(&mut chunk, at) {
        detector.feed(&chunk[..count]);
        at += count as u64;
    }
    detector.finish()
}

/// Takes the matches of one file.
struct Collect<'a> {
    search: &'a Search,
    lines: Vec<Line>,
    matches: u64,
    bytes: u64,
    matched_lines: usize,
    binary: bool,
    gap: bool,
}

impl Sink for &mut Collect<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        match self.search.show {
            Show::Files => {
                self.matches = 1;
                return Ok(false);
            }
            Show::Counts => self.matches += found.lines().count() as u64,
            Show::Lines { .. } => {
                let first = found.line_number().unwrap_or(0);
                let mut next = found.absolute_byte_offset();
                for (number, line) in (first..).zip(found.lines()) {
                    let start = next;
                    next += line.len() as u64;
                    self.matches += 1;
                    self.bytes += line.len() as u64;
                    if self.matched_lines < self.search.limit {
                        self.matched_lines += 1;
                        let text = self.search.clipped(line);
                        let gap = std::mem::take(&mut self.gap);
                        self.lines.push(Line {
                            number,
                            start,
                            length: line.len() as u64,
                            matched: true,
                            gap,
                            text,
                        });
                    }
                }
            }
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> io::Result<bool> {
        if self.matched_lines < self.search.limit {
            let text = self.search.clipped(found.bytes());
            let gap = std::mem::take(&mut self.gap);
            self.lines.push(Line {
                start: found.absolute_byte_offset(),
                number: found.line_number().unwrap_or(0),
                length: found.bytes().len() as u64,
                matched: false,
                gap,
                text,
            });
        }
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        self.gap = !self.lines.is_empty();
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.binary = true;
        Ok(false)
    }

    fn finish(&mut self, _: &Searcher, finish: &grep_searcher::SinkFinish) -> io::Result<()> {
        self.binary |= finish.binary_byte_offset().is_some();
        Ok(())
    }
}

/// A line without its end; of a long one, the part around its first match.
fn clip(line: &[u8], matcher: &RegexMatcher) -> Vec<u8> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= MAX_LINE {
        return line.to_vec();
    }
    let found = matcher
        .find(line)
        .ok()
        .flatten()
        .map_or(0, |found| found.start());
    let start = found
        .saturating_sub(MAX_LINE / 4)
        .min(line.len() - MAX_LINE);
    // Cut between characters, not inside one.
    let boundary = |at: usize| {
        (at..line.len())
            .find(|at| line[*at] & 0xC0 != 0x80)
            .unwrap_or(line.len())
    };
    let (start, end) = (boundary(start), boundary(start + MAX_LINE));
    let head = if start > 0 {
        format!("[{start} bytes] ")
    } else {
        String::new()
    };
    let tail = if end < line.len() {
        format!(" [{} bytes]", line.len() - end)
    } else {
        String::new()
    };
    [head.as_bytes(), &line[start..end], tail.as_bytes()].concat()
}
