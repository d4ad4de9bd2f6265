use serde_json::json;

use super::*;

const fn field(theirs: &'static str, ours: Ours) -> Field {
    Field { theirs, ours }
}

const ITEM: &[Field] = &[
    field("content", Ours::Named("text")),
    field("status", Ours::Word("state", &[("completed", "done")])),
    field("id", Ours::Nothing),
];

const SPELLINGS: Spellings = Spellings {
    tools: &[
        Spelling {
            tool: "view",
            names: &["editor"],
            when: Some(("command", "view")),
            fields: &[field("range", Ours::Lines("offset", "limit"))],
            implied: &[],
            filled: &[],
        },
        Spelling {
            tool: "run",
            names: &["Shell"],
            when: None,
            fields: &[
                field("command", Ours::Script("command")),
                field("cmd", Ours::Script("command")),
                field("workdir", Ours::Named("cwd")),
                field("login", Ours::Nothing),
                field("only", Ours::NothingIf("1")),
            ],
            implied: &[("kind", "theirs")],
            filled: &[("why", "")],
        },
        Spelling {
            tool: "find",
            names: &["Grep"],
            when: None,
            fields: &[
                field("output_mode", Ours::Word("mode", &[("content", "lines")])),
                field(
                    "-i",
                    Ours::Word("case", &[("true", "insensitive"), ("false", "")]),
                ),
                field("-A", Ours::Largest("context", 20)),
                field("-B", Ours::Largest("context", 20)),
                field("head_limit", Ours::Bound("limit")),
            ],
            implied: &[],
            filled: &[],
        },
        Spelling {
            tool: "list",
            names: &["Todos"],
            when: None,
            fields: &[
                field("items", Ours::Items("items", ITEM)),
                field("todos", Ours::Items("items", ITEM)),
            ],
            implied: &[],
            filled: &[],
        },
    ],
    missing: &[Missing {
        names: &["Todo"],
        instead: "keep the list in your answer",
    }],
    plain: Some(Plain {
        tool: "patch",
        field: "input",
        cwd_field: "cwd",
        programs: &["patch", "patch_it"],
        begin: "BEGIN",
        end: "END",
    }),
};

#[track_caller]
fn check(name: &str, own: Option<&str>, input: &Value, expected: Option<(&str, Value)>) {
    let found = SPELLINGS.understand(name, own, input);
    let found = found.map(|found| (found.tool, found.input));
    assert_eq!(found, expected, "{name} {input}");
}

#[test]
fn fields_become_ours() {
    let run = |mut input: Value| {
        input["kind"] = "theirs".into();
        input["why"] = "".into();
        Some(("run", input))
    };
    check(
        "shell",
        None,
        &json!({"cmd": "ls"}),
        run(json!({"command": "ls"})),
    );
    check(
        "SHELL",
        None,
        &json!({"command": ["bash", "-lc", "a | b"], "workdir": "w", "login": true, "only": 1}),
        run(json!({"command": "a | b", "cwd": "w"})),
    );
    check(
        "shell",
        None,
        &json!({"command": ["git", "commit", "-m", "it's"], "only": 2}),
        run(json!({"command": r"git commit -m 'it'\''s'", "only": 2})),
    );
    // Under our own name nothing is implied.
    check(
        "run",
        Some("run"),
        &json!({"cmd": "ls"}),
        Some(("run", json!({"command": "ls", "why": ""}))),
    );
    // What is said twice and differs stays for the schema to refuse.
    let twice = json!({"cmd": "a", "command": "b"});
    check(
        "run",
        Some("run"),
        &twice,
        Some(("run", json!({"cmd": "a", "command": "b", "why": ""}))),
    );
    check(
        "Grep",
        None,
        &json!({"output_mode": "content", "-i": false, "-A": 3, "-B": 90, "head_limit": 0}),
        Some(("find", json!({"mode": "lines", "context": 20}))),
    );
    check(
        "Grep",
        None,
        &json!({"output_mode": "odd", "-i": true, "head_limit": 7, "glob": null}),
        Some((
            "find",
            json!({"mode": "odd", "case": "insensitive", "limit": 7, "glob": null}),
        )),
    );
    let view = |range: Value| json!({"command": "view", "range": range});
    let lines = |input: Value| Some(("view", input));
    check(
        "editor",
        None,
        &view(json!([3, 5])),
        lines(json!({"offset": 3, "limit": 3})),
    );
    check(
        "editor",
        None,
        &view(json!([3, -1])),
        lines(json!({"offset": 3})),
    );
    let theirs = json!([{"content": "a", "status": "completed", "id": 1}, {"odd": 1}, "b"]);
    let ours = Some((
        "list",
        json!({"items": [{"text": "a", "state": "done"}, {"odd": 1}, "b"]}),
    ));
    check("todos", None, &json!({"todos": theirs}), ours.clone());
    check("list", Some("list"), &json!({"items": theirs}), ours);
    check("editor", None, &json!({"command": "undo"}), None);
    check("other", None, &json!({}), None);
}

#[test]
fn a_shell_that_only_hands_on_a_text_is_the_tool_that_takes_it() {
    let text = "BEGIN\nit's $x\nEND\n";
    let expected = |cwd: Option<&str>, text: &str| {
        let mut input = json!({"input": text});
        if let Some(cwd) = cwd {
            input["cwd"] = cwd.into();
        }
        Some(("patch", input))
    };
    let given = |command: Value| json!({"command": command, "workdir": "w"});
    check(
        "shell",
        None,
        &given(json!(["patch", text])),
        expected(Some("w"), text),
    );
    let script = format!("patch <<'X'\n{text}X\n");
    check(
        "shell",
        None,
        &json!({"command": script}),
        expected(None, text),
    );
    let script = format!("cd 'a b' && patch_it <<X\n{text}X");
    check(
        "shell",
        None,
        &given(json!(["bash", "-lc", script])),
        expected(Some("w/a b"), text),
    );
    // Anything else a shell has to do is the shell's.
    for script in [
        format!("patch <<'X'\n{text}X\nls"),
        format!("ls && patch <<'X'\n{text}X"),
        format!("patch <<'X' | cat\n{text}X"),
        "patch 'BEGIN $x' END".to_owned(),
    ] {
        let found = SPELLINGS.understand("shell", None, &json!({"command": script}));
        assert_eq!(found.unwrap().tool, "run", "{script}");
    }
    let input = SPELLINGS.plain_text("patch", text).unwrap();
    assert_eq!(input, json!({"input": text}));
    assert_eq!(SPELLINGS.plain_text("patch", "hello"), None);
    assert_eq!(SPELLINGS.plain_text("run", text), None);
}

#[test]
fn names_that_nothing_has_get_an_answer() {
    let instead = SPELLINGS.instead_of("todo");
    assert_eq!(
        no_such_tool("todo", instead, Some("find"), &[]),
        "there is no tool `todo` here: keep the list in your answer"
    );
    assert_eq!(
        no_such_tool("fnd", None, Some("find"), &[]),
        "there is no tool `fnd`; did you mean `find`?"
    );
    assert_eq!(
        no_such_tool("x", None, None, &["find", "run"]),
        "there is no tool `x`; the tools are `find`, `run`"
    );
}
