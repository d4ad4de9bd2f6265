//! Ignore and deny rules applied to the directories of a walk.

use std::ffi::CString;
use std::io;
use std::sync::Arc;

use agent_fs::walk::{self, Entry, Listed, Next, WalkedDir};
use agent_sandbox::NameSearch;
use rustix::fs::FileType;

use super::skipped::Skipped;
use super::{Depth, Hides, Visitor};
use crate::search::rules::{Level, RuleFiles};

/// One worker's visitor, and what it needs to judge names.
pub(super) struct Judge<'a, V> {
    /// Path of the start as the rules see it, with a final slash unless it is empty.
    pub(super) prefix: &'a [u8],
    pub(super) denied: Hides<'a>,
    pub(super) depth: Depth,
    pub(super) names: Option<&'a NameSearch>,
    pub(super) visitor: V,
    pub(super) skipped: Skipped,
    /// Path of what is judged, with the prefix.
    pub(super) path: Vec<u8>,
}

/// Reasons for which a directory is entered, and the rules that hold in it.
#[derive(Clone)]
pub(super) struct State {
    level: Option<Arc<Level>>,
    purpose: Purpose,
    /// True if the search for protected names wants it.
    is_searched: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// No rule leaves it out.
    Wanted,
    /// An ignore rule names it or one above it; only what deny rules name is looked for.
    Denied,
    /// For the search for protected names alone.
    Names,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Wanted,
    Ignored,
    Denied,
}

impl State {
    pub(super) fn start(level: Option<Arc<Level>>, is_searched: bool) -> Self {
        Self {
            level,
            purpose: Purpose::Wanted,
            is_searched,
        }
    }
}

impl<V: Visitor> Judge<'_, V> {
    fn set_path(&mut self, directory: &WalkedDir, name: &[u8]) {
        self.path.clear();
        self.path.extend_from_slice(self.prefix);
        self.path.extend_from_slice(directory.path());
        self.path.extend_from_slice(name);
    }

    fn denies(&mut self, directory: &WalkedDir, name: &[u8]) -> bool {
        self.set_path(directory, name);
        (self.denied)(&self.path[self.prefix.len()..])
    }

    /// The ignore rules' verdict; leaves the path of what was judged.
    fn judge(
        &mut self,
        directory: &WalkedDir,
        level: Option<&Level>,
        name: &[u8],
        is_directory: bool,
    ) -> Verdict {
        self.set_path(directory, name);
        match level {
            _ if name == b".git" => Verdict::Ignored,
            Some(level) if level.ignores(&self.path, is_directory) => Verdict::Ignored,
            _ => Verdict::Wanted,
        }
    }

    fn verdict(
        &mut self,
        directory: &WalkedDir,
        level: Option<&Level>,
        name: &[u8],
        is_directory: bool,
    ) -> Verdict {
        if self.denies(directory, name) {
            return Verdict::Denied;
        }
        self.judge(directory, level, name, is_directory)
    }

    /// Shows the visitor a link or directory that was judged just now.
    fn show(&mut self, directory: &WalkedDir, name: &CString) {
        self.visitor.other(&Entry {
            directory: directory.descriptor(),
            name,
            path: &self.path[self.prefix.len()..],
        });
    }

    /// The purpose for which a directory in one that is wanted is entered.
    fn judge_directory(
        &mut self,
        directory: &WalkedDir,
        level: Option<&Level>,
        name: &CString,
    ) -> Purpose {
        match self.verdict(directory, level, name.to_bytes(), true) {
            Verdict::Wanted => {
                if V::EVERYTHING {
                    self.show(directory, name);
                }
                Purpose::Wanted
            }
            Verdict::Ignored => {
                self.skipped.ignored_directories += 1;
                let is_entered =
                    self.depth == Depth::IgnoredForDenied && name.to_bytes() != b".git";
                match is_entered {
                    true => Purpose::Denied,
                    false => Purpose::Names,
                }
            }
            Verdict::Denied => {
                self.skipped.denied += 1;
                Purpose::Names
            }
        }
    }

    /// The same in one that an ignore rule names: nothing of it is shown.
    fn judge_ignored(&mut self, directory: &WalkedDir, name: &CString) -> Purpose {
        let is_denied = self.denies(directory, name.to_bytes());
        self.skipped.denied += u64::from(is_denied);
        match is_denied {
            true => Purpose::Names,
            false => Purpose::Denied,
        }
    }

    /// Judges what is no directory in one that is wanted.
    fn judge_file(
        &mut self,
        directory: &WalkedDir,
        level: Option<&Level>,
        entry: Listed,
        next: &mut Next<State>,
    ) {
        let name = entry.name;
        match entry.kind {
            FileType::RegularFile => match self.verdict(directory, level, name.to_bytes(), false) {
                Verdict::Wanted => next.visit(name),
                Verdict::Ignored => self.skipped.ignored += 1,
                Verdict::Denied => self.skipped.denied += 1,
            },
            FileType::Symlink => {
                self.skipped.links += 1;
                if V::EVERYTHING
                    && self.judge(directory, level, name.to_bytes(), false) == Verdict::Wanted
                {
                    self.show(directory, &name);
                }
            }
            FileType::Unknown => self.skipped.unreadable += 1,
            _ => self.skipped.special += 1,
        }
    }
}

impl<V: Visitor> walk::Visitor for Judge<'_, V> {
    type State = State;

    fn directory(
        &mut self,
        directory: &WalkedDir,
        state: State,
        entries: Vec<Listed>,
        is_whole: bool,
        next: &mut Next<State>,
    ) {
        // Removed while it was listed, or a disk that fails: the rest is unknown.
        self.skipped.unreadable += u64::from(!is_whole);
        let names = self.names.filter(|_| state.is_searched);
        let searched = names.map(|names| names.directory(directory, &entries));
        let mut level = state.level;
        if state.purpose == Purpose::Wanted {
            let mut rules = RuleFiles::default();
            for entry in &entries {
                rules.notice(entry.name.to_bytes());
            }
            if rules != RuleFiles::default() {
                let prefix = self.prefix.len() + directory.path().len();
                level = Level::enter(level, directory.descriptor(), prefix, rules);
            }
        }
        for (number, entry) in entries.into_iter().enumerate() {
            let is_directory = entry.kind.is_dir();
            let is_link = entry.kind.is_symlink();
            let purpose = match state.purpose {
                Purpose::Wanted if is_directory => {
                    self.judge_directory(directory, level.as_deref(), &entry.name)
                }
                Purpose::Denied if is_directory => self.judge_ignored(directory, &entry.name),
                Purpose::Denied if is_link || entry.kind.is_file() => {
                    self.judge_ignored(directory, &entry.name);
                    continue;
                }
                Purpose::Wanted => {
                    self.judge_file(directory, level.as_deref(), entry, next);
                    continue;
                }
                _ => Purpose::Names,
            };
            let is_searched = searched.as_ref().and_then(|them| them.get(number)) == Some(&true);
            if purpose != Purpose::Names || is_searched {
                let state = State {
                    level: level.clone(),
                    purpose,
                    is_searched,
                };
                next.enter(entry.name, state);
            }
        }
    }

    fn unlisted(&mut self, path: &[u8], state: State, error: &io::Error) {
        if let Some(names) = self.names.filter(|_| state.is_searched) {
            names.unlisted(path, error);
        }
        if state.purpose == Purpose::Wanted {
            self.skipped.unreadable += 1;
            if V::EVERYTHING {
                self.visitor.closed(path);
            }
        }
    }

    fn file(&mut self, file: &Entry<'_>) {
        self.visitor.file(file, &mut self.skipped);
    }
}
