//! Protected names that no mount can keep as they are: what the comparison after a run finds, takes
//! away and puts back, and what it must not touch.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot set itself up should stop there"
)]

mod list;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use agent_sandbox::{
    Command, ExitStatus, Finished, Policy, WorkspaceWalk, WriteAccess, WriteDenied, probe, spawn,
};

struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work", "session", "tmp", "other"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let fixture = Self { folder };
        fixture.outside("git init -q . && echo one > file && git add . && git commit -qm first");
        fixture
    }

    fn at(&self, name: &str) -> PathBuf {
        std::fs::canonicalize(self.folder.path())
            .unwrap()
            .join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap_or_else(|error| error.to_string())
    }

    fn policy(&self, script: &str) -> Policy {
        let command = Command::Shell(script.into());
        let mut policy = Policy::new(
            &self.at("work"),
            &self.at("session"),
            &self.at("tmp"),
            command,
        );
        policy.names = list::names();
        policy.environment = IDENTITY
            .iter()
            .chain(&[("PATH", "/usr/bin:/bin")])
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        policy
    }

    fn run(&self, policy: &Policy) -> (Finished, String) {
        let output = Arc::new(Mutex::new(Vec::new()));
        let copy = Arc::clone(&output);
        let sink = move |_, bytes: &[u8]| copy.lock().unwrap().extend_from_slice(bytes);
        let running = spawn(policy, &probe(self.folder.path()), Box::new(sink)).unwrap();
        let finished = running.wait(None, None);
        let text = String::from_utf8_lossy(&output.lock().unwrap()).into_owned();
        (finished, text)
    }

    /// Runs outside, to prepare a fixture.
    fn outside(&self, script: &str) {
        let done = std::process::Command::new("bash")
            .args(["-ec", script])
            .current_dir(self.at("work"))
            .envs(IDENTITY.iter().copied())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .status()
            .unwrap();
        assert!(done.success(), "{script}");
    }
}

const IDENTITY: [(&str, &str); 4] = [
    ("GIT_AUTHOR_NAME", "a"),
    ("GIT_AUTHOR_EMAIL", "a@example.org"),
    ("GIT_COMMITTER_NAME", "a"),
    ("GIT_COMMITTER_EMAIL", "a@example.org"),
];

fn facts(finished: &Finished) -> Vec<(&str, &str)> {
    let meant = finished.violations.iter().filter(|found| !found.expected);
    meant
        .map(|found| (found.target.as_str(), found.permitted_by.name()))
        .collect()
}

/// The search after a command takes part in the caller's walk, and needs one of its own only if that broke off.
#[test]
fn the_walk_of_the_caller_serves_the_search() {
    let fixture = Fixture::new();
    fixture.outside("mkdir -p a/b");
    let mut policy = fixture.policy("echo evil > a/b/.envrc");
    let walks = Arc::new(AtomicUsize::new(0));
    for is_whole in [true, false] {
        let count = Arc::clone(&walks);
        policy.walk_after = Some(WorkspaceWalk::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            is_whole
        }));
        let (finished, text) = fixture.run(&policy);
        // A walk that shows nothing finds nothing.
        let found = match is_whole {
            true => None,
            false => Some(("a/b/.envrc was created", "sandbox = \"off\"")),
        };
        assert_eq!(facts(&finished), Vec::from_iter(found), "{text}");
        assert_eq!(finished.changed_after_walk, !is_whole);
        assert_eq!(fixture.at("work/a/b/.envrc").exists(), is_whole);
        fixture.outside("rm -f a/b/.envrc");
    }
    assert_eq!(walks.load(Ordering::Relaxed), 2);
}

#[test]
fn a_replaced_link_is_put_back() {
    let fixture = Fixture::new();
    fixture.outside("mv .git data && ln -s data .git");
    let (finished, text) =
        fixture.run(&fixture.policy("ln -sfn /tmp/evil .git; echo x >> data/config"));
    assert_eq!(
        facts(&finished)[0],
        (".git was changed", "git write access"),
        "{text}"
    );
    assert_eq!(
        std::fs::read_link(fixture.at("work/.git")).unwrap(),
        Path::new("data")
    );
    assert!(!fixture.read("work/data/config").contains('x'), "{text}");
    assert!(fixture.at("session/quarantine/000-.git").is_symlink());

    // Commits through such a link work when they are granted.
    let mut granted = fixture.policy("echo two > file; git commit -qam second; git log --oneline");
    granted.write_access = WriteAccess::WorkspaceWithGit;
    let (finished, text) = fixture.run(&granted);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert!(text.contains("second"), "{text}");
    assert_eq!(facts(&finished), [], "{text}");
}

