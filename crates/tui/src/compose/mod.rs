//! The composer: what the user is about to say, with history, folded pastes and menus.

pub mod editor;
pub mod vim;

use std::ops::Range;

use agent_protocol::payload::conversation::{InputPart, InputPartKind};
use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher};

use crate::commands;
use editor::Editor;

/// Pastes with more lines or characters than this are folded.
const FOLD_LINES: usize = 8;
const FOLD_CHARACTERS: usize = 1000;
/// Entries a menu shows.
pub const MENU_ROWS: usize = 8;

/// The input line and what belongs to it.
#[derive(Clone, Debug, Default)]
pub struct Composer {
    pub editor: Editor,
    pastes: Vec<(String, String)>,
    history: Vec<String>,
    /// Which history entry is shown, and what was being written before.
    recalled: Option<(usize, String)>,
    pub search: Option<Search>,
    /// The selected menu entry.
    selected: usize,
    /// The text for which the menu was closed.
    closed_for: Option<String>,
}

/// Ctrl-R.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    pub query: String,
    /// The history entry found.
    pub found: Option<usize>,
    draft: String,
}

/// What can be completed at the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Menu {
    pub kind: MenuKind,
    /// Name and explanation.
    pub entries: Vec<(String, String)>,
    pub selected: usize,
    range: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MenuKind {
    Commands,
    Files,
}

impl Composer {
    #[must_use]
    pub fn new(history: Vec<String>, prefill: &str, vim_keys: bool) -> Self {
        let mut editor = Editor::with(prefill);
        editor.vim = vim_keys.then(vim::Vim::default);
        Self {
            editor,
            history,
            ..Self::default()
        }
    }

