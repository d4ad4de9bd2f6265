//! Script of the model: its turns and its faults.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::RecordedRequest;

/// The turns of a scripted model.
///
/// The file form is JSON lines, one turn per line, the same as transcripts of the `scripted`
/// dialect, with three fields more: `status` (an HTTP error), `headers` and `faults`:
///
/// ```text
/// {"tool_calls": [{"name": "read", "arguments": {"path": "a"}}]}
/// {"status": 429, "headers": {"retry-after": "0"}, "text": "slow down"}
/// {"text": "Done.", "usage": {"input": 9, "output": 1}, "faults": ["crlf", {"cut_after_events": 3}]}
/// ```
#[derive(Clone, Default)]
pub struct Script {
    turns: Vec<Turn>,
    responder: Option<Responder>,
    forgets_bodies: bool,
}

type Responder = Arc<dyn Fn(usize, &RecordedRequest) -> Turn + Send + Sync>;

impl std::fmt::Debug for Script {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Script")
            .field("turns", &self.turns)
            .finish_non_exhaustive()
    }
}

/// One response.
#[derive(Debug, Clone, Default)]
pub struct Turn {
    /// Thinking.
    pub reasoning: String,
    /// Text for the user; the message of the error when `status` is one.
    pub text: String,
    /// Tool calls.
    pub calls: Vec<Call>,
    /// Words of a refusal.
    pub refusal: String,
    /// `end_turn`, `tool_use`, `max_tokens`, `refusal`, …; left out, it follows from the calls.
    pub stop: Option<String>,
    /// Token usage that the response reports.
    pub usage: Option<Tokens>,
    /// The HTTP status; 0 is 200.
    pub status: u16,
    /// Further response headers.
    pub headers: Vec<(String, String)>,
    /// The name of the model in the answer; the one that was asked for when missing.
    pub served_by: Option<String>,
    /// Faults in this response.
    pub faults: Vec<Fault>,
    /// Characters per delta; 0 is one delta per text.
    pub delta_chars: usize,
}

/// A tool call of the scripted model.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its id; made up when absent.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// The arguments, as they go on the wire.
    pub arguments: String,
}

/// Token usage that a response reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tokens {
    /// All input tokens.
    pub input: u64,
    /// All output tokens.
    pub output: u64,
    /// Input tokens that came from a cache.
    pub cached_input: u64,
    /// Output tokens spent on reasoning.
    pub reasoning: u64,
}

/// Ways to misbehave. They combine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Waits before the status line.
    Delay(Duration),
    /// Sends so many events and then nothing, with the connection open.
    StallAfterEvents(usize),
    /// Sends so many events and drops the connection.
    CutAfterEvents(usize),
    /// Sends so many bytes of the body and drops the connection.
    CutAfterBytes(usize),
    /// Sends so many events and closes its half of the connection, without an end to the body.
    HalfCloseAfterEvents(usize),
    /// Puts an event that is not JSON after so many events.
    GarbageAfterEvents(usize),
    /// Puts an error event of the dialect after so many events.
    ErrorAfterEvents(usize),
    /// Answers with bytes that are not HTTP.
    NotHttp,
    /// Closes the connection without a byte.
    CloseAtOnce,
    /// Answers 200 with a web page.
    WebPage,
    /// Writes so many bytes at a time, with a pause after each.
    Drip(usize, Duration),
    /// Ends lines with CR LF.
    Crlf,
    /// Puts comments before and between events.
    Comments,
    /// Begins with a byte order mark.
    ByteOrderMark,
    /// Compresses the body with gzip.
    Gzip,
    /// Names a compression in the headers that the client did not offer.
    ForeignEncoding,
    /// Sends so many events, and then comments for ever, with a pause after each.
    KeepAliveAfterEvents(usize, Duration),
    /// Sends everything and then leaves the connection open.
    StallAtEnd,
    /// Leaves out everything that announces the end.
    NoEnd,
    /// Leaves out the `[DONE]` line of Chat Completions only.
    NoDone,
}

impl Script {
    /// No turns: every request is answered with status 500.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps no body of a request, for runs so long that all of them together are too much.
    #[must_use]
    pub fn forgetting_bodies(mut self) -> Self {
        self.forgets_bodies = true;
        self
    }

    pub(super) fn keeps_bodies(&self) -> bool {
        !self.forgets_bodies
    }

    /// Adds a turn.
    pub fn turn(mut self, turn: Turn) -> Self {
        self.turns.push(turn);
        self
    }

    /// Adds the same turn several times.
    pub fn turns(mut self, count: usize, turn: &Turn) -> Self {
        self.turns.extend(std::iter::repeat_n(turn.clone(), count));
        self
    }

    /// Answers the requests beyond the listed turns with what `respond` makes of them; it is given
    /// the request's number, from 0.
    pub fn otherwise(
        mut self,
        respond: impl Fn(usize, &RecordedRequest) -> Turn + Send + Sync + 'static,
    ) -> Self {
        self.responder = Some(Arc::new(respond));
        self
    }

    /// Reads the file form.
    pub fn from_lines(text: &str) -> Self {
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let turns = lines
            .map(|line| Turn::from_json(&serde_json::from_str(line).expect("a turn is JSON")))
            .collect();
        Self {
            turns,
            responder: None,
            forgets_bodies: false,
        }
    }

    pub(super) fn answer(&self, number: usize, request: &RecordedRequest) -> Turn {
        match (self.turns.get(number), &self.responder) {
            (Some(turn), _) => turn.clone(),
            (None, Some(respond)) => respond(number, request),
            (None, None) => Turn::error(
                500,
                &format!(
                    "the script has {} turns and this is request {}",
                    self.turns.len(),
                    number + 1
                ),
            ),
        }
    }
}

