//! The page of `agent replay --format html`, in a real browser: it works, it asks for nothing, and
//! nothing a session says can make it do anything.

use std::fs;
use std::path::PathBuf;

use agent_log::SessionWriter;
use agent_protocol::payload::conversation::{TurnCompleted, TurnStarted, TurnSubmitted};
use agent_protocol::payload::model::ModelCompleted;
use agent_protocol::payload::permission::{Effect, PermissionEvaluated};
use agent_protocol::payload::tool::{
    ContentBlock, ContentFormat, ToolArgs, ToolFailed, ToolIntent, ToolObservation, ToolResult,
    ToolStarted, ToolValidation,
};
use agent_protocol::{Code, Payload, Phase, Refs, Scope};
use agent_test_support::project::TestProject;
use serde_json::json;

use crate::browser::Browser;
use crate::{agent, sample};

/// Text that would do something if a page let it.
const HOSTILE: &[&str] = &[
    "<script>globalThis.pwned=1</script>",
    "</script><script>globalThis.pwned=2</script>",
    "<!--<script>",
    "\"><img src=x onerror=globalThis.pwned=3>",
    "' onmouseover='globalThis.pwned=4' x='",
    "<svg/onload=globalThis.pwned=5>",
    "[click](javascript:globalThis.pwned=6)",
    "</title></style></pre></textarea><iframe srcdoc='<script>parent.pwned=7</script>'>",
    "<base href=//evil.invalid/><link rel=stylesheet href=//evil.invalid/x>",
    "<meta http-equiv=refresh content='0;url=//evil.invalid/'>",
    "&lt;script&gt;globalThis.pwned=8&lt;/script&gt;",
    "`</code><script>globalThis.pwned=9</script>`",
    "```\n</pre><script>globalThis.pwned=10</script>\n```",
    "evil\u{202e}gpj.exe \u{2066}x\u{2069} \u{200b}zero \u{2028}line",
    "\u{1b}[31mred\u{1b}]0;title\u{7}",
    "__proto__",
    "constructor",
    "{{7*7}} ${7*7} <%= 7*7 %>",
];

struct Story<'a> {
    writer: &'a SessionWriter,
    scope: Scope,
}

impl Story<'_> {
    fn tell(&self, scope: &Scope, payload: impl Into<Payload>) -> String {
        let recorded = self.writer.append(scope, payload.into(), Refs::default());
        recorded.unwrap().event_id.to_string()
    }

    /// One call whose every text is `text`.
    fn call(&self, text: &str, ok: bool) {
        let call = Scope {
            step_id: Some(self.writer.mint()),
            tool_call_id: Some(self.writer.mint()),
            ..self.scope.clone()
        };
        let intent_id: agent_protocol::id::IntentId = self.writer.mint();
        self.tell(
            &call,
            ToolIntent {
                intent_id: intent_id.clone(),
                tool_name: if ok { "read".into() } else { text.into() },
                raw_input: Some(json!({ "path": text, text: text })),
                reason: Some(text.into()),
                ..ToolIntent::default()
            },
        );
        self.tell(
            &call,
            ToolValidation {
                intent_id: intent_id.clone(),
                ok: true,
                ..ToolValidation::default()
            },
        );
        self.tell(&call, ToolArgs::default());
        let decision = if ok { Effect::Allow } else { Effect::Deny };
        let permission_ref = self.tell(
            &call,
            PermissionEvaluated {
                decision,
                reason: text.into(),
                ..PermissionEvaluated::default()
            },
        );
        let mut invocation_id = None;
        if ok {
            let id: agent_protocol::id::InvocationId = self.writer.mint();
            self.tell(
                &call,
                ToolStarted {
                    invocation_id: id.clone(),
                    intent_id: intent_id.clone(),
                    tool_name: "read".into(),
                    permission_ref,
                    ..ToolStarted::default()
                },
            );
            self.tell(
                &call,
                ToolResult {
                    invocation_id: id.clone(),
                    ok: true,
                    code: Code::Ok,
                    ..ToolResult::default()
                },
            );
            invocation_id = Some(id);
        } else {
            self.tell(
                &call,
                ToolFailed {
                    phase: Phase::Permission,
                    code: Code::PolicyDenied,
                    message: text.into(),
                    ..ToolFailed::default()
                },
            );
        }
        let content = [ContentFormat::Text, ContentFormat::Diff].map(|format| ContentBlock {
            format,
            source: Some(text.into()),
            text: Some(format!("+{text}\n-{text}\n")),
            ..ContentBlock::default()
        });
        self.tell(
            &call,
            ToolObservation {
                observation_id: self.writer.mint(),
                intent_id,
                invocation_id,
                ok,
                code: if ok { Code::Ok } else { Code::PolicyDenied },
                title: text.into(),
                summary: text.into(),
                content: content.into(),
                ..ToolObservation::default()
            },
        );
    }
}

