//! Commands: how they end, what of them survives, what they print and what they change.

use std::time::{Duration, Instant};

use agent_local_tools::ScanLimits;
use agent_protocol::payload::SideEffectKind;
use agent_protocol::payload::tool::ToolObservation;
use agent_protocol::{Code, Payload};
use agent_tool_runtime::{Cancel, CancelReason, Confinement, ToolIntent};
use serde_json::{Value, json};

use crate::stage::{Setup, Stage};

fn bash(stage: &Stage, command: &str) -> ToolObservation {
    stage.call(
        "bash",
        &json!({"command": command, "description": "a test"}),
    )
}

fn with(command: &str, more: Value) -> Value {
    let mut input = json!({"command": command, "description": "a test"});
    for (name, value) in more.as_object().unwrap() {
        input[name] = value.clone();
    }
    input
}

#[test]
fn output_and_exit_code_are_told() {
    let stage = Stage::new();
    let ended = bash(&stage, "echo out; echo err >&2; exit 3");
    assert_eq!((ended.code, ended.ok), (Code::ExitNonzero, false));
    assert_eq!(ended.facts.exit_code, Some(3));
    let text = stage.model_text(&ended);
    assert!(
        text.contains("out") && text.contains("err") && text.contains("Exit code 3."),
        "{text}"
    );
    let ended = bash(&stage, "true");
    assert_eq!(ended.code, Code::Ok);
    assert!(stage.model_text(&ended).contains("No output."));
    let ended = bash(&stage, "kill -9 $$");
    assert_eq!(
        (ended.code, ended.facts.data.signal),
        (Code::ExitNonzero, Some(9))
    );
    stage.check_log().unwrap();
}

#[test]
fn the_steps_stand_in_the_log_in_order() {
    let stage = Stage::new();
    bash(&stage, "echo hi");
    let classes: Vec<String> = stage
        .events()
        .iter()
        .map(|event| event.payload.type_name().to_owned())
        .collect();
    let wanted = [
        "tool.started",
        "sandbox.applied",
        "process.started",
        "process.completed",
        "tool.result",
        "tool.observation",
    ];
    let mut rest = classes.iter();
    for class in wanted {
        assert!(rest.any(|found| found == class), "{class} in {classes:?}");
    }
}

#[test]
fn a_command_reads_nothing_and_its_children_end_with_it() {
    let stage = Stage::new();
    let began = Instant::now();
    let ended = bash(
        &stage,
        "cat; (sleep 600; echo late > late.txt) & echo $! > pid.txt; echo done",
    );
    assert_eq!(ended.code, Code::Ok, "{}", stage.model_text(&ended));
    assert!(began.elapsed() < Duration::from_secs(60));
    let pid: i32 = stage.text("pid.txt").trim().parse().unwrap();
    let alive =
        rustix::process::test_kill_process(rustix::process::Pid::from_raw(pid).unwrap()).is_ok();
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(
        !alive || state.contains(") Z "),
        "the child is still there: {state}"
    );
}

#[test]
fn one_that_ignores_the_polite_signal_is_killed() {
    let stage = Stage::new();
    let began = Instant::now();
    let input = with(
        "trap '' TERM; echo started; while :; do sleep 1; done",
        json!({"timeout_ms": 300}),
    );
    let ended = stage.call("bash", &input);
    assert_eq!(ended.code, Code::Timeout, "{}", stage.model_text(&ended));
    assert!(stage.model_text(&ended).contains("started"));
    assert!(began.elapsed() < Duration::from_secs(30));
    stage.check_log().unwrap();
}

#[test]
fn a_cancelled_command_says_so() {
    let stage = Stage::new();
    let cancel = Cancel::new();
    let project = stage.project().to_owned();
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The command itself says that it runs.
            while !project.join("running").exists() {
                std::thread::yield_now();
            }
            cancel.raise(CancelReason::Interrupted);
        });
        let input = with("touch running; exec sleep 600", json!({}));
        stage.call_with(&cancel, ToolIntent::new("bash", &input))
    });
    assert_eq!(ended.code, Code::Cancelled);
    let terminated = stage
        .events()
        .into_iter()
        .any(|event| matches!(event.payload, Payload::ProcessTerminated(_)));
    assert!(terminated);
}

