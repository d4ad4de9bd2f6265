use std::path::Path;

use super::{commands, read};
use crate::shell::analysis::{Directories, Start};
use crate::shell::word::Word;

fn start(run: impl FnOnce(&Start<'_>)) {
    run(&Start {
        directory: "/w".into(),
        home: "/home/u".into(),
        is_directory: &|_| None,
    });
}

/// Each command as `words @ directories`.
fn shown(script: &str) -> Result<Vec<String>, String> {
    let mut result = Err(String::new());
    start(|start| {
        result = read(script)
            .map_err(|outside| outside.to_string())
            .and_then(|reading| commands(&reading, start))
            .map(|commands| {
                commands
                    .iter()
                    .map(|command| {
                        let words: Vec<&str> = command.words.iter().map(Word::sketch).collect();
                        let place = match &command.directories {
                            Directories::Known(known) => known
                                .iter()
                                .map(|path| path.strip_prefix("/w").unwrap_or(path))
                                .map(Path::to_string_lossy)
                                .collect::<Vec<_>>()
                                .join(","),
                            Directories::Unknown => "?".to_owned(),
                        };
                        format!("{}@{place}", words.join("|"))
                    })
                    .collect()
            });
    });
    result
}

fn check(script: &str, expected: &[&str]) {
    assert_eq!(
        shown(script).as_deref(),
        Ok(&expected.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..]),
        "{script}"
    );
}

#[test]
fn words_are_what_bash_makes_of_them() {
    check(
        "echo 'a b'\"c\\$d\\.\"\\ e \"x$\" y$",
        &["echo|a bc$d\\. e|x$|y$@"],
    );
    check(
        "cat ~/a HEAD~1 @{u} {} a=b",
        &["cat|/home/u/a|HEAD~1|@{u}|{}|a=b@"],
    );
    check("cat *.rs 'a*' b?", &["cat|*.rs|a*|b?@"]);
    check(
        "cat <<'E' | wc -l # c\na $b\nE\nls",
        &["cat@", "wc|-l@", "ls@"],
    );
    check(
        "git commit -m \"$(cat <<'E'\none\n\ntwo 'x'\nE\n)\"",
        &["git|commit|-m|one\n\ntwo 'x'@"],
    );
    check("echo \"$(ls src)\"", &["ls|src@", "echo|\u{fffc}@"]);
    check("x=a.rs; cat $x \"$x\"", &["cat|a.rs|a.rs@"]);
    check("x='a b'; cat \"$x\"", &["cat|a b@"]);
}

#[test]
fn a_cd_counts_where_it_is_certain() {
    check("cd src && ls; pwd", &["cd|src@", "ls@src", "pwd@src,"]);
    check("cd src || ls", &["cd|src@", "ls@"]);
    check("(cd src && ls); pwd", &["cd|src@", "ls@src", "pwd@"]);
    check("cd src | ls; pwd", &["cd|src@", "ls@", "pwd@"]);
    check("env cd src; ls", &["env|cd|src@", "cd|src@", "ls@"]);
    check("if cd a; then ls; else pwd; fi", &["cd|a@", "ls@a", "pwd@"]);
    for script in [
        "cd src < x; ls",
        "cd -P src && ls",
        "cd a/../b && ls",
        "cd",
        "for x in a; do cd d; done",
        "c\\d src; ls",
        "'cd' src; ls",
        "$x src; ls",
        "command cd src; ls",
        "builtin cd src; ls",
    ] {
        assert!(shown(script).is_err(), "{script}");
    }
}

#[test]
fn loops_are_followed_for_each_word() {
    check("for f in a b; do cat \"$f\"; done", &["cat|a@", "cat|b@"]);
    check("for f in *.rs; do wc \"$f\"; done", &["wc|\u{fffc}@"]);
    check(
        "ls | while read -r f; do echo \"$f\"; done",
        &["ls@", "echo|\u{fffc}@"],
    );
    check("for f in a; do f=b; cat \"$f\"; done", &["cat|\u{fffc}@"]);
    check("x=a; false && x=b; cat $x", &["false@", "cat|\u{fffc}@"]);
}

#[test]
fn what_is_not_in_the_language_is_named() {
    for (script, construct) in [
        ("cat {x},/etc/passwd}", "an unquoted `{`"),
        ("cat {'}',.env}", "an unquoted `{`"),
        ("cat a{b,c}", "an unquoted `{`"),
        ("cat $'\\456env'", "`$'…'`"),
        ("cat <&-/etc/passwd", "an unsupported redirection"),
        ("ls\\\n-la", "a backslash at the end of a line"),
        ("ls \\\n  -la", "a backslash at the end of a line"),
        ("cat .en[[:lower:]]", "a pattern or subscript in brackets"),
        ("echo `ls`", "backticks"),
        ("echo $((1))", "arithmetic"),
        ("((x))", "arithmetic"),
        ("a[0]=1", "an assignment with a subscript or `+=`"),
        ("ls &", "a background command"),
        ("[[ -f x ]]", "a reserved word of the shell"),
        ("echo ${x:-y}", "an expansion with an operator"),
        ("cat <(ls)", "an unsupported redirection"),
        ("cat <2<a", "a named file descriptor"),
        ("cat >{v}>a", "a named file descriptor"),
        ("f() { ls; }", "a parenthesis after a word"),
        ("ls;; ls", "`;;` or `;&`"),
        ("ls;&>/dev/null ls", "`;;` or `;&`"),
        (
            "echo \"$(cat <<'E'\na\nE)\"\n./x\necho \"$(cat <<'E'\na\nE\n)\"",
            "a here-document whose end is unclear",
        ),
    ] {
        assert_eq!(
            read(script).map_err(|outside| outside.construct).err(),
            Some(construct),
            "{script}"
        );
    }
}
