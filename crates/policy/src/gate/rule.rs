//! One rule: an effect, a tool, perhaps a pattern, and where it stands.

use std::fmt;
use std::path::{Component, Path};

use agent_protocol::payload::permission::{Access, Effect, Layer, MatchedRule, RuleOrigin};
use agent_text::nearest;
use globset::{GlobBuilder, GlobMatcher};

use super::host::HostPattern;
use super::protected::wildcard;
use super::services::SERVICES;
use super::words::WordPattern;
use crate::{Reveals, Subject, ToolDefinition, Tools, WebAddress};

/// The word for the network in rules; no tool has this name.
pub const NETWORK: &str = "network";

/// Names that servers give their tools begin like this: such a tool is known only when its server runs.
pub(super) const OF_SERVERS: &str = "mcp__";

/// The name in a rule: that of one tool, or with stars in it of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolName(String);

impl ToolName {
    fn parse(name: &str) -> Result<Self, RuleProblem> {
        let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"_-*".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_sign) {
            return Err(RuleProblem {
                message: format!("`{name}` is not a tool's name"),
                suggestion: None,
            });
        }
        Ok(Self(name.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn has_star(&self) -> bool {
        self.0.contains('*')
    }

    fn matches(&self, tool: &ToolDefinition) -> bool {
        match self.has_star() {
            true => wildcard(&self.0, &tool.name),
            false => tool.answers_to(&self.0),
        }
    }
}

#[derive(Debug, Clone)]
pub enum Pattern {
    /// Every call of the tool.
    Any,
    Words(WordPattern),
    Path(PathPattern),
    Host(HostPattern),
    /// Which it is depends on the tool.
    Either(WordPattern, PathPattern),
}

/// What the known tools do that a rule names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Reach {
    reads: bool,
    /// Also the whole content of files.
    shows_content: bool,
    writes: bool,
    /// None of them is known.
    is_unknown: bool,
}

/// A rule as it was written, ready to be asked.
#[derive(Debug, Clone)]
pub struct Rule {
    pub effect: Effect,
    pub tool: ToolName,
    pub pattern: Pattern,
    pub origin: RuleOrigin,
    /// `tool` or `tool(pattern)`, as it stands in the file.
    pub text: String,
    /// The host that the pattern names, if one could be meant.
    pub(super) host: Option<HostPattern>,
    reach: Reach,
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.effect, self.text)?;
        if let (Some(file), Some(line)) = (&self.origin.file, self.origin.line) {
            write!(formatter, " ({file}:{line})")?;
        }
        Ok(())
    }
}

/// What is wrong with a rule's text, and what was probably meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleProblem {
    pub message: String,
    pub suggestion: Option<String>,
}

/// The pattern of a rule about the network: commands of a service.
fn service_pattern(pattern: &str) -> Result<WordPattern, RuleProblem> {
    let program = pattern.split_whitespace().next().unwrap_or_default();
    match SERVICES.contains(&program) {
        true => WordPattern::parse(pattern),
        false => Err(RuleProblem {
            message: format!("`{NETWORK}({pattern})` names no service; there is `{NETWORK}(gh *)`"),
            suggestion: Some(NETWORK.to_owned()),
        }),
    }
}

/// The directories that patterns are relative to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bases {
    pub project: std::path::PathBuf,
    pub home: std::path::PathBuf,
}

impl Rule {
    /// Reads `tool` or `tool(pattern)`. A server's tool may come later. Any other that is not among `tools` is an error
    /// where the rule holds something back: misspelt, it would hold back nothing. An allow rule about it allows
    /// nothing; [`super::unknown_tools`] finds such rules.
    pub fn parse(
        effect: Effect,
        text: &str,
        origin: RuleOrigin,
        bases: &Bases,
        tools: &Tools,
    ) -> Result<Self, RuleProblem> {
        let text = text.trim();
        let (name, pattern) = match text.split_once('(') {
            None => (text, None),
            Some((name, rest)) => match rest.strip_suffix(')') {
                Some(pattern) => (name.trim(), Some(pattern.trim())),
                None => {
                    return Err(RuleProblem {
                        message: format!("the rule `{text}` is missing a closing parenthesis"),
                        suggestion: Some(format!("{text})")),
                    });
                }
            },
        };
        let name = tools.find(name).map_or(name, |tool| tool.name.as_str());
        let name = ToolName::parse(name)?;
        let named: Vec<_> = tools.iter().filter(|tool| name.matches(tool)).collect();
        let word = name.as_str();
        let is_unknown = named.is_empty() && word != NETWORK && !word.starts_with(OF_SERVERS);
        if is_unknown && effect != Effect::Allow {
            return Err(RuleProblem {
                message: format!("the rule `{text}` names no tool there is"),
                suggestion: nearest(word, tools.names().chain([NETWORK]))
                    .map(|name| text.replacen(word, name, 1)),
            });
        }
        Self::about(effect, name, &named, pattern, origin, bases)
    }

