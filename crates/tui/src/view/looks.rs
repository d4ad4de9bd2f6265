//! A row of calls that only look, as one line: how many, and at what.

use std::sync::Arc;

use ratatui::text::{Line, Span};

use crate::state::cell::{CallStage, Cell, CellKind, ToolCell};
use crate::state::look::{Look, LookKind, Row};
use crate::theme::Theme;
use agent_text::{clip, width};

/// The line of `row`.
#[must_use]
pub fn draw(cells: &[Arc<Cell>], row: Row, columns: usize, theme: Theme) -> Vec<Line<'static>> {
    let calls = cells.get(row.start..row.end).unwrap_or_default();
    let calls = calls.iter().filter_map(|cell| match &cell.kind {
        CellKind::Tool(tool) => Some(&**tool),
        _ => None,
    });
    let calls: Vec<&ToolCell> = calls.collect();
    let is_over = calls.iter().all(|call| call.stage == CallStage::Ended);
    let (sign, style) = match is_over {
        true => ("✓ ", theme.good()),
        false => ("▸ ", theme.accent()),
    };
    let looks: Vec<&Look> = calls.iter().filter_map(|call| call.look.as_ref()).collect();
    let (counted, names) = (counted(&looks), names(&looks).join(", "));
    let counted = format!("{counted}: ");
    let room = columns.saturating_sub(width(sign) + width(&counted)).max(1);
    let names = clip(&names, room);
    let line = Line::from(vec![
        Span::styled(sign, style),
        Span::styled(counted, theme.strong()),
        Span::raw(names),
    ]);
    crate::text::wrap(&line, columns, 2, crate::text::Break::Words)
}

/// What was done, without its repetitions: a file of which two parts were read is one file.
fn distinct<'a>(looks: &[&'a Look]) -> Vec<&'a Look> {
    let mut found: Vec<&Look> = Vec::new();
    for look in looks {
        if !found.contains(look) {
            found.push(look);
        }
    }
    found
}

fn counted(looks: &[&Look]) -> String {
    let of_kind = |looks: &[&Look], kind| looks.iter().filter(|look| look.kind == kind).count();
    let once = distinct(looks);
    let mut parts = Vec::new();
    match of_kind(&once, LookKind::Read) {
        0 => {}
        1 => parts.push("read 1 file".to_owned()),
        count => parts.push(format!("read {count} files")),
    }
    match of_kind(looks, LookKind::Search) {
        0 => {}
        1 => parts.push("searched once".to_owned()),
        count => parts.push(format!("searched {count} times")),
    }
    match of_kind(&once, LookKind::Output) {
        0 => {}
        1 => parts.push("read 1 earlier output".to_owned()),
        count => parts.push(format!("read {count} earlier outputs")),
    }
    parts.join(", ")
}

fn names(looks: &[&Look]) -> Vec<String> {
    let name = |look: &&Look| match look.kind {
        LookKind::Read => look.name.clone(),
        LookKind::Search => format!("\"{}\"", look.name),
        // Its hash says nothing beyond its beginning.
        LookKind::Output => clip(look.name.trim_start_matches("sha256:"), 9),
    };
    distinct(looks).iter().map(name).collect()
}
