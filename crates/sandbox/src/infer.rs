//! Refusals read off the output of a command, each held against the policy: a path is named only
//! where the policy really keeps it from the command, so that what is said is true whatever the
//! command meant by its words.

use std::path::{Component, Path, PathBuf};

use crate::policy::WriteDenied;
use crate::violation::{Detection, Kind, Permit, Violation};

/// Most lines that are listed one by one.
const MOST: usize = 8;

/// Boundary of one command, as far as its output can show it.
#[derive(Debug)]
pub(crate) struct Boundary {
    pub(crate) workspace: PathBuf,
    pub(crate) cwd: PathBuf,
    /// True if the workspace may be written at all.
    pub(crate) workspace_writable: bool,
    /// True if git's data may be written.
    pub(crate) git_writable: bool,
    pub(crate) hidden: Vec<PathBuf>,
    /// Put back over what is hidden, the workspace included.
    pub(crate) shown: Vec<PathBuf>,
    pub(crate) writable: Vec<PathBuf>,
    pub(crate) protected: Vec<PathBuf>,
    /// Protected by rules and settings, not by their names.
    pub(crate) by_rule: Vec<PathBuf>,
    pub(crate) denied: WriteDenied,
    /// The home directory inside, and the user's.
    pub(crate) home: Option<(PathBuf, PathBuf)>,
    pub(crate) has_network: bool,
}

/// The kinds of errors that a refusal looks like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ErrorKind {
    Missing,
    Denied,
    ReadOnly,
    Network,
}

const ERROR_TEXTS: [(&str, ErrorKind); 22] = [
    ("Read-only file system", ErrorKind::ReadOnly),
    ("EROFS", ErrorKind::ReadOnly),
    ("No such file or directory", ErrorKind::Missing),
    ("ENOENT", ErrorKind::Missing),
    ("cannot find", ErrorKind::Missing),
    ("not found", ErrorKind::Missing),
    ("does not exist", ErrorKind::Missing),
    ("Permission denied", ErrorKind::Denied),
    ("EACCES", ErrorKind::Denied),
    ("Operation not permitted", ErrorKind::Denied),
    ("Could not resolve host", ErrorKind::Network),
    ("Couldn't resolve host", ErrorKind::Network),
    ("could not resolve host", ErrorKind::Network),
    ("Temporary failure in name resolution", ErrorKind::Network),
    ("Name or service not known", ErrorKind::Network),
    ("failed to lookup address", ErrorKind::Network),
    ("no such host", ErrorKind::Network),
    ("EAI_AGAIN", ErrorKind::Network),
    ("Network is unreachable", ErrorKind::Network),
    ("network is unreachable", ErrorKind::Network),
    ("ENETUNREACH", ErrorKind::Network),
    ("Network unreachable", ErrorKind::Network),
];

/// Refusals that the end of an output shows. `errors` is the end of stderr alone, which is
/// guessed from only when the command `failed`; `is_counted` says that the kernel counted refused
/// connections, which then need no guess.
pub(crate) fn infer(
    boundary: &Boundary,
    output: &[u8],
    errors: &[u8],
    failed: bool,
    is_counted: bool,
) -> Vec<Violation> {
    let mut found = Violations::default();
    for line in output.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let Some((_, kind)) = ERROR_TEXTS.iter().find(|(words, _)| line.contains(words)) else {
            continue;
        };
        match kind {
            ErrorKind::Network if boundary.has_network || is_counted => {}
            ErrorKind::Network => {
                found.add(Kind::Network, shortened(&line), GUESS, Permit::Network)
            }
            ErrorKind::ReadOnly => {
                for path in paths(&line, true) {
                    let path = normal(&boundary.cwd.join(path));
                    if let Some(permit) = boundary.unwritable(&path) {
                        found.add(Kind::Write, shown(&path), NAMED, permit);
                    }
                }
            }
            ErrorKind::Missing | ErrorKind::Denied => {
                for path in paths(&line, false) {
                    if let Some(path) = boundary.hidden(&normal(Path::new(path))) {
                        found.add(Kind::Read, path, NAMED, Permit::ReadableRoot);
                    }
                }
            }
        }
    }
    if failed {
        guess(errors, &mut found);
    }
    found.0
}

