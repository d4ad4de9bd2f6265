//! Real HTTP against the scripted server: every fault in every dialect, retries, cancellation, keys.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use agent_provider::{
    ErrorKind, HttpProvider, Message, ModelEvent, Signal, StopReason, ToolChoice, ToolResult,
};
use agent_test_support::model_server::{Fault, ModelServer, Script, Turn, Wire};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use support::{KEY, endpoint, exchange, exchange_with, provider, request};

fn answer() -> Turn {
    Turn::text("Grüße, 世界 🦀")
        .thinking("Say hello.")
        .and_call("read", json!({"path": "größe.txt"}))
        .using(40, 12)
        .in_deltas_of(3)
}

/// The same conversation leaves the same events whatever carries it, but for ids and opaque data.
#[test]
fn the_same_conversation_gives_the_same_events_in_every_dialect() {
    let script = || {
        Script::new()
            .turn(answer().and_call("read", json!({"path": "b"})))
            .turn(Turn::text("Done, finally.").using(60, 4).in_deltas_of(4))
            .turn(Turn::call("read", json!("{\"path\": ")).using(60, 4))
            .turn(Turn::text("cut he").stopping("max_tokens").using(60, 4))
    };
    let events = |wire: Wire| {
        let server = ModelServer::start(script());
        let provider = provider(&server, wire);
        let mut request = request("hello");
        let mut exchanged = Vec::new();
        for _ in 0..4 {
            let turn = exchange(&provider, &request);
            let response = turn.outcome.as_ref().unwrap();
            request.messages.push(response.to_message().into());
            for call in response.tool_calls() {
                request.messages.push(
                    Message::ToolResult(ToolResult {
                        provider_call_id: call.provider_call_id.clone(),
                        name: call.name.clone(),
                        text: "contents".to_owned(),
                        is_error: false,
                    })
                    .into(),
                );
            }
            for event in turn.events() {
                match event {
                    ModelEvent::Started { model, .. } => exchanged.push(ModelEvent::Started {
                        response_id: None,
                        model: model.clone(),
                    }),
                    ModelEvent::ReasoningOpaque { .. } => {}
                    ModelEvent::Usage(usage) => {
                        // What a provider counts apart differs; what every one counts must not.
                        let usage = agent_provider::Usage {
                            cache_write: None,
                            cached_input: None,
                            reasoning: None,
                            ..usage.clone()
                        };
                        exchanged.push(ModelEvent::Usage(usage));
                    }
                    other => exchanged.push(other.clone()),
                }
            }
        }
        exchanged
    };
    let chat = events(Wire::Chat);
    assert_eq!(
        chat.iter()
            .filter(|event| matches!(event, ModelEvent::Stopped { .. }))
            .count(),
        4
    );
    assert_eq!(events(Wire::Responses), chat);
    assert_eq!(events(Wire::Anthropic), chat);
}

/// Faults that must not be noticed at all.
#[test]
fn harmless_oddities_change_nothing() {
    for wire in Wire::ALL {
        let plain = ModelServer::start(Script::new().turn(answer()));
        let expected = exchange(&provider(&plain, wire), &request("x"))
            .outcome
            .unwrap();
        assert_eq!(expected.text(), "Grüße, 世界 🦀");
        for fault in [
            Fault::Crlf,
            Fault::Comments,
            Fault::Drip(1, Duration::ZERO),
            Fault::Drip(7, Duration::ZERO),
            Fault::NoDone,
            Fault::ByteOrderMark,
            Fault::Gzip,
        ] {
            let server = ModelServer::start(Script::new().turn(answer().fault(fault.clone())));
            let exchanged = exchange(&provider(&server, wire), &request("x"));
            assert_eq!(
                exchanged.outcome.unwrap(),
                expected,
                "{fault:?} in {wire:?}"
            );
        }
    }
}

