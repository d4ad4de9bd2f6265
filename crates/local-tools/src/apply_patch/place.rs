//! Where the hunks of a patch belong in a file, and the file with them made.
//!
//! A hunk's kept and removed lines are looked for behind the hunk before it: byte for byte, then
//! without white space at line ends, then without white space at both ends, then with typographic
//! dashes, quotes and spaces as plain ones. The first way that finds something has to find one
//! place. Lines that stay keep their own bytes, whatever the patch says of their white space; new
//! lines get the line break of the place; the file's last line keeps its end.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use agent_protocol::Code;

use super::parse::{Hunk, LineKind};
use crate::edit::{Nearest, nearest};
use crate::encoding::Encoding;

/// How many lines an error lists.
const LISTED: usize = 10;

/// Changed byte ranges, before and after.
pub type Ranges = Vec<(Range<usize>, Range<usize>)>;

/// A file with all hunks made.
#[derive(Debug)]
pub struct Placed {
    pub after: Vec<u8>,
    /// The changed byte ranges, before and after.
    pub changes: Ranges,
    /// Hunks that were found with white space or typographic characters aside, from 1.
    pub loosely: Vec<usize>,
    /// True if a hunk has no line that has to be in the file: it says nothing of what it rests on.
    pub rests_on_nothing: bool,
}

/// Why the hunks cannot be made. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[error("hunk {hunk} (line {line} of the patch): {kind}")]
pub struct HunkProblem {
    /// From 1.
    pub hunk: usize,
    /// Its first line in the patch.
    pub line: usize,
    pub kind: HunkProblemKind,
}

/// What is wrong with a hunk.
#[derive(Debug, thiserror::Error)]
pub enum HunkProblemKind {
    #[error("its lines do not occur in the file{}{}", at_line(*.elsewhere), described(.nearest.as_ref()))]
    NotFound {
        /// What comes closest.
        nearest: Option<Nearest>,
        /// A line where they do occur, but not where the hunk has to be.
        elsewhere: Option<usize>,
    },
    #[error("the line behind its `@@` does not occur in the file{}", described(.nearest.as_ref()))]
    AnchorNotFound { nearest: Option<Nearest> },
    #[error("its lines occur {count} times (lines {}), and have to occur once", listed(.lines, *.count))]
    Ambiguous { count: usize, lines: Vec<usize> },
    #[error("the file is {encoding}, which has no place for `{}` (U+{:04X})", .character.escape_debug(), u32::from(*.character))]
    Unencodable {
        character: char,
        encoding: &'static str,
    },
}

fn described(nearest: Option<&Nearest>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; {nearest}"))
}

fn at_line(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| {
        format!(
            " where the hunk has to be, behind the hunk before it, its `@@` line, or at the end; they do occur at \
             line {line}"
        )
    })
}

fn listed(lines: &[usize], count: usize) -> String {
    let mut text: Vec<String> = lines.iter().map(usize::to_string).collect();
    if lines.len() < count {
        text.push("\u{2026}".to_owned());
    }
    text.join(", ")
}

impl HunkProblem {
    /// The code of the call.
    pub fn code(&self) -> Code {
        match self.kind {
            HunkProblemKind::NotFound { .. } | HunkProblemKind::AnchorNotFound { .. } => {
                Code::TargetNotFound
            }
            HunkProblemKind::Ambiguous { .. } => Code::AmbiguousTarget,
            HunkProblemKind::Unencodable { .. } => Code::UnsupportedContent,
        }
    }

    /// The place that comes closest.
    pub fn nearest(&self) -> Option<&Nearest> {
        match &self.kind {
            HunkProblemKind::NotFound { nearest, .. }
            | HunkProblemKind::AnchorNotFound { nearest } => nearest.as_ref(),
            _ => None,
        }
    }
}

/// Makes all hunks in `content`, or none.
///
/// # Errors
/// When one has no place, or more than one.
pub fn place(content: &[u8], encoding: Encoding, hunks: &[Hunk]) -> Result<Placed, HunkProblem> {
    let mut text = Text::of(content, encoding);
    let mut places = Vec::new();
    let mut from = 0;
    for (index, hunk) in hunks.iter().enumerate() {
        let place = text.find(hunk, from).map_err(|kind| HunkProblem {
            hunk: index + 1,
            line: hunk.line,
            kind,
        })?;
        from = place.start + place.length;
        places.push(place);
    }
    text.with(hunks, &places)
}

