//! Commands: that what ran is what was let through, inside a boundary, and that its end is the end
//! of its call.

use std::collections::HashMap;

use agent_protocol::id::{ProcessId, ToolCallId};
use agent_protocol::payload::process::{ProcessStarted, SandboxApplied, SandboxStatus};
use agent_protocol::payload::tool::ToolResult;
use agent_protocol::{Event, Payload};

use super::AuditReport;

#[derive(Default)]
pub(super) struct CommandCheck {
    calls: HashMap<ToolCallId, CommandCall>,
    processes: HashMap<ProcessId, Process>,
    /// The first command that ran without a boundary, and how many did.
    unconfined: Option<(u64, u64)>,
}

#[derive(Default)]
struct CommandCall {
    /// The command as it was checked and decided.
    command: Option<String>,
    is_sandboxed: bool,
    sandbox: Option<SandboxStatus>,
    process: Option<ProcessId>,
}

#[derive(Default)]
struct Process {
    has_ended: bool,
    exit_code: Option<i32>,
}

impl CommandCheck {
    pub(super) fn take(&mut self, event: &Event, report: &mut AuditReport) {
        match &event.payload {
            Payload::ToolArgs(args) => {
                let command = args.safe_args.as_ref().and_then(|args| args.get("command"));
                let command = command.and_then(serde_json::Value::as_str);
                if let (Some(command), Some(call)) = (command, self.call(event)) {
                    call.command = Some(command.to_owned());
                }
            }
            Payload::ToolStarted(started) if started.sandboxed => {
                if let Some(call) = self.call(event) {
                    call.is_sandboxed = true;
                }
            }
            Payload::SandboxApplied(applied) => {
                if let Some(what) = contradiction(applied) {
                    report.error_at(event, "sandbox_contradicts_itself", what);
                }
                if let Some(call) = self.call(event) {
                    call.sandbox = Some(applied.status);
                }
            }
            Payload::ProcessStarted(started) => self.started(event, started, report),
            Payload::ProcessCompleted(ended) => {
                self.ended(event, &ended.process_id, ended.exit_code, report);
            }
            Payload::ProcessTerminated(ended) => {
                self.ended(event, &ended.process_id, None, report);
            }
            // What could not be started has an end and no beginning.
            Payload::ProcessFailed(failed) => {
                let process = failed.process_id.as_ref();
                if let Some(process) = process.and_then(|id| self.processes.get_mut(id)) {
                    process.has_ended = true;
                }
            }
            Payload::ToolResult(result) => self.result(event, result, report),
            Payload::ToolObservation(_) => {
                if let Some(call) = &event.scope.tool_call_id {
                    self.calls.remove(call);
                }
            }
            _ => {}
        }
    }

    pub(super) fn finish(&self, report: &mut AuditReport) {
        if let Some((first, count)) = self.unconfined {
            let others = match count {
                1 => String::new(),
                _ => format!(", and {} after it", count - 1),
            };
            report.warning(
                "ran_unconfined",
                Some(first),
                format!("a command ran without a sandbox{others}"),
            );
        }
    }

    fn call(&mut self, event: &Event) -> Option<&mut CommandCall> {
        let call = event.scope.tool_call_id.clone()?;
        Some(self.calls.entry(call).or_default())
    }

    fn started(&mut self, event: &Event, started: &ProcessStarted, report: &mut AuditReport) {
        let process = started.process_id.clone();
        self.processes.insert(process.clone(), Process::default());
        let Some(call) = self.call(event) else {
            return;
        };
        call.process = Some(process);
        let command = call.command.as_deref();
        let is_other =
            command.is_some_and(|command| !is_summary(&started.command_summary, command));
        let is_unconfined = matches!(
            call.sandbox,
            Some(SandboxStatus::Off | SandboxStatus::Unavailable)
        );
        if is_other {
            report.error_at(
                event,
                "command_differs",
                "the command that ran is not the one that was let through".into(),
            );
        }
        if is_unconfined {
            let (_, count) = self.unconfined.get_or_insert((event.sequence, 0));
            *count += 1;
        }
    }

