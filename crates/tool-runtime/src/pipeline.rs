//! The pipeline: what is shared by all calls of a session. A call begins in `call`, is validated and
//! decided in `admission`, ordered and executed in [`crate::scheduler`], and ends in `conclusion`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_protocol::id::TurnId;
use agent_protocol::payload::tool::{CatalogEntry, ToolCatalogResolved};
use agent_protocol::{Payload, Refs, Scope};

use crate::authority::Authority;
use crate::baseline::Baselines;
use crate::cancel::Cancel;
use crate::intent::ToolIntent;
use crate::journal::{Journal, JournalError, Recorded};
use crate::observation::Outcome;
use crate::open_call::OpenCall;
use crate::registry::{CatalogueRecord, Registry};
use crate::scheduler::{Batch, BatchReport, Workers};
use crate::tool::{VisibilityContext, WorkPhase};
use agent_policy::Workspace;

/// How calls are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many calls run side by side at most.
    pub parallel: usize,
    /// One call after the other, whatever their metadata says.
    pub serial: bool,
    /// How long a call that was cancelled may take to stop before it is given up.
    pub grace: Duration,
    /// Tools this session does without, by name.
    pub disabled: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            parallel: 8,
            serial: false,
            grace: Duration::from_secs(10),
            disabled: Vec::new(),
        }
    }
}

/// What a pipeline is made of.
pub struct PipelineParts {
    pub registry: Arc<Registry>,
    pub journal: Arc<dyn Journal>,
    pub authority: Arc<dyn Authority>,
    pub workspace: Workspace,
    /// Rebuilt from the log when a session goes on.
    pub baselines: Arc<Baselines>,
    pub settings: Settings,
}

/// The tools of a session.
struct Tools {
    now: Arc<Registry>,
    /// The tools from the next turn on, where they change.
    next: Option<Registry>,
    /// The turn that `now` belongs to.
    turn: Option<TurnId>,
}

/// Takes intents, gives outcomes, and leaves a fact for every step between.
#[derive(Clone)]
pub struct Pipeline {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    registry: Mutex<Tools>,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) authority: Arc<dyn Authority>,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) baselines: Arc<Baselines>,
    pub(crate) settings: Settings,
    pub(crate) workers: Workers,
    phase: Mutex<WorkPhase>,
    takes_patches: AtomicBool,
    catalogue: CatalogueRecord,
    /// Where relative paths begin, seen from the project.
    working_directory: Mutex<String>,
}

impl Pipeline {
    #[must_use]
    pub fn new(parts: PipelineParts) -> Self {
        let shared = Shared {
            registry: Mutex::new(Tools {
                now: parts.registry,
                next: None,
                turn: None,
            }),
            journal: parts.journal,
            authority: parts.authority,
            workspace: Arc::new(parts.workspace),
            baselines: parts.baselines,
            settings: parts.settings,
            workers: Workers::default(),
            phase: Mutex::default(),
            takes_patches: AtomicBool::default(),
            catalogue: CatalogueRecord::default(),
            working_directory: Mutex::new(".".to_owned()),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The tools as they are now.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.shared.registry()
    }

    /// Adds, takes away or changes tools, or says why one cannot be used. It holds from the next turn on: the model
    /// was shown the tools of this one. `tool.catalog.resolved` then says what changed.
    ///
    /// # Errors
    /// What `change` says; the tools stay as they are then.
    pub fn change_tools<E>(
        &self,
        change: impl FnOnce(&mut Registry) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut tools = self.shared.tools();
        let mut next = tools
            .next
            .clone()
            .unwrap_or_else(|| Registry::clone(&tools.now));
        change(&mut next)?;
        tools.next = Some(next);
        Ok(())
    }

    /// The place calls work in.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.shared.workspace
    }

    #[must_use]
    pub fn baselines(&self) -> &Arc<Baselines> {
        &self.shared.baselines
    }

    /// Takes a fact of an earlier run into account. Feed it the log in order before going on with a
    /// session.
    pub fn apply(&self, payload: &Payload) {
        self.shared.baselines.apply(None, payload);
        self.shared.catalogue.apply(payload);
        if let Payload::SessionUpdated(updated) = payload
            && let Some(directory) = &updated.changed.working_directory
        {
            directory.clone_into(&mut self.shared.lock_directory());
        }
    }