    /// The rule about one tool.
    pub(super) fn of(
        effect: Effect,
        tool: &ToolDefinition,
        pattern: Option<&str>,
        origin: RuleOrigin,
        bases: &Bases,
    ) -> Result<Self, RuleProblem> {
        let name = ToolName::parse(&tool.name)?;
        Self::about(effect, name, &[tool], pattern, origin, bases)
    }

    fn about(
        effect: Effect,
        tool: ToolName,
        named: &[&ToolDefinition],
        pattern: Option<&str>,
        origin: RuleOrigin,
        bases: &Bases,
    ) -> Result<Self, RuleProblem> {
        let name = tool.as_str();
        let text = match pattern {
            Some(pattern) => format!("{name}({pattern})"),
            None => name.to_owned(),
        };
        let is_about = |subject| {
            let mut named = named.iter();
            named.any(|tool| tool.subject == subject && tool.takes_pattern())
        };
        let reach = Reach {
            reads: is_about(Subject::Read),
            writes: is_about(Subject::Write),
            shows_content: named
                .iter()
                .any(|tool| tool.subject == Subject::Read && tool.reveals == Reveals::Content),
            is_unknown: named.is_empty() && name != NETWORK,
        };
        let of_hosts = is_about(Subject::Network);
        let host = pattern
            .filter(|_| of_hosts || reach.is_unknown)
            .map(HostPattern::parse);
        let of_commands = is_about(Subject::Command);
        let of_paths = reach.reads || reach.writes;
        let pattern = match pattern {
            None => Pattern::Any,
            Some("") => {
                return Err(RuleProblem {
                    message: format!("the pattern of `{name}` is empty"),
                    suggestion: Some(name.to_owned()),
                });
            }
            Some(pattern) if of_commands && !of_paths => {
                Pattern::Words(WordPattern::parse(pattern)?)
            }
            Some(pattern) if of_paths && !of_commands => {
                Pattern::Path(PathPattern::parse(pattern, bases)?)
            }
            Some(pattern) if of_hosts && !of_paths => Pattern::Host(HostPattern::parse(pattern)?),
            Some(pattern) if name == NETWORK => Pattern::Words(service_pattern(pattern)?),
            Some(_) if !of_paths && !reach.is_unknown => {
                return Err(RuleProblem {
                    message: format!("`{name}` takes no pattern"),
                    suggestion: Some(name.to_owned()),
                });
            }
            Some(pattern) => {
                let path = PathPattern::parse(pattern, bases)?;
                match WordPattern::parse(pattern) {
                    Ok(words) => Pattern::Either(words, path),
                    // No command could be meant by it.
                    Err(problem) if of_commands => return Err(problem),
                    Err(_) => Pattern::Path(path),
                }
            }
        };
        Ok(Self {
            effect,
            tool,
            pattern,
            origin,
            text,
            host: host.and_then(Result::ok),
            reach,
        })
    }

    /// True if the rule is about this tool.
    pub fn names(&self, tool: &ToolDefinition) -> bool {
        self.tool.matches(tool)
    }

    /// True if it is about the network, whatever tool asks for it.
    pub(super) fn is_about_network(&self) -> bool {
        self.names_network() && self.is_about_every_call()
    }

    /// True if it is about the network, or about that of a service.
    pub(super) fn names_network(&self) -> bool {
        self.tool.as_str() == NETWORK
    }

