//! Commands that run because they were proven only to read, in repositories made by somebody who hopes
//! that the proof is wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use agent_protocol::Payload;
use agent_protocol::payload::process::SandboxApplied;
use agent_test_support::project::TestProject;
use agent_test_support::run::{Run, RunOutput};
use serde_json::{Value, json};

use crate::agent;
use crate::permissions::explain_in;

const SECRET: &str = "hunter2-of-the-project";
/// The same in base64, as it leaves.
const IN_BASE64: &str = "aHVudGVyMi1vZi10aGUtcHJvamVjd";

fn sh(project: &TestProject, script: &str) {
    let ran = std::process::Command::new("sh")
        .args(["-ec", script])
        .current_dir(project.root())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{script}: {ran:?}");
}

/// A repository with a commit, a change, an ignored secret and a committed one.
fn repository() -> TestProject {
    let project = TestProject::new();
    project.write("a.txt", "one\n");
    project.write("src/b.rs", "fn b() {}\n");
    project.write("certs/test.pem", format!("{SECRET}-committed\n"));
    project.write(".gitignore", ".env\n.agent/\n");
    project.write(".env", format!("TOKEN={SECRET}\n"));
    sh(
        &project,
        "rm -rf .git; git init -q -b main .; git add .; git -c user.name=a -c user.email=a@b commit -qm first; \
         echo two >> a.txt; git -c user.name=a -c user.email=a@b commit -qam second; echo three >> a.txt",
    );
    project
}

/// A program that tells that it ran, in words that stand nowhere else, and what it can see.
fn program(project: &TestProject, name: &str) {
    let text = "#!/bin/sh\nprintf 'it-%s\\n' 'has-run' >&2\ncat .env >&2\nbase64 .env >&2\ntouch marker\ncat \"$@\"\n";
    project.write(name, text);
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(project.root().join(name), mode).unwrap();
}

fn call(project: &TestProject, mode: &str, command: &str) -> Run {
    let input = json!({"command": command, "description": "a test"}).to_string();
    agent(project, &["call", "--json", "--mode", mode, "bash", &input])
}

#[track_caller]
fn assert_harmless(project: &TestProject, ran: &RunOutput, what: &str) {
    let said = ran.stdout() + &ran.stderr();
    for told in ["it-has-run", &format!("TOKEN={SECRET}"), IN_BASE64] {
        assert!(!said.contains(told), "{what}: {told} in {said}");
    }
    assert!(!project.root().join("marker").exists(), "{what}");
}

/// The commands whose output a repository could get into its hands.
const READS: &[&str] = &[
    "git status",
    "git diff",
    "git log -p -2",
    "git show",
    "git grep -n one",
    "git blame a.txt",
];

#[test]
fn what_a_repository_names_is_not_run_by_proven_reads() {
    // Programs of the project, and programs of the system that are told to look at it.
    let ways = [
        "core.fsmonitor",
        "diff.external",
        "diff.x.textconv",
        "diff.x.command",
        "filter.x.clean",
        "filter.x.process",
        "core.pager",
        "pager.log",
        "core.sshCommand",
        "gpg.program",
    ];
    let shown = "sh -c 'printf it-%s has-run >&2; base64 .env >&2; cat' x";
    for way in ways {
        for value in ["./tool", shown] {
            let project = repository();
            program(&project, "tool");
            fs::write(
                project.root().join(".git/info/attributes"),
                "* diff=x filter=x\n",
            )
            .unwrap();
            sh(
                &project,
                &format!(
                    "git config {way} \"{value}\"; git config log.showSignature true; touch -d @1 src/b.rs"
                ),
            );
            for command in READS {
                let ran = call(&project, "ask", command).finish();
                assert_harmless(&project, &ran, &format!("{way} {value}: {command}"));
            }
        }
    }
}

/// What keeps git from them is in its environment.
#[test]
fn a_wrapper_does_not_take_away_what_holds_git() {
    let project = repository();
    let shown = "sh -c 'printf it-%s has-run >&2; base64 .env >&2' x";
    sh(
        &project,
        &format!("git config core.fsmonitor \"{shown}\"; touch -d @1 src/b.rs"),
    );
    for command in [
        "env -i git status",
        "env - git diff",
        "env -u GIT_CONFIG_COUNT git status",
        "nice env --unset=GIT_CONFIG_COUNT git log -p",
        "env git status",
    ] {
        let ran = call(&project, "ask", command).finish();
        assert_harmless(&project, &ran, command);
    }
}

