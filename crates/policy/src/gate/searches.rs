//! Searches through whole directories: they name no secret, and could show every one below.
//!
//! A script that only searches and reads gets by without asking: its sandbox hides the secrets. Where that
//! would harm something else in the script, or there is no such sandbox, the searched directories are
//! looked through, and it asks if there are any.

use std::path::Path;

use agent_protocol::payload::permission::{Access, DecisionSource, Effect};
use agent_protocol::status::Mode;

use super::command_facts::name_of;
use super::evaluate::{Judging, SandboxLevel};
use super::facts::Below;
use super::findings::Findings;
use super::paths::Location;
use super::protected::{is_secret, secret};
use crate::shell::prove::{PathUse, Proof, Use, touched_paths};
use crate::shell::{Analysis, Command};

/// One directory that a command searches.
struct Search {
    place: Location,
    shown: String,
    follows: bool,
    /// The content of what is found is shown.
    shows_content: bool,
    /// The names of what is below become words of a command.
    as_words: bool,
}

impl Judging<'_> {
    /// Judges what searches could come across. True when secrets have to be hidden from the script.
    pub(super) fn judge_searches(
        &self,
        findings: &mut Findings,
        analysis: &Analysis,
        proof: &Result<Proof, String>,
    ) -> bool {
        let searches: Vec<Search> = analysis
            .known_commands()
            .iter()
            .flat_map(|command| self.searches_of(command))
            .collect();
        if searches.is_empty() {
            return false;
        }
        for search in searches.iter().filter(|search| search.follows) {
            self.judge_links(findings, search);
        }
        for search in searches.iter().filter(|search| search.as_words) {
            self.judge_names(findings, search);
        }
        if !searches.iter().any(|search| search.shows_content) {
            return false;
        }
        let hides = self.can_hide_secrets(analysis, proof);
        let shows = searches.iter().filter(|search| search.shows_content);
        for search in shows.filter(|search| !(hides && self.is_hidden_there(search))) {
            self.judge_secrets_below(findings, search);
        }
        hides
    }

    /// True where the sandbox would show secrets as empty: in the project. Where a rule opens a directory outside, they
    /// are looked for; modes in which no proof is needed leave what lies outside to the sandbox.
    fn is_hidden_there(&self, search: &Search) -> bool {
        let root = &self.setting.workspace.root;
        let resolved = search.place.resolved.as_deref();
        resolved.is_some_and(|path| path.starts_with(root))
            || matches!(self.setting.mode, Mode::Auto | Mode::Full)
    }

    fn searches_of(&self, command: &Command) -> Vec<Search> {
        let (paths, exact) = touched_paths(command);
        let mut searches = Vec::new();
        for path in paths.iter().filter(|_| exact) {
            let (follows, shows_content, as_words) = match path.usage {
                Use::Tree { follows } => (follows, true, false),
                Use::Names { shows_content } => (shows_content, shows_content, true),
                _ => continue,
            };
            // Without a path these search what the pipe brings them.
            let reads_pipe = command.piped && !name_of(command).contains("grep");
            if path.text.is_empty() && reads_pipe {
                continue;
            }
            for place in self.locations(path).unwrap_or_default() {
                let shown = self.shown(&place);
                searches.push(Search {
                    place,
                    shown,
                    follows,
                    shows_content,
                    as_words,
                });
            }
        }
        searches
    }

    /// Whether the sandbox may show secrets as empty: nothing in the script reads one by name, and nothing
    /// but known readers gets to see it. Git would take an empty file for a change.
    fn can_hide_secrets(&self, analysis: &Analysis, proof: &Result<Proof, String>) -> bool {
        let Ok(proof) = proof else { return false };
        let names_secret = |path: &PathUse| {
            path.usage != Use::Metadata
                && self
                    .locations(path)
                    .unwrap_or_default()
                    .iter()
                    .any(Location::is_secret)
        };
        let is_git = |command: &Command| {
            name_of(command) == "git"
                && !touched_paths(command)
                    .0
                    .iter()
                    .any(|path| matches!(path.usage, Use::Tree { .. } | Use::Names { .. }))
        };
        self.setting.sandbox == SandboxLevel::Full
            && !proof.by_rule
            && !proof.reads.iter().any(names_secret)
            && !analysis.known_commands().iter().any(is_git)
    }

    fn below(&self, search: &Search) -> Option<Below> {
        let resolved = search.place.resolved.as_deref()?;
        self.facts.below(resolved)
    }

    fn judge_secrets_below(&self, findings: &mut Findings, search: &Search) {
        let Search { shown, .. } = search;
        let Some(below) = self.below(search) else {
            findings.add(
                Effect::Ask,
                DecisionSource::ProtectedPath,
                format!("it searches `{shown}`, which may contain secrets"),
            );
            return;
        };
        for path in below.secrets {
            let location = self.location(&path);
            let Some((what, names)) = secret(&path) else {
                continue;
            };
            let mut own = Findings::default();
            let rules = self.rules_on_path(&mut own, &location, Access::Read, &names);
            if !rules.spelled_out {
                let secret = self.shown(&location);
                findings.add(
                    Effect::Ask,
                    DecisionSource::ProtectedPath,
                    format!(
                        "it searches `{shown}`, where `{secret}` holds {what}; reading it needs \
                         approval"
                    ),
                );
                return;
            }
        }
    }

    /// A name with a blank in it becomes two words, and one that begins with a dash a flag.
    fn judge_names(&self, findings: &mut Findings, search: &Search) {
        let Search { shown, .. } = search;
        let odd = match self.below(search) {
            Some(below) => below.odd,
            None => Some(Path::new("…").to_owned()),
        };
        if let Some(odd) = odd {
            findings.add(
                Effect::Ask,
                DecisionSource::PathBoundary,
                format!(
                    "file names below `{shown}` become arguments, and `{}` may not be a single \
                     plain word",
                    odd.display()
                ),
            );
        }
    }

    /// Where links below lead counts like a path that is named.
    fn judge_links(&self, findings: &mut Findings, search: &Search) {
        let Search { shown, .. } = search;
        let Some(below) = self.below(search) else {
            findings.add(
                Effect::Ask,
                DecisionSource::PathBoundary,
                format!("it follows links below `{shown}`, and where they lead is not known"),
            );
            return;
        };
        let is_free = |target: &Path| {
            let reads_outside = self.setting.mode == Mode::Full
                || (self.setting.mode == Mode::Auto && self.setting.sandbox == SandboxLevel::Full);
            self.is_inside(&self.location(target)) || (reads_outside && !is_secret(target))
        };
        if let Some(target) = below.links.iter().find(|target| !is_free(target)) {
            findings.add(
                Effect::Ask,
                DecisionSource::PathBoundary,
                format!(
                    "it follows a link below `{shown}` to `{}`, outside the project",
                    target.display()
                ),
            );
        }
    }
}
