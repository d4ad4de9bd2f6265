//! The vim keys people have in their fingers: modes, motions, and `d`, `c`, `y` with a motion.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::editor::Editor;

/// The vim state of an editor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vim {
    normal: bool,
    operator: Option<char>,
    before: Option<char>,
}

impl Vim {
    /// Back to typing.
    pub fn insert(&mut self) {
        *self = Self::default();
    }

    /// Whether keys are commands.
    #[must_use]
    pub fn is_normal(&self) -> bool {
        self.normal
    }

    /// Handles a key; false when it means what it means without vim.
    pub(super) fn key(&mut self, editor: &mut Editor, key: KeyEvent, columns: usize) -> bool {
        if key
            .modifiers
            .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
        {
            return false;
        }
        if !self.normal {
            if key.code == KeyCode::Esc {
                self.normal = true;
                editor.left();
                return true;
            }
            return false;
        }
        let KeyCode::Char(character) = key.code else {
            self.operator = None;
            return false;
        };
        if let Some(operator) = self.operator.take() {
            self.operate(editor, operator, character);
            return true;
        }
        let before = self.before.take();
        match character {
            'i' => self.normal = false,
            'a' => {
                editor.right();
                self.normal = false;
            }
            'I' => {
                editor.move_to(editor.line_start());
                self.normal = false;
            }
            'A' => {
                editor.move_to(editor.line_end());
                self.normal = false;
            }
            'o' => {
                editor.move_to(editor.line_end());
                editor.insert("\n");
                self.normal = false;
            }
            'O' => {
                editor.move_to(editor.line_start());
                editor.insert("\n");
                editor.left();
                self.normal = false;
            }
            'd' | 'c' | 'y' => self.operator = Some(character),
            'x' => editor.kill(editor.cursor()..editor.next()),
            'D' => editor.kill(editor.cursor()..editor.line_end()),
            'C' => {
                editor.kill(editor.cursor()..editor.line_end());
                self.normal = false;
            }
            'u' => editor.undo(),
            'p' => {
                let text = editor.killed().to_owned();
                editor.right();
                editor.insert(&text);
            }
            'j' => return editor.vertical(1, columns) || before.is_some(),
            'k' => return editor.vertical(-1, columns) || before.is_some(),
            'g' if before == Some('g') => editor.move_to(0),
            'g' => self.before = Some('g'),
            'G' => editor.move_to(editor.text().len()),
            _ => {
                if let Some(at) = motion(editor, character) {
                    editor.move_to(at);
                }
            }
        }
        true
    }

    fn operate(&mut self, editor: &mut Editor, operator: char, character: char) {
        let range = if character == operator {
            editor.line_start()..editor.line_end()
        } else {
            let Some(at) = motion(editor, character) else {
                return;
            };
            at.min(editor.cursor())..at.max(editor.cursor())
        };
        let start = range.start;
        editor.kill(range);
        if operator == 'y' {
            editor.undo();
            editor.move_to(start);
        }
        self.normal = operator != 'c';
    }
}

fn motion(editor: &Editor, character: char) -> Option<usize> {
    match character {
        'h' => Some(editor.previous()),
        'l' => Some(editor.next()),
        'w' | 'e' => Some(editor.word_right()),
        'b' => Some(editor.word_left()),
        '0' | '^' => Some(editor.line_start()),
        '$' => Some(editor.line_end()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, keys: &str, expected: &str) {
        let mut editor = Editor::with(text);
        editor.vim = Some(Vim::default());
        for key in keys.split(' ') {
            editor.key(crate::keys::parse(key), 40);
        }
        assert_eq!(editor.text(), expected, "{keys}");
    }

    #[test]
    fn motions_and_operators() {
        check("one two", "esc b d w", "one ");
        check("one two", "esc 0 c w x", "x two");
        check("one two", "esc 0 x x", "e two");
        check("one\ntwo", "esc d d", "one\n");
        check("one", "esc A s", "ones");
        check("one", "esc 0 y w P p", "oonene");
        check("one", "esc I x", "xone");
        check("a\nb", "esc g g D u", "a\nb");
    }
}
