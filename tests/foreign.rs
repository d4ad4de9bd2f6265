//! Sessions that came with a repository: what their log says was answered was not answered by the
//! person who goes on with them.

use agent_log::{AnchorStore, SessionEnv, SessionStore};
use agent_protocol::payload::permission::{DecidedBy, GrantScope, PolicyChanged, PolicyChanges};
use agent_protocol::{Event, Payload, Refs, Scope};
use agent_test_support::model_server::{ModelServer, Wire};
use agent_test_support::project::TestProject;
use serde_json::json;

use crate::agent;
use crate::approval::{ask_for, respond};
use crate::permissions::project;
use crate::resume::{count, counter, counting, left_open_in, only_action};
use crate::run::{assert_audit_is_clean, log, run, sum_project};

/// Makes the user's state that of another account: it knows nothing of the sessions so far. The
/// state so far is kept as `name`.
fn leave_account(project: &TestProject, name: &str) {
    let state = project.home().join("state");
    std::fs::rename(&state, project.home().join(name)).unwrap();
}

/// Goes back to the account whose state was kept as `name`.
fn return_to_account(project: &TestProject, name: &str) {
    let state = project.home().join("state");
    std::fs::remove_dir_all(&state).unwrap();
    std::fs::rename(project.home().join(name), state).unwrap();
}

/// Number of times the log says that foreign answers were not counted.
fn warnings(events: &[Event]) -> usize {
    let warned = |event: &&Event| match &event.payload {
        Payload::RuntimeWarning(warning) => warning.code == "foreign_answers",
        _ => false,
    };
    events.iter().filter(warned).count()
}

#[test]
fn a_grant_of_another_account_is_asked_about_again_and_stays_so() {
    let project = project();
    project.write("hello.sh", "echo hello\n");
    let (session, _) = ask_for(&project, None, "sh hello.sh");
    respond(&project, &session, &["allow", "--for-session"]).expect_code(0);
    leave_account(&project, "attacker");

    // The second time this account has an anchor of its own; it vouches for its own events only.
    for round in 1..=2 {
        let (_, asked) = ask_for(&project, Some(&session), "sh hello.sh");
        assert_eq!(asked["decision"]["decision"], "ask", "{round}: {asked}");
        assert_eq!(warnings(&log(&project)), round);
    }
    respond(&project, &session, &["allow", "--for-session"]).expect_code(0);
    let (_, granted) = ask_for(&project, Some(&session), "sh hello.sh");
    assert_eq!(granted["decision"]["decision"], "allow", "{granted}");
    assert_audit_is_clean(&project);
}

#[test]
fn what_another_account_added_to_a_session_of_ones_own_grants_nothing() {
    let project = project();
    project.write("hello.sh", "echo hello\n");
    let (session, _) = ask_for(&project, None, "true");
    leave_account(&project, "owner");
    ask_for(&project, Some(&session), "sh hello.sh");
    respond(&project, &session, &["allow", "--for-session"]).expect_code(0);
    return_to_account(&project, "owner");

    let (_, asked) = ask_for(&project, Some(&session), "sh hello.sh");
    assert_eq!(asked["decision"]["decision"], "ask", "{asked}");
}

#[test]
fn a_denial_of_another_account_still_counts() {
    let project = project();
    project.write_home("config.toml", "[permissions]\nask = [\"bash(uname *)\"]\n");
    let (session, _) = ask_for(&project, None, "uname -a");
    respond(&project, &session, &["deny"]).expect_code(0);
    leave_account(&project, "attacker");
    project.write_home("config.toml", "");
    let (_, again) = ask_for(&project, Some(&session), "uname -a");
    assert_eq!(again["decision"]["decision"], "ask", "{again}");
}

