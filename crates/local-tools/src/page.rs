//! One page of a file: numbered lines, read in a single pass that keeps no more than the page.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use sha2::{Digest, Sha256};

use crate::encoding::{Detector, Encoding};
use crate::file::{MAX_WHOLE_FILE, Stamp, hex};

/// A line is clipped after this many characters.
pub(crate) const MAX_LINE_CHARACTERS: usize = 2_000;
/// The most bytes one character has in any encoding we read.
const WIDEST: usize = 4;
const CHUNK: usize = 256 << 10;

/// Which lines are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Lines to skip.
    pub(crate) offset: u64,
    /// Lines to show.
    pub(crate) limit: u64,
    /// Characters to show, line numbers included.
    pub(crate) characters: usize,
}

/// What was read.
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
    /// The hash of the whole content; unknown when it was not read to its end.
    pub(crate) sha256: Option<String>,
    /// Bytes read, which is the size unless the file was too large.
    pub(crate) bytes: u64,
    /// Of the file when it was opened.
    pub(crate) stamp: Stamp,
    pub(crate) encoding: Encoding,
    /// `lf`, `crlf`, `mixed` or `none`.
    pub(crate) line_ending: &'static str,
    /// Whether the last line has a line break.
    pub(crate) ends_with_break: bool,
}

/// A kept line, as raw bytes without its line feed.
struct Kept {
    bytes: Vec<u8>,
    /// Its whole length.
    length: u64,
    /// Where the next line starts.
    end: u64,
}

/// Reads a page. A file that is too large to be read whole is read only as far as the page needs.
pub(crate) fn read_page(mut file: &File, window: Window) -> io::Result<Page> {
    let stamp = Stamp::of(&file.metadata()?);
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
    let mut page = scan.render(encoding, stamp, finished);
    page.sha256 = (whole && finished).then(|| hex(hasher));
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
        self.open_length += bytes.len() as u64;
        if !self.wanted() {
            return;
        }
        let open = self.open.get_or_insert_with(|| Kept {
            bytes: Vec::new(),
            length: 0,
            end: 0,
        });
        let room = (MAX_LINE_CHARACTERS + 1) * WIDEST;
        let take = room.saturating_sub(open.bytes.len()).min(bytes.len());
        open.bytes.extend_from_slice(&bytes[..take]);
        self.kept_bytes += take;
    }

    fn close(&mut self, end: u64) {
        if self.wanted() || self.open.is_some() {
            let mut kept = self.open.take().unwrap_or(Kept {
                bytes: Vec::new(),
                length: 0,
                end: 0,
            });
            kept.length = self.open_length;
            kept.end = end;
            self.kept.push(kept);
        }
        self.line += 1;
        self.open_length = 0;
    }

    /// The last line, when it has no line break.
    fn end(&mut self) {
        if self.open_length > 0 {
            self.close(self.at);
        }
    }

    fn render(mut self, encoding: Encoding, stamp: Stamp, finished: bool) -> Page {
        let ends_with_break = self.feeds + self.pairs == self.line;
        let mut text = String::new();
        let (mut shown, mut clipped, mut clipped_bytes) = (0, 0, 0);
        let mut end = 0;
        let mut characters = 0;
        for kept in self.kept.drain(..) {
            let number = self.window.offset + shown + 1;
            let line = shown_line(&kept, encoding, number);
            let length = line.text.chars().count();
            if shown > 0 && characters + length > self.window.characters {
                break;
            }
            characters += length;
            text.push_str(&line.text);
            clipped += u64::from(line.clipped > 0);
            clipped_bytes += line.clipped;
            end = kept.end;
            shown += 1;
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
            sha256: None,
            bytes: size,
            stamp,
            encoding,
            line_ending,
            ends_with_break,
        }
    }
}

struct ShownLine {
    text: String,
    clipped: u64,
}