/// Where a hunk belongs.
struct Place {
    start: usize,
    /// How many lines of the file it is about.
    length: usize,
    /// How many of its last lines are no part of it.
    cut: usize,
    is_exact: bool,
    rests_on_nothing: bool,
}

/// How lines are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Exact,
    NoTrailingSpace,
    NoSpaceAround,
    Plain,
}

const LEVELS: [Level; 4] = [
    Level::Exact,
    Level::NoTrailingSpace,
    Level::NoSpaceAround,
    Level::Plain,
];

impl Level {
    /// What is compared of a line.
    fn key(self, line: &str) -> String {
        match self {
            Self::Exact => line.to_owned(),
            Self::NoTrailingSpace => line.trim_end().to_owned(),
            Self::NoSpaceAround => line.trim().to_owned(),
            Self::Plain => line.trim().chars().map(plain).collect(),
        }
    }
}

fn plain(character: char) -> char {
    match character {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201B}' => '\'',
        '\u{201C}'..='\u{201F}' => '"',
        '\u{A0}' | '\u{2002}'..='\u{200A}' | '\u{202F}' | '\u{205F}' | '\u{3000}' => ' ',
        other => other,
    }
}

/// A line of the file.
#[derive(Clone, Copy)]
struct Line<'a> {
    start: usize,
    text: &'a [u8],
    /// Its line break; nothing at the end of a file without one.
    line_break: &'a [u8],
}

/// A file as lines, and those of each level by number.
struct Text<'a> {
    content: &'a [u8],
    encoding: Encoding,
    lines: Vec<Line<'a>>,
    numbered: [Option<Numbered>; LEVELS.len()],
}

/// Equal lines have equal numbers.
struct Numbered {
    lines: Vec<usize>,
    numbers: HashMap<Vec<u8>, usize>,
}

impl<'a> Text<'a> {
    fn of(content: &'a [u8], encoding: Encoding) -> Self {
        let mut lines = Vec::new();
        let mut start = encoding.mark_length().min(content.len());
        while start < content.len() {
            let end = encoding.line_end(content, start);
            let whole = &content[start..end.unwrap_or(content.len())];
            let mut text = whole;
            if end.is_some() {
                text = &text[..text.len() - encoding.line_feed().len()];
                text = text
                    .strip_suffix(encoding.carriage_return())
                    .unwrap_or(text);
            }
            lines.push(Line {
                start,
                text,
                line_break: &whole[text.len()..],
            });
            start += whole.len();
        }
        Self {
            content,
            encoding,
            lines,
            numbered: [None, None, None, None],
        }
    }

