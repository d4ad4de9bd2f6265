//! The line below a call's title: how it went, where it ran, who let it through. On a narrow screen
//! what went well gives way: the badges are what one looks for then, and stay whole.

use agent_protocol::Phase;
use agent_protocol::payload::process::SandboxStatus;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::cells::Fold;
use crate::state::cell::{CallStage, Outcome, Permission, ToolCell};
use crate::text::{Break, bytes, cut, width, wrap};
use crate::theme::Theme;

/// How much of how it went is worth showing, however narrow the screen is.
const SHORTEST: usize = 16;

/// The sign before a call's name.
pub(super) fn sign_of(tool: &ToolCell, theme: Theme) -> (&'static str, Style) {
    match (&tool.stage, &tool.outcome) {
        (CallStage::Ended, Some(outcome)) if outcome.ok => ("✓", theme.good()),
        (CallStage::Ended, Some(outcome)) if outcome.refused() => ("⊘", theme.warn()),
        (CallStage::Ended, Some(_)) => ("✗", theme.bad()),
        (CallStage::Ended, None) => ("?", theme.warn()),
        (CallStage::Asking, _) => ("?", theme.warn()),
        (CallStage::Running, _) => ("▸", theme.accent()),
        (CallStage::Proposed | CallStage::Waiting, _) => ("·", theme.dim()),
    }
}

/// The outcome in one line, or in as many as it takes when the cell is folded out.
pub(super) fn draw(
    tool: &ToolCell,
    fold: Fold,
    columns: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let how = how(tool, theme);
    let mut badges = badges(tool, theme);
    if fold == Fold::Unfolded {
        let line = joined(how, badges, theme);
        return wrap(&line, columns, 2, Break::Words);
    }
    let taken = |badges: &[Badge]| -> usize {
        let each = badges.iter().map(|(text, _)| width(text) + 3);
        each.sum::<usize>() + 2
    };
    // Where a rule stands is said where there is room for it.
    let wanted = how.as_ref().map_or(0, |(text, _)| width(text));
    if taken(&badges) + wanted > columns
        && let Some((words, style)) = permission(tool, theme, false)
        && let Some(last) = badges.last_mut()
    {
        *last = (words, style);
    }
    // What went wrong is worth more than who let it through.
    let went_well = tool.outcome.as_ref().is_some_and(|outcome| outcome.ok);
    let room = match went_well && tool.stage == CallStage::Ended {
        true => columns.saturating_sub(taken(&badges)).max(SHORTEST),
        false => columns.saturating_sub(2),
    };
    let how = how.map(|(text, style)| (cut(&text, room), style));
    let line = joined(how, badges, theme);
    if line.spans.is_empty() {
        return Vec::new();
    }
    vec![cut_line(line, columns)]
}

type Badge = (String, Style);

fn joined(how: Option<Badge>, badges: Vec<Badge>, theme: Theme) -> Line<'static> {
    let mut spans = Vec::new();
    for (number, (text, style)) in how.into_iter().chain(badges).enumerate() {
        let gap = if number == 0 { "  " } else { " · " };
        spans.push(Span::styled(gap, theme.dim()));
        spans.push(Span::styled(text, style));
    }
    Line::from(spans)
}

