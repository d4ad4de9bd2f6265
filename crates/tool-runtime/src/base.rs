//! Relative paths of a session whose working directory is not the project: an input as it would be given at the
//! project. What it becomes is recorded, judged and run.

use agent_policy::ToolDefinition;
use agent_protocol::payload::tool::RuntimeOwner;
use serde_json::{Map, Value};

/// The input with every relative path beginning at `base`; `None` when nothing changes.
pub(crate) fn rebased(tool: &ToolDefinition, input: &Value, base: &str) -> Option<Value> {
    if tool.owner != RuntimeOwner::Local || base == "." {
        return None;
    }
    let mut changed = input.as_object()?.clone();
    for field in &tool.path_fields {
        put(&mut changed, &field.name, field.default.as_deref(), base);
    }
    if let Some(field) = &tool.cwd_field {
        put(&mut changed, field, Some("."), base);
    }
    let changed = Value::Object(changed);
    (changed != *input).then_some(changed)
}

fn put(input: &mut Map<String, Value>, name: &str, default: Option<&str>, base: &str) {
    let given = match input.get(name) {
        Some(Value::String(given)) => Some(given.as_str()),
        None | Some(Value::Null) => default,
        // What is no path is refused as it is.
        Some(_) => None,
    };
    let rebased = match given {
        Some("." | "./") => base.to_owned(),
        Some("") | None => return,
        Some(given) if given.starts_with(['/', '~']) => return,
        Some(given) => format!("{base}/{given}"),
    };
    input.insert(name.to_owned(), rebased.into());
}

#[cfg(test)]
mod tests {
    use agent_policy::Subject;
    use serde_json::json;

    use super::*;

    fn check(tool: &ToolDefinition, input: Value, expected: Value) {
        let rebased = rebased(tool, &input, "sub");
        assert_eq!(rebased.unwrap_or(input), expected);
    }

    #[test]
    fn every_relative_path_begins_at_the_base_and_nothing_else_changes() {
        let tool = |subject| ToolDefinition::new("tool", RuntimeOwner::Local, subject);
        let read = tool(Subject::Read).with_path("path", None);
        check(
            &read,
            json!({"path": "a.rs", "limit": 3}),
            json!({"path": "sub/a.rs", "limit": 3}),
        );
        check(
            &read,
            json!({"path": "../a.rs"}),
            json!({"path": "sub/../a.rs"}),
        );
        for same in [
            json!({"path": "/a.rs"}),
            json!({"path": "~/a"}),
            json!({"path": 3}),
            json!({}),
            json!([]),
        ] {
            check(&read, same.clone(), same);
        }
        let search = tool(Subject::Read).with_path("path", Some("."));
        check(
            &search,
            json!({"pattern": "x"}),
            json!({"pattern": "x", "path": "sub"}),
        );
        check(&search, json!({"path": null}), json!({"path": "sub"}));
        let shell = ToolDefinition {
            command_field: Some("command".to_owned()),
            cwd_field: Some("cwd".to_owned()),
            ..tool(Subject::Command)
        };
        check(
            &shell,
            json!({"command": "ls a"}),
            json!({"command": "ls a", "cwd": "sub"}),
        );
        check(
            &shell,
            json!({"command": "ls", "cwd": "b"}),
            json!({"command": "ls", "cwd": "sub/b"}),
        );
        assert_eq!(rebased(&read, &json!({"path": "a.rs"}), "."), None);
        let of_server = ToolDefinition::new("tool", RuntimeOwner::McpServer, Subject::Read);
        assert_eq!(
            rebased(
                &of_server.with_path("path", None),
                &json!({"path": "a"}),
                "sub"
            ),
            None
        );
    }
}
