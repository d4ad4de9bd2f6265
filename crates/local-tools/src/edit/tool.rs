//! `edit`: exact replacements in one file.

use std::sync::Arc;

use agent_protocol::Code;
use agent_tool_runtime::{
    Body, ExecutionContext, ExecutionFailure, NormalizeContext, Normalized, Prepared, RawResult,
    RuntimeContext, Tool, ToolDefinition, ToolInvocation, ValidationFailure, Visibility,
    VisibilityContext,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{Edit, EditProblem, plan};
use crate::LocalTool;
use crate::bash::ChangeTracker;
use crate::change::{Change, make, words};
use crate::diff::unified;
use crate::file::{self, MAX_WHOLE_FILE, Snapshot};
use crate::path::{Access, ProjectPath, Roots, open_file};
use crate::read::refuse_binary;
use crate::reveal::reveal;
use crate::support::{bad_file, bad_path, parse, prepared, writing_definition};
use agent_text::counted;

/// What `edit` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EditInput {
    /// The file: relative to the project root, or absolute.
    path: String,
    /// The replacements. All are matched against the file as it is, and all are made or none.
    #[serde(default)]
    #[schemars(length(min = 1, max = 1000))]
    edits: Option<Vec<EditItem>>,
    /// The text to replace, when there is only one replacement and no `edits`.
    #[serde(default)]
    #[schemars(length(min = 1))]
    old_string: Option<String>,
    /// What takes its place.
    #[serde(default)]
    new_string: Option<String>,
    /// Replace every occurrence instead of the only one.
    #[serde(default)]
    replace_all: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EditItem {
    /// The exact text to replace, without the line numbers of `read`. It has to occur once.
    #[schemars(length(min = 1))]
    old_string: String,
    /// What takes its place.
    new_string: String,
    /// Replace every occurrence instead of the only one.
    #[serde(default)]
    replace_all: Option<bool>,
}

/// The tool.
pub(crate) struct EditTool {
    roots: Arc<Roots>,
    tracker: Arc<ChangeTracker>,
    definition: ToolDefinition,
}

impl EditTool {
    /// Edits beneath `roots`.
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
        Arc::new(EditTool::new(
            Arc::clone(&parts.roots),
            Arc::clone(&parts.tracker),
        ))
    },
};

fn definition() -> ToolDefinition {
    ToolDefinition {
        aliases: vec!["edit_file".to_owned()],
        ..writing_definition::<EditInput>(
            "edit",
            "Replaces exact text in a file that was read in this session. Each old_string has to occur exactly once \
             unless replace_all is set; include enough surrounding lines to make it unique. Nothing is matched \
             approximately. Several edits in one call are made together or not at all. A line feed matches the \
             file's own line break; encoding, line endings and everything outside the match stay as they are. \
             Prefer this over changing files with bash.",
            "A unified diff, and how many places and lines changed.",
        )
    }
    .with_path("path", None)
}

impl Tool for EditTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// Off the menu of models that take a patch instead: with two notations for one change they mix them.
    fn visibility(&self, context: &VisibilityContext) -> Visibility {
        Visibility::of_mode(&self.definition, context.mode).listed_if(!context.takes_patches)
    }

    fn validate(
        &self,
        input: &Value,
        context: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        let input: EditInput = parse(input)?;
        let given = input.path.clone();
        let path = self
            .roots
            .resolve(&given, Access::Write)
            .map_err(|problem| bad_path(&problem, "/path"))?;
        let (mut edits, single) = edits_of(input)?;
        let snapshot = current_version(&self.roots, &path, context)?;
        for (index, edit) in edits.iter_mut().enumerate() {
            // Placeholders of masked secrets stand for their values.
            let place = if single {
                String::new()
            } else {
                format!("/edits/{index}")
            };
            for (text, name) in [(&mut edit.old, "old_string"), (&mut edit.new, "new_string")] {
                let field = format!("{place}/{name}");
                let given = std::mem::take(text);
                *text = reveal(given, &field, Some(&snapshot), &self.roots, context)?;
            }
        }
        let plan = plan(&snapshot.content, snapshot.encoding, &edits)
            .map_err(|problem| refused(&problem, &path, single))?;
        let after = plan.apply(&snapshot.content);
        let name = path.name();
        let diff = unified(
            &name,
            &snapshot.content,
            &after,
            snapshot.encoding,
            &plan.changes(),
        );
        let change = Change {
            path,
            before: Some(snapshot),
            after,
            diff,
            replacements: Some(plan.count() as u64),
            form_change: None,
        };
        Ok(change.prepared(&given, &self.definition))
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
        let places = counted(raw.data.replacements.unwrap_or(0), "place");
        words("edit", &format!("Replaced {places} in `{name}`"), raw)
    }
}

