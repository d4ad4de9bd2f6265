//! Markdown of answers as lines. What is drawn for a finished block never changes when more text
//! follows, so that finished blocks can go to the scrollback while the rest still streams in.

mod finished;
mod table;

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::highlight::{Highlighter, is_worth_coloring};
use crate::safe;
use crate::text::{Break, wrap};
use crate::theme::{ColorDepth, Theme};
use agent_text::width;
pub use finished::{Marks, finished_prefix};
use table::Table;

const OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_TASKLISTS);

/// `text`, foreign and unchecked, as lines of at most `columns`.
#[must_use]
pub fn render(text: &str, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    render_from(text, 0, columns, theme).0
}

/// The same, with the places where its lines stay as they are. Code up to the place `from` has no
/// colours: it is on the screen already.
#[must_use]
pub fn render_from(
    text: &str,
    from: usize,
    columns: usize,
    theme: Theme,
) -> (Vec<Line<'static>>, Marks) {
    let cleaned = safe::content(text);
    let mut renderer = Renderer::new(columns.max(8), from, theme);
    for (event, place) in Parser::new_ext(&cleaned, OPTIONS).into_offset_iter() {
        renderer.event(event, place);
    }
    renderer.finish()
}

struct Renderer {
    columns: usize,
    /// What is before this place is not shown.
    from: usize,
    theme: Theme,
    lines: Vec<Line<'static>>,
    marks: Marks,
    spans: Vec<Span<'static>>,
    styles: Vec<Style>,
    /// What stands before each line of the open containers: quote bars and list indents.
    prefixes: Vec<Prefix>,
    lists: Vec<Option<u64>>,
    code: Option<Code>,
    table: Option<Table>,
    link: Option<String>,
    heading: bool,
}

/// Code that is being read.
struct Code {
    language: String,
    text: String,
    /// Where the text has come to, and the place in the source behind it.
    places: Vec<(usize, usize)>,
}

impl Code {
    fn push(&mut self, text: &str, place: Range<usize>) {
        let before = self.text.len();
        self.text.push_str(text);
        // Several lines may come at once, then as they stand in the source.
        if text.len() == place.len() {
            for (at, _) in text.match_indices('\n') {
                self.places.push((before + at + 1, place.start + at + 1));
            }
        } else {
            self.places.push((self.text.len(), place.end));
        }
    }
}

struct Prefix {
    first: Option<String>,
    rest: String,
}

impl Renderer {
    fn new(columns: usize, from: usize, theme: Theme) -> Self {
        Self {
            columns,
            from,
            theme,
            lines: Vec::new(),
            marks: Marks::default(),
            spans: Vec::new(),
            styles: vec![Style::new()],
            prefixes: Vec::new(),
            lists: Vec::new(),
            code: None,
            table: None,
            link: None,
            heading: false,
        }
    }

    fn finish(mut self) -> (Vec<Line<'static>>, Marks) {
        self.flush();
        while self.lines.last().is_some_and(|line| line.width() == 0) {
            self.lines.pop();
        }
        (self.lines, self.marks)
    }

