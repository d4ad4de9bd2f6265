//! Another model takes over when one has failed for good.

use agent_protocol::Refs;
use agent_protocol::payload::model::{RoutingDecided, RoutingFallbackApplied};
use agent_provider::error::{ErrorKind, ModelError};

use crate::engine::{Engine, EngineError};
use crate::model::Model;

impl Engine {
    /// Moves on to the next model, if there is one that could do better.
    pub(crate) fn fall_back(&mut self, error: &ModelError) -> Result<bool, EngineError> {
        let from = self.model();
        let window = from.settings.window;
        let suits = |model: &Model| {
            error.kind != ErrorKind::ContextLength || model.settings.window > window
        };
        if !error.another_may_help() || !self.next_model(suits) {
            return Ok(false);
        }
        let to = self.model().choice();
        self.catch_up();
        let applied = RoutingFallbackApplied {
            from: from.choice(),
            to: to.clone(),
            reason: format!("{}: {}", error.kind.as_str(), error.message),
            error_ref: self.last_failure.as_ref().map(ToString::to_string),
        };
        self.append(applied, Refs::default())?;
        let limited = matches!(error.kind, ErrorKind::RateLimit | ErrorKind::Quota);
        let (requested, fallback_chain) = self.models_around();
        let decided = RoutingDecided {
            requested,
            selected: to,
            reason: "fallback".to_owned(),
            source: "fallback".to_owned(),
            candidate_count: self.model_count(),
            fallback_chain,
            limit_state: Some(if limited { "limited" } else { "ok" }.to_owned()),
        };
        self.append(decided, Refs::default())?;
        Ok(true)
    }
}
