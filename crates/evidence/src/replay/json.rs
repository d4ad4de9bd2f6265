//! A session as one JSON object: the documented read model behind `agent replay --format json`.

use std::cell::RefCell;

use agent_history::fold::{Call, TurnBrief};
use agent_protocol::Event;
use serde::ser::{Error as _, SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::entry::Entry;
use super::lineage::Lineage;
use super::read::{Anchored, Integrity};
use super::streamed::Streamed;
use super::summary::Summary;
use super::timeline::Timeline;

/// The object, written piece by piece: the events are read again while they are written.
impl Serialize for Streamed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let summary = self.summary();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("session", &session(self, &summary))?;
        map.serialize_entry("integrity", &integrity(&self.integrity))?;
        map.serialize_entry("summary", &summary_json(&summary))?;
        map.serialize_entry("inherited", &self.lineage().map(|past| Past(self, past)))?;
        let turns = summary.turns.iter().enumerate();
        let turns = turns.map(|(at, turn)| turn_json(at + 1, turn));
        map.serialize_entry("turns", &Each(RefCell::new(turns)))?;
        let calls = self.timeline.calls().iter();
        let calls = calls.map(|call| call_json(call, &self.timeline));
        map.serialize_entry("calls", &Each(RefCell::new(calls)))?;
        map.serialize_entry("events", &Events(self))?;
        map.end()
    }
}

/// A list of which one element exists at a time.
struct Each<I>(RefCell<I>);

impl<I: Iterator<Item = Value>> Serialize for Each<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for value in &mut *self.0.borrow_mut() {
            list.serialize_element(&value)?;
        }
        list.end()
    }
}

/// The events of the range.
struct Events<'a>(&'a Streamed<'a>);

impl Serialize for Events<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let mut written = Ok(());
        let told = self.0.each(|entry, event| {
            if written.is_ok() {
                written = list.serialize_element(&event_json(&entry, &event));
            }
        });
        told.map_err(S::Error::custom)?;
        written?;
        list.end()
    }
}

/// What a branch inherited.
struct Past<'a>(&'a Streamed<'a>, Lineage);

impl Serialize for Past<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let lineage = &self.1;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("session_id", lineage.parent.session_id.as_str())?;
        map.serialize_entry("sequence", &lineage.parent.sequence)?;
        map.serialize_entry("says", &lineage.in_words())?;
        map.serialize_entry("unknown", &lineage.told.as_ref().err())?;
        map.serialize_entry("events", &Inherited(self.0))?;
        map.end()
    }
}

struct Inherited<'a>(&'a Streamed<'a>);

impl Serialize for Inherited<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let mut written = Ok(());
        self.0.each_inherited(|entry, event| {
            if written.is_ok() {
                written = list.serialize_element(&event_json(&entry, event));
            }
        });
        written?;
        list.end()
    }
}

fn turn_json(number: usize, turn: &TurnBrief) -> Value {
    json!({
        "number": number,
        "turn_id": turn.turn_id.as_str(),
        "status": turn.status.as_str(),
        "joined_into": turn.joined_into.as_ref().map(|turn| turn.as_str()),
        "input": turn.input,
        "model": turn.model,
        "outcome": turn.outcome.map(|outcome| outcome.as_str()),
        "verification": turn.verification,
        "first_sequence": turn.first_sequence,
        "last_sequence": turn.last_sequence,
        "submitted_at": turn.submitted_at,
        "ended_at": turn.ended_at,
    })
}

fn session(told: &Streamed<'_>, summary: &Summary) -> Value {
    json!({
        "session_id": told.session_id().as_str(),
        "title": summary.title,
        "status": summary.status.map_or("unknown", |status| status.as_str()),
        "agent_version": summary.agent_version,
        "imported_from": summary.imported_from,
        "parent": summary.parent,
        "mode": summary.mode.map(|mode| mode.as_str()),
        "model": summary.model,
        "created_at": summary.created_at,
        "last_event_at": summary.last_event_at,
        "events": summary.events,
        "missing_events": summary.missing_events,
        "from": told.range.from,
        "to": told.range.to,
    })
}