    /// What is before `place` is closed.
    fn mark(&mut self, place: usize) {
        self.flush();
        // A gap belongs to what follows it.
        let last = self.lines.iter().rposition(|line| line.width() > 0);
        self.marks.push(place, last.map_or(0, |last| last + 1));
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn push_style(&mut self, style: Style) {
        self.styles.push(self.style().patch(style));
    }

    fn event(&mut self, event: Event<'_>, place: Range<usize>) {
        match event {
            Event::Start(tag) => {
                if begins_block(&tag) {
                    self.mark(place.start);
                }
                self.start(tag);
            }
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some(code) => code.push(&text, place),
                // A character reference such as `&#27;` is a character only now.
                None => self
                    .spans
                    .push(Span::styled(safe::one_line(&text), self.style())),
            },
            Event::Code(code) => {
                let style = self.style().patch(self.theme.code());
                // Where colours do not tell code from words, the marks do.
                let text = match self.theme.depth {
                    ColorDepth::None => format!("`{code}`"),
                    _ => code.into_string(),
                };
                self.spans.push(Span::styled(text, style));
            }
            Event::SoftBreak => self.spans.push(Span::styled(" ", self.style())),
            Event::HardBreak => self.flush(),
            Event::Rule => {
                self.mark(place.start);
                self.gap();
                let rule = "─".repeat(self.columns.min(40));
                self.spans.push(Span::styled(rule, self.theme.dim()));
                self.flush();
            }
            Event::TaskListMarker(done) => {
                self.spans
                    .push(Span::raw(if done { "[x] " } else { "[ ] " }));
            }
            // Markup is not drawn, but it is what was said.
            Event::Html(text) | Event::InlineHtml(text) => {
                for part in text.split_inclusive('\n') {
                    let style = self.style();
                    self.spans
                        .push(Span::styled(part.trim_end_matches('\n').to_owned(), style));
                    if part.ends_with('\n') {
                        self.flush();
                    }
                }
            }
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.spans
                    .push(Span::styled(text.into_string(), self.style()));
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.gap_unless_in_item(),
            Tag::Heading { level, .. } => {
                self.gap();
                self.heading = true;
                let mut style = self.theme.strong();
                if level == HeadingLevel::H1 {
                    style = style.add_modifier(Modifier::UNDERLINED);
                }
                self.push_style(style);
                let marks = "#".repeat(level as usize);
                self.spans
                    .push(Span::styled(format!("{marks} "), self.theme.dim()));
            }
            Tag::BlockQuote(_) => {
                self.gap_unless_in_item();
                self.prefixes.push(Prefix {
                    first: None,
                    rest: "│ ".into(),
                });
            }
            Tag::CodeBlock(kind) => {
                self.flush();
                self.gap_unless_in_item();
                let language = match kind {
                    CodeBlockKind::Fenced(info) => {
                        info.split([' ', ',']).next().unwrap_or_default().to_owned()
                    }
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some(Code {
                    language,
                    text: String::new(),
                    places: Vec::new(),
                });
            }
            Tag::List(first) => {
                if self.lists.is_empty() {
                    self.gap();
                } else {
                    self.flush();
                }
                self.lists.push(first);
            }
            Tag::Item => {
                self.flush();
                let bullet = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "• ".to_owned(),
                };
                let rest = " ".repeat(width(&bullet));
                self.prefixes.push(Prefix {
                    first: Some(bullet),
                    rest,
                });
            }
            Tag::Emphasis => self.push_style(Style::new().add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.push_style(self.theme.strong()),
            Tag::Strikethrough => {
                self.push_style(Style::new().add_modifier(Modifier::CROSSED_OUT));
                self.strike();
            }
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.link = Some(safe::one_line(&dest_url));
                self.push_style(Style::new().add_modifier(Modifier::UNDERLINED));
            }
            Tag::HtmlBlock => self.gap_unless_in_item(),
            Tag::Table(alignments) => {
                self.gap();
                self.table = Some(Table {
                    alignments,
                    rows: Vec::new(),
                });
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => self.flush(),
            TagEnd::Heading(_) => {
                self.flush();
                self.heading = false;
                self.styles.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.prefixes.pop();
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                self.flush();
                self.lists.pop();
            }
            TagEnd::Item => {
                self.flush();
                // An empty item still has its bullet.
                if self
                    .prefixes
                    .last()
                    .is_some_and(|item| item.first.is_some())
                {
                    self.push_wrapped(&Line::default(), 0, Break::Words);
                }
                self.prefixes.pop();
            }
            TagEnd::Emphasis | TagEnd::Strong => {
                self.styles.pop();
            }
            TagEnd::Strikethrough => {
                self.strike();
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                if let Some(target) = self.link.take() {
                    let said: String = self
                        .spans
                        .iter()
                        .map(|span| span.content.as_ref())
                        .collect();
                    // The text of a link may say another address than it has: both are shown.
                    if !said.ends_with(&target) && !target.is_empty() {
                        self.spans
                            .push(Span::styled(format!(" ({target})"), self.theme.dim()));
                    }
                }
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.spans);
                if let Some(row) = self.table.as_mut().and_then(|table| table.rows.last_mut()) {
                    row.push(cell);
                }
            }
            TagEnd::Table => self.end_table(),
            _ => {}
        }
    }

