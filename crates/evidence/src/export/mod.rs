//! Export: the log as it is, or as events any reader of the published Agent Runtime schema knows.
//!
//! The portable form has camelCase keys and the published classes only. `tool.intent`,
//! `tool.validation` and `tool.observation` are our own and are left out, as are classes a newer
//! version wrote; what they led to (`tool.started`, `tool.result`, `tool.failed`) is there. No
//! artifact is exported: before-images and full outputs stay where they are.

mod archive;
mod evidence;

use std::io::{self, Read, Write};

use agent_log::{LogReader, PlaceError, ReadError, SessionDirectory};
use agent_protocol::{Event, EventType, Payload};
use serde::Serialize;
use serde_json::{Map, Value, json};

pub use evidence::{Contents, PackError, Packed, export_evidence};
pub(crate) use evidence::{LEFT_OUT, MASKED};

/// Why an export failed. What was written so far is not a whole export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("cannot write the export")]
    Write(#[source] io::Error),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// What became of the events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exported {
    pub written: u64,
    /// Events of our own classes and of classes that are not known here.
    pub left_out: u64,
    /// Lines that are not events.
    pub unreadable: u64,
}

/// Copies the log byte by byte, up to the end of its last whole line.
///
/// # Errors
/// When the log cannot be read or the copy not be written.
pub fn export_jsonl(
    session: &SessionDirectory,
    out: &mut dyn Write,
) -> Result<Exported, ExportError> {
    let mut log = session.open_log()?;
    let mut exported = Exported::default();
    let mut buffer = vec![0; 256 * 1024];
    let mut unfinished = Vec::new();
    loop {
        let count = match log.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => {
                return Err(ReadError {
                    path: session.log_path(),
                    source,
                }
                .into());
            }
        };
        let piece = &buffer[..count];
        exported.written += memchr::memchr_iter(b'\n', piece).count() as u64;
        // The end of a line that is being written now is held back.
        let whole = memchr::memrchr(b'\n', piece).map_or(0, |last| last + 1);
        if whole > 0 {
            out.write_all(&unfinished).map_err(ExportError::Write)?;
            unfinished.clear();
            out.write_all(&piece[..whole]).map_err(ExportError::Write)?;
        }
        unfinished.extend_from_slice(&piece[whole..]);
    }
    out.flush().map_err(ExportError::Write)?;
    Ok(exported)
}

/// Writes the portable form, one event per line.
///
/// # Errors
/// When the log cannot be read or the export cannot be written.
pub fn export_portable(
    session: &SessionDirectory,
    out: &mut dyn Write,
) -> Result<Exported, ExportError> {
    portable_lines(session.reader()?, out)
}

fn portable_lines(
    reader: LogReader<impl Read>,
    out: &mut dyn Write,
) -> Result<Exported, ExportError> {
    let mut exported = Exported::default();
    for item in reader {
        let Some(event) = item?.event else {
            exported.unreadable += 1;
            continue;
        };
        match portable_event(&event) {
            None => exported.left_out += 1,
            Some(value) => {
                exported.written += 1;
                // The same escaping as in the log: the export may be printed too.
                let line = agent_protocol::to_terminal_safe_json(&value);
                out.write_all(line.as_bytes()).map_err(ExportError::Write)?;
                out.write_all(b"\n").map_err(ExportError::Write)?;
            }
        }
    }
    out.flush().map_err(ExportError::Write)?;
    Ok(exported)
}