#[test]
fn a_protected_file_is_guarded_under_its_other_names_too() {
    let fixture = Fixture::new();
    fixture.outside("echo original > .envrc && ln .envrc twin");
    let (finished, text) = fixture.run(&fixture.policy("echo evil >> twin"));
    assert_eq!(fixture.read("work/.envrc"), "original\n", "{text}");
    assert_eq!(
        facts(&finished),
        [(".envrc was changed", "sandbox = \"off\"")]
    );
    // What the command wrote is its own, under the name it used.
    assert_eq!(fixture.read("work/twin"), "original\nevil\n");
    assert_eq!(
        fixture.read("session/quarantine/000-.envrc"),
        "original\nevil\n"
    );
}

/// A repository deeper than a path can be long is out of reach of the search, but not of a program that walks there.
#[test]
fn a_path_too_long_to_name_is_quarantined_whole() {
    let fixture = Fixture::new();
    fixture.outside("mkdir deep");
    let dig = "d=$(printf 'n%.0s' {1..200}); cd deep; for _ in {1..30}; do mkdir $d; cd -P $d 2>/dev/null || cd $d; done;";
    let plant =
        format!("{dig} mkdir -p .git/hooks; echo evil > .git/hooks/post-checkout; pwd | wc -c");
    let (finished, text) = fixture.run(&fixture.policy(&plant));
    assert!(text.trim().parse::<u64>().unwrap() > 4096, "{text}");
    let listed = facts(&finished);
    assert!(
        listed.len() == 1 && listed[0].0.ends_with("was created"),
        "{listed:?}"
    );
    let left = "f=0; cd deep; while cd n* 2>/dev/null; do [ ! -e .git ] || exit 1; done";
    fixture.outside(left);
    // One that was there before is not the command's doing.
    fixture.outside("mv ../session/quarantine/* deep/n*/");
    let (finished, text) = fixture.run(&fixture.policy("true"));
    assert_eq!(facts(&finished), [], "{text}");
}

#[test]
fn hooks_kept_with_the_project_stay_as_they_are() {
    let fixture = Fixture::new();
    fixture.outside(
        "git config core.hooksPath .husky/_ && mkdir -p .husky/_ && echo original > .husky/pre-commit && echo one > .husky/_/h",
    );
    // Tools write them again on every install.
    let same = "rm .husky/_/h; echo one > .husky/_/h";
    let (finished, text) = fixture.run(&fixture.policy(same));
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert_eq!(facts(&finished), []);

    let (finished, text) = fixture
        .run(&fixture.policy(
            "echo evil >> .husky/pre-commit; echo evil > .husky/post-merge; rm .husky/_/h",
        ));
    assert_eq!(
        facts(&finished),
        [(".husky was changed", "sandbox = \"off\"")],
        "{text}"
    );
    assert_eq!(fixture.read("work/.husky/pre-commit"), "original\n");
    assert_eq!(fixture.read("work/.husky/_/h"), "one\n");
    assert!(!fixture.at("work/.husky/post-merge").exists());
    assert!(
        fixture
            .at("session/quarantine/000-.husky%post-merge")
            .exists()
    );
}

/// The repository of a linked worktree lies outside the workspace and is writable with it.
#[test]
fn nothing_is_planted_in_the_repository_of_a_worktree() {
    let fixture = Fixture::new();
    fixture.outside("rm -rf .git/hooks && git worktree add -q ../linked");
    let before = ["commondir", "gitdir"]
        .map(|name| fixture.read(&format!("work/.git/worktrees/linked/{name}")));
    let script = "C=$(git rev-parse --git-common-dir); G=$(git rev-parse --git-dir); \
        echo two > file; git commit -qam second || exit 9; \
        echo /tmp/evil > $G/commondir; echo /tmp/evil > $G/gitdir; echo x > $G/config.worktree; \
        echo /tmp/evil > $C/commondir; echo x > $C/config.worktree; mkdir $C/hooks; echo x > $C/hooks/pre-push; \
        mkdir -p $C/modules/new $C/worktrees/new $C/info; echo x > $C/modules/new/config; \
        echo x > $C/worktrees/new/commondir; echo x > $C/info/attributes; echo x >> $C/config; exit 0";
    let mut policy = fixture.policy(script);
    (policy.workspace, policy.cwd) = (fixture.at("linked"), fixture.at("linked"));
    policy.write_access = WriteAccess::WorkspaceWithGit;
    let (finished, text) = fixture.run(&policy);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    for name in [
        "commondir",
        "config.worktree",
        "hooks",
        "modules",
        "worktrees/new",
        "worktrees/linked/config.worktree",
        "info/attributes",
    ] {
        assert!(
            !fixture.at("work/.git").join(name).exists(),
            "{name}\n{text}"
        );
    }
    let after = ["commondir", "gitdir"]
        .map(|name| fixture.read(&format!("work/.git/worktrees/linked/{name}")));
    assert_eq!(after, before);
    assert!(!fixture.read("work/.git/config").contains('x'), "{text}");
    // Everything the comparison took is listed, by its whole path.
    let hooks = fixture.at("work/.git/hooks");
    let created = format!("{} was created", hooks.display());
    assert!(
        facts(&finished).contains(&(created.as_str(), "sandbox = \"off\"")),
        "{:?}",
        facts(&finished)
    );
    assert!(finished.quarantined.iter().any(|item| item.path == hooks));
    fixture.outside("cd ../linked && git log --oneline | grep second && git status");
}

