//! `glob`: files by name.

use std::collections::BinaryHeap;
use std::sync::Arc;

use agent_protocol::payload::permission::ActionClass;
use agent_protocol::payload::tool::ToolData;
use agent_protocol::{ActionHappened, Code};
use agent_tool_runtime::{
    Body, ExecutionContext, ExecutionFailure, NormalizeContext, Normalized, Prepared, RawResult,
    Reveals, RuntimeContext, Tool, ToolDefinition, ToolInvocation, ValidationFailure,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::find::{Listing, MAX_LIMIT};
use super::scope::Scope;
use super::walk::{Entry, Skipped, Visitor, Walk, as_path, skipped_sentence};
use crate::LocalTool;
use crate::path::{Found, Roots};
use crate::support::{parse, reading_definition};
use agent_text::counted;

const DEFAULT_LIMIT: usize = 500;

/// What `glob` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GlobInput {
    /// Which files, as in .gitignore: `*.rs` matches at any depth, `src/*.rs` and `src/**/*.rs` from
    /// the place that is searched.
    #[schemars(length(min = 1, max = 4096))]
    pattern: String,
    /// The directory to search; the project root when not given.
    #[serde(default)]
    path: Option<String>,
    /// How many names to list; 500 when not given.
    #[serde(default)]
    #[schemars(range(min = 1, max = 5000))]
    limit: Option<usize>,
}

struct PreparedGlob {
    scope: Scope,
    limit: usize,
    /// As it was given.
    input: Value,
}

/// The tool.
pub(crate) struct GlobTool {
    roots: Arc<Roots>,
    definition: ToolDefinition,
}

impl GlobTool {
    /// Searches beneath `roots`.
    pub(crate) fn new(roots: Arc<Roots>) -> Self {
        Self {
            roots,
            definition: definition(),
        }
    }
}

/// The line of the table of tools.
pub(crate) const GLOB: LocalTool = LocalTool {
    definition,
    make: |parts| Arc::new(GlobTool::new(Arc::clone(&parts.roots))),
};

/// The call that lists the files in a directory.
#[must_use]
pub fn listing(path: &str) -> (String, Value) {
    (definition().name, json!({"pattern": "*", "path": path}))
}

fn definition() -> ToolDefinition {
    ToolDefinition {
        reveals: Reveals::Names,
        action_class: ActionClass::Search,
        title_field: Some("pattern".to_owned()),
        ..reading_definition::<GlobInput>(
            "glob",
            "Lists files whose path matches a pattern, sorted by path. Files and directories that .gitignore or \
             .ignore names are left out and counted. Prefer this over find or ls with bash.",
            "Paths, one per line, with how many matched and what was skipped and why.",
        )
    }
    .with_path("path", Some("."))
}

impl Tool for GlobTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn validate(
        &self,
        input: &Value,
        context: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        let given_input = input;
        let input: GlobInput = parse(input)?;
        let scope = Scope::new(
            &self.roots,
            context.reads_outside,
            input.path.as_deref(),
            Some(("/pattern", &input.pattern)),
            None,
        )?;
        if scope.path.found() == Found::File {
            let message = format!("`{}` is a file, not a directory", scope.path.name());
            return Err(
                ValidationFailure::new(Code::RuntimePreconditionFailed, message.clone())
                    .at("/path", message),
            );
        }
        let path = scope.path.clone();
        let wanted = PreparedGlob {
            scope,
            limit: input.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT),
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
        let wanted = crate::support::prepared::<PreparedGlob>(invocation)?;
        let listed = wanted
            .scope
            .search(&self.roots, &confinement, context, |walk| {
                list(walk, &wanted.scope, wanted.limit)
            })?;
        let mut listing = Listing::default();
        for name in &listed.names {
            let row = wanted.scope.name_of(name) + "\n";
            listing.push(&row, 1, name.len() as u64 + 1);
        }
        let all = (listed.matched, listed.bytes);
        let shown = listing.shown(all, "glob", &wanted.input, context)?;
        let mut result = RawResult {
            data: ToolData {
                path: Some(wanted.scope.path.name()),
                files: Some(listed.matched),
                returned: Some(shown.returned),
                limit: Some(wanted.limit as u64),
                skipped: listed.skipped.facts(),
                ..ToolData::default()
            },
            omission: shown.omission,
            artifacts: shown.artifact.into_iter().collect(),
            ..RawResult::ok(ActionHappened::No)
        };
        if !shown.text.is_empty() {
            result.bodies.push(Body::text("file names", shown.text));
        }
        Ok(result)
    }

    fn normalize(&self, raw: &RawResult, _: &NormalizeContext<'_>) -> Normalized {
        let data = &raw.data;
        let (matched, returned) = (data.files.unwrap_or(0), data.returned.unwrap_or(0));
        let mut summary = format!("{} matched", counted(matched, "file"));
        if returned < matched {
            summary.push_str(&format!("; the first {returned} by path are listed"));
        }
        Normalized {
            title: format!("glob in {}", data.path.as_deref().unwrap_or(".")),
            summary: format!("{summary}."),
            detail: skipped_sentence(&data.skipped),
            user_text: None,
        }
    }
}