fn shown_line(kept: &Kept, encoding: Encoding, number: u64) -> ShownLine {
    let bytes = kept
        .bytes
        .strip_suffix(encoding.carriage_return())
        .unwrap_or(&kept.bytes);
    let decoded = encoding.decode(bytes);
    let complete = kept.length as usize == kept.bytes.len();
    let Some((cut, _)) = decoded
        .char_indices()
        .nth(MAX_LINE_CHARACTERS)
        .filter(|_| true)
    else {
        if complete {
            return ShownLine {
                text: format!("{number}\t{decoded}\n"),
                clipped: 0,
            };
        }
        let clipped = kept.length - kept.bytes.len() as u64;
        return ShownLine {
            text: marked(number, &decoded, clipped),
            clipped,
        };
    };
    let shown = &decoded[..cut];
    let shown_bytes = encoding
        .encode(shown)
        .map_or(shown.len(), |bytes| bytes.len()) as u64;
    let clipped = kept.length.saturating_sub(shown_bytes).max(1);
    ShownLine {
        text: marked(number, shown, clipped),
        clipped,
    }
}

fn marked(number: u64, shown: &str, clipped: u64) -> String {
    format!("{number}\t{shown} [line clipped: {clipped} more bytes]\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    const ALL: Window = Window {
        offset: 0,
        limit: 2_000,
        characters: 28_000,
    };

    fn page(content: &[u8], window: Window) -> Page {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(content, 0).unwrap();
        read_page(&file, window).unwrap()
    }

    fn check(content: &[u8], window: Window, text: &str, total: u64, omitted: u64) {
        let page = page(content, window);
        assert_eq!(page.text, text);
        assert_eq!((page.total, page.omitted), (Some(total), omitted), "{text}");
        assert_eq!(page.sha256.unwrap(), crate::file::hash_bytes(content));
    }

    #[test]
    fn lines_are_numbered() {
        check(b"", ALL, "", 0, 0);
        check(b"a", ALL, "1\ta\n", 1, 0);
        check(b"a\n", ALL, "1\ta\n", 1, 0);
        check(b"a\r\n\r\nb", ALL, "1\ta\n2\t\n3\tb\n", 3, 0);
        check(b"\xEF\xBB\xBFa\n", ALL, "1\ta\n", 1, 0);
        check(b"\xFF\xFEa\0\r\0\n\0b\0", ALL, "1\ta\n2\tb\n", 2, 0);
        check(b"caf\xE9\n", ALL, "1\tcaf\u{e9}\n", 1, 0);
        let two = Window {
            offset: 1,
            limit: 2,
            ..ALL
        };
        check(b"a\nb\nc\nd\n", two, "2\tb\n3\tc\n", 4, 2);
        let far = Window { offset: 9, ..ALL };
        check(b"a\nb\n", far, "", 2, 0);
    }

    #[test]
    fn long_lines_and_long_pages_are_cut_and_say_so() {
        let long = [vec![b'x'; 5_000], b"\ny\n".to_vec()].concat();
        let page = page(&long, ALL);
        assert!(page.text.starts_with(&format!(
            "1\t{} [line clipped: 3000 more bytes]\n2\ty\n",
            "x".repeat(2_000)
        )));
        assert_eq!((page.clipped, page.omitted), (1, 3_000));
        let few = Window {
            characters: 10,
            ..ALL
        };
        check(b"aaa\nbbb\nccc\n", few, "1\taaa\n", 3, 8);
    }

    #[test]
    fn a_line_longer_than_a_chunk_is_one_line() {
        let content = [vec![b'z'; CHUNK - 1], b"\r\nend".to_vec()].concat();
        let page = page(&content, ALL);
        assert_eq!((page.total, page.line_ending), (Some(2), "crlf"));
        assert!(!page.ends_with_break);
        assert_eq!(page.clipped, 1);
    }

    #[test]
    fn a_sparse_giant_answers_from_its_first_page() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(5 << 30).unwrap();
        file.write_all_at("line\n".repeat(100_000).as_bytes(), 0)
            .unwrap();
        let page = read_page(&file, Window { limit: 3, ..ALL }).unwrap();
        assert_eq!(page.text, "1\tline\n2\tline\n3\tline\n");
        assert_eq!((page.total, page.sha256), (None, None));
        assert_eq!(page.omitted, (5 << 30) - 15);
    }
}
