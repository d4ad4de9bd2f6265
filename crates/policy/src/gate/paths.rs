//! Paths as the gate sees them: where a name leads, and what speaks against going there.

use std::path::{Path, PathBuf};

use agent_protocol::payload::permission::{Access, DecisionSource, Effect};
use agent_protocol::status::Mode;

use super::evaluate::{Judging, SandboxLevel};
use super::findings::Findings;
use super::names::SECRET_SAMPLES;
use super::protected::{holds_protected, is_secret, protected, secret, wildcard};
use crate::Subject;
use crate::shell::prove::{PathUse, Use};
use crate::shell::{Directories, normalise};

/// A path by its name and by where it leads.
#[derive(Debug, Clone)]
pub(super) struct Location {
    pub(super) named: PathBuf,
    /// `None` when following it does not end.
    pub(super) resolved: Option<PathBuf>,
}

impl Location {
    pub(super) fn is_secret(&self) -> bool {
        self.both().into_iter().any(is_secret)
    }

    fn both(&self) -> Vec<&Path> {
        let mut paths = vec![self.named.as_path()];
        paths.extend(self.resolved.as_deref());
        paths
    }
}

/// How well it is known that a word is a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    Exactly,
    /// A guess.
    Perhaps,
    /// A word like any other, which the sandbox holds to the rules if it is one: `cargo test -p a`.
    AsWord,
}

const FREE_DEVICES: &[&str] = &["/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"];

