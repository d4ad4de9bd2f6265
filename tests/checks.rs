//! Checks by their own last run, however they are run, and claims by what was run.

use agent_protocol::Payload;
use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::agent;
use crate::run::{assert_audit_is_clean, log};
use crate::verification::{bash, check, evidence, evidence_of, go, play, project, write};

/// A project with two checks, one of which fails.
fn two_checks(rounds: &[Vec<Value>], said: &str) -> TestProject {
    let project = project(rounds, said);
    project.write("Makefile", "lint:\n\ttrue\n");
    project
}

/// Another check that passes says nothing about one that failed.
#[test]
fn a_failed_check_is_answered_by_itself_alone() {
    let failed = [vec![write("a")], vec![bash("sh broken-test.sh")]];
    let then = |calls: Vec<Value>| [&failed[..], &[calls]].concat();
    let judged = |calls: Vec<Value>, expected: &str, code: u8| {
        let project = two_checks(&then(calls), "Done.");
        let report = go(&project, &["--require-verified", "Do it."]);
        assert_eq!(report["verification"]["status"], expected, "{report}");
        assert_eq!(report["exit_code"], code, "{report}");
        assert_audit_is_clean(&project);
        report
    };
    let report = judged(vec![bash("make lint")], "failed", 4);
    assert_eq!(report["verification"]["command"], "sh broken-test.sh");
    assert_eq!(report["outcome"], "degraded");
    judged(vec![bash("make lint"), bash("sh test.sh")], "failed", 4);
    judged(vec![write("b"), bash("make lint")], "stale", 4);
    let mended =
        json!({"name": "write", "arguments": {"path": "broken-test.sh", "content": "exit 0\n"}});
    let read = json!({"name": "read", "arguments": {"path": "broken-test.sh"}});
    judged(
        vec![read, mended, bash("make lint"), bash("sh broken-test.sh")],
        "passed",
        0,
    );
}

/// Runs a test that passes and one that fails (`T`) in one way, and looks at what is recorded of each.
#[track_caller]
fn judged(form: &str, passing: &str, failing: &str) {
    let runs = [("test.sh", passing), ("broken-test.sh", failing)]
        .map(|(script, status)| (form.replace('T', script), status));
    let rounds: Vec<Vec<Value>> = runs.iter().map(|(run, _)| vec![bash(run)]).collect();
    let project = project(&rounds, "Done.");
    project.write("sub/here", "");
    go(&project, &["Do it."]);
    let events = log(&project);
    let evidence = evidence(&events);
    for (command, status) in runs {
        let found = evidence
            .iter()
            .find(|(evidence, _)| evidence.command.as_deref() == Some(&command));
        let found = found.map(|(evidence, _)| evidence);
        let word = found.map_or("none", |evidence| evidence.status.as_str());
        assert_eq!(word, status, "{command}: {found:?}");
        let is_explained = found.is_some_and(|evidence| evidence.reason.is_some());
        assert_eq!(is_explained, status == UNJUDGED, "{command}");
        if command.starts_with("cd sub") {
            let cwd = found.and_then(|evidence| evidence.cwd.as_deref());
            assert!(cwd.is_some_and(|cwd| cwd.ends_with("/sub")), "{cwd:?}");
        }
    }
    assert_audit_is_clean(&project);
}

const UNJUDGED: &str = "could_not_be_judged";

/// Every usual way of running a test is a test of its own, with what is recorded of one that passes and of one
/// that fails.
macro_rules! ways {
    ($($name:ident: $form:literal => $passing:expr, $failing:expr;)*) => {
        mod ways {
            use super::{UNJUDGED, judged};

            $(#[test]
            fn $name() {
                judged($form, $passing, $failing);
            })*
        }
    };
}

ways! {
    plain: "sh T" => "passed", "failed";
    piped_to_tail_with_errors: "sh T 2>&1 | tail -20" => "passed", "failed";
    piped_to_tee: "sh T | tee kept.log" => "passed", "failed";
    piped_to_head: "sh T | head -5" => "passed", "failed";
    piped_to_grep: "sh T 2>&1 | grep -v nothing" => "passed", "failed";
    with_pipefail: "set -o pipefail; sh T | tail" => "passed", "failed";
    behind_cd_in_a_chain: "cd sub && sh ../T 2>&1 | tail -3" => "passed", "failed";
    under_timeout: "timeout 60 sh T" => "passed", "failed";
    under_env_in_a_pipe: "env A=1 sh T | cat" => "passed", "failed";
    with_a_variable: "CI=1 sh T" => "passed", "failed";
    in_sh_c: "sh -c 'sh T'" => "passed", "failed";
    in_a_subshell: "(cd sub; sh ../T)" => "passed", "failed";
    before_and: "sh T && echo ok" => "passed", "failed";
    with_errexit: "set -e; sh T; echo done" => "passed", "failed";
    with_its_status_echoed: "sh T; echo $?" => UNJUDGED, UNJUDGED;
    into_a_file_that_is_shown: "sh T > kept.log 2>&1; tail kept.log" => UNJUDGED, UNJUDGED;
    in_sh_c_with_a_pipe: "sh -c 'sh T | tail'" => UNJUDGED, UNJUDGED;
    or_true: "sh T || true" => UNJUDGED, UNJUDGED;
    in_the_background: "sh T & wait" => UNJUDGED, UNJUDGED;
    in_an_if: "if sh T; then echo yes; fi" => UNJUDGED, UNJUDGED;
    not_reached: "cd nowhere && sh T | tail" => "none", "none";
    only_read: "cat T | head -1" => "none", "none";
}

