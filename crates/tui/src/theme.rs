//! What the parts of the screen look like. Roles use the terminal's own sixteen colours, so they
//! follow the user's palette; nothing is said by colour alone.

use ratatui::style::{Color, Modifier, Style};

use crate::keymap::Chord;

/// How many colours the terminal shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColorDepth {
    /// `NO_COLOR`: bold, dim, underline and reverse only.
    None,
    #[default]
    Ansi16,
    Ansi256,
    True,
}

/// What the terminal's background is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Background {
    #[default]
    Dark,
    Light,
}

/// What a terminal says about itself in the environment; the binary reads it, this judges it.
#[derive(Clone, Copy, Debug, Default)]
pub struct TerminalHints<'a> {
    /// `NO_COLOR` is set and not empty.
    pub no_color: bool,
    pub term: Option<&'a str>,
    pub colorterm: Option<&'a str>,
    /// `foreground;background` as some terminals set it.
    pub colorfgbg: Option<&'a str>,
}

/// How many colours there are, and on what background; a dark one when nobody says.
#[must_use]
pub fn detect(hints: TerminalHints<'_>) -> (ColorDepth, Background) {
    let term = hints.term.unwrap_or_default();
    let depth = if hints.no_color || matches!(term, "" | "dumb") {
        ColorDepth::None
    } else if matches!(hints.colorterm, Some("truecolor" | "24bit")) || term.ends_with("-direct") {
        ColorDepth::True
    } else if term.contains("256color") {
        ColorDepth::Ansi256
    } else {
        ColorDepth::Ansi16
    };
    let background = hints
        .colorfgbg
        .and_then(|colors| colors.rsplit(';').next()?.parse::<u8>().ok());
    let background = match background {
        Some(7 | 9..=15) => Background::Light,
        _ => Background::Dark,
    };
    (depth, background)
}

/// Colours somebody chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThemeChoice {
    /// The terminal's own sixteen, which suit its background whatever that is.
    #[default]
    Auto,
    /// Our own for a dark background, as exact as the terminal shows them.
    Dark,
    /// Our own for a light background.
    Light,
    None,
}

impl ThemeChoice {
    pub const ALL: [Self; 4] = [Self::Auto, Self::Dark, Self::Light, Self::None];

    /// As one types it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Dark => "dark",
            Self::Light => "light",
            Self::None => "none",
        }
    }

    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.name() == word)
    }

    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Auto => "the terminal's own 16 colours",
            Self::Dark => "exact colours for a dark background",
            Self::Light => "exact colours for a light background",
            Self::None => "no colours",
        }
    }
}

/// Styles by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    pub depth: ColorDepth,
    pub background: Background,
    /// Code without colours, where it is drawn anew too often for them.
    pub plain_code: bool,
    /// The key that shows more of what is shown in short.
    pub more: Chord,
}

impl Default for Theme {
    fn default() -> Self {
        Self {
            depth: ColorDepth::default(),
            background: Background::default(),
            plain_code: false,
            more: Chord::control('t'),
        }
    }
}

impl Theme {
    /// The theme of a choice on a terminal that shows this many colours on this background.
    #[must_use]
    pub fn of(choice: ThemeChoice, shows: ColorDepth, background: Background) -> Self {
        let (depth, background) = match choice {
            ThemeChoice::Auto => (shows.min(ColorDepth::Ansi16), background),
            ThemeChoice::Dark => (shows, Background::Dark),
            ThemeChoice::Light => (shows, Background::Light),
            ThemeChoice::None => (ColorDepth::None, background),
        };
        Self {
            depth,
            background,
            ..Self::default()
        }
    }

    fn colored(self, color: Color) -> Style {
        if self.depth == ColorDepth::None {
            Style::new()
        } else {
            Style::new().fg(color)
        }
    }

    #[must_use]
    pub fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    #[must_use]
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    #[must_use]
    pub fn accent(self) -> Style {
        self.colored(Color::Cyan)
    }

    #[must_use]
    pub fn good(self) -> Style {
        self.colored(Color::Green)
    }

    #[must_use]
    pub fn bad(self) -> Style {
        self.colored(Color::Red)
    }

    #[must_use]
    pub fn warn(self) -> Style {
        self.colored(Color::Yellow)
    }

    #[must_use]
    pub fn code(self) -> Style {
        self.colored(match (self.depth, self.background) {
            // Blue is what palettes differ most in.
            (ColorDepth::None | ColorDepth::Ansi16, _) => Color::Cyan,
            (_, Background::Dark) => Color::LightBlue,
            (_, Background::Light) => Color::Blue,
        })
    }

    /// Something that stands for what cannot be seen.
    #[must_use]
    pub fn mark(self) -> Style {
        self.colored(Color::Magenta)
            .add_modifier(Modifier::REVERSED)
    }

