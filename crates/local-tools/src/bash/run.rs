//! One command from its launch to its result.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::id::ProcessId;
use agent_protocol::payload::conversation::{ArtifactKind, RuntimeWarning};
use agent_protocol::payload::process::{
    ProcessFailed, ProcessOutput, ProcessStarted, StreamName, TerminatedBy,
};
use agent_protocol::payload::tool::ToolData;
use agent_protocol::{ActionHappened, Code, Payload, Refs};
use agent_sandbox::{
    Command, Confined, ExitStatus, Finished, KilledBy, Level, NameSearch, Network, Policy, Running,
};
use agent_tool_runtime::policy::CollectedOutput;
use agent_tool_runtime::{
    Body, Cancel, CancelReason, Confinement, ExecutionContext, ExecutionFailure, JournalError,
    ProgressUpdate, RawResult,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::background::Started;
use super::ending::{self, Ended, Stopped, is_certain, note, reason};
use super::git_index;
use super::launch::{
    PROOF_OUTPUT, Private, applied, chain, failure, hidden, hide, mechanism, policy,
};
use super::output::{Output, Trouble};
use super::refusals;
use super::scan::{AfterWalk, Changes, Purpose, Scan};
use super::{BashTool, PreparedCommand};
use crate::search::denied_globs;
use crate::search::walk::Hides;
use agent_text::counted;

/// Interval at which a running command is checked.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};
/// A background command that fails at once is better reported at once.
const EARLY: Duration = Duration::from_millis(400);
/// Most bytes shown of the first output of a background command.
const EARLY_BYTES: usize = 8 << 10;

/// One call in progress.
pub(super) struct Call<'a> {
    pub(super) tool: &'a BashTool,
    pub(super) command: &'a PreparedCommand,
    pub(super) confinement: &'a Confinement,
    pub(super) timeout: Option<Duration>,
    pub(super) context: &'a ExecutionContext,
}

