//! Records of other programs, and what an import must make of them: one small file per thing,
//! with the facts that are right beside it in `expected.json`.

use std::fs;
use std::path::{Path, PathBuf};

use agent_test_support::project::TestProject;
use serde_json::{Map, Value, json};

use crate::{agent, assert_schema};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn own_cases_come_out_as_expected() {
    let cases = check_all(&root().join("fixtures/imports/cases"));
    assert!(cases >= 23, "{cases} cases");
}

/// The cases that were found in published sessions lie beside the project, where they are there.
#[test]
fn cases_of_real_use_come_out_as_expected() {
    let directory = root().join("../shared/real-use/import-cases");
    if !directory.is_dir() {
        println!("{} is not there: not compared", directory.display());
        return;
    }
    assert_eq!(check_all(&directory), 17);
}

/// Imports every case of a directory and holds its facts against `expected.json`.
fn check_all(directory: &Path) -> usize {
    let expected = fs::read_to_string(directory.join("expected.json")).unwrap();
    let expected: Map<String, Value> = serde_json::from_str(&expected).unwrap();
    let mut wrong = Vec::new();
    for (name, facts) in &expected {
        let case = Case::import(&directory.join(format!("{name}.jsonl")));
        for (fact, right) in facts.as_object().unwrap() {
            let found = case.fact(fact, right);
            if found != *right {
                wrong.push(format!("{name}: {fact} is {found}, not {right}"));
            }
        }
        case.every_reader_works();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    expected.len()
}

/// An imported record, and what replay says of it.
struct Case {
    project: TestProject,
    file: PathBuf,
    replay: Value,
}

impl Case {
    fn import(file: &Path) -> Self {
        let project = TestProject::new();
        let run = agent(&project, &["import", "--json", &file.display().to_string()]);
        let run = run.finish();
        let replay = if run.code() == 0 {
            assert_schema("import", &run.json());
            let replay = agent(&project, &["replay", "last", "--format", "json"]);
            let replay = replay.finish().expect_code(0).json();
            assert_schema("replay", &replay);
            replay
        } else {
            json!({ "refused": run.stderr() })
        };
        Self {
            project,
            file: file.to_owned(),
            replay,
        }
    }

    /// Every command that reads a session copes with it.
    fn every_reader_works(&self) {
        if self.replay.get("refused").is_some() {
            return;
        }
        for arguments in [
            &["audit", "last", "--strict"][..],
            &["replay", "last", "--all"],
            &["replay", "last", "--format", "html"],
            &["sessions", "show", "last"],
            &["sessions", "show", "last", "--json"],
            &["report", "last"],
            &["report", "last", "--json"],
            &["export", "last"],
            &["diff", "last"],
            &["undo", "last", "--dry-run"],
            &["permissions", "test", "last"],
        ] {
            let run = agent(&self.project, arguments).finish();
            let code = run.code();
            let name = self.file.display();
            assert_eq!(code, 0, "{name}: {arguments:?}: {}", run.stderr());
        }
    }

    fn list(&self, name: &str) -> &[Value] {
        self.replay[name].as_array().map_or(&[], Vec::as_slice)
    }

    fn payloads(&self, class: &str) -> impl Iterator<Item = &Value> {
        let events = self.list("events").iter();
        let class = class.to_owned();
        events
            .filter(move |event| event["type"] == *class)
            .map(|event| &event["payload"])
    }

    fn count(&self, class: &str, is_one: impl Fn(&Value) -> bool) -> Value {
        self.payloads(class)
            .filter(|payload| is_one(payload))
            .count()
            .into()
    }

    fn calls(&self, is_one: impl Fn(&Value) -> bool) -> Value {
        self.list("calls")
            .iter()
            .filter(|call| is_one(call))
            .count()
            .into()
    }

    fn fact(&self, fact: &str, right: &Value) -> Value {
        let summary = &self.replay["summary"];
        match fact {
            "imported" => self.replay.get("refused").is_none().into(),
            "output_tokens" => summary["usage"]["output"].clone(),
            "input_tokens" => summary["usage"]["input"].clone(),
            "requests" => summary["requests"].clone(),
            "calls" => summary["calls"].clone(),
            "results" => self.count("tool.observation", |_| true),
            "files_changed" => summary["files_changed"].as_array().unwrap().len().into(),
            "files" => {
                let files = summary["files_changed"].as_array().unwrap().iter();
                files.map(|file| file["path"].clone()).collect()
            }
            "prompts_of_the_user" => self.count("turn.submitted", |_| true),
            "first_prompt" => self.payloads("turn.submitted").next().unwrap()["text"].clone(),
            "compactions" => self.count("context.compaction.completed", |_| true),
            "interrupted_turns" => self.count("turn.failed", |payload| {
                payload["status"] == "cancelled" && payload["code"] == "interrupted"
            }),
            "refused_calls" => self.calls(|call| call["code"] == "user_denied"),
            "calls_of_sub_agents" => self.calls(|call| call["subagent_id"].is_string()),
            "calls_failed" => self.calls(|call| call["status"] != "ok"),
            "codes" => self
                .list("calls")
                .iter()
                .map(|call| call["code"].clone())
                .collect(),
            "images_named" => self.parts("image").into(),
            "documents_named" => self.parts("file").into(),
            "before" => self.image("before_ref"),
            "after" => self.image("after_ref"),
            "title" | "mode" => self.replay["session"][fact].clone(),
            "diff_contains" => {
                let diff = agent(&self.project, &["diff", "last"])
                    .finish()
                    .expect_code(0);
                let is_there = diff.stdout().contains(right.as_str().unwrap());
                if is_there {
                    right.clone()
                } else {
                    diff.stdout().into()
                }
            }
            other => panic!("`{other}` is no fact this test knows"),
        }
    }

    /// Parts of this kind, in what the user sent and in what tools gave.
    fn parts(&self, kind: &str) -> usize {
        let sent = self.payloads("turn.submitted").flat_map(|payload| {
            let parts = payload["input_parts"].as_array().unwrap().iter();
            parts.filter(|part| part["kind"] == kind)
        });
        let given = self.payloads("tool.observation").flat_map(|payload| {
            let blocks = payload["content"].as_array().unwrap().iter();
            blocks.filter(|block| block["format"] == kind)
        });
        sent.count() + given.count()
    }

    /// The bytes that are kept of the first changed file.
    fn image(&self, side: &str) -> Value {
        let result = self.payloads("tool.result").next().unwrap();
        let Some(id) = result["side_effects"][0][side].as_str() else {
            return Value::Null;
        };
        let session = self.replay["session"]["session_id"].as_str().unwrap();
        let directory = self.project.root().join(".agent/sessions").join(session);
        let name = id.strip_prefix("sha256:").unwrap();
        fs::read_to_string(directory.join("artifacts").join(name))
            .unwrap()
            .into()
    }
}
