//! One rule: an effect, a tool, perhaps a pattern, and where it stands.

use std::fmt;
use std::path::{Component, Path};

use agent_protocol::payload::permission::{Access, Effect, Layer, MatchedRule, RuleOrigin};
use globset::{GlobBuilder, GlobMatcher};

use super::words::WordPattern;

/// The tools a rule can name, and what their pattern is about.
const TOOLS: &[(&str, Subject)] = &[
    ("read", Subject::Read),
    ("grep", Subject::Read),
    ("glob", Subject::Read),
    ("write", Subject::Write),
    ("edit", Subject::Write),
    ("apply_patch", Subject::Write),
    ("bash", Subject::Command),
    ("read_artifact", Subject::Nothing),
    ("process_output", Subject::Nothing),
    ("process_kill", Subject::Nothing),
    ("network", Subject::Nothing),
];

const ALIASES: &[(&str, &str)] = &[
    ("read_file", "read"),
    ("write_file", "write"),
    ("edit_file", "edit"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Read,
    Write,
    Command,
    Nothing,
}

/// The name a tool has in rules.
pub fn canonical_tool(name: &str) -> &str {
    ALIASES
        .iter()
        .find(|(alias, _)| *alias == name)
        .map_or(name, |(_, tool)| tool)
}

/// The names a rule may begin with.
pub fn tool_names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|(name, _)| *name)
}

#[derive(Debug, Clone)]
pub enum Pattern {
    /// Every call of the tool.
    Any,
    Words(WordPattern),
    Path(PathPattern),
}

/// A rule as it was written, ready to be asked.
#[derive(Debug, Clone)]
pub struct Rule {
    pub effect: Effect,
    pub tool: String,
    pub pattern: Pattern,
    pub origin: RuleOrigin,
    /// `tool` or `tool(pattern)`, as it stands in the file.
    pub text: String,
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

/// The directories that patterns are relative to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bases {
    pub project: std::path::PathBuf,
    pub home: std::path::PathBuf,
}

impl Rule {
    /// Reads `tool` or `tool(pattern)`.
    pub fn parse(
        effect: Effect,
        text: &str,
        origin: RuleOrigin,
        bases: &Bases,
    ) -> Result<Self, RuleProblem> {
        let text = text.trim();
        let (tool, pattern) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => match rest.strip_suffix(')') {
                Some(pattern) => (tool.trim(), Some(pattern.trim())),
                None => {
                    return Err(RuleProblem {
                        message: format!("the rule `{text}` is missing a closing parenthesis"),
                        suggestion: Some(format!("{text})")),
                    });
                }
            },
        };
        Self::of(effect, tool, pattern, origin, bases)
    }

    /// A rule from its parts.
    pub fn of(
        effect: Effect,
        tool: &str,
        pattern: Option<&str>,
        origin: RuleOrigin,
        bases: &Bases,
    ) -> Result<Self, RuleProblem> {
        let tool = canonical_tool(tool);
        let Some((_, subject)) = TOOLS.iter().find(|(name, _)| *name == tool) else {
            return Err(RuleProblem {
                message: format!("`{tool}` is not a tool"),
                suggestion: agent_text::nearest(tool, tool_names()).map(str::to_owned),
            });
        };
        let text = match pattern {
            Some(pattern) => format!("{tool}({pattern})"),
            None => tool.to_owned(),
        };
        let pattern = match (subject, pattern) {
            (_, None) => Pattern::Any,
            (_, Some("")) => {
                return Err(RuleProblem {
                    message: format!("the pattern of `{tool}` is empty"),
                    suggestion: Some(tool.to_owned()),
                });
            }
            (Subject::Nothing, Some(_)) => {
                return Err(RuleProblem {
                    message: format!("`{tool}` takes no pattern"),
                    suggestion: Some(tool.to_owned()),
                });
            }
            (Subject::Command, Some(pattern)) => Pattern::Words(WordPattern::parse(pattern)?),
            (Subject::Read | Subject::Write, Some(pattern)) => {
                Pattern::Path(PathPattern::parse(pattern, bases)?)
            }
        };
        Ok(Self {
            effect,
            tool: tool.to_owned(),
            pattern,
            origin,
            text,
        })
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

    /// Whether the rule speaks about this access to this path. A deny or ask on reading binds every tool
    /// that touches the path, one on writing every tool that changes it. An allow opens what its tool does:
    /// `read` lets other readers read the same file.
    pub(super) fn binds_path(&self, tool: &str, access: Access, paths: &[&Path]) -> bool {
        let subject = TOOLS
            .iter()
            .find(|(name, _)| *name == self.tool)
            .map(|(_, subject)| *subject);
        let tool = canonical_tool(tool);
        let applies = match (subject, self.effect) {
            (Some(Subject::Read), Effect::Deny | Effect::Ask) => match self.pattern {
                // `deny grep` without a pattern is about the tool, not about all files.
                Pattern::Any => tool == self.tool,
                _ => true,
            },
            (Some(Subject::Write), Effect::Deny | Effect::Ask) => {
                access == Access::Write
                    && (tool == self.tool || !matches!(self.pattern, Pattern::Any))
            }
            (Some(Subject::Read), Effect::Allow) => {
                access == Access::Read && (tool == self.tool || self.tool == "read")
            }
            (Some(Subject::Write), Effect::Allow) => {
                access == Access::Write
                    && (tool == self.tool
                        || (tool == "bash" && !matches!(self.pattern, Pattern::Any)))
            }
            _ => false,
        };
        applies
            && match &self.pattern {
                Pattern::Any => true,
                Pattern::Path(pattern) => paths
                    .iter()
                    .any(|path| pattern.matches(path, self.effect != Effect::Allow)),
                Pattern::Words(_) => false,
            }
    }

    /// Whether the pattern spells out one of `names`, so that a protected path is meant, not just included.
    pub(super) fn names_one_of(&self, names: &[String]) -> bool {
        match &self.pattern {
            Pattern::Path(pattern) => pattern
                .source
                .to_lowercase()
                .split('/')
                .any(|component| names.iter().any(|name| name == component)),
            _ => false,
        }
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
    use super::*;

    fn bases() -> Bases {
        Bases {
            project: "/w".into(),
            home: "/home/u".into(),
        }
    }

    fn check(rule: &str, path: &str, deny: bool, allow: bool) {
        for (effect, expected) in [(Effect::Deny, deny), (Effect::Allow, allow)] {
            let rule = Rule::parse(effect, rule, RuleOrigin::default(), &bases()).unwrap();
            assert_eq!(
                rule.binds_path("read", Access::Read, &[Path::new(path)]),
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
            Rule::parse(Effect::Allow, text, RuleOrigin::default(), &bases())
                .unwrap_err()
                .suggestion
        };
        assert_eq!(problem("bahs(ls)").as_deref(), Some("bash"));
        assert_eq!(problem("bash(ls").as_deref(), Some("bash(ls)"));
        assert_eq!(problem("process_kill(x)").as_deref(), Some("process_kill"));
    }
}
