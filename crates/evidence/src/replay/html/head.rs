//! The top of the page: what the session was, whether its record is whole, what it came to, and what
//! it changed.

use std::collections::BTreeMap;

use agent_protocol::payload::conversation::ClaimVerdict;
use agent_text::counted;

use super::super::claims::{conflicts, failures};
use super::super::summary::Summary;
use super::super::text::{clock, cost, decisions, open, tokens, verification};
use super::markup::escaped;
use super::{Page, span};
use crate::audit::{AuditReport, Severity};
use agent_history::describe::{Tone, phrases};

/// Findings of an audit that are listed at the top.
const FINDINGS: usize = 20;

/// The session's title, or the first thing the user said.
pub(super) fn title(summary: &Summary) -> String {
    let said = || {
        let first = summary.turns.first()?;
        (!first.input.is_empty()).then(|| first.input.clone())
    };
    summary
        .title
        .clone()
        .or_else(said)
        .unwrap_or_else(|| "A session".into())
}

/// What the page says before the timeline.
pub(super) fn head(html: &mut String, page: &Page<'_>, summary: &Summary, title: &str) {
    html.push_str("<header>\n<p class=\"brand\">agent replay</p>\n<h1>");
    escaped(html, title);
    html.push_str("</h1>\n<p class=\"meta\">");
    let mut meta = Vec::new();
    if let Some(begun) = summary.created_at {
        meta.push(clock(begun));
    }
    if let (Some(begun), Some(last)) = (summary.created_at, summary.last_event_at) {
        meta.push(span(last.millis_since(begun)));
    }
    meta.extend(summary.model.clone());
    if let Some(mode) = summary.mode {
        meta.push(format!("mode {mode}"));
    }
    if let Some(version) = &summary.agent_version {
        meta.push(format!("agent {version}"));
    }
    if let Some(program) = &summary.imported_from {
        meta.push(format!("imported from {program}"));
    }
    meta.push(page.told.session_id().to_string());
    for (at, fact) in meta.iter().enumerate() {
        if at > 0 {
            html.push_str(" <i>·</i> ");
        }
        html.push_str("<span>");
        escaped(html, fact);
        html.push_str("</span>");
    }
    html.push_str("</p>\n");
    verdict(html, page);
    html.push_str("<dl class=\"sum\">\n");
    let mut fact = |name: &str, value: &str, tone: Tone| {
        html.push_str(&format!(
            "<div class=\"{}\"><dt>{name}</dt><dd>",
            tone.as_str()
        ));
        escaped(html, value);
        html.push_str("</dd></div>\n");
    };
    let status = summary.status.map_or_else(
        || "unknown".into(),
        |status| status.as_str().replace('_', " "),
    );
    fact("Status", &status, Tone::Plain);
    let verified = verification(summary);
    let tone = match summary.verification.as_ref().map(|v| v.status.as_str()) {
        Some("passed") => Tone::Good,
        Some("failed") => Tone::Bad,
        Some("stale" | "unverified") => Tone::Warn,
        _ => Tone::Plain,
    };
    fact("Verified", &verified, tone);
    let calls: Vec<String> = summary
        .calls
        .iter()
        .map(|(status, count)| format!("{count} {}", status.replace('_', " ")))
        .collect();
    fact(
        "Calls",
        &if calls.is_empty() {
            "none".into()
        } else {
            calls.join(", ")
        },
        Tone::Plain,
    );
    fact("Decisions", &decisions(summary), Tone::Plain);
    fact("Tokens", &tokens(summary), Tone::Plain);
    fact("Cost", &cost(summary), Tone::Plain);
    if summary.violations > 0 {
        fact(
            "Sandbox violations",
            &summary.violations.to_string(),
            Tone::Bad,
        );
    }
    if let Some(claims) = conflicts(summary) {
        let tone = match summary.conflicts {
            0 => Tone::Warn,
            _ => Tone::Bad,
        };
        fact("Claims", &claims, tone);
    }
    for claim in &summary.claims {
        let tone = match claim.verdict {
            ClaimVerdict::Supported => Tone::Good,
            ClaimVerdict::Contradicted => Tone::Bad,
            _ => Tone::Warn,
        };
        fact("Claim", &phrases::claim(claim), tone);
    }
    if !summary.failures.is_empty() {
        fact("Failed tests", &failures(summary), Tone::Bad);
    }
    if !summary.open.is_nothing() {
        fact("Open", &open(summary), Tone::Warn);
    }
    html.push_str("</dl>\n");
    files(html, page, summary);
    html.push_str("</header>\n");
}