/// The edits asked for, and whether they came as a single pair.
fn edits_of(input: EditInput) -> Result<(Vec<Edit>, bool), ValidationFailure> {
    let invalid = |path: &str, message: &str| {
        ValidationFailure::new(Code::SchemaInvalid, message).at(path, message)
    };
    let edit = |old: String, new: String, all: Option<bool>| Edit {
        old,
        new,
        replace_all: all.unwrap_or(false),
    };
    match (input.edits, input.old_string, input.new_string) {
        (Some(items), None, None) if input.replace_all.is_none() => {
            let edits = items
                .into_iter()
                .map(|item| edit(item.old_string, item.new_string, item.replace_all));
            Ok((edits.collect(), false))
        }
        (None, Some(old), Some(new)) => Ok((vec![edit(old, new, input.replace_all)], true)),
        (None, None, None) => Err(invalid(
            "/edits",
            "either `edits`, or `old_string` and `new_string`, is needed",
        )),
        (None, Some(_), None) => Err(invalid("/new_string", "`new_string` is missing")),
        (None, None, Some(_)) => Err(invalid("/old_string", "`old_string` is missing")),
        (Some(_), ..) => Err(invalid(
            "/edits",
            "`edits` and a single replacement exclude each other",
        )),
    }
}

/// The file as it is, if it is the version this session knows.
pub(crate) fn current_version(
    roots: &Roots,
    path: &ProjectPath,
    context: &RuntimeContext<'_>,
) -> Result<Snapshot, ValidationFailure> {
    let opened = readable(roots, path)?;
    refuse_binary(path, &opened)?;
    let name = path.name();
    if context.baseline(&name).is_none() {
        let message = format!("`{name}` has not been read in this session");
        return Err(
            ValidationFailure::new(Code::RuntimePreconditionFailed, message.clone())
                .at("/path", message),
        );
    }
    let snapshot = file::load(&opened).map_err(|error| not_readable(&name, &error))?;
    check_version(&name, &snapshot, context)?;
    Ok(snapshot)
}

/// The file, opened, if it can be changed at all.
pub(crate) fn readable(
    roots: &Roots,
    path: &ProjectPath,
) -> Result<std::fs::File, ValidationFailure> {
    let name = path.name();
    let opened = open_file(roots, path).map_err(|problem| bad_file(&problem, "/path"))?;
    let metadata = opened.metadata();
    let size = metadata.map_err(|error| not_readable(&name, &error))?.len();
    if size > MAX_WHOLE_FILE {
        let message = format!(
            "`{name}` has {size} bytes; files over {MAX_WHOLE_FILE} bytes cannot be changed"
        );
        return Err(ValidationFailure::new(Code::TooLarge, message.clone()).at("/path", message));
    }
    Ok(opened)
}

/// The version that was seen last, if one was, has to be this one.
pub(crate) fn check_version(
    name: &str,
    snapshot: &Snapshot,
    context: &RuntimeContext<'_>,
) -> Result<(), ValidationFailure> {
    let known = context.baseline(name);
    if known.is_none_or(|known| known.sha256 == snapshot.sha256) {
        return Ok(());
    }
    let message = format!("`{name}` changed on disk since it was read");
    Err(ValidationFailure::new(Code::StaleFileBaseline, message.clone()).at("/path", message))
}

pub(crate) fn not_readable(name: &str, error: &std::io::Error) -> ValidationFailure {
    let code = if error.kind() == std::io::ErrorKind::FileTooLarge {
        Code::TooLarge
    } else {
        Code::IoError
    };
    ValidationFailure::new(code, format!("cannot read `{name}`: {error}"))
}

fn refused(problem: &EditProblem, path: &ProjectPath, single: bool) -> ValidationFailure {
    let field = match problem.edit() {
        Some(index) if !single => format!("/edits/{index}"),
        _ if single => "/old_string".to_owned(),
        _ => "/edits".to_owned(),
    };
    let EditProblem::NotFound {
        nearest: Some(nearest),
        ..
    } = problem
    else {
        let message = format!("`{}`: {problem}", path.name());
        return ValidationFailure::new(problem.code(), message.clone()).at(field, message);
    };
    // The lines come from the file: they belong to the untrusted part, not to the message.
    let full = problem.to_string();
    let message = full
        .strip_suffix(&nearest.text)
        .unwrap_or(&full)
        .trim_end_matches([':', '\n']);
    let message = format!("`{}`: {message}", path.name());
    ValidationFailure::new(problem.code(), message.clone())
        .at(field, message)
        .with_body(Body::text(
            format!("nearest place in {}", path.name()),
            nearest.text.clone(),
        ))
}
