//! Every row of `fixtures/permissions/` through the gate.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a table test says which row failed and why"
)]

mod gate_support;

use agent_protocol::payload::permission::Effect;
use gate_support::{Case, cases};

fn fits(expected: &str, decision: Effect) -> bool {
    match expected {
        "allow" => decision == Effect::Allow,
        "ask" => decision == Effect::Ask,
        "deny" => decision == Effect::Deny,
        "not-allowed" => decision != Effect::Allow,
        other => panic!("unknown expectation {other}"),
    }
}

#[test]
fn every_row_is_decided_as_written() {
    let cases = cases();
    assert!(cases.len() >= 400, "only {} rows", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let evaluated = case.evaluate().evaluated;
        if !fits(&case.expect, evaluated.decision) {
            wrong.push(format!(
                "{}: {} `{}` in mode {} {:?}\n    expected {}, got {} by {}: {}\n    because {}",
                case.file,
                case.tool,
                case.subject.escape_debug(),
                case.mode,
                case.rules,
                case.expect,
                evaluated.decision,
                evaluated.decision_source,
                evaluated.reason,
                case.why,
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} rows:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_row_has_its_own_reason_and_is_there_once() {
    let mut seen = std::collections::HashSet::new();
    for case in cases() {
        assert!(case.why.len() >= 8, "{}: {}", case.file, case.subject);
        let key = format!(
            "{} {} {} {} {:?} {:?} {:?} {:?} {:?} {}",
            case.tool,
            case.subject,
            case.mode,
            case.sandbox,
            case.rules,
            case.dirty,
            case.links,
            case.files,
            case.cwd,
            case.network
        );
        assert!(seen.insert(key), "twice: {}: {}", case.file, case.subject);
    }
}

/// The share of everyday reading that needs no question, in the mode everybody starts with.
#[test]
fn everyday_reading_is_not_asked_about() {
    let everyday: Vec<Case> = cases()
        .into_iter()
        .filter(|case| matches!(case.file.as_str(), "reading.toml" | "everyday.toml"))
        .filter(|case| case.expect == "allow")
        .collect();
    assert!(everyday.len() >= 150, "{}", everyday.len());
    let asked: Vec<&str> = everyday
        .iter()
        .filter(|case| case.evaluate().evaluated.decision != Effect::Allow)
        .map(|case| case.subject.as_str())
        .collect();
    assert!(
        asked.len() * 100 <= everyday.len() * 3,
        "{} of {} ask: {asked:#?}",
        asked.len(),
        everyday.len()
    );
}

/// An allow rule or an allowing hook more never turns a deny into anything else.
#[test]
fn allow_rules_and_hooks_never_beat_a_deny() {
    for case in cases() {
        let before = case.evaluate().evaluated;
        if before.decision != Effect::Deny {
            continue;
        }
        for extra in [
            "allow bash",
            "allow bash(*)",
            "allow read(**)",
            "allow write(**)",
            "allow edit(**)",
        ] {
            let mut wider = case.clone();
            wider.rules.push(extra.to_owned());
            wider.hook_allows = true;
            let after = wider.evaluate().evaluated;
            assert_eq!(
                after.decision,
                Effect::Deny,
                "{} with {extra}",
                case.subject
            );
        }
    }
}

/// Modes are ceilings: whatever read-only lets through, mode ask does too, under the same rules.
#[test]
fn read_only_is_the_tightest_mode() {
    for case in cases() {
        if case.mode != "ask" {
            continue;
        }
        let mut tighter = case.clone();
        tighter.mode = "read-only".to_owned();
        if tighter.evaluate().evaluated.decision == Effect::Allow {
            assert_eq!(
                case.evaluate().evaluated.decision,
                Effect::Allow,
                "{}",
                case.subject
            );
        }
    }
}

/// Neither a proof nor a mode nor a rule about commands shows credentials, and what is shown them can do no more than read.
#[test]
fn only_a_rule_about_the_network_shows_credentials() {
    let mut given = 0;
    for case in cases() {
        let judgement = case.evaluate();
        let reach = &judgement.confinement;
        let is_granted = case
            .rules
            .iter()
            .any(|rule| rule.contains("allow network("));
        if judgement.evaluated.decision != Effect::Allow || reach.service.is_none() {
            continue;
        }
        assert!(is_granted, "{case:?}");
        assert!(reach.by_proof && reach.hide_secrets, "{case:?}");
        assert!(reach.network && !reach.project_writable, "{case:?}");
        assert!(reach.profile.ends_with("+network+gh"), "{case:?}");
        given += 1;
    }
    assert!(given >= 12, "{given}");
}
