//! Analysis of a script: its simple commands with their words, redirects and
//! the directories they may run in.

use std::path::{Component, Path, PathBuf};

use super::prescan::Refusal;
use super::walk::MAX_DEPTH;
use super::word::{UNKNOWN, Value, Word};

/// Working directory a script starts in.
pub struct Start<'a> {
    pub directory: PathBuf,
    pub home: PathBuf,
    /// True if a path is a directory, if that is known; `cd` to one that exists cannot fail
    /// quietly.
    pub is_directory: &'a dyn Fn(&Path) -> Option<bool>,
}

/// The directories a command may be running in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Directories {
    Known(Vec<PathBuf>),
    Unknown,
}

impl Directories {
    pub(crate) fn union(&self, other: &Self) -> Self {
        let (Self::Known(left), Self::Known(right)) = (self, other) else {
            return Self::Unknown;
        };
        let mut all = left.clone();
        for directory in right {
            if !all.contains(directory) {
                all.push(directory.clone());
            }
        }
        if all.len() > MAX_DEPTH {
            Self::Unknown
        } else {
            Self::Known(all)
        }
    }
}

/// Position of a command in the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the script's own lists and pipelines.
    Plain,
    /// Started by the command with this index.
    Wrapped(usize),
    /// In a substitution, compound command, function or string that is run as a script.
    Nested,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedirectKind {
    Read,
    Write,
    Duplicate,
    HereDocument,
    HereString,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub kind: RedirectKind,
    pub target: Word,
    pub directories: Directories,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub name: String,
    /// The value, when nothing in it is decided at run time.
    pub value: Option<String>,
}

/// One simple command: assignments, words, redirects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub words: Vec<Word>,
    pub assignments: Vec<Assignment>,
    pub redirects: Vec<Redirect>,
    pub directories: Directories,
    pub place: Place,
    /// Reason it is unknown what this command starts, if so.
    pub opaque: Option<&'static str>,
    /// Another command is started by this one (see [`Place::Wrapped`]).
    pub wraps: bool,
    /// As a wrapper it is understood and adds nothing.
    pub transparent: bool,
    /// It gets its input from the command before it.
    pub piped: bool,
    /// Arguments from standard input or from matches are appended when it runs.
    pub appended_arguments: bool,
    /// The directories below which those arguments are names of files, when that is known.
    pub appended_below: Option<Vec<String>>,
}

/// All that is known about a script before it runs.
#[derive(Debug, Clone)]
pub struct Analysis {
    pub script: String,
    /// Reason the script was not parsed, if it was not.
    pub parse_error: Option<String>,
    /// Set when the script was refused before parsing.
    pub refusal: Option<Refusal>,
    pub commands: Vec<Command>,
    /// The commands of a script in the small language, of which something may be proven, or why it is none. A
    /// clause that can follow "because".
    pub small: Result<Vec<Command>, String>,
    /// The directories in which a command behind the script would run.
    pub ends_in: Directories,
    /// True if the last thing the script does is a pipeline of more than one command, whose statuses bash can be
    /// asked for without the script noticing.
    pub ends_in_pipeline: bool,
    /// The place it was read from, and what was answered about directories meanwhile.
    pub(super) rests_on: RestsOn,
}

/// The circumstances of a reading.
#[derive(Debug, Clone)]
pub(super) struct RestsOn {
    pub(super) directory: PathBuf,
    pub(super) home: PathBuf,
    pub(super) directories: Vec<(PathBuf, Option<bool>)>,
}

impl Analysis {
    /// True if the script would be read the same from `start`.
    #[must_use]
    pub fn holds(&self, start: &Start<'_>) -> bool {
        self.rests_on.directory == start.directory
            && self.rests_on.home == start.home
            && (self.rests_on.directories.iter())
                .all(|(path, answer)| (start.is_directory)(path) == *answer)
    }

    /// Commands of the script's own lists and pipelines.
    pub fn plain_commands(&self) -> impl Iterator<Item = &Command> {
        self.commands
            .iter()
            .filter(|command| command.place == Place::Plain)
    }

    /// The commands with the words they get, as far as the script is in the small language; else those that
    /// were found in it.
    pub fn known_commands(&self) -> &[Command] {
        self.small.as_deref().unwrap_or(&self.commands)
    }

    pub fn redirects(&self) -> impl Iterator<Item = &Redirect> {
        self.commands.iter().flat_map(|command| &command.redirects)
    }

    /// A person can be shown this script and no part of it is hidden.
    pub fn is_readable(&self) -> bool {
        !matches!(self.refusal, Some(Refusal::Deceptive { .. }))
    }
}

/// The directory after `cd …` or `pushd …`. Anything but one directory that is known is unknown. What only
/// an expansion names counts too: a command that goes there is never proven, and detection has to follow it.
pub(super) fn moved(words: &[Word], from: &Directories, home: &Path) -> Directories {
    let name = words.first().map(Word::sketch);
    if !matches!(name, Some("cd" | "pushd")) {
        return Directories::Unknown;
    }
    let mut operands = words
        .iter()
        .skip(1)
        .filter(|word| !matches!(word.text(), Some("--" | "-P" | "-L" | "-n")));
    let target = match (operands.next(), operands.next()) {
        (None, None) if name == Some("cd") => return Directories::Known(vec![home.to_owned()]),
        (Some(word), None) if !matches!(word.value, Value::Glob { .. }) => Some(word.sketch())
            .filter(|text| !text.starts_with(['-', '+']) && !text.contains(UNKNOWN)),
        _ => None,
    };
    match (target, from) {
        (Some(target), _) if target.starts_with('/') => {
            Directories::Known(vec![normalise(Path::new(target))])
        }
        (Some(target), Directories::Known(from)) if !target.is_empty() => Directories::Known(
            from.iter()
                .map(|directory| normalise(&directory.join(target)))
                .collect(),
        ),
        _ => Directories::Unknown,
    }
}

/// Takes `.` and `..` out by their names alone, as `cd` does.
pub(crate) fn normalise(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                result.pop();
            }
            other => result.push(other),
        }
    }
    result
}

pub(crate) fn empty_command(directories: Directories) -> Command {
    Command {
        words: Vec::new(),
        assignments: Vec::new(),
        redirects: Vec::new(),
        directories,
        place: Place::Plain,
        opaque: None,
        wraps: false,
        transparent: false,
        piped: false,
        appended_arguments: false,
        appended_below: None,
    }
}
