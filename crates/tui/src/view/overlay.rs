//! Overlays: the whole screen for a while.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::answers::{self, Answer, answer};
use super::{Frame, window};
use crate::host::{Document, DocumentFormat, FirstRun, RewindPlan, Secret, TrustQuestion};
use crate::keymap::Action;
use crate::text::{Break, wrap};
use crate::theme::Theme;
use crate::ui::overlay::{Choices, Overlay, Picker, Scroll};
use crate::ui::{Shown, Ui};
use crate::{diff, markdown, safe};
use agent_text::{clip, counted, width};

pub(super) fn frame(ui: &Ui, columns: usize, height: usize) -> Frame {
    let theme = ui.theme;
    let mut shown = Shown::default();
    let keys = |text: &str| vec![Line::styled(clip(text, columns), theme.dim())];
    let answers = |group: Vec<Answer>| answers::rows(&[group], columns, theme);
    let foot = match &ui.overlay {
        Some(Overlay::Transcript(_)) if columns < 78 => {
            keys("↑↓ PgUp PgDn · Tab next · Enter folds · w why · q leaves")
        }
        Some(Overlay::Transcript(_)) => {
            keys("↑↓ PgUp PgDn · Tab next, Enter folds out, a all · w why · y copy · q leaves")
        }
        Some(Overlay::Reader(reader)) if reader.watched.is_some() => {
            keys("↑↓ PgUp PgDn · x stops it · q leaves")
        }
        Some(Overlay::Reader(_)) => keys("↑↓ PgUp PgDn · q leaves"),
        Some(Overlay::Rewind(..)) => answers(vec![
            answer("b", "both, files and conversation", true),
            answer("c", "the conversation alone", true),
            answer("Esc", "leave it", true),
        ]),
        Some(Overlay::Picker(_)) => keys("↑↓ choose · Enter takes · type to filter · Esc leaves"),
        Some(Overlay::FirstRun(..)) => {
            let taken = !ui.is_guarded();
            answers(vec![
                answer("k", "enter a key", taken),
                answer("d", "demo", taken),
                answer("Enter", "check again", taken),
                answer("q", "leave", taken),
            ])
        }
        Some(Overlay::Key(..)) => keys("Enter keeps it · Ctrl-U clears · Esc goes back"),
        Some(Overlay::Trust(_, scroll)) => {
            let taken = !ui.is_guarded();
            let seen = scroll.at >= scroll.last;
            answers(vec![
                answer("i", "ignore it", taken),
                answer("t", "trust exactly this content", taken && seen),
                answer("q", "leave", taken),
            ])
        }
        Some(Overlay::Mode(_, scroll)) => {
            let taken = !ui.is_guarded();
            let seen = scroll.at >= scroll.last;
            answers(vec![
                answer("n", "keep asking", taken),
                answer("y", "work in mode auto here", taken && seen),
                answer("q", "leave", taken),
            ])
        }
        None => Vec::new(),
    };
    // Title, a line for what waits or was said, and the keys.
    let room = height.saturating_sub(2 + foot.len());
    let (title, body) = match &ui.overlay {
        Some(Overlay::Transcript(transcript)) => {
            let (lines, top) = window(&ui.state, transcript, columns, room, theme, ui.now);
            shown.transcript = Some(top);
            let count = ui.state.cells.len();
            let title = match count {
                0 => "transcript · nothing yet".to_owned(),
                _ => format!("transcript · from entry {} of {count}", top.0 + 1),
            };
            (title, lines)
        }
        Some(Overlay::Reader(reader)) => {
            let lines = document(&reader.document, columns, theme);
            let (lines, scroll) = scrolled(lines, reader.scroll, room);
            shown.scroll = Some(scroll);
            (position(&reader.document.title, scroll), lines)
        }
        Some(Overlay::Rewind(plan, scroll)) => {
            let (lines, scroll) = scrolled(rewind(plan, columns, theme), *scroll, room);
            shown.scroll = Some(scroll);
            (position("Go back to before this message?", scroll), lines)
        }
        Some(Overlay::Picker(picker)) => (
            picker.title.clone(),
            picker_lines(picker, columns, room, theme),
        ),
        Some(Overlay::FirstRun(found, scroll)) => {
            let (lines, scroll) = scrolled(first_run(found, columns, theme), *scroll, room);
            shown.scroll = Some(scroll);
            (position(&first_run_title(ui), scroll), lines)
        }
        Some(Overlay::Key(secret, _)) => {
            let lines = key_entry(secret, columns, theme);
            ("Enter an API key".to_owned(), lines)
        }
        Some(Overlay::Trust(question, scroll)) => {
            let text = Line::from(trust_in_words(question));
            let mut lines = wrap(&text, columns, 0, Break::Words);
            lines.push(Line::default());
            lines.extend(diff::render(&question.diff, columns, theme));
            let (lines, scroll) = scrolled(lines, *scroll, room);
            shown.scroll = Some(scroll);
            let title = "Trust this project's configuration?";
            (position(title, scroll), lines)
        }
        Some(Overlay::Mode(project, scroll)) => {
            let paragraphs = auto_in_words(ui, project);
            let lines = paragraphs.iter().flat_map(|text| {
                let text = Line::from(text.clone());
                let mut lines = vec![Line::default()];
                lines.extend(wrap(&text, columns, 0, Break::Words));
                lines
            });
            let (lines, scroll) = scrolled(lines.collect(), *scroll, room);
            shown.scroll = Some(scroll);
            (position(AUTO_TITLE, scroll), lines)
        }
        None => (String::new(), Vec::new()),
    };
    let mut lines = vec![Line::styled(clip(&title, columns), theme.strong())];
    lines.extend(body);
    lines.resize(room + 1, Line::default());
    // A question that waits must not go unseen, and must not be answered by keys meant for here.
    if ui.current().is_some() {
        let text = "? a question waits for your answer; leave this view to see it";
        lines.push(Line::styled(clip(text, columns), theme.warn()));
    } else if let Some((hint, _)) = &ui.hint {
        lines.push(Line::styled(clip(hint, columns), theme.warn()));
    } else {
        lines.push(Line::default());
    }
    lines.extend(foot);
    Frame {
        lines,
        cursor: None,
        full_screen: true,
        shown,
    }
}

