//! What the screen asks of the machine: artifacts, files, past sessions, documents.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_log::{ArtifactStore, SessionDirectory};
use agent_tui::state::ToolLine;
use agent_tui::{
    Document, DocumentFormat, ExportForm, HostMessage, HostRequest, Prepared, SessionLine,
};

use super::{processes, rewind, sender};
use crate::app::App;
use crate::commands;
use crate::commands::sessions::list::turn_in_words;
use crate::config::Config;
use crate::failure::{Failure, OrFail as _};
use agent_protocol::command::{ControlCommand, SubmitTurn, ToolInventoryQuery};
use agent_protocol::reply::Reply;
use agent_runtime::Session;
use agent_runtime::changes::{Changes, Subject};
use agent_runtime::models;
use agent_runtime::private;
use agent_runtime::prompts::{self, ReviewForm};
use agent_runtime::undo::{Chosen, Extent, SessionDiff};
use agent_text::words::ago;

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
    session: Arc<Session>,
}

impl Host {
    pub(super) fn new(
        app: &Arc<App>,
        config: &Arc<Config>,
        session: &Arc<Session>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            app: Arc::clone(app),
            config: Arc::clone(config),
            artifacts: session.directory().artifacts().or_fail()?,
            session: Arc::clone(session),
        })
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
            HostRequest::Files => HostMessage::Files(self.files()),
            HostRequest::Preview { path } => {
                let text = preview(&self.app.project.root().join(&path));
                HostMessage::Preview { path, text }
            }
            HostRequest::Sessions => HostMessage::Sessions(self.sessions()),
            HostRequest::Models => HostMessage::Models(models::known(&self.app, &self.config)),
            HostRequest::Permissions => document(
                "permission rules in force",
                &rules_text(&self.session.rules()),
            ),
            HostRequest::Sandbox => {
                let text = commands::sandbox::findings(&self.app, &self.config);
                document("sandbox", &text)
            }
            HostRequest::Tools => self.tools(),
            HostRequest::Processes(request) => processes::answer(&self.session, request),
            HostRequest::Rewind { at, text } => rewind::plan(&self.app, &self.session, at, text)
                .unwrap_or_else(|failure| told(Err(failure))),
            HostRequest::Export { form } => told(self.export(form)),
            HostRequest::Prepared(prepared) => return self.submit(&prepared),
            HostRequest::Remember { prompt } => {
                self.remember(&prompt);
                return None;
            }
            HostRequest::Diff => match self.diff() {
                Ok(answer) => answer,
                Err(failure) => told(Err(failure)),
            },
            // These belong to the start.
            HostRequest::TrustProject
            | HostRequest::IgnoreProject
            | HostRequest::WorkIn(_)
            | HostRequest::KeepKey(_) => return None,
        })
    }

    fn sessions(&self) -> Vec<SessionLine> {
        let mut lines = session_lines(&self.app);
        lines.retain(|line| &line.session_id != self.session.id());
        lines
    }

    /// The files of the project, and after them those of added directories by their whole paths.
    fn files(&self) -> Vec<String> {
        let mut all = files(self.app.project.root());
        for directory in self.session.directories() {
            let there = files(&directory).into_iter();
            all.extend(there.map(|file| directory.join(file).display().to_string()));
        }
        all.truncate(MOST_FILES);
        all
    }

    /// Submits a prepared prompt, as if it had been typed.
    fn submit(&self, prepared: &Prepared) -> Option<HostMessage> {
        let review = |subject: Subject| -> Result<String, Failure> {
            let changes = Changes::read(&self.app.runtime, subject)?;
            if changes.files.is_empty() {
                return Err(Failure::usage("no changes to review"));
            }
            Ok(prompts::review(&changes, ReviewForm::Text))
        };
        let prompt = match prepared {
            Prepared::Init => Ok(prompts::INIT.to_owned()),
            Prepared::ReviewUncommitted => review(Subject::Uncommitted),
            Prepared::ReviewSince(branch) => review(Subject::Since(branch.clone())),
            Prepared::ReviewCommit(name) => review(Subject::Commit(name.clone())),
        };
        let text = match prompt {
            Ok(text) => text,
            Err(failure) => return Some(told(Err(failure))),
        };
        let submit = SubmitTurn {
            text,
            ..SubmitTurn::default()
        };
        let taken = self
            .session
            .handle(ControlCommand::SubmitTurn(submit), &sender::peer());
        taken.err().map(|error| sender::problem(&error))
    }

    /// The tools as the session stands now: its mode and its rules, not those of its last turn.
    fn tools(&self) -> HostMessage {
        let query = ToolInventoryQuery {
            include_hidden: true,
            ..ToolInventoryQuery::default()
        };
        let asked = ControlCommand::GetToolInventory(query);
        match self.session.handle(asked, &sender::peer()) {
            Ok(Reply::Tools(entries)) => {
                HostMessage::Tools(entries.iter().map(ToolLine::of).collect())
            }
            Ok(_) => HostMessage::Tools(Vec::new()),
            Err(error) => sender::problem(&error),
        }
    }

    /// All changes of this session so far, masked.
    fn diff(&self) -> Result<HostMessage, Failure> {
        let session = self.session.directory();
        let all = Extent::Between(None, None);
        let chosen = Chosen::new(&self.app, &[])?;
        let diff = SessionDiff::make(self.app.project.root(), session, &all, &chosen)?;
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
        let exported = commands::export::beside(&self.app, self.session.directory(), form)?;
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

/// The past sessions of the project with something to continue, each with the number it has in
/// `agent sessions`.
pub(super) fn session_lines(app: &App) -> Vec<SessionLine> {
    let sessions = app.sessions().list().unwrap_or_default();
    let lines = sessions.iter().zip(1..);
    lines
        .filter_map(|(session, number)| session_line(app, session, number))
        .collect()
}

fn session_line(app: &App, session: &SessionDirectory, number: usize) -> Option<SessionLine> {
    let preview = session.preview().unwrap_or_default();
    if !preview.is_conversation() {
        return None;
    }
    let events = preview.last_sequence.map_or(0, |last| last + 1);
    let title = preview.name();
    let title = title.unwrap_or_else(|| "no requests yet".to_owned());
    let mut detail = ago(app.millis_since(session.modified()));
    if let Some(turn) = preview.last_turn {
        detail.push_str(&format!(" · {}", turn_in_words(turn)));
    }
    if session.holder().is_some() {
        detail.push_str(" · in use");
    }
    detail.push_str(&format!(" · {events} events · {}", session.id()));
    Some(SessionLine {
        session_id: session.id().clone(),
        title: format!("{number:>2}  {title}"),
        detail,
    })
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