/// How far it is, or how it went.
fn how(tool: &ToolCell, theme: Theme) -> Option<Badge> {
    Some(match (&tool.stage, &tool.outcome) {
        (CallStage::Asking, _) => ("waits for your answer".into(), theme.warn()),
        (CallStage::Waiting, _) => ("waits for its turn".into(), theme.dim()),
        (CallStage::Proposed, _) => ("being checked".into(), theme.dim()),
        (CallStage::Running, _) => {
            let mut text = "running".to_owned();
            match tool.live.line_count {
                0 => {}
                1 => text.push_str(", 1 line"),
                count => text.push_str(&format!(", {count} lines")),
            }
            if tool.live.bytes > 0 {
                text.push_str(&format!(", {}", bytes(tool.live.bytes)));
            }
            (text, theme.dim())
        }
        (CallStage::Ended, Some(outcome)) if outcome.refused() => {
            let words = permission(tool, theme, true).map(|(words, _)| words);
            (words.unwrap_or_else(|| "denied".into()), theme.warn())
        }
        (CallStage::Ended, Some(outcome)) if outcome.ok => {
            let text = match (outcome.exit_code, said(tool, outcome)) {
                (Some(exit), text) if text.is_empty() => format!("exit {exit}, no output"),
                (Some(exit), text) => format!("exit {exit}: {text}"),
                (None, text) if text.is_empty() => return None,
                (None, text) => text,
            };
            (text, Style::new())
        }
        (CallStage::Ended, Some(outcome)) => {
            let code = outcome.code.to_string();
            let mut text = match outcome.exit_code {
                Some(exit) if exit != 0 => format!("failed with exit {exit}"),
                _ if outcome.phase == Phase::Execute => format!("failed ({code})"),
                _ => format!("failed in {} ({code})", outcome.phase),
            };
            let said = said(tool, outcome);
            if !said.is_empty() {
                text.push_str(&format!(": {said}"));
            }
            (text, theme.bad())
        }
        (CallStage::Ended, None) => ("ended without a result".into(), theme.warn()),
    })
}

/// What the summary adds to title, exit code and badges; of a command whose summary adds nothing,
/// the last line it printed.
fn said(tool: &ToolCell, outcome: &Outcome) -> String {
    let mut text = outcome.summary.clone();
    if let Some(exit) = outcome.exit_code {
        text = text
            .replace(&format!("Exit code {exit}."), "")
            .replace("No output.", "")
            .trim()
            .to_owned();
        if text.is_empty() {
            let is_mark = |line: &str| matches!(line, "" | "[stdout]" | "[stderr]");
            let lines = tool.detail.output.lines().map(str::trim);
            let last = lines.rev().find(|line| !is_mark(line));
            return last.unwrap_or_default().to_owned();
        }
    }
    // The title names the file already.
    let name = format!("`{}`", tool.target);
    if !tool.target.is_empty() {
        for named in [
            format!("{name}, "),
            format!(" in {name}"),
            format!(" {name}"),
        ] {
            text = text.replacen(&named, "", 1);
        }
    }
    // And `+1 -1` says how many lines.
    if tool.detail.lines_added.is_some()
        && let Some((before, counted)) = text.split_once(": ")
        && counted.contains(" added")
    {
        text = before.to_owned();
    }
    let text = text.trim_end_matches('.');
    text.trim().to_owned()
}

/// What stands behind it; the last one says who let it through.
fn badges(tool: &ToolCell, theme: Theme) -> Vec<Badge> {
    let mut badges: Vec<Badge> = Vec::new();
    let detail = &tool.detail;
    if let (Some(added), Some(removed)) = (detail.lines_added, detail.lines_removed) {
        badges.push((format!("+{added} -{removed}"), Style::new()));
    }
    if detail.truncated {
        let text = format!("truncated, {} left out", bytes(detail.omitted_bytes));
        badges.push((text, theme.warn()));
    }
    match detail.violations.len() {
        0 => {}
        1 => badges.push(("sandbox refused 1 thing".into(), theme.warn())),
        count => badges.push((format!("sandbox refused {count} things"), theme.warn())),
    }
    if let Some(sandbox) = tool.sandbox {
        let (words, style) = match sandbox {
            SandboxStatus::Full => ("sandboxed", theme.dim()),
            SandboxStatus::Partial => ("partly sandboxed", theme.warn()),
            SandboxStatus::Off | SandboxStatus::Unavailable => ("not sandboxed", theme.warn()),
        };
        badges.push((words.into(), style));
    }
    // A refusal has said it already.
    if !tool.outcome.as_ref().is_some_and(Outcome::refused) {
        badges.extend(permission(tool, theme, true));
    }
    badges
}