    /// Where the relative paths of a model or user begin, seen from the project.
    #[must_use]
    pub fn working_directory(&self) -> String {
        self.shared.lock_directory().clone()
    }

    /// What the session is doing from now on; visibility may depend on it.
    pub fn set_phase(&self, phase: WorkPhase) {
        *self
            .shared
            .phase
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = phase;
    }

    /// True if the model of the requests from now on writes its changes as patches.
    pub fn set_takes_patches(&self, takes_patches: bool) {
        self.shared
            .takes_patches
            .store(takes_patches, Ordering::Relaxed);
    }

    /// The whole catalogue as it is now; what is `unavailable` must not be sent to the model.
    #[must_use]
    pub fn catalogue(&self) -> Vec<CatalogEntry> {
        let shared = &self.shared;
        shared
            .registry()
            .catalogue(&shared.visibility(), &*shared.authority)
    }

    /// Records the catalogue if it is new or has changed, and returns the fact in force.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub fn resolve_catalogue(&self, scope: &Scope) -> Result<ToolCatalogResolved, JournalError> {
        let shared = &self.shared;
        shared.begin_turn(scope.turn_id.as_ref());
        let mode = shared.authority.mode();
        let journal = &*shared.journal;
        shared
            .catalogue
            .resolve(&self.catalogue(), mode, journal, scope)
    }

    /// Opens a batch: the calls of one step. `scope` names turn and step; `sink` gets every outcome
    /// in call order, once it would survive a power cut.
    ///
    /// # Errors
    /// When no thread can be started; nothing has happened then.
    pub fn batch(
        &self,
        scope: Scope,
        cancel: &Cancel,
        sink: impl FnMut(&Outcome) + Send + 'static,
    ) -> std::io::Result<Batch> {
        Batch::start(Arc::clone(&self.shared), scope, cancel, Box::new(sink))
    }

    /// Runs the intents of one step and waits for all of them.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn run(
        &self,
        scope: Scope,
        cancel: &Cancel,
        intents: impl IntoIterator<Item = ToolIntent>,
    ) -> Result<BatchReport, JournalError> {
        Batch::run_here(Arc::clone(&self.shared), scope, cancel, intents)
    }

    /// Goes on with a call that waited for an answer when its process ended: with the answer that
    /// was given since, or by asking again.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn continue_call(
        &self,
        cancel: &Cancel,
        open: OpenCall,
    ) -> Result<BatchReport, JournalError> {
        Batch::continue_here(Arc::clone(&self.shared), cancel, open)
    }
}

impl Shared {
    fn tools(&self) -> MutexGuard<'_, Tools> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.tools().now)
    }

    pub(crate) fn lock_directory(&self) -> MutexGuard<'_, String> {
        let directory = self.working_directory.lock();
        directory.unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what changed about the tools, if `turn` is another one than before.
    fn begin_turn(&self, turn: Option<&TurnId>) {
        let mut tools = self.tools();
        if tools.turn.as_ref() == turn && turn.is_some() {
            return;
        }
        tools.turn = turn.cloned();
        if let Some(next) = tools.next.take() {
            tools.now = Arc::new(next);
        }
    }

    pub(crate) fn visibility(&self) -> VisibilityContext {
        VisibilityContext {
            unavailable: self.registry().unavailable().clone(),
            mode: self.authority.mode(),
            phase: *self.phase.lock().unwrap_or_else(PoisonError::into_inner),
            disabled: self.settings.disabled.clone(),
            takes_patches: self.takes_patches.load(Ordering::Relaxed),
        }
    }

    /// Appends a fact of a call.
    pub(crate) fn record(
        &self,
        scope: &mut Scope,
        payload: impl Into<Payload>,
        refs: Refs,
    ) -> Result<Recorded, JournalError> {
        let recorded = self.journal.append(scope, payload.into(), refs)?;
        scope.causation_id = Some(recorded.event_id.clone());
        Ok(recorded)
    }
}
