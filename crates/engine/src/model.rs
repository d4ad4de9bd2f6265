//! The models a turn may use, in order of preference.

use std::sync::Arc;

use agent_protocol::payload::model::ModelChoice;
use agent_provider::{Provider, Usage};

use crate::context::RequestSettings;
use crate::limits::{Expected, ExpectedPrices};

/// Computes what a usage costs in USD and says how it knows: from the provider's own word or from a
/// table. `None` means unknown, not free.
pub type Price = Arc<dyn Fn(&Usage) -> Option<(f64, &'static str)> + Send + Sync>;

/// One model that can be asked.
#[derive(Clone)]
pub struct Model {
    pub provider: Arc<dyn Provider>,
    pub settings: RequestSettings,
    pub price: Price,
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

    /// What a request with so many tokens of input and so many of output at most may take.
    #[must_use]
    pub(crate) fn expected(&self, input_tokens: u64, output_tokens: Option<u32>) -> Expected {
        const SAMPLE: u64 = 1_000_000;
        let cost = |output: u64| {
            let usage = Usage {
                input: Some(input_tokens),
                output: Some(output),
                ..Usage::default()
            };
            (self.price)(&usage).map(|(cost, _)| cost)
        };
        let prices = cost(0)
            .zip(cost(SAMPLE))
            .map(|(input, both)| ExpectedPrices {
                input,
                output_token: (both - input) / SAMPLE as f64,
            });
        Expected {
            input_tokens,
            output_tokens: output_tokens.map(u64::from),
            prices,
        }
    }
}
