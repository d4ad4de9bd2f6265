//! The project's files as the log shows them: what each was at any event, and what changed it.
//!
//! [`Workspace`] folds the side effects of calls and the files that undo put back. It looks at no
//! project file: what is on disk now is the caller's to compare. Where a fact is missing (a command
//! whose changes were not looked for, a file without an image, a call that was cut off) the answer
//! is unknown and the [`Gap`] says why.

mod change;
mod content;
mod state;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use agent_log::{ArtifactStore, Lines, PlaceError, ReadError, SessionDirectory, quick_type};
use agent_protocol::id::{ArtifactId, ProcessId, ToolCallId, TurnId};
use agent_protocol::payload::SideEffect;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::tool::ToolData;
use agent_protocol::{ActionHappened, Code, Event, Payload, RefTarget};

pub use change::{Change, ChangedBy, Gap, NetChange, PathAt, TurnSpan, UnfinishedUndo};
pub use content::{ContentError, IMAGE_LIMIT, Images};
pub use state::{Content, PathState};

/// Lists that did not fit into a line are at most this large.
const LIST_LIMIT: u64 = 256 << 20;

/// Why the files of a session are not known.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// What a session did to the project's files.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    changes: Vec<Change>,
    by_path: BTreeMap<Arc<str>, Vec<usize>>,
    gaps: Vec<Gap>,
    turns: Vec<TurnSpan>,
    running: HashMap<ToolCallId, Running>,
    /// Names of the tools that started processes.
    started_by: HashMap<ProcessId, String>,
    unfinished_undo: Option<UnfinishedUndo>,
    next_sequence: u64,
}

/// What is said of a call, by its tool, that was cut off or has not ended.
const CUT_OFF: &str = "the session ended while `{}` ran; what it changed was not recorded";
const GOING_ON: &str = "`{}` has not ended; what it changes is not recorded yet";

/// A call that has begun.
#[derive(Clone, Debug, Default)]
struct Running {
    tool: String,
    /// Where it began, if it can change anything.
    started: Option<Origin>,
    paths: Vec<String>,
    /// Of the files it changes, one after the other.
    images: Vec<FileImages>,
    /// Those of the file at hand; its diff is the last that is kept of it.
    image: FileImages,
}

/// A file before and after a change; one of the two is missing where the change makes it or takes it away.
#[derive(Clone, Debug, Default)]
struct FileImages {
    before: Option<ArtifactId>,
    after: Option<ArtifactId>,
}

impl Running {
    fn keep(&mut self, kind: ArtifactKind, id: &ArtifactId) {
        match kind {
            ArtifactKind::Before => self.image.before = Some(id.clone()),
            ArtifactKind::After => self.image.after = Some(id.clone()),
            // That of a question has no images in front of it.
            ArtifactKind::Diff if self.image.before.is_some() || self.image.after.is_some() => {
                self.images.push(std::mem::take(&mut self.image));
            }
            _ => {}
        }
    }
}

/// The event that a change or a gap is known from.
#[derive(Clone, Debug, Default)]
struct Origin {
    sequence: u64,
    turn_id: Option<TurnId>,
    tool_call_id: Option<ToolCallId>,
}

impl Origin {
    fn of(event: &Event) -> Self {
        Self {
            sequence: event.sequence,
            turn_id: event.scope.turn_id.clone(),
            tool_call_id: event.scope.tool_call_id.clone(),
        }
    }
}

/// Reads a list that did not fit into its line.
pub type ListReader<'a> = dyn Fn(&ArtifactId) -> Option<Vec<u8>> + 'a;