/// An event in the portable form, unless its class has none.
#[must_use]
pub fn portable_event(event: &Event) -> Option<Value> {
    let class = event.payload.event_type()?;
    if is_own(class) {
        return None;
    }
    let scope = &event.scope;
    let mut fields = Map::new();
    let mut put = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value.into());
        }
    };
    put("type", Some(class.as_str()));
    put("nativeType", event.payload.native_name());
    put("eventId", Some(event.event_id.as_str()));
    put("timestamp", Some(&event.timestamp.to_string()));
    put("schemaVersion", Some(&event.schema_version));
    put("runtimeId", Some(event.runtime_id.as_str()));
    put("sessionId", Some(event.session_id.as_str()));
    put("threadId", scope.thread_id.as_ref().map(|id| id.as_str()));
    put("turnId", scope.turn_id.as_ref().map(|id| id.as_str()));
    put("taskId", scope.task_id.as_ref().map(|id| id.as_str()));
    put("runId", scope.run_id.as_ref().map(|id| id.as_str()));
    put("attemptId", scope.run_id.as_ref().map(|id| id.as_str()));
    put("stepId", scope.step_id.as_ref().map(|id| id.as_str()));
    put(
        "toolCallId",
        scope.tool_call_id.as_ref().map(|id| id.as_str()),
    );
    put("actionId", scope.action_id.as_ref().map(|id| id.as_str()));
    put(
        "subagentId",
        scope.subagent_id.as_ref().map(|id| id.as_str()),
    );
    put("processId", scope.process_id.as_ref().map(|id| id.as_str()));
    put(
        "causationId",
        scope.causation_id.as_ref().map(|id| id.as_str()),
    );
    put("traceId", scope.trace_id.as_deref());
    put("spanId", scope.span_id.as_deref());
    match &event.payload {
        Payload::ArtifactChanged(payload) => put("artifactId", Some(payload.artifact_id.as_str())),
        Payload::EvidenceChanged(payload) => put("evidenceId", Some(payload.evidence_id.as_str())),
        Payload::ModelRequested(payload) => {
            put("modelRequestId", Some(payload.model_request_id.as_str()));
        }
        Payload::ModelCompleted(payload) => {
            put("modelRequestId", Some(payload.model_request_id.as_str()));
        }
        Payload::ModelFailed(payload) => {
            put("modelRequestId", Some(payload.model_request_id.as_str()));
        }
        Payload::ThreadUpdated(payload) => put("status", Some(payload.status.as_str())),
        Payload::TurnSubmitted(payload) => put("status", Some(payload.status.as_str())),
        Payload::TurnFailed(payload) => put("status", Some(payload.status.as_str())),
        Payload::RunStatus(payload) => put("phase", Some(payload.phase.as_str())),
        Payload::ToolFailed(payload) => put("phase", Some(payload.phase.as_str())),
        _ => {}
    }
    fields.insert("sequence".into(), event.sequence.into());
    let payload = as_value(&event.payload)?;
    fields.insert("payload".into(), camel_keys(payload));
    let refs = as_value(&event.refs)?;
    fields.insert("refs".into(), camel_keys(refs));
    Some(Value::Object(fields))
}

/// By way of the text that the log has too: a second serialiser for every class of event would be
/// a good part of the program.
fn as_value(part: &impl Serialize) -> Option<Value> {
    serde_json::from_str(&serde_json::to_string(part).ok()?).ok()
}

const fn is_own(class: EventType) -> bool {
    matches!(
        class,
        EventType::ToolIntent | EventType::ToolValidation | EventType::ToolObservation
    )
}

/// Renames our keys. What a tool, a model or a user gave as JSON keeps its own.
fn camel_keys(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| {
                let value = if is_foreign(&name) {
                    value
                } else {
                    camel_keys(value)
                };
                (camel_case(&name), value)
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(entries) => entries
            .into_iter()
            .map(camel_keys)
            .collect::<Vec<_>>()
            .into(),
        other => other,
    }
}

fn is_foreign(name: &str) -> bool {
    matches!(
        name,
        "safe_args"
            | "raw_input"
            | "own_input"
            | "input_schema"
            | "schema"
            | "edited_input"
            | "answer"
            | "input_hint"
            | "result"
    )
}

fn camel_case(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut raise = false;
    for character in name.chars() {
        if character == '_' && !camel.is_empty() {
            raise = true;
        } else if std::mem::take(&mut raise) {
            camel.push(character.to_ascii_uppercase());
        } else {
            camel.push(character);
        }
    }
    camel
}

/// The schema of one line of a portable export, as `docs/schemas/portable-event.schema.json` has it.
#[must_use]
pub fn portable_schema() -> Value {
    let classes: Vec<&str> = EventType::ALL
        .iter()
        .filter(|class| !is_own(**class))
        .map(|class| class.as_str())
        .collect();
    let id = json!({ "type": "string", "minLength": 1 });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "agent portable event",
        "description": "One line of `agent export --format portable`.",
        "type": "object",
        "required": ["type", "eventId", "timestamp", "sequence", "schemaVersion", "runtimeId", "sessionId", "payload", "refs"],
        "additionalProperties": false,
        "properties": {
            "type": { "type": "string", "enum": classes },
            "nativeType": { "type": "string" },
            "eventId": id,
            "timestamp": { "type": "string", "format": "date-time", "pattern": "^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}\\.\\d{3}Z$" },
            "sequence": { "type": "integer", "minimum": 0 },
            "schemaVersion": { "type": "string" },
            "runtimeId": id,
            "sessionId": id,
            "threadId": id,
            "turnId": id,
            "taskId": id,
            "runId": id,
            "attemptId": id,
            "stepId": id,
            "toolCallId": id,
            "actionId": id,
            "subagentId": id,
            "processId": id,
            "causationId": id,
            "traceId": { "type": "string" },
            "spanId": { "type": "string" },
            "artifactId": id,
            "evidenceId": id,
            "modelRequestId": id,
            "status": { "type": "string" },
            "phase": { "type": "string" },
            "payload": { "type": "object" },
            "refs": { "type": "object" },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_renamed_and_foreign_ones_are_not() {
        let value =
            json!({ "tool_name": "x", "list": [{ "a_b": 1 }], "safe_args": { "old_string": 1 } });
        let expected =
            json!({ "toolName": "x", "list": [{ "aB": 1 }], "safeArgs": { "old_string": 1 } });
        assert_eq!(camel_keys(value), expected);
    }
}
