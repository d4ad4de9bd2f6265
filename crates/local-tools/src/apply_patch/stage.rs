//! A patch against the files as they are: every section in its turn, in memory, until it is certain
//! what each file becomes.

use std::path::Path;

use agent_protocol::Code;
use agent_text::counted;
use agent_tool_runtime::{Body, RuntimeContext, ValidationFailure};

use super::carry_out::FileChange;
use super::parse::{Action, Hunk, HunkLine, Patch, Section};
use super::place::{HunkProblem, Ranges, place};
use crate::diff::{Diff, changed_range, unified};
use crate::edit::{check_version, current_version, not_readable, readable};
use crate::encoding::Encoding;
use crate::file::{self, Snapshot, binary_kind};
use crate::path::{Access, Found, ProjectPath, Roots};
use crate::read::refuse_binary;
use crate::reveal::reveal;
use crate::support::bad_path;
use crate::write::shared_encoding;

/// What a patch comes to.
pub(super) struct Staged {
    pub(super) changes: Vec<FileChange>,
    /// What a person should know before deciding.
    pub(super) facts: Vec<String>,
    /// What the result should say besides.
    pub(super) notes: Vec<String>,
}

/// Finds out what every file becomes. Changes nothing.
pub(super) fn stage(
    patch: Patch,
    cwd: Option<&str>,
    roots: &Roots,
    context: &RuntimeContext<'_>,
) -> Result<Staged, ValidationFailure> {
    let mut stage = Stage {
        cwd,
        roots,
        context,
        files: Vec::new(),
        facts: Vec::new(),
        notes: Vec::new(),
    };
    for section in patch.sections {
        let (line, path) = (section.line, section.path.clone());
        stage.section(section).map_err(|mut failure| {
            // The errors of paths and files point at a field that this tool has not.
            let message = format!("`{path}` (line {line} of the patch): {}", failure.message);
            failure.errors.clear();
            failure.message = format!("{message}. Nothing was changed.");
            failure.at("/input", message)
        })?;
    }
    stage.finish()
}

struct Stage<'a> {
    cwd: Option<&'a str>,
    roots: &'a Roots,
    context: &'a RuntimeContext<'a>,
    files: Vec<StagedFile>,
    facts: Vec<String>,
    notes: Vec<String>,
}

/// A file on its way.
struct StagedFile {
    path: ProjectPath,
    given: String,
    before: Option<Snapshot>,
    now: Option<Vec<u8>>,
    /// How often it was changed.
    touched: usize,
    /// The changed ranges, while there was one update.
    ranges: Ranges,
    moved_from: Option<usize>,
}

fn refused(code: Code, message: impl Into<String>) -> ValidationFailure {
    ValidationFailure::new(code, message)
}

