//! A stage for tests: a throw-away project, a real session beside it, and an authority that lets
//! everything through.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_engine::SessionJournal;
use agent_evidence::audit::AuditReport;
use agent_local_tools::{CommandSettings, LocalTools, Roots, ScanLimits, local_tools};
use agent_log::{Holder, LogReader, Redactor, SessionEnv, SessionStore, SessionWriter};
use agent_protocol::id::IdMint;
use agent_protocol::payload::conversation::SessionCreated;
use agent_protocol::payload::permission::{DecisionSource, Effect, PermissionEvaluated};
use agent_protocol::payload::tool::{CatalogPolicy, ToolObservation};
use agent_protocol::status::Mode;
use agent_protocol::{Clock, Event, Scope, Timestamp};
use agent_tool_runtime::{
    Answer, Authority, Cancel, Confinement, Decision, Journal, PermissionRequest, Pipeline,
    PipelineParts, Question, Registry, Settings, ToolDefinition, ToolIntent, Workspace,
};
use serde_json::Value;

pub(crate) struct Stage {
    pipeline: Pipeline,
    writer: SessionWriter,
    journal: Arc<dyn Journal>,
    pub(crate) tools: LocalTools,
    project: PathBuf,
    // Last, so that everything that uses it is gone before.
    _directory: tempfile::TempDir,
}

/// Allows everything, with the reach a test asks for.
struct Open {
    confinement: Confinement,
}

impl Authority for Open {
    fn mode(&self) -> Mode {
        Mode::Full
    }

    fn decide(&self, request: &PermissionRequest<'_>) -> Decision {
        Decision {
            evaluated: PermissionEvaluated {
                decision: Effect::Allow,
                action_class: request.semantics.action_class,
                decision_source: DecisionSource::Rule,
                reason: "tests may do everything".into(),
                mode: Mode::Full,
                ..PermissionEvaluated::default()
            },
            confinement: self.confinement.clone(),
            ..Decision::default()
        }
    }

    fn ask(&self, _: &Question, _: &Cancel) -> Answer {
        Answer::Unavailable
    }

    fn forecast(&self, _: &ToolDefinition) -> CatalogPolicy {
        CatalogPolicy::Allowed
    }
}

struct TestClock;

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        Timestamp::from_unix_millis(i64::try_from(now.as_millis()).unwrap())
    }
}

