//! Settings: several layers of files, variables and flags become one value per key, and every
//! value knows where it came from.
//!
//! Strongest first: managed, command line, environment, project local, project, user, built-in.
//! Scalars come from the strongest layer that has them, lists are the sum of all layers. Two
//! things bend that order. A managed bound (a limit, the mode) is a ceiling, so a tighter value
//! from elsewhere stands. And project files may only tighten until the user
//! [trusts](trust::TrustStore) their exact content; what they may never set is marked
//! `Guard::Never` beside the key in [`sections`].

mod chosen_mode;
mod file;
mod keys;
mod origin;
mod overrides;
mod providers;
mod rules;
mod section;
pub mod sections;
#[cfg(test)]
mod tests;
pub mod trust;
mod units;
mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_policy::gate::{Bases, Rule};

use crate::error::RuntimeError;
use crate::host::Host;
use crate::project::Project;

pub use chosen_mode::ChosenModes;
pub use file::{LayerValues, Source};
pub use origin::{Layer, Origin, Place, Setting};
pub use overrides::Overrides;
pub use section::{Note, Shown};
pub use units::{Size, Span};
pub use values::{ApplyPatch, KeyNames, SandboxMode, StatusItem, Theme};

pub use providers::ProviderSettings;
use section::Resolver;
use sections::{
    Context, Limits, Model, Permissions, Redaction, Retention, Sandbox, Tools, Ui, Verification,
};
use trust::{Trust, TrustStore};

/// All settings, after all layers.
pub struct Config {
    pub model: Model,
    pub providers: BTreeMap<String, ProviderSettings>,
    pub permissions: Permissions,
    pub sandbox: Sandbox,
    pub verification: Verification,
    pub limits: Limits,
    pub retention: Retention,
    pub redaction: Redaction,
    pub context: Context,
    pub tools: Tools,
    pub ui: Ui,
    /// The keys that were chosen for actions of the screen, by the action's name.
    pub keys: BTreeMap<String, Setting<KeyNames>>,
    /// The files that were looked for, strongest first.
    pub files: Vec<ConfigSource>,
    /// The permission rules in force, with where each stands.
    pub rules: Vec<Rule>,
    /// What project files that are not trusted tried to allow: shown, never used.
    pub ignored_rules: Vec<Rule>,
    /// What project files asked for and did not get.
    pub notes: Vec<Note>,
}

/// A settings file that was looked for.
#[derive(Clone, Debug)]
pub struct ConfigSource {
    pub layer: Layer,
    pub path: PathBuf,
    pub state: FileState,
    /// What was read, empty when absent.
    pub text: String,
}

/// What was found at a file's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    Absent,
    /// Read; nobody but the user or the administrator can have written it.
    Loaded,
    /// A project file, with what the user has said about it.
    Project(Trust),
}

/// Reads all layers.
pub fn load(host: &Host, project: &Project, overrides: &Overrides) -> Result<Config, RuntimeError> {
    let trust = TrustStore::open(&host.directories.state)?;
    let chosen = ChosenModes::open(&host.directories.state)?;
    // Before the user's file, which goes before it.
    let mut layers = vec![
        chosen.layer(project.root()),
        overrides.layer(),
        overrides::environment_layer(&host.environment)?,
    ];
    let mut files = Vec::new();
    for (layer, path) in places(host, project) {
        let text = file::read(&path)?;
        let state = match &text {
            None => FileState::Absent,
            Some(text) if layer.is_project() => FileState::Project(trust.of(&path, text)),
            Some(_) => FileState::Loaded,
        };
        if let Some(text) = text.clone() {
            let shared: Arc<Path> = path.as_path().into();
            layers.push(LayerValues {
                layer,
                values: file::parse(&path, &text)?,
                trusted: matches!(
                    state,
                    FileState::Loaded | FileState::Project(Trust::Trusted)
                ),
                source: Source::File { path: shared, text },
            });
        }
        let text = text.unwrap_or_default();
        files.push(ConfigSource {
            layer,
            path,
            state,
            text,
        });
    }
    layers.sort_by_key(|values| values.layer);
    let bases = Bases {
        project: project.root().to_path_buf(),
        home: host.home.clone(),
    };
    let mut config = Config::resolve(&layers, files);
    let read = rules::read(&config.files, &bases, &host.known_tools())?;
    config.rules = read.rules;
    config.ignored_rules = read.ignored;
    Ok(config)
}

/// Where the files are, strongest first.
pub fn places(host: &Host, project: &Project) -> [(Layer, PathBuf); 4] {
    [
        (Layer::Managed, host.directories.managed_config.clone()),
        (Layer::ProjectLocal, project.local_config()),
        (Layer::Project, project.config()),
        (Layer::User, host.directories.user_config.clone()),
    ]
}

impl Config {
    /// Joins layers that are sorted weakest first.
    fn resolve(layers: &[LayerValues], files: Vec<ConfigSource>) -> Self {
        let mut resolver = Resolver {
            layers,
            notes: Vec::new(),
        };
        let on = &mut resolver;
        let providers = providers::resolve(on);
        let keys = keys::resolve(on);
        Self {
            model: Model::resolve(on, "model", |file| Some(&file.model)),
            providers,
            permissions: Permissions::resolve(on, "permissions", |file| Some(&file.permissions)),
            sandbox: Sandbox::resolve(on, "sandbox", |file| Some(&file.sandbox)),
            verification: Verification::resolve(on, "verification", |file| {
                Some(&file.verification)
            }),
            limits: Limits::resolve(on, "limits", |file| Some(&file.limits)),
            retention: Retention::resolve(on, "retention", |file| Some(&file.retention)),
            redaction: Redaction::resolve(on, "redaction", |file| Some(&file.redaction)),
            context: Context::resolve(on, "context", |file| Some(&file.context)),
            tools: Tools::resolve(on, "tools", |file| Some(&file.tools)),
            ui: Ui::resolve(on, "ui", |file| Some(&file.ui)),
            keys,
            files,
            rules: Vec::new(),
            ignored_rules: Vec::new(),
            notes: resolver.notes,
        }
    }

    /// Every key that has a value, in the order of the sections.
    pub fn shown(&self) -> Vec<Shown> {
        let mut shown = Vec::new();
        self.model.shown("model", &mut shown);
        for (name, provider) in &self.providers {
            provider.shown(name, &mut shown);
        }
        self.permissions.shown("permissions", &mut shown);
        self.sandbox.shown("sandbox", &mut shown);
        self.verification.shown("verification", &mut shown);
        self.limits.shown("limits", &mut shown);
        self.retention.shown("retention", &mut shown);
        self.redaction.shown("redaction", &mut shown);
        self.context.shown("context", &mut shown);
        self.tools.shown("tools", &mut shown);
        self.ui.shown("ui", &mut shown);
        let keys = self.keys.iter();
        shown.extend(keys.map(|(action, keys)| Shown::new(format!("keys.{action}"), keys)));
        shown
    }
}
