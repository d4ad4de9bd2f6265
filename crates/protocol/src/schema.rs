//! JSON Schemas of everything that is a promise to a file: the envelope and every payload.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::id::{
    ActionId, EventId, ProcessId, RunId, RuntimeId, SessionId, StepId, SubagentId, TaskId,
    ThreadId, ToolCallId, TurnId,
};
use crate::payload::EventType;
use crate::{Refs, SCHEMA_VERSION, Timestamp};

/// The schema of one line of `events.jsonl`: the envelope, and for each class its payload.
/// Fields and classes that are not listed are allowed, as readers tolerate them.
#[must_use]
pub fn event_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| settings.meta_schema = None)
        .into_generator();
    let mut properties = Map::new();
    let names: Vec<&str> = EventType::ALL.iter().map(|class| class.as_str()).collect();
    properties.insert(
        "type".into(),
        json!({ "type": "string", "examples": names }),
    );
    properties.insert("native_type".into(), json!({ "type": "string" }));
    macro_rules! field {
        ($($name:literal: $ty:ty),* $(,)?) => {
            $(properties.insert($name.into(), generator.subschema_for::<$ty>().to_value());)*
        };
    }
    field! {
        "event_id": EventId, "timestamp": Timestamp, "sequence": u64, "schema_version": String,
        "runtime_id": RuntimeId, "session_id": SessionId, "thread_id": ThreadId, "turn_id": TurnId,
        "task_id": TaskId, "run_id": RunId, "attempt_id": RunId, "step_id": StepId,
        "tool_call_id": ToolCallId, "action_id": ActionId, "subagent_id": SubagentId,
        "process_id": ProcessId, "causation_id": EventId, "trace_id": String, "span_id": String,
        "refs": Refs,
    }
    properties.insert("payload".into(), json!({ "type": "object" }));
    properties.insert(
        "prev".into(),
        json!({ "type": "string", "pattern": "^sha256:[0-9a-f]{64}$" }),
    );
    let classes: Vec<Value> = EventType::ALL
        .iter()
        .map(|class| {
            let payload = class.payload_schema(&mut generator).to_value();
            json!({
                "if": { "properties": { "type": { "const": class.as_str() } } },
                "then": { "properties": { "payload": payload } },
            })
        })
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "agent event",
        "description": format!("One line of events.jsonl, schema_version {SCHEMA_VERSION}."),
        "type": "object",
        "required": ["type", "event_id", "timestamp", "sequence", "schema_version", "runtime_id", "session_id", "payload", "refs", "prev"],
        "properties": properties,
        "allOf": classes,
        "$defs": generator.take_definitions(true),
    })
}