#[test]
fn what_it_changes_is_found_and_can_be_undone() {
    let stage = Stage::new();
    stage.put("same.txt", "same\n");
    stage.put("edited.txt", "before\n");
    stage.put("removed.txt", "precious\n");
    stage.put("touched.txt", "touched\n");
    stage.put("script.sh", "echo\n");
    stage.put(".gitignore", "ignored/\n");
    let ended = bash(
        &stage,
        "echo after > edited.txt; rm removed.txt; echo new > created.txt; touch touched.txt; chmod +x script.sh; \
         mkdir ignored; echo x > ignored/x",
    );
    let mut effects: Vec<(SideEffectKind, &str)> = ended
        .side_effects
        .iter()
        .map(|effect| (effect.kind, effect.path.as_str()))
        .collect();
    effects.sort();
    assert_eq!(
        effects,
        [
            (SideEffectKind::Modified, "edited.txt"),
            (SideEffectKind::Created, "created.txt"),
            (SideEffectKind::Deleted, "removed.txt"),
            (SideEffectKind::ModeChanged, "script.sh"),
        ]
    );
    let image = |path: &str| {
        let effect = ended
            .side_effects
            .iter()
            .find(|effect| effect.path == path)
            .unwrap();
        stage.artifact(effect.before_ref.as_ref().unwrap())
    };
    assert_eq!(image("edited.txt"), b"before\n");
    assert_eq!(image("removed.txt"), b"precious\n");
    // A second change finds the version the first one left.
    let ended = bash(&stage, "echo third > edited.txt");
    assert_eq!(ended.side_effects.len(), 1);
    assert_eq!(
        stage.artifact(ended.side_effects[0].before_ref.as_ref().unwrap()),
        b"after\n"
    );
    stage.check_log().unwrap();
}

#[test]
fn a_file_a_command_changed_is_stale_for_an_edit() {
    let stage = Stage::new();
    stage.put("a.txt", "one\n");
    stage.call("read", &json!({"path": "a.txt"}));
    bash(&stage, "echo two > a.txt");
    let ended = stage.call(
        "edit",
        &json!({"path": "a.txt", "old_string": "two", "new_string": "2"}),
    );
    assert_eq!(ended.code, Code::StaleFileBaseline);
}

#[test]
fn what_is_too_much_to_look_at_is_said() {
    let stage = Stage::with(Setup {
        scan: ScanLimits {
            files: 5,
            image_bytes: 4,
            ..ScanLimits::default()
        },
        ..Setup::default()
    });
    stage.put("large.txt", "more than four bytes\n");
    let ended = bash(&stage, "echo x >> large.txt");
    assert_eq!(ended.side_effects[0].no_image.as_deref(), Some("too_large"));
    for number in 0..9 {
        stage.put(&format!("{number}.txt"), "");
    }
    let ended = bash(&stage, "echo x > 1.txt");
    assert!(ended.side_effects.is_empty());
    let text = stage.model_text(&ended);
    assert!(
        text.contains("were not looked for: the project has more than 5 files"),
        "{text}"
    );
}

#[test]
fn long_output_is_kept_whole_and_can_be_read() {
    let stage = Stage::new();
    let ended = bash(&stage, "for i in $(seq 1 20000); do echo line $i; done");
    assert!(ended.truncated && ended.omitted_bytes > 0);
    let hint = ended.read_more.as_ref().unwrap();
    assert_eq!(hint.tool, "read_artifact");
    let more = stage.call(&hint.tool, &hint.input_hint);
    assert_eq!(more.code, Code::Ok, "{}", stage.model_text(&more));
    let id = hint.input_hint["artifact_id"].clone();
    let around = stage.call(
        "read_artifact",
        &json!({"artifact_id": id, "around": "line 12345\n", "limit": 100}),
    );
    assert!(stage.model_text(&around).contains("line 12345"));
    let nowhere = stage.call(
        "read_artifact",
        &json!({"artifact_id": id, "around": "no such line"}),
    );
    assert_eq!(nowhere.code, Code::TargetNotFound);
    let unknown = format!("sha256:{}", "0".repeat(64));
    let missing = stage.call("read_artifact", &json!({"artifact_id": unknown}));
    assert_eq!(missing.code, Code::FileNotFound);
    let wrong = stage.call("read_artifact", &json!({"artifact_id": "../../etc/passwd"}));
    assert_eq!(wrong.code, Code::SchemaInvalid);
    stage.check_log().unwrap();
}

#[test]
fn too_much_output_ends_the_command() {
    let stage = Stage::with(Setup {
        max_output_bytes: 100_000,
        ..Setup::default()
    });
    let ended = bash(&stage, "yes");
    assert_eq!(
        ended.code,
        Code::OutputLimit,
        "{}",
        stage.model_text(&ended)
    );
}