    /// True if it is about every call of the tools it names.
    pub(super) fn is_about_every_call(&self) -> bool {
        matches!(self.pattern, Pattern::Any)
    }

    /// True if it speaks about every call of `tool`. A pattern that the tool has nothing to match with holds a call
    /// back and lets none through.
    pub(super) fn is_about_every_call_of(&self, tool: &ToolDefinition) -> bool {
        let matches_nothing = !tool.takes_pattern() && self.effect != Effect::Allow;
        self.names(tool) && (self.is_about_every_call() || matches_nothing)
    }

    /// True if it has no pattern and is about this tool.
    pub fn is_about_all_of(&self, tool: &ToolDefinition) -> bool {
        self.is_about_every_call() && self.names(tool)
    }

    /// True if it is about reading files.
    pub(super) fn reads(&self) -> bool {
        self.reach.reads
    }

    /// True if it is about changing files.
    pub(super) fn writes(&self) -> bool {
        self.reach.writes
    }

    /// The pattern for the words of commands.
    pub fn words(&self) -> Option<&WordPattern> {
        match &self.pattern {
            Pattern::Words(words) | Pattern::Either(words, _) => Some(words),
            Pattern::Any | Pattern::Path(_) | Pattern::Host(_) => None,
        }
    }

    /// The pattern for paths.
    pub fn path(&self) -> Option<&PathPattern> {
        match &self.pattern {
            Pattern::Path(path) | Pattern::Either(_, path) => Some(path),
            Pattern::Any | Pattern::Words(_) | Pattern::Host(_) => None,
        }
    }

    pub fn is_managed(&self) -> bool {
        self.origin.layer == Layer::Managed
    }

    /// The form the log holds.
    pub fn matched(&self, on: impl Into<String>) -> MatchedRule {
        MatchedRule {
            rule: self.text.clone(),
            effect: self.effect,
            origin: self.origin.clone(),
            on: Some(on.into()),
        }
    }

    /// True if the rule speaks about this access to this path. A deny or ask on reading binds every tool
    /// that touches the path, one on writing every tool that changes it. An allow opens what its tool does:
    /// one of a tool that shows content lets other readers read the same file.
    pub(super) fn binds_path(
        &self,
        tool: &ToolDefinition,
        access: Access,
        paths: &[&Path],
    ) -> bool {
        let is_command = tool.subject == Subject::Command;
        // What a command touches is its own matter, not that of a rule about commands.
        let own = self.names(tool) && !is_command;
        // `deny` of a searching tool without a pattern is about the tool, not about all files.
        let has_pattern = !self.is_about_every_call();
        let reach = self.reach;
        // A tool that was not there when the rule was read.
        let is_later = own && (reach.is_unknown || self.tool.has_star());
        let binds = own || has_pattern;
        let applies = match (self.effect, access) {
            (Effect::Deny | Effect::Ask, Access::Write) => binds && (reach.reads || reach.writes),
            (Effect::Deny | Effect::Ask, _) => binds && reach.reads,
            (Effect::Allow, Access::Read) => reach.reads && (own || reach.shows_content),
            (Effect::Allow, Access::Write) => reach.writes && (own || is_command && has_pattern),
            (Effect::Allow, _) => false,
        };
        (is_later || applies) && self.fits_one_of(paths)
    }

    /// True if it opens this file, free of links, to all that read.
    pub(super) fn opens(&self, path: &Path) -> bool {
        self.effect == Effect::Allow && self.reach.shows_content && self.fits_one_of(&[path])
    }

    /// True if the pattern is one for paths and one of them fits, or if there is no pattern.
    pub(super) fn fits_one_of(&self, paths: &[&Path]) -> bool {
        let also_outside = self.effect != Effect::Allow;
        match &self.pattern {
            Pattern::Any => true,
            Pattern::Words(_) | Pattern::Host(_) => false,
            Pattern::Path(pattern) | Pattern::Either(_, pattern) => {
                paths.iter().any(|path| pattern.matches(path, also_outside))
            }
        }
    }

    /// True if it has no pattern, or one that names the host of this address.
    pub(super) fn fits_host(&self, address: &WebAddress) -> bool {
        let host = self.host.as_ref();
        self.is_about_every_call() || host.is_some_and(|host| host.matches(address))
    }

