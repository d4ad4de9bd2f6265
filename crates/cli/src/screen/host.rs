//! What the screen asks of the machine: artifacts, files, past sessions, documents.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use agent_engine::SessionAuthority;
use agent_log::{ArtifactStore, SessionDirectory, SessionStore};
use agent_tool_runtime::{Authority as _, Registry, VisibilityContext};
use agent_tui::state::ToolLine;
use agent_tui::{Document, DocumentFormat, ExportForm, HostMessage, HostRequest, SessionLine};

use crate::app::App;
use crate::commands;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::local_second;
use agent_runtime::models;
use agent_runtime::private;
use agent_runtime::session::Workbench;
use agent_runtime::undo::{Chosen, Extent, SessionDiff};

/// The most bytes of an artifact that are shown.
const ARTIFACT_LIMIT: u64 = 8 << 20;
/// Prompts that are remembered.
const HISTORY: usize = 1_000;
/// Files one can pick from; a project with more has to be named more exactly.
const MOST_FILES: usize = 50_000;
/// The most bytes of a file that are shown before it is picked.
const PREVIEW_BYTES: u64 = 4_096;

/// Serves the screen.
pub(super) struct Host {
    app: Arc<App>,
    config: Arc<Config>,
    artifacts: ArtifactStore,
    session: String,
    rules: Mutex<String>,
    registry: Arc<Registry>,
    authority: Arc<SessionAuthority>,
}

impl Host {
    pub(super) fn new(app: &Arc<App>, config: &Arc<Config>, bench: &Workbench) -> Self {
        Self {
            app: Arc::clone(app),
            config: Arc::clone(config),
            artifacts: bench.writer.artifacts().clone(),
            session: bench.writer.session_id().to_string(),
            rules: Mutex::new(bench.rules.clone()),
            registry: Arc::clone(&bench.registry),
            authority: Arc::clone(&bench.authority),
        }
    }

    /// A rule was saved in this session.
    pub(super) fn rule_added(&self, rule: &str) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.push('\n');
        rules.push_str(rule);
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
            HostRequest::Files => HostMessage::Files(files(self.app.project.root())),
            HostRequest::Preview { path } => {
                let text = preview(&self.app.project.root().join(&path));
                HostMessage::Preview { path, text }
            }
            HostRequest::Sessions => HostMessage::Sessions(self.sessions()),
            HostRequest::Models => HostMessage::Models(models::known(&self.app, &self.config)),
            HostRequest::Permissions => {
                let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
                document("permission rules in force", &rules_text(&rules))
            }
            HostRequest::Sandbox => {
                let text = commands::sandbox::findings(&self.app, &self.config);
                document("sandbox", &text)
            }
            HostRequest::Tools => HostMessage::Tools(self.tools()),
            HostRequest::Export { form } => told(self.export(form)),
            HostRequest::Remember { prompt } => {
                self.remember(&prompt);
                return None;
            }
            HostRequest::Diff => match self.diff() {
                Ok(answer) => answer,
                Err(failure) => told(Err(failure)),
            },
            // These belong to the start, or to the engine's work.
            HostRequest::Shell { .. }
            | HostRequest::Undo { .. }
            | HostRequest::TrustProject
            | HostRequest::IgnoreProject => return None,
        })
    }

    fn sessions(&self) -> Vec<SessionLine> {
        let store = SessionStore::of_project(self.app.project.root());
        let mut sessions = store.list().unwrap_or_default();
        sessions.sort_by_key(|session| std::cmp::Reverse(session.modified()));
        sessions
            .iter()
            .filter(|session| session.id().as_str() != self.session)
            .map(session_line)
            .collect()
    }

    /// The tools as the session stands now: its mode and its rules, not those of its last turn.
    fn tools(&self) -> Vec<ToolLine> {
        let context = VisibilityContext {
            mode: self.authority.mode(),
            ..VisibilityContext::default()
        };
        let entries = self.registry.catalogue(&context, &*self.authority);
        entries.iter().map(ToolLine::of).collect()
    }

    /// All changes of this session so far, masked.
    fn diff(&self) -> Result<HostMessage, Failure> {
        let session = self.app.session(&self.session)?;
        let all = Extent::Between(None, None);
        let chosen = Chosen::new(&self.app, &[])?;
        let diff = SessionDiff::make(self.app.project.root(), &session, &all, &chosen)?;
        if diff.files.is_empty() {
            return Ok(HostMessage::Notice(
                "this session has not changed any files".to_owned(),
            ));
        }
        let redactor = self.app.session_env_with(&self.config, "agent")?.redactor;
        Ok(HostMessage::Document(Document {
            title: "all changes of this session".to_owned(),
            text: redactor.mask(&diff.text()).into_owned(),
            format: DocumentFormat::Diff,
        }))
    }

    fn export(&self, form: ExportForm) -> Result<String, Failure> {
        let session = self.app.session(&self.session)?;
        let exported = commands::export::beside(&self.app, &session, form)?;
        let file = self.app.short(&exported.file);
        let mut text = format!("written to {file}");
        for note in exported.notes {
            text.push_str(&format!("; {note}"));
        }
        Ok(text)
    }

    /// Keeps the prompt for Ctrl-R; a history that cannot be kept is no reason to stop.
    fn remember(&self, prompt: &str) {
        let file = history_file(&self.app);
        let mut all = read_history(&file);
        if all.last().is_some_and(|last| last == prompt) {
            return;
        }
        all.push(prompt.to_owned());
        let from = all.len().saturating_sub(HISTORY);
        if let Ok(text) = serde_json::to_vec(&all[from..]) {
            let _ = private::replace(&file, &text);
        }
    }
}

