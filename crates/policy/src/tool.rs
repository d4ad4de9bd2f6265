//! Tools as data: what rules, gate, scheduler, prompt and log know of a tool before any call of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::payload::permission::{Access, ActionClass};
use agent_protocol::payload::tool::{
    Capability, Concurrency, InterruptBehavior, Risk, RuntimeOwner,
};
use serde_json::{Map, Value, json};

use crate::{CommandRequest, PermissionSemantics, ResourceAccess, WebAddress, Workspace};

/// The matter of a tool's calls, which the pattern of a rule is matched against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Files that it reads.
    Read,
    /// Files that it changes.
    Write,
    /// A script for the shell.
    Command,
    /// Something on the network.
    Network,
    /// Work handed to code of somebody else: a server, another agent.
    Delegate,
    /// What the session itself has: artifacts, processes.
    Session,
    /// A plan, which nothing but the user's own answer lets through.
    Plan,
}

impl Subject {
    fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Command => "command",
            Self::Network => "network",
            Self::Delegate => "delegate",
            Self::Session => "session",
            Self::Plan => "plan",
        }
    }
}

/// The part of a file that a reading tool shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reveals {
    /// Its content. A rule that allows this opens the file to all that show less.
    #[default]
    Content,
    /// Places in it that match something: names of secrets it must be given, it does not come across them.
    Matches,
    /// Its name alone.
    Names,
}

impl Reveals {
    fn as_str(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Matches => "matches",
            Self::Names => "names",
        }
    }
}

/// A field of the input that names a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathField {
    pub name: String,
    /// The path that is meant when the field is missing; without one the field has to be there.
    pub default: Option<String>,
}

/// A field of the input with a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchField {
    pub name: String,
    /// Beginnings of the lines in it that name a file.
    pub headers: Vec<String>,
}

impl PatchField {
    /// The files that a patch names, in its order.
    fn files<'a>(&'a self, patch: &'a str) -> impl Iterator<Item = &'a str> {
        let named = |line: &'a str| {
            let line = line.trim();
            let mut headers = self.headers.iter();
            headers.find_map(|header| line.strip_prefix(header.as_str()))
        };
        patch.lines().filter_map(named).map(str::trim)
    }
}

/// The governable metadata of a tool. Registration fails where it is incomplete.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    /// The model-facing name, and the name in rules.
    pub name: String,
    /// Other names that are accepted, and logged as `requested_name`.
    pub aliases: Vec<String>,
    /// Changes whenever the meaning of the input or the output does.
    pub version: String,
    /// Text for the model and the user.
    pub description: String,
    /// A JSON Schema of an object with `additionalProperties: false`.
    pub input_schema: Value,
    /// Meaning of the output, in words.
    pub output: String,
    pub subject: Subject,
    pub reveals: Reveals,
    /// The class of a call of which nothing else is known.
    pub action_class: ActionClass,
    /// Fields that name the files a call is about.
    pub path_fields: Vec<PathField>,
    /// The field with the script.
    pub command_field: Option<String>,
    /// The field with a patch, which names any number of files.
    pub patch_field: Option<PatchField>,
    /// The field with the directory that the script runs in, or that the paths of the patch start from.
    pub cwd_field: Option<String>,
    /// The field that asks for the network.
    pub network_field: Option<String>,
    /// The field with the address that a call connects to.
    pub url_field: Option<String>,
    /// The field that names a call that has neither file nor script.
    pub title_field: Option<String>,
    pub capabilities: Vec<Capability>,
    pub risk: Vec<Risk>,
    pub is_read_only: bool,
    pub is_destructive: bool,
    pub concurrency: Concurrency,
    pub interrupt_behavior: InterruptBehavior,
    /// The most characters of text the model gets from one call.
    pub max_result_chars: u64,
    pub needs_sandbox: bool,
    pub owner: RuntimeOwner,
    /// The most time of a call that does not say otherwise.
    pub default_timeout: Option<Duration>,
    pub cancellable: bool,
    /// True if a call may take a while and says meanwhile how far it is.
    pub streams_progress: bool,
}

