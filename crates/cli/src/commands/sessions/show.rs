//! `agent sessions show`: what the log says about one session.

use std::path::PathBuf;

use agent_history::fold::{Call, Calls, EvidenceSummary, Fact, Fold as _, ReadModels, TurnBrief};
use agent_log::SessionDirectory;
use agent_protocol::CallStatus;
use agent_protocol::id::{ActionId, ArtifactId, SessionId, ToolCallId, TurnId};
use agent_protocol::payload::SideEffectKind;
use agent_protocol::payload::conversation::{TurnSource, Verification};
use agent_protocol::payload::permission::{DecisionSource, Effect};
use agent_protocol::status::{Mode, Status};
use agent_protocol::{Code, Timestamp};
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::{Output, Table, Tone, local_second, visible};
use agent_text::{clip, counted};

/// Show details of a session
#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// A session: its number, title, id, or `last`
    #[arg(value_name = "SESSION", default_value = "last")]
    session: String,
    /// Print one JSON object (docs/schemas/sessions-show.schema.json)
    #[arg(long)]
    json: bool,
}

/// What `agent sessions show --json` prints. What the log does not show is `unknown` or `null`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SessionShow {
    session_id: SessionId,
    path: PathBuf,
    title: Option<String>,
    status: Status,
    /// How the latest turn ended: `completed`, `degraded`, `failed`, `cancelled`, `timed_out`,
    /// `lost`; `null` while it has not.
    outcome: Option<&'static str>,
    mode: Option<Mode>,
    model: Option<String>,
    created_at: Option<Timestamp>,
    last_event_at: Option<Timestamp>,
    events: u64,
    /// Lines that are not events, or do not follow from the line before.
    damaged_lines: u64,
    turns: Vec<Turn>,
    calls: Vec<ToolCall>,
    pending_actions: Vec<Pending>,
    queue: Vec<Queued>,
    files_changed: Vec<FileChange>,
    artifact_count: u64,
    usage: UsageTotal,
    cost: CostTotal,
    /// Of the latest turn that has one; `stale` when files changed, or events are missing, since.
    verification: Option<Verification>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Turn {
    turn_id: TurnId,
    status: Status,
    source: TurnSource,
    /// The first words of the input.
    input: String,
    model: Option<String>,
    outcome: Option<&'static str>,
    stop_reason: Option<String>,
    final_text: Option<String>,
    verification: Option<Verification>,
    submitted_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    steps: Option<u64>,
    refused_calls: Option<u64>,
    files_changed: u64,
    cost: Option<f64>,
    /// Why it failed.
    code: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ToolCall {
    tool_call_id: ToolCallId,
    turn_id: Option<TurnId>,
    tool_name: String,
    status: CallWord,
    code: Option<Code>,
    decision: Option<Effect>,
    decision_source: Option<DecisionSource>,
    title: Option<String>,
    summary: Option<String>,
    duration_ms: Option<u64>,
    paths_changed: Vec<String>,
    artifacts: Vec<ArtifactId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallWord {
    Unknown,
    Proposed,
    Validated,
    WaitingPermission,
    Allowed,
    Running,
    Ok,
    Failed,
    Rejected,
    Denied,
    Cancelled,
    TimedOut,
    Lost,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Pending {
    action_id: ActionId,
    tool_call_id: Option<ToolCallId>,
    tool_name: Option<String>,
    title: String,
    asked_at: Timestamp,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Queued {
    turn_id: TurnId,
    source: TurnSource,
    text: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FileChange {
    path: String,
    kind: SideEffectKind,
    changes: u64,
    sha256_before: Option<String>,
    sha256_after: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct UsageTotal {
    input: u64,
    output: u64,
    total: u64,
    cached_input: u64,
    reasoning: u64,
    /// Answers whose server counted nothing; the totals are too low by them.
    uncounted_requests: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct CostTotal {
    /// The sum of the known amounts.
    amount: f64,
    currency: Option<String>,
    /// Requests whose cost is unknown, which is not the same as free.
    unknown_requests: u64,
}

pub(super) fn run(arguments: &ShowArgs, app: &App) -> Result<Exit, Failure> {
    let session = app.session(&arguments.session)?;
    let show = SessionShow::read(&session)?;
    let doing = "cannot print the session";
    if arguments.json {
        app.output.json(&show).context(doing)?;
    } else {
        app.output
            .print(&as_text(&show, &app.output))
            .context(doing)?;
    }
    if show.damaged_lines > 0 {
        let id = &show.session_id;
        app.output
            .note(&format!("the log is damaged; see `agent audit {id}`"));
    }
    Ok(Exit::Done)
}

impl SessionShow {
    fn read(session: &SessionDirectory) -> Result<Self, Failure> {
        let doing = || format!("cannot read session {}", session.id());
        let mut models = ReadModels {
            calls: Calls::all(),
            ..ReadModels::default()
        };
        let (mut events, mut damaged_lines) = (0, 0);
        // Asked before and after reading, so that work which ends meanwhile is not called lost.
        let was_held = session.holder().is_some();
        for item in session.reader().with_context(doing).or_usage()? {
            let item = item.with_context(doing).or_usage()?;
            damaged_lines += u64::from(item.damage.is_some());
            if let Some(event) = item.event {
                events += 1;
                models.fold(&event);
            }
        }
        if !was_held && session.holder().is_none() {
            models.nobody_writes();
        }
        Ok(Self::of(session, models, events, damaged_lines))
    }

    fn of(session: &SessionDirectory, models: ReadModels, events: u64, damaged_lines: u64) -> Self {
        let turns: Vec<Turn> = models.threads.turns().into_iter().map(Turn::of).collect();
        let snapshot = models.session_snapshot;
        let usage = models.routing_limit.usage;
        let cost = models.routing_limit.cost;
        Self {
            session_id: session.id().clone(),
            path: session.path().to_path_buf(),
            title: snapshot.title,
            status: match snapshot.status {
                Fact::Known(status) => status,
                Fact::Stale(_) => Status::Stale,
                Fact::Unknown | Fact::Unavailable => Status::Unknown,
            },
            outcome: turns.last().and_then(|turn| turn.outcome),
            mode: snapshot.mode.known().copied(),
            model: snapshot.model.known().cloned(),
            created_at: snapshot.created_at,
            last_event_at: snapshot.last_event_at,
            events,
            damaged_lines,
            verification: verification(&turns, &models.evidence),
            turns,
            calls: models.calls.iter().map(ToolCall::of).collect(),
            pending_actions: models
                .permission_sandbox
                .pending
                .into_iter()
                .map(|pending| Pending {
                    action_id: pending.action_id,
                    tool_call_id: pending.tool_call_id,
                    tool_name: pending.tool_name,
                    title: pending.title,
                    asked_at: pending.asked_at,
                })
                .collect(),
            queue: models
                .queue
                .turns
                .into_iter()
                .map(|queued| Queued {
                    turn_id: queued.turn_id,
                    source: queued.source,
                    text: queued.text,
                })
                .collect(),
            files_changed: models
                .artifact_checkpoint
                .files_changed
                .into_iter()
                .map(|(path, file)| FileChange {
                    path,
                    kind: file.kind,
                    changes: file.changes,
                    sha256_before: file.sha256_before,
                    sha256_after: file.sha256_after,
                })
                .collect(),
            artifact_count: models.artifact_checkpoint.inventory.kept_count,
            usage: UsageTotal {
                input: usage.input,
                output: usage.output,
                total: usage.total,
                cached_input: usage.cached_input,
                reasoning: usage.reasoning,
                uncounted_requests: usage.uncounted_requests,
            },
            cost: CostTotal {
                amount: cost.amount,
                currency: cost.currency,
                unknown_requests: cost.unknown_requests,
            },
        }
    }
}

fn verification(turns: &[Turn], evidence: &EvidenceSummary) -> Option<Verification> {
    let of_turns = turns.iter().rev();
    evidence.verification_now(of_turns.filter_map(|turn| turn.verification.as_ref()))
}

impl Turn {
    fn of(turn: &TurnBrief) -> Self {
        let outcome = match turn.outcome {
            Some(outcome) => Some(outcome.as_str()),
            None => Some(turn.status)
                .filter(|status| status.is_terminal())
                .map(Status::as_str),
        };
        Self {
            turn_id: turn.turn_id.clone(),
            status: turn.status,
            source: turn.source,
            input: turn.input.clone(),
            model: turn.model.clone(),
            outcome,
            stop_reason: turn.stop_reason.clone(),
            final_text: turn.final_text.clone(),
            verification: turn.verification.clone(),
            submitted_at: turn.submitted_at,
            ended_at: turn.ended_at,
            steps: turn.steps,
            refused_calls: turn.refused_calls,
            files_changed: turn.files_changed,
            cost: turn.cost,
            code: turn.code.clone(),
            message: turn.message.clone(),
        }
    }
}

impl ToolCall {
    fn of(call: &Call) -> Self {
        let permission = call.permission.as_ref();
        let resolved = permission.and_then(|permission| permission.resolved.as_ref());
        let observation = call.observation.as_ref();
        Self {
            tool_call_id: call.tool_call_id.clone(),
            turn_id: call.turn_id.clone(),
            tool_name: call.tool_name.clone(),
            status: CallWord::of(call.status),
            code: call.code,
            decision: resolved
                .map(|resolved| resolved.decision)
                .or(permission.map(|permission| permission.decision)),
            decision_source: resolved
                .map(|resolved| resolved.source)
                .or(permission.map(|permission| permission.source)),
            title: observation.map(|observation| observation.title.clone()),
            summary: observation.map(|observation| observation.summary.clone()),
            duration_ms: call.end.as_ref().and_then(|end| end.duration_ms),
            paths_changed: call.paths_changed.clone(),
            artifacts: call.artifacts.clone(),
        }
    }
}

impl CallWord {
    pub(crate) fn of(status: CallStatus) -> Self {
        match status {
            CallStatus::Unknown => Self::Unknown,
            CallStatus::Proposed => Self::Proposed,
            CallStatus::Validated => Self::Validated,
            CallStatus::WaitingPermission => Self::WaitingPermission,
            CallStatus::Allowed => Self::Allowed,
            CallStatus::Running => Self::Running,
            CallStatus::Ok => Self::Ok,
            CallStatus::Failed => Self::Failed,
            CallStatus::Rejected => Self::Rejected,
            CallStatus::Denied => Self::Denied,
            CallStatus::Cancelled => Self::Cancelled,
            CallStatus::TimedOut => Self::TimedOut,
            CallStatus::Lost => Self::Lost,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Proposed => "proposed",
            Self::Validated => "validated",
            Self::WaitingPermission => "asks",
            Self::Allowed => "allowed",
            Self::Running => "running",
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Denied => "denied",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed out",
            Self::Lost => "lost",
        }
    }
}

fn as_text(show: &SessionShow, output: &Output) -> String {
    let mut lines = Vec::new();
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let value = clip(&visible(&value), output.width().saturating_sub(13));
            lines.push(format!(
                "{} {value}",
                output.paint(Tone::Faint, &format!("{name:<12}"))
            ));
        }
    };
    fact("session", Some(show.session_id.to_string()));
    fact("title", show.title.clone());
    fact("status", Some(show.status.to_string()));
    fact("began", show.created_at.map(local_second));
    fact("last event", show.last_event_at.map(local_second));
    fact("model", show.model.clone());
    fact("mode", show.mode.map(|mode| mode.to_string()));
    let artifacts = counted(show.artifact_count, "artifact");
    fact("events", Some(format!("{}, {artifacts}", show.events)));
    fact("tokens", usage_text(show));
    fact("cost", cost_text(show));
    for turn in &show.turns {
        lines.push(String::new());
        lines.extend(turn_lines(turn, show, output));
    }
    for pending in &show.pending_actions {
        let asks = output.paint(Tone::Warn, "pending question:");
        lines.push(format!(
            "{asks} {} ({})",
            visible(&pending.title),
            pending.action_id
        ));
    }
    for queued in &show.queue {
        let text = queued.text.as_deref().unwrap_or_default();
        lines.push(clip(&format!("queued: {}", visible(text)), output.width()));
    }
    if !show.files_changed.is_empty() {
        lines.push(String::new());
        lines.push(output.paint(Tone::Heading, "files changed"));
        for file in &show.files_changed {
            lines.push(format!("  {:<8} {}", file.kind, visible(&file.path)));
        }
    }
    lines.join("\n")
}

fn usage_text(show: &SessionShow) -> Option<String> {
    let usage = &show.usage;
    (usage.total > 0).then(|| {
        let (input, cached, output) = (usage.input, usage.cached_input, usage.output);
        format!("{input} in ({cached} cached), {output} out")
    })
}

fn cost_text(show: &SessionShow) -> Option<String> {
    let cost = &show.cost;
    let unknown = cost.unknown_requests;
    match (cost.amount > 0.0, unknown) {
        (false, 0) => None,
        (false, _) => Some(format!("unknown for {}", counted(unknown, "request"))),
        (true, 0) => Some(format!("{:.4} USD", cost.amount)),
        (true, _) => Some(format!(
            "{:.4} USD and unknown for {}",
            cost.amount,
            counted(unknown, "request")
        )),
    }
}

fn turn_lines(turn: &Turn, show: &SessionShow, output: &Output) -> Vec<String> {
    let word = turn.outcome.unwrap_or(turn.status.as_str());
    let verified = match &turn.verification {
        Some(verification) => format!(", verification {}", verification.status),
        None => String::new(),
    };
    let heading = format!("turn {} {word}{verified}", turn.turn_id);
    let mut lines = vec![output.paint(Tone::Heading, &heading)];
    lines.push(clip(
        &format!("  > {}", visible(&turn.input)),
        output.width(),
    ));
    let mut table = Table::new(&["", "", "", ""]);
    for call in show
        .calls
        .iter()
        .filter(|call| call.turn_id.as_ref() == Some(&turn.turn_id))
    {
        let by = call
            .decision_source
            .map(|source| source.to_string())
            .unwrap_or_default();
        let what = call.summary.as_deref().unwrap_or_default();
        table.row([
            format!("  {}", visible(&call.tool_name)),
            call.status.as_str().to_owned(),
            by,
            visible(what),
        ]);
    }
    lines.extend(table.lines(output.width()).into_iter().skip(1));
    if let Some(message) = &turn.message {
        let code = turn.code.as_deref().unwrap_or("failed");
        let line = format!("  {}: {}", visible(code), visible(message));
        lines.push(clip(&line, output.width()));
    }
    lines
}
