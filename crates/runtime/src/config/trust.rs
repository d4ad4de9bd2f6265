//! Which project files the user has trusted, by path and exact content.
//!
//! A project file may have come with the repository, and so from a stranger. Until the user has
//! said yes to exactly these bytes, it may only tighten. The decisions are in the user's state
//! directory, where no command of the agent can write, together with the content that was trusted,
//! so that a change can be shown before it is trusted too.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Context as _;
use agent_evidence::compare;

use super::{ConfigSource, FileState};
use crate::error::{OrFail as _, RuntimeError};
use crate::private;

/// The user's decisions.
pub struct TrustStore {
    file: PathBuf,
    /// What was trusted, each text under its hash.
    contents: PathBuf,
    /// Path of the trusted file → hash of its content.
    decisions: BTreeMap<String, String>,
}

/// What the user has said about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Yes, to exactly this content.
    Trusted,
    /// Yes, to other content than this.
    Changed,
    /// Nothing.
    Unknown,
}

impl TrustStore {
    /// Reads the decisions. What cannot be read is an error: guessing would grant or forget trust.
    pub fn open(state: &Path) -> Result<Self, RuntimeError> {
        let file = state.join("trust.json");
        let doing = || format!("cannot read the trust decisions in `{}`", file.display());
        let decisions = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(doing)
                .or_usage()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error).with_context(doing).or_usage(),
        };
        Ok(Self {
            file,
            contents: state.join("trusted"),
            decisions,
        })
    }

    /// What was decided about `path` with this `content`.
    pub fn of(&self, path: &Path, content: &str) -> Trust {
        match self.decisions.get(&name(path)) {
            Some(hash) if *hash == hash_of(content) => Trust::Trusted,
            Some(_) => Trust::Changed,
            None => Trust::Unknown,
        }
    }

    /// Records that `path` is trusted with exactly this `content`.
    pub fn trust(&mut self, path: &Path, content: &str) -> Result<(), RuntimeError> {
        let hash = hash_of(content);
        let kept = self.content_file(&hash);
        private::write_once(&kept, content.as_bytes())
            .with_context(|| format!("cannot save what is trusted in `{}`", kept.display()))?;
        let before = self.decisions.insert(name(path), hash);
        self.save()?;
        self.drop_content(before);
        Ok(())
    }

    /// What was trusted of `path` last. Nothing when nothing was, or when its text is not what the
    /// decision was about.
    pub fn trusted_content(&self, path: &Path) -> Option<String> {
        let hash = self.decisions.get(&name(path))?;
        let content = fs::read_to_string(self.content_file(hash)).ok()?;
        (hash_of(&content) == *hash).then_some(content)
    }

    /// Forgets a decision, and says whether there was one.
    pub fn revoke(&mut self, path: &Path) -> Result<bool, RuntimeError> {
        let before = self.decisions.remove(&name(path));
        let existed = before.is_some();
        if existed {
            self.save()?;
            self.drop_content(before);
        }
        Ok(existed)
    }

    fn content_file(&self, hash: &str) -> PathBuf {
        self.contents
            .join(hash.strip_prefix("sha256:").unwrap_or(hash))
    }

    /// Removes the text of a decision that is over, unless another one is about the same text.
    fn drop_content(&self, hash: Option<String>) {
        if let Some(hash) = hash
            && !self.decisions.values().any(|other| *other == hash)
        {
            // Left behind it only takes up room.
            let _ = fs::remove_file(self.content_file(&hash));
        }
    }

    fn save(&self) -> Result<(), RuntimeError> {
        let doing = || format!("cannot record the decision in `{}`", self.file.display());
        let text = serde_json::to_vec_pretty(&self.decisions).with_context(doing)?;
        private::replace(&self.file, &text).with_context(doing)?;
        Ok(())
    }
}

/// A project file that is not trusted as it is now, and how it differs from what was.
pub struct Proposal {
    pub path: PathBuf,
    /// Exactly what would be trusted.
    pub content: String,
    /// Whether other content of this file is trusted; else all of it is new.
    pub is_change: bool,
    /// A unified diff; untrusted text.
    pub diff: String,
}

/// What a user has to look at before trusting a project: every settings file that is not trusted,
/// as a diff.
pub fn proposals(files: &[ConfigSource], store: &TrustStore) -> Vec<Proposal> {
    files
        .iter()
        .filter_map(|file| {
            let FileState::Project(said @ (Trust::Unknown | Trust::Changed)) = file.state else {
                return None;
            };
            let before = store.trusted_content(&file.path).unwrap_or_default();
            let limit = Duration::from_secs(1);
            let diff = compare::unified(&before, &file.text, ("trusted", "now"), limit);
            Some(Proposal {
                path: file.path.clone(),
                content: file.text.clone(),
                is_change: said == Trust::Changed,
                diff,
            })
        })
        .collect()
}

/// Paths that are not UTF-8 are told apart by their escapes.
fn name(path: &Path) -> String {
    path.to_str()
        .map_or_else(|| format!("{path:?}"), str::to_owned)
}

fn hash_of(content: &str) -> String {
    format!("sha256:{}", agent_text::sha256_hex(content.as_bytes()))
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

        assert_eq!(store.trusted_content(path).as_deref(), Some("a = 1"));
        store.trust(path, "a = 2").unwrap();
        assert_eq!(store.trusted_content(path).as_deref(), Some("a = 2"));
        let kept = || fs::read_dir(state.path().join("trusted")).unwrap().count();
        assert_eq!(kept(), 1, "what is no longer trusted is not kept");

        assert!(store.revoke(path).unwrap());
        assert_eq!(kept(), 0);
        let store = TrustStore::open(state.path()).unwrap();
        assert_eq!(store.of(path, "a = 1"), Trust::Unknown);
        assert_eq!(store.trusted_content(path), None);
    }

    #[test]
    fn unreadable_decisions_are_an_error() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join("trust.json"), "[").unwrap();
        assert!(TrustStore::open(state.path()).is_err());
    }
}
