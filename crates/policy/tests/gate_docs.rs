//! The tables in `docs/permissions.md` are true, and so are its rule files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a wrong line in the page is the failure"
)]

mod gate_support;

use agent_policy::gate::{RuleSource, read_rules};
use agent_protocol::payload::permission::Layer;
use gate_support::{Case, bases, cases, tools};

fn page() -> String {
    let path = gate_support::fixtures().join("../../docs/permissions.md");
    std::fs::read_to_string(path).unwrap()
}

fn cells(line: &str) -> Vec<String> {
    let line = line.trim().trim_start_matches('|').trim_end_matches('|');
    line.replace("\\|", "\u{0}")
        .split('|')
        .map(|cell| cell.trim().replace('\u{0}', "|"))
        .collect()
}

#[test]
fn every_row_of_the_page_holds() {
    let page = page();
    let template = cases()
        .into_iter()
        .find(|case| case.links.is_empty())
        .unwrap();
    let mut rows = 0;
    for table in page.split("<!-- test -->").skip(1) {
        let lines = table
            .trim_start()
            .lines()
            .take_while(|line| line.starts_with('|'));
        for line in lines.skip(2) {
            let cells = cells(line);
            let [rules, mode, call, decision] = cells.as_slice() else {
                panic!("{line}");
            };
            let (tool, subject) = match call.split_once('`').unwrap() {
                ("", rest) => ("bash", rest),
                (tool, rest) => (tool.trim(), rest),
            };
            let case = Case {
                tool: tool.to_owned(),
                subject: subject.trim_end_matches('`').replace("~/", "/home/u/"),
                mode: mode.clone(),
                rules: rules
                    .split('`')
                    .filter(|rule| !rule.trim().is_empty())
                    .map(str::to_owned)
                    .collect(),
                ..template.clone()
            };
            let evaluated = case.evaluate().evaluated;
            assert_eq!(
                &evaluated.decision.to_string(),
                decision,
                "{line}\n{}",
                evaluated.reason
            );
            rows += 1;
        }
    }
    assert!(rows >= 40, "only {rows} rows were found");
}

#[test]
fn the_rule_files_of_the_page_load() {
    let page = page();
    let source = RuleSource {
        layer: Layer::User,
        file: "config.toml".into(),
    };
    let mut rules = 0;
    for block in page.split("```toml\n").skip(1) {
        let text = block.split("```").next().unwrap();
        rules += read_rules(text, &source, &bases(), &tools()).unwrap().len();
    }
    assert_eq!(rules, 6);
}