    /// A paste: long ones become a mark that stands for them until the text is sent.
    pub fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        if let Some(path) = image_path(&text) {
            self.editor.insert(&format!("{} ", mention(&path)));
            return;
        }
        let lines = text.lines().count();
        if lines <= FOLD_LINES && text.len() <= FOLD_CHARACTERS {
            self.editor.insert(&text);
            return;
        }
        let number = self.pastes.len() + 1;
        let mark = format!(
            "[paste {number}: {lines} lines, {} characters]",
            text.chars().count()
        );
        self.editor.insert(&mark);
        self.pastes.push((mark, text));
    }

    /// Deletes a whole paste mark before the cursor, if there is one.
    pub fn delete_paste_mark(&mut self) -> bool {
        let before = &self.editor.text()[..self.editor.cursor()];
        let Some(mark) = self
            .pastes
            .iter()
            .map(|(mark, _)| mark)
            .find(|mark| before.ends_with(*mark))
        else {
            return false;
        };
        let range = self.editor.cursor() - mark.len()..self.editor.cursor();
        self.editor.replace(range, "");
        true
    }

    /// The text with folded pastes put back, and empties the composer.
    pub fn submit(&mut self) -> String {
        let typed = self.editor.take();
        let mut text = typed.clone();
        for (mark, content) in self.pastes.drain(..) {
            text = text.replace(&mark, &content);
        }
        self.recalled = None;
        self.selected = 0;
        if !text.trim().is_empty() && self.history.last() != Some(&text) {
            self.history.push(text.clone());
        }
        text
    }

    /// Puts the previous or next history entry into the editor.
    pub fn recall(&mut self, step: isize) {
        let at = self
            .recalled
            .as_ref()
            .map_or(self.history.len(), |(at, _)| *at);
        let Some(next) = at
            .checked_add_signed(step)
            .filter(|next| *next <= self.history.len())
        else {
            return;
        };
        if next == self.history.len() {
            if let Some((_, draft)) = self.recalled.take() {
                self.editor.set(&draft);
            }
            return;
        }
        let draft = match self.recalled.take() {
            Some((_, draft)) => draft,
            None => self.editor.text().to_owned(),
        };
        self.editor.set(&self.history[next].clone());
        self.recalled = Some((next, draft));
    }

    /// Begins, or goes on with, a search through the history.
    pub fn search_older(&mut self) {
        match &mut self.search {
            None => {
                self.search = Some(Search {
                    draft: self.editor.text().to_owned(),
                    ..Search::default()
                });
            }
            Some(search) => {
                let before = search.found.unwrap_or(self.history.len());
                search.found = find_before(&self.history, &search.query, before).or(search.found);
            }
        }
        self.show_found();
    }

    pub fn search_type(&mut self, character: char) {
        if let Some(search) = &mut self.search {
            search.query.push(character);
            search.found = find_before(&self.history, &search.query, self.history.len());
        }
        self.show_found();
    }

    pub fn search_delete(&mut self) {
        if let Some(search) = &mut self.search {
            search.query.pop();
            search.found = find_before(&self.history, &search.query, self.history.len());
        }
        self.show_found();
    }

    /// Ends the search; what was found stays unless `keep` is false.
    pub fn search_end(&mut self, keep: bool) {
        if let Some(search) = self.search.take()
            && !keep
        {
            self.editor.set(&search.draft);
        }
    }

    fn show_found(&mut self) {
        let Some(search) = &self.search else { return };
        if let Some(found) = search.found.filter(|_| !search.query.is_empty()) {
            self.editor.set(&self.history[found].clone());
        }
    }

    /// What can be completed at the cursor; `files` are the project's files, when they are known.
    #[must_use]
    pub fn menu(&self, files: Option<&[String]>) -> Option<Menu> {
        if self.search.is_some() || self.closed_for.as_deref() == Some(self.editor.text()) {
            return None;
        }
        let text = self.editor.text();
        let before = &text[..self.editor.cursor()];
        if let Some(word) = before.strip_prefix('/')
            && !word.contains(char::is_whitespace)
        {
            let entries: Vec<(String, String)> = commands::matching(word)
                .map(|command| (format!("/{}", command.name), command.about.to_owned()))
                .collect();
            return self.menu_of(MenuKind::Commands, entries, 0..before.len());
        }
        let start = before.rfind(char::is_whitespace).map_or(0, |at| {
            at + before[at..].chars().next().map_or(1, char::len_utf8)
        });
        let word = before[start..].strip_prefix('@')?;
        let entries = best_files(files.unwrap_or(&[]), word)
            .into_iter()
            .map(|path| (path, String::new()))
            .collect();
        self.menu_of(MenuKind::Files, entries, start..before.len())
    }

    fn menu_of(
        &self,
        kind: MenuKind,
        entries: Vec<(String, String)>,
        range: Range<usize>,
    ) -> Option<Menu> {
        if entries.is_empty() {
            return None;
        }
        let selected = self.selected.min(entries.len() - 1);
        Some(Menu {
            kind,
            entries,
            selected,
            range,
        })
    }

    /// Whether the cursor stands in an `@` word, so that the files are needed.
    #[must_use]
    pub fn wants_files(&self) -> bool {
        let before = &self.editor.text()[..self.editor.cursor()];
        before
            .rsplit(char::is_whitespace)
            .next()
            .is_some_and(|word| word.starts_with('@'))
    }

    pub fn menu_move(&mut self, menu: &Menu, step: isize) {
        let count = menu.entries.len();
        self.selected = (menu.selected + count).saturating_add_signed(step) % count;
    }

    pub fn menu_close(&mut self) {
        self.closed_for = Some(self.editor.text().to_owned());
    }

    /// Puts the selected entry into the text.
    pub fn menu_take(&mut self, menu: &Menu) {
        let Some((name, _)) = menu.entries.get(menu.selected) else {
            return;
        };
        let text = match menu.kind {
            MenuKind::Commands => format!("{name} "),
            MenuKind::Files => format!("{} ", mention(name)),
        };
        self.editor.replace(menu.range.clone(), &text);
        self.selected = 0;
    }

    /// After every edit: a changed text may have another menu.
    pub fn edited(&mut self) {
        self.selected = 0;
        if self
            .closed_for
            .as_deref()
            .is_some_and(|text| text != self.editor.text())
        {
            self.closed_for = None;
        }
    }
}

