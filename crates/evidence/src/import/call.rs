//! The calls of a record and how they ended, as events.

use std::sync::Arc;

use agent_log::AppendError;
use agent_protocol::id::{IntentId, ToolCallId};
use agent_protocol::payload::conversation::{ArtifactKind, InputPartKind};
use agent_protocol::payload::model::Trust;
use agent_protocol::payload::tool::{
    ContentBlock, ContentFormat, ObservationFacts, ToolArgs, ToolData, ToolExit, ToolFailed,
    ToolIntent, ToolMetrics, ToolObservation, ToolResult,
};
use agent_protocol::payload::work::{SubagentCompleted, SubagentFailed};
use agent_protocol::payload::{ArtifactRef, SideEffect};
use agent_protocol::{ActionHappened, Code, Phase, Scope, Timestamp};

use super::change::{FileChange, Side};
use super::write::Import;
use super::{CallEnd, Entry, Said};

/// Text of one result that is put into an event; the rest stays in the file it came from.
const MOST_TEXT: usize = 20_000;

/// A result that stands before its call.
pub(super) type EarlyEnd = Arc<CallEnd>;

/// A call without a result.
pub(super) struct OpenCall {
    tool_call_id: ToolCallId,
    intent_id: IntentId,
    tool: String,
    at: Timestamp,
    pub(super) scope: Scope,
}

