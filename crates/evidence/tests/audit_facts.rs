//! Logs that were forged where the chain cannot show it: each fault is found, by its own name, at
//! its own event, and says what it means.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "a test that cannot go on should stop where it stands; the support is shared"
)]

use agent_test_support::session as support;

use agent_evidence::audit::{
    AuditReport, Checks, ReadClaim, Severity, VerificationRun, audit_with, meaning, to_sarif,
};
use agent_log::{RedactionRules, Redactor};
use agent_protocol::payload::conversation::*;
use agent_protocol::payload::permission::Effect;
use agent_protocol::payload::tool::*;
use agent_protocol::payload::{SideEffect, SideEffectKind};
use agent_protocol::status::VerificationStatus;
use agent_protocol::{Code, Phase};
use support::Project;
use support::story::{ANSWER, COMMAND, Teller, args_sha256};

/// Audits a turn told by `tell` and ended by `end`.
fn audited(tell: impl FnOnce(&mut Teller<'_>), end: TurnCompleted) -> AuditReport {
    let project = Project::new();
    // A writer that masks nothing: what it writes is what an audit has to find.
    let writer = project
        .store()
        .create(
            support::created(),
            project.session_env_with(Redactor::off()),
        )
        .unwrap();
    let mut teller = Teller::new(&writer);
    teller.tell(ThreadStarted::default());
    teller.begin_turn("do it");
    teller.ask_model(1);
    tell(&mut teller);
    if let Some(text) = end.final_text.as_ref().filter(|text| *text != ANSWER) {
        teller.hear(2, text);
    }
    teller.tell(end);
    let redactor = Redactor::new(RedactionRules::default(), b"key").unwrap();
    let claims = |text: &str, runs: &[VerificationRun]| -> Vec<ReadClaim> {
        let good = runs
            .last()
            .is_some_and(|run| run.exit_code == Some(0) && !run.stale);
        let claims = text.contains("tests pass");
        let claim = (claims && !good).then(|| ReadClaim {
            text: text.to_owned(),
            verdict: ClaimVerdict::Contradicted,
            evidence_id: None,
        });
        claim.into_iter().collect()
    };
    let checks = Checks {
        anchors: Some(&project.anchors()),
        redactor: Some(&redactor),
        claims: Some(&claims),
        verifies: Some(&|command| command == COMMAND),
        decides: Some(&|command| command == COMMAND),
        judge: None,
    };
    let session = project.store().resolve("last").unwrap();
    audit_with(&session, checks).unwrap()
}

/// The codes of everything that is more than a note, after seeing that each says what it means.
fn codes(report: &AuditReport) -> Vec<&str> {
    let found = report.findings.iter();
    let found = found.filter(|finding| finding.severity != Severity::Note);
    found
        .map(|finding| {
            assert!(!meaning(&finding.code).is_empty(), "{}", finding.code);
            assert!(finding.sequence.is_some(), "{finding:?}");
            finding.code.as_str()
        })
        .collect()
}

fn ended(status: VerificationStatus) -> TurnCompleted {
    TurnCompleted {
        outcome: TurnOutcome::Completed,
        stop_reason: "end_turn".into(),
        final_text: Some(ANSWER.into()),
        verification: Verification {
            status,
            ..Verification::default()
        },
        ..TurnCompleted::default()
    }
}

fn quiet() -> TurnCompleted {
    ended(VerificationStatus::NotApplicable)
}

/// A call that changed what `effect` says, and shows `shown`.
fn change(teller: &mut Teller<'_>, effect: SideEffect, shown: Option<SideEffect>, read_only: bool) {
    let intent = teller.propose("edit", true);
    let permission = teller.decide(Effect::Allow);
    let started = ToolStarted {
        invocation_id: teller.writer.mint(),
        intent_id: intent.intent_id.clone(),
        tool_name: "edit".into(),
        permission_ref: permission.event_id.to_string(),
        args_sha256: args_sha256(&intent),
        flags: CallFlags {
            is_read_only: read_only,
            ..CallFlags::default()
        },
        ..ToolStarted::default()
    };
    teller.tell(started.clone());
    teller.tell(ToolResult {
        invocation_id: started.invocation_id.clone(),
        exit: ToolExit::Ok,
        ok: true,
        code: Code::Ok,
        side_effects: vec![effect],
        ..ToolResult::default()
    });
    teller.effects.extend(shown);
    teller.observe(&intent, Some(&started), Phase::Execute, Code::Ok);
}

/// A sound change of `path`, with its images.
fn sound(teller: &Teller<'_>, path: &str, before: &[u8], after: &[u8]) -> SideEffect {
    let put = |kind, bytes: &[u8]| {
        teller
            .writer
            .put_artifact(&teller.scope, kind, "text/plain", bytes, None)
            .unwrap()
            .artifact_id
    };
    let (before_ref, after_ref) = (
        put(ArtifactKind::Before, before),
        put(ArtifactKind::After, after),
    );
    SideEffect {
        kind: SideEffectKind::Modified,
        path: path.into(),
        sha256_before: Some(before_ref.hex().into()),
        sha256_after: Some(after_ref.hex().into()),
        bytes_before: Some(before.len() as u64),
        bytes_after: Some(after.len() as u64),
        before_ref: Some(before_ref),
        after_ref: Some(after_ref),
        ..SideEffect::default()
    }
}

/// Tells a change made of a sound one by `forge`, and expects these codes.
fn check_change(forge: impl FnOnce(&mut SideEffect), expected: &[&str]) {
    let mut kept = None;
    let project = Project::new();
    drop(project);
    let report = audited(
        |teller| {
            let mut effect = sound(teller, "a.txt", b"one\n", b"two\n");
            forge(&mut effect);
            kept = Some(effect.clone());
            change(teller, effect.clone(), Some(effect), false);
        },
        TurnCompleted {
            files_changed: vec![SideEffect {
                path: "a.txt".into(),
                ..SideEffect::default()
            }],
            ..ended(VerificationStatus::Unverified)
        },
    );
    assert_eq!(codes(&report), expected, "{:#?}", report.findings);
}

#[test]
fn changes_are_compared_with_their_images() {
    check_change(|_| {}, &[]);
    check_change(
        |effect| effect.before_ref.clone_from(&effect.after_ref),
        &["image_differs"],
    );
    check_change(|effect| effect.bytes_after = Some(7), &["image_differs"]);
    check_change(
        |effect| effect.kind = SideEffectKind::Created,
        &["effect_contradicts_itself"],
    );
    check_change(
        |effect| effect.kind = SideEffectKind::Deleted,
        &["effect_contradicts_itself"],
    );
    check_change(|effect| effect.before_ref = None, &["image_missing"]);
}

#[test]
fn a_change_that_was_hidden_or_should_not_have_been_is_found() {
    let end = |paths: &[&str]| TurnCompleted {
        files_changed: paths
            .iter()
            .map(|path| SideEffect {
                path: (*path).into(),
                ..SideEffect::default()
            })
            .collect(),
        ..ended(VerificationStatus::Unverified)
    };
    let hidden = audited(
        |teller| {
            let effect = sound(teller, "a.txt", b"one\n", b"two\n");
            change(teller, effect, None, false);
        },
        end(&["a.txt"]),
    );
    assert_eq!(codes(&hidden), ["observation_effects_differ"]);
    let reading = audited(
        |teller| {
            let effect = sound(teller, "a.txt", b"one\n", b"two\n");
            change(teller, effect.clone(), Some(effect), true);
        },
        end(&["a.txt"]),
    );
    assert_eq!(codes(&reading), ["read_only_changed_files"]);
    let untold = audited(
        |teller| {
            let effect = sound(teller, "a.txt", b"one\n", b"two\n");
            change(teller, effect.clone(), Some(effect), false);
        },
        end(&["b.txt"]),
    );
    assert_eq!(codes(&untold), ["files_changed_differ"]);
    // Directories are in the record for undo and in no account of changed files.
    let directory = audited(
        |teller| {
            let effect = SideEffect {
                kind: SideEffectKind::Created,
                path: "d".into(),
                file_type: Some("directory".into()),
                mode_after: Some(0o755),
                ..SideEffect::default()
            };
            change(teller, effect.clone(), Some(effect), false);
        },
        end(&[]),
    );
    assert_eq!(codes(&directory), [""; 0]);
    let between = audited(
        |teller| {
            for (before, after) in [(b"one\n", b"two\n"), (b"six\n", b"ten\n")] {
                let effect = sound(teller, "a.txt", before, after);
                change(teller, effect.clone(), Some(effect), false);
            }
        },
        end(&["a.txt"]),
    );
    assert_eq!(codes(&between), [""; 0]);
    assert!(
        between
            .findings
            .iter()
            .any(|finding| finding.code == "changed_outside")
    );
}

/// A command that ended with `exit_code`, and what is said of it.
fn evidence(teller: &mut Teller<'_>, status: EvidenceStatus, exit_code: i32) {
    let call = teller.command(exit_code);
    teller.evidence(Some(call), status, exit_code);
}

#[test]
fn verification_is_computed_again() {
    let check = |tell: &dyn Fn(&mut Teller<'_>), said, expected: &[&str]| {
        let report = audited(|teller| tell(teller), ended(said));
        assert_eq!(codes(&report), expected, "{:#?}", report.findings);
    };
    let passed = |teller: &mut Teller<'_>| evidence(teller, EvidenceStatus::Passed, 0);
    let failed = |teller: &mut Teller<'_>| evidence(teller, EvidenceStatus::Failed, 1);
    let lied = |teller: &mut Teller<'_>| evidence(teller, EvidenceStatus::Passed, 1);
    check(&passed, VerificationStatus::Passed, &[]);
    check(&failed, VerificationStatus::Failed, &[]);
    check(
        &failed,
        VerificationStatus::Passed,
        &["verification_differs"],
    );
    check(
        &|_| {},
        VerificationStatus::Passed,
        &["verification_differs"],
    );
    check(
        &lied,
        VerificationStatus::Passed,
        &["evidence_differs", "verification_differs"],
    );
    let edited_after = |teller: &mut Teller<'_>| {
        evidence(teller, EvidenceStatus::Passed, 0);
        let effect = sound(teller, "a.txt", b"one\n", b"two\n");
        change(teller, effect.clone(), Some(effect), false);
    };
    let end = TurnCompleted {
        files_changed: vec![SideEffect {
            path: "a.txt".into(),
            ..SideEffect::default()
        }],
        ..ended(VerificationStatus::Passed)
    };
    let report = audited(edited_after, end);
    assert_eq!(codes(&report), ["verification_differs"]);
}

