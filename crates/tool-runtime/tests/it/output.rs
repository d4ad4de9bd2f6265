//! What of an output is shown, what is left out, and that the two add up.

use std::io::Read as _;

use agent_protocol::Payload;
use agent_protocol::payload::model::Trust;
use agent_tool_runtime::Observation;
use agent_tool_runtime::wrapper::{unwrap_untrusted, wrap_untrusted};
use serde_json::json;

use crate::stage::Stage;

fn artifact(stage: &Stage, observation: &Observation) -> Vec<u8> {
    let id = &observation.fact().artifact_refs[0].artifact_id;
    let mut bytes = Vec::new();
    stage
        .journal
        .open_artifact(id)
        .unwrap()
        .read_to_end(&mut bytes)
        .unwrap();
    bytes
}

#[test]
fn a_short_output_is_whole() {
    let stage = Stage::new();
    let observation = stage.one("look", json!({"text": "hello\n"}));
    let fact = observation.fact();
    assert_eq!(observation.model_text(), "look ended with ok\nhello\n");
    assert!(!fact.truncated && fact.omitted_bytes == 0 && fact.artifact_refs.is_empty());
    assert_eq!(fact.content[0].trust, Trust::ToolOutputUntrusted);
    assert_eq!(fact.content[0].text.as_deref(), Some("hello\n"));
}

#[test]
fn a_long_output_is_cut_and_says_so() {
    let stage = Stage::new();
    let observation = stage.one(
        "look",
        json!({"text": "a line of text\n", "repeat": 20_000}),
    );
    let fact = observation.fact();
    let text = observation.model_text();
    assert!(text.chars().count() <= 30_000);
    assert!(fact.truncated);
    let whole = artifact(&stage, &observation);
    assert_eq!(whole, "a line of text\n".repeat(20_000).as_bytes());
    let id = &fact.artifact_refs[0].artifact_id;
    let mark = format!(
        "[truncated: {} bytes omitted; artifact {id}]",
        fact.omitted_bytes
    );
    assert!(text.contains(&mark), "{text:.100}");
    let shown = text.matches("a line of text\n").count() * 15;
    assert_eq!(shown as u64 + fact.omitted_bytes, whole.len() as u64);
    let more = fact.read_more.as_ref().unwrap();
    // The tool that shows artifacts.
    assert_eq!(more.tool, "look");
    assert_eq!(more.input_hint["artifact_id"], json!(id));
    let recorded = stage
        .events()
        .into_iter()
        .find_map(|event| match event.payload {
            Payload::OutputTruncated(truncated) => Some(truncated),
            _ => None,
        });
    assert_eq!(recorded.unwrap().shown_bytes, shown as u64);
}

#[test]
fn an_error_in_the_middle_is_shown() {
    let stage = Stage::new();
    let filler = "nothing to see\n".repeat(10_000);
    let text = format!("{filler}error: the one that matters\n{filler}");
    let observation = stage.one("look", json!({"text": text}));
    assert!(
        observation
            .model_text()
            .contains("error: the one that matters")
    );
    assert!(observation.model_text().contains("bytes not shown"));
}

#[test]
fn control_characters_and_secrets_are_not_passed_on() {
    let stage = Stage::new();
    let secret = format!(
        "sk-{}{}",
        "proj-", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4"
    );
    let observation = stage.one(
        "look",
        json!({"text": format!("\u{1b}]0;x\u{7}\u{202e} key={secret} end")}),
    );
    let text = observation.model_text();
    assert!(
        !text.contains('\u{1b}') && !text.contains('\u{202e}'),
        "{text}"
    );
    assert!(text.contains(r"\x1b]0;x\x07\u{202e}"), "{text}");
    assert!(!text.contains(&secret), "{text}");
    let log = std::fs::read_to_string(stage.writer.log_path()).unwrap();
    assert!(!log.contains(&secret));
}

#[test]
fn the_log_rebuilds_what_the_model_saw() {
    let stage = Stage::new();
    for input in [
        json!({"text": "short"}),
        json!({"text": "long line of output\n", "repeat": 9_000}),
    ] {
        let observation = stage.one("look", input);
        let events = stage.events();
        let event = &events[usize::try_from(observation.sequence()).unwrap()];
        let Payload::ToolObservation(recorded) = &event.payload else {
            panic!("{:?}", event.payload);
        };
        let text = match (&recorded.model_text, &recorded.model_text_ref) {
            (Some(text), _) => text.clone(),
            (None, Some(id)) => {
                let mut text = String::new();
                stage
                    .journal
                    .open_artifact(id)
                    .unwrap()
                    .read_to_string(&mut text)
                    .unwrap();
                text
            }
            (None, None) => panic!("no text"),
        };
        let rebuilt = wrap_untrusted(
            event.scope.tool_call_id.as_ref().unwrap(),
            &recorded.tool_name,
            &text,
        );
        let live = wrap_untrusted(observation.tool_call_id(), "look", observation.model_text());
        assert_eq!(rebuilt, live);
        assert_eq!(unwrap_untrusted(&live), Some(observation.model_text()));
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]
    /// Something is left out if and only if it says so, and the bytes add up.
    #[test]
    fn nothing_is_cut_silently(line in "[a-zä \\x00\\x1b]{0,80}", repeat in 0u64..4_000) {
        let stage = Stage::new();
        let text = format!("{line}\n");
        let observation = stage.one("look", json!({"text": text, "repeat": repeat}));
        let fact = observation.fact();
        let total = text.len() as u64 * repeat;
        proptest::prop_assert!(observation.model_text().chars().count() <= 30_000);
        proptest::prop_assert_eq!(fact.truncated, fact.omitted_bytes > 0);
        proptest::prop_assert_eq!(fact.truncated, observation.model_text().contains("[truncated: "));
        if fact.truncated {
            proptest::prop_assert_eq!(artifact(&stage, &observation).len() as u64, total);
            proptest::prop_assert!(fact.omitted_bytes < total);
        }
    }
}
