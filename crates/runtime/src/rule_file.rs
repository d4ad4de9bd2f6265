//! Saving a rule the user chose in a question: into a file, into the session, into the log.

use std::fs;
use std::io;
use std::path::PathBuf;

use agent_policy::gate::{Bases, Rule};
use agent_protocol::payload::permission::{Effect, GrantScope, Layer, RuleOrigin};
use agent_tool_runtime::Tools;
use toml_edit::{Array, DocumentMut, Item, Table};

use crate::Runtime;
use crate::config::trust::{Trust, TrustStore};
use crate::error::{OrFail as _, RuntimeError};
use crate::{bases, private};

/// Where rules of this session can be saved.
pub struct RuleFiles {
    project_local: PathBuf,
    user: PathBuf,
    state: PathBuf,
    bases: Bases,
    tools: Tools,
}

impl RuleFiles {
    pub fn new(runtime: &Runtime) -> Self {
        Self {
            project_local: runtime.project.local_config(),
            user: runtime.host.directories.user_config.clone(),
            state: runtime.host.directories.state.clone(),
            bases: bases(runtime),
            tools: runtime.host.known_tools(),
        }
    }

    /// Adds an allow rule to the file of `scope` and gives it back as the gate reads it. Comments
    /// and order of the file stay. The error says why nothing was saved.
    pub fn save(&self, rule: &str, scope: GrantScope) -> Result<Rule, RuntimeError> {
        let (path, layer) = match scope {
            GrantScope::ProjectLocal => (&self.project_local, Layer::ProjectLocal),
            GrantScope::User => (&self.user, Layer::User),
            GrantScope::Once | GrantScope::Session => {
                return Err(RuntimeError::usage("this answer does not save a rule"));
            }
        };
        let shown = path.display();
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(RuntimeError::usage(format!(
                    "the rule was not saved: cannot read `{shown}`: {error}"
                )));
            }
        };
        let mut trust = TrustStore::open(&self.state)?;
        // Saving must not make the user trust what somebody else wrote into the same file.
        let ours =
            layer == Layer::User || text.is_empty() || trust.of(path, &text) == Trust::Trusted;
        if !ours {
            return Err(RuntimeError::usage(format!(
                "the rule was not saved: `{shown}` is not trusted; see `agent config trust`"
            )));
        }
        let mut document: DocumentMut = text
            .parse()
            .map_err(|error| format!("the rule was not saved: `{shown}` is not TOML: {error}"))
            .or_usage()?;
        let permissions = document
            .entry("permissions")
            .or_insert_with(|| Item::Table(Table::new()));
        let allow = permissions
            .as_table_like_mut()
            .map(|table| table.entry("allow").or_insert_with(|| Array::new().into()))
            .and_then(Item::as_array_mut)
            .ok_or_else(|| {
                format!("the rule was not saved: `permissions.allow` in `{shown}` is not a list")
            })
            .or_usage()?;
        allow.push(rule);
        let text = document.to_string();
        let line = text
            .lines()
            .position(|line| line.contains(rule))
            .map(|at| at as u64 + 1);
        let origin = RuleOrigin {
            layer,
            file: Some(shown.to_string()),
            line,
        };
        let parsed = Rule::parse(Effect::Allow, rule, origin, &self.bases, &self.tools)
            .map_err(|problem| format!("the rule was not saved: {}", problem.message))
            .or_usage()?;
        private::replace(path, text.as_bytes())
            .map_err(|error| format!("the rule was not saved: cannot write `{shown}`: {error}"))
            .or_fail()?;
        if layer == Layer::ProjectLocal {
            trust.trust(path, &text)?;
        }
        Ok(parsed)
    }
}
