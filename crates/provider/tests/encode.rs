//! Requests on the wire: the whole vocabulary in each dialect, stable prefixes, quirks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

use std::sync::Arc;

use agent_provider::quirks::{GENERIC, TABLE};
use agent_provider::{
    Arguments, AssistantPart, CachePolicy, Dialect, Image, ImageDetail, Message, ModelRequest,
    Opaque, Quirks, ReasoningEffort, ToolCall, ToolChoice, ToolResult, ToolSpec, UserPart, encode,
};
use serde_json::{Value, json};

fn shared(messages: Vec<Message>) -> Vec<Arc<Message>> {
    messages.into_iter().map(Arc::new).collect()
}

fn opaque(dialect: Dialect, value: Value) -> Option<Opaque> {
    Some(Opaque { dialect, value })
}

fn call(id: &str, name: &str, arguments_text: &str, arguments: Arguments) -> AssistantPart {
    AssistantPart::ToolCall(ToolCall {
        provider_call_id: id.to_owned(),
        name: name.to_owned(),
        arguments_text: arguments_text.to_owned(),
        arguments,
        opaque: None,
    })
}

fn result(id: &str, text: &str, is_error: bool) -> Message {
    Message::ToolResult(ToolResult {
        provider_call_id: id.to_owned(),
        name: "read".to_owned(),
        text: text.to_owned(),
        is_error,
    })
}

/// One of everything.
fn request() -> ModelRequest {
    ModelRequest {
        model: "m-1".to_owned(),
        system: vec!["Stable.".to_owned(), "Today.".to_owned()],
        messages: shared(vec![
            Message::User(vec![
                UserPart::Text("Look:".to_owned()),
                UserPart::Image(Image {
                    url: "data:image/png;base64,AAAA".to_owned(),
                    detail: Some(ImageDetail::Low),
                }),
            ]),
            Message::Assistant(vec![
                AssistantPart::Reasoning {
                    text: "Hmm.".to_owned(),
                    opaque: opaque(
                        Dialect::AnthropicMessages,
                        json!({"type": "thinking", "signature": "c2ln"}),
                    ),
                },
                AssistantPart::Reasoning {
                    text: String::new(),
                    opaque: opaque(
                        Dialect::OpenAiResponses,
                        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Z0FB"}),
                    ),
                },
                AssistantPart::Text("Looking.".to_owned()),
                call("call.1", "read", "{\"path\":\"a\"}", Arguments::Object),
                call(
                    "call.2",
                    "re ad",
                    "{\"path\": oops",
                    Arguments::Malformed("why".to_owned()),
                ),
            ]),
            result("call.1", "contents", false),
            result("call.2", "not valid", true),
        ]),
        tools: vec![ToolSpec {
            name: "read".to_owned(),
            description: "Reads.".to_owned(),
            schema: json!({"$schema": "x", "type": "object", "properties": {"format": {"type": "string", "default": "b"}}, "additionalProperties": false}),
        }],
        tool_choice: Some(ToolChoice::Required),
        tool_choice_after_tool_result: Some(ToolChoice::Auto),
        max_output_tokens: Some(1_000),
        temperature: Some(0.5),
        reasoning_effort: Some(ReasoningEffort::Low),
        cache: CachePolicy::Mark,
        stop: vec!["END".to_owned()],
    }
}

fn body(dialect: Dialect, request: &ModelRequest, quirks: &Quirks) -> Value {
    serde_json::from_slice(&encode(dialect, request, quirks)).unwrap()
}

#[test]
fn chat_says_everything() {
    insta::assert_json_snapshot!(body(Dialect::OpenAiChat, &request(), &GENERIC));
}

#[test]
fn responses_say_everything() {
    insta::assert_json_snapshot!(body(Dialect::OpenAiResponses, &request(), &GENERIC));
}

#[test]
fn anthropic_says_everything() {
    insta::assert_json_snapshot!(body(Dialect::AnthropicMessages, &request(), &GENERIC));
}

/// The same request gives the same bytes, and a longer conversation begins with the shorter one.
#[test]
fn prefixes_are_stable() {
    for dialect in [
        Dialect::OpenAiChat,
        Dialect::OpenAiResponses,
        Dialect::AnthropicMessages,
    ] {
        let mut request = request();
        request.cache = CachePolicy::Off;
        request.tool_choice_after_tool_result = None;
        let shorter = encode(dialect, &request, &GENERIC);
        assert_eq!(encode(dialect, &request, &GENERIC), shorter);
        request
            .messages
            .push(Message::Assistant(vec![AssistantPart::Text("More.".to_owned())]).into());
        let longer = encode(dialect, &request, &GENERIC);
        // All but the brackets that close the list and the body.
        assert!(
            longer.starts_with(&shorter[..shorter.len() - 2]),
            "{dialect:?}"
        );
    }
}

