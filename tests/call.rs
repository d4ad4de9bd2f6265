//! `agent call`: every code the tools can end a call with, calls one by one with the world changing
//! between them, and input nobody would write by accident.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use agent_protocol::{ActionHappened, Code, Phase};
use agent_test_support::project::TestProject;
use serde_json::{Value, json};

use crate::agent;
use crate::conversation::{ALLOWED, Conversation, assert_audit, bash, read, replace, wait_for};

/// Case that leads to one code.
struct Row {
    code: Code,
    phase: Phase,
    happened: ActionHappened,
    /// Besides `--stdin --json`.
    flags: &'static [&'static str],
    /// The user's settings.
    config: &'static str,
    /// Talks until the call in question, and returns its observation.
    talk: fn(&TestProject, &mut Conversation) -> Value,
}

impl Row {
    const fn new(
        code: Code,
        phase: Phase,
        talk: fn(&TestProject, &mut Conversation) -> Value,
    ) -> Self {
        Self {
            code,
            phase,
            happened: ActionHappened::No,
            flags: &["--mode", "accept-edits"],
            config: "",
            talk,
        }
    }

    const fn flags(mut self, flags: &'static [&'static str]) -> Self {
        self.flags = flags;
        self
    }

    const fn config(mut self, config: &'static str) -> Self {
        self.config = config;
        self
    }

    const fn happened(mut self, happened: ActionHappened) -> Self {
        self.happened = happened;
        self
    }

    fn check(&self) {
        let project = TestProject::new();
        project.write("a.txt", "one\ntwo\none\n");
        project.write_home("config.toml", self.config);
        let mut conversation = Conversation::start(&project, self.flags);
        let observed = (self.talk)(&project, &mut conversation);
        let context = format!("{}: {observed:#}", self.code);
        assert_eq!(observed["code"], self.code.as_str(), "{context}");
        assert_eq!(observed["phase"], self.phase.as_str(), "{context}");
        assert_eq!(observed["ok"], self.code.is_ok(), "{context}");
        assert_eq!(
            observed["action_happened"],
            self.happened.as_str(),
            "{context}"
        );
        let exit = conversation.end();
        let expected = match (self.code.is_ok(), self.phase) {
            (true, _) => 0,
            (false, Phase::Permission) => 3,
            (false, _) if self.code == Code::Cancelled => 130,
            (false, _) => 1,
        };
        assert_eq!(exit, Some(expected), "{context}");
        if !self.code.is_ok() {
            let facts = self.code.facts();
            assert_eq!(observed["retryable"], facts.retryable, "{context}");
            assert_eq!(observed["recovery"], facts.recovery, "{context}");
            let text = observed["model_text"].as_str().unwrap_or_default();
            assert!(text.contains(self.code.as_str()), "{context}");
        }
        assert_audit(&project);
    }
}

