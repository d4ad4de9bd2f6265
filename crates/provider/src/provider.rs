//! The seam between the turn loop and whatever answers it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::conversation::ModelRequest;
use crate::dialect::Dialect;
use crate::error::ModelError;
use crate::event::ModelEvent;
use crate::limits::RateLimits;
use crate::response::Response;

/// Something that answers model requests: an HTTP endpoint, or a transcript.
pub trait Provider: Send + Sync {
    /// The provider's name in the configuration.
    fn name(&self) -> &str;

    /// The wire format it speaks.
    fn dialect(&self) -> Dialect;

    /// Sends `request` and waits for the whole answer, trying again where that can help.
    ///
    /// `observe` is called for every step, in order and before the step has an effect: a caller
    /// that writes `AttemptStarted` to its log has it on disk before a byte is sent. Cancelling
    /// closes the connection at once and gives [`ErrorKind::Cancelled`].
    ///
    /// [`ErrorKind::Cancelled`]: crate::error::ErrorKind::Cancelled
    fn exchange<'a>(
        &'a self,
        request: &'a ModelRequest,
        cancel: &'a CancellationToken,
        observe: &'a mut (dyn FnMut(Signal) + Send),
    ) -> BoxFuture<'a, Result<Response, ModelError>>;
}

/// A step of an exchange.
#[derive(Debug, Clone, PartialEq)]
pub enum Signal {
    /// A request is about to go out.
    AttemptStarted {
        /// Counted from 1.
        attempt: u32,
        /// The body, byte for byte as it will be sent.
        body: Bytes,
        /// Its SHA-256, lower-case hex.
        body_sha256: String,
    },
    /// The server's status and headers arrived.
    Answered {
        /// Number of the attempt.
        attempt: u32,
        /// The HTTP status; absent where there is no HTTP.
        http_status: Option<u16>,
        /// The provider's id of the request, from the headers.
        request_id: Option<String>,
        /// Limits from the headers.
        limits: RateLimits,
    },
    /// The model said something. Never `ModelEvent::Error`: that is `AttemptFailed`.
    Event(ModelEvent),
    /// The attempt failed. What its events said is void; when `retry_in` is set, the next attempt
    /// follows after that time.
    AttemptFailed {
        /// Number of the attempt.
        attempt: u32,
        /// Error of the attempt.
        error: ModelError,
        /// Time until the next attempt, if there is one.
        retry_in: Option<Duration>,
        /// Most attempts that are made.
        max_attempts: u32,
    },
}
