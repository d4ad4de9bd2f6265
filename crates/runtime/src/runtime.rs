//! The machine and a project: what sessions are opened in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_log::{
    Among, AnchorStore, Candidate, Holder, RedactionRules, Redactor, ResolveError,
    SessionDirectory, SessionEnv, SessionStore,
};
use agent_protocol::Timestamp;

use crate::config::{self, Config, Overrides, Setting};
use crate::error::{Context as _, OrFail as _, RuntimeError};
use crate::host::Host;
use crate::keys::Keys;
use crate::project::Project;

/// A project on this machine. Clones share the keys that were found.
#[derive(Clone)]
pub struct Runtime {
    pub host: Host,
    pub project: Project,
    pub keys: Arc<Keys>,
}

impl Runtime {
    /// The runtime of the project around the host's current directory. Reads no settings.
    #[must_use]
    pub fn new(host: Host) -> Self {
        Self {
            project: Project::discover(&host.cwd),
            host,
            keys: Arc::default(),
        }
    }

    /// The settings in force.
    ///
    /// # Errors
    /// When a settings file, a variable or a flag cannot be used.
    pub fn config(&self, overrides: &Overrides) -> Result<Config, RuntimeError> {
        config::load(&self.host, &self.project, overrides)
    }

    /// The sessions of this project.
    #[must_use]
    pub fn sessions(&self) -> SessionStore {
        SessionStore::of_project(self.project.root())
    }

    /// The session that `asked` names, to look at it: see [`SessionStore::resolve_among`]; or, with a
    /// slash in it, the session's own directory wherever it was copied to.
    ///
    /// # Errors
    /// When there is no such session, or more than one.
    pub fn session(&self, asked: &str) -> Result<SessionDirectory, RuntimeError> {
        if asked.contains('/')
            && let directory = self.host.cwd.join(asked)
            && (directory.exists() || asked.starts_with(['/', '.']))
        {
            return SessionDirectory::at(&directory)
                .with_context(|| format!("`{asked}` is not a session's directory"))
                .or_usage();
        }
        self.session_among(asked, Among::All)
    }

    /// The session that `asked` names, to continue it: `last` passes over sessions of single calls.
    ///
    /// # Errors
    /// When there is no such session, or more than one.
    pub fn session_to_continue(&self, asked: &str) -> Result<SessionDirectory, RuntimeError> {
        self.session_among(asked, Among::Conversations)
    }

    fn session_among(&self, asked: &str, among: Among) -> Result<SessionDirectory, RuntimeError> {
        let found = self.sessions().resolve_among(asked, among);
        let hint = match &found {
            Err(ResolveError::Empty { .. }) => {
                "create one with `agent run PROMPT`, or try `agent demo`".to_owned()
            }
            Err(ResolveError::Ambiguous { found, .. }) => self.candidates(found),
            _ => "`agent sessions` lists them; name one by its number, its title or its id"
                .to_owned(),
        };
        found.or_usage().map_err(|error| error.hint(hint))
    }

    /// The sessions that a name may mean, one per line.
    fn candidates(&self, found: &[Candidate]) -> String {
        const MOST: usize = 8;
        let mut text = "name one by its number:".to_owned();
        for candidate in found.iter().take(MOST) {
            let title = candidate.title.as_deref().unwrap_or("no requests yet");
            text.push_str(&format!(
                "\n  {:>3}  {}  ({})",
                candidate.number,
                agent_text::clip(&agent_text::visible_line(title), 50),
                agent_text::words::ago(self.millis_since(candidate.modified)),
            ));
        }
        if found.len() > MOST {
            text.push_str(&format!("\n  and {} more", found.len() - MOST));
        }
        text
    }

    /// Milliseconds from `moment` until now; none for what lies ahead.
    #[must_use]
    pub fn millis_since(&self, moment: Timestamp) -> u64 {
        let now = self.host.clock.now().unix_millis();
        u64::try_from(now.saturating_sub(moment.unix_millis())).unwrap_or(0)
    }

    /// The environment of a log writer for a program that calls itself `program`.
    ///
    /// # Errors
    /// When this installation's id or key cannot be used, or a pattern of the settings is not one.
    pub fn session_env_with(
        &self,
        config: &Config,
        program: &str,
    ) -> Result<SessionEnv, RuntimeError> {
        let runtime_id = self.host.runtime_id()?;
        Ok(SessionEnv {
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

    /// The masking of secrets: known shapes, secret-looking variables, keys of model providers
    /// wherever they come from, and the settings.
    fn redactor(&self, config: &Config) -> Result<Redactor, RuntimeError> {
        let rules = RedactionRules {
            late: self.keys.secrets(),
            ..self.redaction_rules(Some(config))
        };
        self.keys.learn_settings(self, config);
        let key = self.host.redaction_key()?;
        Redactor::new(rules, &key)
            .or_usage()
            .map_err(|error| error.hint("see `[redaction] patterns` in your settings"))
    }

    /// The masking that needs no key command: secret-looking variables, and the settings where they
    /// can be read.
    #[must_use]
    pub fn redaction_rules(&self, config: Option<&Config>) -> RedactionRules {
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
    #[must_use]
    pub fn in_project(&self, directory: &Path) -> Self {
        let mut host = self.host.clone();
        directory.clone_into(&mut host.cwd);
        Self {
            project: Project::discover(directory),
            host,
            keys: Arc::clone(&self.keys),
        }
    }

    /// The user's home directory, or the root when there is none: nothing is a home then.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.host.home.clone()
    }

    /// A path as people like to read it: relative to the project, or to the home directory.
    #[must_use]
    pub fn short(&self, path: &Path) -> String {
        if let Ok(inside) = path.strip_prefix(self.project.root()) {
            return inside.display().to_string();
        }
        self.short_or_root(path)
    }

    /// The same, with a name for the project itself.
    #[must_use]
    pub fn short_or_root(&self, path: &Path) -> String {
        match path.strip_prefix(&self.host.home) {
            Ok(inside) => format!("~/{}", inside.display()),
            Err(_) => path.display().to_string(),
        }
    }
}
