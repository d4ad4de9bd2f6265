//! `read_artifact`: the parts of an output that were left out.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use agent_protocol::id::ArtifactId;
use agent_protocol::payload::tool::{Capability, ReadMore, ToolData};
use agent_protocol::{ActionHappened, Code};
use agent_tool_runtime::policy::piece::{hidden_in, masked_piece, read_range};
use agent_tool_runtime::{
    Body, ExecutionContext, ExecutionFailure, NormalizeContext, Normalized, Omission,
    PermissionSemantics, Plan, Prepared, RawResult, RuntimeContext, Subject, Tool, ToolDefinition,
    ToolInvocation, ValidationFailure,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::LocalTool;
use crate::support::{flags, parse, prepared, reading_definition};
use agent_text::counted;

const DEFAULT_BYTES: usize = 16_000;
const MAX_BYTES: usize = 27_000;
const CHUNK: usize = 1 << 20;

/// What `read_artifact` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ArtifactInput {
    /// The id from an earlier result: `sha256:` and 64 digits.
    artifact_id: String,
    /// The first byte to show, or with `around` the byte to search from; 0 when not given.
    #[serde(default)]
    offset: Option<u64>,
    /// Bytes to show; 16000 when not given.
    #[serde(default)]
    #[schemars(range(min = 1, max = 27000))]
    limit: Option<usize>,
    /// Show the part around the first place where this text occurs.
    #[serde(default)]
    #[schemars(length(min = 1, max = 1000))]
    around: Option<String>,
}

struct Wanted {
    artifact_id: ArtifactId,
    offset: u64,
    limit: usize,
    around: Option<String>,
    file: File,
    size: u64,
}

/// The tool.
pub(crate) struct ReadArtifactTool {
    definition: ToolDefinition,
}

impl Default for ReadArtifactTool {
    fn default() -> Self {
        Self {
            definition: definition(),
        }
    }
}

/// The line of the table of tools.
pub(crate) const TOOL: LocalTool = LocalTool {
    definition,
    make: |_| Arc::new(ReadArtifactTool::default()),
};

fn definition() -> ToolDefinition {
    ToolDefinition {
        subject: Subject::Session,
        title_field: Some("artifact_id".to_owned()),
        capabilities: vec![Capability::Read, Capability::Artifact],
        ..reading_definition::<ArtifactInput>(
            "read_artifact",
            "Shows a part of the full output behind a truncated result, by byte offset or around a text.",
            "The bytes as text, with the offsets they have in the artifact.",
        )
    }
}

