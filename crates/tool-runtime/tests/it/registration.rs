//! What a tool has to say of itself before it may be called.

use agent_protocol::payload::tool::{Concurrency, RuntimeOwner};
use agent_tool_runtime::{RegistrationError, Registry, ToolDefinition};
use serde_json::json;

use crate::stage::{definition, unwatched};

fn registered(change: impl FnOnce(&mut ToolDefinition)) -> Result<(), RegistrationError> {
    let mut definition = definition("look", true, Concurrency::Safe);
    change(&mut definition);
    let mut registry = Registry::default();
    registry.register(unwatched(definition))
}

#[test]
fn a_definition_that_lacks_something_is_not_registered() {
    registered(|_| {}).unwrap();
    type Change = fn(&mut ToolDefinition);
    let changes: [(&str, Change); 12] = [
        ("names have", |tool| tool.name.clear()),
        ("names have", |tool| tool.name = "look around".into()),
        ("names have", |tool| tool.aliases.push(String::new())),
        ("no version", |tool| tool.version.clear()),
        ("no description", |tool| tool.description = " ".into()),
        ("output means", |tool| tool.output.clear()),
        ("no risk", |tool| tool.risk.clear()),
        ("no capability", |tool| tool.capabilities.clear()),
        ("no limit", |tool| tool.max_result_chars = 0),
        ("read-only and destructive", |tool| {
            tool.is_destructive = true
        }),
        ("cannot run beside", |tool| tool.is_read_only = false),
        ("schema", |tool| {
            tool.input_schema = json!({"type": "object"})
        }),
    ];
    for (missing, change) in changes {
        match registered(change) {
            Err(RegistrationError::Incomplete { missing: said, .. }) => {
                assert!(said.contains(missing), "{missing}: {said}");
            }
            other => panic!("{missing}: {other:?}"),
        }
    }
}

#[test]
fn a_name_is_given_once_and_a_foreign_schema_has_to_work() {
    let mut registry = Registry::default();
    let tool = |name: &str| unwatched(definition(name, true, Concurrency::Safe));
    registry.register(tool("look")).unwrap();
    for name in ["look", "look_alias"] {
        let taken = registry.register(tool(name));
        assert!(
            matches!(taken, Err(RegistrationError::NameTaken { .. })),
            "{taken:?}"
        );
    }
    let broken = registered(|tool| {
        tool.owner = RuntimeOwner::McpServer;
        tool.input_schema["properties"]["path"] = json!({"type": "nothing"});
    });
    assert!(
        matches!(broken, Err(RegistrationError::Schema { .. })),
        "{broken:?}"
    );
}
