//! Foreign text made harmless: nothing a model, a command or a file says reaches the terminal as
//! anything but characters.
//!
//! [`content`] is for transcripts: escape sequences are dropped, what else could move the cursor,
//! hide text or reorder it is shown as a mark. [`exact`] is for questions: every byte that matters
//! is visible, because somebody is about to agree to it.

use agent_text::{is_hidden, is_part_of_emoji};

/// A piece of a line of [`exact`] text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub text: String,
    /// Whether this stands for something that is not there to see, such as `⟨U+202E⟩`.
    pub mark: bool,
}

/// Text for the transcript. The result holds printable characters and newlines only.
#[must_use]
pub fn content(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut column = 0usize;
    let mut rest = text.chars().peekable();
    let mut previous = ' ';
    while let Some(character) = rest.next() {
        let before = out.len();
        match character {
            '\n' => {
                out.push('\n');
                column = 0;
                previous = character;
                continue;
            }
            // Programs that redraw a line send a lone carriage return; as a line break nothing
            // that was printed is hidden by what came after it.
            '\r' => {
                if rest.peek() != Some(&'\n') && rest.peek().is_some() && column > 0 {
                    out.push('\n');
                    column = 0;
                }
                continue;
            }
            '\t' => {
                let spaces = 4 - column % 4;
                out.extend(std::iter::repeat_n(' ', spaces));
                column += spaces;
                continue;
            }
            '\u{1b}' => {
                if skip_sequence(&mut rest) == Sequence::Other {
                    out.push('␛');
                }
            }
            '\u{9b}' => {
                if skip_control_sequence(&mut rest) == Sequence::Other {
                    out.push('␛');
                }
            }
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => {
                skip_string(&mut rest);
                out.push('␛');
            }
            // Emoji are joined by these; after anything else they only hide.
            _ if is_part_of_emoji(previous, character, rest.peek().copied()) => out.push(character),
            _ => push_visible(&mut out, character),
        }
        previous = character;
        column += out[before..].chars().count();
    }
    out
}

/// One line of foreign text for a place that has only one: newlines become `⏎`.
#[must_use]
pub fn one_line(text: &str) -> String {
    let cleaned = content(text.trim_end_matches(['\n', '\r']));
    if cleaned.contains('\n') {
        cleaned.replace('\n', "⏎")
    } else {
        cleaned
    }
}

/// One line of foreign text as a title: long runs of blanks and empty lines are counted, so that they
/// cannot push what comes after them out of sight.
#[must_use]
pub fn title(text: &str) -> String {
    let line = one_line(text);
    let mut out = String::with_capacity(line.len());
    let mut rest = line.as_str();
    while let Some(first) = rest.chars().next() {
        let run = rest.chars().take_while(|c| *c == first).count();
        let taken = run * first.len_utf8();
        match first {
            ' ' if run > 8 => out.push_str(&format!("⟨{run} spaces⟩")),
            '⏎' if run > 3 => out.push_str(&format!("⏎⟨{} blank lines⟩", run - 1)),
            _ => out.push_str(&rest[..taken]),
        }
        rest = &rest[taken..];
    }
    out
}

/// Text somebody has to judge: control characters, invisible and look-alike characters are written
/// out, long runs of blanks are counted, nothing is dropped.
#[must_use]
pub fn exact(text: &str) -> Vec<Vec<Piece>> {
    let mut lines: Vec<Vec<Piece>> = Vec::new();
    let mut blank_lines = 0usize;
    for line in text.split('\n') {
        if line.is_empty() {
            blank_lines += 1;
            continue;
        }
        push_blank_lines(&mut lines, blank_lines);
        blank_lines = 0;
        lines.push(exact_line(line));
    }
    // A final newline ends the last line and is not a line of its own.
    push_blank_lines(&mut lines, blank_lines.saturating_sub(1));
    lines
}

