//! Names of a session, as people use them: its id or a beginning of it, `last`, its number in the list, or
//! words of its title. One resolver, so that a name means the same to every command.

use std::path::PathBuf;

use agent_protocol::Timestamp;
use agent_protocol::id::{Id as _, SessionId};

use crate::place::PlaceError;
use crate::store::{SessionDirectory, SessionStore};

/// Sessions that `last` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// Every session with a log: for looking at what was done last.
    All,
    /// Sessions with something to continue: those of single calls are passed over, unless there are
    /// no others.
    Conversations,
}

/// A session that a name may mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its place in the list, from 1 for the one written last.
    pub number: usize,
    pub id: SessionId,
    pub title: Option<String>,
    /// When its log was last written.
    pub modified: Timestamp,
}

/// Reason a session was not found.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("there is no session `{asked}` in `{directory}`")]
    NotFound { asked: String, directory: PathBuf },
    #[error("there is no session yet in `{directory}`")]
    Empty { directory: PathBuf },
    #[error("there is no session `{asked}`: the project has {}", agent_text::counted(*count as u64, "session"))]
    OutOfRange { asked: String, count: usize },
    #[error("`{asked}` matches {} sessions", found.len())]
    Ambiguous {
        asked: String,
        found: Vec<Candidate>,
    },
    #[error(transparent)]
    Place(#[from] PlaceError),
}

impl SessionStore {
    /// Finds the session that `asked` names, among all of them.
    ///
    /// # Errors
    /// As [`SessionStore::resolve_among`].
    pub fn resolve(&self, asked: &str) -> Result<SessionDirectory, ResolveError> {
        self.resolve_among(asked, Among::All)
    }

    /// Finds the session that `asked` names: an id; `last`, or `last~N` for the Nth before it; a number
    /// of the list, 1 being the one written last; the beginning of an id, with or without `ses_`; or
    /// the title, a beginning of it or words in it, whatever their case. What comes first here counts
    /// first. `among` is what `last` counts.
    ///
    /// # Errors
    /// When there is no such session, or several.
    pub fn resolve_among(
        &self,
        asked: &str,
        among: Among,
    ) -> Result<SessionDirectory, ResolveError> {
        let mut sessions = self.list()?;
        let directory = self.sessions_directory();
        if sessions.is_empty() {
            return Err(ResolveError::Empty { directory });
        }
        if let Some(back) = steps_back(asked) {
            let found = nth_last(sessions, asked, back, among)?;
            return found.ok_or(ResolveError::Empty { directory });
        }
        let exact = sessions.iter().position(|it| it.id().as_str() == asked);
        if let Some(exact) = exact {
            return Ok(sessions.swap_remove(exact));
        }
        if let Some(number) = number(asked) {
            let count = sessions.len();
            return match number.checked_sub(1).filter(|place| *place < count) {
                Some(place) => Ok(sessions.swap_remove(place)),
                None => Err(out_of_range(asked, count)),
            };
        }
        let mut found = places(&sessions, |it| id_begins(it.id(), asked));
        if found.is_empty() {
            found = by_title(&sessions, asked);
        }
        match found.as_slice() {
            [] => Err(ResolveError::NotFound {
                asked: asked
                    .chars()
                    .take(80)
                    .flat_map(char::escape_debug)
                    .collect(),
                directory,
            }),
            [one] => Ok(sessions.swap_remove(*one)),
            several => Err(ResolveError::Ambiguous {
                asked: agent_text::brief(asked, 80),
                found: several
                    .iter()
                    .map(|place| candidate(*place, &sessions[*place]))
                    .collect(),
            }),
        }
    }
}

/// Number of sessions before the last one that `last~N` means.
fn steps_back(asked: &str) -> Option<usize> {
    match asked.strip_prefix("last")? {
        "" => Some(0),
        "~" => Some(1),
        back => back.strip_prefix('~')?.parse().ok(),
    }
}

/// A place in the list. An id may begin with digits too, but with a zero.
fn number(asked: &str) -> Option<usize> {
    let is_number = asked.bytes().all(|byte| byte.is_ascii_digit()) && asked.len() <= 6;
    if asked.starts_with('0') && asked.len() > 1 {
        return None;
    }
    asked.parse().ok().filter(|_| is_number)
}

