//! The question: what exactly will happen, why it asks, what is at stake, and the answers. What is
//! asked is never cut; when it does not fit, it scrolls, and nothing can be allowed before its end
//! was on the screen.

use std::sync::Arc;

use agent_protocol::id::ActionId;
use agent_protocol::payload::permission::ActionType;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::diff;
use crate::safe::{self, Piece};
use crate::state::pending::{Pending, Subject};
use crate::text::{Break, cut, wrap};
use crate::theme::Theme;
use crate::ui::overlay::Scroll;
use crate::ui::prompt::{Stage, explain_rule};
use crate::ui::{ShownPrompt, Ui};

/// The drawn question.
pub(super) struct DrawnPrompt {
    pub(super) lines: Vec<Line<'static>>,
    pub(super) cursor: Option<(u16, u16)>,
    pub(super) shown: ShownPrompt,
}

/// Draws the open question into at most `height` lines.
pub(super) fn draw(ui: &Ui, columns: usize, height: usize) -> Option<DrawnPrompt> {
    let pending = ui.current()?;
    let prompt = ui.prompt.as_ref()?;
    let theme = ui.theme;
    let body = kept_body(ui, pending, columns);
    // On a small screen every line counts.
    let gap = height >= 23;
    let (footer, cursor) = footer(ui, pending, gap, columns, theme);
    let head = head(ui, pending, gap, columns, theme);
    let room = height.saturating_sub(head.len() + footer.len()).max(3);
    let fits = body.len() <= room;
    let window = if fits { body.len() } else { room - 1 };
    let last = body.len() - window;
    let at = prompt.scroll.min(last);
    let mut lines = head;
    let total = body.len();
    lines.extend(body.iter().skip(at).take(window).cloned());
    if !fits {
        let text = if at < last {
            format!(
                "── {} more lines (Space, PgDn); allowing works at the end ──",
                last - at
            )
        } else {
            format!("── end of {total} lines: PgUp goes back ──")
        };
        lines.push(Line::styled(cut(&text, columns), theme.warn()));
    }
    let offset = u16::try_from(lines.len()).unwrap_or(0);
    lines.extend(footer);
    Some(DrawnPrompt {
        lines,
        cursor: cursor.map(|(column, row)| (column, row + offset)),
        shown: ShownPrompt {
            action_id: pending.action_id.clone(),
            // What is not there to read yet cannot have been read.
            scroll: Scroll {
                at,
                last: if is_loading(ui, pending) {
                    usize::MAX
                } else {
                    last
                },
                page: window,
            },
        },
    })
}

/// Whether what is asked is still being fetched.
#[must_use]
pub fn is_loading(ui: &Ui, pending: &Pending) -> bool {
    matches!(pending.subject(), Subject::Diff(artifact) if !ui.artifacts.contains_key(&artifact))
}

fn head(ui: &Ui, pending: &Pending, gap: bool, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let waiting = ui.waiting();
    let counter = if waiting > 1 {
        format!("1 of {waiting} questions · ")
    } else {
        String::new()
    };
    let title = if pending.title.is_empty() {
        format!("{} wants to run", pending.tool)
    } else {
        safe::one_line(&pending.title)
    };
    let mut spans = vec![
        Span::styled("? ", theme.warn()),
        Span::styled(counter, theme.dim()),
        Span::styled(title, theme.strong()),
    ];
    if let Some(cwd) = &pending.cwd {
        spans.push(Span::styled(
            format!(" in {}", safe::one_line(cwd)),
            theme.dim(),
        ));
    }
    let line = Line::from(spans);
    let mut lines = vec![Line::default(); usize::from(gap)];
    lines.extend(wrap(&line, columns, 2, Break::Words));
    lines
}

/// [`body`], drawn once for a question and a width: a long diff takes a while to colour.
fn kept_body(ui: &Ui, pending: &Pending, columns: usize) -> Arc<Vec<Line<'static>>> {
    let key = BodyKey {
        action_id: pending.action_id.clone(),
        columns,
        theme: ui.theme,
        loaded: ui.artifacts.len(),
    };
    let mut kept = ui.kept_body.borrow_mut();
    if let Some((known, body)) = &*kept
        && *known == key
    {
        return body.clone();
    }
    let body = Arc::new(body(ui, pending, columns));
    *kept = Some((key, body.clone()));
    body
}

