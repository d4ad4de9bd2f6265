//! What the user can do about a failure, naming the exact variable or line.

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
        ErrorKind::Quota => format!(
            "the account at {name} has nothing left: add credit there, or set another `model`"
        ),
        ErrorKind::RateLimit => format!(
            "rate limited by {name}: wait{}, or list a second model under `fallbacks`",
            waiting(error.retry_after)
        ),
        ErrorKind::Overloaded | ErrorKind::ServerError => format!(
            "{name} has a problem of its own: try again later, or list a second model under `fallbacks`"
        ),
        ErrorKind::ContextLength => format!(
            "the conversation is larger than the window of `{model}`: start a new session, or set `context_window` under [providers.{name}.models.\"{model}\"] if the built-in value is wrong"
        ),
        ErrorKind::BadRequest if error.is_unknown_model() => format!(
            "{name} does not know the model `{model}`: check the part after `{name}/` in `model`; `agent models` lists what is configured"
        ),
        ErrorKind::BadRequest => bad_request(error, endpoint, &section),
        ErrorKind::Timeout if code == Some(NOT_CONNECTED) => format!(
            "no connection to {url} was made in time: check the network, the proxy variables and `base_url` under {section}, or raise `connect_timeout_ms` there"
        ),
        ErrorKind::Timeout => format!(
            "raise `first_byte_timeout_ms` or `idle_timeout_ms` under {section} if the model is only slow"
        ),
        ErrorKind::Network if code == Some(NOT_UNDERSTOOD) => format!(
            "something answers at {url}, but not as a model server does: check `base_url` under {section}, and whether it has to begin with https://"
        ),
        ErrorKind::Network => network(endpoint, &section),
        ErrorKind::Tls => tls(error, &url),
        ErrorKind::Malformed => {
            format!("is {url} a model server? Check `base_url` and `dialect` under {section}")
        }
        ErrorKind::Unsupported => format!(
            "`{model}` at {name} cannot do what was asked: set a `model` that can call tools"
        ),
        ErrorKind::StreamInterrupted => format!(
            "the connection to {url} keeps dropping: check your network or proxy, or raise `max_attempts` under {section}"
        ),
        ErrorKind::MalformedToolCall => format!(
            "`{model}` does not write tool calls as {name} wants them: set another `model` if it happens often"
        ),
        ErrorKind::Refused => format!(
            "{name} declined the content, which another attempt does not change: say it in other words, or set another `model`"
        ),
        ErrorKind::Unknown => format!(
            "this is the server's own message: check `base_url` and `dialect` under {section}, and `model`"
        ),
        ErrorKind::Cancelled => return None,
    })
}

/// How long the server wants to be left alone, where it said so and that can be felt.
fn waiting(time: Option<Duration>) -> String {
    let Some(seconds) = time.map(|time| time.as_secs()).filter(|time| *time > 0) else {
        return String::new();
    };
    match seconds {
        0..120 => format!(" {seconds} seconds, as it asks"),
        120..7_200 => format!(" {} minutes, as it asks", seconds.div_ceil(60)),
        _ => format!(" {} hours, as it asks", seconds.div_ceil(3_600)),
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
            "the address moved and keys are not sent after it: set the new `base_url` under {section}"
        ),
        Some(404 | 405 | 501) => format!(
            "nothing takes requests at {}: check `base_url` under {section} (it usually ends in /v1) and `dialect`",
            crate::endpoint::without_secrets(&endpoint.url())
        ),
        _ => format!(
            "the server did not accept the request: if it speaks another form or a variant of it, set `dialect` or `quirks` under {section}"
        ),
    }
}

fn tls(error: &ModelError, url: &str) -> String {
    let mut hint = format!(
        "the certificate of {url} is not trusted here: a proxy that looks into TLS needs its certificate in the system's store (or SSL_CERT_FILE)"
    );
    if error.message.contains("CaUsedAsEndEntity") {
        hint.push_str(
            "; a certificate that is an authority (CA:TRUE) is not taken from a server, also when it is named there: make one with `openssl req -x509 … -addext basicConstraints=critical,CA:FALSE`",
        );
    }
    hint
}

fn network(endpoint: &Endpoint, section: &str) -> String {
    let url = endpoint.shown_url();
    if !is_loopback(&endpoint.base_url) {
        return format!(
            "{url} could not be reached: check the network, the proxy variables and `base_url` under {section}"
        );
    }
    let start = match endpoint.quirks.name {
        "ollama" => "start it with `ollama serve`",
        "llamacpp" => "start it with `llama-server -m MODEL.gguf --jinja`",
        "lmstudio" => "start it with `lms server start`",
        "vllm" => "start it with `vllm serve MODEL --enable-auto-tool-choice`",
        _ => "start the server",
    };
    format!("nothing listens at {url}: {start}, or set `base_url` under {section}")
}

/// Whether a URL points at this machine.
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
    fn a_certificate_that_is_an_authority_is_told_apart() {
        let hint = |message: &str| tls(&ModelError::new(ErrorKind::Tls, message), "https://h/v1");
        let plain = hint("invalid peer certificate: UnknownIssuer");
        let authority = hint("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))");
        assert!(plain.contains("SSL_CERT_FILE") && !plain.contains("authority"));
        assert!(authority.starts_with(&plain) && authority.contains("CA:FALSE"));
    }

    #[test]
    fn a_wait_is_told_in_units_people_use() {
        let told = |seconds| waiting(Some(Duration::from_secs(seconds)));
        assert_eq!(waiting(None), "");
        assert_eq!(told(0), "");
        assert_eq!(told(30), " 30 seconds, as it asks");
        assert_eq!(told(601), " 11 minutes, as it asks");
        assert_eq!(told(86_400), " 24 hours, as it asks");
    }

    #[test]
    fn this_machine_is_told_from_others() {
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