/// A document as lines.
#[must_use]
pub fn document(document: &Document, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    match document.format {
        DocumentFormat::Markdown => markdown::render(&document.text, columns, theme),
        DocumentFormat::Diff => diff::render(&document.text, columns, theme),
        DocumentFormat::Plain => {
            let text = safe::content(&document.text);
            let wrapped = text.lines().flat_map(|line| {
                let hang = column_of(line).min(columns / 2);
                wrap(&Line::from(line.to_owned()), columns, hang, Break::Words)
            });
            wrapped.collect()
        }
    }
}

/// Where the last column of a line in columns begins: behind the last gap near its beginning. What
/// is wrapped goes on there.
fn column_of(line: &str) -> usize {
    // Of a numbered line, behind its number.
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0 && line[digits..].starts_with(". ") {
        return digits + 2;
    }
    let near = &line[..line.floor_char_boundary(32)];
    let gap = near.rfind("  ").filter(|at| line.len() > at + 2);
    gap.map_or(2, |at| width(&line[..at]) + 2)
}

fn scrolled(
    lines: Vec<Line<'static>>,
    scroll: Scroll,
    room: usize,
) -> (Vec<Line<'static>>, Scroll) {
    // Without room for a line there is no end to be seen.
    let end = lines.len().saturating_sub(room);
    let last = if room == 0 { usize::MAX } else { end };
    let at = scroll.at.min(end);
    let lines = lines.into_iter().skip(at).take(room).collect();
    let scroll = Scroll {
        at,
        last,
        page: room,
    };
    (lines, scroll)
}

/// What going back would change.
pub(crate) fn rewind(plan: &RewindPlan, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut say = |text: &str, style: Style| {
        let line = Line::styled(safe::content(text), style);
        lines.extend(wrap(&line, columns, 2, Break::Words));
    };
    say(
        &format!("› {}", agent_text::words::brief(&plan.text, 200)),
        theme.strong(),
    );
    say("", theme.dim());
    say("Files:", theme.dim());
    for line in plan.files.lines() {
        say(line, Style::new());
    }
    say("", theme.dim());
    let kept = "The conversation goes on in a fork from there, with the message in the composer. This session stays as it is: \
                resume it and use /undo to take this back.";
    say(kept, theme.dim());
    lines
}

fn position(title: &str, scroll: Scroll) -> String {
    let title = safe::one_line(title);
    match (scroll.at * 100).checked_div(scroll.last) {
        Some(percent) => format!("{title} · {percent}%"),
        None => title,
    }
}

fn picker_lines(picker: &Picker, columns: usize, room: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if !picker.filter.is_empty() {
        let text = format!("filter: {}", safe::one_line(&picker.filter));
        lines.push(Line::styled(clip(&text, columns), theme.dim()));
    }
    let rows = picker.rows();
    if rows.is_empty() {
        let nothing = match (&picker.choices, picker.filter.is_empty()) {
            (_, false) => "no matches",
            (Choices::Models(_), _) => "no other model is set up",
            (Choices::Sessions(_), _) => "no other session in this project",
            (Choices::Messages(_) | Choices::Rewind(_), _) => "no messages yet",
            _ => "nothing here",
        };
        lines.push(Line::styled(nothing, theme.dim()));
    }
    let first = picker.selected.saturating_sub(room.saturating_sub(2));
    // Explanations stand below each other where the names leave room for it.
    let widest = rows.iter().map(|(_, label, _)| width(label)).max();
    let aligned = widest.unwrap_or(0).min(columns / 3);
    for (number, (_, label, detail)) in rows.iter().enumerate().skip(first).take(room) {
        let selected = number == picker.selected;
        let label = clip(label, columns.saturating_sub(2));
        let blanks = aligned.saturating_sub(width(&label)) + 2;
        let mut detail = detail.clone();
        if picker.now.as_ref() == Some(&label) {
            detail = match detail.as_str() {
                "" => "now".to_owned(),
                detail => format!("{detail} (now)"),
            };
        }
        let left = columns.saturating_sub(2 + blanks + width(&label));
        let style = if selected {
            theme.selected()
        } else {
            Style::new()
        };
        lines.push(Line::from(vec![
            Span::raw(if selected { "▸ " } else { "  " }),
            Span::styled(label, style),
            Span::raw(" ".repeat(blanks)),
            Span::styled(clip(&detail, left), theme.dim()),
        ]));
    }
    lines
}

