//! The tools a session knows, each with complete metadata, and the catalogue that is recorded and
//! shown to the model.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use agent_protocol::id::TurnId;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::tool::{
    Capability, CatalogDiff, CatalogEntry, CatalogPolicy, Concurrency, RuntimeOwner,
    ToolCatalogResolved, UnavailableTool,
};
use agent_protocol::status::Mode;
use agent_protocol::{Payload, Refs, Scope};
use serde_json::Value;

use crate::arguments::Schema;
use crate::authority::Authority;
use crate::journal::{Journal, JournalError};
use crate::spelling::{Spellings, no_such_tool};
use crate::tool::{Tool, Visibility, VisibilityContext};
use agent_policy::gate::NETWORK;
use agent_policy::{Subject, ToolDefinition};
use agent_text::nearest;
use agent_text::nearest::distance;
use agent_text::sha256_hex;

/// Why a tool cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    #[error("cannot register the tool `{tool}`: {missing}")]
    Incomplete { tool: String, missing: String },
    #[error("cannot register the tool `{tool}`: its input schema is not usable: {problem}")]
    Schema { tool: String, problem: String },
    #[error("cannot register the tool `{tool}`: the name `{name}` is taken by `{by}`")]
    NameTaken {
        tool: String,
        name: String,
        by: String,
    },
    #[error("there is no tool `{tool}` to change")]
    Unknown { tool: String },
}

/// All tools by name. What a session has changes between its turns, by [`Pipeline::change_tools`].
///
/// [`Pipeline::change_tools`]: crate::Pipeline::change_tools
#[derive(Clone, Default)]
pub struct Registry {
    tools: BTreeMap<String, Arc<Registered>>,
    /// Aliases, by the name they stand for.
    aliases: HashMap<String, String>,
    /// Reasons why tools cannot be used now, by their names.
    unavailable: BTreeMap<String, String>,
    spellings: Spellings,
}

/// A tool that may enter the pipeline.
pub struct Registered {
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) schema: Schema,
    definition_hash: String,
}

impl Registered {
    #[must_use]
    pub fn definition(&self) -> &ToolDefinition {
        self.tool.definition()
    }

    /// `sha256:` and the hash of everything in the definition.
    #[must_use]
    pub fn definition_hash(&self) -> &str {
        &self.definition_hash
    }

    /// Answers whether the tool can be used now; the session's own list comes before the tool's word.
    #[must_use]
    pub fn visibility(&self, context: &VisibilityContext) -> Visibility {
        let name = &self.definition().name;
        if context.disabled.contains(name) {
            return Visibility::Hidden {
                reason: "this session was started without it".to_owned(),
            };
        }
        if let Some(reason) = context.unavailable.get(name) {
            let reason = reason.clone();
            return Visibility::Hidden { reason };
        }
        self.tool.visibility(context)
    }
}

impl Registry {
    /// Takes a tool in, if its metadata is complete and its names are free.
    ///
    /// # Errors
    /// When something is missing, the schema is not usable or a name is taken. Nothing changes
    /// then.
    pub fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistrationError> {
        let definition = tool.definition();
        let name = definition.name.clone();
        check_complete(definition)?;
        let schema = Schema::new(&definition.input_schema);
        // Those of our own tools are checked by a test; what comes from elsewhere is checked now.
        if definition.owner != RuntimeOwner::Local {
            schema
                .ready()
                .map_err(|problem| RegistrationError::Schema {
                    tool: name.clone(),
                    problem: problem.to_owned(),
                })?;
        }
        for wanted in std::iter::once(&name).chain(&definition.aliases) {
            if let Some(by) = self.resolve(wanted) {
                return Err(RegistrationError::NameTaken {
                    tool: name.clone(),
                    name: wanted.clone(),
                    by: by.definition().name.clone(),
                });
            }
        }
        for alias in &definition.aliases {
            self.aliases.insert(alias.clone(), name.clone());
        }
        let definition_hash = definition_hash(definition);
        let registered = Registered {
            tool,
            schema,
            definition_hash,
        };
        self.tools.insert(name, Arc::new(registered));
        Ok(())
    }