pub(crate) fn integrity(integrity: &Integrity) -> Value {
    let (anchor, at) = match integrity.anchored {
        Anchored::Missing => ("missing", None),
        Anchored::Agrees(at) => ("agrees", Some(at)),
        Anchored::Differs(at) => ("differs", Some(at)),
        Anchored::CutOff(at) => ("cut_off", Some(at)),
    };
    json!({
        "ok": integrity.is_intact(),
        "says": integrity.in_words(),
        "lines": integrity.lines,
        "head": integrity.head.prev(),
        "anchor": anchor,
        "anchored_sequence": at,
        "torn_bytes": integrity.torn_bytes,
        "damage_count": integrity.damage_count,
        "damage": integrity.damage.iter().map(|damage| json!({
            "line": damage.line,
            "code": damage.kind.code(),
            "sequence": damage.sequence,
            "message": damage.to_string(),
        })).collect::<Vec<_>>(),
    })
}

pub(crate) fn summary_json(summary: &Summary) -> Value {
    let files = summary.files_changed.iter();
    let open = &summary.open;
    json!({
        "turns": summary.turns.len(),
        "calls": summary.call_count,
        "calls_by_status": summary.calls.iter()
            .map(|(status, count)| ((*status).to_owned(), Value::from(*count)))
            .collect::<Map<_, _>>(),
        "decisions": {
            "allow": summary.decisions.allow,
            "ask": summary.decisions.ask,
            "deny": summary.decisions.deny,
        },
        "violations": summary.violations,
        "files_changed": files.map(|(path, file)| json!({
            "path": path,
            "kind": file.kind.as_str(),
            "changes": file.changes,
            "sha256_before": file.sha256_before,
            "sha256_after": file.sha256_after,
        })).collect::<Vec<_>>(),
        "verification": summary.verification,
        "conflicts": summary.conflicts,
        "unproven": summary.unproven,
        "claims": summary.claims,
        "failures": summary.failures,
        "requests": summary.requests,
        "usage": {
            "input": summary.usage.input,
            "output": summary.usage.output,
            "cached_input": summary.usage.cached_input,
            "reasoning": summary.usage.reasoning,
            "uncounted_requests": summary.usage.uncounted_requests,
        },
        "cost": {
            "known_amount": summary.cost.amount,
            "currency": summary.cost.currency,
            "unknown_requests": summary.cost.unknown_requests,
        },
        "open": {
            "turns": open.turns,
            "calls": open.calls,
            "actions": open.actions,
            "requests": open.requests,
            "processes": open.processes,
            "left": open.is_left && !open.is_nothing(),
        },
    })
}

pub(crate) fn call_json(call: &Call, timeline: &Timeline) -> Value {
    let permission = call.permission.as_ref();
    let mut told = json!({
        "number": timeline.call_number(&call.tool_call_id),
        "tool_call_id": call.tool_call_id.as_str(),
        "turn_id": call.turn_id.as_ref().map(|id| id.as_str()),
        "tool_name": call.tool_name,
        "status": call.status.as_str(),
        "code": call.code.map(|code| code.as_str()),
        "decision": permission.map(|permission| permission.decision.as_str()),
        "decided_by": permission.map(|permission| permission.source.as_str()),
        "reason": permission.map(|permission| permission.reason.as_str()),
        "rules": permission.map(|permission| permission.rules.clone()).unwrap_or_default(),
        "answer": call.action.as_ref().and_then(|action| action.decision).map(|word| word.as_str()),
        "answered_by": call.action.as_ref().and_then(|action| action.decided_by).map(|by| by.as_str()),
        "sandbox": call.sandbox.as_ref().map(|sandbox| sandbox.status.as_str()),
        "exit_code": call.process.as_ref().and_then(|process| process.exit_code),
        "paths_changed": call.paths_changed,
        "artifacts": call.artifacts.iter().map(|id| id.as_str()).collect::<Vec<_>>(),
        "first_sequence": call.intent.as_ref().map(|place| place.sequence),
        "last_sequence": call.observation.as_ref().map(|seen| seen.place.sequence),
    });
    // Only some calls have these.
    if let Some(id) = &call.subagent_id {
        told["subagent_id"] = id.as_str().into();
    }
    if let Some(name) = &call.requested_name {
        told["requested_name"] = name.as_str().into();
    }
    told
}

