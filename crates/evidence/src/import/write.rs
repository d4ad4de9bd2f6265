//! A record that was read, as the events of a new session.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use agent_history::IMPORTED;
use agent_log::{AppendError, OpenError, SessionEnv, SessionStore, SessionWriter, SyncError};
use agent_protocol::id::{SessionId, SubagentId, ThreadId};
use agent_protocol::payload::conversation::{
    ArtifactKind, InputPart, InputPartKind, RuntimeWarning, SessionChanges, SessionCreated,
    SessionUpdated, ThreadRole, ThreadStarted, TurnCompleted, TurnFailed, TurnOutcome, TurnSource,
    TurnSubmitted, Verification,
};
use agent_protocol::payload::model::{
    ContextCompactionCompleted, CostRecorded, ModelCompleted, ModelFailed, ReasoningSummary,
};
use agent_protocol::payload::work::SubagentSpawned;
use agent_protocol::payload::{SideEffect, Usage};
use agent_protocol::status::{Mode, Status, VerificationStatus};
use agent_protocol::{Clock, Payload, Refs, Scope, Timestamp};

use super::call::{EarlyEnd, OpenCall};
use super::count::{add, usages};
use super::{Entry, Part, Record, Said};

/// Why a record was not imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("the file is neither a Claude Code session nor a Codex rollout")]
    UnknownFormat,
    #[error("the file holds no conversation; nothing was imported")]
    Empty,
    #[error("no line of the file has a time, so its order is unknown; nothing was imported")]
    NoTimes,
    #[error("cannot make a session for the import")]
    Open(#[from] OpenError),
    #[error("cannot write the import; what was written so far is not the whole of it")]
    Append(#[from] AppendError),
    #[error("cannot write the import; what was written so far is not the whole of it")]
    Sync(#[from] SyncError),
}

/// What became of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    pub session_id: SessionId,
    pub turns: u64,
    pub calls: u64,
    pub subagents: u64,
    /// Calls of sub-agents; they are among the calls.
    pub subagent_calls: u64,
    pub events: u64,
    /// Lines that were left out, by what they are.
    pub left_out: BTreeMap<String, u64>,
}

/// The clock of an import: events get the times the record has, not the time of the import.
#[derive(Debug, Default)]
pub struct SourceClock(AtomicI64);

impl SourceClock {
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    fn set(&self, time: Timestamp) {
        self.0.store(time.unix_millis(), Ordering::Relaxed);
    }
}

impl Clock for SourceClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.0.load(Ordering::Relaxed))
    }
}

/// Writes a record as a new session of the store. `env` has to use `clock`.
///
/// # Errors
/// When the session cannot be made or written.
pub fn write(
    record: &Record,
    store: &SessionStore,
    env: SessionEnv,
    clock: &SourceClock,
) -> Result<Imported, ImportError> {
    let begun = record.said.first().ok_or(ImportError::Empty)?;
    clock.set(begun.time);
    let program = record.program.as_str();
    let version = record.version.as_deref().unwrap_or("unknown");
    let first_prompt = record.said.iter().find_map(|entry| match &entry.said {
        Said::Prompt { text, .. } => Some(agent_text::brief(text.trim(), 100)),
        _ => None,
    });
    let created = SessionCreated {
        title: record.title.clone().or(first_prompt),
        project_root_hash: "unknown".into(),
        agent_version: format!("{program} {version}"),
        mode: record.mode,
        profile: Some(format!("{IMPORTED}{program}")),
        recorded_in: Some(record.root.clone().unwrap_or_else(|| "unknown".into())),
        ..SessionCreated::default()
    };
    let writer = store.create(created, env)?;
    let thread_id: ThreadId = writer.mint();
    let mut import = Import {
        scope: Scope {
            thread_id: Some(thread_id.clone()),
            ..Scope::default()
        },
        thread_id,
        writer: &writer,
        open: HashMap::new(),
        early: HashMap::new(),
        agents: HashMap::new(),
        turn: None,
        turns: 0,
        calls: 0,
        subagent_calls: 0,
    };
    let role = if record.is_subagent {
        ThreadRole::Subagent
    } else {
        ThreadRole::Main
    };
    import.tell(ThreadStarted {
        role,
        ..ThreadStarted::default()
    })?;
    import.tell_all(record, clock)?;
    import.end_turn()?;
    let mut left_out = record.left_out.clone();
    if !import.early.is_empty() {
        let count = import.early.len() as u64;
        left_out.insert("results of no call".into(), count);
    }
    import.tell_end(record, &left_out)?;
    writer.sync()?;
    Ok(Imported {
        session_id: writer.session_id().clone(),
        turns: import.turns,
        calls: import.calls,
        subagents: import.agents.len() as u64,
        subagent_calls: import.subagent_calls,
        events: writer.head().next_sequence,
        left_out,
    })
}

