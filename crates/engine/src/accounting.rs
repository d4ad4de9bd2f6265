//! What an answer took: recorded as the provider tells it, counted against the limits of the turn.

use agent_protocol::Refs;
use agent_protocol::payload::model::CostRecorded;

use crate::engine::{Engine, EngineError};
use crate::exchange::Answer;
use crate::limits::{Expected, Limits};
use crate::model::Model;

impl Engine {
    /// Records what an answer of `model` cost, and counts it against the limits: what the server
    /// did not count, or has no price, by an estimate.
    pub(crate) fn take_stock(
        &mut self,
        model: &Model,
        answer: &Answer,
        expected: &Expected,
        limits: &mut Limits,
    ) -> Result<(), EngineError> {
        let price = (model.price)(&answer.response.usage);
        let amount = price.map(|(amount, _)| amount);
        let before = self.session().cost.total();
        let recorded = CostRecorded {
            model_request_id: answer.model_request_id.clone(),
            usage: answer.usage.clone(),
            amount,
            currency: "USD".to_owned(),
            price_source: price.map_or("unknown", |(_, source)| source).to_owned(),
            session_total: before.zip(amount).map(|(before, amount)| before + amount),
        };
        self.append(recorded, Refs::default())?;
        let output = answer.response.estimated_tokens();
        let tokens = answer.usage.total;
        let tokens = tokens.unwrap_or_else(|| expected.input_tokens.saturating_add(output));
        limits.after_request(tokens, amount.or_else(|| expected.cost(output)));
        Ok(())
    }
}
