//! Commands: how they end, what of them survives, what they print and what they can reach.

use std::time::{Duration, Instant};

use agent_local_tools::ScanLimits;
use agent_protocol::payload::tool::ToolObservation;
use agent_protocol::{Code, Payload};
use agent_tool_runtime::{Cancel, CancelReason, Confinement, ToolIntent};
use serde_json::{Value, json};

use crate::stage::{Setup, Stage};

pub(crate) fn bash(stage: &Stage, command: &str) -> ToolObservation {
    stage.call(
        "bash",
        &json!({"command": command, "description": "a test"}),
    )
}

pub(crate) fn with(command: &str, more: Value) -> Value {
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
fn what_a_rule_hides_is_hidden_also_where_an_ignore_rule_names_the_directory() {
    let stage = Stage::with(Setup {
        confinement: Confinement {
            deny_read: vec!["**/*.key".to_owned()],
            ..Setup::default().confinement
        },
        // The search for what rules name goes on when that for changes is given up.
        scan: ScanLimits {
            files: 2,
            ..ScanLimits::default()
        },
        sandbox: agent_sandbox::Mode::Required,
        ..Setup::default()
    });
    stage.put(".gitignore", "build/\n");
    for name in ["a", "b", "c", "d", "build/deep/x"] {
        stage.put(name, "x\n");
    }
    stage.put("build/deep/secret.key", "hush\n");
    stage.put("open.key", "hush\n");
    let ended = bash(&stage, "cat build/deep/secret.key open.key build/deep/x");
    let text = stage.model_text(&ended);
    assert!(!text.contains("hush") && text.contains("x\n"), "{text}");
}

#[test]
fn what_a_rule_denies_to_write_is_kept_and_what_is_made_is_taken_away() {
    let stage = Stage::with(Setup {
        confinement: Confinement {
            deny_write: [
                "**/*.lock",
                ".gitignore",
                ".github/**",
                "*/gen/**",
                ".git/**",
            ]
            .map(str::to_owned)
            .to_vec(),
            deny_read: vec![".env".to_owned()],
            ..Setup::default().confinement
        },
        sandbox: agent_sandbox::Mode::Required,
        ..Setup::default()
    });
    let kept = [
        "a/b/x.lock",
        "sub/.gitignore",
        ".github/CODEOWNERS",
        "src/gen/file",
    ];
    for name in kept {
        stage.put(name, "old\n");
    }
    stage.put("deep/down/.env", "hush\n");
    let script = format!(
        "for f in {}; do echo new > $f; rm -f $f; done; echo x > new.lock; cat deep/down/.env; true",
        kept.join(" ")
    );
    let ended = bash(&stage, &script);
    let text = stage.model_text(&ended);
    for name in kept {
        assert_eq!(stage.text(name), "old\n", "{name}\n{text}");
    }
    assert!(!stage.project().join("new.lock").exists(), "{text}");
    assert!(
        !text.contains("hush") && text.contains("new.lock"),
        "{text}"
    );
    let told = stage.events().into_iter().any(|event| {
        matches!(event.payload, Payload::SandboxViolation(found)
            if found.target.as_deref() == Some("new.lock was created"))
    });
    assert!(told, "{text}");
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
