//! `docs/tools.md` is true: its examples end as it says, and it names every tool.

use std::path::Path;
use std::sync::Arc;

use agent_tool_runtime::Registry;
use serde_json::Value;

use crate::stage::Stage;

#[test]
fn the_examples_end_as_the_page_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tools.md");
    let page = std::fs::read_to_string(page).unwrap();
    let stage = Stage::new();
    for tool in &stage.tools.tools {
        let name = &tool.definition().name;
        let named = page
            .lines()
            .any(|line| line.starts_with("## ") && line.contains(name.as_str()));
        assert!(named, "`{name}` has no section");
    }
    let mut block = "";
    let mut calls = 0;
    let (mut process, mut artifact) = (String::new(), String::new());
    for line in page.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            block = kind;
        } else if block == "text files" {
            let (name, content) = line.split_once(' ').unwrap();
            stage.put(name, content.trim_start().replace("\\n", "\n"));
        } else if block == "json call" {
            let text = line
                .replace("$PROCESS", &process)
                .replace("$ARTIFACT", &artifact);
            let call: Value = serde_json::from_str(&text).unwrap();
            let observation = stage.call(call["tool"].as_str().unwrap(), &call["input"]);
            let shown = stage.model_text(&observation);
            assert_eq!(observation.code.as_str(), call["code"], "{text}\n{shown}");
            let data = &observation.facts.data;
            process = data.process_id.clone().unwrap_or(process);
            if let Some(hint) = &observation.read_more {
                artifact = hint.input_hint["artifact_id"]
                    .as_str()
                    .unwrap_or(&artifact)
                    .to_owned();
            }
            calls += 1;
        }
    }
    assert!(calls > 20, "only {calls} examples");
    stage.check_log().unwrap();
}

/// They are made ready one by one at first use, so that a bad one would go unnoticed until then.
#[test]
fn every_input_schema_is_usable() {
    let mut registry = Registry::default();
    for tool in &Stage::new().tools.tools {
        registry.register(Arc::clone(tool)).unwrap();
    }
    registry.check_schemas().unwrap();
}
