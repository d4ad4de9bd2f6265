//! Commands that go on after their call: a bounded list, each with a thread that reports its end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agent_protocol::command::ProcessQuery;
use agent_protocol::id::{InvocationId, ProcessId};
use agent_protocol::payload::ArtifactRef;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::process::TerminatedBy;
use agent_protocol::payload::tool::ReadMore;
use agent_protocol::reply::ProcessView;
use agent_protocol::{Refs, Scope};
use agent_sandbox::{ExitStatus, Finished, KilledBy, Running};
use agent_tool_runtime::policy::piece::{hidden_in, masked_piece};
use agent_tool_runtime::{Body, Confinement, Journal, Omission, RawResult};
use serde_json::json;

use super::ending::{Stopped, record, status, told};
use super::launch::Private;
use super::output::Output;
use super::refusals;
use super::scan::{AfterWalk, ChangeTracker, Changes, Followed};
use crate::search::denied_globs;

/// Commands that may run at the same time.
const MAX_RUNNING: usize = 16;
/// Ended ones whose output can still be read.
const MAX_KEPT: usize = 64;
/// The most bytes that are shown of the end of an output.
const MAX_TAIL: usize = 64 << 10;

/// All background commands of a session. Dropping it ends them.
#[derive(Default)]
pub struct Processes {
    all: Mutex<BTreeMap<String, Arc<Background>>>,
    /// Those of an earlier run whose end nobody saw.
    lost: Mutex<BTreeSet<String>>,
}

/// A part of an output.
pub(crate) struct Part {
    pub(crate) from: u64,
    /// Offset of the next part.
    pub(crate) next: u64,
    /// Its bytes, masked as the whole would be.
    pub(crate) shown: Vec<u8>,
}

/// A command that runs and is to go on without its call.
pub(super) struct Started {
    pub(super) process_id: ProcessId,
    /// Its first words, escaped.
    pub(super) command: String,
    pub(super) running: Running,
    pub(super) output: Output,
    /// Its own temporary directory, removed with it.
    pub(super) _private: Private,
    /// Its working directory at its end when it fails and when it succeeds, if that is known.
    pub(super) cwd_after: [Option<PathBuf>; 2],
    /// The project as it was at the start and at the end; nothing when the command cannot write it.
    pub(super) followed: Option<(Arc<Followed>, Arc<AfterWalk>)>,
    pub(super) tracker: Arc<ChangeTracker>,
    pub(super) root: PathBuf,
    pub(super) confinement: Confinement,
    pub(super) invocation_id: InvocationId,
}

/// One background command.
pub(crate) struct Background {
    started: Started,
    ended: Mutex<Option<Ended>>,
    ended_changed: Condvar,
    /// Offset of the next reading without one.
    cursor: AtomicU64,
    watcher: Mutex<Option<JoinHandle<()>>>,
    /// The first request to end it.
    stopped: Mutex<Option<Stopped>>,
    since: Instant,
}

/// End of a background command.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// All of its output, complete.
    pub(crate) output: Option<ArtifactRef>,
    /// Refusals of the sandbox, in sentences.
    pub(crate) refusals: Vec<String>,
    pub(crate) ran_for: Duration,
}

impl Ended {
    /// The end of `it`, as a sentence.
    pub(crate) fn words(&self, it: &str) -> String {
        match (self.exit_code, self.signal) {
            (Some(code), _) => format!("{it} ended with exit code {code}."),
            (_, Some(signal)) => format!("{it} was ended by signal {signal}."),
            _ => format!("{it} ended."),
        }
    }
}

impl Processes {
    /// Takes note of commands that were lost with an earlier run, as the log shows them.
    pub fn remember_lost(&self, lost: impl IntoIterator<Item = ProcessId>) {
        let lost = lost.into_iter().map(|id| id.as_str().to_owned());
        self.lost
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(lost);
    }

    pub(crate) fn is_lost(&self, process_id: &str) -> bool {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.contains(process_id)
    }

    /// The commands that run now: each with its id and its first words, the oldest first.
    #[must_use]
    pub fn running(&self) -> Vec<(ProcessId, String)> {
        let all = self.all();
        let running = all.values().filter(|process| process.ended().is_none());
        running
            .map(|process| {
                (
                    process.process_id().clone(),
                    process.started.command.clone(),
                )
            })
            .collect()
    }

