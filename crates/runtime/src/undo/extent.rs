//! Which part of a session is meant: all of it, a turn, or a range of events; and which paths.

use std::path::{Component, Path, PathBuf};

use agent_history::workspace::Workspace;

use crate::Runtime;
use crate::error::RuntimeError;

/// Which events are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// The whole session.
    #[default]
    All,
    /// Everything after this event.
    After(u64),
    /// After the first and up to the second; a missing one is the session's start or end.
    Between(Option<u64>, Option<u64>),
    /// One turn: its number from 1, its id or a beginning of it, or `last`.
    Turn(String),
    /// The last turn whose changes are still there, and all that came after it.
    LastChange,
}

/// An extent as sequences: after `from` (`None`: from the start), up to and with `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: Option<u64>,
    pub to: u64,
}

impl Extent {
    /// Finds the events in the session.
    pub fn span(&self, workspace: &Workspace) -> Result<Span, RuntimeError> {
        let last = workspace.next_sequence().saturating_sub(1);
        let known = |sequence: u64| {
            if sequence <= last {
                return Ok(sequence);
            }
            Err(RuntimeError::usage(format!(
                "no event {sequence}: the last event of the session is {last}"
            )))
        };
        let span = match self {
            Self::All => Span {
                from: None,
                to: last,
            },
            Self::After(sequence) => Span {
                from: Some(known(*sequence)?),
                to: last,
            },
            Self::Between(from, to) => Span {
                from: from.map(known).transpose()?,
                to: to.map(known).transpose()?.unwrap_or(last),
            },
            Self::Turn(asked) => turn(asked, workspace)?,
            Self::LastChange => {
                // Turns whose changes were taken back already are passed over, so that asking again
                // goes one turn further.
                let changes_left = |from: &Option<u64>| !workspace.between(*from, last).is_empty();
                let turns = workspace.turns().iter().rev();
                let from = turns
                    .map(|turn| turn.first.checked_sub(1))
                    .find(changes_left)
                    .flatten();
                Span { from, to: last }
            }
        };
        if span.from.is_some_and(|from| from > span.to) {
            return Err(RuntimeError::usage("the range ends before it starts"));
        }
        Ok(span)
    }
}

fn turn(asked: &str, workspace: &Workspace) -> Result<Span, RuntimeError> {
    let turns = workspace.turns();
    let by_number = asked
        .parse::<usize>()
        .ok()
        .and_then(|number| turns.get(number.checked_sub(1)?));
    let by_id = || {
        let begins = |id: &str| id.strip_prefix("turn_").unwrap_or(id).starts_with(asked);
        let mut found = turns.iter().filter(|span| {
            !asked.is_empty()
                && (span.turn_id.as_str().starts_with(asked) || begins(span.turn_id.as_str()))
        });
        found.next().filter(|_| found.next().is_none())
    };
    let found = match asked {
        "last" => turns.last(),
        _ => by_number.or_else(by_id),
    };
    let Some(span) = found else {
        return Err(RuntimeError::usage(format!(
            "no turn `{asked}`: the session has {}",
            agent_text::counted(turns.len() as u64, "turn")
        ))
        .hint("use its number, its id or a unique prefix of it, or `last`"));
    };
    Ok(Span {
        from: span.first.checked_sub(1),
        to: span.last,
    })
}

/// Paths a command is limited to; none means all.
#[derive(Clone, Debug, Default)]
pub struct Chosen(Vec<PathBuf>);

impl Chosen {
    /// Paths as the user wrote them, seen from where the user is.
    pub fn new(runtime: &Runtime, given: &[String]) -> Result<Self, RuntimeError> {
        let root = runtime.project.root();
        let inside = |given: &String| {
            let path = normal(&runtime.host.cwd.join(given));
            match path.strip_prefix(root) {
                Ok(inside) => Ok(inside.to_owned()),
                Err(_) => Err(RuntimeError::usage(format!(
                    "`{given}` is not in the project `{}`",
                    root.display()
                ))),
            }
        };
        Ok(Self(given.iter().map(inside).collect::<Result<_, _>>()?))
    }

    /// Whether `path` is one of them or below one.
    pub fn has(&self, path: &str) -> bool {
        self.0.is_empty()
            || self
                .0
                .iter()
                .any(|chosen| Path::new(path).starts_with(chosen))
    }

    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }
}

/// Without `.` and `..`, by name only: the file may be gone.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}
