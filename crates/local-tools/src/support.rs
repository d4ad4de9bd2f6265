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
use serde_json::{Value, json};

use crate::path::{OpenProblem, PathProblem, ProjectPath};
use crate::replace::ReplaceProblem;

/// The most characters any tool gives to the model.
pub(crate) const MAX_RESULT_CHARACTERS: u64 = 30_000;

/// The strict JSON Schema of an input type, without references and in the part of JSON Schema that every
/// provider takes.
pub(crate) fn input_schema<T: JsonSchema>() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("$schema");
    schema.remove("title");
    schema.remove("description");
    let mut schema = schema.to_value();
    simplify(&mut schema);
    schema
}

/// Says the same with one type for each value, and with words in a list. A field that may be missing need
/// not be null as well: nulls are taken out of a call before it is checked.
fn simplify(schema: &mut Value) {
    let Some(keywords) = schema.as_object_mut() else {
        return;
    };
    keywords.remove("format");
    keywords.remove("default");
    let is_null = |name: &Value| name == "null";
    if let Some(Value::Array(types)) = keywords.get_mut("type") {
        types.retain(|name| !is_null(name));
        if let [only] = &**types {
            let only = only.clone();
            keywords.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(words)) = keywords.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    for choice in ["anyOf", "oneOf"] {
        let Some(Value::Array(branches)) = keywords.get_mut(choice) else {
            continue;
        };
        branches.retain(|branch| !branch.get("type").is_some_and(is_null));
        let words = branches.iter().map(|branch| branch.get("const").cloned());
        let says_the_same = match words.collect::<Option<Vec<Value>>>() {
            Some(words) => json!({"type": "string", "enum": words}),
            None if branches.len() == 1 => branches.remove(0),
            None => continue,
        };
        keywords.remove(choice);
        if let Value::Object(says_the_same) = says_the_same {
            for (keyword, value) in says_the_same {
                keywords.entry(keyword).or_insert(value);
            }
        }
        return simplify(schema);
    }
    if let Some(Value::Object(fields)) = keywords.get_mut("properties") {
        fields.values_mut().for_each(simplify);
    }
    if let Some(items) = keywords.get_mut("items") {
        simplify(items);
    }
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
