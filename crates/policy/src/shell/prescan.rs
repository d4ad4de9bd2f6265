//! Checks before any parser sees the script: size, nesting, characters that deceive.
//!
//! The parser behind this scan is exponential in open parentheses and `case`, and recursive in every
//! other construct. The counts here ignore quoting on purpose: a scan that tried to follow quotes could
//! be talked into counting too little, and then the parser would hang. Counting too much only asks.
//! The parser also never ends where a here-document that ends with an empty line meets the end of the
//! text.

use agent_text::is_part_of_emoji;
use std::fmt;

/// Longer scripts are not analysed; they are asked about.
pub const MAX_BYTES: usize = 10_000;
/// Open parentheses at one point of the text, quoted or not.
const MAX_PARENTHESES: usize = 8;
/// `case` in command position; each one doubles the parser's work.
const MAX_CASES: usize = 5;
/// Open braces and compound commands at one point of the text.
const MAX_BLOCKS: usize = 32;

/// Reason a script is not even parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    TooLong {
        bytes: usize,
    },
    TooDeep,
    /// `<<` with nothing behind it that could end the document.
    UnnamedDocument {
        offset: usize,
    },
    /// A character that a terminal hides or that reorders text, with its position in bytes.
    Deceptive {
        character: char,
        offset: usize,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes } => write!(
                formatter,
                "the script has {bytes} bytes; at most {MAX_BYTES} are analysed"
            ),
            Self::TooDeep => formatter.write_str("the script is nested too deeply to analyse"),
            Self::UnnamedDocument { offset } => write!(
                formatter,
                "the script has a here-document without a name at byte {offset}"
            ),
            Self::Deceptive { character, offset } => write!(
                formatter,
                "the script contains the invisible or control character U+{:04X} at byte {offset}",
                u32::from(*character)
            ),
        }
    }
}

/// Looks at every character once. The first thing found is reported.
pub fn prescan(script: &str) -> Result<(), Refusal> {
    if let Some((character, offset)) = deceptive(script) {
        return Err(Refusal::Deceptive { character, offset });
    }
    if script.len() > MAX_BYTES {
        return Err(Refusal::TooLong {
            bytes: script.len(),
        });
    }
    if is_too_deep(script) {
        return Err(Refusal::TooDeep);
    }
    if let Some(offset) = unnamed_document(script) {
        return Err(Refusal::UnnamedDocument { offset });
    }
    Ok(())
}

/// Position of a `<<` whose word may be empty: nothing, or nothing but quotes. A `<<<` takes any
/// word.
fn unnamed_document(script: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = script.get(at..)?.find("<<") {
        let offset = at + found;
        at = offset + 2;
        let behind = script.get(at..)?;
        if behind.starts_with('<') {
            at += 1;
            continue;
        }
        let word = behind.strip_prefix('-').unwrap_or(behind);
        // Inside `$(…)` the second blank is the end of an empty word for the parser.
        let word = word.strip_prefix([' ', '\t']).unwrap_or(word);
        let inside = word.trim_start_matches(['\'', '"', '\\', '$']);
        let is_name = |c: char| !c.is_whitespace() && !"&();|<>`".contains(c);
        if !inside.starts_with(is_name) {
            return Some(offset);
        }
    }
    None
}

/// True if `character` has no width, reorders its neighbours, acts on a terminal, or looks like a blank without being
/// one to the shell.
pub fn is_deceptive(character: char) -> bool {
    agent_text::invisible::invisible_kind(character).is_some()
        || matches!(character, '\u{FFFC}' | '\u{FFFD}')
}

/// The first character that deceives where it stands. What belongs to an emoji shows as one, and a blank that does
/// not break is no riddle inside quotes.
fn deceptive(script: &str) -> Option<(char, usize)> {
    if script.is_ascii()
        && !script
            .bytes()
            .any(|byte| byte < b' ' && !b"\t\n".contains(&byte))
    {
        return script.find('\u{7f}').map(|offset| ('\u{7f}', offset));
    }
    let mut quote = None;
    let mut escaped = false;
    let mut before = ' ';
    let mut characters = script.char_indices().peekable();
    while let Some((offset, character)) = characters.next() {
        let after = characters.peek().map(|(_, after)| *after);
        let is_fine = match character {
            '\u{00A0}' | '\u{202F}' => quote.is_some(),
            joiner if is_part_of_emoji(before, joiner, after) => true,
            other => !is_deceptive(other),
        };
        if !is_fine {
            return Some((character, offset));
        }
        match (quote, character) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), close) if open == close => quote = None,
            _ => {}
        }
        before = character;
    }
    None
}

