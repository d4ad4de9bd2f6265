//! Two looks compared, with the evidence that undo needs.

use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::PoisonError;

use agent_protocol::payload::{ArtifactRef, SideEffect, SideEffectKind};
use agent_tool_runtime::JournalError;
use rustix::fs::{FileType, Mode, OFlags};

use super::{Look, Watch};
use crate::file::hash_bytes;
use crate::search::walk::as_path;
use agent_fs::Stamp;

/// What changed.
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

/// A path whose record differs, with what was there and what is.
pub(super) type Touched<'a> = (&'a [u8], Option<Stamp>, Option<Stamp>);

/// The paths that differ, deletions first.
pub(super) fn touched<'a>(before: &'a Look, after: &'a Look) -> Vec<Touched<'a>> {
    let mut gone: Vec<Touched<'a>> = Vec::new();
    let mut here: Vec<Touched<'a>> = Vec::new();
    let is_known =
        |path: &[u8]| !(before.closed.iter().chain(&after.closed)).any(|dir| is_below(path, dir));
    for (path, seen) in before.files.iter().filter(|(path, _)| is_known(path)) {
        match after.files.get(path) {
            None => gone.push((path, Some(*seen), None)),
            Some(now) if now.kind() != seen.kind() => {
                gone.push((path, Some(*seen), None));
                here.push((path, None, Some(*now)));
            }
            Some(now) if now != seen => here.push((path, Some(*seen), Some(*now))),
            Some(_) => {}
        }
    }
    let new = |(path, _): &(&'a Vec<u8>, &Stamp)| !before.files.contains_key(*path);
    let created = after.files.iter().filter(new);
    let created = created.filter(|(path, _)| is_known(path));
    here.extend(created.map(|(path, now)| (path.as_slice(), None, Some(*now))));
    gone.sort_unstable_by(|one, other| other.0.cmp(one.0));
    here.sort_unstable_by(|one, other| one.0.cmp(other.0));
    gone.append(&mut here);
    gone
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    let rest = path.strip_prefix(directory);
    rest.is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// What a look could not see where another did or might have.
fn unseen(before: &Look, after: &Look) -> Option<String> {
    let first = after.closed.iter().min().or(before.closed.iter().min())?;
    let name = as_path(first).to_string_lossy();
    let number = after.closed.len().max(before.closed.len());
    let more = match number {
        1 => String::new(),
        number => format!(" and {} more directories", number - 1),
    };
    Some(format!(
        "`{name}`{more} cannot be read, so what changed there is not known and cannot be restored."
    ))
}

impl Watch {
    /// Compares two looks and keeps the evidence.
    pub(crate) fn compare(
        &self,
        root: &Path,
        before: &Look,
        after: &Look,
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
        for touched in touched(before, after) {
            if changes.effects.len() >= self.limits.listed {
                unlisted += 1;
                continue;
            }
            self.note_change(root, touched, keep, &mut changes)?;
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
        root: &Path,
        (path, was, now): Touched<'_>,
        keep: KeepImage<'_>,
        changes: &mut Changes,
    ) -> Result<(), JournalError> {
        let file_type = was.or(now).map_or(FileType::Unknown, |seen| seen.kind());
        let has_content = file_type != FileType::Directory;
        let place = as_path(path);
        let image = was.and_then(|seen| self.content(path, seen));
        let sha256_before = image.as_deref().map(hash_bytes);
        let sha256_after = now.and_then(|seen| self.hash_now(root, path, seen));
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
    fn hash_now(&self, root: &Path, path: &[u8], seen: Stamp) -> Option<String> {
        if let Some(kept) = self.content(path, seen) {
            return Some(hash_bytes(&kept));
        }
        let place = root.join(as_path(path));
        match seen.kind() {
            FileType::Symlink => {
                let target = std::fs::read_link(place).ok()?;
                Some(hash_bytes(target.as_os_str().as_bytes()))
            }
            FileType::Directory => None,
            _ => agent_fs::hash(&open_now(&place)?)
                .ok()
                .map(|hashed| hashed.sha256),
        }
    }
}

fn open_now(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    file.metadata().ok()?.is_file().then_some(file)
}
