//! A provider pointed at the scripted server, with waits short enough for tests.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_provider::quirks::GENERIC;
use agent_provider::{
    Dialect, Endpoint, HttpProvider, Message, ModelError, ModelEvent, ModelRequest, Provider,
    Response, RetryPolicy, Signal, Timeouts, ToolSpec, UserPart,
};
use agent_test_support::model_server::{ModelServer, Wire};
use serde_json::json;
use tokio_util::sync::CancellationToken;

pub(crate) const KEY: &str = "sk-test-0123456789abcdef";

pub(crate) fn dialect(wire: Wire) -> Dialect {
    match wire {
        Wire::Chat => Dialect::OpenAiChat,
        Wire::Responses => Dialect::OpenAiResponses,
        Wire::Anthropic => Dialect::AnthropicMessages,
    }
}

pub(crate) fn endpoint(wire: Wire, base_url: String) -> Endpoint {
    Endpoint {
        name: "test".to_owned(),
        dialect: dialect(wire),
        base_url,
        quirks: &GENERIC,
        key: Some(KEY.into()),
        key_variable: Some("TEST_API_KEY".to_owned()),
        headers: Vec::new(),
        timeouts: Timeouts {
            connect: Duration::from_secs(5),
            first_byte: Duration::from_millis(400),
            idle: Duration::from_millis(400),
            last_words: Duration::from_millis(100),
        },
        retry: RetryPolicy {
            max_attempts: 3,
            base: Duration::from_millis(2),
            cap: Duration::from_millis(5),
            longest_wait: Duration::from_secs(2),
            total: Duration::from_secs(20),
            random: Arc::new(|| 0.5),
            now: None,
        },
    }
}

pub(crate) fn provider(server: &ModelServer, wire: Wire) -> HttpProvider {
    HttpProvider::new(endpoint(wire, server.base_url(wire))).unwrap()
}

pub(crate) fn request(text: &str) -> ModelRequest {
    ModelRequest {
        model: "model-1".to_owned(),
        system: vec!["Be brief.".to_owned()],
        messages: vec![Message::User(vec![UserPart::Text(text.to_owned())]).into()],
        tools: vec![ToolSpec {
            name: "read".to_owned(),
            description: "Reads a file.".to_owned(),
            schema: json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}),
        }],
        ..ModelRequest::default()
    }
}

/// Result of an exchange and every signal on the way.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) outcome: Result<Response, ModelError>,
    pub(crate) signals: Vec<Signal>,
}

impl Exchange {
    pub(crate) fn failures(&self) -> Vec<(&'static str, bool)> {
        self.signals
            .iter()
            .filter_map(|signal| match signal {
                Signal::AttemptFailed {
                    error, retry_in, ..
                } => Some((error.kind.as_str(), retry_in.is_some())),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn events(&self) -> Vec<&ModelEvent> {
        self.signals
            .iter()
            .filter_map(|signal| match signal {
                Signal::Event(event) => Some(event),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn attempts(&self) -> usize {
        self.signals
            .iter()
            .filter(|signal| matches!(signal, Signal::AttemptStarted { .. }))
            .count()
    }
}

pub(crate) fn exchange(provider: &dyn Provider, request: &ModelRequest) -> Exchange {
    exchange_with(provider, request, &CancellationToken::new())
}

pub(crate) fn exchange_with(
    provider: &dyn Provider,
    request: &ModelRequest,
    cancel: &CancellationToken,
) -> Exchange {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let signals = Mutex::new(Vec::new());
    let outcome = runtime.block_on(provider.exchange(request, cancel, &mut |signal| {
        signals.lock().unwrap().push(signal)
    }));
    Exchange {
        outcome,
        signals: signals.into_inner().unwrap(),
    }
}
