//! Encoding of a text file, found once and never changed.
//!
//! A file is never decoded and encoded again: what the model says is put into the file's own
//! encoding, and what the model sees is a decoded copy. Detection looks at the whole content, so
//! that reading and editing the same bytes always agree.

use std::borrow::Cow;
use std::sync::OnceLock;

/// The encoding of a text file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Valid UTF-8, plain ASCII included.
    Utf8,
    /// UTF-8 behind a byte-order mark.
    Utf8Bom,
    /// Mostly UTF-8, with bytes that are not; they are shown as `\xNN` and never touched.
    Utf8Broken,
    /// UTF-16, little end first, with its mark.
    Utf16Le,
    /// UTF-16, big end first, with its mark.
    Utf16Be,
    /// One byte per character: Windows-1252, of which Latin-1 text is a part.
    Windows1252,
}

impl Encoding {
    /// The encoding of a whole file.
    pub fn of(content: &[u8]) -> Self {
        let mut detector = Detector::default();
        detector.feed(content);
        detector.finish()
    }

    /// The name as facts carry it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Utf8Bom => "utf-8-bom",
            Self::Utf8Broken => "utf-8-invalid",
            Self::Utf16Le => "utf-16le",
            Self::Utf16Be => "utf-16be",
            Self::Windows1252 => "windows-1252",
        }
    }

    /// Bytes of the byte-order mark.
    pub fn mark_length(self) -> usize {
        match self {
            Self::Utf8Bom => 3,
            Self::Utf16Le | Self::Utf16Be => 2,
            Self::Utf8 | Self::Utf8Broken | Self::Windows1252 => 0,
        }
    }

    /// Bytes of the smallest unit; text starts only at multiples of it.
    pub fn unit(self) -> usize {
        match self {
            Self::Utf16Le | Self::Utf16Be => 2,
            _ => 1,
        }
    }

    /// `text` in this encoding, or the first character it has no place for.
    pub fn encode(self, text: &str) -> Result<Cow<'_, [u8]>, char> {
        match self {
            Self::Utf8 | Self::Utf8Bom | Self::Utf8Broken => Ok(Cow::Borrowed(text.as_bytes())),
            Self::Utf16Le => Ok(text.encode_utf16().flat_map(u16::to_le_bytes).collect()),
            Self::Utf16Be => Ok(text.encode_utf16().flat_map(u16::to_be_bytes).collect()),
            Self::Windows1252 if text.is_ascii() => Ok(Cow::Borrowed(text.as_bytes())),
            Self::Windows1252 => text
                .chars()
                .map(|character| windows_1252_byte(character).ok_or(character))
                .collect(),
        }
    }

    /// The text of `bytes`, for eyes only: what is no text is written as `\xNN` or `\u{NNNN}`.
    pub fn decode(self, bytes: &[u8]) -> Cow<'_, str> {
        match self {
            Self::Utf8 | Self::Utf8Bom | Self::Utf8Broken => decode_utf8(bytes),
            Self::Utf16Le => Cow::Owned(decode_utf16(bytes, u16::from_le_bytes)),
            Self::Utf16Be => Cow::Owned(decode_utf16(bytes, u16::from_be_bytes)),
            Self::Windows1252 if bytes.is_ascii() => decode_utf8(bytes),
            Self::Windows1252 => {
                Cow::Owned(bytes.iter().map(|byte| windows_1252_char(*byte)).collect())
            }
        }
    }

    /// End of the line that holds `from`, its line feed included; nothing when it is the last.
    pub fn line_end(self, bytes: &[u8], from: usize) -> Option<usize> {
        match self {
            Self::Utf16Le => wide_feed(bytes, from, [b'\n', 0]),
            Self::Utf16Be => wide_feed(bytes, from, [0, b'\n']),
            _ => memchr::memchr(b'\n', bytes.get(from..)?).map(|at| from + at + 1),
        }
    }

    /// Start of the line that holds `at`.
    pub fn line_start(self, bytes: &[u8], at: usize) -> usize {
        let before = &bytes[..at];
        match self {
            Self::Utf16Le => last_wide_feed(before, [b'\n', 0]),
            Self::Utf16Be => last_wide_feed(before, [0, b'\n']),
            _ => memchr::memrchr(b'\n', before).map_or(0, |found| found + 1),
        }
    }

    /// Number of line feeds in `bytes`.
    pub fn count_feeds(self, bytes: &[u8]) -> usize {
        match self {
            Self::Utf16Le => bytes
                .chunks_exact(2)
                .filter(|unit| *unit == [b'\n', 0])
                .count(),
            Self::Utf16Be => bytes
                .chunks_exact(2)
                .filter(|unit| *unit == [0, b'\n'])
                .count(),
            _ => memchr::memchr_iter(b'\n', bytes).count(),
        }
    }

    /// A carriage return in this encoding.
    pub(crate) fn carriage_return(self) -> &'static [u8] {
        match self {
            Self::Utf16Le => b"\r\0",
            Self::Utf16Be => b"\0\r",
            _ => b"\r",
        }
    }

    /// A line feed in this encoding.
    pub(crate) fn line_feed(self) -> &'static [u8] {
        match self {
            Self::Utf16Le => b"\n\0",
            Self::Utf16Be => b"\0\n",
            _ => b"\n",
        }
    }
}

