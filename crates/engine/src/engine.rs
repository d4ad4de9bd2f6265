//! The engine: one session, its models, its tools, and the fold of everything that happened.

mod asking;

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use agent_log::{Appended, ModelInputs};
use agent_protocol::id::{ArtifactId, EventId, Id, ModelRequestId, StepId, ThreadId, TurnId};
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::model::{CompactionTrigger, ModelChoice};
use agent_protocol::payload::tool::{CatalogEntry, CatalogPolicy};
use agent_protocol::payload::{ArtifactRef, Usage};
use agent_protocol::status::Mode;
use agent_protocol::{Payload, Refs, Scope, Timestamp};
use agent_provider::conversation::ToolSpec;
use agent_tool_runtime::{
    Authority, BatchReport, Cancel, Journal, JournalError, OpenCall, OpenQuestion, Pipeline,
    ToolIntent,
};
use bytes::Bytes;

use crate::context::ContextPolicy;
use crate::control::Control;
use crate::interrupt::{Interrupt, aside};
use crate::journal::read_artifact;
use crate::limits::{Limits, LoopLimits};
use crate::live::StreamSink;
use crate::model::Model;
use crate::prompt::Preamble;
use crate::state::{SessionState, ThreadState};

/// The engine cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Everything an engine is made of; put together by the binary.
pub struct Parts {
    pub journal: Arc<dyn Journal>,
    /// Every event of the session from now on, in order.
    pub events: Receiver<Arc<Appended>>,
    pub tools: Pipeline,
    /// Decides what may start; the same one the pipeline asks.
    pub authority: Arc<dyn Authority>,
    /// In order of preference; never empty.
    pub models: Vec<Model>,
    pub preamble: Preamble,
    /// The fold of the thread that the engine works in.
    pub thread: ThreadState,
    /// The fold of the whole session.
    pub session: SessionState,
    pub control: Arc<Control>,
    pub live: Arc<dyn StreamSink>,
    pub thread_id: ThreadId,
    pub settings: Settings,
}

/// What the user decided about how the engine works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Keep the exact bytes of every model input as an artifact.
    pub keep_inputs: bool,
    /// The sandbox in words, for the receipt.
    pub sandbox: String,
    pub loop_limits: LoopLimits,
    /// The share of the window after which history is compacted.
    pub compact_at: f64,
}

/// One session at work.
pub struct Engine {
    parts: Parts,
    /// For side jobs; without it the model of the turn does them.
    small: Option<Model>,
    policy: ContextPolicy,
    model: usize,
    scope: Scope,
    tools: Vec<ToolSpec>,
    catalog: Option<ArtifactId>,
    /// The mode that the menu is of.
    catalog_mode: Option<Mode>,
    preamble: Option<ArtifactId>,
    last_request: Option<ModelRequestId>,
    last_sequence: u64,
    /// The `model.failed` event that was written last.
    pub(crate) last_failure: Option<EventId>,
    /// How the models were chosen, to be recorded in the next turn.
    routing: Vec<Payload>,
    turn_started: Timestamp,
    inputs: Mutex<ModelInputs<Bytes>>,
}

