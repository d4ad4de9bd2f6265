//! What tools are given to work with: the project, the versions of files they have seen, and while
//! executing the journal, the cancel handle and a way to report progress.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_policy::Workspace;
use agent_policy::shell::Reading;
use agent_protocol::id::{ArtifactId, IdMint, InvocationId, ProcessId, ToolCallId};
use agent_protocol::payload::ArtifactRef;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::tool::{Baseline, ProgressStatus, ToolProgress};
use agent_protocol::status::Mode;
use agent_protocol::{Payload, Phase, Refs, Scope, Timestamp};
use serde_json::Value;

use crate::baseline::Baselines;
use crate::cancel::Cancel;
use crate::journal::{ArtifactWriter, Journal, JournalError, Recorded};

/// What validation may look at. It changes nothing.
#[derive(Clone, Copy)]
pub struct RuntimeContext<'a> {
    pub workspace: &'a Workspace,
    pub mode: Mode,
    pub baselines: &'a Baselines,
    pub journal: &'a dyn Journal,
    /// True of a file outside the project that the mode or a rule opens for reading. The gate decides about the
    /// call all the same.
    pub reads_outside: &'a dyn Fn(&Path) -> bool,
    /// The reading of the call's script, which travels with the call.
    pub reading: &'a Reading,
}

impl RuntimeContext<'_> {
    /// The version of a file this session has seen last, by its path in `tool.result`.
    #[must_use]
    pub fn baseline(&self, path: &str) -> Option<Baseline> {
        self.baselines.latest(path)
    }
}

/// What putting a result into words may look at.
#[derive(Clone, Copy)]
pub struct NormalizeContext<'a> {
    /// What was asked for, checked.
    pub input: &'a Value,
    pub workspace: &'a Workspace,
    pub max_result_chars: u64,
}

/// What a running call has in hand. Once the call was given up (it ignored its cancellation), every
/// write fails, so that the log does not change behind its terminal event.
pub struct ExecutionContext {
    journal: Arc<dyn Journal>,
    scope: Scope,
    invocation_id: InvocationId,
    tool_call_id: ToolCallId,
    is_of_model: bool,
    workspace: Arc<Workspace>,
    baselines: Arc<Baselines>,
    cancel: Cancel,
    deadline: Option<Instant>,
    started: Instant,
    progress: Mutex<Option<Instant>>,
    given_up: Arc<AtomicBool>,
}

/// At most this often a call's progress is recorded.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// How far a running call is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgressUpdate {
    pub bytes: Option<u64>,
    pub lines: Option<u64>,
    pub percent: Option<f64>,
    /// The last line or so; escaped and bounded by the context.
    pub preview: Option<String>,
}

pub(crate) struct ExecutionParts {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) scope: Scope,
    pub(crate) invocation_id: InvocationId,
    pub(crate) tool_call_id: ToolCallId,
    pub(crate) is_of_model: bool,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) baselines: Arc<Baselines>,
    pub(crate) cancel: Cancel,
    pub(crate) deadline: Option<Instant>,
    pub(crate) given_up: Arc<AtomicBool>,
}

impl ExecutionContext {
    pub(crate) fn new(parts: ExecutionParts) -> Self {
        Self {
            journal: parts.journal,
            scope: parts.scope,
            invocation_id: parts.invocation_id,
            tool_call_id: parts.tool_call_id,
            is_of_model: parts.is_of_model,
            workspace: parts.workspace,
            baselines: parts.baselines,
            cancel: parts.cancel,
            deadline: parts.deadline,
            started: Instant::now(),
            progress: Mutex::new(None),
            given_up: parts.given_up,
        }
    }

    /// True if a model asked for the call, and not a person or a script.
    #[must_use]
    pub fn is_of_model(&self) -> bool {
        self.is_of_model
    }