/// What a drawn body depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyKey {
    action_id: ActionId,
    columns: usize,
    theme: Theme,
    loaded: usize,
}

/// Everything that has to be read, in reading order.
#[must_use]
pub fn body(ui: &Ui, pending: &Pending, columns: usize) -> Vec<Line<'static>> {
    let theme = ui.theme;
    let mut lines = Vec::new();
    match pending.subject() {
        Subject::Command(command) => {
            lines.extend(exact_block(&command, "$ ", columns, theme));
        }
        Subject::Diff(artifact) => match ui.artifacts.get(&artifact) {
            Some(Ok(text)) => lines.extend(diff::render(text, columns, theme)),
            Some(Err(problem)) => {
                let text = format!(
                    "the diff cannot be shown ({}); this is the input:",
                    safe::one_line(problem)
                );
                lines.extend(wrap(
                    &Line::styled(text, theme.bad()),
                    columns,
                    0,
                    Break::Words,
                ));
                lines.extend(without_diff(pending, columns, theme));
            }
            None => lines.push(Line::styled("loading the diff …", theme.dim())),
        },
        Subject::Words(words) => {
            lines.extend(exact_block(&words, "", columns, theme));
        }
        _ => lines.extend(without_diff(pending, columns, theme)),
    }
    let mut fact = |name: &str, text: &str, style: Style| {
        let line = Line::from(vec![
            Span::styled(format!("  {name} "), theme.dim()),
            Span::styled(safe::one_line(text), style),
        ]);
        lines.extend(wrap(&line, columns, 4, Break::Words));
    };
    if let Some(why) = &pending.why {
        fact("asks because", why, Style::new());
    }
    // A single command says itself what its parts are.
    if pending.parts.len() > 1 {
        for part in &pending.parts {
            fact("part", part, Style::new());
        }
    }
    for risk in &pending.risk_facts {
        fact("•", risk, Style::new());
    }
    if let Some(rule) = &pending.suggested_rule {
        let text = format!(
            "{rule} would stop the asking; it allows {}",
            explain_rule(rule)
        );
        fact("rule", &text, Style::new());
    }
    lines
}

fn without_diff(pending: &Pending, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let without = Pending {
        diff_ref: None,
        ..pending.clone()
    };
    match without.subject() {
        Subject::Replacements { path, pairs } => {
            let mut lines = Vec::new();
            for (old, new) in pairs {
                let text = diff::between(&path, &with_newline(&old), &with_newline(&new));
                lines.extend(diff::render(&text, columns, theme));
            }
            lines
        }
        Subject::Content { path, content } => {
            diff::render(&diff::between(&path, "", &content), columns, theme)
        }
        Subject::Input(text) | Subject::Words(text) => exact_block(&text, "", columns, theme),
        Subject::Command(command) => exact_block(&command, "$ ", columns, theme),
        Subject::Diff(_) => Vec::new(),
    }
}

fn with_newline(text: &str) -> String {
    if text.ends_with('\n') {
        text.to_owned()
    } else {
        format!("{text}\n")
    }
}

/// Text as it is, with what cannot be seen written out.
fn exact_block(text: &str, lead: &'static str, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (number, pieces) in safe::exact(text).into_iter().enumerate() {
        let lead = if number == 0 {
            lead.to_owned()
        } else {
            " ".repeat(lead.len())
        };
        let mut spans = vec![Span::styled(format!("  {lead}"), theme.accent())];
        spans.extend(pieces.into_iter().map(|Piece { text, mark }| {
            Span::styled(text, if mark { theme.mark() } else { theme.strong() })
        }));
        lines.extend(wrap(&Line::from(spans), columns, 6, Break::Anywhere));
    }
    lines
}

