//! The wire formats: for each an encoder (request → bytes) and a decoder (bytes → events), both
//! pure. Start with [`openai_chat`]; the others differ in shape, not in kind.

pub mod anthropic;
pub mod openai_chat;
pub mod openai_responses;
mod repair;
mod reply;
pub mod scripted;
mod unique_ids;
mod write;

use crate::classify::gives_reason;
use crate::conversation::ModelRequest;
use crate::error::{ErrorKind, ModelError, classify};
use crate::event::ModelEvent;
use crate::quirks::Quirks;
use crate::sse::{EVENT_CAP, EventTooLarge, SseDecoder, SseEvent};

use self::repair::repaired;

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI Chat Completions and everything compatible with it.
    OpenAiChat,
    /// OpenAI Responses.
    OpenAiResponses,
    /// Anthropic Messages.
    AnthropicMessages,
    /// A transcript file; opens no socket.
    Scripted,
}

impl Dialect {
    /// All of them, in the order they are documented.
    pub const ALL: [Self; 4] = [
        Self::OpenAiChat,
        Self::OpenAiResponses,
        Self::AnthropicMessages,
        Self::Scripted,
    ];

    /// The word in configuration and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai-chat",
            Self::OpenAiResponses => "openai-responses",
            Self::AnthropicMessages => "anthropic-messages",
            Self::Scripted => "scripted",
        }
    }

    /// The dialect with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|dialect| dialect.as_str() == word)
    }

    /// The path below `/v1` that takes requests.
    pub fn path(self) -> &'static str {
        match self {
            Self::OpenAiChat => "/chat/completions",
            Self::OpenAiResponses => "/responses",
            Self::AnthropicMessages => "/messages",
            Self::Scripted => "",
        }
    }
}

/// The body of `request` in `dialect`. The same request always gives the same bytes, and a longer
/// conversation begins with those of the shorter one (Anthropic's cache marks apart, which move
/// along and do not count), so that prompt caches hold.
pub fn encode(dialect: Dialect, request: &ModelRequest, quirks: &Quirks) -> Vec<u8> {
    let request = &*unique_ids::with_unique_ids(request);
    match dialect {
        Dialect::OpenAiChat => openai_chat::encode(request, quirks),
        Dialect::OpenAiResponses => openai_responses::encode(request),
        Dialect::AnthropicMessages => anthropic::encode(request),
        // What a scripted model "receives" is the form its expectations are written against.
        Dialect::Scripted => openai_chat::encode(request, quirks),
    }
}

/// Turns the bytes of one response into events, however the network cut them.
#[derive(Debug)]
pub struct Decoder {
    sse: SseDecoder,
    payloads: Payloads,
    form: Form,
    /// Beginning of the body, to describe it when it is no event stream.
    head: Vec<u8>,
}

/// The most bytes of the beginning that are kept.
const HEAD_CAP: usize = 256;

#[derive(Debug)]
enum Payloads {
    Chat(openai_chat::ChatDecoder),
    Responses(openai_responses::ResponsesDecoder),
    Anthropic(anthropic::AnthropicDecoder),
}

/// Form of the body.
#[derive(Debug)]
enum Form {
    /// Only blanks so far.
    Unknown,
    /// An event stream, as asked for.
    Events,
    /// One document: a server that does not stream, or an error page with status 200.
    Document(Vec<u8>),
}

impl Decoder {
    /// A decoder for one response. `Scripted` has no wire form and reads Chat Completions.
    pub fn new(dialect: Dialect, quirks: &Quirks) -> Self {
        let payloads = match dialect {
            Dialect::OpenAiChat | Dialect::Scripted => {
                Payloads::Chat(openai_chat::ChatDecoder::new(quirks))
            }
            Dialect::OpenAiResponses => {
                Payloads::Responses(openai_responses::ResponsesDecoder::default())
            }
            Dialect::AnthropicMessages => {
                Payloads::Anthropic(anthropic::AnthropicDecoder::default())
            }
        };
        Self {
            sse: SseDecoder::new(),
            payloads,
            form: Form::Unknown,
            head: Vec::new(),
        }
    }

