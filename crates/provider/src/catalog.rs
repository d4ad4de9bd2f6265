//! Providers that work without configuration beyond a key, or beyond a running server.

use crate::dialect::Dialect;
use crate::quirks::Quirks;

/// A provider we know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltIn {
    /// Its name: the part before the slash in `provider/model`.
    pub name: &'static str,
    /// Its wire format.
    pub dialect: Dialect,
    /// Address of its API.
    pub base_url: &'static str,
    /// Variables that may hold its key, in order of preference; none for local servers.
    pub key_variables: &'static [&'static str],
    /// The variable that may hold another base URL.
    pub base_url_variable: Option<&'static str>,
    /// The row of the quirks table.
    pub quirks: &'static str,
    /// The port a local server listens on.
    pub local_port: Option<u16>,
}

/// A remote provider with one key variable.
const fn remote(
    name: &'static str,
    base_url: &'static str,
    key_variables: &'static [&'static str],
) -> BuiltIn {
    BuiltIn {
        name,
        dialect: Dialect::OpenAiChat,
        base_url,
        key_variables,
        base_url_variable: None,
        quirks: name,
        local_port: None,
    }
}

/// A local server on its usual port.
const fn local(name: &'static str, base_url: &'static str, port: u16) -> BuiltIn {
    BuiltIn {
        name,
        dialect: Dialect::OpenAiChat,
        base_url,
        key_variables: &[],
        base_url_variable: None,
        quirks: name,
        local_port: Some(port),
    }
}

/// All built-in providers, remote ones first.
pub const BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        dialect: Dialect::OpenAiResponses,
        base_url_variable: Some("OPENAI_BASE_URL"),
        ..remote("openai", "https://api.openai.com/v1", &["OPENAI_API_KEY"])
    },
    BuiltIn {
        dialect: Dialect::AnthropicMessages,
        base_url_variable: Some("ANTHROPIC_BASE_URL"),
        quirks: "generic",
        ..remote(
            "anthropic",
            "https://api.anthropic.com",
            &["ANTHROPIC_API_KEY"],
        )
    },
    remote(
        "openrouter",
        "https://openrouter.ai/api/v1",
        &["OPENROUTER_API_KEY"],
    ),
    remote(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
    ),
    remote("groq", "https://api.groq.com/openai/v1", &["GROQ_API_KEY"]),
    remote(
        "deepseek",
        "https://api.deepseek.com/v1",
        &["DEEPSEEK_API_KEY"],
    ),
    remote("mistral", "https://api.mistral.ai/v1", &["MISTRAL_API_KEY"]),
    remote("xai", "https://api.x.ai/v1", &["XAI_API_KEY"]),
    BuiltIn {
        base_url_variable: Some("OLLAMA_HOST"),
        ..local("ollama", "http://127.0.0.1:11434/v1", 11_434)
    },
    local("llamacpp", "http://127.0.0.1:8080/v1", 8_080),
    local("lmstudio", "http://127.0.0.1:1234/v1", 1_234),
    local("vllm", "http://127.0.0.1:8000/v1", 8_000),
];

impl BuiltIn {
    /// The built-in provider with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        BUILT_IN.iter().find(|provider| provider.name == name)
    }

    /// The base URL that the value of `base_url_variable` stands for. `OLLAMA_HOST` is a host with
    /// or without a scheme and port, and may be the address Ollama itself listens on.
    pub fn base_url_from(&self, value: &str) -> String {
        let value = value.trim().trim_end_matches('/');
        let Some(port) = self.local_port else {
            return value.to_owned();
        };
        let (scheme, host) = value.split_once("://").unwrap_or(("http", value));
        let host = host.replace("0.0.0.0", "127.0.0.1");
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
        let host = if has_port || host.contains('/') {
            host
        } else {
            format!("{host}:{port}")
        };
        if host.contains('/') {
            format!("{scheme}://{host}")
        } else {
            format!("{scheme}://{host}/v1")
        }
    }

    /// True of a compatible server behind the variables of OpenAI, which is not OpenAI.
    fn is_only_compatible(&self, base_url: &str) -> bool {
        self.name == "openai" && !base_url.contains("//api.openai.com")
    }

    /// The quirks to use with `base_url`.
    pub fn quirks_for(&self, base_url: &str) -> &'static Quirks {
        let name = if self.is_only_compatible(base_url) {
            "generic"
        } else {
            self.quirks
        };
        Quirks::named(name).unwrap_or(&crate::quirks::GENERIC)
    }

    /// The wire format to use with `base_url`. OpenAI refuses tools for its newer models elsewhere than in
    /// Responses; most servers that are compatible with it know Chat Completions only.
    pub fn dialect_for(&self, base_url: &str) -> Dialect {
        if self.is_only_compatible(base_url) {
            Dialect::OpenAiChat
        } else {
            self.dialect
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_complete() {
        for provider in BUILT_IN {
            assert!(
                Quirks::named(provider.quirks).is_some(),
                "{}",
                provider.name
            );
            assert_eq!(
                provider.key_variables.is_empty(),
                provider.local_port.is_some(),
                "{}",
                provider.name
            );
            assert_eq!(BuiltIn::named(provider.name), Some(provider));
        }
    }

    #[test]
    fn ollama_host_is_read_as_ollama_reads_it() {
        let ollama = BuiltIn::named("ollama").unwrap();
        for (value, url) in [
            ("0.0.0.0", "http://127.0.0.1:11434/v1"),
            ("10.0.0.4:9000", "http://10.0.0.4:9000/v1"),
            ("https://ollama.example", "https://ollama.example:11434/v1"),
            ("http://gateway/path/v1/", "http://gateway/path/v1"),
        ] {
            assert_eq!(ollama.base_url_from(value), url);
        }
    }

    #[test]
    fn another_server_behind_the_openai_variables_is_not_openai() {
        let openai = BuiltIn::named("openai").unwrap();
        for (url, quirks, dialect) in [
            (
                "https://api.openai.com/v1",
                "openai",
                Dialect::OpenAiResponses,
            ),
            ("http://127.0.0.1:9/v1", "generic", Dialect::OpenAiChat),
        ] {
            assert_eq!(openai.quirks_for(url).name, quirks);
            assert_eq!(openai.dialect_for(url), dialect);
        }
    }
}
