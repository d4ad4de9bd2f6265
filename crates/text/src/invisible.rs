//! The one table of characters that show nothing, hide text or change the order in which it is shown.

/// Kind of a character that is not simply seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invisible {
    /// Control character: C0 without tab and newline, DEL, C1.
    Control,
    /// Bidirectional mark, line or paragraph separator: what follows is shown elsewhere.
    Reordering,
    /// Zero-width, filler, annotation or tag character: takes no room, or a blank's.
    Hidden,
    /// Variation selector: chooses another form of the character before it.
    Variation,
    /// Blank that is not the space bar's: looks like one and separates nothing for a shell.
    Blank,
}

use Invisible::{Blank, Control, Hidden, Reordering, Variation};

/// First and last character of each range, in order.
const TABLE: &[(char, char, Invisible)] = &[
    ('\0', '\u{8}', Control),
    ('\u{b}', '\u{1f}', Control),
    ('\u{7f}', '\u{9f}', Control),
    ('\u{a0}', '\u{a0}', Blank),
    ('\u{ad}', '\u{ad}', Hidden),
    ('\u{34f}', '\u{34f}', Hidden),
    ('\u{61c}', '\u{61c}', Reordering),
    ('\u{115f}', '\u{1160}', Hidden),
    ('\u{1680}', '\u{1680}', Blank),
    ('\u{17b4}', '\u{17b5}', Hidden),
    ('\u{180b}', '\u{180f}', Hidden),
    ('\u{2000}', '\u{200a}', Blank),
    ('\u{200b}', '\u{200d}', Hidden),
    ('\u{200e}', '\u{200f}', Reordering),
    ('\u{2028}', '\u{202e}', Reordering),
    ('\u{202f}', '\u{202f}', Blank),
    ('\u{205f}', '\u{205f}', Blank),
    ('\u{2060}', '\u{2065}', Hidden),
    ('\u{2066}', '\u{2069}', Reordering),
    ('\u{206a}', '\u{206f}', Hidden),
    ('\u{3000}', '\u{3000}', Blank),
    ('\u{3164}', '\u{3164}', Hidden),
    ('\u{fe00}', '\u{fe0f}', Variation),
    ('\u{feff}', '\u{feff}', Hidden),
    ('\u{ffa0}', '\u{ffa0}', Hidden),
    ('\u{fff0}', '\u{fffb}', Hidden),
    ('\u{1d173}', '\u{1d17a}', Hidden),
    ('\u{e0000}', '\u{e0fff}', Hidden),
];

/// First bytes of the characters of [`TABLE`] in UTF-8, so that other text is passed at a look.
const FIRST_BYTES: [bool; 256] = {
    let mut found = [false; 256];
    let mut row = 0;
    while row < TABLE.len() {
        let mut code = TABLE[row].0 as u32;
        while code <= TABLE[row].1 as u32 {
            let first = if code < 0x80 {
                code
            } else if code < 0x800 {
                0xC0 | (code >> 6)
            } else if code < 0x1_0000 {
                0xE0 | (code >> 12)
            } else {
                0xF0 | (code >> 18)
            };
            found[first as usize] = true;
            code += 1;
        }
        row += 1;
    }
    found
};

/// Kind of `character` if it is not simply seen; none for tab, newline and everything printable.
#[must_use]
pub fn invisible_kind(character: char) -> Option<Invisible> {
    if (' '..='~').contains(&character) {
        return None;
    }
    let row = TABLE.partition_point(|(_, last, _)| *last < character);
    TABLE
        .get(row)
        .filter(|(first, _, _)| *first <= character)
        .map(|(_, _, why)| *why)
}

/// True if `character` does something other than being seen. Odd blanks are seen as blanks.
#[must_use]
pub fn is_hidden(character: char) -> bool {
    invisible_kind(character).is_some_and(|why| why != Blank)
}

/// True if a terminal that is given `character` may move its cursor or show text in another order.
#[must_use]
pub fn acts_on_terminal(character: char) -> bool {
    matches!(invisible_kind(character), Some(Control | Reordering))
        || matches!(character, '\t' | '\n')
}

/// The first hidden character of `text` at or behind `from` that is not part of an emoji.
pub(crate) fn first_hidden(text: &str, from: usize) -> Option<(usize, char)> {
    let bytes = text.as_bytes();
    let mut at = from;
    while let Some(found) = bytes
        .get(at..)?
        .iter()
        .position(|byte| FIRST_BYTES[usize::from(*byte)])
    {
        at += found;
        let mut behind = text.get(at..)?.chars();
        let character = behind.next()?;
        if is_hidden(character) {
            let previous = text[..at].chars().next_back().unwrap_or(' ');
            if !is_part_of_emoji(previous, character, behind.next()) {
                return Some((at, character));
            }
        }
        at += character.len_utf8();
    }
    None
}

