//! The walk against trees made by hand, and against ripgrep's own.

use std::fs;

use proptest::prelude::*;

use super::*;

struct Names(Vec<String>);

impl Visitor for Names {
    fn file(&mut self, file: &Entry<'_>, _: &mut Skipped) {
        self.0.push(String::from_utf8_lossy(file.path).into_owned());
    }
}

fn walk(start: &Path, project: &Path) -> (Vec<String>, Skipped) {
    let descriptor = rustix::fs::open(
        start,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .unwrap();
    let walk = Walk {
        start: descriptor,
        start_path: start,
        project,
        denied: &|path| path.ends_with(b".secret"),
        depth: Depth::Wanted,
        names: None,
        cancel: &Cancel::new(),
    };
    let (visitors, skipped) = walk.run(|| Names(Vec::new()));
    let mut names: Vec<String> = visitors.into_iter().flat_map(|names| names.0).collect();
    names.sort();
    (names, skipped)
}

fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

#[test]
fn what_is_left_out_is_counted() {
    let folder = tree(&[
        (".gitignore", "*.log\ntarget/\n!keep.log\n"),
        ("a.rs", ""),
        ("b.log", ""),
        ("keep.log", ""),
        ("x.secret", ""),
        ("target/one", ""),
        ("target/deep/two", ""),
        ("sub/.ignore", "skip\n"),
        ("sub/skip", ""),
        ("sub/c.log", ""),
        ("sub/d", ""),
    ]);
    std::os::unix::fs::symlink("a.rs", folder.path().join("link")).unwrap();
    let (names, skipped) = walk(folder.path(), folder.path());
    assert_eq!(
        names,
        [".gitignore", "a.rs", "keep.log", "sub/.ignore", "sub/d"]
    );
    let expected = Skipped {
        ignored: 3,
        ignored_directories: 1,
        denied: 1,
        links: 1,
        ..Skipped::default()
    };
    assert_eq!(skipped, expected);
    let (names, _) = walk(&folder.path().join("sub"), folder.path());
    assert_eq!(names, [".ignore", "d"]);
    let (names, _) = walk(&folder.path().join("target"), folder.path());
    assert_eq!(names, ["deep/two", "one"]);
}

#[test]
fn a_nested_repository_has_its_own_rules() {
    let folder = tree(&[
        (".git/HEAD", ""),
        (".git/info/exclude", "private\n"),
        (".gitignore", "*.o\n"),
        ("private", ""),
        ("a.o", ""),
        ("vendor/.git/HEAD", ""),
        ("vendor/b.o", ""),
        ("vendor/private", ""),
    ]);
    let (names, skipped) = walk(folder.path(), folder.path());
    assert_eq!(names, [".gitignore", "vendor/b.o", "vendor/private"]);
    assert_eq!((skipped.ignored, skipped.ignored_directories), (2, 2));
}

#[test]
fn a_large_flat_directory_is_shared_out() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..500 {
        fs::write(folder.path().join(number.to_string()), "").unwrap();
    }
    assert_eq!(walk(folder.path(), folder.path()).0.len(), 500);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The rules are those of ripgrep: the same files as its own walker finds.
    #[test]
    fn the_same_files_as_ripgrep(
        files in proptest::collection::vec("[ab]{1,2}(/[ab]{1,2}){0,2}\\.[xy]", 1..12),
        rules in proptest::collection::vec(
            ("([ab]/)?(\\.gitignore|\\.ignore|\\.rgignore)",
             proptest::collection::vec("!?/?([ab*]{1,2}/)?[ab*]{1,2}(\\.[xy])?/?", 1..4)), 0..4),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        for file in &files {
            let path = root.join(file);
            let _ = fs::create_dir_all(path.parent().unwrap());
            let _ = fs::write(path, "");
        }
        for (name, lines) in &rules {
            let path = root.join(name);
            let _ = fs::create_dir_all(path.parent().unwrap());
            let _ = fs::write(path, lines.join("\n"));
        }
        let mut expected: Vec<String> = ignore::WalkBuilder::new(&root)
            .hidden(false)
            .require_git(false)
            .git_global(false)
            .parents(false)
            .add_custom_ignore_filename(".rgignore")
            .build()
            .flatten()
            .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()))
            .map(|entry| entry.path().strip_prefix(&root).unwrap().to_str().unwrap().to_owned())
            .collect();
        expected.sort();
        let (entry, _) = walk(&root, &root);
        prop_assert_eq!(&entry, &expected);
        // Asking about one file gives the same answer as coming to it.
        for file in files.iter().filter(|file| root.join(file).is_file()) {
            prop_assert_eq!(is_ignored(&root, Path::new(file)), !entry.contains(file), "{}", file);
        }
    }
}
