//! Edits made and edits refused; `tests/it/edit.rs` compares the engine with an oracle.

use super::*;

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
