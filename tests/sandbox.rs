//! `agent sandbox`: what holds here, and programs that run in it.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use agent_test_support::run::{Run, RunOutput};
use serde_json::json;

use crate::{agent, assert_schema};

fn confined(project: &TestProject, options: &[&str], command: &[&str]) -> RunOutput {
    let all = [&["sandbox", "run"], options, &["--"], command].concat();
    agent(project, &all).finish()
}

fn script(project: &TestProject, options: &[&str], text: &str) -> RunOutput {
    confined(project, options, &["sh", "-c", text])
}

/// Directories of a run left below `place`.
fn leftovers(place: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("proc_") {
            found.push(name);
        } else {
            found.extend(leftovers(&entry.path()));
        }
    }
    found
}

#[test]
fn the_check_has_its_published_shape_and_says_what_happens() {
    let project = TestProject::new();
    let ran = agent(&project, &["sandbox", "check", "--json"]).finish();
    let report = ran.json();
    assert_schema("sandbox-check", &report);
    let expected = if report["commands"] == "refused" {
        6
    } else {
        0
    };
    let ran = ran.expect_code(expected);
    for layer in report["layers"].as_array().unwrap() {
        let explained = layer["present"] == true || layer["detail"].is_string();
        assert!(explained, "{}", ran.stdout());
    }
    let text = agent(&project, &["sandbox", "check"]).finish().stdout();
    assert!(text.contains(report["level"].as_str().unwrap()), "{text}");
    assert_eq!(fs::read_dir(project.home()).unwrap().count(), 0);
}

#[test]
fn a_sandbox_that_is_switched_off_is_said_to_be() {
    let project = TestProject::new();
    project.write_home("config.toml", "sandbox = \"off\"\n");
    let check = agent(&project, &["sandbox", "check", "--json"]).finish();
    let report = check.expect_code(0).json();
    assert_eq!(
        (&report["mode"], &report["commands"]),
        (&"off".into(), &"unconfined".into())
    );
    let ran = confined(&project, &[], &["true"]).expect_code(0);
    assert!(ran.stderr().contains("not confined"), "{}", ran.stderr());
    // What the gate takes `~` for is what a shell makes of it.
    let input = r#"{"command": "echo ~; echo $HOME", "description": "a test"}"#;
    let asked = ["call", "--json", "--mode", "full", "bash", input];
    let said = agent(&project, &asked).finish().expect_code(0).json();
    let home = project.home().display().to_string();
    let shown = said["model_text"].as_str().unwrap();
    assert!(shown.contains(&format!("{home}\n{home}\n")), "{shown}");
}

#[test]
fn streams_and_exit_codes_are_passed_on_and_nothing_stays() {
    let project = TestProject::new();
    let ran = script(&project, &[], "echo out; echo err >&2; exit 7").expect_code(7);
    assert_eq!(
        (ran.stdout().as_str(), ran.stderr().as_str()),
        ("out\n", "err\n")
    );
    let _ = script(&project, &[], "kill -TERM $$").expect_code(143);
    assert_eq!(leftovers(&project.home()), [""; 0]);
}

#[test]
fn arguments_are_no_script() {
    let project = TestProject::new();
    let ran = confined(&project, &[], &["echo", "a; exit 3", "$HOME"]).expect_code(0);
    assert_eq!(ran.stdout(), "a; exit 3 $HOME\n");
    let ran = confined(&project, &[], &["no-such-program --at-all"]).expect_code(127);
    assert!(ran.stderr().contains("nothing was run"), "{}", ran.stderr());
    let _ = agent(&project, &["sandbox", "run"]).finish().expect_code(2);
}

