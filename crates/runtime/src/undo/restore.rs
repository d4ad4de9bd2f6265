//! Carrying out a plan: images of what is overwritten first, then the record that it begins, the
//! files, and the record of what was done.
//!
//! Killed in between, every file is whole, the log says that an undo began, and the same undo can
//! be asked for again: what is back already counts as done.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::Context as _;
use agent_history::workspace::{Images, PathState};
use agent_log::SessionWriter;
use agent_protocol::command::OnConflict;
use agent_protocol::id::ArtifactId;
use agent_protocol::payload::conversation::{
    ArtifactKind, HistoryRollbackCompleted, HistoryRollbackStarted, RefusedFile,
};
use agent_protocol::payload::{SideEffect, SideEffectKind};
use agent_protocol::reply::UndoReport;
use agent_protocol::{Refs, Scope};

use super::plan::{Entry, Plan, Verdict, in_parallel, in_words};
use super::tree::{FoundPath, Tree};
use crate::error::{OrFail as _, RuntimeError, chain};

/// Does what `plan` says. `decide` answers for each path that somebody else changed.
pub(crate) fn carry_out(
    root: &Path,
    writer: &SessionWriter,
    plan: &Plan,
    reason: &str,
    mut decide: impl FnMut(&Entry) -> OnConflict,
) -> Result<UndoReport, RuntimeError> {
    let tree = Tree::open(root).or_usage()?;
    let before = writer.head().next_sequence.saturating_sub(1);
    let mut refused = Vec::new();
    let mut work = Vec::new();
    let mut restored = Vec::new();
    let (mut paths, mut kept) = (0, Vec::new());
    for entry in &plan.entries {
        let keep_beside = match &entry.verdict {
            Verdict::Restore => false,
            // A killed undo put it back and could not say so any more.
            Verdict::Done if entry.was_in_hand => {
                tree.sweep(Path::new(&entry.name));
                restored.extend(effects(entry, &entry.recorded, None));
                paths += 1;
                continue;
            }
            Verdict::Done | Verdict::Beside(_) => continue,
            Verdict::Impossible(why) => {
                refused.push(refusal(&entry.name, why.clone()));
                continue;
            }
            Verdict::Conflict(why) => match decide(entry) {
                OnConflict::Keep => {
                    refused.push(refusal(&entry.name, why.clone()));
                    continue;
                }
                OnConflict::Restore => false,
                OnConflict::Orig => entry.found.state.content().is_some(),
            },
        };
        work.push(Job {
            entry,
            path: PathBuf::from(&entry.name),
            keep_beside,
            image: None,
        });
    }
    let images = Images::new(writer.artifacts().clone());
    let scope = Scope::default();
    keep_images(&tree, writer, &scope, &mut work, &mut refused)?;
    let started = HistoryRollbackStarted {
        target_sequence: plan.target_sequence(),
        reason: reason.to_owned(),
        files: work.iter().map(|job| job.entry.name.clone()).collect(),
    };
    writer
        .append(&scope, started, Refs::default())
        .context("cannot record the start of the undo; nothing was changed")?;
    writer
        .sync()
        .context("cannot record the start of the undo; nothing was changed")?;

    let done = write_all(&tree, &images, &work);
    for (job, done) in work.iter().zip(done) {
        match done {
            Ok(beside) => {
                restored.extend(effects(
                    job.entry,
                    &job.entry.found.state,
                    job.image.as_ref(),
                ));
                paths += 1;
                if let Some(beside) = beside {
                    let made = created_beside(job, &beside);
                    kept.push(made.path.clone());
                    restored.push(made);
                }
            }
            Err(why) => refused.push(refusal(&job.entry.name, why)),
        }
    }
    tree.sync().with_context(|| {
        format!(
            "the files of `{}` are restored but may not be on disk yet",
            tree.path().display()
        )
    })?;
    let completed = HistoryRollbackCompleted {
        target_sequence: plan.target_sequence(),
        removed_turns: Vec::new(),
        files_restored: restored.clone(),
        files_refused: refused.clone(),
    };
    let doing = "the files are restored, but the end of the undo could not be recorded";
    writer
        .append(&scope, completed, Refs::default())
        .context(doing)?;
    writer.sync().context(doing)?;
    Ok(UndoReport {
        paths,
        beside: kept,
        restored,
        refused,
        before,
    })
}

