//! Every block in `docs/providers.md` is read by the code it is written for.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

use std::collections::BTreeMap;
use std::path::Path;

use agent_provider::catalog::BUILT_IN;
use agent_provider::{HostCredentials, ModelRef, ProviderConfig, resolve_endpoint};
use serde::Deserialize;

/// The part of a configuration file this page is about.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    model: Option<Models>,
    #[serde(default)]
    providers: BTreeMap<String, ProviderConfig>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Models {
    Default(String),
    Table {
        default: String,
        #[serde(default)]
        fallbacks: Vec<String>,
        small: Option<String>,
    },
}

impl Models {
    fn all(self) -> Vec<String> {
        match self {
            Self::Default(model) => vec![model],
            Self::Table {
                default,
                fallbacks,
                small,
            } => std::iter::once(default)
                .chain(fallbacks)
                .chain(small)
                .collect(),
        }
    }
}

fn page() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/providers.md"))
        .unwrap()
}

#[test]
fn every_block_is_valid_and_complete() {
    let page = page();
    let blocks: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(blocks.len() > 15);
    let mut named = Vec::new();
    for block in blocks {
        let parsed: Page = toml::from_str(block).unwrap_or_else(|error| panic!("{block}\n{error}"));
        for text in parsed.model.into_iter().flat_map(Models::all) {
            let model = ModelRef::parse(&text).unwrap();
            let config = parsed.providers.get(&model.provider);
            resolve_endpoint(&model.provider, config, HostCredentials::default())
                .unwrap_or_else(|error| panic!("{block}\n{error}"));
            named.push(model.provider);
        }
    }
    for provider in BUILT_IN {
        assert!(
            named.iter().any(|name| name == provider.name),
            "{} has no block",
            provider.name
        );
        for variable in provider
            .key_variables
            .iter()
            .chain(&provider.base_url_variable)
        {
            assert!(page.contains(variable), "{variable} is not mentioned");
        }
        if let Some(port) = provider.local_port {
            assert!(
                page.contains(&format!("ort {port}")),
                "the port of {} is not mentioned",
                provider.name
            );
        }
    }
}

#[test]
fn every_kind_of_failure_is_explained() {
    use agent_provider::ErrorKind::*;
    let page = page();
    for kind in [
        Auth,
        RateLimit,
        Quota,
        ContextLength,
        Overloaded,
        ServerError,
        BadRequest,
        Timeout,
        StreamInterrupted,
        Malformed,
        MalformedToolCall,
        Refused,
        Unsupported,
        Network,
        Tls,
    ] {
        assert!(
            page.contains(&format!("`{}`", kind.as_str())),
            "{}",
            kind.as_str()
        );
    }
}
