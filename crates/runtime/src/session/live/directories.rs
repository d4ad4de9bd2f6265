//! Directories outside the project that the user lets the session read.

use std::path::{Path, PathBuf};

use agent_protocol::Payload;
use agent_protocol::payload::conversation::{SessionChanges, SessionUpdated};
use agent_protocol::payload::permission::{DecidedBy, GrantScope, PolicyChanged, PolicyChanges};
use agent_protocol::reply::{AnswerCode, ControlAnswer, ControlError, ControlErrorCode, Reply};

use agent_engine::SessionAuthority;

use super::{LiveSession, recorded};
use crate::Runtime;

impl LiveSession {
    /// Lets what is in `path` be read: a grant of the user, in the log before it counts.
    pub(super) fn add_directory(&self, path: &Path, reason: &str) -> Result<Reply, ControlError> {
        let directory = directory_to_add(&self.runtime, path)?;
        let known = self.authority.directories();
        let is_in = |known: &PathBuf| directory.starts_with(known);
        if directory.starts_with(self.runtime.project.root()) || known.iter().any(is_in) {
            let said = format!("{} can be read already", directory.display());
            let answer = ControlAnswer::no_op(AnswerCode::NothingToAdd, said);
            return Ok(Reply::Answer(answer));
        }
        let changed = PolicyChanged {
            scope: GrantScope::Session,
            changed: PolicyChanges {
                directories_added: Some(vec![directory.display().to_string()]),
                ..PolicyChanges::default()
            },
            by: DecidedBy::User,
            reason: reason.to_owned(),
        };
        recorded(self.append(changed))?;
        recorded(self.journal.sync())?;
        self.authority.add_directory(&directory).map_err(refusal)?;
        Ok(Reply::Answer(ControlAnswer::accepted()))
    }

    /// Has commands run, and relative paths begin, in another directory of the project.
    pub(super) fn change_directory(&self, path: &str) -> Result<Reply, ControlError> {
        let root = self.runtime.project.root();
        let now = self.pipeline.working_directory();
        let wanted = match path.strip_prefix("~/") {
            Some(below) => self.runtime.home().join(below),
            None if path.is_empty() || path == "~" => root.to_owned(),
            None => root.join(&now).join(path),
        };
        let refuse = |why: String| {
            let said = format!("cannot change to `{path}`: {why}; still in `{now}`");
            ControlError::new(ControlErrorCode::NotStarted, said)
        };
        let there = std::fs::canonicalize(&wanted).map_err(|error| refuse(error.to_string()))?;
        if !there.is_dir() {
            return Err(refuse("it is not a directory".to_owned()));
        }
        let real = std::fs::canonicalize(root).map_err(|error| refuse(error.to_string()))?;
        let below = there.strip_prefix(&real);
        let below = below.map_err(|_| refuse("it is not in the project".to_owned()))?;
        let below = below
            .to_str()
            .ok_or_else(|| refuse("its name is not text".to_owned()))?;
        let below = if below.is_empty() { "." } else { below };
        if below == now {
            let said = format!("already in `{below}`");
            let answer = ControlAnswer::no_op(AnswerCode::AlreadyThere, said);
            return Ok(Reply::Answer(answer));
        }
        let updated: Payload = SessionUpdated {
            changed: SessionChanges {
                working_directory: Some(below.to_owned()),
                ..SessionChanges::default()
            },
            reason: "changed by the user".to_owned(),
        }
        .into();
        recorded(self.append(updated.clone()))?;
        self.pipeline.apply(&updated);
        Ok(Reply::Answer(ControlAnswer::accepted()))
    }

    pub(in crate::session) fn directories(&self) -> Vec<PathBuf> {
        self.authority.directories()
    }
}

/// The directory that `path` leads to, if it can be opened for reading as a whole.
pub(super) fn directory_to_add(runtime: &Runtime, path: &Path) -> Result<PathBuf, ControlError> {
    let home = runtime.home();
    let path = match path.strip_prefix("~") {
        Ok(below) => home.join(below),
        Err(_) => runtime.project.root().join(path),
    };
    let refuse = |why: String| {
        let said = format!(
            "cannot add `{}`: {why}; nothing was changed",
            path.display()
        );
        ControlError::new(ControlErrorCode::NotStarted, said)
    };
    let directory = std::fs::canonicalize(&path).map_err(|error| refuse(error.to_string()))?;
    if !directory.is_dir() {
        return Err(refuse("it is not a directory".to_owned()));
    }
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let home = real(&home);
    let project = real(runtime.project.root());
    // The project itself can be read already, which is no refusal.
    let holds_too_much =
        home.starts_with(&directory) || project != directory && project.starts_with(&directory);
    if holds_too_much {
        return Err(refuse(
            "it holds your home directory or the project; add a directory in it".to_owned(),
        ));
    }
    // Settings of programs lie there, and with them most keys.
    let is_hidden = directory.strip_prefix(&home).is_ok_and(|below| {
        let first = below.components().next();
        first.is_some_and(|first| first.as_os_str().as_encoded_bytes().starts_with(b"."))
    });
    let of_the_system = ["/proc", "/sys", "/dev", "/run", "/etc"];
    if is_hidden
        || of_the_system
            .iter()
            .any(|system| directory.starts_with(system))
    {
        return Err(refuse("settings and secrets lie there".to_owned()));
    }
    let own = &runtime.host.directories;
    let own = [&own.user_config, &own.managed_config, &own.state];
    let holds_own = |own: &&PathBuf| {
        let own = real(own);
        own.starts_with(&directory) || directory.starts_with(&own)
    };
    if own.iter().any(holds_own) {
        return Err(refuse("it holds the agent's own files".to_owned()));
    }
    SessionAuthority::check_directory(&directory).map_err(refusal)?;
    Ok(directory)
}

fn refusal(problem: agent_policy::gate::RuleProblem) -> ControlError {
    ControlError {
        hints: problem.suggestion.into_iter().collect(),
        ..ControlError::new(ControlErrorCode::NotStarted, problem.message)
    }
}