fn event_json(entry: &Entry, event: &Event) -> Value {
    json!({
        "sequence": entry.sequence,
        "event_id": entry.event_id.as_str(),
        "timestamp": entry.timestamp,
        "type": entry.class,
        "kind": entry.description.kind.as_str(),
        "tone": entry.description.tone.as_str(),
        "level": entry.description.level.as_str(),
        "turn": entry.turn,
        "call": entry.call,
        "tool_call_id": entry.tool_call_id.as_ref().map(|id| id.as_str()),
        "label": entry.description.label,
        "says": entry.description.text,
        "payload": event.payload,
    })
}

/// The schema of the object, as `docs/schemas/replay.schema.json` has it.
#[must_use]
pub fn schema() -> Value {
    let text = json!({ "type": "string" });
    let maybe_text = json!({ "type": ["string", "null"] });
    let number = json!({ "type": "integer", "minimum": 0 });
    let maybe_number = json!({ "type": ["integer", "null"] });
    let maybe_object = json!({ "type": ["object", "null"] });
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let kinds: Vec<&str> = agent_history::describe::Kind::ALL
        .iter()
        .map(|kind| kind.as_str())
        .collect();
    let events = json!({ "type": "array", "items": object(
        &["sequence", "event_id", "timestamp", "type", "kind", "label", "says", "payload"], &[
        ("sequence", &number), ("event_id", &text), ("timestamp", &text), ("type", &text),
        ("kind", &json!({ "enum": kinds })),
        ("tone", &json!({ "enum": ["plain", "good", "warn", "bad"] })),
        ("level", &json!({ "enum": ["record", "detail", "headline"] })),
        ("turn", &maybe_number), ("call", &maybe_number), ("tool_call_id", &maybe_text),
        ("label", &text), ("says", &text), ("payload", &json!({ "type": "object" })),
    ]) });
    let mut inherited = object(
        &["session_id", "sequence", "says", "events"],
        &[
            ("session_id", &text),
            ("sequence", &number),
            ("says", &text),
            ("unknown", &maybe_text),
            ("events", &events),
        ],
    );
    inherited["type"] = json!(["object", "null"]);
    inherited["description"] = "What a branch has in common with the session it came from, up to the event `sequence` of that one. Numbers in it are the parent's. `unknown` says why it cannot be told.".into();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "agent replay",
        "description": "What `agent replay --format json` prints: a session up to an event, told from its log. What the log does not show is null or `unknown`.",
        "type": "object",
        "required": ["session", "integrity", "summary", "turns", "calls", "events"],
        "properties": {
            "session": object(&["session_id", "status", "events"], &[
                ("session_id", &text), ("title", &maybe_text), ("status", &text),
                ("agent_version", &maybe_text), ("imported_from", &maybe_text),
                ("parent", &maybe_object), ("mode", &maybe_text), ("model", &maybe_text),
                ("created_at", &maybe_text), ("last_event_at", &maybe_text),
                ("events", &number), ("missing_events", &number),
                ("from", &maybe_number), ("to", &maybe_number),
            ]),
            "integrity": object(&["ok", "says", "anchor", "damage"], &[
                ("ok", &json!({ "type": "boolean" })), ("says", &text), ("lines", &number),
                ("head", &text), ("anchor", &json!({ "enum": ["missing", "agrees", "differs", "cut_off"] })),
                ("anchored_sequence", &maybe_number), ("torn_bytes", &maybe_number),
                ("damage_count", &number), ("damage", &json!({ "type": "array" })),
            ]),
            "summary": object(&["turns", "calls", "files_changed", "verification", "open"], &[
                ("turns", &number), ("calls", &number),
                ("calls_by_status", &json!({ "type": "object" })),
                ("decisions", &json!({ "type": "object" })), ("violations", &number),
                ("files_changed", &json!({ "type": "array" })), ("verification", &maybe_object),
                ("conflicts", &number), ("unproven", &number),
                ("claims", &json!({ "type": "array" })), ("failures", &json!({ "type": "array" })),
                ("requests", &number),
                ("usage", &json!({ "type": "object" })), ("cost", &json!({ "type": "object" })),
                ("open", &object(&["turns", "calls", "actions", "requests", "processes", "left"], &[
                    ("turns", &number), ("calls", &number), ("actions", &number),
                    ("requests", &number), ("processes", &number),
                    ("left", &json!({ "type": "boolean", "description":
                        "Nobody writes the session, so that this does not go on; how it ended is unknown." })),
                ])),
            ]),
            "turns": { "type": "array", "items": object(&["number", "turn_id", "status"], &[
                ("number", &number), ("turn_id", &text), ("status", &text), ("input", &text),
                ("joined_into", &maybe_text),
                ("model", &maybe_text), ("outcome", &maybe_text), ("verification", &maybe_object),
                ("first_sequence", &number), ("last_sequence", &maybe_number),
                ("submitted_at", &maybe_text), ("ended_at", &maybe_text),
            ]) },
            "calls": { "type": "array", "items": object(&["tool_call_id", "tool_name", "status"], &[
                ("number", &maybe_number), ("tool_call_id", &text), ("turn_id", &maybe_text),
                ("subagent_id", &text),
                ("tool_name", &text), ("requested_name", &text),
                ("status", &text), ("code", &maybe_text),
                ("decision", &maybe_text), ("decided_by", &maybe_text), ("reason", &maybe_text),
                ("rules", &texts), ("answer", &maybe_text), ("answered_by", &maybe_text),
                ("sandbox", &maybe_text), ("exit_code", &maybe_number), ("paths_changed", &texts),
                ("artifacts", &texts), ("first_sequence", &maybe_number),
                ("last_sequence", &maybe_number),
            ]) },
            "inherited": inherited,
            "events": events,
        },
        "additionalProperties": false,
    })
}

/// The schema of an audit card, as `docs/schemas/card.schema.json` has it.
#[must_use]
pub fn card_schema() -> Value {
    let answers = json!({ "type": "array", "items": object(
        &["key", "question", "answer", "known", "events"], &[
            ("key", &json!({ "type": "string" })),
            ("question", &json!({ "type": "string" })),
            ("answer", &json!({ "type": "string", "description": "`unknown` when the log does not tell" })),
            ("known", &json!({ "type": "boolean" })),
            ("events", &json!({ "type": "array", "items": { "type": "integer", "minimum": 0 } })),
        ])
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "agent audit card",
        "description": "What `agent replay --call ID --format json` prints: the questions an auditor asks about one call, each with what the log says.",
        "type": "object",
        "required": ["tool_call_id", "tool_name", "answers", "more"],
        "properties": {
            "tool_call_id": { "type": "string" },
            "tool_name": { "type": "string" },
            "answers": answers,
            "more": answers,
        },
        "additionalProperties": false,
    })
}

fn object(required: &[&str], properties: &[(&str, &Value)]) -> Value {
    let properties: Map<String, Value> = properties
        .iter()
        .map(|(name, schema)| ((*name).to_owned(), (*schema).clone()))
        .collect();
    json!({
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": false,
    })
}
