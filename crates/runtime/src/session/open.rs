//! Opening a session: log, rules, tools and what an engine needs, put together.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use agent_engine::conversation::ArtifactText;
use agent_engine::limits::LoopLimits;
use agent_engine::live::StreamSink;
use agent_engine::state::depends_on;
use agent_engine::verification::checks_in;
use agent_engine::{
    AuthorityPlace, Control, CountChecks, Engine, Model, Parts, PendingApprovals, Queued,
    SessionAuthority, SessionJournal, SessionState, Settings, ThreadState,
};
use agent_local_tools::{CommandSettings, Processes, Roots, SPELLINGS, local_tools};
use agent_log::{
    Appended, Listener, OwnEvents, SessionDirectory, SessionEnv, SessionStore, SessionWriter,
};
use agent_policy::gate::{SandboxLevel, unknown_tools};
use agent_protocol::id::{ArtifactId, ProcessId, ThreadId, TurnId};
use agent_protocol::payload::conversation::{
    Budget, QueueOperation, RuntimeWarning, SessionCreated, ThreadRole, ThreadStarted,
};
use agent_protocol::payload::permission::{DecidedBy, GrantScope, PolicyChanged, PolicyChanges};
use agent_protocol::status::Mode;
use agent_protocol::{Code, Event, Payload, Refs, Scope};
use agent_tool_runtime::{
    Authority, Baselines, Journal, Pipeline, PipelineParts, Registry, Settings as PipelineSettings,
    Workspace,
};

use super::created;
use super::guard::ShutdownGuard;
use super::options::OpenOptions;
use crate::Runtime;
use crate::config::Config;
use crate::error::{OrFail as _, RuntimeError};
use crate::work_tree::WorkTree;
use crate::{Scratch, command_settings as commands, preamble, rules};

/// The parts of an open session.
pub(crate) struct SessionParts {
    pub(crate) writer: SessionWriter,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) authority: Arc<SessionAuthority>,
    pub(crate) control: Arc<Control>,
    pub(crate) pipeline: Pipeline,
    pub(crate) thread_id: ThreadId,
    pub(crate) thread: ThreadState,
    pub(crate) session: SessionState,
    pub(crate) events: Receiver<Arc<Appended>>,
    /// The sandbox in words, for the model.
    sandbox: String,
    pub(crate) sandbox_level: SandboxLevel,
    /// The permission rules in force, one per line.
    pub(crate) rules: String,
    /// The first event of this run.
    pub(crate) first_sequence: u64,
    processes: Arc<Processes>,
    scratch: Arc<Scratch>,
    /// A turn that was left open, with its questions, by an earlier run.
    pub(crate) open_turn: Option<TurnId>,
}

