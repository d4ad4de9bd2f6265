//! A report on a session for other programs and for a pull request: what was done, decided,
//! verified and spent, and not a word of any prompt.

use std::collections::BTreeMap;
use std::path::PathBuf;

use agent_history::fold::{Call, EventPlace};
use agent_log::{AnchorStore, SessionDirectory};
use agent_protocol::CallStatus;
use agent_protocol::Payload;
use agent_protocol::id::SessionId;
use agent_protocol::payload::model::PromptEvidence;
use serde_json::{Value, json};

use crate::replay::{
    Integrity, Range, ReplayError, Summary, Timeline, json as replay_json, replay_each,
};

/// What a session amounts to, from its events alone.
#[derive(Debug)]
pub struct Report {
    session_id: SessionId,
    log_path: PathBuf,
    summary: Summary,
    timeline: Timeline,
    integrity: Integrity,
    prompt: Prompt,
    request_ids: Vec<String>,
    providers: Vec<String>,
}

/// What is known of the prompts without holding any of their text.
#[derive(Debug, Default)]
struct Prompt {
    requests: u64,
    last: Option<PromptEvidence>,
    strategies: BTreeMap<String, u64>,
}

/// How many provider request ids are listed.
const MOST_IDS: usize = 1000;

/// Reads a session and reports on it.
///
/// # Errors
/// When the log cannot be read.
pub fn report(
    session: &SessionDirectory,
    anchors: Option<&AnchorStore>,
) -> Result<Report, ReplayError> {
    let mut prompt = Prompt::default();
    let mut request_ids = Vec::new();
    let mut providers: Vec<String> = Vec::new();
    let (timeline, integrity) = replay_each(session, anchors, Range::default(), |_, event| {
        match event.payload {
            Payload::ModelRequested(requested) => {
                prompt.requests += 1;
                *prompt.strategies.entry(requested.strategy).or_default() += 1;
                if !providers.contains(&requested.provider) {
                    providers.push(requested.provider);
                }
                prompt.last = Some(requested.prompt_evidence);
            }
            Payload::ModelCompleted(completed) if request_ids.len() < MOST_IDS => {
                request_ids.extend(completed.request_id);
            }
            _ => {}
        }
    })?;
    Ok(Report {
        session_id: session.id().clone(),
        log_path: session.log_path(),
        summary: timeline.summary(),
        timeline,
        integrity,
        prompt,
        request_ids,
        providers,
    })
}

impl Report {
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// One word for how the session ended, and why.
    fn status(&self) -> (&'static str, String) {
        let Some(last) = self.summary.turns.last() else {
            return ("empty", "no turn was submitted".into());
        };
        if !self.summary.open.is_nothing() && self.summary.open.actions > 0 {
            return ("waiting", "a question waits for an answer".into());
        }
        match (last.status.as_str(), &last.code) {
            // No event says so: nobody writes the session any more.
            ("lost", None) => (
                "lost",
                "the log stops before the turn ends, and nobody writes it now".into(),
            ),
            ("completed", _) => {
                let outcome = last.outcome.map_or("completed", |outcome| outcome.as_str());
                let reason = last.stop_reason.clone().unwrap_or_else(|| "unknown".into());
                (
                    if outcome == "degraded" {
                        "degraded"
                    } else {
                        "completed"
                    },
                    reason,
                )
            }
            (status @ ("failed" | "cancelled" | "timed_out" | "lost"), code) => {
                let word = match status {
                    "cancelled" => "cancelled",
                    "timed_out" => "timed_out",
                    "lost" => "lost",
                    _ => "failed",
                };
                (word, code.clone().unwrap_or_else(|| "unknown".into()))
            }
            ("blocked", _) => (
                "waiting",
                "a question was answered, and the session has not been resumed since".into(),
            ),
            _ => ("open", "the last turn has not ended".into()),
        }
    }

