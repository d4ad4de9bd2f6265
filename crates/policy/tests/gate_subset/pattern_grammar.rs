//! Random patterns, and names of files for them.

use crate::grammar::Random;

/// Steps of patterns.
const STEPS: &[&str] = &[
    "*", "?", "**", "*?", "?*", ".*", ".?", ".??*", "a*", "*a", "*.y", "?.y", "*.*", "*\\*",
    "\\**", "\\?*", "'*'*", "\"?\"?", "*' '*", "-*", "*-", "é*", "*é", "??", "???", "????", "*b?",
    "d*", "l*", "\\.*", "'.'*", "*\\\\*", "*'\n'*", "*\\[*", "*]*", "a?", "*\"'\"*", "?a*", ".",
    "..", "d", "a", "l", "*=*", "@*", "{}*", "*~", "...*", "..*",
];

/// Steps that are read in more than one way.
const BRACKETS: &[&str] = &[
    "[a]",
    "[ab]*",
    "[!a]*",
    "[^a]?",
    "[a-c]*",
    "[[:lower:]]*",
    "*[[:digit:]]",
    "[]a]*",
    "[a",
    "[.]*",
    "*[.]y",
    "[*]",
    "[\\]]*",
    "[a\\]b]*",
    "a[b]c",
    "[[=a=]]",
    "[[.a.]]",
    "[-a]*",
    "[\"]\"]*",
    "[]-a]*",
    "[!]a]",
    "*[!.]",
    "[a]]",
    "[[]*",
];

/// A script of patterns; `loose` for those that only detection reads.
pub(crate) fn patterns(random: &mut Random, loose: bool) -> String {
    let mut text = String::new();
    if random.once_in(4) {
        text.push_str(random.one(&[
            "cd d* && ",
            "cd d && ",
            "cd ./l; ",
            "cd 'b\\s' && ",
            "cd \"*\" && ",
            "cd '[a]' && ",
        ]));
    }
    text.push_str("c1");
    for _ in 0..1 + random.below(4) {
        text.push_str(random.one(&[
            " ", " ", " ./", " .//", " d/", " */", " \"d\"/", " b\\\\s/", " '*'/",
        ]));
        for step in 0..1 + random.below(3) {
            if step > 0 {
                text.push_str(random.one(&["/", "/", "//", "/./"]));
            }
            if loose && random.once_in(2) {
                text.push_str(random.one(BRACKETS));
            } else {
                text.push_str(random.one(STEPS));
            }
        }
        text.push_str(random.one(&["", "", "", "", "/"]));
    }
    text
}

/// Names for the files of random trees.
pub(crate) const NAMES: &[&[u8]] = &[
    b"a",
    b"b",
    b"c",
    b"ab",
    b"abc",
    b"aab",
    b"x.y",
    b"z.y",
    b".h",
    b".hh",
    b"..x",
    b"...",
    b"-a",
    b"-",
    b"a b",
    b" ",
    b"*",
    b"?",
    b"**",
    b"[a]",
    b"[",
    b"]",
    b"b\\s",
    b"\\",
    b"\\*",
    b"a\\",
    "é".as_bytes(),
    "é.y".as_bytes(),
    "aé".as_bytes(),
    "e\u{301}".as_bytes(),
    b"\xff",
    b"a\xff",
    b"\xc3",
    b"a\nb",
    b"\n",
    b"a'b",
    b"\"",
    b"d",
    b"d",
    b"l",
    b"l",
    b"#",
    b"~",
    b"a~",
    b"{}",
    b"a=b",
    b"@u",
    b"1",
    b"22",
    b"A",
    b"Ab",
    b"x.Y",
    b"$v",
    b";",
    b"&",
    b"a;b",
    b"!",
];
