//! Facts about models: window, output limit, prices, abilities.
//!
//! The table is a convenience, not a truth: providers change prices and add models, and we fetch no
//! catalogue. Every value can be set in the configuration; what is not known stays unknown.

use crate::cost::{LongPrices, Prices};

/// Facts about one model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelFacts {
    /// Tokens the model can take in.
    pub context_window: Option<u64>,
    /// Tokens it can give out.
    pub max_output_tokens: Option<u64>,
    /// Prices of its tokens.
    pub prices: Option<Prices>,
    /// True if it can call tools; unknown models are assumed to.
    pub tools: Option<bool>,
    /// True if it can see images.
    pub images: Option<bool>,
    /// True if it thinks before it answers.
    pub reasoning: Option<bool>,
}

struct Row {
    provider: &'static str,
    model: &'static str,
    context_window: u64,
    max_output_tokens: u64,
    prices: Prices,
    abilities: u8,
}

const TOOLS: u8 = 1;
const IMAGES: u8 = 2;
const REASONING: u8 = 4;

const fn row(
    provider: &'static str,
    model: &'static str,
    context_window: u64,
    max_output_tokens: u64,
    prices: Prices,
    abilities: u8,
) -> Row {
    Row {
        provider,
        model,
        context_window,
        max_output_tokens,
        prices,
        abilities,
    }
}

/// The facts built in for `model` of `provider`; everything is unknown for models not listed.
///
/// A dated snapshot such as `claude-haiku-4-5-20251001` has the facts of the model it is one of.
pub fn built_in_facts(provider: &str, model: &str) -> ModelFacts {
    let of_provider = || TABLE.iter().filter(|row| row.provider == provider);
    let row = of_provider().find(|row| row.model == model).or_else(|| {
        of_provider().find(|row| {
            model
                .strip_prefix(row.model)
                .is_some_and(|rest| rest.starts_with("-20") || rest == "-latest")
        })
    });
    let Some(row) = row else {
        return ModelFacts::default();
    };
    ModelFacts {
        context_window: Some(row.context_window),
        max_output_tokens: Some(row.max_output_tokens),
        prices: Some(row.prices),
        tools: Some(row.abilities & TOOLS != 0),
        images: Some(row.abilities & IMAGES != 0),
        reasoning: Some(row.abilities & REASONING != 0),
    }
}

/// The models listed for `provider`, in the order of the table.
pub fn listed_models(provider: &str) -> impl Iterator<Item = &'static str> {
    TABLE
        .iter()
        .filter(move |row| row.provider == provider)
        .map(|row| row.model)
}

/// The day on which the table was last brought up to date.
pub const CATALOGUE_DATE: &str = "2026-11-19";

/// What OpenAI and Google take for a long request.
const fn long(over: u64) -> LongPrices {
    LongPrices {
        over,
        input_percent: 200,
        output_percent: 150,
    }
}

const OPENAI_LONG: LongPrices = long(272_000);
const GEMINI_LONG: LongPrices = long(200_000);
const XAI_LONG: LongPrices = LongPrices {
    output_percent: 200,
    ..long(200_000)
};
const HAIKU_LONG: LongPrices = LongPrices {
    over: 100_000,
    input_percent: 500,
    output_percent: 500,
};

