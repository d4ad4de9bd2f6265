//! Protected names that no mount can keep as they are: what the comparison after a run finds, takes
//! away and puts back, and what it must not touch.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot set itself up should stop there"
)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use agent_sandbox::{Command, ExitStatus, Finished, Policy, WriteAccess, probe, spawn};

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work", "session", "tmp", "other"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let place = Self { folder };
        place.outside("git init -q . && echo one > file && git add . && git commit -qm first");
        place
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

    /// Runs outside, to prepare a place.
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

#[test]
fn a_replaced_link_is_put_back() {
    let place = Place::new();
    place.outside("mv .git data && ln -s data .git");
    let (finished, text) =
        place.run(&place.policy("ln -sfn /tmp/evil .git; echo x >> data/config"));
    assert_eq!(
        facts(&finished)[0],
        (".git was changed", "git write access"),
        "{text}"
    );
    assert_eq!(
        std::fs::read_link(place.at("work/.git")).unwrap(),
        Path::new("data")
    );
    assert!(!place.read("work/data/config").contains('x'), "{text}");
    assert!(place.at("session/quarantine/000-.git").is_symlink());

    // Commits through such a link work when they are granted.
    let mut granted = place.policy("echo two > file; git commit -qam second; git log --oneline");
    granted.write_access = WriteAccess::WorkspaceWithGit;
    let (finished, text) = place.run(&granted);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert!(text.contains("second"), "{text}");
    assert_eq!(facts(&finished), [], "{text}");
}

#[test]
fn a_protected_file_is_guarded_under_its_other_names_too() {
    let place = Place::new();
    place.outside("echo original > .envrc && ln .envrc twin");
    let (finished, text) = place.run(&place.policy("echo evil >> twin"));
    assert_eq!(place.read("work/.envrc"), "original\n", "{text}");
    assert_eq!(
        facts(&finished),
        [(".envrc was changed", "sandbox = \"off\"")]
    );
    // What the command wrote is its own, under the name it used.
    assert_eq!(place.read("work/twin"), "original\nevil\n");
    assert_eq!(
        place.read("session/quarantine/000-.envrc"),
        "original\nevil\n"
    );
}

#[test]
fn hooks_kept_with_the_project_stay_as_they_are() {
    let place = Place::new();
    place.outside(
        "git config core.hooksPath .husky/_ && mkdir -p .husky/_ && echo original > .husky/pre-commit && echo one > .husky/_/h",
    );
    // Tools write them again on every install.
    let same = "rm .husky/_/h; echo one > .husky/_/h";
    let (finished, text) = place.run(&place.policy(same));
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert_eq!(facts(&finished), []);

    let (finished, text) = place
        .run(&place.policy(
            "echo evil >> .husky/pre-commit; echo evil > .husky/post-merge; rm .husky/_/h",
        ));
    assert_eq!(
        facts(&finished),
        [(".husky was changed", "sandbox = \"off\"")],
        "{text}"
    );
    assert_eq!(place.read("work/.husky/pre-commit"), "original\n");
    assert_eq!(place.read("work/.husky/_/h"), "one\n");
    assert!(!place.at("work/.husky/post-merge").exists());
    assert!(
        place
            .at("session/quarantine/000-.husky%post-merge")
            .exists()
    );
}

