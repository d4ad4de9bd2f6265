//! A text read as the commands that somebody might make of it, whatever language it is in.
//!
//! It knows no grammar: quotes are read as nothing and as blanks, and every end of a list of words counts as a
//! command. So it finds what `x=(rm -rf a)`, `PS4='$(rm -rf a)'`, `["rm", "-rf", "a"]` or `'1e rm -rf a'` hold
//! without an idea of arrays, prompts, JSON or sed. For detection only.

use std::collections::BTreeSet;

use super::is_deceptive;
use super::word::UNKNOWN;

/// The known values of variables that name directories.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    pub(super) home: String,
    pub(super) here: String,
}

/// The lists of words in `text`; what only the running shell knows stands in them as [`UNKNOWN`].
pub(super) fn lists(text: &str, places: &Places) -> Vec<Vec<String>> {
    let mut found = BTreeSet::new();
    let decoded = decode(text);
    for text in std::iter::once(text).chain(decoded.as_deref()) {
        let text = with_places(text, places);
        for separates in [false, true] {
            let at_home = |word: String| match word.strip_prefix('~') {
                Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                    format!("{}{rest}", places.home)
                }
                _ => word,
            };
            let lists = split(&text, separates).into_iter();
            found.extend(lists.map(|list| list.into_iter().map(at_home).collect::<Vec<String>>()));
        }
    }
    found.into_iter().collect()
}

fn with_places(text: &str, places: &Places) -> String {
    text.replace("${HOME}", &places.home)
        .replace("$HOME", &places.home)
        .replace("${PWD}", &places.here)
        .replace("$PWD", &places.here)
}

/// Cuts the text at everything that separates commands. Quotes and signs of other languages either vanish or
/// separate words.
fn split(text: &str, separates: bool) -> Vec<Vec<String>> {
    let mut lists = Lists::default();
    let mut characters = text.chars().peekable();
    let mut last = ' ';
    while let Some(character) = characters.next() {
        let next = characters.peek().copied();
        match character {
            '\\' if next == Some('\n') => {
                characters.next();
            }
            '\\' | '\'' | '"' if separates => lists.end_word(),
            '\\' | '\'' | '"' => {}
            '&' if matches!(last, '<' | '>') => {
                // `<&-x` closes a descriptor, and `x` is a word.
                lists.end_word();
                if next == Some('-') {
                    characters.next();
                }
            }
            '&' if next == Some('>') => lists.end_word(),
            ';' | '&' | '|' | '\n' | '(' | ')' | '`' => lists.end_list(),
            '<' | '>' => lists.end_word(),
            '$' => match next {
                Some('{') if !separates => {
                    let mut depth = 0_usize;
                    for inner in characters.by_ref() {
                        match inner {
                            '{' => depth += 1,
                            '}' => depth = depth.saturating_sub(1),
                            _ => {}
                        }
                        if depth == 0 {
                            break;
                        }
                    }
                    lists.word.push(UNKNOWN);
                }
                Some('@' | '*' | '#' | '?' | '!' | '0'..='9') => {
                    characters.next();
                    lists.word.push(UNKNOWN);
                }
                Some(first) if first.is_ascii_alphabetic() || first == '_' => {
                    while characters
                        .peek()
                        .is_some_and(|c| c.is_ascii_alphanumeric() || *c == '_')
                    {
                        characters.next();
                    }
                    lists.word.push(UNKNOWN);
                }
                _ => {}
            },
            ',' | '=' | ':' | '[' | ']' | '{' | '}' | '!' | '#' | '@' | '%' if separates => {
                lists.end_word();
            }
            character if character.is_whitespace() => lists.end_word(),
            character if is_deceptive(character) => {}
            other => lists.word.push(other),
        }
        last = character;
    }
    lists.end_list();
    lists.done
}

#[derive(Default)]
struct Lists {
    word: String,
    list: Vec<String>,
    done: Vec<Vec<String>>,
}

