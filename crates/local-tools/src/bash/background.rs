//! Commands that go on after their call: a bounded list, each with a thread that reports its end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agent_protocol::id::{ArtifactId, ProcessId};
use agent_protocol::{Refs, Scope};
use agent_sandbox::{Finished, KilledBy, Running};
use agent_tool_runtime::Journal;

use super::ending::{record, status};
use super::output::Output;

/// Commands that may run at the same time.
const MAX_RUNNING: usize = 16;
/// Ended ones whose output can still be read.
const MAX_KEPT: usize = 64;

/// All background commands of a session. Dropping it ends them.
#[derive(Default)]
pub struct Processes {
    all: Mutex<BTreeMap<String, Arc<Background>>>,
}

/// One background command.
pub(crate) struct Background {
    process_id: ProcessId,
    running: Running,
    output: Output,
    ended: Mutex<Option<Ended>>,
    ended_changed: Condvar,
    /// Where the next reading without an offset begins.
    cursor: AtomicU64,
    watcher: Mutex<Option<JoinHandle<()>>>,
    _private: tempfile::TempDir,
}

/// How a background command ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) output: Option<ArtifactId>,
}

impl Processes {
    /// Why no further command may be started in the background.
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
        process_id: ProcessId,
        running: Running,
        output: Output,
        private: tempfile::TempDir,
        journal: Arc<dyn Journal>,
        scope: Scope,
    ) -> std::io::Result<Arc<Background>> {
        let process = Arc::new(Background {
            process_id: process_id.clone(),
            running,
            output,
            ended: Mutex::default(),
            ended_changed: Condvar::new(),
            cursor: AtomicU64::new(0),
            watcher: Mutex::default(),
            _private: private,
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

    /// Ends all commands and waits until each has reported its end.
    pub fn shutdown(&self) {
        let all: Vec<Arc<Background>> = std::mem::take(&mut *self.all()).into_values().collect();
        for process in &all {
            if process.ended().is_none() {
                process.running.terminate(KilledBy::SessionEnd);
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
        let finished: Finished = self.running.wait(None, None);
        let output = self.output.finish().ok().flatten();
        let mut scope = scope.clone();
        scope.process_id = Some(self.process_id.clone());
        // A log that cannot be written has stopped the session already; there is nobody to tell.
        let _ = record(
            &|payload| journal.append(&scope, payload, Refs::default()).map(|_| ()),
            &self.process_id,
            &finished,
            output.as_ref(),
        );
        let _ = journal.sync();
        let (exit_code, signal) = status(&finished);
        let output = output
            .and_then(|output| output.artifact)
            .map(|artifact| artifact.artifact_id);
        let ended = Ended {
            exit_code,
            signal,
            output,
        };
        *self.ended_guard() = Some(ended);
        self.ended_changed.notify_all();
    }

    pub(crate) fn process_id(&self) -> &ProcessId {
        &self.process_id
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

    /// Asks the command to end.
    pub(crate) fn kill(&self) {
        self.running.terminate(KilledBy::Cancelled);
    }

    pub(crate) fn total(&self) -> u64 {
        self.output.progress().bytes
    }

    /// Output from `offset`, or from where the last reading ended; gives back where it began.
    pub(crate) fn read(
        &self,
        offset: Option<u64>,
        limit: usize,
    ) -> std::io::Result<(u64, Vec<u8>)> {
        let from = offset.unwrap_or_else(|| self.cursor.load(Ordering::Relaxed));
        let bytes = self.output.read(from, limit)?;
        self.cursor
            .store(from + bytes.len() as u64, Ordering::Relaxed);
        Ok((from, bytes))
    }

    fn ended_guard(&self) -> MutexGuard<'_, Option<Ended>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
