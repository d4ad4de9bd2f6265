//! Output of a command while it runs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use agent_sandbox::Sink;
use agent_tool_runtime::policy::{CollectLimits, CollectedOutput, Collector, Stream};
use agent_tool_runtime::{ExecutionContext, JournalError};

/// The output of one command, shared with the thread that receives it.
#[derive(Clone)]
pub(super) struct Output {
    shared: Arc<Mutex<State>>,
}

struct State {
    collector: Option<Collector>,
    /// A copy that can be read while the command runs; background commands have one.
    copy: Option<File>,
    total: u64,
    limit: u64,
    kept: Arc<Kept>,
    trouble: Option<Trouble>,
}

/// Output of all commands of a session together, in bytes.
#[derive(Debug)]
pub(super) struct Kept {
    earlier: OnceLock<u64>,
    now: AtomicU64,
    pub(super) most: u64,
}

impl Kept {
    pub(super) fn new(most: u64) -> Self {
        Self {
            earlier: OnceLock::new(),
            now: AtomicU64::new(0),
            most,
        }
    }

    /// Counts what the session kept before this process, once.
    pub(super) fn count_earlier(&self, session: &Path) {
        let _ = self.earlier.get_or_init(|| {
            let files = std::fs::read_dir(session.join("artifacts"));
            let files = files.into_iter().flatten().flatten();
            let sizes = files.filter_map(|file| Some(file.metadata().ok()?.len()));
            sizes.sum()
        });
    }

    /// Takes another `bytes`; false when that is too much.
    fn has_room_for(&self, bytes: u64) -> bool {
        let earlier = self.earlier.get().copied().unwrap_or_default();
        let now = self.now.fetch_add(bytes, Ordering::Relaxed);
        let fits = earlier.saturating_add(now).saturating_add(bytes) <= self.most;
        if !fits {
            self.now.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }
}

/// Reason why output is no longer taken.
#[derive(Debug)]
pub(super) enum Trouble {
    /// There was more than the limit.
    Limit,
    /// There was more than the session keeps of all commands together.
    Total,
    /// It could not be written.
    Write(JournalError),
}

/// Progress of an output.
pub(super) struct Progress {
    pub(super) bytes: u64,
    pub(super) lines: u64,
    pub(super) last_line: String,
    /// The end of what came since it was last told.
    pub(super) news: Vec<u8>,
}

impl Output {
    pub(super) fn start(
        context: &ExecutionContext,
        limit: u64,
        kept: Arc<Kept>,
        copy: Option<File>,
    ) -> Result<Self, JournalError> {
        let state = State {
            collector: Some(Collector::start(context, CollectLimits::default())?),
            copy,
            total: 0,
            limit,
            kept,
            trouble: None,
        };
        Ok(Self {
            shared: Arc::new(Mutex::new(state)),
        })
    }

    /// Sink that the sandbox calls with every piece. Once there is trouble, the rest is dropped.
    pub(super) fn sink(&self) -> Sink {
        let output = self.clone();
        Box::new(move |stream, bytes| output.state().take(stream, bytes))
    }

    /// Progress of the output since its first `told` bytes.
    pub(super) fn progress(&self, told: u64) -> Progress {
        let state = self.state();
        let collector = state.collector.as_ref();
        Progress {
            bytes: state.total,
            lines: collector.map_or(0, Collector::lines),
            last_line: collector.map(Collector::last_line).unwrap_or_default(),
            news: collector
                .map(|collector| collector.tail(state.total.saturating_sub(told)))
                .unwrap_or_default(),
        }
    }

    /// True if the command has to end because its output cannot be taken.
    pub(super) fn is_troubled(&self) -> bool {
        self.state().trouble.is_some()
    }

    pub(super) fn take_trouble(&self) -> Option<Trouble> {
        self.state().trouble.take()
    }

    /// Completes the artifact; the second call gives nothing.
    pub(super) fn finish(&self) -> Result<Option<CollectedOutput>, JournalError> {
        let collector = self.state().collector.take();
        collector.map(Collector::finish).transpose()
    }

    /// A part of the copy.
    pub(super) fn read(&self, offset: u64, limit: usize) -> std::io::Result<Vec<u8>> {
        let state = self.state();
        let left = state.total.saturating_sub(offset);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(limit);
        let mut bytes = vec![0; length];
        match &state.copy {
            Some(copy) => copy.read_exact_at(&mut bytes, offset)?,
            None => bytes.clear(),
        }
        Ok(bytes)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, stream: agent_sandbox::Stream, bytes: &[u8]) {
        if self.trouble.is_some() {
            return;
        }
        if self.total + bytes.len() as u64 > self.limit {
            self.trouble = Some(Trouble::Limit);
            return;
        }
        if !self.kept.has_room_for(bytes.len() as u64) {
            self.trouble = Some(Trouble::Total);
            return;
        }
        let stream = match stream {
            agent_sandbox::Stream::Stdout => Stream::Stdout,
            agent_sandbox::Stream::Stderr => Stream::Stderr,
        };
        if let Some(collector) = &mut self.collector
            && let Err(error) = collector.push(stream, bytes)
        {
            self.trouble = Some(Trouble::Write(error));
            return;
        }
        if let Some(copy) = &self.copy
            && let Err(error) = copy.write_all_at(bytes, self.total)
        {
            self.trouble = Some(Trouble::Write(JournalError::new(
                "keep the output of a command",
                error,
            )));
            return;
        }
        self.total += bytes.len() as u64;
    }
}
