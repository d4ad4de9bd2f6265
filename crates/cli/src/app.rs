//! What every command gets: the machine, the project and a way to speak.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_log::{
    AnchorStore, Holder, RedactionRules, Redactor, ResolveError, Rim, SessionDirectory,
    SessionStore,
};
use anyhow::Context as _;

use crate::arguments::GlobalArgs;
use crate::config::{self, Config, FileState, Setting, SettingArgs};
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::host::Host;
use crate::keys::Keys;
use crate::output::Output;
use crate::project::Project;

/// One run of the binary, before any command has started.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) host: Host,
    pub(crate) project: Project,
    pub(crate) output: Output,
    pub(crate) keys: Arc<Keys>,
}

impl App {
    /// Looks at the machine and finds the project. Reads no configuration: commands that need it
    /// ask for it.
    pub(crate) fn new(global: &GlobalArgs) -> Result<Self, Failure> {
        let host = Host::read(global.cwd.as_deref()).or_usage()?;
        Ok(Self {
            project: Project::discover(&host.cwd),
            output: Output::new(global.color, global.volume(), &host.environment),
            host,
            keys: Arc::default(),
        })
    }

    /// The sessions of this project.
    pub(crate) fn sessions(&self) -> SessionStore {
        SessionStore::of_project(self.project.root())
    }

    /// The session that `asked` names: an id, a beginning only one has, `last`, or, with a slash in
    /// it, the session's own directory wherever it was copied to.
    pub(crate) fn session(&self, asked: &str) -> Result<SessionDirectory, Failure> {
        if asked.contains('/') {
            let directory = self.host.cwd.join(asked);
            return SessionDirectory::at(&directory)
                .with_context(|| format!("`{asked}` is not a session's directory"))
                .or_usage();
        }
        let found = self.sessions().resolve(asked);
        let hint = match &found {
            Err(ResolveError::Empty { .. }) => {
                "`agent run PROMPT` makes one, and `agent demo` shows how it goes"
            }
            _ => "`agent sessions list` shows the sessions there are",
        };
        found.or_usage().map_err(|failure| failure.hint(hint))
    }

    /// The sessions that `asked` names, or all when it names none.
    pub(crate) fn chosen_sessions(
        &self,
        asked: &[String],
    ) -> Result<Vec<SessionDirectory>, Failure> {
        if asked.is_empty() {
            return self
                .sessions()
                .list()
                .context("cannot list the sessions")
                .or_fail();
        }
        asked.iter().map(|asked| self.session(asked)).collect()
    }

    /// What the session crate needs to write, for a command that calls itself `program`.
    pub(crate) fn rim(&self, program: &str) -> Result<Rim, Failure> {
        let config = config::load(&self.host, &self.project, &SettingArgs::default())?;
        self.rim_with(&config, program)
    }

    /// The same with settings that were read already.
    pub(crate) fn rim_with(&self, config: &Config, program: &str) -> Result<Rim, Failure> {
        let runtime_id = self.host.runtime_id().or_usage()?;
        Ok(Rim {
            clock: Arc::clone(&self.host.clock),
            mint: Arc::clone(&self.host.ids),
            runtime_id,
            redactor: Arc::new(self.redactor(config)?),
            anchors: Some(AnchorStore::new(&self.host.directories.state)),
            holder: Holder {
                pid: std::process::id(),
                host: self.host.name.clone(),
                program: program.to_owned(),
                since: Some(self.host.clock.now()),
            },
        })
    }

    /// What masks secrets: known shapes, secret-looking variables, keys of model providers wherever
    /// they come from, and the settings.
    fn redactor(&self, config: &Config) -> Result<Redactor, Failure> {
        let rules = RedactionRules {
            late: self.keys.secrets(),
            ..self.redaction_rules(Some(config))
        };
        self.keys.learn_settings(self, config);
        let key = self.host.redaction_key().or_usage()?;
        Redactor::new(rules, &key)
            .map_err(|error| Failure::from(anyhow::Error::from(error)).exit(Exit::Usage))
            .map_err(|failure| failure.hint("see `[redaction] patterns` in your settings"))
    }

    /// What is masked whoever looks: secret-looking variables, and what the settings say where they
    /// can be read. Keys that have to be asked for are not among it.
    pub(crate) fn redaction_rules(&self, config: Option<&Config>) -> RedactionRules {
        let texts = |list: &[Setting<String>]| -> Vec<String> {
            list.iter().map(|setting| setting.value.clone()).collect()
        };
        let mut rules = RedactionRules::default();
        if let Some(config) = config {
            let patterns = texts(&config.redaction.patterns).into_iter().enumerate();
            rules.patterns = patterns
                .map(|(index, pattern)| (format!("pattern-{}", index + 1), pattern))
                .collect();
            rules.exceptions = texts(&config.redaction.exceptions);
        }
        rules.with_environment(self.host.environment.texts())
    }

    /// The same machine, working in another project.
    pub(crate) fn in_project(&self, directory: &Path) -> Self {
        let mut host = self.host.clone();
        directory.clone_into(&mut host.cwd);
        Self {
            project: Project::discover(directory),
            output: self.output.clone(),
            host,
            keys: Arc::clone(&self.keys),
        }
    }

    /// The user's home directory, or the root when there is none: nothing is a home then.
    pub(crate) fn home(&self) -> PathBuf {
        self.host.home.clone()
    }

    /// A path as people like to read it: relative to the project, or to the home directory.
    pub(crate) fn short(&self, path: &Path) -> String {
        if let Ok(inside) = path.strip_prefix(self.project.root()) {
            return inside.display().to_string();
        }
        match path.strip_prefix(&self.host.home) {
            Ok(inside) => format!("~/{}", inside.display()),
            Err(_) => path.display().to_string(),
        }
    }

    /// The same, with a name for the project itself.
    pub(crate) fn short_or_root(&self, path: &Path) -> String {
        let home = self.home();
        match path.strip_prefix(&home) {
            Ok(inside) => format!("~/{}", inside.display()),
            Err(_) => path.display().to_string(),
        }
    }

    /// Says once per file what its settings were not followed for.
    pub(crate) fn note_ignored_settings(&self, config: &Config) {
        let root = self.short_or_root(self.project.root());
        self.output.detail(&format!("project: {root}"));
        for file in config.files.iter().rev() {
            if file.state != FileState::Absent {
                let path = self.short(&file.path);
                self.output
                    .detail(&format!("settings ({}): {path}", file.layer.as_str()));
            }
            let ignored = |until_trusted: bool| -> Vec<&str> {
                let notes = config.notes.iter().filter(|note| {
                    note.until_trusted == until_trusted
                        && note.origin.file().as_deref() == Some(&file.path)
                });
                let mut keys: Vec<&str> = notes.map(|note| note.key.as_str()).collect();
                keys.dedup();
                keys
            };
            let path = self.short(&file.path);
            let (waiting, never) = (ignored(true), ignored(false));
            if !waiting.is_empty() {
                let keys = waiting.join(", ");
                self.output.note(&format!(
                    "`{path}` is not trusted, so these settings are not in force: {keys} \
                     (`agent config trust` trusts it)"
                ));
            }
            if !never.is_empty() {
                let keys = never.join(", ");
                self.output.note(&format!(
                    "`{path}` may not set {keys}: only user or managed settings may"
                ));
            }
        }
    }
}
