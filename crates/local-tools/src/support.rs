//! Support shared by the tools: typed inputs, definitions, and failures made of path problems.

use agent_protocol::payload::permission::{Access as PermissionAccess, ActionClass};
use agent_protocol::payload::tool::{CallFlags, Capability, Concurrency, Risk, RuntimeOwner};
use agent_protocol::{ActionHappened, Code};
use agent_tool_runtime::{
    ExecutionFailure, ResourceAccess, Subject, ToolDefinition, ToolInvocation, ValidationFailure,
};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::path::{OpenProblem, PathProblem, ProjectPath};
use crate::replace::ReplaceProblem;

/// The most characters any tool gives to the model.
pub(crate) const MAX_RESULT_CHARACTERS: u64 = 30_000;

/// The strict JSON Schema of an input type, without references.
pub(crate) fn input_schema<T: JsonSchema>() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("$schema");
    schema.remove("title");
    schema.remove("description");
    schema.to_value()
}

/// A definition of a local tool that only looks; writers change what differs.
pub(crate) fn reading_definition<T: JsonSchema>(
    name: &str,
    description: &str,
    output: &str,
) -> ToolDefinition {
    ToolDefinition {
        description: description.to_owned(),
        input_schema: input_schema::<T>(),
        output: output.to_owned(),
        action_class: ActionClass::Observe,
        capabilities: vec![Capability::Read, Capability::Filesystem],
        risk: vec![Risk::Read],
        is_read_only: true,
        is_destructive: false,
        concurrency: Concurrency::Safe,
        max_result_chars: MAX_RESULT_CHARACTERS,
        ..ToolDefinition::new(name, RuntimeOwner::Local, Subject::Read)
    }
}

/// A definition of a local tool that changes one file.
pub(crate) fn writing_definition<T: JsonSchema>(
    name: &str,
    description: &str,
    output: &str,
) -> ToolDefinition {
    ToolDefinition {
        subject: Subject::Write,
        action_class: ActionClass::Modify,
        capabilities: vec![Capability::Write, Capability::Filesystem],
        risk: vec![Risk::Write],
        is_read_only: false,
        concurrency: Concurrency::Keyed,
        cancellable: false,
        ..reading_definition::<T>(name, description, output)
    }
}

/// The flags of a call that is as its definition says.
pub(crate) fn flags(definition: &ToolDefinition) -> CallFlags {
    CallFlags {
        is_read_only: definition.is_read_only,
        is_destructive: definition.is_destructive,
        is_concurrency_safe: definition.concurrency == Concurrency::Safe,
        interrupt_behavior: definition.interrupt_behavior,
    }
}

/// The typed input. The schema was checked before, so a mismatch here is a detail it cannot say.
pub(crate) fn parse<T: DeserializeOwned>(input: &Value) -> Result<T, ValidationFailure> {
    T::deserialize(input).map_err(|error| {
        ValidationFailure::new(Code::SchemaInvalid, error.to_string()).at("", error.to_string())
    })
}

/// Takes the prepared input out of an invocation.
pub(crate) fn prepared<T: 'static>(invocation: ToolInvocation) -> Result<Box<T>, ExecutionFailure> {
    invocation.into_input().ok_or_else(|| {
        ExecutionFailure::new(Code::InternalError, "the prepared input is of another tool")
            .having(ActionHappened::No)
    })
}

/// A resource as the gate sees it.
pub(crate) fn resource(
    access: PermissionAccess,
    given: &str,
    path: &ProjectPath,
) -> ResourceAccess {
    ResourceAccess {
        access,
        given: given.to_owned(),
        resolved: Some(path.absolute().to_owned()),
    }
}

/// A failed path, pointing at the field that named it.
pub(crate) fn bad_path(problem: &PathProblem, field: &str) -> ValidationFailure {
    ValidationFailure::new(problem.code(), problem.to_string()).at(field, problem.to_string())
}

/// A file that cannot be opened, pointing at the field that named it.
pub(crate) fn bad_file(problem: &OpenProblem, field: &str) -> ValidationFailure {
    ValidationFailure::new(problem.code(), problem.to_string()).at(field, problem.to_string())
}

/// A file that could be opened before but not now.
pub(crate) fn lost_file(problem: &OpenProblem) -> ExecutionFailure {
    ExecutionFailure::new(problem.code(), problem.to_string()).having(ActionHappened::No)
}

/// A replacement that did not happen.
pub(crate) fn not_replaced(problem: &ReplaceProblem) -> ExecutionFailure {
    ExecutionFailure::new(problem.code(), problem.to_string()).having(problem.action_happened())
}
