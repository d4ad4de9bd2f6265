//! Diagnosis: the nearest match of a text that was not found. Facts for the model, never a reason
//! to edit.
//!
//! Two looks, each linear in the file and bounded in bytes. The first folds away everything that
//! models and people mistake (white space, line endings, quotes, accents, look-alike characters,
//! letter case) and searches the folded text; a hit is then compared class by class. The second finds the
//! line that shares most letter pairs with the longest line of the text.

use std::borrow::Cow;
use std::fmt;

use icu_normalizer::DecomposingNormalizerBorrowed;

use crate::encoding::Encoding;

const ELLIPSIS: char = '\u{2026}';
/// Bytes of a file that are searched; the answer says when there was more.
const LOOKED_AT: usize = 32 << 20;
/// Number of lines of the nearest place are shown.
const SHOWN_LINES: usize = 12;
/// Number of characters of each.
const SHOWN_CHARACTERS: usize = 200;
/// Below this share of common letter pairs, a line is not "near".
const NEAR_ENOUGH: f64 = 0.5;

/// A way in which two texts differ that is easily overlooked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// `\r\n` against `\n`.
    LineEndings,
    /// White space at the ends of lines.
    TrailingWhitespace,
    /// White space at the beginnings of lines.
    Indentation,
    /// White space elsewhere.
    Whitespace,
    /// Straight against typographic quotes.
    Quotes,
    /// Letters with an accent as one character against letter and accent.
    Accents,
    /// Characters that look alike: dashes, spaces, full-width letters.
    LookAlikes,
    /// Capital against small letters.
    LetterCase,
    /// The line numbers of a `read` were copied with the text.
    LineNumbers,
    /// `\n`, `\t` or `\"` written as two characters.
    Escapes,
}

impl Difference {
    /// The words of the message.
    pub fn words(self) -> &'static str {
        match self {
            Self::LineEndings => "line endings",
            Self::TrailingWhitespace => "white space at line ends",
            Self::Indentation => "indentation",
            Self::Whitespace => "white space",
            Self::Quotes => "quotation marks (straight or curly quotes)",
            Self::Accents => "accents (composed or decomposed characters)",
            Self::LookAlikes => "characters that look alike (Unicode look-alikes)",
            Self::LetterCase => "letter case",
            Self::LineNumbers => "line numbers in front of the lines",
            Self::Escapes => "escape sequences",
        }
    }
}

/// The place that comes closest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// The first line of the place, from 1.
    pub first_line: usize,
    /// The last line of the place.
    pub last_line: usize,
    /// All that differs, when nothing else does; empty when the text itself differs.
    pub differs: Vec<Difference>,
    /// Number of such places.
    pub places: usize,
    /// The lines as they are in the file.
    pub text: String,
    /// Lines looked at, when the file has more.
    pub looked_at: Option<usize>,
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = if self.first_line == self.last_line {
            format!("line {}", self.first_line)
        } else {
            format!("lines {}-{}", self.first_line, self.last_line)
        };
        if self.differs.is_empty() {
            write!(f, "the nearest text is at {at}")?;
        } else {
            let words: Vec<&str> = self.differs.iter().map(|one| one.words()).collect();
            write!(
                f,
                "{at} differ{} only in {}",
                plural(self),
                words.join(" and ")
            )?;
        }
        if self.places > 1 {
            write!(f, ", and so do {} more places", self.places - 1)?;
        }
        if let Some(lines) = self.looked_at {
            write!(f, " (the first {lines} lines were looked at)")?;
        }
        write!(f, ":\n{}", self.text)
    }
}

fn plural(nearest: &Nearest) -> &'static str {
    if nearest.first_line == nearest.last_line {
        "s"
    } else {
        ""
    }
}

/// The place in `content` that comes closest to `wanted`.
pub(crate) fn nearest(content: &[u8], encoding: Encoding, wanted: &str) -> Option<Nearest> {
    let body = &content[encoding.mark_length()..];
    let cut = body.len().min(LOOKED_AT - LOOKED_AT % 2);
    let text = encoding.decode(&body[..cut]);
    let mut answer = folded(&text, wanted).or_else(|| by_letter_pairs(&text, wanted))?;
    if cut < body.len() {
        answer.looked_at = Some(memchr::memchr_iter(b'\n', text.as_bytes()).count());
    }
    Some(answer)
}

/// The file with everything folded away, and where each of its lines starts.
struct Folded {
    text: String,
    line_starts: Vec<usize>,
}