/// The files and images a text names with `@`. Whether they are there is found out by whoever attaches them.
#[must_use]
pub fn attachments(text: &str) -> Vec<InputPart> {
    let mut parts: Vec<InputPart> = Vec::new();
    for name in mentions(text) {
        if parts.iter().any(|part| part.name.as_deref() == Some(name)) {
            continue;
        }
        let media_type = media_type(name);
        parts.push(InputPart {
            kind: match media_type {
                Some(_) => InputPartKind::Image,
                None => InputPartKind::File,
            },
            name: Some(name.to_owned()),
            media_type: media_type.map(str::to_owned),
            ..InputPart::default()
        });
    }
    parts
}

/// The names behind an `@` that begins a word; one with blanks stands in quotes.
fn mentions(text: &str) -> impl Iterator<Item = &str> {
    let begins = text.match_indices('@').filter_map(|(at, _)| {
        let before = text[..at].chars().next_back();
        let is_begin = before.is_none_or(|before| before.is_whitespace() || "([{".contains(before));
        is_begin.then(|| &text[at + 1..])
    });
    let names = begins.filter_map(|rest| match rest.strip_prefix('"') {
        Some(quoted) => quoted.lines().next()?.split_once('"').map(|(name, _)| name),
        None => rest
            .split_whitespace()
            .next()
            .filter(|_| !rest.starts_with(char::is_whitespace))
            .map(|name| name.trim_end_matches([',', '.', ';', ':', ')', ']', '}', '?', '!'])),
    });
    names.filter(|name| !name.is_empty())
}

/// A name as it is mentioned.
fn mention(name: &str) -> String {
    match name.contains(char::is_whitespace) {
        true => format!("@\"{name}\""),
        false => format!("@{name}"),
    }
}

fn media_type(path: &str) -> Option<&'static str> {
    let (_, extension) = path.rsplit_once('.')?;
    match extension.to_ascii_lowercase().as_str() {
        "png" => Some("image/png"),
        "jpg" | "jpeg" => Some("image/jpeg"),
        "gif" => Some("image/gif"),
        "webp" => Some("image/webp"),
        _ => None,
    }
}

/// A file dragged into the terminal, or copied in a file manager, arrives as its path: in quotes, with its blanks
/// escaped, or as an address.
fn image_path(text: &str) -> Option<String> {
    let text = text.trim();
    let quoted = ['\'', '"'].iter().find_map(|quote| {
        let inner = text.strip_prefix(*quote)?.strip_suffix(*quote)?;
        (!inner.contains(*quote)).then(|| inner.to_owned())
    });
    let path = match quoted {
        Some(path) => path,
        None => text.replace("\\ ", "\u{0}"),
    };
    let path = path.strip_prefix("file://").unwrap_or(&path);
    let single = !path.contains('\n') && path.contains('/') && !path.contains("://");
    // Words before the path are a message.
    let whole = text.starts_with(['\'', '"']) || !path.contains(' ');
    let path = path.replace("%20", " ").replace('\u{0}', " ");
    (single && whole && media_type(&path).is_some()).then_some(path)
}

fn find_before(history: &[String], query: &str, before: usize) -> Option<usize> {
    let query = query.to_lowercase();
    history[..before]
        .iter()
        .rposition(|entry| entry.to_lowercase().contains(&query))
}

