//! The wire formats: for each an encoder (request → bytes) and a decoder (bytes → events), both
//! pure. Start with [`openai_chat`]; the others differ in shape, not in kind.

pub mod anthropic;
pub mod openai_chat;
pub mod openai_responses;
mod reply;
pub mod scripted;

use crate::conversation::ModelRequest;
use crate::error::{ErrorKind, ModelError, classify};
use crate::event::ModelEvent;
use crate::quirks::Quirks;
use crate::sse::{EVENT_CAP, EventTooLarge, SseDecoder, SseEvent};

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

    /// The path below the base URL that takes requests.
    pub fn path(self) -> &'static str {
        match self {
            Self::OpenAiChat => "/chat/completions",
            Self::OpenAiResponses => "/responses",
            Self::AnthropicMessages => "/v1/messages",
            Self::Scripted => "",
        }
    }
}

/// The body of `request` in `dialect`. The same request always gives the same bytes, and a longer
/// conversation begins with those of the shorter one (Anthropic's cache marks apart, which move
/// along and do not count), so that prompt caches hold.
pub fn encode(dialect: Dialect, request: &ModelRequest, quirks: &Quirks) -> Vec<u8> {
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
}

#[derive(Debug)]
enum Payloads {
    Chat(openai_chat::ChatDecoder),
    Responses(openai_responses::ResponsesDecoder),
    Anthropic(anthropic::AnthropicDecoder),
}

/// What the body turned out to be.
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
        }
    }

    /// Takes the next bytes of the body and appends what they say to `events`.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<ModelEvent>) {
        if let Form::Unknown = self.form
            && let Some(first) = bytes.iter().find(|byte| !byte.is_ascii_whitespace())
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
                let bytes = if document.is_empty() {
                    bytes.trim_ascii_start()
                } else {
                    bytes
                };
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
                    let page = "the server answered with a web page, not with a model response";
                    // The same page would come again.
                    let error = ModelError::new(ErrorKind::Malformed, page);
                    self.payloads.fail(
                        ModelError {
                            retryable: false,
                            ..error
                        },
                        events,
                    );
                } else {
                    self.payloads.take(
                        SseEvent {
                            name: b"",
                            data: &document,
                        },
                        events,
                    );
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
            }
        }
        self.payloads.end(events);
    }

    /// Whether `Stopped` or `Error` has been said; nothing comes after it.
    pub fn is_done(&mut self) -> bool {
        self.payloads.reply().is_done()
    }
}

impl Payloads {
    fn take(&mut self, event: SseEvent<'_>, events: &mut Vec<ModelEvent>) {
        if self.reply().is_done() || event.data.trim_ascii().is_empty() {
            return;
        }
        let mut taken = self.take_payload(event.data, events);
        if taken.is_err()
            && let Some(repaired) = replace_lone_surrogates(event.data)
        {
            taken = self.take_payload(&repaired, events);
        }
        if let Err(error) = taken {
            // An error event need not be JSON of the dialect's own shape.
            let error = if event.name == b"error" {
                classify(None, event.data)
            } else if self.reply().at_end {
                ModelError::new(
                    ErrorKind::StreamInterrupted,
                    "the response ended in the middle of an event",
                )
            } else {
                ModelError::new(
                    ErrorKind::Malformed,
                    format!("the server sent an event that is not valid: {error}"),
                )
            };
            self.fail(error, events);
        }
    }

    fn take_payload(
        &mut self,
        data: &[u8],
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), serde_json::Error> {
        match self {
            Self::Chat(decoder) => decoder.take(data, events),
            Self::Responses(decoder) => decoder.take(data, events),
            Self::Anthropic(decoder) => decoder.take(data, events),
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

/// Servers that cut text by UTF-16 units send half a pair as `\\ud83d`, which is not valid JSON.
/// Gives the payload with such halves replaced, or `None` when there are none.
fn replace_lone_surrogates(data: &[u8]) -> Option<Vec<u8>> {
    let unit = |at: usize| {
        let hex = data.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
    };
    let mut repaired = data.to_vec();
    let mut found = false;
    let mut at = 0;
    while let Some(step) = memchr::memchr(b'\\', &data[at..]) {
        at += step;
        match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => at += 12,
            (Some(0xd800..=0xdfff), _) => {
                repaired[at..at + 6].copy_from_slice(b"\\ufffd");
                found = true;
                at += 6;
            }
            _ => at = (at + 2).min(data.len()),
        }
    }
    found.then_some(repaired)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(data: &str, expected: Option<&str>) {
        let repaired =
            replace_lone_surrogates(data.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(repaired.as_deref(), expected, "{data}");
    }

    #[test]
    fn halves_of_surrogate_pairs_are_replaced_and_pairs_kept() {
        check(r#""a\ud83d""#, Some(r#""a\ufffd""#));
        check(r#""\ude00b""#, Some(r#""\ufffdb""#));
        check(r#""\ud83d\ude00""#, None);
        check(r#""\\ud83d""#, None);
        check(r#""\ud83d\ud83d\ude00""#, Some(r#""\ufffd\ud83d\ude00""#));
        check(r#""\"#, None);
    }

    #[test]
    fn a_text_cut_inside_a_pair_is_still_read() {
        let stream = "data: {\"id\":\"x\",\"choices\":[{\"delta\":{\"content\":\"hi \\ud83d\"}}]}\n\ndata: [DONE]\n\n";
        let events = decode_all(
            Dialect::OpenAiChat,
            &crate::quirks::GENERIC,
            stream.as_bytes(),
        );
        assert!(
            events.contains(&ModelEvent::TextDelta {
                text: "hi \u{fffd}".to_owned()
            }),
            "{events:?}"
        );
    }
}