impl Judging<'_> {
    pub(super) fn location(&self, path: &Path) -> Location {
        Location {
            named: normalise(path),
            resolved: self.facts.resolve(path),
        }
    }

    fn is_command(&self) -> bool {
        self.request.tool.subject == Subject::Command
    }

    pub(super) fn is_inside(&self, location: &Location) -> bool {
        let Some(resolved) = &location.resolved else {
            return false;
        };
        let workspace = self.setting.workspace;
        std::iter::once(&workspace.root)
            .chain(&workspace.extra_roots)
            .any(|root| resolved.starts_with(root))
    }

    /// Deny and ask rules about one path. Returns whether some allow rule opens it.
    pub(super) fn rules_on_path(
        &self,
        findings: &mut Findings,
        location: &Location,
        access: Access,
        names: &[String],
    ) -> PathRules {
        let mut rules = PathRules::default();
        let mut opened = None;
        for rule in &self.gate.rules {
            // A deny is about the name and about the file; an allow opens the file alone, wherever a link in
            // the name leads.
            let binds = if rule.effect == Effect::Allow {
                let opened = opened.get_or_insert_with(|| self.real_names(location));
                let paths: Vec<&Path> = opened.iter().map(PathBuf::as_path).collect();
                rule.binds_path(self.request.tool, access, &paths)
            } else {
                rule.binds_path(self.request.tool, access, &location.both())
            };
            if !binds {
                continue;
            }
            let shown = self.shown(location);
            let matched = rule.matched(shown.clone());
            match rule.effect {
                Effect::Deny => findings.rule(
                    matched,
                    format!("the rule `{}` denies `{shown}`", rule.text),
                ),
                Effect::Ask => findings.rule(
                    matched,
                    format!("the rule `{}` asks about `{shown}`", rule.text),
                ),
                Effect::Allow => {
                    findings.remember(matched);
                    rules.allowed.get_or_insert_with(|| rule.text.clone());
                    rules.spelled_out |= rule.names_one_of(names);
                }
            }
        }
        rules
    }

    /// The file a path leads to, also by the name it has below a home directory that is itself a link.
    fn real_names(&self, location: &Location) -> Vec<PathBuf> {
        let Some(resolved) = &location.resolved else {
            return Vec::new();
        };
        let mut names = vec![resolved.clone()];
        let home = self.setting.home;
        if let Some(real) = self.facts.resolve(home)
            && real != home
            && let Ok(rest) = resolved.strip_prefix(&real)
        {
            names.push(home.join(rest));
        }
        names
    }

    /// The path that a tool's input means: `~` is the home directory, everything else is in the project.
    pub(super) fn path_given(&self, given: &str) -> PathBuf {
        match given.strip_prefix('~') {
            Some("") => self.setting.home.to_owned(),
            Some(rest) if rest.starts_with('/') => {
                self.setting.home.join(rest.trim_start_matches('/'))
            }
            _ => self.setting.workspace.root.join(given),
        }
    }

    /// A path as a person would name it.
    pub(super) fn shown(&self, location: &Location) -> String {
        let path = location.resolved.as_ref().unwrap_or(&location.named);
        path.strip_prefix(&self.setting.workspace.root)
            .ok()
            .filter(|relative| !relative.as_os_str().is_empty())
            .unwrap_or(path)
            .display()
            .to_string()
    }

    /// Everything that speaks about reading `location`; names and sizes are not its content.
    pub(super) fn judge_read(
        &self,
        findings: &mut Findings,
        location: &Location,
        shows_content: bool,
    ) -> PathRules {
        if FREE_DEVICES
            .iter()
            .any(|device| location.named == Path::new(device))
        {
            return PathRules::default();
        }
        let found = location.both().into_iter().find_map(secret);
        let names = found
            .as_ref()
            .map(|(_, names)| names.clone())
            .unwrap_or_default();
        let rules = self.rules_on_path(findings, location, Access::Read, &names);
        let shown = self.shown(location);
        if let Some((what, _)) = found
            && shows_content
            && !rules.spelled_out
        {
            findings.add(
                Effect::Ask,
                DecisionSource::ProtectedPath,
                format!("`{shown}` holds {what}; reading it needs approval"),
            );
        }
        // In these modes the sandbox decides what a command can see; file tools are not in it.
        let sandbox_decides = self.is_command()
            && self.setting.mode == Mode::Auto
            && self.setting.sandbox == SandboxLevel::Full;
        let bounded = self.setting.mode != Mode::Full && !sandbox_decides;
        if bounded && !self.is_inside(location) && rules.allowed.is_none() {
            findings.add(
                Effect::Ask,
                DecisionSource::PathBoundary,
                format!("`{shown}` is outside the project"),
            );
        }
        rules
    }

    /// Everything that speaks about changing `location`.
    pub(super) fn judge_write(&self, findings: &mut Findings, location: &Location) -> PathRules {
        if FREE_DEVICES
            .iter()
            .any(|device| location.named == Path::new(device))
        {
            return PathRules::default();
        }
        let found = location.both().into_iter().find_map(protected);
        let names = found
            .iter()
            .map(|found| found.marker.clone())
            .collect::<Vec<_>>();
        let rules = self.rules_on_path(findings, location, Access::Write, &names);
        let shown = self.shown(location);
        match found {
            Some(found) if found.is_record => findings.add(
                Effect::Deny,
                DecisionSource::CircuitBreaker,
                format!(
                    "`{shown}` is {}; only agent itself may write it",
                    found.what
                ),
            ),
            Some(found) if !rules.spelled_out => findings.add(
                Effect::Ask,
                DecisionSource::ProtectedPath,
                format!(
                    "`{shown}` is {}; changing it needs approval in every mode",
                    found.what
                ),
            ),
            _ => {}
        }
        // The sandbox gives each session a temporary directory of its own.
        let is_own_temporary = self.is_command()
            && matches!(self.setting.mode, Mode::Auto | Mode::Full)
            && self.setting.sandbox == SandboxLevel::Full
            && ["/tmp", "/var/tmp"]
                .iter()
                .any(|temporary| location.named.starts_with(temporary));
        if !self.is_inside(location) && rules.allowed.is_none() && !is_own_temporary {
            findings.add(
                Effect::Ask,
                DecisionSource::PathBoundary,
                format!("`{shown}` is outside the project"),
            );
        }
        let resolved = location.resolved.as_deref();
        let others = resolved.map_or(0, |path| self.facts.other_names(path));
        if others > 0 && rules.allowed.is_none() && self.setting.mode != Mode::Full {
            findings.add(
                Effect::Ask,
                DecisionSource::PathBoundary,
                format!(
                    "`{shown}` has {others} other hard link{}, perhaps outside the project, and \
                     would change there too",
                    if others == 1 { "" } else { "s" }
                ),
            );
        }
        rules
    }

    /// The places a command's path may mean; `None` when the directory is not known.
    pub(super) fn locations(&self, path: &PathUse) -> Option<Vec<Location>> {
        let texts = if path.usage == Use::Revision {
            paths_in_revision(&path.text)
        } else {
            vec![path.text.as_str()]
        };
        let mut locations = Vec::new();
        for text in texts {
            if Path::new(text).is_absolute() {
                self.expand(Path::new("/"), text, path.is_glob, &mut locations);
                continue;
            }
            match &path.directories {
                Directories::Known(directories) => {
                    for directory in directories {
                        self.expand(directory, text, path.is_glob, &mut locations);
                        // Git's patterns reach into every directory below. One for everything there is
                        // is not about secrets, like a search.
                        let is_all = text.ends_with('*')
                            && text.trim_end_matches('*').ends_with('/')
                            || text.trim_matches('*').is_empty();
                        if path.is_glob && path.usage == Use::Revision && !is_all {
                            let samples = secret_samples(text).into_iter();
                            let below = samples.map(|name| self.location(&directory.join(name)));
                            locations.extend(below);
                        }
                    }
                }
                // A revision names no file; a file in an unknown directory may be any.
                Directories::Unknown if path.usage == Use::Revision => {}
                Directories::Unknown => return None,
            }
        }
        Some(locations)
    }

    fn expand(&self, directory: &Path, text: &str, is_glob: bool, locations: &mut Vec<Location>) {
        let joined = directory.join(text);
        if !is_glob {
            locations.push(self.location(&joined));
            return;
        }
        let is_plain = |step: &&str| !step.contains(['*', '?', '[', '\\']);
        let literal: Vec<&str> = text.split('/').take_while(is_plain).collect();
        let steps_behind = text.split('/').skip(literal.len());
        let climbs = steps_behind.into_iter().any(|step| step == "..");
        let literal = directory.join(literal.join("/"));
        locations.push(self.location(&literal));
        if climbs {
            // What is above a directory that only a glob names is not known.
            locations.push(self.location(Path::new("/")));
        }
        let found = self.facts.expand(directory, text);
        // Without a look at the directory, or with brackets, which are read in more than one way, a glob is
        // taken for the secrets it could reach.
        if found.is_none() || text.contains('[') {
            let samples = secret_samples(text).into_iter();
            locations.extend(samples.map(|name| self.location(&literal.join(name))));
        }
        locations.extend(found.iter().flatten().map(|path| self.location(path)));
    }

    /// Paths of one command, known or guessed, against rules, secrets and protected names.
    pub(super) fn judge_touched(&self, findings: &mut Findings, path: &PathUse, known: Known) {
        let exact = known == Known::Exactly;
        let Some(locations) = self.locations(path) else {
            if exact {
                findings.add(
                    Effect::Ask,
                    DecisionSource::PathBoundary,
                    format!("the directory of `{}` is not known", path.text),
                );
            }
            return;
        };
        if exact && self.may_become_a_flag(path) {
            findings.add(
                Effect::Ask,
                DecisionSource::PathBoundary,
                format!(
                    "`{}` may match a file whose name starts with a dash, which would be taken as \
                     a flag",
                    path.text
                ),
            );
        }
        for location in &locations {
            if exact {
                self.judge_read(findings, location, path.usage != Use::Metadata);
                continue;
            }
            // A guess: the word may be no path at all, so only what stands on a list counts.
            let found = location.both().into_iter().find_map(secret);
            let names = found
                .as_ref()
                .map(|(_, names)| names.clone())
                .unwrap_or_default();
            let mut own = Findings::default();
            let rules = self.rules_on_path(&mut own, location, Access::Read, &names);
            self.rules_on_path(&mut own, location, Access::Write, &names);
            if known == Known::AsWord {
                own = Findings::default();
            }
            own.list.retain(|finding| finding.effect != Effect::Allow);
            findings.list.append(&mut own.list);
            for matched in own.matched {
                findings.remember(matched);
            }
            let shown = self.shown(location);
            if let Some((what, _)) = found
                && !rules.spelled_out
            {
                findings.add(
                    Effect::Ask,
                    DecisionSource::ProtectedPath,
                    format!("`{shown}` holds {what}; reading it needs approval"),
                );
            }
        }
    }

    /// Whether a pattern that begins with a star or a question mark stands for a name that a program would
    /// take for a flag.
    fn may_become_a_flag(&self, path: &PathUse) -> bool {
        if !path.is_glob || path.usage == Use::Revision || !path.text.starts_with(['*', '?']) {
            return false;
        }
        let Directories::Known(directories) = &path.directories else {
            return true;
        };
        directories.iter().any(|directory| {
            self.facts
                .expand(directory, &path.text)
                .is_none_or(|paths| {
                    paths.iter().any(|found| {
                        found
                            .strip_prefix(directory)
                            .is_ok_and(|name| name.as_os_str().as_encoded_bytes().starts_with(b"-"))
                    })
                })
        })
    }

    /// A command that may write, and names a protected path. To a program whose words are not known to be
    /// paths, a word is one only by what stands in it: the directory it runs in does not make it protected.
    pub(super) fn judge_protected_mention(
        &self,
        findings: &mut Findings,
        path: &PathUse,
        takes_paths: bool,
    ) {
        let by_itself = !takes_paths && !Path::new(&path.text).is_absolute();
        for location in self.locations(path).unwrap_or_default() {
            let found = location.both().into_iter().find(|candidate| {
                if by_itself && let Some(own) = self.own_part(candidate, &path.directories) {
                    return holds_protected(&own);
                }
                holds_protected(candidate)
            });
            let Some(found) = found else { continue };
            let is_record = protected(found).is_some_and(|protected| protected.is_record);
            let shown = self.shown(&location);
            if is_record {
                findings.add(
                    Effect::Deny,
                    DecisionSource::CircuitBreaker,
                    format!("`{shown}` is agent's own record; only agent itself may write it"),
                );
                continue;
            }
            let marker = protected(found)
                .map(|found| vec![found.marker])
                .unwrap_or_default();
            let mut own = Findings::default();
            let rules = self.rules_on_path(&mut own, &location, Access::Write, &marker);
            if !rules.spelled_out {
                findings.add(
                    Effect::Ask,
                    DecisionSource::ProtectedPath,
                    format!("`{shown}` is protected; changing it needs approval in every mode"),
                );
            }
        }
    }
}

