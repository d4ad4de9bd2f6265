//! A page as Markdown: what a reader would see of it, in order, and nothing of what the page hides from them.
//!
//! The page is read as a stream of tags and never as a tree, so that no nesting can exhaust the stack and no page takes more
//! than a small multiple of its size. What is hidden by its own tag (`hidden`, `aria-hidden`, `display:none` and its like)
//! is left out; what a style sheet or a script hides cannot be known here.

use agent_policy::WebAddress;
use html5gum::Tokenizer;
use html5gum::emitters::default::{DefaultEmitter, StartTag, Token};

use crate::tags::{EMPTY, Kind, UNREAD, attribute, is_hidden, kind, language};

/// A page in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Markdown {
    pub title: Option<String>,
    pub text: String,
    /// Characters beside the page's main part, which are left out because there is one.
    pub beside: usize,
}

/// A main part with fewer characters than this is none.
const LEAST_MAIN: usize = 200;
/// Lists and quotations further inside than this are shown as if they were not.
const MOST_NESTED: usize = 8;
/// Tags further inside than this mean nothing.
const MOST_OPEN: usize = 256;
/// A title has no more characters.
const MOST_TITLE: usize = 300;

/// The readable part of a page at `address`.
#[must_use]
pub fn markdown(html: &str, address: &WebAddress) -> Markdown {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    let mut writer = Writer::new(address);
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => writer.start(&tag),
            Token::EndTag(tag) => writer.end(&tag.name),
            Token::String(text) => writer.text(&String::from_utf8_lossy(&text)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
    }
    writer.finish()
}

/// A tag that is open, with what its end needs.
#[derive(Debug)]
struct Open {
    kind: Kind,
    /// Where its content begins.
    from: usize,
    /// The address of a link; the number of the next item of a list; cells of a row or rows of a table.
    target: Option<String>,
    count: usize,
    /// A table that is no table: it holds programs.
    is_layout: bool,
}

struct Writer<'a> {
    address: &'a WebAddress,
    out: String,
    open: Vec<Open>,
    /// The hidden tag whose end is waited for, and how many of its name are open in it.
    hidden: Option<(Vec<u8>, usize)>,
    /// Line breaks that come before the next text: 1 ends a line, 2 leave a line blank.
    breaks: usize,
    /// A blank comes before the next text.
    blank: bool,
    /// What stands at the beginning of the next line instead of its indentation.
    bullet: Option<String>,
    preformatted: Option<Preformatted>,
    title: Option<String>,
    main: Option<Main>,
}

#[derive(Debug, Default)]
struct Preformatted {
    text: String,
    language: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Main {
    from: usize,
    to: Option<usize>,
}

impl<'a> Writer<'a> {
    fn new(address: &'a WebAddress) -> Self {
        Self {
            address,
            out: String::new(),
            open: Vec::new(),
            hidden: None,
            breaks: 0,
            blank: false,
            bullet: None,
            preformatted: None,
            title: None,
            main: None,
        }
    }

    fn start(&mut self, tag: &StartTag<()>) {
        let name = &tag.name[..];
        let is_empty = EMPTY.contains(&name);
        if let Some((hidden, depth)) = &mut self.hidden {
            // One paragraph ends where the next begins.
            let ends = hidden == b"p" && matches!(kind(name), Some(Kind::Paragraph));
            if !ends {
                *depth += usize::from(hidden == name && !is_empty);
                return;
            }
            self.hidden = None;
        }
        if is_empty {
            return self.empty(name, tag);
        }
        if is_hidden(tag) || UNREAD.contains(&name) {
            if !tag.self_closing || kind(name).is_some() {
                self.hidden = Some((name.to_vec(), 1));
            }
            return;
        }
        let Some(kind) = kind(name) else {
            return;
        };
        self.close_implied(kind);
        if self.open.len() >= MOST_OPEN {
            return;
        }
        self.open_tag(kind, tag);
    }