/// Words for `cat` come from the search alone.
#[test]
fn names_from_elsewhere_show_nothing_outside() {
    let project = repository();
    project.write("list.txt", "/etc/passwd\n");
    project.write("etc/passwd.x", "x\n");
    for command in [
        "find src | xargs cat < list.txt",
        "find src | sort < list.txt | xargs cat",
        "find src | (xargs cat) < list.txt",
        "find src | tail list.txt | xargs cat",
        "find ./etc | xargs -d . cat",
        "git ls-files --format=/etc/passwd | xargs cat",
        "grep -lr --label=/etc/passwd x - src <<< x | xargs cat",
        "grep -rh -epasswd list.txt | xargs cat",
    ] {
        let ran = call(&project, "ask", command).finish();
        assert!(!ran.stdout().contains("root:x:0:"), "{command}");
    }
}

/// A toolchain in the project may be a link to a shell, which takes the sub-command for a script.
#[test]
fn a_toolchain_of_the_project_voids_the_proof() {
    let project = repository();
    for command in ["cargo metadata --no-deps", "cd src && rustc --version"] {
        assert_eq!(
            explain_in(&project, "ask", command)["decision"],
            "allow",
            "{command}"
        );
    }
    for (file, text) in [
        ("rust-toolchain.toml", "[toolchain]\npath = \"tc\"\n"),
        (".cargo/config.toml", "[build]\nrustc-wrapper = \"sh\"\n"),
    ] {
        let project = repository();
        project.write(file, text);
        for command in [
            "cargo metadata --no-deps",
            "cd src && rustc --version",
            "env cargo tree",
        ] {
            for (mode, decision) in [("ask", "ask"), ("read-only", "deny"), ("auto", "allow")] {
                let said = explain_in(&project, mode, command);
                assert_eq!(
                    said["decision"], decision,
                    "{file}, {mode}, {command}: {said}"
                );
            }
        }
        assert_eq!(explain_in(&project, "ask", "ls")["decision"], "allow");
    }
}

/// What no setting of ours can take back is asked about, wherever it is written.
#[test]
fn a_driver_that_a_repository_names_voids_the_proof() {
    let plain = repository();
    assert_eq!(explain_in(&plain, "ask", "git diff")["decision"], "allow");
    let ways = [
        "git config diff.x.textconv cat",
        "git config filter.x.clean cat",
        "git config diff.external cat",
        "printf '[diff \"x\"] command = cat\\n' > .git/more; git config include.path more",
        "git config extensions.worktreeConfig true; git config --worktree filter.x.process cat",
    ];
    for way in ways {
        let project = repository();
        sh(&project, way);
        let said = explain_in(&project, "ask", "cd src && git diff");
        assert_eq!(said["decision"], "ask", "{way}: {said}");
        assert!(
            said["reason"]
                .as_str()
                .unwrap()
                .contains("this repository configures"),
            "{said}"
        );
        assert_eq!(
            explain_in(&project, "read-only", "git diff")["decision"],
            "deny"
        );
        // Where somebody allows commands no proof is needed.
        assert_eq!(
            explain_in(&project, "auto", "git diff")["decision"],
            "allow"
        );
        assert_eq!(
            explain_in(&project, "ask", "git branch -a")["decision"],
            "allow"
        );
        assert_eq!(explain_in(&project, "ask", "ls")["decision"], "allow");
    }
}

/// Repositories that git enters although `.gitmodules` does not name them, or that a flag names.
#[test]
fn a_driver_of_a_repository_below_voids_the_proof() {
    let project = repository();
    sh(
        &project,
        "git init -q deep/n; cd deep/n; echo x > f; git add f; git -c user.name=a -c user.email=a@b commit -qm n; \
         git config filter.x.clean cat; cd ../..; ln -s deep/n link",
    );
    let asks = |command: &str| {
        let said = explain_in(&project, "ask", command);
        assert!(
            said["decision"] == "ask" || said["decision"] == "allow",
            "{said}"
        );
        said["decision"] == "ask"
    };
    for command in [
        "git -C deep/n show",
        "git -C deep -C n diff",
        "git -C deep/n/. log -p",
        "git -C link show",
        "cd deep && git -C n show",
        "cd link && git blame f",
    ] {
        assert!(asks(command), "{command}");
    }
    assert!(!asks("git status") && !asks("git diff"));
    sh(&project, "git add deep/n");
    assert!(asks("git status") && asks("git diff"));
}

