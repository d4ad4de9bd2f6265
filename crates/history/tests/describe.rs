//! Every event class has words, whatever its payload says: samples are made from the schema of each class, in
//! several variants, with text in every string that would act on a terminal.

#![allow(clippy::unwrap_used, clippy::panic)] // a test: a failure is the report

use agent_history::describe::{MOST_LABEL, MOST_TEXT};
use agent_history::{Description, describe};
use agent_protocol::{Event, EventType, Payload, schema};
use serde_json::{Map, Value, json};

/// Clears the screen, hides, reorders, begins another line.
const HOSTILE: &str = "a\u{1b}[2J\u{1b}]0;t\u{7}b\r\n\u{202e}c\u{200b}\u{9b}1A\td";

/// Variants per class: each word of a small enum has its turn, and each optional field is there and is not.
const VARIANTS: usize = 9;

struct Samples {
    schema: Value,
    text: String,
}

impl Samples {
    fn new(text: &str) -> Self {
        Self {
            schema: schema::event_schema(),
            text: text.into(),
        }
    }

    fn event(&self, class: EventType, variant: usize) -> Event {
        let at = EventType::ALL.iter().position(|other| *other == class);
        let rule = &self.schema["allOf"][at.unwrap()]["then"]["properties"]["payload"];
        let mut event = json!({
            "type": class.as_str(), "event_id": "ev_1", "timestamp": "2026-01-02T03:04:05Z", "sequence": 7,
            "schema_version": "1", "runtime_id": "rt_1", "session_id": "ses_1", "turn_id": "turn_1",
            "payload": self.value(rule, variant, 0), "refs": {}, "prev": format!("sha256:{}", "0".repeat(64)),
        });
        if variant == 1 {
            event["subagent_id"] = "sub_1".into();
        }
        let event = Event::from_line(event.to_string().as_bytes()).unwrap();
        assert_eq!(
            event.payload.event_type(),
            Some(class),
            "{:?}",
            event.payload
        );
        event
    }

    fn value(&self, rule: &Value, variant: usize, depth: usize) -> Value {
        if let Some(reference) = rule["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap();
            return match name {
                "Timestamp" => "2026-01-02T03:04:05Z".into(),
                name => self.value(&self.schema["$defs"][name], variant, depth),
            };
        }
        if let Some(word) = rule.get("const") {
            return word.clone();
        }
        if let Some(words) = rule["enum"].as_array() {
            return words[variant % words.len()].clone();
        }
        for one_of in ["oneOf", "anyOf"] {
            if let Some(rules) = rule[one_of].as_array() {
                // A word may stand in any of the lists.
                let each = rules.iter().flat_map(|rule| match rule["enum"].as_array() {
                    Some(words) => words.iter().map(|word| json!({ "const": word })).collect(),
                    None => vec![rule.clone()],
                });
                let each: Vec<Value> = each.filter(|rule| rule["type"] != "null").collect();
                return self.value(&each[variant % each.len()], variant, depth);
            }
        }
        let kind = match &rule["type"] {
            Value::Array(kinds) => kinds[0].as_str().unwrap_or_default(),
            kind => kind.as_str().unwrap_or_default(),
        };
        match kind {
            "string" if rule.get("pattern").is_some() => {
                format!("sha256:{}", "a".repeat(64)).into()
            }
            "string" if rule.get("maxLength").is_some() => "id_1".into(),
            "string" if rule["format"] == "date-time" => "2026-01-02T03:04:05Z".into(),
            "string" => self.text.clone().into(),
            "integer" => (variant % 3).into(),
            "number" => json!(1.5),
            "boolean" => variant.is_multiple_of(2).into(),
            "array" if depth > 6 => json!([]),
            "array" => {
                let item = || self.value(&rule["items"], variant, depth + 1);
                (0..variant % 3).map(|_| item()).collect()
            }
            "object" => self.object(rule, variant, depth),
            // Any value at all, such as the input of a tool.
            _ => json!({ "command": self.text, "other": [self.text] }),
        }
    }

