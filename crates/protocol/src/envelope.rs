//! The envelope: one event is one line of JSON, and the line is the event.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Timestamp;
use crate::escape::TerminalSafe;
use crate::id::{
    ActionId, ArtifactId, EventId, ProcessId, RunId, RuntimeId, SessionId, StepId, SubagentId,
    TaskId, ThreadId, ToolCallId, TurnId,
};
use crate::payload::Payload;

/// Version that is written into every line.
pub const SCHEMA_VERSION: &str = "1";

/// The most bytes a line may have, its newline not counted. What is larger goes into an artifact.
pub const MAX_LINE_BYTES: usize = 65_536;

/// One recorded fact.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub event_id: EventId,
    pub timestamp: Timestamp,
    /// Contiguous from 0 within a session.
    pub sequence: u64,
    pub schema_version: String,
    pub runtime_id: RuntimeId,
    pub session_id: SessionId,
    pub scope: Scope,
    pub payload: Payload,
    pub refs: Refs,
    /// `sha256:` and the hash of the line before, without its newline; on the first line, of the
    /// session id.
    pub prev: String,
}

/// Thread, turn, call and the like that an event belongs to, as far as it belongs to any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    pub thread_id: Option<ThreadId>,
    pub turn_id: Option<TurnId>,
    pub task_id: Option<TaskId>,
    /// Written as both `run_id` and `attempt_id`, which name the same thing.
    pub run_id: Option<RunId>,
    pub step_id: Option<StepId>,
    pub tool_call_id: Option<ToolCallId>,
    pub action_id: Option<ActionId>,
    pub subagent_id: Option<SubagentId>,
    pub process_id: Option<ProcessId>,
    /// The event that led to this one.
    pub causation_id: Option<EventId>,
    pub trace_id: Option<String>,
    pub span_id: Option<String>,
}

/// Large or foreign facts by role: `{"output": "sha256:…", "evidence": ["evd_…"]}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Refs(pub BTreeMap<String, RefTarget>);

/// An id, or several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum RefTarget {
    One(String),
    Many(Vec<String>),
}

impl Refs {
    /// Adds `id` under `role`, beside what is there already.
    pub fn add(&mut self, role: &str, id: impl ToString) {
        let id = id.to_string();
        match self.0.get_mut(role) {
            None => {
                self.0.insert(role.to_owned(), RefTarget::One(id));
            }
            Some(RefTarget::Many(ids)) => ids.push(id),
            Some(target @ RefTarget::One(_)) => {
                if let RefTarget::One(first) =
                    std::mem::replace(target, RefTarget::Many(Vec::new()))
                {
                    *target = RefTarget::Many(vec![first, id]);
                }
            }
        }
    }

    /// The same with `id` added, for building in one expression.
    #[must_use]
    pub fn with(mut self, role: &str, id: impl ToString) -> Self {
        self.add(role, id);
        self
    }

    /// Every id, whatever its role.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0
            .values()
            .flat_map(|target| match target {
                RefTarget::One(id) => std::slice::from_ref(id),
                RefTarget::Many(ids) => ids.as_slice(),
            })
            .map(String::as_str)
    }

    /// Every id that names an artifact.
    pub fn artifact_ids(&self) -> impl Iterator<Item = ArtifactId> + '_ {
        self.ids().filter_map(|id| id.parse().ok())
    }
}

/// The part of a line a reader needs to follow the chain, without looking at the payload.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct EventHead<'a> {
    #[serde(rename = "type", borrow)]
    pub type_name: Cow<'a, str>,
    pub sequence: u64,
    #[serde(borrow)]
    pub schema_version: Cow<'a, str>,
    #[serde(borrow)]
    pub session_id: Cow<'a, str>,
    #[serde(borrow)]
    pub prev: Cow<'a, str>,
}

/// Reason why a line is not an event.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("the line is not UTF-8 from byte {valid_up_to} on")]
    NotUtf8 { valid_up_to: usize },
    #[error("the line is not an event: {source}")]
    NotAnEvent {
        #[source]
        source: serde_json::Error,
    },
    #[error("the event cannot be written as JSON")]
    Unwritable { source: serde_json::Error },
}

#[derive(Deserialize)]
struct LineIn<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    event_id: EventId,
    timestamp: Timestamp,
    sequence: u64,
    schema_version: String,
    runtime_id: RuntimeId,
    session_id: SessionId,
    thread_id: Option<ThreadId>,
    turn_id: Option<TurnId>,
    task_id: Option<TaskId>,
    run_id: Option<RunId>,
    attempt_id: Option<RunId>,
    step_id: Option<StepId>,
    tool_call_id: Option<ToolCallId>,
    action_id: Option<ActionId>,
    subagent_id: Option<SubagentId>,
    process_id: Option<ProcessId>,
    causation_id: Option<EventId>,
    trace_id: Option<String>,
    span_id: Option<String>,
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(default)]
    refs: Refs,
    prev: String,
}