    #[must_use]
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A line that a diff adds.
    #[must_use]
    pub fn added(self) -> Style {
        match (self.depth, self.background) {
            (ColorDepth::True, Background::Dark) => Style::new().bg(Color::Rgb(18, 50, 28)),
            (ColorDepth::True, Background::Light) => Style::new().bg(Color::Rgb(218, 245, 224)),
            (ColorDepth::Ansi256, Background::Dark) => Style::new().bg(Color::Indexed(22)),
            (ColorDepth::Ansi256, Background::Light) => Style::new().bg(Color::Indexed(194)),
            _ => self.good(),
        }
    }

    /// A line that a diff takes away.
    #[must_use]
    pub fn removed(self) -> Style {
        match (self.depth, self.background) {
            (ColorDepth::True, Background::Dark) => Style::new().bg(Color::Rgb(66, 24, 28)),
            (ColorDepth::True, Background::Light) => Style::new().bg(Color::Rgb(252, 224, 224)),
            (ColorDepth::Ansi256, Background::Dark) => Style::new().bg(Color::Indexed(52)),
            (ColorDepth::Ansi256, Background::Light) => Style::new().bg(Color::Indexed(224)),
            _ => self.bad(),
        }
    }

    /// The colour nearest to `red, green, blue` this terminal shows, or none where only its own
    /// sixteen are used.
    #[must_use]
    pub fn nearest(self, red: u8, green: u8, blue: u8) -> Option<Color> {
        match self.depth {
            ColorDepth::None | ColorDepth::Ansi16 => None,
            ColorDepth::True => Some(Color::Rgb(red, green, blue)),
            ColorDepth::Ansi256 => Some(Color::Indexed(cube(red, green, blue))),
        }
    }
}

/// The place in the 6x6x6 cube of the 256-colour palette.
fn cube(red: u8, green: u8, blue: u8) -> u8 {
    let step = |value: u8| match value {
        0..48 => 0u8,
        48..115 => 1,
        _ => (value - 35) / 40,
    };
    16 + 36 * step(red) + 6 * step(green) + step(blue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colour_there_is_none() {
        let theme = Theme {
            depth: ColorDepth::None,
            ..Theme::default()
        };
        for style in [
            theme.accent(),
            theme.good(),
            theme.bad(),
            theme.warn(),
            theme.code(),
            theme.mark(),
            theme.added(),
            theme.removed(),
            theme.selected(),
        ] {
            assert_eq!((style.fg, style.bg), (None, None));
        }
        assert_eq!(theme.nearest(200, 20, 20), None);
    }

    #[test]
    fn terminals_say_what_they_can() {
        let check = |no_color, term, colorterm, colorfgbg, expected| {
            let hints = TerminalHints {
                no_color,
                term: Some(term),
                colorterm,
                colorfgbg,
            };
            assert_eq!(detect(hints), expected, "{hints:?}");
        };
        check(
            false,
            "xterm",
            None,
            None,
            (ColorDepth::Ansi16, Background::Dark),
        );
        check(
            false,
            "xterm-256color",
            None,
            Some("0;15"),
            (ColorDepth::Ansi256, Background::Light),
        );
        check(
            false,
            "xterm-256color",
            Some("truecolor"),
            Some("15;0"),
            (ColorDepth::True, Background::Dark),
        );
        check(
            true,
            "xterm-256color",
            Some("truecolor"),
            None,
            (ColorDepth::None, Background::Dark),
        );
        check(
            false,
            "dumb",
            None,
            None,
            (ColorDepth::None, Background::Dark),
        );
    }

    #[test]
    fn colours_come_down_to_what_is_there() {
        let theme = |depth| Theme::of(ThemeChoice::Dark, depth, Background::Dark);
        assert_eq!(theme(ColorDepth::Ansi16).nearest(200, 20, 20), None);
        assert_eq!(
            theme(ColorDepth::Ansi256).nearest(255, 0, 0),
            Some(Color::Indexed(196))
        );
    }

    #[test]
    fn the_palette_is_the_terminals_unless_somebody_asks_for_more() {
        let check = |choice, shows, expected| {
            let theme = Theme::of(choice, shows, Background::Dark);
            assert_eq!(theme.depth, expected, "{choice:?} {shows:?}");
        };
        check(ThemeChoice::Auto, ColorDepth::True, ColorDepth::Ansi16);
        check(ThemeChoice::Auto, ColorDepth::None, ColorDepth::None);
        check(ThemeChoice::Light, ColorDepth::True, ColorDepth::True);
        check(ThemeChoice::Dark, ColorDepth::None, ColorDepth::None);
        check(ThemeChoice::None, ColorDepth::True, ColorDepth::None);
        let auto = Theme::of(ThemeChoice::Auto, ColorDepth::True, Background::Light);
        for style in [auto.added(), auto.removed(), auto.code(), auto.warn()] {
            assert!(
                !matches!(style.fg, Some(Color::Rgb(..) | Color::Indexed(_))) && style.bg.is_none(),
                "{style:?}"
            );
        }
        for choice in ThemeChoice::ALL {
            assert_eq!(ThemeChoice::named(choice.name()), Some(choice));
        }
    }
}
