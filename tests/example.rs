//! The worked chain as files: the golden log in `fixtures/logs/`, which every dialect has to
//! reproduce, and the recorded session of `.agent-example/`, which every command can read in place.
//!
//! `AGENT_RECORD_EXAMPLE=1 cargo test -p agent-cli --test behaviour example` makes both again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use agent_history::fold::{Fold as _, ReadModels};
use agent_log::SessionDirectory;
use agent_test_support::model_server::{ModelServer, Wire};
use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::agent;
use crate::run::{PROMPT, run, six_rounds, sum_project};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn golden() -> PathBuf {
    repository().join("fixtures/logs/worked-chain.jsonl")
}

fn is_recording() -> bool {
    std::env::var_os("AGENT_RECORD_EXAMPLE").is_some()
}

/// The only session of a project.
pub(crate) fn session_of(project: &TestProject) -> PathBuf {
    let sessions = project.root().join(".agent/sessions");
    std::fs::read_dir(sessions)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path()
}

/// Fails unless the session of `project` is the golden log, but for what differs between runs.
#[track_caller]
pub(crate) fn assert_golden(project: &TestProject) {
    if is_recording() {
        return;
    }
    let log = std::fs::read_to_string(session_of(project).join("events.jsonl")).unwrap();
    let normal = normalise(&log, project);
    let wanted = std::fs::read_to_string(golden()).unwrap();
    let lines = normal.lines().zip(wanted.lines()).enumerate();
    for (number, (found, wanted)) in lines {
        assert_eq!(found, wanted, "line {}", number + 1);
    }
    assert_eq!(normal.lines().count(), wanted.lines().count());
}

/// A log without what differs between runs, machines and dialects: ids are counted, times, hashes,
/// paths and the sandbox's own report are named only.
fn normalise(log: &str, project: &TestProject) -> String {
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        // How an answer was cut into pieces is a matter of time.
        .filter(|line: &Value| line["type"] != "model.delta")
        .collect();
    let sequences = lines.iter().enumerate();
    let mut names = Names {
        places: vec![
            (project.root().display().to_string(), "<project>"),
            (project.home().display().to_string(), "<home>"),
        ],
        ids: HashMap::new(),
        sequences: sequences
            .map(|(now, line)| (line["sequence"].as_u64().unwrap(), now as u64))
            .collect(),
    };
    let mut normal = String::new();
    for mut line in lines {
        simplify(&mut line);
        names.replace("", &mut line);
        normal.push_str(&line.to_string());
        normal.push('\n');
    }
    normal
}

/// Fields that depend on the machine, or are the business of another test.
fn simplify(line: &mut Value) {
    let class = line["type"].as_str().unwrap().to_owned();
    let payload = &mut line["payload"];
    match class.as_str() {
        "sandbox.applied" => {
            *payload = json!({"profile_id": payload["profile_id"], "status": payload["status"]});
        }
        "process.started" => {
            payload["env_keys"] = json!([]);
        }
        "tool.catalog.resolved" => {
            let tools = payload["tools"].as_array().unwrap();
            let tools: Vec<Value> = tools
                .iter()
                .map(|tool| json!([tool["tool_name"], tool["policy"]]))
                .collect();
            payload["tools"] = Value::Array(tools);
        }
        "artifact.changed" => {
            let kind = payload["kind"].as_str().unwrap();
            if matches!(kind, "model_input" | "catalog" | "other") {
                payload["bytes"] = json!(0);
            }
        }
        "model.requested" => payload["strategy"] = json!("<dialect>"),
        // What a dialect does not count, it leaves out.
        "model.completed" => {
            payload.as_object_mut().unwrap().remove("request_id");
            only_what_all_count(&mut payload["usage"]);
        }
        "cost.recorded" | "turn.completed" => only_what_all_count(&mut payload["usage"]),
        "context.resolved" => {
            let budget = payload["budget"].as_object_mut().unwrap();
            budget.remove("cached_tokens");
        }
        "session.created" => payload["agent_version"] = json!("<version>"),
        _ => {}
    }
}

fn only_what_all_count(usage: &mut Value) {
    let counted = |name: &String| matches!(name.as_str(), "model" | "input" | "output" | "total");
    usage
        .as_object_mut()
        .unwrap()
        .retain(|name, _| counted(name));
}

