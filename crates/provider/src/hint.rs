//! Advice for the user after a failure, naming the exact variable or line.

use std::net::IpAddr;
use std::time::Duration;

use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, ModelError};

/// The code of a failure to connect: nothing was sent.
pub(crate) const NOT_CONNECTED: &str = "not_connected";

/// The code of an answer that is not HTTP, or of none on a connection that was made.
pub(crate) const NOT_UNDERSTOOD: &str = "not_understood";

/// The hint for `error` of a request for `model` to `endpoint`.
pub fn hint(error: &ModelError, endpoint: &Endpoint, model: &str) -> Option<String> {
    let name = &endpoint.name;
    let section = format!("[providers.{name}]");
    let url = endpoint.shown_url();
    let code = error.code.as_deref();
    Some(match error.kind {
        ErrorKind::Auth => auth(endpoint, &section),
        ErrorKind::Quota => {
            format!("your {name} account is out of credit: add credit, or set another `model`")
        }
        ErrorKind::RateLimit => format!(
            "rate limited by {name}: wait{}, or add a second model to `fallbacks`",
            waiting(error.retry_after)
        ),
        ErrorKind::Overloaded | ErrorKind::ServerError => format!(
            "{name} is having problems: try again later, or add a second model to `fallbacks`"
        ),
        ErrorKind::ContextLength => format!(
            "the conversation no longer fits the context window of `{model}`: start a new session, or set `context_window` under [providers.{name}.models.\"{model}\"] if the built-in value is wrong"
        ),
        ErrorKind::BadRequest if error.is_unknown_model() => format!(
            "{name} does not know the model `{model}`: check the part after `{name}/` in `model`; `agent models` lists the configured ones"
        ),
        ErrorKind::BadRequest => bad_request(error, endpoint, &section),
        ErrorKind::Timeout if code == Some(NOT_CONNECTED) => format!(
            "connecting to {url} timed out: check the network, the proxy variables and `base_url` under {section}, or raise `connect_timeout_ms` there"
        ),
        ErrorKind::Timeout => format!(
            "raise `first_byte_timeout_ms` or `idle_timeout_ms` under {section} if the model is just slow"
        ),
        ErrorKind::Network if code == Some(NOT_UNDERSTOOD) => format!(
            "the server at {url} is not a model server: check `base_url` under {section}, and whether it should begin with https://"
        ),
        ErrorKind::Network => network(endpoint, &section),
        ErrorKind::Tls => tls(error, &url),
        ErrorKind::Malformed => {
            format!("is {url} a model server? Check `base_url` and `dialect` under {section}")
        }
        ErrorKind::Unsupported => format!(
            "`{model}` at {name} does not support this request: set a `model` that can call tools"
        ),
        ErrorKind::StreamInterrupted => format!(
            "the connection to {url} keeps dropping: check your network or proxy, or raise `max_attempts` under {section}"
        ),
        ErrorKind::MalformedToolCall => format!(
            "`{model}` wrote a tool call that {name} rejects: set another `model` if this happens often"
        ),
        ErrorKind::Refused => format!(
            "{name} declined the content, and a retry would not help: rephrase it, or set another `model`"
        ),
        ErrorKind::Unknown => format!(
            "the message is the server's: check `base_url` and `dialect` under {section}, and `model`"
        ),
        ErrorKind::Cancelled => return None,
    })
}

/// Wait that the server asked for, in words, if it is long enough to notice.
fn waiting(time: Option<Duration>) -> String {
    let Some(seconds) = time.map(|time| time.as_secs()).filter(|time| *time > 0) else {
        return String::new();
    };
    match seconds {
        0..120 => format!(" {seconds} seconds as requested"),
        120..7_200 => format!(" {} minutes as requested", seconds.div_ceil(60)),
        _ => format!(" {} hours as requested", seconds.div_ceil(3_600)),
    }
}

