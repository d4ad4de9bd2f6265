//! `web_fetch` through the front door: who is asked about what, what is sent to whom, and what the record says of it.
//!
//! A host on the open internet is a number behind a proxy of the test, which answers for all of them.

use std::net::TcpListener;

use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use agent_test_support::run::RunOutput;
use agent_test_support::web_server::{WebServer, say};
use serde_json::{Value, json};

use crate::agent;
use crate::approval::respond;
use crate::conversation::assert_audit;
use crate::permissions::project;
use crate::run::run;

/// A machine of everybody's, as far as anybody can tell.
const HOST: &str = "http://8.8.4.4";
const OTHER: &str = "http://8.8.8.8";

/// A proxy that answers for every host: its two pages, and where one of them has moved.
fn internet() -> WebServer {
    WebServer::new(|target, stream| {
        let moved = format!("302 Found\r\nLocation: {OTHER}/new");
        match target.rsplit('/').next() {
            Some("moved") => say(stream, &moved, b""),
            _ => say(
                stream,
                "200 OK\r\nContent-Type: text/plain",
                target.as_bytes(),
            ),
        }
    })
}

struct Asked {
    session: String,
    code: String,
    text: String,
    observed: Value,
    ran: RunOutput,
}

/// One call of `web_fetch`, in a session or a new one.
fn fetch_with(
    project: &TestProject,
    proxy: Option<&WebServer>,
    session: Option<&str>,
    flags: &[&str],
    input: &Value,
) -> Asked {
    let input = input.to_string();
    let mut arguments = vec!["call", "--json"];
    arguments.extend(flags);
    arguments.extend(session.iter().flat_map(|id| ["--session", id]));
    arguments.extend(["web_fetch", &input]);
    let mut command = agent(project, &arguments);
    if let Some(proxy) = proxy {
        command = command.env("http_proxy", format!("http://{}", proxy.address()));
    }
    let ran = command.finish();
    let observed = ran.json();
    let text = |key: &str| observed[key].as_str().unwrap_or_default().to_owned();
    Asked {
        session: text("session_id"),
        code: text("code"),
        text: text("model_text"),
        observed,
        ran,
    }
}

fn fetch(project: &TestProject, flags: &[&str], url: &str) -> Asked {
    fetch_with(project, None, None, flags, &json!({ "url": url }))
}

fn allow(project: &TestProject, rules: &str) {
    project.write_home("config.toml", format!("[permissions]\n{rules}\n"));
}

/// A rule for the server of a test.
fn opened(project: &TestProject, server: &WebServer) -> String {
    allow(
        project,
        &format!("allow = [\"web_fetch({})\"]", server.address()),
    );
    format!("http://{}", server.address())
}

#[test]
fn a_page_is_shown_and_every_view_tells_who_answered() {
    let project = project();
    let page = "<title>Guide</title><h1>Top</h1><p>See <a href='/more'>more</a>.<p hidden>HIDDEN</p>\x1b[31mred";
    let server = WebServer::says("200 OK\r\nContent-Type: text/html", page.as_bytes());
    let base = opened(&project, &server);
    let asked = fetch(&project, &[], &format!("{base}/guide?x=1"));
    assert_eq!(asked.code, "ok", "{}", asked.observed);
    let expected = format!("# Top\n\nSee [more]({base}/more).");
    assert!(asked.text.contains(&expected), "{}", asked.text);
    assert!(
        !asked.text.contains("HIDDEN") && !asked.text.contains('\u{1b}'),
        "{}",
        asked.text
    );
    assert_eq!(
        asked.observed["content"][0]["trust"],
        "tool_output_untrusted"
    );
    let web = &asked.observed["facts"]["data"]["web"];
    assert_eq!(web["url"], format!("{base}/guide?x=1"));
    assert_eq!(web["machine"], "127.0.0.1");
    assert_eq!(
        (&web["status"], &web["bytes"]),
        (&json!(200), &json!(page.len()))
    );
    // The page as it came is kept.
    let kept = asked.observed["artifact_refs"][0]["artifact_id"]
        .as_str()
        .unwrap();
    let kept = json!({"artifact_id": kept}).to_string();
    let arguments = [
        "call",
        "--json",
        "--session",
        &asked.session,
        "read_artifact",
        &kept,
    ];
    let original = agent(&project, &arguments).finish().json();
    let original = original["model_text"].as_str().unwrap().to_owned();
    assert!(original.contains("<p hidden>HIDDEN</p>"), "{original}");
    for view in [
        &["replay", "last"][..],
        &["replay", "last", "--format", "html"],
        &[
            "why",
            "last",
            asked.observed["tool_call_id"].as_str().unwrap(),
        ],
    ] {
        let told = agent(&project, view)
            .env("COLUMNS", "300")
            .finish()
            .expect_code(0)
            .stdout();
        let host = server.address().ip().to_string();
        assert!(told.contains(&host), "{view:?}: {told}");
        if view[0] == "replay" {
            for part in ["200", "text/html"] {
                assert!(told.contains(part), "{view:?}: {part}");
            }
        }
    }
    assert_audit(&project);
}