#[test]
fn an_answer_of_another_account_runs_nothing() {
    let server = ModelServer::start(counting());
    let project = sum_project();
    let action = left_open_in(&project, &server);
    agent(&project, &["respond", "last", &action, "allow"])
        .finish()
        .expect_code(0);
    leave_account(&project, "attacker");

    run(&project, &server, Wire::Chat, &["--session", "last"])
        .finish()
        .expect_code(3);
    assert_eq!(counter(&project), 0, "nobody here allowed it");
    let events = log(&project);
    assert_eq!(warnings(&events), 1);
    assert_eq!(count(&events, "action.required"), 2, "it was asked again");
    assert_eq!(count(&events, "tool.started"), 0);
    assert_audit_is_clean(&project);
}

#[test]
fn a_question_in_foreign_words_takes_no_answer_and_is_put_anew() {
    let server = ModelServer::start(counting());
    let project = sum_project();
    let action = left_open_in(&project, &server);
    leave_account(&project, "attacker");

    let refused = agent(&project, &["respond", "last", &action, "allow"]).finish();
    assert_eq!(refused.code(), 2, "{}", refused.stderr());
    assert!(
        refused.stderr().contains("was not asked on this machine"),
        "{}",
        refused.stderr()
    );
    let waits = ["--on-ask", "wait", "--session", "last"];
    run(&project, &server, Wire::Chat, &waits)
        .finish()
        .expect_code(3);
    assert_eq!(counter(&project), 0);
    let asked = only_action(&project);
    let asked = asked["action_id"].as_str().unwrap();
    assert_ne!(asked, action, "the question is this account's own");
    agent(&project, &["respond", "last", asked, "allow"])
        .finish()
        .expect_code(0);
    run(&project, &server, Wire::Chat, &["--session", "last"])
        .finish()
        .expect_code(0);
    assert_eq!(counter(&project), 1);
    assert_audit_is_clean(&project);
}

/// "Edits of this session" is a rule of the session; a log from elsewhere brings none.
#[test]
fn a_rule_for_the_session_of_another_account_allows_no_edit() {
    for is_own in [true, false] {
        let project = project();
        project.write("a.txt", "one\n");
        let (session, _) = ask_for(&project, None, "true");
        let anchors = AnchorStore::new(&project.home().join("state"));
        let env = SessionEnv {
            anchors: is_own.then_some(anchors),
            ..crate::sample::session_env(&project, 78)
        };
        let directory = SessionStore::of_project(&project.root());
        let directory = directory.resolve(&session).unwrap();
        let writer = directory.open_writer(env).unwrap().writer;
        let changed = PolicyChanged {
            scope: GrantScope::Session,
            changed: PolicyChanges {
                rules_added: vec!["allow edit(**)".to_owned(), "allow write(**)".to_owned()],
                ..PolicyChanges::default()
            },
            by: DecidedBy::User,
            reason: "saved while answering a question".to_owned(),
        };
        writer
            .append(&Scope::default(), changed, Refs::default())
            .unwrap();
        writer.sync_and_anchor().unwrap();
        drop(writer);

        let input = json!({"path": "b.txt", "content": "two\n"}).to_string();
        let arguments = ["call", "--session", &session, "write", &input];
        let written = agent(&project, &arguments).finish().code() == 0;
        assert_eq!(written, is_own);
        assert_eq!(project.root().join("b.txt").exists(), is_own);
        assert_eq!(warnings(&log(&project)), usize::from(!is_own));
    }
}

#[test]
fn an_answer_counts_after_a_kill() {
    let project = project();
    project.write("hello.sh", "echo hello\n");
    let (session, _) = ask_for(&project, None, "sh hello.sh");
    let before = log(&project).len();
    respond(&project, &session, &["allow", "--for-session"]).expect_code(0);
    // The log ends with the answer, as it does when the program dies right behind it.
    assert_eq!(log(&project).len(), before + 1);
    let (_, granted) = ask_for(&project, Some(&session), "sh hello.sh");
    assert_eq!(granted["decision"]["decision"], "allow", "{granted}");
    assert_eq!(warnings(&log(&project)), 0);
}