impl Import<'_> {
    pub(super) fn call(&mut self, entry: &Entry, scope: &Scope) -> Result<(), AppendError> {
        let Said::Call {
            id,
            tool,
            input,
            own,
        } = &entry.said
        else {
            return Ok(());
        };
        self.calls += 1;
        self.subagent_calls += u64::from(entry.agent.is_some());
        let tool_call_id: ToolCallId = self.writer.mint();
        let scope = Scope {
            step_id: Some(self.writer.mint()),
            tool_call_id: Some(tool_call_id.clone()),
            ..scope.clone()
        };
        let intent_id: IntentId = self.writer.mint();
        if let (Some(turn), None) = (&mut self.turn, &entry.agent) {
            turn.last_text = None;
        }
        let own_name = own.as_ref().map_or(tool.as_str(), |own| own.tool);
        self.tell_in(
            &scope,
            ToolIntent {
                intent_id: intent_id.clone(),
                tool_name: own_name.to_owned(),
                requested_name: (own_name != tool).then(|| tool.clone()),
                raw_input_sha256: agent_text::sha256_hex(input.to_string().as_bytes()),
                raw_input: Some(input.clone()),
                provider_call_id: Some(id.clone()),
                ..ToolIntent::default()
            },
        )?;
        if let Some(own) = own {
            self.tell_in(
                &scope,
                ToolArgs {
                    args_sha256: agent_text::sha256_hex(own.input.to_string().as_bytes()),
                    safe_args: Some(own.input.clone()),
                    normalised_paths: own.paths.clone(),
                    ..ToolArgs::default()
                },
            )?;
        }
        let call = OpenCall {
            tool_call_id,
            intent_id,
            tool: own_name.to_owned(),
            at: self.writer.now(),
            scope,
        };
        self.open.insert(id.clone(), call);
        match self.early.remove(id) {
            Some(end) => self.end(&end),
            None => Ok(()),
        }
    }

    pub(super) fn end(&mut self, end: &CallEnd) -> Result<(), AppendError> {
        let Some(call) = self.open.remove(&end.id) else {
            // It may stand before its call.
            self.early.insert(end.id.clone(), Arc::new(end.clone()));
            return Ok(());
        };
        let effects = self.effects(&call.scope, &end.changes)?;
        let ok = end.code.is_ok();
        let facts = end.code.facts();
        // A command that was refused by its sandbox ran; a call that was refused did not.
        let has_run = ok || facts.phase == Phase::Execute;
        let phase = if has_run { Phase::Execute } else { facts.phase };
        let invocation_id = has_run.then(|| self.writer.mint());
        if let Some(invocation_id) = &invocation_id {
            let now = self.writer.now();
            self.tell_in(
                &call.scope,
                ToolResult {
                    invocation_id: agent_protocol::id::InvocationId::clone(invocation_id),
                    exit: match end.code {
                        _ if ok => ToolExit::Ok,
                        Code::Timeout => ToolExit::Timeout,
                        _ => ToolExit::Error,
                    },
                    ok,
                    code: end.code,
                    side_effects: effects.clone(),
                    data: ToolData {
                        exit_code: end.exit_code,
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
        } else {
            self.tell_in(
                &call.scope,
                ToolFailed {
                    phase,
                    category: if phase == Phase::Permission {
                        "refused".into()
                    } else {
                        "validation".into()
                    },
                    code: end.code,
                    message: agent_text::brief(&end.text, 500),
                    action_happened: facts.action_happened,
                    ..ToolFailed::default()
                },
            )?;
        }
        let content = self.content(&call.scope, end)?;
        let summary = end.text.lines().next().unwrap_or_default();
        let left_out = end.text.chars().count().saturating_sub(MOST_TEXT) as u64;
        self.tell_in(
            &call.scope,
            ToolObservation {
                observation_id: self.writer.mint(),
                intent_id: call.intent_id,
                invocation_id,
                tool_name: call.tool.clone(),
                ok,
                phase,
                code: end.code,
                title: call.tool,
                summary: agent_text::brief(summary, 200),
                user_text: agent_text::brief(summary, 200),
                content,
                truncated: left_out > 0,
                omitted_bytes: left_out,
                side_effects: effects.clone(),
                action_happened: if has_run {
                    ActionHappened::Unknown
                } else {
                    facts.action_happened
                },
                facts: ObservationFacts {
                    exit_code: end.exit_code,
                    ..ObservationFacts::default()
                },
                ..ToolObservation::default()
            },
        )?;
        if let Some(turn) = &mut self.turn {
            effects.iter().for_each(|effect| turn.change(effect));
        }
        self.end_agents(end, &call.scope, &call.tool_call_id)
    }

    /// A sub-agent has ended when the call that began it has.
    fn end_agents(
        &self,
        end: &CallEnd,
        scope: &Scope,
        tool_call_id: &ToolCallId,
    ) -> Result<(), AppendError> {
        let began = |call: &Option<String>| call.as_ref() == Some(&end.id);
        for (key, _) in self.agents.iter().filter(|(_, agent)| began(&agent.call)) {
            let scope = Scope {
                turn_id: scope.turn_id.clone(),
                ..self.scope_of(Some(key))
            };
            if end.code.is_ok() {
                self.tell_in(
                    &scope,
                    SubagentCompleted {
                        result_ref: tool_call_id.to_string(),
                        ..SubagentCompleted::default()
                    },
                )?;
            } else {
                self.tell_in(
                    &scope,
                    SubagentFailed {
                        category: "runtime".into(),
                        code: end.code.as_str().into(),
                        message: agent_text::brief(&end.text, 500),
                    },
                )?;
            }
        }
        Ok(())
    }

    /// The changes of a call, with the images that the record has.
    fn effects(
        &self,
        scope: &Scope,
        changes: &[FileChange],
    ) -> Result<Vec<SideEffect>, AppendError> {
        let mut effects = Vec::new();
        for change in changes {
            let before = self.image(scope, ArtifactKind::Before, &change.before)?;
            let after = self.image(scope, ArtifactKind::After, &change.after)?;
            let is_known = !matches!(
                (&change.before, &change.after),
                (Side::Unknown, _) | (_, Side::Unknown)
            );
            let hash = |image: &Option<ArtifactRef>| {
                image
                    .as_ref()
                    .map(|image| image.artifact_id.hex().to_owned())
            };
            effects.push(SideEffect {
                kind: change.kind(),
                path: change.path.clone(),
                sha256_before: hash(&before),
                sha256_after: hash(&after),
                bytes_before: before.as_ref().map(|image| image.bytes),
                bytes_after: after.as_ref().map(|image| image.bytes),
                before_ref: before.map(|image| image.artifact_id),
                after_ref: after.map(|image| image.artifact_id),
                no_image: (!is_known).then(|| "imported".into()),
                ..SideEffect::default()
            });
        }
        Ok(effects)
    }

    fn image(
        &self,
        scope: &Scope,
        kind: ArtifactKind,
        side: &Side,
    ) -> Result<Option<ArtifactRef>, AppendError> {
        let Side::Text(text) = side else {
            return Ok(None);
        };
        let media_type = "application/octet-stream";
        let producer = Some("import".to_owned());
        let kept = self
            .writer
            .put_artifact(scope, kind, media_type, text.as_bytes(), producer)?;
        Ok(Some(kept))
    }

    fn content(&self, scope: &Scope, end: &CallEnd) -> Result<Vec<ContentBlock>, AppendError> {
        let block = |format, source: &str| ContentBlock {
            trust: Trust::ToolOutputUntrusted,
            format,
            source: Some(source.into()),
            ..ContentBlock::default()
        };
        let mut content = vec![ContentBlock {
            text: Some(agent_text::brief(&end.text, MOST_TEXT)),
            ..block(ContentFormat::Text, "result")
        }];
        for part in &end.parts {
            let (format, source) = match part.kind {
                InputPartKind::Image => (ContentFormat::Image, "image"),
                _ => (ContentFormat::ArtifactRef, "document"),
            };
            content.push(ContentBlock {
                media_type: part.media_type.clone(),
                artifact: self.keep(scope, part)?,
                ..block(format, part.name.as_deref().unwrap_or(source))
            });
        }
        content.extend(end.diff.as_ref().map(|diff| ContentBlock {
            text: Some(agent_text::brief(diff, MOST_TEXT)),
            ..block(ContentFormat::Diff, "diff")
        }));
        Ok(content)
    }
}
