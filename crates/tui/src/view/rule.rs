//! The rule that is to be saved with an answer: what it would let through, what it would not, and where it is kept.

use agent_protocol::payload::permission::Effect;
use agent_protocol::reply::{RuleExample, RulePreview};
use ratatui::text::{Line, Span};

use super::answers::{self, answer};
use super::prompt::{Footer, editor_footer};
use crate::keymap::Action;
use crate::safe;
use crate::text::{Break, wrap};
use crate::theme::Theme;
use crate::ui::Ui;
use crate::ui::prompt::RuleDraft;

/// The rule with its examples, and the keys; `taken` when keys count.
pub(super) fn footer(ui: &Ui, draft: &RuleDraft, taken: bool, columns: usize) -> Footer {
    let theme = ui.theme;
    if draft.is_written {
        let open = ui.settings.keys.shown(Action::Editor);
        let title = "Write the rule; a * at its end stands for whatever follows:";
        let notes = preview(draft, columns, theme);
        return editor_footer(
            title,
            &draft.editor,
            notes,
            "Enter takes it",
            &open,
            columns,
            theme,
        );
    }
    let rule = draft.rule();
    let head = match &rule {
        Some(rule) => Line::from(vec![
            Span::raw("Allow, and save the rule "),
            Span::styled(safe::one_line(rule), theme.strong()),
            Span::raw(" where?"),
        ]),
        None => Line::from(format!(
            "The rule {} can't be saved.",
            safe::one_line(draft.editor.text())
        )),
    };
    let mut lines = vec![Line::default()];
    lines.extend(wrap(&head, columns, 2, Break::Words));
    lines.extend(preview(draft, columns, theme));
    let saves = taken && rule.is_some();
    let mut group = vec![
        answer("p", "for you in this project", saves),
        answer("u", "for you everywhere", saves),
        answer(ui.settings.keys.answer("e"), "change it", taken),
    ];
    if draft
        .preview
        .as_ref()
        .is_some_and(|preview| preview.wider.is_some())
    {
        group.push(answer("w", "wider", taken));
    }
    group.push(answer("Esc", "back", taken));
    lines.extend(answers::rows(&[group], columns, theme));
    (lines, None)
}

fn preview(draft: &RuleDraft, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let Some(preview) = &draft.preview else {
        return Vec::new();
    };
    let style = match preview.problem {
        Some(_) => theme.bad(),
        None => theme.dim(),
    };
    let told = in_words(preview);
    let lines = told.iter().flat_map(|line| {
        let line = Line::styled(format!("  {line}"), style);
        wrap(&line, columns, 4, Break::Anywhere)
    });
    lines.collect()
}

/// What the session said about a rule, a line for each thing.
pub(crate) fn in_words(preview: &RulePreview) -> Vec<String> {
    if let Some(problem) = &preview.problem {
        return vec![safe::one_line(problem)];
    }
    let mut lines: Vec<String> = preview.examples.iter().map(example).collect();
    if let Some(wider) = &preview.wider {
        lines.push(format!("wider: {}", safe::one_line(wider)));
    }
    lines
}

fn example(example: &RuleExample) -> String {
    let verb = match example.decision {
        Effect::Allow => "allows",
        Effect::Ask => "still asks",
        Effect::Deny => "still denied",
    };
    let mut line = format!("{verb}: {}", safe::one_line(&example.call));
    if example.from_session {
        line.push_str(" (called in this session)");
    }
    if let Some(rule) = &example.held_by {
        line.push_str(&format!(" (by your rule {})", safe::one_line(rule)));
    }
    line
}
