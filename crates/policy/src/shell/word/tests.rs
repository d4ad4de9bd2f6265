use super::*;

fn check(source: &str, expected: Value) {
    let surroundings = Surroundings {
        home: "/home/u".into(),
        variables: HashMap::from([("HOME".into(), "/home/u".into())]),
    };
    assert_eq!(scan(source, &surroundings).word.value, expected, "{source}");
}

fn literal(text: &str, plain: bool) -> Value {
    Value::Literal {
        text: text.into(),
        plain,
    }
}

#[test]
fn quoting_is_removed_as_bash_does() {
    check("ls", literal("ls", true));
    check("l''s", literal("ls", false));
    check("fin\\d", literal("find", false));
    check("'a b'\"c\"", literal("a bc", false));
    check("\"\\.rs$\"", literal("\\.rs$", false));
    check("\"a\\$b\"", literal("a$b", false));
    check("'$(x)'", literal("$(x)", false));
    check("\\(", literal("(", false));
    check("{}", literal("{}", true));
    check("HEAD@{1}", literal("HEAD@{1}", true));
    check("stash@{0}", literal("stash@{0}", true));
    check("~/x", literal("/home/u/x", false));
    check("'*.rs'", literal("*.rs", false));
    check("$'a\\tb'", literal("a\tb", false));
    check("x$", literal("x$", true));
}

#[test]
fn what_the_shell_decides_is_not_literal() {
    let dynamic = |why, sketch: &str| Value::Dynamic {
        why,
        sketch: sketch.into(),
    };
    check("$X/a", dynamic(Dynamic::Parameter, "\u{FFFC}/a"));
    check("\"$HOME\"", dynamic(Dynamic::Parameter, "/home/u"));
    check("${x:-$(y)}", dynamic(Dynamic::Parameter, "\u{FFFC}"));
    check(
        "\"a $(b)\"",
        dynamic(Dynamic::CommandSubstitution, "a \u{FFFC}"),
    );
    check("`b`", dynamic(Dynamic::CommandSubstitution, "\u{FFFC}"));
    check("$[1+1]", dynamic(Dynamic::Arithmetic, "\u{FFFC}"));
    check("'open", dynamic(Dynamic::Unfinished, "open"));
    check("\"=$?\"", dynamic(Dynamic::ExitCode, "=\u{FFFC}"));
    check("$X$?", dynamic(Dynamic::Parameter, "\u{FFFC}\u{FFFC}"));
    check("$?$X", dynamic(Dynamic::Parameter, "\u{FFFC}\u{FFFC}"));
    check("~root/x", dynamic(Dynamic::OtherHome, "\u{FFFC}root/x"));
    check(
        "src/*.rs",
        Value::Glob {
            pattern: "src/*.rs".into(),
        },
    );
    check(
        "/bin/l?",
        Value::Glob {
            pattern: "/bin/l?".into(),
        },
    );
    check(
        "'*'*",
        Value::Glob {
            pattern: "\\**".into(),
        },
    );
}

#[test]
fn nested_scripts_are_found_wherever_they_hide() {
    let surroundings = Surroundings::default();
    for (source, expected) in [
        ("\"a $(b \")\" c)\"", vec!["b \")\" c"]),
        ("${x:-$(y)}", vec!["y"]),
        ("$(( $(z) + 1 ))", vec!["z", "( $(z) + 1 )"]),
        ("`a \\`b\\``", vec!["a `b`"]),
        ("'$(no)'", vec![]),
    ] {
        assert_eq!(scan(source, &surroundings).nested, expected, "{source}");
    }
}

#[test]
fn simple_braces_become_words() {
    assert_eq!(
        expand_braces("{rm,-rf,/}"),
        Some(vec!["rm".into(), "-rf".into(), "/".into()])
    );
    assert_eq!(expand_braces("{}"), None);
}