    /// Raised when the call should stop: interrupted, or out of time.
    #[must_use]
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// When the call's time is over; the cancel handle is raised then with reason timeout.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// The project root, canonical.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.workspace.root
    }

    #[must_use]
    pub fn baselines(&self) -> &Baselines {
        &self.baselines
    }

    #[must_use]
    pub fn invocation_id(&self) -> &InvocationId {
        &self.invocation_id
    }

    #[must_use]
    pub fn tool_call_id(&self) -> &ToolCallId {
        &self.tool_call_id
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.journal.now()
    }

    #[must_use]
    pub fn ids(&self) -> &IdMint {
        self.journal.ids()
    }

    /// Records a fact of this call: `sandbox.applied`, `process.started` and the like.
    ///
    /// # Errors
    /// When the log cannot be written, or the call was given up.
    pub fn emit(&self, payload: impl Into<Payload>) -> Result<Recorded, JournalError> {
        self.emit_with(None, payload, Refs::default())
    }

    /// The same for a fact of a process of this call.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    pub fn emit_with(
        &self,
        process_id: Option<&ProcessId>,
        payload: impl Into<Payload>,
        refs: Refs,
    ) -> Result<Recorded, JournalError> {
        self.still_wanted()?;
        let mut scope = self.scope.clone();
        scope.process_id = process_id.cloned();
        self.journal.append(&scope, payload.into(), refs)
    }

    /// Returns once everything recorded so far would survive a power cut.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sync(&self) -> Result<(), JournalError> {
        self.journal.sync()
    }

    /// Reports progress; most updates are dropped, so it may be called for every chunk.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn progress(&self, update: ProgressUpdate) -> Result<(), JournalError> {
        let now = Instant::now();
        {
            let mut last = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
            let since = last.map_or(now - self.started, |last| now - last);
            if since < PROGRESS_INTERVAL {
                return Ok(());
            }
            *last = Some(now);
        }
        let preview = update
            .preview
            .map(|text| agent_text::visible_excerpt(&text, 200));
        self.emit(ToolProgress {
            phase: Phase::Execute,
            status: ProgressStatus::Running,
            elapsed_ms: u64::try_from((now - self.started).as_millis()).unwrap_or(u64::MAX),
            bytes: update.bytes,
            lines: update.lines,
            percent: update.percent,
            preview,
            ..ToolProgress::default()
        })?;
        Ok(())
    }

    /// Keeps evidence of this call.
    ///
    /// # Errors
    /// When it cannot be written, or the call was given up.
    pub fn put_artifact(
        &self,
        kind: ArtifactKind,
        media_type: &str,
        bytes: &[u8],
    ) -> Result<ArtifactRef, JournalError> {
        self.still_wanted()?;
        let producer = self.invocation_id.as_str();
        self.journal
            .put_artifact(&self.scope, kind, media_type, bytes, producer)
    }

    /// Keeps evidence of this call as it comes, with bounded memory.
    ///
    /// # Errors
    /// When it cannot be created, or the call was given up.
    pub fn artifact_writer(
        &self,
        kind: ArtifactKind,
        media_type: &str,
    ) -> Result<Box<dyn ArtifactWriter>, JournalError> {
        self.still_wanted()?;
        let producer = self.invocation_id.as_str();
        self.journal
            .artifact_writer(&self.scope, kind, media_type, producer)
    }

    /// Opens evidence of this session.
    ///
    /// # Errors
    /// When there is none with this id, or it cannot be opened.
    pub fn open_artifact(&self, id: &ArtifactId) -> Result<std::fs::File, JournalError> {
        self.journal.open_artifact(id)
    }

    /// A text to look for, with the values of the placeholders in it; see [`Journal::reveal`].
    #[must_use]
    pub fn reveal(&self, text: &str) -> Option<String> {
        let revealed = self.journal.reveal(text, b"", &mut std::iter::empty());
        revealed.ok().flatten()
    }

    /// See [`Journal::mask`].
    #[must_use]
    pub fn mask(&self, text: &str) -> String {
        self.journal.mask(text)
    }

    /// For work that outlives the call, such as a background process that reports its end.
    #[must_use]
    pub fn journal(&self) -> Arc<dyn Journal> {
        Arc::clone(&self.journal)
    }

    /// The ids events of this call carry.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    fn still_wanted(&self) -> Result<(), JournalError> {
        if self.given_up.load(Ordering::Acquire) {
            return Err(JournalError::new(
                "record a fact of a call that was given up",
                "the call did not stop when it was cancelled",
            ));
        }
        Ok(())
    }
}
