//! What an undo would do, decided from the log and from what is on disk, before anything is touched.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use agent_history::workspace::{ChangedBy, Gap, Images, NetChange, PathState, Workspace};
use agent_log::SessionDirectory;
use agent_policy::gate::is_protected;
use agent_protocol::id::SessionId;

use super::extent::{Chosen, Extent, Span};
use super::tree::{self, FoundPath, Tree};
use crate::error::{OrFail as _, RuntimeError};

/// What an undo would do.
pub struct Plan {
    pub session_id: SessionId,
    /// The events that are taken back.
    pub span: Span,
    /// One per path, in the order of paths.
    pub entries: Vec<Entry>,
    /// What the log does not show, so that it cannot be taken back.
    pub gaps: Vec<Gap>,
}

/// What is to become of one path.
pub struct Entry {
    pub name: String,
    /// What it was, and will be again.
    pub target: PathState,
    /// What the session left there.
    pub recorded: PathState,
    pub found: FoundPath,
    pub verdict: Verdict,
    /// An earlier undo was cut off while it had this path in hand.
    pub was_in_hand: bool,
}

/// Whether a path can be taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is as the session left it.
    Restore,
    /// It is as it was already.
    Done,
    /// An undo made it to keep what somebody else had written, and nothing else holds that.
    Beside(String),
    /// Somebody else changed it; why we think so.
    Conflict(String),
    /// It cannot be put back at all.
    Impossible(String),
}

impl Plan {
    /// Decides for every path that `extent` of the session changed.
    pub fn make(
        root: &Path,
        session: &SessionDirectory,
        extent: &Extent,
        chosen: &Chosen,
    ) -> Result<Self, RuntimeError> {
        let workspace = Workspace::read(session).or_usage()?;
        let span = extent.span(&workspace)?;
        let images = Images::new(session.artifacts().or_usage()?);
        let tree = Tree::open(root).or_usage()?;
        let net = workspace.between(span.from, span.to);
        let unfinished: HashSet<&str> = workspace
            .unfinished_undo()
            .map(|undo| undo.files.iter().map(String::as_str).collect())
            .unwrap_or_default();
        let wanted: Vec<&NetChange> = net.iter().filter(|net| chosen.has(&net.path)).collect();
        let looked = in_parallel(&wanted, |net| look(&tree, &net.path));
        let mut entries = Vec::with_capacity(wanted.len());
        for (net, found) in wanted.into_iter().zip(looked) {
            let verdict = match &found {
                Ok(found) => judge(net, &found.state, &images),
                Err(reason) => Verdict::Impossible(reason.clone()),
            };
            entries.push(Entry {
                name: net.path.to_string(),
                target: net.before.clone(),
                recorded: net.after.clone(),
                found: found.unwrap_or_else(|_| FoundPath::unknown()),
                verdict,
                was_in_hand: unfinished.contains(&*net.path),
            });
        }
        let mut plan = Self {
            session_id: session.id().clone(),
            span,
            entries,
            gaps: Vec::new(),
        };
        plan.check_kept(&workspace);
        plan.check_directories(&tree);
        if chosen.is_all() {
            let inside = |gap: &&Gap| {
                span.from.is_none_or(|from| gap.sequence > from) && gap.sequence <= span.to
            };
            plan.gaps = workspace.gaps().iter().filter(inside).cloned().collect();
        }
        Ok(plan)
    }

    /// Leaves out what makes something run later. For a session that this user's state does not know:
    /// somebody else may have written its record.
    pub fn leave_out_protected(&mut self) {
        for entry in &mut self.entries {
            let stays_harmless = matches!(entry.target, PathState::Missing | PathState::Unknown);
            if !stays_harmless && is_protected(Path::new(&entry.name)) {
                entry.verdict = Verdict::Impossible(
                    "it can make something run later, and this machine has no anchor for the \
                     session"
                        .to_owned(),
                );
            }
        }
    }

