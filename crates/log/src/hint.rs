//! Hints: advice about an error of this crate, wherever in a chain of causes it stands.

use std::error::Error;
use std::io::{self, ErrorKind};

use crate::error::{AppendError, SyncError};
use crate::open::OpenError;
use crate::place::PlaceError;

pub(crate) const MAKE_SPACE: &str = "free some space (`agent sessions size` shows what sessions use, `agent sessions prune` reduces it), then go on with the same session";

const MAKE_WRITABLE: &str = "nothing was started: sessions are kept in the project's `.agent`; make it writable, or work in a copy";

/// Advice about one error; its causes may have better.
#[must_use]
pub fn hint(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<OpenError>() {
        error.hint()
    } else if let Some(error) = error.downcast_ref::<AppendError>() {
        error.hint()
    } else if let Some(error) = error.downcast_ref::<SyncError>() {
        error.hint()
    } else if let Some(error) = error.downcast_ref::<PlaceError>() {
        error.hint()
    } else {
        let error = error.downcast_ref::<io::Error>()?;
        is_full(error).then_some(MAKE_SPACE)
    }
}

impl PlaceError {
    /// Advice to the user.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        let Self::Io { source, .. } = self else {
            return None;
        };
        let is_refused = matches!(
            source.kind(),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
        );
        if is_full(source) {
            Some(MAKE_SPACE)
        } else {
            (is_refused && self.is_write()).then_some(MAKE_WRITABLE)
        }
    }
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    use ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
