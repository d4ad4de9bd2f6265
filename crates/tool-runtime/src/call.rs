//! One call on its way, and its beginning: the intent is recorded, the tool looked up, its
//! visibility and the shape of the input checked.

use std::sync::Arc;
use std::time::Instant;

use agent_protocol::id::{ActionId, IntentId, InvocationId, ToolCallId};
use agent_protocol::payload::tool::{
    PermissionFacts, ReadMore, ToolValidation, ValidationError, ValidationLayer,
};
use agent_protocol::{Code, Phase, Refs, Scope, Timestamp};
use serde_json::Value;

use crate::arguments::{self, BadArguments};
use crate::base::rebased;
use crate::intent::{IntentOrigin, ToolIntent};
use crate::journal::JournalError;
use crate::pipeline::Shared;
use crate::registry::Registered;
use crate::result::{Body, ExecutionFailure, RawResult};
use crate::tool::Visibility;
use agent_policy::shell::Reading;
use agent_text::sha256_hex;
use agent_text::visible_excerpt;

/// One call on its way.
pub(crate) struct Call {
    pub(crate) scope: Scope,
    pub(crate) tool_call_id: ToolCallId,
    pub(crate) intent_id: IntentId,
    /// The tool's own name, or what was asked for when there is no such tool.
    pub(crate) tool_name: String,
    pub(crate) tool: Option<Arc<Registered>>,
    pub(crate) input: Value,
    /// The reading of its script, if it has one.
    pub(crate) reading: Reading,
    pub(crate) origin: IntentOrigin,
    /// True if a model asked for it, and not a person or a script.
    pub(crate) is_of_model: bool,
    pub(crate) submitted: Instant,
    /// Whether other calls had to end first.
    pub(crate) held: bool,
}

/// Why a call was not executed.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    pub(crate) phase: Phase,
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) errors: Vec<ValidationError>,
    pub(crate) bodies: Vec<Body>,
    pub(crate) read_more: Option<ReadMore>,
    pub(crate) permission: Option<PermissionFacts>,
    /// The event that decided.
    pub(crate) decided_by: Option<String>,
}

/// What is known about a call that was started.
#[derive(Debug, Clone)]
pub(crate) struct StartFacts {
    pub(crate) invocation_id: InvocationId,
    pub(crate) started_at: Timestamp,
    pub(crate) permission: PermissionFacts,
}

/// How a call ended, before it is recorded.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per call, and it is moved twice"
)]
pub(crate) enum Ending {
    Refused(Refusal),
    Executed {
        start: StartFacts,
        result: Result<RawResult, ExecutionFailure>,
        ended_at: Timestamp,
    },
    LeftOpen(ActionId),
}