    /// True if the pattern spells out one of `names`, so that a protected path is meant, not just included.
    pub(super) fn names_one_of(&self, names: &[String]) -> bool {
        self.path().is_some_and(|pattern| {
            let source = pattern.source.to_lowercase();
            let mut components = source.split('/');
            components.any(|component| names.iter().any(|name| name == component))
        })
    }
}

/// A gitignore-style pattern: relative to the project, to the home directory (`~/`) or absolute.
#[derive(Debug, Clone)]
pub struct PathPattern {
    source: String,
    inside: Vec<GlobMatcher>,
    /// For patterns that are not anchored: the same, anywhere.
    anywhere: Vec<GlobMatcher>,
}

impl PathPattern {
    fn parse(source: &str, bases: &Bases) -> Result<Self, RuleProblem> {
        if Path::new(source)
            .components()
            .any(|component| component == Component::ParentDir)
        {
            return Err(RuleProblem {
                message: format!("the pattern `{source}` leaves its directory with `..`"),
                suggestion: Some("write an absolute path or one that begins with `~/`".to_owned()),
            });
        }
        let body = source.strip_prefix("./").unwrap_or(source);
        let trimmed = body.trim_end_matches('/');
        let base = |path: &Path| globset::escape(&path.display().to_string());
        let mut anywhere = Vec::new();
        let inside = if let Some(rest) = trimmed.strip_prefix("~/") {
            format!("{}/{rest}", base(&bases.home))
        } else if trimmed == "~" {
            base(&bases.home)
        } else if trimmed.starts_with('/') || trimmed.is_empty() {
            trimmed.to_owned()
        } else {
            let floating = !trimmed.contains('/') || trimmed.starts_with("**/");
            let rest = trimmed.strip_prefix("**/").unwrap_or(trimmed);
            if floating {
                anywhere = matchers(&format!("/**/{rest}"), source)?;
                format!("{}/**/{rest}", base(&bases.project))
            } else {
                format!("{}/{rest}", base(&bases.project))
            }
        };
        Ok(Self {
            source: source.to_owned(),
            inside: matchers(&inside, source)?,
            anywhere,
        })
    }

    /// As it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    fn matches(&self, path: &Path, also_outside: bool) -> bool {
        self.inside.iter().any(|glob| glob.is_match(path))
            || (also_outside && self.anywhere.iter().any(|glob| glob.is_match(path)))
    }
}

/// A pattern matches the path itself and, as in a gitignore file, whatever is below it.
fn matchers(pattern: &str, source: &str) -> Result<Vec<GlobMatcher>, RuleProblem> {
    let build = |pattern: &str| {
        GlobBuilder::new(pattern)
            .literal_separator(true)
            .build()
            .map(|glob| glob.compile_matcher())
            .map_err(|error| RuleProblem {
                message: format!("the pattern `{source}` is not a glob: {}", error.kind()),
                suggestion: None,
            })
    };
    let below = format!("{}/**", pattern.trim_end_matches("/**"));
    Ok(vec![build(pattern)?, build(&below)?])
}

#[cfg(test)]
mod tests {
    use super::super::unknown_tools;
    use super::*;
    use crate::tool::sample;
    use agent_protocol::payload::tool::RuntimeOwner;

    fn bases() -> Bases {
        Bases {
            project: "/w".into(),
            home: "/home/u".into(),
        }
    }

    fn check(rule: &str, path: &str, deny: bool, allow: bool) {
        for (effect, expected) in [(Effect::Deny, deny), (Effect::Allow, allow)] {
            let rule =
                Rule::parse(effect, rule, RuleOrigin::default(), &bases(), &sample()).unwrap();
            assert_eq!(
                rule.binds_path(
                    sample().find("read").unwrap(),
                    Access::Read,
                    &[Path::new(path)]
                ),
                expected,
                "{rule} on {path}"
            );
        }
    }

