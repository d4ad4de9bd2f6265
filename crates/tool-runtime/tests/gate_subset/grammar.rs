//! Random scripts that lean towards the strange, and the seed they come from.

/// A generator whose seed can be printed and given again.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % bound
    }

    pub(crate) fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// Pieces of words, the plain and the strange. No slash leads out of the scratch directory and no name is that of a
/// program or builtin.
const PIECES: &[&str] = &[
    "a",
    "b",
    "x.y",
    "-a",
    "--",
    "A1",
    "_",
    "%",
    "+",
    ",",
    ":",
    "=",
    "@",
    "^",
    "!",
    "#",
    "]",
    "}",
    "é",
    "d/a",
    "'a b'",
    "''",
    "'*'",
    "'$v'",
    "'a\\'",
    "'\n'",
    "'{a,b}'",
    "\"a b\"",
    "\"\"",
    "\"*\"",
    "\"a\\b\"",
    "\"\\$\"",
    "\"\\\\\"",
    "\"\\\"\"",
    "\"$\"",
    "\"a$ b\"",
    "\"$v\"",
    "\"${v}\"",
    "\"é\u{a0}\"",
    "\"'\"",
    "'\"'",
    "\"#\"",
    "\"!\"",
    "$v",
    "${v}",
    "$u",
    "\\a",
    "\\ ",
    "\\*",
    "\\$",
    "\\'",
    "\\\"",
    "\\\\",
    "\\;",
    "\\(",
    "\\{",
    "\\~",
    "*",
    "?",
    "a*",
    "*.y",
    "d/*",
    "?.y",
    "d/?",
    "{}",
    "@{u}",
    "{a}",
    "{a-b}",
    "~",
    "a~",
    "a=~",
    "a:~",
    "~a",
    "a=b",
    "\"$(c2 z)\"",
    "$(c2 z)",
    "$?",
    "$",
];

const STRANGE: &[&str] = &[
    "{a,b}",
    "{a,b",
    "{x},a}",
    "{'}',b}",
    "{a..c}",
    "a{,b}",
    "{{a,b}",
    "{a,{b,c}}",
    "{\"a,b\"}",
    "{$v,b}",
    "{}{a,b}",
    "{a\\,b}",
    "$'a'",
    "$'\\456'",
    "$'\\x41'",
    "$'a\\\nb'",
    "$'\\'",
    "$\"a\"",
    "[a]",
    "[ab]*",
    "[[:lower:]]",
    "[!a]",
    "[",
    "a[b",
    "!(a)",
    "@(a|b)",
    "\\\n",
    "`c2 z`",
    "$((1))",
    "$[1]",
    "${v:-a}",
    "${v}}",
    "${#v}",
    "$#",
    "$@",
    "$*",
    "$!",
    "$-",
    "$1",
    "'",
    "\"",
    "\\",
    "\u{b}",
    "~+",
    "~-",
    "a=(b)",
    "v+=b",
    "v[1]=b",
];

const REDIRECTS: &[&str] = &[
    "2>&1",
    ">/dev/null",
    "2>/dev/null",
    "&>/dev/null",
    "< a",
    "<a",
    "<<< a",
    "<<<'a b'",
    ">o",
    ">>o",
    "1>&2",
    "2>o",
    ">&2",
    "<<'E'\nz $v `\nE\n",
    "<<E\nz\nE\n",
    "<<\"E\"\n'\nE\n",
];

const STRANGE_REDIRECTS: &[&str] = &[
    "<&-a",
    "<&-",
    "<&0",
    "<&0a",
    ">&a",
    ">|o",
    "<>a",
    "3>o",
    "3>&1",
    "<<-E\n\tz\n\tE\n",
    "<<E\n$v\nE\n",
    "&>&1",
    ">&2a",
    "2>&1a",
    "<&-'a'",
    ">& 2",
    "10>o",
    "{v}>o",
];

fn word(random: &mut Random, strange: bool) -> String {
    let mut text = String::new();
    for _ in 0..1 + random.below(3) {
        if strange && random.below(4) == 0 {
            text.push_str(random.one(STRANGE));
        } else {
            text.push_str(random.one(PIECES));
        }
    }
    text
}

fn simple(random: &mut Random, strange: bool) -> String {
    let mut text = String::new();
    if random.below(8) == 0 {
        text.push_str(random.one(&["v=a ", "v=", "w='a b' ", "v=~ ", "v=*;"]));
    }
    text.push_str(random.one(&["c1", "c2", "c3", "'c1'", "\\c2"]));
    for _ in 0..random.below(4) {
        text.push_str(random.one(&[" ", " ", " ", "\t", "  "]));
        if random.below(7) == 0 {
            text.push_str(random.one(REDIRECTS));
        } else if strange && random.below(9) == 0 {
            text.push_str(random.one(STRANGE_REDIRECTS));
        } else {
            text.push_str(&word(random, strange));
        }
    }
    text
}

/// A script of a few commands.
pub(crate) fn script(random: &mut Random, depth: usize) -> String {
    let strange = random.below(3) == 0;
    let mut text = String::new();
    for at in 0..1 + random.below(3) {
        if at > 0 {
            let between = &[
                "; ", ";", "\n", " && ", " || ", " | ", "|", "&&", "\n\n", " # c'\n", " ;\n",
            ];
            let odd = &[" & ", "|&", " ;; ", "&", " \\\n", " ) "];
            text.push_str(if strange && random.below(8) == 0 {
                random.one(odd)
            } else {
                random.one(between)
            });
        }
        match random.below(12) {
            0 if depth < 2 => {
                let body = script(random, depth + 1);
                text.push_str(&format!("({body})"));
            }
            1 if depth < 2 => {
                let body = script(random, depth + 1);
                let values: Vec<String> =
                    (0..random.below(3)).map(|_| word(random, false)).collect();
                text.push_str(&format!("for v in {}; do {body}; done", values.join(" ")));
            }
            2 if depth < 2 => {
                let condition = simple(random, false);
                let body = script(random, depth + 1);
                let otherwise = script(random, depth + 1);
                text.push_str(&format!(
                    "if {condition}; then {body}\nelse {otherwise}\nfi"
                ));
            }
            3 => text.push_str(&format!("! {}", simple(random, strange))),
            4 if depth < 2 => {
                let body = script(random, depth + 1);
                text.push_str(&format!("c3 \"$({body})\""));
            }
            5 => text.push_str("c3 \"$(cat <<'E'\na $v \"'\n\nE\n)\""),
            _ => text.push_str(&simple(random, strange)),
        }
    }
    text
}
