//! Sessions to look at: written by the session crate, as a run would write them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use agent_log::{AnchorStore, Holder, Redactor, SessionEnv, SessionStore, SessionWriter};
use agent_protocol::id::{IdMint, IntentId, InvocationId, SessionId};
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::conversation::{
    SessionChanges, SessionCreated, SessionUpdated, ThreadStarted, TurnCompleted, TurnOutcome,
    TurnStarted, TurnSubmitted,
};
use agent_protocol::payload::permission::{Effect, PermissionEvaluated};
use agent_protocol::payload::tool::{
    ToolArgs, ToolIntent, ToolObservation, ToolResult, ToolStarted, ToolValidation,
};
use agent_protocol::status::Status;
use agent_protocol::{ActionHappened, Clock, Code, Payload, Phase, Refs, Scope, Timestamp};
use agent_test_support::project::TestProject;

/// One second passes at every look.
struct SteppingClock(AtomicI64);

impl Clock for SteppingClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.0.fetch_add(1000, Ordering::Relaxed))
    }
}

/// Writer settings of a session of `project`; `seed` tells sessions apart.
pub(crate) fn session_env(project: &TestProject, seed: u64) -> SessionEnv {
    let start = 1_794_799_680_000 + i64::try_from(seed).unwrap() * 3_600_000;
    let clock: Arc<dyn Clock> = Arc::new(SteppingClock(AtomicI64::new(start)));
    SessionEnv {
        mint: Arc::new(IdMint::new(Arc::clone(&clock), seed)),
        clock,
        runtime_id: "rt_test".parse().unwrap(),
        redactor: Arc::new(Redactor::off()),
        anchors: Some(AnchorStore::new(&project.home().join("state"))),
        holder: Holder {
            pid: std::process::id(),
            program: "a test".into(),
            ..Holder::default()
        },
    }
}

/// A session that has begun.
pub(crate) fn begin(project: &TestProject, seed: u64, title: &str) -> SessionWriter {
    let created = SessionCreated {
        title: Some(title.to_owned()),
        project_root_hash: "sha256:00".into(),
        agent_version: "0.0.0".into(),
        ..SessionCreated::default()
    };
    let store = SessionStore::of_project(&project.root());
    store.create(created, session_env(project, seed)).unwrap()
}

/// A whole session: one turn that read one file, and the end.
pub(crate) fn session(project: &TestProject, seed: u64, title: &str) -> SessionId {
    let writer = begin(project, seed, title);
    turn(&writer);
    end(&writer);
    writer.session_id().clone()
}

/// One turn with one `read` call, from its submission to its end.
pub(crate) fn turn(writer: &SessionWriter) {
    let mut scope = Scope {
        thread_id: Some(writer.mint()),
        ..Scope::default()
    };
    let append = |scope: &Scope, payload: Payload| {
        let recorded = writer.append(scope, payload, Refs::default()).unwrap();
        recorded.event_id.to_string()
    };
    append(&scope, ThreadStarted::default().into());
    scope.turn_id = Some(writer.mint());
    let text = Some("what is in the file?".to_owned());
    append(
        &scope,
        TurnSubmitted {
            text,
            ..TurnSubmitted::default()
        }
        .into(),
    );
    let model = "scripted/sample".to_owned();
    append(
        &scope,
        TurnStarted {
            model,
            ..TurnStarted::default()
        }
        .into(),
    );

    let call = Scope {
        step_id: Some(writer.mint()),
        tool_call_id: Some(writer.mint()),
        ..scope.clone()
    };
    let intent_id: IntentId = writer.mint();
    let invocation_id: InvocationId = writer.mint();
    append(
        &call,
        ToolIntent {
            intent_id: intent_id.clone(),
            tool_name: "read".into(),
            raw_input: Some(serde_json::json!({"path": "notes.txt"})),
            ..ToolIntent::default()
        }
        .into(),
    );
    append(
        &call,
        ToolValidation {
            intent_id: intent_id.clone(),
            ok: true,
            ..ToolValidation::default()
        }
        .into(),
    );
    append(&call, ToolArgs::default().into());
    let permission_ref = append(
        &call,
        PermissionEvaluated {
            decision: Effect::Allow,
            reason: "reading inside the project is allowed".into(),
            ..PermissionEvaluated::default()
        }
        .into(),
    );
    append(
        &call,
        ToolStarted {
            invocation_id: invocation_id.clone(),
            intent_id: intent_id.clone(),
            tool_name: "read".into(),
            permission_ref,
            ..ToolStarted::default()
        }
        .into(),
    );
    let content = b"a file that was read\n".repeat(20);
    let artifact = writer
        .put_artifact(&call, ArtifactKind::default(), "text/plain", &content, None)
        .unwrap();
    append(
        &call,
        ToolResult {
            invocation_id: invocation_id.clone(),
            exit: agent_protocol::payload::tool::ToolExit::Ok,
            ok: true,
            code: Code::Ok,
            artifact_refs: vec![artifact.clone()],
            ..ToolResult::default()
        }
        .into(),
    );
    append(
        &call,
        ToolObservation {
            observation_id: writer.mint(),
            intent_id,
            invocation_id: Some(invocation_id),
            tool_name: "read".into(),
            ok: true,
            phase: Phase::WriteBack,
            code: Code::Ok,
            title: "read notes.txt".into(),
            summary: "20 lines".into(),
            user_text: "20 lines".into(),
            artifact_refs: vec![artifact],
            action_happened: ActionHappened::No,
            ..ToolObservation::default()
        }
        .into(),
    );
    append(
        &scope,
        TurnCompleted {
            outcome: TurnOutcome::Completed,
            stop_reason: "end_turn".into(),
            final_text: Some("Notes.".into()),
            ..TurnCompleted::default()
        }
        .into(),
    );
}

/// The session's last event.
pub(crate) fn end(writer: &SessionWriter) {
    let ended = SessionUpdated {
        changed: SessionChanges {
            status: Some(Status::Ended),
            ..SessionChanges::default()
        },
        reason: "done".into(),
    };
    writer
        .append(&Scope::default(), ended, Refs::default())
        .unwrap();
}