const GUESS: Detection = Detection::InferredFromErrnoText;
const NAMED: Detection = Detection::NamedPath;

/// Refusals guessed from the errors of a failing command, where no path settles it.
fn guess(errors: &[u8], found: &mut Violations) {
    for line in errors.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let (kind, permit) = if line.contains("Read-only file system") {
            (Kind::Write, Permit::WritableRoot)
        } else if line.contains("Permission denied") {
            (Kind::Read, Permit::ReadableRoot)
        } else if line.contains("Operation not permitted") {
            (Kind::Privilege, Permit::SandboxOff)
        } else {
            continue;
        };
        // Without a path the line is as likely to be the program's own opinion.
        let is_opinion = !line.contains('/') && kind != Kind::Write;
        let is_known = |known: &Violation| {
            known.detection == NAMED
                && paths(&line, true)
                    .any(|path| known.target.ends_with(path.trim_start_matches("./")))
        };
        if !is_opinion && !found.0.iter().any(is_known) {
            found.add(kind, shortened(&line), GUESS, permit);
        }
    }
}

#[derive(Default)]
struct Violations(Vec<Violation>);

impl Violations {
    fn add(&mut self, kind: Kind, target: String, detection: Detection, permitted_by: Permit) {
        let same = |known: &&mut Violation| known.kind == kind && known.target == target;
        if let Some(known) = self.0.iter_mut().find(same) {
            known.count += 1;
        } else if self.0.len() < MOST {
            self.0.push(Violation {
                kind,
                target,
                count: 1,
                detection,
                permitted_by,
                expected: false,
            });
        }
    }
}

impl Boundary {
    /// The path as the user knows it, if it lies in what is hidden.
    fn hidden(&self, path: &Path) -> Option<String> {
        if let Some((inside, outside)) = &self.home
            && let Ok(below) = path.strip_prefix(inside)
        {
            // What is put back of the home directory stands where it always did.
            let real = outside.join(below);
            let name = Path::new("~").join(below);
            return (self.is_hidden(&real) && !below.as_os_str().is_empty()).then(|| shown(&name));
        }
        self.is_hidden(path).then(|| shown(path))
    }

    /// The nearest directory above decides.
    fn is_hidden(&self, path: &Path) -> bool {
        let nearest = |places: &[PathBuf]| {
            let above = places.iter().filter(|place| path.starts_with(place));
            above.map(|place| place.components().count()).max()
        };
        match (nearest(&self.hidden), nearest(&self.shown)) {
            (Some(hidden), Some(shown)) => hidden > shown,
            (hidden, _) => hidden.is_some(),
        }
    }

    /// The one thing that would let the command write `path`, if it may not.
    fn unwritable(&self, path: &Path) -> Option<Permit> {
        let below = |places: &[PathBuf]| places.iter().any(|place| path.starts_with(place));
        let in_workspace = path.starts_with(&self.workspace);
        if in_workspace && !self.workspace_writable {
            return Some(Permit::ProjectWrite);
        }
        if below(&self.protected) {
            let in_git = path.starts_with(self.workspace.join(".git"));
            return Some(if in_git && !self.git_writable {
                Permit::GitWrite
            } else if below(&self.by_rule) || path.ancestors().any(|path| self.denied.names(path)) {
                Permit::NoDenyRule
            } else {
                Permit::SandboxOff
            });
        }
        (!in_workspace && !below(&self.writable)).then_some(Permit::WritableRoot)
    }
}

/// The words of a line that may be paths; relative ones only where they have a slash or are asked for.
fn paths(line: &str, relative: bool) -> impl Iterator<Item = &str> {
    let ends =
        |character: char| character.is_whitespace() || "\"'`‘’“”()[]{}<>,;=:".contains(character);
    line.split(ends)
        .map(|word| word.trim_end_matches('.'))
        .filter(move |word| {
            let is_url = word.starts_with("//");
            !is_url
                && (word.starts_with('/') && word.len() > 1
                    || relative && word.contains(['/', '.']))
        })
}