    fn open_tag(&mut self, kind: Kind, tag: &StartTag<()>) {
        let mut opened = Open {
            kind,
            from: 0,
            target: None,
            count: 0,
            is_layout: false,
        };
        match kind {
            Kind::Paragraph | Kind::Quote | Kind::Table => self.break_lines(2),
            Kind::Heading(level) => {
                self.break_lines(2);
                self.push(&"#".repeat(level.into()));
                self.blank = true;
            }
            Kind::Block => self.break_lines(1),
            Kind::Main => {
                self.break_lines(2);
                let from = self.out.len();
                self.main.get_or_insert(Main { from, to: None });
            }
            Kind::List | Kind::Numbered => {
                let lines = if self.is_in(Kind::Item) { 1 } else { 2 };
                self.break_lines(lines);
                opened.count = 1;
            }
            Kind::Item => {
                self.break_lines(1);
                let is_list = |open: &&mut Open| matches!(open.kind, Kind::List | Kind::Numbered);
                let list = self.open.iter_mut().rev().find(is_list);
                self.bullet = Some(match list {
                    Some(list) if list.kind == Kind::Numbered => {
                        list.count += 1;
                        format!("{}. ", list.count - 1)
                    }
                    _ => "- ".to_owned(),
                });
            }
            Kind::Preformatted => {
                if let Some(table) = self.last_mut(Kind::Table) {
                    table.is_layout = true;
                }
                self.break_lines(2);
                self.preformatted.get_or_insert_default();
            }
            Kind::Row => self.break_lines(1),
            Kind::Cell => {
                if !self.is_layout()
                    && let Some(row) = self.last_mut(Kind::Row)
                {
                    row.count += 1;
                    self.push("|");
                    self.blank = true;
                } else {
                    self.break_lines(1);
                }
            }
            Kind::Code | Kind::Strong => {}
            Kind::Link => {
                let target = attribute(&tag.attributes, "href");
                let target = target.map(|target| String::from_utf8_lossy(target));
                opened.target = target.and_then(|target| self.target(target.trim()));
            }
            Kind::Title => {}
        }
        if let Some(preformatted) = &mut self.preformatted
            && preformatted.language.is_none()
        {
            preformatted.language = attribute(&tag.attributes, "class").and_then(language);
        }
        let mark = match kind {
            Kind::Code => "`",
            Kind::Strong => "**",
            Kind::Link if opened.target.is_some() => "[",
            _ => "",
        };
        if !mark.is_empty() && self.preformatted.is_none() && !self.is_in(Kind::Code) {
            self.flush();
            opened.count = mark.len();
            self.out.push_str(mark);
        }
        opened.from = self.out.len();
        self.open.push(opened);
    }

    /// Where a link leads, if it leads to another page.
    fn target(&self, href: &str) -> Option<String> {
        if href.is_empty() || href.starts_with('#') {
            return None;
        }
        let target = self.address.join(href).ok()?;
        (target != *self.address).then(|| target.url().to_string())
    }

