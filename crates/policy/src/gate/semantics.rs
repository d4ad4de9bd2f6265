//! What a call means, from its input alone: for `agent permissions explain` and back-tests, where no
//! tool is at hand. Running tools say it themselves after validation.

use std::path::PathBuf;

use agent_protocol::payload::permission::{Access, ActionClass};
use serde_json::Value;

use super::rule::canonical_tool;
use crate::Workspace;
use crate::{CommandRequest, PermissionSemantics, ResourceAccess};

/// The semantics of a call of one of the known tools; `None` for any other name or without its main input.
pub fn semantics_of(
    tool: &str,
    input: &Value,
    workspace: &Workspace,
) -> Option<PermissionSemantics> {
    let text = |key: &str| input.get(key).and_then(Value::as_str);
    let resource = |access: Access, given: &str| ResourceAccess {
        access,
        given: given.to_owned(),
        // Where `~` leads the gate knows.
        resolved: (!given.starts_with('~')).then(|| workspace.root.join(given)),
    };
    let (action_class, resources) = match canonical_tool(tool) {
        "read" => (
            ActionClass::Observe,
            vec![resource(Access::Read, text("path")?)],
        ),
        "grep" | "glob" => (
            ActionClass::Search,
            vec![resource(Access::Read, text("path").unwrap_or("."))],
        ),
        "write" | "edit" => (
            ActionClass::Modify,
            vec![resource(Access::Write, text("path")?)],
        ),
        "read_artifact" | "process_output" => (ActionClass::Observe, Vec::new()),
        "process_kill" => (ActionClass::Execute, Vec::new()),
        "bash" => {
            let cwd =
                text("cwd").map_or_else(|| workspace.root.clone(), |cwd| workspace.root.join(cwd));
            return Some(PermissionSemantics {
                action_class: ActionClass::Execute,
                command: Some(CommandRequest {
                    text: text("command")?.to_owned(),
                    cwd: PathBuf::from(&cwd),
                }),
                network: input
                    .get("network")
                    .and_then(Value::as_bool)
                    .unwrap_or(false),
                ..PermissionSemantics::default()
            });
        }
        _ => return None,
    };
    Some(PermissionSemantics {
        action_class,
        resources,
        ..PermissionSemantics::default()
    })
}