    /// A hash of every path with its verdict and its state on disk, by which two plans are the same.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut text = String::new();
        for entry in &self.entries {
            let (verdict, why) = match &entry.verdict {
                Verdict::Restore => ("restore", ""),
                Verdict::Done => ("done", ""),
                Verdict::Beside(why) => ("beside", why.as_str()),
                Verdict::Conflict(why) => ("conflict", why.as_str()),
                Verdict::Impossible(why) => ("impossible", why.as_str()),
            };
            let found = fact(&entry.found.state);
            let facts = serde_json::json!([entry.name, verdict, why, found]);
            text.push_str(&facts.to_string());
            text.push('\n');
        }
        agent_text::sha256_hex(text.as_bytes())
    }

    /// The event whose state is restored; the start of the session is event 0, where nothing has
    /// happened yet.
    pub fn target_sequence(&self) -> u64 {
        self.span.from.unwrap_or(0)
    }

    /// How many paths have this kind of verdict.
    pub fn count(&self, kind: impl Fn(&Verdict) -> bool) -> usize {
        self.entries
            .iter()
            .filter(|entry| kind(&entry.verdict))
            .count()
    }

    /// Whether there is nothing to write.
    pub fn has_work(&self) -> bool {
        self.entries.iter().any(|entry| {
            matches!(entry.verdict, Verdict::Restore | Verdict::Conflict(_))
                || (entry.verdict == Verdict::Done && entry.was_in_hand)
        })
    }

    /// What an undo kept beside a file is somebody else's work. It goes only where that work comes
    /// back to its own name.
    fn check_kept(&mut self, workspace: &Workspace) {
        let bytes = |state: &PathState| state.content().and_then(|content| content.sha256.clone());
        let comes_back: HashSet<(String, String)> = self
            .entries
            .iter()
            .filter(|entry| matches!(entry.verdict, Verdict::Restore | Verdict::Done))
            .filter_map(|entry| Some((entry.name.clone(), bytes(&entry.target)?)))
            .collect();
        for entry in &mut self.entries {
            if entry.verdict != Verdict::Restore || entry.target != PathState::Missing {
                continue;
            }
            let (Some(of), Some(held)) = (kept_of(workspace, &entry.name), bytes(&entry.recorded))
            else {
                continue;
            };
            if !comes_back.contains(&(of.to_owned(), held)) {
                entry.verdict =
                    Verdict::Beside(format!("it holds someone else's version of `{of}`"));
            }
        }
    }

    /// A directory goes only when all that is in it goes.
    fn check_directories(&mut self, tree: &Tree) {
        let leaving: HashSet<PathBuf> = self
            .entries
            .iter()
            .filter(|entry| entry.target == PathState::Missing && entry.verdict == Verdict::Restore)
            .map(|entry| PathBuf::from(&entry.name))
            .collect();
        // Deepest first: a directory that stays keeps the one above it.
        let mut staying: HashSet<PathBuf> = HashSet::new();
        for entry in self.entries.iter_mut().rev() {
            let is_directory = matches!(entry.found.state, PathState::Directory { .. });
            let goes = !matches!(entry.target, PathState::Directory { .. });
            if entry.verdict != Verdict::Restore || !is_directory || !goes {
                continue;
            }
            let directory = PathBuf::from(&entry.name);
            let names = tree.names(&directory).unwrap_or_default();
            let other = names.iter().find(|name| {
                let inside = directory.join(name);
                !leaving.contains(&inside) || staying.contains(&inside)
            });
            if let Some(other) = other {
                entry.verdict = Verdict::Conflict(format!(
                    "it contains `{}`, which the session did not create",
                    other.to_string_lossy()
                ));
                staying.insert(directory);
            }
        }
    }
}

/// A state of a path as JSON.
fn fact(state: &PathState) -> serde_json::Value {
    let content = |kind: &str, content: &agent_history::workspace::Content| {
        serde_json::json!([kind, content.sha256, content.bytes, content.mode])
    };
    match state {
        PathState::Unknown => "unknown".into(),
        PathState::Missing => "missing".into(),
        PathState::File(file) => content("file", file),
        PathState::Symlink(link) => content("symlink", link),
        PathState::Directory { mode } => serde_json::json!(["directory", mode]),
        PathState::Special { kind } => serde_json::json!(["special", kind]),
    }
}

