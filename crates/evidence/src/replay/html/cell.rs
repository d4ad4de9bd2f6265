//! A call as one cell: what was asked, and in chips what was decided and what came of it.

use agent_history::fold::Call;
use agent_protocol::CallStatus;
use agent_protocol::Timestamp;

use super::super::entry::Entry;
use super::super::streamed::CallOutline;
use super::markup::escaped;
use super::{Page, span};
use agent_history::describe::Tone;

/// One call as a cell that opens; `first` is its first entry.
pub(super) fn cell(
    html: &mut String,
    page: &Page<'_>,
    number: u64,
    first: &Entry,
    outline: &CallOutline,
    begun: Option<Timestamp>,
) {
    let call = first
        .tool_call_id
        .as_ref()
        .and_then(|id| page.told.timeline.calls().get(id));
    let mut kinds: Vec<&str> = outline.kinds.iter().map(|kind| kind.as_str()).collect();
    kinds.sort_unstable();
    let tone = match call.map(|call| call.status) {
        Some(CallStatus::Ok) if call.is_some_and(hides_failure) => "warn",
        Some(CallStatus::Ok) => "good",
        Some(
            CallStatus::Failed
            | CallStatus::Rejected
            | CallStatus::Denied
            | CallStatus::TimedOut
            | CallStatus::Lost,
        ) => "bad",
        Some(CallStatus::Cancelled | CallStatus::WaitingPermission | CallStatus::Unknown)
        | None => "warn",
        Some(_) => "plain",
    };
    html.push_str(&format!(
        "<article class=\"call {tone}\" data-k=\"{}\" data-call=\"{number}\">",
        kinds.join(" ")
    ));
    // Every event of the call can be linked to, also before the cell was ever opened.
    for sequence in outline.sequences.iter().skip(1) {
        html.push_str(&format!("<i id=\"e{sequence}\"></i>"));
    }
    html.push_str(&format!("<details><summary id=\"e{}\">", first.sequence));
    html.push_str(&format!(
        "<span class=\"n\" title=\"{}\">{}</span><span class=\"l\">",
        begun.map_or_else(String::new, |begun| format!(
            "+{}",
            span(first.timestamp.millis_since(begun))
        )),
        first.sequence
    ));
    let name = call.map_or(first.description.label.as_ref(), |call| {
        call.tool_name.as_str()
    });
    escaped(html, name);
    html.push_str("</span><span class=\"s\">");
    escaped(
        html,
        &agent_text::clip(&agent_text::visible_line(&first.description.text), 240),
    );
    html.push_str("</span><span class=\"chips\">");
    if let Some(call) = call {
        chips(html, call, &outline.evidence);
    }
    html.push_str("</span></summary></details></article>\n");
}

fn chips(html: &mut String, call: &Call, evidence: &[Tone]) {
    let mut chip = |tone: &str, text: &str| {
        html.push_str(&format!("<span class=\"chip {tone}\">"));
        escaped(html, text);
        html.push_str("</span>");
    };
    if let Some(permission) = &call.permission {
        use agent_protocol::payload::permission::Effect;
        let by = permission.source.as_str().replace('_', " ");
        match (permission.decision, &permission.resolved) {
            (Effect::Allow, _) => chip("quiet", &format!("allowed by {by}")),
            (Effect::Deny, _) => chip("bad", &format!("denied by {by}")),
            (Effect::Ask, None) => chip("warn", "asked, no answer"),
            (Effect::Ask, Some(resolved)) => {
                let who = resolved.source.as_str().replace('_', " ");
                let tone = if resolved.decision == Effect::Deny {
                    "bad"
                } else {
                    "asked"
                };
                let word = if resolved.decision == Effect::Deny {
                    "denied"
                } else {
                    "allowed"
                };
                chip(tone, &format!("asked: {word} by {who}"));
            }
        }
    }
    if let Some(sandbox) = &call.sandbox {
        let tone = match sandbox.status.as_str() {
            "full" => "quiet",
            "partial" => "warn",
            _ => "bad",
        };
        chip(tone, &format!("sandbox {}", sandbox.status));
        if sandbox.violations > 0 {
            chip("bad", &format!("{} violations", sandbox.violations));
        }
    }
    for tone in evidence {
        chip(tone.as_str(), "verification");
    }
    match call.paths_changed.len() {
        0 => {}
        1 => chip("change", "1 file changed"),
        count => chip("change", &format!("{count} files changed")),
    }
    let exit = call.process.as_ref().and_then(|process| process.exit_code);
    match (call.status, exit) {
        (CallStatus::Ok, Some(code)) if hides_failure(call) => {
            chip(
                "warn",
                &format!("exit {code}, a command of the pipeline failed"),
            );
        }
        (CallStatus::Ok, Some(code)) => chip("good", &format!("exit {code}")),
        (CallStatus::Failed, Some(code)) => chip("bad", &format!("exit {code}")),
        (CallStatus::Ok, None) => chip("good", "ok"),
        (status, _) => {
            let word = status.as_str().replace('_', " ");
            let tone = match status {
                CallStatus::Failed
                | CallStatus::Rejected
                | CallStatus::Denied
                | CallStatus::TimedOut
                | CallStatus::Lost => "bad",
                _ => "warn",
            };
            let code = call.code.filter(|_| status != CallStatus::Denied);
            match code {
                Some(code) => chip(tone, &format!("{word}: {code}")),
                None => chip(tone, &word),
            }
        }
    }
    if let Some(spent) = call.end.as_ref().and_then(|end| end.duration_ms) {
        chip("time", &span(spent));
    }
}

fn hides_failure(call: &Call) -> bool {
    let process = call.process.as_ref();
    process.is_some_and(|process| process.pipeline_failed)
}
