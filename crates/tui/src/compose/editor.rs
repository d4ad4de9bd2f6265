//! A few lines of text with a cursor: the composer, a note to the model, an edited command.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use super::vim::Vim;
use crate::safe::{self, Piece};

/// Columns from one tab stop to the next.
const TAB: usize = 4;

/// Text and a place in it. The text is kept as it is, byte by byte: what is edited before it is
/// allowed must not change anywhere else. How it is drawn is the affair of [`Rows`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Editor {
    text: String,
    /// A byte offset, always between two graphemes.
    cursor: usize,
    killed: String,
    undo: Vec<(String, usize)>,
    pub vim: Option<Vim>,
}

/// The text as rows on the screen. Tabs, control characters and what cannot be seen are marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    pub rows: Vec<Vec<Piece>>,
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
        self.text = text.to_owned();
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

    /// Inserts what was typed or pasted: a terminal's line ends become ours.
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
        let next = rows.starts.get(target + 1).copied();
        let mut used = 0;
        for part in self.text[at..next.unwrap_or(self.text.len())].graphemes(true) {
            let shown_width = drawn(part, used).0.width();
            // Behind the last character of a row that is not the last stands the next row.
            if next == Some(at + part.len()) || used + shown_width > column {
                break;
            }
            used += shown_width;
            at += part.len();
        }
        self.cursor = at;
        true
    }

    /// The text in rows of at most `columns`, broken between words where that is possible.
    #[must_use]
    pub fn rows(&self, columns: usize) -> Rows {
        let columns = columns.max(2);
        let mut rows = vec![Vec::new()];
        let mut starts = self.starts(columns);
        let mut next = starts.iter().skip(1).copied().peekable();
        let (mut used, mut at, mut cursor) = (0, 0, (0, 0));
        for part in self.text.graphemes(true) {
            if next.next_if_eq(&at).is_some() {
                rows.push(Vec::new());
                used = 0;
            }
            if at == self.cursor {
                cursor = (rows.len() - 1, used);
            }
            let (shown, mark) = drawn(part, used);
            at += part.len();
            used += shown.width();
            if let Some(row) = rows.last_mut().filter(|_| !shown.is_empty()) {
                safe::push_piece(row, &shown, mark);
            }
        }
        if next.next_if_eq(&at).is_some() {
            rows.push(Vec::new());
            used = 0;
        }
        if self.cursor >= at {
            if used >= columns {
                rows.push(Vec::new());
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

    /// Where each row begins.
    fn starts(&self, columns: usize) -> Vec<usize> {
        let mut starts = vec![0];
        let (mut used, mut at) = (0, 0);
        // Where the word at `at` begins, and how much of the row is before it.
        let mut word: Option<(usize, usize)> = None;
        for part in self.text.graphemes(true) {
            let ends = is_line_end(part);
            let mut shown = drawn(part, used).0.width();
            if used + shown > columns && used > 0 && !(ends && shown == 0) {
                // A word goes to the next row whole, unless it is all there is in this one.
                match word.take().filter(|_| part != " ") {
                    Some((begins, before)) => {
                        starts.push(begins);
                        used -= before;
                    }
                    None => {
                        starts.push(at);
                        used = 0;
                    }
                }
                shown = drawn(part, used).0.width();
            }
            at += part.len();
            used += shown;
            if ends {
                starts.push(at);
                (used, word) = (0, None);
            } else if matches!(part, " " | "\t") {
                word = Some((at, used));
            }
        }
        starts
    }
}

fn is_line_end(part: &str) -> bool {
    part.ends_with('\n')
}

/// How a grapheme is drawn in a row of which `used` columns are taken, and whether that is a mark
/// for something that cannot be seen.
fn drawn(part: &str, used: usize) -> (String, bool) {
    match part {
        "\n" => (String::new(), false),
        "\t" => {
            let blanks = TAB - used % TAB - 1;
            (format!("→{}", " ".repeat(blanks)), true)
        }
        "\r" | "\r\n" => ("␍".to_owned(), true),
        _ => {
            let shown = safe::content(part);
            let mark = shown != part;
            (shown, mark)
        }
    }
}

/// Line ends as one character, and nothing else that moves the cursor but tabs.
fn normalised(text: &str) -> String {
    if text
        .bytes()
        .all(|byte| (0x20..0x7f).contains(&byte) || byte == b'\n')
    {
        return text.to_owned();
    }
    text.replace("\r\n", "\n")
        .replace('\r', "\n")
        .chars()
        .filter(|c| matches!(c, '\n' | '\t') || !c.is_control())
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
    fn rows_break_between_words() {
        let shown = |text: &str, columns: usize| -> Vec<String> {
            let rows = Editor::with(text).rows(columns).rows;
            rows.iter()
                .map(|row| row.iter().map(|piece| piece.text.as_str()).collect())
                .collect()
        };
        assert_eq!(
            shown("tell me what it says", 10),
            ["tell me ", "what it ", "says"]
        );
        assert_eq!(shown("a 0123456789ab c", 10), ["a ", "0123456789", "ab c"]);
        assert_eq!(shown("0123456789 b", 10), ["0123456789", " b"]);
        assert_eq!(shown("one two\nthree", 10), ["one two", "three"]);
        assert_eq!(shown("one\n", 10), ["one", ""]);
        let mut editor = Editor::with("tell me what it says");
        assert_eq!(editor.rows(10).cursor, (2, 4));
        editor.move_to(8);
        assert_eq!(editor.rows(10).cursor, (1, 0));
        assert!(editor.vertical(1, 10));
        assert_eq!(editor.cursor, 16);
    }

    #[test]
    fn typed_control_characters_do_not_get_in() {
        let mut editor = Editor::default();
        editor.insert("a\x1b[2Jb\r\nc\td\re");
        assert_eq!(editor.text(), "a[2Jb\nc\td\ne");
    }

    /// What is opened to be edited is changed where it is edited, and nowhere else.
    #[test]
    fn what_is_opened_is_kept_byte_by_byte() {
        let text = "all:\r\n\tcc a.c\x1b[0m \u{202e}\r\n\n\r";
        let mut editor = Editor::with(text);
        press(&mut editor, "x");
        assert_eq!(editor.text(), format!("{text}x"));
    }

    #[test]
    fn what_cannot_be_seen_is_drawn_as_a_mark() {
        let shown = |text: &str, columns: usize| -> Vec<String> {
            let rows = Editor::with(text).rows(columns).rows;
            rows.iter()
                .map(|row| row.iter().map(|piece| piece.text.as_str()).collect())
                .collect()
        };
        assert_eq!(shown("\ta\tbc", 20), ["→   a→  bc"]);
        assert_eq!(shown("a\x1bb\u{202e}c\r\nd", 20), ["a␛b⟨U+202E⟩c␍", "d"]);
        assert_eq!(shown("abcdef\tg", 8), ["abcdef→ ", "g"]);
        assert_eq!(shown("👩‍🔬e\u{301}", 20), ["👩‍🔬e\u{301}"]);
    }

    #[test]
    fn up_and_down_pass_tabs_by_what_is_drawn() {
        check("\tab\nabcde|f", "up", "\ta|b\nabcdef");
        check("abcdef\n\ta|b", "up", "abcde|f\n\tab");
        check("abc\n\n\tx|", "up up", "|abc\n\n\tx");
    }
}
