//! What git says about the project's tree: if it holds changes that are in no commit, and which.
//!
//! Git is asked inside the sandbox, in a project that can be neither written nor executed: what the
//! repository configures (filters, monitors, promised objects) are programs, and looking must not run them
//! anywhere else.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use agent_sandbox::{
    Command, Execution, ExitStatus, Policy, ReadAccess, Sandbox, Stream, WriteAccess, environment,
};

use crate::Runtime;
use crate::scratch::Scratch;

/// A tree that takes git longer is not known.
const PATIENCE: Duration = Duration::from_secs(20);

/// More than a person or a model reads.
const MOST_BYTES: usize = 16 << 20;

/// Tells the questions of one process apart.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// Reason why git could not be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    #[error("there is no git repository in `{}`", .0.display())]
    NoRepository(PathBuf),
    #[error("git runs in the sandbox only, and this machine cannot enforce it")]
    NotConfined,
    #[error("git could not be started")]
    NotStarted,
    #[error("git took longer than {} seconds", PATIENCE.as_secs())]
    TooSlow,
    #[error("git printed more than {}", agent_text::words::bytes(MOST_BYTES as u64))]
    TooLong,
    #[error("git failed: {0}")]
    Failed(String),
}

/// The line that says what went wrong; how git is used may stand around it.
fn complaint(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let said = || text.lines().filter(|line| !line.trim().is_empty());
    let named = said().find(|line| ["fatal:", "error:"].iter().any(|it| line.starts_with(it)));
    agent_text::brief(
        named.or_else(|| said().next()).unwrap_or("it said nothing"),
        300,
    )
}

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
        // Files that the repository's settings leave out would be deleted all the same.
        let status = ["status", "--porcelain", "-z", "--untracked-files=all"];
        Some(!self.ask(&status).ok()?.is_empty())
    }

    /// Output of git for these arguments, which have to be for reading only.
    ///
    /// # Errors
    /// When there is no repository, git cannot be confined, or it fails.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Result<Vec<u8>, GitError> {
        if !self.root.join(".git").exists() {
            return Err(GitError::NoRepository(self.root.clone()));
        }
        let count = ASKED.fetch_add(1, Ordering::Relaxed);
        let name = format!("tree-{}-{count}", std::process::id());
        let scratch = Scratch::new(&self.state, &name).map_err(|_| GitError::NotStarted)?;
        let sandbox = self
            .sandbox
            .get_or_init(|| Arc::new(Sandbox::survey(scratch.path())));
        if !sandbox.capabilities().level().may_run_unasked() {
            return Err(GitError::NotConfined);
        }
        let printed: Arc<Mutex<[Vec<u8>; 2]>> = Arc::default();
        let kept = Arc::clone(&printed);
        let sink = move |stream, bytes: &[u8]| {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = &mut kept[usize::from(stream != Stream::Stdout)];
            // One byte past the limit tells that there was more.
            let room = (MOST_BYTES + 1).saturating_sub(kept.len());
            kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        };
        let not_started = |_| GitError::NotStarted;
        let policy = self
            .policy(scratch.path(), arguments)
            .map_err(not_started)?;
        let running = sandbox
            .spawn(&policy, Box::new(sink))
            .map_err(|_| GitError::NotStarted)?;
        let finished = running.wait(Some(Instant::now() + PATIENCE), None);
        let [out, errors] =
            std::mem::take(&mut *printed.lock().unwrap_or_else(PoisonError::into_inner));
        if finished.killed_by.is_some() {
            return Err(GitError::TooSlow);
        }
        if out.len() > MOST_BYTES {
            return Err(GitError::TooLong);
        }
        match finished.status {
            ExitStatus::Code(0) => Ok(out),
            _ => Err(GitError::Failed(complaint(&errors))),
        }
    }

    fn policy(&self, scratch: &Path, arguments: &[&str]) -> std::io::Result<Policy> {
        let [session, temporary] = ["session", "tmp"].map(|name| scratch.join(name));
        std::fs::create_dir(&session)?;
        std::fs::create_dir(&temporary)?;
        let command = Command::Program {
            program: "git".into(),
            arguments: arguments.iter().map(OsString::from).collect(),
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
