//! `agent call`: tool calls without a model, through the same pipeline and into the same log.

use std::fs::File;
use std::io::{self, BufRead as _, Read as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use agent_history::fold::ChangedFiles;
use agent_protocol::id::{ActionId, SessionId, StepId, ToolCallId, TurnId};
use agent_protocol::payload::conversation::{
    RuntimeWarning, TurnCompleted, TurnFailed, TurnOutcome, TurnSource, TurnStarted, TurnSubmitted,
    Verification,
};
use agent_protocol::payload::tool::ToolObservation;
use agent_protocol::status::{Status, VerificationStatus};
use agent_protocol::{ActionHappened, Code, Payload, Phase, Refs, Scope};
use agent_text::visible_excerpt;
use agent_tool_runtime::{Authority as _, Cancel, CancelReason, Outcome, ToolIntent};
use anyhow::Context as _;
use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::signal::unix::{SignalKind, signal};

use crate::app::App;
use crate::commands::run::OnAskChoice;
use crate::config::{self, Config, SettingArgs};
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::session_args::SessionArgs;
use agent_runtime::session::{self, OpenOptions, Workbench};

/// A longer line of standard input is refused; the calls behind it are made.
const LINE_LIMIT: u64 = 64 << 20;

/// Call a tool as a model would: validated, checked against the rules, run, recorded
///
/// Prints the observation of each call as soon as it completes. There is no prompt: a call that
/// needs approval is refused unless a rule, the mode or --on-ask allows it. Exit codes: 0 all calls
/// succeeded, 1 a call failed, 3 a call was refused, 5 timed out.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent call read '{\"path\": \"src/main.rs\", \"limit\": 20}'
  agent call --mode auto bash '{\"command\": \"cargo test\", \"description\": \"run the tests\"}'
  printf '%s\\n' '{\"tool\":\"glob\",\"input\":{\"pattern\":\"**/*.rs\"}}' | agent call --stdin --json")]
pub(crate) struct CallArgs {
    /// Name of the tool
    #[arg(required_unless_present = "stdin", conflicts_with = "stdin")]
    tool: Option<String>,
    /// Input of the tool, a JSON object
    #[arg(value_name = "JSON", conflicts_with = "stdin")]
    input: Option<String>,
    /// Read calls from standard input, one JSON object {"tool": …, "input": {…}} per line
    #[arg(long)]
    stdin: bool,
    /// Print one JSON object per call (docs/schemas/call.schema.json)
    #[arg(long)]
    json: bool,
    /// What to do when a call needs approval
    #[arg(long, value_name = "WHAT", default_value = "deny")]
    on_ask: OnAskChoice,
    #[command(flatten)]
    settings: SettingArgs,
    #[command(flatten)]
    session: SessionArgs,
}

/// One line of `agent call --json`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum CallOutput {
    /// The call ended.
    Observed {
        session_id: SessionId,
        tool_call_id: ToolCallId,
        #[serde(flatten)]
        observation: Box<ToolObservation>,
    },
    /// The call waits for an answer (`--on-ask wait`).
    LeftOpen {
        session_id: SessionId,
        tool_call_id: ToolCallId,
        action_id: ActionId,
        ok: bool,
    },
    /// A line of standard input was no call; nothing was done.
    NoCall {
        session_id: SessionId,
        /// Which line it was, from 1.
        line: u64,
        ok: bool,
        phase: Phase,
        code: Code,
        /// What is wrong with it.
        summary: String,
        model_text: String,
        user_text: String,
        action_happened: ActionHappened,
        retryable: bool,
    },
}

/// A line of standard input. The input's text is passed on as it came.
#[derive(Deserialize)]
struct Line<'a> {
    tool: String,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(default)]
    reason: Option<String>,
}

/// How the calls went so far.
#[derive(Default)]
struct Tally {
    calls: u64,
    failed: u64,
    refused: u64,
    left_open: bool,
    files_changed: ChangedFiles,
}

impl Tally {
    /// Takes in what was recorded since, also by commands in the background, and keeps no event.
    fn catch_up(&mut self, bench: &Workbench) {
        for appended in bench.events.try_iter() {
            self.files_changed.take_all(&appended.event.payload);
        }
    }
}

