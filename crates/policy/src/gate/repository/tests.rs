use super::*;

fn check(config: &str, expected: Option<&str>) {
    let place = tempfile::tempdir().unwrap();
    let git = place.path().join(".git");
    std::fs::create_dir_all(place.path().join("deep/down")).unwrap();
    std::fs::create_dir(&git).unwrap();
    std::fs::write(git.join("more"), "[diff \"x\"] TextConv = sh\n").unwrap();
    std::fs::write(git.join("plain"), "[user]\n\tname = a\n").unwrap();
    std::fs::write(git.join("config"), config).unwrap();
    let found = program_named(&place.path().join("deep/down"));
    let expected = expected.map(|key| format!("`{key}` in `.git/config`"));
    assert_eq!(found, expected, "{config}");
}

#[test]
fn keys_that_name_programs_are_found_however_they_are_written() {
    check("[diff]\n\texternal = ./x\n", Some("external"));
    check("[diff \"x\"]\n  textConv=sh\n", Some("textconv"));
    check("[filter \"a]b\"] CLEAN = x\n", Some("clean"));
    check("[a][filter \"y\"]process=x", Some("process"));
    check("\u{feff}[diff \"x\"]command\n", Some("command"));
    check("[gpg]\r\n\tprogram = x\r\n", Some("program"));
    check("[include]\n\tpath = more\n", Some("textconv"));
    check(
        "[includeIf \"gitdir:/\"]\n\tpath = \"more\"\n",
        Some("textconv"),
    );
    check("[include]\n\tpath = \"mo\\\nre\"\n", Some("include"));
    check("[core]\n\tworktree = /etc\n", Some("worktree"));
    check("[include]\n\tpath = plain\n\tpath = ~/.gitconfig\n", None);
    check(
        "[core]\n\tbare = false\n\tfsmonitor = ./x\n[remote \"origin\"]\n\turl = https://x/command\n",
        None,
    );
}

#[test]
fn hooks_count_where_git_would_start_them() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    std::fs::create_dir_all(root.join(".git/hooks")).unwrap();
    std::fs::create_dir_all(root.join(".git/worktrees/w")).unwrap();
    std::fs::create_dir_all(root.join("w/deep")).unwrap();
    std::fs::write(root.join(".git/worktrees/w/commondir"), "../..\n").unwrap();
    std::fs::write(root.join("w/.git"), "gitdir: ../.git/worktrees/w\n").unwrap();
    let names = ["pre-commit", "commit-msg"];
    let check = |expected: Option<&str>| {
        for directory in [root.to_owned(), root.join("w/deep")] {
            let found = hook_named(&directory, &names);
            assert_eq!(found.as_deref(), expected, "{directory:?}");
        }
    };
    let hook = |name: &str, mode: u32| {
        let path = root.join(".git/hooks").join(name);
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    check(None);
    hook("pre-commit.sample", 0o755);
    hook("pre-push", 0o755);
    hook("commit-msg", 0o644);
    check(None);
    hook("commit-msg", 0o755);
    check(Some("the hook `commit-msg`"));
    hook("commit-msg", 0o644);
    std::fs::write(root.join(".git/config"), "[core] hooksPath = .husky\n").unwrap();
    let found = hook_named(root, &names).unwrap();
    assert_eq!(found, "`hookspath` in `.git/config`");
}

#[test]
fn submodules_and_linked_trees_are_looked_at() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(".git/config", "");
    write(".git/modules/a/b/HEAD", "");
    write(
        ".git/modules/a/b/config",
        "[core]\n\tworktree = ../../../../a/b\n",
    );
    assert_eq!(program_named(root), None);
    write(".git/modules/a/b/config", "[filter \"x\"]\n\tclean = x\n");
    assert!(program_named(root).is_some());
    write(".git/modules/a/b/config", "");
    write(".gitmodules", "[submodule \"s\"]\n\tpath = s\n");
    write("s/.git/config", "[filter \"x\"]\n\tclean = x\n");
    assert!(program_named(root).is_some());
    write("s/.git/config", "");
    write(".git/worktrees/w/commondir", "../..\n");
    write("w/.git", "gitdir: ../.git/worktrees/w\n");
    assert_eq!(program_named(&root.join("w")), None);
    write(".git/worktrees/w/config.worktree", "[diff]\nexternal=x\n");
    assert!(program_named(&root.join("w")).is_some());
    write(".git/worktrees/w/config.worktree", "");
    write(".git/config", "[diff]\nexternal=x\n");
    assert!(program_named(&root.join("w")).is_some());
}

/// A repository with what git itself makes of it.
struct Made(tempfile::TempDir);

