//! Input nobody would write by accident, and a world that changes meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

use agent_protocol::Code;
use agent_tool_runtime::{Cancel, ToolIntent};
use serde_json::json;

use crate::stage::Stage;

fn raw(stage: &Stage, tool: &str, arguments: String) -> Code {
    let intent = ToolIntent {
        tool_name: tool.into(),
        arguments,
        ..ToolIntent::default()
    };
    stage.call_with(&Cancel::new(), intent).code
}

#[test]
fn arguments_that_are_no_input() {
    let stage = Stage::new();
    stage.put("a.txt", "one\n");
    for arguments in [
        "[]".to_owned(),
        "7".to_owned(),
        "null".to_owned(),
        "{".to_owned(),
        String::new(),
        "{\"path\":\"a.txt\",\"path\":\"b.txt\"}".to_owned(),
        format!("{{\"path\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000)),
        format!("{{\"path\":\"{}\"}}", "x".repeat(20 << 20)),
    ] {
        let shown: String = arguments.chars().take(40).collect();
        let code = raw(&stage, "read", arguments);
        assert!(
            matches!(
                code,
                Code::SchemaInvalid | Code::RuntimePreconditionFailed | Code::TooLarge
            ),
            "{shown}: {code}"
        );
    }
    assert_eq!(raw(&stage, "raed", "{}".into()), Code::UnknownTool);
    assert_eq!(raw(&stage, "read", "{\"path\":\"a.txt\"}".into()), Code::Ok);
    stage.check_log().unwrap();
}

#[test]
fn a_file_that_shrinks_while_it_is_read() {
    let stage = Stage::new();
    let path = stage.project().join("log.txt");
    let stop = AtomicBool::new(false);
    std::fs::write(&path, "line\n".repeat(400_000)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                file.set_len(5).unwrap();
                file.set_len(0).unwrap();
                std::fs::write(&path, "line\n".repeat(400_000)).unwrap();
            }
        });
        for _ in 0..10 {
            for (tool, input) in [
                ("read", json!({"path": "log.txt"})),
                ("grep", json!({"pattern": "line"})),
                (
                    "edit",
                    json!({"path": "log.txt", "old_string": "x", "new_string": "y"}),
                ),
            ] {
                let code = stage.call(tool, &input).code;
                assert_ne!(code, Code::InternalError);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_directory_removed_during_a_search() {
    let stage = Stage::new();
    let folder = stage.project().join("deep");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for number in 0..30 {
                    let inner = folder.join(number.to_string());
                    std::fs::create_dir_all(&inner).unwrap();
                    std::fs::write(inner.join("a.txt"), "needle\n").unwrap();
                }
                std::fs::remove_dir_all(&folder).unwrap();
            }
        });
        for _ in 0..20 {
            for (tool, input) in [
                ("grep", json!({"pattern": "needle"})),
                ("glob", json!({"pattern": "*.txt"})),
            ] {
                let observation = stage.call(tool, &input);
                assert!(observation.ok, "{}", stage.model_text(&observation));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn invalid_input_changes_nothing() {
    use proptest::prelude::*;
    let stage = Stage::new();
    stage.put("a.txt", "one\n");
    stage.call("read", &json!({"path": "a.txt"}));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let input = (
        prop::sample::select(vec!["edit", "write"]),
        prop::sample::select(vec![
            "a.txt",
            "../x",
            "",
            "a\0b",
            "src/../../y",
            "~",
            "a.txt/b",
        ]),
        "[a-z]{0,4}",
        prop::option::of("[a-z]{0,4}"),
    );
    runner
        .run(&input, |(tool, path, old, new)| {
            // `one` is the only text that could be replaced, and four letters never are that.
            let mut input = json!({"path": path});
            if tool == "edit" {
                input["old_string"] = format!("{old}#").into();
                input["new_string"] = json!(new);
            } else {
                input["contents"] = old.into();
            }
            let observation = stage.call(tool, &input);
            prop_assert!(!observation.ok);
            prop_assert_eq!(stage.text("a.txt"), "one\n");
            let names = std::fs::read_dir(stage.project()).unwrap().count();
            prop_assert_eq!(names, 1);
            Ok(())
        })
        .unwrap();
}
