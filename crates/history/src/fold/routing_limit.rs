//! `routing_limit_summary`: which model was chosen and why, what it used and cost, what limits it.

use std::collections::BTreeMap;

use agent_protocol::payload::Usage;
use agent_protocol::payload::model::{LimitKind, ModelChoice, ModelFailureKind};
use agent_protocol::{Event, Payload};
use serde::{Deserialize, Serialize};

use super::served::Served;
use super::{Cursor, Fact, Fold, Step};
use agent_text::brief;

/// Choice, use and limits of models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoutingLimitSummary {
    pub cursor: Cursor,
    pub profile: Fact<String>,
    pub candidate_count: Fact<u64>,
    pub selected: Fact<ModelChoice>,
    pub reason: Option<String>,
    /// Why no model can serve, when none can.
    pub not_possible: Option<String>,
    pub capability_gap: Option<String>,
    pub fallbacks: u64,
    pub requests: u64,
    pub failures: BTreeMap<ModelFailureKind, u64>,
    pub usage: UsageTotals,
    /// The same by the model that answered, `provider/model` as the server named it.
    pub by_model: BTreeMap<String, UsageTotals>,
    served: Served,
    pub cost: CostState,
    pub limits: BTreeMap<LimitKind, Option<f64>>,
    pub rate_limit_hits: u64,
    /// The limit that stopped the work last.
    pub blocked_by: Option<LimitKind>,
}

/// Tokens over all requests, as the providers counted them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageTotals {
    pub input: u64,
    pub output: u64,
    pub total: u64,
    pub cached_input: u64,
    pub reasoning: u64,
    /// Answers whose provider counted nothing; the totals are too low by them.
    pub uncounted_requests: u64,
}

/// Money over all requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostState {
    /// The sum of the known amounts.
    pub amount: f64,
    pub currency: Option<String>,
    /// Requests whose cost is unknown, which is not the same as free.
    pub unknown_requests: u64,
}

impl Fold for RoutingLimitSummary {
    fn fold(&mut self, event: &Event) {
        match self.cursor.step(event) {
            Step::Again => return,
            Step::AfterGap => {
                self.selected.doubt();
                self.candidate_count.doubt();
                self.profile.doubt();
            }
            Step::Next => {}
        }
        if let Some(answered) = self.served.take(event) {
            let totals = self.by_model.entry(answered.model).or_default();
            totals.add(answered.usage);
        }
        match &event.payload {
            Payload::TaskProfileResolved(profile) => {
                self.profile = Fact::Known(profile.kind.clone());
            }
            Payload::RoutingCandidatesResolved(candidates) => {
                self.candidate_count = Fact::Known(candidates.count);
            }
            Payload::RoutingDecided(decided) => {
                self.candidate_count = Fact::Known(decided.candidate_count);
                self.selected = Fact::Known(decided.selected.clone());
                self.reason = Some(brief(&decided.reason, 300));
                self.not_possible = None;
            }
            Payload::RoutingSingleCandidate(single) => {
                self.candidate_count = Fact::Known(1);
                self.selected = Fact::Known(single.selected.clone());
                self.capability_gap.clone_from(&single.capability_gap);
            }
            Payload::RoutingFallbackApplied(fallback) => {
                self.fallbacks += 1;
                self.selected = Fact::Known(fallback.to.clone());
                self.reason = Some(brief(&fallback.reason, 300));
            }
            Payload::RoutingNotPossible(impossible) => {
                self.selected = Fact::Unavailable;
                self.not_possible = Some(impossible.required_action.clone());
            }
            Payload::ModelRequested(_) => self.requests += 1,
            Payload::ModelFailed(failed) => {
                *self.failures.entry(failed.kind).or_default() += 1;
                if let Some(usage) = &failed.usage {
                    self.usage.add(usage);
                }
            }
            Payload::ModelCompleted(completed) => self.usage.add(&completed.usage),
            Payload::CostRecorded(cost) => {
                match cost.amount {
                    Some(amount) => self.cost.amount += amount,
                    None => self.cost.unknown_requests += 1,
                }
                self.cost.currency = Some(cost.currency.clone());
            }
            Payload::LimitChanged(limit) => {
                self.limits.insert(limit.limit, limit.new);
            }
            Payload::TurnStarted(started) => {
                let budget = &started.budget;
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "limits are shown, not computed with"
                )]
                let number = |value: Option<u64>| value.map(|value| value as f64);
                for (kind, value) in [
                    (LimitKind::Steps, number(budget.max_steps)),
                    (LimitKind::Tokens, number(budget.max_tokens)),
                    (LimitKind::Cost, budget.max_cost),
                    (LimitKind::Time, number(budget.timeout_ms)),
                ] {
                    if value.is_some() {
                        self.limits.insert(kind, value);
                    }
                }
            }
            Payload::RateLimitHit(_) => self.rate_limit_hits += 1,
            Payload::QuotaBlocked(blocked) => self.blocked_by = Some(blocked.limit),
            _ => {}
        }
    }
}

impl UsageTotals {
    fn add(&mut self, usage: &Usage) {
        if usage.input.is_none() && usage.output.is_none() && usage.total.is_none() {
            self.uncounted_requests += 1;
        }
        let (input, output) = (usage.input.unwrap_or(0), usage.output.unwrap_or(0));
        self.input = self.input.saturating_add(input);
        self.output = self.output.saturating_add(output);
        self.total = self
            .total
            .saturating_add(usage.total.unwrap_or(input.saturating_add(output)));
        self.cached_input = self
            .cached_input
            .saturating_add(usage.cached_input.unwrap_or(0));
        self.reasoning = self.reasoning.saturating_add(usage.reasoning.unwrap_or(0));
    }
}
