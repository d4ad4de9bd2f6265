//! The changes that a review is about: which files, which lines, and how to look at them. Git is asked in the
//! sandbox, for reading only.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Component, Path};

use agent_fs::Dir;

use crate::Runtime;
use crate::error::{OrFail as _, RuntimeError};
use crate::work_tree::{GitError, WorkTree};

/// The most bytes of a file whose lines are counted.
const MOST_BYTES: u64 = 64 << 20;

/// The changes one can ask about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Everything that is in no commit yet, new files included.
    Uncommitted,
    /// Everything since the branch of this name was left.
    Since(String),
    Commit(String),
}

/// Changes in a project, as they were when they were looked at.
pub struct Changes {
    pub subject: Subject,
    /// Commit they are compared with, or the commit itself; missing before the first one.
    pub commit: Option<String>,
    /// Changed files, from the project's root, with the lines added and removed.
    pub files: Vec<ChangedFile>,
    lines: ChangedLines,
    tree: WorkTree,
    root: Dir,
}

/// A file that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    pub path: String,
    pub added: u64,
    pub removed: u64,
    /// True if git does not know it yet.
    pub untracked: bool,
}

/// Lines that a diff shows, by file.
#[derive(Debug, Default, PartialEq, Eq)]
struct ChangedLines(BTreeMap<String, Vec<RangeInclusive<u64>>>);

impl Changes {
    /// Looks at the changes.
    ///
    /// # Errors
    /// When there is no repository, no such commit, or git cannot be asked.
    pub fn read(runtime: &Runtime, subject: Subject) -> Result<Self, RuntimeError> {
        let tree = WorkTree::new(runtime);
        let root = Dir::open(runtime.project.root()).or_fail()?;
        tree.line(&["rev-parse", "--git-dir"])
            .map_err(|error| match error {
                // Something is called `.git` and is none.
                GitError::Failed(_) => GitError::NoRepository(runtime.project.root().to_path_buf()),
                error => error,
            })
            .map_err(cannot)?;
        let (commit, from) = match &subject {
            Subject::Uncommitted => match tree.commit("HEAD") {
                Ok(head) => (Some(head.clone()), head),
                // Before the first commit everything is new.
                Err(GitError::Failed(_)) => (None, tree.empty()?),
                Err(error) => return Err(cannot(error)),
            },
            Subject::Since(branch) => {
                let tip = tree
                    .commit(branch)
                    .map_err(|error| no_commit(branch, error))?;
                let base = tree.line(&["merge-base", "HEAD", &tip]).map_err(cannot)?;
                (Some(base.clone()), base)
            }
            Subject::Commit(name) => {
                let commit = tree.commit(name).map_err(|error| no_commit(name, error))?;
                (Some(commit.clone()), commit)
            }
        };
        let mut asked = match &subject {
            Subject::Commit(_) => vec!["show", "--format=", "--first-parent", "-m"],
            Subject::Uncommitted | Subject::Since(_) => vec!["diff"],
        };
        asked.extend(PLAIN);
        asked.extend([from.as_str(), "--"]);
        let diff = tree.ask(&asked).map_err(cannot)?;
        let (mut files, lines) = read_diff(&String::from_utf8_lossy(&diff));
        if !matches!(subject, Subject::Commit(_)) {
            let asked = ["ls-files", "--others", "--exclude-standard", "-z"];
            let untracked = tree.ask(&asked).map_err(cannot)?;
            let names = untracked.split(|byte| *byte == 0);
            files.extend(
                names
                    .filter(|name| !name.is_empty())
                    .map(|name| ChangedFile {
                        path: String::from_utf8_lossy(name).into_owned(),
                        added: 0,
                        removed: 0,
                        untracked: true,
                    }),
            );
        }
        Ok(Self {
            subject,
            commit,
            files,
            lines,
            tree,
            root,
        })
    }

    /// True if `line` of `file` is in the changes, or in the file as it is after them.
    #[must_use]
    pub fn has_line(&self, file: &str, line: u64) -> bool {
        let path = Path::new(file);
        let is_inside = |part| matches!(part, Component::Normal(_));
        if !path.components().all(is_inside) || file.contains(['\0', '\n']) {
            return false;
        }
        if self.lines.has(file, line) {
            return true;
        }
        let content = match (&self.subject, &self.commit) {
            (Subject::Commit(_), Some(commit)) => {
                let blob = format!("{commit}:{file}");
                self.tree.ask(&["cat-file", "blob", &blob]).ok()
            }
            _ => self.root.read(path, MOST_BYTES).ok(),
        };
        content.is_some_and(|content| line > 0 && line <= count_lines(&content))
    }
}

/// A diff that no setting of the user or the repository changes, and that starts nothing.
const PLAIN: [&str; 7] = [
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-renames",
    "--unified=3",
    "--src-prefix=a/",
    "--dst-prefix=b/",
];

impl WorkTree {
    /// The first line that git prints.
    fn line(&self, arguments: &[&str]) -> Result<String, GitError> {
        let printed = self.ask(arguments)?;
        let text = String::from_utf8_lossy(&printed);
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }

    /// The commit of this name. A name never becomes an option.
    fn commit(&self, name: &str) -> Result<String, GitError> {
        let name = format!("{name}^{{commit}}");
        self.line(&[
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &name,
        ])
    }

    /// The tree without a file, in the repository's own kind of hash.
    fn empty(&self) -> Result<String, RuntimeError> {
        self.line(&["hash-object", "-t", "tree", "/dev/null"])
            .map_err(cannot)
    }
}

