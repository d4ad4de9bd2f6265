//! Two scans compared, with the evidence that undo needs.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::PoisonError;

use agent_protocol::payload::{ArtifactRef, SideEffect, SideEffectKind};
use agent_tool_runtime::JournalError;
use rustix::fs::FileType;

use super::{ChangeTracker, Scan};
use crate::file::hash_bytes;
use crate::search::walk::as_path;
use agent_fs::{Difference, Dir, Stamp};

/// Changes to the project.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Deletions first, the inner before the outer; then the rest, the outer before the inner. Read
    /// backwards it is the order in which everything can be put back.
    pub(crate) effects: Vec<SideEffect>,
    /// The first images; each is named by its effect, and a line of the log has its bounds.
    pub(crate) artifacts: Vec<ArtifactRef>,
    /// Said to the model: what is not in the list, and why.
    pub(crate) note: Option<String>,
}

const NAMED_IMAGES: usize = 100;

/// Keeps an image from before as an artifact.
pub(crate) type KeepImage<'a> = &'a dyn Fn(&[u8]) -> Result<ArtifactRef, JournalError>;

/// Directories that one scan could not list, and the other could or might have.
fn unseen(before: &Scan, after: &Scan) -> Option<String> {
    let (before, after) = (before.files.closed(), after.files.closed());
    let first = after.iter().min().or(before.iter().min())?;
    let name = as_path(first).to_string_lossy();
    let number = after.len().max(before.len());
    let more = match number {
        1 => String::new(),
        number => format!(" and {} more directories", number - 1),
    };
    Some(format!(
        "`{name}`{more} cannot be read, so what changed there is not known and cannot be restored."
    ))
}

impl ChangeTracker {
    /// Compares two scans and keeps the evidence.
    pub(crate) fn compare(
        &self,
        root: &Path,
        before: &Scan,
        after: &Scan,
        keep: KeepImage<'_>,
    ) -> Result<Changes, JournalError> {
        if let Some(reason) = before.incomplete.as_ref().or(after.incomplete.as_ref()) {
            let note = format!("Changes to project files were not looked for: {reason}.");
            return Ok(Changes {
                note: Some(note),
                ..Changes::default()
            });
        }
        let mut changes = Changes::default();
        let mut unlisted = 0;
        let root = Dir::open(root).ok();
        for difference in before.files.diff(&after.files) {
            if changes.effects.len() >= self.limits.listed {
                unlisted += 1;
                continue;
            }
            self.note_change(root.as_ref(), difference, keep, &mut changes)?;
        }
        if unlisted > 0 {
            changes.note = Some(format!(
                "{unlisted} more files were changed and are not listed; they cannot be restored."
            ));
        }
        if let Some(unseen) = unseen(before, after) {
            let told = changes.note.take().map(|note| note + " ");
            changes.note = Some(told.unwrap_or_default() + &unseen);
        }
        Ok(changes)
    }

    fn note_change(
        &self,
        root: Option<&Dir>,
        difference: Difference<'_>,
        keep: KeepImage<'_>,
        changes: &mut Changes,
    ) -> Result<(), JournalError> {
        let Difference {
            path,
            before: was,
            after: now,
        } = difference;
        let file_type = was.or(now).map_or(FileType::Unknown, |seen| seen.kind());
        let has_content = file_type != FileType::Directory;
        let place = as_path(path);
        let image = was.and_then(|seen| self.content(path, seen));
        let sha256_before = image.as_deref().map(hash_bytes);
        let sha256_after = now.and_then(|seen| self.hash_now(root?, path, seen));
        let same_content = !has_content || sha256_before.is_some() && sha256_before == sha256_after;
        // The mode of a link means nothing.
        let mode = |seen: Option<Stamp>| {
            let seen = seen.filter(|_| file_type != FileType::Symlink);
            seen.map(|seen| seen.mode & 0o7777)
        };
        let stays = was.is_some() && now.is_some();
        if stays && same_content && mode(was) == mode(now) {
            // Touched, or written with what was there.
            return Ok(());
        }
        let kind = match (was, now) {
            (None, _) => SideEffectKind::Created,
            (Some(_), None) => SideEffectKind::Deleted,
            (Some(_), Some(_)) if same_content => SideEffectKind::ModeChanged,
            _ => SideEffectKind::Modified,
        };
        let before = match &image {
            Some(bytes) if !(stays && same_content) => Some(keep(bytes)?),
            _ => None,
        };
        let no_image = was.filter(|_| image.is_none() && has_content).map(|seen| {
            if seen.size > self.limits.image_bytes {
                "too_large"
            } else {
                "not_kept"
            }
            .to_owned()
        });
        let size = |seen: Option<Stamp>| seen.filter(|_| has_content).map(|seen| seen.size);
        changes.effects.push(SideEffect {
            kind,
            path: place.to_string_lossy().into_owned(),
            sha256_before,
            sha256_after,
            before_ref: before.as_ref().map(|artifact| artifact.artifact_id.clone()),
            bytes_before: size(was),
            bytes_after: size(now),
            mode_before: mode(was),
            mode_after: mode(now),
            file_type: match file_type {
                FileType::Directory => Some("directory".to_owned()),
                FileType::Symlink => Some("symlink".to_owned()),
                _ => None,
            },
            no_image,
            ..SideEffect::default()
        });
        if changes.artifacts.len() < NAMED_IMAGES {
            changes.artifacts.extend(before);
        }
        Ok(())
    }

    fn content(&self, path: &[u8], seen: Stamp) -> Option<Vec<u8>> {
        let images = self.images.read().unwrap_or_else(PoisonError::into_inner);
        images.content(path, seen)
    }

    /// The hash of what is there now; of a link, of where it points to.
    fn hash_now(&self, root: &Dir, path: &[u8], seen: Stamp) -> Option<String> {
        if let Some(kept) = self.content(path, seen) {
            return Some(hash_bytes(&kept));
        }
        let path = as_path(path);
        match seen.kind() {
            FileType::Symlink => {
                let target = root.link(path).ok()?;
                Some(hash_bytes(target.as_os_str().as_bytes()))
            }
            FileType::Directory => None,
            _ => agent_fs::hash(&root.file(path).ok()?)
                .ok()
                .map(|hashed| hashed.sha256),
        }
    }
}
