//! `grep`: lines by content.

use std::sync::Arc;

use agent_protocol::ActionHappened;
use agent_protocol::payload::permission::ActionClass;
use agent_protocol::payload::tool::ToolData;
use agent_tool_runtime::{
    Body, ExecutionContext, ExecutionFailure, NormalizeContext, Normalized, Prepared, RawResult,
    Reveals, RuntimeContext, Tool, ToolDefinition, ToolInvocation, ValidationFailure,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::find::{Finding, MAX_LIMIT, Search, Show};
use super::pattern::{Case, compile};
use super::scope::Scope;
use super::walk::skipped_sentence;
use crate::LocalTool;
use crate::path::{Found, Roots, open_file};
use crate::support::{lost_file, parse, prepared, reading_definition};
use agent_text::counted;

const DEFAULT_LIMIT: usize = 250;

/// What `grep` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GrepInput {
    /// A regular expression (Rust syntax, no look-around). Escape `(`, `{`, `.` and the like to search for
    /// them literally.
    #[schemars(length(min = 1, max = 65536))]
    pattern: String,
    /// The directory or file to search; the project root when not given.
    #[serde(default)]
    path: Option<String>,
    /// Only files like this, as in .gitignore: `*.ts`, `src/**/*.rs`, `!*.min.js`.
    #[serde(default)]
    #[schemars(length(min = 1, max = 4096))]
    glob: Option<String>,
    /// Only files of this type, as ripgrep names them: rust, py, js, ts, go, java, …
    #[serde(default, rename = "type")]
    file_type: Option<String>,
    /// How letter case counts: `smart` (the default) ignores it unless the pattern has a capital letter.
    #[serde(default)]
    case: Option<Case>,
    /// Lines to show before and after each match.
    #[serde(default)]
    #[schemars(range(max = 20))]
    context: Option<usize>,
    /// What to list: matching `lines` (the default), `files` with a match, or the `count` of matching lines
    /// per file.
    #[serde(default)]
    mode: Option<Mode>,
    /// How many lines or files to list; 250 when not given.
    #[serde(default)]
    #[schemars(range(min = 1, max = 5000))]
    limit: Option<usize>,
    /// Let the pattern match across lines.
    #[serde(default)]
    multiline: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Lines,
    Files,
    Count,
}

struct PreparedGrep {
    scope: Scope,
    search: Search,
    wants_lines: bool,
    /// As it was given.
    input: Value,
}

/// The tool.
pub(crate) struct GrepTool {
    roots: Arc<Roots>,
    definition: ToolDefinition,
}

impl GrepTool {
    /// Searches beneath `roots`.
    pub(crate) fn new(roots: Arc<Roots>) -> Self {
        Self {
            roots,
            definition: definition(),
        }
    }
}

/// The line of the table of tools.
pub(crate) const GREP: LocalTool = LocalTool {
    definition,
    make: |parts| Arc::new(GrepTool::new(Arc::clone(&parts.roots))),
};

fn definition() -> ToolDefinition {
    ToolDefinition {
        reveals: Reveals::Matches,
        action_class: ActionClass::Search,
        title_field: Some("pattern".to_owned()),
        ..reading_definition::<GrepInput>(
            "grep",
            "Searches file contents with a regular expression, as ripgrep does, sorted by path. Files that .gitignore \
             or .ignore names and binary files are left out and counted. Use mode `files` to find where to look, \
             then lines with a narrow path or glob. Prefer this over grep or rg with bash.",
            "In mode lines: each path, then `number:line` for matches and `number-line` for context. How many \
             matched, and what was skipped and why.",
        )
    }
    .with_path("path", Some("."))
}