impl Tool for ReadArtifactTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn validate(
        &self,
        input: &Value,
        context: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        let input: ArtifactInput = parse(input)?;
        let missing = |message: String| {
            ValidationFailure::new(Code::FileNotFound, message.clone()).at("/artifact_id", message)
        };
        let artifact_id: ArtifactId = input.artifact_id.parse().map_err(|_| {
            let message = format!(
                "`{}` is not an artifact id",
                input.artifact_id.escape_debug()
            );
            ValidationFailure::new(Code::SchemaInvalid, message.clone()).at("/artifact_id", message)
        })?;
        let file = context
            .journal
            .open_artifact(&artifact_id)
            .map_err(|_| missing(format!("this session has no artifact {artifact_id}")))?;
        let shown = context.journal.may_be_shown(&artifact_id);
        if !shown.map_err(|error| missing(format!("{error}: {}", error.source)))? {
            let message = format!(
                "artifact {artifact_id} is an exact image of a file, kept for undo; it is not shown"
            );
            return Err(
                ValidationFailure::new(Code::UnsupportedContent, message.clone())
                    .at("/artifact_id", message),
            );
        }
        let size = file
            .metadata()
            .map_err(|error| missing(format!("cannot open artifact {artifact_id}: {error}")))?
            .len();
        Ok(Prepared {
            normalised_paths: Vec::new(),
            semantics: PermissionSemantics {
                action_class: self.definition.action_class,
                ..PermissionSemantics::default()
            },
            plan: Plan::default(),
            flags: flags(&self.definition),
            baselines: Vec::new(),
            preview: None,
            input: Box::new(Wanted {
                artifact_id,
                offset: input.offset.unwrap_or(0),
                limit: input.limit.unwrap_or(DEFAULT_BYTES).min(MAX_BYTES),
                around: input.around,
                file,
                size,
            }),
        })
    }

    fn execute(
        &self,
        invocation: ToolInvocation,
        context: &ExecutionContext,
    ) -> Result<RawResult, ExecutionFailure> {
        let wanted = prepared::<Wanted>(invocation)?;
        let failed = |error: std::io::Error| {
            ExecutionFailure::new(
                Code::IoError,
                format!("cannot read artifact {}: {error}", wanted.artifact_id),
            )
            .having(ActionHappened::No)
        };
        let mut start = wanted.offset;
        let mut note = None;
        if let Some(text) = &wanted.around {
            let revealed = context.reveal(text);
            let text = revealed.as_deref().unwrap_or(text);
            match find(&wanted.file, wanted.offset, text.as_bytes()).map_err(failed)? {
                Some(at) => {
                    start = at.saturating_sub(wanted.limit as u64 / 2);
                    note = Some(format!("The text occurs at byte {at}."));
                }
                None => {
                    return Err(ExecutionFailure::new(
                        Code::TargetNotFound,
                        format!(
                            "the text does not occur in artifact {} from byte {}",
                            wanted.artifact_id, wanted.offset
                        ),
                    )
                    .having(ActionHappened::No));
                }
            }
        }
        let length = usize::try_from(wanted.size.saturating_sub(start))
            .unwrap_or(usize::MAX)
            .min(wanted.limit);
        let mut bytes = vec![0; length];
        wanted
            .file
            .read_exact_at(&mut bytes, start)
            .map_err(failed)?;
        let end = start + bytes.len() as u64;
        let journal = context.journal();
        let secrets = |bytes: &[u8]| journal.secrets(bytes);
        let hidden = hidden_in(start..end, secrets, |range| read_range(&wanted.file, range));
        let mut result = RawResult {
            data: ToolData {
                path: Some(wanted.artifact_id.to_string()),
                offset: Some(start),
                limit: Some(wanted.limit as u64),
                returned: Some(bytes.len() as u64),
                note,
                ..ToolData::default()
            },
            ..RawResult::ok(ActionHappened::No)
        };
        if end < wanted.size {
            result.omission = Some(Omission {
                bytes: wanted.size - end,
                read_more: Some(ReadMore {
                    tool: "read_artifact".to_owned(),
                    input_hint: json!({"artifact_id": wanted.artifact_id.as_str(), "offset": end}),
                }),
            });
        }
        if !bytes.is_empty() {
            result.bodies.push(Body::text(
                format!("artifact {}", wanted.artifact_id),
                masked_piece(&bytes, start, &hidden),
            ));
        }
        Ok(result)
    }

    fn normalize(&self, raw: &RawResult, _: &NormalizeContext<'_>) -> Normalized {
        let data = &raw.data;
        let (from, shown) = (data.offset.unwrap_or(0), data.returned.unwrap_or(0));
        let left = raw.omission.as_ref().map_or(0, |omission| omission.bytes);
        let summary = if shown == 0 {
            format!("The artifact ends before byte {from}.")
        } else {
            format!(
                "Bytes {from}-{} of the artifact; {} follow.",
                from + shown - 1,
                counted(left, "byte")
            )
        };
        Normalized {
            title: "read_artifact".to_owned(),
            summary,
            detail: data.note.clone().unwrap_or_default(),
            user_text: None,
        }
    }
}

/// First occurrence of `text` at or after `from`, with two chunks in memory at most.
fn find(file: &File, from: u64, text: &[u8]) -> std::io::Result<Option<u64>> {
    let finder = memchr::memmem::Finder::new(text);
    let mut window: Vec<u8> = Vec::new();
    let mut base = from;
    loop {
        let mut chunk = Vec::new();
        let at = base + window.len() as u64;
        Part { file, at }
            .take(CHUNK as u64)
            .read_to_end(&mut chunk)?;
        let last = chunk.is_empty();
        window.extend(chunk);
        if let Some(found) = finder.find(&window) {
            return Ok(Some(base + found as u64));
        }
        if last {
            return Ok(None);
        }
        // A match may begin in this chunk and end in the next.
        let keep = window.len().min(text.len().saturating_sub(1));
        let gone = window.len() - keep;
        window.drain(..gone);
        base += gone as u64;
    }
}

/// Reads from a place without moving the file's own.
struct Part<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_across_chunks() {
        let file = tempfile::tempfile().unwrap();
        let at = CHUNK as u64 - 3;
        file.set_len(3 * CHUNK as u64).unwrap();
        file.write_all_at(b"needle", at).unwrap();
        assert_eq!(find(&file, 0, b"needle").unwrap(), Some(at));
        assert_eq!(find(&file, at + 1, b"needle").unwrap(), None);
        assert_eq!(find(&file, 10 * CHUNK as u64, b"needle").unwrap(), None);
    }
}