pub(crate) fn run(arguments: &CallArgs, app: &App) -> Result<Exit, Failure> {
    let config = config::load(&app.host, &app.project, &arguments.settings)?;
    app.note_ignored_settings(&config);
    let wanted = OpenOptions {
        on_ask: arguments.on_ask.into(),
        ..arguments.session.options("agent call")
    };
    let bench = session::open(app, &config, &wanted)?;
    let closer = bench.closer();
    let cancel = Cancel::new();
    let signals = watch_signals(&cancel).or_fail()?;
    let timer = Timer::start(&config, &cancel);
    let done = turn(arguments, app, &bench, &cancel, &timer);
    let closed = closer.close();
    let tally = done?;
    closed?;
    Ok(match signals.exit() {
        Some(exit) => exit,
        None if timer.has_rung() => Exit::Limit,
        None if tally.refused > 0 || tally.left_open => Exit::Denied,
        None if tally.failed > 0 => Exit::Failed,
        None => Exit::Done,
    })
}

/// Cancels the calls when their time is over, unless somebody else did before.
struct Timer(Arc<AtomicBool>);

impl Timer {
    fn start(config: &Config, cancel: &Cancel) -> Self {
        let rung = Arc::new(AtomicBool::new(false));
        if let Some(limit) = &config.limits.turn_timeout {
            let (limit, rings, cancel) = (limit.value.duration(), rung.clone(), cancel.clone());
            thread::spawn(move || {
                thread::sleep(limit);
                if !cancel.is_raised() {
                    rings.store(true, Ordering::SeqCst);
                    cancel.raise(CancelReason::Timeout);
                }
            });
        }
        Self(rung)
    }