    #[test]
    fn path_patterns_are_those_of_gitignore() {
        check("read(**/.env)", "/w/a/.env", true, true);
        check("read(**/.env)", "/w/.env", true, true);
        check("read(**/.env)", "/other/.env", true, false);
        check("read(*.pem)", "/w/certs/a.pem", true, true);
        check("read(src/*.rs)", "/w/src/a.rs", true, true);
        check("read(src/*.rs)", "/w/src/b/a.rs", false, false);
        check("read(src/**)", "/w/src/b/a.rs", true, true);
        check("read(secrets/)", "/w/secrets/a/b", true, true);
        check("read(secrets)", "/w/secrets/a/b", true, true);
        check("read(~/notes/**)", "/home/u/notes/a", true, true);
        check("read(/etc/hosts)", "/etc/hosts", true, true);
        check("read(/etc/hosts)", "/etc/hosts2", false, false);
        check("read", "/w/x", true, true);
    }

    #[test]
    fn mistakes_are_explained() {
        let problem = |text: &str| {
            Rule::parse(
                Effect::Allow,
                text,
                RuleOrigin::default(),
                &bases(),
                &sample(),
            )
            .unwrap_err()
            .suggestion
        };
        assert_eq!(problem("bash(ls").as_deref(), Some("bash(ls)"));
        assert_eq!(problem("process_kill(x)").as_deref(), Some("process_kill"));
    }

    /// A tool that a server has, as it is when the server runs.
    fn of_server(name: &str, subject: Subject) -> ToolDefinition {
        ToolDefinition::new(name, RuntimeOwner::McpServer, subject)
    }

    #[test]
    fn a_rule_names_tools_that_are_known_later_or_by_a_star() {
        let rule = |text: &str| {
            let origin = RuleOrigin::default();
            Rule::parse(Effect::Deny, text, origin, &bases(), &sample()).unwrap()
        };
        let issue = of_server("mcp__tracker__create_issue", Subject::Delegate);
        for (text, expected) in [
            ("mcp__tracker__*", true),
            ("mcp__*__create_issue", true),
            ("*", true),
            ("mcp__tracker__create_issue", true),
            ("mcp__other__*", false),
            ("mcp__tracker", false),
        ] {
            assert_eq!(rule(text).names(&issue), expected, "{text}");
        }
        // What a pattern stands for shows when the tool is there.
        let writer = of_server("mcp__files__put", Subject::Write).with_path("path", None);
        let binds =
            |rule: &Rule, path: &str| rule.binds_path(&writer, Access::Write, &[Path::new(path)]);
        let secrets = rule("mcp__files__put(secrets/**)");
        assert!(binds(&secrets, "/w/secrets/a") && !binds(&secrets, "/w/src/a"));
        // One that it has nothing to match with holds back.
        assert!(rule("mcp__tracker__create_issue(x)").is_about_every_call_of(&issue));
        let allow = Rule::parse(
            Effect::Allow,
            "mcp__tracker__create_issue(x)",
            RuleOrigin::default(),
            &bases(),
            &sample(),
        );
        assert!(!allow.unwrap().is_about_every_call_of(&issue));
    }

    #[test]
    fn a_tool_that_is_not_there_is_told_with_what_was_probably_meant() {
        let told = |text: &str| {
            let origin = RuleOrigin {
                file: Some("config.toml".to_owned()),
                line: Some(3),
                ..RuleOrigin::default()
            };
            let parse = |effect| Rule::parse(effect, text, origin.clone(), &bases(), &sample());
            let unknown = unknown_tools(&[parse(Effect::Allow).unwrap()], &sample());
            // A rule that holds something back is not taken then.
            assert_eq!(parse(Effect::Deny).is_err(), !unknown.is_empty(), "{text}");
            assert_eq!(parse(Effect::Ask).is_err(), !unknown.is_empty(), "{text}");
            unknown.first().map(ToString::to_string)
        };
        assert_eq!(
            told("bahs(rm *)").as_deref(),
            Some(
                "config.toml:3: a rule names `bahs`, and there is no such tool; did you mean `bash`?"
            )
        );
        for known in [
            "bash(ls)",
            "read_file(x)",
            "e*(x)",
            "network",
            "mcp__x__*",
            "mcp__x__y",
        ] {
            assert_eq!(told(known), None, "{known}");
        }
        assert!(told("zzzz*").is_some());
    }
}
