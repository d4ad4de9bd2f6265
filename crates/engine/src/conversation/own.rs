//! Calls that no model asked for: what the user ran themselves, and what shows the files they attached.

use agent_protocol::id::TurnId;
use agent_protocol::payload::conversation::{AttachedCall, SessionUpdated, TurnSubmitted};
use agent_protocol::payload::permission::PolicyChanged;

use super::{Call, Conversation, Entry, NOT_OBSERVED, UserInput};

/// What the user ran themselves, as a turn that asked no model. The next request tells the model.
#[derive(Clone, Debug, Default)]
pub struct OwnCalls {
    /// What the user typed.
    pub text: String,
    pub calls: Vec<Call>,
}

/// Files and directories that an input attaches.
#[derive(Clone, Debug, Default)]
pub struct Attached {
    wanted: Vec<AttachedCall>,
    /// The calls that show them, as far as they were made, in the same order.
    pub calls: Vec<Call>,
}

impl Attached {
    pub(super) fn of(submitted: &TurnSubmitted) -> Self {
        let parts = submitted.input_parts.iter();
        Self {
            wanted: parts.filter_map(|part| part.shown_by.clone()).collect(),
            calls: Vec::new(),
        }
    }

    fn unread(&self) -> &[AttachedCall] {
        self.wanted.get(self.calls.len()..).unwrap_or_default()
    }
}

impl Conversation {
    /// The calls that show what the inputs of a turn attach and that were not made yet.
    #[must_use]
    pub fn unread(&self, turn_id: &TurnId) -> Vec<AttachedCall> {
        let items = self.items[self.begin_of(turn_id)..].iter();
        let unread = items.filter_map(|item| match &item.entry {
            Entry::User { input, .. } => Some(input.attached.unread()),
            _ => None,
        });
        unread.flatten().cloned().collect()
    }

    /// The entry of a call without a model request: an input of the turn that still lacks what it attaches, or
    /// else what the user typed for the call.
    pub(super) fn own_of(&mut self, own_turn: Option<&TurnId>) -> Option<usize> {
        let begin = self.begin_of(own_turn?);
        let lacks = |entry: &Entry| match entry {
            Entry::User { input, .. } => !input.attached.unread().is_empty(),
            _ => false,
        };
        let mut inputs = self.items[begin..].iter();
        if let Some(at) = inputs.position(|item| lacks(&item.entry)) {
            return Some(begin + at);
        }
        let at = self.items.len().checked_sub(1)?;
        let entry = self.items[at].entry_mut();
        if let Entry::User { turn_id, input } = entry
            && turn_id.as_ref() == own_turn
        {
            *entry = Entry::Own(OwnCalls {
                text: std::mem::take(&mut input.text),
                calls: Vec::new(),
            });
        }
        matches!(entry, Entry::Own(_)).then_some(at)
    }

    /// Has the next input of the user say which directories were added.
    pub(super) fn note_directories(&mut self, changed: &PolicyChanged) {
        let Some(added) = &changed.changed.directories_added else {
            return;
        };
        let note = format!(
            "[The user lets you read these directories outside the project, by absolute paths: {}]",
            added.join(", ")
        );
        self.notes.add(note);
    }

    /// Has the next input of the user say where commands run from now on.
    pub(super) fn note_working_directory(&mut self, updated: &SessionUpdated) {
        let note = match updated.changed.working_directory.as_deref() {
            None => return,
            Some(".") => {
                "[The user made the project's root the working directory again.]".to_owned()
            }
            Some(path) => format!(
                "[The user made `{path}` the working directory: commands run there, and relative paths begin there. Results name \
                 files as seen from the project's root; `{path}/x` there is `x` here.]"
            ),
        };
        self.notes.add(note);
    }

    /// The place of a turn's input. Where a summary stands for it, what joined the turn later follows the last
    /// answer.
    fn begin_of(&self, wanted: &TurnId) -> usize {
        let is_input = |entry: &Entry| matches!(entry, Entry::User { turn_id, .. } if turn_id.as_ref() == Some(wanted));
        let begin = self.items.iter().rposition(|item| is_input(&item.entry));
        begin.unwrap_or_else(|| {
            let is_said = |entry: &Entry| matches!(entry, Entry::User { .. });
            let last = self.items.iter().rposition(|item| !is_said(&item.entry));
            last.map_or(0, |last| last + 1)
        })
    }
}

impl UserInput {
    /// A user's message: what they typed, and what they attached as untrusted output.
    pub(super) fn in_words(&self) -> String {
        let mut text = self.text.clone();
        for call in &self.attached.calls {
            text.push_str("\n\n[Attached:]\n");
            text.push_str(told(call));
        }
        text
    }
}

impl OwnCalls {
    /// A user's message: what they typed, and what came of it as untrusted output.
    pub(super) fn in_words(&self) -> String {
        let mut text = format!("[The user ran this themselves:]\n{}", self.text);
        for call in &self.calls {
            text.push_str("\n\n");
            text.push_str(told(call));
        }
        text
    }
}

fn told(call: &Call) -> &str {
    call.result.as_ref().map_or(NOT_OBSERVED, |told| &told.text)
}