/// What differs from one stage to another.
pub(crate) struct Setup {
    pub(crate) confinement: Confinement,
    pub(crate) scan: ScanLimits,
    pub(crate) max_output_bytes: u64,
    pub(crate) sandbox: agent_sandbox::Mode,
    pub(crate) grace: Duration,
    /// Instead of what this machine has.
    pub(crate) capabilities: Option<agent_sandbox::Capabilities>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            confinement: Confinement {
                profile: "test".into(),
                project_writable: true,
                ..Confinement::default()
            },
            scan: ScanLimits::default(),
            max_output_bytes: 1 << 30,
            // What holds commands is the business of the sandbox's own tests.
            sandbox: agent_sandbox::Mode::Off {
                reason: "tests of the tools".into(),
            },
            grace: Duration::from_secs(10),
            capabilities: None,
        }
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(Setup::default())
    }

    pub(crate) fn with(setup: Setup) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(directory.path()).unwrap();
        let (project, home, temporary) =
            (base.join("project"), base.join("home"), base.join("tmp"));
        for folder in [&project, &home, &temporary] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(base.join("outside.txt"), "outside\n").unwrap();
        let (env, mint) = session_env(7);
        let store = SessionStore::of_project(&home);
        let writer = store.create(SessionCreated::default(), env).unwrap();
        let journal: Arc<dyn Journal> = Arc::new(SessionJournal::new(writer.clone(), mint));
        let roots = Arc::new(Roots::open(&project, Some(&home)).unwrap());
        let tools = local_tools(
            roots,
            CommandSettings {
                sandbox: Arc::new(agent_sandbox::Sandbox::of(
                    setup
                        .capabilities
                        .unwrap_or_else(|| capabilities(&temporary)),
                )),
                mode: setup.sandbox,
                environment: agent_sandbox::environment::build(&[], &[], &[]),
                home: Some(home.clone()),
                hidden: Vec::new(),
                readable: Vec::new(),
                services: Vec::new(),
                protected: Vec::new(),
                writable: Vec::new(),
                limits: agent_sandbox::Limits::default(),
                session_dir: writer.log_path().parent().unwrap().to_owned(),
                temporary,
                scan: setup.scan,
                max_output_bytes: setup.max_output_bytes,
                max_total_output_bytes: 4 * setup.max_output_bytes,
                timeout: Duration::from_secs(120),
                max_timeout: Duration::from_secs(600),
            },
        );
        let mut registry = Registry::default();
        for tool in &tools.tools {
            registry.register(Arc::clone(tool)).unwrap();
        }
        let pipeline = Pipeline::new(PipelineParts {
            registry: Arc::new(registry),
            journal: Arc::clone(&journal),
            authority: Arc::new(Open {
                confinement: setup.confinement,
            }),
            workspace: Workspace {
                root: project.clone(),
                extra_roots: Vec::new(),
            },
            baselines: Arc::default(),
            settings: Settings {
                grace: setup.grace,
                ..Settings::default()
            },
        });
        Self {
            pipeline,
            writer,
            journal,
            tools,
            project,
            _directory: directory,
        }
    }

    pub(crate) fn project(&self) -> &Path {
        &self.project
    }

    /// Makes a file with all directories above it.
    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.project.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.project.join(name)).unwrap()
    }

    /// One call through the pipeline.
    pub(crate) fn call(&self, tool: &str, input: &Value) -> ToolObservation {
        self.call_with(&Cancel::new(), ToolIntent::new(tool, input))
    }

    pub(crate) fn call_with(&self, cancel: &Cancel, intent: ToolIntent) -> ToolObservation {
        let scope = Scope {
            turn_id: Some(self.journal.ids().mint()),
            step_id: Some(self.journal.ids().mint()),
            ..Scope::default()
        };
        let report = self.pipeline.run(scope, cancel, [intent]).unwrap();
        report.outcomes[0].observation().unwrap().fact().clone()
    }

    /// Audit of the log; the error lists the findings.
    pub(crate) fn check_log(&self) -> Result<(), String> {
        let found = self.audit()?;
        match found.is_ok() {
            true => Ok(()),
            false => Err(format!("the audit found {:?}", found.findings)),
        }
    }

    pub(crate) fn audit(&self) -> Result<AuditReport, String> {
        let home = self.project.parent().unwrap().join("home");
        let session = SessionStore::of_project(&home)
            .resolve(self.writer.session_id().as_str())
            .map_err(|error| error.to_string())?;
        agent_evidence::audit::audit(&session, None).map_err(|error| error.to_string())
    }

    /// The log as it is on disk.
    pub(crate) fn events(&self) -> Vec<Event> {
        let file = std::fs::File::open(self.writer.log_path()).unwrap();
        let path = self.writer.log_path().to_owned();
        LogReader::new(file, self.writer.session_id().clone(), path)
            .map(|item| item.unwrap().event.unwrap())
            .collect()
    }

    /// What another program finds in the log and adds to it, were this one gone now.
    pub(crate) fn after_a_crash(&self) -> Vec<Event> {
        let home = tempfile::tempdir().unwrap();
        let store = SessionStore::of_project(home.path());
        let copy = home
            .path()
            .join(".agent/sessions")
            .join(self.writer.session_id().as_str());
        std::fs::create_dir_all(&copy).unwrap();
        let log = self.writer.log_path();
        std::fs::copy(log, copy.join(log.file_name().unwrap())).unwrap();
        let found = store.resolve(self.writer.session_id().as_str()).unwrap();
        drop(found.open_writer(session_env(8).0).unwrap());
        let events = found.reader().unwrap();
        events.filter_map(|item| item.unwrap().event).collect()
    }

    pub(crate) fn artifact(&self, id: &agent_protocol::id::ArtifactId) -> Vec<u8> {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut self.journal.open_artifact(id).unwrap(), &mut bytes)
            .unwrap();
        bytes
    }

    /// The whole text the model gets.
    pub(crate) fn model_text(&self, observation: &ToolObservation) -> String {
        match (&observation.model_text, &observation.model_text_ref) {
            (Some(text), _) => text.clone(),
            (None, Some(id)) => String::from_utf8(self.artifact(id)).unwrap(),
            (None, None) => String::new(),
        }
    }
}

fn session_env(seed: u64) -> (SessionEnv, Arc<IdMint>) {
    let clock: Arc<dyn Clock> = Arc::new(TestClock);
    let mint = Arc::new(IdMint::new(Arc::clone(&clock), seed));
    let env = SessionEnv {
        clock,
        mint: Arc::clone(&mint),
        runtime_id: mint.mint(),
        redactor: Arc::new(Redactor::new(Default::default(), b"key").unwrap()),
        anchors: None,
        holder: Holder::default(),
    };
    (env, mint)
}

/// Found out once: trying takes longer than most tests.
fn capabilities(scratch: &Path) -> agent_sandbox::Capabilities {
    static FOUND: std::sync::OnceLock<agent_sandbox::Capabilities> = std::sync::OnceLock::new();
    FOUND.get_or_init(|| agent_sandbox::probe(scratch)).clone()
}
