//! Which project files the user has trusted, by path and exact content.
//!
//! A project file may have come with the repository, and so from a stranger. Until the user has
//! said yes to exactly these bytes, it may only tighten. The decisions are in the user's state
//! directory, where no command of the agent can write.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use crate::failure::{Failure, OrFail as _};
use crate::private;

/// The user's decisions.
pub(crate) struct TrustStore {
    file: PathBuf,
    /// Path of the trusted file → hash of its content.
    decisions: BTreeMap<String, String>,
}

/// What the user has said about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Yes, to exactly this content.
    Trusted,
    /// Yes, to other content than this.
    Changed,
    /// Nothing.
    Unknown,
}

impl TrustStore {
    /// Reads the decisions. What cannot be read is an error: guessing would grant or forget trust.
    pub(crate) fn open(state: &Path) -> Result<Self, Failure> {
        let file = state.join("trust.json");
        let doing = || format!("cannot read the trust decisions in `{}`", file.display());
        let decisions = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(doing)
                .or_usage()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error).with_context(doing).or_usage(),
        };
        Ok(Self { file, decisions })
    }

    /// What was decided about `path` with this `content`.
    pub(crate) fn of(&self, path: &Path, content: &str) -> Trust {
        match self.decisions.get(&name(path)) {
            Some(hash) if *hash == hash_of(content) => Trust::Trusted,
            Some(_) => Trust::Changed,
            None => Trust::Unknown,
        }
    }

    /// Records that `path` is trusted with exactly this `content`.
    pub(crate) fn trust(&mut self, path: &Path, content: &str) -> Result<(), Failure> {
        self.decisions.insert(name(path), hash_of(content));
        self.save()
    }

    /// Forgets a decision, and says whether there was one.
    pub(crate) fn revoke(&mut self, path: &Path) -> Result<bool, Failure> {
        let existed = self.decisions.remove(&name(path)).is_some();
        if existed {
            self.save()?;
        }
        Ok(existed)
    }

    fn save(&self) -> Result<(), Failure> {
        let doing = || format!("cannot record the decision in `{}`", self.file.display());
        let text = serde_json::to_vec_pretty(&self.decisions).with_context(doing)?;
        private::replace(&self.file, &text).with_context(doing)?;
        Ok(())
    }
}

/// Paths that are not UTF-8 are told apart by their escapes.
fn name(path: &Path) -> String {
    path.to_str()
        .map_or_else(|| format!("{path:?}"), str::to_owned)
}

fn hash_of(content: &str) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(content) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_is_for_exactly_this_content_at_this_place() {
        let state = tempfile::tempdir().unwrap();
        let path = Path::new("/project/.agent/config.toml");
        TrustStore::open(state.path())
            .unwrap()
            .trust(path, "a = 1")
            .unwrap();

        let mut store = TrustStore::open(state.path()).unwrap();
        assert_eq!(store.of(path, "a = 1"), Trust::Trusted);
        assert_eq!(store.of(path, "a = 2"), Trust::Changed);
        assert_eq!(
            store.of(Path::new("/other/config.toml"), "a = 1"),
            Trust::Unknown
        );

        assert!(store.revoke(path).unwrap());
        let store = TrustStore::open(state.path()).unwrap();
        assert_eq!(store.of(path, "a = 1"), Trust::Unknown);
    }

    #[test]
    fn unreadable_decisions_are_an_error() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join("trust.json"), "[").unwrap();
        assert!(TrustStore::open(state.path()).is_err());
    }
}
