//! Context of the user's words: inputs that join a turn stay known after `/compact`, and images
//! go to models that can see them.

use agent_protocol::Payload;
use agent_test_support::model_server::{Script, Turn};

use super::terminal::Terminal;
use super::{READY, USUAL, bash, events, leave, project_with, with_setting};
use crate::agent;

#[test]
fn what_joined_a_turn_is_known_after_compaction() {
    let script = Script::new()
        .turn(bash("until [ -e stop ]; do sleep 0.01; done; echo over"))
        .turn(Turn::text("First done."))
        .otherwise(|number, request| {
            let body = String::from_utf8_lossy(&request.body);
            if body.contains("Summarise the conversation so far") {
                return Turn::text("They wanted tests.");
            }
            Turn::text(&format!("Answer {number}."))
        });
    let (project, server) = project_with(script);
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    terminal.question("until [ -e stop ]").keys("a");
    terminal
        .wait_for("bash is running")
        .keys("Mind the tests.\x13");
    terminal.wait_for("Mind the tests.");
    terminal.wait_for("joins at the next step");
    project.write("stop", "");
    terminal.wait_for("First done.").wait_for(READY);
    for number in 2..5 {
        terminal.keys("more\r");
        terminal
            .wait_for(&format!("Answer {number}."))
            .wait_for(READY);
    }
    terminal.keys("/compact\r").wait_for("compaction: ");
    terminal.wait_for(READY).keys("last\r");
    terminal.wait_for("Answer 6.").wait_for(READY);
    let body = server.bodies().pop().unwrap();
    let messages = body["messages"].as_array().unwrap();
    let sheet = messages[1]["content"].as_str().unwrap();
    for words in [
        "word for word ---\ngo\n",
        "word for word ---\nMind the tests.\n",
    ] {
        assert!(sheet.contains(words), "{sheet}");
    }
    assert_eq!(messages.last().unwrap()["content"], "last");
    leave(&mut terminal);
}

/// Room that is asked for while the last answer of a turn comes in is made when it is there.
#[test]
fn room_asked_for_in_the_last_answer_is_made_behind_it() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let script = Script::new().otherwise(move |number, request| {
        let body = String::from_utf8_lossy(&request.body);
        if body.contains("Summarise the conversation so far") {
            return Turn::text("They wanted tests.");
        }
        if number == 3 {
            held.lock().unwrap().recv().unwrap();
        }
        Turn::text(&format!("Answer {number}."))
    });
    let (project, server) = project_with(script);
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY);
    for number in 0..3 {
        terminal.keys("more\r");
        terminal
            .wait_for(&format!("Answer {number}."))
            .wait_for(READY);
    }
    terminal.keys("more\r");
    server.wait_for_requests(4);
    terminal.keys("/compact").wait_for("› /compact");
    terminal.keys("\r").wait_for("› Enter queues a message");
    release.send(()).unwrap();
    terminal.wait_for("Answer 3.").wait_for("compaction: ");
    leave(&mut terminal);
}

/// An input that joined a turn has ended with it: it is told neither as queued nor as open.
#[test]
fn what_joined_a_turn_has_ended_with_it() {
    let (project, _server) = project_with(
        Script::new()
            .turn(bash("until [ -e stop ]; do sleep 0.01; done; echo over"))
            .turn(Turn::text("Both done.")),
    );
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("go\r");
    terminal.question("until [ -e stop ]").keys("a");
    terminal
        .wait_for("bash is running")
        .keys("Mind the tests.\x13");
    terminal.wait_for("joins at the next step");
    project.write("stop", "");
    terminal.wait_for("Both done.").wait_for(READY);
    leave(&mut terminal);
    let shown = agent(&project, &["sessions", "show", "last", "--json"]).finish();
    let shown = shown.expect_code(0).json();
    assert_eq!(shown["queue"], serde_json::json!([]), "{shown:#}");
    for turn in shown["turns"].as_array().unwrap() {
        assert_eq!(turn["status"], "completed", "{turn:#}");
    }
    let audited = agent(&project, &["audit", "last"]).finish().expect_code(0);
    assert!(
        !audited.stdout().contains("has not started"),
        "{}",
        audited.stdout()
    );
}

#[test]
fn an_image_the_model_cannot_see_is_named_as_missing() {
    let (project, server) = project_with(Script::new().turn(Turn::text("I cannot see it.")));
    with_setting(
        &project,
        "[providers.local.models.\"test-model\"]\nimages = false",
    );
    project.write("pic.png", b"\x89PNG\r\n\x1a\n");
    let mut terminal = Terminal::start(&project, &[], USUAL);
    terminal.wait_for(READY).keys("look at @pic.png \r");
    terminal.wait_for("I cannot see it.").wait_for(READY);
    let body = server.requests().pop().unwrap().body;
    let body = String::from_utf8(body).unwrap();
    assert!(!body.contains("base64"), "{body}");
    assert!(body.contains("an image is here that this model cannot see"));
    let receipt = events(&project, "")
        .into_iter()
        .find_map(|event| match event.payload {
            Payload::ContextResolved(receipt) => Some(receipt),
            _ => None,
        });
    let missing = receipt.unwrap().missing;
    assert_eq!(missing.len(), 1);
    assert_eq!(missing[0].status, "blocked");
    leave(&mut terminal);
    crate::run::assert_inputs_can_be_rebuilt(&project, &server);
}
