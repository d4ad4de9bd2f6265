//! One tool call, from intent to observation, as its events arrive.

use std::borrow::Cow;

use agent_history::{Description, describe};
use agent_protocol::id::ToolCallId;
use agent_protocol::payload::SideEffect;
use agent_protocol::payload::permission::{
    Access, ActionClass, ActionDecision, ActionRequired, ActionResolved, DecidedBy, DecisionSource,
    Effect, PermissionEvaluated, SESSION_EDITS,
};
use agent_protocol::payload::plan::PlanItem;
use agent_protocol::payload::process::{ViolationKind, pipeline_failed};
use agent_protocol::payload::tool::{ContentFormat, ToolData, ToolFailed, ToolObservation};
use agent_protocol::{CallStep, Event, Payload};
use serde_json::Value;

use super::cell::{
    CallStage, Cell, CellKind, FileChange, KEPT_DIFF, KEPT_TEXT, LiveOutput, Outcome, Permission,
    TYPED, ToolCell, clip, head_and_tail,
};
use super::look::Look;
use super::pending::Pending;
use super::{Evaluated, State};
use crate::safe::{one_line, title};

impl State {
    pub(super) fn apply_to_call(&mut self, event: &Event) {
        let Some(call_id) = event.scope.tool_call_id.clone() else {
            if let Payload::ActionRequired(asked) = &event.payload {
                self.action_required(event, asked);
            } else if let Payload::ActionResolved(_) = &event.payload {
                self.close_pending(event);
            } else if let Payload::SandboxApplied(applied) = &event.payload {
                self.facts.sandbox = Some(applied.status);
            }
            return;
        };
        if CallStep::of(event).is_some() {
            self.change_call(&call_id, |tool| {
                tool.state.apply(event);
                tool.stage = CallStage::of(&tool.state);
            });
        }
        match &event.payload {
            Payload::ToolIntent(intent) => {
                let target = intent.input().map(target_of).unwrap_or_default();
                let mut tool = ToolCell {
                    call_id: Some(call_id.clone()),
                    tool: one_line(&intent.tool_name),
                    target,
                    look: intent.input().and_then(Look::of),
                    own: self.own_turn,
                    ..ToolCell::default()
                };
                let who = if self.own_turn { "you" } else { "the model" };
                let said = describe(event);
                tool.chain.push(format!("{who} asked for {}", said.line()));
                tool.chain.extend(said.facts.lines().map(str::to_owned));
                tool.state.apply(event);
                let index = self.push(CellKind::Tool(Box::new(tool)));
                self.open_calls.insert(call_id, index);
            }
            Payload::ActionRequired(asked) => {
                self.action_required(event, asked);
                self.activity("waiting for your answer", None);
            }
            Payload::ActionResolved(resolved) => {
                self.close_pending(event);
                let saved = std::mem::take(&mut self.saved_rules);
                self.change_call(&call_id, |tool| {
                    action_resolved(tool, event, resolved);
                    tool.saved.extend(saved.iter().map(|said| one_line(said)));
                });
            }
            Payload::PermissionEvaluated(evaluated) => {
                self.permission_evaluated(&call_id, event, evaluated);
            }
            Payload::SandboxApplied(applied) => {
                self.facts.sandbox = Some(applied.status);
                self.facts.sandbox_detail = Some(one_line(&format!(
                    "{}, network {}",
                    applied.mechanism, applied.network
                )));
                self.change_call(&call_id, |tool| {
                    tool.sandbox = Some(applied.status);
                    let said = describe(event);
                    let roots = said.facts.get("may write").unwrap_or("nothing");
                    tool.chain
                        .push(format!("{}, may write {roots}", said.line()));
                });
            }
            Payload::ToolObservation(observation) => {
                if let Some(plan) = &observation.facts.data.plan {
                    self.facts.plan = plan.iter().map(shown_item).collect();
                }
                self.change_call(&call_id, |tool| observed(tool, observation));
                if let Some(index) = self.open_calls.remove(&call_id) {
                    self.change(index, |cell| cell.done = true);
                }
                self.evaluated.remove(&call_id);
            }
            Payload::ToolStarted(started) => {
                self.change_call(&call_id, |tool| {
                    tool.started_at = Some(event.timestamp);
                    tool.takes_a_while = started.plan.streams_progress;
                    tool.chain.push(describe(event).line());
                });
                let tool_name = started.tool_name.clone();
                self.activity(&format!("{tool_name} is running"), None);
            }
            _ => self.change_call(&call_id, |tool| call_progressed(tool, event)),
        }
    }

