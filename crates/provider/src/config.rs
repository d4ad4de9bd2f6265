//! `[providers.NAME]` as written in a configuration file, and how it becomes an endpoint.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;
use serde::de::{self, Deserializer};

use crate::catalog::BuiltIn;
use crate::conversation::ToolChoice;
use crate::cost::{Cost, Prices};
use crate::dialect::Dialect;
use crate::endpoint::{Endpoint, RetryPolicy, Timeouts};
use crate::models::{ModelFacts, built_in_facts};
use crate::quirks::{GENERIC, Quirks};

/// One `[providers.NAME]` table. Everything is optional for built-in providers; others need at
/// least `base_url` (or `transcript` for the scripted dialect).
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderConfig {
    /// The wire format.
    #[serde(deserialize_with = "dialect_word")]
    pub dialect: Option<Dialect>,
    /// The base URL.
    pub base_url: Option<String>,
    /// The variable that holds the key.
    pub api_key_env: Option<String>,
    /// A file that holds the key.
    pub api_key_file: Option<PathBuf>,
    /// A command that prints the key; the program and its arguments.
    pub api_key_cmd: Option<Vec<String>>,
    /// Further headers.
    pub headers: BTreeMap<String, String>,
    /// Headers whose values come from variables.
    pub env_headers: BTreeMap<String, String>,
    /// The row of the quirks table.
    pub quirks: Option<String>,
    /// The transcript of the scripted dialect.
    pub transcript: Option<PathBuf>,
    /// Milliseconds to wait for a connection.
    pub connect_timeout_ms: Option<u64>,
    /// Milliseconds to wait for the status line.
    pub first_byte_timeout_ms: Option<u64>,
    /// Milliseconds to wait between two pieces of the body.
    pub idle_timeout_ms: Option<u64>,
    /// Attempts in all.
    pub max_attempts: Option<u32>,
    /// Milliseconds after which no new attempt starts.
    pub max_retry_ms: Option<u64>,
    /// Replaces the tool choice when the last message is a tool result.
    pub tool_choice_after_tool_result: Option<ToolChoiceConfig>,
    /// Facts about its models.
    pub models: BTreeMap<String, ModelConfig>,
}

/// `tool_choice_after_tool_result`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoiceConfig {
    /// No tool.
    None,
    /// The model decides.
    Auto,
}

impl From<ToolChoiceConfig> for ToolChoice {
    fn from(choice: ToolChoiceConfig) -> Self {
        match choice {
            ToolChoiceConfig::None => Self::None,
            ToolChoiceConfig::Auto => Self::Auto,
        }
    }
}

/// `[providers.NAME.models."MODEL"]`: facts that replace the built-in ones. Prices are in dollars
/// per million tokens.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// Tokens it can take in.
    pub context_window: Option<u64>,
    /// Tokens it can give out.
    pub max_output_tokens: Option<u64>,
    /// Price of input.
    pub input_price: Option<f64>,
    /// Price of output.
    pub output_price: Option<f64>,
    /// Price of cached input.
    pub cached_input_price: Option<f64>,
    /// Price of input written to a cache.
    pub cache_write_price: Option<f64>,
    /// True if it can call tools.
    pub tools: Option<bool>,
    /// True if it can see images.
    pub images: Option<bool>,
    /// True if it thinks first.
    pub reasoning: Option<bool>,
}

/// A provider that cannot be used as it is configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No such provider.
    #[error("unknown provider `{name}`")]
    UnknownProvider {
        /// The name.
        name: String,
    },
    /// A provider of the user's own without an address.
    #[error("[providers.{name}] needs `base_url`")]
    NoBaseUrl {
        /// The name.
        name: String,
    },
    /// No such row in the quirks table.
    #[error("unknown quirks `{quirks}` in [providers.{name}]")]
    UnknownQuirks {
        /// The provider.
        name: String,
        /// The name in question.
        quirks: String,
    },
}

fn dialect_word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Dialect>, D::Error> {
    let word = String::deserialize(deserializer)?;
    match Dialect::from_word(&word) {
        Some(dialect) => Ok(Some(dialect)),
        None => Err(de::Error::unknown_variant(
            &word,
            &[
                "openai-chat",
                "openai-responses",
                "anthropic-messages",
                "scripted",
            ],
        )),
    }
}