/// The repository of a linked worktree lies outside the workspace and is writable with it.
#[test]
fn nothing_is_planted_in_the_repository_of_a_worktree() {
    let place = Place::new();
    place.outside("rm -rf .git/hooks && git worktree add -q ../linked");
    let before = ["commondir", "gitdir"]
        .map(|name| place.read(&format!("work/.git/worktrees/linked/{name}")));
    let script = "C=$(git rev-parse --git-common-dir); G=$(git rev-parse --git-dir); \
        echo two > file; git commit -qam second || exit 9; \
        echo /tmp/evil > $G/commondir; echo /tmp/evil > $G/gitdir; echo x > $G/config.worktree; \
        echo /tmp/evil > $C/commondir; echo x > $C/config.worktree; mkdir $C/hooks; echo x > $C/hooks/pre-push; \
        mkdir -p $C/modules/new $C/worktrees/new $C/info; echo x > $C/modules/new/config; \
        echo x > $C/worktrees/new/commondir; echo x > $C/info/attributes; echo x >> $C/config; exit 0";
    let mut policy = place.policy(script);
    (policy.workspace, policy.cwd) = (place.at("linked"), place.at("linked"));
    policy.write_access = WriteAccess::WorkspaceWithGit;
    let (finished, text) = place.run(&policy);
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
        assert!(!place.at("work/.git").join(name).exists(), "{name}\n{text}");
    }
    let after = ["commondir", "gitdir"]
        .map(|name| place.read(&format!("work/.git/worktrees/linked/{name}")));
    assert_eq!(after, before);
    assert!(!place.read("work/.git/config").contains('x'), "{text}");
    // Everything the comparison took is told of, by its whole path.
    let hooks = place.at("work/.git/hooks");
    let created = format!("{} was created", hooks.display());
    assert!(
        facts(&finished).contains(&(created.as_str(), "sandbox = \"off\"")),
        "{:?}",
        facts(&finished)
    );
    assert!(finished.quarantined.iter().any(|item| item.path == hooks));
    place.outside("cd ../linked && git log --oneline | grep second && git status");
}

#[test]
fn a_submodule_can_be_committed_to() {
    let place = Place::new();
    place.outside(
        "git init -q ../other && git -C ../other commit -q --allow-empty -m x && \
         git -c protocol.file.allow=always submodule --quiet add \"$PWD/../other\" parts/lib && git commit -qm module",
    );
    let mut policy = place.policy(
        "cd parts/lib && echo x > new && git add new && git commit -qm inner && cd ../.. && git commit -qam outer && git status --short",
    );
    policy.write_access = WriteAccess::WorkspaceWithGit;
    let (finished, text) = place.run(&policy);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert_eq!(facts(&finished), [], "{text}");
}

#[test]
fn names_are_protected_in_other_writable_directories_too() {
    let place = Place::new();
    place.outside("git init -q ../other && echo '[core]' > ../other/.git/config");
    let other = place.at("other");
    let script = format!(
        "cd {}; echo fine > file; echo x >> .git/config; mkdir .vscode; mkdir -p sub/.git; true",
        other.display()
    );
    let mut policy = place.policy(&script);
    policy.writable = vec![other.clone()];
    let (finished, text) = place.run(&policy);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert_eq!(place.read("other/file"), "fine\n", "{text}");
    assert_eq!(place.read("other/.git/config"), "[core]\n");
    assert!(!other.join(".vscode").exists() && !other.join("sub/.git").exists());
    assert_eq!(finished.quarantined.len(), 2, "{:?}", finished.quarantined);

    policy.write_access = WriteAccess::ReadOnly;
    policy.command =
        Command::Shell(format!("cat {0}/file; echo x > {0}/file", other.display()).into_bytes());
    let (finished, text) = place.run(&policy);
    assert_ne!(finished.status, ExitStatus::Code(0), "{text}");
    assert!(text.starts_with("fine\n"), "{text}");
    assert_eq!(place.read("other/file"), "fine\n");
}

/// A workspace in a directory that is writable as a whole keeps what was granted to it.
#[test]
fn a_writable_directory_around_the_workspace_takes_nothing_from_it() {
    let place = Place::new();
    let mut policy = place.policy("echo two > file; git commit -qam second; git log --oneline");
    policy.write_access = WriteAccess::WorkspaceWithGit;
    std::fs::create_dir(place.at("around")).unwrap();
    std::fs::rename(place.at("work"), place.at("around/work")).unwrap();
    policy.workspace = place.at("around/work");
    policy.cwd = policy.workspace.clone();
    policy.writable = vec![place.at("around")];
    let (finished, text) = place.run(&policy);
    assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
    assert!(text.contains("second"), "{text}");
}

#[test]
fn what_a_rule_denies_is_told_as_that() {
    let place = Place::new();
    let mut policy = place.policy("echo x > generated; true");
    policy.protected = vec!["generated".into()];
    let (finished, text) = place.run(&policy);
    assert_eq!(
        facts(&finished),
        [("generated was created", "no deny rule for it")],
        "{text}"
    );
    assert!(!place.at("work/generated").exists());
}
