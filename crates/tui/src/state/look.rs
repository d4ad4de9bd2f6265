//! Calls that only look: reads and searches. Several in a row are one line of the transcript, and
//! which ones they are is decided by what the log says of each, so that a resumed or replayed session
//! has the same lines. What failed, was refused or was asked about stands by itself.

use std::sync::Arc;

use agent_protocol::payload::permission::ActionClass;
use serde_json::Value;

use super::cell::{CallStage, Cell, CellKind, Permission, ToolCell, clip};
use crate::safe::{one_line, title};

/// What a call looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    pub kind: LookKind,
    /// The file, the pattern or the output, in one line.
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookKind {
    /// A file.
    Read,
    /// A pattern, in files or in their names.
    Search,
    /// What an earlier call gave.
    Output,
}

/// The most bytes of a name.
const LONGEST_NAME: usize = 256;

impl Look {
    /// What a call with this input may look at, going by its fields; the gate says whether it does
    /// more than that.
    #[must_use]
    pub fn of(input: &Value) -> Option<Self> {
        let field = |name: &str| input.get(name).and_then(Value::as_str);
        if field("command").is_some() {
            return None;
        }
        let look = |kind, name: String| Some(Self { kind, name });
        if let Some(pattern) = field("pattern") {
            return look(LookKind::Search, title(clip(pattern, LONGEST_NAME)));
        }
        if let Some(path) = field("path") {
            return look(LookKind::Read, one_line(clip(path, LONGEST_NAME)));
        }
        let output = field("artifact_id")?;
        look(LookKind::Output, one_line(clip(output, LONGEST_NAME)))
    }
}

/// Whether a cell is part of a row of calls that only look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Yes,
    /// It has not ended.
    Perhaps,
    /// It has not been decided what it is.
    Undecided,
    /// It takes no line of its own there: a thought between two calls.
    Between,
    No,
}

fn part(cell: &Cell) -> Part {
    match &cell.kind {
        CellKind::Tool(tool) => part_of_call(tool),
        CellKind::Reasoning(_) => Part::Between,
        CellKind::Assistant(said) if said.text.trim().is_empty() => Part::Between,
        _ => Part::No,
    }
}

fn part_of_call(tool: &ToolCell) -> Part {
    let only_looks = |class| matches!(class, ActionClass::Observe | ActionClass::Search);
    let was_asked = matches!(
        tool.permission,
        Some(Permission::AllowedByYou(_) | Permission::DeniedByYou(_))
    );
    if tool.own || tool.look.is_none() || was_asked {
        return Part::No;
    }
    match (tool.class, tool.stage, &tool.outcome) {
        (Some(class), _, _) if !only_looks(class) => Part::No,
        (Some(_), CallStage::Ended, Some(outcome))
            if outcome.ok && tool.detail.violations.is_empty() =>
        {
            Part::Yes
        }
        (_, CallStage::Ended, _) => Part::No,
        (Some(_), _, _) => Part::Perhaps,
        (None, _, _) => Part::Undecided,
    }
}

/// A row of calls that only look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The cells of the row, with what is between its calls.
    pub start: usize,
    pub end: usize,
    /// How many calls are in it.
    pub calls: usize,
    /// Every call in it is part of it for good, and nothing that comes can be.
    pub settled: bool,
}

impl Row {
    /// True if it is told as one line.
    #[must_use]
    pub fn is_folded(&self) -> bool {
        self.calls > 1
    }
}

/// The row that begins with the cell `start`. `over` says that no cell follows the last one for now.
#[must_use]
pub fn row_from(cells: &[Arc<Cell>], start: usize, over: bool) -> Option<Row> {
    let mut row = Row {
        start,
        end: start,
        calls: 0,
        settled: over,
    };
    let mut is_open = false;
    for (index, cell) in cells.iter().enumerate().skip(start) {
        match part(cell) {
            Part::Between if row.calls == 0 => return None,
            Part::Between => {}
            found @ (Part::Yes | Part::Perhaps) => {
                is_open |= found == Part::Perhaps;
                (row.end, row.calls) = (index + 1, row.calls + 1);
            }
            Part::Undecided => {
                is_open = true;
                break;
            }
            Part::No => {
                row.settled = true;
                break;
            }
        }
    }
    row.settled &= !is_open;
    (row.calls > 0).then_some(row)
}

