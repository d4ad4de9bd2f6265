//! Work beyond a single turn: tasks, sub-agents, jobs and channels.

use agent_protocol::payload::work::*;
use agent_text::counted;

use super::phrases::{spaced, span};
use super::{BlockKind, Description, Facts, Kind, Level, Tone};

fn task(level: Level, text: impl Into<String>) -> Description {
    Description::new(Kind::Record, level, "task", text)
}

/// `by the user: because`, as far as it is said.
fn by(who: &str, reason: &str) -> String {
    let mut text = String::new();
    if !who.is_empty() {
        text.push_str(&format!(" by {who}"));
    }
    if !reason.is_empty() {
        text.push_str(&format!(": {reason}"));
    }
    text
}

fn ids<T: ToString>(ids: &[T]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

pub(super) fn task_created(created: &TaskCreated) -> Description {
    let facts = Facts::default()
        .add("objective", &created.objective)
        .add("owner", &created.owner)
        .list("constraints", &created.constraints)
        .list("acceptance", &created.acceptance);
    task(Level::Detail, format!("new: {}", created.title)).facts(facts)
}

pub(super) fn task_accepted(accepted: &TaskAccepted) -> Description {
    task(
        Level::Record,
        format!("assigned{}", by(&accepted.assignee, "")),
    )
}

pub(super) fn task_queued(queued: &TaskQueued) -> Description {
    let text = format!(
        "queued at place {}{}",
        queued.position,
        by("", &queued.reason)
    );
    task(Level::Record, text)
}

pub(super) fn task_started(started: &TaskStarted) -> Description {
    let facts = Facts::default().add("thread", started.thread_id.as_str());
    task(
        Level::Detail,
        format!("work begins as run {}", started.run_id),
    )
    .facts(facts)
}

pub(super) fn task_updated(updated: &TaskUpdated) -> Description {
    let changed = &updated.changed;
    let facts = Facts::default()
        .maybe("title", changed.title.as_deref())
        .maybe("objective", changed.objective.as_deref())
        .maybe("owner", changed.owner.as_deref())
        .list("acceptance", &changed.acceptance);
    task(Level::Record, "description changed").facts(facts)
}

pub(super) fn task_progress(progress: &TaskProgress) -> Description {
    let counters = progress.counters.iter();
    let counters: Vec<String> = counters
        .map(|counter| format!("{} {}", counter.value, counter.name))
        .collect();
    let text = format!("{}{}", progress.phase, by("", &progress.summary));
    task(Level::Record, format!("progress, {text}"))
        .facts(Facts::default().list("counted", &counters))
}

pub(super) fn task_waiting(waiting: &TaskWaiting) -> Description {
    task(Level::Detail, format!("waits for {}", waiting.waiting_for)).tone(Tone::Warn)
}

pub(super) fn task_blocked(blocked: &TaskBlocked) -> Description {
    task(
        Level::Detail,
        format!("blocked{}", by("", &blocked.blocker)),
    )
    .tone(Tone::Warn)
}

pub(super) fn task_paused(paused: &TaskPaused) -> Description {
    task(
        Level::Detail,
        format!("paused{}", by(&paused.by, &paused.reason)),
    )
}

pub(super) fn task_resumed(resumed: &TaskResumed) -> Description {
    task(
        Level::Detail,
        format!("resumed{}", by(&resumed.by, &resumed.reason)),
    )
}

pub(super) fn task_retrying(retrying: &TaskRetrying) -> Description {
    let (old, new) = (&retrying.previous_run_id, &retrying.next_run_id);
    let text = format!(
        "tried again, run {new} after {old}{}",
        by("", &retrying.reason)
    );
    task(Level::Detail, text).tone(Tone::Warn)
}

pub(super) fn task_cancel_requested(requested: &TaskCancelRequested) -> Description {
    let text = format!(
        "cancellation requested{}",
        by(&requested.by, &requested.reason)
    );
    task(Level::Detail, text).tone(Tone::Warn)
}

pub(super) fn task_cancelled(cancelled: &TaskCancelled) -> Description {
    let facts = Facts::default().list("with it", &ids(&cancelled.children));
    task(
        Level::Headline,
        format!("cancelled{}", by("", &cancelled.reason)),
    )
    .tone(Tone::Warn)
    .facts(facts)
}

pub(super) fn task_timed_out(timed_out: &TaskTimedOut) -> Description {
    let (elapsed, limit) = (span(timed_out.elapsed_ms), span(timed_out.limit_ms));
    let text = format!("out of time after {elapsed}, the limit is {limit}");
    task(Level::Headline, text).tone(Tone::Bad)
}

pub(super) fn task_failed(failed: &TaskFailed) -> Description {
    let facts = Facts::default()
        .add("category", &failed.category)
        .list("evidence", &ids(&failed.evidence_ids));
    task(
        Level::Headline,
        format!("failed: {} ({})", failed.message, failed.code),
    )
    .tone(Tone::Bad)
    .facts(facts)
}

pub(super) fn task_lost(lost: &TaskLost) -> Description {
    let text = format!(
        "lost, last seen at event {}{}",
        lost.last_seen_sequence,
        by("", &lost.reason)
    );
    task(Level::Headline, text).tone(Tone::Bad)
}

pub(super) fn task_completed(completed: &TaskCompleted) -> Description {
    let results = &completed.acceptance_results;
    let missed: Vec<String> = results
        .iter()
        .filter(|result| !result.ok)
        .map(|result| result.criterion.clone())
        .collect();
    let met = results.len() - missed.len();
    let text = match results.len() {
        0 => "done".to_owned(),
        all => format!(
            "done, {met} of {}",
            counted(all as u64, "criterion").replace("ons", "a")
        ),
    };
    let facts = Facts::default()
        .add("delivery", spaced(&completed.delivery_state))
        .list("not met", &missed)
        .list("artifacts", &ids(&completed.artifact_ids))
        .list("evidence", &ids(&completed.evidence_ids));
    let tone = match missed.is_empty() {
        true => Tone::Good,
        false => Tone::Warn,
    };
    task(Level::Headline, text).tone(tone).facts(facts)
}

pub(super) fn task_archived(archived: &TaskArchived) -> Description {
    task(
        Level::Record,
        format!("archived{}", by("", &archived.reason)),
    )
}

pub(super) fn task_delegated(delegated: &TaskDelegated) -> Description {
    let to = match (
        &delegated.child_task_id,
        &delegated.subagent_id,
        &delegated.job_id,
    ) {
        (Some(id), _, _) => format!(" to task {id}"),
        (_, Some(id), _) => format!(" to sub-agent {id}"),
        (_, _, Some(id)) => format!(" to job {id}"),
        (None, None, None) => String::new(),
    };
    task(
        Level::Detail,
        format!("delegated{to}{}", by("", &delegated.reason)),
    )
}

pub(super) fn task_dependency_updated(updated: &TaskDependencyUpdated) -> Description {
    let edge = &updated.edge;
    let reason = edge.reason.as_deref().unwrap_or_default();
    let text = format!(
        "{} {} {} is {}{}",
        edge.from,
        spaced(&edge.kind),
        edge.to,
        spaced(&edge.status),
        by("", reason)
    );
    task(Level::Record, text)
}

pub(super) fn task_attempt_started(started: &TaskAttemptStarted) -> Description {
    let text = format!(
        "attempt {} begins{}",
        started.attempt_no,
        by(&started.worker, "")
    );
    let facts = Facts::default()
        .add("run", started.run_id.as_str())
        .list("inputs", &started.input_refs);
    task(Level::Record, text).facts(facts)
}

pub(super) fn task_attempt_completed(completed: &TaskAttemptCompleted) -> Description {
    let facts = Facts::default()
        .add("run", completed.run_id.as_str())
        .list("outputs", &completed.output_refs);
    task(
        Level::Detail,
        format!("attempt succeeded{}", by("", &completed.summary)),
    )
    .tone(Tone::Good)
    .facts(facts)
}

pub(super) fn task_attempt_failed(failed: &TaskAttemptFailed) -> Description {
    let mut text = format!("attempt failed: {} ({})", failed.last_error, failed.code);
    if failed.retryable {
        text.push_str("; can be tried again");
    }
    let facts = Facts::default()
        .add("category", &failed.category)
        .add("run", failed.run_id.as_str());
    task(Level::Detail, text).tone(Tone::Bad).facts(facts)
}

pub(super) fn task_profile_resolved(
    profile: &agent_protocol::payload::model::TaskProfileResolved,
) -> Description {
    let facts = Facts::default()
        .list("needs", &profile.required_capabilities)
        .maybe("latency", profile.latency.as_deref())
        .maybe("budget", profile.budget_class.as_deref());
    task(
        Level::Record,
        format!("{} work, as {} says", profile.kind, profile.source),
    )
    .facts(facts)
}

fn sub_agent(level: Level, text: impl Into<String>) -> Description {
    Description::new(Kind::Conversation, level, "sub-agent", text)
}

pub(super) fn subagent_spawned(spawned: &SubagentSpawned) -> Description {
    let name = match spawned.role.as_str() {
        "" => "a sub-agent".to_owned(),
        role => format!("sub-agent {role}"),
    };
    let text = match spawned.objective.as_str() {
        "" => format!("{name} begins"),
        objective => format!("{name} begins: {objective}"),
    };
    Description::new(Kind::Conversation, Level::Headline, "sub-agent", text)
}

pub(super) fn subagent_completed(_: &SubagentCompleted) -> Description {
    Description::new(
        Kind::Conversation,
        Level::Detail,
        "sub-agent",
        "it came back with a result",
    )
}

pub(super) fn subagent_failed(failed: &SubagentFailed) -> Description {
    Description::new(
        Kind::Problem,
        Level::Headline,
        "sub-agent",
        format!("it failed: {} ({})", failed.message, failed.code),
    )
    .tone(Tone::Bad)
}

pub(super) fn subagent_status(status: &SubagentStatus) -> Description {
    let detail = status.detail.as_deref().unwrap_or_default();
    let text = format!("it is {}{}", spaced(status.status.as_str()), by("", detail));
    sub_agent(Level::Record, text)
}

pub(super) fn subagent_input(input: &SubagentInput) -> Description {
    sub_agent(
        Level::Detail,
        format!("it was given input{}", by(&input.by, "")),
    )
    .facts(Facts::default().add("input", &input.input_ref))
}

pub(super) fn subagent_closed(closed: &SubagentClosed) -> Description {
    sub_agent(
        Level::Record,
        format!("it was closed{}", by("", &closed.reason)),
    )
}

fn channel(text: impl Into<String>) -> Description {
    Description::new(Kind::Record, Level::Record, "channel", text)
}

pub(super) fn channel_connected(connected: &ChannelConnected) -> Description {
    let text = format!(
        "{} connected as {} over {}",
        connected.channel_id, connected.peer_role, connected.transport
    );
    channel(text).facts(Facts::default().list("capabilities", &connected.capabilities))
}

pub(super) fn channel_disconnected(disconnected: &ChannelDisconnected) -> Description {
    let reason = by("", &disconnected.reason);
    channel(format!("{} disconnected{reason}", disconnected.channel_id))
}

pub(super) fn channel_resumed(resumed: &ChannelResumed) -> Description {
    let (id, from) = (&resumed.channel_id, resumed.from_sequence);
    channel(format!("{id} reconnected, from event {from}"))
}

pub(super) fn channel_message(message: &ChannelMessage) -> Description {
    let text = format!("{} sent {}", message.channel_id, spaced(&message.kind));
    channel(text).facts(Facts::default().maybe("message", message.reference.as_deref()))
}

pub(super) fn channel_permission_forwarded(forwarded: &ChannelPermissionForwarded) -> Description {
    let (action, id) = (&forwarded.action_id, &forwarded.channel_id);
    Description::new(
        Kind::Decision,
        Level::Detail,
        "channel",
        format!("question {action} went to {id}"),
    )
}

pub(super) fn channel_permission_returned(returned: &ChannelPermissionReturned) -> Description {
    let text = format!(
        "{} answered question {}: {}",
        returned.channel_id,
        returned.action_id,
        spaced(&returned.decision)
    );
    Description::new(Kind::Decision, Level::Detail, "channel", text)
}

fn job(level: Level, text: impl Into<String>) -> Description {
    Description::new(Kind::Command, level, "job", text)
}

pub(super) fn job_created(created: &JobCreated) -> Description {
    let items = created
        .item_count
        .map(|count| format!(", {}", counted(count, "item")));
    let text = format!(
        "{}, {}{}",
        created.job_id,
        spaced(created.kind.as_str()),
        items.unwrap_or_default()
    );
    job(Level::Detail, text)
}

pub(super) fn job_started(started: &JobStarted) -> Description {
    let process = started.process_id.as_ref();
    let process = process
        .map(|id| format!(" as process {id}"))
        .unwrap_or_default();
    job(Level::Record, format!("{} runs{process}", started.job_id))
}

pub(super) fn job_progress(progress: &JobProgress) -> Description {
    let of = progress
        .total
        .map(|total| format!(" of {total}"))
        .unwrap_or_default();
    job(
        Level::Record,
        format!("{}: {}{of} done", progress.job_id, progress.done),
    )
    .facts(Facts::default().maybe("output", progress.output_ref.as_deref()))
}

pub(super) fn job_item_started(item: &JobItemStarted) -> Description {
    let text = format!(
        "{}: item {}, attempt {}",
        item.job_id, item.item_id, item.attempt
    );
    job(Level::Record, text)
}

pub(super) fn job_item_completed(item: &JobItemCompleted) -> Description {
    job(
        Level::Record,
        format!("{}: item {} done", item.job_id, item.item_id),
    )
    .facts(Facts::default().maybe("output", item.output_ref.as_deref()))
}

pub(super) fn job_item_failed(item: &JobItemFailed) -> Description {
    let mut text = format!(
        "{}: item {} failed in attempt {}: {}",
        item.job_id, item.item_id, item.attempt, item.error
    );
    if item.retryable {
        text.push_str("; can be tried again");
    }
    job(Level::Detail, text).tone(Tone::Bad)
}

pub(super) fn job_completed(completed: &JobCompleted) -> Description {
    let result = completed.result.as_ref();
    let result = result.and_then(|result| serde_json::to_string_pretty(result).ok());
    let text = format!("{} done{}", completed.job_id, by("", &completed.summary));
    job(Level::Detail, text).tone(Tone::Good).block(
        BlockKind::Json,
        "result",
        result.unwrap_or_default(),
    )
}

pub(super) fn job_failed(failed: &JobFailed) -> Description {
    let text = format!("{} failed: {}", failed.job_id, failed.error);
    job(Level::Headline, text).tone(Tone::Bad)
}

pub(super) fn job_cancelled(cancelled: &JobCancelled) -> Description {
    let text = format!(
        "{} stopped{}",
        cancelled.job_id,
        by(&cancelled.by, &cancelled.reason)
    );
    job(Level::Detail, text).tone(Tone::Warn)
}