impl ToolDefinition {
    /// A tool of which nothing else is known: it takes nothing, may change anything, and runs beside no other call.
    #[must_use]
    pub fn new(name: &str, owner: RuntimeOwner, subject: Subject) -> Self {
        Self {
            name: name.to_owned(),
            aliases: Vec::new(),
            version: "1".to_owned(),
            description: String::new(),
            input_schema: json!({
                "type": "object", "properties": {}, "additionalProperties": false,
            }),
            output: String::new(),
            subject,
            reveals: Reveals::default(),
            action_class: ActionClass::Execute,
            path_fields: Vec::new(),
            command_field: None,
            patch_field: None,
            cwd_field: None,
            network_field: None,
            url_field: None,
            title_field: None,
            capabilities: vec![Capability::Custom],
            risk: vec![Risk::Execute],
            is_read_only: false,
            is_destructive: true,
            concurrency: Concurrency::Exclusive,
            interrupt_behavior: InterruptBehavior::Block,
            max_result_chars: 30_000,
            needs_sandbox: false,
            owner,
            default_timeout: None,
            cancellable: true,
            streams_progress: false,
        }
    }

    /// The same with a field that names a file.
    #[must_use]
    pub fn with_path(mut self, name: &str, default: Option<&str>) -> Self {
        self.path_fields.push(PathField {
            name: name.to_owned(),
            default: default.map(str::to_owned),
        });
        self
    }

    /// True of the tool's own name and of its aliases.
    #[must_use]
    pub fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// True if a rule about it may have a pattern.
    #[must_use]
    pub fn takes_pattern(&self) -> bool {
        match self.subject {
            Subject::Read | Subject::Write => {
                !self.path_fields.is_empty() || self.patch_field.is_some()
            }
            Subject::Command => true,
            Subject::Network => self.url_field.is_some(),
            Subject::Delegate | Subject::Session | Subject::Plan => false,
        }
    }

    /// The class of what runs the tool: files of this machine, processes, or somebody else's code.
    #[must_use]
    pub fn executor_class(&self) -> &'static str {
        let is_local = self.owner == RuntimeOwner::Local;
        match self.needs_sandbox || self.capabilities.contains(&Capability::Shell) {
            _ if !is_local => "external",
            true => "process",
            false => "fs",
        }
    }

    /// The field without which a call is about nothing.
    #[must_use]
    pub fn main_field(&self) -> Option<&str> {
        let path = self.path_fields.iter().find(|path| path.default.is_none());
        let path = path.map(|path| path.name.as_str());
        let patch = self.patch_field.as_ref().map(|patch| patch.name.as_str());
        let url = self.url_field.as_deref();
        self.command_field.as_deref().or(path).or(patch).or(url)
    }

    /// An input that is about `text` and nothing else.
    #[must_use]
    pub fn input_about(&self, text: &str) -> Value {
        let field = self.main_field();
        let field = field.map(|name| (name.to_owned(), Value::from(text)));
        Value::Object(field.into_iter().collect::<Map<_, _>>())
    }

    /// The words that name a call by its input, where neither file nor script does.
    #[must_use]
    pub fn title_of<'a>(&self, input: &'a Value) -> Option<&'a str> {
        input.get(self.title_field.as_ref()?)?.as_str()
    }

    /// The meaning of a call by its input alone, for those who run nothing: `agent permissions explain` and back-tests.
    /// Tools that run say it themselves after validation. `None` without the main field.
    #[must_use]
    pub fn semantics(&self, input: &Value, workspace: &Workspace) -> Option<PermissionSemantics> {
        let text = |name: &str| input.get(name).and_then(Value::as_str);
        let asked = self.network_field.as_ref().and_then(|name| input.get(name));
        // A tool that names its host asks for that host alone.
        let is_open = self.subject == Subject::Network && self.url_field.is_none();
        let network = is_open || asked.and_then(Value::as_bool).unwrap_or(false);
        let command = match &self.command_field {
            Some(field) => {
                let cwd = self.cwd_field.as_deref().and_then(text);
                let cwd =
                    cwd.map_or_else(|| workspace.root.clone(), |cwd| workspace.root.join(cwd));
                Some(CommandRequest::new(text(field)?, cwd))
            }
            None => None,
        };
        let access = match self.subject {
            Subject::Write => Access::Write,
            _ => Access::Read,
        };
        let resource = |given: &str| ResourceAccess {
            access,
            given: given.to_owned(),
            // Where `~` leads the gate knows.
            resolved: (!given.starts_with('~')).then(|| workspace.root.join(given)),
        };
        let given = |field: &PathField| {
            let given = text(&field.name).or(field.default.as_deref())?;
            Some(resource(given))
        };
        let resources: Option<Vec<_>> = self.path_fields.iter().map(given).collect();
        let mut resources = resources?;
        if let Some(patch) = &self.patch_field {
            let cwd = self.cwd_field.as_deref().and_then(text);
            let cwd = cwd.filter(|cwd| !cwd.is_empty());
            for file in patch.files(text(&patch.name)?) {
                let from_cwd = cwd.filter(|_| !file.starts_with(['/', '~']));
                let given = from_cwd.map(|cwd| Path::new(cwd).join(file));
                let given = given.map(|path| path.to_string_lossy().into_owned());
                resources.push(resource(given.as_deref().unwrap_or(file)));
            }
            // What names no file is no patch.
            if resources.is_empty() {
                return None;
            }
        }
        let mut risk_facts = Vec::new();
        if let Some(field) = &self.url_field {
            let address = WebAddress::parse(text(field)?).ok()?;
            resources.push(ResourceAccess {
                access: Access::Connect,
                given: address.origin(),
                resolved: None,
            });
            risk_facts.push(format!("asks for `{}`", address.url()));
        }
        Some(PermissionSemantics {
            action_class: self.action_class,
            resources,
            command,
            network,
            risk_facts,
            ..PermissionSemantics::default()
        })
    }

    /// Everything that gives a call its meaning, in a fixed order, for a hash of it.
    #[must_use]
    pub fn meaning(&self) -> Value {
        let paths: Vec<_> = self
            .path_fields
            .iter()
            .map(|path| json!([path.name, path.default]))
            .collect();
        let patch = self.patch_field.as_ref();
        let patch = patch.map(|patch| json!([patch.name, patch.headers]));
        let mut meaning = json!({
            "name": self.name,
            "aliases": self.aliases,
            "version": self.version,
            "description": self.description,
            "input_schema": self.input_schema,
            "output": self.output,
            "subject": self.subject.as_str(),
            "reveals": self.reveals.as_str(),
            "action_class": self.action_class.as_str(),
            "path_fields": paths,
            "command_field": self.command_field,
            "patch_field": patch,
            "cwd_field": self.cwd_field,
            "network_field": self.network_field,
            "title_field": self.title_field,
            "capabilities": self.capabilities.iter().map(|word| word.as_str()).collect::<Vec<_>>(),
            "risk": self.risk.iter().map(|word| word.as_str()).collect::<Vec<_>>(),
            "is_read_only": self.is_read_only,
            "is_destructive": self.is_destructive,
            "concurrency": self.concurrency.as_str(),
            "interrupt_behavior": self.interrupt_behavior.as_str(),
            "max_result_chars": self.max_result_chars,
            "needs_sandbox": self.needs_sandbox,
            "owner": self.owner.as_str(),
            "default_timeout_ms": self.default_timeout.map(|time| time.as_millis().to_string()),
            "cancellable": self.cancellable,
            "streams_progress": self.streams_progress,
        });
        if let Some(field) = &self.url_field {
            meaning["url_field"] = json!(field);
        }
        meaning
    }
}

