//! Error answers, read. Servers agree on little: a status, a body that is JSON in one of five shapes, sometimes an error
//! inside a stream that began with status 200. [`classify`] reads all of them. The words it looks
//! for are data, in `CODE_WORDS` and `MESSAGE_WORDS`.

use std::time::Duration;

use serde_json::Value;

use crate::error::{ErrorKind, MESSAGE_CAP, ModelError, escape_bounded};

/// The most characters of a web page's words that are kept.
const PAGE_CAP: usize = 200;

/// Reads an error answer: `status` is absent for an error inside a running stream.
pub fn classify(status: Option<u16>, body: &[u8]) -> ModelError {
    // Gateways that had begun to stream send their error as an event, whatever the status.
    let text = body.trim_ascii_start();
    let event = text
        .strip_prefix(b"data:")
        .map(|rest| rest.split(|byte| *byte == b'\n').next().unwrap_or(rest));
    let parsed: Option<Value> = serde_json::from_slice(event.unwrap_or(body)).ok();
    let fields = match &parsed {
        Some(value) => ErrorBody::from_json(value),
        None => match web_page(body) {
            Some(message) => ErrorBody {
                message,
                ..ErrorBody::default()
            },
            None => ErrorBody::from_text(body),
        },
    };
    classify_fields(status, fields)
}

/// Text of a web page: proxies and gateways in front of the model server answer with such pages.
fn web_page(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(&body[..body.len().min(16 * MESSAGE_CAP)]);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let is_page = ["<!doctype html", "<html"].iter().any(|start| {
        text.get(..start.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(start))
    });
    if !is_page {
        return None;
    }
    let mut words = String::new();
    let mut rest = text;
    while let Some((before, tag)) = rest.split_once('<') {
        words.push_str(before);
        words.push(' ');
        // What these two hold is for programs, and ends with their own end only.
        let hidden = ["style", "script"].into_iter().find(|name| {
            tag.get(..name.len())
                .is_some_and(|head| head.eq_ignore_ascii_case(name))
        });
        let inside = hidden.map_or(tag, |name| {
            let end = format!("</{name}");
            let at = tag.to_ascii_lowercase().find(&end);
            at.map_or("", |at| &tag[at..])
        });
        rest = inside.split_once('>').map_or("", |(_, after)| after);
    }
    words.push_str(rest);
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let words: String = words.chars().take(PAGE_CAP).collect();
    Some(format!(
        "the server sent a web page instead of a response: {words}"
    ))
}

/// Like [`classify`], for an error object that was already parsed out of a stream.
pub fn classify_value(value: &Value) -> ModelError {
    classify_fields(None, ErrorBody::from_json(value))
}

/// True if a JSON document gives a reason, in one of the forms [`classify`] reads.
pub(crate) fn gives_reason(value: &Value) -> bool {
    !ErrorBody::from_json(value).message.is_empty()
}

fn classify_fields(status: Option<u16>, fields: ErrorBody) -> ModelError {
    // A stream that began with 200 carries the status it would have had inside the error.
    let status = status.or(fields.status);
    let kind = kind_of(status, &fields);
    let message = if fields.message.is_empty() {
        status.map_or_else(
            || "the server gave no reason".to_owned(),
            |status| format!("the server returned status {status} without a reason"),
        )
    } else {
        fields.message
    };
    let mut error = ModelError::new(kind, message);
    error.http_status = status;
    error.code = fields.code.map(|code| escape_bounded(&code));
    error.request_id = fields.request_id.map(|id| escape_bounded(&id));
    error.retry_after = fields.retry_after;
    error
}

