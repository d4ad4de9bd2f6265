//! The calls of a past session, as far as they can be judged again.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use agent_history::imported_from;
use agent_log::SessionDirectory;
use agent_policy::gate::RecordedCall;
use agent_protocol::id::{ArtifactId, ToolCallId};
use agent_protocol::payload::permission::{DecisionSource, Effect, PermissionEvaluated};
use agent_protocol::status::Mode;
use agent_protocol::{Code, Event, Payload};
use anyhow::Context as _;
use serde_json::Value;

use crate::failure::{Failure, OrFail as _};

/// Inputs larger than this are not judged again.
const INPUT_LIMIT: u64 = 16 << 20;

/// The calls of a session, in order.
#[derive(Default)]
pub(super) struct Past {
    /// A call that names several files is here once for each of them.
    pub(super) calls: Vec<RecordedCall>,
    /// How many calls the session has.
    pub(super) count: u64,
    /// Of the last decision.
    pub(super) mode: Option<Mode>,
    pub(super) allowed_by_grant: u64,
    pub(super) without_input: u64,
    /// The program whose record it is, if the session was imported. How that one decided is unknown.
    pub(super) imported_from: Option<String>,
    /// Imported calls of tools that there are none of here.
    pub(super) foreign: BTreeMap<String, u64>,
}

/// What is known of a call before it was decided.
#[derive(Default)]
struct Proposed {
    tool: String,
    input: Option<Value>,
    input_ref: Option<ArtifactId>,
    /// The input is told in the words of this program's tools.
    is_own: bool,
    is_refused: bool,
    place: u64,
}

impl Past {
    /// Reads a session. Commands of an imported one are told as if they had run in `project`.
    pub(super) fn read(session: &SessionDirectory, project: &Path) -> Result<Self, Failure> {
        let doing = || format!("cannot read session {}", session.id());
        let artifacts = session.artifacts().with_context(doing).or_usage()?;
        let stored = |id: &ArtifactId| -> Option<Value> {
            serde_json::from_slice(&artifacts.read(id, INPUT_LIMIT).ok()?).ok()
        };
        let mut past = Self::default();
        let mut recorded_in = None;
        let mut proposed: HashMap<ToolCallId, Proposed> = HashMap::new();
        let mut decided: HashMap<ToolCallId, usize> = HashMap::new();
        for item in session.reader().with_context(doing).or_usage()? {
            let Some(event) = item.with_context(doing).or_usage()?.event else {
                continue;
            };
            if let Payload::SessionCreated(created) = &event.payload {
                past.imported_from = imported_from(created).map(str::to_owned);
                recorded_in.clone_from(&created.recorded_in);
            }
            let Some(call_id) = event.scope.tool_call_id.clone() else {
                continue;
            };
            match &event.payload {
                Payload::PermissionEvaluated(evaluated) => {
                    past.mode = Some(evaluated.mode);
                    // A call that was judged twice counts as it was judged first.
                    if decided.contains_key(&call_id) {
                        continue;
                    }
                    let known = proposed.remove(&call_id).unwrap_or_default();
                    let input = known.input.or_else(|| stored(known.input_ref.as_ref()?));
                    if let Some(input) = input {
                        decided.insert(call_id.clone(), past.calls.len());
                        past.decide(&call_id, known.tool, input, evaluated);
                    } else {
                        past.without_input += 1;
                    }
                }
                Payload::PermissionResolved(resolved)
                    if resolved.decision_source == DecisionSource::Human =>
                {
                    let index = decided.get(&call_id).copied();
                    if let Some(call) = index.and_then(|index| past.calls.get_mut(index)) {
                        call.answer = Some(resolved.decision);
                    }
                }
                _ => proposed.entry(call_id).or_default().take(&event),
            }
        }
        past.count = past.calls.len() as u64 + past.without_input;
        if past.imported_from.is_some() {
            let mut calls: Vec<(ToolCallId, Proposed)> = proposed.into_iter().collect();
            calls.retain(|(_, call)| !call.tool.is_empty());
            calls.sort_by_key(|(_, call)| call.place);
            past.count = calls.len() as u64;
            let from = recorded_in.as_deref().unwrap_or_default();
            let moved = Moved::new(from, project);
            for (call_id, call) in calls {
                let input = call.input.or_else(|| stored(call.input_ref.as_ref()?));
                match input {
                    _ if !call.is_own => *past.foreign.entry(call.tool).or_default() += 1,
                    Some(input) => {
                        past.import(&call_id, &call.tool, &moved.input(input), call.is_refused);
                    }
                    None => past.without_input += 1,
                }
            }
        }
        Ok(past)
    }

