//! Opening a session to work in it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use agent_engine::limits::Patience;
use agent_engine::live::Live;
use agent_engine::{
    AuthorityPlace, Control, Desk, Engine, Model, OnAsk, Parts, Queued, SessionAuthority,
    SessionJournal, SessionState, Settings,
};
use agent_local_tools::{CommandSettings, Processes, Roots, local_tools};
use agent_protocol::id::ThreadId;
use agent_protocol::payload::conversation::{
    QueueOperation, RuntimeWarning, SessionChanges, SessionCreated, SessionUpdated, ThreadRole,
    ThreadStarted,
};
use agent_protocol::payload::permission::{DecidedBy, GrantScope, PolicyChanged, PolicyChanges};
use agent_protocol::status::{Mode, Status};
use agent_protocol::{Event, Payload, Refs, Scope};
use agent_session::{Appended, ArtifactStore, SessionDirectory, SessionStore, SessionWriter};
use agent_tool_runtime::gate::SandboxLevel;
use agent_tool_runtime::{
    Authority, Baselines, Journal, Pipeline, PipelineParts, Registry, Settings as PipelineSettings,
    Workspace,
};
use clap::Args;
use sha2::{Digest as _, Sha256};

use super::{commands, place, rules};
use crate::app::App;
use crate::config::Config;
use crate::failure::{Failure, OrFail as _};

/// Which session to work in, and how; the flags of every command that does.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SessionArgs {
    /// Go on with this session: an id, a unique beginning of one, or `last`
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Use the permission rules in this file too
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) rules: Option<PathBuf>,
    /// Run one tool call after the other
    #[arg(long)]
    pub(crate) serial: bool,
}

/// What is asked of a workbench.
pub(crate) struct Wanted<'a> {
    /// What the process is doing, for whoever is refused the session meanwhile.
    pub(crate) program: &'static str,
    pub(crate) arguments: &'a SessionArgs,
    pub(crate) on_ask: OnAsk,
}

/// An open session and everything that works in it.
pub(crate) struct Workbench {
    pub(crate) writer: SessionWriter,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) authority: Arc<SessionAuthority>,
    pub(crate) control: Arc<Control>,
    pub(crate) pipeline: Pipeline,
    pub(crate) thread_id: ThreadId,
    pub(crate) state: SessionState,
    pub(crate) events: Receiver<Arc<Appended>>,
    pub(crate) sandbox: String,
    /// The permission rules in force, one per line.
    pub(crate) rules: String,
    /// The first event of this run.
    pub(crate) first_sequence: u64,
    pub(crate) processes: Arc<Processes>,
    temporary: PathBuf,
    /// A turn that was left open, with its questions, by an earlier run.
    pub(crate) open_turn: Option<agent_protocol::id::TurnId>,
}

