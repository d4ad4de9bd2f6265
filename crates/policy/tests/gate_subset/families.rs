//! Each class of attack on the gate as a family: many members made from a few parts, none of which gets by.

use std::collections::BTreeMap;

use agent_protocol::payload::permission::Effect;

use crate::gate_support::Case;

#[derive(Clone, Default)]
pub(crate) struct Where<'a> {
    pub(crate) rules: &'a [&'a str],
    pub(crate) files: &'a [&'a str],
    pub(crate) links: &'a [(&'a str, &'a str)],
    pub(crate) dirty: Option<bool>,
}

pub(crate) fn decide(subject: &str, tool: &str, mode: &str, place: &Where<'_>) -> (Effect, String) {
    let case = Case {
        file: String::new(),
        tool: tool.to_owned(),
        subject: subject.to_owned(),
        why: String::new(),
        expect: String::new(),
        mode: mode.to_owned(),
        sandbox: "full".to_owned(),
        rules: place.rules.iter().map(|rule| (*rule).to_owned()).collect(),
        cwd: None,
        dirty: place.dirty,
        network: false,
        hook_allows: false,
        links: place
            .links
            .iter()
            .map(|(name, target)| ((*name).to_owned(), (*target).to_owned()))
            .collect::<BTreeMap<_, _>>(),
        files: place.files.iter().map(|file| (*file).to_owned()).collect(),
    };
    let evaluated = case.evaluate().evaluated;
    (evaluated.decision, evaluated.reason)
}

