//! Colours for code. The grammars take a while to load, so that happens on a thread of its own and
//! code stays uncoloured until it is done: the first frame never waits.

use std::sync::OnceLock;

use ratatui::style::{Modifier, Style};
use ratatui::text::Span;
use syntect::easy::HighlightLines;
use syntect::highlighting::{FontStyle, Theme as CodeTheme, ThemeSet};
use syntect::parsing::{SyntaxReference, SyntaxSet};

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

/// Colours the lines of one piece of code, in order.
pub struct Highlighter {
    theme: Theme,
    lines: Option<(&'static SyntaxSet, HighlightLines<'static>)>,
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
        let lines = match GRAMMARS.get() {
            Some(Some(grammars)) if theme.depth != ColorDepth::None && !theme.plain_code => {
                let colors = match theme.background {
                    Background::Dark => &grammars.dark,
                    Background::Light => &grammars.light,
                };
                find(&grammars.syntaxes)
                    .map(|syntax| (&grammars.syntaxes, HighlightLines::new(syntax, colors)))
            }
            _ => None,
        };
        Self { theme, lines }
    }

    /// The next line in colours; `line` has no newline and is safe to show.
    pub fn line(&mut self, line: &str) -> Vec<Span<'static>> {
        let plain = || vec![Span::raw(line.to_owned())];
        let Some((syntaxes, lines)) = &mut self.lines else {
            return plain();
        };
        if line.len() > LONGEST_LINE {
            return plain();
        }
        let whole = format!("{line}\n");
        let Ok(ranges) = lines.highlight_line(&whole, syntaxes) else {
            return plain();
        };
        ranges
            .into_iter()
            .map(|(style, text)| (style, text.trim_end_matches('\n')))
            .filter(|(_, text)| !text.is_empty())
            .map(|(style, text)| {
                let color = style.foreground;
                let mut shown = Style::new();
                shown.fg = self.theme.nearest(color.r, color.g, color.b);
                if style.font_style.contains(FontStyle::BOLD) {
                    shown = shown.add_modifier(Modifier::BOLD);
                }
                if style.font_style.contains(FontStyle::ITALIC) {
                    shown = shown.add_modifier(Modifier::ITALIC);
                }
                Span::styled(text.to_owned(), shown)
            })
            .collect()
    }
}

/// Whether `text` is short enough to be coloured as a whole.
#[must_use]
pub fn worth_coloring(text: &str) -> bool {
    text.len() <= LONGEST_TEXT
}