fn wide_feed(bytes: &[u8], from: usize, feed: [u8; 2]) -> Option<usize> {
    let from = from - from % 2;
    bytes
        .get(from..)?
        .chunks_exact(2)
        .position(|unit| unit == feed)
        .map(|units| from + units * 2 + 2)
}

fn last_wide_feed(before: &[u8], feed: [u8; 2]) -> usize {
    before
        .chunks_exact(2)
        .rposition(|unit| unit == feed)
        .map_or(0, |units| units * 2 + 2)
}

fn decode_utf8(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02X}"));
        }
    }
    Cow::Owned(out)
}

fn decode_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let mut out = String::with_capacity(bytes.len());
    for decoded in char::decode_utf16(pairs.iter().map(|pair| unit(*pair))) {
        match decoded {
            Ok(character) => out.push(character),
            Err(lone) => out.push_str(&format!("\\u{{{:04X}}}", lone.unpaired_surrogate())),
        }
    }
    for byte in rest {
        out.push_str(&format!("\\x{byte:02X}"));
    }
    out
}

/// The upper half of Windows-1252, taken from the browsers' own table.
fn upper_half() -> &'static [char; 128] {
    static TABLE: OnceLock<[char; 128]> = OnceLock::new();
    TABLE.get_or_init(|| {
        let bytes: Vec<u8> = (0x80..=0xFF).collect();
        let (text, _) = encoding_rs::WINDOWS_1252.decode_without_bom_handling(&bytes);
        let mut table = ['\u{FFFD}'; 128];
        for (slot, character) in table.iter_mut().zip(text.chars()) {
            *slot = character;
        }
        table
    })
}

fn windows_1252_char(byte: u8) -> char {
    match byte.checked_sub(0x80) {
        Some(index) => upper_half()[usize::from(index)],
        None => char::from(byte),
    }
}

fn windows_1252_byte(character: char) -> Option<u8> {
    if character.is_ascii() {
        return u8::try_from(character).ok();
    }
    let index = upper_half().iter().position(|known| *known == character)?;
    u8::try_from(index + 0x80).ok()
}

/// Finds the encoding of content that comes in pieces.
#[derive(Debug, Default)]
pub(crate) struct Detector {
    head: Vec<u8>,
    /// The start of a character that the last piece cut in two.
    cut: Vec<u8>,
    multibyte: u64,
    invalid: u64,
}

impl Detector {
    /// Looks at the next piece.
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        let missing = 3 - self.head.len().min(3);
        self.head
            .extend_from_slice(&piece[..missing.min(piece.len())]);
        let mut rest = piece;
        while !self.cut.is_empty() {
            let Some((first, tail)) = rest.split_first() else {
                return;
            };
            self.cut.push(*first);
            match std::str::from_utf8(&self.cut) {
                Ok(_) => {
                    self.multibyte += 1;
                    self.cut.clear();
                    rest = tail;
                }
                Err(error) if error.error_len().is_some() => {
                    // The cut-off start is no character; the byte just pushed may begin one.
                    self.invalid += 1;
                    self.cut.clear();
                }
                Err(_) => rest = tail,
            }
        }
        for chunk in rest.utf8_chunks() {
            let valid = chunk.valid().as_bytes();
            self.multibyte += valid.iter().filter(|byte| **byte >= 0xC0).count() as u64;
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            let at_end = std::ptr::eq(invalid.as_ptr_range().end, rest.as_ptr_range().end);
            let only_cut =
                std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if at_end && only_cut {
                self.cut = invalid.to_vec();
            } else {
                self.invalid += 1;
            }
        }
    }

    /// The verdict.
    pub(crate) fn finish(mut self) -> Encoding {
        if !self.cut.is_empty() {
            self.invalid += 1;
        }
        match self.head.as_slice() {
            [0xFF, 0xFE, ..] => Encoding::Utf16Le,
            [0xFE, 0xFF, ..] => Encoding::Utf16Be,
            [0xEF, 0xBB, 0xBF] => Encoding::Utf8Bom,
            _ if self.invalid == 0 => Encoding::Utf8,
            // A stray byte in a UTF-8 file does not make the rest another encoding.
            _ if self.multibyte > self.invalid => Encoding::Utf8Broken,
            _ => Encoding::Windows1252,
        }
    }
}

