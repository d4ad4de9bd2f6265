//! Common part of `edit`, `write` and `apply_patch`: from decided bytes to a changed file with its evidence.

use std::path::Path;

use agent_fs::Stamp;
use agent_protocol::ActionHappened;
use agent_protocol::payload::ArtifactRef;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::permission::Access as PermissionAccess;
use agent_protocol::payload::tool::{Baseline, ToolData};
use agent_protocol::payload::{SideEffect, SideEffectKind};
use agent_tool_runtime::{
    Body, ExecutionContext, ExecutionFailure, Normalized, PermissionSemantics, Plan, Prepared,
    Preview, RawResult, ToolDefinition,
};

use crate::bash::ChangeTracker;
use crate::diff::Diff;
use crate::encoding::{Encoding, LineEndings};
use crate::file::{Snapshot, hash_bytes};
use crate::path::{ProjectPath, Roots};
use crate::replace::{Expected, replace};
use crate::search::is_ignored;
use crate::support::{flags, not_replaced, resource};
use agent_text::counted;

/// A change that was checked and can be made.
pub(crate) struct Change {
    pub(crate) path: ProjectPath,
    /// The version it rests on; nothing for a new file.
    pub(crate) before: Option<Snapshot>,
    pub(crate) after: Vec<u8>,
    pub(crate) diff: Diff,
    pub(crate) replacements: Option<u64>,
    /// That the new content has another form than the old one.
    pub(crate) form_change: Option<String>,
}

impl Change {
    /// A call that makes this change, as the gate sees it. `given` is the path as it was asked for.
    pub(crate) fn prepared(self, given: &str, definition: &ToolDefinition) -> Prepared {
        let name = self.path.name();
        let before = self.before.as_ref();
        let mut flags = flags(definition);
        flags.is_destructive &= before.is_some();
        let links = before.map_or(1, |snapshot| snapshot.stamp.links);
        Prepared {
            normalised_paths: vec![name.clone()],
            semantics: PermissionSemantics {
                action_class: definition.action_class,
                resources: vec![resource(PermissionAccess::Write, given, &self.path)],
                creates: before.is_none(),
                risk_facts: other_names_fact(links)
                    .into_iter()
                    .chain(self.form_change.clone())
                    .collect(),
                ..PermissionSemantics::default()
            },
            plan: Plan {
                lock_key: Some(name.clone()),
                ..Plan::default()
            },
            flags,
            baselines: before
                .map(|snapshot| snapshot.baseline(&name, None))
                .into_iter()
                .collect(),
            preview: Some(Preview {
                diff: self.diff.shown.clone().into_bytes(),
            }),
            input: Box::new(self),
        }
    }
}

/// A change in words: `what` and how many lines changed.
pub(crate) fn words(verb: &str, what: &str, raw: &RawResult) -> Normalized {
    let data = &raw.data;
    let name = data.path.as_deref().unwrap_or_default();
    let other_names = data.other_names;
    Normalized {
        title: format!("{verb} {name}"),
        summary: format!(
            "{what}: {} added, {} removed.",
            counted(data.lines_added.unwrap_or(0), "line"),
            counted(data.lines_removed.unwrap_or(0), "line"),
        ),
        detail: other_names
            .and_then(|names| other_names_fact(names + 1))
            .into_iter()
            .chain(data.note.clone())
            .collect::<Vec<_>>()
            .join(" "),
        user_text: None,
    }
}

/// Keeps the evidence, puts the content in place, and tells what happened. The image of what was
/// there is complete on disk before the file is touched.
pub(crate) fn make(
    change: &Change,
    roots: &Roots,
    tracker: &ChangeTracker,
    context: &ExecutionContext,
) -> Result<RawResult, ExecutionFailure> {
    let name = change.path.name();
    let kept = keep(
        change.before.as_ref(),
        Some(&change.after),
        &change.diff,
        context,
    )?;
    // From here on something happens: the start of the call and its evidence must survive.
    context.sync()?;
    let expected = expected(change.before.as_ref());
    let replaced = replace(roots, &change.path, expected, &change.after)
        .map_err(|problem| not_replaced(&problem))?;
    tracker.settle_file(roots.root(), change.path.relative());
    let encoding = Encoding::of(&change.after);
    let after = (&*change.after, &replaced.stamp);
    let effect = effect(
        &change.path,
        change.before.as_ref(),
        Some(after),
        &kept,
        roots,
    );
    let data = ToolData {
        path: Some(name.clone()),
        encoding: Some(encoding.name().to_owned()),
        line_ending: Some(LineEndings::of(&change.after, encoding).name().to_owned()),
        replacements: change.replacements,
        lines_added: Some(change.diff.added),
        lines_removed: Some(change.diff.removed),
        other_names: (replaced.other_names > 0).then_some(replaced.other_names),
        note: change.form_change.clone(),
        baseline: Some(baseline_of(&name, &change.after, &replaced.stamp)),
        ..ToolData::default()
    };
    Ok(RawResult {
        data,
        side_effects: made_directories(&change.path, roots, replaced.directories)
            .chain([effect])
            .collect(),
        artifacts: kept.artifacts().collect(),
        bodies: vec![Body::diff(
            format!("diff of {name}"),
            change.diff.shown.clone().into_bytes(),
        )],
        ..RawResult::ok(ActionHappened::Yes)
    })
}

