//! The mode the user chose for a project when it was opened first, kept in the user's state. Any settings file that
//! names a mode goes before it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use agent_protocol::status::Mode;

use super::file::{LayerValues, Source};
use super::origin::Layer;
use super::overrides::spanned;
use super::sections::ConfigFile;
use crate::error::{Context as _, OrFail as _, RuntimeError};
use crate::private;

/// The choices, by the project's path.
pub struct ChosenModes {
    file: PathBuf,
    modes: BTreeMap<String, Mode>,
}

impl ChosenModes {
    /// Reads the choices. What cannot be read is an error: guessing would be a mode nobody chose.
    pub fn open(state: &Path) -> Result<Self, RuntimeError> {
        let file = state.join("modes.json");
        let doing = || format!("cannot read the modes of projects in `{}`", file.display());
        let modes = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(doing)
                .or_usage()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error).with_context(doing).or_usage(),
        };
        Ok(Self { file, modes })
    }

    /// The mode chosen for the project in `root`. Only what is asked about can have been chosen.
    #[must_use]
    pub fn of(&self, root: &Path) -> Option<Mode> {
        let mode = self.modes.get(&*root.to_string_lossy()).copied();
        mode.filter(|mode| matches!(mode, Mode::Ask | Mode::Auto))
    }

    /// Keeps a choice.
    pub fn keep(&mut self, root: &Path, mode: Mode) -> Result<(), RuntimeError> {
        let doing = || format!("cannot keep the mode in `{}`", self.file.display());
        self.modes.insert(root.to_string_lossy().into_owned(), mode);
        let text = serde_json::to_vec_pretty(&self.modes).with_context(doing)?;
        private::replace(&self.file, &text).with_context(doing)?;
        Ok(())
    }

    /// The choice as a layer, the weakest of the user's.
    pub(super) fn layer(&self, root: &Path) -> LayerValues {
        let mut values = ConfigFile::default();
        values.permissions.mode = spanned(self.of(root));
        LayerValues {
            layer: Layer::User,
            values,
            trusted: true,
            source: Source::Names(vec![("permissions.mode", "chosen for this project")]),
        }
    }
}
