//! The content of files as it was, in one unnamed file that vanishes with the session.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use agent_fs::Stamp;

/// Copies by path and version.
#[derive(Debug, Default)]
pub(super) struct Images {
    file: Option<File>,
    by_path: HashMap<Vec<u8>, Vec<Image>>,
    end: u64,
}

/// Place of one version of a file in the unnamed file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Image {
    pub(super) seen: Stamp,
    pub(super) offset: u64,
}

impl Images {
    /// Makes the file if there is none. Without one nothing is kept, and that is said of every change.
    pub(super) fn open(&mut self, folder: &Path) {
        if self.file.is_none() {
            self.file = tempfile::tempfile_in(folder).ok();
        }
    }

    /// Offset of the next copy.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The file that takes a copy, unless this version is kept already.
    pub(super) fn room_for(&self, path: &[u8], seen: Stamp) -> Option<&File> {
        let known = self.find(path, seen).is_some();
        self.file.as_ref().filter(|_| !known)
    }

    pub(super) fn extend(&mut self, images: Vec<(Vec<u8>, Image)>) {
        for (path, image) in images {
            self.end = self.end.max(image.offset + image.seen.size);
            self.by_path.entry(path).or_default().push(image);
        }
    }

    /// The bytes of a file as it was when it was seen like this.
    pub(super) fn content(&self, path: &[u8], seen: Stamp) -> Option<Vec<u8>> {
        let image = self.find(path, seen)?;
        let mut bytes = vec![0; usize::try_from(seen.size).ok()?];
        let file = self.file.as_ref()?;
        file.read_exact_at(&mut bytes, image.offset).ok()?;
        Some(bytes)
    }

    fn find(&self, path: &[u8], seen: Stamp) -> Option<&Image> {
        let versions = self.by_path.get(path)?;
        versions.iter().find(|image| image.seen == seen)
    }
}