/// Prices in millionths of a dollar per million tokens.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    row("openai", "gpt-6.1-sol", 922_000, 128_000, Prices { input: 2_000_000, output: 10_000_000, cached_input: Some(100_000), cache_write: Some(2_500_000), long: Some(OPENAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-6.1-terra", 922_000, 128_000, Prices { input: 1_000_000, output: 5_000_000, cached_input: Some(50_000), cache_write: Some(1_250_000), long: Some(OPENAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-6-astra", 922_000, 128_000, Prices { input: 10_000_000, output: 50_000_000, cached_input: Some(1_000_000), cache_write: Some(12_500_000), long: Some(OPENAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-6-sol", 922_000, 128_000, Prices { input: 2_000_000, output: 10_000_000, cached_input: Some(200_000), cache_write: Some(2_500_000), long: Some(OPENAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-6-luna", 922_000, 128_000, Prices { input: 100_000, output: 500_000, cached_input: Some(10_000), cache_write: Some(125_000), long: Some(OPENAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5.6", 922_000, 128_000, Prices { input: 4_000_000, output: 20_000_000, cached_input: Some(400_000), cache_write: Some(5_000_000), long: Some(OPENAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5.6-sol", 922_000, 128_000, Prices { input: 4_000_000, output: 20_000_000, cached_input: Some(400_000), cache_write: Some(5_000_000), long: Some(OPENAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5.6-terra", 922_000, 128_000, Prices { input: 2_000_000, output: 12_000_000, cached_input: Some(200_000), cache_write: Some(2_500_000), long: Some(OPENAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5.6-luna", 922_000, 128_000, Prices { input: 200_000, output: 1_200_000, cached_input: Some(20_000), cache_write: Some(250_000), long: Some(OPENAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5.5", 1_050_000, 128_000, Prices { input: 5_000_000, output: 30_000_000, cached_input: Some(500_000), cache_write: None, long: Some(OPENAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5.5-pro", 1_050_000, 128_000, Prices { input: 30_000_000, output: 180_000_000, cached_input: None, cache_write: None, long: Some(OPENAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5.4", 1_050_000, 128_000, Prices { input: 2_500_000, output: 15_000_000, cached_input: Some(250_000), cache_write: None, long: Some(OPENAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5.4-mini", 272_000, 128_000, Prices { input: 750_000, output: 4_500_000, cached_input: Some(75_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5.4-nano", 272_000, 128_000, Prices { input: 200_000, output: 1_250_000, cached_input: Some(20_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5.3-codex", 272_000, 128_000, Prices { input: 1_750_000, output: 14_000_000, cached_input: Some(175_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5.2", 272_000, 128_000, Prices { input: 1_750_000, output: 14_000_000, cached_input: Some(175_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5.2-codex", 272_000, 128_000, Prices { input: 1_750_000, output: 14_000_000, cached_input: Some(175_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5.1", 272_000, 128_000, Prices { input: 1_250_000, output: 10_000_000, cached_input: Some(125_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5.1-codex", 400_000, 128_000, Prices { input: 1_250_000, output: 10_000_000, cached_input: Some(125_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5", 272_000, 128_000, Prices { input: 1_250_000, output: 10_000_000, cached_input: Some(125_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5-codex", 272_000, 128_000, Prices { input: 1_250_000, output: 10_000_000, cached_input: Some(125_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5-mini", 272_000, 128_000, Prices { input: 250_000, output: 2_000_000, cached_input: Some(25_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-5-nano", 272_000, 128_000, Prices { input: 50_000, output: 400_000, cached_input: Some(5_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("openai", "gpt-4.1", 1_047_576, 32_768, Prices { input: 2_000_000, output: 8_000_000, cached_input: Some(500_000), cache_write: None, long: None }, TOOLS | IMAGES),
    row("openai", "gpt-4.1-mini", 1_047_576, 32_768, Prices { input: 400_000, output: 1_600_000, cached_input: Some(100_000), cache_write: None, long: None }, TOOLS | IMAGES),
    row("openai", "gpt-4.1-nano", 1_047_576, 32_768, Prices { input: 100_000, output: 400_000, cached_input: Some(25_000), cache_write: None, long: None }, TOOLS | IMAGES),
    row("openai", "gpt-4o", 128_000, 16_384, Prices { input: 2_500_000, output: 10_000_000, cached_input: Some(1_250_000), cache_write: None, long: None }, TOOLS | IMAGES),
    row("openai", "gpt-4o-mini", 128_000, 16_384, Prices { input: 150_000, output: 600_000, cached_input: Some(75_000), cache_write: None, long: None }, TOOLS | IMAGES),
    row("openai", "o3", 200_000, 100_000, Prices { input: 2_000_000, output: 8_000_000, cached_input: Some(500_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("openai", "o4-mini", 200_000, 100_000, Prices { input: 1_100_000, output: 4_400_000, cached_input: Some(275_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("anthropic", "claude-opus-5-5", 1_000_000, 128_000, Prices { input: 4_000_000, output: 20_000_000, cached_input: Some(200_000), cache_write: Some(5_000_000), long: None }, TOOLS | IMAGES | REASONING),
    row("anthropic", "claude-opus-5", 1_000_000, 128_000, Prices { input: 5_000_000, output: 25_000_000, cached_input: Some(500_000), cache_write: Some(6_250_000), long: None }, TOOLS | IMAGES | REASONING),
    row("anthropic", "claude-opus-4-8", 1_000_000, 128_000, Prices { input: 5_000_000, output: 25_000_000, cached_input: Some(500_000), cache_write: Some(6_250_000), long: None }, TOOLS | IMAGES | REASONING),
    row("anthropic", "claude-opus-4-7", 1_000_000, 128_000, Prices { input: 5_000_000, output: 25_000_000, cached_input: Some(500_000), cache_write: Some(6_250_000), long: None }, TOOLS | IMAGES | REASONING),
    row("anthropic", "claude-opus-4-6", 1_000_000, 128_000, Prices { input: 5_000_000, output: 25_000_000, cached_input: Some(500_000), cache_write: Some(6_250_000), long: None }, TOOLS | IMAGES | REASONING),
    row("anthropic", "claude-opus-4-5", 200_000, 64_000, Prices { input: 5_000_000, output: 25_000_000, cached_input: Some(500_000), cache_write: Some(6_250_000), long: None }, TOOLS | IMAGES | REASONING),
    row("anthropic", "claude-sonnet-5-5", 1_000_000, 128_000, Prices { input: 2_000_000, output: 10_000_000, cached_input: Some(100_000), cache_write: Some(2_500_000), long: None }, TOOLS | IMAGES | REASONING),
    row("anthropic", "claude-sonnet-5", 1_000_000, 128_000, Prices { input: 2_000_000, output: 10_000_000, cached_input: Some(200_000), cache_write: Some(2_500_000), long: None }, TOOLS | IMAGES | REASONING),
    row("anthropic", "claude-sonnet-4-6", 1_000_000, 128_000, Prices { input: 3_000_000, output: 15_000_000, cached_input: Some(300_000), cache_write: Some(3_750_000), long: None }, TOOLS | IMAGES | REASONING),
    row("anthropic", "claude-sonnet-4-5", 200_000, 64_000, Prices { input: 3_000_000, output: 15_000_000, cached_input: Some(300_000), cache_write: Some(3_750_000), long: None }, TOOLS | IMAGES | REASONING),
    row("anthropic", "claude-haiku-5-5", 1_000_000, 128_000, Prices { input: 100_000, output: 500_000, cached_input: Some(10_000), cache_write: Some(125_000), long: Some(HAIKU_LONG) }, TOOLS | IMAGES | REASONING),
    row("anthropic", "claude-haiku-4-5", 200_000, 64_000, Prices { input: 1_000_000, output: 5_000_000, cached_input: Some(100_000), cache_write: Some(1_250_000), long: None }, TOOLS | IMAGES | REASONING),
    row("anthropic", "claude-fable-5", 1_000_000, 128_000, Prices { input: 10_000_000, output: 50_000_000, cached_input: Some(1_000_000), cache_write: Some(12_500_000), long: None }, TOOLS | IMAGES | REASONING),
    row("anthropic", "claude-fable-5-1", 1_000_000, 128_000, Prices { input: 10_000_000, output: 50_000_000, cached_input: Some(250_000), cache_write: Some(12_500_000), long: None }, TOOLS | IMAGES | REASONING),
    row("gemini", "gemini-3.8-flash", 1_048_576, 65_536, Prices { input: 750_000, output: 3_750_000, cached_input: Some(75_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("gemini", "gemini-3.7-flash", 1_048_576, 65_536, Prices { input: 750_000, output: 3_750_000, cached_input: Some(75_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("gemini", "gemini-3.6-flash", 1_048_576, 65_536, Prices { input: 750_000, output: 3_750_000, cached_input: Some(75_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("gemini", "gemini-3.5-flash", 1_048_576, 65_536, Prices { input: 1_500_000, output: 9_000_000, cached_input: Some(150_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("gemini", "gemini-3.5-flash-lite", 1_048_576, 65_536, Prices { input: 300_000, output: 2_500_000, cached_input: Some(30_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("gemini", "gemini-3.1-pro-preview", 1_048_576, 65_536, Prices { input: 2_000_000, output: 12_000_000, cached_input: Some(200_000), cache_write: None, long: Some(GEMINI_LONG) }, TOOLS | IMAGES | REASONING),
    row("gemini", "gemini-3.1-flash-lite", 1_048_576, 65_536, Prices { input: 250_000, output: 1_500_000, cached_input: Some(25_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("gemini", "gemini-3-flash-preview", 1_048_576, 65_536, Prices { input: 500_000, output: 3_000_000, cached_input: Some(50_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("gemini", "gemini-2.5-pro", 1_048_576, 65_536, Prices { input: 1_250_000, output: 10_000_000, cached_input: Some(125_000), cache_write: None, long: Some(GEMINI_LONG) }, TOOLS | IMAGES | REASONING),
    row("gemini", "gemini-2.5-flash", 1_048_576, 65_536, Prices { input: 300_000, output: 2_500_000, cached_input: Some(30_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("gemini", "gemini-2.5-flash-lite", 1_048_576, 65_536, Prices { input: 100_000, output: 400_000, cached_input: Some(10_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("groq", "openai/gpt-oss-120b", 131_072, 65_536, Prices { input: 150_000, output: 600_000, cached_input: Some(75_000), cache_write: None, long: None }, TOOLS | REASONING),
    row("groq", "openai/gpt-oss-20b", 131_072, 65_536, Prices { input: 75_000, output: 300_000, cached_input: Some(37_500), cache_write: None, long: None }, TOOLS | REASONING),
    row("groq", "qwen/qwen3.8-27b", 131_072, 16_384, Prices { input: 800_000, output: 4_000_000, cached_input: None, cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("deepseek", "deepseek-v4-pro", 1_000_000, 393_216, Prices { input: 1_320_000, output: 3_960_000, cached_input: Some(44_000), cache_write: None, long: None }, TOOLS | REASONING),
    row("deepseek", "deepseek-v4-flash", 1_000_000, 393_216, Prices { input: 300_000, output: 1_200_000, cached_input: Some(6_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("deepseek", "deepseek-flash", 1_000_000, 393_216, Prices { input: 300_000, output: 1_200_000, cached_input: Some(6_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("deepseek", "deepseek-chat", 131_072, 8_192, Prices { input: 280_000, output: 420_000, cached_input: Some(28_000), cache_write: None, long: None }, TOOLS),
    row("deepseek", "deepseek-reasoner", 131_072, 65_536, Prices { input: 280_000, output: 420_000, cached_input: Some(28_000), cache_write: None, long: None }, TOOLS | REASONING),
    row("mistral", "mistral-large-latest", 262_144, 262_144, Prices { input: 500_000, output: 1_500_000, cached_input: Some(50_000), cache_write: None, long: None }, TOOLS | IMAGES),
    row("mistral", "mistral-medium-latest", 262_144, 262_144, Prices { input: 1_500_000, output: 7_500_000, cached_input: Some(150_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("mistral", "mistral-small-latest", 262_144, 262_144, Prices { input: 150_000, output: 600_000, cached_input: Some(15_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("mistral", "devstral-latest", 256_000, 256_000, Prices { input: 400_000, output: 2_000_000, cached_input: Some(40_000), cache_write: None, long: None }, TOOLS),
    row("mistral", "devstral-medium-latest", 256_000, 256_000, Prices { input: 400_000, output: 2_000_000, cached_input: Some(40_000), cache_write: None, long: None }, TOOLS),
    row("mistral", "devstral-small-latest", 256_000, 256_000, Prices { input: 100_000, output: 300_000, cached_input: Some(10_000), cache_write: None, long: None }, TOOLS),
    row("mistral", "codestral-latest", 128_000, 128_000, Prices { input: 300_000, output: 900_000, cached_input: Some(30_000), cache_write: None, long: None }, TOOLS),
    row("mistral", "magistral-medium-latest", 262_144, 262_144, Prices { input: 1_500_000, output: 7_500_000, cached_input: Some(150_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("mistral", "magistral-small-latest", 262_144, 262_144, Prices { input: 150_000, output: 600_000, cached_input: Some(15_000), cache_write: None, long: None }, TOOLS | IMAGES | REASONING),
    row("xai", "grok-4.7", 500_000, 500_000, Prices { input: 2_000_000, output: 6_000_000, cached_input: Some(500_000), cache_write: None, long: Some(XAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("xai", "grok-4.6", 500_000, 500_000, Prices { input: 2_000_000, output: 6_000_000, cached_input: Some(500_000), cache_write: None, long: Some(XAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("xai", "grok-4.5", 500_000, 500_000, Prices { input: 2_000_000, output: 6_000_000, cached_input: Some(300_000), cache_write: None, long: Some(XAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("xai", "grok-4.3", 1_000_000, 1_000_000, Prices { input: 1_250_000, output: 2_500_000, cached_input: Some(200_000), cache_write: None, long: Some(XAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("xai", "grok-4.20", 1_000_000, 1_000_000, Prices { input: 1_250_000, output: 2_500_000, cached_input: Some(200_000), cache_write: None, long: Some(XAI_LONG) }, TOOLS | IMAGES | REASONING),
    row("xai", "grok-code-fast-1", 256_000, 256_000, Prices { input: 1_000_000, output: 2_000_000, cached_input: Some(200_000), cache_write: None, long: Some(XAI_LONG) }, TOOLS | IMAGES | REASONING),
];

/// Families of models that were trained to write their changes as patches between `*** Begin Patch` and
/// `*** End Patch`.
const PATCH_FAMILIES: [&str; 4] = ["gpt-", "codex", "o3", "o4"];

/// True of a model that writes its changes as patches. Routers put the maker's name in front.
#[must_use]
pub fn writes_patches(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    PATCH_FAMILIES.iter().any(|family| {
        let rest = name.strip_prefix(family);
        rest.is_some_and(|rest| family.ends_with('-') || rest.is_empty() || rest.starts_with('-'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_have_the_facts_of_their_model() {
        let model = built_in_facts("anthropic", "claude-haiku-4-5");
        assert_eq!(model.context_window, Some(200_000));
        assert_eq!(
            built_in_facts("anthropic", "claude-haiku-4-5-20251001"),
            model
        );
        assert_eq!(
            built_in_facts("anthropic", "claude-haiku-4-5-turbo"),
            ModelFacts::default()
        );
        assert_eq!(
            built_in_facts("openai", "claude-haiku-4-5"),
            ModelFacts::default()
        );
    }

    #[test]
    fn rows_make_sense() {
        for row in TABLE {
            assert!(
                row.context_window >= 100_000 && row.max_output_tokens > 0,
                "{}",
                row.model
            );
            assert!(
                row.prices.output >= row.prices.input && row.prices.input > 0,
                "{}",
                row.model
            );
            assert!(
                row.prices
                    .cached_input
                    .is_none_or(|cached| cached < row.prices.input),
                "{}",
                row.model
            );
            assert_eq!(
                TABLE
                    .iter()
                    .filter(|other| (other.provider, other.model) == (row.provider, row.model))
                    .count(),
                1,
                "{}",
                row.model
            );
        }
    }

    #[test]
    fn families_that_write_patches_are_known_by_their_names() {
        for (model, expected) in [
            ("gpt-5.4", true),
            ("openai/gpt-5-codex", true),
            ("codex-mini-latest", true),
            ("o3", true),
            ("o4-mini", true),
            ("GPT-OSS-120b", true),
            ("claude-opus-4-6", false),
            ("o30", false),
            ("qwen3-coder", false),
            ("not-gpt-5", false),
        ] {
            assert_eq!(writes_patches(model), expected, "{model}");
        }
    }
}