#[test]
fn the_project_can_be_written_and_the_rest_cannot() {
    let project = TestProject::new();
    let outside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = outside.path().join("file");
    // The second place is there inside wherever this runs; the first may be hidden with its directory.
    let text = format!(
        "echo in > inside; echo out > '{}'; echo out > /usr/written-from-inside",
        file.display()
    );
    let ran = script(&project, &[], &text);
    assert_ne!(ran.code(), 0);
    assert!(!file.exists());
    assert!(!Path::new("/usr/written-from-inside").exists());
    assert_eq!(project.read("inside"), "in\n");
    let told = ran.stderr();
    assert!(
        told.contains("note: the sandbox may have refused: write"),
        "{told}"
    );
    assert!(told.contains("permitted by sandbox.writable"), "{told}");
}

#[test]
fn read_only_holds_for_the_project_too() {
    let project = TestProject::new();
    project.write("old", "old\n");
    let ran = script(&project, &["--read-only"], "cat old; echo new > new");
    assert_ne!(ran.code(), 0);
    assert_eq!(ran.stdout(), "old\n");
    assert!(!project.root().join("new").exists());
}

#[test]
fn home_and_what_rules_deny_are_hidden() {
    let project = TestProject::new();
    project.write_home("key", "secret-of-home");
    project.write("secret.txt", "secret-of-project");
    project.write("open.txt", "open\n");
    project.write_home(
        "config.toml",
        "[permissions]\ndeny = [\"read(secret.txt)\"]\n",
    );
    let key = project.home().join("key");
    let text = format!("cat '{}' secret.txt open.txt", key.display());
    let ran = script(&project, &[], &text);
    assert_ne!(ran.code(), 0);
    assert_eq!(ran.stdout(), "open\n");
}

#[test]
fn the_network_is_there_only_when_asked_for() {
    let project = TestProject::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected");
    let bash = ["bash", "-c", &text];
    let off = confined(&project, &[], &bash);
    assert_ne!(off.code(), 0);
    assert_eq!(off.stdout(), "");
    let on = confined(&project, &["--network"], &bash).expect_code(0);
    assert_eq!(on.stdout(), "connected\n");
}

#[test]
fn what_is_put_at_a_protected_name_is_moved_and_kept() {
    let project = TestProject::new();
    let ran = script(
        &project,
        &[],
        "mkdir .agent && echo 'x = 1' > .agent/config.toml",
    );
    assert!(!project.root().join(".agent/config.toml").exists());
    let told = ran.stderr();
    assert!(told.contains("is protected"), "{told}");
    assert_eq!(leftovers(&project.home()).len(), 1, "{told}");
}

#[test]
fn what_a_command_does_to_its_temporary_directory_leaves_nothing_behind() {
    let project = TestProject::new();
    let text = "mkdir -p $TMPDIR/a/b $HOME/c && touch $TMPDIR/a/b/f && chmod 000 $TMPDIR/a/b && chmod 555 $TMPDIR/a $HOME $TMPDIR";
    let _ = script(&project, &[], text).expect_code(0);
    let input = json!({"command": text, "description": "Make a mess"}).to_string();
    let _ = agent(&project, &["call", "--mode", "full", "bash", &input])
        .finish()
        .expect_code(0);
    let left = fs::read_dir(project.home().join("state/tmp")).unwrap();
    assert_eq!(left.count(), 0);
}

/// Whoever was killed could not clean up; the next one does.
#[test]
fn what_a_killed_agent_left_is_removed_by_the_next() {
    let project = TestProject::new();
    let left = project.home().join("state/tmp/ses_killed/command-x");
    fs::create_dir_all(&left).unwrap();
    // It is done beside the command, which may be over first; then the one after does it.
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while left.exists() && std::time::Instant::now() < limit {
        let _ = script(&project, &[], "true").expect_code(0);
    }
    assert!(!left.exists());
    assert!(!project.home().join("state/tmp/ses_killed").exists());
}