/// The evidence of a change.
pub(crate) struct Kept {
    before: Option<ArtifactRef>,
    after: Option<ArtifactRef>,
    diff: ArtifactRef,
}

impl Kept {
    pub(crate) fn artifacts(&self) -> impl Iterator<Item = ArtifactRef> {
        let images = self.before.iter().chain(&self.after);
        images.chain([&self.diff]).cloned()
    }
}

/// Keeps both images of a file and the diff. Without `after` the file goes.
pub(crate) fn keep(
    before: Option<&Snapshot>,
    after: Option<&[u8]>,
    diff: &Diff,
    context: &ExecutionContext,
) -> Result<Kept, ExecutionFailure> {
    let image = |kind, bytes: Option<&[u8]>| {
        bytes
            .map(|bytes| context.put_artifact(kind, "application/octet-stream", bytes))
            .transpose()
    };
    Ok(Kept {
        before: image(
            ArtifactKind::Before,
            before.map(|snapshot| &*snapshot.content),
        )?,
        after: image(ArtifactKind::After, after)?,
        diff: context.put_artifact(ArtifactKind::Diff, "text/x-diff", &diff.exact)?,
    })
}

/// What has to be there for a change of this version.
pub(crate) fn expected(before: Option<&Snapshot>) -> Expected<'_> {
    before.map_or(Expected::Missing, |snapshot| Expected::Content {
        bytes: &snapshot.content,
        sha256: &snapshot.sha256,
    })
}

/// What a session remembers of content it wrote.
pub(crate) fn baseline_of(name: &str, content: &[u8], stamp: &Stamp) -> Baseline {
    Baseline {
        path: name.to_owned(),
        size: content.len() as u64,
        mtime_ms: Some(stamp.modified_ms()),
        sha256: hash_bytes(content),
        range: None,
    }
}

/// A change as the log has it; `after` is missing when the file is gone.
pub(crate) fn effect(
    path: &ProjectPath,
    before: Option<&Snapshot>,
    after: Option<(&[u8], &Stamp)>,
    kept: &Kept,
    roots: &Roots,
) -> SideEffect {
    let id = |artifact: &Option<ArtifactRef>| Some(artifact.as_ref()?.artifact_id.clone());
    SideEffect {
        kind: match (before, after) {
            (Some(_), Some(_)) => SideEffectKind::Modified,
            (None, _) => SideEffectKind::Created,
            (Some(_), None) => SideEffectKind::Deleted,
        },
        path: path.name(),
        sha256_before: before.map(|snapshot| snapshot.sha256.clone()),
        sha256_after: after.map(|(content, _)| hash_bytes(content)),
        before_ref: id(&kept.before),
        after_ref: id(&kept.after),
        bytes_before: before.map(|snapshot| snapshot.content.len() as u64),
        bytes_after: after.map(|(content, _)| content.len() as u64),
        mode_before: before.map(|snapshot| snapshot.stamp.mode & 0o7777),
        mode_after: after.map(|(_, stamp)| stamp.mode & 0o7777),
        ignored: is_ignored(roots.root(), path.relative()).then_some(true),
        ..SideEffect::default()
    }
}

/// The directories that had to be made for the file, the outer before the inner.
pub(crate) fn made_directories(
    path: &ProjectPath,
    roots: &Roots,
    made: usize,
) -> impl Iterator<Item = SideEffect> + use<> {
    let above = path.relative().ancestors().skip(1).take(made);
    let above: Vec<&Path> = above.collect();
    let effects: Vec<SideEffect> = above
        .into_iter()
        .rev()
        .map(|directory| SideEffect {
            kind: SideEffectKind::Created,
            path: directory.to_string_lossy().into_owned(),
            mode_after: rustix::fs::stat(roots.root().join(directory))
                .ok()
                .map(|stat| stat.st_mode & 0o7777),
            file_type: Some("directory".to_owned()),
            ..SideEffect::default()
        })
        .collect();
    effects.into_iter()
}

/// `Also changes 2 other names`: a fact for the person who approves, and for the record.
pub(crate) fn other_names_fact(links: u64) -> Option<String> {
    match links.saturating_sub(1) {
        0 => None,
        1 => Some("The file has 1 other name (hard link), whose content changes too.".to_owned()),
        more => Some(format!(
            "The file has {more} other names (hard links), whose content changes too."
        )),
    }
}