pub(super) struct Import<'a> {
    pub(super) writer: &'a SessionWriter,
    thread_id: ThreadId,
    /// Where the conversation stands.
    scope: Scope,
    /// Calls without a result, by the id the record has.
    pub(super) open: HashMap<String, OpenCall>,
    /// Results whose call has not come yet.
    pub(super) early: HashMap<String, EarlyEnd>,
    pub(super) agents: HashMap<String, Agent>,
    pub(super) turn: Option<OpenTurn>,
    turns: u64,
    pub(super) calls: u64,
    pub(super) subagent_calls: u64,
}

/// A sub-agent of the record.
pub(super) struct Agent {
    thread_id: ThreadId,
    subagent_id: SubagentId,
    /// The call that began it, by the id the record has.
    pub(super) call: Option<String>,
}

#[derive(Default)]
pub(super) struct OpenTurn {
    pub(super) last_text: Option<String>,
    stop_reason: Option<String>,
    files: BTreeMap<String, SideEffect>,
    usage: Usage,
}

impl OpenTurn {
    /// Takes a change: from the first before to the last after.
    pub(super) fn change(&mut self, effect: &SideEffect) {
        let known = self.files.entry(effect.path.clone());
        known
            .and_modify(|known| {
                known.sha256_after.clone_from(&effect.sha256_after);
                known.after_ref.clone_from(&effect.after_ref);
                known.bytes_after = effect.bytes_after;
            })
            .or_insert_with(|| effect.clone());
    }
}