/// Each fault in each dialect: named, tried again, and the second answer is the whole answer.
#[test]
fn every_fault_is_named_and_tried_again() {
    let faults = [
        (Fault::Delay(Duration::from_millis(700)), "timeout"),
        (Fault::StallAfterEvents(2), "timeout"),
        (Fault::CutAfterEvents(3), "stream_interrupted"),
        (Fault::CutAfterBytes(300), "stream_interrupted"),
        (Fault::HalfCloseAfterEvents(4), "stream_interrupted"),
        (Fault::GarbageAfterEvents(3), "malformed"),
        (Fault::ErrorAfterEvents(3), "overloaded"),
        (Fault::NoEnd, "stream_interrupted"),
        (Fault::CloseAtOnce, "network"),
        (Fault::NotHttp, "network"),
        // Comments keep the connection alive, and do not make an answer.
        (
            Fault::KeepAliveAfterEvents(2, Duration::from_millis(20)),
            "timeout",
        ),
    ];
    for wire in Wire::ALL {
        for (fault, kind) in &faults {
            let server = ModelServer::start(
                Script::new()
                    .turn(answer().fault(fault.clone()))
                    .turn(answer()),
            );
            let exchanged = exchange(&provider(&server, wire), &request("x"));
            assert_eq!(
                exchanged.failures(),
                [(*kind, true)],
                "{fault:?} in {wire:?}: {:?}",
                exchanged.outcome
            );
            let response = exchanged.outcome.unwrap();
            assert_eq!(
                (response.text().as_str(), response.attempts),
                ("Grüße, 世界 🦀", 2),
                "{fault:?} in {wire:?}"
            );
            let requests = server.requests();
            assert_eq!(
                requests[0].body, requests[1].body,
                "a retry sends the same bytes"
            );
        }
    }
}

/// Every supported encoding is offered to the server; any other could only be guessed.
#[test]
fn an_encoding_that_was_not_asked_for_is_named() {
    for wire in Wire::ALL {
        let foreign = answer().fault(Fault::ForeignEncoding);
        let server = ModelServer::start(Script::new().turn(foreign).turn(answer()));
        let exchanged = exchange(&provider(&server, wire), &request("x"));
        assert_eq!(exchanged.failures(), [("malformed", false)], "{wire:?}");
        let message = exchanged.outcome.unwrap_err().message;
        assert!(message.contains("`br`"), "{message}");
    }
}

/// A server that keeps the connection open after its response does not keep the client waiting.
#[test]
fn an_answer_is_whole_when_the_reason_to_stop_has_come() {
    for wire in [Wire::Chat, Wire::Anthropic] {
        let open = answer().fault(Fault::NoDone).fault(Fault::StallAtEnd);
        let server = ModelServer::start(Script::new().turn(open));
        let mut endpoint = endpoint(wire, server.base_url(wire));
        endpoint.timeouts.idle = Duration::from_secs(600);
        let begin = Instant::now();
        let exchanged = exchange(&HttpProvider::new(endpoint).unwrap(), &request("x"));
        assert_eq!(exchanged.failures(), [], "{wire:?}");
        assert_eq!(exchanged.outcome.unwrap().text(), "Grüße, 世界 🦀");
        assert!(begin.elapsed() < Duration::from_secs(60), "{wire:?}");
    }
}

#[test]
fn every_status_is_classified_and_retried_or_not() {
    let table = [
        (400, "bad_request", false),
        (401, "auth", false),
        (403, "auth", false),
        (404, "bad_request", false),
        (408, "timeout", true),
        (409, "server_error", true),
        (413, "context_length", false),
        (422, "bad_request", false),
        (429, "rate_limit", true),
        (500, "server_error", true),
        (502, "server_error", true),
        (503, "overloaded", true),
        (529, "overloaded", true),
        (307, "bad_request", false),
    ];
    for wire in Wire::ALL {
        for (status, kind, again) in table {
            let server = ModelServer::start(
                Script::new()
                    .turn(Turn::error(status, "because"))
                    .turn(answer()),
            );
            let exchanged = exchange(&provider(&server, wire), &request("x"));
            assert_eq!(
                exchanged.failures(),
                [(kind, again)],
                "{status} in {wire:?}"
            );
            assert_eq!(exchanged.outcome.is_ok(), again, "{status} in {wire:?}");
            if let Err(error) = exchanged.outcome {
                assert_eq!(
                    (error.http_status, error.message.as_str()),
                    (Some(status), "because")
                );
            }
        }
    }
}

#[test]
fn attempts_are_counted_and_end() {
    let server = ModelServer::start(Script::new().turns(9, &Turn::error(500, "down")));
    let exchanged = exchange(&provider(&server, Wire::Chat), &request("x"));
    assert_eq!(
        exchanged.failures(),
        [
            ("server_error", true),
            ("server_error", true),
            ("server_error", false)
        ]
    );
    assert_eq!((exchanged.attempts(), server.requests().len()), (3, 3));
}