#[test]
fn cache_marks_are_few_and_at_the_ends() {
    let count = |request: &ModelRequest| {
        String::from_utf8(encode(Dialect::AnthropicMessages, request, &GENERIC))
            .unwrap()
            .matches("cache_control")
            .count()
    };
    let mut request = request();
    for turn in 0..20 {
        request
            .messages
            .push(Message::Assistant(vec![AssistantPart::Text(format!("turn {turn}"))]).into());
        request
            .messages
            .push(Message::User(vec![UserPart::Text("on".to_owned())]).into());
    }
    assert_eq!(count(&request), 3);
    request.cache = CachePolicy::Off;
    assert_eq!(count(&request), 0);
}

#[test]
fn opaque_data_goes_back_to_its_own_dialect_only() {
    for (dialect, own, foreign) in [
        (Dialect::AnthropicMessages, "c2ln", "Z0FB"),
        (Dialect::OpenAiResponses, "Z0FB", "c2ln"),
        (Dialect::OpenAiChat, "Looking", "c2ln"),
    ] {
        let body = String::from_utf8(encode(dialect, &request(), &GENERIC)).unwrap();
        assert!(
            body.contains(own) && !body.contains(foreign),
            "{dialect:?}: {body}"
        );
    }
}

#[test]
fn reasoning_that_leads_nowhere_is_left_out_of_responses() {
    let mut request = request();
    let Message::Assistant(parts) = Arc::make_mut(&mut request.messages[1]) else {
        panic!("the second message")
    };
    parts.truncate(2);
    request.messages.truncate(2);
    assert!(
        !String::from_utf8(encode(Dialect::OpenAiResponses, &request, &GENERIC))
            .unwrap()
            .contains("rs_1")
    );
}

#[test]
fn anthropic_does_not_think_when_a_call_is_forced() {
    let mut request = request();
    assert!(
        body(Dialect::AnthropicMessages, &request, &GENERIC)
            .get("temperature")
            .is_none()
    );
    request.tool_choice_after_tool_result = Some(ToolChoice::Tool("read".to_owned()));
    let body = body(Dialect::AnthropicMessages, &request, &GENERIC);
    assert!(body.get("thinking").is_none() && body["temperature"] == 0.5);
    assert_eq!(body["tool_choice"], json!({"type": "tool", "name": "read"}));
}

#[test]
fn models_that_do_not_think_are_not_asked_for_their_thoughts() {
    let mut request = request();
    request.model = "gpt-4o".to_owned();
    assert!(
        body(Dialect::OpenAiResponses, &request, &GENERIC)
            .get("include")
            .is_none()
    );
}

fn quirks(name: &str) -> Value {
    let mut request = request();
    request.tool_choice_after_tool_result = None;
    if let Message::Assistant(parts) = Arc::make_mut(&mut request.messages[1]) {
        parts.retain(|part| !matches!(part, AssistantPart::Text(_)));
        parts.push(AssistantPart::Reasoning {
            text: String::new(),
            opaque: opaque(
                Dialect::OpenAiChat,
                json!([{"type": "reasoning.text", "signature": "c2ln"}]),
            ),
        });
    }
    body(Dialect::OpenAiChat, &request, Quirks::named(name).unwrap())
}

/// The table is data; this is what each row makes of the same request.
#[test]
fn every_row_of_the_quirks_table_shows() {
    assert_eq!(quirks("openai")["max_completion_tokens"], 1_000);
    assert!(quirks("openai").get("max_tokens").is_none());
    assert_eq!(quirks("openai")["messages"][2]["content"], Value::Null);
    assert_eq!(quirks("ollama")["messages"][2]["content"], "");
    assert_eq!(quirks("openrouter")["reasoning"], json!({"effort": "low"}));
    assert_eq!(
        quirks("openrouter")["messages"][2]["reasoning_details"][0]["signature"],
        "c2ln"
    );
    assert_eq!(
        quirks("deepseek")["messages"][2]["reasoning_content"],
        "Hmm."
    );
    assert!(quirks("deepseek").get("reasoning_effort").is_none());
    assert_eq!(quirks("generic")["reasoning_effort"], "low");
    assert_eq!(quirks("mistral")["tool_choice"], "any");
    assert!(quirks("mistral").get("stream_options").is_none());
    let id = quirks("mistral")["messages"][2]["tool_calls"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        "{id}"
    );
    assert_eq!(
        quirks("mistral")["messages"][3]["tool_call_id"],
        id.as_str()
    );
    let schema = &quirks("gemini")["tools"][0]["function"]["parameters"];
    assert_eq!(
        *schema,
        json!({"type": "object", "properties": {"format": {"type": "string"}}})
    );
    for row in TABLE {
        assert_eq!(quirks(row.name)["model"], "m-1", "{}", row.name);
    }
}