/// Resolves `.` and `..` without the file system.
fn normal(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

fn shown(path: &Path) -> String {
    shortened(&path.display().to_string())
}

fn shortened(text: &str) -> String {
    text.trim().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boundary() -> Boundary {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        Boundary {
            workspace: "/home/me/work".into(),
            cwd: "/home/me/work/src".into(),
            workspace_writable: true,
            git_writable: false,
            hidden: paths(&["/home", "/root", "/home/me/work/.env"]),
            shown: paths(&["/home/me/work", "/home/me/.cargo"]),
            writable: paths(&["/home/me/work", "/tmp"]),
            protected: paths(&["/home/me/work/.git", "/home/me/work/vendor"]),
            by_rule: paths(&["/home/me/work/vendor"]),
            denied: WriteDenied::default(),
            home: Some(("/tmp/home".into(), "/home/me".into())),
            has_network: false,
        }
    }

    /// Kind, target and permit of what `output` shows, whatever the exit code.
    fn check(output: &str, expected: &[(Kind, &str, Permit)]) {
        let found = infer(&boundary(), output.as_bytes(), b"", false, false);
        let found: Vec<_> = found
            .iter()
            .map(|found| (found.kind, found.target.as_str(), found.permitted_by))
            .collect();
        assert_eq!(found, expected, "{output}");
    }

    #[test]
    fn a_path_is_named_only_where_the_policy_keeps_it_away() {
        let read = Permit::ReadableRoot;
        check(
            "cat: /home/me/notes.txt: No such file or directory",
            &[(Kind::Read, "/home/me/notes.txt", read)],
        );
        check(
            "cat: /tmp/home/.ssh/id: No such file or directory",
            &[(Kind::Read, "~/.ssh/id", read)],
        );
        check(
            "FileNotFoundError: [Errno 2] No such file or directory: '/root/x'",
            &[(Kind::Read, "/root/x", read)],
        );
        check(
            "cat: /home/me/work/.env: Permission denied",
            &[(Kind::Read, "/home/me/work/.env", read)],
        );
        for plain in [
            "cat: /home/me/work/missing: No such file or directory",
            "cat: /home/me/.cargo/missing: No such file or directory",
            "cat: /tmp/home/.cargo/missing: No such file or directory",
            "cat: /etc/missing: No such file or directory",
            "cat: missing: No such file or directory",
            "see /home/me/notes.txt",
            "http://home/me not found",
        ] {
            check(plain, &[]);
        }
    }

    #[test]
    fn a_place_is_read_only_only_where_the_policy_says_so() {
        check(
            "touch: cannot touch '/etc/x': Read-only file system",
            &[(Kind::Write, "/etc/x", Permit::WritableRoot)],
        );
        check(
            "touch: cannot touch '../.git/x': Read-only file system",
            &[(Kind::Write, "/home/me/work/.git/x", Permit::GitWrite)],
        );
        check(
            "bash: line 1: ../vendor/a.c: Read-only file system",
            &[(Kind::Write, "/home/me/work/vendor/a.c", Permit::NoDenyRule)],
        );
        check("touch: 'a/x.c': Read-only file system", &[]);
    }

    #[test]
    fn a_lookup_that_failed_is_the_network_where_there_is_none() {
        let line = "curl: (6) Could not resolve host: example.invalid";
        check(line, &[(Kind::Network, line, Permit::Network)]);
        let open = Boundary {
            has_network: true,
            ..boundary()
        };
        assert!(infer(&open, line.as_bytes(), b"", true, false).is_empty());
        assert!(infer(&boundary(), line.as_bytes(), b"", true, true).is_empty());
    }

    #[test]
    fn a_failing_command_is_guessed_about_where_no_path_settles_it() {
        let check = |errors: &str, expected: &[(Kind, u64)]| {
            let bytes = errors.as_bytes();
            let found = infer(&boundary(), bytes, bytes, true, false);
            let found: Vec<_> = found.iter().map(|v| (v.kind, v.count)).collect();
            assert_eq!(found, expected, "{errors}");
        };
        check(
            "touch: cannot touch '/etc/x': Read-only file system\n",
            &[(Kind::Write, 1)],
        );
        check(
            "cat: /srv/k: Permission denied\ncat: /srv/k: Permission denied",
            &[(Kind::Read, 2)],
        );
        check("git push: Permission denied (publickey)", &[]);
        check("all tests passed", &[]);
    }
}