impl Call<'_> {
    pub(super) fn run(&self) -> Result<RawResult, ExecutionFailure> {
        let settings = &self.tool.settings;
        let nothing = |what: &str, error: std::io::Error| {
            ExecutionFailure::new(
                Code::IoError,
                format!("cannot {what}: {error}; nothing was run"),
            )
            .having(ActionHappened::No)
        };
        let private = Private::new(&settings.temporary)
            .map_err(|error| nothing("make a temporary directory", error))?;
        let root = self.tool.roots.root();
        let mut policy = policy(
            settings,
            root,
            &self.command.cwd,
            private.path(),
            Command::Shell(self.command.command.as_bytes().to_vec()),
            self.confinement,
        );
        let before = self.scan(&mut policy).map_err(|error| match error.kind() {
            std::io::ErrorKind::Interrupted => self.cancelled_before_start(),
            _ => nothing("look at the project", error),
        })?;
        let hidden = before
            .as_ref()
            .map_or_else(Vec::new, |scan| hidden(scan, root, self.confinement));
        let masked = refusals::masked(&self.command.command, &self.command.cwd, &hidden);
        hide(&mut policy, settings, hidden);
        let before = before.filter(|_| self.confinement.project_writable);
        let after = before.as_ref().map(|_| {
            let denied = denied_globs(self.confinement, root);
            let (after, walk) = AfterWalk::of(&self.tool.tracker, root.to_owned(), denied);
            policy.walk_after = Some(walk);
            after
        });
        // Needed until the mounts are made.
        let mut _shown = None;
        if self.confinement.by_proof && self.command.command.contains("git") {
            let folder = tempfile::tempdir_in(&settings.temporary);
            let folder = folder.map_err(|error| nothing("make a temporary directory", error))?;
            let copied = git_index::without_changes(root, &policy.hidden, folder.path());
            let copied = copied.map_err(|error| nothing("copy git's index", error))?;
            policy.replaced = copied.into_iter().collect();
            _shown = Some(folder);
        }
        policy.report_pipeline = self.command.ends_in_pipeline;
        self.warn_of_tool()?;
        let process_id: ProcessId = self.context.ids().mint();
        let confined = match settings.sandbox.prepare(&policy) {
            Ok(confined) => confined,
            Err(error) => return Err(self.not_started(&process_id, &error)),
        };
        let sandbox_ref = self.record_sandbox(&process_id, &confined)?;
        let copy = if self.command.background {
            Some(
                tempfile::tempfile_in(&settings.temporary)
                    .map_err(|error| nothing("keep the output", error))?,
            )
        } else {
            None
        };
        let kept = Arc::clone(&self.tool.kept);
        kept.count_earlier(&settings.session_dir);
        let output = Output::start(self.context, self.max_output(), kept, copy)?;
        // From here on something may happen; what is said so far must survive.
        self.context.sync()?;
        let environment: Vec<String> = confined
            .report()
            .map(|report| report.environment_names.clone())
            .unwrap_or_default();
        let running = match confined.start(output.sink()) {
            Ok(running) => running,
            Err(error) => {
                let _ = output.finish();
                return Err(self.not_started(&process_id, &error));
            }
        };
        // As the boundary is, not as it was asked for: a command without one has what we have.
        let network = running.report().network == Network::Host;
        self.record_start(
            &process_id,
            sandbox_ref,
            environment,
            network,
            running.pid(),
        )?;
        if self.command.background {
            return self.leave_running(process_id, running, output, private, before.zip(after));
        }
        let before = before.map(Arc::new);
        if let Some(before) = &before {
            self.tool.tracker.foreground_begins(before);
        }
        let mut finished = self.follow(&process_id, &running, &output);
        if let Ok(finished) = &mut finished {
            finished.violations.extend(masked);
        }
        if finished.is_err() {
            self.tool.tracker.foreground_ends(None);
        }
        self.finish(
            &process_id,
            &running,
            &finished?,
            &output,
            before.as_deref().zip(after.as_deref()),
        )
    }

    fn max_output(&self) -> u64 {
        let set = self.tool.settings.max_output_bytes;
        match self.confinement.by_proof {
            true => set.min(PROOF_OUTPUT),
            false => set,
        }
    }

    /// Walks through the project for images, hidden paths and protected names at once, unless the command cannot
    /// write it and nothing is hidden from it.
    fn scan(&self, policy: &mut Policy) -> std::io::Result<Option<Scan>> {
        let root = self.tool.roots.root();
        let purpose = match self.confinement {
            reach if reach.project_writable => Purpose::Before,
            reach if !reach.hides_something() => return Ok(None),
            _ => Purpose::Denied,
        };
        let denied = denied_globs(self.confinement, root);
        let hides = |path: &[u8]| denied.hides(path);
        let some: Hides<'_> = &hides;
        let some = self.confinement.hides_something().then_some(some);
        let names = match purpose {
            Purpose::Before => Some(NameSearch::before(policy)?),
            _ => None,
        };
        let cancel = self.context.cancel();
        let tracker = &self.tool.tracker;
        let scan = tracker.scan(root, cancel, purpose, some, names.as_ref())?;
        policy.found_names = names.map(NameSearch::finish);
        Ok(Some(scan))
    }

    fn cancelled_before_start(&self) -> ExecutionFailure {
        let code = match self.context.cancel().reason() {
            Some(CancelReason::Timeout) => Code::Timeout,
            _ => Code::Cancelled,
        };
        let message = "the call was cancelled before its command was started; nothing was run";
        ExecutionFailure::new(code, message).having(ActionHappened::No)
    }

    fn warn_of_tool(&self) -> Result<(), JournalError> {
        let Some(tool) = self.command.tool_hint else {
            return Ok(());
        };
        let warning = RuntimeWarning {
            code: "narrow_tool_available".to_owned(),
            message: format!("a command was run for what the tool `{tool}` does"),
            evidence_refs: Vec::new(),
        };
        let recorded = self.context.emit_with(None, warning, Refs::default());
        recorded.map(|_| ())
    }

    fn not_started(
        &self,
        process_id: &ProcessId,
        error: &agent_sandbox::LaunchError,
    ) -> ExecutionFailure {
        let (code, category) = failure(error);
        let message = chain(error);
        let recorded = self.context.emit_with(
            Some(process_id),
            ProcessFailed {
                process_id: Some(process_id.clone()),
                category,
                code: Some(code),
                message: message.clone(),
            },
            Refs::default(),
        );
        match recorded {
            Ok(_) => ExecutionFailure::new(code, message).having(ActionHappened::No),
            Err(error) => ExecutionFailure::from(error).having(ActionHappened::No),
        }
    }

    fn record_sandbox(
        &self,
        process_id: &ProcessId,
        confined: &Confined,
    ) -> Result<String, ExecutionFailure> {
        let report = confined.report().ok_or_else(|| {
            ExecutionFailure::new(
                Code::InternalError,
                "the sandbox has no report; nothing was run",
            )
            .having(ActionHappened::No)
        })?;
        let timeout_ms = self
            .timeout
            .map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        let secrets = self.tool.settings.shown_credentials(self.confinement);
        let fact = applied(report, &self.confinement.profile, timeout_ms, secrets);
        let recorded = self
            .context
            .emit_with(Some(process_id), fact, Refs::default())?;
        Ok(recorded.event_id.to_string())
    }

    fn record_start(
        &self,
        process_id: &ProcessId,
        sandbox_ref: String,
        env_keys: Vec<String>,
        network: bool,
        pid: u32,
    ) -> Result<(), JournalError> {
        let fact = ProcessStarted {
            process_id: process_id.clone(),
            command_summary: agent_text::visible_excerpt(&self.command.command, 200),
            argv0: "bash".to_owned(),
            cwd: self.command.cwd.display().to_string(),
            sandbox_ref,
            tty: false,
            env_keys,
            network,
            os_pid: Some(pid),
            background: self.command.background,
        };
        self.context
            .emit_with(Some(process_id), fact, Refs::default())
            .map(|_| ())
    }

    /// Waits for the end, reports progress, and passes a cancellation on.
    fn follow(
        &self,
        process_id: &ProcessId,
        running: &Running,
        output: &Output,
    ) -> Result<Finished, ExecutionFailure> {
        let cancel: OwnedFd = self.context.cancel().descriptor().map_err(|error| {
            ExecutionFailure::new(
                Code::IoError,
                format!("cannot watch for cancellation: {error}"),
            )
        })?;
        let mut asked = false;
        let mut told = 0;
        loop {
            let done = running.done();
            let mut polled = vec![PollFd::from_borrowed_fd(done, PollFlags::IN)];
            if !asked {
                polled.push(PollFd::from_borrowed_fd(cancel.as_fd(), PollFlags::IN));
            }
            let _ = poll(&mut polled, Some(&TICK));
            if !polled[0].revents().is_empty() {
                return Ok(running.wait(None, None));
            }
            if !asked && (polled[1].revents() != PollFlags::empty() || output.is_troubled()) {
                running.terminate(match self.context.cancel().reason() {
                    Some(CancelReason::Timeout) => KilledBy::Deadline,
                    _ => KilledBy::Cancelled,
                });
                asked = true;
            }
            // A log that refuses progress must not leave a command behind: ask it to end.
            if let Err(error) = self.tell(process_id, output, &mut told) {
                running.terminate(KilledBy::Cancelled);
                running.wait(None, None);
                return Err(error.into());
            }
        }
    }

    fn tell(
        &self,
        process_id: &ProcessId,
        output: &Output,
        told: &mut u64,
    ) -> Result<(), JournalError> {
        let progress = output.progress(*told);
        if progress.bytes == *told {
            return Ok(());
        }
        let preview = agent_text::visible(&progress.news);
        let fact = ProcessOutput {
            process_id: process_id.clone(),
            stream: StreamName::Mixed,
            offset: *told,
            bytes: progress.bytes - *told,
            preview: Some(preview),
        };
        self.context
            .emit_with(Some(process_id), fact, Refs::default())?;
        *told = progress.bytes;
        self.context.progress(ProgressUpdate {
            bytes: Some(progress.bytes),
            lines: Some(progress.lines),
            percent: None,
            preview: Some(progress.last_line),
        })
    }

    fn finish(
        &self,
        process_id: &ProcessId,
        running: &Running,
        finished: &Finished,
        output: &Output,
        scans: Option<(&Scan, &AfterWalk)>,
    ) -> Result<RawResult, ExecutionFailure> {
        // The command is over: its changes are found also when its call was cancelled.
        let changes = self.changes(scans, finished);
        let trouble = output.take_trouble();
        let collected = output.finish()?;
        let emit = |payload: Payload| {
            self.context
                .emit_with(Some(process_id), payload, Refs::default())
                .map(|_| ())
        };
        let ended = Ended {
            finished,
            output: collected.as_ref(),
            cwd_after: self
                .command
                .cwd_after(finished.status == ExitStatus::Code(0)),
            changes: None,
            stopped: Some(match &trouble {
                Some(_) => Stopped::new(TerminatedBy::Policy, "its output could not be kept"),
                None => Stopped::by_cancel(self.context.cancel()),
            }),
        };
        ending::record(&emit, process_id, &ended)?;
        let changes = changes?;
        let (exit_code, signal) = ending::status(finished);
        let data = ToolData {
            exit_code,
            pipe_status: finished.pipe_status.clone(),
            signal,
            process_id: Some(process_id.to_string()),
            lines: collected.as_ref().map(|output| output.lines),
            note: note(finished, changes.note),
            ..ToolData::default()
        };
        let mut result = RawResult {
            code: if exit_code == Some(0) {
                Code::Ok
            } else {
                Code::ExitNonzero
            },
            action_happened: ActionHappened::Yes,
            data,
            side_effects: changes.effects,
            artifacts: changes.artifacts,
            sandbox: Some(held_by(running)),
            ..RawResult::default()
        };
        if exit_code != Some(0) && finished.violations.iter().any(is_certain) {
            result.code = Code::SandboxViolation;
        }
        result.bodies.extend(body(collected));
        let failed = match (trouble, finished.killed_by) {
            (Some(Trouble::Limit), _) => Some((
                Code::OutputLimit,
                format!(
                    "the command was ended: it printed more than {}",
                    counted(self.max_output(), "byte")
                ),
            )),
            (Some(Trouble::Total), _) => Some((
                Code::OutputLimit,
                format!(
                    "the command was ended: this session keeps no more than {} of output of all its commands",
                    counted(self.tool.kept.most, "byte")
                ),
            )),
            (Some(Trouble::Write(error)), _) => Some((
                Code::IoError,
                format!("the command was ended: {}", chain(&error)),
            )),
            (None, Some(KilledBy::Deadline)) => {
                let limit = self.timeout.map_or(0, |timeout| timeout.as_millis());
                Some((
                    Code::Timeout,
                    format!("the command was ended after {limit} ms"),
                ))
            }
            (None, Some(KilledBy::Cancelled)) => {
                Some((Code::Cancelled, "the command was cancelled".to_owned()))
            }
            (None, Some(other)) => Some((
                Code::SandboxViolation,
                format!("the command was ended: {}", reason(other)),
            )),
            (None, None) => None,
        };
        match failed {
            None => Ok(result),
            Some((code, message)) => Err(ExecutionFailure {
                code,
                message,
                action_happened: ActionHappened::Yes,
                data: result.data,
                bodies: result.bodies,
                side_effects: result.side_effects,
                artifacts: result.artifacts,
                sandbox: result.sandbox,
                not_stored: false,
            }),
        }
    }

    fn changes(
        &self,
        scans: Option<(&Scan, &AfterWalk)>,
        finished: &Finished,
    ) -> Result<Changes, ExecutionFailure> {
        let Some((before, after)) = scans else {
            return Ok(Changes::default());
        };
        let (tracker, root) = (&self.tool.tracker, self.tool.roots.root());
        let after = match after.take(finished) {
            Some(walked) => Ok(walked.scan),
            None => {
                let denied = denied_globs(self.confinement, root);
                let hides = |path: &[u8]| denied.hides(path);
                tracker.scan(root, &Cancel::new(), Purpose::After, Some(&hides), None)
            }
        };
        tracker.foreground_ends(after.as_ref().ok().map(|after| (before, after)));
        match after {
            Ok(after) => Ok(tracker.compare(root, before, &after, &|image| {
                let binary = "application/octet-stream";
                self.context
                    .put_artifact(ArtifactKind::Before, binary, image)
            })?),
            Err(error) => Ok(Changes {
                note: Some(format!(
                    "Changes to project files could not be looked for: {error}."
                )),
                ..Changes::default()
            }),
        }
    }

    fn leave_running(
        &self,
        process_id: ProcessId,
        running: Running,
        output: Output,
        private: Private,
        scans: Option<(Scan, Arc<AfterWalk>)>,
    ) -> Result<RawResult, ExecutionFailure> {
        let sandbox = held_by(&running);
        let tracker = Arc::clone(&self.tool.tracker);
        let external_writes = running.external_writes();
        let started = Started {
            process_id: process_id.clone(),
            command: agent_text::visible_excerpt(&self.command.command, 60),
            running,
            output,
            _private: private,
            cwd_after: [false, true].map(|succeeded| self.command.cwd_after(succeeded)),
            followed: scans.map(|(before, after)| (tracker.follow(before, external_writes), after)),
            tracker,
            root: self.tool.roots.root().to_owned(),
            confinement: self.confinement.clone(),
            invocation_id: self.context.invocation_id().clone(),
        };
        let process = self
            .tool
            .processes
            .adopt(
                started,
                self.context.journal(),
                self.context.scope().clone(),
            )
            .map_err(|error| {
                ExecutionFailure::new(
                    Code::IoError,
                    format!("cannot watch the background command: {error}; it was ended"),
                )
            })?;
        let ended = process.wait(EARLY, &|| self.context.cancel().is_raised());
        let status = if ended.is_some() { "ended" } else { "running" };
        let failed = ended
            .as_ref()
            .is_some_and(|ended| ended.exit_code != Some(0));
        let mut result = RawResult {
            code: if failed { Code::ExitNonzero } else { Code::Ok },
            data: ToolData {
                process_id: Some(process_id.to_string()),
                process_status: Some(status.to_owned()),
                background: Some(true),
                exit_code: ended.as_ref().and_then(|ended| ended.exit_code),
                signal: ended.as_ref().and_then(|ended| ended.signal),
                note: Some(match &ended {
                    Some(ended) => ended.words("It"),
                    None => {
                        "It is running. What it changes in the project is told when it has ended."
                            .to_owned()
                    }
                }),
                ..ToolData::default()
            },
            sandbox: Some(sandbox),
            ..RawResult::ok(ActionHappened::Yes)
        };
        process.show_next(EARLY_BYTES, &*self.context.journal(), &mut result);
        Ok(result)
    }
}

fn body(collected: Option<CollectedOutput>) -> Option<Body> {
    let output = collected.filter(|output| output.total_bytes > 0)?;
    Some(Body::Collected {
        source: "command output".to_owned(),
        output,
    })
}

fn held_by(running: &Running) -> String {
    let level = running.report().level;
    match level {
        Level::None => "none".to_owned(),
        level => format!("{} {}", mechanism(level), level.name()),
    }
}
