//! What ends a turn although the model would go on. Each limit has its own reason.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use agent_protocol::payload::conversation::Budget;
use agent_protocol::payload::model::LimitKind;

/// When a turn counts as having lost its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Identical calls with identical outcomes.
    pub repeats: u32,
    /// Calls in a row that did not succeed.
    pub failures: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            repeats: 5,
            failures: 20,
        }
    }
}

/// Why a turn was ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    Steps { limit: u64 },
    Tokens { limit: u64, used: u64 },
    Cost { limit: f64, spent: f64 },
    Time { limit_ms: u64 },
    Repetition { tool: String, times: u32 },
    Failures { times: u32 },
}

impl Stop {
    /// The stable code in `turn.failed`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Steps { .. } => "max_steps",
            Self::Tokens { .. } => "max_tokens",
            Self::Cost { .. } => "max_cost",
            Self::Time { .. } => "timeout",
            Self::Repetition { .. } => "repeated_calls",
            Self::Failures { .. } => "consecutive_failures",
        }
    }

    /// What a person reads.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Steps { limit } => {
                format!("the turn reached its limit of {limit} model requests")
            }
            Self::Tokens { limit, used } => {
                format!("the turn used {used} tokens, its limit is {limit}")
            }
            Self::Cost { limit, spent } => format!(
                "the next request could cost more than is left: {spent:.4} of {limit:.4} USD are spent"
            ),
            Self::Time { limit_ms } => {
                format!(
                    "the turn reached its time limit of {} s",
                    *limit_ms as f64 / 1000.0
                )
            }
            Self::Repetition { tool, times } => {
                format!("the model made the same `{tool}` call {times} times with the same outcome")
            }
            Self::Failures { times } => format!("{times} calls in a row did not succeed"),
        }
    }

    /// What is limited, where it is a budget.
    #[must_use]
    pub fn kind(&self) -> Option<LimitKind> {
        match self {
            Self::Steps { .. } => Some(LimitKind::Steps),
            Self::Tokens { .. } => Some(LimitKind::Tokens),
            Self::Cost { .. } => Some(LimitKind::Cost),
            Self::Time { .. } => Some(LimitKind::Time),
            Self::Repetition { .. } | Self::Failures { .. } => None,
        }
    }
}

/// Watches one turn.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    budget: Budget,
    patience: Patience,
    steps: u64,
    tokens: u64,
    spent: f64,
    failures: u32,
    /// Hashes of calls with their outcomes: enough to notice a circle, small however long the turn.
    seen: HashMap<u64, u32>,
}

impl Limits {
    #[must_use]
    pub fn new(budget: Budget, patience: Patience) -> Self {
        Self {
            budget,
            patience,
            ..Self::default()
        }
    }

    /// The model requests made so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Asked before each model request; `expected_cost` is the most it can cost, if that is known.
    ///
    /// # Errors
    /// When the request would break a ceiling.
    pub fn before_request(
        &mut self,
        elapsed_ms: u64,
        expected_cost: Option<f64>,
    ) -> Result<(), Stop> {
        self.check_time(elapsed_ms)?;
        if let Some(limit) = self.budget.max_steps
            && self.steps >= limit
        {
            return Err(Stop::Steps { limit });
        }
        if let Some(limit) = self.budget.max_tokens
            && self.tokens >= limit
        {
            return Err(Stop::Tokens {
                limit,
                used: self.tokens,
            });
        }
        if let Some(limit) = self.budget.max_cost {
            let next = expected_cost.unwrap_or(0.0);
            if self.spent >= limit || self.spent + next > limit {
                return Err(Stop::Cost {
                    limit,
                    spent: self.spent,
                });
            }
        }
        self.steps += 1;
        Ok(())
    }

    /// Whether the time is up.
    ///
    /// # Errors
    /// When it is.
    pub fn check_time(&self, elapsed_ms: u64) -> Result<(), Stop> {
        match self.budget.timeout_ms {
            Some(limit_ms) if elapsed_ms >= limit_ms => Err(Stop::Time { limit_ms }),
            _ => Ok(()),
        }
    }

    /// A request was answered.
    pub fn after_request(&mut self, tokens: Option<u64>, cost: Option<f64>) {
        self.tokens += tokens.unwrap_or(0);
        self.spent += cost.unwrap_or(0.0);
    }

    /// A call ended.
    ///
    /// # Errors
    /// When the turn goes in circles.
    pub fn after_call(
        &mut self,
        tool: &str,
        arguments: &str,
        outcome: &str,
        ok: bool,
    ) -> Result<(), Stop> {
        self.failures = if ok { 0 } else { self.failures + 1 };
        if self.failures >= self.patience.failures {
            return Err(Stop::Failures {
                times: self.failures,
            });
        }
        let mut hasher = DefaultHasher::new();
        (tool, arguments, outcome).hash(&mut hasher);
        let times = self.seen.entry(hasher.finish()).or_default();
        *times += 1;
        if *times >= self.patience.repeats {
            return Err(Stop::Repetition {
                tool: tool.to_owned(),
                times: *times,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_its_own_reason() {
        let budget = Budget {
            max_steps: Some(2),
            ..Budget::default()
        };
        let mut limits = Limits::new(budget, Patience::default());
        assert_eq!(limits.before_request(0, None), Ok(()));
        assert_eq!(limits.before_request(0, None), Ok(()));
        assert_eq!(
            limits.before_request(0, None),
            Err(Stop::Steps { limit: 2 })
        );

        let mut limits = Limits::new(
            Budget {
                max_cost: Some(1.0),
                ..Budget::default()
            },
            Patience::default(),
        );
        assert_eq!(limits.before_request(0, Some(0.9)), Ok(()));
        limits.after_request(None, Some(0.5));
        assert_eq!(
            limits.before_request(0, Some(0.9)),
            Err(Stop::Cost {
                limit: 1.0,
                spent: 0.5
            })
        );

        let limits = Limits::new(
            Budget {
                timeout_ms: Some(10),
                ..Budget::default()
            },
            Patience::default(),
        );
        assert_eq!(limits.check_time(10), Err(Stop::Time { limit_ms: 10 }));
    }

    #[test]
    fn going_in_circles_ends() {
        let mut limits = Limits::default();
        let ended = (0..).find_map(|_| limits.after_call("read", "{}", "same", true).err());
        assert_eq!(
            ended,
            Some(Stop::Repetition {
                tool: "read".into(),
                times: 5
            })
        );
        let mut limits = Limits::default();
        let ended = (0..).find_map(|at| {
            limits
                .after_call("bash", &format!("{at}"), "x", false)
                .err()
        });
        assert_eq!(ended, Some(Stop::Failures { times: 20 }));
    }
}
