//! What every command gets: the machine, the project and a way to speak.

use std::ops::Deref;
use std::path::Path;

use agent_log::{SessionDirectory, SessionEnv};
use agent_policy::gate::{Rule, unknown_tools};
use agent_runtime::Runtime;
use anyhow::Context as _;

use crate::arguments::GlobalArgs;
use crate::config::{self, Config, FileState, SettingArgs};
use crate::failure::{Failure, OrFail as _};
use crate::host;
use crate::output::Output;

/// One run of the binary, before any command has started: the runtime, and a way to speak.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) runtime: Runtime,
    pub(crate) output: Output,
}

impl Deref for App {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        &self.runtime
    }
}

impl App {
    /// Looks at the machine and finds the project. Reads no configuration: commands that need it
    /// ask for it.
    pub(crate) fn new(global: &GlobalArgs) -> Result<Self, Failure> {
        let host = host::read(global.cwd.as_deref()).or_usage()?;
        Ok(Self {
            output: Output::new(global.color, global.volume(), &host.environment),
            runtime: Runtime::new(host),
        })
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
        let sessions = asked.iter().map(|asked| self.session(asked));
        Ok(sessions.collect::<Result<_, _>>()?)
    }

    /// What the session crate needs to write, for a command that calls itself `program`.
    pub(crate) fn session_env(&self, program: &str) -> Result<SessionEnv, Failure> {
        let config = config::load(&self.host, &self.project, &SettingArgs::default())?;
        Ok(self.session_env_with(&config, program)?)
    }

    /// The same machine, working in another project.
    pub(crate) fn in_project(&self, directory: &Path) -> Self {
        Self {
            runtime: self.runtime.in_project(directory),
            output: self.output.clone(),
        }
    }

    /// Says which rules name a tool that there is not, and what was probably meant.
    pub(crate) fn note_unknown_tools(&self, rules: &[Rule]) {
        for unknown in unknown_tools(rules, &self.host.known_tools()) {
            self.output.note(&unknown.to_string());
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
                    "`{path}` is not trusted, so these settings are ignored: {keys} (run \
                     `agent config trust` to trust it)"
                ));
            }
            if !never.is_empty() {
                let keys = never.join(", ");
                self.output.note(&format!(
                    "`{path}` cannot set {keys}: only user or managed settings can"
                ));
            }
        }
    }
}
