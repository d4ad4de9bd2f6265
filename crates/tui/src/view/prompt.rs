//! The question on the screen: [what has to be read](super::question), and below it the answers.
//! What is asked is never cut; when it does not fit, it scrolls, and nothing can be allowed before
//! its end was on the screen.

use std::sync::Arc;

use agent_protocol::id::ActionId;
use agent_protocol::status::Mode;
use ratatui::text::{Line, Span};

use super::answers::{self, answer};
use super::bottom::written;
use super::{plan, question};
use crate::keymap::Action;
use crate::safe;
use crate::state::pending::{Pending, Subject};
use crate::text::{Break, wrap};
use crate::theme::Theme;
use crate::ui::overlay::{Scroll, mode_in_words};
use crate::ui::prompt::Stage;
use crate::ui::{ShownPrompt, Ui};
use agent_text::clip;

/// The drawn question.
pub(super) struct DrawnPrompt {
    pub(super) lines: Vec<Line<'static>>,
    pub(super) cursor: Option<(u16, u16)>,
    pub(super) shown: ShownPrompt,
    /// Whether it needs more than the whole screen.
    pub(super) covers: bool,
}

/// Draws the open question into at most `height` lines.
pub(super) fn draw(ui: &Ui, columns: usize, height: usize) -> Option<DrawnPrompt> {
    let pending = ui.current()?;
    let prompt = ui.prompt.as_ref()?;
    let theme = ui.theme;
    let body = kept_body(ui, pending, columns);
    // While something is written below it, the question may give way; it was read before.
    let choosing = matches!(prompt.stage, Stage::Choose);
    let mut space = if height >= 23 {
        Space::Ample
    } else {
        Space::Small
    };
    let mut lines = head(ui, pending, space, columns, theme);
    let (mut footer, cursor) = footer(ui, pending, &prompt.stage, prompt.seen_end, space, columns);
    if choosing && lines.len() + footer.len() + 2 * LEAST > height {
        space = Space::Tiny;
        footer = self::footer(ui, pending, &prompt.stage, prompt.seen_end, space, columns).0;
        if lines.len() + footer.len() + LEAST > height {
            return Some(too_small(pending, columns, height, theme));
        }
    }
    let room = height.saturating_sub(lines.len() + footer.len()).max(LEAST);
    let fits = body.len() <= room;
    let covers = match choosing {
        true => !fits,
        false => {
            let (keys, _) = self::footer(ui, pending, &Stage::Choose, true, space, columns);
            lines.len() + body.len() + keys.len() > height
        }
    };
    let window = if fits { body.len() } else { room - 1 };
    // What is not there to read yet, or gives way to something else, cannot have been read.
    let last = if is_loading(ui, pending) || !choosing {
        usize::MAX
    } else {
        body.len() - window
    };
    let at = prompt.scroll.min(last).min(body.len() - window);
    if at >= last && !prompt.seen_end {
        footer = self::footer(ui, pending, &prompt.stage, true, space, columns).0;
    }
    lines.extend(body.iter().skip(at).take(window).cloned());
    if !fits {
        let more = body.len() - window - at;
        let text = match (more, columns < 78) {
            _ if !choosing => format!("── {more} more lines ──"),
            (0, _) => format!("── end of {} lines · PgUp goes back ──", body.len()),
            (more, _) if columns < 50 => format!("── {more} more: Space"),
            (more, true) => format!("── {more} more lines: Space · scroll to the end to allow ──"),
            (more, false) => {
                format!("── {more} more lines: Space, PgDn or End · scroll to the end to allow ──")
            }
        };
        lines.push(Line::styled(clip(&text, columns), theme.warn()));
    }
    let offset = u16::try_from(lines.len()).unwrap_or(0);
    lines.extend(footer);
    Some(DrawnPrompt {
        lines,
        cursor: cursor.map(|(column, row)| (column, row + offset)),
        shown: ShownPrompt {
            action_id: pending.action_id.clone(),
            scroll: Scroll {
                at,
                last,
                page: window,
            },
            hidden: false,
        },
        covers,
    })
}

/// Lines a question needs at least: one of what is asked, and one that says how much more there
/// is.
const LEAST: usize = 2;

/// How much room a question has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    /// With gaps.
    Ample,
    Small,
    /// The keys stand without their words, so that there is room for what they are about.
    Tiny,
}

/// Nothing can be judged on a screen like this, so nothing can be allowed.
fn too_small(pending: &Pending, columns: usize, height: usize, theme: Theme) -> DrawnPrompt {
    let text = "? A question waits. Make the window larger to read it; d denies, q aborts.";
    let mut lines = wrap(&Line::styled(text, theme.warn()), columns, 0, Break::Words);
    lines.truncate(height);
    DrawnPrompt {
        lines,
        cursor: None,
        shown: ShownPrompt {
            action_id: pending.action_id.clone(),
            scroll: Scroll {
                at: 0,
                last: usize::MAX,
                page: 1,
            },
            hidden: true,
        },
        covers: true,
    }
}

/// Whether what is asked is still being fetched.
#[must_use]
pub fn is_loading(ui: &Ui, pending: &Pending) -> bool {
    matches!(pending.subject(), Subject::Diff(artifact) if !ui.artifacts.contains_key(&artifact))
}

