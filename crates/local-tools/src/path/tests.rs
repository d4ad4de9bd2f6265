//! Every way out of a project, and what is there at the end of a path.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

struct Place {
    _folder: tempfile::TempDir,
    base: PathBuf,
    workspace: Roots,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let base = fs::canonicalize(folder.path()).unwrap();
    for directory in ["shop/src", "shop-backup", "home/.ssh", "reference"] {
        fs::create_dir_all(base.join(directory)).unwrap();
    }
    for file in [
        "shop/src/main.rs",
        "shop-backup/a",
        "home/.ssh/key",
        "reference/book",
    ] {
        fs::write(base.join(file), "x").unwrap();
    }
    let links = [
        ("../../home/.ssh/key", "shop/src/key"),
        ("../home", "shop/cache"),
        ("main.rs", "shop/src/alias.rs"),
        ("new.rs", "shop/src/dangling.rs"),
        ("loop-b", "shop/loop-a"),
        ("loop-a", "shop/loop-b"),
        ("/proc/self/root", "shop/magic"),
    ];
    for (target, link) in links {
        symlink(target, base.join(link)).unwrap();
    }
    symlink(base.join("shop/src"), base.join("shop/absolute")).unwrap();
    let mut workspace = Roots::open(&base.join("shop"), Some(&base.join("home"))).unwrap();
    workspace.add_root(&base.join("reference"), false).unwrap();
    Place {
        _folder: folder,
        base,
        workspace,
    }
}

fn check(place: &Place, given: &str, expected: &str) {
    let got = match place.workspace.resolve(given, Access::Write) {
        Ok(path) => path.name(),
        Err(problem) => problem.code().to_string(),
    };
    assert_eq!(got, expected, "{given}");
}

#[test]
fn every_way_out_is_found() {
    let place = place();
    let base = place.base.display().to_string();
    check(&place, "src/main.rs", "src/main.rs");
    check(&place, "./src/../src//main.rs", "src/main.rs");
    check(&place, &format!("{base}/shop/src/main.rs"), "src/main.rs");
    check(
        &place,
        &format!("{base}/home/../shop/src/main.rs"),
        "src/main.rs",
    );
    check(&place, "src/alias.rs", "src/main.rs");
    check(&place, "absolute/main.rs", "src/main.rs");
    check(&place, "src/dangling.rs", "src/new.rs");
    check(&place, "new/deep/file", "new/deep/file");
    check(&place, ".", ".");
    check(&place, "../shop-backup/a", "outside_workspace");
    check(
        &place,
        &format!("{base}/shop-backup/a"),
        "outside_workspace",
    );
    check(
        &place,
        &format!("{base}/shop-backup/none"),
        "outside_workspace",
    );
    check(&place, "src/key", "outside_workspace");
    check(&place, "cache/x", "outside_workspace");
    check(&place, "magic/etc/passwd", "outside_workspace");
    check(&place, "~/.ssh/key", "outside_workspace");
    check(&place, "~", "outside_workspace");
    check(&place, "~other", "~other");
    check(&place, "/dev/zero", "outside_workspace");
    check(
        &place,
        &format!("{base}/reference/book"),
        "outside_workspace",
    );
    check(&place, "none/../../shop-backup/a", "file_not_found");
    check(&place, "src/main.rs/x", "file_not_found");
    check(&place, "loop-a", "runtime_precondition_failed");
    check(&place, "", "runtime_precondition_failed");
    check(&place, "a\0b", "runtime_precondition_failed");
    check(&place, &"x/".repeat(2048), "runtime_precondition_failed");
    check(&place, &"x".repeat(4095), "runtime_precondition_failed");
    check(&place, &"x".repeat(300), "runtime_precondition_failed");
    let book = format!("{base}/reference/book");
    assert_eq!(
        place.workspace.resolve(&book, Access::Read).unwrap().name(),
        book
    );
}

#[test]
fn a_component_swapped_for_a_link_is_not_followed() {
    let place = place();
    let path = place
        .workspace
        .resolve("src/main.rs", Access::Read)
        .unwrap();
    fs::rename(place.base.join("shop/src"), place.base.join("shop/old")).unwrap();
    symlink(place.base.join("home/.ssh"), place.base.join("shop/src")).unwrap();
    fs::write(place.base.join("home/.ssh/main.rs"), "secret").unwrap();
    let problem = open_file(&place.workspace, &path).unwrap_err();
    assert_eq!(problem.code(), Code::OutsideWorkspace, "{problem}");
    assert!(place.workspace.open_parent(&path, true).is_err());
}

#[test]
fn only_regular_files_are_opened_and_nothing_hangs() {
    let place = place();
    let pipe = place.base.join("shop/pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.base.join("shop/socket")).unwrap();
    for (name, code) in [
        ("pipe", Code::NotAFile),
        ("socket", Code::NotAFile),
        ("src", Code::NotAFile),
        ("src/Main.rs", Code::FileNotFound),
    ] {
        let path = place.workspace.resolve(name, Access::Read).unwrap();
        let problem = open_file(&place.workspace, &path).unwrap_err();
        assert_eq!(problem.code(), code, "{problem}");
    }
    let path = place
        .workspace
        .resolve("src/Main.rs", Access::Read)
        .unwrap();
    let problem = open_file(&place.workspace, &path).unwrap_err();
    assert_eq!(
        problem.to_string(),
        "`src/Main.rs` does not exist; `main.rs` does"
    );
}
