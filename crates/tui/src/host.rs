//! The seam to whoever runs the screen: what comes in, what goes out, and what is passed in once.
//!
//! The screen opens no file, starts no program and reads no environment. What it needs from outside
//! it asks for with a [`HostRequest`] and gets as a [`HostMessage`].

use std::sync::Arc;

use agent_protocol::Event;
use agent_protocol::command::{ControlCommand, PreviewRule};
use agent_protocol::id::{ArtifactId, ProcessId, SessionId};
use agent_protocol::payload::process::SandboxStatus;
use agent_protocol::reply::RulePreview;
use agent_protocol::status::Mode;

use crate::keymap::{Action, KeyMap};
use crate::state::{State, ToolLine};
use crate::theme::{Background, ColorDepth, Theme, ThemeChoice};
use crate::view::status::StatusItem;

/// What the screen is told.
#[derive(Clone, Debug)]
pub enum Input {
    /// Something was recorded.
    Event(Arc<Event>),
    /// The past of a session that is being opened, oldest first.
    History(Vec<Arc<Event>>),
    /// The end of a long past, so that there is something to see at once. All of it follows, folded
    /// elsewhere, as [`Input::Past`].
    Tail(Vec<Arc<Event>>),
    /// The whole past that a glimpse was the end of.
    Past(Box<State>),
    /// Text on its way, finer than the log's own pieces. It is not an event: the log has it later,
    /// and what the log has takes its place.
    Live(LiveText),
    /// An answer to a [`HostRequest`], or something the host wants to say.
    Host(HostMessage),
}

/// Text of the model request that runs, as it arrives. It is shown and never printed: only what the
/// log has goes to the scrollback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveText {
    /// Part of the answer.
    Answer(String),
    /// Part of the reasoning.
    Reasoning(String),
    /// The name of a tool the model begins to call.
    Call(String),
}

/// What the screen sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    Command(ControlCommand),
    Host(HostRequest),
}

/// Something the host does for the screen. Each is answered with a [`HostMessage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostRequest {
    /// Read an artifact of this session: [`HostMessage::Artifact`].
    Artifact(ArtifactId),
    /// The project's files, ignore rules applied: [`HostMessage::Files`].
    Files,
    /// The first lines of a project file: [`HostMessage::Preview`].
    Preview { path: String },
    /// The models one can choose: [`HostMessage::Models`].
    Models,
    /// Past sessions: [`HostMessage::Sessions`].
    Sessions,
    /// The rules in force and where they come from: [`HostMessage::Document`].
    Permissions,
    /// What the sandbox enforces here: [`HostMessage::Document`].
    Sandbox,
    /// The tools as they stand now: [`HostMessage::Tools`].
    Tools,
    /// All changes to project files in this session as one diff: [`HostMessage::Document`].
    Diff,
    /// The background commands, or the output of one: [`HostMessage::Processes`], [`HostMessage::Tail`].
    Processes(ProcessRequest),
    /// What going back to before the event `at` would change; `text` is the message there:
    /// [`HostMessage::Rewind`].
    Rewind { at: u64, text: String },
    /// Write the session to a file; the answer names it.
    Export { form: ExportForm },
    /// The user trusts the project's configuration with exactly the content that was shown.
    TrustProject,
    /// Work in this mode in this project, and do not ask again.
    WorkIn(Mode),
    /// The project's configuration may only tighten.
    IgnoreProject,
    /// Keep this key of a model provider.
    KeepKey(Secret),
    /// Submit a prepared prompt as a turn; the events tell of it.
    Prepared(Prepared),
    /// Remember this prompt for Ctrl-R in later sessions; not answered.
    Remember { prompt: String },
}

/// What is wanted of the background commands. One is named by its number in the list, or its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessRequest {
    List,
    Tail(String),
    /// The same for an output that is on the screen.
    TailAgain(ProcessId),
    Stop(String),
}

/// A prompt that the host has in store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// Write AGENTS.md.
    Init,
    /// Review what is in no commit yet.
    ReviewUncommitted,
    /// Review everything since a branch was left.
    ReviewSince(String),
    ReviewCommit(String),
}

