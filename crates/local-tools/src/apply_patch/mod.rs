//! `apply_patch`: changes to any number of files in the notation that some models were trained on,
//! all of them or none.
//!
//! `parse` reads the notation, `place` finds each hunk, `stage` puts both to the files as they
//! are, and `carry_out` makes the changes and puts them back when one fails.

mod carry_out;
mod parse;
mod place;
mod stage;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use agent_protocol::payload::permission::Access as PermissionAccess;
use agent_protocol::payload::tool::{Concurrency, ToolData};
use agent_protocol::{ActionHappened, Code};
use agent_text::counted;
use agent_tool_runtime::{
    Body, ExecutionContext, ExecutionFailure, NormalizeContext, Normalized, PatchField,
    PermissionSemantics, Plan, Prepared, Preview, RawResult, RuntimeContext, Tool, ToolDefinition,
    ToolInvocation, ValidationFailure, Visibility, VisibilityContext,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use parse::HEADERS;
pub use parse::{Action, Hunk, HunkLine, LineKind, ParseProblem, Patch, Section, parse};
pub use place::{HunkProblem, HunkProblemKind, Placed, Ranges, place};

use crate::LocalTool;
use crate::bash::ChangeTracker;
use crate::change::{Kept, baseline_of, effect, keep, made_directories};
use crate::path::Roots;
use crate::support::{
    flags, not_replaced, parse as parse_input, prepared, resource, writing_definition,
};
use carry_out::{FileChange, NotCarriedOut, carry_out};
use stage::stage;

/// What `apply_patch` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ApplyPatchInput {
    /// The whole patch, from `*** Begin Patch` to `*** End Patch`.
    #[schemars(length(min = 1))]
    input: String,
    /// The directory its relative paths start from; the project root when it is missing.
    #[serde(default)]
    cwd: Option<String>,
}

/// The tool.
pub(crate) struct ApplyPatchTool {
    roots: Arc<Roots>,
    tracker: Arc<ChangeTracker>,
    definition: ToolDefinition,
}

/// A checked patch.
struct Work {
    changes: Vec<FileChange>,
    notes: Vec<String>,
}

impl ApplyPatchTool {
    /// Patches beneath `roots`.
    pub(crate) fn new(roots: Arc<Roots>, tracker: Arc<ChangeTracker>) -> Self {
        Self {
            roots,
            tracker,
            definition: definition(),
        }
    }
}

/// The line of the table of tools.
pub(crate) const TOOL: LocalTool = LocalTool {
    definition,
    make: |parts| {
        Arc::new(ApplyPatchTool::new(
            Arc::clone(&parts.roots),
            Arc::clone(&parts.tracker),
        ))
    },
};

fn definition() -> ToolDefinition {
    ToolDefinition {
        is_destructive: true,
        // It may be about any number of files.
        concurrency: Concurrency::Exclusive,
        patch_field: Some(PatchField {
            name: "input".to_owned(),
            headers: HEADERS.iter().map(|header| (*header).to_owned()).collect(),
        }),
        cwd_field: Some("cwd".to_owned()),
        ..writing_definition::<ApplyPatchInput>(
            "apply_patch",
            "Changes files by a patch: `*** Begin Patch`, sections `*** Add File: PATH` (lines with +), `*** Delete \
             File: PATH` or `*** Update File: PATH` (optionally `*** Move to: PATH`; hunks begin with `@@`, perhaps \
             with the line they stand behind; lines with a space are kept, with - removed, with + added), then `*** \
             End Patch`. The kept and removed lines of a hunk have to occur exactly once behind the hunk before it: \
             give about three lines of context. All files are changed or none. Prefer this over changing files with \
             bash.",
            "A unified diff of every file, and how many lines changed.",
        )
    }
}

