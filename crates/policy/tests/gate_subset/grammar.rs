//! Random scripts that lean towards the strange, and the seed they come from.
//!
//! Most pieces are of the small language, in combinations nobody would write; some are of the rest of bash, and some
//! scripts are damaged by a sign too many or too few, so that what is read beside what bash reads is near the border.
//! What makes bash fork (pipes, subshells, substitutions) is rarer than it would be in life: it takes a hundred times
//! as long as a word.

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

    /// True once in `of` times.
    pub(crate) fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    pub(crate) fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// Pieces of words, the plain and the strange. No slash leads out of the scratch directory and no name is that of a
/// program or builtin.
const PIECES: &[&str] = &[
    "a",
    "file.txt",
    "-xvf",
    "--name=a",
    "src/a.rs",
    "1,5p",
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
    "a=b",
    "$?",
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
    "$",
    "a=~",
    "a:~",
    "~a",
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
];

/// Documents: the word on the line, and what follows the line.
const DOCUMENTS: &[(&str, &str)] = &[
    ("<<'E'", "z $v `\n EE\nE\n"),
    ("<<E", "z 'a\n\"\nE\n"),
    ("<<\"E\"", "'\nE\n"),
    ("<< 'a_1'", "a\\\n$(c1)\n\na_1\n"),
    ("<<E", "E\n"),
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

/// Single signs, for words that are made of nothing else.
const SIGNS: &[&str] = &[
    "a", "a", "b", "-", ".", "/", ",", ":", "=", "@", "%", "^", "+", "!", "#", "]", "{", "}", "~",
    "'", "'", "\"", "\"", "\\", "$", "*", "?", "é", "0", "2", "v", "_", "d", "x", "y", "[", "`",
    "(", ")", ";", "&", "|", "<", ">", " ", "\n", "\t",
];

const FORKING: &[&str] = &[
    "\"$(c3 z)\"",
    "$(c3 z)",
    "\"a$(c3 z)b\"",
    "\"$(c1 \"$v\")\"",
];

fn word(random: &mut Random, strange: bool) -> String {
    let mut text = String::new();
    match random.below(12) {
        0 => {
            for _ in 0..1 + random.below(6) {
                // The last of the signs end a word or open something.
                let most = if strange {
                    SIGNS.len()
                } else {
                    SIGNS.len() - 13
                };
                text.push_str(random.one(&SIGNS[..most]));
            }
        }
        1 => quoted(random, &mut text),
        2..=5 => text.push_str(random.one(PIECES)),
        6 => text.push_str(&format!("{}$", random.one(&["", "a", "x.y", "'a'"]))),
        _ => {
            for _ in 0..1 + random.below(3) {
                if strange && random.once_in(4) {
                    text.push_str(random.one(STRANGE));
                } else {
                    text.push_str(random.one(PIECES));
                }
            }
        }
    }
    text
}

/// Quotes with signs in them that mean something elsewhere.
fn quoted(random: &mut Random, text: &mut String) {
    let quote = random.one(&["'", "\""]);
    text.push_str(quote);
    for _ in 0..random.below(7) {
        let sign = random.one(SIGNS);
        if sign != quote && !(quote == "\"" && sign == "`") {
            text.push_str(sign);
        }
        if sign == "$" && quote == "\"" {
            text.push_str(random.one(&["v", "u ", ".", " ", "{v}", "/"]));
        }
    }
    text.push_str(quote);
}

fn simple(random: &mut Random, strange: bool) -> String {
    let mut text = String::new();
    if random.once_in(8) {
        text.push_str(random.one(&[
            "v=a ",
            "v=",
            "w='a b' ",
            "v=~ ",
            "v=*;",
            "w=\"$v\";",
            "v=a.b;w=$v;",
            "w=$v ",
        ]));
    }
    text.push_str(if strange && random.once_in(6) {
        random.one(&[
            "'c1'",
            "\\c2",
            "c\"1\"",
            "$v",
            "c\\d",
            "'cd'",
            "command cd",
            "cc",
        ])
    } else {
        random.one(&["c1", "c1", "c1", "c2", "c3"])
    });
    for _ in 0..random.below(8) {
        text.push_str(random.one(&[" ", " ", " ", " ", " ", " ", "\t", "  "]));
        if random.once_in(14) {
            text.push_str(random.one(REDIRECTS));
        } else if strange && random.once_in(12) {
            text.push_str(random.one(STRANGE_REDIRECTS));
        } else if random.once_in(150) {
            text.push_str(random.one(FORKING));
        } else {
            text.push_str(&word(random, strange));
        }
    }
    text
}

/// A script of a few commands.
pub(crate) fn script(random: &mut Random) -> String {
    let forks = random.once_in(12);
    let mut text = list(random, 0, forks);
    while random.once_in(8) {
        damage(random, &mut text);
    }
    text
}

/// A sign too many, too few or in another place.
fn damage(random: &mut Random, text: &mut String) {
    let mut characters: Vec<char> = text.chars().collect();
    let at = random.below(characters.len() + 1);
    match random.below(3) {
        0 if at < characters.len() => drop(characters.remove(at)),
        1 if at + 1 < characters.len() => characters.swap(at, at + 1),
        _ => characters
            .splice(at..at, random.one(SIGNS).chars())
            .for_each(drop),
    }
    *text = characters.into_iter().collect();
}

fn list(random: &mut Random, depth: usize, forks: bool) -> String {
    let strange = random.once_in(5);
    let mut text = String::new();
    for at in 0..1 + random.below(if depth == 0 { 6 } else { 2 }) {
        if at > 0 && !text.ends_with('\n') {
            let between = &[
                "; ",
                ";",
                "\n",
                " && ",
                " || ",
                "&&",
                "\n\n",
                " # c'\n",
                " ;\n",
                " &&\n# '\n",
                "\t;\t",
                "\n#\n",
            ];
            let odd = &[
                " & ", "|&", " ;; ", "&", " \\\n", " ) ", "\\\n", ";;", ";&>o ", "|&>o ",
            ];
            text.push_str(if strange && random.once_in(8) {
                random.one(odd)
            } else if forks && random.once_in(3) {
                random.one(&[" | ", "|", " |\n"])
            } else {
                random.one(between)
            });
        }
        if depth == 0 && random.once_in(20) {
            text.push_str(&with_document(random, strange));
        } else {
            text.push_str(&compound(random, depth, strange, forks));
        }
    }
    text
}

/// A command with one document, or two.
fn with_document(random: &mut Random, strange: bool) -> String {
    let mut line = simple(random, strange);
    let mut behind = String::new();
    for _ in 0..1 + random.below(3) / 2 {
        let (sign, body) = DOCUMENTS[random.below(DOCUMENTS.len())];
        line.push_str(&format!(" {sign}"));
        behind.push_str(body);
        if random.once_in(3) {
            line.push_str(&format!(
                "{}{}",
                random.one(&[" ", "; ", " && "]),
                simple(random, false)
            ));
        }
    }
    format!("{line}\n{behind}")
}

fn compound(random: &mut Random, depth: usize, strange: bool, forks: bool) -> String {
    if depth >= 2 {
        return simple(random, strange);
    }
    match random.below(30) {
        0 | 1 => {
            let body = list(random, depth + 1, forks);
            let values: Vec<String> = (0..random.below(4)).map(|_| word(random, false)).collect();
            let loop_end = random.one(&["; done", "\ndone", "; done # c\n", ";done <a"]);
            format!("for v in {}; do {body}{loop_end}", values.join(" "))
        }
        2 | 3 => {
            let condition = simple(random, false);
            let body = list(random, depth + 1, forks);
            let otherwise = list(random, depth + 1, forks);
            let middle = random.one(&["else", "elif c2 y; then", "elif c1; then"]);
            format!("if {condition}; then {body}\n{middle} {otherwise}\nfi")
        }
        4 => format!("! {}", simple(random, strange)),
        5 => format!("time {}", simple(random, strange)),
        6 => format!(
            "while read -r v; do {}; done <<'E'\n1 *\n 2\nE\n",
            simple(random, false)
        ),
        7 | 8 => {
            let to = random.one(&[
                "d",
                "./d",
                "ln",
                "d/e",
                "'a b'",
                "nope",
                "../work/d",
                "\"d\"",
                "b\\\\s",
                "*",
                "$v",
            ]);
            let then = random.one(&[" && ", "; ", " || ", "&&"]);
            format!("cd {to}{then}{}", simple(random, false))
        }
        9 if forks => format!("({})", list(random, depth + 1, true)),
        10 if forks => format!("c3 \"$({})\"", list(random, depth + 1, true)),
        11 if forks => format!("(cd d; {})", simple(random, false)),
        12 if forks => output_of_document(random),
        13 if forks => format!("command {}", simple(random, false)),
        _ => simple(random, strange),
    }
}

/// A substitution with a document, which may end before its end: bash takes `E)` for the end of both, and what the
/// second document seems to close has been commands all along.
fn output_of_document(random: &mut Random) -> String {
    let sign = random.one(&["<<'E'", "<<'E'", "<<\"E\"", "<< \\E", "<<E", "<<-'E'"]);
    let body = random.one(&[
        "",
        "a $v \"'\n\n",
        "a\n",
        "a \" )\n",
        " E\n",
        "\tE)\n",
        "EE\n",
    ]);
    let early = random.one(&[
        "E)", "E)", "E )", "E;)", "EE)", "E) E", "E)b", "E\t)", "'E')",
    ]);
    let begin = format!("\"$(cat {sign}\n{body}");
    let end = random.one(&["E\n)\"", "E\n)\"", "E\n\n )b\"", "E \n)\""]);
    if random.once_in(2) {
        return format!("c3 {begin}{end}");
    }
    let between = simple(random, false);
    match random.below(3) {
        0 => format!("c3 {begin}{early}\"\n{between}\nc3 {begin}{end}"),
        1 => format!("c3 {begin}{early}\n{between}\n{end}"),
        _ => format!("c3 {begin}{early}\"\n{between} # {end}"),
    }
}