    /// As `agent report --json` prints it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let summary = &self.summary;
        let (status, reason) = self.status();
        let calls: Vec<Value> = self
            .timeline
            .calls()
            .iter()
            .map(|call| replay_json::call_json(call, &self.timeline))
            .collect();
        let artifacts: Vec<&str> = self
            .timeline
            .models()
            .artifact_checkpoint
            .inventory
            .artifacts
            .keys()
            .map(|id| id.as_str())
            .collect();
        let turns = summary.turns.iter().map(|turn| {
            json!({
                "turn_id": turn.turn_id.as_str(),
                "model": turn.model,
                "joined_into": turn.joined_into,
                "status": turn.status.as_str(),
                "outcome": turn.outcome.map(|outcome| outcome.as_str()),
                "stop_reason": turn.stop_reason,
                "code": turn.code,
                "verification": turn.verification,
                "usage": turn.usage,
                "cost": turn.cost,
                "steps": turn.steps,
                "refused_calls": turn.refused_calls,
            })
        });
        let evidence = self.prompt.last.as_ref();
        json!({
            "session_id": self.session_id.as_str(),
            "status": status,
            "reason": reason,
            "events_path": self.log_path.display().to_string(),
            "created_at": summary.created_at,
            "last_event_at": summary.last_event_at,
            "agent_version": summary.agent_version,
            "imported_from": summary.imported_from,
            "integrity": replay_json::integrity(&self.integrity),
            "summary": self.summary_json(),
            "turns": turns.collect::<Vec<_>>(),
            "tool_calls": calls,
            "artifacts": artifacts,
            "usage": {
                "model": summary.model,
                "models": self.timeline.models().routing_limit.by_model,
                "providers": self.providers,
                "request_ids": self.request_ids,
                "input": summary.usage.input,
                "output": summary.usage.output,
                "cached_input": summary.usage.cached_input,
                "uncounted_requests": summary.usage.uncounted_requests,
            },
            "meta": {
                "prompt_requests": self.prompt.requests,
                "prompt_strategies": self.prompt.strategies,
                "prompt_render_mode": evidence.map(|evidence| evidence.render_mode.clone()),
                "prompt_profile": evidence.and_then(|evidence| evidence.profile.clone()),
                "prompt_hash": evidence.map(|evidence| evidence.prompt_hash.clone()),
                "prompt_message_count": evidence.map(|evidence| evidence.message_count),
                "prompt_roles": evidence.map(|evidence| evidence.roles.clone()),
                "prompt_modalities": evidence.map(|evidence| evidence.modalities.clone()),
                "prompt_content_part_counts": evidence.map(|evidence| json!({
                    "text": evidence.text_parts,
                    "image": evidence.image_parts,
                })),
                "prompt_media_count": evidence.map(|evidence| evidence.media_count),
            },
        })
    }

    /// The summary without words of an answer.
    fn summary_json(&self) -> Value {
        let mut summary = replay_json::summary_json(&self.summary);
        let claims = summary.get_mut("claims").and_then(Value::as_array_mut);
        for claim in claims.into_iter().flatten() {
            if let Some(claim) = claim.as_object_mut() {
                claim.remove("text");
            }
        }
        summary
    }

    /// A summary for a pull request.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let summary = &self.summary;
        let (status, reason) = self.status();
        let mark = if self.integrity.is_intact() {
            "✅"
        } else {
            "❌"
        };
        let mut text = format!("### Agent session `{}`\n\n", self.session_id);
        text.push_str(&format!(
            "**Verification:** {}  \n**Record:** {mark} {}  \n**Ended:** {status} ({})\n\n",
            inline(&crate::replay::text::verification(summary)),
            inline(&self.integrity.in_words()),
            inline(&reason.replace('_', " "))
        ));
        let calls = summary.calls.iter();
        let calls: Vec<String> = calls
            .map(|(status, count)| format!("{count} {}", status.replace('_', " ")))
            .collect();
        text.push_str("| | |\n| --- | --- |\n");
        let mut row = |name: &str, value: &str| {
            text.push_str(&format!("| {name} | {} |\n", inline(value)));
        };
        row("Model", summary.model.as_deref().unwrap_or("unknown"));
        row("Turns", &summary.turns.len().to_string());
        row(
            "Calls",
            &if calls.is_empty() {
                "none".into()
            } else {
                calls.join(", ")
            },
        );
        row("Decisions", &crate::replay::text::decisions(summary));
        row("Tokens", &crate::replay::text::tokens(summary));
        row("Cost", &crate::replay::text::cost(summary));
        if summary.violations > 0 {
            row("Sandbox violations", &summary.violations.to_string());
        }
        if let Some(claims) = crate::replay::claims::conflicts(summary) {
            row("Claims", &claims);
        }
        if !summary.failures.is_empty() {
            row("Failed tests", &crate::replay::claims::failures(summary));
        }
        if !summary.claims.is_empty() {
            text.push_str("\n**Claims and their evidence**\n\n");
            for claim in &summary.claims {
                let said = agent_history::describe::phrases::claim_about(claim);
                text.push_str(&format!("- {}\n", inline(&said)));
            }
        }
        if !summary.files_changed.is_empty() {
            text.push_str("\n**Files changed**\n\n");
            for (path, file) in &summary.files_changed {
                let kind = file.kind.as_str().replace('_', " ");
                text.push_str(&format!("- {} ({kind})\n", code(path)));
            }
        }
        let commands: Vec<&Call> = self
            .timeline
            .calls()
            .iter()
            .filter(|call| call.process.is_some())
            .collect();
        if !commands.is_empty() {
            text.push_str("\n**Commands**\n\n| command | allowed by | sandbox | exit |\n| --- | --- | --- | --- |\n");
            for call in commands {
                let Some(process) = &call.process else {
                    continue;
                };
                let by = call
                    .permission
                    .as_ref()
                    .map_or("unknown", |permission| match &permission.resolved {
                        Some(resolved) => resolved.source.as_str(),
                        None => permission.source.as_str(),
                    });
                let sandbox = call.sandbox.as_ref();
                let sandbox = sandbox.map_or("unknown", |sandbox| sandbox.status.as_str());
                let exit = process
                    .exit_code
                    .map_or_else(|| "unknown".into(), |code| code.to_string());
                text.push_str(&format!(
                    "| {} | {} | {sandbox} | {exit} |\n",
                    code(&process.command_summary),
                    by.replace('_', " ")
                ));
            }
        }
        let refused: Vec<&Call> = self
            .timeline
            .calls()
            .iter()
            .filter(|call| call.status == CallStatus::Denied)
            .collect();
        if !refused.is_empty() {
            text.push_str("\n**Refused**\n\n");
            for call in refused {
                let why = call.permission.as_ref().map_or_else(
                    || "unknown".to_owned(),
                    |permission| match &permission.resolved {
                        // Why it was asked is not why it was refused.
                        Some(answer) => {
                            let by = answer.source.as_str().replace('_', " ");
                            match &answer.note {
                                Some(note) => format!("refused by {by}: {note}"),
                                None => format!("refused by {by}"),
                            }
                        }
                        None => permission.reason.clone(),
                    },
                );
                text.push_str(&format!("- {}: {}\n", code(&call.tool_name), inline(&why)));
            }
        }
        text
    }
}