#[test]
fn the_server_says_when_and_whether_to_come_back() {
    let limited = Turn::error(429, "slow down").header("retry-after-ms", "60");
    let server = ModelServer::start(Script::new().turn(limited).turn(answer()));
    let begin = Instant::now();
    let exchanged = exchange(&provider(&server, Wire::Chat), &request("x"));
    assert!(exchanged.outcome.is_ok());
    assert!(begin.elapsed() >= Duration::from_millis(60));

    let too_long = Turn::error(429, "come back tomorrow").header("retry-after", "86400");
    let server = ModelServer::start(Script::new().turn(too_long).turn(answer()));
    let error = exchange(&provider(&server, Wire::Chat), &request("x"))
        .outcome
        .unwrap_err();
    assert_eq!(error.retry_after, Some(Duration::from_secs(86_400)));

    // More seconds than can be counted are not no seconds.
    let endless = Turn::error(429, "never").header("retry-after", "99999999999999999999999999");
    let server = ModelServer::start(Script::new().turn(endless).turn(answer()));
    let exchanged = exchange(&provider(&server, Wire::Chat), &request("x"));
    assert_eq!(exchanged.failures(), [("rate_limit", false)]);

    // A date is compared with our own clock where the server does not tell its own.
    let dated = Turn::error(429, "later").header("retry-after", "Thu, 01 Jan 1970 00:01:40 GMT");
    let server = ModelServer::start(Script::new().turn(dated).turn(answer()));
    let mut endpoint = endpoint(Wire::Chat, server.base_url(Wire::Chat));
    endpoint.retry.now = Some(std::sync::Arc::new(|| 10));
    let exchanged = exchange(&HttpProvider::new(endpoint).unwrap(), &request("x"));
    assert_eq!(
        exchanged.outcome.unwrap_err().retry_after,
        Some(Duration::from_secs(90))
    );

    let never = Turn::error(500, "do not").header("x-should-retry", "false");
    let server = ModelServer::start(Script::new().turn(never).turn(answer()));
    assert_eq!(
        exchange(&provider(&server, Wire::Anthropic), &request("x")).failures(),
        [("server_error", false)]
    );
}

#[test]
fn a_web_page_is_not_asked_for_twice() {
    let server = ModelServer::start(
        Script::new()
            .turn(answer().fault(Fault::WebPage))
            .turn(answer()),
    );
    let exchanged = exchange(&provider(&server, Wire::Chat), &request("x"));
    assert_eq!(exchanged.failures(), [("malformed", false)]);
    let hint = exchanged.outcome.unwrap_err().hint.unwrap();
    assert!(
        hint.contains("base_url") && hint.contains("[providers.test]"),
        "{hint}"
    );
}

#[test]
fn the_body_is_announced_before_it_is_sent_and_as_it_is_sent() {
    let server = ModelServer::start(Script::new().turn(answer()));
    let exchanged = exchange(&provider(&server, Wire::Chat), &request("x"));
    let Some(Signal::AttemptStarted {
        attempt: 1,
        body,
        body_sha256,
    }) = exchanged.signals.first()
    else {
        panic!("{:?}", exchanged.signals.first())
    };
    assert_eq!(server.requests()[0].body, body.to_vec());
    assert_eq!(body_sha256.len(), 64);
    assert_eq!(server.bodies()[0]["model"], "model-1");
    let Some(Signal::Answered {
        http_status: Some(200),
        request_id: Some(id),
        ..
    }) = exchanged.signals.get(1)
    else {
        panic!("{:?}", exchanged.signals.get(1))
    };
    assert_eq!(id, "req_0");
    assert_eq!(
        exchanged.outcome.unwrap().request_id.as_deref(),
        Some("req_0")
    );
}

/// The id support asks for is the one in the headers; without one, the one in the body will do.
#[test]
fn a_response_without_an_id_in_its_headers_keeps_that_of_its_body() {
    for wire in Wire::ALL {
        let server = ModelServer::start(Script::new().turn(answer().header("request-id", "")));
        let response = exchange(&provider(&server, wire), &request("x"))
            .outcome
            .unwrap();
        assert!(response.response_id.is_some(), "{wire:?}");
        assert_eq!(response.request_id, response.response_id, "{wire:?}");
    }
}