fn first_run_title(ui: &Ui) -> String {
    format!("agent {}", ui.settings.version)
        .trim_end()
        .to_owned()
}

fn first_run(found: &FirstRun, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = vec![Line::default()];
    let mut say = |line: Line<'static>, hang: usize| {
        lines.extend(wrap(&line, columns, hang, Break::Words));
    };
    say(Line::from("No model is set up yet. Checked:"), 0);
    for (what, _) in found.found.iter().filter(|(_, there)| *there) {
        let sign = Span::styled("  ✓ found: ", theme.good());
        say(Line::from(vec![sign, Span::raw(safe::one_line(what))]), 4);
    }
    let missing = found.found.iter().filter(|(_, there)| !there);
    let missing: Vec<String> = missing.map(|(what, _)| safe::one_line(what)).collect();
    if !missing.is_empty() {
        let sign = Span::styled("  · not found: ", theme.dim());
        let missing = Span::styled(missing.join(", "), theme.dim());
        say(Line::from(vec![sign, missing]), 4);
    }
    say(Line::default(), 0);
    say(Line::from("Any one of these is enough:"), 0);
    for what in &found.to_set {
        let what = format!("  {}", safe::one_line(what));
        say(Line::styled(what, theme.code()), 4);
    }
    say(Line::default(), 0);
    let key = "Press k to paste a key. A variable that you set now in another window is not seen here: set it, \
        then start agent again.";
    say(Line::from(key), 0);
    for note in &found.notes {
        say(Line::styled(safe::one_line(note), theme.warn()), 0);
    }
    say(Line::default(), 0);
    let demo = "Or press d for the demo: it fixes a failing test in a temporary project, without \
        a key or a network.";
    say(Line::from(demo), 0);
    lines
}

/// A key that is being entered, by its length alone.
fn key_entry(secret: &Secret, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let said = "Paste the key and press Enter. If nothing in it says whose it is, write the provider before it: \
        `mistral KEY`. It is kept in a file that only you can read, sent to that provider, and shown nowhere.";
    let mut lines = vec![Line::default()];
    lines.extend(wrap(&Line::from(said), columns, 0, Break::Words));
    lines.push(Line::default());
    let entered = match secret.0.chars().count() {
        0 => Line::styled("  (nothing yet)", theme.dim()),
        count => Line::from(format!(
            "  {} {}",
            "•".repeat(count.min(24)),
            counted(count as u64, "character")
        )),
    };
    lines.push(entered);
    lines
}

/// What is asked about a project's configuration.
pub(crate) fn trust_in_words(question: &TrustQuestion) -> String {
    let file = safe::one_line(&question.file);
    if question.is_change {
        format!(
            "{file} has changed since you trusted it. Until you trust it again, it can only \
             restrict what this project may do. The changes:"
        )
    } else {
        format!(
            "{file} wants to change what this project may do. You have not trusted it yet, so for \
             now it can only restrict. All of it is new:"
        )
    }
}

pub(crate) const AUTO_TITLE: &str = "Work without questions in this project?";

/// What mode auto means where the full sandbox holds.
pub(crate) fn auto_in_words(ui: &Ui, project: &str) -> [String; 4] {
    let key = ui.settings.keys.shown(Action::Mode);
    [
        format!(
            "This is the first session in {}. The sandbox works fully on this machine: a command can \
             write only to the project, and has no network.",
            safe::one_line(project)
        ),
        "In mode auto, edits in the project and commands in the sandbox run without asking. What needs \
         more still asks: the network, other places, protected and secret files, and anything your \
         rules deny or ask about."
            .to_owned(),
        "In mode ask, the default, every edit asks, and every command that is not known to be read-only."
            .to_owned(),
        format!(
            "{key} changes the mode at any time, and /undo takes changes back. The answer is kept for \
             this project; `mode` in a settings file goes before it."
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrapped_goes_on_where_it_began() {
        let check = |line: &str, expected: usize| assert_eq!(column_of(line), expected, "{line}");
        check("words and more words", 2);
        check("2. must ask: by rule", 3);
        check("12. ended", 4);
        check("model      demo/scripted", 11);
        check("2.5 of them", 2);
    }
}