fn push_blank_lines(lines: &mut Vec<Vec<Piece>>, count: usize) {
    if count > 2 {
        lines.push(vec![mark(format!("⟨{count} blank lines⟩"))]);
    } else {
        lines.extend(std::iter::repeat_n(Vec::new(), count));
    }
}

fn exact_line(line: &str) -> Vec<Piece> {
    let characters: Vec<char> = line.chars().collect();
    let mut pieces: Vec<Piece> = Vec::new();
    let mut at = 0;
    while at < characters.len() {
        let character = characters[at];
        if character == ' ' {
            let run = characters[at..].iter().take_while(|c| **c == ' ').count();
            if run > 8 {
                pieces.push(mark(format!("⟨{run} spaces⟩")));
            } else {
                push_text(&mut pieces, &" ".repeat(run));
            }
            at += run;
            continue;
        }
        match escape_of(character) {
            Some(escape) => pieces.push(mark(escape)),
            // A blank in the mark would be one more thing that cannot be told apart.
            None if looks_like_another(&characters, at) && character.is_whitespace() => {
                pieces.push(mark(format!("⟨U+{:04X}⟩", u32::from(character))));
            }
            None if looks_like_another(&characters, at) => pieces.push(mark(format!(
                "⟨{character} U+{:04X}⟩",
                u32::from(character)
            ))),
            None => push_text(&mut pieces, character.encode_utf8(&mut [0; 4])),
        }
        at += 1;
    }
    pieces
}

fn mark(text: String) -> Piece {
    Piece { text, mark: true }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    push_piece(pieces, text, false);
}

/// Adds to the last piece when it is of the same kind.
pub(crate) fn push_piece(pieces: &mut Vec<Piece>, text: &str, mark: bool) {
    match pieces.last_mut() {
        Some(last) if last.mark == mark => last.text.push_str(text),
        _ => pieces.push(Piece {
            text: text.to_owned(),
            mark,
        }),
    }
}

/// How `character` is written out in [`exact`] text, if it must be.
fn escape_of(character: char) -> Option<String> {
    match character {
        '\t' => Some("\\t".into()),
        '\r' => Some("\\r".into()),
        '\0'..='\u{1f}' | '\u{7f}' => Some(format!("\\x{:02x}", u32::from(character))),
        _ if is_hidden(character) => Some(format!("⟨U+{:04X}⟩", u32::from(character))),
        _ => None,
    }
}

/// A character that passes for an ASCII one: odd spaces, dashes, slashes and quotes anywhere, and
/// foreign letters inside a word that has ASCII letters too.
fn looks_like_another(characters: &[char], at: usize) -> bool {
    let character = characters[at];
    if character.is_ascii() {
        return false;
    }
    match character {
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => true,
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{2044}' | '\u{2215}' | '\u{29f8}' => true,
        '\u{ff01}'..='\u{ff5e}' | '\u{1d400}'..='\u{1d7ff}' | '\u{37e}' => true,
        _ if character.is_alphabetic() => {
            let is_word = |c: &char| c.is_alphanumeric();
            let before = characters[..at].iter().rev().take_while(|c| is_word(c));
            let after = characters[at + 1..].iter().take_while(|c| is_word(c));
            let foreign = matches!(character,
                '\u{370}'..='\u{52f}' | '\u{13a0}'..='\u{13ff}' | '\u{2c80}'..='\u{2cff}' | '\u{a640}'..='\u{a69f}');
            foreign && before.chain(after).any(char::is_ascii_alphabetic)
        }
        _ => false,
    }
}

fn push_visible(out: &mut String, character: char) {
    match character {
        '\0'..='\u{1f}' => out.extend(char::from_u32(0x2400 + u32::from(character))),
        '\u{7f}' => out.push('␡'),
        _ if is_hidden(character) => {
            out.push_str(&format!("⟨U+{:04X}⟩", u32::from(character)));
        }
        _ => out.push(character),
    }
}