/// The variables that may hold the key of `name`, in order.
pub fn key_variables(name: &str, config: Option<&ProviderConfig>) -> Vec<String> {
    if let Some(variable) = config.and_then(|config| config.api_key_env.clone()) {
        return vec![variable];
    }
    BuiltIn::named(name)
        .into_iter()
        .flat_map(|provider| provider.key_variables)
        .map(|variable| (*variable).to_owned())
        .collect()
}

/// True if requests to `name` can be sent without a key: to local servers, and to providers of the
/// user's own that name no source for one.
pub fn key_is_optional(name: &str, config: Option<&ProviderConfig>) -> bool {
    let configured = config.is_some_and(|config| {
        config.api_key_env.is_some()
            || config.api_key_file.is_some()
            || config.api_key_cmd.is_some()
    });
    let own_headers =
        config.is_some_and(|config| !config.headers.is_empty() || !config.env_headers.is_empty());
    own_headers
        || (!configured
            && BuiltIn::named(name).is_none_or(|provider| provider.key_variables.is_empty()))
}

/// Key, base URL and headers that the caller read outside the configuration file.
#[derive(Debug, Default)]
pub struct HostCredentials {
    /// The key, and the variable it came from.
    pub key: Option<(SecretString, Option<String>)>,
    /// The value of the base URL variable.
    pub base_url: Option<String>,
    /// The values of `env_headers`.
    pub headers: Vec<(String, SecretString)>,
}

/// The endpoint of `name`: built-in entry, then environment, then configuration.
pub fn resolve_endpoint(
    name: &str,
    config: Option<&ProviderConfig>,
    found: HostCredentials,
) -> Result<Endpoint, ConfigError> {
    let built_in = BuiltIn::named(name);
    let empty = ProviderConfig::default();
    let own = config.unwrap_or(&empty);
    if built_in.is_none() && config.is_none() {
        return Err(ConfigError::UnknownProvider {
            name: name.to_owned(),
        });
    }
    let base_url = own
        .base_url
        .clone()
        .or_else(|| Some(built_in?.base_url_from(found.base_url.as_deref()?)))
        .or_else(|| built_in.map(|provider| provider.base_url.to_owned()));
    let base_url = match base_url {
        Some(url) => url,
        None if own.dialect == Some(Dialect::Scripted) => String::new(),
        None => {
            return Err(ConfigError::NoBaseUrl {
                name: name.to_owned(),
            });
        }
    };
    let dialect = own
        .dialect
        .or(built_in.map(|provider| provider.dialect_for(&base_url)))
        .unwrap_or(Dialect::OpenAiChat);
    let quirks = match &own.quirks {
        Some(quirks) => Quirks::named(quirks).ok_or_else(|| ConfigError::UnknownQuirks {
            name: name.to_owned(),
            quirks: quirks.clone(),
        })?,
        None => built_in.map_or(&GENERIC, |provider| provider.quirks_for(&base_url)),
    };
    let (key, key_variable) = match found.key {
        Some((key, variable)) => (Some(key), variable),
        None => (None, None),
    };
    let milliseconds =
        |set: Option<u64>, default: Duration| set.map_or(default, Duration::from_millis);
    let (timeouts, retry) = (Timeouts::default(), RetryPolicy::default());
    let mut headers: Vec<(String, SecretString)> = own
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().into()))
        .collect();
    headers.extend(found.headers);
    Ok(Endpoint {
        name: name.to_owned(),
        dialect,
        base_url,
        quirks,
        key,
        key_variable: key_variable.or_else(|| key_variables(name, config).into_iter().next()),
        headers,
        timeouts: Timeouts {
            connect: milliseconds(own.connect_timeout_ms, timeouts.connect),
            first_byte: milliseconds(own.first_byte_timeout_ms, timeouts.first_byte),
            idle: milliseconds(own.idle_timeout_ms, timeouts.idle),
            last_words: timeouts.last_words,
        },
        retry: RetryPolicy {
            max_attempts: own.max_attempts.unwrap_or(retry.max_attempts).max(1),
            total: milliseconds(own.max_retry_ms, retry.total),
            ..retry
        },
    })
}

