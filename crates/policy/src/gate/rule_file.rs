//! The `[permissions]` part of a configuration file, with the place of every mistake.
//!
//! A file with one wrong rule gives no rules at all: half a policy is worse than an error.

use std::fmt;
use std::ops::Range;

use agent_protocol::payload::permission::{Effect, Layer, RuleOrigin};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::rule::{Bases, Pattern, Rule};
use super::words::{Match, WordPattern};
use crate::shell::prove::can_be_covered;
use crate::shell::{Place, Start, analyse};
use crate::{Tools, WebAddress};

/// Where a file stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSource {
    pub layer: Layer,
    /// As a person would find it.
    pub file: String,
}

/// One mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFileProblem {
    pub line: u64,
    pub column: u64,
    pub message: String,
    pub suggestion: Option<String>,
}

/// Why a file gave no rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFileError {
    pub file: String,
    pub problems: Vec<RuleFileProblem>,
}

impl std::error::Error for RuleFileError {}

impl fmt::Display for RuleFileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cannot load the rules of `{}`", self.file)?;
        for problem in &self.problems {
            write!(
                formatter,
                "\n  line {}, column {}: {}",
                problem.line, problem.column, problem.message
            )?;
            if let Some(suggestion) = &problem.suggestion {
                write!(formatter, " (did you mean: {suggestion})")?;
            }
        }
        Ok(())
    }
}

/// Reads all rules of one file, or none.
pub fn read_rules(
    text: &str,
    source: &RuleSource,
    bases: &Bases,
    tools: &Tools,
) -> Result<Vec<Rule>, RuleFileError> {
    let mut reader = Reader {
        text,
        source,
        bases,
        tools,
        rules: Vec::new(),
        problems: Vec::new(),
    };
    match DeTable::parse(text) {
        Ok(document) => reader.document(document.get_ref()),
        Err(error) => reader.problem(
            error.span().unwrap_or(0..0),
            error.message().to_owned(),
            None,
        ),
    }
    if reader.problems.is_empty() {
        Ok(reader.rules)
    } else {
        Err(RuleFileError {
            file: source.file.clone(),
            problems: reader.problems,
        })
    }
}

struct Reader<'a> {
    text: &'a str,
    source: &'a RuleSource,
    bases: &'a Bases,
    tools: &'a Tools,
    rules: Vec<Rule>,
    problems: Vec<RuleFileProblem>,
}

/// Settings that stand in the same table as the rules.
const SETTINGS: &[&str] = &["mode", "ask_timeout"];

const LISTS: &[(&str, Effect)] = &[
    ("allow", Effect::Allow),
    ("ask", Effect::Ask),
    ("deny", Effect::Deny),
];