impl Judging<'_> {
    /// The part of a path below the directory a command runs in.
    fn own_part(&self, path: &Path, directories: &Directories) -> Option<PathBuf> {
        let Directories::Known(known) = directories else {
            return None;
        };
        known.iter().find_map(|directory| {
            let real = self.facts.resolve(directory);
            std::iter::once(directory)
                .chain(real.as_ref())
                .find_map(|directory| path.strip_prefix(directory).ok())
                .map(|own| Path::new("/").join(own))
        })
    }
}

/// What the rules said about one path.
#[derive(Debug, Default)]
pub(super) struct PathRules {
    /// An allow rule that covers it.
    pub(super) allowed: Option<String>,
    /// An allow rule that spells out the protected or secret name.
    pub(super) spelled_out: bool,
}

/// The paths an operand of git may mean: `revision:path`, `:stage:path`, `:/path`, `:(magic)path`.
fn paths_in_revision(text: &str) -> Vec<&str> {
    let rest = match text.strip_prefix(':') {
        None => text,
        Some(magic) => match magic
            .strip_prefix('(')
            .and_then(|long| long.split_once(')'))
        {
            Some((_, path)) => path,
            None => magic.trim_start_matches(['/', '!', '^']),
        },
    };
    let mut paths = vec![rest];
    paths.extend(
        rest.match_indices(':')
            .filter_map(|(colon, _)| rest.get(colon + 1..)),
    );
    paths
}

/// Names of secrets that the last component of a glob could become.
fn secret_samples(glob: &str) -> Vec<&'static str> {
    let last = glob.rsplit('/').next().unwrap_or(glob);
    // `?` and `[…]` stand for one character; taking them for any run only finds more. Where a bracket ends is
    // not said here, so everything from the first to the last is taken for one.
    let bracketed = match (last.find('['), last.rfind(']')) {
        (Some(open), Some(close)) if open < close => {
            let before = last.get(..open).unwrap_or_default();
            format!("{before}*{}", last.get(close + 1..).unwrap_or_default())
        }
        _ => last.to_owned(),
    };
    let loose = bracketed.replace('?', "*");
    SECRET_SAMPLES
        .iter()
        .copied()
        .filter(|sample| wildcard(&loose, sample))
        .filter(|sample| {
            !sample.starts_with('.') || loose.starts_with(['.', '[']) || last.starts_with('[')
        })
        .collect()
}
