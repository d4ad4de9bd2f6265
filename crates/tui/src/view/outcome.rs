//! The line below a call's title: how it went, where it ran, who let it through. On a narrow screen
//! what a call said gives way: how it ended and the badges are what one looks for, and stay whole.

use agent_protocol::payload::process::SandboxStatus;
use agent_protocol::{Code, Phase};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::cells::Fold;
use crate::state::cell::{CallStage, Outcome, Permission, TYPED, ToolCell};
use crate::text::{Break, wrap};
use crate::theme::Theme;
use agent_text::words::bytes;
use agent_text::{clip, width};

/// Fewest columns in which what a call said is worth showing; with less room only how it ended is told.
const SHORTEST: usize = 12;
/// Columns up to which what went wrong is worth more than who let it through.
const WRONG: usize = 44;

/// The sign before a call's name.
pub(super) fn sign_of(tool: &ToolCell, theme: Theme) -> (&'static str, Style) {
    match (&tool.stage, &tool.outcome) {
        (CallStage::Ended, Some(outcome)) if outcome.ok && outcome.pipeline_failed => {
            ("!", theme.warn())
        }
        (CallStage::Ended, Some(outcome)) if outcome.ok => ("✓", theme.good()),
        (CallStage::Ended, Some(outcome)) if outcome.refused() => ("⊘", theme.warn()),
        (CallStage::Ended, Some(outcome)) if outcome.code == Code::Cancelled => ("⊘", theme.warn()),
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
        let line = joined(how.map(|how| (how.whole(), how.style)), badges, theme);
        return wrap(&line, columns, 2, Break::Words);
    }
    let taken = |badges: &[Badge]| -> usize {
        let each = badges.iter().map(|(text, _)| width(text) + 3);
        each.sum::<usize>() + 2
    };
    // Where a rule stands is said where there is room for it.
    let wanted = how.as_ref().map_or(0, |how| width(&how.whole()));
    if taken(&badges) + wanted > columns
        && let Some((words, style)) = permission(tool, theme, false)
        && let Some(last) = badges.last_mut()
    {
        *last = (words, style);
    }
    let went_well = tool.outcome.as_ref().is_some_and(|outcome| outcome.ok);
    let least = match went_well || tool.stage != CallStage::Ended {
        true => 0,
        false => WRONG.min(columns.saturating_sub(2)),
    };
    let room = columns.saturating_sub(taken(&badges)).max(least);
    let how = how.map(|how| how.within(room));
    let line = joined(how, badges, theme);
    if line.spans.is_empty() {
        return Vec::new();
    }
    vec![cut_line(line, columns)]
}

type Badge = (String, Style);

/// How a call ended, and what it said.
struct How {
    ended: String,
    said: String,
    style: Style,
}

impl How {
    fn of(ended: impl Into<String>, style: Style) -> Self {
        Self {
            ended: ended.into(),
            said: String::new(),
            style,
        }
    }

    fn whole(&self) -> String {
        match (self.ended.is_empty(), self.said.is_empty()) {
            (_, true) => self.ended.clone(),
            (true, false) => self.said.clone(),
            (false, false) => format!("{}: {}", self.ended, self.said),
        }
    }

