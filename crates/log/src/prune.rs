//! Bounding growth: artifacts expire by an explicit plan, and the log says which and why before
//! the bytes go. Logs themselves are never removed.

use agent_protocol::id::{ArtifactId, SessionId};
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::tool::OutputExpired;
use agent_protocol::{Refs, Scope, Timestamp};

use crate::artifact::ArtifactError;
use crate::error::AppendError;
use crate::fork::{self, ForkError};
use crate::inventory::{ArtifactInventory, ArtifactState};
use crate::open::{OpenError, SessionEnv};
use crate::place::PlaceError;
use crate::reader::ReadError;
use crate::store::SessionDirectory;

/// Rule by which artifacts are removed.
#[derive(Debug, Clone, Default)]
pub struct PrunePolicy {
    /// Artifacts of sessions that were last written before this.
    pub older_than: Option<Timestamp>,
    /// The oldest artifacts of a session, until the rest takes no more than this.
    pub keep_bytes: Option<u64>,
    /// Images of files before they were changed are kept unless this is set: undo needs them.
    pub include_before_images: bool,
}

/// An artifact that would go, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiring {
    pub artifact_id: ArtifactId,
    pub kind: ArtifactKind,
    pub bytes: u64,
    /// In words for the log: `older_than 2026-…`, `keep_bytes 1000`.
    pub rule: String,
}

/// Plan of pruning one session.
#[derive(Debug, Clone)]
pub struct PrunePlan {
    pub session_id: SessionId,
    pub expiring: Vec<Expiring>,
}

impl PrunePlan {
    /// Bytes that would be freed.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.expiring.iter().map(|expiring| expiring.bytes).sum()
    }
}

/// Reason a session was not pruned, or not wholly.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    #[error("cannot prune session {session_id}; nothing was removed")]
    Open {
        session_id: SessionId,
        source: OpenError,
    },
    #[error("cannot record what is removed; nothing was removed")]
    Append(#[from] AppendError),
    #[error(transparent)]
    Fork(#[from] ForkError),
}

/// Says what would go. Changes nothing.
///
/// # Errors
/// When the log cannot be read.
pub fn plan_prune(
    session: &SessionDirectory,
    policy: &PrunePolicy,
) -> Result<PrunePlan, PruneError> {
    let mut summary = ArtifactInventory::default();
    for item in session.reader()? {
        if let Some(event) = item?.event {
            summary.apply(&event);
        }
    }
    // A branch is nothing without the lines it began with.
    let history = fork::history(session)?;
    let mut kept: Vec<_> = summary
        .artifacts
        .into_iter()
        .filter(|(_, artifact)| artifact.state == ArtifactState::Kept)
        .filter(|(id, _)| history.as_ref() != Some(id))
        .collect();
    kept.sort_by_key(|(_, artifact)| artifact.sequence);
    let mut total: u64 = kept.iter().map(|(_, artifact)| artifact.bytes).sum();
    let by_age = policy
        .older_than
        .filter(|limit| session.modified() < *limit)
        .map(|limit| format!("older_than {limit}"));
    let mut expiring = Vec::new();
    for (artifact_id, artifact) in kept {
        if artifact.kind == ArtifactKind::Before && !policy.include_before_images {
            continue;
        }
        let by_size = policy
            .keep_bytes
            .filter(|limit| total > *limit)
            .map(|limit| format!("keep_bytes {limit}"));
        if let Some(rule) = by_age.clone().or(by_size) {
            total -= artifact.bytes;
            expiring.push(Expiring {
                artifact_id,
                kind: artifact.kind,
                bytes: artifact.bytes,
                rule,
            });
        }
    }
    Ok(PrunePlan {
        session_id: session.id().clone(),
        expiring,
    })
}

/// Carries out a plan: records every removal, syncs, and only then removes.
///
/// # Errors
/// When the session is being written, is damaged, or the removals could not be recorded.
pub fn prune(
    session: &SessionDirectory,
    plan: &PrunePlan,
    env: SessionEnv,
) -> Result<u64, PruneError> {
    if plan.expiring.is_empty() {
        return Ok(0);
    }
    let opened = session
        .open_writer(env)
        .map_err(|source| PruneError::Open {
            session_id: session.id().clone(),
            source,
        })?;
    let writer = opened.writer;
    for expiring in &plan.expiring {
        let expired = OutputExpired {
            artifact_id: expiring.artifact_id.clone(),
            retention_rule: expiring.rule.clone(),
            bytes: Some(expiring.bytes),
        };
        writer.append(&Scope::default(), expired, Refs::default())?;
    }
    writer.sync_and_anchor()?;
    let mut freed = 0;
    for expiring in &plan.expiring {
        match writer.artifacts().remove(&expiring.artifact_id) {
            Ok(()) => freed += expiring.bytes,
            // Already gone, which the audit would have told; the log now says so too.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(freed)
}
