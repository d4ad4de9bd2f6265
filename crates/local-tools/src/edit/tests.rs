//! The engine against a byte-level oracle that shares no code with it.

use super::*;
use proptest::prelude::*;

fn edit(old: &str, new: &str, replace_all: bool) -> Edit {
    Edit {
        old: old.into(),
        new: new.into(),
        replace_all,
    }
}

fn run(content: &[u8], edits: &[Edit]) -> Result<Vec<u8>, Code> {
    plan(content, Encoding::of(content), edits)
        .map(|plan| plan.apply(content))
        .map_err(|problem| problem.code())
}

fn check(content: &[u8], edits: &[(&str, &str)], expected: Result<&[u8], Code>) {
    let edits: Vec<Edit> = edits
        .iter()
        .map(|(old, new)| edit(old, new, false))
        .collect();
    assert_eq!(run(content, &edits), expected.map(<[u8]>::to_vec));
}

#[test]
fn only_the_match_changes() {
    check(
        b"caf\xE9 one\r\ntwo",
        &[("one", "1")],
        Ok(b"caf\xE9 1\r\ntwo"),
    );
    check(b"caf\xE9", &[("caf\u{e9}", "th\u{e9}")], Ok(b"th\xE9"));
    check(
        b"\xEF\xBB\xBFa\r\nb",
        &[("a\nb", "x\ny")],
        Ok(b"\xEF\xBB\xBFx\r\ny"),
    );
    check(
        b"\xFF\xFEa\0b\0",
        &[("b", "\u{1F600}")],
        Ok(b"\xFF\xFEa\0=\xD8\0\xDE"),
    );
    check(
        b"ok \xFF \xC3\xA9\xC3\xA9",
        &[("ok", "no")],
        Ok(b"no \xFF \xC3\xA9\xC3\xA9"),
    );
}

#[test]
fn what_is_not_certain_is_refused() {
    check(b"a a", &[("a", "b")], Err(Code::AmbiguousTarget));
    check(b"aaa", &[("aa", "b")], Err(Code::AmbiguousTarget));
    check(b"a", &[("b", "c")], Err(Code::TargetNotFound));
    check(b"a", &[("", "c")], Err(Code::TargetNotFound));
    check(b"a", &[("a", "a")], Err(Code::NoChange));
    check(
        b"abc",
        &[("ab", "x"), ("bc", "y")],
        Err(Code::RuntimePreconditionFailed),
    );
    check(b"abc", &[("a", "x"), ("x", "y")], Err(Code::TargetNotFound));
    check(
        b"caf\xE9",
        &[("caf", "\u{2192}")],
        Err(Code::UnsupportedContent),
    );
    check(
        b"a\r\nb",
        &[("a\nb", "a\nb\r\n")],
        Err(Code::TargetNotFound),
    );
}

#[test]
fn messages_say_which_and_where() {
    let problem = plan(b"x\nab\nab\n", Encoding::Utf8, &[edit("ab", "c", false)]).unwrap_err();
    assert_eq!(
        problem.to_string(),
        "edit 1: the text to replace occurs 2 times (lines 2, 3), and has to occur once"
    );
}

/// Text from few letters, so that matches, overlaps and near misses are common.
fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        proptest::sample::select(vec!["a", "b", "\n", "\r\n", "\u{e9}", " "]),
        0..30,
    )
    .prop_map(|parts| parts.concat())
}