impl Stage<'_> {
    fn section(&mut self, section: Section) -> Result<(), ValidationFailure> {
        let index = self.file(&section.path)?;
        match section.action {
            Action::Add(lines) => self.add(index, lines),
            Action::Delete => self.delete(index),
            Action::Update { moved_to, hunks } => {
                self.update(index, hunks)?;
                match moved_to {
                    Some(target) => self.rename(index, &target),
                    None => Ok(()),
                }
            }
        }
    }

    /// The place in the list of a file, which is looked at when it is named first.
    fn file(&mut self, given: &str) -> Result<usize, ValidationFailure> {
        let from_cwd = match self.cwd {
            Some(cwd) if !given.starts_with(['/', '~']) => {
                Path::new(cwd).join(given).to_string_lossy().into_owned()
            }
            _ => given.to_owned(),
        };
        let path = self
            .roots
            .resolve(&from_cwd, Access::Write)
            .map_err(|problem| bad_path(&problem, "/input"))?;
        let is_it = |file: &StagedFile| file.path.absolute() == path.absolute();
        if let Some(index) = self.files.iter().position(is_it) {
            return Ok(index);
        }
        let before = match path.found() {
            Found::Missing => None,
            _ => {
                let opened = readable(self.roots, &path)?;
                let failed = |error| not_readable(&path.name(), &error);
                Some(file::load(&opened).map_err(failed)?)
            }
        };
        self.files.push(StagedFile {
            now: before.as_ref().map(|snapshot| snapshot.content.clone()),
            path,
            given: from_cwd,
            before,
            touched: 0,
            ranges: Vec::new(),
            moved_from: None,
        });
        Ok(self.files.len() - 1)
    }

    fn add(&mut self, index: usize, lines: Vec<String>) -> Result<(), ValidationFailure> {
        let file = &self.files[index];
        if file.now.is_some() {
            if file.touched > 0 {
                let message = "the patch has made this file already";
                return Err(refused(Code::RuntimePreconditionFailed, message));
            }
            // As with `write`: what is replaced whole has to be known.
            current_version(self.roots, &file.path, self.context).map_err(|mut failure| {
                failure.message = format!(
                    "the file exists already, and {}; `*** Update File` changes a part of it",
                    failure.message
                );
                failure
            })?;
        }
        let mut text = lines.join("\n");
        if !lines.is_empty() {
            text.push('\n');
        }
        let before = file.before.as_ref();
        let text = reveal(text, "/input", before, self.roots, self.context)?;
        self.change(index, Some(text.into_bytes()), Vec::new());
        Ok(())
    }

    fn delete(&mut self, index: usize) -> Result<(), ValidationFailure> {
        self.goes(index)?;
        let name = self.files[index].path.name();
        self.facts.push(format!("Deletes `{name}`."));
        self.change(index, None, Vec::new());
        Ok(())
    }

    /// A file may go if it is there, under its own name and as this session knows it.
    fn goes(&self, index: usize) -> Result<(), ValidationFailure> {
        let file = &self.files[index];
        if file.now.is_none() {
            return Err(self.missing(index));
        }
        let named = self.roots.root().join(&file.given);
        if std::fs::symlink_metadata(&named).is_ok_and(|found| found.is_symlink()) {
            let message = format!(
                "it is a symbolic link to `{}`; a patch changes what a link leads to, and removes no link",
                file.path.name()
            );
            return Err(refused(Code::RuntimePreconditionFailed, message));
        }
        match &file.before {
            Some(before) if file.touched == 0 => {
                check_version(&file.path.name(), before, self.context)
            }
            _ => Ok(()),
        }
    }

    /// The failure that a file is not there, as opening it would have it.
    fn missing(&self, index: usize) -> ValidationFailure {
        let file = &self.files[index];
        match readable(self.roots, &file.path) {
            Err(failure) => failure,
            Ok(_) => refused(
                Code::FileNotFound,
                "the patch has deleted this file already",
            ),
        }
    }

    fn update(&mut self, index: usize, hunks: Vec<Hunk>) -> Result<(), ValidationFailure> {
        let file = &self.files[index];
        let Some(now) = &file.now else {
            return Err(self.missing(index));
        };
        if file.before.is_some() {
            refuse_binary(&file.path, &readable(self.roots, &file.path)?)?;
        }
        let hunks = self.revealed(file, hunks)?;
        let placed = place(now, Encoding::of(now), &hunks)
            .map_err(|problem| not_placed(&problem, &file.path))?;
        // Kept and removed lines show that the model knows the place. Where there are none, the
        // session has to know the file, as with `edit`.
        if placed.rests_on_nothing && file.touched == 0 && !now.is_empty() {
            current_version(self.roots, &file.path, self.context).map_err(|mut failure| {
                failure.message = format!(
                    "a hunk of added lines alone has no lines to be found by, and {}",
                    failure.message
                );
                failure
            })?;
        }
        if !placed.loosely.is_empty() {
            let hunks: Vec<String> = placed.loosely.iter().map(usize::to_string).collect();
            let fact = format!(
                "In `{}`, {} {} found with white space or typographic characters aside: {}.",
                file.path.name(),
                counted(placed.loosely.len() as u64, "hunk"),
                if hunks.len() == 1 { "was" } else { "were" },
                hunks.join(", ")
            );
            self.facts.push(fact.clone());
            self.notes.push(fact);
        }
        if !hunks.is_empty() {
            self.change(index, Some(placed.after), placed.changes);
        }
        Ok(())
    }

    /// The hunks with the values of placeholders of masked secrets in them.
    fn revealed(
        &self,
        file: &StagedFile,
        hunks: Vec<Hunk>,
    ) -> Result<Vec<Hunk>, ValidationFailure> {
        let mut revealed = hunks;
        for hunk in &mut revealed {
            let mut lines = Vec::with_capacity(hunk.lines.len());
            for line in std::mem::take(&mut hunk.lines) {
                if self.context.journal.placeholder_in(&line.text).is_none() {
                    lines.push(line);
                    continue;
                }
                let before = file.before.as_ref();
                let text = reveal(line.text, "/input", before, self.roots, self.context)?;
                // A secret may have several lines.
                lines.extend(text.split('\n').map(|text| HunkLine {
                    kind: line.kind,
                    text: text.strip_suffix('\r').unwrap_or(text).to_owned(),
                }));
            }
            hunk.lines = lines;
        }
        Ok(revealed)
    }

    fn rename(&mut self, index: usize, target: &str) -> Result<(), ValidationFailure> {
        self.goes(index)?;
        let to = self.file(target)?;
        let target = &self.files[to];
        if target.now.is_some() {
            let message = format!(
                "`{}` exists already, and nothing is moved over it",
                target.path.name()
            );
            return Err(refused(Code::RuntimePreconditionFailed, message));
        }
        let (from, to_name) = (self.files[index].path.name(), target.path.name());
        self.facts.push(format!("Moves `{from}` to `{to_name}`."));
        let content = self.files[index].now.clone();
        self.change(index, None, Vec::new());
        self.change(to, content, Vec::new());
        self.files[to].moved_from = Some(index);
        Ok(())
    }

    fn change(&mut self, index: usize, now: Option<Vec<u8>>, ranges: Ranges) {
        let file = &mut self.files[index];
        file.now = now;
        file.ranges = if file.touched == 0 {
            ranges
        } else {
            Vec::new()
        };
        file.touched += 1;
        file.moved_from = None;
    }

    fn finish(mut self) -> Result<Staged, ValidationFailure> {
        let mut changes = Vec::new();
        let mut moved = Vec::new();
        let mut places: Vec<Option<usize>> = Vec::new();
        for file in std::mem::take(&mut self.files) {
            let is_same = match (&file.before, &file.now) {
                (Some(before), Some(now)) => before.content == *now,
                (None, None) => true,
                _ => false,
            };
            places.push((!is_same).then_some(changes.len()));
            if is_same {
                continue;
            }
            moved.push(file.moved_from);
            changes.push(FileChange {
                diff: diff_of(&file),
                path: file.path,
                given: file.given,
                before: file.before,
                after: file.now,
                moved_from: None,
            });
        }
        for (change, from) in changes.iter_mut().zip(moved) {
            change.moved_from = from.and_then(|from| places[from]);
            let before = change.before.as_ref();
            let links = before.map_or(1, |snapshot| snapshot.stamp.links);
            if change.after.is_some() {
                self.facts.extend(crate::change::other_names_fact(links));
            }
        }
        if changes.is_empty() {
            let message = "the patch leaves every file as it is";
            let whole = format!("{message}. Nothing was changed.");
            return Err(refused(Code::NoChange, whole).at("/input", message));
        }
        Ok(Staged {
            changes,
            facts: self.facts,
            notes: self.notes,
        })
    }
}

