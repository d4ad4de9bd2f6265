//! Links that are swapped between the decision and the run: a command that runs because it was proven only
//! to read finds nothing there that it may not read.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use agent_test_support::project::TestProject;
use agent_test_support::run::RunOutput;
use serde_json::json;

use crate::agent;
use crate::permissions::explain_in;

const MARK: &str = "the work of somebody else";

/// A file of another project, beside which nothing is a secret.
fn neighbour() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = fs::canonicalize(folder.path()).unwrap().join("file.txt");
    fs::write(&file, format!("{MARK}\n")).unwrap();
    (folder, file)
}

/// A project whose `wait` can be opened only once somebody writes to it, with two links into the project.
fn project() -> TestProject {
    let project = TestProject::new();
    project.write("inside/file.txt", "its own\n");
    symlink("inside/file.txt", project.root().join("link.txt")).unwrap();
    symlink("inside", project.root().join("dir")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        project.root().join("wait"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    project
}

/// Calls bash and has both links lead to `file` as soon as the command reads `wait`.
fn swapped_while_it_runs(
    project: &TestProject,
    mode: &str,
    command: &str,
    file: &Path,
) -> RunOutput {
    let (root, over) = (project.root(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut options = fs::File::options();
            let at_once = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
            options.write(true).custom_flags(at_once);
            let mut waiting = loop {
                match options.open(root.join("wait")) {
                    Ok(waiting) => break waiting,
                    // Nobody reads yet.
                    Err(_) if !over.load(Ordering::Relaxed) => std::thread::yield_now(),
                    Err(_) => return,
                }
            };
            for (name, target) in [("link.txt", file), ("dir", file.parent().unwrap())] {
                symlink(target, root.join("new")).unwrap();
                fs::rename(root.join("new"), root.join(name)).unwrap();
            }
            writeln!(waiting, "go on").unwrap();
        });
        let input = json!({"command": command, "description": "a test"}).to_string();
        let ran = agent(project, &["call", "--json", "--mode", mode, "bash", &input]).finish();
        over.store(true, Ordering::Relaxed);
        ran
    })
}

const READS: [&str; 8] = [
    "cat wait link.txt",
    "cat wait dir/file.txt",
    "cat wait; head -n 3 link.txt",
    "cat wait && grep -rh . dir/",
    "sed -n p wait link.txt",
    "awk 1 wait dir/file.txt",
    "cat wait; wc -c < link.txt; cat < link.txt",
    "cat wait; base64 link.txt | base64 -d",
];

#[test]
fn a_link_swapped_after_the_decision_leads_nowhere() {
    let (_folder, file) = neighbour();
    for command in READS {
        for mode in ["ask", "read-only"] {
            let project = project();
            let ran = swapped_while_it_runs(&project, mode, command, &file);
            let said = ran.stdout();
            assert!(said.contains("go on"), "{mode} {command}: {said}");
            assert!(!said.contains(MARK), "{mode} {command}: {said}");
        }
    }
    // Somebody who allows commands lets them read what the sandbox shows.
    let project = project();
    let ran = swapped_while_it_runs(&project, "auto", READS[0], &file);
    // A home directory is hidden from it too, and a temporary directory is its own.
    let below_home = std::env::home_dir().is_some_and(|home| file.starts_with(home));
    let is_temporary = ["/tmp", "/var/tmp"]
        .iter()
        .any(|place| file.starts_with(place));
    let is_shown = !below_home && !is_temporary;
    assert_eq!(ran.stdout().contains(MARK), is_shown, "{}", ran.stdout());
}

/// Settings of the machine that no program needs to start, and what is kept in `/var`.
#[test]
fn what_no_program_needs_of_the_machine_is_not_there() {
    for file in [
        "/etc/hosts",
        "/etc/fstab",
        "/etc/login.defs",
        "/var/lib/dpkg/lock",
        "/var/log/dpkg.log",
    ] {
        let text = fs::read_to_string(file).unwrap_or_default();
        let Some(line) = text.lines().find(|line| line.len() > 8) else {
            continue;
        };
        let project = project();
        let ran = swapped_while_it_runs(&project, "ask", READS[0], Path::new(file));
        let said = ran.json()["model_text"].as_str().unwrap().to_owned();
        assert!(said.contains("go on"), "{file}: {said}");
        assert!(!said.contains(line.trim()), "{file}: {said}");
    }
}

/// What a rule opens is there, wherever it lies, and nothing beside it.
#[test]
fn what_a_rule_opens_is_read_and_nothing_beside_it() {
    let (_folder, file) = neighbour();
    let beside = file.with_file_name("beside.txt");
    fs::write(&beside, "beside the work").unwrap();
    let project = project();
    let rule = format!("[permissions]\nallow = [\"read({})\"]\n", file.display());
    project.write_home("config.toml", rule);
    let command = format!("cat wait {}; cat link.txt", file.display());
    assert_eq!(explain_in(&project, "ask", &command)["decision"], "allow");
    let ran = swapped_while_it_runs(&project, "ask", &command, &beside);
    let said = ran.stdout();
    assert!(said.contains(MARK), "{said}");
    assert!(!said.contains("beside the work"), "{said}");
}

/// Programs start and say who they are as they do when somebody allowed it.
#[test]
fn programs_find_what_they_need() {
    let project = project();
    fs::remove_file(project.root().join("wait")).unwrap();
    let said = |mode: &str, command: &str| {
        let input = json!({"command": command, "description": "a test"}).to_string();
        let call = ["call", "--json", "--mode", mode, "bash", &input];
        let ran = agent(&project, &call).finish();
        ran.json()["model_text"].as_str().unwrap().to_owned()
    };
    for command in [
        "git --version; git status; git config --list --system",
        "python3 --version; node --version; perl --version; ruby --version; php --version",
        "cargo --version; rustc --version; rustup --version; go version",
        "gcc --version; make --version; cmake --version; clang --version",
        "npm --version; pip --version; gem --version; dotnet --list-sdks",
        "id; whoami; groups; ls -l inside; stat inside; which awk sed git",
        "date +%Y; locale; uname -a; nproc; lscpu; getconf PAGESIZE",
        "file inside/file.txt; openssl version; sqlite3 --version; curl --version",
        "awk 'BEGIN { print 1 }'; printf x | sort | uniq -c; seq 3 | column; iconv -l",
        "dpkg -l bash; dpkg-query -W bash",
        "psql --version; vim --version; gdb --version; tmux -V; mysql --version; redis-cli --version",
        "printf 'é' | wc -m; echo text | base64 | rev; rg --version; fd --version",
    ] {
        assert_eq!(
            explain_in(&project, "ask", command)["decision"],
            "allow",
            "{command}"
        );
        assert_eq!(said("ask", command), said("auto", command), "{command}");
    }
}