/// One row per code that a call of these tools can end with.
fn rows() -> Vec<Row> {
    use ActionHappened::Yes;
    use Phase::{Execute, Lookup, Permission, Validate};
    vec![
        // A read changes nothing, so nothing happened.
        Row::new(Code::Ok, Execute, |_, talk| read(talk, "a.txt")),
        Row::new(Code::FileUnchanged, Execute, |_, talk| {
            read(talk, "a.txt");
            read(talk, "a.txt")
        }),
        Row::new(Code::UnknownTool, Lookup, |_, talk| {
            talk.call("raed", json!({"path": "a.txt"}))
        }),
        Row::new(Code::ToolNotVisible, Lookup, |_, talk| {
            talk.call("write", json!({"path": "b.txt", "content": "x"}))
        })
        .flags(&["--mode", "read-only"]),
        Row::new(Code::SchemaInvalid, Validate, |_, talk| {
            let observed = talk.call("read", json!({"pth": "a.txt"}));
            let errors = observed["facts"]["errors"].to_string();
            assert!(errors.contains("path"), "{errors}");
            observed
        }),
        Row::new(Code::RuntimePreconditionFailed, Validate, |_, talk| {
            replace(talk, "a.txt", "two", "2")
        }),
        Row::new(Code::AmbiguousTarget, Validate, |_, talk| {
            read(talk, "a.txt");
            let observed = replace(talk, "a.txt", "one", "1");
            assert!(observed["summary"].as_str().unwrap().contains('2'));
            observed
        }),
        Row::new(Code::TargetNotFound, Validate, |_, talk| {
            read(talk, "a.txt");
            replace(talk, "a.txt", "twwo", "2")
        }),
        Row::new(Code::StaleFileBaseline, Validate, |project, talk| {
            read(talk, "a.txt");
            project.write("a.txt", "one\ntwo\nthree\n");
            let observed = replace(talk, "a.txt", "two", "2");
            assert_eq!(project.read("a.txt"), "one\ntwo\nthree\n");
            observed
        }),
        Row::new(Code::NoChange, Validate, |_, talk| {
            read(talk, "a.txt");
            replace(talk, "a.txt", "two", "two")
        }),
        Row::new(Code::FileNotFound, Validate, |_, talk| read(talk, "b.txt")),
        Row::new(Code::NotAFile, Validate, |_, talk| read(talk, ".")),
        Row::new(Code::UnsupportedContent, Validate, |project, talk| {
            project.write("image", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
            read(talk, "image")
        }),
        Row::new(Code::TooLarge, Validate, |project, talk| {
            project.write("huge", "x\n");
            read(talk, "huge");
            let path = project.root().join("huge");
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_len(5 << 30).unwrap();
            replace(talk, "huge", "x", "y")
        }),
        Row::new(Code::OutsideWorkspace, Validate, |_, talk| {
            read(talk, "../../etc/passwd")
        }),
        Row::new(Code::PermissionDenied, Execute, |project, talk| {
            let mode = fs::Permissions::from_mode(0o444);
            fs::set_permissions(project.root().join("a.txt"), mode).unwrap();
            read(talk, "a.txt");
            replace(talk, "a.txt", "two", "2")
        }),
        Row::new(Code::PolicyDenied, Permission, |_, talk| {
            read(talk, "a.txt")
        })
        .config("[permissions]\ndeny = [\"read(*.txt)\"]\n"),
        Row::new(Code::ApprovalUnavailable, Permission, |_, talk| {
            talk.call("write", json!({"path": "b.txt", "content": "x"}))
        })
        .flags(&["--mode", "ask"]),
        Row::new(Code::Timeout, Execute, |_, talk| {
            let input = json!({"command": "sleep 600", "description": "wait", "timeout_ms": 100});
            talk.call("bash", input)
        })
        .flags(ALLOWED)
        .happened(Yes),
        Row::new(Code::Cancelled, Execute, |project, talk| {
            let command = "touch running; exec sleep 600";
            let input = json!({"command": command, "description": "wait"});
            talk.send(&json!({"tool": "bash", "input": input}));
            wait_for(&project.root().join("running"));
            talk.signal(rustix::process::Signal::INT);
            talk.receive()
        })
        .flags(ALLOWED)
        .happened(Yes),
        // One argument of a program has a bound that the kernel sets.
        Row::new(Code::SpawnFailed, Execute, |_, talk| {
            bash(talk, &format!("echo {}", "x".repeat(200_000)))
        })
        .flags(ALLOWED),
        Row::new(Code::SandboxUnavailable, Execute, |_, talk| {
            bash(talk, "true")
        })
        .flags(ALLOWED)
        .config("[sandbox]\nwritable = [\"/nonexistent/directory\"]\n"),
        Row::new(Code::SandboxViolation, Execute, |_, talk| {
            bash(talk, "unshare --user --map-root-user true")
        })
        .flags(ALLOWED)
        .happened(Yes),
        Row::new(Code::ExitNonzero, Execute, |_, talk| {
            let observed = bash(talk, "exit 3");
            assert_eq!(observed["facts"]["exit_code"], 3);
            observed
        })
        .flags(ALLOWED)
        .happened(Yes),
        Row::new(Code::OutputLimit, Execute, |_, talk| {
            bash(talk, "yes | head -c 5000000")
        })
        .flags(ALLOWED)
        .config("[limits]\nmax_command_output = \"1MB\"\n")
        .happened(Yes),
        Row::new(Code::OutputLimit, Execute, |_, talk| {
            for _ in 0..2 {
                assert_eq!(bash(talk, "yes | head -c 400000")["code"], "ok");
            }
            let ended = bash(talk, "yes | head -c 400000");
            let told = ended["model_text"].as_str().unwrap();
            assert!(told.contains("output of all its commands"), "{told}");
            assert_eq!(bash(talk, "true")["code"], "ok");
            ended
        })
        .flags(ALLOWED)
        .config("[limits]\nmax_session_output = \"1MB\"\n")
        .happened(Yes),
        // Where commands have their temporary directories is gone.
        Row::new(Code::IoError, Execute, |project, talk| {
            let observed = bash(talk, "true");
            let session = observed["session_id"].as_str().unwrap();
            let place = project.home().join("state/tmp").join(session);
            fs::remove_dir_all(place).unwrap();
            bash(talk, "true")
        })
        .flags(ALLOWED),
    ]
}

/// Codes that no call without a model or a person ends with, and where they are tested.
const ELSEWHERE: &[(Code, &str)] = &[
    (
        Code::UserDenied,
        "a person's answer: `a_denied_call_goes_on_as_a_refusal_with_its_note`",
    ),
    (
        Code::ApprovalExpired,
        "needs time: `an_expired_question_takes_no_answer_and_nothing_runs`",
    ),
    (
        Code::InternalError,
        "a tool that panics: tool-runtime/tests/it/codes.rs",
    ),
    (
        Code::NetworkFailed,
        "needs a server: `an_answer_that_is_no_page_says_so`",
    ),
    (
        Code::Lost,
        "needs two runs: `a_call_that_was_running_when_the_process_died_is_lost`",
    ),
];

#[test]
fn every_code_has_its_row_and_its_place_in_the_documents() {
    let mut known: Vec<Code> = rows().iter().map(|row| row.code).collect();
    known.extend(ELSEWHERE.iter().map(|(code, _)| *code));
    known.sort_unstable();
    // A code may be given for several reasons.
    known.dedup();
    let mut all = Code::ALL.to_vec();
    all.sort_unstable();
    assert_eq!(known, all);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tools.md");
    let documents = fs::read_to_string(path).unwrap();
    for code in all {
        assert!(
            documents.contains(&format!("`{code}`")),
            "{code} is not in docs/tools.md"
        );
    }
}

/// Checks the rows whose codes belong to one of these phases.
fn check_rows(phases: &[Phase]) {
    for row in rows().iter().filter(|row| phases.contains(&row.phase)) {
        row.check();
    }
}

#[test]
fn the_codes_of_lookup_and_permission() {
    check_rows(&[Phase::Lookup, Phase::Permission]);
}

#[test]
fn the_codes_of_validation() {
    check_rows(&[Phase::Validate]);
}

#[test]
fn the_codes_of_execution() {
    check_rows(&[Phase::Execute]);
}

#[test]
fn a_call_that_was_running_when_the_process_died_is_lost() {
    let project = TestProject::new();
    let mut talk = Conversation::start(&project, ALLOWED);
    let input = json!({"command": "touch running; exec sleep 600", "description": "wait"});
    talk.send(&json!({"tool": "bash", "input": input}));
    wait_for(&project.root().join("running"));
    talk.signal(rustix::process::Signal::KILL);
    assert_eq!(talk.end(), None);
    let next = agent(
        &project,
        &["call", "--session", "last", "glob", "{\"pattern\": \"*\"}"],
    );
    let _ = next.finish().expect_code(0);
    let session = agent(&project, &["sessions", "show", "--json", "last"]);
    let session = session.finish().expect_code(0).json();
    let codes: Vec<&Value> = session["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| &call["code"])
        .collect();
    assert_eq!(codes, ["lost", "ok"]);
    assert_audit(&project);
}

#[test]
fn a_script_can_change_a_file_between_two_calls() {
    let project = TestProject::new();
    project.write("a.txt", "one\n");
    let mut talk = Conversation::start(&project, &["--mode", "accept-edits"]);
    // Each observation is there before the next call is sent; waiting for it does not hang.
    assert_eq!(read(&mut talk, "a.txt")["code"], "ok");
    project.write("a.txt", "two\n");
    assert_eq!(
        replace(&mut talk, "a.txt", "two", "2")["code"],
        "stale_file_baseline"
    );
    assert_eq!(read(&mut talk, "a.txt")["code"], "ok");
    // A new time stamp alone is no new version.
    let file = fs::File::options()
        .write(true)
        .open(project.root().join("a.txt"))
        .unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    assert_eq!(replace(&mut talk, "a.txt", "two", "2")["code"], "ok");
    assert_eq!(project.read("a.txt"), "2\n");
    assert_eq!(talk.end(), Some(1));
    assert_audit(&project);
}

#[test]
fn input_nobody_would_write_by_accident_is_refused_and_the_session_goes_on() {
    let project = TestProject::new();
    project.write("a.txt", format!("{}b\n", "a".repeat(5_000)));
    let mut talk = Conversation::start(&project, &["--mode", "accept-edits"]);
    let nested = format!("{{\"path\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let long = format!("{{\"path\":\"{}\"}}", "x".repeat(20 << 20));
    let deep = format!("{{\"path\":\"{}\"}}", "d/".repeat(2_048));
    let one_name = format!("{{\"path\":\"{}\"}}", "n".repeat(300));
    for (tool, input, codes) in [
        ("read", "[]", &["schema_invalid"][..]),
        ("read", "7", &["schema_invalid"]),
        ("read", "null", &["schema_invalid"]),
        ("read", "\"a.txt\"", &["schema_invalid"]),
        (
            "read",
            "{\"path\":\"a.txt\",\"path\":\"b\"}",
            &["schema_invalid"],
        ),
        (
            "read",
            "{\"path\":\"a\\u0000b\"}",
            &["runtime_precondition_failed"],
        ),
        ("read", &nested, &["schema_invalid"]),
        ("read", &long, &["too_large", "schema_invalid"]),
        (
            "read",
            &deep,
            &["runtime_precondition_failed", "file_not_found"],
        ),
        (
            "write",
            "{\"path\":\"x\\u0000y\",\"content\":\"\"}",
            &["runtime_precondition_failed"],
        ),
        ("read", &one_name, &["runtime_precondition_failed"]),
        (
            "bash",
            "{\"command\":\"a\\u0000b\",\"description\":\"\"}",
            &["runtime_precondition_failed"],
        ),
        ("grep", "{\"pattern\":\"a(b\"}", &["schema_invalid"]),
    ] {
        talk.send_text(&format!("{{\"tool\":\"{tool}\",\"input\":{input}}}"));
        let observed = talk.receive();
        let code = observed["code"].as_str().unwrap();
        let shown: String = input.chars().take(40).collect();
        assert!(
            codes.contains(&code),
            "{tool} {shown}: {code} {}",
            observed["summary"]
        );
        assert_eq!(observed["action_happened"], "no");
    }
    // What is no call at all, and a pattern that would take a backtracking engine for ever.
    for line in ["{", "[]", "nonsense"] {
        talk.send_text(line);
        assert_eq!(talk.receive()["ok"], false);
    }
    let exploding = talk.call("grep", json!({"pattern": "(a+)+(a+)+(a|aa)+$"}));
    assert_eq!(
        (&exploding["code"], &exploding["facts"]["data"]["matches"]),
        (&json!("ok"), &json!(0))
    );
    assert_eq!(read(&mut talk, "a.txt")["code"], "ok");
    assert_eq!(talk.end(), Some(1));
    assert_audit(&project);
}

#[test]
fn a_time_limit_ends_a_call_and_is_exit_5() {
    let project = TestProject::new();
    let forever = json!({"command": "sleep 600", "description": "Wait"}).to_string();
    let arguments = [
        "call",
        "--timeout",
        "1s",
        "--mode",
        "full",
        "bash",
        &forever,
    ];
    let ran = agent(&project, &arguments).finish();
    assert_eq!(ran.code(), 5, "{}{}", ran.stdout(), ran.stderr());
    let shown = agent(&project, &["sessions", "show", "last", "--json"]).finish();
    assert_eq!(shown.json()["turns"][0]["status"], "timed_out");
    let audit = agent(&project, &["audit", "last"]).finish();
    assert_eq!(audit.code(), 0, "{}", audit.stdout());
}
