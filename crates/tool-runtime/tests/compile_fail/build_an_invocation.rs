use agent_tool_runtime::ToolInvocation;

fn main() {
    let _ = ToolInvocation {
        raw_input: serde_json::Value::Null,
    };
    let _ = ToolInvocation::admit(todo!());
}