    fn numbered(&mut self, level: Level) -> &Numbered {
        let (lines, encoding) = (&self.lines, self.encoding);
        self.numbered[level as usize].get_or_insert_with(|| {
            let mut numbers = HashMap::new();
            let number = |line: &Line<'_>| {
                let key = match level {
                    Level::Exact => line.text.to_vec(),
                    _ => level.key(&encoding.decode(line.text)).into_bytes(),
                };
                let next = numbers.len();
                *numbers.entry(key).or_insert(next)
            };
            let lines = lines.iter().map(number).collect();
            Numbered { lines, numbers }
        })
    }

    /// Every place where these lines stand.
    fn occurrences(&mut self, level: Level, wanted: &[&str]) -> Vec<usize> {
        let encoding = self.encoding;
        let numbered = self.numbered(level);
        let number = |line: &&str| {
            let key = match level {
                Level::Exact => encoding.encode(line).ok()?.into_owned(),
                _ => level.key(line).into_bytes(),
            };
            numbered.numbers.get(&key).copied()
        };
        match wanted.iter().map(number).collect::<Option<Vec<usize>>>() {
            Some(wanted) if !wanted.is_empty() => occurrences(&numbered.lines, &wanted),
            _ => Vec::new(),
        }
    }

    fn find(&mut self, hunk: &Hunk, from: usize) -> Result<Place, HunkProblemKind> {
        let anchors = self.anchors(hunk, from)?;
        let old: Vec<&str> = hunk.old().collect();
        let lines = self.lines.len();
        if old.len() == hunk.loose {
            let start = match &*anchors {
                [] => lines.max(from),
                [only] => only + 1,
                several => return Err(ambiguous(several)),
            };
            return Ok(Place {
                start,
                length: 0,
                cut: hunk.loose,
                is_exact: true,
                rests_on_nothing: anchors.is_empty(),
            });
        }
        let mut elsewhere = None;
        for cut in 0..=hunk.loose {
            let wanted = &old[..old.len() - cut];
            for level in LEVELS {
                let all = self.occurrences(level, wanted);
                elsewhere = elsewhere.or(all.first().map(|line| line + 1));
                let is_ahead = |start: &usize| {
                    *start >= from && (!hunk.at_end || start + wanted.len() == lines)
                };
                let ahead: Vec<usize> = all.into_iter().filter(is_ahead).collect();
                let found = if anchors.is_empty() {
                    ahead
                } else {
                    self.behind(&anchors, ahead)
                };
                match &*found {
                    [] => {}
                    [start] => {
                        return Ok(Place {
                            start: *start,
                            length: wanted.len(),
                            cut,
                            is_exact: level == Level::Exact,
                            rests_on_nothing: false,
                        });
                    }
                    several => return Err(ambiguous(several)),
                }
            }
        }
        let nearest = match elsewhere {
            None => nearest(self.content, self.encoding, &old.join("\n")),
            Some(_) => None,
        };
        Err(HunkProblemKind::NotFound { nearest, elsewhere })
    }

    /// The lines behind which the hunk is; none if it does not say.
    fn anchors(&mut self, hunk: &Hunk, from: usize) -> Result<Vec<usize>, HunkProblemKind> {
        let mut places = Vec::new();
        for anchor in &hunk.anchors {
            let outer = std::mem::take(&mut places);
            for level in LEVELS {
                let mut found = self.occurrences(level, &[anchor]);
                found.retain(|line| *line >= from);
                places = if outer.is_empty() {
                    found
                } else {
                    self.behind(&outer, found)
                };
                if !places.is_empty() {
                    break;
                }
            }
            if places.is_empty() {
                let nearest = nearest(self.content, self.encoding, anchor);
                return Err(HunkProblemKind::AnchorNotFound { nearest });
            }
        }
        Ok(places)
    }

    /// Those of `found` that stand in the block which one of the `anchors` opens; if none does,
    /// those that stand behind the first.
    fn behind(&self, anchors: &[usize], found: Vec<usize>) -> Vec<usize> {
        let first = anchors.first().copied().unwrap_or(0);
        let after: Vec<usize> = found.into_iter().filter(|line| *line >= first).collect();
        if after.len() < 2 {
            return after;
        }
        let blocks: Vec<Range<usize>> = anchors.iter().map(|at| *at..self.block_end(*at)).collect();
        let is_inside = |line: &&usize| {
            let next = blocks.partition_point(|block| block.start <= **line);
            next.checked_sub(1)
                .is_some_and(|index| blocks[index].contains(*line))
        };
        let inside: Vec<usize> = after.iter().filter(is_inside).copied().collect();
        if inside.is_empty() { after } else { inside }
    }

    /// Where the lines end that are indented deeper than the one at `at`.
    fn block_end(&self, at: usize) -> usize {
        let indentation = |line: &Line<'_>| {
            let text = self.encoding.decode(line.text);
            let rest = text.trim_start();
            (!rest.is_empty()).then(|| text.len() - rest.len())
        };
        let own = indentation(&self.lines[at]).unwrap_or(0);
        let is_over = |line: &Line<'_>| indentation(line).is_some_and(|deep| deep <= own);
        let rest = &self.lines[at + 1..];
        at + 1 + rest.iter().position(is_over).unwrap_or(rest.len())
    }

    fn with(&self, hunks: &[Hunk], places: &[Place]) -> Result<Placed, HunkProblem> {
        let mut out: Vec<OutLine<'_>> = Vec::new();
        let mut at = 0;
        let keep = |out: &mut Vec<OutLine<'a>>, range: Range<usize>| {
            for line in range {
                let Line {
                    text, line_break, ..
                } = self.lines[line];
                out.push(OutLine {
                    text: Cow::Borrowed(text),
                    line_break,
                    origin: Some(line),
                });
            }
        };
        for (index, (hunk, place)) in hunks.iter().zip(places).enumerate() {
            keep(&mut out, at..place.start);
            at = place.start;
            for line in &hunk.lines[..hunk.lines.len() - place.cut] {
                match line.kind {
                    LineKind::Kept => {
                        keep(&mut out, at..at + 1);
                        at += 1;
                    }
                    LineKind::Removed => at += 1,
                    LineKind::Added => {
                        let text = self.encoding.encode(&line.text).map_err(|character| {
                            let encoding = self.encoding.name();
                            let kind = HunkProblemKind::Unencodable {
                                character,
                                encoding,
                            };
                            HunkProblem {
                                hunk: index + 1,
                                line: hunk.line,
                                kind,
                            }
                        })?;
                        let text = Cow::Owned(text.into_owned());
                        out.push(OutLine {
                            text,
                            line_break: self.break_at(at),
                            origin: None,
                        });
                    }
                }
            }
        }
        keep(&mut out, at..self.lines.len());
        let (after, changes) = self.bytes(out);
        let loosely = places
            .iter()
            .enumerate()
            .filter(|(_, place)| !place.is_exact);
        Ok(Placed {
            after,
            changes,
            loosely: loosely.map(|(index, _)| index + 1).collect(),
            rests_on_nothing: places.iter().any(|place| place.rests_on_nothing),
        })
    }

    /// The line break that a new line before the one at `at` gets: that of the line above.
    fn break_at(&self, at: usize) -> &'a [u8] {
        let above = at.checked_sub(1).and_then(|above| self.lines.get(above));
        [above, self.lines.get(at)]
            .into_iter()
            .flatten()
            .map(|line| line.line_break)
            .find(|found| !found.is_empty())
            .unwrap_or(self.encoding.line_feed())
    }

    fn bytes(&self, mut out: Vec<OutLine<'a>>) -> (Vec<u8>, Ranges) {
        let is_open = self
            .lines
            .last()
            .is_some_and(|line| line.line_break.is_empty());
        let last = out.len();
        for (index, line) in out.iter_mut().enumerate() {
            if index + 1 == last && is_open {
                line.line_break = b"";
            } else if line.line_break.is_empty() {
                line.line_break = self.break_at(self.lines.len().saturating_sub(1));
            }
        }
        let mark = self.encoding.mark_length().min(self.content.len());
        let mut after = self.content[..mark].to_vec();
        let mut changes = Vec::new();
        let (mut same_before, mut same_after) = (mark, mark);
        let mut close = |before: Range<usize>, after: Range<usize>| {
            if !before.is_empty() || !after.is_empty() {
                changes.push((before, after));
            }
        };
        for line in &out {
            let start = after.len();
            after.extend_from_slice(&line.text);
            after.extend_from_slice(line.line_break);
            let origin = line.origin.map(|origin| self.lines[origin]);
            if let Some(origin) = origin.filter(|origin| origin.line_break == line.line_break) {
                close(same_before..origin.start, same_after..start);
                same_before = origin.start + origin.text.len() + origin.line_break.len();
                same_after = after.len();
            }
        }
        close(same_before..self.content.len(), same_after..after.len());
        (after, changes)
    }
}