/// Opens a new session or resumes an old one.
pub(crate) fn open_parts(
    runtime: &Runtime,
    config: &Config,
    wanted: &OpenOptions,
) -> Result<SessionParts, RuntimeError> {
    let root = runtime.project.root();
    let rules = rules(runtime, config, wanted.rules.as_deref())?;
    let unknown = unknown_tools(&rules, &runtime.host.known_tools());
    let rules_text = rules
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n");
    let store = SessionStore::of_project(root);
    let env = runtime.session_env_with(config, &wanted.program)?;
    let mint = Arc::clone(&env.mint);
    let mode = config.permissions.mode.value;

    let existing = match &wanted.session {
        Some(asked) => Some(store.resolve(asked).or_usage()?),
        None => None,
    };
    let mut history = History::new(verification_patterns(config));
    let writer = match &existing {
        Some(directory) => history.open(directory, env)?,
        None => {
            let created = SessionCreated {
                title: wanted.title.clone(),
                ..created(runtime, mode)
            };
            store.create(created, env).or_usage()?
        }
    };
    let events = writer.listen();
    // What this run adds begins here; a new session's first line is already written.
    let first_sequence = if existing.is_some() {
        writer.head().next_sequence
    } else {
        0
    };
    let journal = SessionJournal::new(writer.clone(), mint);
    let journal: Arc<dyn Journal> = Arc::new(journal.naming_checks(count_checks(config)));

    let name = writer.directory().file_name().unwrap_or_default();
    let scratch = Scratch::new(&runtime.host.directories.state, &name.to_string_lossy());
    let scratch = Arc::new(scratch.or_usage()?);
    let settings = commands::settings(runtime, config, writer.directory(), &scratch)?;
    let sandbox = commands::level(&settings);
    let approvals = Arc::new(PendingApprovals::new(wanted.on_ask));
    let work_tree = WorkTree::within(runtime, Arc::clone(&settings.sandbox));
    let place = AuthorityPlace {
        home: runtime.home(),
        sandbox,
        tools: runtime.host.known_tools(),
        project: runtime.project.root().to_path_buf(),
        tree_is_dirty: Box::new(move || work_tree.is_dirty()),
        ask_timeout: Some(config.permissions.ask_timeout.value.duration()),
        command_timeout_ms: u64::try_from(
            config.limits.command_timeout.value.duration().as_millis(),
        )
        .ok(),
        output_limit: Some(30_000),
    };
    let authority = Arc::new(SessionAuthority::new(
        rules,
        mode,
        place,
        Arc::clone(&approvals),
        Arc::clone(&runtime.host.clock),
    ));
    let (registry, processes) = registry(runtime, settings)?;
    processes.remember_lost(history.lost.drain(..));
    let workspace = Workspace {
        root: root.to_path_buf(),
        extra_roots: Vec::new(),
    };
    let pipeline = Pipeline::new(PipelineParts {
        registry: Arc::new(registry),
        journal: Arc::clone(&journal),
        authority: Arc::clone(&authority) as Arc<dyn Authority>,
        workspace,
        baselines: Arc::clone(&history.baselines),
        settings: PipelineSettings {
            serial: wanted.serial,
            ..PipelineSettings::default()
        },
    });

    let mut foreign = history.foreign_questions;
    for event in history.held.drain(..) {
        pipeline.apply(&event.payload);
        let own = history.own.contains(event.sequence);
        foreign += usize::from(!authority.apply(&event, own));
    }
    let thread_id = match history.thread_id.take() {
        Some(thread_id) => thread_id,
        None => start_thread(&journal)?,
    };
    // The mode of this run counts; a session does not keep a looser one than it is asked for now.
    if existing.is_some() && authority.mode() != mode {
        authority.set_mode(mode, || mode_changed(&journal, &thread_id, mode))?;
    }
    warn_ignored(&journal, &thread_id, config)?;
    for unknown in unknown {
        let message = unknown.to_string();
        warn(&journal, &thread_id, "unknown_tool_in_rule", message)?;
    }
    if foreign > 0 {
        warn_foreign(&journal, &thread_id, foreign)?;
    }
    let control = Control::new(
        Arc::clone(&journal),
        thread_id.clone(),
        approvals,
        history.queue,
    );
    let control = control
        .knowing(history.keys)
        .behind(history.open_turn.clone());
    let control = Arc::new(control);
    Ok(SessionParts {
        writer,
        journal,
        authority,
        control,
        pipeline,
        thread_id,
        thread: history.thread,
        session: history.session,
        events,
        sandbox: sandbox_words(sandbox).to_owned(),
        sandbox_level: sandbox,
        rules: rules_text,
        first_sequence,
        processes,
        scratch,
        open_turn: history.open_turn,
    })
}

impl SessionParts {
    /// The end of the session, apart from its parts.
    pub(crate) fn guard(&self) -> ShutdownGuard {
        ShutdownGuard {
            writer: self.writer.clone(),
            journal: Arc::clone(&self.journal),
            processes: Arc::clone(&self.processes),
            thread_id: self.thread_id.clone(),
            scratch: Arc::clone(&self.scratch),
        }
    }

    /// The engine for this session.
    pub(crate) fn engine(
        self,
        runtime: &Runtime,
        config: &Config,
        models: Vec<Model>,
        small: Option<Model>,
        live: Arc<dyn StreamSink>,
    ) -> Engine {
        let preamble = preamble::preamble(runtime, config, &self.sandbox);
        let preamble = preamble.masked(&|text| self.journal.mask(text));
        let limits = &config.limits;
        Engine::new(Parts {
            journal: self.journal,
            events: self.events,
            tools: self.pipeline,
            authority: self.authority,
            models,
            preamble,
            thread: self.thread,
            session: self.session,
            control: self.control,
            live,
            thread_id: self.thread_id,
            settings: Settings {
                keep_inputs: config.context.keep_inputs.value,
                sandbox: self.sandbox,
                loop_limits: LoopLimits {
                    repeats: limits.max_repeats.value,
                    failures: limits.max_failures.value,
                },
                compact_at: config.context.compact_at.value,
            },
        })
        .with_small_model(small)
    }
}

/// What an old session's log says, folded while it is opened.
struct History {
    thread: ThreadState,
    session: SessionState,
    thread_id: Option<ThreadId>,
    queue: Vec<Queued>,
    /// Keys of inputs, so that the same input is not taken twice, also after a restart.
    keys: HashMap<String, TurnId>,
    open_turn: Option<TurnId>,
    /// Commands whose end no run saw.
    lost: Vec<ProcessId>,
    baselines: Arc<Baselines>,
    /// Decisions and catalogues, for the authority and the tools, which come after the log.
    held: Vec<Event>,
    /// The events this user's account wrote here.
    own: OwnEvents,
    /// Open questions, or answers to them, that were written elsewhere.
    foreign_questions: usize,
}