/// Facts about `model` of `provider`, configuration first.
pub fn model_facts(provider: &str, model: &str, config: Option<&ProviderConfig>) -> ModelFacts {
    let built_in = built_in_facts(provider, model);
    let Some(own) = config.and_then(|config| config.models.get(model)) else {
        return built_in;
    };
    ModelFacts {
        context_window: own.context_window.or(built_in.context_window),
        max_output_tokens: own.max_output_tokens.or(built_in.max_output_tokens),
        prices: own.prices(built_in.prices),
        tools: own.tools.or(built_in.tools),
        images: own.images.or(built_in.images),
        reasoning: own.reasoning.or(built_in.reasoning),
    }
}

impl ModelConfig {
    /// Configured prices over built-in ones; input and output are the least that makes a price.
    fn prices(&self, built_in: Option<Prices>) -> Option<Prices> {
        // Dollars per million tokens are microdollars a token are millions of picodollars a token.
        let set = |dollars: Option<f64>| {
            dollars
                .and_then(|dollars| Cost::from_dollars(dollars / 1e6))
                .map(|cost| cost.picodollars)
        };
        Some(Prices {
            input: set(self.input_price).or(built_in.map(|prices| prices.input))?,
            output: set(self.output_price).or(built_in.map(|prices| prices.output))?,
            cached_input: set(self.cached_input_price)
                .or(built_in.and_then(|prices| prices.cached_input)),
            cache_write: set(self.cache_write_price)
                .or(built_in.and_then(|prices| prices.cache_write)),
            long: if self.input_price.is_some() {
                None
            } else {
                built_in.and_then(|prices| prices.long)
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ProviderConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_built_in_provider_needs_nothing() {
        let endpoint = resolve_endpoint("anthropic", None, HostCredentials::default()).unwrap();
        assert_eq!(
            (endpoint.url().as_str(), endpoint.key_variable.as_deref()),
            (
                "https://api.anthropic.com/v1/messages",
                Some("ANTHROPIC_API_KEY")
            )
        );
        assert!(!key_is_optional("anthropic", None) && key_is_optional("ollama", None));
    }

    #[test]
    fn configuration_beats_environment_beats_built_in() {
        let from_env = || HostCredentials {
            base_url: Some("http://env/v1".to_owned()),
            ..HostCredentials::default()
        };
        assert_eq!(
            resolve_endpoint("openai", None, from_env()).unwrap().url(),
            "http://env/v1/chat/completions"
        );
        let config = parse("base_url = \"http://file/v1\"\ndialect = \"openai-responses\"");
        assert_eq!(
            resolve_endpoint("openai", Some(&config), from_env())
                .unwrap()
                .url(),
            "http://file/v1/responses"
        );
    }

    #[test]
    fn mistakes_are_named() {
        let error = |config: &str| {
            resolve_endpoint("mine", Some(&parse(config)), HostCredentials::default()).unwrap_err()
        };
        assert_eq!(error("").to_string(), "[providers.mine] needs `base_url`");
        assert_eq!(
            error("base_url = \"http://x\"\nquirks = \"odd\"").to_string(),
            "unknown quirks `odd` in [providers.mine]"
        );
        assert_eq!(
            resolve_endpoint("none", None, HostCredentials::default())
                .unwrap_err()
                .to_string(),
            "unknown provider `none`"
        );
        let unknown = toml::from_str::<ProviderConfig>("base_ulr = \"x\"")
            .unwrap_err()
            .to_string();
        assert!(
            unknown.contains("base_ulr") && unknown.contains("base_url"),
            "{unknown}"
        );
        let dialect = toml::from_str::<ProviderConfig>("dialect = \"chat\"")
            .unwrap_err()
            .to_string();
        assert!(dialect.contains("openai-chat"), "{dialect}");
    }

    #[test]
    fn model_facts_can_be_replaced_one_by_one() {
        let config = parse("[models.\"gpt-4o\"]\ncontext_window = 9\ninput_price = 1.25");
        let facts = model_facts("openai", "gpt-4o", Some(&config));
        let prices = facts.prices.unwrap();
        assert_eq!(
            (facts.context_window, facts.max_output_tokens),
            (Some(9), Some(16_384))
        );
        assert_eq!((prices.input, prices.output), (1_250_000, 10_000_000));
        let config = parse("[models.local]\ninput_price = 1.0");
        assert_eq!(model_facts("ollama", "local", Some(&config)).prices, None);
    }
}
