//! A disk that is truly full, project and home on it: a run fails clear, nothing that was said before
//! is lost, and with some room the session goes on.

use std::fs;
use std::path::Path;

use agent_test_support::log;
use agent_test_support::model_server::{ModelServer, Script, Turn};
use agent_test_support::project::TestProject;
use agent_test_support::run::Run;
use serde_json::{Value, json};

use crate::agent;

/// Runs in a mount namespace of its own, where a file system of two megabytes lies over the project
/// and its home. It is filled up to `$ROOM` kilobytes.
const SCRIPT: &str = r#"
set -eu
base=${PWD%/project}
cp -a "$base" "$OUT/seed"
mount -t tmpfs -o size=2m,mode=0700 none "$base"
cp -a "$OUT/seed/." "$base"
cd "$base/project"
step() {
    name=$1
    shift
    code=0
    "$AGENT" "$@" >"$OUT/$name.out" 2>"$OUT/$name.err" || code=$?
    echo "$code" >"$OUT/$name.code"
    cat .agent/sessions/*/events.jsonl >"$OUT/$name.log"
}
step first run --mode read-only 'First.'
head -c 4M /dev/zero >"$base/filler" 2>/dev/null && exit 90
size=$(stat -c %s "$base/filler")
truncate -s $((size - ROOM * 1024)) "$base/filler"
step second run --mode read-only --session last 'Second.'
step audit audit last
rm "$base/filler"
step third run --mode read-only --session last 'Third.'
cp -a "$base" "$OUT/after"
"#;

/// Each request is answered with a look at the notes, and that with a word.
fn looking() -> ModelServer {
    ModelServer::start(Script::new().otherwise(|number, request| {
        let body = request.json();
        let last = body["messages"].as_array().and_then(|all| all.last());
        match last.map(|message| message["role"] == "tool") {
            Some(true) => Turn::text("Looked."),
            // Another part each time, so that each is shown.
            _ => Turn::call("read", json!({"path": "notes.txt", "offset": number + 1})),
        }
    }))
}

fn said(out: &Path, name: &str) -> String {
    fs::read_to_string(out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// End of the second run, on a disk with so many kilobytes of room.
fn check(room: u32) -> i32 {
    let server = looking();
    let project = TestProject::new();
    project.write("notes.txt", "a line of the notes\n".repeat(400));
    let config = format!(
        "model = \"local/m\"\n[providers.local]\nbase_url = \"{}\"\n",
        server.openai_url()
    );
    project.write_home("config.toml", config);
    let out = tempfile::tempdir().unwrap();
    let ran = Run::new("/usr/bin/unshare", &project)
        .env("AGENT", env!("CARGO_BIN_EXE_agent"))
        .env("OUT", out.path())
        .env("ROOM", room.to_string())
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "/bin/sh",
            "-c",
            SCRIPT,
        ])
        .finish();
    assert_eq!(ran.code(), 0, "{room} kB: {}", ran.stderr());
    let said = |name: &str| said(out.path(), name);
    let code = |name: &str| -> i32 { said(&format!("{name}.code")).trim().parse().unwrap() };
    assert_eq!(code("first"), 0, "{room} kB: {}", said("first.err"));

    let told = said("second.err");
    if code("second") != 0 {
        let is_clear = told.contains("hint: free some space") && !told.contains("panicked");
        assert!(is_clear, "{room} kB: {told}");
    }
    assert_eq!(code("audit"), 0, "{room} kB: {}", said("audit.out"));
    assert_eq!(code("third"), 0, "{room} kB: {}", said("third.err"));
    assert_eq!(said("third.out").trim(), "Looked.");

    // Whole lines stay: what was on disk after the first run, and what the second came to write.
    let (first, second, third) = (said("first.log"), said("second.log"), said("third.log"));
    let whole = second.rfind('\n').map_or(0, |end| end + 1);
    assert!(second.starts_with(&first), "{room} kB");
    assert!(third.starts_with(&second[..whole]), "{room} kB");

    // The model that goes on knows what was said.
    let bodies = server.bodies();
    let messages = bodies.last().unwrap()["messages"].to_string();
    let was_submitted = second[..whole].contains("Second.");
    for (prompt, is_known) in [
        ("First.", true),
        ("Second.", was_submitted),
        ("Third.", true),
    ] {
        assert_eq!(messages.contains(prompt), is_known, "{room} kB: {messages}");
    }

    fs::remove_dir_all(project.root()).unwrap();
    fs::rename(out.path().join("after/project"), project.root()).unwrap();
    let sessions = fs::read_dir(project.root().join(".agent/sessions")).unwrap();
    let sessions: Vec<_> = sessions.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(sessions.len(), 1, "{room} kB: {sessions:?}");
    let events: Vec<Value> = log::check(&sessions[0]);
    let ended =
        |event: &&Value| event["type"] == "turn.completed" || event["type"] == "turn.failed";
    let submitted = |event: &&Value| event["type"] == "turn.submitted";
    let count = events.iter().filter(submitted).count();
    assert_eq!(count, if was_submitted { 3 } else { 2 }, "{room} kB");
    assert_eq!(events.iter().filter(ended).count(), count, "{room} kB");
    agent(&project, &["audit", "last"]).finish().expect_code(0);
    code("second")
}

#[test]
fn a_full_disk_loses_nothing_and_the_session_goes_on() {
    let ends: Vec<i32> = [0, 4, 8, 16, 32, 64, 512].map(check).to_vec();
    assert_ne!(ends[0], 0, "it is full: {ends:?}");
    assert_eq!(ends[6], 0, "there is room: {ends:?}");
}
