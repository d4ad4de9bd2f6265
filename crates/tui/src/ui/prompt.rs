//! The question on the screen: what has been seen of it and what is being answered.

use agent_protocol::command::{ControlCommand, RespondAction};
use agent_protocol::id::ActionId;
use agent_protocol::payload::permission::{ActionAnswer, ActionDecision, GrantScope};

use super::guard::Guard;
use crate::compose::editor::Editor;
use crate::state::pending::Pending;

/// The open question's state on the screen. It never starts on "allow".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    pub action_id: ActionId,
    pub guard: Guard,
    pub scroll: usize,
    /// Lines of it the last frame had room for.
    pub page: usize,
    /// The end of what is asked has been on the screen.
    pub seen_end: bool,
    pub stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    Choose,
    /// Writing a note to the model; sending it denies.
    Note(Editor),
    /// Choosing where a rule is saved.
    Rule,
    /// Rewriting the input first.
    Edit(Box<Editing>),
    /// Answering a question in words.
    Answer(Editor),
}

/// The parts of an input while the user rewrites them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Editing {
    pub names: Vec<String>,
    pub editors: Vec<Editor>,
    pub at: usize,
    pub error: Option<String>,
}

impl Prompt {
    #[must_use]
    pub fn new(action_id: ActionId, typed_at: Option<u64>) -> Self {
        Self {
            action_id,
            guard: Guard::after(typed_at),
            scroll: 0,
            page: 10,
            seen_end: false,
            stage: Stage::Choose,
        }
    }
}

/// The command that answers `pending`.
#[must_use]
pub fn respond(
    pending: &Pending,
    decision: ActionDecision,
    scope: GrantScope,
    answer: Option<ActionAnswer>,
) -> ControlCommand {
    ControlCommand::RespondAction(RespondAction {
        action_id: pending.action_id.clone(),
        decision,
        scope,
        answer,
    })
}

/// The calls that a rule would allow, in words.
#[must_use]
pub fn explain_rule(rule: &str, is_about_commands: bool) -> String {
    let rule = rule.trim();
    let Some((tool, pattern)) = rule.strip_suffix(')').and_then(|rule| rule.split_once('(')) else {
        return format!("every call of {rule}, whatever its input");
    };
    match (is_about_commands, pattern.strip_suffix(" *")) {
        (true, Some(words)) => {
            format!("any command that begins with the words `{words}`, whatever follows")
        }
        (true, None) if pattern.contains('*') => {
            format!("any command whose words fit `{pattern}`")
        }
        (true, None) => format!("exactly the command `{pattern}`"),
        _ if pattern.ends_with("/**") => format!(
            "{tool} of any file under {}/",
            pattern.trim_end_matches("/**")
        ),
        _ if pattern.contains('*') => format!("{tool} of any file that fits {pattern}"),
        _ => format!("{tool} of {pattern}, any number of times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_explained() {
        let check = |rule: &str, part: &str| {
            let told = explain_rule(rule, rule.starts_with("bash"));
            assert!(told.contains(part), "{told}");
        };
        check("bash(cargo test *)", "begins with the words `cargo test`");
        check("bash(ls)", "exactly the command `ls`");
        check("edit(src/**)", "edit of any file under src/");
        check("edit(src/a.rs)", "edit of src/a.rs");
        check("bash", "every call of bash");
    }
}