impl Reader<'_> {
    fn problem(&mut self, span: Range<usize>, message: String, suggestion: Option<String>) {
        let (line, column) = self.place(span.start);
        self.problems.push(RuleFileProblem {
            line,
            column,
            message,
            suggestion,
        });
    }

    fn place(&self, offset: usize) -> (u64, u64) {
        let before = self.text.get(..offset).unwrap_or_default();
        let line = before.matches('\n').count() as u64 + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() as u64 + 1;
        (line, column)
    }

    fn document(&mut self, document: &DeTable<'_>) {
        // Settings files have sections of their own, whose names their reader checks. Nobody else looks
        // at a file of rules, and a rule under a misspelt name must not be lost in silence.
        if self.source.layer == Layer::CommandLine {
            for (key, _) in document {
                self.top_level(key);
            }
        }
        let Some(permissions) = document.get("permissions") else {
            return;
        };
        let Some(table) = permissions.get_ref().as_table() else {
            self.problem(
                permissions.span(),
                "`permissions` must be a table".to_owned(),
                Some("[permissions]".to_owned()),
            );
            return;
        };
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            if let Some((_, effect)) = LISTS.iter().find(|(list, _)| *list == name) {
                self.list(*effect, value);
            } else if name == "rule" {
                self.tables(value);
            } else if SETTINGS.contains(&name) {
                // A setting beside the rules; whoever reads the settings reads it.
            } else {
                let known = LISTS.iter().map(|(list, _)| *list).chain(["rule"]);
                self.problem(
                    key.span(),
                    format!("unknown key `permissions.{name}`"),
                    agent_text::nearest(name, known).map(str::to_owned),
                );
            }
        }
    }

    fn top_level(&mut self, key: &Spanned<DeString<'_>>) {
        let name = key.get_ref().as_ref();
        let is_list = name == "rule" || LISTS.iter().any(|(list, _)| *list == name);
        let is_near = name != "permissions"
            && agent_text::nearest(name, std::iter::once("permissions"))
                .is_some_and(|_| name.len() > 3);
        if is_list || is_near {
            self.problem(
                key.span(),
                format!("`{name}` must be a table of rules"),
                Some("[permissions]".to_owned()),
            );
        }
    }

    fn list(&mut self, effect: Effect, value: &Spanned<DeValue<'_>>) {
        let Some(entries) = value.get_ref().as_array() else {
            self.problem(
                value.span(),
                format!("`permissions.{effect}` must be a list of rules"),
                Some(format!("{effect} = [\"bash(cargo test *)\"]")),
            );
            return;
        };
        for entry in entries.iter() {
            match entry.get_ref() {
                DeValue::String(text) => {
                    self.rule(effect, text, entry.span(), &[], &[], self.source.layer);
                }
                DeValue::Table(table) => {
                    let Some(text) = table.get("rule").and_then(|rule| rule.get_ref().as_str())
                    else {
                        self.problem(
                            entry.span(),
                            "a rule table needs `rule = \"…\"`".to_owned(),
                            None,
                        );
                        continue;
                    };
                    self.unknown_keys(table, &["rule", "match", "not_match", "note"]);
                    let matching = self.examples(table, "match");
                    let not_matching = self.examples(table, "not_match");
                    let layer = self.source.layer;
                    self.rule(effect, text, entry.span(), &matching, &not_matching, layer);
                }
                _ => self.problem(entry.span(), "a rule must be a string".to_owned(), None),
            }
        }
    }

    fn tables(&mut self, value: &Spanned<DeValue<'_>>) {
        let Some(entries) = value.get_ref().as_array() else {
            self.problem(
                value.span(),
                "`permissions.rule` must be a list of tables".to_owned(),
                Some("[[permissions.rule]]".to_owned()),
            );
            return;
        };
        for entry in entries.iter() {
            match entry.get_ref() {
                DeValue::Table(table) => self.table(table, entry.span()),
                _ => self.problem(entry.span(), "a rule must be a table here".to_owned(), None),
            }
        }
    }

    fn table(&mut self, table: &DeTable<'_>, span: Range<usize>) {
        let known = [
            "effect",
            "tool",
            "pattern",
            "layer",
            "match",
            "not_match",
            "note",
        ];
        self.unknown_keys(table, &known);
        // A pattern that is no text must not make a rule about everything.
        let mut are_texts = true;
        for name in ["effect", "tool", "pattern", "layer", "note"] {
            if let Some(value) = table.get(name)
                && value.get_ref().as_str().is_none()
            {
                self.problem(
                    value.span(),
                    format!("`{name}` of a rule must be a string"),
                    None,
                );
                are_texts = false;
            }
        }
        if !are_texts {
            return;
        }
        let word = |name: &str| {
            table
                .get(name)
                .and_then(|value| Some((value.get_ref().as_str()?.to_owned(), value.span())))
        };
        let Some((effect, effect_span)) = word("effect") else {
            self.problem(
                span,
                "the rule has no `effect`".to_owned(),
                Some("effect = \"ask\"".to_owned()),
            );
            return;
        };
        let Some((tool, tool_span)) = word("tool") else {
            self.problem(
                span,
                "the rule has no `tool`".to_owned(),
                Some("tool = \"bash\"".to_owned()),
            );
            return;
        };
        let Ok(effect) = effect.parse::<Effect>() else {
            let suggestion = agent_text::nearest(&effect, LISTS.iter().map(|(list, _)| *list));
            self.problem(
                effect_span,
                format!("unknown effect `{effect}`"),
                suggestion.map(str::to_owned),
            );
            return;
        };
        let layer = match word("layer") {
            None => self.source.layer,
            // A file in a project must not be able to speak for the administrator.
            Some((_, span)) if self.source.layer != Layer::CommandLine => {
                let message = "`layer` is only allowed in a file passed with --rules".to_owned();
                self.problem(span, message, None);
                return;
            }
            Some((layer, span)) => match layer.replace('-', "_").parse() {
                Ok(layer) => layer,
                Err(_) => {
                    let words = Layer::ALL.iter().map(|layer| layer.as_str());
                    let suggestion = agent_text::nearest(&layer, words);
                    self.problem(
                        span,
                        format!("unknown layer `{layer}`"),
                        suggestion.map(str::to_owned),
                    );
                    return;
                }
            },
        };
        let text = match word("pattern") {
            Some((pattern, _)) => format!("{tool}({pattern})"),
            None => tool,
        };
        let matching = self.examples(table, "match");
        let not_matching = self.examples(table, "not_match");
        self.rule(effect, &text, tool_span, &matching, &not_matching, layer);
    }

    fn unknown_keys(&mut self, table: &DeTable<'_>, known: &[&str]) {
        for (key, _) in table {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                self.problem(
                    key.span(),
                    format!("unknown key `{name}` in a rule"),
                    agent_text::nearest(name, known.iter().copied()).map(str::to_owned),
                );
            }
        }
    }

    fn examples(&mut self, table: &DeTable<'_>, key: &str) -> Vec<(String, Range<usize>)> {
        let Some(value) = table.get(key) else {
            return Vec::new();
        };
        let Some(entries) = value.get_ref().as_array() else {
            self.problem(
                value.span(),
                format!("`{key}` must be a list of examples"),
                None,
            );
            return Vec::new();
        };
        let mut examples = Vec::new();
        for entry in entries.iter() {
            match entry.get_ref().as_str() {
                Some(text) => examples.push((text.to_owned(), entry.span())),
                None => self.problem(
                    entry.span(),
                    format!("an example in `{key}` must be a string"),
                    None,
                ),
            }
        }
        examples
    }

    fn rule(
        &mut self,
        effect: Effect,
        text: &str,
        span: Range<usize>,
        matching: &[(String, Range<usize>)],
        not_matching: &[(String, Range<usize>)],
        layer: Layer,
    ) {
        let origin = RuleOrigin {
            layer,
            file: Some(self.source.file.clone()),
            line: Some(self.place(span.start).0),
        };
        match Rule::parse(effect, text, origin, self.bases, self.tools) {
            Ok(rule) => {
                let examples = matching
                    .iter()
                    .map(|example| (example, true))
                    .chain(not_matching.iter().map(|example| (example, false)));
                for ((example, span), expected) in examples {
                    if example_matches(&rule, example, self.bases) != expected {
                        let verb = if expected {
                            "does not match"
                        } else {
                            "matches"
                        };
                        self.problem(
                            span.clone(),
                            format!("the rule `{}` {verb} its example `{example}`", rule.text),
                            None,
                        );
                    }
                }
                self.rules.push(rule);
            }
            Err(problem) => self.problem(span, problem.message, problem.suggestion),
        }
    }
}