#[test]
fn a_long_page_is_read_on() {
    let project = project();
    let lines: String = (0..5_000).map(|line| format!("line {line}\n")).collect();
    let server = WebServer::says("200 OK\r\nContent-Type: text/plain", lines.as_bytes());
    let url = opened(&project, &server);
    let (mut input, mut text) = (json!({ "url": url }), String::new());
    loop {
        let asked = fetch_with(&project, None, None, &[], &input);
        assert_eq!(asked.code, "ok", "{}", asked.observed);
        let lines = asked.text.lines().filter(|line| line.starts_with("line "));
        text.extend(lines.map(|line| format!("{line}\n")));
        if asked.observed["read_more"].is_null() {
            break;
        }
        assert_eq!(asked.observed["read_more"]["tool"], "web_fetch");
        input = asked.observed["read_more"]["input_hint"].clone();
    }
    assert_eq!(text, lines);
}

#[test]
fn nobody_is_asked_for_a_page_that_was_not_allowed() {
    let server = WebServer::says("200 OK", b"x");
    let local = format!("http://{}/", server.address());
    let proxy = internet();
    for (rules, mode, url, code) in [
        ("", "read-only", HOST, "approval_unavailable"),
        ("", "ask", HOST, "approval_unavailable"),
        ("", "accept-edits", HOST, "approval_unavailable"),
        ("", "auto", HOST, "approval_unavailable"),
        ("deny = [\"web_fetch\"]", "full", HOST, "policy_denied"),
        ("deny = [\"network\"]", "full", HOST, "policy_denied"),
        (
            "allow = [\"web_fetch(8.8.4.4)\"]\ndeny = [\"web_fetch(*)\"]",
            "ask",
            HOST,
            "policy_denied",
        ),
        (
            "allow = [\"web_fetch(8.8.4.40)\"]",
            "ask",
            HOST,
            "approval_unavailable",
        ),
        // This machine is nobody's business, whatever is allowed besides.
        ("", "full", &local, "policy_denied"),
        (
            "allow = [\"web_fetch\", \"network\", \"web_fetch(*)\"]",
            "full",
            &local,
            "policy_denied",
        ),
        ("", "full", "http://localhost:1/", "policy_denied"),
        (
            "",
            "full",
            "http://[::ffff:169.254.169.254]/latest/meta-data/",
            "policy_denied",
        ),
        ("", "full", "http://user:pass@8.8.4.4/", "schema_invalid"),
        ("", "full", "file:///etc/passwd", "schema_invalid"),
    ] {
        let project = project();
        allow(&project, rules);
        let flags = ["--mode", mode];
        let asked = fetch_with(&project, Some(&proxy), None, &flags, &json!({ "url": url }));
        assert_eq!(asked.code, code, "{rules} {mode} {url}: {}", asked.observed);
        assert_ne!(asked.ran.code(), 0);
    }
    assert!(server.asked().is_empty() && proxy.asked().is_empty());
}

#[test]
fn a_yes_for_the_session_holds_for_the_host_and_no_other() {
    let project = project();
    let proxy = internet();
    let call = |session: Option<&str>, url: &str| {
        let flags = ["--on-ask", "wait"];
        fetch_with(
            &project,
            Some(&proxy),
            session,
            &flags,
            &json!({ "url": url }),
        )
    };
    let first = call(None, &format!("{HOST}/a?b=c"));
    let open = agent(&project, &["actions", &first.session, "--json"])
        .finish()
        .json();
    let question = open["actions"][0].to_string();
    assert!(question.contains(&format!("{HOST}/a?b=c")), "{question}");
    assert!(question.contains("web_fetch(8.8.4.4)"), "{question}");
    assert!(proxy.asked().is_empty());
    respond(&project, &first.session, &["allow", "--for-session"]).expect_code(0);
    let second = call(Some(&first.session), &format!("{HOST}/other"));
    assert_eq!(second.code, "ok", "{}", second.observed);
    assert!(
        second.text.contains(&format!("{HOST}/other")),
        "{}",
        second.text
    );
    for url in [
        format!("{OTHER}/a"),
        "https://8.8.4.4/a".to_owned(),
        format!("{HOST}:81/a"),
    ] {
        let asked = call(Some(&first.session), &url);
        assert_ne!(asked.code, "ok", "{url}");
        respond(&project, &first.session, &["deny"]).expect_code(0);
    }
    assert!(proxy.asked().iter().all(|head| head.contains("8.8.4.4/")));
    assert_audit(&project);
}

