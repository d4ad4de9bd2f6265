//! The permission rules in force, from all layers, each with the place it was written at.

use std::path::Path;

use agent_policy::gate::{Bases, Rule, RuleSource, read_rules};
use agent_protocol::payload::permission::{Effect, Layer, RuleOrigin};
use agent_tool_runtime::{Subject, ToolDefinition, Tools};

use crate::Runtime;
use crate::config::{self, Config, Origin, Place};
use crate::error::{Context as _, OrFail as _, RuntimeError};

/// Reads every rule; one that cannot be read stops the start.
pub fn rules(
    runtime: &Runtime,
    config: &Config,
    extra: Option<&Path>,
) -> Result<Vec<Rule>, RuntimeError> {
    let bases = bases(runtime);
    let tools = runtime.host.known_tools();
    let set = &config.permissions;
    let mut rules = Vec::new();
    for (effect, settings) in [
        (Effect::Allow, &set.allow),
        (Effect::Ask, &set.ask),
        (Effect::Deny, &set.deny),
    ] {
        for setting in settings {
            let origin = origin(runtime, &setting.origin);
            let rule = Rule::parse(effect, &setting.value.text, origin.clone(), &bases, &tools);
            rules.push(rule.map_err(|problem| {
                let place = match (&origin.file, origin.line) {
                    (Some(file), Some(line)) => format!("`{file}`: line {line}: "),
                    _ => String::new(),
                };
                let failure = RuntimeError::usage(format!(
                    "cannot use a permission rule: {place}{}",
                    problem.message
                ));
                match problem.suggestion {
                    Some(suggestion) => failure.hint(suggestion),
                    None => failure,
                }
            })?);
        }
    }
    for setting in &config.sandbox.protected {
        rules.extend(protecting(
            runtime,
            &setting.value,
            &setting.origin,
            &bases,
            &tools,
        )?);
    }
    if let Some(path) = extra {
        let path = runtime.host.cwd.join(path);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read the rules in `{}`", path.display()))
            .or_usage()?;
        let source = RuleSource {
            layer: Layer::CommandLine,
            file: runtime.short(&path),
        };
        rules.extend(read_rules(&text, &source, &bases, &tools).or_usage()?);
    }
    Ok(rules)
}

/// Rules that ask before a file tool changes what `sandbox.protected` keeps from commands.
fn protecting(
    runtime: &Runtime,
    setting: &str,
    place: &Origin,
    bases: &Bases,
    tools: &Tools,
) -> Result<Vec<Rule>, RuntimeError> {
    let path = crate::command_settings::expand(&bases.home, &bases.project, setting);
    let pattern = literally(&path.to_string_lossy());
    let writers = tools
        .iter()
        .filter(|tool| tool.subject == Subject::Write && tool.takes_pattern());
    let rule = |tool: &ToolDefinition| {
        let text = format!("{}({})", tool.name, pattern.trim_end_matches('/'));
        Rule::parse(Effect::Ask, &text, origin(runtime, place), bases, tools).map_err(|problem| {
            let problem = problem.message;
            RuntimeError::usage(format!("cannot protect `{setting}`: {problem}"))
        })
    };
    writers.map(rule).collect()
}

/// A pattern that matches `path` and no other.
fn literally(path: &str) -> String {
    let mut pattern = String::with_capacity(path.len());
    for character in path.chars() {
        if "*?[]{}".contains(character) {
            pattern.extend(['[', character, ']']);
        } else {
            pattern.push(character);
        }
    }
    pattern
}

/// What patterns are relative to.
pub fn bases(runtime: &Runtime) -> Bases {
    Bases {
        project: runtime.project.root().to_path_buf(),
        home: runtime.home(),
    }
}

fn origin(runtime: &Runtime, origin: &Origin) -> RuleOrigin {
    let (file, line) = match &origin.place {
        Place::File { path, line, .. } => (Some(runtime.short(path)), Some(*line as u64)),
        Place::Name(name) => (Some((*name).to_owned()), None),
        Place::Code => (None, None),
    };
    let layer = match origin.layer {
        config::Layer::BuiltIn => Layer::BuiltIn,
        config::Layer::User => Layer::User,
        config::Layer::Project => Layer::Project,
        config::Layer::ProjectLocal => Layer::ProjectLocal,
        config::Layer::Environment => Layer::Environment,
        config::Layer::CommandLine => Layer::CommandLine,
        config::Layer::Managed => Layer::Managed,
    };
    RuleOrigin { layer, file, line }
}