#[test]
fn a_submodule_can_be_committed_to() {
    let fixture = Fixture::new();
    fixture.outside(
        "git init -q ../other && git -C ../other commit -q --allow-empty -m x && \
         git -c protocol.file.allow=always submodule --quiet add \"$PWD/../other\" parts/lib && git commit -qm module",
    );
    let mut policy = fixture.policy(
        "cd parts/lib && echo x > new && git add new && git commit -qm inner && cd ../.. && git commit -qam outer && git status --short",
    );
    policy.write_access = WriteAccess::WorkspaceWithGit;
    let (finished, text) = fixture.run(&policy);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert_eq!(facts(&finished), [], "{text}");
}

#[test]
fn names_are_protected_in_other_writable_directories_too() {
    let fixture = Fixture::new();
    fixture.outside("git init -q ../other && echo '[core]' > ../other/.git/config");
    let other = fixture.at("other");
    let script = format!(
        "cd {}; echo fine > file; echo x >> .git/config; mkdir .vscode; mkdir -p sub/.git; true",
        other.display()
    );
    let mut policy = fixture.policy(&script);
    policy.writable = vec![other.clone()];
    let (finished, text) = fixture.run(&policy);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert_eq!(fixture.read("other/file"), "fine\n", "{text}");
    assert_eq!(fixture.read("other/.git/config"), "[core]\n");
    assert!(!other.join(".vscode").exists() && !other.join("sub/.git").exists());
    assert_eq!(finished.quarantined.len(), 2, "{:?}", finished.quarantined);

    policy.write_access = WriteAccess::ReadOnly;
    policy.command =
        Command::Shell(format!("cat {0}/file; echo x > {0}/file", other.display()).into_bytes());
    let (finished, text) = fixture.run(&policy);
    assert_ne!(finished.status, ExitStatus::Code(0), "{text}");
    assert!(text.starts_with("fine\n"), "{text}");
    assert_eq!(fixture.read("other/file"), "fine\n");
}

/// A workspace in a directory that is writable as a whole keeps what was granted to it.
#[test]
fn a_writable_directory_around_the_workspace_takes_nothing_from_it() {
    let fixture = Fixture::new();
    let mut policy = fixture.policy("echo two > file; git commit -qam second; git log --oneline");
    policy.write_access = WriteAccess::WorkspaceWithGit;
    std::fs::create_dir(fixture.at("around")).unwrap();
    std::fs::rename(fixture.at("work"), fixture.at("around/work")).unwrap();
    policy.workspace = fixture.at("around/work");
    policy.cwd = policy.workspace.clone();
    policy.writable = vec![fixture.at("around")];
    let (finished, text) = fixture.run(&policy);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert!(text.contains("second"), "{text}");
}

#[test]
fn a_path_denied_by_a_rule_names_the_rule() {
    let fixture = Fixture::new();
    let mut policy = fixture.policy("echo x > generated; true");
    policy.protected = vec!["generated".into()];
    let (finished, text) = fixture.run(&policy);
    assert_eq!(
        facts(&finished),
        [("generated was created", "no deny rule for it")],
        "{text}"
    );
    assert!(!fixture.at("work/generated").exists());
}