/// Puts everything that `plan` names back as it was, whoever changed it since, and says what could
/// not be. For a copy that nobody needs: nothing is recorded and nothing is kept.
pub fn restore_without_record(
    root: &Path,
    images: &Images,
    plan: &Plan,
) -> Result<Vec<RefusedFile>, RuntimeError> {
    let tree = Tree::open(root).or_usage()?;
    let mut refused = Vec::new();
    let mut work = Vec::new();
    for entry in &plan.entries {
        match &entry.verdict {
            Verdict::Done => {}
            Verdict::Impossible(why) => refused.push(refusal(&entry.name, why.clone())),
            Verdict::Restore | Verdict::Beside(_) | Verdict::Conflict(_) => work.push(Job {
                entry,
                path: PathBuf::from(&entry.name),
                keep_beside: false,
                image: None,
            }),
        }
    }
    let done = write_all(&tree, images, &work);
    for (job, done) in work.iter().zip(done) {
        if let Err(why) = done {
            refused.push(refusal(&job.entry.name, why));
        }
    }
    Ok(refused)
}

/// One path to be written.
struct Job<'a> {
    entry: &'a Entry,
    path: PathBuf,
    keep_beside: bool,
    /// The saved content of what is overwritten.
    image: Option<ArtifactId>,
}

impl Job<'_> {
    fn target(&self) -> &PathState {
        &self.entry.target
    }

    fn found(&self) -> &FoundPath {
        &self.entry.found
    }

    /// Whether the bytes that are there stay, so that only the mode changes.
    fn keeps_bytes(&self) -> bool {
        match (self.target(), &self.found().state) {
            (PathState::File(target), PathState::File(now)) => {
                target.sha256.is_some() && target.sha256 == now.sha256
            }
            (PathState::Directory { .. }, PathState::Directory { .. }) => true,
            _ => false,
        }
    }
}

/// Keeps what is about to be overwritten. A path whose bytes cannot be kept is not touched.
fn keep_images(
    tree: &Tree,
    writer: &SessionWriter,
    scope: &Scope,
    work: &mut Vec<Job<'_>>,
    refused: &mut Vec<RefusedFile>,
) -> Result<(), RuntimeError> {
    let store = writer.artifacts();
    let mut missing = Vec::new();
    for (index, job) in work.iter_mut().enumerate() {
        let id = job.found().state.content().and_then(|now| now.artifact());
        let Some(id) = id.filter(|_| !job.keeps_bytes()) else {
            continue;
        };
        if store.open(&id).is_err() {
            missing.push(index);
        }
        job.image = Some(id);
    }
    let read = in_parallel(&missing, |index| tree.read(&work[*index].path));
    let mut lost = Vec::new();
    let mut contents: Vec<Vec<u8>> = Vec::new();
    for (index, bytes) in missing.into_iter().zip(read) {
        match bytes {
            Ok(bytes) => contents.push(bytes),
            Err(error) => lost.push((index, in_words(&error))),
        }
    }
    let parts: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    let doing = "cannot save what would be overwritten; nothing was changed";
    for stored in store.put_all(&parts).context(doing)? {
        let binary = "application/octet-stream";
        writer
            .record_artifact(scope, &stored, ArtifactKind::Before, binary, None)
            .context(doing)?;
    }
    for (index, why) in lost.into_iter().rev() {
        let job = work.remove(index);
        refused.push(refusal(
            &job.entry.name,
            format!("it cannot be read: {why}"),
        ));
    }
    Ok(())
}

/// Writes all paths: what goes first, from the deepest up; then what comes, from the top down;
/// modes of directories last, since a read-only one could not be filled.
fn write_all(
    tree: &Tree,
    images: &Images,
    work: &[Job<'_>],
) -> Vec<Result<Option<PathBuf>, String>> {
    let mut done: Vec<Result<Option<PathBuf>, String>> = work.iter().map(|_| Ok(None)).collect();
    let mut at =
        |index: usize, result: Result<Option<PathBuf>, String>| match (&mut done[index], result) {
            // The first failure of a path is the one to tell.
            (Err(_), _) => false,
            (_, Err(why)) => {
                done[index] = Err(why);
                false
            }
            (slot, Ok(beside)) => {
                if beside.is_some() {
                    *slot = Ok(beside);
                }
                true
            }
        };
    let is_directory = |state: &PathState| matches!(state, PathState::Directory { .. });
    let changes_kind = |job: &Job<'_>| {
        job.found().state.exists()
            && (job.target() == &PathState::Missing
                || is_directory(job.target()) != is_directory(&job.found().state))
    };
    for (index, job) in work.iter().enumerate().rev() {
        if changes_kind(job) {
            at(index, remove(tree, job).map_err(|error| explain(&error)));
        }
    }
    for (index, job) in work.iter().enumerate() {
        if is_directory(job.target()) && !is_directory(&job.found().state) {
            let made = tree.make_directory(&job.path);
            at(index, made.map(|()| None).map_err(|error| explain(&error)));
        }
    }
    let files: Vec<usize> = (0..work.len())
        .filter(|index| work[*index].target().content().is_some())
        .collect();
    let written = in_parallel(&files, |index| put(tree, images, &work[*index]));
    for (index, written) in files.into_iter().zip(written) {
        at(index, written);
    }
    for (index, job) in work.iter().enumerate().rev() {
        if let PathState::Directory { mode: Some(mode) } = job.target() {
            let set = tree.set_mode(&job.path, *mode);
            at(index, set.map(|()| None).map_err(|error| explain(&error)));
        }
    }
    done
}

