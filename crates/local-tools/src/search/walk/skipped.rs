//! Files that a walk left out, counted where they are seen.

use agent_protocol::payload::tool::SkippedFiles;
use rustix::io::Errno;

/// Numbers of what was left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skipped {
    /// Files an ignore rule names.
    pub(crate) ignored: u64,
    /// Directories an ignore rule names; what is in them was not looked at.
    pub(crate) ignored_directories: u64,
    /// Files and directories a deny rule hides, or their being secrets.
    pub(crate) denied: u64,
    /// Symbolic links, which are not followed.
    pub(crate) links: u64,
    /// Pipes, sockets and devices.
    pub(crate) special: u64,
    /// Files with binary content.
    pub(crate) binary: u64,
    /// Files that are too large to be searched.
    pub(crate) too_large: u64,
    /// Files and directories that could not be read, or were gone when their turn came.
    pub(crate) unreadable: u64,
}

impl Skipped {
    /// Adds the counts of another worker.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ignored += other.ignored;
        self.ignored_directories += other.ignored_directories;
        self.denied += other.denied;
        self.links += other.links;
        self.special += other.special;
        self.binary += other.binary;
        self.too_large += other.too_large;
        self.unreadable += other.unreadable;
    }

    /// The counts with their names, also those that are zero.
    pub(crate) fn facts(&self) -> Vec<SkippedFiles> {
        [
            ("ignored", self.ignored),
            ("ignored_directory", self.ignored_directories),
            ("denied", self.denied),
            ("symlink", self.links),
            ("special", self.special),
            ("binary", self.binary),
            ("too_large", self.too_large),
            ("unreadable", self.unreadable),
        ]
        .into_iter()
        .map(|(reason, count)| SkippedFiles {
            reason: reason.to_owned(),
            count,
        })
        .collect()
    }
}

/// `Skipped: 3 ignored files, 2 ignored directories (not entered).`
pub(crate) fn skipped_sentence(facts: &[SkippedFiles]) -> String {
    let parts: Vec<String> = facts
        .iter()
        .filter(|fact| fact.count > 0)
        .map(|fact| {
            let words = match fact.reason.as_str() {
                "ignored" => "ignored by .gitignore or .ignore",
                "ignored_directory" => "ignored directories (not entered)",
                "denied" => "hidden by a rule or as secrets",
                "symlink" => "symbolic links (not followed)",
                "special" => "not regular files",
                "binary" => "binary",
                "too_large" => "too large",
                "unreadable" => "unreadable",
                other => other,
            };
            format!("{} {words}", fact.count)
        })
        .collect();
    if parts.is_empty() {
        "Skipped: nothing.".to_owned()
    } else {
        format!("Skipped: {}.", parts.join(", "))
    }
}

/// Counts a file that could not be opened.
pub(crate) fn note_unopened(error: Errno, skipped: &mut Skipped) {
    match error {
        Errno::LOOP => skipped.links += 1,
        _ => skipped.unreadable += 1,
    }
}
