//! One tool call, from intent to observation, as its events arrive.

use std::borrow::Cow;

use agent_protocol::id::ToolCallId;
use agent_protocol::payload::SideEffect;
use agent_protocol::payload::permission::{
    ActionClass, ActionDecision, ActionRequired, ActionResolved, DecidedBy, DecisionSource, Effect,
    GrantScope, PermissionEvaluated, SESSION_EDITS,
};
use agent_protocol::payload::process::pipeline_failed;
use agent_protocol::payload::tool::{ContentFormat, ToolData, ToolFailed, ToolObservation};
use agent_protocol::{ActionHappened, CallStep, Event, Payload};
use serde_json::Value;

use super::cell::{
    CallStage, Cell, CellKind, FileChange, KEPT_DIFF, KEPT_TEXT, LiveOutput, Outcome, Permission,
    ToolCell, clip, head_and_tail,
};
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
                let target = intent.raw_input.as_ref().map(target_of).unwrap_or_default();
                let asked = match &intent.requested_name {
                    Some(name) => format!("{} (asked for as {name})", intent.tool_name),
                    None => intent.tool_name.clone(),
                };
                let mut tool = ToolCell {
                    call_id: Some(call_id.clone()),
                    tool: one_line(&intent.tool_name),
                    target,
                    own: self.own_turn,
                    ..ToolCell::default()
                };
                let who = if self.own_turn { "you" } else { "the model" };
                tool.chain
                    .push(one_line(&format!("{who} asked for {asked}")));
                if let Some(reason) = &intent.reason {
                    tool.chain.push(one_line(&format!("its reason: {reason}")));
                }
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
                self.change_call(&call_id, |tool| action_resolved(tool, resolved));
            }
            Payload::PermissionEvaluated(evaluated) => {
                self.permission_evaluated(&call_id, evaluated);
            }
            Payload::SandboxApplied(applied) => {
                self.facts.sandbox = Some(applied.status);
                self.facts.sandbox_detail = Some(one_line(&format!(
                    "{}, network {}",
                    applied.mechanism, applied.network
                )));
                self.change_call(&call_id, |tool| {
                    tool.sandbox = Some(applied.status);
                    let writable = match applied.write_roots.join(" ") {
                        nothing if nothing.is_empty() => "nothing".to_owned(),
                        roots => roots,
                    };
                    tool.chain.push(one_line(&format!(
                        "sandbox {}: {}, network {}, {writable} writable",
                        applied.status, applied.mechanism, applied.network,
                    )));
                });
            }
            Payload::ToolObservation(observation) => {
                self.change_call(&call_id, |tool| observed(tool, observation));
                if let Some(index) = self.open_calls.remove(&call_id) {
                    self.change(index, |cell| cell.done = true);
                }
                self.evaluated.remove(&call_id);
            }
            Payload::ToolStarted(started) => {
                self.change_call(&call_id, |tool| {
                    tool.started_at = Some(event.timestamp);
                    tool.chain
                        .push(one_line(&format!("started: {}", started.executor)));
                });
                let tool_name = started.tool_name.clone();
                self.activity(&format!("{tool_name} is running"), None);
            }
            payload => self.change_call(&call_id, |tool| call_progressed(tool, payload)),
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

    fn permission_evaluated(&mut self, call_id: &ToolCallId, evaluated: &PermissionEvaluated) {
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
                && evaluated.action_class == ActionClass::Modify)
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
            tool.chain
                .push(format!("the gate said {}: {why}", evaluated.decision));
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
                        DecisionSource::Human => "typed by you".into(),
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
            pending.session_rule = found.session_rule.filter(|_| pending.path().is_some());
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

