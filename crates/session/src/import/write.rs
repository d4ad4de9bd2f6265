//! A record that was read, as the events of a new session.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use agent_protocol::id::{IntentId, SessionId, ToolCallId};
use agent_protocol::payload::conversation::{
    RuntimeWarning, SessionChanges, SessionCreated, SessionUpdated, ThreadStarted, TurnCompleted,
    TurnOutcome, TurnSubmitted, Verification,
};
use agent_protocol::payload::model::{CostRecorded, ModelCompleted, ReasoningSummary, Trust};
use agent_protocol::payload::tool::{
    ContentBlock, ContentFormat, ToolData, ToolExit, ToolFailed, ToolIntent, ToolMetrics,
    ToolObservation, ToolResult,
};
use agent_protocol::payload::{SideEffect, SideEffectKind, Usage};
use agent_protocol::status::{Status, VerificationStatus};
use agent_protocol::{ActionHappened, Clock, Code, Payload, Phase, Refs, Scope, Timestamp};
use serde_json::Value;

use super::{Outcome, Record, Said};
use crate::hash::{hash_of, hex};
use crate::log::open::{OpenError, Rim};
use crate::log::writer::{AppendError, SessionWriter, SyncError};
use crate::replay::IMPORTED;
use crate::store::SessionStore;

/// Text of one result that is put into an event; the rest stays in the file it came from.
const MOST_TEXT: usize = 20_000;

/// Why a record was not imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("the file is neither a Claude Code session nor a Codex rollout")]
    UnknownFormat,
    #[error("the file holds no conversation; nothing was imported")]
    Empty,
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
    pub events: u64,
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

/// Writes a record as a new session of the store. `rim` has to use `clock`.
///
/// # Errors
/// When the session cannot be made or written.
pub fn write(
    record: &Record,
    store: &SessionStore,
    rim: Rim,
    clock: &SourceClock,
) -> Result<Imported, ImportError> {
    let (begun, _) = record.said.first().ok_or(ImportError::Empty)?;
    clock.set(*begun);
    let program = record.program.as_str();
    let version = record.version.as_deref().unwrap_or("unknown");
    let first_prompt = record.said.iter().find_map(|(_, said)| match said {
        Said::Prompt(text) => Some(crate::fold::brief(text.trim(), 100)),
        _ => None,
    });
    let created = SessionCreated {
        title: record.title.clone().or(first_prompt),
        project_root_hash: "unknown".into(),
        agent_version: format!("{program} {version}"),
        profile: Some(format!("{IMPORTED}{program}")),
        ..SessionCreated::default()
    };
    let writer = store.create(created, rim)?;
    let mut import = Import {
        scope: Scope {
            thread_id: Some(writer.mint()),
            ..Scope::default()
        },
        writer: &writer,
        open: HashMap::new(),
        turn: None,
        turns: 0,
        calls: 0,
    };
    import.tell(ThreadStarted::default())?;
    let mut model = None;
    let usages = usages(&record.said);
    for (at, (time, said)) in record.said.iter().enumerate() {
        // A record may be out of order by a little; a log never goes back in time.
        if time.unix_millis() > clock.now().unix_millis() {
            clock.set(*time);
        }
        if let Said::Answer { model: by, .. } = said
            && by.is_some()
            && *by != model
        {
            model.clone_from(by);
            import.tell(SessionUpdated {
                changed: SessionChanges {
                    model: by.clone(),
                    ..SessionChanges::default()
                },
                reason: "the record says so".into(),
            })?;
        }
        import.say(said, usages.get(&at))?;
    }
    import.end_turn()?;
    if !record.left_out.is_empty() {
        let each = record.left_out.iter();
        let each: Vec<String> = each
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        import.tell(RuntimeWarning {
            code: "import_left_out".into(),
            message: format!("not imported: {}", each.join(", ")),
            ..RuntimeWarning::default()
        })?;
    }
    import.scope = Scope::default();
    import.tell(SessionUpdated {
        changed: SessionChanges {
            status: Some(Status::Ended),
            ..SessionChanges::default()
        },
        reason: "the record ends here".into(),
    })?;
    let (turns, calls) = (import.turns, import.calls);
    writer.sync()?;
    Ok(Imported {
        session_id: writer.session_id().clone(),
        turns,
        calls,
        events: writer.head().next_sequence,
    })
}

struct Import<'a> {
    writer: &'a SessionWriter,
    scope: Scope,
    /// Calls without a result, by the id the record has.
    open: HashMap<String, OpenCall>,
    turn: Option<OpenTurn>,
    turns: u64,
    calls: u64,
}

struct OpenCall {
    tool_call_id: ToolCallId,
    intent_id: IntentId,
    tool: String,
    at: Timestamp,
    scope: Scope,
}

#[derive(Default)]
struct OpenTurn {
    last_text: Option<String>,
    stop_reason: Option<String>,
    files: Vec<SideEffect>,
    usage: Usage,
}

