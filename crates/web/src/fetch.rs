//! The request and its answer. All waiting is in here, and all of it ends: by time, by size or by being stopped.

use std::error::Error as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use agent_policy::{WebAddress, private_kind};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::{Client, Response, StatusCode};
use tokio::sync::Notify;

use crate::error::FetchError;
use crate::resolve::{Resolver, SystemResolver};

/// How much is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of an answer, unpacked.
    pub bytes: usize,
    /// For everything together.
    pub time: Duration,
    /// How often the same host may lead on.
    pub redirects: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 5 << 20,
            time: Duration::from_secs(30),
            redirects: 5,
        }
    }
}

/// The machines that may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Those on the open internet.
    Public,
    /// Also this one and those of its network: somebody allowed exactly this host.
    Private,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Where it was in the end.
    pub address: WebAddress,
    /// The addresses that led there.
    pub redirects: Vec<String>,
    /// Another place that the page is said to be at; nobody was asked there.
    pub elsewhere: Option<WebAddress>,
    /// The machine that answered; not known of one behind a proxy.
    pub machine: Option<IpAddr>,
    pub status: u16,
    /// As it was declared, in lower case, without parameters.
    pub media_type: Option<String>,
    /// As it was declared.
    pub charset: Option<String>,
    /// The content, unpacked.
    pub bytes: Vec<u8>,
}

/// Fetches pages, one connection for each.
#[derive(Clone)]
pub struct Fetcher {
    resolver: Arc<dyn Resolver>,
    limits: Limits,
}

impl Default for Fetcher {
    fn default() -> Self {
        Self::new(Arc::new(SystemResolver), Limits::default())
    }
}

impl Fetcher {
    #[must_use]
    pub fn new(resolver: Arc<dyn Resolver>, limits: Limits) -> Self {
        Self { resolver, limits }
    }

    /// Asks for a page and waits for all of it. `when_stopped` is given what stops it, to be called from anywhere.
    ///
    /// # Errors
    /// When there is no whole answer.
    pub fn fetch(
        &self,
        address: &WebAddress,
        reach: Reach,
        when_stopped: impl FnOnce(Box<dyn FnOnce() + Send>),
    ) -> Result<Page, FetchError> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build();
        let runtime = runtime.map_err(|error| FetchError::NotStarted {
            reason: error.to_string(),
        })?;
        let stop = Arc::new(Notify::new());
        let stopper = Arc::clone(&stop);
        when_stopped(Box::new(move || stopper.notify_one()));
        let time = self.limits.time;
        let page = runtime.block_on(async {
            tokio::select! {
                biased;
                () = stop.notified() => Err(FetchError::Stopped),
                page = tokio::time::timeout(time, self.follow(address, reach)) => page.unwrap_or({
                    Err(FetchError::Timeout { seconds: time.as_secs() })
                }),
            }
        });
        // A name that is still looked up cannot be stopped; its thread is left to end by itself.
        runtime.shutdown_background();
        page
    }

    /// Goes where the host itself leads on to.
    async fn follow(&self, address: &WebAddress, reach: Reach) -> Result<Page, FetchError> {
        let mut address = address.clone();
        let mut redirects = Vec::new();
        loop {
            let (response, machine) = self.ask(&address, reach).await?;
            let elsewhere = match target(&response, &address)? {
                Some(next) if is_same_place(&address, &next) => {
                    if redirects.len() >= self.limits.redirects {
                        return Err(FetchError::TooManyRedirects {
                            origin: address.origin(),
                            limit: self.limits.redirects,
                        });
                    }
                    redirects.push(address.url().to_string());
                    address = next;
                    continue;
                }
                elsewhere => elsewhere,
            };
            let (media_type, charset) = content_type(&response);
            return Ok(Page {
                machine,
                status: response.status().as_u16(),
                media_type,
                charset,
                // What else a redirect says is for nobody.
                bytes: match elsewhere {
                    Some(_) => Vec::new(),
                    None => self.content(response, &address).await?,
                },
                address,
                redirects,
                elsewhere,
            });
        }
    }

    /// Asks exactly this address, and says which machine answered.
    async fn ask(
        &self,
        address: &WebAddress,
        reach: Reach,
    ) -> Result<(Response, Option<IpAddr>), FetchError> {
        // Fails only when another provider was installed before, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .user_agent(concat!("agent/", env!("CARGO_PKG_VERSION")));
        if address.url().scheme() == "http" {
            // Reading the system's certificates takes a while.
            builder = builder.tls_certs_only([]);
        }
        let proxied = is_proxied(address);
        if !proxied {
            builder = builder.no_proxy();
        }
        if let Some(ip) = address.ip() {
            check(address.host(), ip, reach)?;
        } else {
            match self.machines(address.host()).await {
                Ok(machines) => {
                    for ip in &machines {
                        check(address.host(), *ip, reach)?;
                    }
                    let machines: Vec<SocketAddr> = machines
                        .into_iter()
                        .map(|ip| SocketAddr::new(ip, 0))
                        .collect();
                    builder = builder.resolve_to_addrs(address.host(), &machines);
                }
                // The proxy knows names that nobody here does.
                Err(_) if proxied => {}
                Err(error) => return Err(error),
            }
        }
        let client = builder.build().map_err(|error| FetchError::NotStarted {
            reason: chain(&error),
        })?;
        let request = client.get(address.url().clone()).header(
            ACCEPT,
            "text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.5",
        );
        let response = request.send().await;
        let response = response.map_err(|error| FetchError::Unreachable {
            origin: address.origin(),
            reason: chain(&error),
        })?;
        let machine = response.remote_addr().filter(|_| !proxied);
        Ok((response, machine.map(|machine| machine.ip())))
    }

    async fn machines(&self, host: &str) -> Result<Vec<IpAddr>, FetchError> {
        let (resolver, name) = (Arc::clone(&self.resolver), host.to_owned());
        let found = tokio::task::spawn_blocking(move || resolver.resolve(&name)).await;
        let reason = match found {
            Ok(Ok(found)) if !found.is_empty() => return Ok(found),
            Ok(Ok(_)) => "it has no address".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        let host = host.to_owned();
        Err(FetchError::Unresolved { host, reason })
    }

    async fn content(
        &self,
        mut response: Response,
        address: &WebAddress,
    ) -> Result<Vec<u8>, FetchError> {
        let limit = self.limits.bytes;
        let mut bytes = Vec::new();
        loop {
            let piece = response.chunk().await;
            let piece = piece.map_err(|error| FetchError::BrokeOff {
                origin: address.origin(),
                reason: chain(&error),
            })?;
            let Some(piece) = piece else {
                return Ok(bytes);
            };
            if bytes.len() + piece.len() > limit {
                let origin = address.origin();
                return Err(FetchError::TooLarge { origin, limit });
            }
            bytes.extend_from_slice(&piece);
        }
    }
}

