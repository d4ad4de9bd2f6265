//! Where a proof counts: the decision meets the sandbox. What is proven only to read runs without a
//! question, and the proof may be wrong, so it counts only where a wrong one does no harm.

use std::path::{Path, PathBuf};

use agent_protocol::payload::permission::{Access, DecisionSource, Effect};
use agent_protocol::status::Mode;

use super::command_facts::name_of;
use super::evaluate::{Judging, SandboxLevel};
use super::findings::Findings;
use super::paths::Location;
use super::words::without_global_options;
use crate::Confinement;
use crate::shell::prove::{Proof, Use};
use crate::shell::word::Word;
use crate::shell::{Analysis, Command, Directories};

/// Sub-commands of git that look at no content, so that no driver or filter is run.
const WITHOUT_CONTENT: &[&str] = &[
    "branch",
    "config",
    "for-each-ref",
    "ls-tree",
    "merge-base",
    "remote",
    "rev-parse",
    "show-ref",
    "symbolic-ref",
    "tag",
    "version",
];

/// Where a git command works: each `-C` leads on from the one before. Nothing when that is not known.
fn places_of_git(command: &Command, mut places: Vec<PathBuf>) -> Option<Vec<PathBuf>> {
    let mut words = command.words.iter().skip(1);
    while let Some(text) = words.next().map(Word::sketch) {
        match text {
            "-C" => {
                let directory = words.next()?.text()?;
                for place in &mut places {
                    place.push(directory);
                }
            }
            "-c" => drop(words.next()),
            // The repository, or its tree, lies wherever this says.
            _ if text.starts_with("--git-dir") || text.starts_with("--work-tree") => return None,
            _ if text.starts_with('-') => {}
            _ => break,
        }
    }
    Some(places)
}

impl Judging<'_> {
    /// Voids a proof where the sandbox is not whole, and where git would run what a repository names.
    /// Modes that allow commands need no proof, unless the command is given a service.
    pub(super) fn judge_proof(
        &self,
        findings: &mut Findings,
        analysis: &Analysis,
        cwd: &Path,
        is_proven: bool,
        has_service: bool,
    ) {
        let mode = self.setting.mode;
        let needs_proof = is_proven && !matches!(mode, Mode::Auto | Mode::Full);
        if !needs_proof && !has_service {
            return;
        }
        let effect = match mode {
            mode if mode.only_reads() => Effect::Deny,
            _ => Effect::Ask,
        };
        if self.setting.sandbox != SandboxLevel::Full {
            findings.add(
                effect,
                DecisionSource::Sandbox,
                "read-only commands run without approval only in the full sandbox, where a wrong \
                 guess does no harm",
            );
            return;
        }
        let looking = |command: &&Command| {
            let words = without_global_options(&command.words);
            let sub = words.get(1).map(|word| word.sketch()).unwrap_or_default();
            match name_of(command) {
                "git" => !WITHOUT_CONTENT.contains(&sub),
                // It asks git about the tree.
                "go" => true,
                _ => false,
            }
        };
        let places = |command: &Command| match &command.directories {
            Directories::Known(known) => known.clone(),
            Directories::Unknown => vec![cwd.to_owned()],
        };
        let named = analysis
            .commands
            .iter()
            .filter(looking)
            .find_map(|command| {
                let Some(places) = places_of_git(command, places(command)) else {
                    return Some("a directory that is not known here".to_owned());
                };
                let mut places = places.into_iter();
                places.find_map(|directory| self.facts.program_of_repository(&directory))
            });
        if let Some(setting) = named {
            findings.add(
                effect,
                DecisionSource::Default,
                format!("git may run a program that this repository configures: {setting}"),
            );
        }
        let root = &self.setting.workspace.root;
        let chosen = analysis.commands.iter().find_map(|command| {
            let name = name_of(command);
            let mut places = places(command).into_iter();
            let found = places.find_map(|place| self.facts.tool_of_project(name, &place, root));
            found.map(|setting| (name, setting))
        });
        if let Some((name, setting)) = chosen {
            findings.add(
                effect,
                DecisionSource::Default,
                format!("`{name}` may start a program that this project names: {setting}"),
            );
        }
    }

    /// The secrets that a script reads by name.
    pub(super) fn named_secrets(&self, proof: &Result<Proof, String>) -> Vec<PathBuf> {
        let Ok(proof) = proof else { return Vec::new() };
        let read = proof
            .reads
            .iter()
            .filter(|path| path.usage != Use::Metadata)
            .flat_map(|path| self.locations(path).unwrap_or_default());
        read.filter(Location::is_secret)
            .filter_map(|location| location.resolved)
            .collect()
    }

    /// What a script reads outside the project, where a rule opens it.
    pub(super) fn opened(&self, proof: &Result<Proof, String>) -> Vec<PathBuf> {
        let Ok(proof) = proof else { return Vec::new() };
        let read = proof
            .reads
            .iter()
            .flat_map(|path| self.locations(path).unwrap_or_default());
        let mut opened: Vec<PathBuf> = read
            .filter(|location| !self.is_inside(location))
            .filter(|location| {
                let mut own = Findings::default();
                let rules = self.rules_on_path(&mut own, location, Access::Read, &[]);
                rules.allowed.is_some()
            })
            .filter_map(|location| location.resolved)
            .collect();
        opened.sort();
        opened.dedup();
        opened
    }
}

/// The reach of a call that nobody allowed. Its approval key was made before: no approval is needed.
pub(super) fn run_by_proof(confinement: &mut Confinement) {
    confinement.profile = match confinement.project_writable {
        // Mode accept-edits, or a rule, lets a redirect write a file of the project.
        true => "proof+edits",
        false => "proof",
    }
    .to_owned();
    confinement.by_proof = true;
    confinement.hide_secrets = true;
    confinement.network = false;
}
