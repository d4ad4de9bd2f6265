//! `read`: one page of a text file.

use std::sync::Arc;

use agent_protocol::payload::permission::Access as PermissionAccess;
use agent_protocol::payload::tool::{Baseline, ReadMore, ToolData};
use agent_protocol::{ActionHappened, Code};
use agent_tool_runtime::{
    Body, ExecutionContext, ExecutionFailure, NormalizeContext, Normalized, Omission,
    PermissionSemantics, Plan, Prepared, RawResult, RuntimeContext, Tool, ToolDefinition,
    ToolInvocation, ValidationFailure,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::LocalTool;
use crate::file;
use crate::manifest;
use crate::page::{Page, Window, read_page};
use crate::path::{Access, ProjectPath, Roots, open_file};
use crate::support::{
    bad_file, bad_path, flags, lost_file, parse, prepared, reading_definition, resource,
};
use agent_text::counted;

const DEFAULT_LINES: u64 = 2_000;
/// Leaves room for the summary within what one result may hold.
const PAGE_CHARACTERS: usize = 28_500;

/// What `read` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadInput {
    /// The file: relative to the project root, or absolute.
    path: String,
    /// The number of the first line to show; 1 is the start of the file.
    #[serde(default)]
    offset: Option<u64>,
    /// Bytes to skip of the first line shown, to read on in a line that was clipped.
    #[serde(default)]
    column: Option<u64>,
    /// Lines to show; 2000 when not given.
    #[serde(default)]
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

struct PreparedRead {
    path: ProjectPath,
    /// Lines to skip.
    offset: u64,
    column: u64,
    limit: u64,
}

/// The tool.
pub(crate) struct ReadTool {
    roots: Arc<Roots>,
    definition: ToolDefinition,
}

impl ReadTool {
    /// Reads beneath `roots`.
    pub(crate) fn new(roots: Arc<Roots>) -> Self {
        Self {
            roots,
            definition: definition(),
        }
    }
}

/// The line of the table of tools.
pub(crate) const TOOL: LocalTool = LocalTool {
    definition,
    make: |parts| Arc::new(ReadTool::new(Arc::clone(&parts.roots))),
};

/// The call that shows a file, or the lines of it from the first to the last, counted from 1.
#[must_use]
pub fn showing(path: &str, lines: Option<(u64, u64)>) -> (String, Value) {
    let mut input = json!({"path": path});
    if let Some((first, last)) = lines {
        input["offset"] = first.into();
        input["limit"] = (last.saturating_sub(first) + 1).into();
    }
    (definition().name, input)
}

fn definition() -> ToolDefinition {
    ToolDefinition {
        aliases: vec!["read_file".to_owned()],
        ..reading_definition::<ReadInput>(
            "read",
            "Shows a text file with line numbers, 2000 lines by default. Use offset and limit to read one part of a \
             long file; find the part with grep first. A file has to be read before it can be edited. The line number \
             and the tab in front of each line are not part of the file.",
            "Lines as `number<tab>text`. Lines over 2000 characters are clipped; the mark says with which offset and \
             column to read on. Unchanged content that was shown before is not repeated.",
        )
    }
    .with_path("path", None)
}

impl Tool for ReadTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn validate(
        &self,
        input: &Value,
        context: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        let input: ReadInput = parse(input)?;
        let path = self
            .roots
            .resolve_also(&input.path, Access::Read, context.reads_outside)
            .map_err(|problem| bad_path(&problem, "/path"))?;
        let opened =
            open_file(&self.roots, &path).map_err(|problem| bad_file(&problem, "/path"))?;
        refuse_huge(&path, &opened)?;
        refuse_binary(&path, &opened)?;
        Ok(Prepared {
            normalised_paths: vec![path.name()],
            semantics: PermissionSemantics {
                action_class: self.definition.action_class,
                resources: vec![resource(PermissionAccess::Read, &input.path, &path)],
                ..PermissionSemantics::default()
            },
            plan: Plan::default(),
            flags: flags(&self.definition),
            baselines: Vec::new(),
            preview: None,
            input: Box::new(PreparedRead {
                path,
                // 0 is what some models say for the start.
                offset: input.offset.unwrap_or(1).saturating_sub(1),
                column: input.column.unwrap_or(0),
                limit: input.limit.unwrap_or(DEFAULT_LINES),
            }),
        })
    }

    fn execute(
        &self,
        invocation: ToolInvocation,
        context: &ExecutionContext,
    ) -> Result<RawResult, ExecutionFailure> {
        let wanted = prepared::<PreparedRead>(invocation)?;
        let name = wanted.path.name();
        let opened = open_file(&self.roots, &wanted.path).map_err(|problem| lost_file(&problem))?;
        let window = Window {
            offset: wanted.offset,
            column: wanted.column,
            limit: wanted.limit,
            characters: PAGE_CHARACTERS,
        };
        let journal = context.journal();
        let secrets = |bytes: &[u8]| journal.secrets(bytes);
        let page = read_page(&opened, window, &secrets).map_err(|error| {
            ExecutionFailure::new(Code::IoError, format!("cannot read `{name}`: {error}"))
                .having(ActionHappened::No)
        })?;
        if page.shown == 0 && page.total.is_none() {
            return Err(ExecutionFailure::new(
                Code::TooLarge,
                format!(
                    "`{name}` has {} bytes; lines past the first {} bytes cannot be reached by number",
                    page.bytes,
                    file::MAX_WHOLE_FILE
                ),
            )
            .having(ActionHappened::No));
        }
        let column = match wanted.column {
            0 => String::new(),
            column => format!("@{column}"),
        };
        let last = wanted.offset + page.shown;
        let range = format!("{}{column}-{last}", wanted.offset + 1);
        let said = manifest::fact(&name, &opened, &|text| journal.mask(text));
        let data = ToolData {
            path: Some(name.clone()),
            encoding: Some(page.encoding.name().to_owned()),
            line_ending: Some(page.line_ending.to_owned()),
            offset: Some(wanted.offset),
            limit: Some(wanted.limit),
            lines: Some(page.shown),
            total_lines: page.total,
            note: note(&page, wanted.offset, wanted.column, said),
            baseline: page.sha256.clone().map(|sha256| Baseline {
                path: name.clone(),
                size: page.bytes,
                mtime_ms: Some(page.stamp.modified_ms()),
                sha256,
                range: (page.shown > 0).then(|| range.clone()),
            }),
            ..ToolData::default()
        };
        let known = page
            .sha256
            .as_deref()
            .is_some_and(|hash| context.baselines().was_shown(&name, hash, &range));
        let mut result = RawResult {
            data,
            ..RawResult::ok(ActionHappened::No)
        };
        if known {
            result.code = Code::FileUnchanged;
            return Ok(result);
        }
        if page.omitted > 0 {
            let next = wanted.offset + page.shown;
            let behind = page.total.is_none_or(|total| next < total);
            // Whoever reads one line wants its end; else the lines behind come first, because each
            // clipped line says itself how to read on in it.
            let in_line = page.goes_on.filter(|_| !behind || wanted.column > 0);
            let input_hint = match in_line {
                Some((line, column)) => {
                    Some(json!({"path": name, "offset": line + 1, "column": column}))
                }
                None => {
                    behind.then(|| json!({"path": name, "offset": next + 1, "limit": wanted.limit}))
                }
            };
            result.omission = Some(Omission {
                bytes: page.omitted,
                read_more: input_hint.map(|input_hint| ReadMore {
                    tool: "read".to_owned(),
                    input_hint,
                }),
            });
        }
        if page.shown > 0 {
            result
                .bodies
                .push(Body::text(format!("file {name}"), page.text));
        }
        Ok(result)
    }

    fn normalize(&self, raw: &RawResult, _: &NormalizeContext<'_>) -> Normalized {
        let data = &raw.data;
        let name = data.path.as_deref().unwrap_or_default();
        let shown = data.lines.unwrap_or(0);
        let offset = data.offset.unwrap_or(0);
        let total = data.total_lines.map_or_else(
            || "an unknown number of".to_owned(),
            |total| total.to_string(),
        );
        let summary = if raw.code == Code::FileUnchanged {
            format!(
                "`{name}` is unchanged since lines {}-{} were shown.",
                offset + 1,
                offset + shown
            )
        } else if shown == 0 && data.total_lines == Some(0) {
            format!("`{name}` is empty.")
        } else if shown == 0 {
            format!(
                "`{name}` has {total} lines; there is no line {}.",
                offset + 1
            )
        } else {
            format!(
                "`{name}`, lines {}-{} of {total}.",
                offset + 1,
                offset + shown
            )
        };
        let mut detail = Vec::new();
        if data.encoding.as_deref().is_some_and(|name| name != "utf-8") {
            detail.push(format!(
                "encoding {}",
                data.encoding.as_deref().unwrap_or_default()
            ));
        }
        if matches!(data.line_ending.as_deref(), Some("crlf" | "mixed")) {
            detail.push(format!(
                "line endings {}",
                data.line_ending.as_deref().unwrap_or_default()
            ));
        }
        detail.extend(data.note.clone());
        Normalized {
            title: format!("read {name}"),
            user_text: Some(format!("{summary} ({})", counted(shown, "line"))),
            summary,
            detail: detail.join(", "),
        }
    }
}

