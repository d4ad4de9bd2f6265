//! Providers by name: what was probably meant by an unknown one, and one that can be asked if it is there.

use agent_provider::catalog::BUILT_IN;
use agent_provider::config::ConfigError;
use agent_provider::{HostCredentials, HttpProvider, resolve_endpoint};

use crate::Runtime;
use crate::config::Config;
use crate::error::{OrFail as _, RuntimeError};
use crate::keys;
use crate::models::{base_url, provider_config};

/// Advice about a provider that nobody knows.
#[must_use]
pub fn unknown_provider_hints(config: &Config, name: &str, model: &str) -> Vec<String> {
    let built_in = BUILT_IN.iter().map(|provider| provider.name);
    let own = config.providers.keys().map(String::as_str);
    let mut known: Vec<&str> = own.chain(built_in).collect();
    let mut seen = std::collections::HashSet::new();
    known.retain(|name| seen.insert(*name));
    let nearest = agent_text::nearest(name, known.iter().copied());
    let meant = nearest.map(|near| format!("did you mean `{near}/{model}`?"));
    let list = format!(
        "known providers: {}; add your own with `[providers.{name}]` (docs/providers.md)",
        known.join(", ")
    );
    meant.into_iter().chain([list]).collect()
}

/// A provider that can be asked for its models.
pub struct AtHand {
    pub provider: HttpProvider,
    /// Variable the key is in, where it is in one.
    pub key_variable: Option<String>,
    pub has_key: bool,
    /// True if a command would print the key: it was not run.
    pub key_command: bool,
}

/// The provider `name`, with its key as far as that is there without running a command.
///
/// # Errors
/// When it cannot be used as it is set.
pub fn at_hand(runtime: &Runtime, config: &Config, name: &str) -> Result<AtHand, RuntimeError> {
    let own = provider_config(config, name);
    let (key, key_command) = keys::at_hand(runtime, config, name);
    let (has_key, key_variable) = match &key {
        Some((_, variable)) => (true, variable.clone()),
        None => (false, None),
    };
    let found = HostCredentials {
        key,
        base_url: base_url(runtime, name),
        headers: keys::headers(runtime, config, name).unwrap_or_default(),
    };
    let endpoint = resolve_endpoint(name, own.as_ref(), found);
    let endpoint = endpoint.map_err(|error| match &error {
        ConfigError::UnknownProvider { .. } => {
            let hints = unknown_provider_hints(config, name, "MODEL");
            let unknown = RuntimeError::usage(error.to_string());
            hints.into_iter().fold(unknown, RuntimeError::hint)
        }
        _ => RuntimeError::usage(error.to_string()),
    })?;
    Ok(AtHand {
        provider: HttpProvider::new(endpoint).or_usage()?,
        key_variable,
        has_key,
        key_command,
    })
}