fn check(host: &str, ip: IpAddr, reach: Reach) -> Result<(), FetchError> {
    match private_kind(ip) {
        Some(kind) if reach == Reach::Public => Err(FetchError::Private {
            host: host.to_owned(),
            ip,
            kind,
        }),
        _ => Ok(()),
    }
}

/// True if the environment names a proxy for this address. It is asked as the model endpoints are.
fn is_proxied(address: &WebAddress) -> bool {
    let uri = address.url().as_str().parse::<http::Uri>();
    uri.is_ok_and(|uri| Matcher::from_system().intercept(&uri).is_some())
}

/// The address that an answer leads on to.
fn target(response: &Response, address: &WebAddress) -> Result<Option<WebAddress>, FetchError> {
    let leads_on = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let location = response.headers().get(LOCATION).filter(|_| leads_on);
    let Some(location) = location else {
        return Ok(None);
    };
    let location = String::from_utf8_lossy(location.as_bytes());
    let target = address.join(&location);
    let target = target.map_err(|problem| FetchError::BadRedirect {
        origin: address.origin(),
        problem,
    })?;
    Ok(Some(target))
}

/// True if whoever allowed the one address allowed the other: the same host at the same port, and never from protected
/// to unprotected.
fn is_same_place(from: &WebAddress, to: &WebAddress) -> bool {
    let is_upgrade = (from.port(), to.port()) == (80, 443) && from.host() == to.host();
    from.origin() == to.origin()
        || is_upgrade && (from.url().scheme(), to.url().scheme()) == ("http", "https")
}

/// The declared type in lower case, and the declared encoding.
fn content_type(response: &Response) -> (Option<String>, Option<String>) {
    let declared = response.headers().get(CONTENT_TYPE);
    let Some(declared) = declared.and_then(|value| value.to_str().ok()) else {
        return (None, None);
    };
    let mut parts = declared.split(';').map(str::trim);
    let kind = parts.next().filter(|kind| !kind.is_empty());
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        let value = value.trim().trim_matches('"').to_owned();
        name.trim().eq_ignore_ascii_case("charset").then_some(value)
    });
    (kind.map(str::to_ascii_lowercase), charset)
}

/// The causes of an error in one line, without the address.
fn chain(error: &reqwest::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !parts.iter().any(|part| part.contains(&text)) {
            parts.push(text);
        }
        source = cause.source();
    }
    match parts.is_empty() {
        true => "the request could not be sent".to_owned(),
        false => parts.join(": "),
    }
}