/// True if a rule matches an example: a command for a tool that runs scripts, a path for the others.
fn example_matches(rule: &Rule, example: &str, bases: &Bases) -> bool {
    let fits_path = || {
        let path = crate::shell::normalise(&bases.project.join(example));
        rule.fits_one_of(&[&path])
    };
    match &rule.pattern {
        Pattern::Any => true,
        Pattern::Path(_) => fits_path(),
        Pattern::Host(pattern) => {
            let address = WebAddress::parse(example);
            let address = address.or_else(|_| WebAddress::parse(&format!("https://{example}/")));
            address.is_ok_and(|address| pattern.matches(&address))
        }
        Pattern::Words(pattern) => fits_words(rule, pattern, example, bases),
        Pattern::Either(pattern, _) => fits_path() || fits_words(rule, pattern, example, bases),
    }
}

fn fits_words(rule: &Rule, pattern: &WordPattern, example: &str, bases: &Bases) -> bool {
    let analysis = analyse(
        example,
        &Start {
            directory: bases.project.clone(),
            home: bases.home.clone(),
            is_directory: &|_| None,
        },
    );
    if rule.effect == Effect::Allow {
        analysis.small.is_ok_and(|commands| {
            commands
                .iter()
                .filter(|command| command.place == Place::Plain)
                .all(|command| can_be_covered(command) && pattern.covers(&command.words))
        })
    } else {
        analysis
            .commands
            .iter()
            .any(|command| pattern.finds(&command.words) == Match::Yes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Rule>, RuleFileError> {
        read_layer(text, Layer::Project)
    }

    fn read_layer(text: &str, layer: Layer) -> Result<Vec<Rule>, RuleFileError> {
        read_rules(
            text,
            &RuleSource {
                layer,
                file: "config.toml".into(),
            },
            &Bases {
                project: "/w".into(),
                home: "/home/u".into(),
            },
            &crate::tool::sample(),
        )
    }

    #[test]
    fn rules_know_where_they_stand() {
        let rules = read(
            "x = 1\n[permissions]\nallow = [\n  \"bash(cargo test *)\",\n  \"edit(src/**)\",\n]\ndeny = [{ rule = \"bash(rm *)\", match = [\"sudo rm x\"], not_match = [\"echo rm\"] }]\n",
        )
        .unwrap();
        let shown: Vec<String> = rules.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "allow bash(cargo test *) (config.toml:4)",
                "allow edit(src/**) (config.toml:5)",
                "deny bash(rm *) (config.toml:7)",
            ]
        );
    }

    #[test]
    fn mistakes_have_a_place_and_stop_the_file() {
        for (text, line, message, suggestion) in [
            (
                "[permissions]\nalow = []\n",
                2,
                "unknown key",
                Some("allow"),
            ),
            (
                "[permissions]\nallow = [\"bash(ls)\",\n \"b sh(ls)\"]\n",
                3,
                "not a tool's name",
                None,
            ),
            ("[permissions]\nallow = \"x\"\n", 2, "must be a list", None),
            (
                "[permissions]\nallow = [\"bash(a && b)\"]\n",
                2,
                "one simple command",
                None,
            ),
            ("[permissions\n", 1, "", None),
            (
                "[[permissions.rule]]\neffect = \"dney\"\ntool = \"bash\"\n",
                2,
                "unknown effect",
                Some("deny"),
            ),
            (
                "[[permissions.rule]]\neffect = \"deny\"\ntool = \"bash\"\nlayer = \"managed\"\n",
                4,
                "only allowed in a file passed with --rules",
                None,
            ),
            (
                "[permissions]\nallow = [{ rule = \"bash(ls *)\", match = [\"lsx\"] }]\n",
                2,
                "does not match its example",
                None,
            ),
            (
                "[[permissions.rule]]\neffect = \"allow\"\ntool = \"bash\"\npattern = 3\n",
                4,
                "`pattern` of a rule must be a string",
                None,
            ),
            (
                "[permissions]\ndeny = [{ rule = \"bash(rm *)\", match = [3] }]\n",
                2,
                "an example in `match` must be a string",
                None,
            ),
        ] {
            let error = read(text).unwrap_err();
            let problem = &error.problems[0];
            assert_eq!(problem.line, line, "{text}");
            assert!(problem.message.contains(message), "{}", problem.message);
            if suggestion.is_some() {
                assert_eq!(problem.suggestion.as_deref(), suggestion);
            }
        }
    }

    /// Nobody but the gate reads a file of rules, so a misspelt name is found here or never.
    #[test]
    fn a_rule_under_a_misspelt_name_is_not_lost() {
        for text in [
            "[permission]\ndeny = [\"bash(rm *)\"]\n",
            "deny = [\"bash(rm *)\"]\n",
            "[[permissons.rule]]\neffect = \"deny\"\ntool = \"bash\"\n",
        ] {
            let error = read_layer(text, Layer::CommandLine).unwrap_err();
            let problem = &error.problems[0];
            assert_eq!(problem.line, 1, "{text}");
            assert_eq!(
                problem.suggestion.as_deref(),
                Some("[permissions]"),
                "{text}"
            );
        }
        let whole = "[model]\ndefault = \"x\"\n[permissions]\ndeny = [\"bash(rm *)\"]\n";
        assert_eq!(read_layer(whole, Layer::CommandLine).unwrap().len(), 1);
    }

    #[test]
    fn a_rules_file_may_speak_for_any_layer() {
        let rules = read_layer(
            "[[permissions.rule]]\neffect = \"deny\"\ntool = \"bash\"\npattern = \"rm *\"\nlayer = \"managed\"\n",
            Layer::CommandLine,
        )
        .unwrap();
        assert!(rules[0].is_managed());
    }
}
