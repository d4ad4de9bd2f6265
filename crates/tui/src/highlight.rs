//! Colours for code. The grammars take a while to load, so that happens on a thread of its own and
//! code stays uncoloured until it is done: the first frame never waits.
//!
//! Code that is still being written is drawn anew with every piece of it. What was coloured is
//! remembered line by line, together with where the parser stood, so that a frame costs the last line
//! only.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::OnceLock;

use ratatui::style::{Modifier, Style};
use ratatui::text::Span;
use syntect::highlighting::{
    FontStyle, HighlightIterator, HighlightState, Highlighter as CodeColors, Theme as CodeTheme,
    ThemeSet,
};
use syntect::parsing::{ParseState, ScopeStack, SyntaxReference, SyntaxSet};

use crate::theme::{Background, ColorDepth, Theme};

struct Grammars {
    syntaxes: SyntaxSet,
    dark: CodeTheme,
    light: CodeTheme,
}

static GRAMMARS: OnceLock<Option<Grammars>> = OnceLock::new();

/// Longer lines and texts are shown without colours: colouring them would be felt.
const LONGEST_LINE: usize = 2000;
const LONGEST_TEXT: usize = 200_000;

/// Loads the grammars on a thread of its own.
pub fn warm_up() {
    if GRAMMARS.get().is_none() {
        // When no thread can be started, code simply stays uncoloured.
        let _ = std::thread::Builder::new()
            .name("grammars".into())
            .spawn(load);
    }
}

/// Loads the grammars now.
pub fn load() {
    GRAMMARS.get_or_init(|| {
        let mut themes = ThemeSet::load_defaults().themes;
        Some(Grammars {
            syntaxes: SyntaxSet::load_defaults_newlines(),
            dark: themes.remove("base16-ocean.dark")?,
            light: themes.remove("InspiredGitHub")?,
        })
    });
}

/// Lines that are remembered; then all are forgotten.
const MOST_LINES: usize = 2048;
/// How many places the parser stood at are remembered: those where more text may come.
const MOST_PLACES: usize = 32;

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

/// What was coloured lately, by a hash of everything up to there.
#[derive(Default)]
struct Memory {
    lines: HashMap<u64, Vec<Span<'static>>>,
    places: VecDeque<(u64, Place)>,
}

/// Where the parser stands after a line.
#[derive(Clone)]
struct Place {
    parsing: ParseState,
    coloring: HighlightState,
}

impl Memory {
    fn remember(&mut self, text: u64, spans: &[Span<'static>], place: &Place) {
        if self.lines.len() >= MOST_LINES {
            self.lines.clear();
        }
        self.lines.insert(text, spans.to_vec());
        if self.places.len() >= MOST_PLACES {
            self.places.pop_front();
        }
        self.places.push_back((text, place.clone()));
    }

    fn place_after(&self, text: u64) -> Option<Place> {
        let mut places = self.places.iter().rev();
        let found = places.find(|(known, _)| *known == text);
        found.map(|(_, place)| place.clone())
    }
}

/// Colours the lines of one piece of code, in order.
pub struct Highlighter {
    theme: Theme,
    code: Option<Code>,
}

/// A piece of code in a language we know.
struct Code {
    syntaxes: &'static SyntaxSet,
    syntax: &'static SyntaxReference,
    colors: &'static CodeTheme,
    /// A hash of language, colours and all lines so far.
    text: u64,
    /// The lines so far, for a parser that has to see them.
    lines: Vec<String>,
    parser: Option<(CodeColors<'static>, Place)>,
}

impl Highlighter {
    /// For the language a fence names, such as `rust`.
    #[must_use]
    pub fn for_language(language: &str, theme: Theme) -> Self {
        Self::new(theme, |syntaxes| syntaxes.find_syntax_by_token(language))
    }

    /// For the file with this path.
    #[must_use]
    pub fn for_path(path: &str, theme: Theme) -> Self {
        let extension = path
            .rsplit(['.', '/'])
            .next()
            .unwrap_or_default()
            .to_owned();
        Self::new(theme, |syntaxes| {
            syntaxes.find_syntax_by_extension(&extension)
        })
    }