/// A repository's configuration names programs, and git runs them even to tell whether files changed.
#[test]
fn asking_git_about_the_tree_runs_nothing_outside_the_sandbox() {
    let project = TestProject::new();
    let ran = project.home().join("ran");
    fs::create_dir_all(project.home()).unwrap();
    let prepare = format!(
        "git init -q . && echo a > file && git add . && git -c user.name=a -c user.email=a@b commit -qm x && \
         git config filter.x.clean 'touch {0}; cat' && git config core.fsmonitor 'touch {0}' && \
         echo '* filter=x' > .git/info/attributes && echo b > file && touch -d @1 file",
        ran.display()
    );
    let prepared = std::process::Command::new("sh")
        .args(["-c", &prepare])
        .current_dir(project.root())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .status();
    assert!(prepared.unwrap().success());
    let _ = fs::remove_file(&ran);
    let input = json!({"command": "git checkout -- .", "description": "Take back"}).to_string();
    let explained = agent(
        &project,
        &[
            "permissions",
            "explain",
            "--tool",
            "bash",
            "--input",
            &input,
        ],
    );
    let explained = explained.finish().stdout();
    let words: Vec<&str> = explained.split_whitespace().collect();
    assert!(
        words
            .join(" ")
            .contains("the working tree has uncommitted changes"),
        "{explained}"
    );
    let _ = agent(&project, &["call", "--mode", "full", "bash", &input])
        .finish()
        .expect_code(3);
    assert!(!ran.exists());
}

/// A program that takes kernel features away from itself and then becomes another: user namespaces
/// with the word `namespaces`, Landlock with the word `landlock`, separated by a comma.
const WITHOUT: &str = r#"
import ctypes, os, platform, struct, sys
missing = sys.argv[1].split(",")
intel = platform.machine() == "x86_64"
clone, unshare = (56, 272) if intel else (220, 97)
refuse, absent, allow = 0x00050001, 0x00050026, 0x7fff0000
steps = [(0x20, 0, 0, 0)]
if "landlock" in missing:
    steps += [(0x15, 0, 1, 444), (0x06, 0, 0, absent)]
if "namespaces" in missing:
    steps += [(0x15, 0, 1, unshare), (0x06, 0, 0, refuse)]
    steps += [(0x15, 0, 1, 435), (0x06, 0, 0, absent)]
    steps += [(0x15, 0, 3, clone), (0x20, 0, 0, 16), (0x45, 0, 1, 0x10000000), (0x06, 0, 0, refuse)]
