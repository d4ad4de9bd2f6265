//! Puts tool calls together from the pieces a stream brings them in.

use serde_json::Value;

use crate::conversation::{Arguments, Opaque, ToolCall};
use crate::event::ModelEvent;

/// The most bytes the arguments of one response may have together.
const ARGUMENTS_CAP: usize = 32 * 1024 * 1024;

/// The most calls one response may hold: many times what any model asks for at once, and few enough
/// that each can be recorded, judged and answered.
const CALLS_CAP: usize = 256;

/// The tool calls of one response, in the order they began.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    open: Vec<OpenCall>,
    bytes: usize,
    /// The response holds more calls than are taken.
    too_many: bool,
}

#[derive(Debug)]
struct OpenCall {
    /// Number of the call on the wire: a block or item index, or the index of a delta.
    wire_index: Option<u64>,
    id: String,
    /// The server had sent no id when the call was announced; one that comes later is not used.
    id_is_made_up: bool,
    name: String,
    arguments: String,
    opaque: Option<Opaque>,
    announced: bool,
}

impl Calls {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Problem with the amount of calls or arguments, if the response must not be acted on.
    pub(crate) fn excess(&self) -> Option<String> {
        if self.too_many {
            Some(format!(
                "the response has more than {CALLS_CAP} tool calls; none was run"
            ))
        } else if self.bytes > ARGUMENTS_CAP {
            Some("the arguments of the tool calls are too large".to_owned())
        } else {
            None
        }
    }

    /// Begins a call and returns its ordinal. A call beyond the most that are taken is not kept.
    pub(crate) fn begin(&mut self, wire_index: Option<u64>, id: &str, name: &str) -> usize {
        if self.open.len() >= CALLS_CAP {
            self.too_many = true;
            return self.open.len() - 1;
        }
        self.open.push(OpenCall {
            wire_index,
            id: id.to_owned(),
            id_is_made_up: false,
            name: name.to_owned(),
            arguments: String::new(),
            opaque: None,
            announced: false,
        });
        self.open.len() - 1
    }