fn fold(text: &str) -> Folded {
    let mut folded = Folded {
        text: String::with_capacity(text.len()),
        line_starts: vec![0],
    };
    for line in text.split_inclusive('\n') {
        for character in decomposed(line).chars() {
            if character == '\n' {
                folded.line_starts.push(folded.text.len());
            }
            push_folded(character, &mut folded.text);
        }
    }
    folded
}

/// The text with every accent as a character of its own.
fn decomposed(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        Cow::Borrowed(text)
    } else {
        DecomposingNormalizerBorrowed::new_nfd().normalize(text)
    }
}

fn push_folded(character: char, out: &mut String) {
    let plain = look_alike(quote(character));
    if plain.is_whitespace() || agent_text::is_hidden(plain) {
        return;
    }
    if plain.is_ascii() {
        out.push(plain.to_ascii_lowercase());
    } else if plain == ELLIPSIS {
        out.push_str("...");
    } else {
        out.extend(plain.to_lowercase());
    }
}

fn folded(text: &str, wanted: &str) -> Option<Nearest> {
    let haystack = fold(text);
    let variants = [
        (None, wanted.to_owned()),
        (Some(Difference::LineNumbers), without_line_numbers(wanted)?),
        (Some(Difference::Escapes), unescaped(wanted)),
    ];
    for (already, variant) in variants {
        if already.is_some() && variant == wanted {
            continue;
        }
        let needle = fold(&variant).text;
        if needle.is_empty() {
            continue;
        }
        let mut found = memchr::memmem::find_iter(haystack.text.as_bytes(), needle.as_bytes());
        let Some(start) = found.next() else {
            continue;
        };
        let places = 1 + found.count();
        let first = line_of(&haystack.line_starts, start);
        let last = line_of(&haystack.line_starts, start + needle.len() - 1);
        let lines: Vec<&str> = text
            .split('\n')
            .skip(first)
            .take(last - first + 1)
            .collect();
        let mut differs = differences(&lines.join("\n"), &variant);
        differs.extend(already);
        differs.sort_unstable();
        return Some(Nearest {
            first_line: first + 1,
            last_line: last + 1,
            differs,
            places,
            text: shown(&lines, first),
            looked_at: None,
        });
    }
    None
}

/// The line of a folded position. Lines without folded text share a start; the last of them that
/// is not after the position holds it.
fn line_of(starts: &[usize], at: usize) -> usize {
    starts
        .partition_point(|start| *start <= at)
        .saturating_sub(1)
}

/// The text without the `12<tab>` that `read` puts in front of lines, if every line has one.
fn without_line_numbers(wanted: &str) -> Option<String> {
    let strip = |line: &str| -> Option<String> {
        let (number, rest) = line.split_once('\t')?;
        let number = number.trim_start();
        (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| rest.to_owned())
    };
    let stripped: Option<Vec<String>> = wanted
        .split('\n')
        .filter(|line| !line.is_empty())
        .map(strip)
        .collect();
    Some(stripped.map_or_else(|| wanted.to_owned(), |lines| lines.join("\n")))
}

fn unescaped(wanted: &str) -> String {
    wanted
        .replace("\\n", "\n")
        .replace("\\t", "\t")
        .replace("\\\"", "\"")
        .replace("\\'", "'")
        .replace("\\\\", "\\")
}

/// Classes that tell the region and the wanted text apart. The region has whole lines, the wanted
/// text may be a part, so equality is "contains".
fn differences(region: &str, wanted: &str) -> Vec<Difference> {
    use Difference::*;
    let classes = [
        LineEndings,
        TrailingWhitespace,
        Indentation,
        Whitespace,
        Quotes,
        Accents,
        LookAlikes,
        LetterCase,
    ];
    let equal = |without: &[Difference]| {
        let (left, right) = (reduce(region, without), reduce(wanted, without));
        left.contains(&right)
    };
    if equal(&[]) {
        return Vec::new();
    }
    for class in classes {
        if equal(&[class]) {
            return vec![class];
        }
    }
    // All of them together are enough, by the way the region was found; drop what is not needed.
    // The vaguest words go first.
    let mut needed = classes.to_vec();
    for class in [
        Whitespace,
        LetterCase,
        LookAlikes,
        Accents,
        Quotes,
        Indentation,
        TrailingWhitespace,
        LineEndings,
    ] {
        let fewer: Vec<Difference> = needed.iter().copied().filter(|one| *one != class).collect();
        if equal(&fewer) {
            needed = fewer;
        }
    }
    needed
}