impl Lists {
    fn end_word(&mut self) {
        if !self.word.is_empty() {
            self.list.push(std::mem::take(&mut self.word));
        }
    }

    fn end_list(&mut self) {
        self.end_word();
        if !self.list.is_empty() {
            self.done.push(std::mem::take(&mut self.list));
        }
    }
}

/// The text with `\162`, `\x72`, `\u0072`, `\n` and `\t` as the signs they are for `printf`, `echo -e` and `$'…'`;
/// nothing when there are none.
fn decode(text: &str) -> Option<String> {
    let mut decoded = String::with_capacity(text.len());
    let mut changed = false;
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        decoded.push_str(before);
        let (most, digits, radix) = match after.bytes().next() {
            Some(b'0'..=b'7') => (if after.starts_with('0') { 4 } else { 3 }, after, 8),
            Some(b'x') => (2, after.get(1..).unwrap_or_default(), 16),
            Some(b'u') => (4, after.get(1..).unwrap_or_default(), 16),
            Some(b'U') => (8, after.get(1..).unwrap_or_default(), 16),
            Some(sign @ (b'n' | b't')) => {
                decoded.push(if sign == b'n' { '\n' } else { '\t' });
                changed = true;
                rest = after.get(1..).unwrap_or_default();
                continue;
            }
            _ => {
                decoded.push('\\');
                rest = after;
                continue;
            }
        };
        let length = digits
            .chars()
            .take(most)
            .take_while(|digit| digit.is_digit(radix))
            .count();
        let value = digits
            .get(..length)
            .and_then(|digits| u32::from_str_radix(digits, radix).ok());
        // An octal number above a byte wraps, as in bash.
        let sign =
            value.and_then(|value| char::from_u32(if radix == 8 { value & 0xff } else { value }));
        match sign {
            Some(sign) => {
                decoded.push(sign);
                changed = true;
                rest = digits.get(length..).unwrap_or_default();
            }
            None => {
                decoded.push('\\');
                rest = after;
            }
        }
    }
    decoded.push_str(rest);
    changed.then_some(decoded)
}

#[cfg(test)]
mod tests {
    use super::{Places, UNKNOWN, lists};

    fn check(text: &str, expected: &str) {
        let places = Places {
            home: "/home/u".to_owned(),
            here: "/p".to_owned(),
        };
        let expected: Vec<String> = expected.split(' ').map(str::to_owned).collect();
        let known = |list: &Vec<String>| -> Vec<String> {
            list.iter().map(|word| word.replace(UNKNOWN, "")).collect()
        };
        assert!(
            lists(text, &places)
                .iter()
                .any(|list| known(list).ends_with(&expected)),
            "{text}: {:?}",
            lists(text, &places)
        );
    }

    #[test]
    fn a_command_is_found_however_it_is_wrapped() {
        for text in [
            "rm -f x",
            "set -- 'r'm -f x",
            "x=(rm -f x)",
            "[[ -v 'a[$(rm -f x)0]' ]]",
            "{rm,-f,x}",
            "[\"rm\", \"-f\", \"x\"]",
            "PS4='$(rm -f x)'",
            "r${z}m -f x",
            "${z:=rm} -f x",
            "env <&-rm -f x",
            "r\\\nm -f x",
            "$'\\162m' -f x",
            "printf '\\x72m -f x' | sh",
            "printf 'x:\\n\\trm -f x\\n' > Makefile",
            "--checkpoint-action=exec=rm\\ -f\\ x",
            "{fd}>o rm -f x",
            "'alias.x=!rm -f x'",
        ] {
            check(text, "rm -f x");
        }
        check("rm -rf \"$HOME\"", "rm -rf /home/u");
        check("rm -rf ${PWD}", "rm -rf /p");
        check("PS4='$(rm -rf ~)'", "rm -rf /home/u");
    }
}
