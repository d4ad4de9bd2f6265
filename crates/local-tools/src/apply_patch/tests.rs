//! All files or none, while somebody else writes to them between the steps.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use agent_protocol::Code;
use proptest::prelude::*;

use super::carry_out::{FileChange, NotCarriedOut, carry_out};
use crate::diff::unified;
use crate::encoding::Encoding;
use crate::file;
use crate::path::{Access, Roots, open_file};

type Files = BTreeMap<String, String>;

fn files(root: &Path) -> Files {
    fn walk(directory: &Path, root: &Path, found: &mut Files) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, root, found);
            } else {
                let name = path.strip_prefix(root).unwrap().to_string_lossy();
                found.insert(name.into_owned(), fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut found = Files::new();
    walk(root, root, &mut found);
    found
}

fn put(root: &Path, name: &str, content: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// A change of a file as it is now.
fn change(roots: &Roots, name: &str, after: Option<&str>, from: Option<usize>) -> FileChange {
    let path = roots.resolve(name, Access::Write).unwrap();
    let opened = open_file(roots, &path).ok();
    FileChange {
        given: name.to_owned(),
        path,
        before: opened.map(|opened| file::load(&opened).unwrap()),
        after: after.map(|after| after.as_bytes().to_vec()),
        diff: unified(name, b"", b"", Encoding::Utf8, &[]),
        moved_from: from,
    }
}

fn run(changes: &[FileChange], roots: &Roots) -> Result<(), NotCarriedOut> {
    carry_out(changes, roots, &mut |_| {}).map(drop)
}

#[test]
fn a_moved_file_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "a", "old");
    fs::set_permissions(folder.path().join("a"), fs::Permissions::from_mode(0o751)).unwrap();
    let roots = Roots::open(folder.path(), None).unwrap();
    let changes = [
        change(&roots, "a", None, None),
        change(&roots, "deep/b", Some("new"), Some(0)),
    ];
    run(&changes, &roots).unwrap();
    assert_eq!(
        files(folder.path()),
        Files::from([("deep/b".into(), "new".into())])
    );
    let mode = fs::metadata(folder.path().join("deep/b")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o751);
}

#[test]
fn nothing_begins_when_one_file_is_not_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "a", "a");
    put(folder.path(), "b", "b");
    let roots = Roots::open(folder.path(), None).unwrap();
    for spoil in ["other", "read-only", "there"] {
        let changes = [
            change(&roots, "a", Some("A"), None),
            change(&roots, "new/c", Some("C"), None),
            change(&roots, "b", None, None),
        ];
        match spoil {
            "other" => put(folder.path(), "b", "theirs"),
            "read-only" => {
                let mode = fs::Permissions::from_mode(0o444);
                fs::set_permissions(folder.path().join("b"), mode).unwrap();
            }
            _ => put(folder.path(), "new/c", "theirs"),
        }
        let before = files(folder.path());
        let mut steps = 0;
        let failed = carry_out(&changes, &roots, &mut |_| steps += 1)
            .err()
            .unwrap();
        assert_eq!((steps, failed.stuck.len()), (0, 0), "{spoil}");
        let expected = match spoil {
            "read-only" => Code::PermissionDenied,
            _ => Code::StaleFileBaseline,
        };
        assert_eq!(failed.problem.code(), expected, "{spoil}");
        assert_eq!(files(folder.path()), before, "{spoil}");
        fs::set_permissions(folder.path().join("b"), fs::Permissions::from_mode(0o644)).unwrap();
    }
}

/// What somebody else does between two steps.
#[derive(Clone, Debug)]
enum Meanwhile {
    Write(usize),
    Remove(usize),
    /// Something is in the way of a new file.
    Directory(usize),
}

fn meanwhile() -> impl Strategy<Value = Option<(usize, Meanwhile)>> {
    let what = (0usize..5).prop_flat_map(|file| {
        prop_oneof![
            Just(Meanwhile::Write(file)),
            Just(Meanwhile::Remove(file)),
            Just(Meanwhile::Directory(file)),
        ]
    });
    prop::option::weighted(0.8, (0usize..5, what))
}

const NAMES: [&str; 5] = ["a", "b", "d/c", "d/e/f", "g"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Either every file is as the patch wants it, or every file that nobody else touched is as it
    /// was, and nothing else lies about.
    #[test]
    fn all_files_or_none(
        had in prop::collection::vec(any::<bool>(), 5),
        wants in prop::collection::vec(any::<Option<bool>>(), 5),
        disturbed in meanwhile(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (name, had) in NAMES.iter().zip(&had) {
            if *had {
                put(root, name, &format!("old {name}\n"));
            }
        }
        let roots = Roots::open(root, None).unwrap();
        let mut expected = files(root);
        let before = expected.clone();
        let mut changes = Vec::new();
        for (index, name) in NAMES.iter().enumerate() {
            let after = match wants[index] {
                Some(true) => Some(format!("new {name}\n")),
                Some(false) if had[index] => None,
                _ => continue,
            };
            changes.push(change(&roots, name, after.as_deref(), None));
            match after {
                Some(after) => expected.insert((*name).to_owned(), after),
                None => expected.remove(*name),
            };
        }
        let mut touched: Option<&str> = None;
        let outcome = carry_out(&changes, &roots, &mut |step| {
            let Some((at, what)) = &disturbed else { return };
            if *at != step {
                return;
            }
            let (Meanwhile::Write(file) | Meanwhile::Remove(file) | Meanwhile::Directory(file)) = what;
            let name = NAMES[*file];
            let path = root.join(name);
            match what {
                Meanwhile::Write(_) if path.exists() => put(root, name, "theirs"),
                Meanwhile::Remove(_) if path.exists() => fs::remove_file(&path).unwrap(),
                Meanwhile::Directory(_) if !path.exists() => fs::create_dir_all(&path).unwrap(),
                _ => return,
            }
            touched = Some(name);
        });
        let mut found = files(root);
        if let Some(name) = touched {
            // Theirs is theirs; and where they were in the way, it says so.
            found.remove(name);
            expected.remove(name);
            let mut rest = before.clone();
            rest.remove(name);
            prop_assert_eq!(found, if outcome.is_ok() { expected } else { rest });
            if let Err(failed) = &outcome {
                for (index, _) in &failed.stuck {
                    prop_assert_eq!(changes[*index].path.name(), name);
                }
            }
        } else {
            prop_assert!(outcome.is_ok());
            prop_assert_eq!(found, expected);
        }
    }
}
