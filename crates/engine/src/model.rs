//! The models a turn may use, in order of preference.

use std::sync::Arc;

use agent_protocol::payload::model::ModelChoice;
use agent_provider::{Provider, Usage};

use crate::context::RequestSettings;

/// Computes what a usage costs in USD; `None` means unknown, not free.
pub type Price = Arc<dyn Fn(&Usage) -> Option<f64> + Send + Sync>;

/// One model that can be asked.
#[derive(Clone)]
pub struct Model {
    pub provider: Arc<dyn Provider>,
    pub settings: RequestSettings,
    pub price: Price,
    /// Where the price comes from, in words: `built-in table`, `config`, `unknown`.
    pub price_source: String,
}

impl Model {
    /// The names for routing facts.
    #[must_use]
    pub fn choice(&self) -> ModelChoice {
        ModelChoice {
            provider: self.provider.name().to_owned(),
            model: self.settings.model.clone(),
        }
    }

    /// `provider/model`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.provider.name(), self.settings.model)
    }

    /// The most the next request can cost, from an estimate of its input and the output limit.
    #[must_use]
    pub(crate) fn ceiling(&self, estimated_input: u64) -> Option<f64> {
        let output = u64::from(self.settings.max_output_tokens?);
        let usage = Usage {
            input: Some(estimated_input),
            output: Some(output),
            ..Usage::default()
        };
        (self.price)(&usage)
    }
}