impl Tool for GrepTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn validate(
        &self,
        input: &Value,
        context: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        let given_input = input;
        let input: GrepInput = parse(input)?;
        let multiline = input.multiline.unwrap_or(false);
        let pattern = compile(&input.pattern, input.case.unwrap_or_default(), multiline)?;
        let glob = input.glob.as_deref().map(|glob| ("/glob", glob));
        let scope = Scope::new(
            &self.roots,
            context.reads_outside,
            input.path.as_deref(),
            glob,
            input.file_type.as_deref(),
        )?;
        let path = scope.path.clone();
        let wanted = PreparedGrep {
            scope,
            search: Search {
                matcher: pattern.matcher,
                show: match input.mode.unwrap_or_default() {
                    Mode::Lines => Show::Lines {
                        context: input.context.unwrap_or(0),
                    },
                    Mode::Files => Show::Files,
                    Mode::Count => Show::Counts,
                },
                limit: input.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT),
                multiline,
                journal: None,
            },
            wants_lines: pattern.wants_lines,
            input: given_input.clone(),
        };
        let given = input.path.as_deref();
        Ok(Scope::prepared(&path, given, &self.definition, wanted))
    }

    fn execute(
        &self,
        invocation: ToolInvocation,
        context: &ExecutionContext,
    ) -> Result<RawResult, ExecutionFailure> {
        let confinement = invocation.confinement().clone();
        let mut wanted = prepared::<PreparedGrep>(invocation)?;
        wanted.search.journal = Some(context.journal());
        let scope = &wanted.scope;
        let finding = if scope.path.found() == Found::File {
            let file =
                open_file(&self.roots, &scope.path).map_err(|problem| lost_file(&problem))?;
            wanted.search.one_file(&file)
        } else {
            scope.search(&self.roots, &confinement, context, |walk| {
                wanted.search.run(walk, scope)
            })?
        };
        result(&finding, &wanted, context)
    }

    fn normalize(&self, raw: &RawResult, _: &NormalizeContext<'_>) -> Normalized {
        let data = &raw.data;
        let (matches, files) = (data.matches, data.files.unwrap_or(0));
        let returned = data.returned.unwrap_or(0);
        let mut summary = match matches {
            Some(matches) => format!(
                "{} in {}",
                counted(matches, "matching line"),
                counted(files, "file")
            ),
            None => format!("{} with a match", counted(files, "file")),
        };
        let total = data.lines.or(matches).unwrap_or(files);
        if returned < total {
            summary.push_str(&format!("; the first {returned} by path are listed"));
        }
        let mut detail = skipped_sentence(&data.skipped);
        if let Some(note) = &data.note {
            detail.push(' ');
            detail.push_str(note);
        }
        Normalized {
            title: format!("grep in {}", data.path.as_deref().unwrap_or(".")),
            summary: format!("{summary}."),
            detail,
            user_text: None,
        }
    }
}

fn result(
    finding: &Finding,
    wanted: &PreparedGrep,
    context: &ExecutionContext,
) -> Result<RawResult, ExecutionFailure> {
    let total = match wanted.search.show {
        Show::Lines { .. } => finding.matches,
        Show::Files | Show::Counts => finding.files,
    };
    let listing = finding.render(&wanted.scope, wanted.search.show, wanted.search.limit);
    let shown = listing.shown((total, finding.bytes), "grep", &wanted.input, context)?;
    let mut result = RawResult {
        data: ToolData {
            path: Some(wanted.scope.path.name()),
            // Only counted where files are searched to their end.
            matches: (wanted.search.show != Show::Files).then_some(finding.matches),
            files: Some(finding.files),
            lines: Some(total),
            returned: Some(shown.returned),
            limit: Some(wanted.search.limit as u64),
            skipped: finding.skipped.facts(),
            note: (finding.files == 0 && wanted.wants_lines).then(|| {
                "The pattern could match across lines, but `multiline` is off: each line was searched by itself."
                    .to_owned()
            }),
            ..ToolData::default()
        },
        omission: shown.omission,
        artifacts: shown.artifact.into_iter().collect(),
        ..RawResult::ok(ActionHappened::No)
    };
    if !shown.text.is_empty() {
        result.bodies.push(Body::text("search results", shown.text));
    }
    Ok(result)
}
