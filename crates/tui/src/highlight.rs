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

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use syntect::highlighting::{
    Color as CodeColor, FontStyle, HighlightIterator, HighlightState, Highlighter as CodeColors,
    StyleModifier, Theme as CodeTheme, ThemeItem, ThemeSet, ThemeSettings,
};
use syntect::parsing::{ParseState, ScopeStack, SyntaxReference, SyntaxSet};

use crate::theme::{Background, ColorDepth, Theme};

struct Grammars {
    syntaxes: SyntaxSet,
    dark: CodeTheme,
    light: CodeTheme,
    palette: CodeTheme,
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
            palette: palette(),
        })
    });
}

/// Scopes by the terminal's own colours. Green, magenta and cyan can be read on every palette's
/// background; blue and yellow cannot, and names keep the foreground.
const PALETTE: &[(&str, u8)] = &[
    ("comment", DIMMED),
    ("string, constant.character", 2),
    ("keyword, storage, keyword.operator.word", 5),
    ("keyword.operator", DEFAULT),
    (
        "constant.numeric, constant.language, support.type, storage.type.primitive",
        6,
    ),
    (
        "entity.name.type, entity.name.class, entity.name.struct, entity.name.enum, entity.name.trait",
        6,
    ),
    ("entity.name.tag, markup.deleted, invalid", 1),
    ("markup.inserted", 2),
];
/// Not numbers of the palette: the foreground, and the same dimmed.
const DEFAULT: u8 = 16;
const DIMMED: u8 = 17;

/// Colours that name a place in the palette, by its number where others have their red. They are
/// transparent, which no real colour of a theme is.
fn palette() -> CodeTheme {
    let color = |number| CodeColor {
        r: number,
        g: 0,
        b: 0,
        a: 0,
    };
    let item = |(scopes, number): &(&str, u8)| {
        Some(ThemeItem {
            scope: scopes.parse().ok()?,
            style: StyleModifier {
                foreground: Some(color(*number)),
                ..StyleModifier::default()
            },
        })
    };
    CodeTheme {
        settings: ThemeSettings {
            foreground: Some(color(DEFAULT)),
            ..ThemeSettings::default()
        },
        scopes: PALETTE.iter().filter_map(item).collect(),
        ..CodeTheme::default()
    }
}

/// How a colour of a theme looks.
fn shown(color: CodeColor, theme: Theme) -> Style {
    let style = Style::new();
    match (color.a, color.r) {
        (0, DIMMED) => theme.dim(),
        (0, 1) => style.fg(Color::Red),
        (0, 2) => style.fg(Color::Green),
        (0, 5) => style.fg(Color::Magenta),
        (0, 6) => style.fg(Color::Cyan),
        (0, _) => style,
        _ => Style {
            fg: theme.nearest(color.r, color.g, color.b),
            ..style
        },
    }
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
                let colors = match (theme.depth, theme.background) {
                    (ColorDepth::None | ColorDepth::Ansi16, _) => &grammars.palette,
                    (_, Background::Dark) => &grammars.dark,
                    (_, Background::Light) => &grammars.light,
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

    /// Takes in a line that is not shown.
    pub fn pass(&mut self, line: &str) {
        let Some(code) = self.code.as_mut().filter(|_| line.len() <= LONGEST_LINE) else {
            return;
        };
        code.text = hash_of(&(code.text, line));
        code.parser = None;
        code.lines.push(format!("{line}\n"));
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
                let mut shown = shown(style.foreground, theme);
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

/// True if `text` is short enough to be coloured.
#[must_use]
pub fn worth_coloring(text: &str) -> bool {
    is_worth_coloring(text.len())
}

/// The same of the first `bytes` of a text.
#[must_use]
pub fn is_worth_coloring(bytes: usize) -> bool {
    bytes <= LONGEST_TEXT
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

    /// Every scope is understood, and what is coloured can be read on light and dark.
    #[test]
    fn the_terminals_own_colours_tell_code_apart() {
        assert_eq!(palette().scopes.len(), PALETTE.len());
        load();
        let theme = Theme {
            depth: ColorDepth::Ansi16,
            ..Theme::default()
        };
        let mut highlighter = Highlighter::for_language("rust", theme);
        let spans = highlighter.line("let x = 12; // say \"so\"");
        let of = |word: &str| {
            let span = spans.iter().find(|span| span.content.contains(word));
            span.map(|span| (span.style.fg, span.style.add_modifier))
        };
        assert_eq!(of("let"), Some((Some(Color::Magenta), Modifier::empty())));
        assert_eq!(of("12"), Some((Some(Color::Cyan), Modifier::empty())));
        assert_eq!(of("say"), Some((None, Modifier::DIM)));
        assert_eq!(of("x"), Some((None, Modifier::empty())));
    }
}