/// What bash is asked for must not show.
#[test]
fn the_report_of_a_pipeline_changes_nothing_for_the_script() {
    let script = "echo \"$(env | grep -c BASH_EN)\" \"$(readlink /proc/self/fd/0)\" \"$LINENO\" $#; \
                  set -x; false | true | cat; ls -A /tmp | grep -c pipeline";
    let project = project(&[vec![bash(script)]], "Done.");
    go(&project, &["Do it."]);
    let events = log(&project);
    let seen = events.iter().find_map(|event| match &event.payload {
        Payload::ToolObservation(seen) => seen.model_text.clone(),
        _ => None,
    });
    let seen = seen.unwrap();
    assert!(seen.contains("0 /dev/null 1 0"), "{seen}");
    assert!(
        !seen.contains("PIPESTATUS") && !seen.contains("printf"),
        "{seen}"
    );
    let statuses = events.iter().find_map(|event| match &event.payload {
        Payload::ProcessCompleted(ended) => Some(ended.pipe_status.clone()),
        _ => None,
    });
    assert_eq!(statuses, Some(Some(vec![0, 1])));
}

#[test]
fn a_claim_is_held_against_what_was_run() {
    let piped = |script: &str| bash(&format!("sh {script} 2>&1 | tail -3"));
    let hidden = bash("sh test.sh; echo done");
    for (calls, verdict, status, code) in [
        (vec![piped("test.sh")], "supported", "passed", 0),
        (vec![piped("broken-test.sh")], "contradicted", "failed", 4),
        (
            vec![hidden],
            "could_not_be_judged",
            "could_not_be_judged",
            4,
        ),
        (vec![bash("ls")], "not_run", "unverified", 4),
    ] {
        let rounds = [vec![write("a")], calls];
        let project = project(&rounds, "All tests pass now.");
        let report = go(&project, &["--require-verified", "Do it."]);
        assert_eq!(report["verification"]["status"], status, "{report}");
        assert_eq!(report["exit_code"], code, "{report}");
        assert_eq!(report["claims"][0]["verdict"], verdict, "{report}");
        let evidence = report["claims"][0]["evidence_ids"].as_array().unwrap();
        assert_eq!(evidence.is_empty(), verdict == "not_run", "{report}");
        let error = report["error"].as_str().unwrap_or_default();
        let words = match status {
            "unverified" => "no check was run".to_owned(),
            other => other.replace('_', " "),
        };
        assert_eq!(error.contains(&words), code == 4, "{error}");

        let replayed = agent(&project, &["replay", "last", "--format", "json"])
            .finish()
            .json();
        assert_eq!(replayed["summary"]["claims"][0]["verdict"], verdict);
        let told = agent(&project, &["report"]).finish().stdout();
        let verdict_words = verdict.replace('_', " ");
        assert!(
            told.contains(&format!("- {verdict_words}: tests")),
            "{told}"
        );
        assert!(
            !told.contains("All tests pass now"),
            "a report has no words of an answer"
        );
        let line = format!("{verdict_words}: \"All tests pass now\"");
        let page = agent(&project, &["replay", "last", "--format", "html"])
            .finish()
            .stdout();
        assert!(page.contains(&line.replace('"', "&quot;")), "{verdict}");
        assert!(!page.contains("the facts contradict"));
        assert_eq!(
            page.contains("contradicted by a failed check"),
            verdict == "contradicted"
        );
        let unproven = page.contains("1 claim without proof");
        assert_eq!(
            unproven,
            verdict != "supported" && verdict != "contradicted"
        );
        let audit = agent(&project, &["audit", "last", "--json"])
            .finish()
            .stdout();
        assert!(audit.contains(&format!("claim_{verdict}")), "{audit}");
    }
}

/// Nobody has to boast for a failed test to be told.
#[test]
fn a_failed_last_test_is_told() {
    let run = |calls: Vec<Value>, told: Option<&str>| {
        let project = project(&[vec![write("a")], calls], "Done.");
        let ran = agent(&project, &["run", "--mode", "full", "Do it."]).finish();
        assert_eq!(ran.code(), 0, "{}", ran.stderr());
        match told {
            Some(told) => assert!(ran.stderr().contains(told), "{}", ran.stderr()),
            None => assert_eq!(ran.stderr(), ""),
        }
        let ended = log(&project)
            .into_iter()
            .find_map(|event| match event.payload {
                Payload::TurnCompleted(completed) => Some(completed.outcome.to_string()),
                _ => None,
            });
        ended.unwrap()
    };
    let failed = vec![bash("sh broken-test.sh | tail")];
    let told = "warning: `sh broken-test.sh | tail` failed (exit 1)\n";
    assert_eq!(run(failed, Some(told)), "degraded");
    let unknown = vec![bash("sh broken-test.sh; true")];
    let told = "warning: `sh broken-test.sh; true` could not be judged: ";
    assert_eq!(run(unknown, Some(told)), "completed");
    assert_eq!(run(vec![bash("sh test.sh | tail")], None), "completed");
}