/// A server that is no model server is distinguished from no server at all.
#[test]
fn a_peer_that_does_not_speak_http_is_named() {
    for fault in [Fault::NotHttp, Fault::CloseAtOnce] {
        let server = ModelServer::start(Script::new().turns(3, &answer().fault(fault)));
        let error = exchange(&provider(&server, Wire::Chat), &request("x"))
            .outcome
            .unwrap_err();
        let hint = error.hint.unwrap();
        assert!(hint.contains("is not a model server"), "{hint}");
    }
}

#[test]
fn cancelling_closes_the_connection_at_once() {
    for wire in Wire::ALL {
        let server =
            ModelServer::start(Script::new().turn(answer().fault(Fault::StallAfterEvents(3))));
        let mut endpoint = endpoint(wire, server.base_url(wire));
        endpoint.timeouts.idle = Duration::from_secs(60);
        let provider = HttpProvider::new(endpoint).unwrap();
        let cancel = CancellationToken::new();
        let exchanged = std::thread::scope(|scope| {
            let exchange = scope.spawn(|| exchange_with(&provider, &request("x"), &cancel));
            server.wait_for_requests(1);
            cancel.cancel();
            exchange.join().unwrap()
        });
        assert_eq!(
            exchanged.outcome.unwrap_err().kind,
            ErrorKind::Cancelled,
            "{wire:?}"
        );
        server.wait_for_hang_up();
    }
}