impl Workspace {
    /// Folds the log of `session`. Lines that say nothing about files are passed over unread.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn read(session: &SessionDirectory) -> Result<Self, WorkspaceError> {
        let artifacts = session.artifacts().ok();
        let list = |id: &ArtifactId| read_list(artifacts.as_ref(), id);
        let mut lines = Lines::new(session.open_log()?);
        let mut workspace = Self::default();
        let read_error = |source| ReadError {
            path: session.log_path(),
            source,
        };
        while let Some(line) = lines.next_line().map_err(read_error)? {
            if !line.is_terminated {
                break;
            }
            let sequence = line.number - 1;
            let text = line.text().unwrap_or_default();
            if !text.is_empty() && !quick_type(text).is_none_or(matters) {
                workspace.next_sequence = workspace.next_sequence.max(sequence.saturating_add(1));
                continue;
            }
            match Event::from_line(text) {
                Ok(event) => workspace.apply(&event, &list),
                Err(_) => workspace.gap_at(sequence, "this line of the log cannot be read"),
            }
        }
        workspace.take_open(session.holder().is_some());
        Ok(workspace)
    }

    /// Takes the next event; `list` reads lists that were too long for their line.
    pub fn apply(&mut self, event: &Event, list: &ListReader<'_>) {
        self.next_sequence = self.next_sequence.max(event.sequence.saturating_add(1));
        self.note_turn(event);
        let call_id = event.scope.tool_call_id.as_ref();
        match &event.payload {
            Payload::ToolIntent(intent) => {
                if let Some(running) = self.running_mut(call_id) {
                    running.tool.clone_from(&intent.tool_name);
                }
            }
            Payload::ToolArgs(args) => {
                if let Some(running) = self.running_mut(call_id) {
                    running.paths.clone_from(&args.normalised_paths);
                }
            }
            Payload::ToolStarted(started) => {
                if let Some(running) = self.running_mut(call_id) {
                    running.tool.clone_from(&started.tool_name);
                    running.started = (!started.flags.is_read_only).then(|| Origin::of(event));
                }
            }
            Payload::ArtifactChanged(changed) => {
                if let Some(running) = call_id.and_then(|id| self.running.get_mut(id)) {
                    running.keep(changed.kind, &changed.artifact_id);
                }
            }
            Payload::ToolResult(result) => {
                let running = self.end_call(call_id);
                let effects = whole(&result.side_effects, event, "side_effects", list);
                self.take_effects(event, &effects, &ChangedBy::Tool(running.tool));
                if let Some(reason) = unseen(&result.data) {
                    self.gap(event, reason);
                    let process_id = result.data.process_id.as_ref();
                    if let Some(gap) = self.gaps.last_mut().filter(|_| effects.is_empty()) {
                        gap.process_id = process_id.and_then(|id| id.parse().ok());
                    }
                }
            }
            Payload::ToolFailed(failed) => {
                let running = self.end_call(call_id);
                let effects = whole(&failed.side_effects, event, "side_effects", list);
                self.take_effects(event, &effects, &ChangedBy::Tool(running.tool.clone()));
                if effects.is_empty() && failed.action_happened != ActionHappened::No {
                    let reason = (failed.code == Code::Lost).then_some(CUT_OFF);
                    self.take_lost(&Origin::of(event), running, reason);
                }
            }
            Payload::ProcessStarted(started) => {
                if let Some(running) = self.running_mut(call_id) {
                    let tool = running.tool.clone();
                    self.started_by.insert(started.process_id.clone(), tool);
                }
            }
            // A background command tells what it changed when it ends.
            Payload::ProcessCompleted(ended) => {
                let effects = whole(&ended.side_effects, event, "side_effects", list);
                self.take_background(event, &ended.process_id, &effects, ended.note.as_ref());
            }
            Payload::ProcessTerminated(ended) => {
                let effects = whole(&ended.side_effects, event, "side_effects", list);
                self.take_background(event, &ended.process_id, &effects, ended.note.as_ref());
            }
            Payload::HistoryRollbackStarted(started) => {
                self.unfinished_undo = Some(UnfinishedUndo {
                    sequence: event.sequence,
                    target_sequence: started.target_sequence,
                    files: whole(&started.files, event, "files", list),
                });
            }
            Payload::HistoryRollbackCompleted(completed) => {
                self.unfinished_undo = None;
                let effects = whole(&completed.files_restored, event, "files_restored", list);
                self.take_effects(event, &effects, &ChangedBy::Undo);
            }
            _ => {}
        }
    }

    /// The number of events folded so far, which is the sequence of the next one.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Every recorded change, in the order of the log.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// What the log leaves open.
    #[must_use]
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// The turns, in order.
    #[must_use]
    pub fn turns(&self) -> &[TurnSpan] {
        &self.turns
    }

    /// The undo that was cut off, if the last one was.
    #[must_use]
    pub fn unfinished_undo(&self) -> Option<&UnfinishedUndo> {
        self.unfinished_undo.as_ref()
    }

    /// The changes of one path, in order.
    pub fn changes_of(&self, path: &str) -> impl DoubleEndedIterator<Item = &Change> {
        let indices = self.by_path.get(path).map_or(&[][..], Vec::as_slice);
        indices.iter().map(|index| &self.changes[*index])
    }

    /// What `path` was after the event `sequence`; `None` stands for the start of the session.
    /// A path the session never touched is unknown here: nothing was recorded of it.
    #[must_use]
    pub fn state_at(&self, path: &str, sequence: Option<u64>) -> PathState {
        let mut last = None;
        for change in self.changes_of(path) {
            if sequence.is_none_or(|sequence| change.sequence > sequence) {
                // The first change shows what was there before it.
                return match last {
                    None => change.before.clone(),
                    Some(last) => settled(last),
                };
            }
            last = Some(change);
        }
        last.map_or(PathState::Unknown, settled)
    }

    /// Every path that was changed up to the event `sequence`, with what it was then.
    #[must_use]
    pub fn at(&self, sequence: u64) -> Vec<PathAt> {
        let paths = self.by_path.iter().filter_map(|(path, indices)| {
            let until = indices
                .iter()
                .take_while(|index| self.changes[**index].sequence <= sequence);
            let changes = until.count();
            let last = &self.changes[*indices.get(changes.checked_sub(1)?)?];
            Some(PathAt {
                path: Arc::clone(path),
                start: self.changes[*indices.first()?].before.clone(),
                now: settled(last),
                changes,
            })
        });
        paths.collect()
    }

    /// What the events after `from` and up to `to` made of each path. `None` as `from` is the start
    /// of the session. A path that ended as it began is left out.
    #[must_use]
    pub fn between(&self, from: Option<u64>, to: u64) -> Vec<NetChange> {
        let inside = |sequence: u64| from.is_none_or(|from| sequence > from) && sequence <= to;
        let mut found = Vec::new();
        for (path, indices) in &self.by_path {
            let changes: Vec<&Change> = indices
                .iter()
                .map(|index| &self.changes[*index])
                .filter(|change| inside(change.sequence))
                .collect();
            let (Some(first), Some(last)) = (changes.first(), changes.last()) else {
                continue;
            };
            if last.is_certain && first.before.same_as(&last.after) == Some(true) {
                continue;
            }
            let foreign = changes
                .windows(2)
                .find(|pair| pair[0].after.same_as(&pair[1].before) == Some(false));
            let again = indices
                .iter()
                .map(|index| &self.changes[*index])
                .find(|change| change.sequence > to);
            found.push(NetChange {
                path: Arc::clone(path),
                before: first.before.clone(),
                after: last.after.clone(),
                changes: changes.len(),
                first_sequence: first.sequence,
                last_sequence: last.sequence,
                is_certain: last.is_certain,
                foreign_before: foreign.map(|pair| pair[1].sequence),
                changed_again: again.map(|change| change.sequence),
            });
        }
        found
    }

    fn note_turn(&mut self, event: &Event) {
        let Some(turn_id) = &event.scope.turn_id else {
            return;
        };
        match self
            .turns
            .iter_mut()
            .rev()
            .find(|span| span.turn_id == *turn_id)
        {
            Some(span) => span.last = span.last.max(event.sequence),
            None => self.turns.push(TurnSpan {
                turn_id: turn_id.clone(),
                first: event.sequence,
                last: event.sequence,
            }),
        }
    }

    fn running_mut(&mut self, call_id: Option<&ToolCallId>) -> Option<&mut Running> {
        Some(self.running.entry(call_id?.clone()).or_default())
    }

    fn end_call(&mut self, call_id: Option<&ToolCallId>) -> Running {
        call_id
            .and_then(|id| self.running.remove(id))
            .unwrap_or_default()
    }

    fn take_effects(&mut self, event: &Event, effects: &[SideEffect], by: &ChangedBy) {
        for effect in effects {
            let (before, after) = state::sides(effect);
            let origin = Origin::of(event);
            self.push(&origin, &effect.path, before, after, by.clone(), true);
        }
    }

    fn take_background(
        &mut self,
        event: &Event,
        process_id: &ProcessId,
        effects: &[SideEffect],
        note: Option<&String>,
    ) {
        let tool = self.started_by.remove(process_id).unwrap_or_default();
        // It has ended and says what it did: nothing of it is open any more.
        self.gaps
            .retain(|gap| gap.process_id.as_ref() != Some(process_id));
        self.take_effects(event, effects, &ChangedBy::Tool(tool));
        if let Some(reason) = note.filter(|note| is_unseen(note)) {
            self.gap(event, reason.clone());
        }
    }

    /// The calls that have begun and not ended where the log stops.
    fn take_open(&mut self, is_held: bool) {
        let reason = if is_held { GOING_ON } else { CUT_OFF };
        let mut open: Vec<Running> = self.running.values().cloned().collect();
        open.retain(|running| running.started.is_some());
        open.sort_by_key(|running| running.started.as_ref().map(|origin| origin.sequence));
        for running in open {
            if let Some(origin) = running.started.clone() {
                self.take_lost(&origin, running, Some(reason));
            }
        }
    }

    /// A call that began and never said what it did. An edit or a patch kept both images of every file before
    /// it touched the first, so each file is one of the two; what a command did nobody knows.
    fn take_lost(&mut self, origin: &Origin, running: Running, reason: Option<&str>) {
        let state = |id: &Option<ArtifactId>| match id {
            None => PathState::Missing,
            Some(id) => PathState::File(Content {
                sha256: Some(id.hex().to_owned()),
                image: Some(id.clone()),
                ..Content::default()
            }),
        };
        // The path of a command is where it ran, and it keeps no diff.
        if !running.images.is_empty() && running.images.len() == running.paths.len() {
            for (path, images) in running.paths.iter().zip(&running.images) {
                let (before, after) = (state(&images.before), state(&images.after));
                let by = ChangedBy::Tool(running.tool.clone());
                self.push(origin, path, before, after, by, false);
            }
        } else if let (Some(_), Some(reason)) = (&running.started, reason) {
            let reason = reason.replace("{}", &running.tool);
            self.gap_from(origin, reason);
        }
    }

    fn push(
        &mut self,
        origin: &Origin,
        path: &str,
        before: PathState,
        after: PathState,
        by: ChangedBy,
        is_certain: bool,
    ) {
        let path: Arc<str> = match self.by_path.get_key_value(path) {
            Some((known, _)) => Arc::clone(known),
            None => path.into(),
        };
        let indices = self.by_path.entry(Arc::clone(&path)).or_default();
        indices.push(self.changes.len());
        self.changes.push(Change {
            path,
            before,
            after,
            sequence: origin.sequence,
            turn_id: origin.turn_id.clone(),
            tool_call_id: origin.tool_call_id.clone(),
            by,
            is_certain,
        });
    }

    fn gap(&mut self, event: &Event, reason: String) {
        self.gap_from(&Origin::of(event), reason);
    }

    fn gap_from(&mut self, origin: &Origin, reason: String) {
        self.gaps.push(Gap {
            sequence: origin.sequence,
            tool_call_id: origin.tool_call_id.clone(),
            turn_id: origin.turn_id.clone(),
            process_id: None,
            reason,
        });
    }

    fn gap_at(&mut self, sequence: u64, reason: &str) {
        self.next_sequence = self.next_sequence.max(sequence.saturating_add(1));
        self.gaps.push(Gap {
            sequence,
            tool_call_id: None,
            turn_id: None,
            process_id: None,
            reason: reason.to_owned(),
        });
    }
}