fn is_too_deep(script: &str) -> bool {
    let mut parentheses = 0usize;
    let mut braces = 0usize;
    let mut blocks = 0usize;
    let mut cases = 0usize;
    let mut backticks = 0usize;
    let mut word_start = None;
    // A keyword counts where a command may begin, so that prose in a here-document does not.
    let mut command_may_begin = true;
    for (offset, byte) in script.bytes().chain(std::iter::once(b'\n')).enumerate() {
        let is_word_byte = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'!');
        if is_word_byte {
            word_start.get_or_insert(offset);
            continue;
        }
        if let Some(start) = word_start.take() {
            match script.get(start..offset).unwrap_or_default() {
                "case" if command_may_begin => {
                    blocks += 1;
                    cases += 1;
                }
                "if" | "while" | "until" | "for" | "select" | "function" | "coproc" | "time"
                | "!"
                    if command_may_begin =>
                {
                    blocks += 1;
                }
                "then" | "do" | "else" | "elif" | "in" => command_may_begin = true,
                "fi" | "done" | "esac" => {
                    blocks = blocks.saturating_sub(1);
                    command_may_begin = false;
                }
                _ => command_may_begin = false,
            }
        }
        match byte {
            b'(' => parentheses += 1,
            b')' => parentheses = parentheses.saturating_sub(1),
            b'{' => braces += 1,
            b'}' => braces = braces.saturating_sub(1),
            b'`' => backticks += 1,
            _ => {}
        }
        match byte {
            b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'{' | b'`' => command_may_begin = true,
            b' ' | b'\t' => {}
            _ => command_may_begin = false,
        }
        if parentheses > MAX_PARENTHESES
            || cases > MAX_CASES
            || braces > MAX_BLOCKS
            || blocks > MAX_BLOCKS
            || backticks > 2 * MAX_BLOCKS
        {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyday_scripts_pass() {
        for script in [
            "git log --format='%h (%an) %s' | grep -E '((a|b)(c|d))'",
            "jq 'if .a then .b else .c end' a.json",
            "cat <<'E'\nfor one\nif two\ncase three\nE\n",
            "cat << \"E\"\nE\ncat <<-\\X\nX\n",
            "wc <<< '' && wc <<<\"\" && echo $((1 << 2))",
        ] {
            assert_eq!(prescan(script), Ok(()), "{script}");
        }
    }

    #[test]
    fn what_would_stall_the_parser_does_not_reach_it() {
        for script in [
            "(".repeat(20),
            "( ".repeat(200),
            "case x in x) ".repeat(12),
            "if ".repeat(3000),
            "! ".repeat(3000),
            "{ ".repeat(3000),
            "`".repeat(3000),
            "while case (".repeat(40),
        ] {
            assert_eq!(prescan(&script), Err(Refusal::TooDeep), "{:.40}", script);
        }
    }

    /// The first four kept the parser busy for ever.
    #[test]
    fn a_document_without_a_name_does_not_reach_the_parser() {
        for (script, offset) in [
            ("$(<< (i ", 2),
            ("$(<<  a ", 2),
            ("cat <<'' ", 4),
            ("cat <<- \"\" ", 4),
            ("cat <<$''", 4),
            ("ls <<<a; cat <<'' '", 13),
            ("x <<<<< (i ", 5),
            ("cat <<", 4),
        ] {
            let refused = Err(Refusal::UnnamedDocument { offset });
            assert_eq!(prescan(script), refused, "{script}");
        }
    }

    #[test]
    fn hidden_characters_are_named() {
        for character in [
            '\u{1b}', '\r', '\u{7}', '\u{202e}', '\u{200b}', '\u{a0}', '\u{0}',
        ] {
            assert_eq!(
                prescan(&format!("ls{character}")),
                Err(Refusal::Deceptive {
                    character,
                    offset: 2
                })
            );
        }
    }
}
