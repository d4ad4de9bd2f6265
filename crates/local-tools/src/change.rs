//! What `edit` and `write` have in common: from decided bytes to a changed file with its evidence.

use agent_protocol::ActionHappened;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::tool::{Baseline, ToolData};
use agent_protocol::payload::{SideEffect, SideEffectKind};
use agent_tool_runtime::{Body, ExecutionContext, ExecutionFailure, RawResult};

use crate::diff::Diff;
use crate::encoding::{Encoding, LineEndings};
use crate::file::{Snapshot, hash_bytes};
use crate::path::{ProjectPath, Roots};
use crate::replace::{Expected, replace};
use crate::support::not_replaced;

/// A change that was checked and can be made.
pub(crate) struct Change {
    pub(crate) path: ProjectPath,
    /// The version it rests on; nothing for a new file.
    pub(crate) before: Option<Snapshot>,
    pub(crate) after: Vec<u8>,
    pub(crate) diff: Diff,
    pub(crate) replacements: Option<u64>,
}

/// Keeps the evidence, puts the content in place, and says what happened. The image of what was
/// there is complete on disk before the file is touched.
pub(crate) fn make(
    change: &Change,
    roots: &Roots,
    context: &ExecutionContext,
) -> Result<RawResult, ExecutionFailure> {
    let name = change.path.name();
    let binary = "application/octet-stream";
    let before = match &change.before {
        Some(snapshot) => {
            Some(context.put_artifact(ArtifactKind::Before, binary, &snapshot.content)?)
        }
        None => None,
    };
    let after = context.put_artifact(ArtifactKind::After, binary, &change.after)?;
    let diff = context.put_artifact(ArtifactKind::Diff, "text/x-diff", &change.diff.exact)?;
    let expected = match &change.before {
        Some(snapshot) => Expected::Content {
            bytes: &snapshot.content,
            sha256: &snapshot.sha256,
        },
        None => Expected::Missing,
    };
    let replaced = replace(roots, &change.path, expected, &change.after)
        .map_err(|problem| not_replaced(&problem))?;
    let sha256 = hash_bytes(&change.after);
    let encoding = Encoding::of(&change.after);
    let effect = SideEffect {
        kind: if change.before.is_some() {
            SideEffectKind::Modified
        } else {
            SideEffectKind::Created
        },
        path: name.clone(),
        sha256_before: change
            .before
            .as_ref()
            .map(|snapshot| snapshot.sha256.clone()),
        sha256_after: Some(sha256.clone()),
        before_ref: before.as_ref().map(|artifact| artifact.artifact_id.clone()),
        after_ref: Some(after.artifact_id.clone()),
        bytes_before: change
            .before
            .as_ref()
            .map(|snapshot| snapshot.content.len() as u64),
        bytes_after: Some(change.after.len() as u64),
        mode_before: change
            .before
            .as_ref()
            .map(|snapshot| snapshot.stamp.mode & 0o7777),
        mode_after: Some(replaced.stamp.mode & 0o7777),
        ..SideEffect::default()
    };
    let data = ToolData {
        path: Some(name.clone()),
        encoding: Some(encoding.name().to_owned()),
        line_ending: Some(LineEndings::of(&change.after, encoding).name().to_owned()),
        replacements: change.replacements,
        lines_added: Some(change.diff.added),
        lines_removed: Some(change.diff.removed),
        other_names: (replaced.other_names > 0).then_some(replaced.other_names),
        baseline: Some(Baseline {
            path: name.clone(),
            size: change.after.len() as u64,
            mtime_ms: Some(replaced.stamp.modified_ms()),
            sha256,
            range: None,
        }),
        ..ToolData::default()
    };
    Ok(RawResult {
        data,
        side_effects: vec![effect],
        artifacts: before.into_iter().chain([after, diff]).collect(),
        bodies: vec![Body::diff(
            format!("diff of {name}"),
            change.diff.shown.clone().into_bytes(),
        )],
        ..RawResult::ok(ActionHappened::Yes)
    })
}

/// `Also changes 2 other names`: a fact for whoever approves, and for the record.
pub(crate) fn other_names_fact(links: u64) -> Option<String> {
    match links.saturating_sub(1) {
        0 => None,
        1 => Some("The file has 1 other name (hard link), whose content changes too.".to_owned()),
        more => Some(format!(
            "The file has {more} other names (hard links), whose content changes too."
        )),
    }
}
