//! Removing artifacts that may go: what is said of it first, and what is never removed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop where it stands"
)]

use std::fs;

use agent_test_support::session as support;
use support::Project;
use support::story::{Teller, whole_story};

#[test]
fn pruning_says_what_it_removes() {
    let project = Project::new();
    whole_story(&project.create());
    let session = project.store().resolve("last").unwrap();
    let policy = agent_log::PrunePolicy {
        keep_bytes: Some(0),
        ..agent_log::PrunePolicy::default()
    };
    let plan = agent_log::plan_prune(&session, &policy).unwrap();
    assert_eq!(plan.expiring.len(), 3, "before-images stay: {plan:?}");
    let before = session.size().unwrap();
    let freed = agent_log::prune(&session, &plan, project.session_env()).unwrap();
    let after = session.size().unwrap();
    assert_eq!(before.artifact_bytes - after.artifact_bytes, freed);
    assert_eq!(freed, plan.bytes());
    let log = fs::read_to_string(session.log_path()).unwrap();
    assert_eq!(log.matches(r#""type":"output.expired""#).count(), 3);
    let report = agent_evidence::audit::audit(&session, Some(&project.anchors())).unwrap();
    assert!(report.is_ok(), "{:#?}", report.findings);
    assert!(
        agent_log::plan_prune(&session, &policy)
            .unwrap()
            .expiring
            .is_empty()
    );
}

#[test]
fn what_a_branch_began_with_is_not_pruned() {
    let project = Project::new();
    whole_story(&project.create());
    let session = project.store().resolve("last").unwrap();
    let branch = agent_log::fork::fork(
        &session,
        None,
        &project.store(),
        support::created(),
        project.session_env(),
    );
    let id = branch.unwrap().session_id().clone();
    let branch = project.store().resolve(id.as_str()).unwrap();
    // Nothing ends there, but what is cut off would be missed.
    let anchored = project.anchors().read(&id).unwrap().unwrap();
    assert_eq!(anchored.sequence, 1);
    let policy = agent_log::PrunePolicy {
        keep_bytes: Some(0),
        include_before_images: true,
        ..agent_log::PrunePolicy::default()
    };
    let plan = agent_log::plan_prune(&branch, &policy).unwrap();
    assert!(plan.expiring.is_empty(), "{plan:?}");

    let plan = agent_log::plan_prune(&session, &policy).unwrap();
    agent_log::prune(&session, &plan, project.session_env()).unwrap();
    let log = fs::read_to_string(session.log_path()).unwrap();
    let mut lines: Vec<&str> = log.split_inclusive('\n').collect();
    lines.pop();
    fs::write(session.log_path(), lines.concat()).unwrap();
    let report = agent_evidence::audit::audit(&session, Some(&project.anchors())).unwrap();
    assert!(!report.is_ok(), "a removal is missing from the log");
}

#[test]
fn a_session_with_a_writer_is_not_pruned() {
    let project = Project::new();
    let writer = project.create();
    Teller::new(&writer).turn("go");
    let session = project.store().resolve("last").unwrap();
    let policy = agent_log::PrunePolicy {
        keep_bytes: Some(0),
        ..agent_log::PrunePolicy::default()
    };
    let plan = agent_log::plan_prune(&session, &policy).unwrap();
    assert!(agent_log::prune(&session, &plan, project.session_env()).is_err());
    assert!(session.size().unwrap().artifact_count > 0);
}