    /// The commands of this run as they are now, the oldest first.
    #[must_use]
    pub fn views(&self, query: &ProcessQuery, journal: &dyn Journal) -> Vec<ProcessView> {
        let all: Vec<Arc<Background>> = self.all().values().cloned().collect();
        let wanted = |process: &&Arc<Background>| {
            let id = query.process_id.as_ref();
            id.is_none_or(|id| id == process.process_id())
        };
        let tail_bytes = usize::try_from(query.tail_bytes).unwrap_or(MAX_TAIL);
        let wanted = all.iter().filter(wanted);
        wanted
            .map(|process| process.view(tail_bytes.min(MAX_TAIL), journal))
            .collect()
    }

    /// The reason why no further command may be started in the background.
    pub(super) fn refusal(&self) -> Option<String> {
        let running = self
            .all()
            .values()
            .filter(|process| process.ended().is_none())
            .count();
        (running >= MAX_RUNNING)
            .then(|| format!("{running} background commands are running, which is the limit"))
    }

    /// Takes a started command over.
    pub(super) fn adopt(
        &self,
        started: Started,
        journal: Arc<dyn Journal>,
        scope: Scope,
    ) -> std::io::Result<Arc<Background>> {
        let process_id = started.process_id.clone();
        let process = Arc::new(Background {
            started,
            ended: Mutex::default(),
            ended_changed: Condvar::new(),
            cursor: AtomicU64::new(0),
            watcher: Mutex::default(),
            stopped: Mutex::default(),
            since: Instant::now(),
        });
        let watched = Arc::clone(&process);
        let watcher = std::thread::Builder::new()
            .name("background command".to_owned())
            .spawn(move || watched.watch(&*journal, &scope))?;
        *process
            .watcher
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(watcher);
        let mut all = self.all();
        all.insert(process_id.as_str().to_owned(), Arc::clone(&process));
        while all.len() > MAX_KEPT {
            // Ids sort by time, so the first ended one is the oldest.
            let Some(oldest) = all.iter().find(|(_, process)| process.ended().is_some()) else {
                break;
            };
            let oldest = oldest.0.clone();
            all.remove(&oldest);
        }
        Ok(process)
    }

    pub(crate) fn get(&self, process_id: &str) -> Option<Arc<Background>> {
        self.all().get(process_id).cloned()
    }

    /// The ids known here, newest last.
    pub(crate) fn known(&self) -> Vec<String> {
        self.all().keys().cloned().collect()
    }

    /// Asks a running command to end; false when no such command runs. Its end is recorded as any
    /// other.
    pub fn terminate(&self, process_id: &ProcessId) -> bool {
        let process = self.get(process_id.as_str());
        let Some(process) = process.filter(|process| process.ended().is_none()) else {
            return false;
        };
        process.kill(Stopped::new(TerminatedBy::User, "the user ended it"));
        true
    }

