//! Where a value came from. No setting is without one, so that every surprise can be traced.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

/// A source of settings. The order is from weakest to strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// The defaults in the binary.
    BuiltIn,
    /// The user's own file, for all projects.
    User,
    /// `.agent/config.toml`, which a team may commit.
    Project,
    /// `.agent/config.local.toml`, ignored by git.
    ProjectLocal,
    /// Variables.
    Environment,
    /// Flags.
    CommandLine,
    /// The administrator's file; nobody loosens it.
    Managed,
}

impl Layer {
    /// Whether the file may have come with the repository, and so from a stranger.
    pub fn is_project(self) -> bool {
        matches!(self, Self::Project | Self::ProjectLocal)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::User => "user",
            Self::Project => "project",
            Self::ProjectLocal => "project-local",
            Self::Environment => "environment",
            Self::CommandLine => "command-line",
            Self::Managed => "managed",
        }
    }
}

/// A layer and the place in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    pub layer: Layer,
    pub place: Place,
}

/// The place a value was written at.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// In the binary.
    Code,
    /// The name of a flag or variable.
    Name(&'static str),
    /// A position in a file, counted from 1.
    File {
        path: Arc<Path>,
        line: usize,
        column: usize,
    },
}

impl Origin {
    pub const BUILT_IN: Self = Self {
        layer: Layer::BuiltIn,
        place: Place::Code,
    };

    pub fn file(&self) -> Option<PathBuf> {
        match &self.place {
            Place::File { path, .. } => Some(path.to_path_buf()),
            _ => None,
        }
    }
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting<T> {
    pub value: T,
    pub origin: Origin,
}