    /// Takes `tool` in place of the one that has its name.
    ///
    /// # Errors
    /// When there is none, or as [`register`](Self::register). Nothing changes then.
    pub fn replace(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistrationError> {
        let mut without = self.clone();
        without.remove(&tool.definition().name)?;
        without.register(tool)?;
        *self = without;
        Ok(())
    }

    /// Takes a tool out.
    ///
    /// # Errors
    /// When there is none with this name.
    pub fn remove(&mut self, name: &str) -> Result<(), RegistrationError> {
        if self.tools.remove(name).is_none() {
            return Err(RegistrationError::Unknown {
                tool: name.to_owned(),
            });
        }
        self.aliases.retain(|_, stands_for| stands_for != name);
        self.unavailable.remove(name);
        Ok(())
    }

    /// Says that a tool cannot be used now, with the reason as the end of a sentence, or that it can again.
    ///
    /// # Errors
    /// When there is none with this name.
    pub fn set_unavailable(
        &mut self,
        name: &str,
        reason: Option<&str>,
    ) -> Result<(), RegistrationError> {
        if !self.tools.contains_key(name) {
            return Err(RegistrationError::Unknown {
                tool: name.to_owned(),
            });
        }
        match reason {
            Some(reason) => self.unavailable.insert(name.to_owned(), reason.to_owned()),
            None => self.unavailable.remove(name),
        };
        Ok(())
    }

    pub(crate) fn unavailable(&self) -> &BTreeMap<String, String> {
        &self.unavailable
    }

    /// The tool that runs scripts.
    #[must_use]
    pub fn shell(&self) -> Option<&ToolDefinition> {
        let mut definitions = self.tools().map(|tool| tool.definition());
        definitions.find(|definition| definition.subject == Subject::Command)
    }

    /// The name of the tool that shows parts of artifacts.
    #[must_use]
    pub fn artifact_reader(&self) -> Option<&str> {
        let mut definitions = self.tools().map(|tool| tool.definition());
        let found = definitions.find(|definition| {
            definition.is_read_only && definition.capabilities.contains(&Capability::Artifact)
        });
        found.map(|definition| definition.name.as_str())
    }

    /// Gets every schema ready now instead of at its first use.
    ///
    /// # Errors
    /// When one is not usable.
    pub fn check_schemas(&self) -> Result<(), RegistrationError> {
        for registered in self.tools() {
            let ready = registered.schema.ready();
            ready.map_err(|problem| RegistrationError::Schema {
                tool: registered.definition().name.clone(),
                problem: problem.to_owned(),
            })?;
        }
        Ok(())
    }

    /// The tool with this name or alias.
    #[must_use]
    pub fn resolve(&self, name: &str) -> Option<&Arc<Registered>> {
        self.tools
            .get(name)
            .or_else(|| self.tools.get(self.aliases.get(name)?))
    }

    /// Takes in what other programs call these tools and their fields.
    pub fn understand(&mut self, spellings: Spellings) {
        self.spellings = spellings;
    }

    /// A call in other programs' words in ours: the tool, and its input where that differs from what
    /// was given.
    pub(crate) fn read_call(
        &self,
        name: &str,
        arguments: &str,
        given: Option<&Value>,
    ) -> (Option<Arc<Registered>>, Option<Value>) {
        let own = self.resolve(name);
        let own_name = own.map(|tool| tool.definition().name.as_str());
        let Some(given) = given else {
            let tool = self.spellings.plain_tool(own_name.unwrap_or(name));
            let tool = tool.and_then(|tool| self.resolve(tool));
            let read = tool.and_then(|tool| {
                let name = &tool.definition().name;
                Some((tool, self.spellings.plain_text(name, arguments)?))
            });
            return match read {
                Some((tool, input)) => (Some(Arc::clone(tool)), Some(input)),
                None => (own.cloned(), None),
            };
        };
        let fits = own.is_some_and(|own| own.schema.check(given).is_ok());
        // A null says as much as nothing, except to a tool that takes it.
        let said = match fits {
            true => given.clone(),
            false => without_nulls(given),
        };
        let understood = self.spellings.understand(name, own_name, &said);
        let read = understood.and_then(|read| {
            let tool = self.resolve(read.tool)?;
            let is_elsewhere = own_name != Some(tool.definition().name.as_str());
            (is_elsewhere || !fits).then_some((tool, read.input))
        });
        match read {
            Some((tool, input)) => {
                let differs = input != *given;
                (Some(Arc::clone(tool)), differs.then_some(input))
            }
            None => {
                let differs = own.is_some() && said != *given;
                (own.cloned(), differs.then_some(said))
            }
        }
    }

    /// The message for a name that no tool has.
    pub(crate) fn no_such_tool(&self, name: &str) -> String {
        let names: Vec<&str> = self.tools.keys().map(String::as_str).collect();
        let instead = self.spellings.instead_of(name);
        no_such_tool(name, instead, self.nearest(name), &names)
    }

    /// In the order of their names.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<Registered>> {
        self.tools.values()
    }

