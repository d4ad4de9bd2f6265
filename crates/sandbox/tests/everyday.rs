//! Ordinary work that has to succeed inside as it does outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot set itself up should stop there"
)]

mod list;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use agent_sandbox::{
    Command, Detection, ExitStatus, Finished, Network, Policy, Sandbox, WriteAccess, environment,
    probe, tool_dirs,
};

struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work", "session", "tmp"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.at("work").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// As the agent would set it up: the real home hidden, its tools put back.
    fn policy(&self, script: &str) -> Policy {
        let command = Command::Shell(script.as_bytes().to_vec());
        let mut policy = Policy::new(
            &self.at("work"),
            &self.at("session"),
            &self.at("tmp"),
            command,
        );
        policy.names = list::names();
        let host: Vec<_> = std::env::vars_os().collect();
        let variable = |name: &str| {
            host.iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.clone())
        };
        let mut set = Vec::new();
        if let Some(home) = variable("HOME").map(PathBuf::from) {
            let path = variable("PATH").unwrap_or_default();
            let tools = tool_dirs::find(&home, &path, &variable, &[]);
            policy.readable = tools.readable;
            policy.hidden = tools.hidden;
            set = tools.environment;
            policy.home = Some(home);
        }
        for name in [
            "GIT_AUTHOR_NAME",
            "GIT_AUTHOR_EMAIL",
            "GIT_COMMITTER_NAME",
            "GIT_COMMITTER_EMAIL",
        ] {
            set.push((name.into(), "a@example.org".into()));
        }
        policy.environment = environment::build(&host, &[], &set);
        policy.limits.free_disk = None;
        policy
    }

    fn run(&self, policy: &Policy) -> (Finished, String) {
        self.run_with(policy, &Sandbox::of(probe(self.folder.path())))
    }

    fn run_with(&self, policy: &Policy, sandbox: &Sandbox) -> (Finished, String) {
        let output = Arc::new(Mutex::new(Vec::new()));
        let copy = Arc::clone(&output);
        let sink = move |_, bytes: &[u8]| {
            let mut kept = copy.lock().unwrap();
            if kept.len() < 1 << 20 {
                kept.extend_from_slice(bytes);
            }
        };
        let running = sandbox.spawn(policy, Box::new(sink)).unwrap();
        let finished = running.wait(None, None);
        let text = String::from_utf8_lossy(&output.lock().unwrap()).into_owned();
        (finished, text)
    }

    #[track_caller]
    fn check(&self, script: &str, expected: &str) {
        let (finished, text) = self.run(&self.policy(script));
        assert_eq!(finished.status, ExitStatus::Code(0), "{script}\n{text}");
        assert!(text.contains(expected), "{script}\n{text}");
    }

    /// Runs outside, to prepare a fixture.
    fn outside(&self, script: &str) {
        let done = std::process::Command::new("bash")
            .args(["-c", script])
            .current_dir(self.at("work"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .status()
            .unwrap();
        assert!(done.success(), "{script}");
    }
}

#[test]
fn shells_pipes_and_temporary_files() {
    let fixture = Fixture::new();
    fixture.check("printf 'b\\na\\n' | sort | tr a-z A-Z", "A\nB\n");
    fixture.check(
        "(cd /tmp && pwd); x=$(mktemp) && echo hello > $x && cat $x",
        "hello",
    );
    fixture.check("cat <(echo one) <(echo two)", "one\ntwo");
    fixture.check(
        "echo to-null > /dev/null; head -c 4 /dev/zero | od -An -tx1; test -r /dev/urandom",
        "00 00 00 00",
    );
    fixture.check(
        "mkdir -p a/b && echo x > a/b/c && mv a d && find d -type f",
        "d/b/c",
    );
    fixture.check("cd; pwd; test -w . && echo own home", "own home");
    fixture.check("ulimit -a > /dev/null; id > /dev/null; date > /dev/null; nproc > /dev/null; df . > /dev/null; echo fine", "fine");
    assert!(fixture.at("work/d/b/c").exists());
}

#[test]
fn files_keep_their_owner() {
    let fixture = Fixture::new();
    fixture.check("touch new; mkdir folder", "");
    let owner = std::fs::metadata(fixture.at("work")).unwrap().uid();
    assert_eq!(
        std::fs::metadata(fixture.at("work/new")).unwrap().uid(),
        owner
    );
}

#[test]
fn python_node_and_make() {
    let fixture = Fixture::new();
    fixture.write("Makefile", "all: out\nout: in\n\tcp in out\n");
    fixture.write("in", "made\n");
    fixture.check("make -j2 && cat out", "made");
    fixture.check("python3 -c 'import subprocess,threading,tempfile,multiprocessing as m; print(sum(m.Pool(2).map(abs,[-1,-2])))'", "3");
    fixture.check(
        "python3 -m venv --without-pip v && v/bin/python -c 'print(40+2)'",
        "42",
    );
    fixture.check(
        "python3 -c 'import pty; pty.spawn([\"echo\",\"terminal\"])'",
        "terminal",
    );
    if Path::new("/usr/bin/node").exists() {
        fixture.check("node -e 'require(\"child_process\").exec(\"echo child\",(e,o)=>console.log(o,require(\"fs\").readdirSync(\".\").length>0))'", "child");
        fixture.check("node -e 'const w=require(\"worker_threads\"); if(w.isMainThread){new w.Worker(process.argv[1]||\"console.log(7)\",{eval:true})}'", "7");
    }
}

/// Packages fetched before are found, are installed from, and stay unchanged.
#[test]
fn package_managers_read_their_caches_and_cannot_change_them() {
    let fixture = Fixture::new();
    let cache = fixture.at("cache");
    std::fs::create_dir(&cache).unwrap();
    let shown = cache.display();
    fixture.outside(&format!(
        "python3 - <<'E'\nimport zipfile\n\
         w=zipfile.ZipFile('{shown}/small-1.0-py3-none-any.whl','w')\n\
         w.writestr('small.py','answer=42\\n')\n\
         w.writestr('small-1.0.dist-info/METADATA','Metadata-Version: 2.1\\nName: small\\nVersion: 1.0\\n')\n\
         w.writestr('small-1.0.dist-info/WHEEL','Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
         w.writestr('small-1.0.dist-info/RECORD','')\n\
         w.close()\nE"
    ));
    let mut policy = fixture.policy(&format!(
        "python3 -m pip --no-cache-dir --disable-pip-version-check install --quiet --no-index --find-links '{shown}' --target vendor small; \
         PYTHONPATH=vendor python3 -c 'import small; print(small.answer)'; \
         touch '{shown}/changed' || echo refused"
    ));
    policy.readable.push(cache.clone());
    let (finished, text) = fixture.run(&policy);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert!(text.contains("42") && text.contains("refused"), "{text}");
    assert!(!cache.join("changed").exists());
    if Path::new("/usr/bin/npm").exists() {
        fixture.write(
            "dependency/package.json",
            "{\"name\":\"dependency\",\"version\":\"1.0.0\"}",
        );
        fixture.write("package.json", "{\"name\":\"app\",\"version\":\"1.0.0\",\"dependencies\":{\"dependency\":\"file:dependency\"},\"scripts\":{\"hello\":\"echo from a script\"}}");
        fixture.check(
            "npm install --offline --no-audit --no-fund && npm ls && npm run hello",
            "from a script",
        );
    }
}

#[test]
fn a_server_and_its_client_in_one_command() {
    let fixture = Fixture::new();
    let script = "python3 - <<'E'\nimport http.server,threading,urllib.request\n\
        s=http.server.HTTPServer((\"127.0.0.1\",0),http.server.SimpleHTTPRequestHandler)\n\
        threading.Thread(target=s.serve_forever,daemon=True).start()\n\
        print(urllib.request.urlopen(\"http://localhost:%d/\"%s.server_port).status)\nE";
    fixture.check(script, "200");
}

#[test]
fn reading_a_repository() {
    let fixture = Fixture::new();
    fixture.write("file", "one\n");
    fixture.outside("git init -q . && git add . && git -c user.name=a -c user.email=a@b commit -qm first && echo two >> file");
    fixture.check("git status --short && git diff --stat && git log --oneline && git blame file && git show --stat", "first");
}

#[test]
fn a_commit_works_when_it_is_granted_and_hooks_stay() {
    let fixture = Fixture::new();
    fixture.write("file", "one\n");
    fixture.outside(
        "git init -q -b main . && git add . && git -c user.name=a -c user.email=a@b commit -qm first",
    );
    let script = "echo two >> file && git add file && git commit -qm second && git checkout -q -b other && git tag t && git log --oneline";
    let (refused, _) = fixture.run(&fixture.policy(script));
    assert_ne!(refused.status, ExitStatus::Code(0));
    for access in [
        WriteAccess::WorkspaceWithCommits,
        WriteAccess::WorkspaceWithGit,
    ] {
        fixture.outside(
            "git checkout -q main && git branch -qD other && git tag -d t >/dev/null || true",
        );
        let mut policy = fixture.policy(script);
        policy.write_access = access;
        let (finished, text) = fixture.run(&policy);
        assert_eq!(finished.status, ExitStatus::Code(0), "{access:?}: {text}");
        assert!(text.contains("second"), "{text}");
        assert!(
            finished.quarantined.is_empty(),
            "{:?}",
            finished.quarantined
        );
        let compared =
            |it: &agent_sandbox::Violation| it.detection == Detection::BeforeAfterComparison;
        assert!(!finished.violations.iter().any(compared), "{access:?}");
    }
}

/// What hides a file from whoever looks at the tree, and what a rebase would run when it goes on.
#[test]
fn commits_need_neither_exclusions_nor_rebases() {
    let fixture = Fixture::new();
    fixture.write("file", "one\n");
    fixture.outside("git init -q . && mkdir -p .git/info && echo old > .git/info/exclude");
    let script = "echo hidden >> .git/info/exclude; mkdir -p .git/rebase-merge; \
                  echo 'exec id' > .git/rebase-merge/git-rebase-todo; git add file && git commit -qm first";
    let mut policy = fixture.policy(script);
    policy.write_access = WriteAccess::WorkspaceWithCommits;
    let (finished, text) = fixture.run(&policy);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert_eq!(
        std::fs::read_to_string(fixture.at("work/.git/info/exclude")).unwrap(),
        "old\n",
        "{text}"
    );
    assert!(!fixture.at("work/.git/rebase-merge").exists(), "{text}");
    assert_eq!(finished.quarantined.len(), 1, "{:?}", finished.quarantined);
    // Granted as a whole, both are git's to write.
    policy.write_access = WriteAccess::WorkspaceWithGit;
    let (_, text) = fixture.run(&policy);
    assert_eq!(
        std::fs::read_to_string(fixture.at("work/.git/info/exclude")).unwrap(),
        "old\nhidden\n",
        "{text}"
    );
    assert!(fixture.at("work/.git/rebase-merge").exists(), "{text}");
}

#[test]
fn a_linked_worktree_can_be_read_and_committed_to() {
    let fixture = Fixture::new();
    fixture.write("main/file", "one\n");
    fixture.outside(
        "cd main && git init -q . && git add . && git -c user.name=a -c user.email=a@b commit -qm first && git worktree add -q ../../linked",
    );
    let linked = fixture.at("linked");
    let mut policy =
        fixture.policy("git log --oneline && git status --short && git rev-parse --git-dir");
    (policy.workspace, policy.cwd) = (linked.clone(), linked.clone());
    // As if the repository lay in a home of its own, out of sight.
    policy.home = Some(fixture.at("work"));
    let (finished, text) = fixture.run(&policy);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    let script = "echo two >> file && git commit -qam second && git log --oneline; echo x > $(git rev-parse --git-common-dir)/hooks/post-commit; true";
    let mut policy = Policy {
        command: Command::Shell(script.into()),
        ..policy
    };
    policy.write_access = WriteAccess::WorkspaceWithGit;
    let (finished, text) = fixture.run(&policy);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert!(text.contains("second"), "{text}");
    assert!(!fixture.at("work/main/.git/hooks/post-commit").exists());
}

#[test]
fn a_rust_project_is_tested_offline() {
    let fixture = Fixture::new();
    fixture.write(
        "Cargo.toml",
        "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    );
    fixture.write(
        "src/lib.rs",
        "#[test]\nfn loopback() {\n    use std::io::{Read, Write};\n    let l = std::net::TcpListener::bind(\"127.0.0.1:0\").unwrap();\n    let a = l.local_addr().unwrap();\n    let t = std::thread::spawn(move || std::net::TcpStream::connect(a).unwrap().write_all(b\"hi\").unwrap());\n    let mut s = String::new();\n    l.accept().unwrap().0.read_to_string(&mut s).unwrap();\n    t.join().unwrap();\n    assert_eq!(s, \"hi\");\n    std::fs::write(std::env::temp_dir().join(\"t\"), s).unwrap();\n}\n",
    );
    fixture.check("cargo test --offline 2>&1", "1 passed");
}

#[test]
fn a_gigabyte_of_output_is_counted_and_not_kept() {
    let fixture = Fixture::new();
    let (finished, _) = fixture.run(&fixture.policy("head -c 1000000000 /dev/zero"));
    assert_eq!(
        (finished.status, finished.stdout_bytes),
        (ExitStatus::Code(0), 1_000_000_000)
    );
}

#[test]
fn read_only_still_reads_and_has_room_for_temporary_files() {
    let fixture = Fixture::new();
    fixture.write("file", "text\n");
    let mut policy = fixture.policy("cat file && echo x > $TMPDIR/y && cat $TMPDIR/y");
    policy.write_access = WriteAccess::ReadOnly;
    let (finished, text) = fixture.run(&policy);
    assert_eq!(
        (finished.status, text.as_str()),
        (ExitStatus::Code(0), "text\nx\n")
    );
}

#[test]
fn the_network_of_the_host_is_there_when_granted() {
    let fixture = Fixture::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("echo hello > /dev/tcp/127.0.0.1/{port} && echo connected");
    let mut policy = fixture.policy(&script);
    policy.network = Network::Host;
    let (finished, text) = fixture.run(&policy);
    assert_eq!(
        (finished.status, text.as_str()),
        (ExitStatus::Code(0), "connected\n")
    );
}

#[test]
fn a_refusal_names_the_setting_that_would_permit_it() {
    let fixture = Fixture::new();
    let script = "python3 -c 'import socket\nfor i in range(3):\n try: socket.socket(40,1)\n except OSError: pass'; unshare -U true; git init -q new";
    let (finished, text) = fixture.run(&fixture.policy(script));
    let facts: Vec<(String, u64, &str, &str)> = finished
        .violations
        .iter()
        .filter(|violation| !violation.expected)
        .map(|v| {
            (
                v.target.clone(),
                v.count,
                v.detection.name(),
                v.permitted_by.name(),
            )
        })
        .collect();
    let seccomp = "seccomp_notification";
    assert!(
        facts.contains(&("socket(AF_VSOCK)".into(), 3, seccomp, "sandbox = \"off\"")),
        "{facts:?} {text}"
    );
    assert!(
        facts.contains(&("unshare".into(), 1, seccomp, "sandbox = \"off\"")),
        "{facts:?} {text}"
    );
    let created = (
        "new/.git was created".into(),
        1,
        "before_after_comparison",
        "sandbox = \"off\"",
    );
    assert!(facts.contains(&created), "{facts:?}");
    assert_eq!(finished.quarantined.len(), 1);
    assert!(fixture.at("session/quarantine/000-new%.git/HEAD").exists());
}

#[test]
fn a_harmless_command_is_accused_of_nothing() {
    let fixture = Fixture::new();
    fixture.write("docs/page", "text\n");
    fixture.outside("git init -q . && mkdir -p .agent/sessions/one");
    for write_access in [
        WriteAccess::ReadOnly,
        WriteAccess::Workspace,
        WriteAccess::WorkspaceWithGit,
    ] {
        let mut policy = fixture.policy("cat docs/page; echo x > $TMPDIR/y");
        policy.session_dir = fixture.at("work/.agent/sessions/one");
        policy.protected = vec!["docs".into(), "missing".into()];
        policy.write_access = write_access;
        let (finished, text) = fixture.run(&policy);
        let facts: Vec<_> = finished
            .violations
            .iter()
            .filter(|violation| !violation.expected)
            .collect();
        assert!(
            facts.is_empty() && finished.quarantined.is_empty(),
            "{facts:?} {text}"
        );
    }
}

/// Only root can use a workspace of another user.
#[test]
fn a_workspace_of_another_user_is_worked_on_as_that_user() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let fixture = Fixture::new();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(fixture.folder.path(), open).unwrap();
    fixture.write("theirs", "text\n");
    for path in ["work", "work/theirs"] {
        std::os::unix::fs::chown(fixture.at(path), Some(54_321), Some(54_321)).unwrap();
    }
    let mut policy = fixture
        .policy("id -u; echo more >> theirs; touch new; cat /etc/shadow; echo $TMPDIR; mktemp");
    policy.readable.clear();
    policy.hidden.clear();
    let (finished, text) = fixture.run(&policy);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert!(
        text.starts_with("54321\n") && text.contains("Permission denied"),
        "{text}"
    );
    assert_eq!(
        std::fs::metadata(fixture.at("work/new")).unwrap().uid(),
        54_321
    );
    assert_eq!(
        std::fs::read_to_string(fixture.at("work/theirs")).unwrap(),
        "text\nmore\n"
    );
}

/// Root's own directories are for root alone, and so may be the way to the project: both are put
/// into place before root is given up.
#[test]
fn private_directories_do_not_keep_root_from_another_users_project() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = Fixture::new();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(fixture.folder.path(), open).unwrap();
    for name in [
        "roots/.tool",
        "roots/session",
        "roots/tmp",
        "theirs/project",
    ] {
        std::fs::create_dir_all(fixture.at(name)).unwrap();
    }
    std::fs::write(fixture.at("roots/.tool/program"), "tool\n").unwrap();
    std::fs::write(fixture.at("roots/secret"), "hush\n").unwrap();
    for name in ["theirs/project", "theirs"] {
        std::os::unix::fs::chown(fixture.at(name), Some(54_321), Some(54_322)).unwrap();
    }
    // What the agent itself makes in the project is root's.
    std::fs::create_dir_all(fixture.at("theirs/project/.agent/sessions")).unwrap();
    for name in ["roots", "theirs", "theirs/project/.agent"] {
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(fixture.at(name), private).unwrap();
    }
    let (tool, secret) = (fixture.at("roots/.tool"), fixture.at("roots/secret"));
    let script = format!(
        "id -u; id -g; id -G; cat {}/program; cat {}; touch made $TMPDIR/x; pwd; ls /proc/1/fd; \
         kill -0 1 && grep -E 'Cap|NoNew|Groups' /proc/self/status",
        tool.display(),
        secret.display()
    );
    let command = Command::Shell(script.into());
    let [workspace, session, tmp] =
        ["theirs/project", "roots/session", "roots/tmp"].map(|name| fixture.at(name));
    let mut policy = Policy::new(&workspace, &session, &tmp, command);
    policy.home = Some(fixture.at("roots"));
    policy.readable = vec![tool];
    policy.hidden = vec![workspace.join(".agent/sessions")];
    policy.environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
    // One launcher for both: what it does for one user must not bind the next.
    let sandbox = Sandbox::of(probe(fixture.folder.path()));
    for round in 0..3 {
        let (finished, text) = fixture.run_with(&policy, &sandbox);
        assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
        assert!(text.starts_with("54321\n54322\n54322\ntool\n"), "{text}");
        assert!(
            !text.contains("hush") && text.contains("NoNewPrivs:\t1"),
            "{text}"
        );
        assert!(text.contains("CapBnd:\t0000000000000000"), "{text}");
        assert!(text.contains(workspace.to_str().unwrap()), "{text}");
        let made = std::fs::metadata(workspace.join("made")).unwrap();
        assert_eq!((made.uid(), made.gid()), (54_321, 54_322), "{round}");
        // In between a command in a project of root's own.
        let (own, _) = fixture.run_with(&fixture.policy("id -u"), &sandbox);
        assert_eq!(own.status, ExitStatus::Code(0));
    }
}
