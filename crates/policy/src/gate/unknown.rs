//! Rules about tools that are not there.

use std::fmt;

use agent_protocol::payload::permission::RuleOrigin;
use agent_text::nearest;

use super::rule::{NETWORK, OF_SERVERS, Rule};
use crate::Tools;

/// A rule about a tool that is not there.
#[derive(Debug, Clone, PartialEq)]
pub struct UnknownTool {
    pub name: String,
    pub origin: RuleOrigin,
    /// The tool that was probably meant.
    pub suggestion: Option<String>,
}

impl fmt::Display for UnknownTool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(file), Some(line)) = (&self.origin.file, self.origin.line) {
            write!(formatter, "{file}:{line}: ")?;
        }
        write!(
            formatter,
            "a rule names `{}`, and there is no such tool",
            self.name
        )?;
        match &self.suggestion {
            Some(name) => write!(formatter, "; did you mean `{name}`?"),
            None => Ok(()),
        }
    }
}

/// The rules that name no tool there is; those about the tools of servers are left out, because such tools come
/// later.
#[must_use]
pub fn unknown_tools(rules: &[Rule], tools: &Tools) -> Vec<UnknownTool> {
    let unknown = rules.iter().filter(|rule| {
        let name = rule.tool.as_str();
        let is_known = name == NETWORK || tools.iter().any(|tool| rule.names(tool));
        !is_known && !name.starts_with(OF_SERVERS)
    });
    unknown
        .map(|rule| UnknownTool {
            name: rule.tool.as_str().to_owned(),
            origin: rule.origin.clone(),
            suggestion: nearest(rule.tool.as_str(), tools.names().chain([NETWORK]))
                .map(str::to_owned),
        })
        .collect()
}
