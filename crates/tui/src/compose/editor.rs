//! A few lines of text with a cursor: the composer, a note to the model, an edited command.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use super::vim::Vim;

/// Text and a place in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Editor {
    text: String,
    /// A byte offset, always between two graphemes.
    cursor: usize,
    killed: String,
    undo: Vec<(String, usize)>,
    pub vim: Option<Vim>,
}

/// The text as rows on the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    pub rows: Vec<String>,
    pub cursor: (usize, usize),
    /// Where each row begins in the text.
    starts: Vec<usize>,
}

impl Editor {
    /// An editor that holds `text`, the cursor at its end.
    #[must_use]
    pub fn with(text: &str) -> Self {
        let mut editor = Self::default();
        editor.set(text);
        editor
    }

    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    #[must_use]
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether vim keys are on and Esc means leaving their insert mode.
    #[must_use]
    pub fn is_inserting(&self) -> bool {
        self.vim.as_ref().is_some_and(|vim| !vim.is_normal())
    }

    /// Replaces everything; the cursor goes to the end.
    pub fn set(&mut self, text: &str) {
        self.remember();
        self.text = normalised(text);
        self.cursor = self.text.len();
    }

    /// Gives the text away and is empty afterwards.
    pub fn take(&mut self) -> String {
        self.undo.clear();
        self.cursor = 0;
        if let Some(vim) = &mut self.vim {
            vim.insert();
        }
        std::mem::take(&mut self.text)
    }

    pub fn insert(&mut self, text: &str) {
        self.remember();
        let text = normalised(text);
        self.text.insert_str(self.cursor, &text);
        self.cursor += text.len();
    }

    /// Replaces `range` and puts the cursor behind what is new.
    pub fn replace(&mut self, range: std::ops::Range<usize>, text: &str) {
        self.remember();
        let start = range.start;
        self.text.replace_range(range, text);
        self.cursor = start + text.len();
    }

    fn remember(&mut self) {
        if self.undo.last().is_none_or(|(text, _)| *text != self.text) {
            self.undo.push((self.text.clone(), self.cursor));
        }
        if self.undo.len() > 100 {
            self.undo.remove(0);
        }
    }

    pub fn undo(&mut self) {
        if let Some((text, cursor)) = self.undo.pop() {
            self.text = text;
            self.cursor = cursor.min(self.text.len());
        }
    }