    fn decide(
        &mut self,
        call_id: &ToolCallId,
        tool: String,
        input: Value,
        evaluated: &PermissionEvaluated,
    ) {
        let granted = evaluated.decision_source == DecisionSource::SessionGrant;
        self.allowed_by_grant += u64::from(granted);
        self.calls.push(RecordedCall {
            tool_call_id: call_id.to_string(),
            tool,
            input,
            decision: Some(evaluated.decision),
            answer: None,
        });
    }

    /// Takes a call that another program decided. A patch names more than one file in `also`.
    fn import(&mut self, call_id: &ToolCallId, tool: &str, input: &Value, is_refused: bool) {
        let also = input.get("also").and_then(Value::as_array);
        let also = also.into_iter().flatten().cloned();
        let paths: Vec<Value> = input.get("path").cloned().into_iter().chain(also).collect();
        let mut push = |input: Value| {
            self.calls.push(RecordedCall {
                tool_call_id: call_id.to_string(),
                tool: tool.to_owned(),
                input,
                decision: None,
                answer: is_refused.then_some(Effect::Deny),
            });
        };
        if paths.len() < 2 {
            return push(input.clone());
        }
        for path in paths {
            let mut one = input.clone();
            one["path"] = path;
            push(one);
        }
    }
}

impl Proposed {
    /// The input as validated counts more than the input as asked.
    fn take(&mut self, event: &Event) {
        match &event.payload {
            Payload::ToolIntent(intent) => {
                self.tool.clone_from(&intent.tool_name);
                self.input = intent.input().cloned();
                self.input_ref = intent.input_ref().cloned();
                self.place = event.sequence;
            }
            Payload::ToolArgs(args) => {
                self.input.clone_from(&args.safe_args);
                self.input_ref.clone_from(&args.args_ref);
                self.is_own = true;
            }
            Payload::ToolFailed(failed) => self.is_refused = failed.code == Code::UserDenied,
            _ => {}
        }
    }
}

/// A record of work in another directory, told as if it had been done in this project.
struct Moved<'a> {
    from: &'a str,
    to: String,
}

impl<'a> Moved<'a> {
    fn new(from: &'a str, project: &Path) -> Self {
        Self {
            from: from.trim_end_matches('/'),
            to: project.display().to_string(),
        }
    }

    /// Paths inside are relative already; a command names them as it likes.
    fn input(&self, mut input: Value) -> Value {
        if let Some(command) = input.get("command").and_then(Value::as_str) {
            let command = self.command(command);
            input["command"] = command.into();
        }
        input
    }

    fn command(&self, command: &str) -> String {
        if !self.from.starts_with('/') || self.from == self.to {
            return command.to_owned();
        }
        let is_name = |c: char| c.is_alphanumeric() || "_-.".contains(c);
        let mut moved = String::new();
        let mut rest = command;
        while let Some(at) = rest.find(self.from) {
            let (before, after) = (&rest[..at], &rest[at + self.from.len()..]);
            let is_whole = !before.ends_with(is_name) && !after.starts_with(is_name);
            moved.push_str(before);
            moved.push_str(if is_whole { &self.to } else { self.from });
            rest = after;
        }
        moved.push_str(rest);
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_moves_with_its_project() {
        let moved = Moved::new("/srv/shop", Path::new("/p"));
        for (command, expected) in [
            ("cd /srv/shop && ls", "cd /p && ls"),
            ("cat '/srv/shop/a'", "cat '/p/a'"),
            (
                "ls /srv/shopping /mnt/srv/shop",
                "ls /srv/shopping /mnt/srv/shop",
            ),
        ] {
            assert_eq!(moved.command(command), expected);
        }
        assert_eq!(Moved::new("unknown", Path::new("/p")).command("x"), "x");
    }
}
