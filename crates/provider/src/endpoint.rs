//! Address, credentials, timeouts and retries for requests, resolved from built-in entries and configuration.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

use crate::dialect::Dialect;
use crate::quirks::Quirks;

/// The path of Anthropic's dialect below `/v1`, which its base URLs leave out.
const ANTHROPIC_PATH: &str = "/messages";

/// A model endpoint, ready to be talked to. Printing it shows no key and no header value.
#[derive(Clone)]
pub struct Endpoint {
    /// The provider's name in the configuration.
    pub name: String,
    /// The wire format.
    pub dialect: Dialect,
    /// The base URL, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// Quirks of this server.
    pub quirks: &'static Quirks,
    /// The key, if there is one.
    pub key: Option<SecretString>,
    /// The variable the key comes from, or would come from; for hints.
    pub key_variable: Option<String>,
    /// Further headers. They win over ours of the same name.
    pub headers: Vec<(String, SecretString)>,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Retry policy.
    pub retry: RetryPolicy,
}

/// Timeouts of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, TLS included.
    pub connect: Duration,
    /// For the status line, from the moment the request is sent. Local servers read the whole
    /// prompt before they answer.
    pub first_byte: Duration,
    /// Between two pieces of the body. Some services send nothing while the model thinks.
    pub idle: Duration,
    /// For what a response took and the end of the body, once the server has said why it stopped.
    /// The answer is whole by then, and not every server closes the connection.
    pub last_words: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(300),
            idle: Duration::from_secs(300),
            last_words: Duration::from_secs(5),
        }
    }
}

/// Number of attempts and the waits between them.
#[derive(Clone)]
pub struct RetryPolicy {
    /// All attempts together, the first included.
    pub max_attempts: u32,
    /// The upper end of the first pause; it doubles with each attempt.
    pub base: Duration,
    /// The upper end of any pause of our own choosing.
    pub cap: Duration,
    /// The longest pause a server may ask for.
    pub longest_wait: Duration,
    /// No new attempt starts later than this after the first one.
    pub total: Duration,
    /// A random number in `0.0..1.0`; pauses are drawn evenly from zero to their upper end.
    pub random: Arc<dyn Fn() -> f64 + Send + Sync>,
    /// The time in seconds since 1970, for servers that say when and not what time it is there.
    /// Without it such times are not used.
    pub now: Option<Clock>,
}

/// A clock, handed in from outside.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            base: Duration::from_secs(1),
            cap: Duration::from_secs(30),
            longest_wait: Duration::from_secs(90),
            total: Duration::from_secs(300),
            random: Arc::new(random_fraction),
            now: None,
        }
    }
}

impl fmt::Debug for RetryPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RetryPolicy")
            .field("max_attempts", &self.max_attempts)
            .field("base", &self.base)
            .field("cap", &self.cap)
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}

impl RetryPolicy {
    /// The pause after failed attempt `attempt` (from 1), or `None` to give up.
    ///
    /// A wait the server asked for is kept to, with a little on top so that clients do not return
    /// all at once; without one the pause is drawn with full jitter.
    pub fn pause(
        &self,
        attempt: u32,
        asked: Option<Duration>,
        elapsed: Duration,
    ) -> Option<Duration> {
        if attempt >= self.max_attempts {
            return None;
        }
        let fraction = (self.random)().clamp(0.0, 1.0);
        let upper = self
            .base
            .saturating_mul(2_u32.saturating_pow(attempt - 1))
            .min(self.cap);
        let pause = match asked {
            Some(asked) if asked > self.longest_wait => return None,
            Some(asked) => asked + upper.mul_f64(0.1 * fraction),
            None => upper.mul_f64(fraction),
        };
        (elapsed + pause <= self.total).then_some(pause)
    }
}

/// Randomness good enough to spread retries: the standard library's per-process hash keys.
fn random_fraction() -> f64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let bits = RandomState::new().build_hasher().finish() >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

impl Endpoint {
    /// The address requests are sent to.
    ///
    /// People write base URLs with and without `/v1`, with a slash at the end, and sometimes the
    /// whole address. A URL that names the path is taken as it is, one that names only a host gets
    /// `/v1`, which every server has; anything between is kept. A query stays at the end.
    pub fn url(&self) -> String {
        let (address, query) = match self.base_url.split_once('?') {
            Some((address, query)) => (address, format!("?{query}")),
            None => (self.base_url.as_str(), String::new()),
        };
        let base = address.trim_end_matches('/');
        let path = self.dialect.path();
        let is_host_only = base
            .split_once("://")
            .is_some_and(|(_, rest)| !rest.contains('/'));
        if !path.is_empty() && base.ends_with(path) {
            format!("{base}{query}")
        } else if is_host_only || (path == ANTHROPIC_PATH && !base.ends_with("/v1")) {
            format!("{base}/v1{path}{query}")
        } else {
            format!("{base}{path}{query}")
        }
    }