    fn change_call(&mut self, call_id: &ToolCallId, change: impl FnOnce(&mut ToolCell)) {
        let Some(index) = self.open_calls.get(call_id).copied() else {
            return;
        };
        self.change(index, |cell: &mut Cell| {
            if let CellKind::Tool(tool) = &mut cell.kind {
                change(tool);
            }
        });
    }

    fn permission_evaluated(
        &mut self,
        call_id: &ToolCallId,
        event: &Event,
        evaluated: &PermissionEvaluated,
    ) {
        let rule = evaluated
            .matched
            .iter()
            .find(|rule| rule.effect == evaluated.decision);
        let origin = rule.map(|rule| {
            let place = match (&rule.origin.file, rule.origin.line) {
                (Some(file), Some(line)) => format!("{file}:{line}"),
                (Some(file), None) => file.clone(),
                _ => rule.origin.layer.to_string(),
            };
            one_line(&format!("{} ({place})", rule.rule))
        });
        let reason = one_line(&evaluated.reason);
        let why = one_line(
            &match (&origin, source_in_words(evaluated.decision_source)) {
                (Some(origin), _) => format!("{reason}; rule {origin}"),
                (None, Some(source)) => format!("{reason} ({source})"),
                (None, None) => reason.clone(),
            },
        );
        let mut found = Evaluated {
            why: why.clone(),
            every_time: evaluated.decision_source == DecisionSource::CircuitBreaker,
            rule: evaluated.suggested_rule.clone(),
            // Only what the mode alone asks about is covered by an answer for all edits.
            session_rule: (evaluated.decision_source == DecisionSource::Default
                && evaluated.action_class == ActionClass::Modify
                && evaluated.parse.is_none()
                && evaluated
                    .resources
                    .iter()
                    .any(|one| one.access == Access::Write))
            .then(|| SESSION_EDITS[0].to_owned()),
            ..Evaluated::default()
        };
        if let Some(parse) = &evaluated.parse {
            for command in &parse.commands {
                let mut words = command.words.join(" ");
                if command.dynamic {
                    words.push_str("  (parts of it are not known until it runs)");
                }
                found.parts.push(words);
            }
            found.understood = parse.ok;
            found.redirects.clone_from(&parse.redirects);
            found.unproven.clone_from(&parse.why_not_proven);
        }
        self.evaluated.insert(call_id.clone(), found);
        self.change_call(call_id, |tool| {
            tool.chain.push(in_one_line(&describe(event)));
            tool.class = Some(evaluated.action_class);
            // What the user edited before allowing it is judged again; it stays the user's word.
            let edited = evaluated.decision_source == DecisionSource::Human
                && matches!(tool.permission, Some(Permission::AllowedByYou(_)));
            if edited {
                return;
            }
            tool.permission = match (evaluated.decision, origin) {
                (Effect::Allow, Some(rule)) => Some(Permission::AllowedByRule(rule)),
                (Effect::Allow, None) => {
                    Some(Permission::Allowed(match evaluated.decision_source {
                        DecisionSource::SessionGrant => "allowed for this session".into(),
                        DecisionSource::Mode => format!("allowed in mode {}", evaluated.mode),
                        DecisionSource::Human => TYPED.into(),
                        _ => reason,
                    }))
                }
                (Effect::Deny, Some(rule)) => Some(Permission::DeniedByRule(rule)),
                (Effect::Deny, None) => Some(Permission::Denied(reason)),
                (Effect::Ask, _) => None,
            };
        });
    }

    fn action_required(&mut self, event: &Event, asked: &ActionRequired) {
        let Some(action_id) = event.scope.action_id.clone() else {
            return;
        };
        if self
            .pending
            .iter()
            .any(|pending| pending.action_id == action_id)
        {
            return;
        }
        let call_id = event.scope.tool_call_id.clone();
        let mut pending = Pending::new(action_id, call_id.clone(), asked);
        if let Some(found) = call_id.and_then(|call_id| self.evaluated.remove(&call_id)) {
            pending.why = Some(found.why);
            pending.parts = found.parts;
            pending.understood = found.understood;
            pending.redirects = found.redirects;
            pending.unproven = found.unproven;
            pending.every_time = found.every_time;
            pending.suggested_rule = pending.suggested_rule.or(found.rule);
            pending.session_rule = found.session_rule;
        }
        self.pending.push(pending);
    }

    fn close_pending(&mut self, event: &Event) {
        if let Some(action_id) = &event.scope.action_id {
            self.pending
                .retain(|pending| pending.action_id != *action_id);
        }
    }
}