impl History {
    fn new(patterns: Vec<Vec<String>>) -> Self {
        Self {
            thread: ThreadState::main(patterns),
            session: SessionState::default(),
            thread_id: None,
            queue: Vec::new(),
            keys: HashMap::new(),
            open_turn: None,
            lost: Vec::new(),
            baselines: Arc::new(Baselines::default()),
            held: Vec::new(),
            own: OwnEvents::default(),
            foreign_questions: 0,
        }
    }

    /// Opens a session for writing and takes in what it says. The log is read once.
    fn open(
        &mut self,
        directory: &SessionDirectory,
        env: SessionEnv,
    ) -> Result<SessionWriter, RuntimeError> {
        let artifacts = directory.artifacts().ok();
        let artifact = |id: &ArtifactId| artifacts.as_ref()?.read(id, 64 << 20).ok();
        agent_log::fork::inherited(directory, &mut |event| {
            self.fold(event, &artifact);
            // What is inherited was shown, and nothing of it is still allowed.
            if matches!(
                event.payload,
                Payload::ToolCatalogResolved(_) | Payload::SessionUpdated(_)
            ) {
                self.held.push(event.clone());
            }
        })
        .or_usage()?;
        let listener = Listener {
            wants: &depends_on,
            tell: &mut |event| {
                let is_main = self.fold(event, &artifact);
                self.take(event, is_main);
            },
        };
        let opened = directory.open_writer_telling(env, listener).or_usage()?;
        self.own = opened.own;
        let is_own = |sequence| self.own.contains(sequence);
        self.foreign_questions = self.session.open_calls.distrust(&is_own);
        Ok(opened.writer)
    }

    /// Takes one event into everything that is folded; `false` if it is not the main thread's.
    fn fold(&mut self, event: &Event, artifact: ArtifactText<'_>) -> bool {
        let call = event.scope.tool_call_id.as_ref();
        self.baselines.apply(call, &event.payload);
        self.session.apply(event);
        self.thread.apply(event, artifact)
    }

    fn take(&mut self, event: &Event, is_main: bool) {
        if matches!(
            event.payload,
            Payload::TurnStarted(_)
                | Payload::ActionRequired(_)
                | Payload::ActionResolved(_)
                | Payload::PolicyChanged(_)
                | Payload::ToolCatalogResolved(_)
                | Payload::SessionUpdated(_)
        ) {
            self.held.push(event.clone());
        }
        match &event.payload {
            Payload::ThreadStarted(started) if started.role == ThreadRole::Main => {
                self.thread_id.clone_from(&event.scope.thread_id);
            }
            Payload::TurnSubmitted(submitted) => {
                if let (Some(key), Some(turn_id)) =
                    (&submitted.idempotency_key, &event.scope.turn_id)
                {
                    self.keys.insert(key.clone(), turn_id.clone());
                }
            }
            Payload::ProcessFailed(failed) if failed.code == Some(Code::Lost) => {
                self.lost.extend(failed.process_id.clone());
            }
            Payload::TurnStarted(_) if is_main => {
                self.open_turn.clone_from(&event.scope.turn_id);
            }
            Payload::TurnCompleted(_) | Payload::TurnFailed(_) if is_main => self.open_turn = None,
            Payload::QueueChanged(changed) => {
                if let (QueueOperation::Added, Some(turn_id)) =
                    (changed.op, &changed.queued_turn_id)
                {
                    self.queue.push(Queued {
                        turn_id: turn_id.clone(),
                        policy: changed.policy,
                        held: false,
                    });
                }
                // The order in the event is the whole queue after the change.
                self.queue
                    .retain(|queued| changed.order.contains(&queued.turn_id));
                let place =
                    |queued: &Queued| changed.order.iter().position(|id| *id == queued.turn_id);
                self.queue.sort_by_key(place);
            }
            _ => {}
        }
    }
}

impl Config {
    /// The ceilings of a turn.
    #[must_use]
    pub fn turn_budget(&self) -> Budget {
        let limits = &self.limits;
        Budget {
            max_steps: limits.max_steps.as_ref().map(|set| u64::from(set.value)),
            max_tokens: limits.max_tokens.as_ref().map(|set| set.value),
            max_cost: limits.max_cost.as_ref().map(|set| set.value),
            timeout_ms: limits
                .turn_timeout
                .as_ref()
                .and_then(|set| u64::try_from(set.value.duration().as_millis()).ok()),
        }
    }
}