    /// In at most `room` columns, or as short as it can be said.
    fn within(&self, room: usize) -> Badge {
        let whole = self.whole();
        let worth = match self.ended.is_empty() {
            true => SHORTEST,
            false => width(&self.ended) + SHORTEST,
        };
        let text = match width(&whole) <= room || room >= worth {
            true => clip(&whole, room),
            false if self.ended.is_empty() => clip(&whole, SHORTEST),
            false => self.ended.clone(),
        };
        (text, self.style)
    }
}

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
fn how(tool: &ToolCell, theme: Theme) -> Option<How> {
    Some(match (&tool.stage, &tool.outcome) {
        (CallStage::Asking, _) => How::of("waits for your answer", theme.warn()),
        (CallStage::Waiting, _) => How::of("waits for its turn", theme.dim()),
        (CallStage::Proposed, _) => How::of("not decided yet", theme.dim()),
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
            How::of(text, theme.dim())
        }
        (CallStage::Ended, Some(outcome)) if outcome.refused() => {
            let words = permission(tool, theme, true).map(|(words, _)| words);
            How {
                ended: String::new(),
                said: words.unwrap_or_else(|| "denied".into()),
                style: theme.warn(),
            }
        }
        (CallStage::Ended, Some(outcome)) if outcome.code == Code::Cancelled => {
            How::of("interrupted", theme.warn())
        }
        (CallStage::Ended, Some(outcome)) if outcome.ok => {
            let said = said(tool, outcome);
            let ended = match (outcome.exit_code, said.is_empty()) {
                (Some(exit), true) => format!("exit {exit}, no output"),
                (Some(exit), false) => format!("exit {exit}"),
                (None, true) => return None,
                (None, false) => String::new(),
            };
            How {
                ended,
                said,
                style: Style::new(),
            }
        }
        (CallStage::Ended, Some(outcome)) => {
            let code = outcome.code.to_string();
            let ended = match outcome.exit_code {
                Some(exit) if exit != 0 => format!("failed with exit {exit}"),
                _ if outcome.phase == Phase::Execute => format!("failed ({code})"),
                _ => format!("failed in {} ({code})", outcome.phase),
            };
            How {
                ended,
                said: said(tool, outcome),
                style: theme.bad(),
            }
        }
        (CallStage::Ended, None) => How::of("ended without a result", theme.warn()),
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
    let is_typed = matches!(&tool.permission, Some(Permission::Allowed(by)) if by == TYPED);
    match detail.violations.len() {
        0 => {}
        // Whoever typed it is told how to give it what it lacks.
        _ if detail.no_network && is_typed => {
            let text = "no network: type !network first";
            badges.push((text.into(), theme.warn()));
        }
        1 if detail.no_network => {
            badges.push(("no network in the sandbox".into(), theme.warn()));
        }
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
            let mut text = clip(&span.content, left + 1);
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
                pipeline_failed: false,
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

    #[test]
    fn a_command_that_failed_inside_a_pipeline_is_not_shown_as_well() {
        let said = "Exit code 0. The commands of the pipeline ended with 1, 0.";
        let mut tool = call("t | tail", said, Some(0), "FAILED (failures=1)");
        assert_eq!(sign_of(&tool, Theme::default()).0, "✓");
        if let Some(outcome) = &mut tool.outcome {
            outcome.pipeline_failed = true;
        }
        assert_eq!(sign_of(&tool, Theme::default()).0, "!");
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
        // With less room, how it ended is told and nothing is cut.
        tool.detail.truncated = true;
        tool.detail.omitted_bytes = 27_300;
        check(
            &tool,
            80,
            "  exit 0 · truncated, 27 KB left out · sandboxed · allowed by rule bash(x *)",
        );
    }

    #[test]
    fn a_failure_says_where_it_ran_and_who_let_it_run() {
        let output = "FAIL sum takes negative numbers: expected -1, received 0";
        let mut tool = call("x", "Exit code 1.", Some(1), output);
        tool.sandbox = Some(SandboxStatus::Full);
        tool.permission = Some(Permission::AllowedByYou("allowed by you once".into()));
        check(
            &tool,
            80,
            "  failed with exit 1: FAIL sum takes negative… · sandboxed · allowed by you once",
        );
        check(
            &tool,
            60,
            "  failed with exit 1: FAIL sum takes negative… · sandboxed …",
        );
    }

    #[test]
    fn what_was_interrupted_did_not_fail() {
        let mut tool = call("x", "the command was cancelled", None, "");
        let outcome = tool.outcome.as_mut().unwrap();
        (outcome.ok, outcome.code) = (false, Code::Cancelled);
        tool.permission = None;
        check(&tool, 60, "  interrupted");
        assert_eq!(sign_of(&tool, Theme::default()).0, "⊘");
    }
}