#[test]
fn programs_of_the_project_are_not_found_and_not_executed() {
    for entry in [".venv/bin", ".", "", "node_modules/.bin"] {
        let project = repository();
        for name in ["ls", "cat", "git", "wc", "head"] {
            program(&project, &Path::new(entry).join(name).to_string_lossy());
        }
        let place = match entry {
            "." | "" => entry.into(),
            inside => project.root().join(inside),
        };
        let system = std::env::var("PATH").unwrap();
        let path = format!("{}:{system}", place.display());
        for command in ["ls", "cat a.txt", "git status", "wc -l a.txt | head -1"] {
            let ran = call(&project, "ask", command).env("PATH", &path).finish();
            assert_harmless(&project, &ran, &format!("{entry}: {command}"));
            assert_eq!(ran.code(), 0, "{}", ran.stdout());
        }
    }
    // A tool directory of the user may lead into the project; nothing is executed there all the same.
    let project = repository();
    program(&project, "bin/column");
    let tools = project.home().join("tools");
    fs::create_dir_all(&tools).unwrap();
    std::os::unix::fs::symlink(project.root().join("bin/column"), tools.join("column")).unwrap();
    let path = format!("{}:/usr/bin:/bin", tools.display());
    let ran = call(&project, "ask", "column a.txt")
        .env("PATH", path)
        .finish();
    assert_harmless(&project, &ran, "a link to the project");
}

/// Each of these is not what it seems. Whether the gate sees that or not, nothing comes of it.
#[test]
fn a_wrong_proof_shows_no_secret_and_runs_nothing() {
    let project = repository();
    program(&project, "0/ls");
    program(&project, "tool");
    for command in [
        "cat {'}',.env}",
        "base64 {'}',.env}",
        "cat $'\\456env'",
        "base64 $'\\456env'",
        "cat <&-.env",
        "cat .en[[:lower:]]",
        "find a.txt {x},-exec,./tool,\\;}",
        "find a.txt $'\\455exec' ./tool $'\\473'",
        "find a.txt {x},-exec,sh,-c,'base64 .env',\\;}",
        "printf %n PATH; ls",
        "grep .env -e TOKEN",
        "env cd src; cat ../.env",
        "echo a.txt -exec base64 .env ';' | xargs env find",
        "echo \"$(cat <<'E'\na\nE)\"\n./tool\nsh tool\nbase64 .env\necho \"$(cat <<'E'\na\nE\n)\"",
    ] {
        for mode in ["ask", "read-only"] {
            let ran = call(&project, mode, command).finish();
            assert_harmless(&project, &ran, command);
        }
    }
}

/// bash ends a document in a substitution at `E)`: what looks like text up to the second document is commands.
#[test]
fn a_document_that_ends_early_is_no_proof() {
    let project = repository();
    let document = "echo \"$(cat <<'E'\na\nE\n)\"";
    let proven = explain_in(&project, "ask", document);
    assert_eq!(proven["decision"], "allow", "{proven}");
    for end in ["E)", "E )", "E;)"] {
        let command = format!("echo \"$(cat <<'E'\na\n{end}\"\nsh tool\n{document}");
        for (mode, decision) in [("ask", "ask"), ("read-only", "deny")] {
            let said = explain_in(&project, mode, &command);
            assert_eq!(said["decision"], decision, "{end}: {said}");
        }
    }
}

/// The facts about the sandbox of the last command.
pub(crate) fn applied(project: &TestProject) -> SandboxApplied {
    let sessions = fs::read_dir(project.root().join(".agent/sessions")).unwrap();
    let last = sessions.map(|entry| entry.unwrap().path()).max().unwrap();
    let log = fs::read_to_string(last.join("events.jsonl")).unwrap();
    let events = log
        .lines()
        .map(|line| agent_protocol::Event::from_line(line.as_bytes()));
    let mut applied = events.filter_map(|event| match event.unwrap().payload {
        Payload::SandboxApplied(applied) => Some(applied),
        _ => None,
    });
    applied.next_back().unwrap()
}