/// Words in a server's own code or type, most telling first.
const CODE_WORDS: &[(&str, ErrorKind)] = &[
    ("context_length", ErrorKind::ContextLength),
    ("exceed_context_size", ErrorKind::ContextLength),
    ("too_many_tokens", ErrorKind::ContextLength),
    ("request_too_large", ErrorKind::ContextLength),
    ("string_above_max_length", ErrorKind::ContextLength),
    ("prompt_tokens_exceeded", ErrorKind::ContextLength),
    ("insufficient_quota", ErrorKind::Quota),
    ("billing", ErrorKind::Quota),
    ("tool_use_failed", ErrorKind::MalformedToolCall),
    ("content_filter", ErrorKind::Refused),
    ("content_policy", ErrorKind::Refused),
    ("invalid_api_key", ErrorKind::Auth),
    ("authentication", ErrorKind::Auth),
    ("unauthenticated", ErrorKind::Auth),
    ("permission", ErrorKind::Auth),
    ("rate_limit", ErrorKind::RateLimit),
    ("ratelimit", ErrorKind::RateLimit),
    ("throttling", ErrorKind::RateLimit),
    ("resource_exhausted", ErrorKind::RateLimit),
    ("overloaded", ErrorKind::Overloaded),
    ("server_is_overloaded", ErrorKind::Overloaded),
    ("timeout", ErrorKind::Timeout),
    ("server_error", ErrorKind::ServerError),
    ("api_error", ErrorKind::ServerError),
    ("internal", ErrorKind::ServerError),
];

/// Words in a server's message, looked for when its code says nothing useful.
const MESSAGE_WORDS: &[(&str, ErrorKind)] = &[
    // OpenAI, DeepSeek, Mistral, vLLM, OpenRouter, Ollama, LM Studio.
    ("context length", ErrorKind::ContextLength),
    ("context window", ErrorKind::ContextLength),
    ("context overflow", ErrorKind::ContextLength),
    // llama.cpp.
    ("context size", ErrorKind::ContextLength),
    // Anthropic.
    ("exceed context limit", ErrorKind::ContextLength),
    ("prompt is too long", ErrorKind::ContextLength),
    ("prompt too long", ErrorKind::ContextLength),
    // Gemini.
    ("input token count", ErrorKind::ContextLength),
    // xAI, vLLM.
    ("maximum prompt length", ErrorKind::ContextLength),
    ("maximum model length", ErrorKind::ContextLength),
    // Bedrock, Cohere, Copilot, Moonshot, Zhipu, DashScope, TGI.
    ("input is too long", ErrorKind::ContextLength),
    ("too many tokens: size limit", ErrorKind::ContextLength),
    ("prompt token count", ErrorKind::ContextLength),
    ("exceeded model token limit", ErrorKind::ContextLength),
    ("prompt exceeds max length", ErrorKind::ContextLength),
    ("range of input length should be", ErrorKind::ContextLength),
    ("max_new_tokens must be <=", ErrorKind::ContextLength),
    ("max_new_tokens` must be <=", ErrorKind::ContextLength),
    // Groq, Cerebras, OpenAI.
    ("reduce the length", ErrorKind::ContextLength),
    ("credit balance", ErrorKind::Quota),
    ("insufficient credits", ErrorKind::Quota),
    ("insufficient balance", ErrorKind::Quota),
    ("incorrect api key", ErrorKind::Auth),
    ("invalid api key", ErrorKind::Auth),
    ("api key not valid", ErrorKind::Auth),
    ("unauthorized", ErrorKind::Auth),
    ("not authenticated", ErrorKind::Auth),
    ("authentication token", ErrorKind::Auth),
    ("overloaded", ErrorKind::Overloaded),
    ("at capacity", ErrorKind::Overloaded),
    ("rate limit", ErrorKind::RateLimit),
    ("rate-limited", ErrorKind::RateLimit),
    ("too many requests", ErrorKind::RateLimit),
    ("too many tokens, please wait", ErrorKind::RateLimit),
    ("does not support tools", ErrorKind::Unsupported),
    ("does not support image", ErrorKind::Unsupported),
    ("tool use is not supported", ErrorKind::Unsupported),
    ("tool calling is not supported", ErrorKind::Unsupported),
    ("not supported by this model", ErrorKind::Unsupported),
];