impl Engine {
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let scope = Scope {
            thread_id: Some(parts.thread_id.clone()),
            ..Scope::default()
        };
        let turn_started = parts.journal.now();
        let engine = Self {
            small: None,
            policy: ContextPolicy::default(),
            model: 0,
            scope,
            tools: Vec::new(),
            catalog: None,
            catalog_mode: None,
            preamble: None,
            last_request: None,
            last_sequence: 0,
            last_failure: None,
            routing: Vec::new(),
            turn_started,
            inputs: Mutex::default(),
            parts,
        };
        engine.follow_input();
        engine.expect_answers();
        engine
    }

    /// Takes answers to the questions that an earlier run left open, before they are put again.
    fn expect_answers(&self) {
        let approvals = self.parts.control.approvals();
        let waiting = self.waiting_calls().into_iter();
        let questions = waiting.filter_map(|call| call.question);
        for question in questions.filter(OpenQuestion::takes_answers) {
            approvals.register(&question.action_id, None);
        }
    }

    /// Lets files be shown again whose content the model's input does not hold any more.
    pub(crate) fn follow_input(&self) {
        let held = self.parts.thread.conversation.held_calls();
        let baselines = self.parts.tools.baselines();
        baselines.keep_shown(|call| held.contains(call));
    }

    pub(crate) fn mask(&self, text: &str) -> String {
        self.parts.journal.mask(text)
    }

    /// Gives side jobs, such as summaries, to this model.
    #[must_use]
    pub fn with_small_model(mut self, small: Option<Model>) -> Self {
        self.small = small;
        self
    }

    pub(crate) fn small_model(&self) -> Option<&Model> {
        self.small.as_ref()
    }

    /// The fold of the engine's thread so far.
    #[must_use]
    pub fn thread(&self) -> &ThreadState {
        &self.parts.thread
    }

    /// The fold of the whole session so far.
    #[must_use]
    pub fn session(&self) -> &SessionState {
        &self.parts.session
    }

    /// Calls of this thread that wait for an answer.
    pub(crate) fn waiting_calls(&self) -> Vec<OpenCall> {
        self.parts.session.waiting_calls(&self.parts.thread_id)
    }

    /// The whole of a text that was too long for its event.
    #[must_use]
    pub fn kept_text(&self, id: &ArtifactId) -> Option<String> {
        let bytes = read_artifact(self.parts.journal.as_ref(), id)?;
        String::from_utf8(bytes).ok()
    }

    /// The plan that waits for the user's answer, where nothing else does.
    #[must_use]
    pub fn proposed_plan(&self) -> Option<String> {
        let [open] = &self.waiting_calls()[..] else {
            return None;
        };
        let question = open.question.as_ref()?;
        question.required.plan().map(str::to_owned)
    }

    /// The ceiling in force.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.parts.authority.mode()
    }

    /// The way in, for other threads.
    #[must_use]
    pub fn control(&self) -> &Arc<Control> {
        &self.parts.control
    }

    /// Uses these models, in order of preference, from the next turn on; none leaves it as it is.
    /// `routing` is how they were chosen; the turn that they serve first records it.
    pub fn set_models(&mut self, models: Vec<Model>, routing: Vec<Payload>) {
        if !models.is_empty() {
            self.parts.models = models;
            self.model = 0;
            self.routing = routing;
        }
    }

    /// Records in the first turn how the models were chosen.
    #[must_use]
    pub fn with_routing(mut self, routing: Vec<Payload>) -> Self {
        self.routing = routing;
        self
    }

    /// Records how the models of this turn were chosen, if no turn has yet.
    pub(crate) fn record_routing(&mut self) -> Result<(), EngineError> {
        for fact in std::mem::take(&mut self.routing) {
            self.append(fact, Refs::default())?;
        }
        Ok(())
    }

    /// Shortens the history now, between turns, because the user wants it; says whether there was
    /// anything to shorten.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub async fn compact_now(&mut self, interrupt: &Interrupt) -> Result<bool, EngineError> {
        self.scope = self.thread_scope();
        self.catch_up();
        self.end_cut_compaction()?;
        self.new_step();
        self.resolve_catalog()?;
        let mut limits = Limits::default();
        let compacted = self
            .compact(CompactionTrigger::User, &mut limits, interrupt)
            .await?;
        self.sync()?;
        Ok(compacted)
    }

    pub(crate) fn loop_limits(&self) -> LoopLimits {
        self.parts.settings.loop_limits
    }

    pub(crate) fn model(&self) -> Model {
        self.parts.models[self.model].clone()
    }

    /// Moves on to the next model that `suits`; `false` when there is none.
    pub(crate) fn next_model(&mut self, suits: impl Fn(&Model) -> bool) -> bool {
        let mut later = self.parts.models.iter().enumerate().skip(self.model + 1);
        let next = later.find(|(_, model)| suits(model));
        let next = next.map(|(index, _)| index);
        self.model = next.unwrap_or(self.model);
        next.is_some()
    }

    /// The model the turn began with, and those that are left after the one that is asked now.
    pub(crate) fn models_around(&self) -> (ModelChoice, Vec<ModelChoice>) {
        let models = &self.parts.models;
        let later = models[self.model + 1..].iter().map(Model::choice);
        (models[0].choice(), later.collect())
    }

    pub(crate) fn model_count(&self) -> u64 {
        self.parts.models.len() as u64
    }

    pub(crate) fn mint<I: Id>(&self) -> I {
        self.parts.journal.ids().mint()
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    fn thread_scope(&self) -> Scope {
        Scope {
            thread_id: Some(self.parts.thread_id.clone()),
            ..Scope::default()
        }
    }

    pub(crate) fn begin(&mut self, turn_id: &TurnId, interrupt: &Interrupt) {
        self.parts.control.turn_runs(turn_id, interrupt);
        self.parts.authority.turn_begins(turn_id.as_str());
        self.scope = Scope {
            turn_id: Some(turn_id.clone()),
            ..self.thread_scope()
        };
        self.turn_started = self.parts.journal.now();
        self.model = 0;
    }

    pub(crate) fn ended(&self) {
        self.parts.control.turn_ended();
    }

    pub(crate) fn new_step(&mut self) {
        self.scope.step_id = Some(self.mint::<StepId>());
    }

    pub(crate) fn turn_elapsed_ms(&self) -> u64 {
        self.parts.journal.now().millis_since(self.turn_started)
    }

    pub(crate) fn last_request(&self) -> Option<&ModelRequestId> {
        self.last_request.as_ref()
    }

    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    pub(crate) fn append(
        &mut self,
        payload: impl Into<Payload>,
        refs: Refs,
    ) -> Result<Payload, EngineError> {
        let scope = self.scope.clone();
        self.append_in(&scope, payload, refs)
    }

    /// Appends an event and returns it as it was written, masked.
    pub(crate) fn append_in(
        &mut self,
        scope: &Scope,
        payload: impl Into<Payload>,
        refs: Refs,
    ) -> Result<Payload, EngineError> {
        let recorded = self.parts.journal.append(scope, payload.into(), refs)?;
        self.catch_up();
        Ok(recorded.payload)
    }

    pub(crate) fn open_artifact(&self, id: &ArtifactId) -> Option<std::fs::File> {
        self.parts.journal.open_artifact(id).ok()
    }

    pub(crate) fn sync(&self) -> Result<(), EngineError> {
        Ok(self.parts.journal.sync()?)
    }

    /// Takes in every event that was written since the last time.
    pub(crate) fn catch_up(&mut self) {
        let journal = Arc::clone(&self.parts.journal);
        let read = move |id: &ArtifactId| read_artifact(journal.as_ref(), id);
        while let Ok(appended) = self.parts.events.try_recv() {
            let event = &appended.event;
            self.last_sequence = event.sequence;
            self.parts.session.apply(event);
            let is_own = self.parts.thread.apply(event, &read);
            if is_own && let Payload::ModelFailed(_) = event.payload {
                self.last_failure = Some(event.event_id.clone());
            }
        }
    }

    pub(crate) fn put_artifact(
        &self,
        kind: ArtifactKind,
        media_type: &str,
        bytes: &[u8],
    ) -> Result<ArtifactRef, EngineError> {
        Ok(self
            .parts
            .journal
            .put_artifact(&self.scope, kind, media_type, bytes, "")?)
    }

    pub(crate) fn text_or_artifact(
        &self,
        text: String,
    ) -> Result<(Option<String>, Option<ArtifactId>), EngineError> {
        Ok(self.parts.control.text_or_artifact(&self.scope, text)?)
    }

    /// Records the tool menu when it changed, and keeps what the model sees of it.
    pub(crate) fn resolve_catalog(&mut self) -> Result<(), EngineError> {
        let scope = self.scope.clone();
        self.catalog_mode = Some(self.mode());
        let model = self.parts.models.get(self.model);
        let takes_patches = model.is_some_and(|model| model.settings.takes_patches);
        self.parts.tools.set_takes_patches(takes_patches);
        let resolved = self.parts.tools.resolve_catalogue(&scope)?;
        self.catch_up();
        self.tools = self
            .parts
            .tools
            .catalogue()
            .into_iter()
            .filter(|entry| entry.policy != CatalogPolicy::Unavailable)
            .map(tool_spec)
            .collect();
        self.catalog = Some(resolved.catalog_ref);
        if self.preamble.is_none() {
            let bytes = self.parts.preamble.to_bytes();
            let kept = self.put_artifact(ArtifactKind::Other, "application/json", &bytes)?;
            self.preamble = Some(kept.artifact_id);
        }
        Ok(())
    }

    /// Records the menu again when the mode is another one: it may show other tools.
    pub(crate) fn follow_mode(&mut self) -> Result<(), EngineError> {
        match self.catalog_mode == Some(self.mode()) {
            true => Ok(()),
            false => self.resolve_catalog(),
        }
    }

    /// Inputs that shall join the running turn do so here, between two requests.
    pub(crate) fn steer(&mut self) -> Result<(), EngineError> {
        self.parts.control.take_steering(&self.scope)?;
        self.catch_up();
        Ok(())
    }

    /// Whether the user asked for room since the last time.
    pub fn was_asked_to_compact(&self) -> bool {
        self.parts.control.take_compact()
    }

    /// Whether the conversation is about to outgrow the model's window.
    pub(crate) fn must_compact(&self) -> bool {
        self.conversation_room()
            .is_some_and(|room| self.estimated_tokens() > room)
    }

    /// Tokens the conversation may take, where the model's window is known.
    pub(crate) fn conversation_room(&self) -> Option<u64> {
        self.policy.conversation_room(
            &self.parts.preamble,
            &self.tools,
            &self.parts.models[self.model].settings,
            self.parts.settings.compact_at,
        )
    }

    pub(crate) fn policy(&self) -> &ContextPolicy {
        &self.policy
    }

    pub(crate) fn estimated_tokens(&self) -> u64 {
        self.policy
            .conversation_tokens(&self.parts.thread.conversation)
    }

    pub(crate) fn estimated_after(&self, cut: usize, summary_bytes: usize) -> u64 {
        self.policy
            .tokens_after(&self.parts.thread.conversation, cut, summary_bytes)
    }

    pub(crate) fn forget_reported(&mut self) {
        self.policy.forget_reported();
    }

    pub(crate) fn counted(&mut self, usage: &Usage) {
        self.policy.counted(usage.input, usage.cached_input);
    }

    /// Takes a call up again that waited for an answer.
    pub(crate) async fn continue_call(
        &mut self,
        open: OpenCall,
        cancel: &Cancel,
    ) -> Result<BatchReport, EngineError> {
        self.scope.step_id.clone_from(&open.scope.step_id);
        let (tools, cancel) = (self.parts.tools.clone(), cancel.clone());
        let report = aside(move || tools.continue_call(&cancel, open)).await?;
        self.catch_up();
        Ok(report)
    }

    /// Runs calls through the tool runtime.
    pub(crate) async fn run_batch(
        &mut self,
        intents: Vec<ToolIntent>,
        cancel: &Cancel,
    ) -> Result<BatchReport, EngineError> {
        let scope = self.scope.clone();
        let (tools, cancel) = (self.parts.tools.clone(), cancel.clone());
        let report = aside(move || tools.run(scope, &cancel, intents)).await?;
        self.catch_up();
        Ok(report)
    }
}

/// A tool as the model sees it.
pub(crate) fn tool_spec(entry: CatalogEntry) -> ToolSpec {
    ToolSpec {
        name: entry.tool_name,
        description: entry.description.unwrap_or_default(),
        schema: entry.input_schema.unwrap_or_default(),
    }
}
