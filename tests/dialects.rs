//! Models that speak only another program's tools: names, fields and patches, against this binary as
//! it is.

use agent_protocol::Payload;
use agent_protocol::payload::tool::ToolIntent;
use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::agent;
use crate::run::{
    PROMPT, assert_audit_is_clean, assert_inputs_can_be_rebuilt, log, run, sum_project,
};

fn intents(project: &TestProject) -> Vec<ToolIntent> {
    let of = |event: agent_protocol::Event| match event.payload {
        Payload::ToolIntent(intent) => Some(intent),
        _ => None,
    };
    log(project).into_iter().filter_map(of).collect()
}

/// Plays a chain of calls that has to end with the sum fixed and tested.
fn chain(
    project: &TestProject,
    wire: Wire,
    arguments: &[&str],
    calls: &[(&str, Value)],
) -> (ModelServer, Vec<ToolIntent>) {
    let mut script = Script::new();
    for (name, input) in calls {
        script = script.turn(Turn::call(name, input.clone()));
    }
    let server = ModelServer::start(script.turn(Turn::text("Fixed: `sum` added one too many.")));
    let mut all = vec!["--mode", "auto", "--output", "json"];
    all.extend(arguments);
    all.push(PROMPT);
    let ran = run(project, &server, wire, &all).finish();
    assert_eq!(ran.code(), 0, "{}\n{}", ran.stdout(), ran.stderr());
    let report = ran.json();
    assert_eq!(report["verification"]["status"], "passed", "{report}");
    let changed = report["files_changed"].as_array().unwrap();
    assert!(
        changed.iter().any(|file| file["path"] == "src/sum.sh"),
        "{report}"
    );
    let tested = [
        json!({"command": "sh test.sh", "exit_code": 1}),
        json!({"command": "sh test.sh", "exit_code": 0}),
    ];
    let commands = report["commands"].as_array().unwrap();
    let tests: Vec<_> = commands
        .iter()
        .filter(|one| one["command"] == "sh test.sh")
        .collect();
    assert_eq!(tests, [&tested[0], &tested[1]], "{report}");
    assert!(project.read("src/sum.sh").contains("echo $(($1 + $2))"));
    assert_audit_is_clean(project);
    assert_inputs_can_be_rebuilt(project, &server);
    (server, intents(project))
}

