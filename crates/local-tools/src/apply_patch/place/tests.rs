use super::*;
use crate::apply_patch::parse::{Action, parse};

fn placed(content: &str, hunks: &str) -> Result<Placed, HunkProblem> {
    let text = format!("*** Begin Patch\n*** Update File: a\n{hunks}\n*** End Patch");
    let patch = parse(&text).unwrap();
    let Action::Update { hunks, .. } = &patch.sections[0].action else {
        panic!("no update");
    };
    place(content.as_bytes(), Encoding::of(content.as_bytes()), hunks)
}

fn check(content: &str, hunks: &str, expected: &str) {
    let found = placed(content, hunks).unwrap_or_else(|problem| panic!("{hunks:?}: {problem}"));
    assert_eq!(String::from_utf8_lossy(&found.after), expected, "{hunks:?}");
    // The ranges say all that changed.
    let mut rebuilt = Vec::new();
    let mut copied = 0;
    for (before, after) in &found.changes {
        rebuilt.extend_from_slice(&content.as_bytes()[copied..before.start]);
        rebuilt.extend_from_slice(&found.after[after.clone()]);
        copied = before.end;
    }
    rebuilt.extend_from_slice(&content.as_bytes()[copied..]);
    assert_eq!(rebuilt, found.after, "{hunks:?}: {:?}", found.changes);
}

fn refused(content: &str, hunks: &str, code: Code, part: &str) {
    let problem = placed(content, hunks).unwrap_err();
    let words = problem.to_string();
    assert!(
        problem.code() == code && words.contains(part),
        "{hunks:?}: {words}"
    );
}

#[test]
fn hunks_are_made_in_order() {
    check("a\nb\nc\n", "@@\n a\n-b\n+B\n c", "a\nB\nc\n");
    check("a\nb\nc\nd\n", "-a\n@@\n-c\n+C", "b\nC\nd\n");
    check("x\na\nx\n", "@@\n a\n@@\n-x\n+y", "x\na\ny\n");
    check("a\n", "+b", "a\nb\n");
    check("", "+b", "b\n");
    refused(
        "x\na\n",
        "@@\n a\n@@\n-x",
        Code::TargetNotFound,
        "they do occur at line 1",
    );
}

#[test]
fn the_end_of_the_file_stays_as_it_is() {
    check("a\nb", "-b\n+c", "a\nc");
    check("a\nb", " b\n+c", "a\nb\nc");
    check("a\nb", "-b", "a");
    check("a\r\nb\r\n", "-b\n+c\n+d", "a\r\nc\r\nd\r\n");
    check("a\r\nb\n", " a\n+c", "a\r\nc\r\nb\n");
    check("a\nb\n", " a\n b\n", "a\nb\n");
}

#[test]
fn lines_that_stay_keep_their_white_space() {
    check("a  \n\tb\nc\n", " a\n-b\n+B", "a  \nB\nc\n");
    check(
        "say \u{201C}hi\u{201D}\nb\n",
        " say \"hi\"\n-b",
        "say \u{201C}hi\u{201D}\n",
    );
    assert_eq!(placed("a \nb\n", " a\n-b").unwrap().loosely, [1]);
    assert!(placed("a\nb\n", " a\n-b").unwrap().loosely.is_empty());
    // What fits exactly counts, whatever else nearly fits.
    check("a \na\nb\n", "-a\n+c", "a \nc\nb\n");
}

#[test]
fn one_place_or_none() {
    refused(
        "a\nb\na\n",
        "-a",
        Code::AmbiguousTarget,
        "occur 2 times (lines 1, 3)",
    );
    refused(
        "hello world\n",
        "-hello wor1d",
        Code::TargetNotFound,
        "nearest text is at line 1",
    );
    refused(
        "a\n",
        "@@ fn x()\n-a",
        Code::TargetNotFound,
        "behind its `@@`",
    );
    check("a\nb\na\n", "@@ b\n-a", "a\nb\n");
    check("a\nb\na\n", "-a\n*** End of File", "a\nb\n");
    refused(
        "a\nb\n",
        "-a\n*** End of File",
        Code::TargetNotFound,
        "line 1",
    );
    let two = "fn x() {\n    go\n}\nfn y() {\n    go\n}\nfn z() {\n    go\n}\n";
    check(
        two,
        "@@ fn y() {\n-    go\n+    no",
        &two.replacen("y() {\n    go", "y() {\n    no", 1),
    );
    let nested = "class A:\n  def f:\n    go\nclass B:\n  def f:\n    go\nend\n";
    check(
        nested,
        "@@ class B:\n@@   def f:\n+    no",
        &nested.replacen("B:\n  def f:\n", "B:\n  def f:\n    no\n", 1),
    );
}

#[test]
fn empty_lines_behind_a_hunk_need_not_be_there() {
    check("a\nb\n", "-a\n\n", "b\n");
    check("a\n\nb\n", "-a\n\n-b\n+c\n", "\nc\n");
    check("a\n", "+b\n\n", "a\nb\n");
}

#[test]
fn wide_text_and_marks() {
    let mut wide: Vec<u8> = vec![0xFF, 0xFE];
    wide.extend("a\r\nb\r\n".encode_utf16().flat_map(u16::to_le_bytes));
    let text = "*** Begin Patch\n*** Update File: a\n-b\n+\u{E9}\n*** End Patch";
    let patch = parse(text).unwrap();
    let Action::Update { hunks, .. } = &patch.sections[0].action else {
        panic!("no update");
    };
    let after = place(&wide, Encoding::of(&wide), hunks).unwrap().after;
    let mut expected: Vec<u8> = vec![0xFF, 0xFE];
    expected.extend("a\r\n\u{E9}\r\n".encode_utf16().flat_map(u16::to_le_bytes));
    assert_eq!(after, expected);
}

#[test]
fn overlapping_places_are_all_found() {
    assert_eq!(occurrences(&[1, 1, 1, 2, 1, 1], &[1, 1]), [0, 1, 4]);
    assert_eq!(occurrences(&[1, 2, 1, 2, 1], &[1, 2, 1]), [0, 2]);
    assert_eq!(occurrences(&[1], &[1, 2]), [] as [usize; 0]);
}