/// The tools that are known, by name.
#[derive(Clone, Debug, Default)]
pub struct Tools(Vec<Arc<ToolDefinition>>);

impl Tools {
    /// The tool with this name or alias.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&ToolDefinition> {
        self.iter().find(|tool| tool.answers_to(name))
    }

    /// The tool that runs scripts.
    #[must_use]
    pub fn shell(&self) -> Option<&ToolDefinition> {
        self.iter().find(|tool| tool.subject == Subject::Command)
    }

    /// All of them, in the order they were given.
    pub fn iter(&self) -> impl Iterator<Item = &ToolDefinition> {
        self.0.iter().map(|tool| &**tool)
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|tool| tool.name.as_str())
    }
}

impl FromIterator<Arc<ToolDefinition>> for Tools {
    fn from_iter<I: IntoIterator<Item = Arc<ToolDefinition>>>(tools: I) -> Self {
        Self(tools.into_iter().collect())
    }
}

impl FromIterator<ToolDefinition> for Tools {
    fn from_iter<I: IntoIterator<Item = ToolDefinition>>(tools: I) -> Self {
        tools.into_iter().map(Arc::new).collect()
    }
}

/// A few tools for the tests of this crate.
#[cfg(test)]
pub(crate) fn sample() -> Tools {
    let tool = |name: &str, subject| ToolDefinition::new(name, RuntimeOwner::Local, subject);
    let mut bash = tool("bash", Subject::Command);
    bash.command_field = Some("command".to_owned());
    let mut read = tool("read", Subject::Read).with_path("path", None);
    read.aliases = vec!["read_file".to_owned()];
    [
        read,
        tool("edit", Subject::Write).with_path("path", None),
        bash,
        tool("process_kill", Subject::Session),
    ]
    .into_iter()
    .collect()
}