#[test]
fn thinking_of_older_turns_stays_at_home() {
    let mut request = request();
    request
        .messages
        .push(Message::User(vec![UserPart::Text("next".to_owned())]).into());
    let body = body(
        Dialect::OpenAiChat,
        &request,
        Quirks::named("deepseek").unwrap(),
    );
    assert!(body["messages"][2].get("reasoning_content").is_none());
}

/// A server that sends thinking in a field of its own knows that field; others are not sent it.
#[test]
fn thinking_goes_back_the_way_it_came() {
    let decoded = |field: &str| {
        let first = json!({"id": "r", "choices": [{"delta": {field: "Hmm."}}]});
        let call = json!({"index": 0, "id": "a", "function": {"name": "read", "arguments": "{}"}});
        let last = json!({"id": "r", "choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]});
        let stream = format!("data: {first}\n\ndata: {last}\n\ndata: [DONE]\n\n");
        let mut builder = agent_provider::ResponseBuilder::new();
        for event in agent_provider::decode_all(Dialect::OpenAiChat, &GENERIC, stream.as_bytes()) {
            builder.push(&event);
        }
        builder.build().unwrap().unwrap()
    };
    let sent_back = |field: &str| {
        let request = ModelRequest {
            messages: shared(vec![
                Message::User(vec![UserPart::Text("x".to_owned())]),
                decoded(field).to_message(),
            ]),
            ..ModelRequest::default()
        };
        body(Dialect::OpenAiChat, &request, &GENERIC)["messages"][1].clone()
    };
    assert_eq!(decoded("reasoning").reasoning(), "Hmm.");
    assert_eq!(sent_back("reasoning_content")["reasoning_content"], "Hmm.");
    assert!(sent_back("reasoning").get("reasoning_content").is_none());
    assert!(sent_back("reasoning").get("reasoning").is_none());
}

/// Calls with the same id get different ones when they are sent back, with their results.
#[test]
fn ids_are_unique_on_the_wire() {
    let call = |path: &str| {
        AssistantPart::ToolCall(ToolCall {
            provider_call_id: "x".to_owned(),
            name: "read".to_owned(),
            arguments_text: format!("{{\"path\":\"{path}\"}}"),
            arguments: Arguments::Object,
            opaque: None,
        })
    };
    let result = |text: &str| {
        Message::ToolResult(ToolResult {
            provider_call_id: "x".to_owned(),
            name: "read".to_owned(),
            text: text.to_owned(),
            is_error: false,
        })
    };
    let request = ModelRequest {
        messages: shared(vec![
            Message::Assistant(vec![call("a"), call("b")]),
            result("of a"),
            result("of b"),
        ]),
        ..ModelRequest::default()
    };
    let chat = body(Dialect::OpenAiChat, &request, &GENERIC)["messages"].clone();
    assert_eq!(
        (&chat[0]["tool_calls"][1]["id"], &chat[2]["tool_call_id"]),
        (&json!("x_2"), &json!("x_2"))
    );
    assert_eq!(
        (&chat[1]["tool_call_id"], &chat[2]["content"]),
        (&json!("x"), &json!("of b"))
    );
    let anthropic = body(Dialect::AnthropicMessages, &request, &GENERIC)["messages"].clone();
    assert_eq!(anthropic[0]["content"][1]["id"], "x_2");
    assert_eq!(anthropic[1]["content"][1]["tool_use_id"], "x_2");
    let responses = body(Dialect::OpenAiResponses, &request, &GENERIC)["input"].clone();
    assert_eq!(
        (&responses[1]["call_id"], &responses[3]["call_id"]),
        (&json!("x_2"), &json!("x_2"))
    );
}

/// Each family of Claude takes its effort another way, and refuses that of the others.
#[test]
fn every_claude_is_asked_to_think_in_its_own_words() {
    let of = |model: &str, effort: Option<ReasoningEffort>| {
        let mut request = request();
        request.model = model.to_owned();
        request.reasoning_effort = effort;
        let body = body(Dialect::AnthropicMessages, &request, &GENERIC);
        // A temperature beside thinking is refused.
        assert!(body.get("thinking").is_none() || body.get("temperature").is_none());
        (body["thinking"].clone(), body["output_config"].clone())
    };
    let summarized = json!({"type": "adaptive", "display": "summarized"});
    let bound = json!({"type": "adaptive", "display": "summarized",
        "block_binding": {"prefix_mismatch_behavior": "drop_block"}});
    let budget = json!({"type": "enabled", "budget_tokens": 8192});
    let medium = Some(ReasoningEffort::Medium);
    for (model, unasked, asked) in [
        ("claude-sonnet-4-5-20250929", &Value::Null, &budget),
        ("claude-haiku-4-5", &Value::Null, &budget),
        ("claude-opus-4-6", &Value::Null, &summarized),
        ("claude-opus-4-8", &Value::Null, &summarized),
        ("claude-opus-5", &summarized, &summarized),
        ("claude-haiku-5-5", &summarized, &summarized),
        ("claude-fable-5", &summarized, &summarized),
        ("claude-opus-5-5", &bound, &bound),
        ("anthropic.claude-sonnet-5-5", &bound, &bound),
        ("claude-fable-5-1", &bound, &bound),
    ] {
        assert_eq!(of(model, None), (unasked.clone(), Value::Null), "{model}");
        let effort = match *asked == budget {
            true => Value::Null,
            false => json!({"effort": "medium"}),
        };
        assert_eq!(of(model, medium), (asked.clone(), effort), "{model}");
    }
    let least = of("claude-opus-5-5", Some(ReasoningEffort::Minimal));
    assert_eq!(least.1, json!({"effort": "low"}));
}

#[test]
fn an_effort_that_a_model_does_not_know_is_not_asked_for() {
    let mut request = request();
    request.reasoning_effort = Some(ReasoningEffort::Minimal);
    for (model, expected) in [
        ("gpt-5-mini", "minimal"),
        ("gpt-5.6-terra", "low"),
        ("gpt-6-sol", "low"),
    ] {
        request.model = model.to_owned();
        let responses = body(Dialect::OpenAiResponses, &request, &GENERIC);
        assert_eq!(responses["reasoning"]["effort"], expected, "{model}");
        let chat = body(Dialect::OpenAiChat, &request, &GENERIC);
        assert_eq!(chat["reasoning_effort"], expected, "{model}");
    }
}

/// The key is that of the conversation: the same for every request of it, another for another.
#[test]
fn a_conversation_is_named_for_the_cache() {
    let key = |dialect: Dialect, request: &ModelRequest, quirks: &str| {
        let quirks = Quirks::named(quirks).unwrap();
        body(dialect, request, quirks)["prompt_cache_key"].clone()
    };
    let mut request = request();
    let first = key(Dialect::OpenAiResponses, &request, "generic");
    assert!(first.as_str().is_some_and(|key| key.len() == 32), "{first}");
    assert_eq!(key(Dialect::OpenAiChat, &request, "openai"), first);
    assert_eq!(key(Dialect::OpenAiChat, &request, "generic"), Value::Null);
    request
        .messages
        .push(Message::User(vec![UserPart::Text("More.".to_owned())]).into());
    assert_eq!(key(Dialect::OpenAiResponses, &request, "generic"), first);
    let mut other = request.clone();
    other.messages.remove(0);
    assert_ne!(key(Dialect::OpenAiResponses, &other, "generic"), first);
    // A router to Claude wants a mark instead; other models behind it cache unasked.
    for (model, expected) in [
        ("anthropic/claude-sonnet-5.5", json!({"type": "ephemeral"})),
        ("qwen/qwen3-coder", Value::Null),
    ] {
        request.model = model.to_owned();
        let quirks = Quirks::named("openrouter").unwrap();
        let body = body(Dialect::OpenAiChat, &request, quirks);
        assert_eq!(body["cache_control"], expected, "{model}");
    }
    request.cache = CachePolicy::Off;
    assert_eq!(
        key(Dialect::OpenAiResponses, &request, "generic"),
        Value::Null
    );
}

/// Newer models of OpenAI are told which of their words were an answer, and which were said on the way.
#[test]
fn words_on_the_way_are_no_answer() {
    let mut request = request();
    let said = AssistantPart::Text("Found it.".to_owned());
    request.messages.push(Message::Assistant(vec![said]).into());
    let phases = |request: &ModelRequest| -> Vec<Value> {
        let body = body(Dialect::OpenAiResponses, request, &GENERIC);
        let items = body["input"].as_array().unwrap().clone();
        let own = items.into_iter().filter(|item| item["role"] == "assistant");
        own.map(|item| item["phase"].clone()).collect()
    };
    assert_eq!(phases(&request), [Value::Null, Value::Null]);
    request.model = "gpt-6.1-sol".to_owned();
    assert_eq!(phases(&request), ["commentary", "final_answer"]);
}