impl Prepared {
    /// The review that the words after the command ask for.
    #[must_use]
    pub fn review(words: &str) -> Option<Self> {
        let words: Vec<&str> = words.split_whitespace().collect();
        match words.as_slice() {
            [] => Some(Self::ReviewUncommitted),
            ["commit" | "--commit", name] => Some(Self::ReviewCommit((*name).to_owned())),
            ["base" | "branch" | "--base", name] | [name] => {
                Some(Self::ReviewSince((*name).to_owned()))
            }
            _ => None,
        }
    }
}

/// A form in which a session is given to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportForm {
    Jsonl,
    Portable,
    Html,
    Review,
    Evidence,
}

impl ExportForm {
    /// All of them, the plainest first.
    pub const ALL: [Self; 5] = [
        Self::Jsonl,
        Self::Portable,
        Self::Html,
        Self::Review,
        Self::Evidence,
    ];

    /// As one types it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Portable => "portable",
            Self::Html => "html",
            Self::Review => "review",
            Self::Evidence => "evidence",
        }
    }

    /// The form of this name, or of the word for what it makes.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        let word = match word {
            "log" => "jsonl",
            "page" => "html",
            other => other,
        };
        Self::ALL.into_iter().find(|form| form.name() == word)
    }

    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Jsonl => "the log byte by byte",
            Self::Portable => "events for readers of the Agent Runtime schema",
            Self::Html => "the replay as one page",
            Self::Review => "Markdown for a reviewer, each fact with its event",
            Self::Evidence => "log, artifacts, report, audit and hashes in one pack",
        }
    }
}

/// What the host says.
#[derive(Clone, Debug)]
pub enum HostMessage {
    Artifact {
        id: ArtifactId,
        content: Result<Vec<u8>, String>,
    },
    Files(Vec<String>),
    Preview {
        path: String,
        text: String,
    },
    Models(Vec<String>),
    Sessions(Vec<SessionLine>),
    Document(Document),
    Tools(Vec<ToolLine>),
    /// The background commands, the oldest first.
    Processes(Vec<ProcessLine>),
    /// The end of what a background command printed, as it is now.
    Tail {
        process_id: ProcessId,
        is_running: bool,
        /// It answers [`ProcessRequest::TailAgain`].
        is_again: bool,
        document: Document,
    },
    Rewind(RewindPlan),
    /// What the session says about a rule it was asked about.
    Rule {
        asked: PreviewRule,
        preview: RulePreview,
    },
    /// What commands will be confined by; said once, before any has run.
    Sandbox(SandboxStatus),
    /// One line, good news.
    Notice(String),
    /// One line, bad news.
    Problem(String),
    /// The branch changed.
    Branch(Option<String>),
}

/// A past session in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLine {
    pub session_id: SessionId,
    pub title: String,
    /// When and how it ended, in words.
    pub detail: String,
}

/// What going back to before a message would change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewindPlan {
    /// The event before which to branch off, and the message there.
    pub at: u64,
    pub text: String,
    /// What becomes of each file, one per line; empty when no file was changed since.
    pub files: String,
    /// By which it is known that nothing has changed since this was made.
    pub fingerprint: String,
}

/// A background command in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessLine {
    pub process_id: ProcessId,
    pub command: String,
    /// Age, state and last line, in words.
    pub detail: String,
}

/// A text to read in an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    pub title: String,
    pub text: String,
    pub format: DocumentFormat,
}

/// How a document is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DocumentFormat {
    #[default]
    Plain,
    Markdown,
    /// Unified diff.
    Diff,
}