    /// The name that was most probably meant by one that does not exist: a slip or two away, not
    /// another word with the same part.
    #[must_use]
    pub fn nearest(&self, name: &str) -> Option<&str> {
        let names = self.tools.keys().map(String::as_str);
        nearest(name, names.chain(self.aliases.keys().map(String::as_str)))
            .filter(|found| distance(&name.to_lowercase(), found) <= 2)
            .and_then(|found| self.resolve(found))
            .map(|found| found.definition().name.as_str())
    }

    /// The whole catalogue as it is in this session, mode and phase. Tools that are hidden stay in
    /// it as `unavailable`; those that another one stands in for are not in it.
    #[must_use]
    pub fn catalogue(
        &self,
        context: &VisibilityContext,
        authority: &dyn Authority,
    ) -> Vec<CatalogEntry> {
        self.tools()
            .filter_map(|tool| {
                let (policy, reason) = match tool.visibility(context) {
                    Visibility::Visible => (authority.forecast(tool.definition()), None),
                    Visibility::Hidden { reason } => (CatalogPolicy::Unavailable, Some(reason)),
                    Visibility::Unlisted => return None,
                };
                Some(CatalogEntry {
                    unavailable_because: reason,
                    ..catalogue_entry(tool, policy)
                })
            })
            .collect()
    }
}

/// The value without the fields that are null, at any depth.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), without_nulls(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

fn check_complete(definition: &ToolDefinition) -> Result<(), RegistrationError> {
    let incomplete = |missing: &str| {
        Err(RegistrationError::Incomplete {
            tool: definition.name.clone(),
            missing: missing.to_owned(),
        })
    };
    let word = |text: &str| {
        (1..=64).contains(&text.len())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    };
    if !word(&definition.name) || !definition.aliases.iter().all(|alias| word(alias)) {
        return incomplete("names have 1 to 64 letters, digits, `_` or `-`");
    }
    for (text, missing) in [
        (&definition.version, "it has no version"),
        (&definition.description, "it has no description"),
        (&definition.output, "it does not say what its output means"),
    ] {
        if text.trim().is_empty() {
            return incomplete(missing);
        }
    }
    if definition.risk.is_empty() || definition.capabilities.is_empty() {
        return incomplete("it names no risk or no capability");
    }
    if definition.name == NETWORK {
        return incomplete("`network` is the word for the network in rules");
    }
    if definition.subject == Subject::Command && definition.command_field.is_none() {
        return incomplete("it does not say which field holds the script");
    }
    if definition.max_result_chars == 0 {
        return incomplete("it has no limit for its result");
    }
    if definition.is_read_only && definition.is_destructive {
        return incomplete("it cannot be read-only and destructive");
    }
    if !definition.is_read_only && definition.concurrency == Concurrency::Safe {
        return incomplete("what changes things cannot run beside anything");
    }
    let schema = &definition.input_schema;
    if schema.get("type") != Some(&Value::from("object"))
        || schema.get("additionalProperties") != Some(&Value::Bool(false))
    {
        return incomplete("its input schema is not a closed object");
    }
    Ok(())
}

fn definition_hash(definition: &ToolDefinition) -> String {
    format!(
        "sha256:{}",
        sha256_hex(definition.meaning().to_string().as_bytes())
    )
}

fn catalogue_entry(tool: &Registered, policy: CatalogPolicy) -> CatalogEntry {
    let definition = tool.definition();
    CatalogEntry {
        tool_name: definition.name.clone(),
        version: definition.version.clone(),
        definition_hash: tool.definition_hash.clone(),
        description: Some(definition.description.clone()),
        input_schema: Some(definition.input_schema.clone()),
        capabilities: definition.capabilities.clone(),
        risk: definition.risk.clone(),
        policy,
        runtime_owner: definition.owner,
        is_read_only: definition.is_read_only,
        is_concurrency_safe: definition.concurrency == Concurrency::Safe,
        concurrency: definition.concurrency,
        is_destructive: definition.is_destructive,
        interrupt_behavior: definition.interrupt_behavior,
        max_result_chars: definition.max_result_chars,
        needs_sandbox: definition.needs_sandbox,
        output: Some(definition.output.clone()),
        metadata_ref: None,
        unavailable_because: None,
    }
}