    fn ended(
        &mut self,
        event: &Event,
        process_id: &ProcessId,
        exit_code: Option<i32>,
        report: &mut AuditReport,
    ) {
        let process = self.processes.entry(process_id.clone());
        let is_known = matches!(process, std::collections::hash_map::Entry::Occupied(_));
        let process = process.or_default();
        if !is_known {
            report.error_at(
                event,
                "process_end_without_start",
                format!("process {process_id} ended and had never begun"),
            );
        } else if process.has_ended {
            report.error_at(
                event,
                "process_ended_twice",
                format!("process {process_id} ended twice"),
            );
        }
        process.has_ended = true;
        process.exit_code = process.exit_code.or(exit_code);
    }

    /// The exit code of a result is that of the process it is about.
    fn result(&mut self, event: &Event, result: &ToolResult, report: &mut AuditReport) {
        let Some(call_id) = event.scope.tool_call_id.clone() else {
            return;
        };
        let call = self.calls.entry(call_id.clone()).or_default();
        if call.is_sandboxed && call.sandbox.is_none() {
            report.error_at(
                event,
                "result_without_sandbox",
                format!("call {call_id}: it was to run in a sandbox, and none was applied"),
            );
        }
        let Some(said) = result.data.exit_code else {
            return;
        };
        let named = result.data.process_id.as_ref();
        let named = named.and_then(|id| id.parse().ok());
        let process = call.process.clone().or(named);
        let process = process.and_then(|id| self.processes.get(&id));
        match process {
            Some(process) if process.has_ended => {
                if let Some(was) = process.exit_code.filter(|was| *was != said) {
                    report.error_at(
                        event,
                        "exit_code_differs",
                        format!("call {call_id}: its result says exit code {said}, but its command ended with {was}"),
                    );
                }
            }
            _ => report.error_at(
                event,
                "result_without_process",
                format!("call {call_id}: exit code {said} of a command that is not seen to end"),
            ),
        }
    }
}

fn contradiction(applied: &SandboxApplied) -> Option<String> {
    let missing = applied.layers.iter().find(|layer| !layer.holds)?;
    (applied.status == SandboxStatus::Full).then(|| {
        format!(
            "the sandbox is said to be full, but its layer `{}` does not hold",
            missing.name
        )
    })
}

/// Whether a summary can have been made of a command: all of it in one line, or its beginning. Past
/// a character that had to be made visible nothing is compared.
fn is_summary(summary: &str, command: &str) -> bool {
    let cut = summary.strip_suffix('…');
    let mut rest = cut.unwrap_or(summary);
    for character in command.chars() {
        if rest.is_empty() {
            return cut.is_some();
        }
        let shown = match character {
            '\n' => "\\n",
            '\t' => " ",
            ' '..='~' => {
                let Some(after) = rest.strip_prefix(character) else {
                    return false;
                };
                rest = after;
                continue;
            }
            _ => return true,
        };
        match rest.strip_prefix(shown) {
            Some(after) => rest = after,
            None => return cut.is_some() && shown.starts_with(rest),
        }
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::is_summary;

    fn check(summary: &str, command: &str, expected: bool) {
        assert_eq!(
            is_summary(summary, command),
            expected,
            "{summary:?} {command:?}"
        );
    }

    #[test]
    fn a_summary_is_a_line_of_its_command() {
        check("sh test.sh", "sh test.sh", true);
        check("a\\nb c", "a\nb\tc", true);
        check("sh te…", "sh test.sh", true);
        check("echo \\u{202e}", "echo \u{202e}", true);
        check("sh test.sh", "sh test.sh; rm x", false);
        check("rm x; sh test.sh", "sh test.sh", false);
        check("sh test.sh; rm x", "sh test.sh", false);
        check("rm…", "sh test.sh", false);
        check("", "sh test.sh", false);
    }
}
