//! What each cell looks like. Folded, a call is one title line and one line of outcome; everything
//! a sign says is also said in words.

use agent_protocol::payload::SideEffectKind;
use agent_protocol::status::VerificationStatus;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::outcome;
use crate::markdown::Marks;
use crate::state::cell::{
    Cell, CellKind, FileChange, Notice, NoticeLevel, ReasoningCell, ToolCell, TurnEnd, UserCell,
};
use crate::text::{Break, indent, wrap, wrap_all};
use crate::theme::Theme;
use crate::ui::Begun;
use crate::{diff, markdown, safe};
use agent_text::words::{bytes, duration, money, tokens};
use agent_text::{clip, width};

/// How much of a cell is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    Folded,
    Unfolded,
    /// It is still changing; the number is the screen's clock.
    Live(u64),
}

/// The cell as lines of at most `columns`.
#[must_use]
pub fn draw(cell: &Cell, fold: Fold, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    match &cell.kind {
        CellKind::User(user) => draw_user(user, columns, theme),
        CellKind::Assistant(said) => assistant(&said.text, said.interrupted, columns, theme),
        CellKind::Reasoning(reasoning) => draw_reasoning(reasoning, fold, columns, theme),
        CellKind::Tool(tool) => draw_tool(tool, fold, columns, theme),
        CellKind::TurnEnd(end) => draw_turn_end(end, columns, theme),
        CellKind::Notice(notice) => draw_notice(notice, fold, columns, theme),
    }
}

/// The cell without styles, for the clipboard and plain mode.
#[must_use]
pub fn plain_text(cell: &Cell) -> String {
    match &cell.kind {
        CellKind::User(user) => safe::content(&user.text),
        CellKind::Assistant(said) => safe::content(&said.text),
        _ => {
            let lines = draw(cell, Fold::Unfolded, 100, Theme::default());
            let lines: Vec<String> = lines
                .iter()
                .map(|line| line.to_string().trim_end().to_owned())
                .collect();
            lines.join("\n")
        }
    }
}

fn draw_user(user: &UserCell, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let lines: Vec<Line<'static>> = safe::content(user.text.trim_end())
        .lines()
        .map(|line| Line::styled(line.to_owned(), theme.strong()))
        .collect();
    // A very long input was sent whole; the transcript shows that it was long.
    let total = lines.len();
    let mut shown = wrap_all(
        &lines[..total.min(40)],
        columns.saturating_sub(2),
        0,
        Break::Words,
    );
    if total > 40 {
        shown.push(Line::styled(
            format!("… {} more lines", total - 40),
            theme.dim(),
        ));
    }
    for name in &user.attachments {
        shown.push(Line::styled(format!("+ {name}"), theme.dim()));
    }
    indent(shown, &Span::styled("› ", theme.accent()), &Span::raw("  "))
}

/// An answer as a whole.
#[must_use]
pub fn assistant(
    text: &str,
    interrupted: bool,
    columns: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let (mut lines, _) = marked_answer(text, Begun::default(), columns, theme);
    if interrupted {
        lines.extend(cut_off(columns, theme));
    }
    lines
}

/// What follows the blocks of an answer that are printed, with the places where its lines stay as they
/// are; what is printed of the next block too is not coloured again.
#[must_use]
pub fn marked_answer(
    text: &str,
    begun: Begun,
    columns: usize,
    theme: Theme,
) -> (Vec<Line<'static>>, Marks) {
    let (lines, marks) =
        markdown::render_from(text, begun.source, columns.saturating_sub(2), theme);
    (with_lead(lines, begun.bytes == 0, theme), marks)
}

/// What is said below an answer that broke off.
#[must_use]
pub fn cut_off(columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let text = clip("[the answer was cut off here]", columns.saturating_sub(2));
    with_lead(vec![Line::styled(text, theme.warn())], false, theme)
}