fn told(done: Result<String, Failure>) -> HostMessage {
    match done {
        Ok(text) => HostMessage::Notice(text),
        Err(failure) => HostMessage::Problem(format!("{:#}", failure.error)),
    }
}

fn session_line(session: &SessionDirectory) -> SessionLine {
    let preview = session.preview().unwrap_or_default();
    let events = preview.last_sequence.map_or(0, |last| last + 1);
    let title = preview.title.or(preview.first_input);
    SessionLine {
        session_id: session.id().clone(),
        title: title.unwrap_or_else(|| "no requests yet".to_owned()),
        detail: format!(
            "{} · {events} events · {}",
            local_second(session.modified()),
            session.id()
        ),
    }
}

fn rules_text(rules: &str) -> String {
    if rules.trim().is_empty() {
        "No rules yet; only the mode decides. Answer a question with r to save one.".to_owned()
    } else {
        rules.to_owned()
    }
}

/// The project's files, without what git ignores, in order.
fn files(root: &Path) -> Vec<String> {
    let walk = ignore::WalkBuilder::new(root)
        .hidden(false)
        .filter_entry(|entry| {
            let name = entry.file_name();
            name != ".git" && name != ".agent"
        })
        .build();
    let mut files: Vec<String> = walk
        .flatten()
        .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()))
        .filter_map(|entry| {
            let inside = entry.path().strip_prefix(root).ok()?;
            inside.to_str().map(str::to_owned)
        })
        .take(MOST_FILES)
        .collect();
    files.sort_unstable();
    files
}

fn preview(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(PREVIEW_BYTES).read_to_end(&mut bytes));
    match read {
        Err(error) => format!("cannot be read: {error}"),
        Ok(_) if bytes.contains(&0) => {
            let length = fs::metadata(path).map_or(0, |facts| facts.len());
            format!("not text, {length} bytes")
        }
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
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

/// Earlier prompts, oldest first.
pub(super) fn history(app: &App) -> Vec<String> {
    read_history(&history_file(app))
}

fn read_history(file: &Path) -> Vec<String> {
    let text = fs::read(file).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}