#[derive(PartialEq, Eq)]
enum Sequence {
    Colour,
    Other,
}

type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_sequence(rest: &mut Characters<'_>) -> Sequence {
    match rest.peek() {
        Some('[') => {
            rest.next();
            skip_control_sequence(rest)
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            rest.next();
            skip_string(rest);
            Sequence::Other
        }
        _ => {
            while rest.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            rest.next_if(|c| matches!(c, '0'..='~'));
            Sequence::Other
        }
    }
}

fn skip_control_sequence(rest: &mut Characters<'_>) -> Sequence {
    // A sequence that goes on for longer than any real one is text that wants to be swallowed.
    let mut left = 64;
    while left > 0 && rest.next_if(|c| matches!(c, ' '..='?')).is_some() {
        left -= 1;
    }
    match rest.next_if(|c| matches!(c, '@'..='~')) {
        Some('m') => Sequence::Colour,
        _ => Sequence::Other,
    }
}

/// Skips to the string's terminator, or to the end of the line: an unterminated string must not
/// swallow what follows.
fn skip_string(rest: &mut Characters<'_>) {
    while let Some(character) = rest.next_if(|c| *c != '\n') {
        match character {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' => {
                rest.next_if_eq(&'\\');
                return;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(content(text), expected, "{text:?}");
    }

    fn check_exact(text: &str, expected: &str) {
        let lines: Vec<String> = exact(text)
            .iter()
            .map(|line| line.iter().map(|piece| piece.text.as_str()).collect())
            .collect();
        assert_eq!(lines.join("\n"), expected, "{text:?}");
    }

    #[test]
    fn sequences_are_dropped_and_the_rest_stays() {
        check("plain é 漢字 👩‍🔬 ❤️", "plain é 漢字 👩‍🔬 ❤️");
        check("\x1b[31mred\x1b[0m", "red");
        check("a\x1b[2Jb\x1b[10;10Hc", "a␛b␛c");
        check("t\x1b]0;title\x07x\x1b]8;;http://a\x1b\\y", "t␛x␛y");
        check("\x1bPq#0\x1b\\z\u{9b}2Jq\u{9d}0;t\u{9c}r", "␛z␛q␛r");
        check("open \x1b]52;c;AAAA\nnext", "open ␛\nnext");
        check("a\tb", "a   b");
        check("10%\r20%\r\ndone\r\n", "10%\n20%\ndone\n");
        check("x\u{8}y\u{7f}\0", "x␈y␡␀");
        check("a\u{202e}b\u{200b}c\u{feff}", "a⟨U+202E⟩b⟨U+200B⟩c⟨U+FEFF⟩");
        check("\x1b", "␛");
        check("\x1b[", "␛");
    }

    #[test]
    fn what_is_judged_is_written_out() {
        check_exact("rm -rf\tx\x1b[2K", "rm -rf\\tx\\x1b[2K");
        check_exact("a          b", "a⟨10 spaces⟩b");
        check_exact("a\n\n\n\n\nb\n", "a\n⟨4 blank lines⟩\nb");
        check_exact("p\u{430}ypal", "p⟨а U+0430⟩ypal");
        check_exact("echo привет", "echo привет");
        check_exact("ls\u{a0}-l \u{2013}rf", "ls⟨U+00A0⟩-l ⟨– U+2013⟩rf");
        check_exact("x\u{202e}y\r\n", "x⟨U+202E⟩y\\r");
    }

    #[test]
    fn nothing_that_moves_the_cursor_survives() {
        for number in 0..0x3000u32 {
            let Some(character) = char::from_u32(number) else {
                continue;
            };
            for text in [format!("a{character}b"), format!("\x1b{character}b")] {
                let shown = content(&text);
                assert!(
                    !shown.chars().any(|c| c != '\n' && c.is_control()),
                    "U+{number:04X} gives {shown:?}"
                );
            }
        }
    }
}
