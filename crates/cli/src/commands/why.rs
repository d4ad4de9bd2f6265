//! `agent why`: the decision chain of one call, in words, from the log.

use agent_history::fold::{Call, Calls, Fold as _};
use agent_log::SessionDirectory;
use agent_protocol::CallStatus;
use agent_protocol::id::{EventId, SessionId, ToolCallId};
use agent_protocol::payload::permission::{
    ActionResolved, PermissionEvaluated, PermissionResolved,
};
use agent_protocol::payload::process::SandboxApplied;
use agent_protocol::payload::tool::{ToolFailed, ToolIntent, ToolResult, ToolValidation};
use agent_protocol::{ActionHappened, Code, Event, Payload, Timestamp};
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::permissions::origin_words;
use super::sessions::show::CallWord;
use super::{damage, lineage};
use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::{Output, Tone, local_second, visible};
use agent_text::clip;

/// The most columns an input or a message gets; the log has the rest.
const LONGEST: usize = 400;

/// Explain how a call was decided, confined and run
///
/// Lists the recorded facts from request to result. Reads only.
#[derive(Args, Debug)]
pub(crate) struct WhyArgs {
    /// Session id, a unique prefix of it, or `last`
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
    step: &'static str,
    /// What it says, one sentence per entry.
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
        if let Some((step, says)) = in_words(&event.payload) {
            self.chain.push(Link {
                sequence: event.sequence,
                event_id: event.event_id,
                timestamp: event.timestamp,
                event: event.payload.type_name().to_owned(),
                step,
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

/// What an event says about its call; nothing for those that only report progress.
fn in_words(payload: &Payload) -> Option<(&'static str, Vec<String>)> {
    Some(match payload {
        Payload::ToolIntent(intent) => ("asked for", intended(intent)),
        Payload::ToolValidation(validation) => ("validated", validated(validation)),
        Payload::PermissionEvaluated(evaluated) => ("decided", decided(evaluated)),
        Payload::ActionRequired(required) => (
            "question",
            vec![format!("whether to allow it: {}", required.title)],
        ),
        Payload::ActionResolved(resolved) => ("answer", answered(resolved)),
        Payload::PermissionResolved(resolved) => ("permission", settled(resolved)),
        Payload::SandboxApplied(applied) => ("sandbox", confined(applied)),
        Payload::SandboxViolation(violation) => {
            let target = violation.target.as_deref().unwrap_or("something");
            let said = format!(
                "refused by the sandbox: {} of {target} (noticed by {})",
                violation.kind, violation.detection
            );
            ("refused", vec![said])
        }
        Payload::ToolStarted(started) => {
            let said = format!("by {} in {}", started.executor, started.cwd);
            ("started", vec![said])
        }
        Payload::ProcessStarted(started) => (
            "ran",
            vec![format!("the command `{}`", started.command_summary)],
        ),
        Payload::ProcessCompleted(completed) => {
            let how = match (completed.exit_code, completed.signal) {
                (Some(code), _) => format!("exit code {code}"),
                (None, Some(signal)) => format!("ended by signal {signal}"),
                (None, None) => "ended, exit status unknown".to_owned(),
            };
            (
                "ended",
                vec![format!("{how} after {} ms", completed.duration_ms)],
            )
        }
        Payload::ProcessTerminated(terminated) => {
            let (signal, reason) = (terminated.signal, &terminated.reason);
            ("ended", vec![format!("by signal {signal}: {reason}")])
        }
        Payload::ProcessFailed(failed) => ("ended", vec![failed.message.clone()]),
        Payload::ToolResult(result) => ("outcome", ended(result)),
        Payload::ToolFailed(failed) => ("outcome", stopped(failed)),
        Payload::ToolObservation(seen) => (
            "observed",
            vec![format!("the model was told: {}", seen.summary)],
        ),
        _ => return None,
    })
}

fn intended(intent: &ToolIntent) -> Vec<String> {
    let input = match (&intent.raw_input, &intent.raw_input_ref) {
        (Some(input), _) => input.to_string(),
        (None, Some(artifact)) => format!("the input in {artifact}"),
        (None, None) => "an unknown input".to_owned(),
    };
    let mut says = vec![format!("{} with {input}", intent.tool_name)];
    if let Some(name) = &intent.requested_name {
        says.push(format!("by the name `{name}`"));
    }
    if let Some(reason) = &intent.reason {
        says.push(format!("reason given: {reason}"));
    }
    says
}

fn validated(validation: &ToolValidation) -> Vec<String> {
    if validation.ok {
        return vec!["the input is valid".to_owned()];
    }
    let mut says = vec![match validation.code {
        Some(code) => format!("refused by the {} check, {code}", validation.layer),
        None => format!("refused by the {} check", validation.layer),
    }];
    let errors = validation.errors.iter();
    says.extend(errors.map(|error| format!("{} {}", error.path, error.message)));
    says
}

fn decided(evaluated: &PermissionEvaluated) -> Vec<String> {
    let source = evaluated.decision_source.as_str().replace('_', " ");
    let mut says = vec![
        format!("{}: {}", evaluated.decision, evaluated.reason),
        format!("decided by {source}, in mode {}", evaluated.mode),
    ];
    if evaluated.matched.is_empty() {
        says.push("no rule matches".to_owned());
    }
    for rule in &evaluated.matched {
        let origin = origin_words(&rule.origin);
        says.push(format!("rule {} {} ({origin})", rule.effect, rule.rule));
    }
    let unproven = evaluated
        .parse
        .as_ref()
        .and_then(|parse| parse.why_not_proven.as_ref());
    if let Some(why) = unproven {
        says.push(format!("not provably read-only: {why}"));
    }
    says
}

fn answered(resolved: &ActionResolved) -> Vec<String> {
    let who = resolved.decided_by.as_str();
    let what = resolved.decision.as_str().replace('_', " ");
    let mut says = vec![format!(
        "by {who}: {what}, after {} ms",
        resolved.latency_ms
    )];
    if let Some(answer) = &resolved.payload {
        says.extend(answer.note.as_ref().map(|note| format!("note: {note}")));
        says.extend(
            answer
                .saved_rule
                .as_ref()
                .map(|rule| format!("saved the rule {rule}")),
        );
        if answer.edited_input.is_some() {
            says.push("the input was edited".to_owned());
        }
    }
    says
}

fn settled(resolved: &PermissionResolved) -> Vec<String> {
    let source = resolved.decision_source.as_str().replace('_', " ");
    let scope = resolved.scope.as_str().replace('_', " ");
    let mut says = vec![format!("{} by {source}, for {scope}", resolved.decision)];
    says.extend(resolved.note.as_ref().map(|note| format!("note: {note}")));
    says
}

fn confined(applied: &SandboxApplied) -> Vec<String> {
    let mut says = vec![format!(
        "{}: profile {}, enforced by {}, network {}",
        applied.status, applied.profile_id, applied.mechanism, applied.network
    )];
    let missing = applied.layers.iter().filter(|layer| !layer.holds);
    let missing: Vec<&str> = missing.map(|layer| layer.name.as_str()).collect();
    if !missing.is_empty() {
        says.push(format!("layers that did not hold: {}", missing.join(", ")));
    }
    says.extend(applied.reason.clone());
    says
}

fn ended(result: &ToolResult) -> Vec<String> {
    let verdict = if result.ok { "" } else { "failed, " };
    let spent = result.metrics.duration_ms;
    let mut says = vec![format!("{verdict}{} after {spent} ms", result.code)];
    let effects = result.side_effects.iter();
    says.extend(effects.map(|effect| format!("changed {}", effect.path)));
    says
}

fn stopped(failed: &ToolFailed) -> Vec<String> {
    let happened = match failed.action_happened {
        ActionHappened::No => "nothing was done",
        ActionHappened::Yes => "it had been done",
        ActionHappened::Unknown => "whether it was done is not known",
    };
    let mut says = vec![
        format!(
            "{} in phase {}: {}",
            failed.code, failed.phase, failed.message
        ),
        happened.to_owned(),
    ];
    let effects = failed.side_effects.iter();
    says.extend(effects.map(|effect| format!("changed {}", effect.path)));
    says
}

fn as_text(why: &WhyOutput, output: &Output) -> String {
    let status = output.paint(Tone::Heading, why.status.as_str());
    let telling = why.code.filter(|code| *code != Code::Ok);
    let code = telling.map_or_else(String::new, |code| format!(" ({code})"));
    let name = visible(&why.tool_name);
    let mut text = format!("{} {name} {status}{code}\n", why.tool_call_id);
    if let Some(first) = why.chain.first() {
        text.push_str(&format!("{}\n", local_second(first.timestamp)));
    }
    for link in &why.chain {
        let mut step = output.paint(Tone::Faint, &format!("{:<11}", link.step));
        for said in &link.says {
            let said = output.wrap(&clip(&visible(said), LONGEST), 12);
            text.push_str(&format!("{step} {said}\n"));
            step = " ".repeat(11);
        }
    }
    if why.is_left {
        let step = output.paint(Tone::Faint, &format!("{:<11}", "then"));
        let said = "the log stops here and nothing is writing it; the result of the call is \
            unknown";
        text.push_str(&format!("{step} {}\n", output.wrap(said, 12)));
    }
    text
}