/// Files that match a glob.
pub(crate) struct Listed {
    pub(crate) matched: u64,
    /// Of all their names.
    bytes: u64,
    /// The first by path.
    names: Vec<Vec<u8>>,
    skipped: Skipped,
}

/// Count of the files that match, the first of them by path, and what was left out.
pub(crate) fn list(walk: Walk<'_>, scope: &Scope, limit: usize) -> Listed {
    let (visitors, skipped) = walk.run(|| Lister {
        scope,
        limit,
        matched: 0,
        bytes: 0,
        first: BinaryHeap::new(),
    });
    let mut listed = Listed {
        matched: 0,
        bytes: 0,
        names: Vec::new(),
        skipped,
    };
    for lister in visitors {
        listed.matched += lister.matched;
        listed.bytes += lister.bytes;
        listed.names.extend(lister.first);
    }
    listed.names.sort_unstable();
    listed.names.truncate(limit);
    listed
}

/// Keeps the first names by path, however many there are.
struct Lister<'a> {
    scope: &'a Scope,
    limit: usize,
    matched: u64,
    bytes: u64,
    first: BinaryHeap<Vec<u8>>,
}

impl Visitor for Lister<'_> {
    fn file(&mut self, file: &Entry<'_>, _: &mut Skipped) {
        if !self.scope.wants(as_path(file.path)) {
            return;
        }
        self.matched += 1;
        self.bytes += file.path.len() as u64 + 1;
        if self.first.len() < self.limit {
            self.first.push(file.path.to_vec());
        } else if let Some(mut last) = self.first.peek_mut()
            && last.as_slice() > file.path
        {
            *last = file.path.to_vec();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_million_names_are_counted_and_only_the_first_are_held() {
        const NAMES: u64 = 1_000_000;
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::open(folder.path(), None).unwrap();
        let scope = Scope::new(&roots, &|_| false, None, Some(("/pattern", "*.rs")), None).unwrap();
        let directory = std::fs::File::open(folder.path()).unwrap();
        let mut lister = Lister {
            scope: &scope,
            limit: 500,
            matched: 0,
            bytes: 0,
            first: BinaryHeap::new(),
        };
        // Backwards, so that each name is nearer to the front than all before it.
        for number in (0..NAMES).rev() {
            let path = format!("deep/{number:07}.rs");
            let entry = Entry {
                directory: directory.as_fd(),
                name: c"name",
                path: path.as_bytes(),
            };
            lister.file(&entry, &mut Skipped::default());
            assert!(lister.first.len() <= 500);
        }
        assert_eq!(lister.matched, NAMES);
        let first = lister.first.into_sorted_vec();
        assert_eq!((first.len(), &*first[0]), (500, &b"deep/0000000.rs"[..]));
    }
}
