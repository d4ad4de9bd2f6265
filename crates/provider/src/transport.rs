//! Sends encoded requests over HTTP and feeds the answers to a decoder; tries again where that can
//! help. All waiting is in here, and all of it ends: by time, by count or by cancellation.

mod reach;

use std::error::Error as _;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::conversation::ModelRequest;
use crate::dialect::anthropic::{BINDING_CONTROLS, binds_thinking};
use crate::dialect::{Decoder, Dialect, encode};
use crate::endpoint::{Endpoint, without_secrets};
use crate::error::{ErrorKind, ModelError, classify, escape_bounded};
use crate::event::ModelEvent;
use crate::hint::{NOT_CONNECTED, NOT_UNDERSTOOD, hint, is_loopback};
use crate::limits::RateLimits;
use crate::provider::{Provider, Signal};
use crate::response::{Response, ResponseBuilder};

pub use reach::Reached;

/// Number of idle timeouts for which a server may keep the connection alive without data.
const MOST_SILENCE: u32 = 4;

/// The most bytes of an error answer that are read.
const ERROR_BODY_CAP: usize = 64 * 1024;

/// An endpoint that cannot be used as it is configured. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The base URL is not one.
    #[error("`base_url` of [providers.{provider}] is not an http or https address: `{url}`")]
    Url {
        /// The provider.
        provider: String,
        /// Configured URL.
        url: String,
    },
    /// A header cannot be sent.
    #[error("the header `{header}` of [providers.{provider}] has characters that cannot be sent")]
    Header {
        /// The provider.
        provider: String,
        /// The header's name.
        header: String,
    },
    /// The key has characters that no key has.
    #[error("the key of [providers.{provider}] has characters that cannot be sent")]
    Key {
        /// The provider.
        provider: String,
    },
}

/// A model endpoint reached over HTTP.
#[derive(Debug)]
pub struct HttpProvider {
    endpoint: Endpoint,
    url: reqwest::Url,
    headers: HeaderMap,
    /// Built when first used: reading the system's certificates takes longer than our start-up.
    client: OnceLock<Result<reqwest::Client, ModelError>>,
}