/// Opens a new session or goes on with an old one.
pub(crate) fn open(app: &App, config: &Config, wanted: &Wanted<'_>) -> Result<Workbench, Failure> {
    let root = app.project.root();
    let rules = rules(app, config, wanted.arguments.rules.as_deref())?;
    let rules_text = rules
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n");
    let store = SessionStore::of_project(root);
    let rim = app.rim_with(config, wanted.program)?;
    let mint = Arc::clone(&rim.mint);
    let mode = config.permissions.mode.value;

    let existing = match &wanted.arguments.session {
        Some(asked) => Some(store.resolve(asked).or_usage()?),
        None => None,
    };
    let writer = match &existing {
        Some(directory) => directory.open_writer(rim).or_usage()?.writer,
        None => store.create(created(app, mode), rim).or_usage()?,
    };
    let events = writer.listen();
    // What this run adds begins here; a new session's first line is already written.
    let first_sequence = if existing.is_some() {
        writer.head().next_sequence
    } else {
        0
    };
    let journal: Arc<dyn Journal> = Arc::new(SessionJournal::new(writer.clone(), mint));

    let settings = commands::settings(app, config, writer.directory())?;
    let sandbox = commands::level(&settings);
    let temporary = settings.temporary.clone();
    let desk = Arc::new(Desk::new(wanted.on_ask));
    let dirty_root = root.to_path_buf();
    let place = AuthorityPlace {
        home: app.home(),
        sandbox,
        tree_is_dirty: Box::new(move || place::tree_is_dirty(&dirty_root)),
        ask_timeout: None,
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
        Arc::clone(&desk),
        Arc::clone(&app.host.clock),
    ));
    let (registry, processes) = registry(app, settings)?;
    let workspace = Workspace {
        root: root.to_path_buf(),
        extra_roots: Vec::new(),
    };
    let pipeline = Pipeline::new(PipelineParts {
        registry: Arc::new(registry),
        journal: Arc::clone(&journal),
        authority: Arc::clone(&authority) as Arc<dyn Authority>,
        workspace,
        baselines: Arc::new(Baselines::default()),
        settings: PipelineSettings {
            serial: wanted.arguments.serial,
            ..PipelineSettings::default()
        },
    });

    let mut history = History::new(verification_patterns(config));
    if let Some(directory) = &existing {
        history.fold(directory, &pipeline, &authority)?;
    }
    let thread_id = match history.thread_id.take() {
        Some(thread_id) => thread_id,
        None => start_thread(&journal)?,
    };
    // The mode of this run counts; a session does not keep a looser one than it is asked for now.
    if existing.is_some() && authority.mode() != mode {
        mode_changed(&journal, &thread_id, mode)?;
        authority.set_mode(mode);
    }
    warn_ignored(&journal, &thread_id, config)?;
    let control = Arc::new(Control::new(
        Arc::clone(&journal),
        thread_id.clone(),
        desk,
        history.queue,
    ));
    Ok(Workbench {
        writer,
        journal,
        authority,
        control,
        pipeline,
        thread_id,
        state: history.state,
        events,
        sandbox: sandbox_words(sandbox).to_owned(),
        rules: rules_text,
        first_sequence,
        processes,
        temporary,
        open_turn: history.open_turn,
    })
}

/// Ends a session in order: background commands are ended and recorded, then the end itself.
pub(crate) struct Closer {
    journal: Arc<dyn Journal>,
    processes: Arc<Processes>,
    thread_id: ThreadId,
    /// Where commands had their temporary files.
    temporary: PathBuf,
}

impl Closer {
    pub(crate) fn close(&self) -> Result<(), Failure> {
        self.processes.shutdown();
        // What a command left there is nobody's; a directory that cannot be removed is only litter.
        let _ = std::fs::remove_dir_all(&self.temporary);
        let scope = Scope {
            thread_id: Some(self.thread_id.clone()),
            ..Scope::default()
        };
        let ended = SessionUpdated {
            changed: SessionChanges {
                status: Some(Status::Ended),
                ..SessionChanges::default()
            },
            reason: "the program ended".to_owned(),
        };
        self.journal
            .append(&scope, ended.into(), Refs::default())
            .or_fail()?;
        self.journal.sync().or_fail()
    }
}

impl Workbench {
    /// What ends the session, for whoever gives the rest away.
    pub(crate) fn closer(&self) -> Closer {
        Closer {
            journal: Arc::clone(&self.journal),
            processes: Arc::clone(&self.processes),
            thread_id: self.thread_id.clone(),
            temporary: self.temporary.clone(),
        }
    }

    /// The engine for this session.
    pub(crate) fn engine(
        self,
        app: &App,
        config: &Config,
        models: Vec<Model>,
        live: Arc<dyn Live>,
    ) -> Engine {
        let preamble = place::preamble(app, config, &self.sandbox);
        let limits = &config.limits;
        Engine::new(Parts {
            journal: self.journal,
            events: self.events,
            tools: self.pipeline,
            authority: self.authority,
            models,
            preamble,
            state: self.state,
            control: self.control,
            live,
            thread_id: self.thread_id,
            settings: Settings {
                keep_inputs: config.context.keep_inputs.value,
                sandbox: self.sandbox,
                patience: Patience {
                    repeats: limits.max_repeats.value,
                    failures: limits.max_failures.value,
                },
                compact_at: config.context.compact_at.value,
            },
        })
    }
}