fn cannot(error: GitError) -> RuntimeError {
    let hint = match &error {
        GitError::NoRepository(_) => Some("run it in the root of a git repository"),
        GitError::NotConfined => Some("`agent sandbox check` says what is missing"),
        _ => None,
    };
    let error = RuntimeError::usage(format!("cannot look at the changes: {error}"));
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

fn no_commit(name: &str, error: GitError) -> RuntimeError {
    match error {
        GitError::Failed(_) => RuntimeError::usage(format!("git knows no commit `{name}`")),
        error => cannot(error),
    }
}

impl ChangedLines {
    fn has(&self, file: &str, line: u64) -> bool {
        let ranges = self.0.get(file).map_or(&[][..], Vec::as_slice);
        ranges.iter().any(|range| range.contains(&line))
    }
}

/// The files of a unified diff, and the lines of its hunks: those after the change, and for a file that
/// is gone those before it.
fn read_diff(diff: &str) -> (Vec<ChangedFile>, ChangedLines) {
    let mut files: Vec<ChangedFile> = Vec::new();
    let mut lines = ChangedLines::default();
    let mut before: Option<String> = None;
    // Lines of the hunk that are still to come: what they look like says nothing.
    let (mut old_left, mut new_left) = (0, 0);
    for line in diff.lines() {
        if old_left > 0 || new_left > 0 {
            let file = files.last_mut();
            match (line.as_bytes().first(), file) {
                (Some(b'+'), Some(file)) => {
                    file.added += 1;
                    new_left = less(new_left);
                }
                (Some(b'-'), Some(file)) => {
                    file.removed += 1;
                    old_left = less(old_left);
                }
                (Some(b'\\'), _) => {}
                _ => (old_left, new_left) = (less(old_left), less(new_left)),
            }
            continue;
        }
        if let Some(name) = line.strip_prefix("--- ") {
            before = name_of(name, "a/");
        } else if let Some(name) = line.strip_prefix("+++ ") {
            if let Some(path) = name_of(name, "b/").or(before.take()) {
                files.push(ChangedFile {
                    path,
                    added: 0,
                    removed: 0,
                    untracked: false,
                });
            }
        } else if let Some(hunk) = line.strip_prefix("@@ -") {
            let Some((old, new)) = hunk_of(hunk) else {
                continue;
            };
            (old_left, new_left) = (old.1, new.1);
            // Of a file that is gone only the old lines can be meant.
            let (first, count) = if new.1 == 0 { old } else { new };
            if let (Some(file), 1..) = (files.last(), count) {
                let ranges = lines.0.entry(file.path.clone()).or_default();
                ranges.push(first..=first.saturating_add(count - 1));
            }
        }
    }
    (files, lines)
}

fn less(left: u64) -> u64 {
    left.saturating_sub(1)
}

/// The name after `--- ` or `+++ `; none for `/dev/null`. Git puts unusual names into quotes.
fn name_of(text: &str, prefix: &str) -> Option<String> {
    let text = text.trim_end_matches('\t');
    let plain = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    let name = plain.unwrap_or(text).strip_prefix(prefix)?;
    Some(name.to_owned())
}

/// First line and count before and after, of `1,2 +3,4 @@`.
fn hunk_of(text: &str) -> Option<((u64, u64), (u64, u64))> {
    let (old, rest) = text.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let range = |text: &str| {
        let (first, count) = text.split_once(',').unwrap_or((text, "1"));
        Some((first.parse().ok()?, count.parse().ok()?))
    };
    Some((range(old)?, range(new)?))
}

fn count_lines(content: &[u8]) -> u64 {
    let breaks = content.iter().filter(|byte| **byte == b'\n').count() as u64;
    breaks + u64::from(content.last().is_some_and(|last| *last != b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "\
diff --git a/src/a.rs b/src/a.rs
--- a/src/a.rs
+++ b/src/a.rs
@@ -1,3 +1,4 @@ fn f() {
 one
-two
+--- a/two
++++ b/three
 four
@@ -20,0 +22,2 @@
+x
+y
\\ No newline at end of file
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1,2 +0,0 @@
-a
-b
diff --git \"a/t\\303\\274r\" \"b/t\\303\\274r\"
";

    #[test]
    fn a_diff_is_read_by_its_counts() {
        let (files, lines) = read_diff(DIFF);
        let read: Vec<(&str, u64, u64)> = files
            .iter()
            .map(|file| (file.path.as_str(), file.added, file.removed))
            .collect();
        assert_eq!(read, [("src/a.rs", 4, 1), ("gone.txt", 0, 2)]);
        let has = |file: &str, line| lines.has(file, line);
        assert!(has("src/a.rs", 1) && has("src/a.rs", 4) && !has("src/a.rs", 5));
        assert!(has("src/a.rs", 22) && has("src/a.rs", 23) && !has("src/a.rs", 24));
        assert!(has("gone.txt", 2) && !has("gone.txt", 3));
        assert!(!has("three", 1));
    }

    proptest::proptest! {
        /// What is no diff is read to its end too, and no file has a line before its first.
        #[test]
        fn anything_is_read(lines in proptest::collection::vec(
            "(--- a/[a-c]|\\+\\+\\+ b/[a-c]|--- /dev/null|@@ -[0-9]{1,20},[0-9]{1,3} \\+[0-9]{1,3}(,[0-9]{1,20})? @@|[-+ ].{0,4}|.{0,6})", 0..40
        )) {
            let (_, lines) = read_diff(&lines.join("\n"));
            let ranges = lines.0.values().flatten();
            proptest::prop_assert!(ranges.clone().all(|range| range.start() <= range.end()));
        }
    }

    #[test]
    fn the_last_line_counts_without_its_break() {
        assert_eq!(count_lines(b""), 0);
        assert_eq!(count_lines(b"a"), 1);
        assert_eq!(count_lines(b"a\n"), 1);
        assert_eq!(count_lines(b"a\nb"), 2);
    }
}