    /// Not every terminal can strike out, and what is struck out says the opposite.
    fn strike(&mut self) {
        self.spans.push(Span::styled("~~", self.style()));
    }

    fn gap(&mut self) {
        self.flush();
        if self.lines.last().is_some_and(|line| line.width() > 0) {
            self.lines.push(Line::default());
        }
    }

    /// Lists are drawn without blank lines between their items, however they are written, so that
    /// an item that comes later cannot change those before it.
    fn gap_unless_in_item(&mut self) {
        if self.lists.is_empty() {
            self.gap();
        } else {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.spans.is_empty() || self.table.is_some() {
            return;
        }
        let line = Line::from(std::mem::take(&mut self.spans));
        self.push_wrapped(&line, 0, Break::Words);
    }

    fn push_wrapped(&mut self, line: &Line<'static>, hang: usize, breaks: Break) {
        let lead_width: usize = self.prefixes.iter().map(|prefix| width(&prefix.rest)).sum();
        // The text gets at least half of the line, however deep it is nested; the inner marks stay.
        let room = self.columns.saturating_sub(lead_width);
        let room = room.max(self.columns / 2);
        let surplus = (lead_width + room).saturating_sub(self.columns);
        for mut row in wrap(line, room, hang, breaks) {
            let lead = self
                .prefixes
                .iter_mut()
                .map(|prefix| prefix.first.take().unwrap_or_else(|| prefix.rest.clone()))
                .collect::<String>();
            let lead: String = lead.chars().skip(surplus).collect();
            if !lead.is_empty() {
                row.spans.insert(0, Span::styled(lead, self.theme.dim()));
            }
            self.lines.push(row);
        }
    }

    fn end_code(&mut self) {
        let Some(code) = self.code.take() else {
            return;
        };
        let mut highlighter = Highlighter::for_language(&code.language, self.theme);
        let mut places = code.places.iter().peekable();
        let mut end = 0;
        for code_line in code.text.trim_end_matches('\n').split('\n') {
            end += code_line.len() + 1;
            while places.next_if(|(at, _)| *at < end).is_some() {}
            let place = places.peek().filter(|(at, _)| *at == end);
            let place = place.map(|(_, place)| *place);
            if place.is_some_and(|place| place <= self.from) {
                highlighter.pass(code_line);
                for prefix in &mut self.prefixes {
                    prefix.first = None;
                }
                // It stands for the line, however many rows that took.
                self.lines.push(Line::raw(" "));
            } else {
                // The rest of a very long text is shown without colours.
                let mut spans = match is_worth_coloring(end) {
                    true => highlighter.line(code_line),
                    false => vec![Span::raw(code_line.to_owned())],
                };
                spans.insert(0, Span::raw("  "));
                self.push_wrapped(&Line::from(spans), 2, Break::Anywhere);
            }
            if let Some(place) = place {
                self.marks.push(place, self.lines.len());
            }
        }
    }
}

/// True for what cannot be a part of the block before it.
fn begins_block(tag: &Tag<'_>) -> bool {
    matches!(
        tag,
        Tag::Paragraph
            | Tag::Heading { .. }
            | Tag::BlockQuote(_)
            | Tag::CodeBlock(_)
            | Tag::HtmlBlock
            | Tag::List(_)
            | Tag::Item
            | Tag::Table(_)
    )
}

#[cfg(test)]
mod tests {
    use super::table::narrow;
    use super::*;

    fn drawn(text: &str, columns: usize) -> Vec<String> {
        render(text, columns, Theme::default())
            .iter()
            .map(|line| line.to_string().trim_end().to_owned())
            .collect()
    }

    fn check(text: &str, expected: &[&str]) {
        assert_eq!(drawn(text, 40), expected, "{text:?}");
    }