#[test]
fn a_model_that_speaks_only_claude_code_finishes_the_worked_chain() {
    let project = sum_project();
    let at = |name: &str| project.root().join(name).to_string_lossy().into_owned();
    let calls = [
        (
            "TodoWrite",
            json!({"todos": [{"content": "Find the fault", "status": "in_progress", "activeForm": "Finding the fault"}]}),
        ),
        (
            "Read",
            json!({"file_path": at("test.sh"), "offset": 1, "limit": 100}),
        ),
        (
            "Bash",
            json!({"command": "sh test.sh", "description": "Run the tests", "timeout": 60_000}),
        ),
        (
            "Grep",
            json!({"pattern": "sum\\(\\)", "path": at("src"), "output_mode": "content", "-n": true, "-A": 3}),
        ),
        ("Glob", json!({"pattern": "**/*.sh"})),
        ("LS", json!({"path": at("src")})),
        ("Read", json!({"file_path": at("src/sum.sh")})),
        (
            "Write",
            json!({"file_path": at("NOTES.md"), "content": "one\ntwo\n"}),
        ),
        (
            "MultiEdit",
            json!({"file_path": at("NOTES.md"), "edits": [
                {"old_string": "one", "new_string": "1"},
                {"old_string": "two", "new_string": "2", "replace_all": null},
            ]}),
        ),
        (
            "Edit",
            json!({"file_path": at("src/sum.sh"), "old_string": "$2 + 1", "new_string": "$2", "replace_all": false}),
        ),
        (
            "Bash",
            json!({"command": "sh test.sh", "run_in_background": false}),
        ),
    ];
    let (server, intents) = chain(&project, Wire::Anthropic, &[], &calls);
    assert_eq!(project.read("NOTES.md"), "1\n2\n");
    // A list of things to do is a habit, with a tool for it or without.
    let (intents, calls) = (&intents[1..], &calls[1..]);
    let tools: Vec<_> = intents.iter().map(|intent| &*intent.tool_name).collect();
    assert_eq!(
        tools,
        [
            "read", "bash", "grep", "glob", "glob", "read", "write", "edit", "edit", "bash"
        ]
    );
    for (intent, (name, input)) in intents.iter().zip(calls) {
        // As it was asked, and as it was run.
        assert_eq!(intent.requested_name.as_deref(), Some(*name));
        assert_eq!(intent.raw_input.as_ref(), Some(input));
    }
    let own: Vec<_> = intents
        .iter()
        .map(|intent| intent.input().unwrap())
        .collect();
    assert_eq!(
        *own[0],
        json!({"path": at("test.sh"), "offset": 1, "limit": 100})
    );
    assert_eq!(own[1]["timeout_ms"], 60_000);
    assert_eq!(
        *own[2],
        json!({"pattern": "sum\\(\\)", "path": at("src"), "mode": "lines", "context": 3})
    );
    assert_eq!(own[4]["pattern"], "*");
    // The model reads its own words again.
    let last = server.bodies().pop().unwrap().to_string();
    assert!(
        last.contains(r#""name":"Read""#) && last.contains(r#""file_path""#),
        "{last}"
    );
}

#[test]
fn a_model_that_speaks_only_codex_finishes_the_worked_chain() {
    let project = sum_project();
    let root = project.root().to_string_lossy().into_owned();
    let patch = |body: &str| format!("*** Begin Patch\n{body}\n*** End Patch");
    let note = patch("*** Add File: NOTES.md\n+It's $2 + 1.");
    let fix = patch(
        "*** Update File: src/sum.sh\n@@\n sum() {\n-    echo $(($1 + $2 + 1))\n+    echo $(($1 + $2))\n }",
    );
    let gone = patch("*** Delete File: NOTES.md");
    let calls = [
        (
            "shell",
            json!({"command": ["bash", "-lc", "cat test.sh"], "workdir": root, "timeout_ms": 60_000}),
        ),
        (
            "exec_command",
            json!({"cmd": "sh test.sh", "workdir": root, "yield_time_ms": 1000, "max_output_tokens": 6000}),
        ),
        (
            "shell_command",
            json!({"command": "sed -n '1,20p' src/sum.sh", "workdir": root}),
        ),
        (
            "shell",
            json!({"command": ["bash", "-lc", format!("apply_patch <<'EOF'\n{note}\nEOF\n")], "workdir": root}),
        ),
        ("apply_patch", json!({"input": fix})),
        ("shell", json!({"command": ["apply_patch", gone]})),
        (
            "update_plan",
            json!({"explanation": "Nearly there", "plan": [{"step": "Test it", "status": "in_progress"}]}),
        ),
        ("exec_command", json!({"cmd": "sh test.sh"})),
    ];
    let arguments = ["--model", "local/gpt-5-codex"];
    let (server, intents) = chain(&project, Wire::Responses, &arguments, &calls);
    // A plan is a habit, with a tool for it or without.
    let is_plan = |intent: &&ToolIntent| {
        let asked = intent.requested_name.as_deref();
        asked.unwrap_or(&intent.tool_name) == "update_plan"
    };
    let tools: Vec<_> = intents
        .iter()
        .filter(|intent| !is_plan(intent))
        .map(|intent| &*intent.tool_name)
        .collect();
    let expected = [
        "bash",
        "bash",
        "bash",
        "apply_patch",
        "apply_patch",
        "apply_patch",
        "bash",
    ];
    assert_eq!(tools, expected);
    assert!(!project.root().join("NOTES.md").exists());
    // A model of this family is offered patches and no edits.
    let body = &server.bodies()[0];
    let offered: Vec<_> = body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert!(
        offered.contains(&"apply_patch") && !offered.contains(&"edit"),
        "{offered:?}"
    );
    // What patches changed goes back as any other change does.
    let undone = agent(&project, &["undo", "--dry-run"]).finish();
    assert_eq!(undone.code(), 0, "{}", undone.stderr());
    assert!(
        undone.stdout().contains("src/sum.sh"),
        "{}",
        undone.stdout()
    );
}

/// Calls one tool in a session of its own.
fn call(project: &TestProject, tool: &str, input: &Value) -> (i32, String) {
    let input = input.to_string();
    let ran = agent(project, &["call", "--mode", "auto", tool, &input]).finish();
    (ran.code(), format!("{}\n{}", ran.stdout(), ran.stderr()))
}

#[test]
fn spellings_that_were_counted_in_real_sessions_are_understood() {
    for (tool, input, expected) in [
        ("read", json!({"file_path": "test.sh"}), "sum.sh"),
        ("read_file", json!({"absolute_path": "test.sh"}), "sum.sh"),
        (
            "str_replace_editor",
            json!({"command": "view", "path": "test.sh", "view_range": [1, 3]}),
            "sh",
        ),
        (
            "str_replace_based_edit_tool",
            json!({"command": "create", "path": "new.txt", "file_text": "x\n"}),
            "new.txt",
        ),
        (
            "Write",
            json!({"file_path": "a/b.txt", "content": "x\n"}),
            "a/b.txt",
        ),
        ("bash", json!({"command": "echo hi"}), "hi"),
        ("bash", json!({"cmd": "echo hi", "timeout": 5000}), "hi"),
        (
            "run_shell_command",
            json!({"command": "echo hi", "directory": "src"}),
            "hi",
        ),
        (
            "search_file_content",
            json!({"pattern": "echo", "include": "*.sh"}),
            "sum.sh",
        ),
        (
            "Grep",
            json!({"pattern": "ECHO", "-i": true, "head_limit": 5, "type": "sh"}),
            "sum.sh",
        ),
        ("list_directory", json!({"path": "src"}), "sum.sh"),
    ] {
        let project = sum_project();
        let (code, said) = call(&project, tool, &input);
        assert!(
            code == 0 && said.contains(expected),
            "{tool} {input}: {code}\n{said}"
        );
    }
}

#[test]
fn names_that_are_known_and_missing_get_a_useful_answer() {
    let project = sum_project();
    for (tool, expected, not) in [
        ("TaskCreate", "`plan` keeps the list", "did you mean"),
        ("Skill", "the tools of this request", "process_kill"),
        ("WebSearch", "`web_fetch` reads a page", "did you mean"),
        ("frobnicate", "the tools are", "did you mean"),
        ("raed", "did you mean `read`", "the tools are"),
    ] {
        let (code, said) = call(&project, tool, &json!({}));
        assert_ne!(code, 0, "{said}");
        assert!(
            said.contains(expected) && !said.contains(not),
            "{tool}: {said}"
        );
    }
}

/// What every provider takes of JSON Schema; the rest is refused by one or another.
const TAKEN: [&str; 13] = [
    "type",
    "description",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
];

fn assert_plain(schema: &Value, place: &str) {
    let keywords = schema
        .as_object()
        .unwrap_or_else(|| panic!("{place}: {schema}"));
    for keyword in keywords.keys() {
        assert!(
            TAKEN.contains(&&**keyword),
            "{place}: `{keyword}` in {schema}"
        );
    }
    let kind = schema["type"].as_str();
    match kind.unwrap_or_else(|| panic!("{place}: no one type in {schema}")) {
        "object" => {
            // Strict: what is not there is refused and not passed over.
            assert_eq!(schema["additionalProperties"], false, "{place}");
            for (name, field) in schema["properties"].as_object().unwrap() {
                let is_told = field["description"]
                    .as_str()
                    .is_some_and(|text| text.len() > 5);
                assert!(is_told, "{place}/{name} has no description");
                assert_plain(field, &format!("{place}/{name}"));
            }
        }
        "array" => assert_plain(&schema["items"], &format!("{place}/items")),
        "string" | "integer" | "number" | "boolean" => {}
        other => panic!("{place}: {other}"),
    }
    let words = schema.get("enum").and_then(Value::as_array);
    let is_worded = words.is_none_or(|words| words.iter().all(Value::is_string));
    assert!(is_worded, "{place}: {schema}");
}

/// Everything offered to a model, as it goes over the wire, to both kinds of models.
#[test]
fn schemas_are_strict_small_and_of_the_kind_every_provider_takes() {
    for model in ["local/test-model", "local/gpt-5-codex"] {
        let project = sum_project();
        let server = ModelServer::start(Script::new().turn(Turn::text("Hello.")));
        let arguments = ["--model", model, "--mode", "full", "Hello."];
        run(&project, &server, Wire::Anthropic, &arguments)
            .finish()
            .expect_code(0);
        let body = &server.bodies()[0];
        let tools = body["tools"].as_array().unwrap();
        assert!(tools.len() > 7, "{body}");
        for tool in tools {
            let name = tool["name"].as_str().unwrap();
            assert_plain(&tool["input_schema"], name);
            let size = tool.to_string().len();
            assert!(size < 3_000, "{name} takes {size} bytes of every request");
        }
    }
}

/// A field that is null says as much as none, in our own words too and at any depth.
#[test]
fn nulls_say_nothing() {
    for (tool, input, expected) in [
        (
            "read",
            json!({"path": "test.sh", "offset": null, "limit": null}),
            "sum.sh",
        ),
        (
            "grep",
            json!({"pattern": "echo", "mode": null, "case": null, "context": null}),
            "sum.sh",
        ),
        (
            "bash",
            json!({"command": "echo hi", "description": "Say hi", "cwd": null, "network": null}),
            "hi",
        ),
    ] {
        let project = sum_project();
        let (code, said) = call(&project, tool, &input);
        assert!(code == 0 && said.contains(expected), "{input}: {said}");
    }
    let (code, said) = call(&sum_project(), "read", &json!({"path": null}));
    assert!(code != 0 && said.contains("`path` is missing"), "{said}");
}

/// Patches that real models handed to a shell are patches here.
#[test]
fn patches_of_recorded_commands_are_applied() {
    let recorded = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/real-use/commands.jsonl");
    let own = r#"{"command": "apply_patch <<'PATCH'\n*** Begin Patch\n*** Update File: app/(main)/page.tsx\n@@\n-import { useMemo } from \"react\";\n+// It's $HOME\n*** End Patch\nPATCH\n"}"#;
    let theirs = std::fs::read_to_string(recorded).unwrap_or_else(|_| {
        println!("the recorded commands are absent; only our own is tested");
        String::new()
    });
    for line in theirs.lines().chain([own]) {
        let line: Value = serde_json::from_str(line).unwrap();
        let command = line["command"].as_str().unwrap();
        if !command.starts_with("apply_patch ") {
            continue;
        }
        let project = sum_project();
        let patch = command.lines();
        let path = patch
            .clone()
            .find_map(|line| line.strip_prefix("*** Update File: "));
        let side = |gone: char| -> String {
            let lines = patch.clone().filter(|line| !line.starts_with("***"));
            let lines = lines.filter(|line| line.starts_with(['-', '+', ' ']));
            let lines = lines.filter(|line| !line.starts_with(gone));
            lines.map(|line| format!("{}\n", &line[1..])).collect()
        };
        let path = path.unwrap();
        project.write(path, format!("first\n{}last\n", side('+')));
        let (code, said) = call(&project, "bash", &json!({"command": command}));
        assert_eq!(code, 0, "{command}\n{said}");
        assert_eq!(project.read(path), format!("first\n{}last\n", side('-')));
        assert_eq!(intents(&project)[0].tool_name, "apply_patch", "{command}");
    }
}
