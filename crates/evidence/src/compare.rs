//! What is different between two texts, by lines, words or whatever else can be told apart.
//!
//! `similar` is always asked about numbers: every other kind of item would be one more copy of its
//! algorithms in the program.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::Hash;
use std::ops::Range;
use std::time::{Duration, Instant};

use similar::DiffOp;
use similar::algorithms::{Capture, Compact, Replace, myers};

/// Lines around a change in a unified diff.
const CONTEXT: usize = 3;

/// Items that were replaced by others; one of the two may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Their places before.
    pub old: Range<usize>,
    /// Their places after.
    pub new: Range<usize>,
}

/// What changed from `old` to `new`, in order. What is still to be compared when `limit` is over
/// counts as changed as a whole, which is correct and longer than it could be.
pub fn changes<T: Eq + Hash>(old: &[T], new: &[T], limit: Duration) -> Vec<Changed> {
    let mut numbers = HashMap::new();
    let mut number = |item| {
        let next = numbers.len();
        *numbers.entry(item).or_insert(next)
    };
    let old: Vec<usize> = old.iter().map(&mut number).collect();
    let new: Vec<usize> = new.iter().map(&mut number).collect();
    between_numbers(&old, &new, Instant::now() + limit)
}

fn between_numbers(old: &[usize], new: &[usize], deadline: Instant) -> Vec<Changed> {
    let mut found = Compact::new(Replace::new(Capture::new()), old, new);
    let (all_old, all_new) = (0..old.len(), 0..new.len());
    // What is captured cannot fail.
    let Ok(()) = myers::diff_deadline(&mut found, old, all_old, new, all_new, Some(deadline));
    found
        .into_inner()
        .into_inner()
        .into_ops()
        .into_iter()
        .filter(|operation| !matches!(operation, DiffOp::Equal { .. }))
        .map(|operation| Changed {
            old: operation.old_range(),
            new: operation.new_range(),
        })
        .collect()
}

/// The unified diff from `old` to `new` under two names; empty when they are the same.
pub fn unified(old: &str, new: &str, names: (&str, &str), limit: Duration) -> String {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let changes = changes(&old, &new, limit);
    let mut diff = String::new();
    let mut rest = changes.as_slice();
    if !rest.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(diff, "--- {}\n+++ {}\n", names.0, names.1);
    }
    while !rest.is_empty() {
        let near = |pair: &&[Changed]| pair[1].old.start - pair[0].old.end <= 2 * CONTEXT;
        let joined = rest.windows(2).take_while(near).count();
        let (hunk, later) = rest.split_at(joined + 1);
        write_hunk(&old, &new, hunk, &mut diff);
        rest = later;
    }
    diff
}

fn write_hunk(old: &[&str], new: &[&str], hunk: &[Changed], diff: &mut String) {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else {
        return;
    };
    let lead = first.old.start.min(CONTEXT);
    let trail = (old.len() - last.old.end).min(CONTEXT);
    let span = |range: Range<usize>| match range.len() {
        // An empty side names the line before it.
        0 => format!("{},0", range.start),
        1 => (range.start + 1).to_string(),
        count => format!("{},{count}", range.start + 1),
    };
    let _ = writeln!(
        diff,
        "@@ -{} +{} @@",
        span(first.old.start - lead..last.old.end + trail),
        span(first.new.start - lead..last.new.end + trail),
    );
    let mut put = |mark: char, lines: &[&str]| {
        for line in lines {
            diff.push(mark);
            diff.push_str(line);
            if !line.ends_with('\n') {
                diff.push_str("\n\\ No newline at end of file\n");
            }
        }
    };
    let mut at = first.old.start - lead;
    for change in hunk {
        put(' ', &old[at..change.old.start]);
        put('-', &old[change.old.clone()]);
        put('+', &new[change.new.clone()]);
        at = change.old.end;
    }
    put(' ', &old[at..last.old.end + trail]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(5);

    fn numbered(range: Range<u32>) -> String {
        range.map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn changes_that_are_near_share_a_hunk() {
        let old = numbered(1..31);
        let new = old
            .replace("5\n", "five\n")
            .replace("\n9\n", "\n9\nand\n")
            .replace("28\n", "");
        // Besides 5 also 15 and 25 end in one.
        let diff = unified(&old, &new, ("a/x", "b/x"), LONG);
        assert_eq!(
            diff.lines()
                .filter(|line| line.starts_with("@@"))
                .collect::<Vec<_>>(),
            ["@@ -2,17 +2,18 @@", "@@ -22,9 +23,8 @@"]
        );
        assert!(diff.starts_with("--- a/x\n+++ b/x\n@@"), "{diff}");
        assert!(diff.contains("\n-5\n+five\n 6\n"), "{diff}");
    }

    #[test]
    fn nothing_is_said_of_texts_that_are_the_same() {
        assert_eq!(unified("a\n", "a\n", ("a", "b"), LONG), "");
    }

    #[test]
    fn a_new_file_has_no_line_before() {
        let diff = unified("", "a\nb", ("trusted", "now"), LONG);
        assert_eq!(
            diff,
            "--- trusted\n+++ now\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
        );
        let diff = unified("a\n", "", ("x", "y"), LONG);
        assert_eq!(diff, "--- x\n+++ y\n@@ -1 +0,0 @@\n-a\n");
    }

    proptest::proptest! {
        /// Whatever the changes are, carrying them out gives the new items.
        #[test]
        fn carried_out_they_give_the_new(
            old in proptest::collection::vec(0_u8..6, 0..60),
            new in proptest::collection::vec(0_u8..6, 0..60),
        ) {
            let (mut made, mut at) = (Vec::new(), 0);
            for change in changes(&old, &new, LONG) {
                made.extend_from_slice(&old[at..change.old.start]);
                made.extend_from_slice(&new[change.new.clone()]);
                at = change.old.end;
            }
            made.extend_from_slice(&old[at..]);
            proptest::prop_assert_eq!(made, new);
        }
    }
}
