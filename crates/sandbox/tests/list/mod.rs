//! The protected names as commands of the agent get them: the list that the gate reads.

use agent_policy::gate::{PROTECTED_NAMES, Where};
use agent_sandbox::protected::{Names, Scope};

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
