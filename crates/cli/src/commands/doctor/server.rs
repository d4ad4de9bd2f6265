//! The server of the model: if it is there, takes the key and knows the model.

use std::time::{Duration, Instant};

use agent_provider::{Message, ModelRef, ModelRequest, Reached, Signal, UserPart};
use agent_runtime::{models, reach};
use tokio_util::sync::CancellationToken;

use super::Check;
use crate::app::App;
use crate::config::Config;
use crate::failure::Failure;

/// Time the server has to list its models. It is asked once.
const PATIENCE: Duration = Duration::from_secs(5);

/// The least that every dialect accepts as a limit of the answer.
const ONLINE_TOKENS: u32 = 16;

/// The server of the model that is set, asked for its models; nothing for a model that needs none.
pub(super) fn server(app: &App, config: &Config, asked: &ModelRef, offline: bool) -> Option<Check> {
    const NAME: &str = "server";
    let own = config.providers.get(&asked.provider);
    if own.is_some_and(|own| own.config().transcript.is_some()) {
        return None;
    }
    let found = reach::at_hand(app, config, &asked.provider).ok()?;
    let url = found.provider.endpoint().shown_url();
    if offline {
        return Some(Check::warning(
            NAME,
            format!("{url} was not contacted"),
            "without `--offline`, it is asked for its list of models",
        ));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let section = format!("[providers.{}]", asked.provider);
    let key = match &found.key_variable {
        Some(variable) => format!("the key in {variable}"),
        None => "the key".to_owned(),
    };
    Some(
        match runtime.block_on(found.provider.list_models(PATIENCE)) {
            Err(error) => Check::failed(
                NAME,
                format!("no answer from {url}: {}", error.message),
                error.hint.unwrap_or_else(|| {
                    format!("start the server, or fix `base_url` under {section}")
                }),
            ),
            Ok(Reached::Unauthorised(status)) if found.key_command => Check::warning(
                NAME,
                format!(
                    "{url} answers and wants a key (HTTP {status}); the command for it was not run"
                ),
                "`agent doctor --online` runs it and sends a tiny request",
            ),
            Ok(Reached::Unauthorised(status)) if found.has_key => Check::failed(
                NAME,
                format!("{url} refuses {key} (HTTP {status})"),
                "check that the key is whole and belongs to this service",
            ),
            Ok(Reached::Unauthorised(status)) => Check::failed(
                NAME,
                format!("{url} wants a key (HTTP {status})"),
                format!(
                    "set `api_key_env` under {section}, or `agent config key {}`",
                    asked.provider
                ),
            ),
            Ok(Reached::Listed(models)) if lists(&models, &asked.model) => {
                Check::ok(NAME, format!("{url} answers and lists `{}`", asked.model))
            }
            Ok(Reached::Listed(models)) if models.is_empty() => {
                Check::ok(NAME, format!("{url} answers; its list of models is empty"))
            }
            Ok(Reached::Listed(models)) => {
                let near = agent_text::nearest(&asked.model, models.iter().map(String::as_str));
                let hint = match near {
                    Some(near) => format!("did you mean `{}/{near}`?", asked.provider),
                    None => format!(
                        "it lists {} others; some servers do not list all",
                        models.len()
                    ),
                };
                let message = format!("{url} answers but does not list `{}`", asked.model);
                Check::warning(NAME, message, hint)
            }
            Ok(Reached::Answered(status @ 500..)) => Check::warning(
                NAME,
                format!("{url} answers with an error (HTTP {status})"),
                "try again later; `agent doctor --online` sends a tiny request",
            ),
            // Many servers have no list.
            Ok(Reached::Answered(_)) => Check::ok(NAME, format!("{url} answers")),
        },
    )
}

/// Servers put folders before a name, and a version behind it.
fn lists(models: &[String], asked: &str) -> bool {
    models.iter().any(|listed| {
        let bare = listed.strip_prefix("models/").unwrap_or(listed);
        bare == asked || bare.strip_suffix(":latest") == Some(asked)
    })
}

/// Asks the model for a word. One attempt: a finding now is worth more than a success later.
pub(super) fn online(app: &App, config: &Config) -> Check {
    const NAME: &str = "online";
    let chosen = models::choose(app, config).map_err(Failure::from);
    let chosen = chosen.and_then(|chosen| {
        let first = chosen.models.into_iter().next();
        first.ok_or_else(|| Failure::usage("no usable model"))
    });
    let model = match chosen {
        Ok(model) => model,
        Err(failure) => {
            let message = format!("no request was sent: {:#}", failure.error);
            return Check::failed(NAME, message, failure.hints.join("; "));
        }
    };
    let request = ModelRequest {
        model: model.settings.model.clone(),
        messages: vec![
            Message::User(vec![UserPart::Text("Answer with the word ok.".to_owned())]).into(),
        ],
        max_output_tokens: Some(ONLINE_TOKENS),
        ..ModelRequest::default()
    };
    let name = format!("`{}/{}`", model.provider.name(), request.model);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            return Check::failed(
                NAME,
                format!(
                    "no request was sent to {name}: \
            {error}"
                ),
                "",
            );
        }
    };
    let cancel = CancellationToken::new();
    let (stop, mut first_error) = (cancel.clone(), None);
    let begin = Instant::now();
    let answer = runtime.block_on(model.provider.exchange(&request, &cancel, &mut |signal| {
        if let Signal::AttemptFailed { error, .. } = signal {
            first_error.get_or_insert(error);
            stop.cancel();
        }
    }));
    match answer {
        Ok(_) => {
            let took = begin.elapsed().as_millis();
            Check::ok(NAME, format!("{name} answered after {took} ms"))
        }
        Err(last) => {
            let error = first_error.unwrap_or(last);
            let status = error
                .http_status
                .map_or_else(String::new, |status| format!(", HTTP {status}"));
            let message = format!(
                "{name} did not answer ({}{status}): {}",
                error.kind.as_str(),
                error.message
            );
            Check::failed(NAME, message, error.hint.unwrap_or_default())
        }
    }
}
