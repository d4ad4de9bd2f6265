//! What the screen asks of the machine: artifacts, past sessions, documents.

use std::path::PathBuf;

use agent_session::{ArtifactStore, SessionStore};
use agent_tui::theme::{TerminalHints, detect};
use agent_tui::{Document, DocumentFormat, HostMessage, HostRequest, SessionLine, Settings};

use crate::app::App;
use crate::config::{Config, Theme};
use crate::private;
use crate::workbench::Workbench;

/// The most bytes of an artifact that are shown.
const ARTIFACT_LIMIT: u64 = 8 << 20;
/// Prompts that are remembered.
const HISTORY: usize = 1_000;

/// Serves the screen.
pub(super) struct Host {
    artifacts: ArtifactStore,
    store: SessionStore,
    history: PathBuf,
    rules: String,
    sandbox: String,
    model: Vec<String>,
}

impl Host {
    pub(super) fn new(app: &App, config: &Config, bench: &Workbench) -> Self {
        Self {
            artifacts: bench.writer.artifacts().clone(),
            store: SessionStore::of_project(app.project.root()),
            history: history_file(app),
            rules: bench.rules.clone(),
            sandbox: bench.sandbox.clone(),
            model: config
                .model
                .default
                .iter()
                .map(|set| set.value.clone())
                .collect(),
        }
    }

    /// The answer, where one is expected.
    pub(super) fn answer(&self, request: HostRequest) -> Option<HostMessage> {
        Some(match request {
            HostRequest::Artifact(id) => {
                let content = self
                    .artifacts
                    .read(&id, ARTIFACT_LIMIT)
                    .map_err(|error| error.to_string());
                HostMessage::Artifact { id, content }
            }
            HostRequest::Sessions => HostMessage::Sessions(self.sessions()),
            HostRequest::Models => HostMessage::Models(self.model.clone()),
            HostRequest::Permissions => document("Permission rules in force", &self.rules),
            HostRequest::Sandbox => document("Sandbox", &self.sandbox),
            HostRequest::Remember { prompt } => {
                self.remember(&prompt);
                return None;
            }
            other => HostMessage::Problem(format!(
                "{} cannot be done from the screen yet",
                name(&other)
            )),
        })
    }

    fn sessions(&self) -> Vec<SessionLine> {
        let sessions = self.store.list().unwrap_or_default();
        let line = |session: &agent_session::SessionDirectory| SessionLine {
            session_id: session.id().clone(),
            title: session.id().to_string(),
            detail: session.modified().to_string(),
        };
        sessions.iter().rev().map(line).collect()
    }

    /// Keeps the prompt for Ctrl-R; a history that cannot be kept is no reason to stop.
    fn remember(&self, prompt: &str) {
        let mut all = read_history(&self.history);
        all.push(prompt.to_owned());
        let from = all.len().saturating_sub(HISTORY);
        if let Ok(text) = serde_json::to_vec(&all[from..]) {
            let _ = private::replace(&self.history, &text);
        }
    }
}

fn name(request: &HostRequest) -> &'static str {
    match request {
        HostRequest::Files | HostRequest::Preview { .. } => "picking files",
        HostRequest::Shell { .. } => "running your own command",
        HostRequest::Diff => "showing the whole diff",
        HostRequest::Undo { .. } => "undo",
        HostRequest::Export { .. } => "export",
        _ => "this",
    }
}

fn document(title: &str, text: &str) -> HostMessage {
    HostMessage::Document(Document {
        title: title.to_owned(),
        text: text.to_owned(),
        format: DocumentFormat::Plain,
    })
}

fn history_file(app: &App) -> PathBuf {
    app.host.directories.state.join("prompts.json")
}

fn read_history(file: &std::path::Path) -> Vec<String> {
    let text = std::fs::read(file).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// What the screen has to know about terminal, project and settings.
pub(super) fn settings(app: &App, config: &Config, model: &str) -> Settings {
    let variable = |name: &str| {
        app.host
            .environment
            .get(name)
            .and_then(std::ffi::OsStr::to_str)
    };
    let (colors, background) = detect(TerminalHints {
        no_color: variable("NO_COLOR").is_some(),
        term: variable("TERM"),
        colorterm: variable("COLORTERM"),
        colorfgbg: variable("COLORFGBG"),
    });
    let background = match config.ui.theme.value {
        Theme::Auto => background,
        Theme::Light => agent_tui::Background::Light,
        Theme::Dark => agent_tui::Background::Dark,
    };
    Settings {
        colors,
        background,
        plain: config.ui.plain.value,
        full_screen: config.ui.full_screen.value,
        vim_keys: config.ui.vim_keys.value,
        mode: config.permissions.mode.value,
        model: model.to_owned(),
        cwd: app.short_or_root(app.project.root()),
        branch: crate::workbench::branch(app.project.root()),
        history: read_history(&history_file(app)),
        notify: config.ui.notify.value,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Settings::default()
    }
}
