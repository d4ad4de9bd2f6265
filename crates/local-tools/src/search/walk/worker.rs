//! One worker of a walk: lists directories, judges names, hands out work and visits files.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};

use super::queue::{Directory, Job, Shared, StopOnPanic};
use super::skipped::Skipped;
use super::{Depth, Entry, Visitor};
use crate::search::rules::{Level, RuleFiles};

/// Files of one directory that one worker takes at a time.
const BATCH: usize = 64;

pub(super) struct Worker<'a, V> {
    shared: &'a Shared<'a>,
    pub(super) visitor: V,
    pub(super) skipped: Skipped,
    path: Vec<u8>,
    buffer: Vec<MaybeUninit<u8>>,
    jobs: Vec<Job>,
}

impl<'a, V: Visitor> Worker<'a, V> {
    pub(super) fn new(shared: &'a Shared<'a>, visitor: V) -> Self {
        let mut buffer = Vec::new();
        buffer.resize(32 << 10, MaybeUninit::uninit());
        Self {
            shared,
            visitor,
            skipped: Skipped::default(),
            path: Vec::new(),
            buffer,
            jobs: Vec::new(),
        }
    }

    pub(super) fn run(&mut self) {
        let _guard = StopOnPanic(self.shared);
        while let Some(job) = self.shared.next() {
            if self.shared.cancel.is_raised() {
                self.shared.stop();
                return;
            }
            match job {
                Job::Enter {
                    parent,
                    name,
                    ignored,
                } => self.enter(&parent, &name, ignored),
                Job::Files { directory, names } => {
                    for name in names {
                        self.visit(&directory, &name);
                    }
                }
            }
            self.shared.done();
        }
    }

    fn enter(&mut self, parent: &Directory, name: &CStr, ignored: bool) {
        let flags = OFlags::RDONLY
            | OFlags::DIRECTORY
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC
            | OFlags::NONBLOCK;
        let mut path = Vec::with_capacity(parent.path.len() + name.count_bytes() + 1);
        path.extend_from_slice(&parent.path);
        path.extend_from_slice(name.to_bytes());
        path.push(b'/');
        let entry = Entry {
            directory: parent.descriptor.as_fd(),
            name,
            path: &path[self.shared.base..path.len() - 1],
        };
        let wanted = V::EVERYTHING && !ignored;
        if wanted {
            self.visitor.other(&entry);
        }
        let Ok(descriptor) = rustix::fs::openat(&parent.descriptor, name, flags, Mode::empty())
        else {
            self.skipped.unreadable += u64::from(!ignored);
            if wanted {
                self.visitor.closed(&entry);
            }
            return;
        };
        let level = parent.level.clone();
        self.list(Arc::new(Directory {
            descriptor,
            path,
            level,
            ignored,
        }));
    }

