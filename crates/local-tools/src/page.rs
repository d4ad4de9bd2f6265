//! One page of a file: numbered lines, read in a single pass that keeps no more than the page.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use agent_tool_runtime::policy::piece::{Hidden, hidden_in, read_range};
use sha2::{Digest, Sha256};

use crate::encoding::{Detector, Encoding};
use agent_fs::Stamp;

use crate::file::MAX_WHOLE_FILE;

/// A line is clipped after this many characters.
pub(crate) const MAX_LINE_CHARACTERS: usize = 2_000;
/// The most bytes one character has in any encoding we read.
const WIDEST: usize = 4;
const CHUNK: usize = 256 << 10;

/// Lines that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Lines to skip.
    pub(crate) offset: u64,
    /// Bytes to skip of the first line shown. Of that line as much is shown as fits.
    pub(crate) column: u64,
    /// Lines to show.
    pub(crate) limit: u64,
    /// Characters to show, line numbers included.
    pub(crate) characters: usize,
}

/// Lines that were read.
#[derive(Debug)]
pub(crate) struct Page {
    /// `number<tab>text`, one per line.
    pub(crate) text: String,
    /// Lines shown.
    pub(crate) shown: u64,
    /// Lines of the file; unknown when it was not read to its end.
    pub(crate) total: Option<u64>,
    /// Bytes of the file behind the page, and of clipped lines.
    pub(crate) omitted: u64,
    /// Lines that were clipped.
    pub(crate) clipped: u64,
    /// The first clipped line, and the column from which it was not shown.
    pub(crate) goes_on: Option<(u64, u64)>,
    /// The hash of the whole content; unknown when it was not read to its end.
    pub(crate) sha256: Option<String>,
    /// Bytes read, which is the size unless the file was too large.
    pub(crate) bytes: u64,
    /// Of the file when it was opened.
    pub(crate) stamp: Stamp,
    pub(crate) encoding: Encoding,
    /// `lf`, `crlf`, `mixed` or `none`.
    pub(crate) line_ending: &'static str,
    /// True if the last line has a line break.
    pub(crate) ends_with_break: bool,
}

/// Finds secrets in bytes; see `Journal::secrets`.
pub(crate) type Secrets<'a> = &'a dyn Fn(&[u8]) -> Vec<(Range<usize>, String)>;

/// A kept line, as raw bytes without its line feed.
struct Kept {
    bytes: Vec<u8>,
    /// Offset of these bytes in the file.
    start: u64,
    /// Bytes of the line before them.
    skipped: u64,
    /// The length of the whole line.
    length: u64,
    /// Offset of the next line.
    end: u64,
}

/// Reads a page. A file that is too large to be read whole is read only as far as the page needs.
pub(crate) fn read_page(mut file: &File, window: Window, secrets: Secrets<'_>) -> io::Result<Page> {
    let stamp = Stamp::of_file(file)?;
    let whole = stamp.size <= MAX_WHOLE_FILE;
    file.seek(SeekFrom::Start(0))?;
    let mut scan = Scan::new(window);
    let mut hasher = Sha256::new();
    let mut detector = Detector::default();
    let mut chunk = vec![0; CHUNK];
    let mut finished = true;
    loop {
        let filled = fill(file, &mut chunk)?;
        let piece = &chunk[..filled];
        if scan.at == 0 {
            scan.start(piece);
        }
        detector.feed(piece);
        if whole {
            hasher.update(piece);
        }
        scan.take(piece);
        if filled < CHUNK {
            break;
        }
        let enough = scan.page_is_full() || scan.at >= MAX_WHOLE_FILE;
        if !whole && enough || scan.at > 2 * MAX_WHOLE_FILE {
            finished = false;
            break;
        }
    }
    let encoding = detector.finish();
    if finished {
        scan.end();
    }
    let hidden = scan.hidden(file, encoding, secrets);
    let mut page = scan.render(encoding, stamp, finished, &hidden);
    page.sha256 = (whole && finished).then(|| agent_text::hex(&hasher.finalize()));
    Ok(page)
}

