//! Rule files: no text panics the reader.
#![no_main]

use agent_protocol::payload::permission::Layer;
use agent_policy::gate::{Bases, RuleSource, read_rules};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let source = RuleSource { layer: Layer::User, file: "rules.toml".to_owned() };
    let bases = Bases { project: "/project".into(), home: "/home/user".into() };
    let tools = agent_local_tools::definitions().iter().cloned().collect();
    let _ = read_rules(text, &source, &bases, &tools);
});