impl HttpProvider {
    /// Checks the endpoint without contacting it.
    pub fn new(endpoint: Endpoint) -> Result<Self, EndpointError> {
        let usable = |text: &str| {
            reqwest::Url::parse(text)
                .ok()
                .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        };
        let url = usable(&endpoint.base_url)
            .and_then(|_| usable(&endpoint.url()))
            .ok_or_else(|| EndpointError::Url {
                provider: endpoint.name.clone(),
                url: endpoint.shown_url(),
            })?;
        let headers = headers(&endpoint)?;
        Ok(Self {
            endpoint,
            url,
            headers,
            client: OnceLock::new(),
        })
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Builds the HTTP client now. A caller that has other things to do meanwhile can call this on
    /// another thread; otherwise the first request does it.
    pub fn prepare(&self) {
        let _ = self.client();
    }

    fn client(&self) -> Result<&reqwest::Client, ModelError> {
        self.client
            .get_or_init(|| build_client(&self.endpoint, &self.url))
            .as_ref()
            .map_err(Clone::clone)
    }

    async fn attempts(
        &self,
        request: &ModelRequest,
        cancel: &CancellationToken,
        observe: &mut (dyn FnMut(Signal) + Send),
    ) -> Result<Response, ModelError> {
        let body = Bytes::from(encode(self.endpoint.dialect, request, self.endpoint.quirks));
        let body_sha256 = agent_text::sha256_hex(&body);
        let is_bound =
            self.endpoint.dialect == Dialect::AnthropicMessages && binds_thinking(&request.model);
        let beta = is_bound.then_some(BINDING_CONTROLS);
        let begin = Instant::now();
        let mut attempt = 0;
        loop {
            attempt += 1;
            if cancel.is_cancelled() {
                return Err(cancelled());
            }
            observe(Signal::AttemptStarted {
                attempt,
                body: body.clone(),
                body_sha256: body_sha256.clone(),
            });
            // Dropping the unfinished attempt closes its connection.
            let outcome = match cancel
                .run_until_cancelled(self.attempt(attempt, &body, beta, observe))
                .await
            {
                Some(outcome) => outcome,
                None => Err(cancelled()),
            };
            let mut error = match outcome {
                Ok(mut response) => {
                    response.attempts = attempt;
                    return Ok(response);
                }
                Err(error) => error,
            };
            self.censor(&mut error);
            error.hint = hint(&error, &self.endpoint, &request.model);
            let retry_in = if error.retryable {
                self.endpoint
                    .retry
                    .pause(attempt, error.retry_after, begin.elapsed())
            } else {
                None
            };
            observe(Signal::AttemptFailed {
                attempt,
                error: error.clone(),
                retry_in,
                max_attempts: self.endpoint.retry.max_attempts,
            });
            let Some(pause) = retry_in else {
                return Err(error);
            };
            if cancel
                .run_until_cancelled(tokio::time::sleep(pause))
                .await
                .is_none()
            {
                return Err(cancelled());
            }
        }
    }

    async fn attempt(
        &self,
        attempt: u32,
        body: &Bytes,
        beta: Option<&'static str>,
        observe: &mut (dyn FnMut(Signal) + Send),
    ) -> Result<Response, ModelError> {
        let mut headers = self.headers.clone();
        if let Some(beta) = beta {
            headers.append("anthropic-beta", HeaderValue::from_static(beta));
        }
        let request = self
            .client()?
            .post(self.url.clone())
            .headers(headers)
            .body(body.clone());
        let response = match timeout(self.endpoint.timeouts.first_byte, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(connection_error(&error)),
            Err(_) => return Err(slow("no response", self.endpoint.timeouts.first_byte)),
        };
        let status = response.status().as_u16();
        let header = |name: &str| {
            response
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        let request_id = [
            "x-request-id",
            "request-id",
            "x-amzn-requestid",
            "x-litellm-call-id",
        ]
        .iter()
        .find_map(|name| header(name).filter(|id| !id.trim().is_empty()))
        .map(escape_bounded);
        let now = self.endpoint.retry.now.as_ref().map(|now| now());
        let limits = RateLimits::from_headers(header, now);
        let encoding = header("content-encoding").map(escape_bounded);
        let location = header("location").map(str::to_owned);
        observe(Signal::Answered {
            attempt,
            http_status: Some(status),
            request_id: request_id.clone(),
            limits: limits.clone(),
        });
        let is_answer = (200..300).contains(&status);
        let outcome =
            if let Some(encoding) = encoding.filter(|word| is_answer && word != "identity") {
                // What was asked for is decoded by now, and its header gone.
                Err(ModelError {
                    retryable: false,
                    ..ModelError::new(
                        ErrorKind::Malformed,
                        format!("the response is encoded as `{encoding}`, which was not requested"),
                    )
                })
            } else if is_answer {
                self.read(response, observe).await
            } else {
                Err(self.read_error(response, location).await)
            };
        match outcome {
            Ok(mut whole) => {
                whole.request_id = request_id.or_else(|| whole.response_id.clone());
                Ok(whole)
            }
            Err(mut error) => {
                error.http_status = error.http_status.or(Some(status));
                error.request_id = request_id.or(error.request_id);
                error.retry_after = limits.wait().filter(|_| !is_answer).or(error.retry_after);
                if !is_answer {
                    error.retryable = limits.should_retry.unwrap_or(error.retryable);
                }
                Err(error)
            }
        }
    }

    async fn read(
        &self,
        response: reqwest::Response,
        observe: &mut (dyn FnMut(Signal) + Send),
    ) -> Result<Response, ModelError> {
        let mut decoder = Decoder::new(self.endpoint.dialect, self.endpoint.quirks);
        let mut builder = ResponseBuilder::new();
        let mut events = Vec::new();
        let mut body = response.bytes_stream();
        let idle = self.endpoint.timeouts.idle;
        let mut spoke = Instant::now();
        let broken = loop {
            if decoder.is_done() {
                break None;
            }
            let limit = if decoder.is_stopping() {
                idle.min(self.endpoint.timeouts.last_words)
            } else {
                idle
            };
            match timeout(limit, body.next()).await {
                Ok(Some(Ok(bytes))) => {
                    decoder.feed(&bytes, &mut events);
                    if !events.is_empty() {
                        spoke = Instant::now();
                    } else if spoke.elapsed() > idle.saturating_mul(MOST_SILENCE) {
                        break Some(slow("nothing but keep-alives", spoke.elapsed()));
                    }
                    pass_on(&mut events, &mut builder, observe);
                }
                Ok(Some(Err(error))) => break Some(interrupted(&error)),
                Ok(None) => break None,
                Err(_) => break Some(slow("no more of the response", limit)),
            }
        };
        if decoder.is_done() {
            // What is left is the end of the transfer; reading it keeps the connection for the
            // next request.
            tokio::spawn(async move {
                timeout(Duration::from_secs(1), async {
                    while body.next().await.is_some() {}
                })
                .await
            });
        } else {
            decoder.finish(&mut events);
            pass_on(&mut events, &mut builder, observe);
        }
        match builder.build() {
            Some(Ok(response)) => Ok(response),
            Some(Err(error)) => Err(broken.unwrap_or(error)),
            None => Err(broken.unwrap_or_else(|| {
                ModelError::new(ErrorKind::StreamInterrupted, "the response has no end")
            })),
        }
    }

    async fn read_error(
        &self,
        response: reqwest::Response,
        location: Option<String>,
    ) -> ModelError {
        let status = response.status().as_u16();
        let body = read_bounded(response.bytes_stream(), self.endpoint.timeouts.idle).await;
        let mut error = classify(Some(status), &body);
        if let Some(location) = location.filter(|_| (300..400).contains(&status)) {
            // What follows the path is the server's own affair and may let its finder in.
            let target = without_secrets(&location);
            error.message = escape_bounded(&format!("the server redirects to {target}"));
        }
        error
    }

    /// Servers like to repeat the key they refuse.
    fn censor(&self, error: &mut ModelError) {
        let headers = self.endpoint.headers.iter().map(|(_, value)| value);
        let secrets = self.endpoint.key.iter().chain(headers);
        for secret in secrets
            .map(ExposeSecret::expose_secret)
            // The key of a header is not all of it: `Bearer` and such go before it.
            .flat_map(|secret| std::iter::once(secret).chain(secret.split_whitespace()))
            .filter(|secret| secret.len() >= 8)
        {
            let fields = [
                Some(&mut error.message),
                error.code.as_mut(),
                error.request_id.as_mut(),
            ];
            for field in fields
                .into_iter()
                .flatten()
                .filter(|field| field.contains(secret))
            {
                *field = field.replace(secret, "[key]");
            }
        }
    }
}

impl Provider for HttpProvider {
    fn name(&self) -> &str {
        &self.endpoint.name
    }

    fn dialect(&self) -> Dialect {
        self.endpoint.dialect
    }

    fn exchange<'a>(
        &'a self,
        request: &'a ModelRequest,
        cancel: &'a CancellationToken,
        observe: &'a mut (dyn FnMut(Signal) + Send),
    ) -> BoxFuture<'a, Result<Response, ModelError>> {
        Box::pin(self.attempts(request, cancel, observe))
    }
}