impl Tool for ApplyPatchTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// On the menu of models that were trained on it, instead of `edit`.
    fn visibility(&self, context: &VisibilityContext) -> Visibility {
        Visibility::of_mode(&self.definition, context.mode).listed_if(context.takes_patches)
    }

    fn validate(
        &self,
        input: &Value,
        context: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        let input: ApplyPatchInput = parse_input(input)?;
        let patch = parse(&input.input).map_err(|problem| {
            let message = format!("this is no patch: {problem}");
            let whole = format!("{message}. Nothing was changed.");
            ValidationFailure::new(Code::SchemaInvalid, whole).at("/input", message)
        })?;
        let staged = stage(patch, input.cwd.as_deref(), &self.roots, context)?;
        let changes = staged.changes;
        let mut flags = flags(&self.definition);
        let is_lossy = |change: &FileChange| change.before.is_some() && change.after.is_none();
        flags.is_destructive = changes.iter().any(is_lossy);
        let diffs = changes.iter().map(|change| &*change.diff.shown);
        Ok(Prepared {
            normalised_paths: changes.iter().map(|change| change.path.name()).collect(),
            semantics: PermissionSemantics {
                action_class: self.definition.action_class,
                resources: changes
                    .iter()
                    .map(|one| resource(PermissionAccess::Write, &one.given, &one.path))
                    .collect(),
                creates: changes.iter().all(|change| change.before.is_none()),
                risk_facts: staged.facts,
                ..PermissionSemantics::default()
            },
            plan: Plan::default(),
            flags,
            baselines: changes
                .iter()
                .filter_map(|one| Some(one.before.as_ref()?.baseline(&one.path.name(), None)))
                .collect(),
            preview: Some(Preview {
                diff: diffs.collect::<String>().into_bytes(),
            }),
            input: Box::new(Work {
                changes,
                notes: staged.notes,
            }),
        })
    }

    fn syncs_before_effects(&self) -> bool {
        true
    }

    fn execute(
        &self,
        invocation: ToolInvocation,
        context: &ExecutionContext,
    ) -> Result<RawResult, ExecutionFailure> {
        let work = prepared::<Work>(invocation)?;
        // The images of all files are complete on disk before the first is touched.
        let kept = work
            .changes
            .iter()
            .map(|one| {
                keep(
                    one.before.as_ref(),
                    one.after.as_deref(),
                    &one.diff,
                    context,
                )
            })
            .collect::<Result<Vec<Kept>, _>>()?;
        // From here on something happens: the start of the call and its evidence must survive.
        context.sync()?;
        let made = carry_out(&work.changes, &self.roots, &mut |_| {});
        for change in &work.changes {
            self.tracker
                .settle_file(self.roots.root(), change.path.relative());
        }
        let made = made.map_err(|failed| self.failure(&failed, &work.changes, &kept))?;
        let mut raw = RawResult::ok(ActionHappened::Yes);
        let mut baselines = Vec::new();
        let mut data = ToolData {
            files: Some(work.changes.len() as u64),
            lines_added: Some(work.changes.iter().map(|one| one.diff.added).sum()),
            lines_removed: Some(work.changes.iter().map(|one| one.diff.removed).sum()),
            note: (!work.notes.is_empty()).then(|| work.notes.join(" ")),
            ..ToolData::default()
        };
        for ((change, made), kept) in work.changes.iter().zip(made).zip(&kept) {
            let (path, before) = (&change.path, change.before.as_ref());
            let name = path.name();
            let after = change.after.as_deref().zip(made.stamp.as_ref());
            raw.side_effects
                .extend(made_directories(path, &self.roots, made.directories));
            let effect = effect(path, before, after, kept, &self.roots);
            raw.side_effects.push(effect);
            raw.artifacts.extend(kept.artifacts());
            let diff = change.diff.shown.clone().into_bytes();
            raw.bodies.push(Body::diff(format!("diff of {name}"), diff));
            if made.other_names > 0 {
                data.other_names = Some(data.other_names.unwrap_or(0) + made.other_names);
            }
            if let Some((content, stamp)) = after {
                baselines.push(baseline_of(&name, content, stamp));
            }
        }
        data.baselines = Some(baselines);
        if let [only] = &*work.changes {
            data.path = Some(only.path.name());
        }
        raw.data = data;
        Ok(raw)
    }

    fn normalize(&self, raw: &RawResult, _: &NormalizeContext<'_>) -> Normalized {
        let files = raw.side_effects.iter();
        let files = files.filter(|one| one.file_type.as_deref() != Some("directory"));
        let told: Vec<String> = files
            .clone()
            .map(|effect| format!("{} `{}`", effect.kind, effect.path))
            .collect();
        let names: Vec<&str> = files.map(|effect| &*effect.path).collect();
        let data = &raw.data;
        Normalized {
            title: format!("apply_patch {}", names.join(", ")),
            summary: format!(
                "Changed {} ({}): {} added, {} removed.",
                counted(told.len() as u64, "file"),
                told.join(", "),
                counted(data.lines_added.unwrap_or(0), "line"),
                counted(data.lines_removed.unwrap_or(0), "line"),
            ),
            detail: data.note.clone().unwrap_or_default(),
            user_text: None,
        }
    }
}

impl ApplyPatchTool {
    /// A patch that was not carried out, with what could not be put back.
    fn failure(
        &self,
        failed: &NotCarriedOut,
        changes: &[FileChange],
        kept: &[Kept],
    ) -> ExecutionFailure {
        let mut failure = not_replaced(&failed.problem);
        if failed.stuck.is_empty() {
            if failure.action_happened == ActionHappened::No {
                failure
                    .message
                    .push_str("; every file of the patch is as it was");
            }
            return failure;
        }
        let names: Vec<String> = failed
            .stuck
            .iter()
            .map(|(index, _)| format!("`{}`", changes[*index].path.name()))
            .collect();
        failure.message = format!(
            "{}; these files were changed before that and could not be put back: {}",
            failure.message.trim_end_matches("; nothing was written"),
            names.join(", ")
        );
        failure.action_happened = ActionHappened::Yes;
        for (index, replaced) in &failed.stuck {
            let change = &changes[*index];
            let after = change.after.as_deref();
            let after = after.zip(replaced.as_ref().map(|replaced| &replaced.stamp));
            let before = change.before.as_ref();
            let effect = effect(&change.path, before, after, &kept[*index], &self.roots);
            failure.side_effects.push(effect);
            failure.artifacts.extend(kept[*index].artifacts());
        }
        failure
    }
}