    /// Takes the next bytes of the body and appends what they say to `events`.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<ModelEvent>) {
        if let Form::Unknown = self.form
            && let Some(first) = bytes.iter().find(|byte| !is_blank(**byte))
        {
            self.form = if matches!(first, b'{' | b'[' | b'<') {
                Form::Document(Vec::new())
            } else {
                Form::Events
            };
        }
        match &mut self.form {
            Form::Document(document) => {
                // Blanks in front are dropped, so that a place in an error does not depend on cuts.
                let blanks = if document.is_empty() {
                    bytes.iter().take_while(|byte| is_blank(**byte)).count()
                } else {
                    0
                };
                let bytes = &bytes[blanks..];
                if document.len() + bytes.len() <= EVENT_CAP {
                    document.extend_from_slice(bytes);
                } else {
                    self.payloads.fail(
                        ModelError::new(ErrorKind::Malformed, EventTooLarge.to_string()),
                        events,
                    );
                }
            }
            Form::Unknown | Form::Events => {
                let room = HEAD_CAP.saturating_sub(self.head.len()).min(bytes.len());
                self.head.extend_from_slice(&bytes[..room]);
                let payloads = &mut self.payloads;
                let fed = self
                    .sse
                    .feed(bytes, &mut |event| payloads.take(event, events));
                if let Err(error) = fed {
                    self.payloads.fail(
                        ModelError::new(ErrorKind::Malformed, error.to_string()),
                        events,
                    );
                }
            }
        }
    }

    /// The body ended. Whatever was open is closed, as an interruption unless the end was announced.
    pub fn finish(&mut self, events: &mut Vec<ModelEvent>) {
        match std::mem::replace(&mut self.form, Form::Unknown) {
            Form::Document(document) => {
                if document.trim_ascii_start().starts_with(b"<") {
                    // The same page would come again.
                    let page = "the server sent a web page instead of a model response";
                    self.payloads.fail(final_error(page), events);
                } else {
                    self.payloads.take(
                        SseEvent {
                            name: b"",
                            data: &document,
                        },
                        events,
                    );
                    if !self.payloads.reply().has_started() {
                        self.payloads.fail(not_a_response(&document), events);
                    }
                }
            }
            Form::Unknown | Form::Events => {
                let payloads = &mut self.payloads;
                // The last event may be cut; then it is the end that is missing, not the sense.
                payloads.reply().at_end = true;
                if self
                    .sse
                    .finish(&mut |event| payloads.take(event, events))
                    .is_err()
                {
                    self.payloads.fail(
                        ModelError::new(ErrorKind::Malformed, EventTooLarge.to_string()),
                        events,
                    );
                }
                if !self.payloads.reply().has_started() && !looks_like_events(&self.head) {
                    self.payloads.fail(not_events(&self.head), events);
                }
            }
        }
        self.payloads.end(events);
    }

    /// True once `Stopped` or `Error` was emitted; nothing comes after it.
    pub fn is_done(&mut self) -> bool {
        self.payloads.reply().is_done()
    }

    /// True if the server has given its stop reason. Only usage can follow, and not every server
    /// closes the connection after it.
    pub fn is_stopping(&self) -> bool {
        match &self.payloads {
            Payloads::Chat(decoder) => decoder.is_stopping(),
            Payloads::Anthropic(decoder) => decoder.is_stopping(),
            Payloads::Responses(_) => false,
        }
    }
}

/// White space, and the bytes of a byte order mark, which begins nothing else.
fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, 0xEF | 0xBB | 0xBF)
}

/// True if a body begins as an event stream does, with a field or a comment, as far as it came.
fn looks_like_events(head: &[u8]) -> bool {
    let blanks = head.iter().take_while(|byte| is_blank(**byte)).count();
    let head = &head[blanks..];
    let fields: [&[u8]; 5] = [b":", b"data:", b"event:", b"id:", b"retry:"];
    fields
        .iter()
        .any(|field| head.starts_with(field) || field.starts_with(head))
}

/// A document that is neither a response nor an error in the dialect's own form. The same would
/// come again.
fn not_a_response(document: &[u8]) -> ModelError {
    let said = classify(None, document);
    let gave_reason = serde_json::from_slice::<serde_json::Value>(document)
        .is_ok_and(|value| gives_reason(&value));
    if gave_reason {
        return said;
    }
    let what = "the server sent JSON that is not a model response";
    final_error(what)
}