/// Hands events to the caller. An error is not one of them: the end of the attempt reports it.
fn pass_on(
    events: &mut Vec<ModelEvent>,
    builder: &mut ResponseBuilder,
    observe: &mut (dyn FnMut(Signal) + Send),
) {
    for event in events.drain(..) {
        builder.push(&event);
        if !matches!(event, ModelEvent::Error(_)) {
            observe(Signal::Event(event));
        }
    }
}

async fn read_bounded<B: AsRef<[u8]>>(
    body: impl Stream<Item = reqwest::Result<B>>,
    idle: Duration,
) -> Vec<u8> {
    let mut body = std::pin::pin!(body);
    let mut bytes = Vec::new();
    while let Ok(Some(Ok(piece))) = timeout(idle, body.next()).await {
        bytes.extend_from_slice(piece.as_ref());
        if bytes.len() >= ERROR_BODY_CAP {
            bytes.truncate(ERROR_BODY_CAP);
            break;
        }
    }
    bytes
}

fn build_client(endpoint: &Endpoint, url: &reqwest::Url) -> Result<reqwest::Client, ModelError> {
    // Fails only when another provider was installed before, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .connect_timeout(endpoint.timeouts.connect)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("agent/", env!("CARGO_PKG_VERSION")));
    if url.scheme() == "http" {
        builder = builder.tls_certs_only([]);
    }
    if is_loopback(&endpoint.base_url) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| ModelError {
        retryable: false,
        ..ModelError::new(
            ErrorKind::Tls,
            format!("the HTTP client could not be built: {}", chain(&error)),
        )
    })
}