fn kind_of(status: Option<u16>, fields: &ErrorBody) -> ErrorKind {
    let code = fields
        .code
        .as_deref()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let message = fields.message.to_ascii_lowercase();
    let by_message = || find_word(MESSAGE_WORDS, &message);
    // A type such as `invalid_request_error` is put on everything, so the message goes first there.
    let by_code = || {
        find_word(CODE_WORDS, &code)
            .or_else(|| find_word(CODE_WORDS, &fields.kind.to_ascii_lowercase()))
    };
    match status {
        Some(401 | 403) => match by_code() {
            Some(kind @ (ErrorKind::Quota | ErrorKind::Refused)) => kind,
            _ => ErrorKind::Auth,
        },
        Some(402) => ErrorKind::Quota,
        Some(408 | 504) => ErrorKind::Timeout,
        Some(413) => ErrorKind::ContextLength,
        Some(429) => match by_code() {
            Some(kind @ (ErrorKind::Quota | ErrorKind::Overloaded)) => kind,
            _ => match by_message() {
                Some(ErrorKind::Quota) => ErrorKind::Quota,
                _ => ErrorKind::RateLimit,
            },
        },
        // The server does not know this kind of request, and will not know it in a second either.
        Some(501 | 505) => by_message().unwrap_or(ErrorKind::BadRequest),
        Some(529) => ErrorKind::Overloaded,
        Some(503) => ErrorKind::Overloaded,
        Some(409 | 500..=599) => match by_message() {
            Some(
                kind @ (ErrorKind::Overloaded | ErrorKind::ContextLength | ErrorKind::RateLimit),
            ) => kind,
            _ => ErrorKind::ServerError,
        },
        Some(status) if (400..500).contains(&status) => by_message()
            .or_else(by_code)
            .unwrap_or(ErrorKind::BadRequest),
        Some(300..=399) => ErrorKind::BadRequest,
        _ => by_code()
            .or_else(by_message)
            .unwrap_or(if fields.kind.contains("invalid_request") {
                ErrorKind::BadRequest
            } else {
                ErrorKind::Unknown
            }),
    }
}

fn find_word(words: &[(&str, ErrorKind)], text: &str) -> Option<ErrorKind> {
    words
        .iter()
        .find(|(word, _)| text.contains(word))
        .map(|(_, kind)| *kind)
}

/// Fields of an error body, whatever its shape.
#[derive(Debug, Default)]
struct ErrorBody {
    message: String,
    code: Option<String>,
    kind: String,
    status: Option<u16>,
    request_id: Option<String>,
    retry_after: Option<Duration>,
}

impl ErrorBody {
    fn from_text(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&body[..body.len().min(4 * MESSAGE_CAP)]);
        Self {
            message: text.trim().to_owned(),
            ..Self::default()
        }
    }

    fn from_json(value: &Value) -> Self {
        // Some gateways wrap the object in a list.
        let value = value
            .as_array()
            .and_then(|list| list.first())
            .unwrap_or(value);
        let error = value
            .get("error")
            .filter(|error| !error.is_null())
            .unwrap_or(value);
        let mut fields = Self {
            request_id: string_at(value, "request_id"),
            ..Self::default()
        };
        fields.message = match error {
            Value::String(text) => text.clone(),
            _ => ["message", "detail", "error_description", "error"]
                .iter()
                .find_map(|key| text_of(error.get(key).or_else(|| value.get(key))?))
                .unwrap_or_default(),
        };
        if let Some(raw) = error.pointer("/metadata/raw").and_then(Value::as_str) {
            fields.message = format!("{}: {raw}", fields.message);
        }
        fields.kind = string_at(error, "type")
            .or_else(|| string_at(error, "error_type"))
            .or_else(|| string_at(error, "status"))
            .unwrap_or_default();
        let code = error
            .get("code")
            .or_else(|| value.get("code"))
            .or_else(|| error.get("status_code"));
        match code {
            Some(Value::String(text)) => fields.code = Some(text.clone()),
            Some(Value::Number(number)) => {
                fields.status = number
                    .as_u64()
                    .and_then(|n| u16::try_from(n).ok())
                    .filter(|n| (100..600).contains(n))
            }
            _ => {}
        }
        if fields.status.is_none() {
            fields.status = error
                .get("status_code")
                .and_then(Value::as_u64)
                .and_then(|n| u16::try_from(n).ok())
                .filter(|n| (100..600).contains(n));
        }
        if fields.code.is_none() && !fields.kind.is_empty() {
            fields.code = Some(fields.kind.clone());
        }
        fields.retry_after = retry_detail(error).or_else(|| delay_in_text(&fields.message));
        fields
    }
}

fn string_at(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Object(map) => map.get("message").and_then(text_of),
        Value::Array(list) => list
            .first()
            .and_then(|first| text_of(first.get("msg").unwrap_or(first))),
        _ => None,
    }
}

/// Google's `RetryInfo`: `{"retryDelay": "48s"}` somewhere in `details`.
fn retry_detail(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let delay = details
        .iter()
        .find_map(|detail| detail.get("retryDelay")?.as_str())?;
    parse_delay(delay)
}