    /// The latest call with this wire index.
    pub(crate) fn by_wire_index(&self, wire_index: u64) -> Option<usize> {
        self.open
            .iter()
            .rposition(|call| call.wire_index == Some(wire_index))
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<usize> {
        self.open.iter().rposition(|call| call.id == id)
    }

    pub(crate) fn last(&self) -> Option<usize> {
        self.open.len().checked_sub(1)
    }

    /// The id the server gave this call; empty when it gave none.
    pub(crate) fn wire_id(&self, index: usize) -> &str {
        self.open
            .get(index)
            .filter(|call| !call.id_is_made_up)
            .map_or("", |call| &call.id)
    }

    pub(crate) fn name(&self, index: usize) -> &str {
        self.open.get(index).map_or("", |call| &call.name)
    }

    pub(crate) fn arguments(&self, index: usize) -> &str {
        self.open.get(index).map_or("", |call| &call.arguments)
    }

    pub(crate) fn set_id_if_empty(&mut self, index: usize, id: &str) {
        if let Some(call) = self.open.get_mut(index)
            && call.id.is_empty()
        {
            call.id.push_str(id);
        }
    }

    pub(crate) fn set_name_if_empty(&mut self, index: usize, name: &str) {
        if let Some(call) = self.open.get_mut(index)
            && call.name.is_empty()
        {
            call.name.push_str(name);
        }
    }

    pub(crate) fn set_opaque(&mut self, index: usize, opaque: Opaque) {
        if let Some(call) = self.open.get_mut(index) {
            call.opaque = Some(opaque);
        }
    }

    /// Announces the call once it has a name; ids that never came are made up from `response_id`,
    /// so that they differ between the responses of one conversation.
    pub(crate) fn announce(
        &mut self,
        index: usize,
        response_id: Option<&str>,
        events: &mut Vec<ModelEvent>,
    ) {
        let Some(call) = self.open.get_mut(index) else {
            return;
        };
        if call.announced || call.name.is_empty() {
            return;
        }
        if call.id.is_empty() {
            let tail: String = response_id
                .unwrap_or_default()
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .collect();
            let tail = &tail[tail.len().saturating_sub(20)..];
            call.id = format!("call_{tail}_{index}");
            call.id_is_made_up = true;
        }
        call.announced = true;
        events.push(ModelEvent::ToolCallStarted {
            index,
            provider_call_id: call.id.clone(),
            name: call.name.clone(),
        });
        if !call.arguments.is_empty() {
            events.push(ModelEvent::ToolCallDelta {
                index,
                text: call.arguments.clone(),
            });
        }
    }

    /// Adds a piece of arguments; `false` when the response has grown beyond all reason.
    #[must_use]
    pub(crate) fn append(
        &mut self,
        index: usize,
        piece: &str,
        events: &mut Vec<ModelEvent>,
    ) -> bool {
        let Some(call) = self.open.get_mut(index) else {
            return true;
        };
        if piece.is_empty() {
            return !self.too_many;
        }
        self.bytes += piece.len();
        if self.too_many || self.bytes > ARGUMENTS_CAP {
            return false;
        }
        call.arguments.push_str(piece);
        if call.announced {
            events.push(ModelEvent::ToolCallDelta {
                index,
                text: piece.to_owned(),
            });
        }
        true
    }

    /// The server repeats the whole arguments at the end; its last word counts.
    pub(crate) fn settle(
        &mut self,
        index: usize,
        whole: &str,
        events: &mut Vec<ModelEvent>,
    ) -> bool {
        let Some(call) = self.open.get_mut(index) else {
            return true;
        };
        if whole.is_empty() || call.arguments == whole {
            return true;
        }
        if let Some(rest) = whole.strip_prefix(call.arguments.as_str()) {
            let rest = rest.to_owned();
            return self.append(index, &rest, events);
        }
        call.arguments = whole.to_owned();
        true
    }

    /// Hands out all calls. `cut` says that the answer hit a length limit, so that unfinished
    /// arguments are the limit's doing and not the model's.
    pub(crate) fn complete(
        &mut self,
        response_id: Option<&str>,
        cut: bool,
        events: &mut Vec<ModelEvent>,
    ) {
        for index in 0..self.open.len() {
            // A call that never got a name is announced without one: validation will say so.
            if let Some(call) = self.open.get_mut(index)
                && !call.announced
                && call.name.is_empty()
            {
                call.name = "(unnamed)".to_owned();
            }
            self.announce(index, response_id, events);
        }
        let last = self.open.len().saturating_sub(1);
        for (index, call) in std::mem::take(&mut self.open).into_iter().enumerate() {
            let mut arguments = judge(&call.arguments);
            // Calls may be written side by side, so that the limit cuts more than the last one; a
            // call that has no arguments yet and is not the last may have none.
            if cut
                && (index == last || !call.arguments.is_empty())
                && arguments != Arguments::Object
            {
                arguments = Arguments::Cut;
            }
            events.push(ModelEvent::ToolCallCompleted {
                index,
                call: ToolCall {
                    provider_call_id: call.id,
                    name: call.name,
                    arguments_text: call.arguments,
                    arguments,
                    opaque: call.opaque,
                },
            });
        }
        self.bytes = 0;
    }
}

/// Says what can be said about a call's arguments without knowing the tool.
pub(crate) fn judge(text: &str) -> Arguments {
    if text.trim().is_empty() {
        return Arguments::Empty;
    }
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(_)) => Arguments::Object,
        // `null` is how some servers write "no arguments".
        Ok(Value::Null) => Arguments::Empty,
        Ok(other) => Arguments::Malformed(format!(
            "expected a JSON object, found {}",
            json_type(&other)
        )),
        Err(error) => Arguments::Malformed(error.to_string()),
    }
}

/// True if `text` is one whole JSON value already.
pub(crate) fn is_whole_json(text: &str) -> bool {
    !text.is_empty() && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