impl Event {
    /// The event as one line, without its newline.
    ///
    /// # Errors
    /// When an unknown payload does not hold JSON.
    pub fn to_line(&self) -> Result<Vec<u8>, LineError> {
        let mut line = Vec::with_capacity(640);
        self.write_line(&mut line)?;
        Ok(line)
    }

    /// Appends the event's line, without its newline, to `out`.
    ///
    /// # Errors
    /// When an unknown payload does not hold JSON; `out` may then hold a part of the line.
    pub fn write_line(&self, out: &mut Vec<u8>) -> Result<(), LineError> {
        // The envelope is written by hand: it is most of a typical line, is in every line, and the
        // general machinery takes three times as long for it.
        out.extend_from_slice(b"{\"type\":");
        push_text(out, self.payload.type_name())?;
        if let Some(native) = self.payload.native_name() {
            push_name(out, "native_type");
            push_text(out, native)?;
        }
        push_name(out, "event_id");
        push_text(out, self.event_id.as_str())?;
        push_name(out, "timestamp");
        out.push(b'"');
        self.timestamp.push_to(out);
        out.push(b'"');
        push_name(out, "sequence");
        push_number(out, self.sequence);
        let scope = &self.scope;
        let run_id = scope.run_id.as_ref().map(RunId::as_str);
        for (name, value) in [
            ("schema_version", Some(self.schema_version.as_str())),
            ("runtime_id", Some(self.runtime_id.as_str())),
            ("session_id", Some(self.session_id.as_str())),
            ("thread_id", scope.thread_id.as_ref().map(ThreadId::as_str)),
            ("turn_id", scope.turn_id.as_ref().map(TurnId::as_str)),
            ("task_id", scope.task_id.as_ref().map(TaskId::as_str)),
            ("run_id", run_id),
            ("attempt_id", run_id),
            ("step_id", scope.step_id.as_ref().map(StepId::as_str)),
            (
                "tool_call_id",
                scope.tool_call_id.as_ref().map(ToolCallId::as_str),
            ),
            ("action_id", scope.action_id.as_ref().map(ActionId::as_str)),
            (
                "subagent_id",
                scope.subagent_id.as_ref().map(SubagentId::as_str),
            ),
            (
                "process_id",
                scope.process_id.as_ref().map(ProcessId::as_str),
            ),
            (
                "causation_id",
                scope.causation_id.as_ref().map(EventId::as_str),
            ),
            ("trace_id", scope.trace_id.as_deref()),
            ("span_id", scope.span_id.as_deref()),
        ] {
            if let Some(value) = value {
                push_name(out, name);
                push_text(out, value)?;
            }
        }
        push_name(out, "payload");
        push_json(out, &self.payload)?;
        push_name(out, "refs");
        if self.refs.0.is_empty() {
            out.extend_from_slice(b"{}");
        } else {
            push_json(out, &self.refs)?;
        }
        push_name(out, "prev");
        push_text(out, &self.prev)?;
        out.push(b'}');
        Ok(())
    }