#[test]
fn bad_input_is_refused_before_anybody_is_asked() {
    let stage = Stage::new();
    stage.put("a.txt", "");
    for (input, code) in [
        (
            with("true", json!({"cwd": ".."})),
            Code::RuntimePreconditionFailed,
        ),
        (
            with("true", json!({"cwd": "a.txt"})),
            Code::RuntimePreconditionFailed,
        ),
        (with("a\0b", json!({})), Code::RuntimePreconditionFailed),
        (with("  \n", json!({})), Code::RuntimePreconditionFailed),
        (with("true", json!({"timeout_ms": 0})), Code::SchemaInvalid),
        (json!({"command": "true"}), Code::SchemaInvalid),
    ] {
        assert_eq!(stage.call("bash", &input).code, code, "{input}");
    }
    let asked = stage
        .events()
        .into_iter()
        .any(|event| event.payload.type_name().starts_with("permission."));
    assert!(!asked);
}

#[test]
fn a_background_command_runs_on_and_can_be_ended() {
    let stage = Stage::new();
    let started = stage.call(
        "bash",
        &with("echo ready; exec sleep 600", json!({"background": true})),
    );
    assert_eq!(started.code, Code::Ok, "{}", stage.model_text(&started));
    let id = started.facts.data.process_id.clone().unwrap();
    let shown = stage.call(
        "process_output",
        &json!({"process_id": id, "offset": 0, "wait_ms": 200}),
    );
    assert_eq!(shown.facts.data.process_status.as_deref(), Some("running"));
    let killed = stage.call("process_kill", &json!({"process_id": id}));
    assert_eq!(killed.code, Code::Ok, "{}", stage.model_text(&killed));
    assert_eq!(killed.facts.data.process_status.as_deref(), Some("ended"));
    let again = stage.call("process_kill", &json!({"process_id": id}));
    assert_eq!(again.code, Code::NoChange);
    let all = stage.call("process_output", &json!({"process_id": id, "offset": 0}));
    assert!(stage.model_text(&all).contains("ready"));
    let unknown = stage.call("process_output", &json!({"process_id": "proc_none"}));
    assert_eq!(unknown.code, Code::RuntimePreconditionFailed);
}

#[test]
fn a_short_background_command_reports_its_end() {
    let stage = Stage::new();
    let started = stage.call(
        "bash",
        &with("echo quick; exit 4", json!({"background": true})),
    );
    let id = started.facts.data.process_id.clone().unwrap();
    let ended = stage.call(
        "process_output",
        &json!({"process_id": id, "offset": 0, "wait_ms": 30_000}),
    );
    assert_eq!(
        ended.facts.data.exit_code,
        Some(4),
        "{}",
        stage.model_text(&ended)
    );
    stage.tools.processes.shutdown();
    let completed = stage
        .events()
        .into_iter()
        .any(|event| matches!(event.payload, Payload::ProcessCompleted(_)));
    assert!(completed);
}

#[test]
fn a_sandbox_that_cannot_hold_runs_nothing() {
    let stage = Stage::with(Setup {
        capabilities: Some(agent_sandbox::Capabilities {
            user_namespaces: Err("switched off".into()),
            landlock: Err("switched off".into()),
            seccomp: Err("switched off".into()),
            bubblewrap: Err("switched off".into()),
            cgroup: Err("switched off".into()),
        }),
        sandbox: agent_sandbox::Mode::Required,
        ..Setup::default()
    });
    let ended = bash(&stage, "touch ran");
    assert_eq!(
        ended.code,
        Code::SandboxUnavailable,
        "{}",
        stage.model_text(&ended)
    );
    assert!(!stage.project().join("ran").exists());
}

#[test]
fn a_command_that_may_not_write_is_not_looked_after() {
    let stage = Stage::with(Setup {
        confinement: Confinement {
            profile: "read-only".into(),
            ..Confinement::default()
        },
        ..Setup::default()
    });
    let ended = bash(&stage, "pwd");
    assert_eq!(ended.code, Code::Ok);
    assert!(ended.side_effects.is_empty());
}

#[test]
fn in_the_real_sandbox_the_project_can_be_written_and_the_rest_cannot() {
    let stage = Stage::with(Setup {
        sandbox: agent_sandbox::Mode::Required,
        ..Setup::default()
    });
    let outside = stage.project().parent().unwrap().join("outside.txt");
    let command = format!("echo in > inside.txt && echo out > {}", outside.display());
    let ended = bash(&stage, &command);
    let text = stage.model_text(&ended);
    // The folder may lie beneath the command's own `/tmp`, so writing there may even succeed; where
    // nothing can be confined, nothing is run. In each case nothing gets out.
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "outside\n");
    if ended.code == Code::SandboxUnavailable {
        assert!(!stage.project().join("inside.txt").exists());
    } else {
        assert_eq!(stage.text("inside.txt"), "in\n", "{text}");
        assert_eq!(ended.side_effects.len(), 1);
    }
    stage.check_log().unwrap();
}
