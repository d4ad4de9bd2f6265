use agent_tool_runtime::{ExecutionContext, Tool, ToolInvocation};

fn twice(tool: &dyn Tool, invocation: ToolInvocation, context: &ExecutionContext) {
    let _ = tool.execute(invocation, context);
    let _ = tool.execute(invocation, context);
}

fn main() {}
