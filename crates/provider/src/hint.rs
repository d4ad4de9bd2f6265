//! What the user can do about a failure, naming the exact variable or line.

use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, ModelError};

/// The hint for `error` of a request for `model` to `endpoint`.
pub fn hint(error: &ModelError, endpoint: &Endpoint, model: &str) -> Option<String> {
    let name = &endpoint.name;
    let section = format!("[providers.{name}]");
    let variable = endpoint.key_variable.as_deref();
    Some(match error.kind {
        ErrorKind::Auth if endpoint.key.is_none() => match variable {
            Some(variable) => {
                format!("no key was sent: set {variable}, or `api_key_env` under {section}")
            }
            None => format!("no key was sent: set `api_key_env` under {section}"),
        },
        ErrorKind::Auth => match variable {
            Some(variable) => format!(
                "the key from {variable} was not accepted: check that it belongs to {name} and is still valid"
            ),
            None => format!(
                "the key was not accepted: check `api_key_env`, `api_key_file` or `api_key_cmd` under {section}"
            ),
        },
        ErrorKind::Quota => format!(
            "the account at {name} has nothing left: add credit there, or set another `model`"
        ),
        ErrorKind::RateLimit => format!(
            "{name} limits how much may be sent: wait, or list a second model under `fallbacks`"
        ),
        ErrorKind::Overloaded | ErrorKind::ServerError => format!(
            "{name} is in trouble itself: try again later, or list a second model under `fallbacks`"
        ),
        ErrorKind::ContextLength => format!(
            "the conversation is larger than the window of `{model}`: start a new session, or set `context_window` under [providers.{name}.models.\"{model}\"] if the built-in value is wrong"
        ),
        ErrorKind::BadRequest if is_unknown_model(error) => {
            format!(
                "{name} does not know the model `{model}`: check the part after `{name}/` in `model`; `agent models` lists what is configured"
            )
        }
        ErrorKind::BadRequest
            if error
                .http_status
                .is_some_and(|status| (300..400).contains(&status)) =>
        {
            format!(
                "the address moved and keys are not sent after it: set the new `base_url` under {section}"
            )
        }
        ErrorKind::BadRequest if error.http_status == Some(404) => {
            format!(
                "nothing answers at {}: check `base_url` under {section} (it usually ends in /v1) and `dialect`",
                endpoint.url()
            )
        }
        ErrorKind::BadRequest => return None,
        ErrorKind::Timeout => format!(
            "raise `first_byte_timeout_ms` or `idle_timeout_ms` under {section} if the model is only slow"
        ),
        ErrorKind::Network => network(endpoint, &section),
        ErrorKind::Tls => {
            format!(
                "the certificate of {} is not trusted here: a proxy that looks into TLS needs its certificate in the system's store (or SSL_CERT_FILE)",
                endpoint.base_url
            )
        }
        ErrorKind::Malformed => format!(
            "is {} a model server? Check `base_url` and `dialect` under {section}",
            endpoint.base_url
        ),
        ErrorKind::Unsupported => format!(
            "`{model}` at {name} cannot do what was asked: set a `model` that can call tools"
        ),
        ErrorKind::StreamInterrupted
        | ErrorKind::MalformedToolCall
        | ErrorKind::Refused
        | ErrorKind::Cancelled
        | ErrorKind::Unknown => return None,
    })
}

fn is_unknown_model(error: &ModelError) -> bool {
    let message = error.message.to_ascii_lowercase();
    let code = error.code.as_deref().unwrap_or_default();
    code == "model_not_found"
        || (error.http_status == Some(404) && message.contains("model"))
        || (message.contains("model") && message.contains("not found"))
}

fn network(endpoint: &Endpoint, section: &str) -> String {
    let url = &endpoint.base_url;
    if !is_loopback(url) {
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
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default();
    host.starts_with("127.")
        || host.starts_with("[::1]")
        || host == "localhost"
        || host.starts_with("localhost:")
}