    fn new(
        theme: Theme,
        find: impl FnOnce(&'static SyntaxSet) -> Option<&'static SyntaxReference>,
    ) -> Self {
        let code = match GRAMMARS.get() {
            Some(Some(grammars)) if theme.depth != ColorDepth::None && !theme.plain_code => {
                let colors = match theme.background {
                    Background::Dark => &grammars.dark,
                    Background::Light => &grammars.light,
                };
                find(&grammars.syntaxes).map(|syntax| Code {
                    syntaxes: &grammars.syntaxes,
                    syntax,
                    colors,
                    text: hash_of(&(&syntax.name, theme.depth, theme.background)),
                    lines: Vec::new(),
                    parser: None,
                })
            }
            _ => None,
        };
        Self { theme, code }
    }

    /// The next line in colours; `line` has no newline and is safe to show.
    pub fn line(&mut self, line: &str) -> Vec<Span<'static>> {
        let plain = || vec![Span::raw(line.to_owned())];
        let Some(code) = self.code.as_mut().filter(|_| line.len() <= LONGEST_LINE) else {
            return plain();
        };
        let (before, syntaxes) = (code.text, code.syntaxes);
        let text = hash_of(&(before, line));
        code.text = text;
        let whole = format!("{line}\n");
        let known = MEMORY.with_borrow(|memory| memory.lines.get(&text).cloned());
        if let Some(spans) = known {
            code.parser = None;
            code.lines.push(whole);
            return spans;
        }
        let Some((colors, place)) = code.parser_after(before) else {
            return plain();
        };
        let Ok(changes) = place.parsing.parse_line(&whole, syntaxes) else {
            return plain();
        };
        let theme = self.theme;
        let spans: Vec<_> = HighlightIterator::new(&mut place.coloring, &changes, &whole, colors)
            .map(|(style, text)| (style, text.trim_end_matches('\n')))
            .filter(|(_, text)| !text.is_empty())
            .map(|(style, text)| {
                let color = style.foreground;
                let mut shown = Style::new();
                shown.fg = theme.nearest(color.r, color.g, color.b);
                if style.font_style.contains(FontStyle::BOLD) {
                    shown = shown.add_modifier(Modifier::BOLD);
                }
                if style.font_style.contains(FontStyle::ITALIC) {
                    shown = shown.add_modifier(Modifier::ITALIC);
                }
                Span::styled(text.to_owned(), shown)
            })
            .collect();
        MEMORY.with_borrow_mut(|memory| memory.remember(text, &spans, place));
        code.lines.push(whole);
        spans
    }
}

impl Code {
    /// The parser behind the lines that `text` is the hash of, which are `self.lines`.
    fn parser_after(&mut self, text: u64) -> Option<&mut (CodeColors<'static>, Place)> {
        if self.parser.is_none() {
            let colors = CodeColors::new(self.colors);
            let known = MEMORY.with_borrow(|memory| memory.place_after(text));
            let place = match known {
                Some(place) => place,
                None => {
                    let mut place = Place {
                        parsing: ParseState::new(self.syntax),
                        coloring: HighlightState::new(&colors, ScopeStack::new()),
                    };
                    for line in &self.lines {
                        let changes = place.parsing.parse_line(line, self.syntaxes).ok()?;
                        let spans =
                            HighlightIterator::new(&mut place.coloring, &changes, line, &colors);
                        spans.for_each(drop);
                    }
                    place
                }
            };
            self.parser = Some((colors, place));
        }
        self.parser.as_mut()
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Whether `text` is short enough to be coloured as a whole.
#[must_use]
pub fn worth_coloring(text: &str) -> bool {
    text.len() <= LONGEST_TEXT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn colored(text: &str) -> Vec<Vec<Span<'static>>> {
        let theme = Theme {
            depth: ColorDepth::True,
            ..Theme::default()
        };
        let mut highlighter = Highlighter::for_language("rust", theme);
        text.lines().map(|line| highlighter.line(line)).collect()
    }

    fn forget() {
        MEMORY.with_borrow_mut(|memory| *memory = Memory::default());
    }

    #[test]
    fn what_is_remembered_is_what_would_be_made_anew() {
        load();
        let text: String = (0..100)
            .map(|line| match line % 7 {
                0 => "/* a comment that\n".to_owned(),
                3 => "goes on */ fn\n".to_owned(),
                _ => format!("let \"{line}\" = r#\"x\n"),
            })
            .collect();
        forget();
        let whole = colored(&text);
        // As it comes in: every beginning of it, some twice, with the last line cut anywhere.
        forget();
        for end in (1..text.len()).step_by(13) {
            let end = text.floor_char_boundary(end);
            let piece = &text[..end];
            let shown = colored(piece);
            let complete = piece.matches('\n').count();
            assert_eq!(shown[..complete], whole[..complete], "up to byte {end}");
        }
        assert_eq!(colored(&text), whole);
        // Where the parser stood has been forgotten, and the lines have not.
        MEMORY.with_borrow_mut(|memory| memory.places.clear());
        let longer = format!("{text}fn more() {{}}\n");
        let shown = colored(&longer);
        forget();
        assert_eq!(shown, colored(&longer));
    }
}