/// `Please try again in 18.642s`, `retry in 644ms`.
fn delay_in_text(message: &str) -> Option<Duration> {
    let lower = message.to_ascii_lowercase();
    let start = ["try again in ", "retry in "]
        .iter()
        .find_map(|words| lower.find(words).map(|at| at + words.len()))?;
    let word: String = lower[start..]
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || *c == '.')
        .collect();
    parse_delay(word.trim_end_matches('.'))
}

/// `18.642s`, `644ms`, `1m30s`, `6m0s`, `2h`.
pub(crate) fn parse_delay(text: &str) -> Option<Duration> {
    let mut total = 0.0_f64;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit_end = rest[digits..]
            .find(|c: char| c.is_ascii_digit())
            .map_or(rest.len(), |at| digits + at);
        total += number
            * match &rest[digits..unit_end] {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3_600.0,
                _ => return None,
            };
        rest = &rest[unit_end..];
    }
    Duration::try_from_secs_f64(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, body: &str, kind: ErrorKind, message_has: &str) -> ModelError {
        let error = classify(Some(status), body.as_bytes());
        assert_eq!(error.kind, kind, "{body}");
        assert!(
            error.message.contains(message_has),
            "{:?} lacks {message_has:?}",
            error.message
        );
        error
    }

    #[test]
    fn every_shape_of_body_is_read() {
        check(
            401,
            r#"{"error":{"message":"Incorrect API key provided: x","type":"invalid_request_error","code":"invalid_api_key"}}"#,
            ErrorKind::Auth,
            "Incorrect",
        );
        check(
            401,
            r#"{"detail":"Invalid API Key"}"#,
            ErrorKind::Auth,
            "Invalid API Key",
        );
        check(
            400,
            r#"{"code":"invalid-argument","error":"Incorrect API key provided."}"#,
            ErrorKind::Auth,
            "Incorrect",
        );
        check(
            400,
            r#"{"error_type":"TOO_MANY_TOKENS","message":"too many tokens: size limit exceeded by 1 tokens"}"#,
            ErrorKind::ContextLength,
            "size limit",
        );
        check(
            422,
            r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#,
            ErrorKind::BadRequest,
            "field required",
        );
        let page = "<!DOCTYPE html>\n<html><head><title>502</title><STYLE>p > a {color: red}</STYLE></head><body class=\"<x\"><h1>Bad  gateway</h1><script>if (1<2) go()</script></body></html>";
        let error = check(502, page, ErrorKind::ServerError, "Bad gateway");
        assert_eq!(
            error.message,
            "the server sent a web page instead of a response: 502 Bad gateway"
        );
        check(503, "<html", ErrorKind::Overloaded, "a web page");
        check(500, "", ErrorKind::ServerError, "status 500");
        let event = "data: {\"error\": {\"message\": \"Error at start\", \"code\": \"500\"}}\n\ndata: [DONE]\n\n";
        let error = check(500, event, ErrorKind::ServerError, "Error at start");
        assert_eq!(error.message, "Error at start");
        check(
            404,
            r#"[{"error":{"code":404,"message":"no such model","status":"NOT_FOUND"}}]"#,
            ErrorKind::BadRequest,
            "no such model",
        );
    }

    #[test]
    fn limits_are_told_apart() {
        let error = check(
            429,
            r#"{"error":{"message":"Rate limit reached for m on tokens per min. Please try again in 18.642s. Visit","type":"tokens","code":"rate_limit_exceeded"}}"#,
            ErrorKind::RateLimit,
            "Rate limit",
        );
        assert_eq!(error.retry_after, Some(Duration::from_millis(18_642)));
        assert!(error.retryable);
        let error = check(
            429,
            r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#,
            ErrorKind::Quota,
            "quota",
        );
        assert!(!error.retryable);
        let error = check(
            429,
            r#"{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"48s"}]}}"#,
            ErrorKind::RateLimit,
            "quota",
        );
        assert_eq!(error.retry_after, Some(Duration::from_secs(48)));
        check(
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            ErrorKind::Overloaded,
            "Overloaded",
        );
        check(
            400,
            r#"{"error":{"message":"Your credit balance is too low","type":"invalid_request_error"}}"#,
            ErrorKind::Quota,
            "credit",
        );
    }

    /// Words of each vendor for a conversation that is too long.
    #[test]
    fn a_full_window_is_recognised_in_every_vendors_words() {
        for message in [
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
            "Your input exceeds the context window of this model.",
            "prompt is too long: 210000 tokens > 200000 maximum",
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            "the request exceeds the available context size. try increasing the context size",
            "Prompt contains 33000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            "Please reduce the length of the messages or completion.",
            "The decoder prompt (length 50000) is longer than the maximum model length of 32768.",
            "Input is too long for requested model.",
            "Your request exceeded model token limit: 8192",
            "prompt token count of 140000 exceeds the limit of 128000",
            "The number of tokens to keep from the initial prompt is greater than the context length.",
            "input length exceeds the context length",
            "Prompt exceeds max length",
            "Range of input length should be [1, 129024]",
            "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens",
        ] {
            let body =
                serde_json::json!({"error": {"message": message, "type": "invalid_request_error"}});
            check(400, &body.to_string(), ErrorKind::ContextLength, message);
        }
        for message in [
            "max_tokens is too large: 200000. This model supports at most 16384 completion tokens",
            "max_tokens: 20000 > 8192, which is the maximum allowed number of output tokens",
            "temperature is not supported",
        ] {
            let body =
                serde_json::json!({"error": {"message": message, "type": "invalid_request_error"}});
            check(400, &body.to_string(), ErrorKind::BadRequest, message);
        }
    }

    #[test]
    fn an_unknown_model_is_told_in_every_vendors_words() {
        for (status, message) in [
            (
                404,
                "The model `m` does not exist or you do not have access to it.",
            ),
            (404, "model: claude-sonet-4-5"),
            (404, "models/m is not found for API version v1beta"),
            (400, "m is not a valid model ID"),
            (400, "Invalid model: m"),
            (400, "Model Not Exist"),
            (
                400,
                "Invalid model name passed in model=m. Call `/v1/models` to view available models.",
            ),
            (404, "model 'm' not found, try pulling it first"),
            (400, "Unknown Model, please check the model code."),
        ] {
            let body = serde_json::json!({"error": {"message": message}});
            let error = check(status, &body.to_string(), ErrorKind::BadRequest, message);
            assert!(
                error.is_unknown_model() && error.another_may_help(),
                "{message}"
            );
        }
        let error = check(
            400,
            r#"{"error":{"message":"bad tools"}}"#,
            ErrorKind::BadRequest,
            "bad",
        );
        assert!(!error.is_unknown_model() && !error.another_may_help());
    }

    #[test]
    fn a_server_that_does_not_know_the_request_is_not_asked_again() {
        let page = "<html><h1>Unsupported method ('POST')</h1></html>";
        let error = check(501, page, ErrorKind::BadRequest, "Unsupported method");
        assert!(!error.retryable);
    }

    #[test]
    fn an_error_inside_a_stream_brings_its_own_status() {
        let error = classify(None, br#"{"error":{"message":"Tool call validation failed","code":"tool_use_failed","status_code":400}}"#);
        assert_eq!(
            (error.kind, error.http_status),
            (ErrorKind::MalformedToolCall, Some(400))
        );
        let error = classify(None, br#"{"type":"error","error":{"details":null,"type":"overloaded_error","message":"Overloaded"} }"#);
        assert_eq!((error.kind, error.retryable), (ErrorKind::Overloaded, true));
        let error = classify(None, br#"{"type":"tokens","code":"rate_limit_exceeded","message":"Please try again in 644ms."}"#);
        assert_eq!(
            (error.kind, error.retry_after),
            (ErrorKind::RateLimit, Some(Duration::from_millis(644)))
        );
    }

    #[test]
    fn foreign_text_is_bounded_and_made_visible() {
        let error = classify(
            Some(500),
            format!("\u{1b}[31m{}\u{202e}", "x".repeat(5_000)).as_bytes(),
        );
        assert!(error.message.starts_with("\\x1b[31mxx"));
        assert!(error.message.chars().count() < MESSAGE_CAP + 20);
    }

    #[test]
    fn delays_in_every_unit() {
        assert_eq!(parse_delay("6m0s"), Some(Duration::from_secs(360)));
        assert_eq!(
            parse_delay("1h2m3.5s"),
            Some(Duration::from_millis(3_723_500))
        );
        assert_eq!(parse_delay("soon"), None);
        assert_eq!(parse_delay(""), None);
    }
}
