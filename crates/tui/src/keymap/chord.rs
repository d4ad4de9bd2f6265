//! One key as it is pressed, as it is written in the settings, and as it is shown.

use std::fmt;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A key with what is held beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chord {
    code: KeyCode,
    modifiers: KeyModifiers,
}

/// Keys by their names in the settings and on the screen.
const NAMED: &[(&str, &str, KeyCode)] = &[
    ("enter", "Enter", KeyCode::Enter),
    ("tab", "Tab", KeyCode::Tab),
    ("esc", "Esc", KeyCode::Esc),
    ("space", "Space", KeyCode::Char(' ')),
    ("backspace", "Backspace", KeyCode::Backspace),
    ("delete", "Delete", KeyCode::Delete),
    ("insert", "Insert", KeyCode::Insert),
    ("up", "Up", KeyCode::Up),
    ("down", "Down", KeyCode::Down),
    ("left", "Left", KeyCode::Left),
    ("right", "Right", KeyCode::Right),
    ("home", "Home", KeyCode::Home),
    ("end", "End", KeyCode::End),
    ("pgup", "PgUp", KeyCode::PageUp),
    ("pgdn", "PgDn", KeyCode::PageDown),
];

/// Letters that a terminal sends another key for when Ctrl is held.
const SAME_AS: &[(char, &str)] = &[('i', "tab"), ('m', "enter"), ('h', "backspace")];

impl Chord {
    /// A key with Ctrl.
    #[must_use]
    pub const fn control(letter: char) -> Self {
        Self {
            code: KeyCode::Char(letter),
            modifiers: KeyModifiers::CONTROL,
        }
    }

    /// The key of an event. That Shift was held for a letter is told by the letter.
    #[must_use]
    pub fn of(key: KeyEvent) -> Self {
        let mut modifiers =
            key.modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT);
        if matches!(key.code, KeyCode::Char(_) | KeyCode::BackTab) {
            modifiers -= KeyModifiers::SHIFT;
        }
        Self {
            code: key.code,
            modifiers,
        }
    }

    /// The event of this key.
    #[must_use]
    pub fn event(self) -> KeyEvent {
        KeyEvent::new(self.code, self.modifiers)
    }

    /// The character that this key writes, if it does nothing else.
    #[must_use]
    pub fn character(self) -> Option<char> {
        match self.code {
            KeyCode::Char(character) if self.modifiers.is_empty() => Some(character),
            _ => None,
        }
    }

    /// Understands `ctrl-s`, `alt-enter`, `shift-tab`, `f2`, `?`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut modifiers = KeyModifiers::NONE;
        let mut rest = text;
        while let Some((word, key)) = rest
            .split_once('-')
            .filter(|(word, key)| !word.is_empty() && !key.is_empty())
        {
            modifiers |= match word.to_ascii_lowercase().as_str() {
                "ctrl" => KeyModifiers::CONTROL,
                "alt" => KeyModifiers::ALT,
                "shift" => KeyModifiers::SHIFT,
                _ => {
                    return Err(format!(
                        "`{text}` is not a key: write it like ctrl-s, alt-enter or f2"
                    ));
                }
            };
            rest = key;
        }
        let name = rest.to_ascii_lowercase();
        let named = NAMED.iter().find(|(known, ..)| *known == name);
        let number = name
            .strip_prefix('f')
            .and_then(|number| number.parse().ok());
        let mut letters = rest.chars();
        let code = match (named, number, letters.next(), letters.next()) {
            (Some((.., code)), ..) => *code,
            (None, Some(number @ 1..=12), ..) => KeyCode::F(number),
            (None, _, Some(letter), None) if !letter.is_control() => KeyCode::Char(letter),
            _ => {
                return Err(format!(
                    "`{text}` is not a key: write it like ctrl-s, alt-enter or f2"
                ));
            }
        };
        let has = |modifier| modifiers.contains(modifier);
        let code = match code {
            KeyCode::Tab if has(KeyModifiers::SHIFT) => KeyCode::BackTab,
            KeyCode::Char(letter) if has(KeyModifiers::CONTROL) => {
                let letter = letter.to_ascii_lowercase();
                if let Some((_, same)) = SAME_AS.iter().find(|(same, _)| *same == letter) {
                    return Err(format!("`{text}` is the same as `{same}` to a terminal"));
                }
                KeyCode::Char(letter)
            }
            KeyCode::Char(letter) if has(KeyModifiers::SHIFT) => {
                KeyCode::Char(letter.to_ascii_uppercase())
            }
            code => code,
        };
        Ok(Self::of(KeyEvent::new(code, modifiers)))
    }
}

/// As it is shown: `Ctrl-S`.
impl fmt::Display for Chord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (modifier, word) in [
            (KeyModifiers::CONTROL, "Ctrl-"),
            (KeyModifiers::ALT, "Alt-"),
            (KeyModifiers::SHIFT, "Shift-"),
        ] {
            if self.modifiers.contains(modifier) {
                f.write_str(word)?;
            }
        }
        let named = NAMED.iter().find(|(.., code)| *code == self.code);
        match (named, self.code) {
            (Some((_, shown, _)), _) => f.write_str(shown),
            (None, KeyCode::BackTab) => f.write_str("Shift-Tab"),
            (None, KeyCode::F(number)) => write!(f, "F{number}"),
            (None, KeyCode::Char(letter)) if self.modifiers.is_empty() => write!(f, "{letter}"),
            (None, KeyCode::Char(letter)) => write!(f, "{}", letter.to_uppercase()),
            (None, other) => write!(f, "{other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_shown() {
        let check = |text: &str, shown: &str| {
            let chord = Chord::parse(text).unwrap();
            assert_eq!(chord.to_string(), shown, "{text}");
            assert_eq!(Chord::of(chord.event()), chord, "{text}");
        };
        check("ctrl-s", "Ctrl-S");
        check("Ctrl-S", "Ctrl-S");
        check("alt-enter", "Alt-Enter");
        check("ctrl-alt-x", "Ctrl-Alt-X");
        check("shift-tab", "Shift-Tab");
        check("f12", "F12");
        check("pgup", "PgUp");
        check("?", "?");
        check("y", "y");
        check("shift-y", "Y");
        check("-", "-");
        check("ctrl--", "Ctrl--");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in [
            "", "ctrl-", "hyper-x", "f13", "enterr", "ab", "ctrl-m", "ctrl-i", "\u{1b}",
        ] {
            assert!(Chord::parse(text).is_err(), "{text:?}");
        }
    }
}