    /// The base URL as it may be shown: without what may be a secret in it.
    pub fn shown_url(&self) -> String {
        without_secrets(&self.base_url)
    }
}

/// A URL without its user, password and query: any of them can be as secret as a key.
pub fn without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        let path = url.split(['?', '#']).next();
        return path.unwrap_or_default().to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        formatter
            .debug_struct("Endpoint")
            .field("name", &self.name)
            .field("dialect", &self.dialect)
            .field("base_url", &self.shown_url())
            .field("quirks", &self.quirks.name)
            .field("has_key", &self.key.is_some())
            .field("key_variable", &self.key_variable)
            .field("headers", &names)
            .field("timeouts", &self.timeouts)
            .field("retry", &self.retry)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(fraction: f64) -> RetryPolicy {
        RetryPolicy {
            random: Arc::new(move || fraction),
            ..RetryPolicy::default()
        }
    }

    fn check(fraction: f64, attempt: u32, asked: Option<u64>, elapsed: u64, expected: Option<u64>) {
        let pause = policy(fraction).pause(
            attempt,
            asked.map(Duration::from_millis),
            Duration::from_millis(elapsed),
        );
        assert_eq!(
            pause,
            expected.map(Duration::from_millis),
            "attempt {attempt}, asked {asked:?}, elapsed {elapsed}"
        );
    }

    #[test]
    fn pauses_double_up_to_the_cap_and_are_drawn_from_zero() {
        check(1.0, 1, None, 0, Some(1_000));
        check(0.5, 1, None, 0, Some(500));
        check(0.0, 1, None, 0, Some(0));
        check(1.0, 4, None, 0, Some(8_000));
    }

    #[test]
    fn attempts_and_time_have_an_end() {
        check(1.0, 5, None, 0, None);
        check(1.0, 4, None, 299_000, None);
        check(1.0, 1, None, 299_000, Some(1_000));
    }

    #[test]
    fn the_server_has_its_way_within_reason() {
        check(0.0, 1, Some(7_000), 0, Some(7_000));
        check(1.0, 1, Some(7_000), 0, Some(7_100));
        check(0.0, 1, Some(91_000), 0, None);
    }

    fn endpoint(dialect: Dialect, base_url: &str) -> Endpoint {
        Endpoint {
            name: "test".to_owned(),
            dialect,
            base_url: base_url.to_owned(),
            quirks: &crate::quirks::GENERIC,
            key: None,
            key_variable: None,
            headers: Vec::new(),
            timeouts: Timeouts::default(),
            retry: RetryPolicy::default(),
        }
    }

    #[test]
    fn every_way_to_write_a_base_url_leads_to_the_same_address() {
        for (dialect, path) in [
            (Dialect::OpenAiChat, "/v1/chat/completions"),
            (Dialect::OpenAiResponses, "/v1/responses"),
            (Dialect::AnthropicMessages, "/v1/messages"),
        ] {
            let expected = format!("http://host:1{path}");
            for base in ["", "/", "//", "/v1", "/v1/", path] {
                let url = endpoint(dialect, &format!("http://host:1{base}")).url();
                assert_eq!(url, expected, "{base}");
            }
        }
    }

    #[test]
    fn other_paths_and_queries_are_kept() {
        for (dialect, base, expected) in [
            (
                Dialect::OpenAiChat,
                "https://h/v1beta/openai/",
                "https://h/v1beta/openai/chat/completions",
            ),
            (
                Dialect::OpenAiChat,
                "https://h/openai/v1?api-version=2",
                "https://h/openai/v1/chat/completions?api-version=2",
            ),
            (
                Dialect::OpenAiChat,
                "https://h/chat/completions",
                "https://h/chat/completions",
            ),
            (
                Dialect::AnthropicMessages,
                "https://h/anthropic",
                "https://h/anthropic/v1/messages",
            ),
        ] {
            assert_eq!(endpoint(dialect, base).url(), expected);
        }
    }

    #[test]
    fn addresses_are_shown_without_their_secrets() {
        for (url, shown) in [
            ("https://api.example/v1", "https://api.example/v1"),
            ("https://me:secret@api.example/v1", "https://api.example/v1"),
            (
                "https://api.example/v1?key=secret",
                "https://api.example/v1",
            ),
            ("https://a:b@c@host", "https://host"),
            ("/login?key=secret#secret", "/login"),
        ] {
            assert_eq!(without_secrets(url), shown);
            let printed = format!("{:?}", endpoint(Dialect::OpenAiChat, url));
            assert!(!printed.contains("secret"), "{printed}");
        }
    }

    #[test]
    fn fractions_are_fractions() {
        let drawn: Vec<f64> = (0..100).map(|_| random_fraction()).collect();
        assert!(drawn.iter().all(|fraction| (0.0..1.0).contains(fraction)));
        assert!(
            drawn.iter().any(|fraction| *fraction < 0.5)
                && drawn.iter().any(|fraction| *fraction >= 0.5)
        );
    }
}