/// `text` with the given classes folded away.
fn reduce(text: &str, without: &[Difference]) -> String {
    let has = |class| without.contains(&class);
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let mut line = line.to_owned();
        if has(Difference::LineEndings) && line.ends_with('\r') {
            line.pop();
        }
        if has(Difference::Accents) {
            line = decomposed(&line).into_owned();
        }
        if has(Difference::LookAlikes) {
            line = line
                .chars()
                .filter(|c| !agent_text::is_hidden(*c))
                .map(look_alike)
                .collect::<String>()
                .replace(ELLIPSIS, "...");
        }
        if has(Difference::Quotes) {
            line = line.chars().map(quote).collect();
        }
        if has(Difference::LetterCase) {
            line = line.to_lowercase();
        }
        if has(Difference::TrailingWhitespace) {
            let kept = line.trim_end_matches([' ', '\t']).len();
            line.truncate(kept);
        }
        if has(Difference::Indentation) {
            line = line.trim_start_matches([' ', '\t']).to_owned();
        }
        if has(Difference::Whitespace) {
            line.retain(|character| !character.is_ascii_whitespace());
        }
        lines.push(line);
    }
    // Where a line is broken is white space too.
    lines.join(if has(Difference::Whitespace) {
        ""
    } else {
        "\n"
    })
}

fn quote(character: char) -> char {
    match character {
        '\u{2018}' | '\u{2019}' | '\u{201A}' | '\u{201B}' | '\u{2032}' | '`' | '\u{B4}' => '\'',
        '\u{201C}' | '\u{201D}' | '\u{201E}' | '\u{201F}' | '\u{2033}' | '\u{AB}' | '\u{BB}' => '"',
        other => other,
    }
}

fn look_alike(character: char) -> char {
    match character {
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{FE58}' | '\u{FE63}' => '-',
        '\u{A0}' | '\u{2000}'..='\u{200A}' | '\u{202F}' | '\u{205F}' | '\u{3000}' => ' ',
        // Full-width forms stand exactly this far from ASCII.
        '\u{FF01}'..='\u{FF5E}' => {
            char::from_u32(u32::from(character) - 0xFEE0).unwrap_or(character)
        }
        // Cyrillic and Greek letters drawn like Latin ones.
        '\u{430}' | '\u{3B1}' => 'a',
        '\u{435}' => 'e',
        '\u{43E}' | '\u{3BF}' => 'o',
        '\u{440}' | '\u{3C1}' => 'p',
        '\u{441}' => 'c',
        '\u{443}' => 'y',
        '\u{445}' => 'x',
        '\u{456}' | '\u{3B9}' => 'i',
        '\u{455}' => 's',
        '\u{458}' => 'j',
        '\u{3BD}' => 'v',
        '\u{410}' | '\u{391}' => 'A',
        '\u{412}' | '\u{392}' => 'B',
        '\u{415}' | '\u{395}' => 'E',
        '\u{396}' => 'Z',
        '\u{41D}' | '\u{397}' => 'H',
        '\u{406}' | '\u{399}' => 'I',
        '\u{408}' => 'J',
        '\u{41A}' | '\u{39A}' => 'K',
        '\u{41C}' | '\u{39C}' => 'M',
        '\u{39D}' => 'N',
        '\u{41E}' | '\u{39F}' => 'O',
        '\u{420}' | '\u{3A1}' => 'P',
        '\u{421}' => 'C',
        '\u{405}' => 'S',
        '\u{422}' | '\u{3A4}' => 'T',
        '\u{3A5}' => 'Y',
        '\u{425}' | '\u{3A7}' => 'X',
        other => other,
    }
}

fn shown(lines: &[&str], first: usize) -> String {
    let mut out = String::new();
    for (index, line) in lines.iter().take(SHOWN_LINES).enumerate() {
        let mut clipped: String = line.chars().take(SHOWN_CHARACTERS).collect();
        if clipped.len() < line.len() {
            clipped.push('\u{2026}');
        }
        let clipped = clipped.replace('\r', "\\r");
        out.push_str(&format!("{}\t{clipped}\n", first + index + 1));
    }
    if lines.len() > SHOWN_LINES {
        out.push_str(&format!(
            "\u{2026} {} more lines\n",
            lines.len() - SHOWN_LINES
        ));
    }
    out.pop();
    out
}

