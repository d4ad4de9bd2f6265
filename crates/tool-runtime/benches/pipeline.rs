//! What the pipeline costs per small read, as a multiple of one `fdatasync` of the same disk.
//!
//! A stand-in for `read` opens, hashes and shows a file of 40 lines; everything else is real: seven
//! events in a session on disk, and one sync before the observation is handed out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)] // a bench stops at the first surprise

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use agent_engine::SessionJournal;
use agent_log::{Holder, Redactor, SessionEnv, SessionStore};
use agent_protocol::id::IdMint;
use agent_protocol::payload::conversation::SessionCreated;
use agent_protocol::payload::permission::{Effect, PermissionEvaluated};
use agent_protocol::payload::tool::{
    Baseline, CallFlags, CatalogPolicy, Concurrency, InterruptBehavior, RuntimeOwner,
};
use agent_protocol::status::Mode;
use agent_protocol::{ActionHappened, Clock, Code, Scope, Timestamp};
use agent_test_support::bench::{Table, median};
use agent_tool_runtime::{
    Answer, Authority, Body, Cancel, Decision, ExecutionContext, ExecutionFailure, Journal,
    NormalizeContext, Normalized, PermissionRequest, PermissionSemantics, Pipeline, PipelineParts,
    Plan, Prepared, Question, RawResult, Registry, RuntimeContext, Settings, Subject, Tool,
    ToolDefinition, ToolIntent, ToolInvocation, ValidationFailure, Workspace,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const CALLS: usize = 300;

struct Read(ToolDefinition);

impl Tool for Read {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn validate(
        &self,
        input: &Value,
        _: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        let path = input["path"].as_str().unwrap_or_default().to_owned();
        Ok(Prepared {
            input: Box::new(path.clone()),
            normalised_paths: vec![path],
            semantics: PermissionSemantics::default(),
            plan: Plan::default(),
            flags: CallFlags {
                is_read_only: true,
                is_concurrency_safe: true,
                ..CallFlags::default()
            },
            baselines: Vec::new(),
            preview: None,
        })
    }

    fn execute(
        &self,
        invocation: ToolInvocation,
        context: &ExecutionContext,
    ) -> Result<RawResult, ExecutionFailure> {
        let path = invocation.into_input::<String>().unwrap_or_default();
        let bytes = std::fs::read(context.root().join(&*path))
            .map_err(|error| ExecutionFailure::new(Code::IoError, error.to_string()))?;
        let sha256 = Sha256::digest(&bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mut raw = RawResult::ok(ActionHappened::No);
        raw.data.baseline = Some(Baseline {
            path: *path,
            size: bytes.len() as u64,
            sha256,
            ..Baseline::default()
        });
        raw.bodies.push(Body::text("file", bytes));
        Ok(raw)
    }

    fn normalize(&self, _: &RawResult, _: &NormalizeContext<'_>) -> Normalized {
        Normalized {
            title: "read".into(),
            summary: "40 lines".into(),
            ..Normalized::default()
        }
    }
}

struct Open;

impl Authority for Open {
    fn mode(&self) -> Mode {
        Mode::Full
    }

    fn decide(&self, _: &PermissionRequest<'_>) -> Decision {
        let evaluated = PermissionEvaluated {
            decision: Effect::Allow,
            reason: "a bench".into(),
            ..PermissionEvaluated::default()
        };
        Decision {
            evaluated,
            ..Decision::default()
        }
    }

    fn ask(&self, _: &Question, _: &Cancel) -> Answer {
        Answer::Unavailable
    }

    fn forecast(&self, _: &ToolDefinition) -> CatalogPolicy {
        CatalogPolicy::Allowed
    }
}

struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_unix_millis(i64::try_from(now.as_millis()).unwrap_or(0))
    }
}

fn main() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(
        directory.path().join("small.rs"),
        "    let answer = compute(question)?;\n".repeat(40),
    )
    .unwrap();
    let pipeline = pipeline(directory.path());
    // Alternating, so that whatever else the disk has to do hits both alike.
    let (mut syncs, mut reads, mut inside) = (Vec::new(), Vec::new(), Vec::new());
    let mut file = std::fs::File::create(directory.path().join("baseline")).unwrap();
    let block = vec![b'x'; 6_000];
    for _ in 0..CALLS {
        let start = Instant::now();
        file.write_all(&block).unwrap();
        file.sync_data().unwrap();
        syncs.push(start.elapsed());
        let start = Instant::now();
        let intent = ToolIntent::new("read", &json!({"path": "small.rs"}));
        let scope = Scope {
            step_id: "stp_1".parse().ok(),
            ..Scope::default()
        };
        let report = pipeline.run(scope, &Cancel::new(), [intent]).unwrap();
        assert!(report.outcomes[0].observation().unwrap().fact().ok);
        reads.push(start.elapsed());
        inside.push(reads[reads.len() - 1].saturating_sub(syncs[syncs.len() - 1]));
    }
    let mut table = Table::new("pipeline");
    table.ratio(
        "a small read, all its events on disk, to one write and `fdatasync`",
        median(reads),
        median(syncs),
        2.0,
    );
    let above = format!("{:.0} µs", median(inside).as_secs_f64() * 1e6);
    table.note("above the sync", &above);
    table.finish();
}

fn pipeline(root: &Path) -> Pipeline {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mint = Arc::new(IdMint::new(Arc::clone(&clock), 1));
    let env = SessionEnv {
        clock,
        mint: Arc::clone(&mint),
        runtime_id: mint.mint(),
        redactor: Arc::new(Redactor::new(Default::default(), b"key").unwrap()),
        anchors: None,
        holder: Holder::default(),
    };
    let writer = SessionStore::of_project(root)
        .create(SessionCreated::default(), env)
        .unwrap();
    let mut registry = Registry::default();
    registry.register(Arc::new(Read(definition()))).unwrap();
    Pipeline::new(PipelineParts {
        registry: Arc::new(registry),
        journal: Arc::new(SessionJournal::new(writer, mint)) as Arc<dyn Journal>,
        authority: Arc::new(Open),
        workspace: Workspace {
            root: root.to_owned(),
            extra_roots: Vec::new(),
        },
        baselines: Arc::default(),
        settings: Settings::default(),
    })
}

fn definition() -> ToolDefinition {
    ToolDefinition {
        description: "Reads a file.".into(),
        input_schema: json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": false}),
        output: "The file.".into(),
        is_read_only: true,
        is_destructive: false,
        concurrency: Concurrency::Safe,
        interrupt_behavior: InterruptBehavior::Cancel,
        ..ToolDefinition::new("read", RuntimeOwner::Local, Subject::Read)
    }
}