fn shown_item(item: &PlanItem) -> PlanItem {
    PlanItem {
        text: one_line(&item.text),
        ..item.clone()
    }
}

/// Who decided, where the reason alone does not say it.
fn source_in_words(source: DecisionSource) -> Option<&'static str> {
    match source {
        DecisionSource::Default | DecisionSource::Rule => None,
        DecisionSource::Mode => Some("decided by the mode"),
        DecisionSource::Hook => Some("decided by a hook"),
        DecisionSource::Classifier => Some("decided by a classifier"),
        DecisionSource::PathBoundary => Some("outside the project every call asks"),
        DecisionSource::ProtectedPath => Some("a protected path, whatever rules say"),
        DecisionSource::CircuitBreaker => Some("a safety stop, asked about every time"),
        DecisionSource::SessionGrant => Some("you allowed it for this session"),
        DecisionSource::Sandbox => Some("decided by the sandbox level"),
        DecisionSource::HostPolicy | DecisionSource::Policy => Some("decided by policy"),
        DecisionSource::Human => Some("your answer"),
        DecisionSource::Timeout => Some("timed out"),
        DecisionSource::Cancel => Some("cancelled"),
    }
}

/// A step with its facts in one line.
fn in_one_line(said: &Description) -> String {
    let mut line = said.line();
    for fact in said.facts.lines() {
        line.push_str(&format!("; {fact}"));
    }
    line
}

fn action_resolved(tool: &mut ToolCell, event: &Event, resolved: &ActionResolved) {
    let said = describe(event);
    tool.chain.push(in_one_line(&said));
    let text = one_line(&said.text);
    tool.permission = Some(match (resolved.decision, resolved.decided_by) {
        (ActionDecision::AllowOnce | ActionDecision::AllowSession | ActionDecision::Answer, _) => {
            Permission::AllowedByYou(text)
        }
        (ActionDecision::Deny | ActionDecision::Abort, DecidedBy::User) => {
            Permission::DeniedByYou(text)
        }
        (ActionDecision::Deny | ActionDecision::Abort, _) => Permission::Denied(text),
    });
}

/// The facts between permission and observation.
fn call_progressed(tool: &mut ToolCell, event: &Event) {
    match &event.payload {
        Payload::ToolArgs(args) => {
            if let Some(input) = &args.safe_args {
                tool.target = target_of(input);
                tool.look = Look::of(input);
            }
        }
        Payload::ToolValidation(validation) if !validation.ok => {
            for error in &validation.errors {
                tool.detail
                    .errors
                    .push(one_line(&format!("{} {}", error.path, error.message)));
            }
            tool.chain.push(describe(event).line());
        }
        Payload::PermissionResolved(resolved) if resolved.rule_saved.is_some() => {
            tool.chain.push(describe(event).line());
        }
        Payload::ToolProgress(progress) => {
            if let Some(bytes) = progress.bytes {
                tool.live.bytes = bytes;
            }
            if let Some(lines) = progress.lines {
                tool.live.line_count = lines;
            }
        }
        Payload::ProcessOutput(output) => {
            tool.live.bytes = output.offset + output.bytes;
            if let Some(preview) = &output.preview {
                tool.live.push(preview);
            }
        }
        Payload::SandboxViolation(violation) => {
            tool.detail.no_network |= violation.kind == ViolationKind::Network;
            let said = describe(event);
            let facts = said.facts.lines().map(|fact| format!("; {fact}"));
            let line = format!("{}{}", said.text, facts.collect::<String>());
            tool.detail.violations.push(line);
        }
        Payload::OutputRedacted(_) => tool.chain.push(describe(event).line()),
        Payload::ToolResult(result) => {
            tool.duration_ms = Some(result.metrics.duration_ms);
            tool.detail.changed = changes(&result.side_effects);
            tool.chain.push(describe(event).line());
            tool.outcome = Some(Outcome {
                ok: result.ok,
                code: result.code,
                phase: agent_protocol::Phase::Execute,
                summary: String::new(),
                exit_code: result.data.exit_code,
                pipeline_failed: hides_failure(&result.data),
            });
        }
        Payload::ToolFailed(failed) => {
            tool.chain.push(describe(event).line());
            tool_failed(tool, failed);
        }
        _ => {}
    }
}

fn tool_failed(tool: &mut ToolCell, failed: &ToolFailed) {
    tool.detail.changed = changes(&failed.side_effects);
    tool.outcome = Some(Outcome {
        ok: false,
        code: failed.code,
        phase: failed.phase,
        summary: one_line(&failed.message),
        exit_code: None,
        pipeline_failed: false,
    });
}