/// The line that shares most letter pairs with the longest wanted line.
fn by_letter_pairs(text: &str, wanted: &str) -> Option<Nearest> {
    let wanted_lines: Vec<&str> = wanted.split('\n').collect();
    let (anchor_index, anchor) = wanted_lines
        .iter()
        .enumerate()
        .max_by_key(|(index, line)| (line.trim().len(), std::cmp::Reverse(*index)))?;
    let anchor = anchor.trim().as_bytes();
    if anchor.len() < 2 {
        return None;
    }
    let mut pairs = vec![false; 1 << 16];
    let mut distinct = 0usize;
    for pair in anchor.windows(2) {
        let slot = &mut pairs[usize::from(u16::from_le_bytes([pair[0], pair[1]]))];
        distinct += usize::from(!*slot);
        *slot = true;
    }
    let mut best = (0.0, 0);
    for (index, line) in text.split('\n').enumerate() {
        let line = line.trim().as_bytes();
        if line.len() < 2 {
            continue;
        }
        let common = line
            .windows(2)
            .filter(|pair| pairs[usize::from(u16::from_le_bytes([pair[0], pair[1]]))])
            .count()
            .min(distinct);
        let score = 2.0 * common as f64 / (distinct + line.len() - 1) as f64;
        if score > best.0 {
            best = (score, index);
        }
    }
    if best.0 < NEAR_ENOUGH {
        return None;
    }
    let first = best.1.saturating_sub(anchor_index);
    let lines: Vec<&str> = text
        .split('\n')
        .skip(first)
        .take(wanted_lines.len())
        .collect();
    Some(Nearest {
        first_line: first + 1,
        last_line: first + lines.len(),
        differs: Vec::new(),
        places: 1,
        text: shown(&lines, first),
        looked_at: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content: &str, wanted: &str, lines: (usize, usize), differs: &[Difference]) {
        let answer = nearest(content.as_bytes(), Encoding::Utf8, wanted).unwrap();
        assert_eq!((answer.first_line, answer.last_line), lines, "{answer}");
        assert_eq!(answer.differs, differs, "{answer}");
    }

    #[test]
    fn each_class_is_named() {
        use Difference::*;
        check("a\r\nb\r\n", "a\nb", (1, 2), &[LineEndings]);
        check(
            "one\nfoo  \nbar\n",
            "foo\nbar",
            (2, 3),
            &[TrailingWhitespace],
        );
        check(
            "x\n\tfn a() {\n\t}\n",
            "    fn a() {\n    }",
            (2, 3),
            &[Indentation],
        );
        check("call(a,  b)\n", "call(a, b)", (1, 1), &[Whitespace]);
        check("say \u{201c}hi\u{201d}\n", "say \"hi\"", (1, 1), &[Quotes]);
        check("a \u{2013} b\n", "a - b", (1, 1), &[LookAlikes]);
        check("a\u{a0}b\n", "a b", (1, 1), &[LookAlikes]);
        check("wait\u{2026}\n", "wait...", (1, 1), &[LookAlikes]);
        check("cafe\u{301}\n", "caf\u{e9}", (1, 1), &[Accents]);
        check("caf\u{e9}\n", "cafe\u{301}", (1, 1), &[Accents]);
        check(
            "x\n\u{2018}cafe\u{301}\u{2019}\n",
            "'caf\u{e9}'",
            (2, 2),
            &[Quotes, Accents],
        );
        check("Hello World\n", "hello world", (1, 1), &[LetterCase]);
        check(
            "\tlet x = 'a';\n",
            "    let x = \u{2018}a\u{2019};",
            (1, 1),
            &[Indentation, Quotes],
        );
        check("a\nb\nc\n", "2\tb\n3\tc", (2, 3), &[LineNumbers]);
        check("if a {\n  b\n}\n", "if a {\\n  b\\n}", (1, 3), &[Escapes]);
    }

    #[test]
    fn otherwise_the_most_similar_line_is_shown() {
        check(
            "fn alpha() {}\nfn compute_total(items: &[Item]) -> u64 {\n}\n",
            "fn compute_total(item: &[Item]) -> u32 {",
            (2, 2),
            &[],
        );
        assert_eq!(nearest(b"abc\n", Encoding::Utf8, "zzzzzz qqqqq"), None);
        assert_eq!(nearest(b"", Encoding::Utf8, "zz"), None);
    }

    #[test]
    fn the_sentence_reads_well() {
        let answer = nearest(b"x\n\tfoo(1);\n", Encoding::Utf8, "    foo(1);").unwrap();
        assert_eq!(
            answer.to_string(),
            "line 2 differs only in indentation:\n2\t\tfoo(1);"
        );
    }
}