fn diff_of(file: &StagedFile) -> Diff {
    let name = file.path.name();
    let before = file.before.as_ref().map_or(&[][..], |one| &*one.content);
    let after = file.now.as_deref().unwrap_or_default();
    if let Some(kind) = binary_kind(&before[..before.len().min(file::HEAD)]) {
        let words = format!("Binary file {name} ({kind}) is deleted\n");
        return Diff {
            exact: words.clone().into_bytes(),
            shown: words,
            added: 0,
            removed: 0,
        };
    }
    let encoding = match &file.now {
        Some(after) => shared_encoding(file.before.as_ref(), after),
        None => Encoding::of(before),
    };
    if file.ranges.is_empty() {
        let range: Vec<_> = changed_range(before, after).into_iter().collect();
        return unified(&name, before, after, encoding, &range);
    }
    unified(&name, before, after, encoding, &file.ranges)
}

/// A hunk without its place. The lines of the file belong to the untrusted part.
fn not_placed(problem: &HunkProblem, path: &ProjectPath) -> ValidationFailure {
    let full = problem.to_string();
    let Some(nearest) = problem.nearest() else {
        return refused(problem.code(), full);
    };
    let message = full.strip_suffix(&nearest.text).unwrap_or(&full);
    let message = message.trim_end_matches([':', '\n']);
    refused(problem.code(), message).with_body(Body::text(
        format!("nearest place in {}", path.name()),
        nearest.text.clone(),
    ))
}