/// Classes that say something about files, or where turns begin and end.
fn matters(class: &str) -> bool {
    matches!(
        class,
        "turn.submitted"
            | "turn.started"
            | "turn.completed"
            | "turn.failed"
            | "tool.intent"
            | "tool.args"
            | "tool.started"
            | "tool.result"
            | "tool.failed"
            | "artifact.changed"
            | "process.completed"
            | "process.terminated"
            | "history.rollback.started"
            | "history.rollback.completed"
    )
}

fn settled(change: &Change) -> PathState {
    if change.is_certain {
        change.after.clone()
    } else {
        PathState::Unknown
    }
}

/// A list as it was before it had to be shortened to fit into its line.
fn whole<T: Clone + serde::de::DeserializeOwned>(
    in_line: &[T],
    event: &Event,
    role: &str,
    list: &ListReader<'_>,
) -> Vec<T> {
    let id = match event.refs.0.get(role) {
        Some(RefTarget::One(id)) => Some(id),
        Some(RefTarget::Many(ids)) => ids.first(),
        None => None,
    };
    let stored = id
        .and_then(|id| id.parse().ok())
        .and_then(|id| list(&id))
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .and_then(|text| serde_json::from_str(&text).ok());
    stored.unwrap_or_else(|| in_line.to_vec())
}

fn read_list(artifacts: Option<&ArtifactStore>, id: &ArtifactId) -> Option<Vec<u8>> {
    artifacts?.read(id, LIST_LIMIT).ok()
}

/// What a command's own facts say was not looked at.
fn unseen(data: &ToolData) -> Option<String> {
    if data.background == Some(true) {
        return Some(
            "a command went on in the background; what it changed later was not looked for".into(),
        );
    }
    data.note.clone().filter(|note| is_unseen(note))
}

/// The two sentences by which a look at the project says that it is not complete.
fn is_unseen(note: &str) -> bool {
    note.contains("were not looked for") || note.contains("are not listed")
}