fn best_files(files: &[String], word: &str) -> Vec<String> {
    if word.is_empty() {
        return files.iter().take(MENU_ROWS).cloned().collect();
    }
    let mut matcher = Matcher::new(Config::DEFAULT.match_paths());
    Pattern::parse(word, CaseMatching::Smart, Normalization::Smart)
        .match_list(files.iter(), &mut matcher)
        .into_iter()
        .take(MENU_ROWS)
        .map(|(path, _)| path.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composer(text: &str) -> Composer {
        Composer::new(
            vec!["first".into(), "second one".into(), "third".into()],
            text,
            false,
        )
    }

    #[test]
    fn a_long_paste_is_folded_and_sent_whole() {
        let mut composer = composer("see: ");
        let pasted: String = (0..5000).map(|n| format!("line {n}\r\n")).collect();
        composer.paste(&pasted);
        assert_eq!(
            composer.editor.text(),
            "see: [paste 1: 5000 lines, 48890 characters]"
        );
        let sent = composer.submit();
        assert!(sent.starts_with("see: line 0\nline 1\n") && sent.contains("line 4999\n"));
        composer.paste("short\none");
        assert_eq!(composer.editor.text(), "short\none");
    }

    #[test]
    fn a_paste_mark_goes_as_a_whole() {
        let mut composer = composer("");
        composer.paste(&"x\n".repeat(100));
        assert!(composer.delete_paste_mark());
        assert_eq!(composer.editor.text(), "");
        assert!(!composer.delete_paste_mark());
    }

    #[test]
    fn history_goes_back_and_returns_to_the_draft() {
        let mut composer = composer("draft");
        composer.recall(-1);
        composer.recall(-1);
        assert_eq!(composer.editor.text(), "second one");
        composer.recall(1);
        composer.recall(1);
        assert_eq!(composer.editor.text(), "draft");
        composer.recall(1);
        assert_eq!(composer.editor.text(), "draft");
    }

    #[test]
    fn search_finds_older_entries() {
        let mut composer = composer("draft");
        composer.search_older();
        composer.search_type('s');
        assert_eq!(composer.editor.text(), "second one");
        composer.search_older();
        assert_eq!(composer.editor.text(), "first");
        composer.search_end(false);
        assert_eq!(composer.editor.text(), "draft");
    }

    #[test]
    fn menus_open_where_they_belong() {
        let files: Vec<String> = ["src/lib.rs", "src/main.rs", "README.md"]
            .map(Into::into)
            .into();
        let names = |text: &str| {
            composer(text).menu(Some(&files)).map(|menu| {
                menu.entries
                    .into_iter()
                    .map(|(name, _)| name)
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(names("/und"), Some(vec!["/undo".into()]));
        assert_eq!(names("/model x"), None);
        assert_eq!(names("look at @main"), Some(vec!["src/main.rs".into()]));
        assert_eq!(names("mail a@b"), None);
        assert_eq!(names("plain"), None);

        let mut composer = composer("look at @main");
        let menu = composer.menu(Some(&files)).unwrap();
        composer.menu_take(&menu);
        assert_eq!(composer.editor.text(), "look at @src/main.rs ");
    }

    #[test]
    fn named_files_are_attached() {
        let parts = attachments("see @src/lib.rs, and @shot.PNG. mail me@x.y");
        let named: Vec<(InputPartKind, &str)> = parts
            .iter()
            .map(|part| (part.kind, part.name.as_deref().unwrap()))
            .collect();
        assert_eq!(
            named,
            [
                (InputPartKind::File, "src/lib.rs"),
                (InputPartKind::Image, "shot.PNG")
            ]
        );
        let names = |text: &str| -> Vec<String> {
            let parts = attachments(text).into_iter();
            parts.filter_map(|part| part.name).collect()
        };
        assert_eq!(
            names("(@a.rs:1-4) @\"my notes.md\", @src"),
            ["a.rs:1-4", "my notes.md", "src"]
        );
        assert_eq!(names("@a.rs @a.rs @ x @\"open"), ["a.rs"]);
    }

    #[test]
    fn a_pasted_path_of_an_image_attaches_it() {
        let pasted = |text: &str| {
            let mut composer = composer("");
            composer.paste(text);
            composer.editor.text().to_owned()
        };
        assert_eq!(pasted("'/tmp/a.png'"), "@/tmp/a.png ");
        assert_eq!(pasted("/tmp/my\\ shot.png\n"), "@\"/tmp/my shot.png\" ");
        assert_eq!(
            pasted("file:///tmp/my%20shot.png"),
            "@\"/tmp/my shot.png\" "
        );
        assert_eq!(pasted("https://x.org/a.png"), "https://x.org/a.png");
        assert_eq!(pasted("see /tmp/a.png"), "see /tmp/a.png");
    }
}