type Footer = (Vec<Line<'static>>, Option<(u16, u16)>);

fn footer(ui: &Ui, pending: &Pending, gap: bool, columns: usize, theme: Theme) -> Footer {
    let Some(prompt) = &ui.prompt else {
        return (Vec::new(), None);
    };
    let keys = |pairs: &[(&str, &str)]| -> Vec<Line<'static>> {
        let mut spans = Vec::new();
        for (key, meaning) in pairs {
            spans.push(Span::styled(format!("[{key}]"), theme.strong()));
            // A blank that does not break keeps a key with its meaning.
            spans.push(Span::raw(format!(
                "\u{2007}{}  ",
                meaning.replace(' ', "\u{2007}")
            )));
        }
        wrap(&Line::from(spans), columns, 0, Break::Words)
            .into_iter()
            .map(|line| {
                let spans = line
                    .spans
                    .into_iter()
                    .map(|span| Span::styled(span.content.replace('\u{2007}', " "), span.style));
                Line::from(spans.collect::<Vec<_>>())
            })
            .collect()
    };
    match &prompt.stage {
        Stage::Choose => {
            let mut lines = vec![Line::default(); usize::from(gap)];
            let pairs: &[(&str, &str)] = if pending.kind == ActionType::ToolPermission {
                &[
                    ("d", "deny"),
                    ("n", "deny with a note"),
                    ("a", "allow once"),
                    ("s", "allow this session"),
                    ("r", "allow and save a rule"),
                    ("e", "edit first"),
                    ("q", "abort the turn"),
                ]
            } else {
                &[
                    ("d", "no"),
                    ("n", "no, with a note"),
                    ("a", "yes"),
                    ("e", "answer in words"),
                    ("q", "abort the turn"),
                ]
            };
            lines.extend(keys(pairs));
            (lines, None)
        }
        Stage::Rule => {
            let rule = pending.suggested_rule.as_deref().unwrap_or_default();
            let mut lines = vec![Line::default()];
            let line = Line::from(vec![
                Span::raw("Allow, and save the rule "),
                Span::styled(safe::one_line(rule), theme.strong()),
                Span::raw(" where?"),
            ]);
            lines.extend(wrap(&line, columns, 2, Break::Words));
            lines.extend(keys(&[
                ("p", "for you in this project"),
                ("u", "for you everywhere"),
                ("Esc", "back"),
            ]));
            (lines, None)
        }
        Stage::Note(editor) => editor_footer(
            "Deny, and tell the model:",
            editor,
            None,
            "Enter sends",
            columns,
            theme,
        ),
        Stage::Answer(editor) => {
            editor_footer("Your answer:", editor, None, "Enter sends", columns, theme)
        }
        Stage::Edit(editing) => {
            let Some(editor) = editing.editors.get(editing.at) else {
                return (Vec::new(), None);
            };
            let name = editing
                .names
                .get(editing.at)
                .map(String::as_str)
                .unwrap_or_default();
            let more = if editing.editors.len() > 1 {
                " · Tab goes to the next"
            } else {
                ""
            };
            editor_footer(
                &format!("Edit the {name}; it is checked again and recorded as yours:"),
                editor,
                editing.error.as_deref(),
                &format!("Enter allows the edited version once{more}"),
                columns,
                theme,
            )
        }
    }
}

fn editor_footer(
    title: &str,
    editor: &crate::compose::editor::Editor,
    error: Option<&str>,
    enter: &str,
    columns: usize,
    theme: Theme,
) -> Footer {
    let mut lines = vec![Line::default()];
    lines.extend(wrap(
        &Line::styled(title.to_owned(), theme.strong()),
        columns,
        0,
        Break::Words,
    ));
    let rows = editor.rows(columns.saturating_sub(2));
    let first = rows.cursor.0.saturating_sub(7);
    let cursor_row = lines.len() + rows.cursor.0 - first;
    for row in rows.rows.iter().skip(first).take(8) {
        lines.push(Line::from(vec![
            Span::styled("› ", theme.accent()),
            Span::raw(row.clone()),
        ]));
    }
    if let Some(error) = error {
        lines.push(Line::styled(
            cut(&safe::one_line(error), columns),
            theme.bad(),
        ));
    }
    let hint =
        format!("{enter} · Alt-Enter breaks the line · Ctrl-G opens your editor · Esc goes back");
    lines.extend(wrap(
        &Line::styled(hint, theme.dim()),
        columns,
        0,
        Break::Words,
    ));
    let cursor = (
        u16::try_from(rows.cursor.1 + 2).unwrap_or(0),
        u16::try_from(cursor_row).unwrap_or(0),
    );
    (lines, Some(cursor))
}
