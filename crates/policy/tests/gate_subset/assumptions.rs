//! What a proof took for granted: the environment that keeps readers from more, where the names come from that become
//! words, and programs that are what they are called.

use agent_protocol::payload::permission::Effect;

use crate::families::{PROVEN, Where, decide, none_allowed, product};

/// Git is kept from the programs of a repository by its environment.
#[test]
fn a_wrapper_that_takes_the_environment_away() {
    let wrappers = [
        "env -i ",
        "env - ",
        "env -u GIT_CONFIG_COUNT ",
        "env -uGIT_CONFIG_COUNT ",
        "env --unset=GIT_CONFIG_COUNT ",
        "env --unset GIT_CONFIG_COUNT ",
        "env --ignore-environment ",
        "nice env -i ",
        "env env -i ",
        "env -0i ",
        "timeout 5 env -iu X ",
        "env LC_ALL=C -i ",
    ];
    let reads = ["git status", "git diff", "git log -p", "git show", "ls"];
    none_allowed(
        "environment",
        &product(&[&wrappers, &reads]),
        PROVEN,
        &Where::default(),
    );
    for allowed in ["env git status", "env LC_ALL=C git log", "env -- ls"] {
        let (decision, reason) = decide(allowed, "bash", "ask", &Where::default());
        assert_eq!(decision, Effect::Allow, "{allowed}: {reason}");
    }
}

const TAKERS: &[&str] = &[
    "xargs cat",
    "xargs wc -l",
    "xargs -n1 head -5",
    "xargs grep x",
];

/// Names become words only where they come from the search and from nothing else.
#[test]
fn words_that_another_file_brings() {
    let place = Where {
        files: &["list.txt", "src/a.rs"],
        ..Where::default()
    };
    let filters = [
        "find src | head -5 list.txt | ",
        "find src | head -n 5 list.txt | ",
        "find src | tail -n 3 list.txt | ",
        "find src | tail list.txt | ",
        "find src | head list.txt | ",
        "find src | sort < list.txt | ",
        "find src | uniq < list.txt | ",
        "find src | grep -v x < list.txt | ",
        "find src | sort <<< list | ",
        "find src | sort list.txt | ",
        "find src | grep -v x list.txt | ",
        "find src 2>&1 | ",
        "find src | head -c 5 | ",
        "find src | head -n list.txt | ",
        "find src | tail -n list.txt | ",
    ];
    none_allowed("filters", &product(&[&filters, TAKERS]), PROVEN, &place);
    let takers = [
        "find src | TAKER < list.txt",
        "find src | (TAKER) < list.txt",
        "find src | while true; do TAKER; done < list.txt",
        "find src | for x in 1; do TAKER; done < list.txt",
        "find src | if true; then TAKER; fi < list.txt",
        "find src | TAKER <<< /etc/passwd",
        "find src | TAKER <<'E'\n/etc/passwd\nE",
        "find src | (TAKER <<< list)",
        "find src | env TAKER < list.txt",
        "find src | (TAKER < list.txt)",
        "find src | nice TAKER < list.txt",
        "find src | (true; TAKER < list.txt)",
        "find src | (cat list.txt | TAKER)",
    ];
    let members: Vec<String> = takers
        .iter()
        .flat_map(|script| {
            TAKERS
                .iter()
                .map(move |taker| script.replace("TAKER", taker))
        })
        .collect();
    none_allowed("takers", &members, PROVEN, &place);
}

/// A lister that prints something else than names, or parts of them.
#[test]
fn words_that_are_no_names() {
    let place = Where {
        files: &["list.txt", "src/a.rs"],
        ..Where::default()
    };
    let listers = [
        "git ls-files --format=/etc/passwd | ",
        "git ls-files -t | ",
        "git ls-files -s | ",
        "git ls-files --eol | ",
        "git ls-files .. | ",
        "git ls-files --full-name | ",
        "git grep -h -el | ",
        "git grep -el | ",
        "git grep -l x HEAD | ",
        "git grep -lc x | ",
        "git grep -l --heading x | ",
        "grep -rh -el src | ",
        "grep -rel src | ",
        "grep -lr --label=/etc/passwd x - src | ",
        "grep -rlc x src | ",
        "grep -rl x ../shop | ",
        "rg -el src | ",
        "rg --json -l x src | ",
        "rg -l --stats x src | ",
        "rg -l --path-separator=- x src | ",
        "rg --files --debug src | ",
        "rg -l --passthru x src | ",
        "find src -printf '/etc/passwd\\n' | ",
        "find src -ls | ",
    ];
    none_allowed("listers", &product(&[&listers, TAKERS]), PROVEN, &place);
    let splits = [
        "xargs -d . ",
        "xargs -d a ",
        "xargs -da ",
        "xargs --delimiter=. ",
        "xargs --delimiter . ",
        "xargs -rd . ",
        "xargs -n1 -d / ",
    ];
    let programs = ["cat", "wc -l", "head -5", "grep x"];
    let searches = ["find src | ", "git ls-files | "];
    none_allowed(
        "delimiters",
        &product(&[&searches, &splits, &programs]),
        PROVEN,
        &place,
    );
    for allowed in [
        "find src -type f | xargs -d '\\n' cat",
        "find src -print0 | xargs -0 wc -l",
        "find src 2>/dev/null | head -n 5 | xargs cat",
        "find src | tail -n +2 | xargs cat",
        "grep -rl x src | sort -u | xargs wc -l",
        "rg -l x src | xargs cat",
        "rg --files | xargs wc -l",
        "git ls-files src | grep -v x | xargs wc -l",
        "git grep -l x | xargs cat",
        "grep -rl --include='*.rs' x . | head -3 | xargs cat",
    ] {
        let (decision, reason) = decide(allowed, "bash", "ask", &place);
        assert_eq!(decision, Effect::Allow, "{allowed}: {reason}");
    }
}

