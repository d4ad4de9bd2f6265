//! Which files a stretch of work changed in the end: from the first before to the last after.

use std::collections::BTreeMap;

use agent_protocol::Payload;
use agent_protocol::payload::{SideEffect, SideEffectKind};

/// The changes of a turn, joined per file. Whoever writes the end of a turn and whoever audits it
/// use this one fold, so that they cannot disagree about what counts.
#[derive(Clone, Debug, Default)]
pub struct ChangedFiles {
    files: BTreeMap<String, SideEffect>,
}

impl ChangedFiles {
    /// Takes all changes an event tells of. What a command in the background did is known when it
    /// has ended, and counts for the turn in which that was recorded.
    pub fn take_all(&mut self, payload: &Payload) {
        for effect in side_effects(payload) {
            self.take(effect);
        }
    }

    /// Takes the next change. Directories are in the record for undo; the work is in the files, so
    /// they are left out, and the answer is whether this was a change to a file.
    pub fn take(&mut self, effect: &SideEffect) -> bool {
        if effect.file_type.as_deref() == Some("directory") {
            return false;
        }
        match self.files.get_mut(&effect.path) {
            None => {
                self.files.insert(effect.path.clone(), effect.clone());
            }
            Some(known) => {
                known.kind = match (known.sha256_before.is_some(), effect.sha256_after.is_some()) {
                    (false, _) => SideEffectKind::Created,
                    (true, false) => SideEffectKind::Deleted,
                    (true, true) => SideEffectKind::Modified,
                };
                known.sha256_after.clone_from(&effect.sha256_after);
                known.after_ref.clone_from(&effect.after_ref);
                known.bytes_after = effect.bytes_after;
                known.mode_after = effect.mode_after;
            }
        }
        true
    }

    /// The files that differ from what they were at first, by path.
    #[must_use]
    pub fn list(&self) -> Vec<SideEffect> {
        let differs = |effect: &&SideEffect| {
            effect.sha256_before != effect.sha256_after || effect.mode_before != effect.mode_after
        };
        self.files.values().filter(differs).cloned().collect()
    }
}

/// The changes to files that an event records as done by a call or a background command.
fn side_effects(payload: &Payload) -> &[SideEffect] {
    match payload {
        Payload::ToolResult(result) => &result.side_effects,
        Payload::ToolFailed(failed) => &failed.side_effects,
        Payload::ProcessCompleted(ended) => &ended.side_effects,
        Payload::ProcessTerminated(ended) => &ended.side_effects,
        _ => &[],
    }
}

/// Whether a change is one of the files that the work is about. Directories are recorded for undo.
#[must_use]
pub fn is_work(effect: &SideEffect) -> bool {
    effect.ignored != Some(true) && effect.file_type.as_deref() != Some("directory")
}
