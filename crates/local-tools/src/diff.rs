//! Unified diffs from known changes.
//!
//! The engine knows which bytes it replaced, so only the lines around those are compared: the cost
//! follows the change and not the file. Two renderings come out: the exact one, which applies to
//! the bytes before and gives the bytes after, and the shown one, decoded.

use std::ops::Range;
use std::time::{Duration, Instant};

use similar::DiffOp;
use similar::algorithms::{Capture, Compact, Replace, myers};

use crate::encoding::Encoding;

/// Lines around a change.
const CONTEXT: usize = 3;
/// Past this, a region is shown as removed and added as a whole; it is still correct.
const TIME_LIMIT: Duration = Duration::from_millis(200);

/// What changed, line by line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Applies to the exact bytes, except for UTF-16, where it is the decoded text.
    pub exact: Vec<u8>,
    /// For eyes.
    pub shown: String,
    /// Lines that are new.
    pub added: u64,
    /// Lines that are gone.
    pub removed: u64,
}

/// One run of changed whole lines: line numbers from 0, and the bytes.
struct Block {
    old_line: usize,
    old: Range<usize>,
    old_count: usize,
    new_line: usize,
    new: Range<usize>,
    new_count: usize,
}

/// The two contents and how they are written.
struct Sides<'a> {
    before: &'a [u8],
    after: &'a [u8],
    encoding: Encoding,
}

/// The diff of `before` and `after`, which differ only in `changes` (byte ranges before and after,
/// in order).
pub fn unified(
    name: &str,
    before: &[u8],
    after: &[u8],
    encoding: Encoding,
    changes: &[(Range<usize>, Range<usize>)],
) -> Diff {
    let sides = Sides {
        before,
        after,
        encoding,
    };
    let blocks = sides.blocks(&sides.regions(changes));
    let mut diff = Diff::default();
    let existed = !before.is_empty() || blocks.is_empty();
    let exists = !after.is_empty();
    diff.line(
        "--- ",
        if existed {
            format!("a/{name}")
        } else {
            "/dev/null".to_owned()
        }
        .as_bytes(),
        None,
    );
    diff.line(
        "+++ ",
        if exists {
            format!("b/{name}")
        } else {
            "/dev/null".to_owned()
        }
        .as_bytes(),
        None,
    );
    let mut rest = blocks.as_slice();
    while !rest.is_empty() {
        let joined = rest
            .windows(2)
            .take_while(|pair| {
                pair[1].old_line - (pair[0].old_line + pair[0].old_count) <= 2 * CONTEXT
            })
            .count();
        let (hunk, later) = rest.split_at(joined + 1);
        sides.write_hunk(hunk, &mut diff);
        rest = later;
    }
    diff
}

/// One algorithm, called by its name: asked by a value, `similar` brings all it has.
fn operations(old: &[&[u8]], new: &[&[u8]], deadline: Instant) -> Vec<DiffOp> {
    let mut found = Compact::new(Replace::new(Capture::new()), old, new);
    let (all_old, all_new) = (0..old.len(), 0..new.len());
    // What is captured cannot fail.
    let Ok(()) = myers::diff_deadline(&mut found, old, all_old, new, all_new, Some(deadline));
    found.into_inner().into_inner().into_ops()
}

/// The single changed range of two contents: what is left between their common ends.
pub fn changed_range(before: &[u8], after: &[u8]) -> Option<(Range<usize>, Range<usize>)> {
    if before == after {
        return None;
    }
    let head = before
        .iter()
        .zip(after)
        .take_while(|(left, right)| left == right)
        .count();
    let tail = before[head..]
        .iter()
        .rev()
        .zip(after[head..].iter().rev())
        .take_while(|(left, right)| left == right)
        .count();
    Some((head..before.len() - tail, head..after.len() - tail))
}

