//! Every command that was proven to read is run, and watched: it must write nothing, start nothing that
//! is not in the table and open no socket.
//!
//! Programs that are on the list only inside the sandbox (git, build tools) are watched as it holds them: with
//! the project and their own homes mounted read-only. They may make a cache in the throw-away home directory
//! that the sandbox gives them, and look at the interfaces of a network that is not there, but neither write in
//! the project nor connect.
//!
//! With strace every system call is looked at. Without it (`AGENT_REQUIRE_STRACE` unset) the files of the
//! project and of the home directory are compared before and after, which is weaker and says so.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "the test says which command did what"
)]

mod flags;
#[path = "../gate_support/mod.rs"]
mod gate_support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_policy::Workspace;
use agent_policy::gate::{DiskFacts, Gate, GateRequest, SandboxLevel, Setting};
use agent_policy::shell::prove::{program_names, prove};
use agent_policy::shell::{Start, analyse};
use agent_protocol::payload::permission::Effect;
use agent_protocol::status::Mode;
use agent_test_support::trace::CHANGING;
use gate_support::cases;
use serde_json::json;

/// Started to start what a script names: shells, and wrappers of the table.
const ALSO_STARTED: &[&str] = &[
    "bash", "env", "timeout", "nice", "xargs", "stdbuf", "ionice", "sh", "dash",
];
/// Started by one program of the table as part of reading: the script behind npm, a part of git, and how `cargo version
/// --verbose` learns the system's name.
const STARTED_BY: &[(&str, &[&str])] = &[
    ("cargo", &["lsb_release", "getopt"]),
    ("git", &["git-submodule"]),
    ("npm", &["npm-cli.js"]),
];

struct Scratch {
    _directory: tempfile::TempDir,
    root: PathBuf,
    project: PathBuf,
    home: PathBuf,
}

fn scratch() -> Scratch {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let project = root.join("shop");
    let home = root.join("home");
    for sub in [
        "src",
        "crates/cli/src",
        "docs",
        "certs",
        "web",
        "old",
        "new",
        ".github/workflows",
        "target",
    ] {
        std::fs::create_dir_all(project.join(sub)).unwrap();
    }
    std::fs::create_dir_all(&home).unwrap();
    for (name, content) in [
        ("a.rs", "fn main() {}\n// TODO\n"),
        ("b.rs", "x\n"),
        ("a.toml", "version = \"1\"\n"),
        ("b.toml", "x = 1\n"),
        ("a", "1\n2\n"),
        ("b", "1\n3\n"),
        ("a.txt", "foo bar\n"),
        ("a.csv", "a,b\n"),
        ("n.txt", "1\n2\n"),
        ("users.txt", "a:b:c\n"),
        ("list.txt", "b:2\na:1\nb:2\n"),
        ("a.bin", "\u{1}version\u{0}"),
        ("b.bin", "x"),
        ("notes.md", "$(date)\n"),
        ("menu.txt", "price: $5\n"),
        ("README.md", "# shop\n"),
        ("build.log", "error: x\n"),
        (
            "package.json",
            "{\"name\":\"shop\",\"version\":\"1.0.0\",\"scripts\":{\"test\":\"x\"},\"dependencies\":{}}",
        ),
        (
            "package-lock.json",
            "{\"name\":\"shop\",\"version\":\"1.0.0\",\"lockfileVersion\":3,\"packages\":{}}",
        ),
        (
            "Cargo.toml",
            "[package]\nname = \"shop\"\nversion = \"1.0.0\"\nedition = \"2021\"\n[workspace]\n",
        ),
        (
            "Cargo.lock",
            "version = 4\n\n[[package]]\nname = \"shop\"\nversion = \"1.0.0\"\n",
        ),
        ("src/lib.rs", "use std::fs;\n"),
        ("src/main.rs", "fn main() {\n}\n"),
        ("src/a.rs", "// a\n"),
        ("src/b.rs", "// b\n"),
        ("crates/cli/Cargo.toml", "x\n"),
        ("crates/cli/src/main.rs", "x\n"),
    ] {
        std::fs::write(project.join(name), content).unwrap();
    }
    for arguments in [
        &["init", "-q", "-b", "main"][..],
        &["add", "."],
        &[
            "-c",
            "user.name=u",
            "-c",
            "user.email=u@example.invalid",
            "commit",
            "-q",
            "-m",
            "one",
        ],
        &[
            "-c",
            "user.name=u",
            "-c",
            "user.email=u@example.invalid",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "two",
        ],
        &["branch", "feature"],
    ] {
        let status = command("git", &project, &home)
            .args(arguments)
            .status()
            .unwrap();
        assert!(status.success(), "git {arguments:?}");
    }
    Scratch {
        _directory: directory,
        root,
        project,
        home,
    }
}