fn action_resolved(tool: &mut ToolCell, resolved: &ActionResolved) {
    let note = resolved
        .payload
        .as_ref()
        .and_then(|payload| payload.note.as_deref());
    let edited = resolved
        .payload
        .as_ref()
        .and_then(|payload| payload.edited_input.as_ref());
    let with_network = edited.is_some_and(|input| input.get("network") == Some(&Value::Bool(true)));
    let scope = match resolved.scope {
        GrantScope::Once => "once",
        GrantScope::Session => "for this session",
        GrantScope::ProjectLocal => "by a new rule of this project",
        GrantScope::User => "by a new rule of yours",
    };
    let who = match resolved.decided_by {
        DecidedBy::User => "you",
        DecidedBy::Policy => "the policy for questions nobody can answer",
        DecidedBy::Timeout => "time running out",
        DecidedBy::Cancel => "the interrupt",
    };
    let (words, permission) = match resolved.decision {
        ActionDecision::AllowOnce | ActionDecision::AllowSession | ActionDecision::Answer => {
            let mut text = format!("allowed by {who} {scope}");
            if with_network {
                text.push_str(", with network");
            } else if edited.is_some() {
                text.push_str(", as edited by you");
            }
            if let Some(note) = note {
                text.push_str(&format!(": {}", one_line(note)));
            }
            (text.clone(), Permission::AllowedByYou(text))
        }
        ActionDecision::Deny | ActionDecision::Abort => {
            let mut text = format!("denied by {who}");
            if let Some(note) = note {
                text.push_str(&format!(": {}", one_line(note)));
            }
            let permission = match resolved.decided_by {
                DecidedBy::User => Permission::DeniedByYou(text.clone()),
                _ => Permission::Denied(text.clone()),
            };
            (text, permission)
        }
    };
    let after = agent_text::words::duration(resolved.latency_ms);
    tool.chain.push(format!("{words}, after {after}"));
    tool.permission = Some(permission);
}

/// The facts between permission and observation.
fn call_progressed(tool: &mut ToolCell, payload: &Payload) {
    match payload {
        Payload::ToolArgs(args) => {
            if let Some(input) = &args.safe_args {
                tool.target = target_of(input);
            }
        }
        Payload::ToolValidation(validation) if !validation.ok => {
            for error in &validation.errors {
                tool.detail
                    .errors
                    .push(one_line(&format!("{} {}", error.path, error.message)));
            }
            tool.chain
                .push(format!("validation ({}) said no", validation.layer));
        }
        Payload::PermissionResolved(resolved) => {
            if let Some(rule) = &resolved.rule_saved {
                tool.chain.push(one_line(&format!("saved the rule {rule}")));
            }
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
            let mut text = format!("{} refused", violation.kind);
            for part in [&violation.target, &violation.call].into_iter().flatten() {
                text.push_str(&format!(" {part}"));
            }
            if violation.count > 1 {
                text.push_str(&format!(", {} times", violation.count));
            }
            text.push_str(&format!(" (noticed by {})", violation.detection));
            if let Some(setting) = &violation.permitted_by {
                text.push_str(&format!("; {setting} would permit it"));
            }
            tool.detail.violations.push(one_line(&text));
        }
        Payload::OutputRedacted(redacted) => {
            tool.chain.push(format!(
                "{} secrets masked in {}",
                redacted.count, redacted.target
            ));
        }
        Payload::ToolResult(result) => {
            tool.duration_ms = Some(result.metrics.duration_ms);
            tool.detail.changed = changes(&result.side_effects);
            let (exit, code) = (result.exit.to_string(), result.code.to_string());
            tool.chain.push(if exit == code {
                format!("ended: {exit}")
            } else {
                format!("ended: {exit} ({code})")
            });
            tool.outcome = Some(Outcome {
                ok: result.ok,
                code: result.code,
                phase: agent_protocol::Phase::Execute,
                summary: String::new(),
                exit_code: result.data.exit_code,
                pipeline_failed: hides_failure(&result.data),
            });
        }
        Payload::ToolFailed(failed) => tool_failed(tool, failed),
        _ => {}
    }
}

fn tool_failed(tool: &mut ToolCell, failed: &ToolFailed) {
    tool.detail.changed = changes(&failed.side_effects);
    let happened = match failed.action_happened {
        ActionHappened::No => "nothing happened",
        ActionHappened::Yes => "something happened",
        ActionHappened::Unknown => "unknown whether anything happened",
    };
    tool.chain.push(one_line(&format!(
        "ended in phase {} with {}: {}; {happened}",
        failed.phase, failed.code, failed.message
    )));
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
    let mut target = ["command", "path", "pattern", "artifact_id", "process_id"]
        .into_iter()
        .find_map(field)
        .map(|text| title(clip(text, 2048)))
        .unwrap_or_else(|| match input {
            Value::Object(fields) if fields.is_empty() => String::new(),
            other => one_line(clip(&other.to_string(), 512)),
        });
    if field("command").is_none()
        && field("path").is_some()
        && let Some(offset) = input.get("offset").and_then(Value::as_u64)
    {
        target.push_str(&format!(" from line {offset}"));
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
