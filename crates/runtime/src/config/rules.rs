//! The permission rules in force, as the gate reads them from the same files.

use agent_policy::gate::{Bases, EffectiveRules, RuleSource, effective_rules, read_rules};
use agent_protocol::payload::permission;
use agent_tool_runtime::Tools;

use super::origin::Layer;
use super::trust::Trust;
use super::{ConfigSource, FileState};
use crate::error::RuntimeError;

/// The rules of all files. A file with one bad rule gives none and stops the start.
pub(super) fn read(
    files: &[ConfigSource],
    bases: &Bases,
    tools: &Tools,
) -> Result<EffectiveRules, RuntimeError> {
    let mut all = EffectiveRules::default();
    for file in files {
        let source = RuleSource {
            layer: layer(file.layer),
            file: file.path.display().to_string(),
        };
        let rules = read_rules(&file.text, &source, bases, tools)
            .map_err(|error| RuntimeError::usage(error.to_string()))?;
        let trusted = !matches!(
            file.state,
            FileState::Project(Trust::Unknown | Trust::Changed)
        );
        let of_file = effective_rules(rules, trusted);
        all.rules.extend(of_file.rules);
        all.ignored.extend(of_file.ignored);
    }
    Ok(all)
}

fn layer(layer: Layer) -> permission::Layer {
    match layer {
        Layer::BuiltIn => permission::Layer::BuiltIn,
        Layer::User => permission::Layer::User,
        Layer::Project => permission::Layer::Project,
        Layer::ProjectLocal => permission::Layer::ProjectLocal,
        Layer::Environment => permission::Layer::Environment,
        Layer::CommandLine => permission::Layer::CommandLine,
        Layer::Managed => permission::Layer::Managed,
    }
}