/// A program with the kind of environment commands get: nothing of the user's.
fn command(program: &str, directory: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(directory)
        .env_clear()
        .env("PATH", system_path())
        .env("HOME", home)
        .env("LANG", "C.UTF-8")
        .env("TERM", "dumb")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_PAGER", "cat")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("npm_config_logs_max", "0")
        .env("npm_config_update_notifier", "false")
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .env("PIP_NO_CACHE_DIR", "1")
        .env("CARGO_NET_OFFLINE", "true")
        .stdin(Stdio::null());
    // Toolchains that live in a home directory are found through these.
    for name in ["RUSTUP_HOME", "CARGO_HOME"] {
        let default = std::env::var_os("HOME").map(|home| {
            Path::new(&home).join(match name {
                "RUSTUP_HOME" => ".rustup",
                _ => ".cargo",
            })
        });
        let place = std::env::var_os(name).map(PathBuf::from).or(default);
        if let Some(place) = place.filter(|place| place.exists()) {
            command.env(name, place);
        }
    }
    command
}

/// The system's programs and cargo's, without the shims of version managers, which are scripts.
fn system_path() -> std::ffi::OsString {
    let given = std::env::var_os("PATH").unwrap_or_default();
    let kept = std::env::split_paths(&given).filter(|directory| {
        directory.starts_with("/usr")
            || directory.starts_with("/bin")
            || directory.ends_with(".cargo/bin")
    });
    std::env::join_paths(kept).unwrap()
}

/// Whether the gate proves it.
fn proven(subject: &str, project: &Path, home: &Path) -> bool {
    let workspace = Workspace {
        root: project.to_owned(),
        extra_roots: Vec::new(),
    };
    let input = json!({"command": subject});
    let bash = gate_support::tool("bash");
    let semantics = bash.semantics(&input, &workspace).unwrap();
    let evaluated = Gate::default()
        .evaluate(
            &GateRequest {
                tool: &bash,
                input: &input,
                semantics: &semantics,
            },
            &Setting {
                workspace: &workspace,
                home,
                mode: Mode::Ask,
                sandbox: SandboxLevel::Full,
                turn: "turn",
                hooks: &[],
                timeout_ms: None,
                output_limit: None,
            },
            &DiskFacts { dirty: || None },
        )
        .evaluated;
    evaluated.decision == Effect::Allow && evaluated.parse.is_some_and(|parse| parse.read_only)
}

/// Whether it is on the list only because a sandbox holds it.
fn needs_sandbox(subject: &str, project: &Path, home: &Path) -> bool {
    let start = Start {
        directory: project.to_owned(),
        home: home.to_owned(),
        is_directory: &|path| Some(path.is_dir()),
    };
    let proof = prove(&analyse(subject, &start), &mut |_| false);
    !proof.is_ok_and(|proof| !proof.needs_sandbox)
}