impl Sides<'_> {
    /// Whole lines around each change, with those that touch joined.
    fn regions(
        &self,
        changes: &[(Range<usize>, Range<usize>)],
    ) -> Vec<(Range<usize>, Range<usize>)> {
        let mut regions: Vec<(Range<usize>, Range<usize>)> = Vec::new();
        for (old, new) in changes {
            let start = self.encoding.line_start(self.before, old.start);
            let end = self
                .encoding
                .line_end(self.before, old.end)
                .unwrap_or(self.before.len());
            let new_end = new.end + (end - old.end);
            match regions.last_mut() {
                Some(last) if start <= last.0.end => {
                    last.0.end = end;
                    last.1.end = new_end;
                }
                _ => regions.push((start..end, new.start - (old.start - start)..new_end)),
            }
        }
        regions
    }

    fn blocks(&self, regions: &[(Range<usize>, Range<usize>)]) -> Vec<Block> {
        let mut blocks = Vec::new();
        let deadline = Instant::now() + TIME_LIMIT;
        let (mut old_line, mut new_line) = (0, 0);
        let (mut old_at, mut new_at) = (0, 0);
        for (old, new) in regions {
            old_line += self.encoding.count_feeds(&self.before[old_at..old.start]);
            new_line += self.encoding.count_feeds(&self.after[new_at..new.start]);
            let old_lines = self.lines(self.before, old.clone());
            let new_lines = self.lines(self.after, new.clone());
            let bytes = |lines: &[Range<usize>], side| -> Vec<&[u8]> {
                let content: &[u8] = if side { self.after } else { self.before };
                lines.iter().map(|line| &content[line.clone()]).collect()
            };
            let (left, right) = (bytes(&old_lines, false), bytes(&new_lines, true));
            for operation in operations(&left, &right, deadline) {
                if matches!(operation, DiffOp::Equal { .. }) {
                    continue;
                }
                let (left, right) = (operation.old_range(), operation.new_range());
                blocks.push(Block {
                    old_line: old_line + left.start,
                    old: span(&old_lines, &left, old),
                    old_count: left.len(),
                    new_line: new_line + right.start,
                    new: span(&new_lines, &right, new),
                    new_count: right.len(),
                });
            }
            (old_at, new_at) = (old.start, new.start);
        }
        blocks
    }

    fn lines(&self, content: &[u8], region: Range<usize>) -> Vec<Range<usize>> {
        let mut lines = Vec::new();
        let mut from = region.start;
        while from < region.end {
            let end = self
                .encoding
                .line_end(content, from)
                .unwrap_or(content.len());
            lines.push(from..end);
            from = end;
        }
        lines
    }

    fn write_hunk(&self, hunk: &[Block], diff: &mut Diff) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else {
            return;
        };
        let lead = self.lines_before(first.old.start);
        let trail = self.lines_after(last.old.end);
        let old_start = first.old_line - lead.len();
        let new_start = first.new_line - lead.len();
        let old_count = last.old_line + last.old_count - old_start + trail.len();
        let new_count = last.new_line + last.new_count - new_start + trail.len();
        let place = |start: usize, count: usize| {
            // An empty side names the line before it.
            let start = if count == 0 { start } else { start + 1 };
            if count == 1 {
                start.to_string()
            } else {
                format!("{start},{count}")
            }
        };
        let header = format!(
            "@@ -{} +{} @@",
            place(old_start, old_count),
            place(new_start, new_count)
        );
        diff.line("", header.as_bytes(), None);
        for line in &lead {
            diff.line(" ", &self.before[line.clone()], Some(self.encoding));
        }
        let mut at = first.old.start;
        for block in hunk {
            for line in self.lines(self.before, at..block.old.start) {
                diff.line(" ", &self.before[line], Some(self.encoding));
            }
            for line in self.lines(self.before, block.old.clone()) {
                diff.line("-", &self.before[line], Some(self.encoding));
                diff.removed += 1;
            }
            for line in self.lines(self.after, block.new.clone()) {
                diff.line("+", &self.after[line], Some(self.encoding));
                diff.added += 1;
            }
            at = block.old.end;
        }
        for line in &trail {
            diff.line(" ", &self.before[line.clone()], Some(self.encoding));
        }
    }

    fn lines_before(&self, at: usize) -> Vec<Range<usize>> {
        let mut lines = Vec::new();
        let mut end = at;
        while lines.len() < CONTEXT && end > 0 {
            let start = self
                .encoding
                .line_start(self.before, end - self.encoding.unit());
            lines.push(start..end);
            end = start;
        }
        lines.reverse();
        lines
    }

    fn lines_after(&self, at: usize) -> Vec<Range<usize>> {
        let mut lines = Vec::new();
        let mut from = at;
        while lines.len() < CONTEXT && from < self.before.len() {
            let end = self
                .encoding
                .line_end(self.before, from)
                .unwrap_or(self.before.len());
            lines.push(from..end);
            from = end;
        }
        lines
    }
}

/// The bytes of some lines of a region.
fn span(lines: &[Range<usize>], wanted: &Range<usize>, region: &Range<usize>) -> Range<usize> {
    let start = lines
        .get(wanted.start)
        .map_or(region.end, |line| line.start);
    let end = match wanted.end.checked_sub(1).and_then(|last| lines.get(last)) {
        Some(line) if !wanted.is_empty() => line.end,
        _ => start,
    };
    start..end
}

