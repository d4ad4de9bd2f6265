//! Cost of a response, in whole numbers, or unknown.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;

use crate::event::Usage;

/// An amount of money in millionths of a millionth of a dollar, so that sums are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Cost {
    /// The amount.
    pub picodollars: u64,
}

/// Prices of tokens, in millionths of a dollar per million tokens (that is, picodollars a token).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// Input that no cache knew.
    pub input: u64,
    /// Output, reasoning included.
    pub output: u64,
    /// Input read from a cache.
    pub cached_input: Option<u64>,
    /// Input written to a cache.
    pub cache_write: Option<u64>,
    /// Other prices for long requests.
    pub long: Option<LongPrices>,
}

/// Prices of a request with more input than `over`, all of it, in percent of the usual ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongPrices {
    /// Tokens of input, cached ones included.
    pub over: u64,
    /// Input of every kind.
    pub input_percent: u64,
    /// Output.
    pub output_percent: u64,
}

/// Source of an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriceSource {
    /// The provider said what it charged.
    Provider,
    /// Computed from prices.
    Table,
}

impl PriceSource {
    /// The word for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Table => "table",
        }
    }
}

impl Cost {
    /// From a decimal amount of dollars.
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let pico = dollars * 1e12;
        (0.0..1e19).contains(&pico).then_some(Self {
            picodollars: pico.round() as u64,
        })
    }

    /// As a decimal amount of dollars, for numbers in reports.
    pub fn dollars(self) -> f64 {
        self.picodollars as f64 / 1e12
    }
}

impl fmt::Display for Cost {
    /// `$0.0123`: four decimals, more where that would be nothing.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dollars = self.dollars();
        if self.picodollars > 0 && dollars < 0.0001 {
            write!(formatter, "${dollars:.7}")
        } else {
            write!(formatter, "${dollars:.4}")
        }
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            picodollars: self.picodollars.saturating_add(other.picodollars),
        }
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Add::add)
    }
}

/// Cost of `usage` and its source. `None` is "unknown", which is not zero: prices or counts are
/// missing.
pub fn cost(usage: &Usage, prices: Option<&Prices>) -> Option<(Cost, PriceSource)> {
    if let Some(reported) = usage.reported_cost {
        return Some((reported, PriceSource::Provider));
    }
    let prices = prices?;
    let (input, output) = (usage.input?, usage.output?);
    let long = prices.long.filter(|long| input > long.over);
    let (of_input, of_output) =
        long.map_or((100, 100), |long| (long.input_percent, long.output_percent));
    let (cached, written) = (
        usage.cached_input.unwrap_or(0),
        usage.cache_write.unwrap_or(0),
    );
    let plain = input.saturating_sub(cached).saturating_sub(written);
    let priced = |tokens: u64, price: Option<u64>, percent: u64| {
        if tokens == 0 {
            return Some(0);
        }
        let hundredfold = tokens.checked_mul(price?)?.checked_mul(percent)?;
        Some(hundredfold / 100)
    };
    let parts = [
        priced(plain, Some(prices.input), of_input)?,
        priced(cached, prices.cached_input, of_input)?,
        priced(written, prices.cache_write, of_input)?,
        priced(output, Some(prices.output), of_output)?,
    ];
    let picodollars = parts.into_iter().try_fold(0_u64, u64::checked_add)?;
    Some((Cost { picodollars }, PriceSource::Table))
}

/// The most a request can cost: all input at the full price and the whole output limit. The input
/// is estimated from the size of the body, at four bytes a token.
pub fn estimate(body_bytes: usize, max_output_tokens: u64, prices: &Prices) -> Option<Cost> {
    let usage = Usage {
        input: Some(estimate_tokens(body_bytes)),
        output: Some(max_output_tokens),
        ..Usage::default()
    };
    cost(&usage, Some(prices)).map(|(cost, _)| cost)
}

/// Tokens in a body of so many bytes, at four bytes a token.
pub fn estimate_tokens(body_bytes: usize) -> u64 {
    u64::try_from(body_bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices = Prices {
        input: 3_000_000,
        output: 15_000_000,
        cached_input: Some(300_000),
        cache_write: None,
        long: Some(LongPrices {
            over: 200_000,
            input_percent: 200,
            output_percent: 150,
        }),
    };

    fn check(usage: Usage, expected: Option<f64>) {
        let found = cost(&usage, Some(&PRICES)).map(|(cost, _)| cost.dollars());
        assert_eq!(found, expected, "{usage:?}");
    }

    #[test]
    fn tokens_are_priced_by_kind() {
        check(
            Usage {
                input: Some(1_000_000 / 10),
                output: Some(10_000),
                ..Usage::default()
            },
            Some(0.45),
        );
        check(
            Usage {
                input: Some(100_000),
                cached_input: Some(100_000),
                output: Some(0),
                ..Usage::default()
            },
            Some(0.03),
        );
    }

    #[test]
    fn a_long_request_has_its_own_prices_from_the_first_token() {
        let usage = |input: u64| Usage {
            input: Some(input),
            cached_input: Some(100_000),
            output: Some(10_000),
            ..Usage::default()
        };
        check(usage(200_000), Some(0.3 + 0.03 + 0.15));
        check(usage(300_000), Some(1.2 + 0.06 + 0.225));
    }

    #[test]
    fn missing_prices_or_counts_give_an_unknown_cost() {
        check(Usage::default(), None);
        check(
            Usage {
                input: Some(1),
                ..Usage::default()
            },
            None,
        );
        check(
            Usage {
                input: Some(9),
                cache_write: Some(5),
                output: Some(0),
                ..Usage::default()
            },
            None,
        );
        assert_eq!(
            cost(
                &Usage {
                    input: Some(1),
                    output: Some(1),
                    ..Usage::default()
                },
                None
            ),
            None
        );
    }

    #[test]
    fn the_providers_own_word_counts_more() {
        let usage = Usage {
            reported_cost: Cost::from_dollars(0.25),
            ..Usage::default()
        };
        assert_eq!(
            cost(&usage, None),
            Some((
                Cost {
                    picodollars: 250_000_000_000
                },
                PriceSource::Provider
            ))
        );
    }

    #[test]
    fn amounts_read_well() {
        assert_eq!(Cost::from_dollars(1.5).unwrap().to_string(), "$1.5000");
        assert_eq!(
            Cost::from_dollars(0.000_012).unwrap().to_string(),
            "$0.0000120"
        );
        assert_eq!(Cost::default().to_string(), "$0.0000");
        assert_eq!(Cost::from_dollars(-1.0), None);
    }
}