fn remove(tree: &Tree, job: &Job<'_>) -> io::Result<Option<PathBuf>> {
    if matches!(job.found().state, PathState::Directory { .. }) {
        return tree.remove_directory(&job.path).map(|()| None);
    }
    let beside = match job.keep_beside {
        true => Some(tree.keep_beside(&job.path)?),
        false => None,
    };
    tree.remove_file(&job.path, job.found())?;
    Ok(beside)
}

fn put(tree: &Tree, images: &Images, job: &Job<'_>) -> Result<Option<PathBuf>, String> {
    let failed = |error: io::Error| explain(&error);
    let mode = job.target().mode();
    if job.keeps_bytes() {
        if let Some(mode) = mode {
            tree.set_mode(&job.path, mode).map_err(failed)?;
        }
        return Ok(None);
    }
    let bytes = images.read(job.target()).map_err(|error| chain(&error))?;
    let was_removed = matches!(job.found().state, PathState::Directory { .. });
    let beside = match job.keep_beside {
        true => Some(tree.keep_beside(&job.path).map_err(failed)?),
        false => None,
    };
    let nothing = FoundPath::nothing();
    let seen = if was_removed { &nothing } else { job.found() };
    match job.target() {
        PathState::Symlink(_) => tree.put_link(&job.path, seen, &bytes),
        _ => tree.put_file(&job.path, seen, &bytes, mode),
    }
    .map_err(failed)?;
    Ok(beside)
}

fn explain(error: &io::Error) -> String {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::NOTEMPTY | Errno::EXIST) => "it is not empty".to_owned(),
        _ => in_words(error),
    }
}

fn refusal(path: &str, reason: String) -> RefusedFile {
    RefusedFile {
        path: path.to_owned(),
        reason,
    }
}

/// What the record says of a path that was put back from `from`. A change of kind is a deletion and
/// a creation.
fn effects(entry: &Entry, from: &PathState, image: Option<&ArtifactId>) -> Vec<SideEffect> {
    let to = &entry.target;
    let same_kind = from.file_type() == to.file_type();
    if from.exists() && to.exists() && !same_kind {
        return vec![
            effect(
                entry,
                SideEffectKind::Deleted,
                from,
                &PathState::Missing,
                image,
            ),
            effect(
                entry,
                SideEffectKind::Created,
                &PathState::Missing,
                to,
                None,
            ),
        ];
    }
    let bytes = |state: &PathState| state.content().and_then(|content| content.sha256.clone());
    let kind = match (from.exists(), to.exists()) {
        (false, _) => SideEffectKind::Created,
        (_, false) => SideEffectKind::Deleted,
        _ if bytes(from) == bytes(to) => SideEffectKind::ModeChanged,
        _ => SideEffectKind::Modified,
    };
    vec![effect(entry, kind, from, to, image)]
}

fn effect(
    entry: &Entry,
    kind: SideEffectKind,
    from: &PathState,
    to: &PathState,
    image: Option<&ArtifactId>,
) -> SideEffect {
    let (before, after) = (from.content(), to.content());
    SideEffect {
        kind,
        path: entry.name.clone(),
        sha256_before: before.and_then(|content| content.sha256.clone()),
        sha256_after: after.and_then(|content| content.sha256.clone()),
        before_ref: image
            .cloned()
            .or_else(|| before.and_then(|content| content.image.clone())),
        after_ref: after.and_then(|content| content.image.clone()),
        bytes_before: before.and_then(|content| content.bytes),
        bytes_after: after.and_then(|content| content.bytes),
        mode_before: from.mode(),
        mode_after: to.mode(),
        file_type: [to, from]
            .into_iter()
            .find_map(|state| state.file_type())
            .map(str::to_owned),
        no_image: None,
        ignored: None,
    }
}

/// The second name that keeps what somebody else had written.
fn created_beside(job: &Job<'_>, beside: &Path) -> SideEffect {
    let now = &job.found().state;
    let content = now.content();
    SideEffect {
        kind: SideEffectKind::Created,
        path: beside.to_string_lossy().into_owned(),
        sha256_after: content.and_then(|content| content.sha256.clone()),
        after_ref: job.image.clone(),
        bytes_after: content.and_then(|content| content.bytes),
        mode_after: now.mode(),
        file_type: now.file_type().map(str::to_owned),
        ..SideEffect::default()
    }
}