#[test]
fn paths_named_by_rules_are_restored_and_cannot_be_created() {
    let fixture = Fixture::new();
    fixture.outside("mkdir -p a/b/generated; for f in one.lock a/two.lock a/b/generated/x; do echo old > $f; done");
    let mut policy = fixture.policy(
        "for f in one.lock a/two.lock a/b/generated/x; do echo new > $f; done; rm -f one.lock; \
         mv a c; echo x > b.lock; mkdir -p d/e/generated; echo x > d/e/generated/y; echo fine > plain; true",
    );
    policy.denied = WriteDenied::new(|path| {
        path.extension().is_some_and(|end| end == "lock") || path.ends_with("generated")
    });
    let (finished, text) = fixture.run(&policy);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    for file in ["one.lock", "a/two.lock", "a/b/generated/x"] {
        assert_eq!(
            fixture.read(&format!("work/{file}")),
            "old\n",
            "{file}\n{text}"
        );
    }
    let made = ["b.lock", "d/e/generated"].map(|name| fixture.at("work").join(name));
    assert!(!made.iter().any(|path| path.exists()), "{text}");
    assert_eq!(fixture.read("work/plain"), "fine\n");
    let rule = "no deny rule for it";
    let expected = [
        ("b.lock was created", rule),
        ("d/e/generated was created", rule),
    ];
    assert_eq!(facts(&finished)[..2], expected, "{text}");
    assert_eq!(finished.quarantined.len(), 2);
}

/// More than mounts are made for: those are compared and put back.
#[test]
fn a_rule_may_name_many_files() {
    let fixture = Fixture::new();
    fixture.outside("mkdir many; for i in $(seq 600); do echo old > many/$i.lock; done");
    let mut policy = fixture
        .policy("for f in many/*.lock; do echo new > $f; done 2>/dev/null; rm -f many/9*; true");
    policy.denied = WriteDenied::new(|path| path.extension().is_some_and(|end| end == "lock"));
    let (finished, text) = fixture.run(&policy);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    for number in 1..=600 {
        assert_eq!(
            fixture.read(&format!("work/many/{number}.lock")),
            "old\n",
            "{number}"
        );
    }
    let listed = facts(&finished);
    assert!(
        !listed.is_empty() && listed.len() <= 102,
        "{}",
        listed.len()
    );
}

/// A log must not grow with what a command makes up.
#[test]
fn very_many_names_are_all_taken_away_and_listed_as_one() {
    let fixture = Fixture::new();
    // Names so long that the end, which is kept, is always the same.
    let (finished, text) = fixture.run(&fixture.policy(
        "n=$(printf 'n%.0s' $(seq 200)); mkdir -p {1..1100}/$n/$n; for i in {1..1100}; do echo x > $i/$n/$n/.envrc; done",
    ));
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    let left = std::process::Command::new("find")
        .args([
            fixture.at("work").as_os_str(),
            "-name".as_ref(),
            ".envrc".as_ref(),
        ])
        .output()
        .unwrap();
    assert!(
        left.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&left.stdout)
    );
    let listed: Vec<u64> = finished
        .violations
        .iter()
        .filter(|found| !found.expected)
        .map(|found| found.count)
        .collect();
    assert_eq!((listed.len(), listed.iter().sum::<u64>()), (101, 1100));
    assert_eq!(finished.quarantined.len(), 100);
}

/// Files that were not seen before a command may be the user's: only new ones are taken away.
#[test]
fn a_workspace_too_large_to_be_searched_loses_nothing() {
    let fixture = Fixture::new();
    fixture.outside("git init -q z/y/x/theirs; mkdir -p many/a");
    for number in 0..51_000 {
        std::fs::write(fixture.at("work/many/a").join(number.to_string()), "").unwrap();
    }
    // With fewer files the search after the command gets further than the one before.
    let (finished, text) =
        fixture.run(&fixture.policy("rm -rf many/a; mkdir -p new/.git; echo x > new/.git/config"));
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert!(
        fixture.at("work/z/y/x/theirs/.git/config").exists(),
        "{:?}",
        finished.quarantined
    );
    assert!(!fixture.at("work/new/.git").exists());
    assert_eq!(finished.quarantined.len(), 1);
}

/// Many files do not hide one name among them, deep down.
#[test]
fn a_search_cannot_be_drowned_in_files() {
    let fixture = Fixture::new();
    fixture.outside("mkdir -p many a/b/c/d/e");
    let (finished, text) = fixture.run(&fixture.policy(
        "seq -f many/%.0f 51000 | xargs touch; mkdir -p a/b/c/d/e/f/.git; echo x > a/b/c/d/e/f/.git/config",
    ));
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert!(!fixture.at("work/a/b/c/d/e/f/.git").exists());
    assert_eq!(finished.quarantined.len(), 1);
}