/// Who let the call through or stopped it; `with_place` says where the rule stands.
fn permission(tool: &ToolCell, theme: Theme, with_place: bool) -> Option<Badge> {
    let rule_of = |rule: &str| match rule.rsplit_once(" (") {
        Some((rule, _)) if !with_place => rule.to_owned(),
        _ => rule.to_owned(),
    };
    let words = match tool.permission.as_ref()? {
        Permission::Allowed(why) => why.clone(),
        Permission::AllowedByRule(rule) => format!("allowed by rule {}", rule_of(rule)),
        Permission::AllowedByYou(words) | Permission::DeniedByYou(words) => words.clone(),
        Permission::DeniedByRule(rule) => format!("denied by rule {}", rule_of(rule)),
        Permission::Denied(why) => format!("denied: {why}"),
    };
    Some((words, theme.dim()))
}

/// Cuts a styled line; the whole is in the folded-out cell.
fn cut_line(line: Line<'static>, columns: usize) -> Line<'static> {
    if line.width() <= columns {
        return line;
    }
    let mut left = columns.saturating_sub(1);
    let mut spans = Vec::new();
    for span in line.spans {
        let span_width = width(&span.content);
        if span_width <= left {
            left -= span_width;
            spans.push(span);
        } else {
            let mut text = cut(&span.content, left + 1);
            if !text.ends_with('…') {
                text.push('…');
            }
            spans.push(Span::styled(text, span.style));
            break;
        }
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::cell::Detail;
    use agent_protocol::Code;

    fn call(target: &str, summary: &str, exit_code: Option<i32>, output: &str) -> ToolCell {
        ToolCell {
            target: target.into(),
            stage: CallStage::Ended,
            outcome: Some(Outcome {
                ok: exit_code.unwrap_or(0) == 0,
                code: Code::Ok,
                phase: Phase::Execute,
                summary: summary.into(),
                exit_code,
            }),
            permission: Some(Permission::AllowedByRule(
                "bash(x *) (config.toml:4)".into(),
            )),
            detail: Detail {
                output: output.into(),
                ..Detail::default()
            },
            ..ToolCell::default()
        }
    }

    fn check(tool: &ToolCell, columns: usize, expected: &str) {
        let drawn = draw(tool, Fold::Folded, columns, Theme::default());
        assert_eq!(drawn[0].to_string(), expected);
    }

    #[test]
    fn nothing_is_said_twice() {
        let rule = "allowed by rule bash(x *) (config.toml:4)";
        check(
            &call("x", "Exit code 0.", Some(0), "one\n[stderr]\n  two\n"),
            80,
            &format!("  exit 0: two · {rule}"),
        );
        check(
            &call("x", "Exit code 0. No output.", Some(0), ""),
            80,
            &format!("  exit 0, no output · {rule}"),
        );
        check(
            &call("x", "Exit code 3.", Some(3), ""),
            80,
            &format!("  failed with exit 3 · {rule}"),
        );
        check(
            &call("a.rs", "`a.rs`, lines 1-3 of 3.", None, ""),
            80,
            &format!("  lines 1-3 of 3 · {rule}"),
        );
        let mut edit = call(
            "a.rs",
            "Replaced 1 place in `a.rs`: 1 line added, 1 line removed.",
            None,
            "",
        );
        edit.detail.lines_added = Some(1);
        edit.detail.lines_removed = Some(1);
        check(&edit, 80, &format!("  Replaced 1 place · +1 -1 · {rule}"));
    }

    #[test]
    fn badges_stay_whole_on_a_narrow_screen() {
        let output = "a rather long line that a command has printed last of all";
        let mut tool = call("x", "Exit code 0.", Some(0), output);
        tool.sandbox = Some(SandboxStatus::Full);
        check(
            &tool,
            60,
            "  exit 0: a rather … · sandboxed · allowed by rule bash(x *)",
        );
    }
}