/// The row that the cell `at` is in.
#[must_use]
pub fn row_around(cells: &[Arc<Cell>], at: usize) -> Option<Row> {
    let is_part = |cell: &Arc<Cell>| !matches!(part(cell), Part::No | Part::Undecided);
    let before = cells
        .get(..=at)?
        .iter()
        .rev()
        .take_while(|cell| is_part(cell));
    let first = at + 1 - before.count();
    let calls = |cell: &Arc<Cell>| part(cell) != Part::Between;
    let start = first + cells.get(first..=at)?.iter().position(calls)?;
    row_from(cells, start, false).filter(|row| at < row.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::cell::{AssistantCell, Outcome, ReasoningCell};
    use agent_protocol::{Code, Phase};

    fn cell(kind: CellKind) -> Arc<Cell> {
        Arc::new(Cell {
            sequence: 0,
            version: 0,
            done: true,
            kind,
        })
    }

    /// `r`: a file was read, `f`: that failed, `o`: it is still going on, `e`: an edit, `t`: a thought, `a`: an answer.
    fn cells(letters: &str) -> Vec<Arc<Cell>> {
        let call = |class, stage, ok: Option<bool>| {
            CellKind::Tool(Box::new(ToolCell {
                look: Look::of(&serde_json::json!({"path": "a.rs"})),
                class: Some(class),
                stage,
                outcome: ok.map(|ok| Outcome {
                    ok,
                    code: Code::Ok,
                    phase: Phase::Execute,
                    summary: String::new(),
                    exit_code: None,
                    pipeline_failed: false,
                }),
                ..ToolCell::default()
            }))
        };
        let kinds = letters.chars().map(|letter| match letter {
            'r' => call(ActionClass::Observe, CallStage::Ended, Some(true)),
            'f' => call(ActionClass::Observe, CallStage::Ended, Some(false)),
            'o' => call(ActionClass::Observe, CallStage::Running, None),
            'e' => call(ActionClass::Modify, CallStage::Ended, Some(true)),
            't' => CellKind::Reasoning(ReasoningCell::default()),
            _ => CellKind::Assistant(AssistantCell {
                text: "so".into(),
                ..AssistantCell::default()
            }),
        });
        kinds.map(cell).collect()
    }

    #[track_caller]
    fn check(letters: &str, over: bool, expected: Option<(usize, usize, bool)>) {
        let found = row_from(&cells(letters), 0, over);
        let found = found.map(|row| (row.end, row.calls, row.settled));
        assert_eq!(found, expected, "{letters}");
    }

    #[test]
    fn a_row_ends_with_what_is_no_look() {
        check("rra", false, Some((2, 2, true)));
        check("rr", false, Some((2, 2, false)));
        check("rr", true, Some((2, 2, true)));
        check("rtr", true, Some((3, 2, true)));
        check("rrt", false, Some((2, 2, false)));
        check("rrta", false, Some((2, 2, true)));
        check("rf", false, Some((1, 1, true)));
        check("rer", false, Some((1, 1, true)));
        check("roe", false, Some((2, 2, false)));
        check("e", true, None);
        check("tr", true, None);
        check("a", true, None);
    }

    #[test]
    fn every_cell_knows_its_row() {
        let cells = cells("arrtrta");
        let rows: Vec<_> = (0..cells.len())
            .map(|at| row_around(&cells, at).map(|row| (row.start, row.end)))
            .collect();
        let row = Some((1, 5));
        assert_eq!(rows, [None, row, row, row, row, None, None]);
    }

    #[test]
    fn what_is_looked_at_goes_by_the_fields() {
        let check = |input: Value, expected: Option<(LookKind, &str)>| {
            let look = Look::of(&input);
            let look = look.as_ref().map(|look| (look.kind, look.name.as_str()));
            assert_eq!(look, expected, "{input}");
        };
        check(
            serde_json::json!({"pattern": "x\u{1b}[2J", "path": "src"}),
            Some((LookKind::Search, "x␛")),
        );
        check(
            serde_json::json!({"path": "a.rs"}),
            Some((LookKind::Read, "a.rs")),
        );
        check(
            serde_json::json!({"artifact_id": "sha256:1"}),
            Some((LookKind::Output, "sha256:1")),
        );
        check(serde_json::json!({"command": "ls", "path": "x"}), None);
        check(serde_json::json!({"url": "http://x"}), None);
    }
}
