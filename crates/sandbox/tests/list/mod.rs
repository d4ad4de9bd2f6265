//! The protected names as commands of the agent get them: the gate's own list, taken as a file, because
//! the sandbox uses none of our crates.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "a file of another crate, for part of what it says"
)]
#[path = "../../../policy/src/gate/protected_names.rs"]
mod protected_names;

use agent_sandbox::protected::{Names, Place};
use protected_names::{PROTECTED_NAMES, Where};

pub(crate) fn names() -> Names {
    let all = PROTECTED_NAMES.iter();
    Names::new(all.map(|(name, _, counts)| {
        let place = match counts {
            Where::Anywhere => Place::Anywhere,
            Where::Project => Place::OutsideDependencies,
            Where::Root => Place::Root,
            Where::RootRewritten => Place::RootRewritten,
        };
        (*name, place)
    }))
}