fn verdict(html: &mut String, page: &Page<'_>) {
    let integrity = &page.told.integrity;
    let is_ok = integrity.is_intact() && page.audit.is_none_or(AuditReport::is_ok);
    let (tone, mark, word) = if is_ok {
        ("good", "✓", "Record intact")
    } else {
        ("bad", "✗", "Record NOT intact")
    };
    html.push_str(&format!(
        "<section class=\"verdict {tone}\" id=\"integrity\" aria-label=\"Integrity\">\
         <strong><span aria-hidden=\"true\">{mark}</span> {word}</strong> <span>"
    ));
    escaped(html, &integrity.in_words());
    if let Some(report) = page.audit {
        escaped(
            html,
            &format!(
                "; {} hashed again, {} and {} followed",
                counted(report.artifacts, "artifact"),
                counted(report.calls, "call"),
                counted(report.turns, "turn")
            ),
        );
    }
    html.push_str("</span>");
    let errors: Vec<_> = page
        .audit
        .iter()
        .flat_map(|report| &report.findings)
        .filter(|finding| finding.severity != Severity::Note)
        .collect();
    if !errors.is_empty() {
        html.push_str("<ul>");
        for finding in errors.iter().take(FINDINGS) {
            html.push_str("<li>");
            if let Some(sequence) = finding.sequence {
                html.push_str(&format!("<a href=\"#e{sequence}\">event {sequence}</a>: "));
            }
            escaped(html, &format!("{} [{}]", finding.message, finding.code));
            html.push_str("</li>");
        }
        if errors.len() > FINDINGS {
            html.push_str(&format!("<li>and {} more</li>", errors.len() - FINDINGS));
        }
        html.push_str("</ul>");
    }
    html.push_str("</section>\n");
    if let Some(to) = page.told.range.to {
        html.push_str(&format!(
            "<p class=\"range\">This page shows the session up to event {to}.</p>\n"
        ));
    }
}

fn files(html: &mut String, page: &Page<'_>, summary: &Summary) {
    if summary.files_changed.is_empty() {
        return;
    }
    // Where each file was changed last, so that its name leads there.
    let mut places: BTreeMap<&str, u64> = BTreeMap::new();
    for call in page.told.timeline.calls().iter() {
        for path in &call.paths_changed {
            if let Some(end) = &call.end {
                places.insert(path, end.place.sequence);
            }
        }
    }
    let count = summary.files_changed.len();
    let plural = if count == 1 { "file" } else { "files" };
    html.push_str(&format!(
        "<details class=\"files\"{}><summary>{count} {plural} changed</summary><ul>\n",
        if count <= 12 { " open" } else { "" }
    ));
    for (path, file) in &summary.files_changed {
        let kind = file.kind.as_str();
        html.push_str(&format!(
            "<li class=\"{kind}\"><span class=\"what\">{}</span> ",
            kind.replace('_', " ")
        ));
        match places.get(path.as_str()) {
            Some(place) => html.push_str(&format!("<a href=\"#e{place}\">")),
            None => html.push_str("<span>"),
        }
        escaped(html, path);
        html.push_str(if places.contains_key(path.as_str()) {
            "</a>"
        } else {
            "</span>"
        });
        if file.changes > 1 {
            html.push_str(&format!(" <small>{} times</small>", file.changes));
        }
        html.push_str("</li>\n");
    }
    html.push_str("</ul></details>\n");
}
