//! The protected names as commands of the agent get them: the gate's own list, taken as a file, because
//! the sandbox uses none of our crates.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "a file of another crate, for part of what it says"
)]
#[path = "../../../policy/src/gate/protected_names.rs"]
mod protected_names;

use agent_sandbox::protected::{Names, Scope};
use protected_names::{PROTECTED_NAMES, Where};

pub(crate) fn names() -> Names {
    let all = PROTECTED_NAMES.iter();
    Names::new(all.map(|(name, _, counts)| {
        let scope = match counts {
            Where::Anywhere => Scope::Anywhere,
            Where::Project => Scope::OutsideDependencies,
            Where::Root => Scope::Root,
            Where::RootRewritten => Scope::RootRewritten,
        };
        (*name, scope)
    }))
}
