//! Whether the project's tree holds changes that are in no commit.
//!
//! Git is asked inside the sandbox, in a project that can be neither written nor executed: what the
//! repository configures (filters, monitors, promised objects) are programs, and looking must not run them
//! anywhere else.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use agent_sandbox::{
    Command, Execution, ExitStatus, Policy, ReadAccess, Sandbox, Stream, WriteAccess, environment,
};

use crate::Runtime;
use crate::scratch::Scratch;

/// A tree that takes git longer is not known.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct WorkTree {
    root: PathBuf,
    home: PathBuf,
    state: PathBuf,
    environment: Vec<(OsString, OsString)>,
    sandbox: OnceLock<Arc<Sandbox>>,
}

impl WorkTree {
    /// The tree of the project, asked about in a sandbox of its own.
    pub(crate) fn new(runtime: &Runtime) -> Self {
        let host: Vec<(OsString, OsString)> = runtime
            .host
            .environment
            .variables()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self {
            root: runtime.project.root().to_path_buf(),
            home: runtime.home(),
            state: runtime.host.directories.state.clone(),
            environment: environment::build(&host, &[], &[]),
            sandbox: OnceLock::new(),
        }
    }

    /// The same in the sandbox of a session.
    pub(crate) fn within(runtime: &Runtime, sandbox: Arc<Sandbox>) -> Self {
        Self {
            sandbox: OnceLock::from(sandbox),
            ..Self::new(runtime)
        }
    }

    /// Nothing when there is no repository, and when it cannot be told without running something
    /// that is not confined.
    pub(crate) fn is_dirty(&self) -> Option<bool> {
        if !self.root.join(".git").exists() {
            return None;
        }
        let name = format!("tree-{}", std::process::id());
        let scratch = Scratch::new(&self.state, &name).ok()?;
        let sandbox = self
            .sandbox
            .get_or_init(|| Arc::new(Sandbox::survey(scratch.path())));
        if !sandbox.capabilities().level().may_run_unasked() {
            return None;
        }
        let printed = Arc::new(Mutex::new(false));
        let note = Arc::clone(&printed);
        let sink = move |stream, bytes: &[u8]| {
            if stream == Stream::Stdout && !bytes.is_empty() {
                *note.lock().unwrap_or_else(PoisonError::into_inner) = true;
            }
        };
        let policy = self.policy(scratch.path()).ok()?;
        let running = sandbox.spawn(&policy, Box::new(sink)).ok()?;
        let finished = running.wait(Some(Instant::now() + PATIENCE), None);
        let dirty = *printed.lock().unwrap_or_else(PoisonError::into_inner);
        (finished.status == ExitStatus::Code(0) && finished.killed_by.is_none()).then_some(dirty)
    }

    fn policy(&self, scratch: &Path) -> std::io::Result<Policy> {
        let [session, temporary] = ["session", "tmp"].map(|name| scratch.join(name));
        std::fs::create_dir(&session)?;
        std::fs::create_dir(&temporary)?;
        let command = Command::Program {
            program: "git".into(),
            // Files that the repository's settings leave out would be deleted all the same.
            arguments: ["status", "--porcelain", "-z", "--untracked-files=all"]
                .map(OsString::from)
                .into(),
        };
        let mut policy = Policy::new(&self.root, &session, &temporary, command);
        let project = std::slice::from_ref(&self.root);
        policy.environment = environment::reading(&self.environment, project);
        policy.home = Some(self.home.clone());
        policy.write_access = WriteAccess::ReadOnly;
        policy.read_access = ReadAccess::Needed { opened: Vec::new() };
        policy.execution = Execution::NothingOfTheProject;
        Ok(policy)
    }
}