fn auth(endpoint: &Endpoint, section: &str) -> String {
    let name = &endpoint.name;
    match (endpoint.key.is_some(), endpoint.key_variable.as_deref()) {
        (false, Some(variable)) => {
            format!("no key was sent: set {variable}, or `api_key_env` under {section}")
        }
        (false, None) => format!("no key was sent: set `api_key_env` under {section}"),
        (true, Some(variable)) => format!(
            "the key from {variable} was not accepted: check that it belongs to {name} and is still valid"
        ),
        (true, None) => format!(
            "the key was not accepted: check `api_key_env`, `api_key_file` or `api_key_cmd` under {section}"
        ),
    }
}

fn bad_request(error: &ModelError, endpoint: &Endpoint, section: &str) -> String {
    match error.http_status {
        Some(300..=399) => format!(
            "the address has moved, and keys are not sent to a redirect: set the new `base_url` under {section}"
        ),
        Some(404 | 405 | 501) => format!(
            "{} takes no model requests: check `base_url` under {section} (it usually ends in /v1) and `dialect`",
            crate::endpoint::without_secrets(&endpoint.url())
        ),
        _ => format!(
            "the server rejected the request: if it uses another API or a variant of it, set `dialect` or `quirks` under {section}"
        ),
    }
}

fn tls(error: &ModelError, url: &str) -> String {
    let mut hint = format!(
        "the certificate of {url} is not trusted: if a proxy inspects TLS, add its certificate to the system's store (or SSL_CERT_FILE)"
    );
    if error.message.contains("CaUsedAsEndEntity") {
        hint.push_str(
            "; a CA certificate (CA:TRUE) is not accepted as a server's own, even if it is in that store: make one with `openssl req -x509 … -addext basicConstraints=critical,CA:FALSE`",
        );
    }
    hint
}

fn network(endpoint: &Endpoint, section: &str) -> String {
    let url = endpoint.shown_url();
    if !is_loopback(&endpoint.base_url) {
        return format!(
            "cannot reach {url}: check the network, the proxy variables and `base_url` under {section}"
        );
    }
    let start = match endpoint.quirks.name {
        "ollama" => "start it with `ollama serve`",
        "llamacpp" => "start it with `llama-server -m MODEL.gguf --jinja`",
        "lmstudio" => "start it with `lms server start`",
        "vllm" => "start it with `vllm serve MODEL --enable-auto-tool-choice`",
        _ => "start the server",
    };
    format!("nothing is listening at {url}: {start}, or set `base_url` under {section}")
}

/// True if a URL points at this machine.
pub(crate) fn is_loopback(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let name = match host.strip_prefix('[') {
        Some(literal) => literal.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_certificate_gets_its_own_hint() {
        let hint = |message: &str| tls(&ModelError::new(ErrorKind::Tls, message), "https://h/v1");
        let plain = hint("invalid peer certificate: UnknownIssuer");
        let authority = hint("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))");
        assert!(plain.contains("SSL_CERT_FILE") && !plain.contains("CA:TRUE"));
        assert!(authority.starts_with(&plain) && authority.contains("CA:FALSE"));
    }

    #[test]
    fn waits_are_written_in_units_people_use() {
        let waiting_for = |seconds| waiting(Some(Duration::from_secs(seconds)));
        assert_eq!(waiting(None), "");
        assert_eq!(waiting_for(0), "");
        assert_eq!(waiting_for(30), " 30 seconds as requested");
        assert_eq!(waiting_for(601), " 11 minutes as requested");
        assert_eq!(waiting_for(86_400), " 24 hours as requested");
    }

    #[test]
    fn loopback_urls_are_recognised() {
        for url in [
            "http://localhost:1/v1",
            "http://127.0.0.1",
            "http://127.3.2.1:9",
            "http://me:pw@[::1]:8080/v1",
        ] {
            assert!(is_loopback(url), "{url}");
        }
        for url in [
            "http://127.0.0.1.example.com/v1",
            "http://localhost.example.com",
            "http://10.0.0.1",
            "https://api.openai.com/v1",
        ] {
            assert!(!is_loopback(url), "{url}");
        }
    }
}
