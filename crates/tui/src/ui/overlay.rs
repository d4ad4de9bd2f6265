//! What covers the screen for a while: the transcript, a text to read, a list to choose from, the
//! first-run and trust screens.

use std::collections::HashSet;
use std::ops::Range;

use agent_protocol::id::ProcessId;

use crate::host::{
    Document, ExportForm, FirstRun, ProcessLine, RewindPlan, Secret, SessionLine, TrustQuestion,
};
use crate::theme::ThemeChoice;
use agent_protocol::status::Thinking;

#[derive(Clone, Debug)]
pub enum Overlay {
    Transcript(Transcript),
    Reader(Reader),
    Picker(Picker),
    FirstRun(FirstRun, Scroll),
    /// What going back to before a message would change.
    Rewind(RewindPlan, Scroll),
    /// A key is being entered over the screen of the first run.
    Key(Secret, FirstRun),
    Trust(TrustQuestion, Scroll),
    /// Mode auto is proposed for the project with this path.
    Mode(String, Scroll),
}

/// A place in a text and how far one can go, as of the last drawing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scroll {
    pub at: usize,
    pub last: usize,
    pub page: usize,
}

impl Scroll {
    pub fn by(&mut self, lines: isize) {
        self.at = self.at.saturating_add_signed(lines).min(self.last);
    }
}

/// A text to read.
#[derive(Clone, Debug)]
pub struct Reader {
    pub document: Document,
    pub scroll: Scroll,
    /// The running command whose output it is, and when to look at it again.
    pub watched: Option<(ProcessId, u64)>,
}

impl Reader {
    #[must_use]
    pub fn new(document: Document) -> Self {
        Self {
            document,
            scroll: Scroll::default(),
            watched: None,
        }
    }
}

/// A window on the cells. Only the cells in it are ever laid out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    /// The cell at the top, and how many of its lines are above the window.
    pub top: usize,
    pub above: usize,
    /// Stay at the end when there is more.
    pub follow: bool,
    pub selected: Option<usize>,
    pub unfolded: HashSet<usize>,
    pub all_unfolded: bool,
    /// Each call stands by itself, also where several in a row only look.
    pub one_by_one: bool,
}

impl Transcript {
    #[must_use]
    pub fn at_end() -> Self {
        Self {
            follow: true,
            ..Self::default()
        }
    }

    /// The same with each call by itself: who opens it wants to see more.
    #[must_use]
    pub fn in_detail() -> Self {
        Self {
            one_by_one: true,
            ..Self::at_end()
        }
    }

    /// True if calls in these cells that only look are told in one line.
    #[must_use]
    pub fn folds(&self, row: Range<usize>) -> bool {
        let is_opened = |cell: &usize| row.contains(cell);
        !self.one_by_one
            && !self.all_unfolded
            && !self.selected.iter().any(is_opened)
            && !self.unfolded.iter().any(is_opened)
    }

    #[must_use]
    pub fn is_unfolded(&self, cell: usize) -> bool {
        self.all_unfolded != self.unfolded.contains(&cell)
    }
}

/// A list to choose from.
#[derive(Clone, Debug)]
pub struct Picker {
    pub title: String,
    pub choices: Choices,
    pub filter: String,
    pub selected: usize,
    /// The choice that holds now, by its label.
    pub now: Option<String>,
}

#[derive(Clone, Debug)]
pub enum Choices {
    Models(Vec<String>),
    Modes,
    Thinking,
    Exports,
    Themes,
    Sessions(Vec<SessionLine>),
    Processes(Vec<ProcessLine>),
    /// Earlier messages: the event before which to branch, and the text.
    Messages(Vec<(u64, String)>),
    /// The same, to go back to before one of them.
    Rewind(Vec<(u64, String)>),
}

impl Picker {
    #[must_use]
    pub fn new(title: &str, choices: Choices) -> Self {
        let selected = match &choices {
            Choices::Messages(messages) | Choices::Rewind(messages) => {
                messages.len().saturating_sub(1)
            }
            _ => 0,
        };
        Self {
            title: title.to_owned(),
            choices,
            filter: String::new(),
            selected,
            now: None,
        }
    }

    /// Begins at the choice that holds now.
    #[must_use]
    pub fn beginning_at(mut self, now: Option<&str>) -> Self {
        self.now = now.map(crate::safe::one_line);
        let rows = self.rows();
        let is_now = |label: &String| Some(label) == self.now.as_ref();
        if let Some(at) = rows.iter().position(|(_, label, _)| is_now(label)) {
            self.selected = at;
        }
        self
    }

    /// Label and explanation of every choice the filter lets through, with its place.
    #[must_use]
    pub fn rows(&self) -> Vec<(usize, String, String)> {
        let rows: Vec<(String, String)> = match &self.choices {
            Choices::Models(models) => models
                .iter()
                .map(|model| (model.clone(), String::new()))
                .collect(),
            Choices::Modes => agent_protocol::status::Mode::ALL
                .iter()
                .map(|mode| (mode.to_string(), mode_in_words(*mode).to_owned()))
                .collect(),
            Choices::Thinking => Thinking::ALL
                .iter()
                .map(|level| (level.to_string(), thinking_in_words(*level).to_owned()))
                .collect(),
            Choices::Exports => ExportForm::ALL
                .iter()
                .map(|form| (form.name().to_owned(), form.in_words().to_owned()))
                .collect(),
            Choices::Themes => ThemeChoice::ALL
                .iter()
                .map(|choice| (choice.name().to_owned(), choice.in_words().to_owned()))
                .collect(),
            Choices::Sessions(sessions) => sessions
                .iter()
                .map(|session| (session.title.clone(), session.detail.clone()))
                .collect(),
            Choices::Processes(processes) => processes
                .iter()
                .map(|process| (process.command.clone(), process.detail.clone()))
                .collect(),
            Choices::Messages(messages) | Choices::Rewind(messages) => messages
                .iter()
                .map(|(_, text)| (text.clone(), String::new()))
                .collect(),
        };
        let filter = self.filter.to_lowercase();
        rows.into_iter()
            .enumerate()
            .filter(|(_, (label, detail))| {
                label.to_lowercase().contains(&filter) || detail.to_lowercase().contains(&filter)
            })
            .map(|(place, (label, detail))| {
                (
                    place,
                    crate::safe::one_line(&label),
                    crate::safe::one_line(&detail),
                )
            })
            .collect()
    }
}

const fn thinking_in_words(level: Thinking) -> &'static str {
    match level {
        Thinking::Off => "nothing is asked for; the model does as it usually does",
        Thinking::Minimal => "as little as the model allows",
        Thinking::Low => "a little",
        Thinking::Medium => "the usual amount",
        Thinking::High => "a lot; slower, and more tokens",
    }
}

/// What a mode allows.
#[must_use]
pub fn mode_in_words(mode: agent_protocol::status::Mode) -> &'static str {
    use agent_protocol::status::Mode;
    match mode {
        Mode::ReadOnly => "no writes; only commands known to be read-only",
        Mode::Plan => "read-only, until you approve the plan that the model hands over",
        Mode::Ask => "reads run; everything else asks",
        Mode::AcceptEdits => "edits in the project run; commands ask",
        Mode::Auto => "commands run without asking while fully sandboxed",
        Mode::Full => "nothing asks; sandbox and deny rules still apply",
    }
}