/// A session in which everything that can be said is hostile, and one call in three is refused.
fn hostile_session(project: &TestProject) {
    let writer = sample::begin(project, 7, HOSTILE[1]);
    let scope = Scope {
        turn_id: Some(writer.mint()),
        ..Scope::default()
    };
    let story = Story {
        writer: &writer,
        scope: scope.clone(),
    };
    let all = HOSTILE.join("\n");
    story.tell(
        &scope,
        TurnSubmitted {
            text: Some(all.clone()),
            ..TurnSubmitted::default()
        },
    );
    story.tell(
        &scope,
        TurnStarted {
            model: HOSTILE[0].into(),
            ..TurnStarted::default()
        },
    );
    for (at, text) in HOSTILE.iter().enumerate() {
        story.tell(
            &scope,
            ModelCompleted {
                text: Some((*text).into()),
                stop_reason: (*text).into(),
                ..ModelCompleted::default()
            },
        );
        story.call(text, at % 3 != 0);
    }
    story.tell(
        &scope,
        TurnCompleted {
            stop_reason: all.clone(),
            final_text: Some(all),
            ..TurnCompleted::default()
        },
    );
    sample::end(&writer);
}

fn page(project: &TestProject) -> PathBuf {
    agent(
        project,
        &["replay", "last", "--format", "html", "-o", "page.html"],
    )
    .finish()
    .expect_code(0);
    project.root().join("page.html")
}

#[track_caller]
fn assert_quiet(browser: &Browser, file: &std::path::Path) {
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
    let own = format!("file://{}", file.display());
    let foreign: Vec<_> = browser
        .requests
        .iter()
        .filter(|url| !url.starts_with(&own) && !url.starts_with("data:"))
        .collect();
    assert!(foreign.is_empty(), "the page asked for {foreign:?}");
}

/// The page itself names no place, has one policy, and no attribute that could act.
#[test]
fn the_file_asks_for_nothing() {
    let project = TestProject::new();
    hostile_session(&project);
    let text = fs::read_to_string(page(&project)).unwrap();
    assert_eq!(text.matches("<script").count(), 2, "data and our own");
    assert_eq!(text.matches("</script>").count(), 2);
    assert_eq!(text.matches("<style").count(), 1);
    for tag in [
        "<img", "<iframe", "<base", "<svg", "<object", "<embed", "<video",
    ] {
        assert!(!text.contains(tag), "{tag}");
    }
    assert!(text.contains("default-src 'none'"));
    assert!(text.contains("require-trusted-types-for 'script'"));
    assert!(!text.contains("unsafe-"));
    assert!(!text.contains('\u{202e}'), "nothing reorders the text");
    for link in text.match_indices("href=\"").map(|(at, _)| &text[at + 6..]) {
        assert!(
            link.starts_with("#e") || link.starts_with("data:,\""),
            "{}",
            &link[..40]
        );
    }
}

#[test]
fn nothing_a_session_says_runs_in_a_browser() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let project = TestProject::new();
    hostile_session(&project);
    let file = page(&project);
    browser.open(&file, "");
    // Every cell is opened, so that every text is in the page.
    browser.key("e");
    let opened = browser.evaluate(
        "document.querySelectorAll('.row .more').forEach(more => more.open = true); \
         new Promise(done => setTimeout(() => done(document.querySelectorAll('.ev').length), 50))",
    );
    assert!(opened.as_u64().unwrap() > 100, "{opened}");
    assert_eq!(browser.evaluate("typeof globalThis.pwned"), "undefined");
    assert_eq!(
        browser.evaluate(
            "document.querySelectorAll('img,iframe,svg,base,meta[http-equiv=refresh]').length"
        ),
        0
    );
    assert_eq!(
        browser.evaluate("document.querySelectorAll('main a:not([href^=\"#e\"])').length"),
        0
    );
    // What was said is there, as text.
    let shown = browser
        .evaluate("document.body.textContent.includes('<script>globalThis.pwned=1</script>')");
    assert_eq!(shown, true);
    assert_quiet(&browser, &file);
}