fn not_events(head: &[u8]) -> ModelError {
    let shown = String::from_utf8_lossy(head);
    let shown: String = shown.chars().take(80).collect();
    final_error(&format!(
        "the server sent something other than a model response: {shown}"
    ))
}

fn final_error(message: &str) -> ModelError {
    ModelError {
        retryable: false,
        ..ModelError::new(ErrorKind::Malformed, message)
    }
}

impl Payloads {
    fn take(&mut self, event: SseEvent<'_>, events: &mut Vec<ModelEvent>) {
        if self.reply().is_done() || event.data.trim_ascii().is_empty() {
            return;
        }
        let name = std::str::from_utf8(event.name).unwrap_or_default();
        let mut taken = self.take_payload(name, event.data, events);
        if taken.is_err() && event.name != b"error" {
            for payload in repaired(event.data).iter().flatten() {
                taken = self.take_payload(name, payload, events);
            }
        }
        if let Err(error) = taken {
            // An error event need not be JSON of the dialect's own shape.
            let error = if event.name == b"error" {
                let error = classify(None, event.data);
                match error.kind {
                    ErrorKind::Unknown => ModelError::new(ErrorKind::ServerError, error.message),
                    _ => error,
                }
            } else if self.reply().at_end {
                ModelError::new(
                    ErrorKind::StreamInterrupted,
                    "the response ended in the middle of an event",
                )
            } else {
                ModelError::new(
                    ErrorKind::Malformed,
                    format!("the server sent an invalid event: {error}"),
                )
            };
            self.fail(error, events);
        }
    }

    fn take_payload(
        &mut self,
        name: &str,
        data: &[u8],
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), serde_json::Error> {
        match self {
            Self::Chat(decoder) => decoder.take(data, events),
            Self::Responses(decoder) => decoder.take(name, data, events),
            Self::Anthropic(decoder) => decoder.take(name, data, events),
        }
    }

    fn end(&mut self, events: &mut Vec<ModelEvent>) {
        if self.reply().is_done() {
            return;
        }
        match self {
            Self::Chat(decoder) => decoder.end(events),
            Self::Anthropic(decoder) => decoder.end(events),
            Self::Responses(_) => {}
        }
        if !self.reply().is_done() {
            let message = if self.reply().has_started() {
                "the response ended before it was complete"
            } else {
                "the server closed the connection without a response"
            };
            self.fail(
                ModelError::new(ErrorKind::StreamInterrupted, message),
                events,
            );
        }
    }

    fn fail(&mut self, error: ModelError, events: &mut Vec<ModelEvent>) {
        self.reply().fail(error, events);
    }

    fn reply(&mut self) -> &mut reply::Reply {
        match self {
            Self::Chat(decoder) => &mut decoder.reply,
            Self::Responses(decoder) => &mut decoder.reply,
            Self::Anthropic(decoder) => &mut decoder.reply,
        }
    }
}

/// All events of one whole body: the entry point of fuzzing, goldens and benches.
pub fn decode_all(dialect: Dialect, quirks: &Quirks, body: &[u8]) -> Vec<ModelEvent> {
    let mut decoder = Decoder::new(dialect, quirks);
    let mut events = Vec::new();
    decoder.feed(body, &mut events);
    decoder.finish(&mut events);
    events
}

#[cfg(test)]
mod tests {
    use super::Dialect;

    /// A dialect that `ALL` leaves out could not be named in a configuration.
    #[test]
    fn every_dialect_is_listed() {
        let source = include_str!("mod.rs");
        let (_, list) = source.split_once("pub enum Dialect {").unwrap_or_default();
        let (list, _) = list.split_once("\n}").unwrap_or_default();
        let names: Vec<&str> = list
            .lines()
            .map(|line| line.trim().trim_end_matches(','))
            .filter(|line| line.starts_with(char::is_uppercase))
            .collect();
        let listed: Vec<String> = Dialect::ALL
            .iter()
            .map(|dialect| format!("{dialect:?}"))
            .collect();
        assert_eq!(listed, names);
    }
}