/// The evidence names a call, and the call's command ended otherwise.
#[test]
fn evidence_is_compared_with_the_command() {
    let report = audited(
        |teller| {
            let call = teller.command(1);
            teller.evidence(Some(call), EvidenceStatus::Passed, 0);
        },
        ended(VerificationStatus::Failed),
    );
    assert_eq!(codes(&report), ["evidence_differs", "evidence_differs"]);
    let invented = audited(
        |teller| teller.evidence(None, EvidenceStatus::Passed, 0),
        ended(VerificationStatus::Passed),
    );
    assert_eq!(codes(&invented), ["evidence_without_command"]);
    let hidden = audited(
        |teller| {
            teller.command(1);
        },
        quiet(),
    );
    assert_eq!(codes(&hidden), ["evidence_missing"]);
}

#[test]
fn claims_are_held_against_the_facts() {
    let end = || TurnCompleted {
        final_text: Some("All tests pass.".into()),
        ..ended(VerificationStatus::Failed)
    };
    let failed = |teller: &mut Teller<'_>| evidence(teller, EvidenceStatus::Failed, 1);
    let report = audited(failed, end());
    assert_eq!(codes(&report), ["claim_unmarked"]);
    assert!(
        report.is_ok(),
        "the record is whole; its content deserves a look"
    );
    assert_eq!(report.warnings, 1);
    let marked = audited(
        |teller| {
            failed(teller);
            teller.tell(RuntimeWarning {
                code: "final_answer_conflict".into(),
                ..RuntimeWarning::default()
            });
        },
        end(),
    );
    assert_eq!(codes(&marked), [""; 0]);
    let notes: Vec<&str> = marked
        .findings
        .iter()
        .map(|finding| finding.code.as_str())
        .collect();
    assert_eq!(notes, ["claim_contradicted"]);
}