    /// Lists a directory, hands out its directories and most of its files, and visits the rest.
    pub(super) fn list(&mut self, directory: Arc<Directory>) {
        let mut directories = Vec::new();
        let mut files = Vec::new();
        let mut links = Vec::new();
        let mut rules = RuleFiles::default();
        let mut entries = RawDir::new(&directory.descriptor, &mut self.buffer);
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else {
                // Removed while it was listed, or a disk that fails: the rest is unknown.
                self.skipped.unreadable += 1;
                break;
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            rules.notice(name.to_bytes());
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                kind = match rustix::fs::statat(
                    &directory.descriptor,
                    name,
                    AtFlags::SYMLINK_NOFOLLOW,
                ) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(_) => {
                        self.skipped.unreadable += 1;
                        continue;
                    }
                };
            }
            match kind {
                FileType::Directory => directories.push(name.to_owned()),
                FileType::RegularFile => files.push(name.to_owned()),
                FileType::Symlink => {
                    self.skipped.links += u64::from(!directory.ignored);
                    if V::EVERYTHING {
                        links.push(name.to_owned());
                    }
                }
                _ => self.skipped.special += u64::from(!directory.ignored),
            }
        }
        if directory.ignored {
            files.append(&mut links);
            return self.look_for_denied(&directory, directories, files);
        }
        let directory = if rules == RuleFiles::default() {
            directory
        } else {
            self.with_rules(directory, rules)
        };
        for name in links {
            if self.judge(&directory, name.to_bytes(), false) == Verdict::Wanted {
                let entry = Entry {
                    directory: directory.descriptor.as_fd(),
                    name: &name,
                    path: &self.path[self.shared.base..],
                };
                self.visitor.other(&entry);
            }
        }
        self.hand_out(&directory, directories, files);
    }

    /// The same in a directory that an ignore rule names: nothing of it is visited.
    fn look_for_denied(
        &mut self,
        directory: &Arc<Directory>,
        directories: Vec<CString>,
        files: Vec<CString>,
    ) {
        for name in files {
            let hidden = self.denies(directory, name.to_bytes());
            self.skipped.denied += u64::from(hidden);
        }
        let mut jobs = std::mem::take(&mut self.jobs);
        for name in directories {
            if self.denies(directory, name.to_bytes()) {
                self.skipped.denied += 1;
            } else {
                jobs.push(Job::Enter {
                    parent: Arc::clone(directory),
                    name,
                    ignored: true,
                });
            }
        }
        self.shared.add(&mut jobs);
        self.jobs = jobs;
    }

    fn with_rules(&self, directory: Arc<Directory>, rules: RuleFiles) -> Arc<Directory> {
        let level = Level::enter(
            directory.level.clone(),
            &directory.descriptor,
            directory.path.len(),
            rules,
        );
        match Arc::try_unwrap(directory) {
            Ok(directory) => Arc::new(Directory { level, ..directory }),
            Err(shared) => shared,
        }
    }

    fn hand_out(
        &mut self,
        directory: &Arc<Directory>,
        directories: Vec<CString>,
        files: Vec<CString>,
    ) {
        for name in directories {
            match self.verdict(directory, name.to_bytes(), true) {
                Verdict::Wanted => {
                    self.jobs.push(Job::Enter {
                        parent: Arc::clone(directory),
                        name,
                        ignored: false,
                    });
                }
                Verdict::Ignored => {
                    self.skipped.ignored_directories += 1;
                    if self.shared.depth == Depth::IgnoredForDenied && name.to_bytes() != b".git" {
                        self.jobs.push(Job::Enter {
                            parent: Arc::clone(directory),
                            name,
                            ignored: true,
                        });
                    }
                }
                Verdict::Denied => self.skipped.denied += 1,
            }
        }
        let mut wanted = Vec::new();
        for name in files {
            match self.verdict(directory, name.to_bytes(), false) {
                Verdict::Wanted => wanted.push(name),
                Verdict::Ignored => self.skipped.ignored += 1,
                Verdict::Denied => self.skipped.denied += 1,
            }
        }
        let mut jobs = std::mem::take(&mut self.jobs);
        while wanted.len() > BATCH {
            let names = wanted.split_off(wanted.len() - BATCH);
            jobs.push(Job::Files {
                directory: Arc::clone(directory),
                names,
            });
        }
        self.shared.add(&mut jobs);
        self.jobs = jobs;
        for name in wanted {
            self.visit(directory, &name);
        }
    }

    fn verdict(&mut self, directory: &Directory, name: &[u8], is_directory: bool) -> Verdict {
        if self.denies(directory, name) {
            return Verdict::Denied;
        }
        self.judge(directory, name, is_directory)
    }

    /// Verdict of the ignore rules; leaves the path of what was judged.
    fn judge(&mut self, directory: &Directory, name: &[u8], is_directory: bool) -> Verdict {
        self.set_path(directory, name);
        match &directory.level {
            _ if name == b".git" => Verdict::Ignored,
            Some(level) if level.ignores(&self.path, is_directory) => Verdict::Ignored,
            _ => Verdict::Wanted,
        }
    }

    fn denies(&mut self, directory: &Directory, name: &[u8]) -> bool {
        self.set_path(directory, name);
        (self.shared.denied)(&self.path[self.shared.base..])
    }

    fn set_path(&mut self, directory: &Directory, name: &[u8]) {
        self.path.clear();
        self.path.extend_from_slice(&directory.path);
        self.path.extend_from_slice(name);
    }

    fn visit(&mut self, directory: &Directory, name: &CStr) {
        self.set_path(directory, name.to_bytes());
        let entry = Entry {
            directory: directory.descriptor.as_fd(),
            name,
            path: &self.path[self.shared.base..],
        };
        self.visitor.file(&entry, &mut self.skipped);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Wanted,
    Ignored,
    Denied,
}