impl Report {
    /// The summary, and every call with the events and artifacts that speak for it.
    #[must_use]
    pub fn to_review(&self) -> String {
        let mut text = self.to_markdown();
        text.push_str("\n**Calls and their references**\n\n");
        for call in self.timeline.calls().iter() {
            let number = self.timeline.call_number(&call.tool_call_id).unwrap_or(0);
            text.push_str(&format!(
                "{number}. {} — {}\n",
                code(&call.tool_name),
                inline(call.status.as_str())
            ));
            let mut place = |what: &str, place: Option<&EventPlace>| {
                if let Some(place) = place {
                    text.push_str(&format!(
                        "   - {what}: event {} (`{}`)\n",
                        place.sequence, place.event_id
                    ));
                }
            };
            place("asked for", call.intent.as_ref());
            let permission = call.permission.as_ref();
            place("decided", permission.map(|permission| &permission.place));
            let answer = call
                .action
                .as_ref()
                .and_then(|action| action.answered.as_ref());
            place("answered", answer);
            place(
                "confined",
                call.sandbox.as_ref().map(|sandbox| &sandbox.place),
            );
            place("ended", call.end.as_ref().map(|end| &end.place));
            place("shown", call.observation.as_ref().map(|seen| &seen.place));
            for artifact in &call.artifacts {
                text.push_str(&format!("   - artifact `{artifact}`\n"));
            }
        }
        text
    }
}

/// The schema of the object, as `docs/schemas/report.schema.json` has it.
#[must_use]
pub fn schema() -> Value {
    let object = json!({ "type": "object" });
    let list = json!({ "type": "array" });
    let text = json!({ "type": "string" });
    let maybe_text = json!({ "type": ["string", "null"] });
    let statuses = [
        "completed",
        "degraded",
        "failed",
        "cancelled",
        "timed_out",
        "lost",
        "waiting",
        "open",
        "empty",
    ];
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "agent report",
        "description": "What `agent report --json` prints: a session from its events alone, without the text of any prompt or answer.",
        "type": "object",
        "required": ["session_id", "status", "reason", "events_path", "integrity", "summary", "turns", "tool_calls", "artifacts", "usage", "meta"],
        "properties": {
            "session_id": text,
            "status": { "enum": statuses },
            "reason": text,
            "events_path": text,
            "created_at": maybe_text,
            "last_event_at": maybe_text,
            "agent_version": maybe_text,
            "imported_from": maybe_text,
            "integrity": object,
            "summary": object,
            "turns": list,
            "tool_calls": { "type": "array", "items": {
                "type": "object",
                "required": ["tool_call_id", "tool_name", "status", "decision"],
            } },
            "artifacts": { "type": "array", "items": { "type": "string" } },
            "usage": object,
            "meta": object,
        },
        "additionalProperties": false,
    })
}

/// Text that stands in a line or a cell of Markdown and means nothing there.
fn inline(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in agent_text::visible_line(text).chars() {
        match character {
            '|' | '<' | '>' | '*' | '_' | '[' | ']' | '#' | '\\' | '@' => {
                shown.push('\\');
                shown.push(character);
            }
            '`' => shown.push('\''),
            other => shown.push(other),
        }
    }
    shown
}

/// Text as code in a line or a cell.
fn code(text: &str) -> String {
    let text = agent_text::visible_line(text).replace('|', "\\|");
    let text = agent_text::brief(&text, 160);
    if text.contains('`') {
        format!("`` {text} ``")
    } else {
        format!("`{text}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_says_is_no_markdown() {
        assert_eq!(
            inline("a|b <script> @team *x*"),
            "a\\|b \\<script\\> \\@team \\*x\\*"
        );
        assert_eq!(code("a `b` | c"), "`` a `b` \\| c ``");
        assert_eq!(code("x\ny"), "`x\\ny`");
    }
}