    fn object(&self, rule: &Value, variant: usize, depth: usize) -> Value {
        let required = rule["required"].as_array();
        let mut fields = Map::new();
        for (at, (name, field)) in rule["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .enumerate()
        {
            let is_required = required.is_some_and(|names| names.iter().any(|have| have == name));
            let is_left_out = match variant {
                0 => true,
                1 => false,
                _ => (at + variant).is_multiple_of(2),
            };
            if is_required || !is_left_out {
                fields.insert(name.clone(), self.value(field, variant, depth + 1));
            }
        }
        fields.into()
    }
}

fn every_sample() -> impl Iterator<Item = (EventType, usize)> {
    let each = EventType::ALL.iter();
    each.flat_map(|class| (0..VARIANTS).map(|variant| (*class, variant)))
}

fn every_text(description: &Description) -> Vec<(&str, usize, bool)> {
    let mut texts = vec![
        (description.label.as_ref(), MOST_LABEL, false),
        (description.text.as_str(), MOST_TEXT, true),
        (description.facts.as_str(), MOST_TEXT, true),
    ];
    texts.extend(
        description
            .subject
            .iter()
            .map(|text| (text.as_str(), MOST_TEXT, false)),
    );
    for block in &description.blocks {
        texts.push((block.title.as_ref(), MOST_LABEL, false));
        texts.push((block.text.as_str(), MOST_TEXT, true));
    }
    texts
}

#[test]
fn every_class_has_words() {
    for text in ["words", ""] {
        let samples = Samples::new(text);
        for (class, variant) in every_sample() {
            let description = describe(&samples.event(class, variant));
            assert!(!description.label.trim().is_empty(), "{class:?}");
            assert!(!description.text.trim().is_empty(), "{class:?} {variant}");
            // Its name alone is not how it reads.
            assert!(!description.text.contains(class.as_str()), "{class:?}");
        }
    }
}

#[test]
fn no_text_acts_on_a_terminal_or_hides() {
    let samples = Samples::new(HOSTILE);
    for (class, variant) in every_sample() {
        let description = describe(&samples.event(class, variant));
        for (text, _, may_break) in every_text(&description) {
            let bad = text.chars().find(|character| match character {
                '\n' => !may_break,
                character => agent_text::is_hidden(*character),
            });
            assert_eq!(bad, None, "{class:?} {variant}: {text:?}");
        }
        let line = description.line();
        assert!(
            !line.chars().any(agent_text::is_hidden),
            "{class:?}: {line:?}"
        );
    }
}

#[test]
fn no_text_is_longer_than_a_line_of_a_log() {
    let samples = Samples::new(&"é\u{1b}".repeat(MOST_TEXT / 4));
    for class in EventType::ALL {
        // The variant with every field; escaped, each text is longer than a line.
        let description = describe(&samples.event(*class, 1));
        for (text, most, _) in every_text(&description) {
            assert!(text.len() <= most, "{class:?}: {}", text.len());
        }
    }
}

#[test]
fn what_is_not_understood_is_named_and_shown_whole() {
    let line = |class: &str, payload: Value| {
        let event = json!({
            "type": class, "event_id": "ev_1", "timestamp": "2026-01-02T03:04:05Z", "sequence": 7,
            "schema_version": "1", "runtime_id": "rt_1", "session_id": "ses_1", "payload": payload,
            "refs": {}, "prev": format!("sha256:{}", "0".repeat(64)),
        });
        Event::from_line(event.to_string().as_bytes()).unwrap()
    };
    let event = line("moon.landed", json!({ "crater": "Tycho" }));
    assert!(matches!(event.payload, Payload::Unknown(_)));
    let description = describe(&event);
    assert_eq!(
        description.text,
        "`moon.landed`, which this version does not know"
    );
    assert!(description.blocks[0].text.contains("Tycho"));
    let description = describe(&line("turn.started", json!({ "mode": 7 })));
    assert!(
        description
            .text
            .starts_with("`turn.started` in a shape that this version does not know"),
        "{}",
        description.text
    );
}