proptest! {
    /// In any encoding, an edit is what replacing characters in the decoded text would give.
    #[test]
    fn random_edits_equal_the_oracle(
        content in text(),
        old in text(),
        part: Option<(prop::sample::Index, prop::sample::Index)>,
        new in text(),
        replace_all: bool,
        encoding in proptest::sample::select(vec![Encoding::Utf8, Encoding::Utf8Bom, Encoding::Utf16Le, Encoding::Utf16Be, Encoding::Windows1252]),
    ) {
        // Windows-1252 is only recognised by a byte that is not UTF-8.
        let content = if encoding == Encoding::Windows1252 { format!("{content}\u{ff}") } else { content };
        // Mostly a part of the content, so that it is found.
        let old = match part {
            Some((left, right)) => {
                let letters: Vec<char> = content.chars().collect();
                let (left, right) = (left.index(letters.len() + 1), right.index(letters.len() + 1));
                let part: String = letters[left.min(right)..left.max(right)].iter().collect();
                if replace_all { part } else { part.replace("\r\n", "\n") }
            }
            None => old,
        };
        let mark: &[u8] = match encoding {
            Encoding::Utf8Bom => b"\xEF\xBB\xBF",
            Encoding::Utf16Le => b"\xFF\xFE",
            Encoding::Utf16Be => b"\xFE\xFF",
            _ => b"",
        };
        let bytes = [mark, &encoding.encode(&content).unwrap()].concat();
        prop_assume!(Encoding::of(&bytes) == encoding);
        let oracle = oracle(&content, &old, &new, replace_all)
            .map(|text| [mark, &encoding.encode(&text).unwrap()].concat());
        prop_assert_eq!(run(&bytes, &[edit(&old, &new, replace_all)]), oracle);
    }

    /// Edits of one call are independent of their order.
    #[test]
    fn order_does_not_matter(content in text(), pairs in proptest::collection::vec((text(), text()), 1..4)) {
        let mut edits: Vec<Edit> = pairs.iter().map(|(old, new)| edit(old, new, false)).collect();
        let forward = run(content.as_bytes(), &edits);
        edits.reverse();
        let backward = run(content.as_bytes(), &edits);
        prop_assert_eq!(forward.is_ok(), backward.is_ok());
        if let (Ok(forward), Ok(backward)) = (forward, backward) {
            prop_assert_eq!(forward, backward);
        }
    }

    /// Outside the changed ranges every byte is the one that was there.
    #[test]
    fn the_rest_is_untouched(content in proptest::collection::vec(any::<u8>(), 0..60), old in "[a-c]", new in "[a-c]{0,3}") {
        let encoding = Encoding::of(&content);
        if let Ok(plan) = plan(&content, encoding, &[edit(&old, &new, true)]) {
            let after = plan.apply(&content);
            let (mut left, mut right) = (0, 0);
            for (before_range, after_range) in plan.changes() {
                prop_assert_eq!(&content[left..before_range.start], &after[right..after_range.start]);
                (left, right) = (before_range.end, after_range.end);
            }
            prop_assert_eq!(&content[left..], &after[right..]);
        }
    }
}

/// Characters in, characters out, written as plainly as possible.
fn oracle(content: &str, old: &str, new: &str, replace_all: bool) -> Result<String, Code> {
    if old == new {
        return Err(Code::NoChange);
    }
    if old.is_empty() {
        return Err(Code::TargetNotFound);
    }
    let content: Vec<char> = content.chars().collect();
    let old: Vec<char> = old.chars().collect();
    let literal = old.contains(&'\r') || new.contains('\r');
    let match_at = |at: usize| -> Option<usize> {
        let mut end = at;
        for wanted in &old {
            if !literal
                && *wanted == '\n'
                && content.get(end) == Some(&'\r')
                && content.get(end + 1) == Some(&'\n')
            {
                end += 2;
            } else if content.get(end) == Some(wanted) {
                end += 1;
            } else {
                return None;
            }
        }
        Some(end)
    };
    // A carriage return before a matched line feed belongs to the break, not to what is before it.
    let starts_inside_break =
        |at: usize| !literal && old[0] == '\n' && at > 0 && content[at - 1] == '\r';
    let candidates: Vec<(usize, usize)> = (0..content.len())
        .filter(|at| !starts_inside_break(*at))
        .filter_map(|at| match_at(at).map(|end| (at, end)))
        .collect();
    if candidates.is_empty() {
        return Err(Code::TargetNotFound);
    }
    if !replace_all && candidates.len() > 1 {
        return Err(Code::AmbiguousTarget);
    }
    let mut out = String::new();
    let mut at = 0;
    for (start, end) in candidates {
        if start < at {
            continue;
        }
        out.extend(&content[at..start]);
        out.push_str(&replaced(&content, start, end, &old, new, literal));
        at = end;
    }
    out.extend(&content[at..]);
    let before: String = content.iter().collect();
    if out == before {
        Err(Code::NoChange)
    } else {
        Ok(out)
    }
}

fn replaced(
    content: &[char],
    start: usize,
    end: usize,
    old: &[char],
    new: &str,
    literal: bool,
) -> String {
    if literal {
        return new.to_owned();
    }
    let mut breaks: Vec<&str> = Vec::new();
    for at in start..end {
        if content[at] == '\n' {
            breaks.push(if at > start && content[at - 1] == '\r' {
                "\r\n"
            } else {
                "\n"
            });
        }
    }
    let mixed = breaks.windows(2).any(|pair| pair[0] != pair[1]);
    if mixed {
        // Which break a line gets is the subject of a test of its own.
        let text: String = content[start..end].iter().collect();
        let old: String = old.iter().collect();
        let whole = 0..text.len();
        let bytes =
            with_breaks_of_place(&old, new, text.as_bytes(), &whole, Encoding::Utf8).unwrap();
        return String::from_utf8(bytes).unwrap();
    }
    let around = || {
        let paired = |at: usize| at > 0 && content[at - 1] == '\r';
        let after = (end..content.len()).find(|at| content[*at] == '\n');
        let before = (0..start).rev().find(|at| content[*at] == '\n');
        if after.or(before).is_some_and(paired) {
            "\r\n"
        } else {
            "\n"
        }
    };
    new.replace('\n', breaks.first().copied().unwrap_or_else(around))
}
