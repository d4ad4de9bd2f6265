//! `write`: a new file, or the whole content of one this session knows.

use std::sync::Arc;

use agent_protocol::Code;
use agent_tool_runtime::{
    ExecutionContext, ExecutionFailure, NormalizeContext, Normalized, Prepared, RawResult,
    RuntimeContext, Tool, ToolDefinition, ToolInvocation, ValidationFailure,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::LocalTool;
use crate::bash::ChangeTracker;
use crate::change::{Change, make, words};
use crate::diff::{changed_range, unified};
use crate::edit::current_version;
use crate::encoding::{Encoding, LineEndings};
use crate::file::Snapshot;
use crate::path::{Access, Found, Roots};
use crate::reveal::reveal;
use crate::support::{bad_path, parse, prepared, writing_definition};
use agent_text::counted;

/// What `write` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteInput {
    /// The file: relative to the project root, or absolute. Missing directories are made.
    path: String,
    /// The whole new content, written as UTF-8 exactly as given.
    content: String,
}

/// The tool.
pub(crate) struct WriteTool {
    roots: Arc<Roots>,
    tracker: Arc<ChangeTracker>,
    definition: ToolDefinition,
}

impl WriteTool {
    /// Writes beneath `roots`.
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
        Arc::new(WriteTool::new(
            Arc::clone(&parts.roots),
            Arc::clone(&parts.tracker),
        ))
    },
};

fn definition() -> ToolDefinition {
    ToolDefinition {
        aliases: vec!["write_file".to_owned()],
        is_destructive: true,
        ..writing_definition::<WriteInput>(
            "write",
            "Makes a new file, or replaces the whole content of a file that was read in this session and has not \
             changed since. To change a part of a file, use edit. Prefer this over writing files with bash.",
            "A unified diff, and how many lines changed.",
        )
    }
    .with_path("path", None)
}

impl Tool for WriteTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn validate(
        &self,
        input: &Value,
        context: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        let input: WriteInput = parse(input)?;
        let path = self
            .roots
            .resolve(&input.path, Access::Write)
            .map_err(|problem| bad_path(&problem, "/path"))?;
        let name = path.name();
        let before = match path.found() {
            Found::Missing => None,
            _ => Some(current_version(&self.roots, &path, context)?),
        };
        let after = reveal(
            input.content,
            "/content",
            before.as_ref(),
            &self.roots,
            context,
        )?;
        let after = after.into_bytes();
        let old: &[u8] = before.as_ref().map_or(&[], |snapshot| &snapshot.content);
        if before.is_some() && old == after {
            let message = format!("`{name}` already has exactly this content");
            return Err(
                ValidationFailure::new(Code::NoChange, message.clone()).at("/content", message)
            );
        }
        let changes: Vec<_> = changed_range(old, &after).into_iter().collect();
        let diff = unified(
            &name,
            old,
            &after,
            shared_encoding(before.as_ref(), &after),
            &changes,
        );
        let form_change = form_change(before.as_ref(), &after);
        let change = Change {
            path,
            before,
            after,
            diff,
            replacements: None,
            form_change,
        };
        Ok(change.prepared(&input.path, &self.definition))
    }

    fn syncs_before_effects(&self) -> bool {
        true
    }

    fn execute(
        &self,
        invocation: ToolInvocation,
        context: &ExecutionContext,
    ) -> Result<RawResult, ExecutionFailure> {
        let change = prepared::<Change>(invocation)?;
        make(&change, &self.roots, &self.tracker, context)
    }

    fn normalize(&self, raw: &RawResult, _: &NormalizeContext<'_>) -> Normalized {
        let name = raw.data.path.as_deref().unwrap_or_default();
        // The file itself comes after the directories that were made for it.
        let effect = raw.side_effects.last();
        let bytes = effect.and_then(|effect| effect.bytes_after).unwrap_or(0);
        let made = effect.is_some_and(|effect| effect.sha256_before.is_none());
        let verb = if made {
            "Created"
        } else {
            "Replaced the content of"
        };
        let what = format!("{verb} `{name}`, {}", counted(bytes, "byte"));
        words("write", &what, raw)
    }
}

/// Encoding in which both sides of the diff are split and shown.
pub(crate) fn shared_encoding(before: Option<&Snapshot>, after: &[u8]) -> Encoding {
    match before.map(|snapshot| snapshot.encoding) {
        // Wide lines cannot be compared with narrow ones; as bytes the diff is still exact.
        Some(Encoding::Utf16Le | Encoding::Utf16Be) | None => Encoding::of(after),
        Some(encoding) => encoding,
    }
}

/// That the new content is written in another form than the old one.
fn form_change(before: Option<&Snapshot>, after: &[u8]) -> Option<String> {
    let before = before?;
    let encoding = Encoding::of(after);
    let old = LineEndings::of(&before.content, before.encoding).name();
    let new = LineEndings::of(after, encoding).name();
    let mut facts = Vec::new();
    if encoding != before.encoding {
        facts.push(format!(
            "The encoding {} becomes {}.",
            before.encoding.name(),
            encoding.name()
        ));
    }
    if old != new && old != "none" && new != "none" {
        facts.push(format!("The line endings {old} become {new}."));
    }
    (!facts.is_empty()).then(|| facts.join(" "))
}