/// Whether strace is here and may watch, in a mount namespace of its own where needed.
fn can_trace() -> bool {
    let succeeds = |program: &str, arguments: &[&str]| {
        Command::new(program)
            .args(arguments)
            .status()
            .is_ok_and(|status| status.success())
    };
    let works = succeeds("strace", &["-o", "/dev/null", "true"])
        && succeeds("unshare", &["--user", "--map-root-user", "--mount", "true"]);
    assert!(
        works || std::env::var_os("AGENT_REQUIRE_STRACE").is_none(),
        "strace and unshare are required here and do not work"
    );
    works
}

/// Mounts the project and the toolchains' homes read-only, as the sandbox does for what only reads, and
/// goes on with the command behind it.
const READ_ONLY: &str = r#"
for directory in "$PWD" "$CARGO_HOME" "$RUSTUP_HOME"; do
    if [ -n "$directory" ]; then
        mount --bind "$directory" "$directory" && mount -o remount,bind,ro "$directory" || exit 125
    fi
done
cd "$PWD" && exec "$@"
"#;

fn watched(subject: &str, scratch: &Scratch, sandboxed: bool) -> Vec<String> {
    let (ended, text) = trace(subject, scratch, sandboxed, 60);
    assert!(ended, "{subject}: did not end");
    complaints(subject, &text, scratch, sandboxed)
}

fn complaints(subject: &str, text: &str, scratch: &Scratch, sandboxed: bool) -> Vec<String> {
    let words: Vec<&str> = subject
        .split(|c: char| !c.is_ascii_alphanumeric())
        .collect();
    let own = STARTED_BY
        .iter()
        .filter(|(program, _)| words.contains(program));
    let names: Vec<&str> = program_names()
        .chain(ALSO_STARTED.iter().copied())
        .chain(own.flat_map(|(_, started)| started.iter().copied()))
        .collect();
    text.lines()
        .filter_map(|line| complaint(line, &names, sandboxed, &scratch.home))
        .collect()
}

/// The system calls of a command, and whether it ended by itself within the time.
fn trace(subject: &str, scratch: &Scratch, sandboxed: bool, seconds: u32) -> (bool, String) {
    // Several are watched at once.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let log = scratch.root.join(format!("trace{number}"));
    let mut watching = if sandboxed {
        let mut held = command("unshare", &scratch.project, &scratch.home);
        held.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        held.args([READ_ONLY, "sh", "strace"]);
        held
    } else {
        command("strace", &scratch.project, &scratch.home)
    };
    let status = watching
        .args(["-f", "--seccomp-bpf", "-qq", "-s", "300", "-e"])
        .arg(format!(
            "trace=execve,open,openat,openat2,socket,connect,?{}",
            CHANGING.join(",?")
        ))
        .arg("-o")
        .arg(&log)
        .args([
            "timeout",
            &seconds.to_string(),
            "bash",
            "--noprofile",
            "--norc",
            "-c",
            subject,
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(
        !sandboxed || status.code() != Some(125),
        "{subject}: nothing could be mounted"
    );
    let text = String::from_utf8_lossy(&std::fs::read(&log).unwrap()).into_owned();
    let _ = std::fs::remove_file(&log);
    (status.code().is_some_and(|code| code != 124), text)
}

fn complaint(line: &str, names: &[&str], sandboxed: bool, home: &Path) -> Option<String> {
    let call = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
    let (name, rest) = call.split_once('(')?;
    let failed = rest.contains(" = -1 ");
    let path = rest.split('"').nth(1).unwrap_or_default();
    let in_own_home = sandboxed && Path::new(path).starts_with(home);
    if in_own_home && name != "execve" {
        return None;
    }
    match name {
        "execve" => {
            let program = path.rsplit('/').next().unwrap_or(path);
            // Parts of git and of compilers live in directories of their own.
            let is_part = path.contains("/git-core/")
                || path.contains("/libexec/gcc/")
                || path.contains("/lib/gcc/");
            (!failed && !names.contains(&program) && !is_part).then(|| format!("started {path}"))
        }
        "open" | "openat" | "openat2" => {
            let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"]
                .iter()
                .any(|flag| rest.contains(flag));
            (writes && !failed && !matches!(path, "/dev/null" | "/dev/tty"))
                .then(|| format!("opened {path} for writing"))
        }
        "socket" => {
            // The C library looks for a name cache over a UNIX socket; `connect` tells if it is another.
            let harmless = rest.starts_with("AF_UNIX")
                || (sandboxed && rest.starts_with("AF_NETLINK"))
                || (sandboxed && rest.starts_with("AF_INET"));
            (!failed && !harmless).then(|| format!("opened a socket: {rest}"))
        }
        "connect" => (!failed && !rest.contains("nscd")).then(|| format!("connected: {rest}")),
        name if CHANGING.contains(&name) => (!failed).then(|| format!("called {name} on {path}")),
        _ => None,
    }
}

fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                found.insert(path.clone(), Vec::new());
                open.push(path);
            } else {
                found.insert(path.clone(), std::fs::read(&path).unwrap_or_default());
            }
        }
    }
    found
}

