//! What a tool has to say of itself before it may be called.

use agent_protocol::payload::tool::{Concurrency, RuntimeOwner, ToolCatalogResolved};
use agent_protocol::{Code, Payload, Scope};
use agent_tool_runtime::{RegistrationError, Registry, ToolDefinition};
use serde_json::json;

use crate::stage::{Stage, definition, unwatched};

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

/// The event with the tools of the turn that `scope` names.
fn resolved(stage: &Stage, scope: &Scope) -> ToolCatalogResolved {
    stage.pipeline.resolve_catalogue(scope).unwrap()
}

fn refusal(stage: &Stage, tool: &str) -> (Code, String) {
    let observation = stage.one(tool, json!({}));
    let fact = observation.fact();
    (fact.code, observation.model_text().to_owned())
}

#[test]
fn tools_change_between_turns_and_the_log_says_how() {
    let stage = Stage::new();
    let (first, second) = (stage.scope(), stage.scope());
    assert_eq!(resolved(&stage, &first).diff, None);
    let tool = |name: &str| unwatched(definition(name, true, Concurrency::Safe));
    let mut other = definition("look", true, Concurrency::Safe);
    other.version = "2".to_owned();
    stage
        .pipeline
        .change_tools(|tools| {
            tools.register(tool("mcp__weather__now"))?;
            tools.replace(unwatched(other))?;
            tools.remove("mute")?;
            tools.set_unavailable("peek", Some("its server has ended"))
        })
        .unwrap();
    // What fails changes nothing of it.
    let failed = stage.pipeline.change_tools(|tools| {
        tools.remove("change")?;
        tools.remove("nothing")
    });
    assert!(
        matches!(failed, Err(RegistrationError::Unknown { .. })),
        "{failed:?}"
    );

    // The turn goes on with the tools it has.
    assert_eq!(resolved(&stage, &first).diff, None);
    let names = |stage: &Stage| -> Vec<String> {
        let entries = stage.pipeline.catalogue().into_iter();
        entries.map(|entry| entry.tool_name).collect()
    };
    assert!(names(&stage).contains(&"mute".to_owned()));

    let diff = resolved(&stage, &second).diff.unwrap();
    assert_eq!(diff.added, ["mcp__weather__now"]);
    assert_eq!(diff.removed, ["mute"]);
    assert_eq!(diff.changed, ["look", "peek"]);
    let unavailable = &diff.unavailable[..];
    assert_eq!(unavailable.len(), 1);
    assert_eq!(unavailable[0].tool_name, "peek");
    assert_eq!(unavailable[0].reason, "its server has ended");
    // The log has it.
    let recorded = stage
        .events()
        .into_iter()
        .rev()
        .find_map(|event| match event.payload {
            Payload::ToolCatalogResolved(resolved) => resolved.diff,
            _ => None,
        });
    assert_eq!(recorded, Some(diff));

    let (code, text) = refusal(&stage, "peek");
    assert_eq!(code, Code::ToolNotVisible);
    assert!(text.contains("its server has ended"), "{text}");
    assert_eq!(refusal(&stage, "mute").0, Code::UnknownTool);

    // It comes back.
    let back = |tools: &mut Registry| tools.set_unavailable("peek", None);
    stage.pipeline.change_tools(back).unwrap();
    let diff = resolved(&stage, &stage.scope()).diff.unwrap();
    assert_eq!(
        (&diff.changed[..], &diff.unavailable[..]),
        (&["peek".to_owned()][..], &[][..])
    );
}
