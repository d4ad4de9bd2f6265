//! `agent why`: the decision chain of one call, in words, from the log.

use agent_history::describe::{Kind, Level, Tone};
use agent_history::fold::{Call, Calls, Fold as _};
use agent_history::{Description, describe};
use agent_log::SessionDirectory;
use agent_protocol::CallStatus;
use agent_protocol::id::{EventId, SessionId, ToolCallId};
use agent_protocol::payload::permission::{ActionResolved, PermissionEvaluated};
use agent_protocol::{CallStep, Code, Event, Payload, Timestamp};
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::sessions::show::CallWord;
use super::{damage, lineage};
use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::{self, Output, local_second, visible};
use agent_text::clip;

/// The most columns an input or a message gets; the log has the rest.
const LONGEST: usize = 400;

/// Explain how a call was decided, confined and run
///
/// Lists the recorded facts from request to result. Reads only.
#[derive(Args, Debug)]
pub(crate) struct WhyArgs {
    /// A session: its number, title, id, or `last`
    #[arg(value_name = "SESSION")]
    session: String,
    /// The call's number in the session, its id, or a unique prefix of it
    #[arg(value_name = "CALL")]
    call: String,
    /// Print one JSON object (docs/schemas/why.schema.json)
    #[arg(long)]
    json: bool,
}

/// What `agent why --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WhyOutput {
    session_id: SessionId,
    tool_call_id: ToolCallId,
    tool_name: String,
    status: CallWord,
    code: Option<Code>,
    /// What the gate said, whole; the last time if it was asked again.
    decision: Option<PermissionEvaluated>,
    /// What was answered, if somebody was asked.
    answer: Option<ActionResolved>,
    /// The facts in the order of the log.
    chain: Vec<Link>,
    /// The log stops before the call ends, and nobody writes it: what became of it is unknown.
    is_left: bool,
}

/// One fact of the chain.
#[derive(Debug, Serialize, JsonSchema)]
struct Link {
    sequence: u64,
    event_id: EventId,
    timestamp: Timestamp,
    /// The event's type.
    event: String,
    /// The step in one or two words.
    step: String,
    /// The event in words, then its facts, one per entry.
    says: Vec<String>,
}

pub(crate) fn run(arguments: &WhyArgs, app: &App) -> Result<Exit, Failure> {
    let session = app.session(&arguments.session)?;
    // First: a call that cannot be found may be in the part that is damaged.
    damage::tell(app, &session);
    let why = WhyOutput::read(&session, &arguments.call).map_err(|failure| {
        let look = |parent: &str, _| format!("agent why {parent} {}", visible(&arguments.call));
        match lineage::elsewhere(app, &session, "a call", look) {
            Some(note) => failure.hint(note),
            None => failure,
        }
    })?;
    let doing = "cannot print the chain";
    if arguments.json {
        app.output.json(&why).context(doing)?;
    } else {
        let text = as_text(&why, &app.output);
        app.output.print(&text).context(doing)?;
    }
    Ok(Exit::Done)
}

impl WhyOutput {
    fn read(session: &SessionDirectory, asked: &str) -> Result<Self, Failure> {
        let doing = || format!("cannot read session {}", session.id());
        let mut calls = Calls::all();
        let was_held = session.holder().is_some();
        for item in session.reader().with_context(doing).or_usage()? {
            if let Some(event) = item.with_context(doing).or_usage()?.event {
                calls.fold(&event);
            }
        }
        if !was_held && session.holder().is_none() {
            calls.nobody_writes();
        }
        let call = find(&calls, asked, session)?;
        let is_left = call.status == CallStatus::Lost && call.end.is_none();
        let mut why = Self {
            session_id: session.id().clone(),
            tool_call_id: call.tool_call_id.clone(),
            tool_name: call.tool_name.clone(),
            status: CallWord::of(call.status),
            code: call.code,
            decision: None,
            answer: None,
            chain: Vec::new(),
            is_left,
        };
        // Which call is meant is known only at the end of the log, so its events are read again.
        for item in session.reader().with_context(doing).or_usage()? {
            let event = item.with_context(doing).or_usage()?.event;
            let own = |event: &Event| event.scope.tool_call_id.as_ref() == Some(&why.tool_call_id);
            if let Some(event) = event.filter(own) {
                why.take(event);
            }
        }
        Ok(why)
    }