/// Runs one command, and says what it did that reading is not.
fn run(subject: &str, scratch: &Scratch, traced: bool) -> Option<String> {
    if traced {
        let sandboxed = needs_sandbox(subject, &scratch.project, &scratch.home);
        let complaints = watched(subject, scratch, sandboxed);
        return (!complaints.is_empty()).then(|| format!("{subject}: {}", complaints.join("; ")));
    }
    command("timeout", &scratch.project, &scratch.home)
        .args(["60", "bash", "--noprofile", "--norc", "-c", subject])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    None
}

#[test]
fn what_is_proven_to_read_only_reads() {
    let scratch = scratch();
    let traced = can_trace();
    let mut subjects: Vec<String> = cases()
        .into_iter()
        .filter(|case| case.tool == "bash" && case.expect == "allow" && case.cwd.is_none())
        .map(|case| case.subject)
        .filter(|subject| proven(subject, &scratch.project, &scratch.home))
        .collect();
    subjects.sort();
    subjects.dedup();
    assert!(subjects.len() >= 150, "only {} proven", subjects.len());
    let before = files(&scratch.project);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut wrong = Vec::new();
        while let Some(subject) = subjects.get(next.fetch_add(1, Ordering::Relaxed)) {
            wrong.extend(run(subject, &scratch, traced));
        }
        wrong
    };
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get().min(4));
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let after = files(&scratch.project);
    let changed: Vec<&PathBuf> = before
        .iter()
        .filter(|(path, content)| after.get(*path) != Some(*content))
        .map(|(path, _)| path)
        .chain(after.keys().filter(|path| !before.contains_key(*path)))
        .collect();
    assert!(changed.is_empty(), "changed: {changed:?}");
    if !traced {
        eprintln!("strace is not here: only files were compared");
    }
}

/// The watcher itself has to see what it is there for.
#[test]
fn the_watcher_sees_writes_programs_and_sockets() {
    if !can_trace() {
        eprintln!("strace is not here: nothing to check");
        return;
    }
    let scratch = scratch();
    for (subject, expected) in [
        ("echo x > out", "opened out for writing"),
        ("touch out2", "opened out2 for writing"),
        ("mkdir d", "called mkdir on d"),
        ("rm a", "called unlinkat on a"),
        (
            "python3 -c 'import socket; socket.socket()'",
            "opened a socket",
        ),
        ("cp --help", "started"),
    ] {
        let complaints = watched(subject, &scratch, false).join("; ");
        assert!(complaints.contains(expected), "{subject}: {complaints}");
    }
    // Held as by the sandbox, the same write fails and is none.
    for (subject, refused) in [("touch out3", true), ("touch ~/out3 ../out3", false)] {
        let complaints = watched(subject, &scratch, true).join("; ");
        assert_eq!(
            !complaints.contains("for writing"),
            refused,
            "{subject}: {complaints}"
        );
    }
    assert!(!scratch.project.join("out3").exists());
}
