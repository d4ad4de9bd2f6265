//! `[providers.NAME]` and `[providers.NAME.models."MODEL"]`: sections that exist once per name.

use std::collections::{BTreeMap, BTreeSet};

use agent_provider::config::ToolChoiceConfig;
use agent_provider::{ModelConfig, ProviderConfig};

use super::origin::Setting;
use super::section::{Resolver, Shown};
use super::sections::{ModelFacts, Provider};
use super::values::AfterToolResult;

/// One model server and what is known about its models.
#[derive(Clone, Debug)]
pub struct ProviderSettings {
    pub provider: Provider,
    pub models: BTreeMap<String, ModelFacts>,
}

/// Every provider any layer names.
pub(super) fn resolve(resolver: &mut Resolver<'_>) -> BTreeMap<String, ProviderSettings> {
    let layers = resolver.layers;
    let names: BTreeSet<&String> = layers
        .iter()
        .flat_map(|layer| layer.values.providers.keys())
        .collect();
    let one = |name: &String| {
        let prefix = prefix(name);
        let provider = Provider::resolve(resolver, &prefix, |file| file.providers.get(name));
        let models: BTreeSet<&String> = layers
            .iter()
            .filter_map(|layer| layer.values.providers.get(name))
            .flat_map(|provider| provider.models.keys())
            .collect();
        let models = models.into_iter().map(|model| {
            let prefix = format!("{prefix}.models.{}", key_part(model));
            let facts = ModelFacts::resolve(resolver, &prefix, |file| {
                file.providers.get(name)?.models.get(model)
            });
            (model.clone(), facts)
        });
        let models = models.collect();
        (name.clone(), ProviderSettings { provider, models })
    };
    names.into_iter().map(one).collect()
}

impl ProviderSettings {
    /// Every key that has a value.
    pub(super) fn shown(&self, name: &str, shown: &mut Vec<Shown>) {
        let prefix = prefix(name);
        self.provider.shown(&prefix, shown);
        for (model, facts) in &self.models {
            facts.shown(&format!("{prefix}.models.{}", key_part(model)), shown);
        }
    }

    /// The same without origins, as the provider crate wants it.
    pub fn config(&self) -> ProviderConfig {
        let own = &self.provider;
        ProviderConfig {
            dialect: value(&own.dialect).map(|dialect| dialect.0),
            base_url: value(&own.base_url),
            api_key_env: value(&own.api_key_env),
            api_key_file: value(&own.api_key_file),
            api_key_cmd: value(&own.api_key_cmd),
            headers: value(&own.headers)
                .map(|headers| headers.0)
                .unwrap_or_default(),
            env_headers: value(&own.env_headers).unwrap_or_default(),
            quirks: value(&own.quirks),
            transcript: value(&own.transcript),
            connect_timeout_ms: value(&own.connect_timeout_ms),
            first_byte_timeout_ms: value(&own.first_byte_timeout_ms),
            idle_timeout_ms: value(&own.idle_timeout_ms),
            max_attempts: value(&own.max_attempts),
            max_retry_ms: value(&own.max_retry_ms),
            tool_choice_after_tool_result: value(&own.tool_choice_after_tool_result).map(
                |choice| match choice {
                    AfterToolResult::None => ToolChoiceConfig::None,
                    AfterToolResult::Auto => ToolChoiceConfig::Auto,
                },
            ),
            models: self
                .models
                .iter()
                .map(|(name, facts)| (name.clone(), model_config(facts)))
                .collect(),
        }
    }
}

fn model_config(facts: &ModelFacts) -> ModelConfig {
    ModelConfig {
        context_window: value(&facts.context_window),
        max_output_tokens: value(&facts.max_output_tokens),
        input_price: value(&facts.input_price),
        output_price: value(&facts.output_price),
        cached_input_price: value(&facts.cached_input_price),
        cache_write_price: value(&facts.cache_write_price),
        tools: value(&facts.tools),
        images: value(&facts.images),
        reasoning: value(&facts.reasoning),
    }
}

fn value<T: Clone>(setting: &Option<Setting<T>>) -> Option<T> {
    setting.as_ref().map(|setting| setting.value.clone())
}

fn prefix(name: &str) -> String {
    format!("providers.{}", key_part(name))
}

/// A name as one part of a dotted key: quoted where TOML wants it quoted.
fn key_part(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !name.is_empty() && name.bytes().all(bare) {
        name.to_owned()
    } else {
        toml::Value::String(name.to_owned()).to_string()
    }
}