    /// Handles a key that edits. Returns whether it was one. `columns` is the width the text is
    /// drawn with, for moving up and down.
    pub fn key(&mut self, key: KeyEvent, columns: usize) -> bool {
        if let Some(mut vim) = self.vim.take() {
            let handled = vim.key(self, key, columns);
            self.vim = Some(vim);
            if handled {
                return true;
            }
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        match key.code {
            KeyCode::Char('a') if control => self.cursor = self.line_start(),
            KeyCode::Char('e') if control => self.cursor = self.line_end(),
            KeyCode::Char('b') if control => self.left(),
            KeyCode::Char('f') if control => self.right(),
            KeyCode::Char('d') if control => self.delete(self.cursor..self.next()),
            KeyCode::Char('h') if control => self.delete(self.previous()..self.cursor),
            KeyCode::Char('w') if control => self.kill(self.word_left()..self.cursor),
            KeyCode::Char('u') if control => self.kill(self.line_start()..self.cursor),
            KeyCode::Char('k') if control => {
                let end = self.line_end();
                let end = if end == self.cursor { self.next() } else { end };
                self.kill(self.cursor..end);
            }
            KeyCode::Char('y') if control => {
                let killed = self.killed.clone();
                self.insert(&killed);
            }
            KeyCode::Char('_' | '/' | '7') if control => self.undo(),
            KeyCode::Char('j') if control => self.insert("\n"),
            KeyCode::Char('p') if control => return self.vertical(-1, columns),
            KeyCode::Char('n') if control => return self.vertical(1, columns),
            KeyCode::Char('b') if alt => self.cursor = self.word_left(),
            KeyCode::Char('f') if alt => self.cursor = self.word_right(),
            KeyCode::Char('d') if alt => self.kill(self.cursor..self.word_right()),
            KeyCode::Backspace if alt || control => self.kill(self.word_left()..self.cursor),
            KeyCode::Left if alt || control => self.cursor = self.word_left(),
            KeyCode::Right if alt || control => self.cursor = self.word_right(),
            KeyCode::Left => self.left(),
            KeyCode::Right => self.right(),
            KeyCode::Up => return self.vertical(-1, columns),
            KeyCode::Down => return self.vertical(1, columns),
            KeyCode::Home => self.cursor = self.line_start(),
            KeyCode::End => self.cursor = self.line_end(),
            KeyCode::Backspace => self.delete(self.previous()..self.cursor),
            KeyCode::Delete => self.delete(self.cursor..self.next()),
            KeyCode::Enter if alt || key.modifiers.contains(KeyModifiers::SHIFT) => {
                self.insert("\n")
            }
            KeyCode::Char(character) if !control && !alt => {
                self.insert(character.encode_utf8(&mut [0; 4]));
            }
            _ => return false,
        }
        true
    }

    pub(super) fn left(&mut self) {
        self.cursor = self.previous();
    }

    pub(super) fn right(&mut self) {
        self.cursor = self.next();
    }

    pub(super) fn move_to(&mut self, at: usize) {
        self.cursor = at.min(self.text.len());
    }

    pub(super) fn previous(&self) -> usize {
        let before = self.text[..self.cursor].grapheme_indices(true).next_back();
        before.map_or(0, |(at, _)| at)
    }

    pub(super) fn next(&self) -> usize {
        let after = self.text[self.cursor..].graphemes(true).next();
        self.cursor + after.map_or(0, str::len)
    }

    pub(super) fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    pub(super) fn line_end(&self) -> usize {
        self.text[self.cursor..]
            .find('\n')
            .map_or(self.text.len(), |at| self.cursor + at)
    }

    pub(super) fn word_left(&self) -> usize {
        let before = self.text[..self.cursor].trim_end_matches(|c: char| !c.is_alphanumeric());
        before
            .char_indices()
            .rev()
            .take_while(|(_, c)| c.is_alphanumeric() || *c == '_')
            .last()
            .map_or(0, |(at, _)| at)
    }

    pub(super) fn word_right(&self) -> usize {
        let after = &self.text[self.cursor..];
        let skipped = after.len()
            - after
                .trim_start_matches(|c: char| !c.is_alphanumeric())
                .len();
        let word = after[skipped..]
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(after.len() - skipped);
        self.cursor + skipped + word
    }

    pub(super) fn delete(&mut self, range: std::ops::Range<usize>) {
        if !range.is_empty() {
            self.replace(range, "");
        }
    }

    pub(super) fn kill(&mut self, range: std::ops::Range<usize>) {
        if !range.is_empty() {
            self.killed = self.text[range.clone()].to_owned();
            self.replace(range, "");
        }
    }

    pub(super) fn killed(&self) -> &str {
        &self.killed
    }

    /// Moves to the row above or below; false at the first or last, where history takes over.
    pub(super) fn vertical(&mut self, step: isize, columns: usize) -> bool {
        let rows = self.rows(columns);
        let (row, column) = rows.cursor;
        let Some(target) = row
            .checked_add_signed(step)
            .filter(|row| *row < rows.rows.len())
        else {
            return false;
        };
        let mut at = rows.starts[target];
        let mut used = 0;
        for part in rows.rows[target].graphemes(true) {
            if used + part.width() > column {
                break;
            }
            used += part.width();
            at += part.len();
        }
        self.cursor = at;
        true
    }

    /// The text in rows of at most `columns`.
    #[must_use]
    pub fn rows(&self, columns: usize) -> Rows {
        let columns = columns.max(2);
        let mut rows = vec![String::new()];
        let mut starts = vec![0];
        let (mut used, mut at, mut cursor) = (0, 0, (0, 0));
        for part in self.text.graphemes(true) {
            let part_width = part.width();
            if part != "\n" && used + part_width > columns {
                rows.push(String::new());
                starts.push(at);
                used = 0;
            }
            if at == self.cursor {
                cursor = (rows.len() - 1, used);
            }
            at += part.len();
            if part == "\n" {
                rows.push(String::new());
                starts.push(at);
                used = 0;
            } else if let Some(row) = rows.last_mut() {
                row.push_str(part);
                used += part_width;
            }
        }
        if self.cursor >= at {
            if used >= columns {
                rows.push(String::new());
                starts.push(at);
                used = 0;
            }
            cursor = (rows.len() - 1, used);
        }
        Rows {
            rows,
            cursor,
            starts,
        }
    }
}

/// Line ends as one character, and nothing else that moves the cursor.
fn normalised(text: &str) -> String {
    if text
        .bytes()
        .all(|byte| byte >= 0x20 && byte != 0x7f || byte == b'\n')
        && text.is_ascii()
    {
        return text.to_owned();
    }
    let text = text
        .replace("\r\n", "\n")
        .replace('\r', "\n")
        .replace('\t', "    ");
    text.chars()
        .filter(|c| *c == '\n' || !c.is_control())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn press(editor: &mut Editor, keys: &str) {
        for key in keys.split(' ').filter(|key| !key.is_empty()) {
            let event = crate::keys::parse(key);
            editor.key(event, 20);
        }
    }

    /// `|` is the cursor.
    fn check(before: &str, keys: &str, after: &str) {
        let mut editor = Editor::with(&before.replace('|', ""));
        editor.cursor = before.find('|').unwrap();
        press(&mut editor, keys);
        let mut shown = editor.text.clone();
        shown.insert(editor.cursor, '|');
        assert_eq!(shown, after, "{before} {keys}");
    }

    #[test]
    fn emacs_keys() {
        check("one two|", "C-a", "|one two");
        check("|one two", "C-e", "one two|");
        check("one two|", "M-b", "one |two");
        check("|one two", "M-f", "one| two");
        check("one two|", "C-w", "one |");
        check("one| two", "C-k", "one|");
        check("one| two", "C-u", "| two");
        check("one| two", "C-k C-a C-y", " two|one");
        check("ab|c", "C-d C-h", "a|");
        check("a|", "b c C-_", "ab|");
        check("a|", "C-j x", "a\nx|");
        check("a|", "M-enter x", "a\nx|");
        check("héé|", "left backspace", "h|é");
        check("e\u{301}|", "backspace", "|");
    }

    #[test]
    fn up_and_down_follow_the_rows() {
        check("abc\nde|f", "up", "ab|c\ndef");
        check("ab|c\nd", "down", "abc\nd|");
        check(
            "0123456789012345678901234|5",
            "up",
            "01234|567890123456789012345",
        );
    }

    #[test]
    fn the_cursor_is_where_the_text_goes() {
        let mut editor = Editor::with("ab\n漢字x");
        assert_eq!(editor.rows(20).cursor, (1, 5));
        editor.move_to(0);
        assert_eq!(editor.rows(20).cursor, (0, 0));
        let full = Editor::with("abcd");
        assert_eq!(full.rows(4).cursor, (1, 0));
    }

    #[test]
    fn control_characters_do_not_get_in() {
        assert_eq!(Editor::with("a\x1b[2Jb\r\nc\td").text(), "a[2Jb\nc    d");
    }
}