    fn empty(&mut self, name: &[u8], tag: &StartTag<()>) {
        match name {
            b"br" => match &mut self.preformatted {
                Some(preformatted) => preformatted.text.push('\n'),
                None => self.break_lines(1),
            },
            b"hr" => {
                self.break_lines(2);
                self.push("---");
                self.break_lines(2);
            }
            b"img" if !is_hidden(tag) => {
                let alt = attribute(&tag.attributes, "alt").unwrap_or_default();
                let alt = String::from_utf8_lossy(alt);
                let alt = alt.trim();
                if !alt.is_empty() {
                    self.text(&format!("[image: {alt}]"));
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, name: &[u8]) {
        if let Some((hidden, depth)) = &mut self.hidden {
            if hidden == name {
                *depth -= 1;
                if *depth == 0 {
                    self.hidden = None;
                }
            }
            return;
        }
        let Some(kind) = kind(name) else {
            return;
        };
        let at = self.open.iter().rposition(|open| open.kind == kind);
        // What stands in a cell cannot end what the table stands in.
        let is_outside = |at: usize| {
            let inner = self.open.get(at + 1..).unwrap_or_default();
            kind != Kind::Table && inner.iter().any(|open| open.kind == Kind::Table)
        };
        if let Some(at) = at.filter(|at| !is_outside(*at)) {
            self.close_from(at);
        }
    }

    /// A tag ends others that cannot hold it.
    fn close_implied(&mut self, kind: Kind) {
        let ends: &[Kind] = match kind {
            Kind::Item => &[Kind::Item],
            Kind::Row => &[Kind::Row],
            Kind::Cell => &[Kind::Cell],
            Kind::Link => &[Kind::Link],
            Kind::Code | Kind::Strong | Kind::Title => return,
            _ => &[Kind::Paragraph],
        };
        let stops: &[Kind] = match kind {
            Kind::Item => &[Kind::List, Kind::Numbered, Kind::Table],
            _ => &[Kind::Table],
        };
        let at = self
            .open
            .iter()
            .rposition(|open| ends.contains(&open.kind) || stops.contains(&open.kind));
        if let Some(at) = at
            && ends.contains(&self.open[at].kind)
        {
            self.close_from(at);
        }
    }

    fn close_from(&mut self, at: usize) {
        while self.open.len() > at {
            if let Some(open) = self.open.pop() {
                self.close(open);
            }
        }
    }

    fn close(&mut self, open: Open) {
        match open.kind {
            Kind::Paragraph | Kind::Heading(_) | Kind::Quote => self.break_lines(2),
            Kind::Block | Kind::Item => {
                self.break_lines(1);
                self.bullet = None;
            }
            Kind::Main => {
                self.break_lines(2);
                let is_outermost = !self.is_in(Kind::Main);
                let to = self.out.len();
                if let Some(main) = self
                    .main
                    .as_mut()
                    .filter(|main| main.to.is_none() && is_outermost)
                {
                    main.to = Some(to);
                }
            }
            Kind::List | Kind::Numbered => {
                let lines = if self.is_in(Kind::Item) { 1 } else { 2 };
                self.break_lines(lines);
            }
            Kind::Preformatted => {
                if !self.is_in(Kind::Preformatted)
                    && let Some(preformatted) = self.preformatted.take()
                {
                    self.fence(&preformatted);
                }
            }
            Kind::Table => self.break_lines(2),
            Kind::Row => self.end_row(open.count),
            Kind::Cell => self.blank = true,
            Kind::Code | Kind::Strong | Kind::Link => self.close_mark(&open),
            Kind::Title => {}
        }
    }

    /// Ends a row; the first of a table is its head.
    fn end_row(&mut self, cells: usize) {
        if cells == 0 || self.is_layout() {
            return self.break_lines(1);
        }
        self.blank = true;
        self.push("|");
        self.break_lines(1);
        if let Some(table) = self.last_mut(Kind::Table) {
            table.count += 1;
            if table.count == 1 {
                let line = "| --- ".repeat(cells.min(64));
                self.push(&format!("{line}|"));
                self.break_lines(1);
            }
        }
    }

    fn close_mark(&mut self, open: &Open) {
        if open.count == 0 {
            return;
        }
        let inner = self.out.get(open.from..).unwrap_or_default();
        if inner.trim().is_empty() {
            // Nothing is marked, so there is no mark.
            let begun = open.from.saturating_sub(open.count).min(self.out.len());
            self.out.truncate(begun);
            return;
        }
        match (open.kind, &open.target) {
            (Kind::Code, _) => self.out.push('`'),
            (Kind::Strong, _) => self.out.push_str("**"),
            (_, Some(target)) => {
                self.out.push_str("](");
                self.out.push_str(target);
                self.out.push(')');
            }
            (_, None) => {}
        }
    }

    fn fence(&mut self, preformatted: &Preformatted) {
        let text = preformatted.text.trim_matches('\n').trim_end();
        if text.is_empty() {
            return;
        }
        let mut longest = 2;
        let mut run = 0;
        for sign in text.chars() {
            run = if sign == '`' { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        let fence = "`".repeat((longest + 1).min(40));
        let language = preformatted.language.as_deref().unwrap_or_default();
        self.break_lines(2);
        self.push(&format!("{fence}{language}"));
        for line in text.split('\n') {
            self.break_lines(1);
            // A blank line of a program is its own.
            if line.trim().is_empty() {
                self.flush();
            } else {
                self.push(line);
            }
        }
        self.break_lines(1);
        self.push(&fence);
        self.break_lines(2);
    }

    fn text(&mut self, text: &str) {
        if self.hidden.is_some() {
            return;
        }
        if self.is_in(Kind::Title) {
            if self.title.is_none() {
                let words: Vec<&str> = text.split_whitespace().collect();
                let title: String = words.join(" ").chars().take(MOST_TITLE).collect();
                self.title = Some(title).filter(|title| !title.is_empty());
            }
            return;
        }
        if let Some(preformatted) = &mut self.preformatted {
            preformatted
                .text
                .push_str(&text.replace("\r\n", "\n").replace('\r', "\n"));
            return;
        }
        let in_cell = self.is_in(Kind::Cell) && !self.is_layout();
        let is_space = |sign: char| sign.is_ascii_whitespace();
        for (number, word) in text.split(is_space).enumerate() {
            self.blank |= number > 0;
            if word.is_empty() {
                continue;
            }
            match in_cell && word.contains('|') {
                true => self.push(&word.replace('|', "\\|")),
                false => self.push(word),
            }
        }
    }

    /// Writes what stands before the next text, then `text`.
    fn push(&mut self, text: &str) {
        self.flush();
        self.out.push_str(text);
    }

    fn flush(&mut self) {
        let is_new = self.out.is_empty() || self.breaks > 0;
        if is_new {
            if !self.out.is_empty() {
                for line in 0..self.breaks {
                    self.out.push('\n');
                    if line + 1 < self.breaks {
                        let quotes = self.quotes();
                        self.out.push_str(quotes.trim_end());
                    }
                }
            }
            let quotes = self.quotes();
            self.out.push_str(&quotes);
            let items = self.count(Kind::Item);
            match self.bullet.take() {
                Some(bullet) => {
                    self.out.push_str(&"  ".repeat(items.saturating_sub(1)));
                    self.out.push_str(&bullet);
                }
                None => self.out.push_str(&"  ".repeat(items)),
            }
        } else if self.blank && !self.out.ends_with(char::is_whitespace) {
            self.out.push(' ');
        }
        self.breaks = 0;
        self.blank = false;
    }

    fn quotes(&self) -> String {
        "> ".repeat(self.count(Kind::Quote))
    }

    /// The next text begins on a line of its own, with `lines - 1` blank lines before it.
    fn break_lines(&mut self, lines: usize) {
        if self.is_in(Kind::Cell) && !self.is_layout() {
            // A cell has one line.
            self.blank = true;
            return;
        }
        if let Some(preformatted) = &mut self.preformatted {
            if !preformatted.text.ends_with('\n') {
                preformatted.text.push('\n');
            }
            return;
        }
        if self.bullet.is_some() {
            // The item has no text yet.
            return;
        }
        self.breaks = self.breaks.max(lines);
        self.blank = false;
    }

    fn is_in(&self, kind: Kind) -> bool {
        self.open.iter().any(|open| open.kind == kind)
    }

    /// A table in a table is there for its looks.
    fn is_layout(&self) -> bool {
        self.count(Kind::Table) != 1 || self.open.iter().any(|open| open.is_layout)
    }

    fn count(&self, kind: Kind) -> usize {
        let open = self.open.iter().filter(|open| open.kind == kind);
        open.take(MOST_NESTED).count()
    }

    fn last_mut(&mut self, kind: Kind) -> Option<&mut Open> {
        self.open.iter_mut().rev().find(|open| open.kind == kind)
    }

    fn finish(mut self) -> Markdown {
        self.close_from(0);
        let all = self.out.trim();
        let main = self.main.and_then(|main| {
            let to = main.to.unwrap_or(self.out.len());
            self.out.get(main.from..to).map(str::trim)
        });
        let letters = |text: &str| text.chars().filter(|sign| sign.is_alphanumeric()).count();
        let main = main.filter(|main| letters(main) >= LEAST_MAIN);
        let text = main.unwrap_or(all);
        Markdown {
            title: self.title,
            beside: all.chars().count() - text.chars().count(),
            text: text.to_owned(),
        }
    }
}