steps += [(0x06, 0, 0, allow)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
program = Program(len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[2], sys.argv[2:])
"#;

/// `agent` on a machine that lacks something.
fn without(project: &TestProject, missing: &str, arguments: &[&str]) -> Run {
    Run::new("python3", project)
        .args(["-c", WITHOUT, missing, env!("CARGO_BIN_EXE_agent")])
        .args(arguments)
}

#[test]
fn with_nothing_to_confine_by_nothing_is_run() {
    let project = TestProject::new();
    let lacking = "namespaces,landlock";
    let check = without(&project, lacking, &["sandbox", "check", "--json"]).finish();
    let report = check.expect_code(6).json();
    assert_eq!(
        (&report["level"], &report["commands"]),
        (&"none".into(), &"refused".into())
    );
    let run = ["sandbox", "run", "--", "sh", "-c", "echo ran > ran"];
    let ran = without(&project, lacking, &run).finish().expect_code(6);
    assert!(ran.stderr().contains("nothing was run"), "{}", ran.stderr());
    assert!(!project.root().join("ran").exists());
}

#[test]
fn a_model_that_wants_a_command_is_refused_it_and_told_why() {
    let project = TestProject::new();
    let server = ModelServer::start(
        Script::new()
            .turn(Turn::call(
                "bash",
                json!({"command": "echo ran > ran", "description": "Run"}),
            ))
            .turn(Turn::text("I could not run it.")),
    );
    let base = server.base_url(Wire::Chat);
    project.write_home(
        "config.toml",
        format!("model = \"local/test-model\"\n[permissions]\nmode = \"full\"\n[providers.local]\ndialect = \"openai-chat\"\nbase_url = \"{base}\"\n"),
    );
    let ran = without(&project, "namespaces,landlock", &["run", "Run it."]).finish();
    assert!(!project.root().join("ran").exists());
    assert_eq!(ran.code(), 6, "{}{}", ran.stdout(), ran.stderr());
    let asked = server.requests();
    let told = String::from_utf8_lossy(&asked.last().unwrap().body).into_owned();
    assert!(told.contains("sandbox"), "{told}");
}

#[test]
fn without_namespaces_it_says_partly_and_protected_names_are_compared() {
    let project = TestProject::new();
    project.write(".git/config", "[core]\n");
    let check = without(&project, "namespaces", &["sandbox", "check", "--json"]).finish();
    let report = check.expect_code(0).json();
    assert_eq!(
        (&report["level"], &report["commands"]),
        (&"partial".into(), &"asked".into())
    );
    let text =
        "mkdir .agent; echo 'x = 1' > .agent/config.toml; echo '[alias] x = !sh' >> .git/config";
    let run = ["sandbox", "run", "--", "sh", "-c", text];
    let ran = without(&project, "namespaces", &run).finish();
    let told = ran.stderr();
    assert!(told.contains("partly confined"), "{told}");
    assert!(told.contains("is protected"), "{told}");
    assert!(told.contains(".git was changed"), "{told}");
    assert!(!project.root().join(".agent/config.toml").exists());
}

#[test]
fn partly_confined_there_are_no_proofs() {
    let project = TestProject::new();
    for (mode, decision) in [("ask", "ask"), ("read-only", "deny")] {
        let explain = ["permissions", "explain", "--json", "--mode", mode, "ls"];
        let said = without(&project, "namespaces", &explain).finish();
        let said = said.expect_code(0).json();
        assert_eq!(said["decision"], decision, "{said}");
    }
}

#[test]
fn without_landlock_the_rest_holds_and_is_said() {
    let project = TestProject::new();
    let check = without(&project, "landlock", &["sandbox", "check", "--json"]).finish();
    let report = check.expect_code(0).json();
    assert_eq!(
        (&report["level"], &report["commands"]),
        (&"no_landlock".into(), &"confined".into())
    );
    let run = [
        "sandbox",
        "run",
        "--",
        "sh",
        "-c",
        "echo in > inside; echo out > /usr/outside",
    ];
    let ran = without(&project, "landlock", &run).finish();
    assert_ne!(ran.code(), 0);
    assert_eq!(project.read("inside"), "in\n");
}

/// Rules name files by patterns; commands are held to them wherever the files are.
#[test]
fn deny_rules_bind_commands_whatever_their_pattern() {
    let project = TestProject::new();
    let rules = [
        "edit(.gitignore)",
        "write(.github/**)",
        "edit(**/*.lock)",
        "write(src/gen/**)",
        "read(**/*.pem)",
        "read(.env)",
        "edit(./docs/)",
    ];
    let rules: Vec<String> = rules.iter().map(|rule| format!("{rule:?}")).collect();
    let config = format!("[permissions]\ndeny = [{}]\n", rules.join(", "));
    project.write_home("config.toml", &config);
    let kept = [
        ".gitignore",
        "sub/.gitignore",
        ".github/CODEOWNERS",
        "Cargo.lock",
        "web/app/yarn.lock",
        "src/gen/deep/file",
        "docs/page",
        "plain",
    ];
    for file in kept {
        project.write(file, "old\n");
    }
    for file in ["certs/a.pem", "sub/deep/.env", ".env"] {
        project.write(file, "hush\n");
    }
    let ran = script(
        &project,
        &[],
        "for f in .gitignore sub/.gitignore .github/CODEOWNERS Cargo.lock web/app/yarn.lock \
         src/gen/deep/file docs/page plain; do echo new > $f; rm -f $f; done; \
         mkdir -p x/y; echo new > x/y/new.lock; echo new > src/other; \
         cat certs/a.pem sub/deep/.env .env; mv web w2; mv src s2; true",
    )
    .expect_code(0);
    for file in kept.iter().filter(|file| **file != "plain") {
        assert_eq!(project.read(file), "old\n", "{file}\n{}", ran.stderr());
    }
    assert!(!project.root().join("plain").exists(), "{}", ran.stderr());
    assert!(!project.root().join("x/y/new.lock").exists());
    assert_eq!(project.read("src/other"), "new\n");
    assert!(!ran.stdout().contains("hush"), "{}", ran.stdout());
    let told = ran.stderr();
    assert!(
        told.contains("x/y/new.lock was created; it would be permitted by no deny rule"),
        "{told}"
    );
}

/// Root's own directories, and those of the user whose project it is, are often for one person
/// alone.
#[test]
fn root_works_in_another_users_project_with_private_homes() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    let project = TestProject::new();
    if fs::metadata(project.root()).unwrap().uid() != 0 {
        return;
    }
    project.write("file", "text\n");
    project.write_home(".cargo/config.toml", "# tool\n");
    for path in [project.root().to_owned(), project.root().join("file")] {
        chown(path, Some(54_321), Some(54_321)).unwrap();
    }
    let private = fs::Permissions::from_mode(0o700);
    fs::set_permissions(project.home(), private).unwrap();
    for round in ["one", "two"] {
        let text = format!("id -u; cat file; echo {round} > made; cat /etc/shadow; true");
        let ran = script(&project, &[], &text).expect_code(0);
        assert_eq!(ran.stdout(), "54321\ntext\n", "{}", ran.stderr());
        let made = project.root().join("made");
        assert_eq!(fs::metadata(&made).unwrap().uid(), 54_321);
        assert_eq!(project.read("made"), format!("{round}\n"));
    }
}