#[test]
fn what_failed_is_named() {
    let output = "cat <<'X'\ntest tests::adds ... FAILED\n\
        thread 'tests::adds' panicked at src/lib.rs:12:9:\nX\nseq 20000\n\
        echo 'FAILED tests/test_sum.py::test_adds - no'\nexit 1\n";
    let project = project(
        &[
            vec![write("a")],
            vec![bash("sh named-test.sh 2>&1 | tail -1")],
        ],
        "No.",
    );
    project.write("named-test.sh", output);
    go(&project, &["Do it."]);
    play(&project, &[vec![bash("sh named-test.sh")]], "No.");
    go(&project, &["--session", "last", "Again."]);
    let events = log(&project);
    let failures: Vec<Value> = evidence(&events)
        .iter()
        .map(|(evidence, _)| json!(evidence.failures))
        .collect();
    let adds = json!({"test": "test_adds", "file": "tests/test_sum.py"});
    assert_eq!(failures[0], json!([adds]), "the pipe let no more through");
    let rust = json!({"test": "tests::adds", "file": "src/lib.rs", "line": 12});
    assert_eq!(failures[1], json!([rust, adds]));
    let told = agent(&project, &["report"]).finish().stdout();
    assert!(told.contains("tests::adds (src/lib.rs:12)"), "{told}");
    let replayed = agent(&project, &["replay", "last"]).finish().stdout();
    assert!(
        replayed.contains("test_adds (tests/test_sum.py)"),
        "{replayed}"
    );
}

#[test]
fn a_call_that_verifies_names_its_evidence() {
    let in_sub = json!({"name": "bash", "arguments":
        {"command": "sh ../test.sh | cat", "description": "Test", "cwd": "sub"}});
    let project = project(&[vec![in_sub], vec![bash("ls")]], "Done.");
    project.write("sub/here", "");
    go(&project, &["Do it."]);
    let events = log(&project);
    let (evidence, _) = evidence_of(&events);
    let cwd = evidence.cwd.unwrap();
    assert!(cwd.ends_with("/sub"), "{cwd}");
    let named: Vec<Vec<String>> = events
        .iter()
        .filter_map(|event| match &event.payload {
            Payload::ToolResult(result) => Some(result.evidence_refs.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(named, [vec![evidence.evidence_id.to_string()], vec![]]);
}

/// A page has no green mark beside a test that failed.
#[test]
fn a_failed_test_in_a_pipeline_is_not_shown_as_well() {
    let project = project(&[vec![bash("sh broken-test.sh | tail -1")]], "Done.");
    go(&project, &["Do it."]);
    let replayed = agent(&project, &["replay", "last"]).finish().stdout();
    let replayed = replayed.split_whitespace().collect::<Vec<_>>().join(" ");
    let told = "Exit code 0. The commands of the pipeline ended with 1, 0.";
    assert!(replayed.contains(told), "{replayed}");
    let page = agent(&project, &["replay", "last", "--format", "html"])
        .finish()
        .stdout();
    assert!(page.contains("exit 0, a command of the pipeline failed"));
    assert!(page.contains("article class=\"call warn\""));
}

/// Edit, test, edit, test: a test that passes again and again after a change is no circle.
#[test]
fn a_healthy_turn_goes_on() {
    let mut rounds = Vec::new();
    for at in 0..8 {
        rounds.push(vec![json!({"name": "write", "arguments":
            {"path": format!("file-{at}"), "content": "text\n"}})]);
        rounds.push(vec![bash("sh test.sh")]);
    }
    let healthy = check(&rounds, "passed");
    let ended = log(&healthy).into_iter().any(|event| {
        matches!(event.payload, Payload::TurnCompleted(completed) if completed.steps == Some(17))
    });
    assert!(ended, "the turn went on to its end");

    let project = project(&vec![vec![bash("sh test.sh")]; 8], "Done.");
    let report = go(&project, &["Do it."]);
    assert_eq!(report["stop_reason"], "repeated_calls", "{report}");
    assert_eq!(report["exit_code"], 5);
}

/// Sessions of hundreds of calls are common; only what is set ends them.
#[test]
fn there_is_no_ceiling_on_steps_unless_one_is_set() {
    let lines: String = (0..300).map(|at| format!("line {at}\n")).collect();
    let rounds: Vec<Vec<Value>> = (1..=230)
        .map(|at| {
            vec![json!({"name": "read", "arguments": {"path": "long", "offset": at, "limit": 1}})]
        })
        .collect();
    let project = project(&rounds, "Done.");
    project.write("long", lines);
    let report = go(&project, &["Read it."]);
    assert_eq!(report["exit_code"], 0, "{report}");
    assert_eq!(report["steps"], 231);
}