fn look(tree: &Tree, name: &str) -> Result<FoundPath, String> {
    if let Some(reason) = tree::refusal(name) {
        return Err(reason.to_owned());
    }
    tree.look(Path::new(name)).map_err(|error| in_words(&error))
}

/// Why a path cannot be reached.
pub(super) fn in_words(error: &io::Error) -> String {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::LOOP | Errno::XDEV) => "a symbolic link is in the way".to_owned(),
        _ => error.to_string(),
    }
}

/// The path whose content an undo kept under `name`, if the last change of `name` is that.
fn kept_of<'a>(workspace: &Workspace, name: &'a str) -> Option<&'a str> {
    let made = workspace.changes_of(name).next_back()?;
    if made.by != ChangedBy::Undo || made.before != PathState::Missing {
        return None;
    }
    let (of, number) = name.rsplit_once(".orig")?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !number.is_empty() && !number.strip_prefix('.').is_some_and(is_number) {
        return None;
    }
    let bytes = |state: &PathState| state.content().and_then(|content| content.sha256.clone());
    let mut same_undo = workspace
        .changes_of(of)
        .filter(|change| change.sequence == made.sequence);
    same_undo
        .any(|change| bytes(&change.before) == bytes(&made.after))
        .then_some(of)
}

/// Whether a path can be taken back, given what is there now.
fn judge(net: &NetChange, now: &PathState, images: &Images) -> Verdict {
    if now.same_as(&net.before) == Some(true) {
        return Verdict::Done;
    }
    if let Some(reason) = cannot_make(&net.before, now, images) {
        return Verdict::Impossible(reason);
    }
    if now.same_as(&net.after) != Some(true) {
        let what = match now {
            PathState::Missing => "it was removed",
            _ => "it was changed",
        };
        return Verdict::Conflict(match net.changed_again {
            Some(sequence) => format!("{what} again by event {sequence} of this session"),
            None => format!(
                "{what} after event {}, but not by this session",
                net.last_sequence
            ),
        });
    }
    if let Some(sequence) = net.foreign_before {
        return Verdict::Conflict(format!(
            "something else changed it before event {sequence}, and that change would be lost"
        ));
    }
    Verdict::Restore
}

fn cannot_make(target: &PathState, now: &PathState, images: &Images) -> Option<String> {
    match target {
        PathState::Unknown => Some("the log does not show what it was".to_owned()),
        PathState::Special { kind } => Some(format!("it was a {kind}")),
        PathState::Missing | PathState::Directory { .. } => match now {
            PathState::Special { kind } => Some(format!("it is a {kind} now")),
            _ => None,
        },
        PathState::File(content) | PathState::Symlink(content) => {
            let has_bytes = now
                .content()
                .is_some_and(|now| now.sha256.is_some() && now.sha256 == content.sha256);
            if has_bytes || images.has(target) {
                return None;
            }
            let reason = content.no_image.as_deref();
            Some(match (reason, &content.image) {
                (Some("too_large"), _) => {
                    "it was too large to save before it was changed".to_owned()
                }
                (_, Some(_)) => "its saved content is gone from the session".to_owned(),
                (Some(reason), None) => format!("its previous content was not saved ({reason})"),
                (None, None) => "its previous content was not saved".to_owned(),
            })
        }
    }
}

/// `work` for each item, on as many threads as there are processors; the results keep their order.
pub(super) fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = items.len().div_ceil(threads.max(1)).max(16);
    if items.len() <= share {
        return items.iter().map(work).collect();
    }
    let work = &work;
    std::thread::scope(|scope| {
        let handles: Vec<_> = items
            .chunks(share)
            .map(|chunk| scope.spawn(move || chunk.iter().map(work).collect::<Vec<R>>()))
            .collect();
        handles
            .into_iter()
            .flat_map(|handle| match handle.join() {
                Ok(results) => results,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}
