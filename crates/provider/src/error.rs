//! Errors of a model request, sorted into kinds a program can act on.

use std::time::Duration;

pub use crate::classify::{classify, classify_value};

/// The most characters of a server's message that are kept.
pub(crate) const MESSAGE_CAP: usize = 1_000;

/// The kind of a failure; the word of [`ErrorKind::as_str`] goes into logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The key is missing, wrong or not allowed to do this.
    Auth,
    /// Too many requests or tokens for now.
    RateLimit,
    /// The account has nothing left.
    Quota,
    /// The request does not fit into the model's window.
    ContextLength,
    /// The service has more to do than it can.
    Overloaded,
    /// The service failed.
    ServerError,
    /// The service did not accept the request.
    BadRequest,
    /// Nothing came in time.
    Timeout,
    /// The response stopped in the middle.
    StreamInterrupted,
    /// The response is not what the protocol says.
    Malformed,
    /// The service itself refused a tool call the model wrote.
    MalformedToolCall,
    /// The provider declined the content.
    Refused,
    /// The model or server cannot do what was asked (tools, images, streaming).
    Unsupported,
    /// No connection.
    Network,
    /// The connection could not be secured.
    Tls,
    /// The caller cancelled.
    Cancelled,
    /// None of the above.
    Unknown,
}

impl ErrorKind {
    /// The stable word for logs and programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::RateLimit => "rate_limit",
            Self::Quota => "quota",
            Self::ContextLength => "context_length",
            Self::Overloaded => "overloaded",
            Self::ServerError => "server_error",
            Self::BadRequest => "bad_request",
            Self::Timeout => "timeout",
            Self::StreamInterrupted => "stream_interrupted",
            Self::Malformed => "malformed",
            Self::MalformedToolCall => "malformed_tool_call",
            Self::Refused => "refused",
            Self::Unsupported => "unsupported",
            Self::Network => "network",
            Self::Tls => "tls",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }

    /// True if the same request may succeed a little later.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::RateLimit
                | Self::Overloaded
                | Self::ServerError
                | Self::Timeout
                | Self::StreamInterrupted
                | Self::Malformed
                | Self::MalformedToolCall
                | Self::Network
        )
    }
}

/// A model request that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model request failed ({}{}): {message}", .kind.as_str(), status_text(*.http_status))]
pub struct ModelError {
    /// Kind of failure.
    pub kind: ErrorKind,
    /// The HTTP status, when there was an answer.
    pub http_status: Option<u16>,
    /// True if the same request may succeed later.
    pub retryable: bool,
    /// The provider's id of the request, for its support.
    pub request_id: Option<String>,
    /// The server's own code, when it gave one.
    pub code: Option<String>,
    /// The server's own words (bounded, control characters escaped), or ours where it had none.
    pub message: String,
    /// Wait that the server asked for.
    pub retry_after: Option<Duration>,
    /// Advice for the user, naming the exact variable or line.
    pub hint: Option<String>,
}

fn status_text(status: Option<u16>) -> String {
    status.map_or_else(String::new, |status| format!(", HTTP {status}"))
}

impl ModelError {
    /// True if the server does not know the model, however it words that.
    pub fn is_unknown_model(&self) -> bool {
        let message = self.message.to_ascii_lowercase();
        let code = self.code.as_deref().unwrap_or_default();
        let unknown = [
            "not found",
            "not exist",
            "not a valid model",
            "invalid model",
            "unknown model",
            "no such model",
            "model not",
        ];
        self.kind == ErrorKind::BadRequest
            && (code == "model_not_found"
                || (message.contains("model")
                    && (self.http_status == Some(404)
                        || unknown.iter().any(|words| message.contains(words)))))
    }

    /// True if another model or another service could answer the same request.
    pub fn another_may_help(&self) -> bool {
        match self.kind {
            ErrorKind::Cancelled | ErrorKind::Refused => false,
            ErrorKind::BadRequest => self.http_status == Some(404) || self.is_unknown_model(),
            _ => true,
        }
    }

    /// A failure of our own finding, retryable when its kind is.
    pub fn new(kind: ErrorKind, message: impl AsRef<str>) -> Self {
        Self {
            kind,
            http_status: None,
            retryable: kind.is_transient(),
            request_id: None,
            code: None,
            message: escape_bounded(message.as_ref()),
            retry_after: None,
            hint: None,
        }
    }
}

/// Foreign text in one bounded line with everything hidden written out.
pub(crate) fn escape_bounded(text: &str) -> String {
    agent_text::visible_excerpt(&text.trim().replace(['\n', '\r'], " "), MESSAGE_CAP)
}