impl Diff {
    /// Adds a line to both renderings. `encoding` is that of a content line; a header has none.
    fn line(&mut self, sign: &str, bytes: &[u8], encoding: Option<Encoding>) {
        self.exact.extend_from_slice(sign.as_bytes());
        self.shown.push_str(sign);
        let Some(encoding) = encoding else {
            self.exact.extend_from_slice(bytes);
            self.shown.push_str(&String::from_utf8_lossy(bytes));
            self.exact.push(b'\n');
            self.shown.push('\n');
            return;
        };
        let decoded = encoding.decode(bytes);
        self.shown.push_str(decoded.trim_start_matches('\u{feff}'));
        if encoding.unit() == 1 {
            self.exact.extend_from_slice(bytes);
        } else {
            self.exact.extend_from_slice(decoded.as_bytes());
        }
        if encoding.line_end(bytes, 0).is_none() {
            let mark = "\n\\ No newline at end of file\n";
            self.exact.extend_from_slice(mark.as_bytes());
            self.shown.push_str(mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(before: &str, after: &str, expected: &str) {
        let changes: Vec<_> = changed_range(before.as_bytes(), after.as_bytes())
            .into_iter()
            .collect();
        let diff = unified(
            "f",
            before.as_bytes(),
            after.as_bytes(),
            Encoding::Utf8,
            &changes,
        );
        assert_eq!(diff.shown, expected);
    }

    #[test]
    fn the_usual_form() {
        check(
            "a\nb\nc\nd\ne\nf\n",
            "a\nb\nc\nX\ne\nf\n",
            "--- a/f\n+++ b/f\n@@ -1,6 +1,6 @@\n a\n b\n c\n-d\n+X\n e\n f\n",
        );
        check("", "a\n", "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n");
        check(
            "a",
            "b",
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n",
        );
        check("a\nb\n", "b\n", "--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n-a\n b\n");
    }

    #[test]
    fn far_changes_have_hunks_of_their_own() {
        let before: String = (0..40).map(|line| format!("{line}\n")).collect();
        let after = before.replace("\n5\n", "\nfive\n").replace("\n30\n", "\n");
        let changes = [(10..11, 10..14), (80..83, 83..83)];
        assert_eq!(&before[10..11], "5");
        let diff = unified(
            "f",
            before.as_bytes(),
            after.as_bytes(),
            Encoding::Utf8,
            &changes,
        );
        assert_eq!(diff.shown.matches("@@ -").count(), 2);
        assert_eq!((diff.added, diff.removed), (1, 2));
        assert_eq!(apply(before.as_bytes(), &diff.exact), after.as_bytes());
    }

    /// Applies a unified diff the plain way.
    fn apply(before: &[u8], diff: &[u8]) -> Vec<u8> {
        let lines = |bytes: &[u8]| -> Vec<Vec<u8>> {
            bytes
                .split_inclusive(|byte| *byte == b'\n')
                .map(<[u8]>::to_vec)
                .collect()
        };
        let old = lines(before);
        let mut out: Vec<Vec<u8>> = Vec::new();
        let mut at = 0;
        for line in lines(diff).into_iter().skip(2) {
            match line[0] {
                b'@' => {
                    let text = String::from_utf8(line).unwrap();
                    let place = text.split([' ', ',']).nth(1).unwrap()[1..]
                        .parse::<usize>()
                        .unwrap();
                    let empty = text.split(' ').nth(1).unwrap().ends_with(",0");
                    let start = if empty { place } else { place - 1 };
                    out.extend_from_slice(&old[at..start]);
                    at = start;
                }
                b' ' => {
                    assert_eq!(old[at], line[1..]);
                    out.push(line[1..].to_vec());
                    at += 1;
                }
                b'-' => {
                    assert!(old[at] == line[1..] || old[at] == line[1..line.len() - 1]);
                    at += 1;
                }
                b'+' => out.push(line[1..].to_vec()),
                b'\\' => {
                    // It belongs to the line before it, whichever side that was on.
                    if let Some(last) = out.last_mut()
                        && last.ends_with(b"\n")
                        && at == old.len()
                    {
                        last.pop();
                    }
                }
                other => panic!("{other}"),
            }
        }
        out.extend_from_slice(&old[at..]);
        out.concat()
    }

    proptest! {
        /// The diff of any edit applies to the bytes before and gives the bytes after.
        #[test]
        fn it_applies(
            lines in proptest::collection::vec("[ab]{0,2}", 0..30),
            old in "[ab\n]{1,3}",
            new in "[ab\n]{0,3}",
        ) {
            let before = lines.join("\n") + "\n";
            let edit = crate::edit::Edit { old, new, replace_all: true };
            if let Ok(plan) = crate::edit::plan(before.as_bytes(), Encoding::Utf8, &[edit]) {
                let after = plan.apply(before.as_bytes());
                prop_assume!(after.ends_with(b"\n"));
                let diff = unified("f", before.as_bytes(), &after, Encoding::Utf8, &plan.changes());
                prop_assert_eq!(apply(before.as_bytes(), &diff.exact), after);
            }
        }
    }
}