/// The catalogue as its artifact holds it.
fn catalogue_bytes(catalogue: &[CatalogEntry]) -> Vec<u8> {
    // Words, numbers and JSON values: there is nothing in an entry that JSON cannot hold.
    serde_json::to_vec(catalogue).unwrap_or_default()
}

/// The hash a catalogue is known by: that of its artifact.
#[must_use]
pub fn catalogue_hash(catalogue: &[CatalogEntry]) -> String {
    format!("sha256:{}", sha256_hex(&catalogue_bytes(catalogue)))
}

/// Records the catalogue when it is new or has changed, so that every model request can name the
/// menu it was made with.
#[derive(Default)]
pub struct CatalogueRecord {
    last: Mutex<Option<ToolCatalogResolved>>,
    /// The turn the last one was recorded in by this process.
    turn: Mutex<Option<TurnId>>,
}

impl CatalogueRecord {
    /// Takes a recorded fact into account, to go on after a restart.
    pub fn apply(&self, payload: &Payload) {
        if let Payload::ToolCatalogResolved(resolved) = payload {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(resolved.clone());
        }
    }

    /// Keeps the catalogue as an artifact and says so with `tool.catalog.resolved`, unless the last
    /// one recorded in this turn was the same. Returns the fact in force.
    ///
    /// # Errors
    /// When artifact or event cannot be written.
    pub fn resolve(
        &self,
        catalogue: &[CatalogEntry],
        mode: Mode,
        journal: &dyn Journal,
        scope: &Scope,
    ) -> Result<ToolCatalogResolved, JournalError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = catalogue_bytes(catalogue);
        let hash = catalogue_hash(catalogue);
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*last
            && known.catalog_hash == hash
            && known.mode == mode
            && *turn == scope.turn_id
        {
            return Ok(known.clone());
        }
        let artifact =
            journal.put_artifact(scope, ArtifactKind::Catalog, "application/json", &bytes, "")?;
        let catalog_ref = artifact.artifact_id;
        // The schemas are in the artifact; a line of the log has a limit.
        let tools: Vec<_> = catalogue
            .iter()
            .map(|entry| CatalogEntry {
                input_schema: None,
                description: entry.description.as_deref().map(first_sentence),
                metadata_ref: Some(catalog_ref.clone()),
                ..entry.clone()
            })
            .collect();
        let changed = last.as_ref().filter(|before| before.catalog_hash != hash);
        let diff = changed.map(|before| difference(&before.tools, &tools));
        let resolved = ToolCatalogResolved {
            catalog_hash: catalog_ref.to_string(),
            catalog_ref: catalog_ref.clone(),
            mode,
            tools,
            diff,
        };
        let refs = Refs::default().with("catalog", &catalog_ref);
        journal.append(scope, resolved.clone().into(), refs)?;
        *last = Some(resolved.clone());
        turn.clone_from(&scope.turn_id);
        Ok(resolved)
    }
}

fn first_sentence(text: &str) -> String {
    let end = text.find(['.', '\n']).map_or(text.len(), |at| at + 1);
    text[..end].trim_end().chars().take(200).collect()
}

/// The tools that were added, removed, changed, and that cannot be used any more.
fn difference(before: &[CatalogEntry], after: &[CatalogEntry]) -> CatalogDiff {
    let known = |list: &[CatalogEntry], name: &str| {
        let found = list.iter().find(|entry| entry.tool_name == name);
        found.cloned()
    };
    let mut diff = CatalogDiff::default();
    for entry in after {
        let name = &entry.tool_name;
        let then = known(before, name);
        match &then {
            None => diff.added.push(name.clone()),
            Some(then)
                if then.definition_hash != entry.definition_hash
                    || then.policy != entry.policy
                    || then.unavailable_because != entry.unavailable_because =>
            {
                diff.changed.push(name.clone());
            }
            Some(_) => continue,
        }
        if let Some(reason) = &entry.unavailable_because {
            diff.unavailable.push(UnavailableTool {
                tool_name: name.clone(),
                reason: reason.clone(),
            });
        }
    }
    for entry in before {
        if known(after, &entry.tool_name).is_none() {
            diff.removed.push(entry.tool_name.clone());
        }
    }
    diff
}