/// Why the screen ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The user wants to leave.
    Quit,
    /// The other side is gone, or asked the screen to end.
    Ended,
    /// A signal with this number asked the process to end.
    Signal(i32),
    /// Open this session instead.
    Resume(SessionId),
    /// Begin a new session.
    NewSession,
    /// Branch off before the event `at`, with `text` in the composer.
    Fork { at: u64, text: String },
    /// Put files back as they were before the event `at`, as the plan with this fingerprint says, and branch off
    /// there, with `text` in the composer.
    Rewind {
        at: u64,
        text: String,
        fingerprint: String,
    },
    /// Play this session.
    Replay,
    /// Show the demonstration.
    Demo,
    /// Look again for a model.
    LookAgain,
}

/// What is shown before anything else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    #[default]
    Composer,
    /// No model is configured.
    FirstRun(FirstRun),
    /// The project's configuration wants more than it may.
    Trust(TrustQuestion),
    /// Mode auto is proposed for this project, whose path this is.
    Mode(String),
    /// A past session is to be chosen; leaving the list leaves the screen.
    Sessions(Vec<SessionLine>),
}

/// What was found when looking for a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstRun {
    /// What was looked for, and whether it was there.
    pub found: Vec<(String, bool)>,
    /// Lines to put into a shell or a file, as they stand.
    pub to_set: Vec<String>,
    /// Further things to know, such as what became of the last key.
    pub notes: Vec<String>,
}

/// Something that is shown nowhere, also not to whoever looks for a fault.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("(not shown)")
    }
}

/// What trusting the project's configuration would change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustQuestion {
    pub file: String,
    /// Whether other content of this file was trusted before.
    pub is_change: bool,
    /// Unified diff between what was trusted, if anything, and what the file holds now.
    pub diff: String,
}

/// Opens `text` in the user's editor and gives back what was saved. Called while the terminal is
/// released.
pub type ExternalEditor = Arc<dyn Fn(&str) -> Result<String, String> + Send + Sync>;

/// All the screen has to know from outside.
#[derive(Clone)]
pub struct Settings {
    /// What the terminal shows, and on what.
    pub colors: ColorDepth,
    pub background: Background,
    pub theme: ThemeChoice,
    /// Lines of words for a screen reader: no spinner, no boxes, no redrawing.
    pub plain: bool,
    /// Take the whole screen instead of the bottom of it.
    pub full_screen: bool,
    pub vim_keys: bool,
    /// Whether the terminal moves long lines to new rows when it gets narrower.
    pub terminal_reflows: bool,
    pub mode: Mode,
    pub model: String,
    /// The project's path as shown.
    pub cwd: String,
    pub branch: Option<String>,
    /// Earlier prompts, oldest first.
    pub history: Vec<String>,
    pub start: Start,
    /// What the composer holds at the start.
    pub prefill: String,
    pub external_editor: Option<ExternalEditor>,
    /// Whether to ring when a question waits and the terminal is not in focus.
    pub notify: bool,
    /// Whether tmux stands between this program and the terminal.
    pub is_inside_tmux: bool,
    /// Whether to give the terminal's tab a title.
    pub tab_title: bool,
    /// Whether to tell the terminal what the program is doing.
    pub program_status: bool,
    /// The parts of the status line.
    pub status: Vec<StatusItem>,
    /// Which keys do what.
    pub keys: KeyMap,
    /// Version shown on the first line.
    pub version: String,
}

impl Settings {
    /// The chosen colours on this terminal.
    #[must_use]
    pub fn theme(&self) -> Theme {
        let theme = Theme::of(self.theme, self.colors, self.background);
        let more = self.keys.chords(Action::Transcript).first();
        Theme {
            more: more.copied().unwrap_or(theme.more),
            ..theme
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            colors: ColorDepth::default(),
            background: Background::default(),
            theme: ThemeChoice::default(),
            plain: false,
            full_screen: false,
            vim_keys: false,
            terminal_reflows: true,
            mode: Mode::Ask,
            model: String::new(),
            cwd: String::new(),
            branch: None,
            history: Vec::new(),
            start: Start::default(),
            prefill: String::new(),
            external_editor: None,
            notify: true,
            is_inside_tmux: false,
            tab_title: true,
            program_status: true,
            status: StatusItem::USUAL.to_vec(),
            keys: KeyMap::default(),
            version: String::new(),
        }
    }
}