/// A line of the file as it will be.
struct OutLine<'a> {
    text: Cow<'a, [u8]>,
    line_break: &'a [u8],
    /// Which line of the file it is.
    origin: Option<usize>,
}

fn ambiguous(places: &[usize]) -> HunkProblemKind {
    HunkProblemKind::Ambiguous {
        count: places.len(),
        lines: places.iter().take(LISTED).map(|line| line + 1).collect(),
    }
}

/// Every place of `wanted` in `lines`, in time linear in both (Knuth, Morris and Pratt).
fn occurrences(lines: &[usize], wanted: &[usize]) -> Vec<usize> {
    let mut border = vec![0; wanted.len()];
    let mut length = 0;
    for index in 1..wanted.len() {
        while length > 0 && wanted[index] != wanted[length] {
            length = border[length - 1];
        }
        length += usize::from(wanted[index] == wanted[length]);
        border[index] = length;
    }
    let mut found = Vec::new();
    let mut matched = 0;
    for (index, line) in lines.iter().enumerate() {
        while matched > 0 && (matched == wanted.len() || *line != wanted[matched]) {
            matched = border[matched - 1];
        }
        matched += usize::from(*line == wanted[matched]);
        if matched == wanted.len() {
            found.push(index + 1 - matched);
        }
    }
    found
}
#[cfg(test)]
mod tests;