struct Names {
    places: Vec<(String, &'static str)>,
    ids: HashMap<String, String>,
    sequences: HashMap<u64, u64>,
}

impl Names {
    fn replace(&mut self, key: &str, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields.iter_mut() {
                    self.replace(key, value);
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.replace(key, item);
                }
            }
            Value::Number(number) => {
                let sized = matches!(
                    key,
                    "os_pid" | "tokens" | "estimated_tokens" | "input_bytes"
                );
                let timed = key.ends_with("_ms") && key != "timeout_ms";
                if sized || timed {
                    *value = json!(0);
                } else if key == "sequence" {
                    *value = json!(self.sequences[&number.as_u64().unwrap()]);
                }
            }
            Value::String(text) => *text = self.text(key, text),
            Value::Bool(_) | Value::Null => {}
        }
    }

    fn text(&mut self, key: &str, text: &str) -> String {
        match key {
            "timestamp" | "started_at" | "ended_at" | "expires_at" => return "<time>".to_owned(),
            "prev" => return "<chain>".to_owned(),
            "provider_call_id" | "request_id" | "runtime_id" => return format!("<{key}>"),
            "reference" => return self.reference(text),
            _ => {}
        }
        let mut text = text.to_owned();
        for (place, name) in &self.places {
            text = text.replace(place, name);
        }
        let mut normal = String::new();
        for word in words(&text) {
            normal.push_str(&self.word(word));
        }
        normal
    }

    /// `event 12` and `events 3..12`.
    fn reference(&self, text: &str) -> String {
        let numbers = words(text).map(|word| match word.parse::<u64>() {
            Ok(number) => self.sequences[&number].to_string(),
            Err(_) => word.to_owned(),
        });
        numbers.collect()
    }

    fn word(&mut self, word: &str) -> String {
        let is_hash = word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hash {
            return "<hash>".to_owned();
        }
        match word.split_once('_') {
            Some((prefix, rest)) if rest.len() == 26 && prefix.len() <= 5 => {
                let next = self.ids.keys().filter(|id| id.starts_with(prefix)).count() + 1;
                self.ids
                    .entry(word.to_owned())
                    .or_insert_with(|| format!("{prefix}_{next}"))
                    .clone()
            }
            _ => word.to_owned(),
        }
    }
}

/// Runs of letters, digits and `_`, and the characters between them one by one.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let part_of_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let end = if part_of_word(first) {
            rest.find(|letter| !part_of_word(letter))
                .unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word)
    })
}

/// The recorded session.
pub(crate) fn recorded() -> PathBuf {
    let sessions = repository().join(".agent-example/sessions");
    let mut found: Vec<PathBuf> = std::fs::read_dir(sessions)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Plays the chain once more and keeps its session and its golden log.
fn record() {
    let project = sum_project();
    let server = ModelServer::start(six_rounds());
    run(&project, &server, Wire::Chat, &[PROMPT])
        // Nothing of the machine it is recorded on beyond the usual.
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .finish()
        .expect_code(0);
    let session = session_of(&project);
    let log = std::fs::read_to_string(session.join("events.jsonl")).unwrap();
    std::fs::write(golden(), normalise(&log, &project)).unwrap();

    let sessions = repository().join(".agent-example/sessions");
    if sessions.exists() {
        std::fs::remove_dir_all(&sessions).unwrap();
    }
    let kept = sessions.join(session.file_name().unwrap());
    std::fs::create_dir_all(kept.join("artifacts")).unwrap();
    std::fs::copy(session.join("events.jsonl"), kept.join("events.jsonl")).unwrap();
    for artifact in std::fs::read_dir(session.join("artifacts")).unwrap() {
        let artifact = artifact.unwrap();
        std::fs::copy(
            artifact.path(),
            kept.join("artifacts").join(artifact.file_name()),
        )
        .unwrap();
    }
}

#[test]
fn the_recorded_session_can_be_read_where_it_lies() {
    if is_recording() {
        record();
    }
    let project = TestProject::new();
    let session = recorded();
    let path = session.to_str().unwrap();
    let before = std::fs::read(session.join("events.jsonl")).unwrap();

    let shown = agent(&project, &["sessions", "show", path, "--json"])
        .finish()
        .expect_code(0)
        .json();
    crate::assert_schema("sessions-show", &shown);
    assert_eq!(shown["verification"]["status"], "passed", "{shown}");
    assert_eq!(shown["files_changed"][0]["path"], "src/sum.sh");
    assert_eq!(shown["calls"].as_array().unwrap().len(), 6);
    let audit = agent(&project, &["audit", path, "--json"])
        .finish()
        .expect_code(0)
        .json();
    assert_eq!(audit["ok"], true);
    let portable = agent(&project, &["export", path, "--format", "portable"])
        .finish()
        .expect_code(0);
    assert!(portable.stdout().lines().count() > 50);

    let told = agent(&project, &["replay", path, "--format", "text"])
        .finish()
        .expect_code(0);
    assert!(told.stdout().contains("src/sum.sh"), "{}", told.stdout());

    let mut models = ReadModels::default();
    for item in SessionDirectory::at(&session).unwrap().reader().unwrap() {
        models.fold(&item.unwrap().event.expect("a whole event"));
    }
    let lines = before.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(models.next_sequence(), lines as u64);
    // Reading leaves nothing behind.
    assert_eq!(std::fs::read(session.join("events.jsonl")).unwrap(), before);
    let left: Vec<_> = std::fs::read_dir(&session)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn words_are_ids_and_what_is_between_them() {
    let found: Vec<&str> = words("events 3..12, `ev_1`").collect();
    assert_eq!(
        found,
        [
            "events", " ", "3", ".", ".", "12", ",", " ", "`", "ev_1", "`"
        ]
    );
}
