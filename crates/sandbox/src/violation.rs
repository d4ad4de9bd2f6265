//! Facts about what a command tried and was refused, and how each was noticed.

use std::path::PathBuf;

/// A group of refused attempts. An empty list is no claim that nothing was attempted: file
/// accesses refused by mounts or Landlock leave no trace that this program can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub kind: Kind,
    /// The system call, the path or the line of output, as text for people.
    pub target: String,
    pub count: u64,
    pub detection: Detection,
    /// The one setting that would have permitted it.
    pub permitted_by: Permit,
    /// True for attempts that ordinary programs make without meaning anything by it, such as
    /// asking a name-service cache that is not there.
    pub expected: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Read,
    Write,
    Network,
    /// A call into the kernel that no build or test needs.
    Privilege,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Network => "network",
            Self::Privilege => "privilege",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detection {
    /// The kernel told us of the call and we refused it.
    SeccompNotification,
    /// A protected path differed after the run.
    BeforeAfterComparison,
    /// A failing command printed an error that reads like a refusal. A guess.
    InferredFromErrnoText,
}

impl Detection {
    pub fn name(self) -> &'static str {
        match self {
            Self::SeccompNotification => "seccomp_notification",
            Self::BeforeAfterComparison => "before_after_comparison",
            Self::InferredFromErrnoText => "inferred_from_errno_text",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// `network = true` for this command.
    Network,
    /// Permission to write git's data.
    GitWrite,
    /// A directory in the user's list of writable ones.
    WritableRoot,
    /// A directory in the user's list of readable ones.
    ReadableRoot,
    /// Rules that do not deny writing it.
    NoDenyRule,
    /// Only a command outside the sandbox could do this.
    SandboxOff,
}

impl Permit {
    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network = true",
            Self::GitWrite => "git write access",
            Self::WritableRoot => "sandbox.writable",
            Self::ReadableRoot => "sandbox.readable",
            Self::NoDenyRule => "no deny rule for it",
            Self::SandboxOff => "sandbox = \"off\"",
        }
    }
}

/// Something the comparison after a run took out of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Where it was, relative to the workspace.
    pub path: PathBuf,
    /// Where it is now; `None` if it could not be moved and still is where it was.
    pub moved_to: Option<PathBuf>,
}

/// Guesses refusals from the error text of a failing command. At most eight lines.
pub(crate) fn infer(stderr_tail: &[u8]) -> Vec<Violation> {
    const SIGNS: [(&str, Kind, Permit); 3] = [
        ("Read-only file system", Kind::Write, Permit::WritableRoot),
        ("Permission denied", Kind::Read, Permit::ReadableRoot),
        (
            "Operation not permitted",
            Kind::Privilege,
            Permit::SandboxOff,
        ),
    ];
    let mut found: Vec<Violation> = Vec::new();
    for line in stderr_tail.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let Some((_, kind, permitted_by)) = SIGNS.iter().find(|(sign, ..)| line.contains(sign))
        else {
            continue;
        };
        // Without a path the line is as likely to be the program's own opinion.
        if !line.contains('/') && *kind != Kind::Write {
            continue;
        }
        let target: String = line.trim().chars().take(200).collect();
        if let Some(known) = found.iter_mut().find(|known| known.target == target) {
            known.count += 1;
        } else if found.len() < 8 {
            found.push(Violation {
                kind: *kind,
                target,
                count: 1,
                detection: Detection::InferredFromErrnoText,
                permitted_by: *permitted_by,
                expected: false,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(output: &str, expected: &[(Kind, u64)]) {
        let found: Vec<_> = infer(output.as_bytes())
            .iter()
            .map(|v| (v.kind, v.count))
            .collect();
        assert_eq!(found, expected, "{output}");
    }

    #[test]
    fn error_lines_with_a_path_count_and_opinions_do_not() {
        check(
            "touch: cannot touch '/etc/x': Read-only file system\n",
            &[(Kind::Write, 1)],
        );
        check(
            "cat: /root/k: Permission denied\ncat: /root/k: Permission denied",
            &[(Kind::Read, 2)],
        );
        check("git push: Permission denied (publickey)", &[]);
        check("all tests passed", &[]);
    }
}
