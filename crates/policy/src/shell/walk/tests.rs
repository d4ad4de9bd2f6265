use std::path::PathBuf;

use super::*;

fn analysed(script: &str) -> Analysis {
    analyse(
        script,
        &Start {
            directory: "/w".into(),
            home: "/home/u".into(),
            is_directory: &|path| Some(path.starts_with("/w")),
        },
    )
}

fn check(script: &str, expected: &[&str]) {
    let found: Vec<String> = analysed(script)
        .commands
        .iter()
        .filter(|command| !command.words.is_empty())
        .map(|command| {
            let words: Vec<&str> = command.words.iter().map(Word::sketch).collect();
            words.join(" ")
        })
        .collect();
    assert_eq!(found, expected, "{script}");
}

#[test]
fn every_command_is_found() {
    check("ls -la && pwd | wc -l", &["ls -la", "pwd", "wc -l"]);
    check("echo \"a $(b)\"", &["b", "echo a \u{FFFC}"]);
    check("ls ${DIR:-$(node x.js)}", &["node x.js", "ls \u{FFFC}"]);
    check("if a; then b; else c; fi", &["a", "b", "c"]);
    check("f() { t apply; }; f", &["t apply", "f"]);
    check("(a; { b; })", &["a", "b"]);
    check("cat <<E\n$(x)\nE\n", &["x", "cat"]);
    check("bash <<'E'\nx y\nE\n", &["bash", "x y"]);
    check("echo 't apply' | sh", &["echo t apply", "sh", "t apply"]);
    check("cat <(a) >(b)", &["a", "b", "cat \u{FFFC} \u{FFFC}"]);
    check(
        "sudo env A=1 t apply",
        &["sudo env A=1 t apply", "env A=1 t apply", "t apply"],
    );
    check("bash -c 'a; b'", &["bash -c a; b", "a", "b"]);
    check("T=t; $T apply", &["t apply"]);
    check("{rm,-rf,/}", &["rm -rf /"]);
    check("[[ $(a) -eq 1 ]]", &["a"]);
    check("(( $(a) ))", &["a"]);
    check("x=$(a)", &["a"]);
    check("for f in $(a); do b $f; done", &["a", "b \u{FFFC}"]);
    check("case $(a) in x) b;; esac", &["a", "b"]);
    check("cat <<'E' 2>&1 | t apply\nfoo\nE\n", &["cat", "t apply"]);
    check("echo 'open; t apply", &["echo open", "t apply"]);
    check("X='t apply'; $X -y", &["t apply -y"]);
    check("for f in a.pem; do b $f; done", &["b a.pem"]);
    check("cat <<'E' | sh\nt apply\nE\n", &["cat", "sh", "t apply"]);
    check("rm ~/{*,.*}", &["rm /home/u/* /home/u/.*"]);
    check(
        "rm ${HOME:?}/ ${HOME%/} $(pwd)",
        &["pwd", "rm /home/u/ /home/u /w"],
    );
}

#[test]
fn directories_are_followed() {
    for (script, expected) in [
        ("cd a && ls", vec!["/w/a"]),
        ("cd a; cd b; ls", vec!["/w/a/b"]),
        ("cd .. && ls", vec!["/"]),
        ("cd /x; ls", vec!["/x", "/w"]),
        ("cd ~ && ls", vec!["/home/u"]),
        ("(cd a); ls", vec!["/w"]),
        ("cd a | ls", vec!["/w"]),
    ] {
        let analysis = analysed(script);
        let last = analysis.commands.last().unwrap();
        let expected = Directories::Known(expected.into_iter().map(PathBuf::from).collect());
        assert_eq!(last.directories, expected, "{script}");
    }
    assert_eq!(
        analysed("cd $X && ls").commands.last().unwrap().directories,
        Directories::Unknown
    );
}

#[test]
fn a_plain_script_is_in_the_small_language() {
    for script in [
        "ls -la",
        "ls 2>&1 | wc",
        "a\nb # c",
        "cat < x",
        "jq . <<< '{}'",
    ] {
        assert!(analysed(script).small.is_ok(), "{script}");
    }
    for script in [
        "ls &",
        "{ ls; }",
        "echo $((x))",
        "f() { ls; }",
        "cat <<-E\nE\n",
        "",
        "# x",
    ] {
        assert!(analysed(script).small.is_err(), "{script}");
    }
}