    /// Reads one line. Classes and payload shapes this version does not know are kept as
    /// [`Payload::Unknown`]; only a broken envelope is an error.
    ///
    /// # Errors
    /// When the line is not UTF-8, not JSON, or lacks what every event has.
    pub fn from_line(line: &[u8]) -> Result<Self, LineError> {
        let read: LineIn<'_> = serde_json::from_str(as_text(line)?)
            .map_err(|source| LineError::NotAnEvent { source })?;
        Ok(Self {
            payload: Payload::from_json(&read.r#type, read.payload.get()),
            event_id: read.event_id,
            timestamp: read.timestamp,
            sequence: read.sequence,
            schema_version: read.schema_version,
            runtime_id: read.runtime_id,
            session_id: read.session_id,
            scope: Scope {
                thread_id: read.thread_id,
                turn_id: read.turn_id,
                task_id: read.task_id,
                run_id: read.run_id.or(read.attempt_id),
                step_id: read.step_id,
                tool_call_id: read.tool_call_id,
                action_id: read.action_id,
                subagent_id: read.subagent_id,
                process_id: read.process_id,
                causation_id: read.causation_id,
                trace_id: read.trace_id,
                span_id: read.span_id,
            },
            refs: read.refs,
            prev: read.prev,
        })
    }

    /// Reads one line and also names the fields this version does not know, as paths. A field
    /// without content says nothing and is not named.
    ///
    /// # Errors
    /// As [`Event::from_line`].
    pub fn from_line_noting(line: &[u8]) -> Result<(Self, Vec<String>), LineError> {
        let event = Self::from_line(line)?;
        let written = event.to_line()?;
        let mut fields = Vec::new();
        // What this version wrote it writes again in the same bytes.
        if written != line
            && let Ok(given) = serde_json::from_slice(line)
            && let Ok(written) = serde_json::from_slice(&written)
        {
            note_missing(&given, &written, "", &mut fields);
            // Written beside classes that have one; read from the class.
            fields.retain(|field| field != "native_type");
        }
        Ok((event, fields))
    }
}

/// Adds the fields that are in `given` and not in `written`, which holds all that was understood of it.
fn note_missing(given: &Value, written: &Value, path: &str, fields: &mut Vec<String>) {
    match (given, written) {
        (Value::Object(given), Value::Object(written)) => {
            for (name, value) in given {
                let dot = if path.is_empty() { "" } else { "." };
                let path = format!("{path}{dot}{name}");
                match written.get(name) {
                    Some(written) => note_missing(value, written, &path, fields),
                    None if is_empty(value) => {}
                    None => fields.push(path),
                }
            }
        }
        (Value::Array(given), Value::Array(written)) => {
            for (index, (given, written)) in given.iter().zip(written).enumerate() {
                note_missing(given, written, &format!("{path}.{index}"), fields);
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) => false,
    }
}

/// `,"name":`
fn push_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// A string. Ids and our own words need no escaping, and a look tells.
fn push_text(out: &mut Vec<u8>, text: &str) -> Result<(), LineError> {
    let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if text.as_bytes().iter().all(plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        Ok(())
    } else {
        push_json(out, text)
    }
}

fn push_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<(), LineError> {
    let mut serializer = serde_json::Serializer::with_formatter(out, TerminalSafe);
    value
        .serialize(&mut serializer)
        .map_err(|source| LineError::Unwritable { source })
}

fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn as_text(line: &[u8]) -> Result<&str, LineError> {
    std::str::from_utf8(line).map_err(|error| LineError::NotUtf8 {
        valid_up_to: error.valid_up_to(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::tool::ToolIntent;
    use crate::payload::work::TaskAccepted;

    fn event(payload: Payload) -> Event {
        Event {
            event_id: "ev_1".parse().unwrap(),
            timestamp: Timestamp::from_unix_millis(0),
            sequence: 3,
            schema_version: SCHEMA_VERSION.into(),
            runtime_id: "rt_1".parse().unwrap(),
            session_id: "ses_1".parse().unwrap(),
            scope: Scope {
                run_id: Some("run_1".parse().unwrap()),
                ..Scope::default()
            },
            payload,
            refs: Refs::default().with("output", "a").with("output", "b"),
            prev: "sha256:00".into(),
        }
    }

    #[test]
    fn a_line_is_what_was_said() {
        let accepted = event(
            TaskAccepted {
                assignee: "a".into(),
            }
            .into(),
        );
        let line = accepted.to_line().unwrap();
        assert_eq!(
            std::str::from_utf8(&line).unwrap(),
            r#"{"type":"task.accepted","event_id":"ev_1","timestamp":"1970-01-01T00:00:00.000Z","sequence":3,"schema_version":"1","runtime_id":"rt_1","session_id":"ses_1","run_id":"run_1","attempt_id":"run_1","payload":{"assignee":"a"},"refs":{"output":["a","b"]},"prev":"sha256:00"}"#
        );
        assert_eq!(Event::from_line(&line).unwrap(), accepted);
    }

    #[test]
    fn unknown_fields_and_classes_are_kept_and_named() {
        let line = br#"{"type":"future.class","event_id":"e","timestamp":"1970-01-01T00:00:00Z","sequence":0,"schema_version":"7","runtime_id":"r","session_id":"s","colour":"red","payload":{"x":[1,2]},"refs":{},"prev":"p"}"#;
        let (event, fields) = Event::from_line_noting(line).unwrap();
        assert_eq!(event.payload.type_name(), "future.class");
        assert_eq!(event.schema_version, "7");
        assert_eq!(fields, ["colour"]);
        let again = event.to_line().unwrap();
        assert!(again.windows(9).any(|part| part == br#"{"x":[1,2"#));
    }

    #[test]
    fn an_unknown_field_of_a_known_payload_is_named_with_its_path() {
        let line = br#"{"type":"task.accepted","event_id":"e","timestamp":"1970-01-01T00:00:00Z","sequence":0,"schema_version":"1","runtime_id":"r","session_id":"s","payload":{"assignee":"a","since":{"day":1},"until":null},"refs":{},"prev":"p"}"#;
        let (event, fields) = Event::from_line_noting(line).unwrap();
        assert_eq!(event.payload.type_name(), "task.accepted");
        assert_eq!(fields, ["payload.since"]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_survives(text in ".*", reason in proptest::option::of(".*")) {
            let intent = ToolIntent { tool_name: text, reason, ..ToolIntent::default() };
            let event = event(intent.into());
            let line = event.to_line().unwrap();
            proptest::prop_assert!(!line.iter().any(|byte| *byte < 0x20 || *byte == 0x7F));
            proptest::prop_assert_eq!(Event::from_line(&line).unwrap(), event);
        }
    }
}
