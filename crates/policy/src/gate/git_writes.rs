//! Commits in mode auto: a script that writes to the repository runs without a question where it does nothing but read
//! and what `granted.toml` says of git, and where nothing of the repository would run meanwhile.

use std::path::Path;

use agent_protocol::status::Mode;

use super::command_facts::writes_git;
use super::evaluate::{Judging, SandboxLevel};
use crate::shell::prove::prove;
use crate::shell::{Analysis, Command, Directories, Granted, judge_granted};

/// Hooks that any change of the index or of refs starts.
const OF_ANY: [&str; 2] = ["post-index-change", "reference-transaction"];

/// Hooks of sub-commands, besides.
const OF_SUBCOMMANDS: &[(&str, &[&str])] = &[
    ("git checkout", &["post-checkout"]),
    ("git switch", &["post-checkout"]),
    ("git commit", OF_COMMITS),
    ("git merge", OF_COMMITS),
    ("git cherry-pick", OF_COMMITS),
    ("git revert", OF_COMMITS),
];

const OF_COMMITS: &[&str] = &[
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "post-merge",
    "post-rewrite",
    "pre-auto-gc",
];

/// A command of `granted.toml` about git, whose words are all there to be seen.
fn granted(command: &Command) -> Option<Granted> {
    let known = judge_granted(&command.words, &command.directories)?;
    let fits = known.name.starts_with("git ") && !command.appended_arguments;
    fits.then_some(known)
}

impl Judging<'_> {
    /// The reason why writing to the repository needs approval; `None` where it does not. `covers` says what rules allow,
    /// hooks included.
    pub(super) fn objection_to_git(
        &self,
        analysis: &Analysis,
        covers: &mut dyn FnMut(&Command) -> bool,
    ) -> Option<String> {
        if self.setting.mode != Mode::Auto || self.setting.sandbox != SandboxLevel::Full {
            return Some("the sandbox keeps it read-only".to_owned());
        }
        let mut writing = Vec::new();
        let proof = prove(analysis, &mut |command| {
            if covers(command) {
                return true;
            }
            let known = writes_git(command).then(|| granted(command)).flatten();
            let is_known = known.is_some();
            writing.extend(known);
            is_known
        });
        if let Err(why) = proof {
            return Some(why);
        }
        writing.iter().find_map(|known| self.objection_to(known))
    }

    fn objection_to(&self, known: &Granted) -> Option<String> {
        let Directories::Known(directories) = &known.directories else {
            return Some("it is not known in which repository".to_owned());
        };
        let of_it = OF_SUBCOMMANDS.iter().find(|(name, _)| *name == known.name);
        let of_it = of_it.map_or(&[][..], |(_, hooks)| hooks);
        let hooks = [&OF_ANY, of_it].concat();
        for directory in directories {
            if !self.is_of_project(directory) {
                return Some(format!(
                    "the repository of `{}` is another one",
                    directory.display()
                ));
            }
            let runs = self.facts.program_of_repository(directory);
            let runs = runs.or_else(|| self.facts.hook_of_repository(directory, &hooks));
            if let Some(runs) = runs {
                return Some(format!("git would run what it names: {runs}"));
            }
        }
        None
    }

    /// True if what git keeps for this directory lies in that of the project: there is no other repository on the way.
    /// Submodules and linked worktrees say by a file where theirs is, which is in it.
    fn is_of_project(&self, directory: &Path) -> bool {
        let root = &self.setting.workspace.root;
        let Some(directory) = self.facts.resolve(directory) else {
            return false;
        };
        let mut between = directory.ancestors().take_while(|above| *above != root);
        directory.starts_with(root)
            && between.all(|above| self.facts.is_directory(&above.join(".git")) != Some(true))
    }
}