impl Import<'_> {
    fn tell(&self, payload: impl Into<Payload>) -> Result<(), AppendError> {
        self.tell_in(&self.scope, payload)
    }

    pub(super) fn tell_in(
        &self,
        scope: &Scope,
        payload: impl Into<Payload>,
    ) -> Result<(), AppendError> {
        self.writer.append(scope, payload, Refs::default())?;
        Ok(())
    }

    fn tell_all(&mut self, record: &Record, clock: &SourceClock) -> Result<(), ImportError> {
        let mut model = None;
        let mut mode = record.mode;
        let usages = usages(&record.said);
        for (at, entry) in record.said.iter().enumerate() {
            // A record may be out of order by a little; a log never goes back in time.
            if entry.time.unix_millis() > clock.now().unix_millis() {
                clock.set(entry.time);
            }
            match &entry.said {
                Said::Answer { model: by, .. }
                    if entry.agent.is_none() && by.is_some() && *by != model =>
                {
                    model.clone_from(by);
                    self.update(by.clone(), None)?;
                }
                Said::Mode(now) if mode != Some(*now) => {
                    mode = Some(*now);
                    self.update(None, mode)?;
                }
                _ => {}
            }
            self.say(entry, usages.get(&at))?;
        }
        Ok(())
    }

    fn update(&self, model: Option<String>, mode: Option<Mode>) -> Result<(), AppendError> {
        self.tell(SessionUpdated {
            changed: SessionChanges {
                model,
                mode,
                ..SessionChanges::default()
            },
            reason: "the record says so".into(),
        })
    }

    fn tell_end(
        &mut self,
        record: &Record,
        left_out: &BTreeMap<String, u64>,
    ) -> Result<(), AppendError> {
        let warn = |code: &str, message: String| RuntimeWarning {
            code: code.into(),
            message,
            ..RuntimeWarning::default()
        };
        for doubt in &record.doubts {
            self.tell(warn("import_doubtful", doubt.clone()))?;
        }
        if !left_out.is_empty() {
            let each = left_out.iter();
            let each: Vec<String> = each
                .map(|(what, count)| format!("{count} {what}"))
                .collect();
            let message = format!("not imported: {}", each.join(", "));
            self.tell(warn("import_left_out", message))?;
        }
        self.scope = Scope::default();
        self.tell(SessionUpdated {
            changed: SessionChanges {
                status: Some(Status::Ended),
                ..SessionChanges::default()
            },
            reason: "the record ends here".into(),
        })
    }

    /// The scope of what the conversation or one of its sub-agents does.
    pub(super) fn scope_of(&self, agent: Option<&String>) -> Scope {
        match agent.and_then(|agent| self.agents.get(agent)) {
            Some(agent) => Scope {
                thread_id: Some(agent.thread_id.clone()),
                subagent_id: Some(agent.subagent_id.clone()),
                ..self.scope.clone()
            },
            None => self.scope.clone(),
        }
    }

    fn say(&mut self, entry: &Entry, usage: Option<&Usage>) -> Result<(), ImportError> {
        let agent = entry.agent.as_ref();
        if let (Some(agent), false) = (agent, matches!(entry.said, Said::Delegated { .. })) {
            self.begin_agent(agent, None, "", "")?;
        }
        let works = matches!(
            entry.said,
            Said::Reasoning(_) | Said::Answer { .. } | Said::Call { .. } | Said::ModelFailed(_)
        );
        if works && self.turn.is_none() && agent.is_none() {
            // Work without a prompt: the record begins in the middle.
            self.begin_turn(None, Vec::new())?;
        }
        let scope = self.scope_of(agent);
        match &entry.said {
            Said::Prompt { text, parts, joins } => self.prompt(text, parts, *joins)?,
            Said::Reasoning(text) => self.tell_in(
                &scope,
                ReasoningSummary {
                    model_request_id: self.writer.mint(),
                    text: Some(text.clone()),
                    text_ref: None,
                },
            )?,
            Said::Answer {
                text,
                stop_reason,
                model,
            } => {
                if let (Some(turn), None) = (&mut self.turn, agent) {
                    turn.last_text = Some(text.clone());
                    turn.stop_reason.clone_from(stop_reason);
                }
                self.tell_in(
                    &scope,
                    ModelCompleted {
                        model_request_id: self.writer.mint(),
                        stop_reason: stop_reason.clone().unwrap_or_else(|| "unknown".into()),
                        text: Some(text.clone()),
                        usage: usage.cloned().unwrap_or_else(|| Usage {
                            model: model.clone(),
                            ..Usage::default()
                        }),
                        ..ModelCompleted::default()
                    },
                )?;
            }
            Said::Call { .. } => self.call(entry, &scope)?,
            Said::Result(end) => self.end(end)?,
            Said::Counted(counted) => self.count(counted, usage.is_some(), &scope)?,
            Said::Compacted {
                trigger,
                tokens_before,
                summary,
            } => {
                let summary = self.writer.redactor().mask(summary);
                let kept = self.writer.put_artifact(
                    &scope,
                    ArtifactKind::Summary,
                    "text/markdown",
                    summary.as_bytes(),
                    Some("import".into()),
                )?;
                self.tell(ContextCompactionCompleted {
                    trigger: *trigger,
                    summary_ref: kept.artifact_id,
                    summary_preview: agent_text::brief(&summary, 500),
                    up_to_sequence: self.writer.head().next_sequence.saturating_sub(1),
                    tokens_before: *tokens_before,
                    summarised_by_model: true,
                    ..ContextCompactionCompleted::default()
                })?;
            }
            Said::Interrupted => self.interrupt()?,
            Said::Mode(_) => {}
            Said::ModelFailed(text) => self.tell_in(
                &scope,
                ModelFailed {
                    model_request_id: self.writer.mint(),
                    attempt: 1,
                    message: agent_text::brief(text, 500),
                    ..ModelFailed::default()
                },
            )?,
            Said::Delegated {
                call,
                role,
                objective,
            } => {
                if let Some(agent) = agent {
                    self.begin_agent(agent, call.as_ref(), role, objective)?;
                }
            }
        }
        Ok(())
    }

    /// A sub-agent is a thread of its own, beside the turn that began it.
    fn begin_agent(
        &mut self,
        key: &String,
        call: Option<&String>,
        role: &str,
        objective: &str,
    ) -> Result<(), AppendError> {
        if self.agents.contains_key(key) {
            return Ok(());
        }
        let agent = Agent {
            thread_id: self.writer.mint(),
            subagent_id: self.writer.mint(),
            call: call.cloned(),
        };
        let began = call.and_then(|call| self.open.get(call));
        let at = began.map_or(&self.scope, |call| &call.scope);
        let at = Scope {
            subagent_id: Some(agent.subagent_id.clone()),
            ..at.clone()
        };
        self.tell_in(
            &at,
            SubagentSpawned {
                parent_thread_id: self.thread_id.clone(),
                child_thread_id: agent.thread_id.clone(),
                role: role.to_owned(),
                objective: agent_text::brief(objective, 2000),
                context_mode: "unknown".into(),
                ..SubagentSpawned::default()
            },
        )?;
        self.agents.insert(key.clone(), agent);
        self.tell_in(
            &self.scope_of(Some(key)),
            ThreadStarted {
                parent_thread_id: Some(self.thread_id.clone()),
                role: ThreadRole::Subagent,
            },
        )
    }

    fn count(&mut self, counted: &Usage, alone: bool, scope: &Scope) -> Result<(), AppendError> {
        if let Some(turn) = &mut self.turn {
            add(&mut turn.usage, counted);
        }
        if alone {
            // No answer has room for it, so it stands alone.
            self.tell_in(
                scope,
                ModelCompleted {
                    model_request_id: self.writer.mint(),
                    stop_reason: "unknown".into(),
                    usage: counted.clone(),
                    ..ModelCompleted::default()
                },
            )?;
        }
        self.tell_in(
            scope,
            CostRecorded {
                model_request_id: self.writer.mint(),
                usage: counted.clone(),
                currency: "USD".into(),
                price_source: "unknown".into(),
                ..CostRecorded::default()
            },
        )
    }

    fn prompt(&mut self, text: &str, parts: &[Part], joins: bool) -> Result<(), AppendError> {
        let text = (!text.is_empty()).then(|| text.to_owned());
        if joins && self.turn.is_some() {
            // The turn goes on, with one more thing to do.
            self.turns += 1;
            let scope = Scope {
                turn_id: Some(self.writer.mint()),
                ..self.scope.clone()
            };
            let input_parts = self.input_parts(&scope, parts)?;
            return self.tell_in(
                &scope,
                TurnSubmitted {
                    text,
                    input_parts,
                    source: TurnSource::Queue,
                    status: Status::Completed,
                    ..TurnSubmitted::default()
                },
            );
        }
        self.end_turn()?;
        self.begin_turn(text, parts.to_vec())
    }

    fn begin_turn(&mut self, text: Option<String>, parts: Vec<Part>) -> Result<(), AppendError> {
        self.turns += 1;
        self.scope.turn_id = Some(self.writer.mint());
        self.turn = Some(OpenTurn::default());
        let input_parts = self.input_parts(&self.scope, &parts)?;
        self.tell(TurnSubmitted {
            text,
            input_parts,
            status: Status::Accepted,
            ..TurnSubmitted::default()
        })
    }

    fn input_parts(&self, scope: &Scope, parts: &[Part]) -> Result<Vec<InputPart>, AppendError> {
        let mut named = Vec::new();
        for part in parts {
            named.push(InputPart {
                kind: part.kind,
                name: part.name.clone(),
                media_type: part.media_type.clone(),
                bytes: part.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64),
                artifact: self.keep(scope, part)?,
                ..InputPart::default()
            });
        }
        Ok(named)
    }

    /// Keeps what a part holds.
    pub(super) fn keep(
        &self,
        scope: &Scope,
        part: &Part,
    ) -> Result<Option<agent_protocol::id::ArtifactId>, AppendError> {
        let Some(bytes) = &part.bytes else {
            return Ok(None);
        };
        let kind = match part.kind {
            InputPartKind::Image => ArtifactKind::Image,
            _ => ArtifactKind::UserInput,
        };
        let media_type = part
            .media_type
            .as_deref()
            .unwrap_or("application/octet-stream");
        let text = std::str::from_utf8(bytes).ok();
        let masked = text.map(|text| self.writer.redactor().mask(text));
        let bytes = masked.as_deref().map_or(bytes.as_slice(), str::as_bytes);
        let producer = Some("import".to_owned());
        let kept = self
            .writer
            .put_artifact(scope, kind, media_type, bytes, producer)?;
        Ok(Some(kept.artifact_id))
    }

    /// The user stopped the turn. Calls that were open may still get a result.
    fn interrupt(&mut self) -> Result<(), AppendError> {
        let Some(turn) = self.turn.take() else {
            return Ok(());
        };
        self.tell(TurnFailed {
            status: Status::Cancelled,
            category: "user".into(),
            code: "interrupted".into(),
            message: "interrupted by the user".into(),
            retryable: true,
            usage: Some(turn.usage),
            files_changed: turn.files.into_values().collect(),
            ..TurnFailed::default()
        })?;
        self.scope.turn_id = None;
        Ok(())
    }

    /// A turn has ended when its last word was an answer; otherwise the record does not say.
    fn end_turn(&mut self) -> Result<(), AppendError> {
        let Some(turn) = self.turn.take() else {
            return Ok(());
        };
        let turn_id = self.scope.turn_id.take();
        let is_open = |call: &OpenCall| call.state.is_open() && call.scope.turn_id == turn_id;
        if let (Some(text), false) = (turn.last_text, self.open.values().any(is_open)) {
            let status = if turn.files.is_empty() {
                VerificationStatus::NotApplicable
            } else {
                VerificationStatus::Unverified
            };
            let scope = Scope {
                turn_id,
                ..self.scope.clone()
            };
            self.tell_in(
                &scope,
                TurnCompleted {
                    outcome: TurnOutcome::Completed,
                    stop_reason: turn.stop_reason.unwrap_or_else(|| "unknown".into()),
                    final_text: Some(text),
                    verification: Verification {
                        status,
                        ..Verification::default()
                    },
                    files_changed: turn.files.into_values().collect(),
                    usage: turn.usage,
                    ..TurnCompleted::default()
                },
            )?;
        }
        Ok(())
    }
}