/// The name stands last: before another word it is read for what that word seemed to be.
#[test]
fn names_in_the_middle() {
    let programs = [
        "head -n {} list.txt",
        "head -c {} list.txt",
        "tail -n {} list.txt",
        "grep {} list.txt",
        "grep -m {} x list.txt",
        "cut -f {} list.txt",
        "cat {} list.txt",
        "wc {} -l",
        "grep -e {} list.txt",
    ];
    let starts = [
        "find 5 -maxdepth 0 -exec ",
        "find src -exec ",
        "find src -type f -exec ",
        "find . -name 5 -exec ",
        "find src docs -exec ",
        "find -exec ",
    ];
    none_allowed(
        "middle",
        &product(&[&starts, &programs, &[" ';'"]]),
        PROVEN,
        &Where::default(),
    );
    // Where it starts counts behind flags too.
    let place = Where {
        files: &["docs/a b", "src/a.rs"],
        ..Where::default()
    };
    for level in ["-O1", "-O2", "-O3"] {
        let script = format!("cd src && find {level} ../docs | xargs cat");
        assert_ne!(
            decide(&script, "bash", "ask", &place).0,
            Effect::Allow,
            "{script}"
        );
    }
}

/// Programs that load code of the project before they say anything.
#[test]
fn programs_that_load_the_project() {
    let programs = [
        "pytest", "tox", "flake8", "pylint", "poetry", "composer", "bundle", "jest", "yarn",
        "dotnet",
    ];
    let flags = [
        " --version",
        " -V",
        " -v",
        " --version 2>&1",
        " --help",
        " --version | head -1",
    ];
    none_allowed(
        "versions",
        &product(&[&programs, &flags]),
        PROVEN,
        &Where::default(),
    );
}

/// In such a locale the shell takes other bytes for quotes, and a time zone may be any file.
#[test]
fn variables_that_change_what_is_read() {
    let values = [
        "LC_ALL=zh_TW.BIG5",
        "LC_CTYPE=ja_JP.SJIS",
        "LANG=zh_CN.GBK",
        "LC_ALL=zh_CN",
        "LC_ALL=de_DE.ISO-8859-1",
        "LC_X=../../x",
        "TZ=/etc/passwd",
        "TZ=:/etc/passwd",
        "TZ=../../../etc/passwd",
    ];
    let starts: Vec<String> = values
        .iter()
        .flat_map(|value| {
            [
                format!("{value} "),
                format!("export {value}; "),
                format!("env {value} "),
            ]
        })
        .collect();
    let starts: Vec<&str> = starts.iter().map(String::as_str).collect();
    none_allowed(
        "variables",
        &product(&[&starts, &["ls", "date", "echo x"]]),
        PROVEN,
        &Where::default(),
    );
    for allowed in [
        "LC_ALL=C ls",
        "LANG=en_US.UTF-8 date",
        "TZ=Europe/Berlin date",
        "export LC_ALL=C.utf8; ls",
    ] {
        let (decision, reason) = decide(allowed, "bash", "ask", &Where::default());
        assert_eq!(decision, Effect::Allow, "{allowed}: {reason}");
    }
}

