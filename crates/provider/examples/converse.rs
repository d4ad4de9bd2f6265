//! One tool call and its answer against a real endpoint; used by `tests/real-servers`.
//!
//! `converse DIALECT BASE_URL MODEL [required] [key=KEY] [quirks=NAME] [attempts=N]` prints one line
//! per signal and exits 0 when a tool call came back and the server took its result.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example speaks to a person"
)]

use std::process::ExitCode;
use std::time::Duration;

use agent_provider::config::resolve_endpoint;
use agent_provider::{
    Dialect, HostCredentials, HttpProvider, Message, ModelError, ModelEvent, ModelRequest,
    Provider, ProviderConfig, Response, Signal, ToolChoice, ToolResult, ToolSpec, UserPart,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dialect, base_url, model, options @ ..] = arguments.as_slice() else {
        eprintln!(
            "usage: converse DIALECT BASE_URL MODEL [required] [key=KEY] [quirks=NAME] [attempts=N]"
        );
        return ExitCode::from(2);
    };
    let option = |name: &str| {
        options.iter().find_map(|option| {
            option
                .strip_prefix(name)?
                .strip_prefix('=')
                .map(str::to_owned)
        })
    };
    let config = ProviderConfig {
        dialect: Dialect::from_word(dialect),
        base_url: Some(base_url.clone()),
        quirks: option("quirks"),
        max_attempts: option("attempts").and_then(|text| text.parse().ok()),
        ..ProviderConfig::default()
    };
    let found = HostCredentials {
        key: option("key").map(|key| (key.into(), None)),
        ..HostCredentials::default()
    };
    let mut endpoint = match resolve_endpoint("real", Some(&config), found) {
        Ok(endpoint) => endpoint,
        Err(error) => return fail(&error),
    };
    endpoint.retry.cap = Duration::from_millis(200);
    let provider = match HttpProvider::new(endpoint) {
        Ok(provider) => provider,
        Err(error) => return fail(&error),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    let required = options.iter().any(|option| option == "required");
    match runtime.block_on(converse(&provider, model, required)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!(
                "error {error} (hint: {})",
                error.hint.as_deref().unwrap_or("-")
            );
            ExitCode::FAILURE
        }
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(2)
}

async fn converse(provider: &HttpProvider, model: &str, required: bool) -> Result<(), ModelError> {
    let mut request = ModelRequest {
        model: model.to_owned(),
        system: vec!["You are a helpful assistant that calls tools.".to_owned()],
        messages: vec![
            Message::User(vec![UserPart::Text(
                "What is the weather in Paris? Call the tool.".to_owned(),
            )])
            .into(),
        ],
        tools: vec![ToolSpec {
            name: "get_weather".to_owned(),
            description: "Tells the weather in a city.".to_owned(),
            schema: json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": false}),
        }],
        tool_choice: required.then_some(ToolChoice::Required),
        tool_choice_after_tool_result: Some(ToolChoice::None),
        max_output_tokens: Some(120),
        ..ModelRequest::default()
    };
    let first = exchange(provider, &request).await?;
    let Some(call) = first.tool_calls().next().cloned() else {
        return Err(ModelError::new(
            agent_provider::ErrorKind::Unknown,
            "the model called no tool",
        ));
    };
    request.messages.push(first.to_message().into());
    request.messages.push(
        Message::ToolResult(ToolResult {
            provider_call_id: call.provider_call_id,
            name: call.name,
            text: "21 degrees, sunny".to_owned(),
            is_error: false,
        })
        .into(),
    );
    let second = exchange(provider, &request).await?;
    println!("answer {:?}", second.text());
    Ok(())
}

async fn exchange(provider: &HttpProvider, request: &ModelRequest) -> Result<Response, ModelError> {
    let mut deltas = 0;
    let cancel = CancellationToken::new();
    let mut observe = |signal: Signal| match signal {
        Signal::AttemptStarted { attempt, body, .. } => {
            println!("attempt {attempt}, {} bytes", body.len())
        }
        Signal::Answered {
            http_status,
            request_id,
            limits,
            ..
        } => println!("answered {http_status:?} {request_id:?} {limits:?}"),
        Signal::AttemptFailed {
            error, retry_in, ..
        } => println!("failed {error}; retry in {retry_in:?}"),
        Signal::Event(
            ModelEvent::TextDelta { .. }
            | ModelEvent::ReasoningDelta { .. }
            | ModelEvent::ToolCallDelta { .. },
        ) => deltas += 1,
        Signal::Event(event) => println!("{event:?}"),
    };
    let outcome = provider.exchange(request, &cancel, &mut observe).await;
    println!("{deltas} deltas");
    outcome
}
