//! A throw-away project with a clock and ids that are the same in every run.

pub mod story;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use agent_log::{
    AnchorStore, Holder, RedactionRules, Redactor, SessionEnv, SessionStore, SessionWriter,
};
use agent_protocol::id::IdMint;
use agent_protocol::payload::conversation::SessionCreated;
use agent_protocol::status::Mode;
use agent_protocol::{Clock, Timestamp};

/// Moves on by a millisecond whenever it is looked at.
pub struct StepClock(AtomicI64);

impl StepClock {
    pub fn starting_at(millis: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(millis)))
    }
}

impl Clock for StepClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

pub struct Project {
    pub directory: tempfile::TempDir,
    /// Writers so far; each is a later process with ids of its own.
    writers: AtomicI64,
}

impl Default for Project {
    fn default() -> Self {
        Self::new()
    }
}

impl Project {
    pub fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            writers: AtomicI64::new(0),
        }
    }

    pub fn store(&self) -> SessionStore {
        SessionStore::of_project(self.directory.path())
    }

    pub fn anchors(&self) -> AnchorStore {
        AnchorStore::new(&self.directory.path().join("state"))
    }

    pub fn session_env(&self) -> SessionEnv {
        self.session_env_with(Redactor::new(RedactionRules::default(), b"key").unwrap())
    }

    pub fn session_env_with(&self, redactor: Redactor) -> SessionEnv {
        let writer = self.writers.fetch_add(1, Ordering::Relaxed);
        let clock = StepClock::starting_at(1_794_799_680_000 + writer * 1_000_000);
        SessionEnv {
            mint: Arc::new(IdMint::new(clock.clone(), writer.unsigned_abs())),
            clock,
            runtime_id: "rt_test".parse().unwrap(),
            redactor: Arc::new(redactor),
            anchors: Some(self.anchors()),
            holder: Holder {
                pid: std::process::id(),
                host: "here".into(),
                program: "a test".into(),
                since: None,
            },
        }
    }

    pub fn create(&self) -> SessionWriter {
        self.store().create(created(), self.session_env()).unwrap()
    }
}

pub fn created() -> SessionCreated {
    SessionCreated {
        title: Some("a test".into()),
        project_root_hash: "0".repeat(64),
        agent_version: "0.1.0".into(),
        mode: Some(Mode::Ask),
        ..SessionCreated::default()
    }
}