/// What an old session's log says, folded once.
struct History {
    state: SessionState,
    thread_id: Option<ThreadId>,
    queue: Vec<Queued>,
    open_turn: Option<agent_protocol::id::TurnId>,
}

impl History {
    fn new(patterns: Vec<Vec<String>>) -> Self {
        Self {
            state: SessionState::new(patterns),
            thread_id: None,
            queue: Vec::new(),
            open_turn: None,
        }
    }

    fn fold(
        &mut self,
        directory: &SessionDirectory,
        pipeline: &Pipeline,
        authority: &SessionAuthority,
    ) -> Result<(), Failure> {
        let artifacts: ArtifactStore = directory.artifacts().or_usage()?;
        let artifact = |id: &agent_protocol::id::ArtifactId| artifacts.read(id, 64 << 20).ok();
        for item in directory.reader().or_usage()? {
            let Some(event) = item.or_usage()?.event else {
                continue;
            };
            self.take(&event);
            self.state.apply(&event, &artifact);
            pipeline.apply(&event.payload);
            authority.apply(&event);
        }
        Ok(())
    }

    fn take(&mut self, event: &Event) {
        match &event.payload {
            Payload::ThreadStarted(started) if started.role == ThreadRole::Main => {
                self.thread_id.clone_from(&event.scope.thread_id);
            }
            Payload::TurnStarted(_) => self.open_turn.clone_from(&event.scope.turn_id),
            Payload::TurnCompleted(_) | Payload::TurnFailed(_) => self.open_turn = None,
            Payload::QueueChanged(changed) => {
                if let (QueueOperation::Added, Some(turn_id)) =
                    (changed.op, &changed.queued_turn_id)
                {
                    self.queue.push(Queued {
                        turn_id: turn_id.clone(),
                        policy: changed.policy,
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

fn created(app: &App, mode: Mode) -> SessionCreated {
    use std::os::unix::ffi::OsStrExt as _;
    let root = app.project.root().as_os_str().as_bytes();
    let digest: [u8; 32] = Sha256::digest(root).into();
    SessionCreated {
        project_root_hash: agent_protocol::id::ArtifactId::from_digest(&digest).to_string(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        mode,
        ..SessionCreated::default()
    }
}

fn start_thread(journal: &Arc<dyn Journal>) -> Result<ThreadId, Failure> {
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
) -> Result<(), Failure> {
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
        reason: "the session goes on in this mode".to_owned(),
    };
    journal
        .append(&scope, changed.into(), Refs::default())
        .or_fail()?;
    Ok(())
}

/// What an untrusted project asked for and did not get is a fact of the session.
fn warn_ignored(
    journal: &Arc<dyn Journal>,
    thread_id: &ThreadId,
    config: &Config,
) -> Result<(), Failure> {
    let mut keys: Vec<&str> = config.notes.iter().map(|note| note.key.as_str()).collect();
    keys.dedup();
    if keys.is_empty() {
        return Ok(());
    }
    let scope = Scope {
        thread_id: Some(thread_id.clone()),
        ..Scope::default()
    };
    let warning = RuntimeWarning {
        code: "untrusted_project_settings".to_owned(),
        message: format!(
            "settings of the project that are not in force: {}",
            keys.join(", ")
        ),
        evidence_refs: Vec::new(),
    };
    journal
        .append(&scope, warning.into(), Refs::default())
        .or_fail()?;
    Ok(())
}

fn verification_patterns(config: &Config) -> Vec<Vec<String>> {
    let words = |pattern: &str| pattern.split_whitespace().map(str::to_owned).collect();
    config
        .verification
        .commands
        .iter()
        .map(|set| words(&set.value))
        .collect()
}

/// All tools, registered.
pub(super) fn registry(
    app: &App,
    settings: CommandSettings,
) -> Result<(Registry, Arc<Processes>), Failure> {
    let home = app.home();
    let roots = Arc::new(Roots::open(app.project.root(), Some(&home)).or_usage()?);
    let local = local_tools(roots, settings);
    let mut registry = Registry::default();
    for tool in local.tools {
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