fn with_lead(lines: Vec<Line<'static>>, first: bool, theme: Theme) -> Vec<Line<'static>> {
    let lead = if first { "• " } else { "  " };
    indent(lines, &Span::styled(lead, theme.accent()), &Span::raw("  "))
}

fn draw_reasoning(
    reasoning: &ReasoningCell,
    fold: Fold,
    columns: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let size = match reasoning.characters {
        // It is not told; how much there is of it is.
        0 => bytes(reasoning.bytes),
        1 => "1 character".to_owned(),
        count => format!("{} characters", tokens(count)),
    };
    let cleaned = safe::content(reasoning.text.trim());
    let text = match fold {
        Fold::Folded if cleaned.is_empty() => format!("thought, {size}"),
        Fold::Folded => format!("thought, {size} ({} shows it)", theme.more),
        Fold::Unfolded => format!("thought, {size}"),
        Fold::Live(_) => {
            let lead = format!("thinking, {size}  ");
            let room = columns.saturating_sub(width(&lead) + 2);
            format!("{lead}{}", end_of(&cleaned, room))
        }
    };
    let mut lines = vec![Line::styled(
        clip(&format!("∴ {text}"), columns),
        theme.dim(),
    )];
    if fold == Fold::Unfolded {
        for line in cleaned.lines() {
            let line = Line::styled(format!("  {line}"), theme.dim());
            lines.extend(wrap(&line, columns, 2, Break::Words));
        }
    }
    lines
}

/// The end of `text` in one line of at most `columns`.
fn end_of(text: &str, columns: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().rev().take(columns).collect();
    let line = words.into_iter().rev().collect::<Vec<_>>().join(" ");
    if width(&line) <= columns {
        return line;
    }
    let mut from = line.len();
    while let Some(before) = line[..from].chars().next_back() {
        let next = from - before.len_utf8();
        if width(&line[next..]) + 1 > columns {
            break;
        }
        from = next;
    }
    format!("…{}", &line[from..])
}

fn draw_notice(notice: &Notice, fold: Fold, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let (lead, style) = match notice.level {
        NoticeLevel::Information => ("· ", theme.dim()),
        NoticeLevel::Warning => ("! warning: ", theme.warn()),
        NoticeLevel::Error => ("✗ error: ", theme.bad()),
    };
    let line = Line::from(vec![
        Span::styled(lead, style),
        Span::styled(notice.text.clone(), style),
    ]);
    let mut lines = wrap(&line, columns, 2, Break::Words);
    if let Some(detail) = &notice.detail {
        let shown = safe::content(detail);
        let most = if fold == Fold::Unfolded {
            usize::MAX
        } else {
            1
        };
        for detail in shown.lines().take(most) {
            let line = Line::styled(format!("  {detail}"), theme.dim());
            lines.extend(wrap(&line, columns, 2, Break::Words));
        }
    }
    lines
}

fn draw_tool(tool: &ToolCell, fold: Fold, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let (sign, style) = outcome::sign_of(tool, theme);
    let took = match (tool.duration_ms, fold) {
        (Some(millis), _) => duration(millis),
        _ => String::new(),
    };
    let room = columns.saturating_sub(
        2 + width(&tool.tool) + 1 + if took.is_empty() { 0 } else { width(&took) + 2 },
    );
    let mut title = vec![
        Span::styled(format!("{sign} "), style),
        Span::styled(tool.tool.clone(), theme.strong()),
        Span::raw(" "),
    ];
    let target = if fold == Fold::Unfolded {
        tool.target.clone()
    } else {
        clip(&tool.target, room)
    };
    title.push(Span::raw(target));
    if !took.is_empty() {
        title.push(Span::styled(format!("  {took}"), theme.dim()));
    }
    let mut lines = wrap(&Line::from(title), columns, 2, Break::Anywhere);
    lines.extend(outcome::draw(tool, fold, columns, theme));
    for said in &tool.saved {
        let line = Line::styled(format!("  {said}"), theme.dim());
        lines.extend(wrap(&line, columns, 4, Break::Words));
    }
    match fold {
        Fold::Folded if tool.own => own_output(tool, &mut lines, columns, theme),
        Fold::Folded => excerpt(tool, &mut lines, columns, theme),
        Fold::Unfolded => tool_detail(tool, &mut lines, columns, theme),
        Fold::Live(_) => {
            for line in tool.live.lines.iter() {
                lines.push(Line::styled(
                    clip(&format!("  │ {line}"), columns),
                    theme.dim(),
                ));
            }
            let partial = safe::one_line(&tool.live.partial);
            if !partial.is_empty() {
                lines.push(Line::styled(
                    clip(&format!("  │ {partial}"), columns),
                    theme.dim(),
                ));
            }
        }
    }
    lines
}

/// Lines of a diff that stay on the screen when it was applied.
const DIFF_LINES: usize = 24;
/// Lines of a command's output that stay: its last ones, where the outcome tends to be.
const OUTPUT_LINES: usize = 5;

/// What remains of a call that changed a file or ran a command; all of it is in the transcript.
fn excerpt(tool: &ToolCell, lines: &mut Vec<Line<'static>>, columns: usize, theme: Theme) {
    let Some(outcome) = &tool.outcome else {
        return;
    };
    let more = |count: usize| {
        let text = format!("… +{count} lines ({})", theme.more);
        Line::styled(clip(&text, columns.saturating_sub(2)), theme.dim())
    };
    let margin = Span::raw("  ");
    if outcome.ok && !tool.detail.diff.is_empty() {
        let path = Some(tool.target.as_str());
        let mut drawn =
            diff::render_under(path, &tool.detail.diff, columns.saturating_sub(2), theme);
        if drawn.len() > DIFF_LINES + 1 {
            let left_out = drawn.len() - DIFF_LINES;
            drawn.truncate(DIFF_LINES);
            drawn.push(more(left_out));
        }
        lines.extend(indent(drawn, &margin, &margin));
        return;
    }
    if outcome.exit_code.is_none() {
        return;
    }
    let output: Vec<&str> = tool.detail.output.lines().collect();
    // One line is the outcome's.
    if output.len() < 2 {
        return;
    }
    let total =
        usize::try_from(tool.live.line_count).map_or(output.len(), |all| all.max(output.len()));
    let shown = &output[output.len().saturating_sub(OUTPUT_LINES)..];
    if total > shown.len() {
        lines.extend(indent(vec![more(total - shown.len())], &margin, &margin));
    }
    for line in shown {
        let text = clip(&format!("  │ {line}"), columns);
        lines.push(Line::styled(text, theme.dim()));
    }
}

/// Lines of the user's own command that are shown; it was run to be read.
const OWN_LINES: usize = 40;

fn own_output(tool: &ToolCell, lines: &mut Vec<Line<'static>>, columns: usize, theme: Theme) {
    let output: Vec<&str> = tool.detail.output.lines().collect();
    // One line is the outcome's.
    if output.len() < 2 {
        return;
    }
    for line in output.iter().take(OWN_LINES) {
        let line = Line::from(vec![
            Span::styled("  │ ", theme.dim()),
            Span::raw((*line).to_owned()),
        ]);
        lines.extend(wrap(&line, columns, 4, Break::Anywhere));
    }
    if output.len() > OWN_LINES {
        let text = format!(
            "  │ … {} more lines ({} shows them)",
            output.len() - OWN_LINES,
            theme.more
        );
        lines.push(Line::styled(clip(&text, columns), theme.dim()));
    }
}

fn tool_detail(tool: &ToolCell, lines: &mut Vec<Line<'static>>, columns: usize, theme: Theme) {
    let detail = &tool.detail;
    let mut push = |text: String, style: Style| {
        lines.extend(wrap(
            &Line::styled(format!("  {text}"), style),
            columns,
            4,
            Break::Words,
        ));
    };
    for error in &detail.errors {
        push(error.clone(), theme.bad());
    }
    for violation in &detail.violations {
        push(format!("sandbox: {violation}"), theme.warn());
    }
    for change in &detail.changed {
        push(change_words(change), Style::new());
    }
    for step in &tool.chain {
        push(format!("◦ {step}"), theme.dim());
    }
    if detail.diff.is_empty() {
        for line in detail.output.lines() {
            let line = Line::styled(format!("  │ {line}"), theme.dim());
            lines.extend(wrap(&line, columns, 4, Break::Anywhere));
        }
    } else {
        let drawn = diff::render(&detail.diff, columns.saturating_sub(2), theme);
        lines.extend(indent(drawn, &Span::raw("  "), &Span::raw("  ")));
    }
    if detail.omitted_bytes > 0 {
        let text = format!("  {} not shown here", bytes(detail.omitted_bytes));
        lines.push(Line::styled(text, theme.warn()));
    }
    for artifact in &detail.artifacts {
        lines.push(Line::styled(
            clip(&format!("  artifact {artifact}"), columns),
            theme.dim(),
        ));
    }
}

fn change_words(change: &FileChange) -> String {
    let verb = match change.kind {
        SideEffectKind::Created => "created",
        SideEffectKind::Modified => "changed",
        SideEffectKind::Deleted => "deleted",
        SideEffectKind::ModeChanged => "mode changed",
    };
    format!("{verb} {}", change.path)
}

fn draw_turn_end(end: &TurnEnd, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut parts: Vec<(String, Style)> = Vec::new();
    if let Some(problem) = &end.problem {
        let (text, style) = match (end.cancelled, problem.is_empty()) {
            (true, _) => (format!("⊘ {problem}"), theme.dim()),
            (false, true) => ("✗ the turn failed".to_owned(), theme.bad()),
            (false, false) => (format!("✗ the turn failed: {problem}"), theme.bad()),
        };
        parts.push((text, style));
    }
    match end.refused_calls {
        // What makes it so is told below.
        0 if matches!(
            end.verification,
            Some(VerificationStatus::Failed | VerificationStatus::Stale)
        ) => {}
        0 if end.degraded => parts.push(("! something it needed is missing".into(), theme.warn())),
        0 => {}
        1 => parts.push(("! 1 call was refused".into(), theme.warn())),
        count => parts.push((format!("! {count} calls were refused"), theme.warn())),
    }
    let by = end
        .verified_by
        .as_deref()
        .map(|command| format!(": {command}"))
        .unwrap_or_default();
    match end.verification {
        Some(VerificationStatus::Passed) => {
            parts.push((format!("✓ verified{by} passed"), theme.good()))
        }
        Some(VerificationStatus::Failed) => {
            parts.push((format!("✗ verification failed{by}"), theme.bad()));
        }
        Some(VerificationStatus::Stale) => parts.push((
            format!("! stale: files changed after the last check{by}"),
            theme.warn(),
        )),
        Some(VerificationStatus::Unverified) => {
            parts.push((
                "? not verified: files changed, and no check was run".into(),
                theme.warn(),
            ));
        }
        Some(VerificationStatus::CouldNotBeJudged) => {
            parts.push((format!("? could not be judged{by}"), theme.warn()));
        }
        Some(VerificationStatus::NotApplicable) | None => {}
    }
    match end.files.len() {
        0 => {}
        1 => parts.push((change_words(&end.files[0]), Style::new())),
        count => parts.push((format!("{count} files changed"), Style::new())),
    }
    // Whoever sees only numbers asks what they are of.
    if parts.is_empty() {
        parts.push(("done".into(), theme.dim()));
    }
    if let Some(cost) = end.cost.filter(|cost| *cost > 0.0) {
        parts.push((money(cost), theme.dim()));
    }
    if let (Some(input), Some(output)) = (end.input_tokens, end.output_tokens) {
        parts.push((
            format!("{} in, {} out", tokens(input), tokens(output)),
            theme.dim(),
        ));
    }
    if let Some(millis) = end.duration_ms {
        parts.push((duration(millis), theme.dim()));
    }
    let mut spans = vec![Span::styled("─ ", theme.dim())];
    for (number, (text, style)) in parts.into_iter().enumerate() {
        if number > 0 {
            spans.push(Span::styled(" · ", theme.dim()));
        }
        spans.push(Span::styled(text, style));
    }
    let mut lines = wrap(&Line::from(spans), columns, 2, Break::Words);
    if end.files.len() > 1 {
        for change in end.files.iter().take(12) {
            lines.push(Line::from(clip(
                &format!("  {}", change_words(change)),
                columns,
            )));
        }
        if end.files.len() > 12 {
            let text = format!("  and {} more (/diff shows all)", end.files.len() - 12);
            lines.push(Line::styled(text, theme.dim()));
        }
    }
    lines
}