    fn take(&mut self, event: Event) {
        let description = describe(&event);
        if is_step(&event, &description) {
            let mut says = vec![description.text.clone()];
            if has_telling_facts(&description) {
                says.extend(description.facts.lines().map(str::to_owned));
            }
            self.chain.push(Link {
                sequence: event.sequence,
                event_id: event.event_id,
                timestamp: event.timestamp,
                event: event.payload.type_name().to_owned(),
                step: description.label.into_owned(),
                says,
            });
        }
        match event.payload {
            Payload::PermissionEvaluated(evaluated) => self.decision = Some(evaluated),
            Payload::ActionResolved(resolved) => self.answer = Some(resolved),
            _ => {}
        }
    }
}

/// The one call whose id is or begins with `asked`.
fn find<'a>(
    calls: &'a Calls,
    asked: &str,
    session: &SessionDirectory,
) -> Result<&'a Call, Failure> {
    let begins = |call: &&Call| {
        let id = call.tool_call_id.as_str();
        let bare = id.split_once('_').map_or(id, |(_, bare)| bare);
        !asked.is_empty() && (id.starts_with(asked) || bare.starts_with(asked))
    };
    let bare = asked.strip_prefix('#').unwrap_or(asked);
    let number = bare.parse::<usize>().ok().filter(|number| *number > 0);
    let exact = match number {
        Some(number) => calls.iter().nth(number - 1),
        None => calls
            .iter()
            .find(|call| call.tool_call_id.as_str() == asked),
    };
    let mut found = calls.iter().filter(begins);
    let (first, second) = (found.next(), found.next());
    let asked = visible(asked);
    match (exact.or(first), exact.or(second)) {
        (Some(call), None) => Ok(call),
        (Some(call), Some(_)) if exact.is_some() => Ok(call),
        (Some(_), Some(_)) => Err(Failure::usage(format!(
            "several calls in session {} start with `{asked}`",
            session.id()
        ))
        .hint("use more characters of the id")),
        (None, _) => Err(
            Failure::usage(format!("session {} has no call `{asked}`", session.id())).hint(
                format!("`agent sessions show {}` lists its calls", session.id()),
            ),
        ),
    }
}

/// True if an event is a step of the chain: it moves the call on, or tells more than bookkeeping.
fn is_step(event: &Event, description: &Description) -> bool {
    match CallStep::of(event) {
        Some(CallStep::Args | CallStep::Request | CallStep::Progress) => false,
        Some(_) => true,
        None => description.level > Level::Record,
    }
}

/// True if the facts of a step belong to the reasons; those of a step that went as usual are in the log.
fn has_telling_facts(description: &Description) -> bool {
    description.level == Level::Headline
        || matches!(description.kind, Kind::Decision | Kind::Evidence)
        || matches!(description.tone, Tone::Warn | Tone::Bad)
}

fn as_text(why: &WhyOutput, output: &Output) -> String {
    let status = output.paint(output::Tone::Heading, why.status.as_str());
    let telling = why.code.filter(|code| *code != Code::Ok);
    let code = telling.map_or_else(String::new, |code| format!(" ({code})"));
    let name = visible(&why.tool_name);
    let mut text = format!("{} {name} {status}{code}\n", why.tool_call_id);
    if let Some(first) = why.chain.first() {
        text.push_str(&format!("{}\n", local_second(first.timestamp)));
    }
    for link in &why.chain {
        let mut step = output.paint(output::Tone::Faint, &format!("{:<11}", link.step));
        for said in &link.says {
            let said = output.wrap(&clip(&visible(said), LONGEST), 12);
            text.push_str(&format!("{step} {said}\n"));
            step = " ".repeat(11);
        }
    }
    if why.is_left {
        let step = output.paint(output::Tone::Faint, &format!("{:<11}", "then"));
        let said = "the log stops here and nothing is writing it; the result of the call is \
            unknown";
        text.push_str(&format!("{step} {}\n", output.wrap(said, 12)));
    }
    text
}