fn start_thread(journal: &Arc<dyn Journal>) -> Result<ThreadId, RuntimeError> {
    let thread_id: ThreadId = journal.ids().mint();
    let scope = Scope {
        thread_id: Some(thread_id.clone()),
        ..Scope::default()
    };
    let started = ThreadStarted {
        parent_thread_id: None,
        role: ThreadRole::Main,
    };
    journal
        .append(&scope, started.into(), Refs::default())
        .or_fail()?;
    Ok(thread_id)
}

fn mode_changed(
    journal: &Arc<dyn Journal>,
    thread_id: &ThreadId,
    mode: Mode,
) -> Result<(), RuntimeError> {
    let scope = Scope {
        thread_id: Some(thread_id.clone()),
        ..Scope::default()
    };
    let changed = PolicyChanged {
        scope: GrantScope::Session,
        changed: PolicyChanges {
            mode: Some(mode),
            ..PolicyChanges::default()
        },
        by: DecidedBy::User,
        reason: "the resumed session keeps this mode".to_owned(),
    };
    journal
        .append(&scope, changed.into(), Refs::default())
        .or_fail()?;
    Ok(())
}

/// Records that the log claims answers which this account did not give.
fn warn_foreign(
    journal: &Arc<dyn Journal>,
    thread_id: &ThreadId,
    answers: usize,
) -> Result<(), RuntimeError> {
    let (word, they) = if answers == 1 {
        ("answer", "it")
    } else {
        ("answers", "they")
    };
    let message = format!(
        "this log has {answers} {word} not given here by this account; what {they} allowed is \
         asked again"
    );
    warn(journal, thread_id, "foreign_answers", message)
}

/// What an untrusted project asked for and did not get is a fact of the session.
fn warn_ignored(
    journal: &Arc<dyn Journal>,
    thread_id: &ThreadId,
    config: &Config,
) -> Result<(), RuntimeError> {
    let mut keys: Vec<&str> = config.notes.iter().map(|note| note.key.as_str()).collect();
    keys.dedup();
    if keys.is_empty() {
        return Ok(());
    }
    let message = format!(
        "project settings that are ignored until you trust them: {}",
        keys.join(", ")
    );
    warn(journal, thread_id, "untrusted_project_settings", message)
}

fn warn(
    journal: &Arc<dyn Journal>,
    thread_id: &ThreadId,
    code: &str,
    message: String,
) -> Result<(), RuntimeError> {
    let scope = Scope {
        thread_id: Some(thread_id.clone()),
        ..Scope::default()
    };
    let warning = RuntimeWarning {
        code: code.to_owned(),
        message,
        evidence_refs: Vec::new(),
    };
    journal
        .append(&scope, warning.into(), Refs::default())
        .or_fail()?;
    Ok(())
}

/// Counts the checks in a command that ended.
fn count_checks(config: &Config) -> CountChecks {
    let patterns = verification_patterns(config);
    Box::new(move |command, data| {
        let pipe_status = data.pipe_status.as_deref();
        let Some(exit_code) = data.exit_code else {
            return 0;
        };
        checks_in(command, exit_code, pipe_status, None, &patterns).len()
    })
}

/// The configured verification commands, word by word.
pub fn verification_patterns(config: &Config) -> Vec<Vec<String>> {
    let words = |pattern: &str| pattern.split_whitespace().map(str::to_owned).collect();
    config
        .verification
        .commands
        .iter()
        .map(|set| words(&set.value))
        .collect()
}

/// All tools, registered.
pub(crate) fn registry(
    runtime: &Runtime,
    settings: CommandSettings,
) -> Result<(Registry, Arc<Processes>), RuntimeError> {
    let home = runtime.home();
    let roots = Arc::new(Roots::open(runtime.project.root(), Some(&home)).or_usage()?);
    let local = local_tools(roots, settings);
    let mut registry = Registry::default();
    registry.understand(SPELLINGS);
    for tool in local.tools.into_iter().chain(runtime.host.tools.clone()) {
        registry.register(tool).or_fail()?;
    }
    Ok((registry, local.processes))
}

fn sandbox_words(level: SandboxLevel) -> &'static str {
    match level {
        SandboxLevel::Full => {
            "full: commands can write only the project, see no secrets and have no network"
        }
        SandboxLevel::Partial => "partial: every command is asked about",
        SandboxLevel::Off => "off by the user's settings",
        SandboxLevel::Unavailable => "unavailable: commands are refused",
    }
}