/// True if `character`, which joins or colours emoji and is invisible elsewhere, stands with one.
#[must_use]
pub fn is_part_of_emoji(previous: char, character: char, next: Option<char>) -> bool {
    match character {
        '\u{fe0e}' | '\u{fe0f}' => {
            // Keycaps are digits with a frame.
            let is_key = matches!(previous, '0'..='9' | '#' | '*') && next == Some('\u{20e3}');
            (is_pictograph(previous) && invisible_kind(previous).is_none()) || is_key
        }
        '\u{200d}' => is_pictograph(previous) && next.is_some_and(is_pictograph),
        _ => false,
    }
}

/// True if `character` is shown as a picture, or chooses that form.
fn is_pictograph(character: char) -> bool {
    matches!(character,
        '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{3030}' | '\u{303d}'
        | '\u{3297}' | '\u{3299}' | '\u{2190}'..='\u{21ff}' | '\u{2300}'..='\u{23ff}' | '\u{2460}'..='\u{24ff}'
        | '\u{25a0}'..='\u{27bf}' | '\u{2900}'..='\u{297f}' | '\u{2b00}'..='\u{2bff}' | '\u{fe0f}'
        | '\u{1f000}'..='\u{1faff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        for pair in TABLE.windows(2) {
            assert!(pair[0].1 < pair[1].0, "{pair:?}");
        }
        for (first, last, _) in TABLE {
            assert!(first <= last);
        }
    }

    #[test]
    fn visible_characters_have_no_kind() {
        for seen in "aé漢ᠠ𝄞\t\n–“”".chars() {
            assert_eq!(invisible_kind(seen), None, "{seen:?}");
        }
        for control in (0..=0x9f).filter_map(char::from_u32) {
            let expected = control.is_control() && !matches!(control, '\t' | '\n');
            assert_eq!(is_hidden(control), expected, "{control:?}");
        }
    }

    /// Unicode's default ignorable code points and separators, as far as one may meet them.
    #[test]
    fn known_tricks_are_in_the_table() {
        for trick in [
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{1160}',
            '\u{17b4}',
            '\u{180e}',
            '\u{200b}',
            '\u{200c}',
            '\u{200d}',
            '\u{200e}',
            '\u{2028}',
            '\u{2029}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2064}',
            '\u{2066}',
            '\u{2069}',
            '\u{206f}',
            '\u{3164}',
            '\u{fe00}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fff9}',
            '\u{1d173}',
            '\u{e0001}',
            '\u{e0041}',
            '\u{e01ef}',
        ] {
            assert!(is_hidden(trick), "{trick:?}");
            assert_eq!(first_hidden(&format!("a{trick}b"), 0), Some((1, trick)));
        }
        for blank in ['\u{a0}', '\u{1680}', '\u{2003}', '\u{202f}', '\u{3000}'] {
            assert_eq!(invisible_kind(blank), Some(Blank));
        }
        for reordering in ['\u{202e}', '\u{2067}', '\u{200f}', '\u{61c}', '\u{2028}'] {
            assert!(acts_on_terminal(reordering));
        }
        assert!(!acts_on_terminal('\u{200d}') && !acts_on_terminal('é'));
    }

    #[test]
    fn emoji_stay_whole_and_nothing_hides_behind_them() {
        for whole in [
            "⚠\u{fe0f} careful",
            "✔\u{fe0e} done",
            "👩\u{200d}💻",
            "❤\u{fe0f}\u{200d}🔥",
            "1\u{fe0f}\u{20e3}",
            "👨🏽\u{200d}🚀",
        ] {
            assert_eq!(first_hidden(whole, 0), None, "{whole}");
        }
        for (text, hidden) in [
            ("a\u{200d}b", '\u{200d}'),
            ("b\u{fe0f}", '\u{fe0f}'),
            ("⚠\u{fe0f}\u{fe0f}", '\u{fe0f}'),
            ("💻\u{200d}x", '\u{200d}'),
            ("1\u{fe0f}x", '\u{fe0f}'),
        ] {
            assert_eq!(
                first_hidden(text, 0).map(|found| found.1),
                Some(hidden),
                "{text}"
            );
        }
    }
}
