//! Columns that line up, in lines that fit.

use unicode_width::UnicodeWidthStr as _;

use agent_text::clip;

/// Rows of text under a line of headings. Only the last column gives way when the line is full.
pub(crate) struct Table {
    headings: Vec<&'static str>,
    /// Numbers stand to the right.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Headings; those that start with `>` are of columns that stand to the right.
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        Self {
            right: headings.iter().map(|name| name.starts_with('>')).collect(),
            headings: headings
                .iter()
                .map(|name| name.trim_start_matches('>'))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, whose texts must be safe to print.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines, the headings first.
    pub(crate) fn lines(&self, width: usize) -> Vec<String> {
        let headings: Vec<String> = self.headings.iter().map(ToString::to_string).collect();
        let all = || std::iter::once(&headings).chain(&self.rows);
        let columns: Vec<usize> = (0..headings.len())
            .map(|column| all().map(|row| row[column].width()).max().unwrap_or(0))
            .collect();
        all().map(|row| self.line(row, &columns, width)).collect()
    }

    fn line(&self, row: &[String], columns: &[usize], width: usize) -> String {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let last = column + 1 == row.len();
            if last && !self.right[column] {
                line.push_str(&clip(cell, width.saturating_sub(line.width()).max(12)));
                break;
            }
            let padding = " ".repeat(columns[column] - cell.width());
            if self.right[column] {
                line.push_str(&padding);
                line.push_str(cell);
            } else {
                line.push_str(cell);
                line.push_str(&padding);
            }
            if !last {
                line.push_str("  ");
            }
        }
        line.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_the_last_one_gives_way() {
        let mut table = Table::new(&["id", ">size", "title"]);
        table.row(["a".into(), "12 KB".into(), "short".into()]);
        table.row([
            "漢字".into(),
            "9 B".into(),
            "a title that is much too long".into(),
        ]);
        let lines = table.lines(30);
        assert_eq!(
            lines,
            [
                "id     size  title",
                "a     12 KB  short",
                "漢字    9 B  a title that is …",
            ]
        );
        assert!(lines.iter().all(|line| line.width() <= 30));
    }
}