/// Reads until `chunk` is full or the file ends, so that a two-byte unit is never cut.
fn fill(mut file: &File, chunk: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < chunk.len() {
        match file.read(&mut chunk[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The pass over the bytes.
struct Scan {
    window: Window,
    /// Only the unit of the encoding matters while scanning.
    units: Encoding,
    mark: usize,
    at: u64,
    line: u64,
    line_start: u64,
    kept: Vec<Kept>,
    kept_bytes: usize,
    open: Option<Kept>,
    open_length: u64,
    feeds: u64,
    pairs: u64,
    last_was_return: bool,
}

impl Scan {
    fn new(window: Window) -> Self {
        Self {
            window,
            units: Encoding::Utf8,
            mark: 0,
            at: 0,
            line: 0,
            line_start: 0,
            kept: Vec::new(),
            kept_bytes: 0,
            open: None,
            open_length: 0,
            feeds: 0,
            pairs: 0,
            last_was_return: false,
        }
    }

    fn start(&mut self, head: &[u8]) {
        self.units = match head {
            [0xFF, 0xFE, ..] => Encoding::Utf16Le,
            [0xFE, 0xFF, ..] => Encoding::Utf16Be,
            [0xEF, 0xBB, 0xBF, ..] => Encoding::Utf8Bom,
            _ => Encoding::Utf8,
        };
        self.mark = self.units.mark_length();
        self.line_start = self.mark as u64;
        // A two-byte unit is never cut.
        self.window.column -= self.window.column % self.units.unit() as u64;
    }

    fn wanted(&self) -> bool {
        self.line >= self.window.offset && !self.page_is_full()
    }

    fn page_is_full(&self) -> bool {
        self.kept.len() as u64 >= self.window.limit
            || self.kept_bytes > self.window.characters.saturating_mul(WIDEST)
    }

    fn take(&mut self, piece: &[u8]) {
        let base = self.at;
        let mut from = if base == 0 {
            self.mark.min(piece.len())
        } else {
            0
        };
        let unit = self.units.unit();
        while let Some(end) = self.units.line_end(piece, from) {
            let text = &piece[from..end - unit];
            let returned = if text.is_empty() {
                self.last_was_return && self.open_length > 0
            } else {
                text.ends_with(self.units.carriage_return())
            };
            if returned {
                self.pairs += 1;
            } else {
                self.feeds += 1;
            }
            self.grow(text);
            self.close(base + end as u64);
            from = end;
        }
        let rest = &piece[from..];
        self.grow(rest);
        if !rest.is_empty() {
            self.last_was_return = rest.ends_with(self.units.carriage_return());
        }
        self.at = base + piece.len() as u64;
    }

    /// Adds bytes to the line at hand.
    fn grow(&mut self, bytes: &[u8]) {
        let before = self.open_length;
        self.open_length += bytes.len() as u64;
        if !self.wanted() {
            return;
        }
        let room = (self.most_of_line() + 1) * WIDEST;
        let column = self.column_of_line();
        let skip = usize::try_from(column.saturating_sub(before)).unwrap_or(usize::MAX);
        let bytes = &bytes[skip.min(bytes.len())..];
        let open = self
            .open
            .get_or_insert_with(|| Kept::at(self.line_start, column));
        let take = room.saturating_sub(open.bytes.len()).min(bytes.len());
        open.bytes.extend_from_slice(&bytes[..take]);
        self.kept_bytes += take;
    }

    /// Bytes of the line at hand that are skipped.
    fn column_of_line(&self) -> u64 {
        match self.line == self.window.offset {
            true => self.window.column,
            false => 0,
        }
    }

    /// Characters of the line at hand that may be shown.
    fn most_of_line(&self) -> usize {
        match self.column_of_line() {
            0 => MAX_LINE_CHARACTERS,
            _ => self.window.characters.saturating_sub(ROOM_FOR_MARK),
        }
    }

    fn close(&mut self, end: u64) {
        if self.wanted() || self.open.is_some() {
            let column = self.column_of_line();
            let open = self.open.take();
            let mut kept = open.unwrap_or_else(|| Kept::at(self.line_start, column));
            kept.skipped = kept.skipped.min(self.open_length);
            kept.length = self.open_length;
            kept.end = end;
            self.kept.push(kept);
        }
        self.line += 1;
        self.line_start = end;
        self.open_length = 0;
    }

    /// The last line, when it has no line break.
    fn end(&mut self) {
        if self.open_length > 0 {
            self.close(self.at);
        }
    }

    /// The secrets in what was kept, also those that begin before it or end behind it.
    fn hidden(&self, file: &File, encoding: Encoding, secrets: Secrets<'_>) -> Vec<Hidden> {
        let mut parts: Vec<Range<u64>> = Vec::new();
        for kept in &self.kept {
            let end = kept.start + kept.bytes.len() as u64;
            match parts.last_mut() {
                Some(last) if kept.start <= last.end + NEAR => last.end = end,
                _ => parts.push(kept.start..end),
            }
        }
        let unit = encoding.unit();
        let find = |bytes: &[u8]| match unit {
            1 => secrets(bytes),
            _ => {
                let found = secrets(&narrow(bytes, encoding)).into_iter();
                let wide = |place: Range<usize>| place.start * unit..place.end * unit;
                found.map(|(place, text)| (wide(place), text)).collect()
            }
        };
        let mut hidden: Vec<Hidden> = Vec::new();
        for part in parts {
            let found = hidden_in(part, find, |range| read_range(file, range));
            let known = hidden.last().map_or(0, |last| last.end);
            hidden.extend(found.into_iter().filter(|found| found.start >= known));
        }
        hidden
    }

    fn render(
        mut self,
        encoding: Encoding,
        stamp: Stamp,
        finished: bool,
        hidden: &[Hidden],
    ) -> Page {
        let ends_with_break = self.feeds + self.pairs == self.line;
        let mut text = String::new();
        let (mut shown, mut clipped, mut clipped_bytes) = (0, 0, 0);
        let (mut end, mut told) = (0, 0);
        let mut characters = 0;
        let mut goes_on = None;
        for kept in self.kept.drain(..) {
            let most = match kept.skipped {
                0 => MAX_LINE_CHARACTERS,
                _ => self.window.characters.saturating_sub(ROOM_FOR_MARK),
            };
            let index = self.window.offset + shown;
            let line = shown_line(&kept, encoding, most, hidden, told);
            let mut row = match told > kept.start {
                // A secret of several lines is one placeholder; what follows it stands beside it.
                true => line.text,
                false => format!("{}\t{}", index + 1, line.text),
            };
            if line.clipped > 0 {
                row.push_str(&format!(
                    " [line clipped: {} more bytes; read on with offset {}, column {}]",
                    line.clipped,
                    index + 1,
                    line.column
                ));
            }
            let hides_break = line.clipped == 0 && line.told > kept.line_end();
            if !hides_break {
                row.push('\n');
            }
            let length = row.chars().count();
            if shown > 0 && characters + length > self.window.characters {
                break;
            }
            characters += length;
            text.push_str(&row);
            told = line.told;
            end = kept.end;
            shown += 1;
            if line.clipped > 0 {
                clipped += 1;
                clipped_bytes += line.clipped;
                goes_on.get_or_insert((index, line.column));
                if kept.skipped > 0 {
                    break;
                }
            }
        }
        let size = if finished { self.at } else { stamp.size };
        let behind = if shown == 0 && self.window.offset > 0 {
            0
        } else {
            size.saturating_sub(end)
        };
        let line_ending = match (self.feeds, self.pairs) {
            (0, 0) => "none",
            (_, 0) => "lf",
            (0, _) => "crlf",
            _ => "mixed",
        };
        Page {
            text,
            shown,
            total: finished.then_some(self.line),
            omitted: behind + clipped_bytes,
            clipped,
            goes_on,
            sha256: None,
            bytes: size,
            stamp,
            encoding,
            line_ending,
            ends_with_break,
        }
    }
}

/// Kept parts that are no farther apart are looked at together.
const NEAR: u64 = 64 << 10;
/// Room for a line number and the mark after it.
const ROOM_FOR_MARK: usize = 200;

impl Kept {
    fn at(line_start: u64, column: u64) -> Self {
        Self {
            bytes: Vec::new(),
            start: line_start + column,
            skipped: column,
            length: 0,
            end: 0,
        }
    }

    /// End of the line, without its line feed.
    fn line_end(&self) -> u64 {
        (self.start - self.skipped) + self.length
    }
}

struct ShownLine {
    text: String,
    /// Bytes of the line behind what is shown.
    clipped: u64,
    /// The column where they begin.
    column: u64,
    /// Up to here the file was shown, or stood for.
    told: u64,
}

/// A line of at most `most` characters, with what is hidden replaced. `told` is how far lines before
/// it reached into this one.
fn shown_line(
    kept: &Kept,
    encoding: Encoding,
    most: usize,
    hidden: &[Hidden],
    told: u64,
) -> ShownLine {
    let is_whole = kept.skipped + kept.bytes.len() as u64 >= kept.length;
    let bytes = match kept.bytes.strip_suffix(encoding.carriage_return()) {
        Some(bytes) if is_whole => bytes,
        _ => &kept.bytes[..],
    };
    let end = kept.start + bytes.len() as u64;
    let mut at = kept.start;
    if kept.skipped > 0 && matches!(encoding, Encoding::Utf8 | Encoding::Utf8Bom) {
        // A column inside a character is taken for the next one.
        let inside = bytes.iter().take_while(|byte| **byte & 0xC0 == 0x80);
        at += inside.count() as u64;
    }
    at = at.max(told).min(end.max(told));
    let mut text = String::new();
    let mut room = most;
    let mut told = told;
    let mut fits = true;
    // Takes what is before `to`, as far as there is room.
    let take = |at: &mut u64, to: u64, text: &mut String, room: &mut usize| {
        let index = |place: u64| usize::try_from(place - kept.start).unwrap_or(bytes.len());
        let piece =
            encoding.decode(&bytes[index(*at).min(bytes.len())..index(to).min(bytes.len())]);
        match piece.char_indices().nth(*room) {
            None => {
                *room -= piece.chars().count();
                text.push_str(&piece);
                *at = to;
                true
            }
            Some((cut, _)) => {
                let shown = &piece[..cut];
                let length = encoding.encode(shown).map_or(cut, |bytes| bytes.len());
                text.push_str(shown);
                *at += length as u64;
                false
            }
        }
    };
    for secret in hidden {
        if secret.end <= at || secret.start >= end {
            continue;
        }
        let before = secret.start.max(at);
        fits = take(&mut at, before, &mut text, &mut room);
        let length = secret.placeholder.chars().count();
        if !fits || length > room && !text.is_empty() {
            fits = false;
            break;
        }
        room = room.saturating_sub(length);
        text.push_str(&secret.placeholder);
        at = secret.end;
        told = told.max(at);
    }
    if fits && at < end {
        take(&mut at, end, &mut text, &mut room);
    }
    let rest = if is_whole { end } else { kept.line_end() };
    ShownLine {
        text,
        clipped: rest.saturating_sub(at),
        column: at.saturating_sub(kept.start - kept.skipped),
        told,
    }
}

/// Wide text as bytes, one for each unit: secrets are written in ASCII.
fn narrow(bytes: &[u8], encoding: Encoding) -> Vec<u8> {
    let units = bytes.chunks_exact(2);
    let unit = |pair: &[u8]| match (encoding, pair) {
        (Encoding::Utf16Le, [byte, 0]) | (Encoding::Utf16Be, [0, byte]) if byte.is_ascii() => *byte,
        _ => 1,
    };
    units.map(unit).collect()
}

#[cfg(test)]
mod tests;