/// Each member is allowed in none of `modes`. The family has at least fifty.
pub(crate) fn none_allowed(name: &str, members: &[String], modes: &[&str], place: &Where<'_>) {
    assert!(
        members.len() >= 50,
        "{name}: only {} members",
        members.len()
    );
    let mut wrong = Vec::new();
    for member in members {
        for mode in modes {
            let (decision, reason) = decide(member, "bash", mode, place);
            if decision == Effect::Allow {
                wrong.push(format!("{mode}: {member:?}: {reason}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{name}: {} of {} were allowed\n{}",
        wrong.len(),
        members.len() * modes.len(),
        wrong.join("\n")
    );
}

pub(crate) fn product(parts: &[&[&str]]) -> Vec<String> {
    parts.iter().fold(vec![String::new()], |made, part| {
        made.iter()
            .flat_map(|begun| part.iter().map(move |next| format!("{begun}{next}")))
            .collect()
    })
}

pub(crate) const PROVEN: &[&str] = &["ask", "read-only"];
pub(crate) const READERS: &[&str] = &[
    "cat ",
    "head -5 ",
    "wc -l ",
    "grep x ",
    "sed -n 1p ",
    "find a.txt ",
    "sort ",
    "env cat ",
];

#[test]
fn finding_1_braces() {
    let words = [
        "{x},/etc/passwd}",
        "{'}',.env}",
        "{a,.env}",
        "{\"}\",.env}",
        "{\\},.env}",
        "{x}{y,.env}",
        "a{,b}",
        "{1..3}",
        "{a,b}{c,d}",
        "{$x,.env}",
    ];
    none_allowed(
        "braces",
        &product(&[READERS, &words]),
        PROVEN,
        &Where::default(),
    );
    let starts = [
        "env ",
        "timeout 5 ",
        "nice ",
        "",
        "command ",
        "true; ",
        "ls && ",
        "xargs ",
    ];
    let deletes = [
        "{A=1},rm,-f,victim}",
        "{rm,-f,victim}",
        "{'',rm} -f victim",
        "{x},rm} -f v",
        "{r,}m -f v",
        "r{m,} -f v",
        "{\"rm\",-f} v",
    ];
    let place = Where {
        rules: &["deny bash(rm *)"],
        ..Where::default()
    };
    none_allowed(
        "braces behind a deny",
        &product(&[&starts, &deletes]),
        &["auto", "full"],
        &place,
    );
    let trees = ["/home/u/shop", "/home/u", "~", ".", "..", "/"];
    let hidden = [
        "{x},TREE}",
        "{'}',TREE}",
        "{a,TREE}",
        "{x},y,TREE}",
        "{\"}\",TREE}",
        "{TREE,a}",
        "{x},TREE,}",
        "{TREE,TREE}",
        "{\\},TREE}",
    ];
    let members: Vec<String> = product(&[&["rm -rf "], &hidden])
        .iter()
        .flat_map(|text| trees.iter().map(move |tree| text.replace("TREE", tree)))
        .collect();
    none_allowed(
        "braces behind a breaker",
        &members,
        &["auto", "full"],
        &Where::default(),
    );
}

#[test]
fn finding_2_and_4_escapes_in_quotes() {
    let words = [
        "$'\\456env'",
        "$'\\056env'",
        "$'\\x2eenv'",
        "$'\\u002eenv'",
        "$'.env\\400.example'",
        "$'\\xc3\\xa9'",
        "$'a\\cb'",
        "$'{print}# \\\nBEGIN{system(\"id\")}'",
        "$'a'",
    ];
    none_allowed(
        "escapes",
        &product(&[READERS, &words]),
        PROVEN,
        &Where::default(),
    );
    let starts = [
        "",
        "env ",
        "timeout 5 ",
        "nice -n 5 ",
        "true; ",
        "ls && ",
        "command ",
        "sudo ",
    ];
    let names = [
        "$'\\562m'",
        "$'r\\155'",
        "$'\\x72m'",
        "$'\\u0072m'",
        "r$'\\155'",
        "$'\\162'm",
        "$'r\\\nm'",
    ];
    let place = Where {
        rules: &["deny bash(rm *)"],
        ..Where::default()
    };
    let members: Vec<String> = product(&[&starts, &names, &[" -f victim"]]);
    none_allowed("escapes behind a deny", &members, &["auto", "full"], &place);
}

#[test]
fn finding_3_descriptors() {
    let words = [
        "<&-/etc/passwd",
        "<&-.env",
        "<&0-x",
        "<&--exec id \\;",
        ">&-x",
        "<&-'x'",
        "<&-\"x\"",
    ];
    none_allowed(
        "descriptors",
        &product(&[READERS, &words]),
        PROVEN,
        &Where::default(),
    );
    let starts = [
        "env ",
        "nice ",
        "timeout 5 ",
        "true; env ",
        "command ",
        "nohup ",
        "stdbuf -o0 ",
        "setsid ",
    ];
    let hidden = [
        "<&-rm -f v",
        "<&-'rm' -f v",
        ">&-rm -f v",
        "<&-\"rm\" v",
        "<&-rm v 2>&1",
        "<&-r'm' v",
        "2>&1 <&-rm v",
    ];
    let place = Where {
        rules: &["deny bash(rm *)"],
        ..Where::default()
    };
    none_allowed(
        "descriptors behind a deny",
        &product(&[&starts, &hidden]),
        &["auto", "full"],
        &place,
    );
}

#[test]
fn finding_5_and_row_14_what_sets_and_evaluates() {
    let place = Where {
        rules: &[
            "allow bash(test *)",
            "allow bash([ *)",
            "allow bash(printf *)",
            "allow bash(read *)",
            "allow bash(unset *)",
            "allow bash(declare *)",
            "allow bash(typeset *)",
            "allow bash(export *)",
            "allow bash(let *)",
            "allow bash(mapfile *)",
            "allow bash(getopts *)",
            "allow bash(wait *)",
            "allow bash(eval *)",
            "allow bash(ls *)",
        ],
        ..Where::default()
    };
    let names = [
        "'a[$(id)]'",
        "'a[`id`]'",
        "\"a[\\$(id)]\"",
        "a\\[\\$\\(id\\)]",
    ];
    let forms = [
        "test -v NAME",
        "[ -v NAME ]",
        "test -R NAME",
        "[ NAME -eq 1 ]",
        "test 1 -eq NAME",
        "test -f x -o -v NAME",
        "printf -v NAME x",
        "printf '%n' NAME",
        "read NAME",
        "unset NAME",
        "declare NAME=1",
        "typeset NAME=1",
        "export NAME=1",
        "let NAME",
        "mapfile NAME",
        "getopts a NAME",
        "wait -p NAME",
        "eval NAME",
        "ls; printf -v NAME x",
    ];
    let members: Vec<String> = forms
        .iter()
        .flat_map(|form| names.iter().map(move |name| form.replace("NAME", name)))
        .collect();
    none_allowed("subscripts under rules", &members, PROVEN, &place);
    let formats = [
        "%n", "%5n", "%-n", "a%n", "%s%n", "'%n'", "\"%n\"", "%hn", "%ln", "%*n", "%.3n", "%%%n",
    ];
    let names = ["PATH; ls", "IFS; ls", "HOME && cat a", "BASH_ENV; ls", "x"];
    none_allowed(
        "printf %n",
        &product(&[&["printf "], &formats, &[" "], &names]),
        PROVEN,
        &place,
    );
    for allowed in [
        "test -f a.txt",
        "[ 1 -eq 2 ]",
        "printf '%s\\n' a",
        "printf '%5.2f' 1",
    ] {
        assert_eq!(
            decide(allowed, "bash", "ask", &place).0,
            Effect::Allow,
            "{allowed}"
        );
    }
}

#[test]
fn finding_6_words_from_standard_input() {
    let before = [
        "echo a.txt -exec id ';' | ",
        "echo --files0-from=/etc/passwd | ",
        "ls | ",
        "printf '%s\\n' x | ",
    ];
    let wrapped = [
        "xargs env ",
        "xargs nice ",
        "xargs timeout 5 ",
        "xargs -n1 env ",
        "xargs stdbuf -o0 ",
        "xargs ",
    ];
    let programs = [
        "find",
        "wc",
        "du",
        "cat",
        "grep x",
        "sed -n 1p",
        "sort",
        "git log",
        "rg x",
    ];
    none_allowed(
        "xargs",
        &product(&[&before, &wrapped, &programs]),
        PROVEN,
        &Where::default(),
    );
    let place = Where {
        rules: &[
            "deny bash(git push *)",
            "allow bash(git *)",
            "allow bash(echo *)",
        ],
        ..Where::default()
    };
    let words = [
        "echo push | ",
        "echo push origin | ",
        "ls | ",
        "echo -C . push | ",
        "cat a | ",
    ];
    let ways = [
        "xargs git",
        "xargs env git",
        "xargs timeout 5 git",
        "xargs -n1 git",
        "xargs nice git",
        "xargs git -C .",
        "xargs -0 git",
        "xargs -r git",
        "xargs command git",
        "xargs git --no-pager",
        "xargs sudo git",
    ];
    none_allowed(
        "row 15",
        &product(&[&words, &ways]),
        &["ask", "auto", "full"],
        &place,
    );
    let (decision, reason) = decide("echo push | xargs git", "bash", "full", &place);
    assert_eq!(decision, Effect::Deny);
    assert!(reason.contains("git push *"), "{reason}");
}

#[test]
fn finding_7_operands_before_the_flag() {
    let programs = [
        "grep ",
        "rg ",
        "git grep ",
        "egrep ",
        "fgrep ",
        "grep -n ",
        "rg -i ",
    ];
    let paths = [
        ".env",
        "/etc/passwd",
        "../other",
        "~/.ssh/id_rsa",
        "certs/a.pem",
    ];
    let flags = [" -e x", " -ex"];
    none_allowed(
        "operands first",
        &product(&[&programs, &paths, &flags]),
        PROVEN,
        &Where::default(),
    );
    let more: Vec<String> = product(&[
        &["sed ", "sed -n ", "sed -E ", "sed -s "],
        &paths,
        &[" -e 1p", " --expression=1p", " --expression 1p"],
    ]);
    none_allowed("operands first of sed", &more, PROVEN, &Where::default());
}

#[test]
fn finding_8_a_cd_that_does_not_happen() {
    let moves = [
        "env cd d; ",
        "nice cd d; ",
        "timeout 5 cd d; ",
        "stdbuf -o0 cd d; ",
        "xargs cd d; ",
        "cd d <&9; ",
        "cd d < missing; ",
        "cd -P d/link/.. && ",
        "cd nope; ",
        "cd d || true; ",
        "command cd d; ",
        "builtin cd d; ",
    ];
    let reads = [
        "cat ../x",
        "head ../x",
        "wc -l ../x",
        "ls .. && cat ../x",
        "grep x ../x",
        "cat < ../x",
    ];
    none_allowed("cd", &product(&[&moves, &reads]), PROVEN, &Where::default());
}

/// bash ends a document in a substitution at `E)`, so what seems to be text up to the second one has been commands.
#[test]
fn a_document_in_a_substitution_that_ends_early() {
    let signs = ["<<'E'", "<<\"E\"", "<<\\E", "<< 'E'"];
    let bodies = ["", "a\n", "'\n"];
    let early = ["E)", "E )", "E;)", "E) b", "EE)"];
    let hidden = ["./tool", "cat .env", "rm -f a.txt"];
    let scripts = product(&[&signs, &["\n"], &bodies, &early, &["\"\n"], &hidden])
        .into_iter()
        .map(|begin| format!("echo \"$(cat {begin}\necho \"$(cat <<'E'\na\nE\n)\""))
        .collect::<Vec<_>>();
    none_allowed("documents", &scripts, PROVEN, &Where::default());
}
