//! Asking the model: what the next input holds, and the exchange that is recorded.

use agent_protocol::Refs;
use agent_protocol::id::{ContextId, ModelRequestId};
use agent_protocol::payload::model::{CostEstimated, PolicyFacts, RequestPurpose};
use agent_protocol::status::Thinking;
use agent_provider::conversation::ReasoningEffort;

use super::{Engine, EngineError};
use crate::context::{Facts, RequestSettings, Resolved};
use crate::exchange::{Answer, Exchange, ExchangeError};
use crate::held::{missing, omitted};
use crate::interrupt::Interrupt;
use crate::limits::Expected;
use crate::model::Model;
/// A request that is ready to be sent.
pub(crate) struct Prepared {
    pub(crate) resolved: Resolved,
}

impl Prepared {
    /// What the request may take when `model` is asked.
    pub(crate) fn expected(&self, model: &Model) -> Expected {
        let input = self.resolved.receipt.budget.estimated_tokens;
        model.expected(input, self.resolved.request.max_output_tokens)
    }

    /// Asks for a longer answer than usual, as far as the model can give one.
    pub(crate) fn ask_for_more(&mut self, model: &Model) {
        let limit = self.resolved.request.max_output_tokens.unwrap_or(0);
        let most = model.settings.most_output_tokens.unwrap_or(u32::MAX);
        let more = limit.saturating_mul(4).max(32_000).min(most.max(limit));
        self.resolved.request.max_output_tokens = Some(more);
    }

    /// Lets the answer have no more than so many tokens.
    pub(crate) fn limit_output(&mut self, room: Option<u64>) {
        let Some(room) = room else { return };
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let limit = self.resolved.request.max_output_tokens;
        self.resolved.request.max_output_tokens = Some(limit.map_or(room, |limit| limit.min(room)));
    }
}

impl Engine {
    /// Decides what the next model input holds.
    pub(crate) fn prepare(&mut self) -> Result<Prepared, EngineError> {
        self.catch_up();
        let state = &self.parts.thread;
        let promised = state.next_context.clone();
        let facts = Facts {
            context_id: promised.unwrap_or_else(|| self.mint::<ContextId>()),
            request_no: self.parts.session.requests + 1,
            policy: PolicyFacts {
                mode: self.mode().as_str().to_owned(),
                sandbox: self.parts.settings.sandbox.clone(),
                on_ask: Some(self.parts.control.approvals().on_ask().as_str().to_owned()),
            },
            omitted: omitted(&self.parts.preamble, &state.conversation),
            missing: missing(&self.parts.preamble, &state.conversation),
            sessions: self.parts.session.parents.clone(),
        };
        let model = &self.parts.models[self.model].settings;
        let settings = match self.parts.control.thinking() {
            Some(thinking) => &RequestSettings {
                reasoning_effort: effort(thinking),
                ..model.clone()
            },
            None => model,
        };
        let resolved = self.policy.resolve(
            &self.parts.thread.conversation,
            &self.parts.preamble,
            &self.tools,
            settings,
            facts,
        );
        Ok(Prepared { resolved })
    }

    /// Asks the model and records the exchange.
    pub(crate) async fn ask(
        &mut self,
        prepared: Prepared,
        interrupt: &Interrupt,
    ) -> Result<Answer, ExchangeError> {
        let model_request_id: ModelRequestId = self.mint();
        self.last_request = Some(model_request_id.clone());
        let model = self.model();
        self.exchange(prepared, &model, model_request_id, None, interrupt)
            .await
    }

    /// Asks `model` something that is not part of the conversation.
    pub(crate) async fn ask_aside(
        &mut self,
        prepared: Prepared,
        model: &Model,
        purpose: RequestPurpose,
        interrupt: &Interrupt,
    ) -> Result<Answer, ExchangeError> {
        let model_request_id: ModelRequestId = self.mint();
        let purpose = Some(purpose);
        self.exchange(prepared, model, model_request_id, purpose, interrupt)
            .await
    }

    async fn exchange(
        &mut self,
        prepared: Prepared,
        model: &Model,
        model_request_id: ModelRequestId,
        purpose: Option<RequestPurpose>,
        interrupt: &Interrupt,
    ) -> Result<Answer, ExchangeError> {
        let expected = prepared.expected(model);
        let most = expected.cost(expected.output_tokens.unwrap_or(0));
        if let Some(amount) = most {
            let estimated = CostEstimated {
                model_request_id: model_request_id.clone(),
                amount: Some(amount),
                currency: "USD".to_owned(),
                basis: "the input as estimated and the longest answer".to_owned(),
            };
            let scope = self.scope.clone();
            let estimated = estimated.into();
            self.parts
                .journal
                .append(&scope, estimated, Refs::default())?;
        }
        let Resolved {
            request,
            receipt,
            without_images,
        } = prepared.resolved;
        let exchange = Exchange {
            journal: self.parts.journal.as_ref(),
            live: self.parts.live.as_ref(),
            scope: self.scope.clone(),
            request_no: receipt.model_request_no,
            model_request_id,
            context_id: receipt.context_id.clone(),
            catalog: self.catalog.clone(),
            preamble: self.preamble.clone(),
            inputs: self.parts.settings.keep_inputs.then_some(&self.inputs),
            receipt,
            purpose,
            without_images,
        };
        let answer = exchange
            .run(model.provider.as_ref(), &request, interrupt.token())
            .await;
        self.catch_up();
        answer
    }
}

/// The level as it is asked for.
fn effort(thinking: Thinking) -> Option<ReasoningEffort> {
    Some(match thinking {
        Thinking::Off => return None,
        Thinking::Minimal => ReasoningEffort::Minimal,
        Thinking::Low => ReasoningEffort::Low,
        Thinking::Medium => ReasoningEffort::Medium,
        Thinking::High => ReasoningEffort::High,
    })
}