/// Programs that start another one, which a deny rule names.
#[test]
fn a_deny_behind_programs_that_start_others() {
    let starts = [
        "setarch x86_64 ",
        "linux64 ",
        "prlimit --core=0 ",
        "choom -n 0 -- ",
        "perf stat ",
        "valgrind ",
        "ssh-agent ",
        "/lib64/ld-linux-x86-64.so.2 ",
        "dbus-run-session -- ",
        "xvfb-run -a ",
        "watchexec ",
        "asdf exec ",
        "pyenv exec ",
        "pipx run ",
        "cmake -E ",
        "runcon x ",
        "cpulimit -l 5 -- ",
        "firejail ",
        "bwrap --bind / / ",
        "torsocks ",
        "proxychains ",
        "start-stop-daemon --start --exec ",
        "ls | entr ",
        "mise x -- ",
        "pkexec ",
        "runuser -u x -- ",
        "env setarch x86_64 ",
    ];
    let quoted = [
        "hyperfine 'rm -f v'",
        "sg root -c 'rm -f v'",
        "sg root 'rm -f v'",
        "capsh -- -c 'rm -f v'",
        "script -qc 'rm -f v' x",
        "sort --compress-program='rm -f v' a",
        "man -P 'rm -f v' ls",
        "rsync -e 'rm -f v' a b",
        "man --pager='rm -f v' ls",
    ];
    let mut members = product(&[&starts, &["rm -f v", "/bin/rm v"]]);
    members.extend(quoted.map(str::to_owned));
    let place = Where {
        rules: &["deny bash(rm *)"],
        ..Where::default()
    };
    none_allowed("starters", &members, &["auto", "full"], &place);
    for script in [
        "cmake --build .",
        "docker rm x",
        "perf list",
        "mise install",
    ] {
        let (decision, reason) = decide(script, "bash", "full", &place);
        assert_eq!(decision, Effect::Allow, "{script}: {reason}");
    }
}

/// Code for an interpreter is as opaque as a shell script; a program is run.
#[test]
fn code_under_a_deny_rule() {
    let denies = Where {
        rules: &["deny bash(git push *)"],
        ..Where::default()
    };
    for script in [
        "python3 x.py",
        "python3 -c 'import os; os.unlink(\"v\")'",
        "cat x.py | python3",
        "python3 < x.py",
        "node x.js",
        "node --eval='x()'",
        "perl -pe s/a/b/ a",
        "ruby x.rb",
        "awk -f x.awk a",
        "awk 'BEGIN{c=\"r\" \"m v\"; system(c)}'",
        "sed -f x.sed a",
        "make -f other.mk",
        "make --eval='x:;rm v'",
        "tclsh x.tcl",
        "deno run x.ts",
        "BASH_ENV=x bash -c :",
        "hash -p ./x ls; ls",
        "sudo -u x python3 x.py",
    ] {
        let (decision, reason) = decide(script, "bash", "full", &denies);
        assert_eq!(decision, Effect::Deny, "{script}: {reason}");
        assert!(reason.contains("`bash(git push *)`"), "{script}: {reason}");
        assert_ne!(
            decide(script, "bash", "auto", &denies).0,
            Effect::Allow,
            "{script}"
        );
        let none = decide(script, "bash", "full", &Where::default());
        assert_eq!(none.0, Effect::Allow, "{script}: {}", none.1);
    }
    for script in [
        "make check",
        "cargo test",
        "npm test",
        "./x.sh",
        "python3 -m pytest -q",
        "go test ./...",
        "sed -i s/a/b/ a.txt",
        "bun install",
    ] {
        let (decision, reason) = decide(script, "bash", "full", &denies);
        assert_eq!(decision, Effect::Allow, "{script}: {reason}");
    }
}

/// Signs that mean something else to bash than they would as plain ones.
#[test]
fn what_bash_reads_otherwise() {
    for script in [
        "echo \"$!\"",
        "echo \"$$\"",
        "echo \"$1\"",
        "cat \"$@\"",
        "echo \"$*\"",
        "echo \"$-\"",
        "echo \"$#\"",
        "echo \"$[1]\"",
        "echo \"a$'b'\"",
        "cat a.txt >&1b",
        "cat a.txt 2>&1b",
        "cat a.txt 3>/dev/null",
        "cat a.txt 5>&1",
        "cat a=~/x",
        "ls x:~",
        "x='a.txt .env'; cat $x",
        "x='a*'; cat $x",
        "x='-n 5'; head $x a.txt",
        "command -v -p ls",
        "find src -exec cat {} {} ';'",
        "( ( ( ( ( ( ( ( ( ls ) ) ) ) ) ) ) ) )",
        "cat <<A | (\nx\nA\ncat)",
    ] {
        let (decision, reason) = decide(script, "bash", "ask", &Where::default());
        assert_ne!(decision, Effect::Allow, "{script}: {reason}");
    }
    let clobber = decide(
        "cat a.txt >| b.txt",
        "bash",
        "accept-edits",
        &Where::default(),
    );
    assert_ne!(clobber.0, Effect::Allow, "{}", clobber.1);
    let place = Where {
        rules: &["allow bash(make)"],
        files: &[".env", "a.txt"],
        ..Where::default()
    };
    for flag in ["-r", "-d rec", "-drecurse", "--directories=recu"] {
        let script = format!("make && grep {flag} x .");
        assert_ne!(
            decide(&script, "bash", "ask", &place).0,
            Effect::Allow,
            "{script}"
        );
    }
}
