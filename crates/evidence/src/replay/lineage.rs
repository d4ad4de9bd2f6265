//! What a branch has in common with the session it came from. It is told from the copy of those lines
//! that the branch keeps, so that the parent need not be there; without the copy nothing is claimed.

use std::error::Error as _;

use agent_log::SessionDirectory;
use agent_log::fork::inherited;
use agent_protocol::Event;
use agent_protocol::payload::conversation::SessionParent;

use super::entry::Entry;
use super::timeline::Timeline;

/// Where a session was branched off, and what became of telling the events before.
#[derive(Debug, Clone)]
pub struct Lineage {
    pub parent: SessionParent,
    /// How many events were told, or why they were not.
    pub told: Result<u64, String>,
}

impl Lineage {
    /// The same in words.
    #[must_use]
    pub fn in_words(&self) -> String {
        let SessionParent {
            session_id,
            sequence,
        } = &self.parent;
        let from = format!("forked from {session_id} after its event {sequence}");
        match &self.told {
            Ok(told) => {
                format!("{from}; {told} events are inherited, told from the copy kept here")
            }
            Err(why) => format!("{from}; what is inherited is unknown: {why}"),
        }
    }
}

/// The session this one was forked from; `None` if there is none, or the first event cannot be read.
#[must_use]
pub fn parent_of(session: &SessionDirectory) -> Option<SessionParent> {
    session.preview().ok()?.created?.parent
}

/// Tells the events that a branch inherited, the oldest first, with a numbering of their own.
///
/// # Errors
/// Why they cannot be told, in words.
pub fn tell_inherited(
    session: &SessionDirectory,
    mut each: impl FnMut(Entry, &Event),
) -> Result<u64, String> {
    let mut timeline = Timeline::default();
    let told = inherited(session, &mut |event| each(timeline.take(event), event));
    match told {
        Ok(0) => Err("this session keeps no copy of it".to_owned()),
        Ok(told) => Ok(told),
        Err(error) => Err(match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        }),
    }
}
