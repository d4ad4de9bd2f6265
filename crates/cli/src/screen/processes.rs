//! The background commands of the session, for the screen.

use agent_protocol::command::{ControlCommand, ProcessQuery, TerminateProcess};
use agent_protocol::id::ProcessId;
use agent_protocol::reply::{Acknowledgement, ControlError, ProcessView, Reply};
use agent_runtime::Session;
use agent_text::words::{brief, bytes, duration};
use agent_tui::{Document, DocumentFormat, HostMessage, ProcessLine, ProcessRequest};

use super::sender;

/// The most bytes of an output that are shown.
const TAIL: u64 = 64 << 10;
/// Bytes that hold the last line of most outputs.
const LAST_LINE: u64 = 1 << 10;

pub(super) fn answer(session: &Session, request: ProcessRequest) -> HostMessage {
    let answer = match request {
        ProcessRequest::List => list(session),
        ProcessRequest::Tail(name) => {
            find(session, &name).and_then(|found| tail(session, found, false))
        }
        ProcessRequest::TailAgain(process_id) => tail(session, process_id, true),
        ProcessRequest::Stop(name) => find(session, &name).and_then(|found| stop(session, found)),
    };
    answer.unwrap_or_else(|problem| problem)
}

type Answer = Result<HostMessage, HostMessage>;

fn ask(session: &Session, query: ProcessQuery) -> Result<Vec<ProcessView>, HostMessage> {
    let failed = |error: ControlError| sender::problem(&error);
    let reply = session.handle(ControlCommand::GetProcesses(query), &sender::peer());
    match reply.map_err(failed)? {
        Reply::Processes(processes) => Ok(processes),
        _ => Ok(Vec::new()),
    }
}

fn list(session: &Session) -> Answer {
    let all = ask(
        session,
        ProcessQuery {
            process_id: None,
            tail_bytes: LAST_LINE,
        },
    )?;
    if all.is_empty() {
        let nothing = "no background commands since this session was opened";
        return Ok(HostMessage::Notice(nothing.to_owned()));
    }
    let lines = all.into_iter().zip(1..).map(|(process, number)| {
        let last = process.tail.lines().rfind(|line| !line.trim().is_empty());
        let last = last.map(|line| format!(" · {}", brief(line, 80)));
        ProcessLine {
            command: format!("{number:>2}  {}", process.command),
            detail: state(&process) + &last.unwrap_or_default(),
            process_id: process.process_id,
        }
    });
    Ok(HostMessage::Processes(lines.collect()))
}

/// Its state in words.
fn state(process: &ProcessView) -> String {
    let time = duration(process.runtime_ms);
    match &process.ended {
        None => format!("running for {time}"),
        Some(ended) => {
            let ended = ended.trim_start_matches("it ").trim_end_matches('.');
            format!("{ended} after {time}")
        }
    }
}

/// The command with this number in the list, or whose id this is or begins with.
fn find(session: &Session, name: &str) -> Result<ProcessId, HostMessage> {
    let all = ask(session, ProcessQuery::default())?;
    let by_number = name.parse::<usize>().ok().and_then(|number| {
        let at = number.checked_sub(1)?;
        all.get(at)
    });
    let found = by_number.or_else(|| {
        let mut named = all.iter();
        named.find(|process| process.process_id.as_str().starts_with(name))
    });
    found
        .map(|process| process.process_id.clone())
        .ok_or_else(|| {
            let text = format!("there is no background command {name}; /ps lists them");
            HostMessage::Problem(text)
        })
}

fn tail(session: &Session, process_id: ProcessId, is_again: bool) -> Answer {
    let query = ProcessQuery {
        process_id: Some(process_id.clone()),
        tail_bytes: TAIL,
    };
    let Some(process) = ask(session, query)?.pop() else {
        let text = format!("{process_id} is no longer kept");
        return Err(HostMessage::Problem(text));
    };
    let mut text = format!(
        "{}\n{}, {} printed\n",
        process.command,
        state(&process),
        bytes(process.bytes)
    );
    let hidden = process.bytes.saturating_sub(TAIL);
    if hidden > 0 {
        text.push_str(&format!("the first {} are not shown here\n", bytes(hidden)));
    }
    text.push('\n');
    text.push_str(&process.tail);
    Ok(HostMessage::Tail {
        is_running: process.running,
        is_again,
        document: Document {
            title: process_id.to_string(),
            text,
            format: DocumentFormat::Plain,
        },
        process_id,
    })
}

fn stop(session: &Session, process_id: ProcessId) -> Answer {
    let stop = ControlCommand::TerminateProcess(TerminateProcess {
        process_id: process_id.clone(),
    });
    match session.handle(stop, &sender::peer()) {
        Ok(Reply::Answer(answer)) if answer.acknowledgement == Acknowledgement::NoOp => {
            Ok(HostMessage::Notice(format!("{process_id} is not running")))
        }
        Ok(_) => Ok(HostMessage::Notice(format!("stopping {process_id}"))),
        Err(error) => Err(sender::problem(&error)),
    }
}
