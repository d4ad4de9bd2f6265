//! Rules about hosts, and the decision about a call that connects to one.

use agent_protocol::payload::permission::{DecisionSource, Effect};
use agent_protocol::status::Mode;

use super::evaluate::Judging;
use super::findings::Findings;
use super::rule::{Rule, RuleProblem};
use crate::WebAddress;

/// `docs.rs`, `*.example.org`, `127.0.0.1:8080`, `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    /// In ASCII; empty for any.
    host: String,
    /// True if the names below the host are meant, not the host.
    is_below: bool,
    port: Option<u16>,
}

impl HostPattern {
    pub(super) fn parse(pattern: &str) -> Result<Self, RuleProblem> {
        let problem = |message: &str, suggestion: Option<String>| RuleProblem {
            message: format!("the pattern `{pattern}` {message}"),
            suggestion,
        };
        // As another program's rules spell it.
        let text = pattern.strip_prefix("domain:").unwrap_or(pattern);
        if let Ok(address) = WebAddress::parse(text) {
            let suggestion = Some(address.host().to_owned());
            return Err(problem("is an address; a rule names a host", suggestion));
        }
        let (text, is_below) = match text.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => match port.parse() {
                Ok(port) => (host, Some(port)),
                Err(_) => return Err(problem("names no port behind `:`", None)),
            },
            _ => (text, None),
        };
        let mut read = Self {
            host: String::new(),
            is_below,
            port,
        };
        if host == "*" && !is_below {
            return Ok(read);
        }
        let is_name = !host.contains(['*', '/', '?', '#', '@']);
        let address = WebAddress::parse(&format!("http://{host}/"));
        match address {
            Ok(address) if is_name => address.host().clone_into(&mut read.host),
            _ => {
                let message = "is no host: write `docs.rs`, `*.example.org` or `127.0.0.1:8080`";
                return Err(problem(message, None));
            }
        }
        Ok(read)
    }

    /// True if it means every host, or every one below a single word.
    pub(super) fn is_wide(&self) -> bool {
        self.host.is_empty() || self.is_below && !self.host.contains('.')
    }

    /// True of an address at the host.
    pub fn matches(&self, address: &WebAddress) -> bool {
        let host = address.host();
        let fits = match self.is_below {
            _ if self.host.is_empty() => true,
            true => host
                .strip_suffix(&self.host)
                .is_some_and(|rest| rest.ends_with('.')),
            false => host == self.host,
        };
        fits && self.port.is_none_or(|port| port == address.port())
    }

    /// True if it means exactly this machine, wherever the machine is: it names the number of it, `localhost`, or a host
    /// with its port. A name alone may be made to lead to any machine by whoever owns the name.
    fn spells_out(&self, address: &WebAddress) -> bool {
        let is_certain = self.port.is_some() || address.private_kind().is_some();
        is_certain && !self.is_below && !self.host.is_empty() && self.matches(address)
    }
}

impl Rule {
    /// True if it allows the host of `address` although it may not be everybody's.
    fn opens_private(&self, address: &WebAddress) -> bool {
        let host = self.host.as_ref();
        self.effect == Effect::Allow && host.is_some_and(|host| host.spells_out(address))
    }
}