    #[test]
    fn blocks_have_their_shape() {
        check(
            "# Title\ntext *it* **bo** `co`",
            &["# Title", "", "text it bo co"],
        );
        check("- a\n- b\n  - c\n\n- d", &["• a", "• b", "  • c", "• d"]);
        check("3. x\n4. y", &["3. x", "4. y"]);
        check("> quoted\n> more", &["│ quoted more"]);
        check(
            "```rust\nfn a() {}\n\nb\n```\nafter",
            &["  fn a() {}", "", "  b", "", "after"],
        );
        check(
            "| a | b |\n|---|--:|\n| x | 1 |",
            &["a │ b", "──┼──", "x │ 1"],
        );
        check("[text](http://x) <http://y>", &["text (http://x) http://y"]);
        check("- [x] done\n- [ ] open", &["• [x] done", "• [ ] open"]);
        check("a <b>c</b>", &["a <b>c</b>"]);
        check("evil \x1b[2J\x1b]0;x\x07text", &["evil ␛␛text"]);
    }

    #[test]
    fn a_character_reference_is_no_way_around_the_filter() {
        check("a&#27;[2J b &amp; &lt;c", &["a␛[2J b & <c"]);
        check("<b>&#1;|\nx", &["<b>␁| x"]);
        check("&#x202e;exe", &["⟨U+202E⟩exe"]);
        check("[x](http://y&#27;c)", &["x (http://y␛)"]);
    }

    #[test]
    fn nothing_is_said_by_a_style_alone() {
        check("keep ~~not this~~", &["keep ~~not this~~"]);
        let theme = Theme {
            depth: ColorDepth::None,
            ..Theme::default()
        };
        let shown = render("run `ls` now", 40, theme);
        assert_eq!(shown[0].to_string(), "run `ls` now");
    }

    #[test]
    fn columns_stand_as_the_table_says() {
        check(
            "| left | mid | right |\n|:--|:-:|--:|\n| a | b | c |",
            &[
                "left │ mid │ right",
                "─────┼─────┼──────",
                "a    │  b  │     c",
            ],
        );
    }

    #[test]
    fn code_that_is_too_wide_goes_on_below_itself() {
        assert_eq!(drawn("```\n0123456789\n```", 8), ["  012345", "  6789"]);
    }

    #[test]
    fn wide_tables_and_lines_are_wrapped_and_not_cut() {
        let table = format!("| a | b |\n|---|---|\n| {} | y |", "word ".repeat(20));
        let rows = drawn(&table, 40);
        assert_eq!(rows.iter().filter(|row| row.contains("word")).count(), 3);
        assert!(rows.iter().all(|row| width(row) <= 40));
        assert_eq!(rows.join(" ").matches("word").count(), 20);
    }

    #[test]
    fn what_stands_deep_fits_and_keeps_its_own_mark() {
        assert_eq!(drawn("0. * `*ext", 8), [". • `*ex", "    t"]);
        assert_eq!(drawn(">>>>-\n>>>>-", 9), [" │ •", " │ •"]);
        let quoted = drawn(&format!("{} deep in here", ">".repeat(300)), 20);
        assert_eq!(quoted, ["│ │ │ │ │ deep in", "│ │ │ │ │ here"]);
    }

    #[test]
    fn the_widest_columns_give_way() {
        for (before, room, after) in [
            (vec![3, 4], 9, vec![3, 4]),
            (vec![3, 40, 5], 20, vec![3, 12, 5]),
            (vec![9, 2, 9, 9], 16, vec![5, 2, 5, 4]),
            (vec![50_000, 1], 0, vec![0, 0]),
        ] {
            let mut widths = before;
            narrow(&mut widths, room);
            assert_eq!(widths, after);
        }
    }

    /// The lines of a finished prefix must be the first lines of the whole.
    #[test]
    fn what_is_finished_stays_as_it_is() {
        let text = "Intro text\nmore\n\n- one\n- two\n\n- three\n\nAfter the list\n\n```python\nx = 1\n\ny = 2\n```\n\n| a |\n|---|\n| 1 |\n\nEnd\n";
        let whole = drawn(text, 30);
        let mut seen = 0;
        for end in 0..=text.len() {
            let finished = finished_prefix(&text[..end]);
            assert!(finished >= seen, "never goes back");
            seen = finished;
            let part = drawn(&text[..finished], 30);
            assert_eq!(part, whole[..part.len()], "{:?}", &text[..finished]);
        }
        assert!(seen > text.len() - 10);
    }
}