#[test]
fn filter_search_links_and_keys_work() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let project = TestProject::new();
    hostile_session(&project);
    let file = page(&project);
    browser.open(&file, "");
    let shown = "document.querySelectorAll('.row:not(.off),.call:not(.off)').length";
    let count = |browser: &mut Browser| browser.evaluate(shown).as_u64().unwrap();

    // The verdict is on top.
    let verdict = browser.evaluate("document.querySelector('#integrity strong').textContent");
    assert!(verdict.as_str().unwrap().contains("intact"), "{verdict}");

    // Filters: bookkeeping is off at first, and each kind can be switched.
    let first = count(&mut browser);
    browser.evaluate("document.querySelector('[data-kind=record]').click()");
    let with_records = count(&mut browser);
    assert!(with_records > first, "{first} {with_records}");
    browser.key("9");
    assert_eq!(count(&mut browser), first, "a digit switches a kind, too");
    browser.evaluate("document.querySelector('#failed').click()");
    let failed = count(&mut browser);
    assert_eq!(
        failed,
        HOSTILE.len().div_ceil(3) as u64,
        "refused calls alone"
    );
    browser.evaluate("document.querySelector('#failed').click()");

    // Search: the key brings the focus, words narrow the list, Enter opens the match.
    browser.key("/");
    assert_eq!(browser.evaluate("document.activeElement.id"), "search");
    browser.type_text("zero");
    browser.key("Enter");
    let matches = browser.evaluate("document.querySelector('#count').textContent");
    assert_eq!(
        matches, "4 matches",
        "the prompt, the answer, the call and the end"
    );
    assert_eq!(count(&mut browser), 4);
    browser.key("Enter");
    browser.key("Enter");
    assert_eq!(
        browser.evaluate("document.querySelectorAll('.call details[open]').length"),
        1
    );
    browser.key("Escape");
    assert_eq!(count(&mut browser), first);

    // Keys: from entry to entry, to the next refusal, open and close.
    browser.evaluate("document.activeElement.blur()");
    browser.key("g");
    assert_eq!(
        browser.evaluate("document.querySelectorAll('.cur').length"),
        1
    );
    browser.key("n");
    assert_eq!(
        browser.evaluate("document.querySelector('.cur').classList.contains('bad')"),
        true
    );
    browser.key("Enter");
    assert_eq!(
        browser.evaluate("document.querySelector('.cur details').open"),
        true
    );
    let events = browser.evaluate("document.querySelectorAll('.cur .ev').length");
    assert!(events.as_u64().unwrap() >= 5, "{events}");
    browser.key("?");
    assert_eq!(
        browser.evaluate("document.querySelector('#help').open"),
        true
    );
    assert_quiet(&browser, &file);

    // A link to an event inside a call opens the call and marks the event.
    let inside =
        browser.evaluate("document.querySelectorAll('.call')[4].querySelectorAll('i')[2].id");
    let inside = inside.as_str().unwrap().to_owned();
    browser.open(&file, &format!("#{inside}"));
    let target = browser.evaluate(
        "new Promise(done => setTimeout(() => { const t = document.querySelector(':target'); \
         const box = t && t.getBoundingClientRect(); \
         done(t && [t.id, t.className, box.top >= 0 && box.bottom <= innerHeight]); }, 50))",
    );
    assert_eq!(target[0], inside.as_str());
    assert!(target[1].as_str().unwrap().starts_with("ev"), "{target}");
    assert_eq!(target[2], true, "it is in sight");
    // One to bookkeeping shows it although its kind is off.
    browser.open(&file, "#e0");
    assert_eq!(
        browser.evaluate("document.querySelector('#e0').classList.contains('off')"),
        false
    );
    assert_quiet(&browser, &file);
}

/// `AGENT_SCREENSHOTS=DIR` keeps what a person would see, of the demo's own session.
#[test]
fn it_fits_every_window() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let project = TestProject::new();
    agent(&project, &["demo", "--directory", "demo"])
        .finish()
        .expect_code(0);
    agent(
        &project,
        &[
            "-C",
            "demo",
            "replay",
            "last",
            "--format",
            "html",
            "-o",
            "page.html",
        ],
    )
    .finish()
    .expect_code(0);
    let file = project.root().join("demo/page.html");
    let keep = std::env::var_os("AGENT_SCREENSHOTS").map(PathBuf::from);
    for (name, width, height, scheme, place) in [
        ("light", 1200, 1000, "light", ""),
        ("dark", 1200, 1000, "dark", "#e89"),
        ("narrow", 420, 900, "light", "#e47"),
        ("wide", 1920, 1000, "dark", ""),
    ] {
        browser.prefer(scheme);
        browser.resize(width, height);
        browser.open(&file, place);
        let over = browser.evaluate("document.documentElement.scrollWidth - innerWidth");
        assert!(
            over.as_i64().unwrap() <= 0,
            "{name} is {over} pixels too wide"
        );
        if let Some(keep) = &keep {
            browser.evaluate("new Promise(done => setTimeout(done, 200))");
            browser.screenshot(&keep.join(format!("replay-{name}.png")));
        }
        assert_quiet(&browser, &file);
    }
}
