//! What is at a path, as far as the log shows it.

use agent_protocol::id::ArtifactId;
use agent_protocol::payload::{SideEffect, SideEffectKind};

/// How the log names a symbolic link and a directory in `file_type`.
const SYMLINK: &str = "symlink";
const DIRECTORY: &str = "directory";

/// What is at a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PathState {
    /// The log does not show it.
    #[default]
    Unknown,
    Missing,
    File(Content),
    /// The content is the link's target.
    Symlink(Content),
    Directory {
        mode: Option<u32>,
    },
    /// A pipe, socket or device.
    Special {
        kind: String,
    },
}

/// What is known of a file's bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// 64 lower-case hex digits.
    pub sha256: Option<String>,
    pub bytes: Option<u64>,
    /// Permission bits; links have none.
    pub mode: Option<u32>,
    /// The artifact that holds the bytes, where the log names one.
    pub image: Option<ArtifactId>,
    /// Why there is none.
    pub no_image: Option<String>,
}

impl Content {
    /// The artifact the bytes are in, if they are in any: the one the log names, or the one that
    /// bears their hash because another event kept it.
    #[must_use]
    pub fn artifact(&self) -> Option<ArtifactId> {
        let by_hash = || format!("sha256:{}", self.sha256.as_ref()?).parse().ok();
        self.image.clone().or_else(by_hash)
    }
}

/// The state before and after one recorded change.
pub(super) fn sides(effect: &SideEffect) -> (PathState, PathState) {
    let kind = effect.file_type.as_deref();
    let before = match effect.kind {
        SideEffectKind::Created => PathState::Missing,
        _ => PathState::of(
            kind,
            Content {
                sha256: effect.sha256_before.clone(),
                bytes: effect.bytes_before,
                mode: effect.mode_before,
                image: effect.before_ref.clone(),
                no_image: effect.no_image.clone(),
            },
        ),
    };
    let after = match effect.kind {
        SideEffectKind::Deleted => PathState::Missing,
        _ => PathState::of(
            kind,
            Content {
                sha256: effect.sha256_after.clone(),
                bytes: effect.bytes_after,
                mode: effect.mode_after,
                image: effect.after_ref.clone(),
                no_image: None,
            },
        ),
    };
    (before, after)
}

impl PathState {
    fn of(kind: Option<&str>, content: Content) -> Self {
        match kind {
            None | Some("file") => Self::File(content),
            Some(SYMLINK) => Self::Symlink(content),
            Some(DIRECTORY) => Self::Directory { mode: content.mode },
            Some(other) => Self::Special {
                kind: other.to_owned(),
            },
        }
    }

    /// Whether both are the same thing with the same bytes and mode; `None` where facts are missing.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> Option<bool> {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => None,
            (Self::Missing, Self::Missing) => Some(true),
            (Self::File(left), Self::File(right)) => {
                let bytes = same(left.sha256.as_ref(), right.sha256.as_ref());
                let mode = same(left.mode.as_ref(), right.mode.as_ref());
                match (bytes, mode) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), _) => Some(true),
                    (None, _) => None,
                }
            }
            (Self::Symlink(left), Self::Symlink(right)) => {
                same(left.sha256.as_ref(), right.sha256.as_ref())
            }
            (Self::Directory { mode: left }, Self::Directory { mode: right }) => {
                Some(same(left.as_ref(), right.as_ref()).unwrap_or(true))
            }
            (Self::Special { kind: left }, Self::Special { kind: right }) => Some(left == right),
            _ => Some(false),
        }
    }

    /// The bytes, where the state has any.
    #[must_use]
    pub fn content(&self) -> Option<&Content> {
        match self {
            Self::File(content) | Self::Symlink(content) => Some(content),
            _ => None,
        }
    }

    /// The permission bits, where they are known.
    #[must_use]
    pub fn mode(&self) -> Option<u32> {
        match self {
            Self::File(content) => content.mode,
            Self::Directory { mode } => *mode,
            _ => None,
        }
    }

    /// Whether something is there.
    #[must_use]
    pub fn exists(&self) -> bool {
        !matches!(self, Self::Missing | Self::Unknown)
    }

    /// The word for `file_type`; nothing for a regular file.
    #[must_use]
    pub fn file_type(&self) -> Option<&str> {
        match self {
            Self::Symlink(_) => Some(SYMLINK),
            Self::Directory { .. } => Some(DIRECTORY),
            Self::Special { kind } => Some(kind),
            Self::File(_) | Self::Missing | Self::Unknown => None,
        }
    }
}

fn same<T: PartialEq>(left: Option<&T>, right: Option<&T>) -> Option<bool> {
    Some(left? == right?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(hash: &str, mode: Option<u32>) -> PathState {
        PathState::File(Content {
            sha256: (!hash.is_empty()).then(|| hash.to_owned()),
            mode,
            ..Content::default()
        })
    }

    fn check(left: &PathState, right: &PathState, expected: Option<bool>) {
        assert_eq!(left.same_as(right), expected, "{left:?} {right:?}");
        assert_eq!(right.same_as(left), expected, "{right:?} {left:?}");
    }

    #[test]
    fn what_is_not_known_is_not_the_same() {
        check(&PathState::Missing, &PathState::Missing, Some(true));
        check(&PathState::Missing, &PathState::Unknown, None);
        check(&file("a", Some(0o644)), &PathState::Missing, Some(false));
        check(&file("a", Some(0o644)), &file("a", Some(0o644)), Some(true));
        check(
            &file("a", Some(0o644)),
            &file("a", Some(0o755)),
            Some(false),
        );
        check(&file("a", None), &file("a", Some(0o755)), Some(true));
        check(&file("", Some(0o644)), &file("a", Some(0o644)), None);
        check(&file("", Some(0o644)), &file("a", Some(0o600)), Some(false));
        let directory = PathState::Directory { mode: None };
        check(&directory, &file("a", None), Some(false));
        check(
            &directory,
            &PathState::Directory { mode: Some(0o700) },
            Some(true),
        );
    }

    #[test]
    fn an_effect_has_two_sides() {
        let effect = SideEffect {
            kind: SideEffectKind::Deleted,
            path: "link".into(),
            file_type: Some("symlink".into()),
            sha256_before: Some("ab".into()),
            ..SideEffect::default()
        };
        let (before, after) = sides(&effect);
        assert_eq!(before.content().unwrap().sha256.as_deref(), Some("ab"));
        assert_eq!(before.file_type(), Some("symlink"));
        assert_eq!(after, PathState::Missing);
    }
}