fn headers(endpoint: &Endpoint) -> Result<HeaderMap, EndpointError> {
    let mut map = HeaderMap::new();
    map.insert("content-type", HeaderValue::from_static("application/json"));
    map.insert("accept", HeaderValue::from_static("text/event-stream"));
    if endpoint.dialect == Dialect::AnthropicMessages {
        map.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    }
    if let Some(key) = &endpoint.key {
        let (name, text) = match endpoint.dialect {
            Dialect::AnthropicMessages => ("x-api-key", key.expose_secret().to_owned()),
            _ => ("authorization", format!("Bearer {}", key.expose_secret())),
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| EndpointError::Key {
            provider: endpoint.name.clone(),
        })?;
        value.set_sensitive(true);
        map.insert(name, value);
    }
    for (name, value) in &endpoint.headers {
        let refused = || EndpointError::Header {
            provider: endpoint.name.clone(),
            header: name.clone(),
        };
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
        let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| refused())?;
        value.set_sensitive(true);
        map.insert(header, value);
    }
    Ok(map)
}

fn cancelled() -> ModelError {
    ModelError::new(ErrorKind::Cancelled, "cancelled by the caller")
}

fn slow(what: &str, limit: Duration) -> ModelError {
    ModelError::new(
        ErrorKind::Timeout,
        format!("{what} arrived within {limit:?}"),
    )
}

fn interrupted(error: &reqwest::Error) -> ModelError {
    ModelError::new(
        ErrorKind::StreamInterrupted,
        format!(
            "the connection dropped in the middle of the response: {}",
            chain(error)
        ),
    )
}

/// Sorts failures before the status line: the network, its protection, or a peer that speaks
/// something else.
fn connection_error(error: &reqwest::Error) -> ModelError {
    let tls = error.source().is_some_and(is_tls);
    let kind = if tls {
        ErrorKind::Tls
    } else if error.is_timeout() {
        ErrorKind::Timeout
    } else {
        ErrorKind::Network
    };
    let code = match kind {
        ErrorKind::Tls => None,
        _ if error.is_connect() => Some(NOT_CONNECTED.to_owned()),
        _ => Some(NOT_UNDERSTOOD.to_owned()),
    };
    ModelError {
        code,
        ..ModelError::new(kind, chain(error))
    }
}

/// True if TLS is among the causes. I/O errors hide what they wrap from `source`.
fn is_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let wrapped = error
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref);
    error.is::<rustls::Error>()
        || wrapped.is_some_and(|inner| is_tls(inner))
        || error.source().is_some_and(is_tls)
}

/// The causes of an error in one line. The address is ours and is left out: it may carry a secret.
fn chain(error: &reqwest::Error) -> String {
    let mut parts = Vec::new();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !parts.iter().any(|part: &String| part.contains(&text)) {
            parts.push(text);
        }
        source = cause.source();
    }
    if parts.is_empty() {
        "the request could not be sent".to_owned()
    } else {
        parts.join(": ")
    }
}
