//! What ends a turn although the model would go on. Each limit has its own reason.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use agent_protocol::payload::conversation::Budget;
use agent_protocol::payload::model::LimitKind;

/// When a turn counts as having lost its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopLimits {
    /// Identical calls with identical outcomes, in a row: nothing changed between them.
    pub repeats: u32,
    /// Calls in a row that did not succeed.
    pub failures: u32,
}

impl Default for LoopLimits {
    fn default() -> Self {
        Self {
            repeats: 5,
            failures: 20,
        }
    }
}

/// The fewest tokens an answer has to have room for, to be worth asking for.
const LEAST_OUTPUT: u64 = 1_024;

/// What the next request may take, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// Tokens of the input, estimated.
    pub input_tokens: u64,
    /// Tokens the answer may have, where that is limited.
    pub output_tokens: Option<u64>,
    /// What that input costs and what a token of the answer does; nothing when there is no price.
    pub prices: Option<ExpectedPrices>,
}

/// What a request costs, in USD.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExpectedPrices {
    pub input: f64,
    pub output_token: f64,
}

impl Expected {
    /// The most it can cost with an answer of so many tokens.
    #[must_use]
    pub fn cost(&self, output_tokens: u64) -> Option<f64> {
        let prices = self.prices?;
        Some(prices.input + prices.output_token * output_tokens as f64)
    }
}

/// Why a turn was ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    Steps {
        limit: u64,
    },
    Tokens {
        limit: u64,
        used: u64,
    },
    Cost {
        limit: f64,
        spent: f64,
    },
    /// What the next request costs is not known, so a limit could not be kept.
    UnknownCost {
        limit: f64,
    },
    Time {
        limit_ms: u64,
    },
    Repetition {
        tool: String,
        times: u32,
    },
    Failures {
        times: u32,
    },
}

impl Stop {
    /// The stable code in `turn.failed`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Steps { .. } => "max_steps",
            Self::Tokens { .. } => "max_tokens",
            Self::Cost { .. } | Self::UnknownCost { .. } => "max_cost",
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
                format!(
                    "the next request could take more tokens than are left: {used} of {limit} are used"
                )
            }
            Self::Cost { limit, spent } => format!(
                "the next request could cost more than is left: {spent:.4} of {limit:.4} USD are spent"
            ),
            Self::UnknownCost { limit } => format!(
                "a limit of {limit:.4} USD cannot be kept, because no price is known for the model"
            ),
            Self::Time { limit_ms } => {
                format!(
                    "the turn reached its time limit of {} s",
                    *limit_ms as f64 / 1000.0
                )
            }
            Self::Repetition { tool, times } => {
                format!(
                    "the model made the same `{tool}` call {times} times with the same outcome, and nothing changed in between"
                )
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
            Self::Cost { .. } | Self::UnknownCost { .. } => Some(LimitKind::Cost),
            Self::Time { .. } => Some(LimitKind::Time),
            Self::Repetition { .. } | Self::Failures { .. } => None,
        }
    }
}

/// Watches one turn.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    budget: Budget,
    loop_limits: LoopLimits,
    steps: u64,
    tokens: u64,
    spent: f64,
    failures: u32,
    /// Hashes of all calls with their outcomes: enough to notice a circle, small however long the turn.
    seen: HashSet<u64>,
    /// Those since something last changed, with how often each came.
    repeated: HashMap<u64, u32>,
}

/// A call that ended.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts<'a> {
    pub tool: &'a str,
    pub arguments: &'a str,
    pub outcome: &'a str,
    pub ok: bool,
    /// Files were found changed after it.
    pub changed_files: bool,
    /// It is not known only to read.
    pub may_change: bool,
}

impl Limits {
    #[must_use]
    pub fn new(budget: Budget, loop_limits: LoopLimits) -> Self {
        Self {
            budget,
            loop_limits,
            ..Self::default()
        }
    }

    /// The same for a turn that has come so far already.
    #[must_use]
    pub fn going_on(mut self, steps: u64, tokens: u64, spent: f64) -> Self {
        self.steps = steps;
        self.tokens = tokens;
        self.spent = spent;
        self
    }