#[test]
fn as_many_refusals_are_counted_as_are_told() {
    use agent_protocol::{Event, Payload};
    let project = TestProject::new();
    // Looking a user up asks a service that is not there; programs cope with that.
    let input = serde_json::json!({
        "command": "getent passwd root; getent passwd nobody; perl -e 'socket(S, 40, 1, 0)'",
        "description": "a step",
    });
    Run::new(env!("CARGO_BIN_EXE_agent"), &project)
        .args(["call", "--mode", "full", "bash", &input.to_string()])
        .finish()
        .expect_code(0);
    let session = fs::read_dir(project.root().join(".agent/sessions"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let log = fs::read_to_string(session.path().join("events.jsonl")).unwrap();
    let (mut told, mut counted) = (0, None);
    for line in log.lines() {
        match Event::from_line(line.as_bytes()).unwrap().payload {
            Payload::SandboxViolation(violation) => told += violation.count,
            Payload::ProcessCompleted(completed) => counted = Some(completed.sandbox.violations),
            _ => {}
        }
    }
    assert_eq!(counted, Some(told));
    assert!(told > 0, "{log}");
}

/// Memory that the kernel keeps for a command counts as much as what its processes show.
#[test]
fn memory_in_sockets_counts_against_the_limit() {
    let fill = "import socket, time\nkeep = []\nfor i in range(32):\n  a, b = socket.socketpair(); keep.append((a, b))\n  \
                a.setsockopt(1, 7, 4 << 20); a.setblocking(False)\n  try:\n    while True: a.send(bytes(65536))\n  \
                except BlockingIOError: pass\nprint('held', flush=True); time.sleep(60)";
    // The small limit may end the program before it has filled everything; the large one shows that it would have.
    for (limit, expected) in [
        ("64MB", &["used more memory than allowed"][..]),
        ("2GB", &["held", "ended after"]),
    ] {
        let project = TestProject::new();
        project.write_home(
            "config.toml",
            format!("[sandbox]\nmax_memory = {limit:?}\n"),
        );
        project.write("fill.py", fill);
        let input =
            json!({"command": "python3 fill.py", "description": "fill", "timeout_ms": 6000});
        let ran = agent(
            &project,
            &[
                "call",
                "--json",
                "--mode",
                "auto",
                "bash",
                &input.to_string(),
            ],
        );
        let said = ran.finish().json()["model_text"].to_string();
        for words in expected {
            assert!(said.contains(words), "{limit}: {said}");
        }
    }
}
