//! Searching files: what matched, kept within bounds, in a fixed order.

use std::fs::File;
use std::io;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{
    BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch,
};

use super::scope::Scope;
use super::walk::{Met, Skipped, Visitor, Walk, as_path, note_unopened};
use crate::file::MAX_WHOLE_FILE;

/// A file is held in memory whole when matches may span lines.
const MAX_MULTILINE_FILE: u64 = 32 << 20;
/// Bytes shown of one line.
const MAX_LINE: usize = 500;

/// What is searched for, and what is wanted of it.
pub(crate) struct Search {
    pub(crate) matcher: RegexMatcher,
    pub(crate) show: Show,
    pub(crate) limit: usize,
    pub(crate) multiline: bool,
}

/// What is wanted of the matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    Lines { context: usize },
    Files,
    Counts,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Finding {
    pub(crate) matches: u64,
    pub(crate) files: u64,
    pub(crate) skipped: Skipped,
    /// The first by path.
    hits: Vec<Hit>,
}

#[derive(Debug)]
struct Hit {
    path: Vec<u8>,
    matches: u64,
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    number: u64,
    matched: bool,
    /// It does not follow the one before it.
    gap: bool,
    text: Vec<u8>,
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
        let held = collector.lines.len() + 1;
        finding.hits.push(Hit {
            path: path.to_vec(),
            matches: collector.matches,
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
    fn file(&mut self, met: &Met<'_>, skipped: &mut Skipped) {
        if !self.scope.wants(as_path(met.path)) {
            return;
        }
        let file = match met.open() {
            Ok(file) => file,
            Err(error) => {
                note_unopened(error, skipped);
                return;
            }
        };
        self.held += self
            .search
            .look_into(&file, met.path, &mut self.searcher, &mut self.finding);
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

    /// The text for the model, and how many matches or files it lists.
    pub(crate) fn render(
        &self,
        scope: &Scope,
        show: Show,
        characters: usize,
        limit: usize,
    ) -> (String, u64) {
        let mut text = String::new();
        let mut returned = 0;
        for hit in &self.hits {
            let name = if hit.path.is_empty() {
                scope.path.name()
            } else {
                scope.name_of(&hit.path)
            };
            let before = text.len();
            match show {
                Show::Files => text.push_str(&format!("{name}\n")),
                Show::Counts => text.push_str(&format!("{name}:{}\n", hit.matches)),
                Show::Lines { .. } => {
                    if !text.is_empty() {
                        text.push('\n');
                    }
                    text.push_str(&name);
                    text.push('\n');
                    for line in &hit.lines {
                        if line.matched && returned as usize >= limit {
                            return (text, returned);
                        }
                        let mark = if line.matched { ':' } else { '-' };
                        let gap = if line.gap { "--\n" } else { "" };
                        let shown = String::from_utf8_lossy(&line.text);
                        let row = format!("{gap}{}{mark}{shown}\n", line.number);
                        if text.len() + row.len() > characters {
                            return (text, returned);
                        }
                        text.push_str(&row);
                        returned += u64::from(line.matched);
                    }
                    continue;
                }
            }
            if text.len() > characters {
                text.truncate(before);
                return (text, returned);
            }
            returned += 1;
        }
        (text, returned)
    }
}

/// Takes the matches of one file.
struct Collect<'a> {
    search: &'a Search,
    lines: Vec<Line>,
    matches: u64,
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
                for (number, line) in (first..).zip(found.lines()) {
                    self.matches += 1;
                    if self.matched_lines < self.search.limit {
                        self.matched_lines += 1;
                        let text = clip(line, &self.search.matcher);
                        let gap = std::mem::take(&mut self.gap);
                        self.lines.push(Line {
                            number,
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
            let text = clip(found.bytes(), &self.search.matcher);
            let gap = std::mem::take(&mut self.gap);
            self.lines.push(Line {
                number: found.line_number().unwrap_or(0),
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