#[test]
fn the_record_says_which_profile_held() {
    let project = repository();
    let layers = ["project_not_executable", "machine_hidden"];
    let held = |applied: &SandboxApplied| {
        let held = |layer: &&str| applied.layers.iter().any(|held| held.name == *layer);
        layers.iter().filter(|layer| held(layer)).count()
    };
    let holds = |applied: &SandboxApplied| held(applied) == layers.len();
    let _ = call(&project, "ask", "git status").finish().expect_code(0);
    let proof = applied(&project);
    assert_eq!(proof.profile_id, "proof");
    assert!(holds(&proof), "{:?}", proof.layers);
    assert!(proof.hidden.iter().any(|path| path.ends_with("/.env")));
    assert_eq!(proof.network, "off");
    assert!(proof.process_limits.timeout_ms.unwrap() <= 120_000);
    assert!(proof.write_roots.is_empty(), "{:?}", proof.write_roots);
    // An edit that a mode accepts can be written, and nothing more is different.
    let _ = call(&project, "accept-edits", "head -1 a.txt > top.txt")
        .finish()
        .expect_code(0);
    let edits = applied(&project);
    assert_eq!(edits.profile_id, "proof+edits");
    assert!(holds(&edits), "{:?}", edits.layers);
    assert_eq!(project.read("top.txt"), "one\n");
    let _ = call(&project, "auto", "git status").finish().expect_code(0);
    let allowed = applied(&project);
    assert_eq!(allowed.profile_id, "read-only");
    assert_eq!(held(&allowed), 0, "{:?}", allowed.layers);
}

/// Output of everyday commands as it would be if somebody had allowed them.
#[test]
fn everyday_reads_say_what_they_always_said() {
    let project = repository();
    sh(
        &project,
        "mkdir -p web; echo 'registry=x' > .npmrc; echo A=1 > web/.env.test; git add -f .npmrc web; \
         git -c user.name=a -c user.email=a@b commit -qm third; touch -d '2020-01-02' .npmrc; \
         git update-index -q --refresh || true; echo new > untracked.txt; git tag v1",
    );
    let text = |ran: &RunOutput| -> String {
        let said: Value = serde_json::from_str(ran.stdout().trim()).unwrap();
        said["model_text"].as_str().unwrap().to_owned()
    };
    for command in [
        "git status",
        "git status --porcelain -uall",
        "git diff",
        "git diff HEAD~1 --stat",
        "git log -p --all",
        "git log --oneline --graph --decorate",
        "git show --stat",
        "git grep -n one",
        "git blame src/b.rs",
        "git ls-files -m",
        "git branch -a && git tag && git rev-parse HEAD",
        "cat a.txt src/b.rs",
        "ls src web",
        "find . -name '*.rs' -type f",
        "grep -rn one src a.txt | head -5",
        "wc -l a.txt && sort a.txt | uniq -c",
        "sed -n 1,2p a.txt; awk '{print $1}' a.txt",
        "diff a.txt src/b.rs; stat -c %n a.txt; file a.txt; du -s src; pwd; which git",
    ] {
        let (proven, allowed) = (
            call(&project, "ask", command),
            call(&project, "auto", command),
        );
        let (proven, allowed) = (proven.finish(), allowed.finish());
        assert_eq!(text(&proven), text(&allowed), "{command}");
    }
}

/// A rule that spells a secret's name out lets it be read by that name, and by no other way.
#[test]
fn a_secret_that_a_rule_names_is_read() {
    let project = repository();
    project.write_home("config.toml", "[permissions]\nallow = [\"read(.env)\"]\n");
    let ran = call(&project, "ask", "head -c 6 .env")
        .finish()
        .expect_code(0);
    assert!(ran.stdout().contains("TOKEN="), "{}", ran.stdout());
    assert_eq!(applied(&project).profile_id, "proof");
}

