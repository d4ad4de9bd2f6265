//! `agent config`: what is set, where it came from, and which project files are trusted.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::config::trust::{self, Trust, TrustStore};
use crate::config::{self, ConfigSource, FileState, Layer, Origin, Place, SettingArgs, Shown};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Tone, visible};

/// Show settings and where they come from
///
/// Highest precedence first: managed, command line, environment, project local, project, user,
/// built-in. Project files can only restrict until you trust them.
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    Show(ShowArgs),
    Path(PathArgs),
    Trust(TrustArgs),
    Key(super::key::KeyArgs),
}

/// Print every effective setting, as TOML
#[derive(Args, Debug)]
struct ShowArgs {
    /// Show where each value comes from
    #[arg(long)]
    origin: bool,
    /// Print one JSON object (docs/schemas/config-show.schema.json)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingArgs,
}

/// Print the paths of the settings files, highest precedence first
#[derive(Args, Debug)]
struct PathArgs {
    /// Print one JSON object (docs/schemas/config-path.schema.json)
    #[arg(long)]
    json: bool,
}

/// Trust the current content of this project's settings files
///
/// Until then they can only restrict. Trust ends when a file changes; a diff shows what changed
/// since.
#[derive(Args, Debug)]
struct TrustArgs {
    /// Show what would be trusted without changing anything
    #[arg(long, conflicts_with = "revoke")]
    show: bool,
    /// Remove the trust again
    #[arg(long)]
    revoke: bool,
    /// Print one JSON object (docs/schemas/config-trust.schema.json)
    #[arg(long)]
    json: bool,
}

/// What `agent config show --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConfigShow {
    /// The project's root directory.
    project: PathBuf,
    files: Vec<ConfigFileReport>,
    /// Every key that has a value. A list has one entry per element.
    settings: Vec<SettingReport>,
    /// What project files asked for and did not get.
    ignored: Vec<IgnoredReport>,
}

/// What `agent config path --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConfigPath {
    /// The project's root directory.
    project: PathBuf,
    /// Chain anchors, trust decisions, this installation's id.
    state: PathBuf,
    /// Strongest first.
    files: Vec<ConfigFileReport>,
}

/// What `agent config trust --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConfigTrust {
    /// The files whose trust changed, or with `--show` would change.
    files: Vec<PathBuf>,
    /// True if they are trusted now.
    trusted: bool,
    /// What is new in them, against what was trusted before.
    diffs: Vec<TrustDiff>,
    /// The settings that came into force by this.
    settings: Vec<SettingReport>,
}

/// What is new in a file of the project. Its text was not written by the user.
#[derive(Debug, Serialize, JsonSchema)]
struct TrustDiff {
    path: PathBuf,
    /// Whether earlier content was trusted; else all of it is new.
    is_change: bool,
    /// Unified.
    diff: String,
}

