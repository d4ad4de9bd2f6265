//! Patterns, tables, breakers, links, `~` and messages: the rest of the families.

use agent_protocol::payload::permission::Effect;

use crate::families::{PROVEN, READERS, Where, decide, none_allowed, product};

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
    assert_eq!(reason, "mode full allows reading outside the project");
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

/// A deny rule needs no proof: what hides its commands is asked about, and refused in mode `full` by the name of the rule.
#[test]
fn opaque_commands_are_refused_in_mode_full_under_a_deny_rule() {
    let denies = Where {
        rules: &["ask bash(make *)", "deny bash(git push *)"],
        ..Where::default()
    };
    let asks = Where {
        rules: &["ask bash(make *)"],
        ..Where::default()
    };
    for script in [
        "sh run.sh",
        "bash ./run.sh a",
        "eval \"$X\"",
        ". ./env.sh",
        "source env.sh",
        "cat a | sh",
        "bash -c \"$X\"",
        "$X a",
    ] {
        let (decision, reason) = decide(script, "bash", "full", &denies);
        assert_eq!(decision, Effect::Deny, "{script}: {reason}");
        assert!(reason.contains("`bash(git push *)`"), "{script}: {reason}");
        for mode in ["ask", "auto"] {
            let (decision, reason) = decide(script, "bash", mode, &denies);
            assert_eq!(decision, Effect::Ask, "{mode}, {script}: {reason}");
        }
        let (decision, reason) = decide(script, "bash", "full", &asks);
        assert_eq!(decision, Effect::Ask, "{script}: {reason}");
    }
}