/// Outside the project nothing makes secrets look empty, so a search that would come across one is asked about.
#[test]
fn a_secret_in_a_directory_that_a_rule_opens_is_asked_about() {
    let project = repository();
    project.write_home(
        "config.toml",
        "[permissions]\nallow = [\"read(~/notes)\"]\n",
    );
    project.write_home("notes/a.txt", "hello\n");
    let notes = project.home().join("notes");
    let notes = notes.display();
    let searches = [
        format!("grep -r . {notes}"),
        format!("cd {notes} && grep -r ."),
        format!("find {notes} -type f | xargs cat"),
        format!("find {notes} -type f -exec cat {{}} +"),
        format!("diff -r {notes} src"),
    ];
    for search in &searches {
        let said = explain_in(&project, "ask", search);
        assert_eq!(said["decision"], "allow", "{search}: {said}");
    }
    project.write_home("notes/.env", format!("TOKEN={SECRET}\n"));
    for search in &searches {
        let said = explain_in(&project, "ask", search);
        assert_eq!(said["decision"], "ask", "{search}: {said}");
        assert_harmless(&project, &call(&project, "ask", search).finish(), search);
    }
}

/// An empty file is a fact to a model; that it only looks empty is one too.
#[test]
fn what_only_looks_empty_is_said_to() {
    let project = repository();
    let ran = call(&project, "ask", "ls -l .env; wc -c .env")
        .finish()
        .expect_code(0);
    assert!(
        ran.stdout().contains("looks empty to this command"),
        "{}",
        ran.stdout()
    );
    let ran = call(&project, "ask", "ls -l").finish().expect_code(0);
    assert!(!ran.stdout().contains("looks empty"), "{}", ran.stdout());
}

#[test]
fn without_the_whole_sandbox_there_are_no_proofs() {
    let project = repository();
    project.write_home("config.toml", "sandbox = \"off\"\n");
    for command in ["ls", "cat a.txt", "git status", "true"] {
        for (mode, decision) in [("ask", "ask"), ("read-only", "deny"), ("full", "allow")] {
            let said = explain_in(&project, mode, command);
            assert_eq!(said["decision"], decision, "{mode} {command}: {said}");
        }
    }
    let said = explain_in(&project, "read-only", "ls")["reason"].to_string();
    assert!(said.contains("full sandbox"), "{said}");
}

/// Keys, settings and state are nobody's to read, wherever they lie and whoever allowed the command.
#[test]
fn what_is_the_agents_own_is_hidden_wherever_it_lies() {
    let project = repository();
    let elsewhere = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let own = fs::canonicalize(elsewhere.path()).unwrap();
    let key = own.join("keys/provider.txt");
    fs::create_dir_all(own.join("keys")).unwrap();
    fs::create_dir_all(own.join("state")).unwrap();
    fs::write(&key, "the-key-itself").unwrap();
    fs::write(own.join("state/redaction_key"), "0123456789abcdef-masks\n").unwrap();
    fs::write(own.join("beside.txt"), "not secret").unwrap();
    let config = format!(
        "[providers.local]\ndialect = \"openai-chat\"\nbase_url = \"http://127.0.0.1:9\"\napi_key_file = {:?}\nheaders = {{ x-own = \"value-of-header\" }}\n",
        key.display().to_string()
    );
    fs::write(own.join("config.toml"), config).unwrap();
    let place = own.display();
    // Below the home directory everything is hidden, also what is no secret.
    let home = std::env::home_dir().and_then(|home| fs::canonicalize(home).ok());
    // A command has temporary directories of its own.
    let is_temporary = ["/tmp", "/var/tmp"]
        .iter()
        .any(|place| own.starts_with(place));
    let is_shown = !is_temporary && !home.is_some_and(|home| own.starts_with(home));
    for mode in ["auto", "full"] {
        let command = format!(
            "rev {place}/keys/provider.txt; rev {place}/config.toml; rev {place}/state/redaction_key; ls {place}/state; rev {place}/beside.txt; true"
        );
        let ran = call(&project, mode, &command)
            .env("AGENT_HOME", &own)
            .finish();
        let said = ran.stdout();
        for secret in [
            "the-key-itself",
            "value-of-header",
            "0123456789abcdef-masks",
        ] {
            let backwards: String = secret.chars().rev().collect();
            assert!(!said.contains(&backwards), "{secret}: {said}");
        }
        assert!(!said.contains("runtime_id"), "{said}");
        assert_eq!(said.contains("terces ton"), is_shown, "{said}");
    }
}