#[test]
fn a_secret_that_was_not_masked_is_found_and_not_repeated() {
    let secret = "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gH6";
    let report = audited(
        |teller| {
            teller.tell(RuntimeWarning {
                code: "x".into(),
                message: format!("the token is {secret}"),
                ..RuntimeWarning::default()
            });
            teller
                .writer
                .put_artifact(
                    &teller.scope,
                    ArtifactKind::ModelInput,
                    "application/json",
                    format!("{{\"token\":\"{secret}\"}}").as_bytes(),
                    None,
                )
                .unwrap();
            // An exact image may hold anything.
            teller
                .writer
                .put_artifact(
                    &teller.scope,
                    ArtifactKind::Before,
                    "text/plain",
                    secret.as_bytes(),
                    None,
                )
                .unwrap();
        },
        quiet(),
    );
    assert_eq!(codes(&report), ["secret_unmasked", "secret_unmasked"]);
    assert!(!report.to_json().to_string().contains(secret));
    assert!(report.findings[1].artifact_id.is_some());
}

/// The parts of SARIF that readers rely on.
#[test]
fn findings_are_sarif_too() {
    let report = audited(
        |teller| evidence(teller, EvidenceStatus::Failed, 1),
        ended(VerificationStatus::Passed),
    );
    let path = ".agent/sessions/x y/events.jsonl".to_owned();
    let sarif = to_sarif("1.2.3", [(&report, path)]);
    assert_eq!(sarif["version"], "2.1.0");
    let run = &sarif["runs"][0];
    let result = &run["results"][0];
    assert_eq!(result["ruleId"], "verification_differs");
    assert_eq!(result["level"], "error");
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(
        place["artifactLocation"]["uri"],
        ".agent/sessions/x%20y/events.jsonl"
    );
    let line = report.findings[0].sequence.unwrap() + 1;
    assert_eq!(place["region"]["startLine"], line);
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    assert!(
        rules
            .iter()
            .any(|rule| rule["id"] == "verification_differs")
    );
}