impl Judging<'_> {
    /// Rules about the call that speak of this address: its tool's, and those about the network as a whole.
    fn rules_about<'a>(&'a self, address: &'a WebAddress) -> impl Iterator<Item = &'a Rule> {
        self.gate.rules.iter().filter(|rule| {
            let is_own = rule.names(self.request.tool) && rule.fits_host(address);
            is_own || rule.is_about_network()
        })
    }

    /// A connection to an address that was given.
    pub(super) fn judge_host(&self, findings: &mut Findings, given: &str) {
        let Ok(address) = WebAddress::parse(given) else {
            findings.add(
                Effect::Deny,
                DecisionSource::CircuitBreaker,
                format!("`{given}` is no address of a host"),
            );
            return;
        };
        let shown = address.origin();
        let mode = self.setting.mode;
        let mut allowed = None;
        for rule in self.rules_about(&address) {
            let matched = rule.matched(&*shown);
            match rule.effect {
                Effect::Allow => {
                    findings.remember(matched);
                    allowed = allowed.or(Some(rule));
                }
                _ => findings.rule(
                    matched,
                    format!("the rule `{}` applies to `{shown}`", rule.text),
                ),
            }
        }
        if let Some(kind) = address.private_kind()
            && !self.opens_private(&address)
        {
            findings.add(
                Effect::Deny,
                DecisionSource::CircuitBreaker,
                format!(
                    "`{shown}` is {kind} address; a rule that names it opens it: allow {}({}:{})",
                    self.request.tool.name,
                    address.host(),
                    address.port(),
                ),
            );
        }
        match allowed {
            Some(rule) => findings.add(
                Effect::Allow,
                DecisionSource::Rule,
                format!("the rule `{}` allows `{shown}`", rule.text),
            ),
            None if mode == Mode::Full => findings.add(
                Effect::Allow,
                DecisionSource::Mode,
                format!("mode {mode} allows it"),
            ),
            None => findings.add(
                Effect::Ask,
                DecisionSource::Default,
                format!("mode {mode} asks before anything is fetched from `{shown}`"),
            ),
        }
    }

    fn opens_private(&self, address: &WebAddress) -> bool {
        let mut rules = self.rules_about(address);
        rules.any(|rule| rule.opens_private(address))
    }

    /// True if a rule opens every host that the call connects to, also where it is not everybody's.
    pub(super) fn reaches_private(&self) -> bool {
        let hosts = self.request.semantics.hosts();
        let mut hosts = hosts.map(WebAddress::parse).peekable();
        hosts.peek().is_some()
            && hosts.all(|host| host.is_ok_and(|address| self.opens_private(&address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, address: &str, matches: bool, opens: bool) {
        let pattern = HostPattern::parse(pattern).unwrap();
        let address = WebAddress::parse(address).unwrap();
        assert_eq!(
            pattern.matches(&address),
            matches,
            "{pattern:?} {address:?}"
        );
        assert_eq!(
            pattern.spells_out(&address),
            opens,
            "{pattern:?} {address:?}"
        );
    }

    #[test]
    fn a_host_is_named_and_nothing_like_it() {
        check("docs.rs", "https://docs.rs/x", true, false);
        check("docs.rs", "https://docs.rs:8443/x", true, false);
        check("docs.rs", "https://Docs.RS./x", true, false);
        check("docs.rs", "https://a.docs.rs/x", false, false);
        check("docs.rs", "https://docs.rs.evil.example/", false, false);
        check("docs.rs", "https://evil.example/docs.rs", false, false);
        check("domain:docs.rs", "https://docs.rs/x", true, false);
        check("*.example.org", "https://a.b.example.org/", true, false);
        check("*.example.org", "https://example.org/", false, false);
        check("*.example.org", "https://badexample.org/", false, false);
        check("*", "https://docs.rs/", true, false);
        check("*", "http://127.0.0.1/", true, false);
        check("docs.rs:443", "https://docs.rs/", true, true);
        check("docs.rs:443", "http://docs.rs/", false, false);
        check("*.corp:443", "https://wiki.corp/", true, false);
        check(
            "bücher.example",
            "http://xn--bcher-kva.example/",
            true,
            false,
        );
        check("127.0.0.1", "http://0x7f.1:8080/", true, true);
        check("127.0.0.1:80", "http://127.0.0.1:8080/", false, false);
        check("localhost", "http://localhost:3000/", true, true);
        check("[::1]:80", "http://[::1]/", true, true);
        check("[::1]", "http://[0:0::1]:9/", true, true);
    }

    #[test]
    fn what_is_no_host_is_told() {
        for (pattern, suggestion) in [
            ("https://docs.rs/x", Some("docs.rs")),
            ("docs.rs/x", None),
            ("a*.example.org", None),
            ("docs.rs:x", None),
            ("user@docs.rs", None),
            ("*.*", None),
            ("a b", None),
        ] {
            let problem = HostPattern::parse(pattern).unwrap_err();
            assert_eq!(problem.suggestion.as_deref(), suggestion, "{pattern}");
        }
    }
}