impl Import<'_> {
    fn tell(&self, payload: impl Into<Payload>) -> Result<(), AppendError> {
        self.tell_in(&self.scope, payload)
    }

    fn tell_in(&self, scope: &Scope, payload: impl Into<Payload>) -> Result<(), AppendError> {
        self.writer.append(scope, payload, Refs::default())?;
        Ok(())
    }

    fn say(&mut self, said: &Said, usage: Option<&Usage>) -> Result<(), ImportError> {
        match said {
            Said::Prompt(text) => {
                self.end_turn()?;
                self.begin_turn(Some(text.clone()))?;
            }
            _ if self.turn.is_none() => {
                // Work without a prompt: the record begins in the middle.
                self.begin_turn(None)?;
                self.say(said, usage)?;
            }
            Said::Reasoning(text) => self.tell(ReasoningSummary {
                model_request_id: self.writer.mint(),
                text: Some(text.clone()),
                text_ref: None,
            })?,
            Said::Answer {
                text,
                stop_reason,
                model,
            } => {
                if let Some(turn) = &mut self.turn {
                    turn.last_text = Some(text.clone());
                    turn.stop_reason.clone_from(stop_reason);
                }
                self.tell(ModelCompleted {
                    model_request_id: self.writer.mint(),
                    stop_reason: stop_reason.clone().unwrap_or_else(|| "unknown".into()),
                    text: Some(text.clone()),
                    usage: usage.cloned().unwrap_or_else(|| Usage {
                        model: model.clone(),
                        ..Usage::default()
                    }),
                    ..ModelCompleted::default()
                })?;
            }
            Said::Call { id, tool, input } => self.call(id, tool, input)?,
            Said::Result { .. } => self.result(said)?,
            Said::Counted(counted) => {
                if let Some(turn) = &mut self.turn {
                    add(&mut turn.usage, counted);
                }
                if usage.is_some() {
                    // No answer has room for it, so it stands alone.
                    self.tell(ModelCompleted {
                        model_request_id: self.writer.mint(),
                        stop_reason: "unknown".into(),
                        usage: counted.clone(),
                        ..ModelCompleted::default()
                    })?;
                }
                self.tell(CostRecorded {
                    model_request_id: self.writer.mint(),
                    usage: counted.clone(),
                    currency: "USD".into(),
                    price_source: "unknown".into(),
                    ..CostRecorded::default()
                })?;
            }
        }
        Ok(())
    }

    fn begin_turn(&mut self, text: Option<String>) -> Result<(), AppendError> {
        self.turns += 1;
        self.scope.turn_id = Some(self.writer.mint());
        self.turn = Some(OpenTurn::default());
        self.tell(TurnSubmitted {
            text,
            status: Status::Accepted,
            ..TurnSubmitted::default()
        })
    }

    /// A turn has ended when its last word was an answer; otherwise the record does not say.
    fn end_turn(&mut self) -> Result<(), AppendError> {
        let Some(turn) = self.turn.take() else {
            return Ok(());
        };
        let open = std::mem::take(&mut self.open);
        if let (Some(text), true) = (turn.last_text, open.is_empty()) {
            let status = if turn.files.is_empty() {
                VerificationStatus::NotApplicable
            } else {
                VerificationStatus::Unverified
            };
            self.tell(TurnCompleted {
                outcome: TurnOutcome::Completed,
                stop_reason: turn.stop_reason.unwrap_or_else(|| "unknown".into()),
                final_text: Some(text),
                verification: Verification {
                    status,
                    ..Verification::default()
                },
                files_changed: turn.files,
                usage: turn.usage,
                ..TurnCompleted::default()
            })?;
        }
        self.scope.turn_id = None;
        Ok(())
    }

    fn call(&mut self, id: &str, tool: &str, input: &Value) -> Result<(), AppendError> {
        self.calls += 1;
        let tool_call_id: ToolCallId = self.writer.mint();
        let scope = Scope {
            step_id: Some(self.writer.mint()),
            tool_call_id: Some(tool_call_id.clone()),
            ..self.scope.clone()
        };
        let intent_id: IntentId = self.writer.mint();
        if let Some(turn) = &mut self.turn {
            turn.last_text = None;
        }
        self.tell_in(
            &scope,
            ToolIntent {
                intent_id: intent_id.clone(),
                tool_name: tool.to_owned(),
                raw_input_sha256: hex(&hash_of(input.to_string().as_bytes())),
                raw_input: Some(input.clone()),
                provider_call_id: Some(id.to_owned()),
                ..ToolIntent::default()
            },
        )?;
        self.open.insert(
            id.to_owned(),
            OpenCall {
                tool_call_id,
                intent_id,
                tool: tool.to_owned(),
                at: self.writer.now(),
                scope,
            },
        );
        Ok(())
    }

    fn result(&mut self, said: &Said) -> Result<(), ImportError> {
        let Said::Result {
            id,
            text,
            outcome,
            exit_code,
            diff,
            changed,
        } = said
        else {
            return Ok(());
        };
        // A result of a call that the record does not have says nothing that could be placed.
        let Some(call) = self.open.remove(id) else {
            return Ok(());
        };
        debug_assert_eq!(call.scope.tool_call_id.as_ref(), Some(&call.tool_call_id));
        let now = self.writer.now();
        let code = match outcome {
            Outcome::Ok => Code::Ok,
            Outcome::Refused => Code::UserDenied,
            Outcome::Failed if exit_code.is_some() => Code::ExitNonzero,
            Outcome::Failed => Code::InternalError,
        };
        let ok = *outcome == Outcome::Ok;
        let effects: Vec<SideEffect> = changed
            .iter()
            .map(|(path, is_new)| SideEffect {
                kind: if *is_new {
                    SideEffectKind::Created
                } else {
                    SideEffectKind::Modified
                },
                path: path.clone(),
                no_image: Some("imported".into()),
                ..SideEffect::default()
            })
            .collect();
        let mut invocation_id = None;
        if *outcome == Outcome::Refused {
            self.tell_in(
                &call.scope,
                ToolFailed {
                    phase: Phase::Permission,
                    category: "refused".into(),
                    code,
                    message: crate::fold::brief(text, 500),
                    action_happened: ActionHappened::No,
                    ..ToolFailed::default()
                },
            )?;
        } else {
            let invocation = self.writer.mint();
            self.tell_in(
                &call.scope,
                ToolResult {
                    invocation_id: invocation,
                    exit: if ok { ToolExit::Ok } else { ToolExit::Error },
                    ok,
                    code,
                    side_effects: effects.clone(),
                    data: ToolData {
                        exit_code: *exit_code,
                        ..ToolData::default()
                    },
                    // From the question to the answer, which is all the record shows.
                    metrics: ToolMetrics {
                        started_at: call.at,
                        ended_at: now,
                        duration_ms: now.millis_since(call.at),
                        ..ToolMetrics::default()
                    },
                    ..ToolResult::default()
                },
            )?;
            invocation_id = Some(());
        }
        let shown = crate::fold::brief(text, MOST_TEXT);
        let mut content = vec![ContentBlock {
            trust: Trust::ToolOutputUntrusted,
            format: ContentFormat::Text,
            source: Some("result".into()),
            text: Some(shown),
            ..ContentBlock::default()
        }];
        content.extend(diff.as_ref().map(|diff| ContentBlock {
            trust: Trust::ToolOutputUntrusted,
            format: ContentFormat::Diff,
            source: Some("diff".into()),
            text: Some(crate::fold::brief(diff, MOST_TEXT)),
            ..ContentBlock::default()
        }));
        let summary = text.lines().next().unwrap_or_default();
        let left_out = text.chars().count().saturating_sub(MOST_TEXT) as u64;
        self.tell_in(
            &call.scope,
            ToolObservation {
                observation_id: self.writer.mint(),
                intent_id: call.intent_id.clone(),
                tool_name: call.tool.clone(),
                ok,
                phase: if invocation_id.is_some() {
                    Phase::Execute
                } else {
                    Phase::Permission
                },
                code,
                title: call.tool,
                summary: crate::fold::brief(summary, 200),
                user_text: crate::fold::brief(summary, 200),
                content,
                truncated: left_out > 0,
                omitted_bytes: left_out,
                side_effects: effects.clone(),
                action_happened: ActionHappened::Unknown,
                ..ToolObservation::default()
            },
        )?;
        if let Some(turn) = &mut self.turn {
            turn.files.extend(effects);
        }
        Ok(())
    }
}

