//! The answers one can give, as keys with their meanings. A key that is not taken yet looks like it.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::theme::Theme;
use agent_text::width;

/// A key, what it means, and whether it is taken now.
#[derive(Clone)]
pub(super) struct Answer {
    key: String,
    meaning: &'static str,
    taken: bool,
}

/// An answer that is taken when `taken` holds, by the key that is shown for it.
pub(super) fn answer(key: impl Into<String>, meaning: &'static str, taken: bool) -> Answer {
    Answer {
        key: key.into(),
        meaning,
        taken,
    }
}

/// The same answers by their keys alone.
pub(super) fn without_words(answers: Vec<Answer>) -> Vec<Answer> {
    let short = |answer: Answer| Answer {
        meaning: "",
        ..answer
    };
    answers.into_iter().map(short).collect()
}

const GAP: &str = "  ";

/// The answers in rows of at most `columns`: all in one row when they fit, otherwise each group
/// begins a row. A key always stands with its meaning.
pub(super) fn rows(groups: &[Vec<Answer>], columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let all: Vec<Answer> = groups.iter().flatten().cloned().collect();
    if width_of(&all) <= columns {
        return filled(&all, columns, theme);
    }
    groups
        .iter()
        .flat_map(|group| filled(group, columns, theme))
        .collect()
}

fn width_of(answers: &[Answer]) -> usize {
    let each = answers.iter().map(|answer| {
        let meaning = match width(answer.meaning) {
            0 => 0,
            meaning => meaning + 1,
        };
        // In two brackets.
        width(&answer.key) + 2 + meaning
    });
    each.sum::<usize>() + width(GAP) * answers.len().saturating_sub(1)
}

fn filled(answers: &[Answer], columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    let mut row: Vec<Answer> = Vec::new();
    for answer in answers {
        row.push(answer.clone());
        if row.len() > 1 && width_of(&row) > columns {
            row.pop();
            lines.push(line(&row, theme));
            row = vec![answer.clone()];
        }
    }
    if !row.is_empty() {
        lines.push(line(&row, theme));
    }
    lines
}

fn line(answers: &[Answer], theme: Theme) -> Line<'static> {
    let mut spans = Vec::new();
    for (number, answer) in answers.iter().enumerate() {
        if number > 0 {
            spans.push(Span::raw(GAP));
        }
        let (key, meaning) = match answer.taken {
            true => (theme.strong(), Style::new()),
            false => (theme.dim(), theme.dim()),
        };
        spans.push(Span::styled(format!("[{}]", answer.key), key));
        if !answer.meaning.is_empty() {
            spans.push(Span::styled(format!(" {}", answer.meaning), meaning));
        }
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(columns: usize, expected: &[&str]) {
        let groups = [
            vec![answer("d", "deny", true), answer("q", "abort", true)],
            vec![answer("a", "allow once", false)],
        ];
        let drawn = rows(&groups, columns, Theme::default());
        let shown: Vec<String> = drawn.iter().map(ToString::to_string).collect();
        assert_eq!(shown, expected, "{columns} columns");
    }

    #[test]
    fn groups_stay_together_and_keys_with_their_meaning() {
        check(40, &["[d] deny  [q] abort  [a] allow once"]);
        check(34, &["[d] deny  [q] abort", "[a] allow once"]);
        check(12, &["[d] deny", "[q] abort", "[a] allow once"]);
    }
}
