//! The mark of a session that was made from another program's record.

use agent_protocol::payload::conversation::SessionCreated;

/// Beginning of an imported session's profile; the rest names the program it came from.
pub const IMPORTED: &str = "imported:";

/// The program whose record a session was made from, if it was imported.
#[must_use]
pub fn imported_from(created: &SessionCreated) -> Option<&str> {
    created.profile.as_deref()?.strip_prefix(IMPORTED)
}
