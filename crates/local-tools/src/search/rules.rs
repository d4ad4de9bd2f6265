//! Ignore rules along a path, with ripgrep's precedence.
//!
//! A [`Level`] holds the rules of one directory and knows the level above. Directories without
//! rules have no level of their own. For one path, `.rgignore` is asked first, then `.ignore`, then
//! `.gitignore`, then `.git/info/exclude`, each from the deepest directory up; the git ones stop at
//! the root of the repository. The user's global git file is not read: the same project gives the
//! same answer on every machine.

use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags};

/// An ignore file larger than this is no ignore file.
const MAX_RULE_BYTES: u64 = 4 << 20;

/// The rules of one directory.
#[derive(Debug)]
pub(crate) struct Level {
    above: Option<Arc<Level>>,
    /// Bytes of the path in front of what these rules are relative to.
    prefix: usize,
    /// In the order of precedence.
    rules: [Option<Gitignore>; 4],
    is_repository: bool,
}

/// The first two kinds hold everywhere, the last two within their repository.
const FILES: [&str; 4] = [".rgignore", ".ignore", ".gitignore", ".git/info/exclude"];

/// Ignore files a directory holds, noticed while it is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleFiles {
    present: [bool; 3],
    git: bool,
}

impl RuleFiles {
    /// All of them may be there.
    pub(crate) fn unknown() -> Self {
        Self {
            present: [true; 3],
            git: true,
        }
    }

    /// Takes note of one name.
    pub(crate) fn notice(&mut self, name: &[u8]) {
        if name.first() != Some(&b'.') {
            return;
        }
        match name {
            b".git" => self.git = true,
            b".rgignore" => self.present[0] = true,
            b".ignore" => self.present[1] = true,
            b".gitignore" => self.present[2] = true,
            _ => {}
        }
    }
}

impl Level {
    /// The level inside a directory: its own rules on top of those `above`.
    pub(crate) fn enter(
        above: Option<Arc<Level>>,
        directory: impl AsFd,
        prefix: usize,
        files: RuleFiles,
    ) -> Option<Arc<Level>> {
        let mut rules = [const { None }; 4];
        for (slot, name) in rules
            .iter_mut()
            .zip(FILES)
            .take(3)
            .enumerate()
            .filter_map(|(index, pair)| files.present[index].then_some(pair))
        {
            *slot = load(directory.as_fd(), name);
        }
        let is_repository = files.git && is_repository(directory.as_fd());
        if is_repository {
            rules[3] = load(directory.as_fd(), FILES[3]);
        }
        if !is_repository && rules.iter().all(Option::is_none) {
            return above;
        }
        Some(Arc::new(Self {
            above,
            prefix,
            rules,
            is_repository,
        }))
    }

    /// True if the rules leave `path` out.
    pub(crate) fn ignores(&self, path: &[u8], is_directory: bool) -> bool {
        let mut verdicts = [const { None::<bool> }; 4];
        let mut in_repository = true;
        let mut level = Some(self);
        while let Some(here) = level {
            for (kind, rules) in here.rules.iter().enumerate() {
                let Some(rules) = rules else {
                    continue;
                };
                if verdicts[kind].is_some() || kind >= 2 && !in_repository {
                    continue;
                }
                let relative = Path::new(OsStr::from_bytes(&path[here.prefix..]));
                verdicts[kind] = match rules.matched(relative, is_directory) {
                    Match::None => None,
                    Match::Ignore(_) => Some(true),
                    Match::Whitelist(_) => Some(false),
                };
            }
            in_repository &= !here.is_repository;
            level = here.above.as_deref();
        }
        verdicts.into_iter().flatten().next().unwrap_or(false)
    }
}

fn is_repository(directory: BorrowedFd<'_>) -> bool {
    rustix::fs::statat(directory, ".git", rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// The rules of one file. Lines that are no glob are left out, as git does.
fn load(directory: BorrowedFd<'_>, name: &str) -> Option<Gitignore> {
    // A link counts, as it does to git.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?;
    let file = std::fs::File::from(file);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_RULE_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    // A root of "." makes the matcher take paths as they are: ours are relative already.
    let mut builder = GitignoreBuilder::new(".");
    for line in text.lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}