/// Nothing when no session has a log.
fn nth_last(
    sessions: Vec<SessionDirectory>,
    asked: &str,
    back: usize,
    among: Among,
) -> Result<Option<SessionDirectory>, ResolveError> {
    // A run that died while it made its session has left a directory without a log.
    let mut begun: Vec<SessionDirectory> = sessions
        .into_iter()
        .filter(|session| session.log_bytes().is_some())
        .collect();
    if among == Among::Conversations {
        // Only as many are looked into as it takes.
        let conversations = begun.iter().filter(|session| session.is_conversation());
        let conversations = conversations.take(back.saturating_add(1)).cloned();
        let conversations: Vec<SessionDirectory> = conversations.collect();
        if !conversations.is_empty() {
            begun = conversations;
        }
    }
    match begun.len() {
        0 => Ok(None),
        count if count > back => Ok(Some(begun.swap_remove(back))),
        count => Err(out_of_range(asked, count)),
    }
}

fn out_of_range(asked: &str, count: usize) -> ResolveError {
    ResolveError::OutOfRange {
        asked: asked.to_owned(),
        count,
    }
}

fn places(
    sessions: &[SessionDirectory],
    is_meant: impl Fn(&SessionDirectory) -> bool,
) -> Vec<usize> {
    let meant = |(place, session)| is_meant(session).then_some(place);
    sessions.iter().enumerate().filter_map(meant).collect()
}

/// `ses` alone begins every id and names none.
fn id_begins(id: &SessionId, asked: &str) -> bool {
    let prefix = format!("{}_", SessionId::PREFIX);
    let bare = id.as_str().strip_prefix(&prefix).unwrap_or(id.as_str());
    let asked = asked.strip_prefix(&prefix).unwrap_or(asked);
    !asked.is_empty() && bare.starts_with(asked)
}

/// The sessions whose title is `asked`, else begins with it, else has all of its words.
fn by_title(sessions: &[SessionDirectory], asked: &str) -> Vec<usize> {
    let asked = asked.trim().to_lowercase();
    if asked.is_empty() {
        return Vec::new();
    }
    let titles: Vec<String> = sessions
        .iter()
        .map(|session| {
            let name = session.preview().ok().and_then(|preview| preview.name());
            name.unwrap_or_default().trim().to_lowercase()
        })
        .collect();
    let has_words = |title: &str| asked.split_whitespace().all(|word| has_word(title, word));
    let ways: [&dyn Fn(&str) -> bool; 3] = [
        &|title| title == asked,
        &|title| title.starts_with(&asked),
        &has_words,
    ];
    for way in ways {
        let named = |(place, title): (usize, &String)| way(title).then_some(place);
        let found: Vec<usize> = titles.iter().enumerate().filter_map(named).collect();
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// True if `word` stands in `title` where a word begins.
fn has_word(title: &str, word: &str) -> bool {
    title.match_indices(word).any(|(at, _)| {
        let before = title[..at].chars().next_back();
        before.is_none_or(|before| !before.is_alphanumeric())
    })
}

fn candidate(place: usize, session: &SessionDirectory) -> Candidate {
    Candidate {
        number: place + 1,
        id: session.id().clone(),
        title: session.preview().ok().and_then(|preview| preview.name()),
        modified: session.modified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_steps_are_read_as_people_write_them() {
        assert_eq!(steps_back("last"), Some(0));
        assert_eq!(steps_back("last~"), Some(1));
        assert_eq!(steps_back("last~12"), Some(12));
        assert_eq!(steps_back("last~x"), None);
        assert_eq!(steps_back("lastly"), None);
        assert_eq!(number("1"), Some(1));
        assert_eq!(number("0"), Some(0));
        assert_eq!(number("120"), Some(120));
        assert_eq!(number("01"), None);
        assert_eq!(number("+1"), None);
        assert_eq!(number(""), None);
        assert_eq!(number("1m"), None);
    }

    #[test]
    fn words_are_found_where_they_begin() {
        assert!(has_word("fix the parser-test", "test"));
        assert!(has_word("fix the parser", "par"));
        assert!(!has_word("fix the parser", "arser"));
        assert!(!has_word("", "x"));
    }
}
