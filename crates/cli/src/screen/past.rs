//! What is in a log already: its end at once, the whole of it a little later, and from then on every
//! line as it is written.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use agent_log::SessionDirectory;
use agent_protocol::{Event, Payload};
use agent_runtime::Session;
use agent_tui::Input;
use agent_tui::state::State;
use tokio::sync::mpsc::UnboundedSender;

use crate::app::App;
use crate::config::Config;
use crate::failure::{Failure, OrFail as _};

/// A log up to this size is read at once; of a longer one this much is shown first.
const AT_ONCE: u64 = 512 * 1024;

/// Shows the screen what a session ended with, and begins to read the rest. Gives the sequence of
/// the last event that was shown.
pub(super) fn glimpse(
    directory: &SessionDirectory,
    inputs: &UnboundedSender<Input>,
) -> Result<Option<u64>, Failure> {
    let path = directory.log_path();
    let mut file = File::open(&path).or_usage()?;
    let length = file.metadata().or_usage()?.len();
    let from = length.saturating_sub(AT_ONCE);
    file.seek(SeekFrom::Start(from)).or_usage()?;
    let mut bytes = Vec::new();
    file.take(AT_ONCE).read_to_end(&mut bytes).or_usage()?;
    let mut events = parse(&bytes);
    if from > 0 {
        // Half a turn would look like something it was not.
        let starts = |event: &Arc<Event>| matches!(event.payload, Payload::TurnSubmitted(_));
        if let Some(first) = events.iter().position(starts) {
            events.drain(..first);
        }
    }
    let last = events.last().map(|event| event.sequence);
    if from == 0 {
        // What a branch has in common with where it came from belongs in front.
        let mut past = Vec::new();
        agent_log::fork::inherited(directory, &mut |event| past.push(Arc::new(event.clone())))
            .or_usage()?;
        past.extend(events);
        let _ = inputs.send(Input::History(past));
        return Ok(last);
    }
    let _ = inputs.send(Input::Tail(events));
    let inputs = inputs.clone();
    tokio::task::spawn_blocking(move || {
        if let Ok(state) = fold(&path, length) {
            let _ = inputs.send(Input::Past(Box::new(state)));
        }
    });
    Ok(last)
}

/// The fold over the first `length` bytes of a log.
fn fold(path: &Path, length: u64) -> io::Result<State> {
    use std::io::BufRead as _;
    let mut reader = io::BufReader::with_capacity(256 * 1024, File::open(path)?.take(length));
    let mut state = State::default();
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        if let Ok(event) = Event::from_line(line.trim_ascii_end()) {
            state.apply(&event);
        }
        line.clear();
    }
    Ok(state)
}

fn parse(bytes: &[u8]) -> Vec<Arc<Event>> {
    bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .filter_map(|line| Event::from_line(line).ok().map(Arc::new))
        .collect()
}

/// Shows what was written after the event `after` until now, and from then on every line as it is
/// written. Nothing else may write meanwhile.
pub(super) fn follow(
    session: &Session,
    after: Option<u64>,
    inputs: &UnboundedSender<Input>,
) -> Result<(), Failure> {
    match after {
        None => {
            let log = std::fs::read(session.log_path()).or_fail()?;
            let _ = inputs.send(Input::History(parse(&log)));
        }
        Some(after) => {
            // What opening added is at the end, and little.
            let mut file = File::open(session.log_path()).or_fail()?;
            let length = file.metadata().or_fail()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(AT_ONCE)))
                .or_fail()?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).or_fail()?;
            for event in parse(&bytes) {
                if event.sequence > after {
                    let _ = inputs.send(Input::Event(event));
                }
            }
        }
    }
    let inputs = inputs.clone();
    session.subscribe(move |appended| {
        let event = Arc::new(appended.event.clone());
        inputs.send(Input::Event(event)).is_ok()
    });
    Ok(())
}

/// Branches off before the event `at` and gives the new session's id.
pub(super) fn fork(app: &App, config: &Config, session: &str, at: u64) -> Result<String, Failure> {
    let parent = app.session(session)?;
    let writer = crate::commands::fork::branch(app, config, &parent, Some(at.saturating_sub(1)))?;
    Ok(writer.session_id().to_string())
}