    fn has_rung(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// All calls are one turn, each is a step of it.
fn turn(
    arguments: &CallArgs,
    app: &App,
    bench: &Workbench,
    cancel: &Cancel,
    timer: &Timer,
) -> Result<Tally, Failure> {
    let journal = &bench.journal;
    let turn_id: TurnId = journal.ids().mint();
    let scope = Scope {
        thread_id: Some(bench.thread_id.clone()),
        turn_id: Some(turn_id.clone()),
        ..Scope::default()
    };
    let started = journal.now();
    let record = |payload: Payload| journal.append(&scope, payload, Refs::default()).or_fail();
    let text = match &arguments.tool {
        Some(tool) => format!("agent call {tool}"),
        None => "agent call --stdin".to_owned(),
    };
    let submitted = TurnSubmitted {
        text: Some(text),
        source: TurnSource::Cli,
        status: Status::Accepted,
        ..TurnSubmitted::default()
    };
    record(submitted.into())?;
    let mode = bench.authority.mode();
    let begun = TurnStarted {
        model: "none".to_owned(),
        mode,
        ..TurnStarted::default()
    };
    record(begun.into())?;
    bench.authority.turn_begins(turn_id.as_str());
    let looked = in_new_step(&scope, bench);
    bench.pipeline.resolve_catalogue(&looked).or_fail()?;

    let mut tally = Tally::default();
    let calls = calls(arguments, app, bench, cancel, &scope, &mut tally);
    if tally.left_open {
        // The turn stays open with its question.
        journal.sync().or_fail()?;
        return calls.map(|()| tally);
    }
    tally.catch_up(bench);
    let files_changed = tally.files_changed.list();
    let ended: Payload = if timer.has_rung() {
        TurnFailed {
            status: Status::TimedOut,
            category: "limit".to_owned(),
            code: "timeout".to_owned(),
            message: "the turn reached its time limit".to_owned(),
            retryable: true,
            files_changed,
            ..TurnFailed::default()
        }
        .into()
    } else if cancel.is_raised() {
        TurnFailed {
            status: Status::Cancelled,
            category: "user".to_owned(),
            code: "cancelled".to_owned(),
            message: "interrupted".to_owned(),
            files_changed,
            ..TurnFailed::default()
        }
        .into()
    } else {
        let all_well = tally.failed + tally.refused == 0;
        TurnCompleted {
            outcome: if all_well {
                TurnOutcome::Completed
            } else {
                TurnOutcome::Degraded
            },
            stop_reason: "end_of_calls".to_owned(),
            verification: Verification {
                status: if files_changed.is_empty() {
                    VerificationStatus::NotApplicable
                } else {
                    VerificationStatus::Unverified
                },
                ..Verification::default()
            },
            files_changed,
            steps: Some(tally.calls),
            refused_calls: Some(tally.refused),
            duration_ms: Some(journal.now().millis_since(started)),
            ..TurnCompleted::default()
        }
        .into()
    };
    record(ended)?;
    calls.map(|()| tally)
}

fn calls(
    arguments: &CallArgs,
    app: &App,
    bench: &Workbench,
    cancel: &Cancel,
    scope: &Scope,
    tally: &mut Tally,
) -> Result<(), Failure> {
    if let Some(tool) = &arguments.tool {
        let intent = ToolIntent {
            tool_name: tool.clone(),
            arguments: arguments.input.clone().unwrap_or_default(),
            ..ToolIntent::default()
        };
        return one(intent, arguments, app, bench, cancel, scope, tally);
    }
    let own = io::stdin().as_fd().try_clone_to_owned().or_fail()?;
    let mut stdin = io::BufReader::new(File::from(own));
    let mut line = Vec::new();
    let mut number = 0;
    while !tally.left_open {
        wait_for_line(&stdin, cancel).or_fail()?;
        if cancel.is_raised() {
            break;
        }
        line.clear();
        number += 1;
        let read = stdin.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut line);
        if read.context("cannot read standard input").or_fail()? == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let intent = if line.len() as u64 == LINE_LIMIT && !line.ends_with(b"\n") {
            let skipped = stdin.skip_until(b'\n');
            skipped.context("cannot read standard input").or_fail()?;
            Err(format!("the line is longer than {LINE_LIMIT} bytes"))
        } else {
            intent_of(line.trim_ascii())
        };
        match intent {
            Ok(intent) => one(intent, arguments, app, bench, cancel, scope, tally)?,
            Err(problem) => no_call(number, &problem, arguments, app, bench, scope, tally)?,
        }
    }
    Ok(())
}

/// Returns when there is something to read, or the handle was raised.
fn wait_for_line(stdin: &io::BufReader<File>, cancel: &Cancel) -> io::Result<()> {
    if !stdin.buffer().is_empty() {
        return Ok(());
    }
    let raised = cancel.descriptor()?;
    let mut watched = [
        PollFd::new(stdin.get_ref(), PollFlags::IN),
        PollFd::new(&raised, PollFlags::IN),
    ];
    match poll(&mut watched, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The call a line asks for, or what is wrong with the line.
fn intent_of(line: &[u8]) -> Result<ToolIntent, String> {
    let text = std::str::from_utf8(line)
        .map_err(|error| format!("byte {} is not UTF-8", error.valid_up_to() + 1))?;
    if !text.starts_with('{') {
        return Err("it is not a JSON object".to_owned());
    }
    let line: Line<'_> = serde_json::from_str(text).map_err(|error| {
        // It is one line: the position in it is the column.
        let words = error.to_string();
        let what = words.split(" at line ").next().unwrap_or(&words);
        format!("{what} at column {}", error.column())
    })?;
    Ok(ToolIntent {
        tool_name: line.tool,
        arguments: line.input.map(RawValue::get).unwrap_or_default().to_owned(),
        reason: line.reason,
        ..ToolIntent::default()
    })
}

/// Tells that a line is no call, in the record and to whoever sent it.
fn no_call(
    number: u64,
    problem: &str,
    arguments: &CallArgs,
    app: &App,
    bench: &Workbench,
    scope: &Scope,
    tally: &mut Tally,
) -> Result<(), Failure> {
    tally.failed += 1;
    let problem = visible_excerpt(problem, 400);
    let message = bench.journal.mask(&format!(
        "line {number} of standard input is not a call {{\"tool\": …, \"input\": {{…}}}}: \
         {problem}; nothing was done"
    ));
    let warning = RuntimeWarning {
        code: "line_is_no_call".to_owned(),
        message: message.clone(),
        evidence_refs: Vec::new(),
    };
    let scope = in_new_step(scope, bench);
    let recorded = bench
        .journal
        .append(&scope, warning.into(), Refs::default());
    recorded.or_fail()?;
    bench.journal.sync().or_fail()?;
    let doing = "cannot print an observation";
    if !arguments.json {
        return Ok(app.output.print(&message).context(doing)?);
    }
    let printed = CallOutput::NoCall {
        session_id: bench.writer.session_id().clone(),
        line: number,
        ok: false,
        phase: Phase::Validate,
        code: Code::SchemaInvalid,
        summary: message.clone(),
        model_text: message.clone(),
        user_text: message,
        action_happened: ActionHappened::No,
        retryable: Code::SchemaInvalid.facts().retryable,
    };
    Ok(app.output.json_line(&printed).context(doing)?)
}

/// The turn's scope with a step of its own: every event about tools names one.
fn in_new_step(turn: &Scope, bench: &Workbench) -> Scope {
    let step_id: StepId = bench.journal.ids().mint();
    Scope {
        step_id: Some(step_id),
        ..turn.clone()
    }
}

fn one(
    intent: ToolIntent,
    arguments: &CallArgs,
    app: &App,
    bench: &Workbench,
    cancel: &Cancel,
    scope: &Scope,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let scope = in_new_step(scope, bench);
    let report = bench.pipeline.run(scope, cancel, [intent]).or_fail()?;
    tally.catch_up(bench);
    for outcome in report.outcomes {
        tally.calls += 1;
        let session_id = bench.writer.session_id().clone();
        let doing = "cannot print an observation";
        match outcome {
            Outcome::Observed(observed) => {
                let fact = observed.fact();
                if !fact.ok && fact.phase == Phase::Permission {
                    tally.refused += 1;
                } else if !fact.ok {
                    tally.failed += 1;
                }
                if arguments.json {
                    let printed = CallOutput::Observed {
                        session_id,
                        tool_call_id: observed.tool_call_id().clone(),
                        observation: Box::new(fact.clone()),
                    };
                    app.output.json_line(&printed).context(doing)?;
                } else {
                    app.output.print(observed.model_text()).context(doing)?;
                }
            }
            Outcome::LeftOpen {
                tool_call_id,
                action_id,
            } => {
                tally.left_open = true;
                if arguments.json {
                    let printed = CallOutput::LeftOpen {
                        session_id,
                        tool_call_id,
                        action_id,
                        ok: false,
                    };
                    app.output.json_line(&printed).context(doing)?;
                } else {
                    let words = format!("the call waits for an answer to {action_id}");
                    app.output.print(&words).context(doing)?;
                }
            }
        }
    }
    Ok(())
}

/// Which signal came, if one did.
#[derive(Default)]
pub(super) struct Signals {
    exit: Arc<std::sync::Mutex<Option<Exit>>>,
}

impl Signals {
    pub(super) fn exit(&self) -> Option<Exit> {
        *self
            .exit
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The first signal cancels the call, with its facts written; a second one ends the process.
pub(super) fn watch_signals(cancel: &Cancel) -> io::Result<Signals> {
    let signals = Signals::default();
    let (noted, cancel) = (Arc::clone(&signals.exit), cancel.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async move {
                let (Ok(mut interrupts), Ok(mut terminations)) = (
                    signal(SignalKind::interrupt()),
                    signal(SignalKind::terminate()),
                ) else {
                    return;
                };
                loop {
                    let exit = tokio::select! {
                        _ = interrupts.recv() => Exit::Interrupted,
                        _ = terminations.recv() => Exit::Terminated,
                    };
                    if cancel.is_raised() {
                        // The log is whole at every moment; what is open in it is repaired on resume.
                        std::process::exit(exit as i32);
                    }
                    *noted
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(exit);
                    cancel.raise(match exit {
                        Exit::Terminated => CancelReason::Terminated,
                        _ => CancelReason::Interrupted,
                    });
                }
            });
        })?;
    Ok(signals)
}