#[test]
fn another_host_is_a_question_of_its_own() {
    let project = project();
    allow(&project, "allow = [\"web_fetch(8.8.4.4)\"]");
    let proxy = internet();
    let input = json!({ "url": format!("{HOST}/moved") });
    let asked = fetch_with(&project, Some(&proxy), None, &[], &input);
    assert_eq!(asked.code, "ok", "{}", asked.observed);
    let next = asked.observed["read_more"]["input_hint"].clone();
    assert_eq!(next, json!({ "url": format!("{OTHER}/new") }));
    assert!(
        asked.text.contains("another host, which was not asked"),
        "{}",
        asked.text
    );
    let asked = fetch_with(&project, Some(&proxy), None, &[], &next);
    assert_eq!(asked.code, "approval_unavailable");
    assert_eq!(proxy.asked().len(), 1);
    assert_audit(&project);
}

#[test]
fn an_answer_that_is_no_page_says_so() {
    let project = project();
    let server = WebServer::new(|target, stream| match target {
        "/image" => say(
            stream,
            "200 OK\r\nContent-Type: image/png",
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        ),
        "/gone" => say(
            stream,
            "404 Not Found\r\nContent-Type: text/plain",
            b"no such page",
        ),
        "/empty" => say(
            stream,
            "200 OK\r\nContent-Type: text/html",
            b"<script>x()</script>",
        ),
        _ => Ok(()),
    });
    let base = opened(&project, &server);
    for (path, code, words) in [
        (
            "/image",
            "unsupported_content",
            "PNG image, image/png, 16 bytes",
        ),
        ("/gone", "network_failed", "404"),
        ("/gone", "network_failed", "no such page"),
        ("/empty", "ok", "may be made by its scripts"),
        ("/nothing", "network_failed", "cannot be reached"),
    ] {
        let asked = fetch(&project, &[], &format!("{base}{path}"));
        assert_eq!(asked.code, code, "{path}: {}", asked.observed);
        assert!(asked.text.contains(words), "{path}: {}", asked.text);
        assert_eq!(asked.observed["action_happened"], "no");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    drop(listener);
    allow(&project, &format!("allow = [\"web_fetch({at})\"]"));
    let asked = fetch(&project, &[], &format!("http://{at}/"));
    assert_eq!(asked.code, "network_failed", "{}", asked.observed);
    assert_audit(&project);
}

#[test]
fn a_secret_is_sent_to_nobody() {
    let project = project();
    let server = WebServer::says("200 OK", b"x");
    let base = opened(&project, &server);
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let spelt: String = token.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for secret in [&token, &spelt] {
        let asked = fetch(&project, &[], &format!("{base}/?q={secret}"));
        assert_eq!(
            asked.code, "runtime_precondition_failed",
            "{}",
            asked.observed
        );
        assert!(!asked.observed.to_string().contains(&token));
    }
    assert!(server.asked().is_empty());
}

/// A model that speaks Claude Code's words is understood, and reads the page as untrusted text.
#[test]
fn a_model_fetches_a_page_in_its_own_words() {
    let project = project();
    let page = WebServer::says("200 OK\r\nContent-Type: text/plain", b"the answer is 42");
    let url = format!("http://{}/", page.address());
    let server = ModelServer::start(
        Script::new()
            .turn(Turn::call(
                "WebFetch",
                json!({"url": url, "prompt": "What is it?"}),
            ))
            .turn(Turn::text("It is 42.")),
    );
    let ran = run(&project, &server, Wire::Anthropic, &["what is the answer?"]);
    let rule = format!(
        "[permissions]\nallow = [\"web_fetch({})\"]\n",
        page.address()
    );
    project.write_home("rules.toml", rule);
    ran.finish().expect_code(0);
    let sent = server.bodies()[1].to_string();
    assert!(
        sent.contains("the answer is 42") && sent.contains("untrusted"),
        "{sent}"
    );
    assert_audit(&project);
}
