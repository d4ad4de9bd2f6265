//! Speaking to people and scripts: standard output, notes and errors, colours, width.

pub(crate) mod file;
pub(crate) mod own_name;
mod table;
mod text;
mod time;

use std::io::{self, IsTerminal as _, Write};

use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;

use crate::arguments::ColorChoice;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::host;
use agent_runtime::Environment;

pub(crate) use table::Table;
pub(crate) use text::{visible, visible_text};
pub(crate) use time::local_second;

/// Width where nothing tells us better.
const DEFAULT_WIDTH: usize = 80;

/// Where results go. Text from files or models has to pass through [`visible`] first.
#[derive(Clone)]
pub(crate) struct Output {
    color: bool,
    width: usize,
    errors: Errors,
}

/// Where notes and errors go.
#[derive(Clone, Copy)]
pub(crate) struct Errors {
    color: bool,
    volume: Volume,
}

/// How much is said beside what was asked for. Errors are always said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Volume {
    Quiet,
    Usual,
    Verbose,
}

/// The few styles we use. None of them says anything the words do not say.
#[derive(Clone, Copy)]
pub(crate) enum Tone {
    Heading,
    Good,
    Warn,
    Bad,
    Faint,
}

impl Tone {
    fn style(self) -> Style {
        let color = |color: AnsiColor| Style::new().fg_color(Some(color.into()));
        match self {
            Self::Heading => Style::new().bold(),
            Self::Good => color(AnsiColor::Green),
            Self::Warn => color(AnsiColor::Yellow),
            Self::Bad => color(AnsiColor::Red).bold(),
            Self::Faint => Style::new().dimmed(),
        }
    }
}

impl Output {
    pub(crate) fn new(choice: ColorChoice, volume: Volume, environment: &Environment) -> Self {
        let terminal_width = || {
            let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
            Some(usize::from(size.ws_col)).filter(|width| *width > 0)
        };
        let asked_width = || environment.get("COLUMNS")?.to_str()?.parse().ok();
        Self {
            color: wants_color(choice, io::stdout().is_terminal()),
            width: asked_width()
                .or_else(terminal_width)
                .unwrap_or(DEFAULT_WIDTH)
                .max(40),
            errors: Errors::new(choice, volume),
        }
    }

    /// How many columns a line should have at most.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// `text` over several lines, all but the first indented by `indent` columns.
    pub(crate) fn wrap(&self, text: &str, indent: usize) -> String {
        agent_text::width::wrap(text, self.width.saturating_sub(indent), indent)
    }

    /// `text` in `tone`, where colours are wanted.
    pub(crate) fn paint(&self, tone: Tone, text: &str) -> String {
        paint(self.color, tone, text)
    }

    /// Prints `text`, which must be safe to print, and a line break if it has none.
    pub(crate) fn print(&self, text: &str) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            stdout.write_all(b"\n")?;
        }
        stdout.flush()
    }

    /// Prints a table with its headings in `tone`.
    pub(crate) fn table(&self, table: &Table, tone: Tone) -> io::Result<()> {
        let mut lines = table.lines(self.width);
        if let Some(headings) = lines.first_mut() {
            *headings = self.paint(tone, headings);
        }
        self.print(&lines.join("\n"))
    }

    /// Prints bytes as they are.
    pub(crate) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()
    }

    /// Prints one JSON value over several lines.
    pub(crate) fn json(&self, value: &impl Serialize) -> io::Result<()> {
        self.print(&self.json_text(value)?)
    }

    /// One JSON value over several lines, safe to print.
    pub(crate) fn json_text(&self, value: &impl Serialize) -> io::Result<String> {
        let text = serde_json::to_string_pretty(value)?;
        // Inside JSON strings the same characters are risky as elsewhere, and all of them can be
        // written as escapes; outside of strings none of them occurs.
        Ok(text::json_safe(&text))
    }

    /// Writes one JSON value with a newline, piece by piece, as [`Self::json_text`] would be.
    pub(crate) fn json_to(&self, out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer_pretty(text::JsonSafe(&mut *out), value)?;
        out.write_all(b"\n")
    }

    /// Whether colours are wanted.
    pub(crate) fn has_color(&self) -> bool {
        self.color
    }

    /// Prints one JSON value on one line.
    pub(crate) fn json_line(&self, value: &impl Serialize) -> io::Result<()> {
        self.print(&text::json_safe(&serde_json::to_string(value)?))
    }

    /// Whether only what was asked for is said.
    pub(crate) fn is_quiet(&self) -> bool {
        self.errors.volume == Volume::Quiet
    }

    /// Whether more is said than was asked for.
    pub(crate) fn is_verbose(&self) -> bool {
        self.errors.volume == Volume::Verbose
    }

    /// What went wrong with a run that otherwise ended in order.
    pub(crate) fn problem(&self, text: &str) {
        self.errors.line("error", Tone::Bad, text);
    }

    /// What a reader of the answer has to know, also one who wants quiet.
    pub(crate) fn warning(&self, text: &str) {
        self.errors.line("warning", Tone::Warn, text);
    }

    /// What to do about a problem.
    pub(crate) fn hint(&self, text: &str) {
        if !self.is_quiet() {
            self.errors.line("hint", Tone::Good, text);
        }
    }

    /// Something the user should know although it was not asked for.
    pub(crate) fn note(&self, text: &str) {
        self.errors.note(text);
    }

    /// Something only those want to know who asked to be told more.
    pub(crate) fn detail(&self, text: &str) {
        if self.is_verbose() {
            self.errors.note(text);
        }
    }
}

impl Errors {
    pub(crate) fn new(choice: ColorChoice, volume: Volume) -> Self {
        Self {
            color: wants_color(choice, io::stderr().is_terminal()),
            volume,
        }
    }

    fn note(self, text: &str) {
        if self.volume != Volume::Quiet {
            self.line("note", Tone::Faint, text);
        }
    }

    /// Prints why a command failed and returns the code to end with. The one place where errors
    /// reach the user.
    pub(crate) fn report(self, failure: &Failure) -> Exit {
        if failure.is_closed_output() {
            return Exit::OutputClosed;
        }
        let chain: Vec<String> = failure.error.chain().map(ToString::to_string).collect();
        self.line("error", Tone::Bad, &chain.join(": "));
        for hint in failure.advice() {
            self.line("hint", Tone::Good, hint);
        }
        failure.exit
    }

    fn line(self, label: &str, tone: Tone, text: &str) {
        let label = paint(self.color, tone, &format!("{label}:"));
        let text = own_name::in_own_name(text);
        let shown: Vec<String> = text.lines().map(visible).collect();
        // When standard error is gone there is nobody left to tell.
        let _ = writeln!(io::stderr(), "{label} {}", shown.join("\n"));
    }
}

fn wants_color(choice: ColorChoice, is_terminal: bool) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => is_terminal && host::terminal_takes_colors(),
    }
}

fn paint(color: bool, tone: Tone, text: &str) -> String {
    if color {
        let style = tone.style();
        format!("{style}{text}{style:#}")
    } else {
        text.to_owned()
    }
}