/// Which answer each count belongs to: the one before it, or the one right after it. A count that
/// belongs to none is its own.
fn usages(said: &[(Timestamp, Said)]) -> HashMap<usize, Usage> {
    let mut usages = HashMap::new();
    let is_border = |said: &Said| {
        matches!(
            said,
            Said::Counted(_) | Said::Prompt(_) | Said::Result { .. }
        )
    };
    let is_answer = |said: &Said| matches!(said, Said::Answer { .. });
    for (at, (_, each)) in said.iter().enumerate() {
        let Said::Counted(usage) = each else {
            continue;
        };
        let before = said[..at].iter().enumerate().rev();
        let mut before = before.take_while(|(_, (_, said))| !is_border(said));
        let after = said[at + 1..].iter().enumerate();
        let mut after = after.take_while(|(_, (_, said))| !is_border(said));
        let place = before
            .find(|(_, (_, said))| is_answer(said))
            .map(|(place, _)| place)
            .or_else(|| {
                let found = after.find(|(_, (_, said))| is_answer(said));
                found.map(|(place, _)| at + 1 + place)
            })
            .filter(|place| !usages.contains_key(place));
        usages.insert(place.unwrap_or(at), usage.clone());
    }
    usages
}

fn add(total: &mut Usage, more: &Usage) {
    let sum = |total: &mut Option<u64>, more: Option<u64>| {
        if let Some(more) = more {
            *total = Some(total.unwrap_or(0).saturating_add(more));
        }
    };
    sum(&mut total.input, more.input);
    sum(&mut total.output, more.output);
    sum(&mut total.cached_input, more.cached_input);
    sum(&mut total.cache_write, more.cache_write);
    sum(&mut total.reasoning, more.reasoning);
}