fn head(
    ui: &Ui,
    pending: &Pending,
    space: Space,
    columns: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let mut spans = vec![Span::styled("? ", theme.warn())];
    let waiting = ui.waiting();
    if waiting > 1 {
        let counter = format!("1 of {waiting} questions · ");
        spans.push(Span::styled(counter, theme.dim()));
    }
    let title = question::title(ui, pending);
    spans.extend(question::styled(title, theme, theme.strong()));
    let mut lines = vec![Line::default(); usize::from(space == Space::Ample)];
    lines.extend(wrap(&Line::from(spans), columns, 2, Break::Words));
    lines
}

/// [`question::body`], drawn once for a question and a width: a long diff takes a while to colour.
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
    let body = Arc::new(question::body(ui, pending, columns));
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

pub(super) type Footer = (Vec<Line<'static>>, Option<(u16, u16)>);

/// The answers in a stage of the question; `seen` when its end has been on the screen.
fn footer(
    ui: &Ui,
    pending: &Pending,
    stage: &Stage,
    seen: bool,
    space: Space,
    columns: usize,
) -> Footer {
    let Some(prompt) = &ui.prompt else {
        return (Vec::new(), None);
    };
    let theme = ui.theme;
    let taken = !prompt.guard.holds(ui.now);
    let key = |usual: &str| ui.settings.keys.answer(usual);
    let open = ui.settings.keys.shown(Action::Editor);
    match stage {
        Stage::Choose => {
            let mut lines = vec![Line::default(); usize::from(space == Space::Ample)];
            if let Some(mode) = ui.mode_ahead() {
                lines.extend(mode_ahead(ui, mode, columns));
                return (lines, None);
            }
            let mut groups = if pending.is_permission() {
                let (session, rule, edit) = match columns < 76 {
                    true => ("this session", "by a rule", "edit"),
                    false => ("allow this session", "allow by a rule", "edit first"),
                };
                let session = match (&pending.session_rule, columns < 76) {
                    (None, _) => session,
                    (Some(_), true) => "all edits",
                    (Some(_), false) => "allow all edits",
                };
                let mut allow = vec![answer(key("a"), "allow once", taken && seen)];
                if pending.misses_network() {
                    allow.push(answer(key("w"), "with network", taken && seen));
                }
                if !pending.every_time {
                    allow.push(answer(key("s"), session, taken && seen));
                }
                if pending.suggested_rule.is_some() {
                    allow.push(answer(key("r"), rule, taken && seen));
                }
                allow.push(answer(key("e"), edit, taken && seen));
                [
                    vec![
                        answer(key("d"), "deny", taken),
                        answer(key("n"), "deny with a note", taken),
                        answer(key("q"), "abort the turn", taken),
                    ],
                    allow,
                ]
            } else if pending.plan().is_some() {
                plan::answers(ui, taken, taken && seen, columns)
            } else {
                [
                    vec![
                        answer(key("d"), "no", taken),
                        answer(key("n"), "no, with a note", taken),
                        answer(key("q"), "abort the turn", taken),
                    ],
                    vec![
                        answer(key("a"), "yes", taken && seen),
                        answer(key("e"), "answer in words", taken),
                    ],
                ]
            };
            if space == Space::Tiny {
                groups = groups.map(answers::without_words);
            }
            lines.extend(answers::rows(&groups, columns, theme));
            (lines, None)
        }
        Stage::Rule(draft) => super::rule::footer(ui, draft, taken, columns),
        Stage::Note(editor) => editor_footer(
            "Deny, and tell the model:",
            editor,
            Vec::new(),
            "Enter sends · Alt-Enter breaks",
            &open,
            columns,
            theme,
        ),
        Stage::Answer(editor) => editor_footer(
            "Your answer:",
            editor,
            Vec::new(),
            "Enter sends · Alt-Enter breaks",
            &open,
            columns,
            theme,
        ),
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
            let error = editing.error.as_deref().map(|error| {
                let error = clip(&safe::one_line(error), columns);
                Line::styled(error, theme.bad())
            });
            editor_footer(
                &format!("Edit the {name}; it is checked again and recorded as yours:"),
                editor,
                error.into_iter().collect(),
                &format!("Enter allows it as edited{more} · Alt-Enter breaks"),
                &open,
                columns,
                theme,
            )
        }
    }
}

/// The mode that holds as soon as its key rests, and what that means.
fn mode_ahead(ui: &Ui, mode: Mode, columns: usize) -> Vec<Line<'static>> {
    let theme = ui.theme;
    let line = Line::from(vec![
        Span::styled(format!("Switching to mode {mode}"), theme.strong()),
        Span::raw(format!(": {}", mode_in_words(mode))),
    ]);
    let key = ui.settings.keys.shown(Action::Mode);
    let now = ui.state.facts.mode.unwrap_or(Mode::Ask);
    let hint = format!("{key} again goes on · Esc stays in {now}");
    let mut lines = wrap(&line, columns, 2, Break::Words);
    lines.extend(wrap(
        &Line::styled(hint, theme.dim()),
        columns,
        0,
        Break::Words,
    ));
    lines
}

pub(super) fn editor_footer(
    title: &str,
    editor: &crate::compose::editor::Editor,
    notes: Vec<Line<'static>>,
    enter: &str,
    open: &str,
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
    for (number, row) in rows.rows.iter().enumerate().skip(first).take(8) {
        let lead = if number == 0 { "› " } else { "  " };
        lines.push(written(row, lead, theme));
    }
    lines.extend(notes);
    let hint = format!("{enter} · {open} editor · Esc back");
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