#[test]
fn cancelling_ends_a_pause_between_attempts() {
    let server = ModelServer::start(
        Script::new().turns(3, &Turn::error(429, "wait").header("retry-after", "1")),
    );
    let mut endpoint = endpoint(Wire::Chat, server.base_url(Wire::Chat));
    endpoint.retry.longest_wait = Duration::from_secs(60);
    let provider = HttpProvider::new(endpoint).unwrap();
    let cancel = CancellationToken::new();
    let exchanged = std::thread::scope(|scope| {
        let exchange = scope.spawn(|| exchange_with(&provider, &request("x"), &cancel));
        server.wait_for_requests(1);
        cancel.cancel();
        exchange.join().unwrap()
    });
    assert_eq!(exchanged.outcome.unwrap_err().kind, ErrorKind::Cancelled);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn keys_go_where_the_dialect_wants_them_and_nowhere_else() {
    for wire in Wire::ALL {
        let refusing =
            Turn::error(401, &format!("the key {KEY} is wrong")).header("x-request-id", KEY);
        let server = ModelServer::start(Script::new().turn(refusing));
        let provider = provider(&server, wire);
        let exchanged = exchange(&provider, &request("x"));
        let sent = server.requests().remove(0);
        let (name, value) = match wire {
            Wire::Anthropic => ("x-api-key", KEY.to_owned()),
            _ => ("authorization", format!("Bearer {KEY}")),
        };
        assert_eq!(sent.header(name), Some(value.as_str()));
        assert!(!String::from_utf8(sent.body).unwrap().contains(KEY));
        let error = exchanged.outcome.as_ref().unwrap_err();
        assert_eq!(error.message, "the key [key] is wrong");
        assert!(error.hint.as_deref().unwrap().contains("TEST_API_KEY"));
        for shown in [
            format!("{error}"),
            format!("{error:?}"),
            format!("{provider:?}"),
        ] {
            assert!(!shown.contains(KEY), "{shown}");
        }
        let failed = exchanged
            .signals
            .iter()
            .filter(|signal| matches!(signal, Signal::AttemptFailed { .. }));
        assert!(
            failed.clone().count() == 1
                && failed
                    .clone()
                    .all(|signal| !format!("{signal:?}").contains(KEY))
        );
    }
}

#[test]
fn configured_headers_win_and_do_not_print() {
    let server = ModelServer::start(Script::new().turn(answer()));
    let mut endpoint = endpoint(Wire::Chat, server.base_url(Wire::Chat));
    endpoint.headers = vec![
        ("Authorization".to_owned(), "Basic c2VjcmV0".into()),
        ("x-team".to_owned(), "blue".into()),
    ];
    let provider = HttpProvider::new(endpoint).unwrap();
    exchange(&provider, &request("x")).outcome.unwrap();
    let sent = server.requests().remove(0);
    assert_eq!(
        (sent.header("authorization"), sent.header("x-team")),
        (Some("Basic c2VjcmV0"), Some("blue"))
    );
    assert!(!format!("{provider:?}").contains("c2VjcmV0"));
}

/// A key in a header of the user's own is a key: a server that repeats it is not quoted.
#[test]
fn a_key_in_a_configured_header_is_not_repeated() {
    let refusing = Turn::error(401, "the key abcdefgh-secret is wrong");
    let server = ModelServer::start(Script::new().turn(refusing));
    let mut endpoint = endpoint(Wire::Chat, server.base_url(Wire::Chat));
    endpoint.headers = vec![("Authorization".to_owned(), "Bearer abcdefgh-secret".into())];
    let exchanged = exchange(&HttpProvider::new(endpoint).unwrap(), &request("x"));
    let error = exchanged.outcome.unwrap_err();
    assert_eq!(error.message, "the key [key] is wrong");
}

#[test]
fn tool_choice_after_a_tool_result_is_left_alone_or_replaced() {
    for (wire, after, expected) in [
        (Wire::Chat, None, json!(null)),
        (Wire::Chat, Some(ToolChoice::None), json!("none")),
        (Wire::Chat, Some(ToolChoice::Auto), json!("auto")),
        (Wire::Responses, Some(ToolChoice::None), json!("none")),
        (
            Wire::Anthropic,
            Some(ToolChoice::Auto),
            json!({"type": "auto"}),
        ),
    ] {
        let server = ModelServer::start(Script::new().turn(answer()).turn(Turn::text("done")));
        let provider = provider(&server, wire);
        let mut request = request("x");
        request.tool_choice_after_tool_result = after;
        let response = exchange(&provider, &request).outcome.unwrap();
        request.messages.push(response.to_message().into());
        let call = response.tool_calls().next().unwrap();
        request.messages.push(
            Message::ToolResult(ToolResult {
                provider_call_id: call.provider_call_id.clone(),
                name: "read".to_owned(),
                text: "contents".to_owned(),
                is_error: false,
            })
            .into(),
        );
        exchange(&provider, &request).outcome.unwrap();
        let bodies = server.bodies();
        assert!(bodies[0].get("tool_choice").is_none(), "{wire:?}");
        assert_eq!(
            bodies[1].get("tool_choice").cloned().unwrap_or_default(),
            expected,
            "{wire:?}"
        );
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let gone = ModelServer::start(Script::new()).openai_url();
    let mut endpoint = endpoint(Wire::Chat, gone.clone());
    endpoint.retry.max_attempts = 1;
    let error = exchange(&HttpProvider::new(endpoint).unwrap(), &request("x"))
        .outcome
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Network);
    let hint = error.hint.unwrap();
    assert!(hint.contains(&gone) && hint.contains("base_url"), "{hint}");
}

#[test]
fn a_call_cut_by_the_length_limit_is_never_whole() {
    for wire in Wire::ALL {
        let cut = Turn::call("read", json!("{\"path\": \"sr"))
            .stopping("max_tokens")
            .using(9, 9);
        let server = ModelServer::start(Script::new().turn(cut));
        let response = exchange(&provider(&server, wire), &request("x"))
            .outcome
            .unwrap();
        assert_eq!(response.stop, StopReason::MaxTokens, "{wire:?}");
        assert!(response.has_cut_call(), "{wire:?}");
    }
}

#[test]
fn addresses_and_headers_are_checked_before_anything_is_sent() {
    for url in ["", "ftp://x", "not a url", "http://"] {
        assert!(
            HttpProvider::new(endpoint(Wire::Chat, url.to_owned())).is_err(),
            "{url}"
        );
    }
    let mut broken = endpoint(Wire::Chat, "http://127.0.0.1:1".to_owned());
    broken.headers = vec![("x y".to_owned(), "z".into())];
    assert!(HttpProvider::new(broken).is_err());
}

/// A TLS failure is distinguished from an unreachable server.
#[test]
fn a_connection_that_cannot_be_secured_is_named() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("https://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut hello = [0; 4_096];
            let _ = stream.read(&mut hello);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = stream.read(&mut hello);
        }
    });
    let mut endpoint = endpoint(Wire::Chat, url);
    endpoint.retry.max_attempts = 3;
    let exchanged = exchange(&HttpProvider::new(endpoint).unwrap(), &request("x"));
    assert_eq!(
        exchanged.failures(),
        [("tls", false)],
        "{:?}",
        exchanged.outcome
    );
    let hint = exchanged.outcome.unwrap_err().hint.unwrap();
    assert!(hint.contains("SSL_CERT_FILE"), "{hint}");
}
