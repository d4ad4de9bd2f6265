//! Each class of attack on the gate as a family: many members made from a few parts, none of which gets by.

use std::collections::BTreeMap;

use agent_protocol::payload::permission::Effect;

use crate::gate_support::Case;

#[derive(Clone, Default)]
struct Where<'a> {
    rules: &'a [&'a str],
    files: &'a [&'a str],
    links: &'a [(&'a str, &'a str)],
    dirty: Option<bool>,
}

fn decide(subject: &str, tool: &str, mode: &str, place: &Where<'_>) -> (Effect, String) {
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
fn none_allowed(name: &str, members: &[String], modes: &[&str], place: &Where<'_>) {
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

fn product(parts: &[&[&str]]) -> Vec<String> {
    parts.iter().fold(vec![String::new()], |made, part| {
        made.iter()
            .flat_map(|begun| part.iter().map(move |next| format!("{begun}{next}")))
            .collect()
    })
}

const PROVEN: &[&str] = &["ask", "read-only"];
const READERS: &[&str] = &[
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

#[test]
fn finding_12_classes_in_patterns() {
    let patterns = [
        ".en[[:lower:]]",
        ".en[[=v=]]",
        ".en[[.v.]]",
        ".en[^[:digit:]]",
        ".[e]nv",
        ".e[!a]v",
        "[.]env",
        ".en[a-z]",
        ".en[v]",
    ];
    let place = Where {
        files: &[".env", "a.txt"],
        ..Where::default()
    };
    none_allowed("classes", &product(&[READERS, &patterns]), PROVEN, &place);
    none_allowed(
        "classes in mode auto",
        &product(&[
            &["cat ", "head ", "tail ", "base64 ", "od ", "xxd "],
            &patterns,
        ]),
        &["auto"],
        &place,
    );
}

#[test]
fn finding_22_the_last_mode_wins() {
    let programs = ["xz ", "bzip2 ", "zstd ", "gzip "];
    let flags = [
        "-td",
        "-dt",
        "-t -d",
        "-d -t",
        "-l -d",
        "-ld",
        "-tkd",
        "--test --decompress",
        "--decompress --test",
        "-t --decompress",
        "-tqd",
        "-vtd",
        "-d",
        "-k -t -d",
    ];
    none_allowed(
        "archives",
        &product(&[&programs, &flags, &[" a.gz"]]),
        PROVEN,
        &Where::default(),
    );
    let formats = [
        "%+G?",
        "%-G?",
        "% G?",
        "%GK",
        "%(*signature)",
        "%(signature:key)",
        "x %+GG",
    ];
    let commands = [
        "git log --format='F'",
        "git log --pretty='F'",
        "git for-each-ref --format='F'",
        "git branch --list --format='F'",
        "git tag -l --format='F'",
        "git rev-list HEAD --format='F'",
        "git reflog --format='F'",
        "git stash list --format='F'",
    ];
    let members: Vec<String> = commands
        .iter()
        .flat_map(|command| {
            formats
                .iter()
                .map(move |format| command.replace('F', format))
        })
        .collect();
    none_allowed("signatures", &members, PROVEN, &Where::default());
    for single in [
        "rustc --print=cfg=out",
        "git branch --list --sort=signature",
        "awk 'BEGIN{for(print 1 > \"o\";0;);}'",
        "yq .env",
    ] {
        let place = Where {
            files: &[".env"],
            ..Where::default()
        };
        assert_ne!(
            decide(single, "bash", "ask", &place).0,
            Effect::Allow,
            "{single}"
        );
    }
}

#[test]
fn finding_24_breakers() {
    let trees = [".", "/home/u/shop", "./", "..", "/home/u", "~"];
    let mut members = product(&[
        &[
            "tar --remove-files -cf /dev/null ",
            "tar -cf /dev/null --remove-files ",
            "tar --remove-fil -cf x.tar ",
        ],
        &trees,
    ]);
    members.extend(product(&[
        &["find .. ", "find /home/u ", "find ~ ", "find / "],
        &[
            "-name shop ",
            "-iname shop ",
            "-name 'sh*' ",
            "-name shop -type d ",
            "-name '*op' ",
        ],
        &["-exec rm -rf {} +", "-exec rm -r {} \\;"],
    ]));
    members.extend(
        [
            "python3 -c 'import shutil,os; shutil.rmtree(os.getcwd())'",
            "python3 -c 'import shutil,pathlib; shutil.rmtree(pathlib.Path.cwd())'",
            "node -e 'require(\"fs\").rmSync(process.cwd(),{recursive:true})'",
            "ruby -e 'require \"fileutils\"; FileUtils.rm_rf(Dir.pwd)'",
            "git rm -rf .",
            "git rm -r -f '*'",
            "git -c alias.x=push x --force",
            "git -c alias.y='push --force' y",
            "git update-ref -d HEAD",
            "git update-ref --delete refs/heads/main",
            "while :; do (sleep 100 &) ; done",
            "while true; do { sleep 100 & }; done",
        ]
        .map(str::to_owned),
    );
    let place = Where {
        dirty: Some(false),
        ..Where::default()
    };
    none_allowed("breakers", &members, &["auto", "full"], &place);
}

#[test]
fn finding_27_patterns_that_become_flags() {
    let place = Where {
        files: &["-R", "a.txt", "-x.y"],
        ..Where::default()
    };
    let programs = [
        "grep x ",
        "cat ",
        "head ",
        "tail ",
        "wc -l ",
        "sort ",
        "ls -la ",
        "grep -n x ",
        "cut -c1 ",
        "fold ",
        "rev ",
        "paste ",
        "nl ",
        "od ",
    ];
    let members = product(&[&programs, &["*", "?R", "*R", "*.y"]]);
    none_allowed("patterns", &members, PROVEN, &place);
    for allowed in ["grep x -- *", "cat ./*", "cat a*"] {
        assert_eq!(
            decide(allowed, "bash", "ask", &place).0,
            Effect::Allow,
            "{allowed}"
        );
    }
}

#[test]
fn row_16_an_allow_opens_the_file_and_not_the_name() {
    let place = Where {
        rules: &[
            "allow edit(src/**)",
            "allow write(src/**)",
            "deny edit(docs/**)",
        ],
        links: &[
            ("src/up", "."),
            ("src/out", "/etc"),
            ("src/home", "/home/u"),
            ("into", "docs"),
            ("src/docs", "docs"),
        ],
        ..Where::default()
    };
    let links = [
        "src/up/",
        "src/out/",
        "src/home/",
        "src/docs/",
        "into/",
        "src/up/src/up/",
    ];
    let names = [
        "README.md",
        "a.rs",
        "x/y",
        "hosts",
        "Makefile",
        "b.txt",
        "c",
        "d/e/f",
        "notes.md",
    ];
    let mut count = 0;
    for path in product(&[&links, &names]) {
        for tool in ["edit", "write"] {
            count += 1;
            let (decision, reason) = decide(&path, tool, "ask", &place);
            assert_ne!(decision, Effect::Allow, "{tool} {path}: {reason}");
        }
    }
    assert!(count >= 50);
    assert_eq!(decide("src/a.rs", "edit", "ask", &place).0, Effect::Allow);
    assert_eq!(
        decide("into/a.md", "edit", "accept-edits", &place).0,
        Effect::Deny
    );
}

#[test]
fn row_17_a_tilde_is_the_home_directory() {
    let place = Where {
        rules: &["deny read(~/.aws/**)", "allow read(~/notes/**)"],
        ..Where::default()
    };
    for (subject, mode, expected) in [
        ("~/.aws/config", "full", Effect::Deny),
        ("~/.aws/config", "ask", Effect::Deny),
        ("~/notes/a.md", "ask", Effect::Allow),
        ("~/other/a.md", "ask", Effect::Ask),
        ("~/other/a.md", "full", Effect::Allow),
        ("/etc/hostname", "full", Effect::Allow),
    ] {
        assert_eq!(
            decide(subject, "read", mode, &place).0,
            expected,
            "{subject} {mode}"
        );
    }
    let (_, reason) = decide("/etc/hostname", "read", "full", &Where::default());
    assert_eq!(reason, "mode full also reads outside the project");
}

#[test]
fn row_18_words_signs_and_messages() {
    let case = |subject: &str, cwd: &str| {
        let (decision, reason) = decide(
            &format!("cd {cwd} && {subject}"),
            "bash",
            "auto",
            &Where::default(),
        );
        (decision, reason)
    };
    for word in [
        "lint",
        "typecheck",
        "vitest",
        "pull",
        "test src/a.ts",
        "run build:all",
    ] {
        let (decision, reason) = case(&format!("yarn {word}"), ".claude/worktrees/x");
        assert_eq!(decision, Effect::Allow, "yarn {word}: {reason}");
    }
    for subject in [
        "rm lint",
        "mv a lint",
        "touch lint",
        "yarn .git/hooks",
        "node ../settings.json",
    ] {
        let (decision, _) = case(subject, ".claude/worktrees/x");
        assert_ne!(decision, Effect::Allow, "{subject}");
    }
    for text in [
        "⚠\u{fe0f} x",
        "👩\u{200d}💻 ok",
        "10\u{202f}000",
        "a\u{a0}b",
        "1\u{fe0f}\u{20e3}",
    ] {
        for quote in ['\'', '"'] {
            let script = format!("echo {quote}{text}{quote}");
            let (decision, reason) = decide(&script, "bash", "ask", &Where::default());
            assert_eq!(decision, Effect::Allow, "{script}: {reason}");
        }
    }
    for script in [
        "cat a\u{a0}b",
        "ls\u{202f}-la",
        "echo 'a\u{200b}b'",
        "echo a\u{200d}b",
        "echo 'a\u{fe0f}'",
        "echo '\u{202e}x'",
    ] {
        let (decision, _) = decide(script, "bash", "full", &Where::default());
        assert_ne!(decision, Effect::Allow, "{script:?}");
    }
    for script in [
        "cat \"$X/.env\"",
        "rm -rf \"$X\"",
        "echo x > \"$D/.git/config\"",
        "cp a \"$D/.github/workflows/x\"",
        "git push $X",
    ] {
        for mode in ["ask", "auto", "full"] {
            let place = Where {
                rules: &["deny bash(git push --force *)"],
                ..Where::default()
            };
            let (_, reason) = decide(script, "bash", mode, &place);
            assert!(!reason.contains('\u{fffc}'), "{script}: {reason}");
        }
    }
}