/// Note about facts that the text alone does not show.
fn note(page: &Page, offset: u64, column: u64, said: Option<String>) -> Option<String> {
    let mut notes = Vec::new();
    if column > 0 {
        notes.push(format!("line {} from column {column}", offset + 1));
    }
    if page.clipped > 0 {
        notes.push(format!("{} clipped", counted(page.clipped, "line")));
    }
    if !page.ends_with_break && page.shown > 0 && page.total == Some(offset + page.shown) {
        notes.push("no line break at the end of the file".to_owned());
    }
    notes.extend(said);
    (!notes.is_empty()).then(|| notes.join(", "))
}

/// A file nobody reads in pages. Its size is known before its content, so it is said first.
fn refuse_huge(path: &ProjectPath, opened: &std::fs::File) -> Result<(), ValidationFailure> {
    let name = path.name();
    let size = opened.metadata().map_err(|error| {
        ValidationFailure::new(Code::IoError, format!("cannot read `{name}`: {error}"))
    })?;
    let size = size.len();
    if size <= file::MAX_PAGED_FILE {
        return Ok(());
    }
    let limit = file::MAX_PAGED_FILE;
    let message = format!("`{name}` has {size} bytes; files over {limit} bytes are not read");
    Err(ValidationFailure::new(Code::TooLarge, message.clone()).at("/path", message))
}

/// Binary content has a code of its own, found without reading more than its beginning.
pub(crate) fn refuse_binary(
    path: &ProjectPath,
    opened: &std::fs::File,
) -> Result<(), ValidationFailure> {
    let failed = |error: std::io::Error| {
        ValidationFailure::new(
            Code::IoError,
            format!("cannot read `{}`: {error}", path.name()),
        )
    };
    let head = file::head(opened).map_err(failed)?;
    let Some(kind) = file::binary_kind(&head) else {
        return Ok(());
    };
    let bytes = opened.metadata().map_err(failed)?.len();
    let message = format!("`{}` is not text: {kind}, {bytes} bytes", path.name());
    Err(ValidationFailure::new(Code::UnsupportedContent, message.clone()).at("/path", message))
}