impl Shared {
    /// The beginning of a call: records the intent, looks the tool up and checks the shape of the
    /// input. A call that fails here has its ending at once.
    pub(crate) fn open(
        &self,
        batch_scope: &Scope,
        intent: ToolIntent,
    ) -> Result<(Call, Option<Refusal>), JournalError> {
        let tool_call_id = intent
            .tool_call_id
            .unwrap_or_else(|| self.journal.ids().mint());
        let parsed = arguments::parse(&intent.arguments);
        let given = parsed.as_ref().ok();
        let (tool, own_input) =
            self.registry()
                .read_call(&intent.tool_name, &intent.arguments, given);
        let rebased = match (&tool, own_input.as_ref().or(given), intent.origin) {
            // Programs name what they mean from the project.
            (Some(tool), Some(input), IntentOrigin::Model | IntentOrigin::User) => {
                rebased(tool.definition(), input, &self.lock_directory())
            }
            _ => None,
        };
        let own_input = rebased.or(own_input);
        let asked = visible_excerpt(&intent.tool_name, 100);
        let tool_name = tool
            .as_ref()
            .map_or_else(|| asked.clone(), |tool| tool.definition().name.clone());
        let mut call = Call {
            scope: Scope {
                tool_call_id: Some(tool_call_id.clone()),
                ..batch_scope.clone()
            },
            tool_call_id,
            intent_id: self.journal.ids().mint(),
            tool_name: tool_name.clone(),
            tool,
            input: Value::Null,
            reading: Reading::default(),
            origin: intent.origin,
            is_of_model: intent.model_request_id.is_some(),
            submitted: Instant::now(),
            held: false,
        };
        let raw_input = match &parsed {
            Ok(input) => input.clone(),
            Err(_) => Value::String(intent.arguments.clone()),
        };
        let recorded = agent_protocol::payload::tool::ToolIntent {
            intent_id: call.intent_id.clone(),
            requested_name: (asked != tool_name).then_some(asked),
            tool_version: call
                .tool
                .as_ref()
                .map(|tool| tool.definition().version.clone()),
            definition_hash: call
                .tool
                .as_ref()
                .map(|tool| tool.definition_hash().to_owned()),
            tool_name,
            raw_input: Some(raw_input),
            raw_input_ref: None,
            own_input: own_input.clone(),
            own_input_ref: None,
            raw_input_sha256: sha256_hex(intent.arguments.as_bytes()),
            reason: intent.reason,
            provider_call_id: intent.provider_call_id,
            model_request_id: intent.model_request_id,
            assembled_from_chunks: intent.assembled_from_chunks,
        };
        self.record(&mut call.scope, recorded, Refs::default())?;
        let read = own_input.map_or(parsed, Ok);
        let refusal = match self.check_shape(&mut call, read) {
            Ok(()) => None,
            Err((layer, refusal)) => {
                self.record_invalid(&mut call, layer, &refusal)?;
                Some(refusal)
            }
        };
        Ok((call, refusal))
    }

    fn check_shape(
        &self,
        call: &mut Call,
        parsed: Result<Value, BadArguments>,
    ) -> Result<(), (ValidationLayer, Refusal)> {
        let Some(tool) = call.tool.clone() else {
            return Err((ValidationLayer::Lookup, self.unknown_tool(&call.tool_name)));
        };
        self.check_visible(&tool)
            .map_err(|refusal| (ValidationLayer::Visibility, refusal))?;
        let checked = parsed.and_then(|input| tool.schema.check(&input).map(|()| input));
        call.input = checked.map_err(|bad| (ValidationLayer::Schema, schema_refusal(bad)))?;
        Ok(())
    }

    fn unknown_tool(&self, name: &str) -> Refusal {
        Refusal {
            phase: Phase::Lookup,
            code: Code::UnknownTool,
            message: self.registry().no_such_tool(name),
            ..Refusal::default()
        }
    }

    /// Visibility is the runtime's business, whatever the model was shown.
    pub(crate) fn check_visible(&self, tool: &Registered) -> Result<(), Refusal> {
        let context = self.visibility();
        match tool.visibility(&context) {
            Visibility::Visible | Visibility::Unlisted => Ok(()),
            Visibility::Hidden { reason } => Err(Refusal {
                phase: Phase::Lookup,
                code: Code::ToolNotVisible,
                message: format!(
                    "the tool `{}` is not available in mode `{}`: {reason}",
                    tool.definition().name,
                    context.mode
                ),
                ..Refusal::default()
            }),
        }
    }

    pub(crate) fn record_invalid(
        &self,
        call: &mut Call,
        layer: ValidationLayer,
        refusal: &Refusal,
    ) -> Result<(), JournalError> {
        let errors = if refusal.errors.is_empty() {
            vec![ValidationError {
                path: String::new(),
                message: refusal.message.clone(),
            }]
        } else {
            refusal.errors.clone()
        };
        let validation = ToolValidation {
            intent_id: call.intent_id.clone(),
            ok: false,
            layer,
            code: Some(refusal.code),
            errors,
            recovery: Some(refusal.code.facts().recovery.to_owned()),
        };
        self.record(&mut call.scope, validation, Refs::default())?;
        Ok(())
    }
}

pub(crate) fn schema_refusal(bad: BadArguments) -> Refusal {
    Refusal {
        phase: Phase::Validate,
        code: bad.code,
        message: bad.message,
        errors: bad.errors,
        ..Refusal::default()
    }
}

/// What a panic said, on one line.
pub(crate) fn panic_words(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it panicked".to_owned());
    visible_excerpt(&words, 300)
}