    /// The model requests made so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Asked before each model request. Gives the most tokens its answer may have so that no ceiling
    /// is broken, where there is one: small budgets get short answers before they get none.
    ///
    /// # Errors
    /// When the request would break a ceiling.
    pub fn before_request(
        &mut self,
        elapsed_ms: u64,
        expected: &Expected,
    ) -> Result<Option<u64>, Stop> {
        self.check_time(elapsed_ms)?;
        if let Some(limit) = self.budget.max_steps
            && self.steps >= limit
        {
            return Err(Stop::Steps { limit });
        }
        let room = self.room(expected)?;
        self.steps += 1;
        Ok(room)
    }

    /// The same for a request beside the conversation, which is no step of its own.
    ///
    /// # Errors
    /// When the request would break a ceiling.
    pub fn before_side_job(&self, expected: &Expected) -> Result<Option<u64>, Stop> {
        self.room(expected)
    }

    /// How many tokens of an answer tokens and money are left for.
    fn room(&self, expected: &Expected) -> Result<Option<u64>, Stop> {
        let needed = expected
            .output_tokens
            .map_or(LEAST_OUTPUT, |most| most.min(LEAST_OUTPUT));
        let mut room = None;
        if let Some(limit) = self.budget.max_tokens {
            let left = limit
                .saturating_sub(self.tokens)
                .saturating_sub(expected.input_tokens);
            if left < needed {
                let used = self.tokens;
                return Err(Stop::Tokens { limit, used });
            }
            room = Some(left);
        }
        if let Some(limit) = self.budget.max_cost {
            let Some(prices) = expected.prices else {
                return Err(Stop::UnknownCost { limit });
            };
            let left = limit - self.spent - prices.input;
            let affordable = if prices.output_token > 0.0 {
                // Rounds towards zero, also when what is left is below zero.
                (left / prices.output_token) as u64
            } else {
                u64::MAX
            };
            if left < 0.0 || affordable < needed {
                let spent = self.spent;
                return Err(Stop::Cost { limit, spent });
            }
            room = Some(room.unwrap_or(u64::MAX).min(affordable));
        }
        Ok(room)
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

    /// A request was answered. What a server does not count or has no price for is not nothing: the
    /// caller gives an estimate then.
    pub fn after_request(&mut self, tokens: u64, cost: Option<f64>) {
        self.tokens = self.tokens.saturating_add(tokens);
        self.spent += cost.unwrap_or(0.0);
    }

    /// A call ended. It is a repetition only if nothing changed since the last one like it: no file,
    /// and nothing that a call of a new kind may have done.
    ///
    /// # Errors
    /// When the turn goes in circles.
    pub fn after_call(&mut self, call: &CallFacts<'_>) -> Result<(), Stop> {
        self.failures = if call.ok { 0 } else { self.failures + 1 };
        if self.failures >= self.loop_limits.failures {
            return Err(Stop::Failures {
                times: self.failures,
            });
        }
        let mut hasher = DefaultHasher::new();
        (call.tool, call.arguments, call.outcome).hash(&mut hasher);
        let hash = hasher.finish();
        let is_new = self.seen.insert(hash);
        if call.changed_files || (is_new && call.may_change) {
            self.repeated.clear();
        }
        let times = self.repeated.entry(hash).or_default();
        *times += 1;
        if *times >= self.loop_limits.repeats {
            return Err(Stop::Repetition {
                tool: call.tool.to_owned(),
                times: *times,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(budget: Budget) -> Limits {
        Limits::new(budget, LoopLimits::default())
    }

    /// A request of 1,000 tokens at a dollar a million, with an answer at two.
    fn priced(output_tokens: u64) -> Expected {
        Expected {
            input_tokens: 1_000,
            output_tokens: Some(output_tokens),
            prices: Some(ExpectedPrices {
                input: 0.001,
                output_token: 0.000_002,
            }),
        }
    }

    #[test]
    fn each_limit_has_its_own_reason() {
        let anything = Expected::default();
        let mut limits = limited(Budget {
            max_steps: Some(2),
            ..Budget::default()
        });
        assert_eq!(limits.before_request(0, &anything), Ok(None));
        assert_eq!(limits.before_request(0, &anything), Ok(None));
        let stop = limits.before_request(0, &anything);
        assert_eq!(stop, Err(Stop::Steps { limit: 2 }));

        let limits = limited(Budget {
            timeout_ms: Some(10),
            ..Budget::default()
        });
        assert_eq!(limits.check_time(10), Err(Stop::Time { limit_ms: 10 }));
    }

    #[test]
    fn money_ends_before_the_request_that_would_break_the_limit() {
        let mut limits = limited(Budget {
            max_cost: Some(0.01),
            ..Budget::default()
        });
        // Nine thousandths of a dollar are left for an answer.
        let room = limits.before_request(0, &priced(8_000)).unwrap().unwrap();
        assert!((4_499..=4_500).contains(&room), "{room}");
        limits.after_request(2_000, Some(0.008));
        let stop = limits.before_request(0, &priced(8_000));
        let (limit, spent) = (0.01, 0.008);
        assert_eq!(stop, Err(Stop::Cost { limit, spent }));
        // An answer that is short anyway still fits.
        assert!(limits.before_request(0, &priced(100)).is_ok());
        let unknown = Expected {
            prices: None,
            ..priced(100)
        };
        let stop = limits.before_request(0, &unknown);
        assert_eq!(stop, Err(Stop::UnknownCost { limit }));
        let free = Expected {
            prices: Some(ExpectedPrices::default()),
            ..priced(100)
        };
        assert!(limits.before_request(0, &free).is_ok());
    }

    #[test]
    fn tokens_end_before_the_request_that_would_break_the_limit() {
        let mut limits = limited(Budget {
            max_tokens: Some(5_000),
            ..Budget::default()
        });
        assert_eq!(limits.before_request(0, &priced(8_000)), Ok(Some(4_000)));
        limits.after_request(3_000, None);
        let stop = limits.before_request(0, &priced(8_000));
        let (limit, used) = (5_000, 3_000);
        assert_eq!(stop, Err(Stop::Tokens { limit, used }));
        assert_eq!(limits.before_request(0, &priced(500)), Ok(Some(1_000)));
    }

    fn call<'a>(tool: &'a str, arguments: &'a str, outcome: &'a str) -> CallFacts<'a> {
        CallFacts {
            tool,
            arguments,
            outcome,
            ok: true,
            changed_files: false,
            may_change: tool == "bash",
        }
    }

    #[test]
    fn going_in_circles_ends() {
        let mut limits = Limits::default();
        let ended = (0..).find_map(|_| limits.after_call(&call("read", "{}", "same")).err());
        assert_eq!(
            ended,
            Some(Stop::Repetition {
                tool: "read".into(),
                times: 5
            })
        );
        let mut limits = Limits::default();
        let ended = (0..).find_map(|at| {
            let arguments = format!("{at}");
            let failed = CallFacts {
                ok: false,
                ..call("bash", &arguments, "x")
            };
            limits.after_call(&failed).err()
        });
        assert_eq!(ended, Some(Stop::Failures { times: 20 }));
    }

    #[test]
    fn two_calls_in_turn_are_a_circle_too() {
        let mut limits = Limits::default();
        let ended = (0..100).find_map(|at| {
            let arguments = if at % 2 == 0 { "one" } else { "two" };
            limits.after_call(&call("bash", arguments, "same")).err()
        });
        assert!(matches!(ended, Some(Stop::Repetition { .. })), "{ended:?}");
    }

    #[test]
    fn a_call_after_a_change_is_no_repetition() {
        let mut limits = Limits::default();
        for at in 0..50 {
            let text = at.to_string();
            let edit = CallFacts {
                changed_files: true,
                may_change: true,
                ..call("edit", &text, "done")
            };
            limits.after_call(&edit).unwrap();
            limits
                .after_call(&call("bash", "sh test.sh", "ok"))
                .unwrap();
        }
    }
}