/// Line endings of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineEndings {
    /// Line feeds alone.
    pub feeds: u64,
    /// Carriage return and line feed.
    pub pairs: u64,
}

impl LineEndings {
    /// The endings in `content`.
    pub fn of(content: &[u8], encoding: Encoding) -> Self {
        let mut endings = Self::default();
        let back = 2 * encoding.unit();
        let mut from = 0;
        while let Some(end) = encoding.line_end(content, from) {
            let paired =
                end >= from + back && content[end - back..].starts_with(encoding.carriage_return());
            if paired {
                endings.pairs += 1;
            } else {
                endings.feeds += 1;
            }
            from = end;
        }
        endings
    }

    /// The word facts carry.
    pub fn name(self) -> &'static str {
        match (self.feeds, self.pairs) {
            (0, 0) => "none",
            (_, 0) => "lf",
            (0, _) => "crlf",
            _ => "mixed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(bytes: &[u8], encoding: Encoding, shown: &str) {
        assert_eq!(Encoding::of(bytes), encoding, "{bytes:?}");
        assert_eq!(encoding.decode(&bytes[encoding.mark_length()..]), shown);
    }

    #[test]
    fn each_encoding_is_recognised() {
        check(b"", Encoding::Utf8, "");
        check("caf\u{e9}".as_bytes(), Encoding::Utf8, "caf\u{e9}");
        check(b"\xEF\xBB\xBFa", Encoding::Utf8Bom, "a");
        check(b"\xFF\xFEa\0\n\0", Encoding::Utf16Le, "a\n");
        check(b"\xFE\xFF\0a\0\n", Encoding::Utf16Be, "a\n");
        check(b"caf\xE9", Encoding::Windows1252, "caf\u{e9}");
        check(b"\x80 5", Encoding::Windows1252, "\u{20ac} 5");
        check(
            b"\xC3\xA9\xC3\xA8 \xFF",
            Encoding::Utf8Broken,
            "\u{e9}\u{e8} \\xFF",
        );
        check(b"\xFF\xFE\x00\xD8a", Encoding::Utf16Le, "\\u{D800}\\x61");
    }

    #[test]
    fn a_character_the_encoding_lacks_is_named() {
        assert_eq!(Encoding::Windows1252.encode("a\u{2192}"), Err('\u{2192}'));
        assert_eq!(
            Encoding::Windows1252.encode("\u{e9}").as_deref(),
            Ok(&[0xE9][..])
        );
    }

    #[test]
    fn lines_are_found_in_wide_text() {
        // U+0A00 holds a 0x0A byte that is no line feed.
        let text: Vec<u8> = "\u{0a00}a\nb"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        assert_eq!(Encoding::Utf16Le.line_end(&text, 0), Some(6));
        assert_eq!(Encoding::Utf16Le.line_end(&text, 6), None);
        assert_eq!(Encoding::Utf16Le.line_start(&text, 8), 6);
        assert_eq!(
            LineEndings::of(b"a\r\nb\nc", Encoding::Utf8).name(),
            "mixed"
        );
        assert_eq!(
            LineEndings::of(b"a\r\n\r\n", Encoding::Utf8),
            LineEndings { feeds: 0, pairs: 2 }
        );
    }

    proptest! {
        /// Where a reader happens to cut the file must not change what it is.
        #[test]
        fn a_cut_changes_nothing(
            content in proptest::collection::vec(
                proptest::sample::select(b"a\n\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xFF\xEF\xBB\xBF".to_vec()), 0..40),
            cut in any::<prop::sample::Index>(),
        ) {
            let (head, tail) = content.split_at(cut.index(content.len() + 1));
            let mut detector = Detector::default();
            detector.feed(head);
            detector.feed(tail);
            prop_assert_eq!(Encoding::of(&content), detector.finish());
        }

        /// Windows-1252 is one to one, so that nothing shown is unmatchable.
        #[test]
        fn single_bytes_round_trip(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            let text = Encoding::Windows1252.decode(&bytes).into_owned();
            prop_assert_eq!(Encoding::Windows1252.encode(&text).unwrap().into_owned(), bytes);
        }
    }
}