fn hides_failure(data: &ToolData) -> bool {
    data.pipe_status.as_deref().is_some_and(pipeline_failed)
}

fn observed(tool: &mut ToolCell, observation: &ToolObservation) {
    tool.duration_ms = observation.facts.duration_ms.or(tool.duration_ms);
    tool.outcome = Some(Outcome {
        ok: observation.ok,
        code: observation.code,
        phase: observation.phase,
        summary: one_line(&observation.summary),
        exit_code: observation.facts.exit_code,
        pipeline_failed: hides_failure(&observation.facts.data),
    });
    let detail = &mut tool.detail;
    let (output, left_out) = head_and_tail(&shown(observation), KEPT_TEXT);
    detail.output = crate::safe::content(&output);
    let in_blocks = observation.content.iter();
    let in_blocks: u64 = in_blocks.filter_map(|block| block.omitted_bytes).sum();
    detail.omitted_bytes = observation.omitted_bytes + in_blocks + left_out;
    detail.truncated = observation.truncated;
    detail.artifacts = observation
        .artifact_refs
        .iter()
        .map(|artifact| artifact.artifact_id.clone())
        .collect();
    for block in &observation.content {
        if block.format == ContentFormat::Diff
            && let Some(text) = &block.text
        {
            detail.diff = head_and_tail(text, KEPT_DIFF).0;
        }
    }
    if detail.changed.is_empty() {
        detail.changed = changes(&observation.side_effects);
    }
    detail.lines_added = observation.facts.data.lines_added;
    detail.lines_removed = observation.facts.data.lines_removed;
    if detail.errors.is_empty() {
        let errors = observation.facts.errors.iter();
        detail.errors = errors
            .map(|error| one_line(&format!("{} {}", error.path, error.message)))
            .collect();
    }
    // What ran is over; its last lines are in the output.
    tool.live = LiveOutput {
        line_count: tool.live.line_count,
        bytes: tool.live.bytes,
        ..LiveOutput::default()
    };
}

/// What the call gave, as far as the log has it: the text itself, its beginning and end when it is
/// long, or in older logs the few lines that stand for it, which are marked as such. What only
/// repeats the summary is nothing.
fn shown(observation: &ToolObservation) -> Cow<'_, str> {
    let texts: Vec<&str> = observation
        .content
        .iter()
        .filter(|block| block.format != ContentFormat::Diff)
        .filter_map(|block| block.text.as_deref())
        .collect();
    match texts.as_slice() {
        [] => {}
        [text] => return Cow::Borrowed(text),
        texts => return Cow::Owned(texts.join("\n")),
    }
    let few = match &observation.preview {
        Some(preview) if !preview.is_empty() => preview,
        _ => &observation.user_text,
    };
    let is_cut = observation.facts.output_bytes > Some(few.len() as u64)
        && observation
            .content
            .iter()
            .any(|block| block.artifact.is_some());
    match few.trim() == observation.summary.trim() {
        true => Cow::Borrowed(""),
        false if is_cut => Cow::Owned(format!("{few}\n[… the rest is in the artifact …]")),
        false => Cow::Borrowed(few),
    }
}

pub(super) fn changes(side_effects: &[SideEffect]) -> Vec<FileChange> {
    side_effects
        .iter()
        .map(|effect| FileChange {
            kind: effect.kind,
            path: one_line(&effect.path),
        })
        .collect()
}

/// What a call is about, in one line: the first of the fields that name it.
fn target_of(input: &Value) -> String {
    let field = |name: &str| input.get(name).and_then(Value::as_str);
    let mut target = [
        "command",
        "path",
        "pattern",
        "url",
        "artifact_id",
        "process_id",
    ]
    .into_iter()
    .find_map(field)
    .or_else(|| field("plan")?.lines().find(|line| !line.trim().is_empty()))
    .map(|text| title(clip(text, 2048)))
    .unwrap_or_else(|| match input {
        Value::Object(fields) if fields.is_empty() => String::new(),
        // A list is told by how far it is.
        Value::Object(fields) if fields.get("items").is_some_and(Value::is_array) => String::new(),
        other => one_line(clip(&other.to_string(), 512)),
    });
    if field("command").is_none()
        && field("path").is_some()
        && let Some(line) = input.get("offset").and_then(Value::as_u64)
        && line > 1
    {
        target.push_str(&format!(" from line {line}"));
    }
    if field("pattern").is_some()
        && let Some(path) = field("path")
    {
        target = format!(
            "{} in {}",
            one_line(field("pattern").unwrap_or_default()),
            one_line(path)
        );
    }
    target
}
