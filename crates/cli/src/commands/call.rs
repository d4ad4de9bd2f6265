//! `agent call`: tool calls without a model, through the same pipeline and into the same log.

use std::fs::File;
use std::io::{self, BufRead as _, Read as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use agent_protocol::command::{
    BeginCalls, CallTool, ControlCommand, InterruptReason, InterruptTurn, Peer, PeerKind,
    RejectCall,
};
use agent_protocol::id::{ActionId, SessionId, ToolCallId};
use agent_protocol::payload::tool::ToolObservation;
use agent_protocol::reply::{CallReport, ControlError, Reply};
use agent_protocol::{ActionHappened, Code, Phase};
use agent_runtime::{OpenOptions, Session};
use agent_tool_runtime::{Cancel, CancelReason};
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
  agent call --mode auto bash '{\"command\": \"cargo test\"}'
  echo '{\"tool\":\"glob\",\"input\":{\"pattern\":\"**/*.rs\"}}' | agent call --stdin")]
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

/// The outcomes of the calls so far.
#[derive(Default)]
struct Tally {
    failed: u64,
    refused: u64,
    left_open: bool,
}

/// The calls of one run, on their way to the session.
struct Caller<'a> {
    arguments: &'a CallArgs,
    app: &'a App,
    session: &'a Arc<Session>,
    peer: Peer,
    cancel: &'a Cancel,
    tally: Tally,
}

pub(crate) fn run(arguments: &CallArgs, app: &App) -> Result<Exit, Failure> {
    let config = Arc::new(config::load(&app.host, &app.project, &arguments.settings)?);
    app.note_ignored_settings(&config);
    let session = Arc::new(app.open(OpenOptions {
        config: Some(Arc::clone(&config)),
        on_ask: arguments.on_ask.into(),
        ..arguments.session.options("agent call")
    })?);
    let cancel = Cancel::new();
    let signals = watch_signals(&cancel).or_fail()?;
    let timer = Timer::start(&config, &cancel);
    let mut caller = Caller {
        arguments,
        app,
        session: &session,
        peer: Peer::new(PeerKind::CommandLine, "agent call"),
        cancel: &cancel,
        tally: Tally::default(),
    };
    let done = caller.turn();
    let tally = caller.tally;
    let closed = session.close();
    done?;
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

impl Caller<'_> {
    fn send(&self, command: ControlCommand) -> Result<Reply, ControlError> {
        self.session.handle(command, &self.peer)
    }

    /// All calls are one turn, each is a step of it.
    fn turn(&mut self) -> Result<(), Failure> {
        let title = match &self.arguments.tool {
            Some(tool) => format!("agent call {tool}"),
            None => "agent call --stdin".to_owned(),
        };
        self.send(ControlCommand::BeginCalls(BeginCalls { title }))?;
        self.interrupt_when_cancelled();
        let made = self.calls();
        self.send(ControlCommand::EndCalls)?;
        made
    }

    /// Passes a signal, or the end of the time, on to the session.
    fn interrupt_when_cancelled(&self) {
        let session = Arc::downgrade(self.session);
        let (cancel, peer) = (self.cancel.clone(), self.peer.clone());
        self.cancel.on_raise(move || {
            let reason = match cancel.reason() {
                Some(CancelReason::Timeout) => InterruptReason::Timeout,
                Some(CancelReason::Terminated) => InterruptReason::Terminated,
                _ => InterruptReason::User,
            };
            let interrupt = InterruptTurn {
                turn_id: None,
                reason,
            };
            if let Some(session) = session.upgrade() {
                // A turn that has ended meanwhile needs no interruption.
                let _ = session.handle(ControlCommand::InterruptTurn(interrupt), &peer);
            }
        });
    }

    fn calls(&mut self) -> Result<(), Failure> {
        if let Some(tool) = &self.arguments.tool {
            return self.one(CallTool {
                tool: tool.clone(),
                arguments: self.arguments.input.clone().unwrap_or_default(),
                reason: None,
            });
        }
        let own = io::stdin().as_fd().try_clone_to_owned().or_fail()?;
        let mut stdin = io::BufReader::new(File::from(own));
        let mut line = Vec::new();
        let mut number = 0;
        while !self.tally.left_open {
            wait_for_line(&stdin, self.cancel).or_fail()?;
            if self.cancel.is_raised() {
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
            let call = if line.len() as u64 == LINE_LIMIT && !line.ends_with(b"\n") {
                let skipped = stdin.skip_until(b'\n');
                skipped.context("cannot read standard input").or_fail()?;
                Err(format!("the line is longer than {LINE_LIMIT} bytes"))
            } else {
                call_of(line.trim_ascii())
            };
            match call {
                Ok(call) => self.one(call)?,
                Err(problem) => self.reject(number, problem)?,
            }
        }
        Ok(())
    }

    fn one(&mut self, call: CallTool) -> Result<(), Failure> {
        let Reply::Called(report) = self.send(ControlCommand::CallTool(call))? else {
            return Ok(());
        };
        let session_id = self.session.id().clone();
        let (printed, text) = match *report {
            CallReport::Observed {
                tool_call_id,
                observation,
                model_text,
            } => {
                let is_refusal = observation.phase == Phase::Permission;
                self.tally.refused += u64::from(!observation.ok && is_refusal);
                self.tally.failed += u64::from(!observation.ok && !is_refusal);
                let printed = CallOutput::Observed {
                    session_id,
                    tool_call_id,
                    observation,
                };
                (printed, model_text)
            }
            CallReport::LeftOpen {
                tool_call_id,
                action_id,
            } => {
                self.tally.left_open = true;
                let words = format!("the call waits for an answer to {action_id}");
                let printed = CallOutput::LeftOpen {
                    session_id,
                    tool_call_id,
                    action_id,
                    ok: false,
                };
                (printed, words)
            }
            CallReport::Rejected { .. } => return Ok(()),
        };
        self.print(&printed, &text)
    }

    /// Tells that a line is no call, in the record and to who sent it.
    fn reject(&mut self, line: u64, problem: String) -> Result<(), Failure> {
        self.tally.failed += 1;
        let rejected = ControlCommand::RejectCall(RejectCall { line, problem });
        let Reply::Called(report) = self.send(rejected)? else {
            return Ok(());
        };
        let CallReport::Rejected { message } = *report else {
            return Ok(());
        };
        let printed = CallOutput::NoCall {
            session_id: self.session.id().clone(),
            line,
            ok: false,
            phase: Phase::Validate,
            code: Code::SchemaInvalid,
            summary: message.clone(),
            model_text: message.clone(),
            user_text: message.clone(),
            action_happened: ActionHappened::No,
            retryable: Code::SchemaInvalid.facts().retryable,
        };
        self.print(&printed, &message)
    }

    fn print(&self, printed: &CallOutput, text: &str) -> Result<(), Failure> {
        let output = &self.app.output;
        let done = match self.arguments.json {
            true => output.json_line(printed),
            false => output.print(text),
        };
        Ok(done.context("cannot print an observation")?)
    }
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
fn call_of(line: &[u8]) -> Result<CallTool, String> {
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
    Ok(CallTool {
        tool: line.tool,
        arguments: line.input.map(RawValue::get).unwrap_or_default().to_owned(),
        reason: line.reason,
    })
}

/// The signal that came, if one did.
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