/// A settings file that was looked for.
#[derive(Debug, Serialize, JsonSchema)]
struct ConfigFileReport {
    layer: Layer,
    path: PathBuf,
    state: FileStateWord,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FileStateWord {
    Absent,
    Loaded,
    Trusted,
    /// Trusted once, and changed since: it may only tighten.
    ChangedSinceTrusted,
    /// It may only tighten.
    Untrusted,
}

/// One value and its origin.
#[derive(Debug, Serialize, JsonSchema)]
struct SettingReport {
    /// Dotted, as in TOML.
    key: String,
    value: serde_json::Value,
    #[serde(flatten)]
    origin: OriginReport,
}

/// Where a value was written.
#[derive(Debug, Serialize, JsonSchema)]
struct OriginReport {
    layer: Layer,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    /// Counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    /// Counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    /// The flag or variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'static str>,
}

/// A value that is not in force.
#[derive(Debug, Serialize, JsonSchema)]
struct IgnoredReport {
    key: String,
    #[serde(flatten)]
    origin: OriginReport,
    /// True if `agent config trust` would bring it into force.
    until_trusted: bool,
}

pub(crate) fn run(arguments: &ConfigArgs, app: &App) -> Result<Exit, Failure> {
    match &arguments.command {
        ConfigCommand::Show(arguments) => show(arguments, app),
        ConfigCommand::Path(arguments) => path(arguments, app),
        ConfigCommand::Trust(arguments) => trust_files(arguments, app),
        ConfigCommand::Key(arguments) => super::key::run(arguments, app),
    }
}

fn show(arguments: &ShowArgs, app: &App) -> Result<Exit, Failure> {
    let config = config::load(&app.host, &app.project, &arguments.settings)?;
    let doing = "cannot print the settings";
    if arguments.json {
        let report = ConfigShow {
            project: app.project.root().to_path_buf(),
            files: config.files.iter().map(ConfigFileReport::of).collect(),
            settings: config.shown().into_iter().map(SettingReport::of).collect(),
            ignored: config.notes.iter().map(IgnoredReport::of).collect(),
        };
        app.output.json(&report).context(doing)?;
    } else {
        let text = as_toml(&config.shown(), arguments.origin, app);
        app.output.print(&text).context(doing)?;
    }
    app.note_ignored_settings(&config);
    Ok(Exit::Done)
}

fn path(arguments: &PathArgs, app: &App) -> Result<Exit, Failure> {
    let config = config::load(&app.host, &app.project, &SettingArgs::default())?;
    let doing = "cannot print the paths";
    let state = app.host.directories.state.clone();
    if arguments.json {
        let report = ConfigPath {
            project: app.project.root().to_path_buf(),
            state,
            files: config.files.iter().map(ConfigFileReport::of).collect(),
        };
        app.output.json(&report).context(doing)?;
        return Ok(Exit::Done);
    }
    let mut text = String::new();
    for file in &config.files {
        let (word, tone) = match FileStateWord::of(file.state) {
            FileStateWord::Absent => ("absent", Tone::Faint),
            FileStateWord::Loaded => ("loaded", Tone::Good),
            FileStateWord::Trusted => ("trusted", Tone::Good),
            FileStateWord::ChangedSinceTrusted => ("changed since trusted", Tone::Warn),
            FileStateWord::Untrusted => ("untrusted", Tone::Warn),
        };
        text.push_str(&format!(
            "{:<14} {} ({})\n",
            file.layer.as_str(),
            visible(&file.path.display().to_string()),
            app.output.paint(tone, word)
        ));
    }
    text.push_str(&format!(
        "{:<14} {}",
        "state",
        visible(&state.display().to_string())
    ));
    app.output.print(&text).context(doing)?;
    Ok(Exit::Done)
}

fn trust_files(arguments: &TrustArgs, app: &App) -> Result<Exit, Failure> {
    let before = config::load(&app.host, &app.project, &SettingArgs::default())?;
    let mut store = TrustStore::open(&app.host.directories.state)?;
    let mut changed = Vec::new();
    let mut proposals = Vec::new();
    if arguments.revoke {
        for file in &before.files {
            if matches!(file.state, FileState::Project(_)) && store.revoke(&file.path)? {
                changed.push(file.path.clone());
            }
        }
    } else {
        proposals = trust::proposals(&before.files, &store);
        for proposal in &proposals {
            if !arguments.show {
                // What is trusted is what was read and understood above, not what the file holds now.
                store.trust(&proposal.path, &proposal.content)?;
            }
            changed.push(proposal.path.clone());
        }
    }
    let now = config::load(&app.host, &app.project, &SettingArgs::default())?;
    let gained: Vec<SettingReport> = now
        .shown()
        .into_iter()
        .filter(|setting| {
            before
                .notes
                .iter()
                .any(|note| note.origin == setting.origin)
        })
        .map(SettingReport::of)
        .collect();
    let doing = "cannot print what was trusted";
    if arguments.json {
        let report = ConfigTrust {
            files: changed,
            trusted: !arguments.revoke && !arguments.show,
            diffs: proposals.iter().map(TrustDiff::of).collect(),
            settings: gained,
        };
        app.output.json(&report).context(doing)?;
        return Ok(Exit::Done);
    }
    let verb = if arguments.revoke {
        "no longer trusted"
    } else if arguments.show {
        "not trusted"
    } else {
        "trusted"
    };
    let mut text = String::new();
    for proposal in &proposals {
        text.push_str(&shown_diff(proposal, app));
    }
    for path in &changed {
        text.push_str(&format!("{verb}: {}\n", visible(&app.short(path))));
    }
    for setting in &gained {
        let line = format!("  now in force: {} = {}\n", setting.key, setting.value);
        text.push_str(&line);
    }
    if changed.is_empty() {
        text.push_str("nothing to change: this project has no settings file that needs trust");
    }
    app.output.print(&text).context(doing)?;
    Ok(Exit::Done)
}

/// What is new in a file, coloured as diffs are.
fn shown_diff(proposal: &trust::Proposal, app: &App) -> String {
    let path = visible(&app.short(&proposal.path));
    let heading = if proposal.is_change {
        format!("`{path}` has changed since it was trusted:")
    } else {
        format!("`{path}` has not been trusted before; all of it is new:")
    };
    let mut text = format!("{}\n", app.output.paint(Tone::Heading, &heading));
    for line in proposal.diff.lines().skip(2) {
        let tone = match line.bytes().next() {
            Some(b'+') => Tone::Good,
            Some(b'-') => Tone::Bad,
            _ => Tone::Faint,
        };
        text.push_str(&app.output.paint(tone, &visible(line)));
        text.push('\n');
    }
    text.push('\n');
    text
}

impl TrustDiff {
    fn of(proposal: &trust::Proposal) -> Self {
        Self {
            path: proposal.path.clone(),
            is_change: proposal.is_change,
            diff: proposal.diff.clone(),
        }
    }
}

/// The settings as a TOML file, with the origin of each as a comment.
fn as_toml(settings: &[Shown], origins: bool, app: &App) -> String {
    let mut lines: Vec<(String, Option<&Origin>)> = Vec::new();
    let mut section = "";
    for group in settings.chunk_by(|a, b| a.key == b.key) {
        let (prefix, name) = group[0].key.rsplit_once('.').unwrap_or(("", &group[0].key));
        if prefix != section {
            if !section.is_empty() {
                lines.push((String::new(), None));
            }
            lines.push((format!("[{prefix}]"), None));
            section = prefix;
        }
        if group[0].of_list {
            lines.push((format!("{name} = ["), None));
            for entry in group {
                lines.push((
                    format!("  {},", toml_value(&entry.value)),
                    Some(&entry.origin),
                ));
            }
            lines.push(("]".into(), None));
        } else {
            let line = format!("{name} = {}", toml_value(&group[0].value));
            lines.push((line, Some(&group[0].origin)));
        }
    }
    let mut text = String::new();
    for (line, origin) in lines {
        let line = visible(&line);
        match origin {
            Some(origin) if origins => {
                let comment = app
                    .output
                    .paint(Tone::Faint, &format!("# {}", said(origin, app)));
                text.push_str(&format!("{line:<36}  {comment}\n"));
            }
            None if line.starts_with('[') => {
                text.push_str(&app.output.paint(Tone::Heading, &line));
                text.push('\n');
            }
            _ => {
                text.push_str(&line);
                text.push('\n');
            }
        }
    }
    text
}

fn toml_value(value: &serde_json::Value) -> String {
    toml::Value::try_from(value).map_or_else(|_| value.to_string(), |value| value.to_string())
}

fn said(origin: &Origin, app: &App) -> String {
    match &origin.place {
        Place::Code => origin.layer.as_str().to_owned(),
        Place::Name(name) => (*name).to_owned(),
        Place::File { path, line, .. } => {
            let path = visible(&app.short(path));
            format!("{}, {path}:{line}", origin.layer.as_str())
        }
    }
}

impl ConfigFileReport {
    fn of(file: &ConfigSource) -> Self {
        Self {
            layer: file.layer,
            path: file.path.clone(),
            state: FileStateWord::of(file.state),
        }
    }
}

impl FileStateWord {
    fn of(state: FileState) -> Self {
        match state {
            FileState::Absent => Self::Absent,
            FileState::Loaded => Self::Loaded,
            FileState::Project(Trust::Trusted) => Self::Trusted,
            FileState::Project(Trust::Changed) => Self::ChangedSinceTrusted,
            FileState::Project(Trust::Unknown) => Self::Untrusted,
        }
    }
}

impl SettingReport {
    fn of(shown: Shown) -> Self {
        Self {
            origin: OriginReport::of(&shown.origin),
            key: shown.key,
            value: shown.value,
        }
    }
}

impl OriginReport {
    fn of(origin: &Origin) -> Self {
        let (file, line, column, name) = match &origin.place {
            Place::Code => (None, None, None, None),
            Place::Name(name) => (None, None, None, Some(*name)),
            Place::File { path, line, column } => {
                (Some(path.to_path_buf()), Some(*line), Some(*column), None)
            }
        };
        Self {
            layer: origin.layer,
            file,
            line,
            column,
            name,
        }
    }
}

impl IgnoredReport {
    fn of(note: &config::Note) -> Self {
        Self {
            key: note.key.clone(),
            origin: OriginReport::of(&note.origin),
            until_trusted: note.until_trusted,
        }
    }
}
