//! `plan` and `propose_plan`: the list of things to do that the model keeps, and a plan that it hands to
//! the user before anything is changed. Neither touches the world: the list is a fact of the call's
//! result, and the plan is the input of a call that only a person lets through.

use std::sync::Arc;

use agent_protocol::ActionHappened;
use agent_protocol::payload::plan::{PlanItem, PlanProgress, PlanState};
use agent_protocol::payload::tool::{Capability, Concurrency, ToolData};
use agent_protocol::status::Mode;
use agent_tool_runtime::{
    Body, ExecutionContext, ExecutionFailure, NormalizeContext, Normalized, PermissionSemantics,
    Plan, Prepared, RawResult, RuntimeContext, Subject, Tool, ToolDefinition, ToolInvocation,
    ValidationFailure, Visibility, VisibilityContext,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::LocalTool;
use crate::support::{flags, parse, prepared, reading_definition};
use agent_text::visible_excerpt;

/// Characters of an item that are kept: it is one line of a screen or two.
const LONGEST_ITEM: usize = 200;

/// What `plan` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PlanInput {
    /// The whole list, in order; it replaces the one before.
    #[schemars(length(max = 50))]
    items: Vec<ItemInput>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ItemInput {
    /// What is to be done, in a few words.
    #[schemars(length(min = 1, max = 1000))]
    text: String,
    #[serde(default)]
    state: PlanState,
}

/// What `propose_plan` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProposalInput {
    /// The plan as Markdown.
    #[schemars(length(min = 1, max = 12000))]
    plan: String,
}

/// The line of the table of tools.
pub(crate) const LIST: LocalTool = LocalTool {
    definition: list_definition,
    make: |_| Arc::new(PlanTool(list_definition())),
};

/// The line of the table of tools.
pub(crate) const PROPOSAL: LocalTool = LocalTool {
    definition: proposal_definition,
    make: |_| Arc::new(ProposePlanTool(proposal_definition())),
};

fn list_definition() -> ToolDefinition {
    ToolDefinition {
        subject: Subject::Session,
        capabilities: vec![Capability::Custom],
        // A list that comes later replaces the one before.
        concurrency: Concurrency::Keyed,
        ..reading_definition::<PlanInput>(
            "plan",
            "Keeps a list of things to do, which the user sees. Use it for work of several steps: give the whole list \
             with every call, one item in_progress at a time, and set an item to done as soon as it is.",
            "How many items are done, and the current one.",
        )
    }
}

fn proposal_definition() -> ToolDefinition {
    ToolDefinition {
        subject: Subject::Plan,
        capabilities: vec![Capability::Custom],
        concurrency: Concurrency::Exclusive,
        ..reading_definition::<ProposalInput>(
            "propose_plan",
            "Hands your plan to the user, who approves, edits or rejects it. The mode is plan: nothing can be changed \
             before that. Look around as far as you need, then call this with what you will change and where, in which \
             order, and how you will check it.",
            "The plan as it was approved.",
        )
    }
}

/// A call that touches nothing outside the session.
fn ready<T: Send + Sync + 'static>(definition: &ToolDefinition, input: T, plan: Plan) -> Prepared {
    Prepared {
        normalised_paths: Vec::new(),
        semantics: PermissionSemantics {
            action_class: definition.action_class,
            ..PermissionSemantics::default()
        },
        plan,
        flags: flags(definition),
        baselines: Vec::new(),
        preview: None,
        input: Box::new(input),
    }
}

struct PlanTool(ToolDefinition);

impl Tool for PlanTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn validate(
        &self,
        input: &Value,
        _: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        let input: PlanInput = parse(input)?;
        let item = |item: ItemInput| PlanItem {
            text: visible_excerpt(item.text.trim(), LONGEST_ITEM),
            state: item.state,
        };
        let items: Vec<PlanItem> = input.items.into_iter().map(item).collect();
        let plan = Plan {
            lock_key: Some("plan".to_owned()),
            ..Plan::default()
        };
        Ok(ready(&self.0, items, plan))
    }

    fn execute(
        &self,
        invocation: ToolInvocation,
        _: &ExecutionContext,
    ) -> Result<RawResult, ExecutionFailure> {
        let items = prepared::<Vec<PlanItem>>(invocation)?;
        Ok(RawResult {
            data: ToolData {
                plan: Some(*items),
                ..ToolData::default()
            },
            ..RawResult::ok(ActionHappened::No)
        })
    }

    fn normalize(&self, raw: &RawResult, _: &NormalizeContext<'_>) -> Normalized {
        let items = raw.data.plan.as_deref().unwrap_or_default();
        let lines: Vec<String> = items.iter().map(PlanItem::line).collect();
        Normalized {
            title: "plan".to_owned(),
            summary: PlanProgress::of(items).in_words(),
            detail: String::new(),
            user_text: (!lines.is_empty()).then(|| lines.join("\n")),
        }
    }
}

struct ProposePlanTool(ToolDefinition);

impl Tool for ProposePlanTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    /// Other modes have no need of it; a call of it is put to the user all the same.
    fn visibility(&self, context: &VisibilityContext) -> Visibility {
        Visibility::Visible.listed_if(context.mode == Mode::Plan)
    }

    fn validate(
        &self,
        input: &Value,
        _: &RuntimeContext<'_>,
    ) -> Result<Prepared, ValidationFailure> {
        let input: ProposalInput = parse(input)?;
        Ok(ready(&self.0, input.plan, Plan::default()))
    }

    fn execute(
        &self,
        invocation: ToolInvocation,
        _: &ExecutionContext,
    ) -> Result<RawResult, ExecutionFailure> {
        let plan = prepared::<String>(invocation)?;
        Ok(RawResult {
            // The user may have edited it.
            bodies: vec![Body::text("plan", *plan)],
            ..RawResult::ok(ActionHappened::No)
        })
    }

    fn normalize(&self, _: &RawResult, _: &NormalizeContext<'_>) -> Normalized {
        Normalized {
            title: "propose_plan".to_owned(),
            summary: "The user approved the plan, which follows as approved. Carry it out now."
                .to_owned(),
            detail: String::new(),
            user_text: None,
        }
    }
}
