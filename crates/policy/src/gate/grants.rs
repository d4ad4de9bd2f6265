//! What a person said before: grants and denials of this session, and what they are bound to.
//!
//! That an approval expires, and holds only for a call that has not changed since, is the pipeline's part:
//! it compares keys right before it starts anything.

use std::collections::BTreeMap;

use agent_protocol::payload::permission::{Access, GrantScope};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::facts::Facts;
use crate::shell::word::Word;
use crate::shell::{Analysis, Directories, runs_scripts};
use crate::{CommandRequest, PermissionSemantics};

/// The exact bytes a decision was made about. Two calls with the same key are the same call: same tool,
/// input, directory, files behind it and reach.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApprovalKey(String);

impl ApprovalKey {
    /// The key as it stood in the log.
    pub fn from_log(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `profile` names the sandbox the call would run in. Resolved paths, the content of scripts the call
    /// would run and of files it would change are part of the key; `analysis` is what was read in a command.
    pub fn of(
        tool: &str,
        input: &Value,
        semantics: &PermissionSemantics,
        profile: &str,
        facts: &dyn Facts,
        analysis: Option<&Analysis>,
    ) -> Self {
        let mut hasher = Sha256::new();
        let mut part = |text: &str| {
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        part(tool);
        // Whoever allows a host allows its pages.
        let resources = semantics.resources.iter();
        let is_host =
            semantics.hosts().count() == resources.len() && semantics.hosts().next().is_some();
        if !is_host {
            part(&canonical(input).to_string());
        }
        part(profile);
        for resource in &semantics.resources {
            part(resource.access.as_str());
            part(&resource.given);
            if let Some(path) = &resource.resolved {
                let resolved = facts.resolve(path);
                part(&resolved.map_or_else(String::new, |path| path.display().to_string()));
                // What is only read is shown as it is then; it may have changed since it was asked.
                if resource.access != Access::Read {
                    part(&facts.content_hash(path).unwrap_or_default());
                }
            }
        }
        if let Some(command) = &semantics.command {
            part(&command.cwd.display().to_string());
            for content in content_behind(command, facts, analysis) {
                part(&content);
            }
        }
        Self(format!("sha256:{}", agent_text::hex(&hasher.finalize())))
    }
}

/// Hashes of the files a command names that exist: a script allowed for the session is these bytes.
fn content_behind(
    command: &CommandRequest,
    facts: &dyn Facts,
    analysis: Option<&Analysis>,
) -> Vec<String> {
    let here = Directories::Known(vec![command.cwd.clone()]);
    let mut hashes = Vec::new();
    for found in analysis.iter().flat_map(|analysis| &analysis.commands) {
        let directories = match found.directories.union(&here) {
            Directories::Known(directories) => directories,
            Directories::Unknown => vec![command.cwd.clone()],
        };
        // The program itself when it is named by a path, and what may be the script of one that runs scripts,
        // behind however many flags.
        let name = found.words.first().map(Word::sketch).unwrap_or_default();
        let most = if runs_scripts(name) { 16 } else { 3 };
        for word in found.words.iter().take(most).filter_map(|word| word.text()) {
            for directory in &directories {
                let path = directory.join(word);
                hashes.extend(
                    facts
                        .content_hash(&path)
                        .map(|hash| format!("{word} {hash}")),
                );
            }
        }
    }
    hashes.dedup();
    hashes
}

/// The same object with its keys in order, so that their order in the model's text does not matter.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<&String, Value> = map
                .iter()
                .map(|(key, value)| (key, canonical(value)))
                .collect();
            Value::Object(
                sorted
                    .into_iter()
                    .map(|(key, value)| (key.clone(), value))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(canonical).collect()),
        other => other.clone(),
    }
}

/// What was granted and denied in this session. Rebuilt from the log on resume.
#[derive(Debug, Clone, Default)]
pub struct SessionGrants {
    granted: BTreeMap<ApprovalKey, GrantScope>,
    denied: BTreeMap<ApprovalKey, Denial>,
}

/// A refusal and what came with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The turn in which it was given.
    pub turn: String,
    pub note: Option<String>,
}

impl SessionGrants {
    /// A person allowed exactly this, for longer than once.
    pub fn grant(&mut self, key: ApprovalKey, scope: GrantScope) {
        self.denied.remove(&key);
        if scope != GrantScope::Once {
            self.granted.insert(key, scope);
        }
    }

    /// A person refused exactly this. It is not granted any more either.
    pub fn deny(&mut self, key: ApprovalKey, denial: Denial) {
        self.granted.remove(&key);
        self.denied.insert(key, denial);
    }

    pub fn is_granted(&self, key: &ApprovalKey) -> bool {
        self.granted.contains_key(key)
    }

    pub fn denial(&self, key: &ApprovalKey) -> Option<&Denial> {
        self.denied.get(key)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gate::DiskFacts;

    fn key(command: &str, cwd: &std::path::Path, profile: &str) -> ApprovalKey {
        let semantics = PermissionSemantics {
            command: Some(CommandRequest::new(command, cwd.into())),
            ..PermissionSemantics::default()
        };
        let input = json!({"command": command});
        ApprovalKey::of(
            "bash",
            &input,
            &semantics,
            profile,
            &DiskFacts { dirty: || None },
            Some(&crate::shell::analyse(
                command,
                &crate::shell::Start {
                    directory: cwd.to_owned(),
                    home: "/".into(),
                    is_directory: &|_| None,
                },
            )),
        )
    }

    #[test]
    fn an_approval_is_for_exact_bytes_directory_and_reach() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("deploy.sh");
        std::fs::write(&script, "echo one").unwrap();
        let before = key("./deploy.sh a", directory.path(), "full");
        assert_eq!(before, key("./deploy.sh a", directory.path(), "full"));
        assert_ne!(before, key("./deploy.sh b", directory.path(), "full"));
        assert_ne!(before, key("./deploy.sh a", directory.path(), "network"));
        assert_ne!(
            before,
            key("./deploy.sh a", std::path::Path::new("/"), "full")
        );
        std::fs::write(&script, "echo two").unwrap();
        assert_ne!(before, key("./deploy.sh a", directory.path(), "full"));
        let wrapped = key("bash deploy.sh", directory.path(), "full");
        std::fs::write(&script, "echo three").unwrap();
        assert_ne!(wrapped, key("bash deploy.sh", directory.path(), "full"));
    }

    #[test]
    fn a_denial_takes_the_grant_back() {
        let mut grants = SessionGrants::default();
        let key = ApprovalKey::from_log("k");
        grants.grant(key.clone(), GrantScope::Session);
        assert!(grants.is_granted(&key));
        let denial = Denial {
            turn: "t".into(),
            note: None,
        };
        grants.deny(key.clone(), denial);
        assert!(!grants.is_granted(&key));
        grants.grant(key.clone(), GrantScope::Once);
        assert!(!grants.is_granted(&key) && grants.denial(&key).is_none());
    }
}