impl Made {
    fn new() -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        made.git("", &["init", "-q"]);
        made.write("a.txt", "x\n");
        made.git("", &["add", "."]);
        made
    }

    fn root(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn git(&self, at: &str, arguments: &[&str]) {
        let run = std::process::Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(arguments)
            .current_dir(self.root().join(at))
            .env("HOME", "/nonexistent")
            .output()
            .unwrap();
        assert!(run.status.success(), "{arguments:?}: {run:?}");
    }

    /// A repository below that is added as it is, without `.gitmodules`.
    fn nest(&self, at: &str) {
        self.git("", &["init", "-q", at]);
        self.write(&format!("{at}/f"), "x\n");
        self.git(at, &["add", "f"]);
        self.git(at, &["commit", "-qm", "i"]);
    }

    fn found(&self, at: &str) -> Option<String> {
        program_named(&self.root().join(at))
    }
}

const FILTER: &str = "[filter \"x\"]\n\tclean = x\n";

#[test]
fn a_repository_in_the_index_is_looked_at_whether_it_is_a_submodule_or_not() {
    for version in ["2", "3", "4"] {
        let made = Made::new();
        made.nest("d/n");
        made.write("d/n/.git/config", FILTER);
        assert_eq!(
            made.found(""),
            None,
            "git does not enter what it does not know"
        );
        assert!(made.found("d/n").is_some());
        made.git("", &["add", "d/n"]);
        if version == "3" {
            made.write("later", "x");
            made.git("", &["add", "-N", "later"]);
        }
        made.git("", &["update-index", "--index-version", version]);
        assert!(made.found("").is_some(), "version {version}");
    }
}

#[test]
fn a_repository_two_levels_down_is_looked_at() {
    let made = Made::new();
    made.nest("d");
    made.nest("d/n");
    made.git("d", &["add", "n"]);
    made.git("d", &["commit", "-qm", "n"]);
    made.git("", &["add", "d"]);
    assert_eq!(made.found(""), None);
    made.write("d/n/.git/config", FILTER);
    assert!(made.found("").is_some());
}

#[test]
fn a_split_index_with_repositories_is_not_vouched_for() {
    let made = Made::new();
    made.git("", &["update-index", "--split-index"]);
    assert_eq!(made.found(""), None);
    made.nest("n");
    made.git("", &["add", "n"]);
    made.git("", &["update-index", "--no-split-index"]);
    made.git("", &["update-index", "--split-index"]);
    assert!(made.found("").is_some());
}

#[test]
fn where_git_reads_a_path_otherwise_nothing_is_vouched_for() {
    for (file, odd) in [
        (".git", "gitdir: g "),
        (".git", "gitdir: g\nh"),
        (".git", "gitdir: g\n\n"),
        (".git", "gitdir:  g"),
        (".git", "gitdir:g"),
        (".git", "gitdir: g\t"),
        (".git", "gitdir: "),
        (".git", ""),
        ("real/commondir", "../common \n"),
        ("real/commondir", "../a\nb"),
    ] {
        let place = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = place.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("real/HEAD", "ref: refs/heads/main\n");
        write("real/commondir", ".\n");
        write(".git", "gitdir: real\n");
        assert_eq!(program_named(place.path()), None);
        write(file, odd);
        assert!(program_named(place.path()).is_some(), "{file}: {odd:?}");
    }
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join(".git"), b"gitdir: g\xff\n").unwrap();
    assert!(program_named(place.path()).is_some());
}

#[test]
fn another_tree_is_found_in_both_settings_files_and_from_the_git_directory() {
    let place = tempfile::tempdir().unwrap();
    let git = place.path().join(".git");
    std::fs::create_dir_all(git.join("sub/link")).unwrap();
    std::os::unix::fs::symlink("/etc", git.join("link")).unwrap();
    std::fs::write(git.join("config"), "").unwrap();
    std::fs::write(git.join("config.worktree"), "[core]\nworktree = /etc\n").unwrap();
    assert!(program_named(place.path()).is_some());
    std::fs::write(git.join("config.worktree"), "").unwrap();
    std::fs::write(git.join("sub/more"), "[core]\nworktree = link\n").unwrap();
    std::fs::write(git.join("config"), "[include]\npath = sub/more\n").unwrap();
    assert!(program_named(place.path()).is_some());
}

#[test]
fn a_link_leads_to_the_repository_it_points_into() {
    let made = Made::new();
    made.nest("d/n");
    made.write("d/n/.git/config", FILTER);
    made.write("d/n/below/f", "x");
    std::os::unix::fs::symlink("d/n/below", made.root().join("link")).unwrap();
    assert!(made.found("link").is_some());
    assert!(made.found("d/n/missing/deeper").is_some());
    assert_eq!(made.found("missing"), None);
}

#[test]
fn what_only_looks_like_a_repository_hides_none_above() {
    let made = Made::new();
    std::fs::create_dir_all(made.root().join("sub/.git")).unwrap();
    assert_eq!(made.found("sub"), None);
    made.write(".git/config", FILTER);
    assert!(made.found("sub").is_some());
}

#[test]
fn a_dangling_head_is_a_head() {
    let made = Made::new();
    made.write(".git/modules/s/config", FILTER);
    assert_eq!(made.found(""), None);
    std::os::unix::fs::symlink("refs/heads/gone", made.root().join(".git/modules/s/HEAD")).unwrap();
    assert!(made.found("").is_some());
}