impl Turn {
    /// A turn that says `text`.
    pub fn text(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            ..Self::default()
        }
    }

    /// A turn that calls one tool.
    pub fn call(name: &str, arguments: Value) -> Self {
        Self::default().and_call(name, arguments)
    }

    /// A turn that fails with an HTTP status.
    pub fn error(status: u16, message: &str) -> Self {
        Self {
            status,
            text: message.to_owned(),
            ..Self::default()
        }
    }

    /// Calls one more tool. A string is sent as it is, everything else as JSON.
    pub fn and_call(mut self, name: &str, arguments: Value) -> Self {
        self.calls.push(Call {
            id: None,
            name: name.to_owned(),
            arguments: arguments_text(&arguments),
        });
        self
    }

    /// Says `text` as well.
    pub fn and_text(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self
    }

    /// Thinks first.
    pub fn thinking(mut self, text: &str) -> Self {
        self.reasoning.push_str(text);
        self
    }

    /// Stops for this reason.
    pub fn stopping(mut self, reason: &str) -> Self {
        self.stop = Some(reason.to_owned());
        self
    }

    /// Answers as this model, whichever was asked for.
    pub fn served_by(mut self, model: &str) -> Self {
        self.served_by = Some(model.to_owned());
        self
    }

    /// Says what it took.
    pub fn using(mut self, input: u64, output: u64) -> Self {
        self.usage = Some(Tokens {
            input,
            output,
            ..Tokens::default()
        });
        self
    }

    /// Adds a response header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Misbehaves.
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Cuts texts into deltas of so many characters.
    pub fn in_deltas_of(mut self, characters: usize) -> Self {
        self.delta_chars = characters;
        self
    }

    /// Reads the file form of one turn.
    pub fn from_json(value: &Value) -> Self {
        let known = [
            "expect",
            "reasoning",
            "text",
            "tool_calls",
            "refusal",
            "stop",
            "usage",
            "status",
            "headers",
            "faults",
            "delta_chars",
            "delay_ms",
        ];
        let map = value.as_object().expect("a turn is an object");
        if let Some(unknown) = map.keys().find(|key| !known.contains(&key.as_str())) {
            panic!("a turn has no field `{unknown}`");
        }
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let calls = value["tool_calls"].as_array().into_iter().flatten();
        let headers = value["headers"].as_object().into_iter().flatten();
        let usage = &value["usage"];
        let count = |key: &str| usage[key].as_u64().unwrap_or(0);
        Self {
            reasoning: text("reasoning"),
            text: text("text"),
            calls: calls
                .map(|call| Call {
                    id: call["id"].as_str().map(str::to_owned),
                    name: call["name"].as_str().expect("a call has a name").to_owned(),
                    arguments: arguments_text(&call["arguments"]),
                })
                .collect(),
            served_by: None,
            refusal: text("refusal"),
            stop: value["stop"].as_str().map(str::to_owned),
            usage: usage.is_object().then(|| Tokens {
                input: count("input"),
                output: count("output"),
                cached_input: count("cached_input"),
                reasoning: count("reasoning"),
            }),
            status: value["status"]
                .as_u64()
                .and_then(|status| u16::try_from(status).ok())
                .unwrap_or(0),
            headers: headers
                .map(|(name, value)| {
                    (
                        name.clone(),
                        value.as_str().expect("a header is text").to_owned(),
                    )
                })
                .collect(),
            faults: value["faults"]
                .as_array()
                .into_iter()
                .flatten()
                .map(Fault::from_json)
                .collect(),
            delta_chars: value["delta_chars"]
                .as_u64()
                .and_then(|size| usize::try_from(size).ok())
                .unwrap_or(0),
        }
    }

    pub(super) fn has(&self, fault: &Fault) -> bool {
        self.faults.contains(fault)
    }
}

impl Fault {
    /// `"crlf"` or `{"cut_after_events": 3}`; times are in milliseconds.
    fn from_json(value: &Value) -> Self {
        let (name, number) = match value {
            Value::String(name) => (name.as_str(), 0),
            Value::Object(map) => {
                let (name, number) = map.iter().next().expect("a fault has a name");
                (
                    name.as_str(),
                    number.as_u64().expect("a fault has a number"),
                )
            }
            _ => panic!("a fault is a name, or a name with a number"),
        };
        let count = usize::try_from(number).expect("a small number");
        match name {
            "delay_ms" => Self::Delay(Duration::from_millis(number)),
            "stall_after_events" => Self::StallAfterEvents(count),
            "cut_after_events" => Self::CutAfterEvents(count),
            "cut_after_bytes" => Self::CutAfterBytes(count),
            "half_close_after_events" => Self::HalfCloseAfterEvents(count),
            "garbage_after_events" => Self::GarbageAfterEvents(count),
            "error_after_events" => Self::ErrorAfterEvents(count),
            "not_http" => Self::NotHttp,
            "close_at_once" => Self::CloseAtOnce,
            "web_page" => Self::WebPage,
            "drip_bytes" => Self::Drip(count, Duration::ZERO),
            "crlf" => Self::Crlf,
            "comments" => Self::Comments,
            "byte_order_mark" => Self::ByteOrderMark,
            "gzip" => Self::Gzip,
            "foreign_encoding" => Self::ForeignEncoding,
            "keep_alive_after_events" => {
                Self::KeepAliveAfterEvents(count, Duration::from_millis(10))
            }
            "stall_at_end" => Self::StallAtEnd,
            "no_end" => Self::NoEnd,
            "no_done" => Self::NoDone,
            other => panic!("there is no fault `{other}`"),
        }
    }
}

fn arguments_text(arguments: &Value) -> String {
    match arguments {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