    /// Ends all commands and waits until each has reported its end.
    pub fn shutdown(&self) {
        let all: Vec<Arc<Background>> = std::mem::take(&mut *self.all()).into_values().collect();
        for process in &all {
            if process.ended().is_none() {
                process.started.running.terminate(KilledBy::SessionEnd);
            }
        }
        for process in all {
            let watcher = process
                .watcher
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(watcher) = watcher {
                // A watcher that panicked has reported nothing more to wait for.
                let _ = watcher.join();
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Background>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Background {
    fn watch(&self, journal: &dyn Journal, scope: &Scope) {
        let finished: Finished = self.started.running.wait(None, None);
        let output = self.started.output.finish().ok().flatten();
        let mut scope = scope.clone();
        scope.process_id = Some(self.started.process_id.clone());
        let ended = super::ending::Ended {
            finished: &finished,
            output: output.as_ref(),
            cwd_after: {
                let succeeded = finished.status == ExitStatus::Code(0);
                self.started.cwd_after[usize::from(succeeded)].clone()
            },
            changes: self.changes(&finished, journal, &scope),
            stopped: self
                .stopped
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        };
        if let Some(cause) = (ended.stopped.as_ref()).and_then(|stopped| stopped.cause.clone()) {
            scope.causation_id = Some(cause);
        }
        let mut refs = Refs::default();
        for artifact in ended.changes.iter().flat_map(|changes| &changes.artifacts) {
            refs.add("artifact", &artifact.artifact_id);
        }
        // A log that cannot be written has stopped the session already; there is nobody to tell.
        let _ = record(
            &|payload| journal.append(&scope, payload, refs.clone()).map(|_| ()),
            &self.started.process_id,
            &ended,
        );
        let _ = journal.sync();
        let (exit_code, signal) = status(&finished);
        let output = output.and_then(|output| output.artifact);
        *self.ended_guard() = Some(Ended {
            exit_code,
            signal,
            output,
            refusals: told(&finished).take(8).map(refusals::words).collect(),
            ran_for: self.since.elapsed(),
        });
        self.ended_changed.notify_all();
    }

    /// Changes that the command made in the project while it ran.
    fn changes(
        &self,
        finished: &Finished,
        journal: &dyn Journal,
        scope: &Scope,
    ) -> Option<Changes> {
        let started = &self.started;
        let (followed, after) = started.followed.as_ref()?;
        let keep = |image: &[u8]| {
            let binary = "application/octet-stream";
            let producer = started.invocation_id.as_str();
            journal.put_artifact(scope, ArtifactKind::Before, binary, image, producer)
        };
        let (tracker, root) = (&started.tracker, &started.root);
        let denied = denied_globs(&started.confinement, root);
        let hides = |path: &[u8]| denied.hides(path);
        let walked = after.take(finished);
        let changes = tracker.changes_of(followed, root, walked, &hides, &keep);
        changes.ok()
    }

    pub(crate) fn process_id(&self) -> &ProcessId {
        &self.started.process_id
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.ended_guard().clone()
    }

    /// Waits for the end, at most this long.
    pub(crate) fn wait(&self, patience: Duration, stopped: &dyn Fn() -> bool) -> Option<Ended> {
        let until = Instant::now() + patience;
        let mut ended = self.ended_guard();
        while ended.is_none() && !stopped() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let step = left.min(Duration::from_millis(100));
            ended = self
                .ended_changed
                .wait_timeout(ended, step)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        ended.clone()
    }

    /// Asks the command to end, on the word of `stopped`.
    pub(crate) fn kill(&self, stopped: Stopped) {
        let mut first = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(stopped);
        drop(first);
        self.started.running.terminate(KilledBy::Cancelled);
    }

    pub(crate) fn total(&self) -> u64 {
        self.started.output.progress(u64::MAX).bytes
    }

    fn view(&self, tail_bytes: usize, journal: &dyn Journal) -> ProcessView {
        let ended = self.ended();
        let bytes = self.total();
        let from = bytes.saturating_sub(tail_bytes as u64);
        // What cannot be read is shown as nothing: its size says that there is something.
        let tail = self.piece(from, tail_bytes, journal);
        let tail = tail.map(|part| part.shown).unwrap_or_default();
        let ran_for = (ended.as_ref()).map_or_else(|| self.since.elapsed(), |ended| ended.ran_for);
        ProcessView {
            process_id: self.process_id().clone(),
            command: self.started.command.clone(),
            running: ended.is_none(),
            ended: ended.map(|ended| ended.words("it")),
            runtime_ms: u64::try_from(ran_for.as_millis()).unwrap_or(u64::MAX),
            bytes,
            tail: String::from_utf8_lossy(&tail).into_owned(),
        }
    }

    /// Output from `offset`, or from where the last reading ended.
    pub(crate) fn read(
        &self,
        offset: Option<u64>,
        limit: usize,
        journal: &dyn Journal,
    ) -> std::io::Result<Part> {
        let from = offset.unwrap_or_else(|| self.cursor.load(Ordering::Relaxed));
        let part = self.piece(from, limit, journal)?;
        self.cursor.store(part.next, Ordering::Relaxed);
        Ok(part)
    }

    fn piece(&self, from: u64, limit: usize, journal: &dyn Journal) -> std::io::Result<Part> {
        let output = &self.started.output;
        let bytes = output.read(from, limit)?;
        let next = from + bytes.len() as u64;
        let secrets = |bytes: &[u8]| journal.secrets(bytes);
        let hidden = hidden_in(from..next, secrets, |range| {
            let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            output.read(range.start, length).unwrap_or_default()
        });
        let shown = masked_piece(&bytes, from, &hidden);
        Ok(Part { from, next, shown })
    }

    /// Adds the next `limit` bytes of output to a result, and how to see what follows them.
    pub(crate) fn show_next(&self, limit: usize, journal: &dyn Journal, result: &mut RawResult) {
        let Ok(part) = self.read(None, limit, journal) else {
            return;
        };
        result.omission = self.omitted_from(part.next);
        if !part.shown.is_empty() {
            let source = format!("output of {}", self.process_id());
            result.bodies.push(Body::text(source, part.shown));
        }
    }

    /// The output from a byte on, as an omission with the call that shows it.
    pub(crate) fn omitted_from(&self, next: u64) -> Option<Omission> {
        let bytes = self.total().saturating_sub(next);
        (bytes > 0).then(|| Omission {
            bytes,
            read_more: Some(ReadMore {
                tool: "process_output".to_owned(),
                input_hint: json!({"process_id": self.process_id().as_str(), "offset": next}),
            }),
        })
    }

    fn ended_guard(&self) -> MutexGuard<'_, Option<Ended>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
