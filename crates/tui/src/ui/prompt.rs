//! The question on the screen: what has been seen of it and what is being answered.

use agent_protocol::command::{ControlCommand, PreviewRule, RespondAction};
use agent_protocol::id::ActionId;
use agent_protocol::payload::permission::{ActionAnswer, ActionDecision, GrantScope};
use agent_protocol::reply::RulePreview;
use agent_protocol::status::Mode;

use super::guard::Guard;
use crate::compose::editor::Editor;
use crate::state::pending::Pending;

/// The open question's state on the screen. It never starts on "allow".
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    pub action_id: ActionId,
    pub guard: Guard,
    pub scroll: usize,
    /// Lines of it the last frame had room for.
    pub page: usize,
    /// The end of what is asked has been on the screen.
    pub seen_end: bool,
    pub stage: Stage,
    /// The mode that the key for it has come to, while it goes round.
    pub mode: Option<Mode>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    Choose,
    /// Writing a note to the model; sending it denies.
    Note(Editor),
    /// Choosing where a rule is saved, and changing it before.
    Rule(Box<RuleDraft>),
    /// Rewriting the input first.
    Edit(Box<Editing>),
    /// Answering a question in words.
    Answer(Editor),
}

/// The rule that is to be saved.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleDraft {
    pub editor: Editor,
    /// The rule that was offered.
    pub offered: String,
    /// It is being written.
    pub is_written: bool,
    /// The text that the session was asked about last.
    asked: Option<String>,
    /// What the session says about the rule as it stands.
    pub preview: Option<RulePreview>,
}

impl RuleDraft {
    #[must_use]
    pub fn new(offered: &str) -> Self {
        Self {
            editor: Editor::with(offered),
            offered: offered.to_owned(),
            is_written: false,
            asked: None,
            preview: None,
        }
    }

    /// The rule to save; none that nobody has said can be.
    #[must_use]
    pub fn rule(&self) -> Option<String> {
        match &self.preview {
            Some(preview) => preview.problem.is_none().then(|| preview.rule.clone()),
            // The gate itself has offered it.
            None => Some(self.offered.clone()).filter(|rule| rule == self.editor.text()),
        }
    }

    /// The command that asks what the rule would do as it is written now, unless it was sent.
    #[must_use]
    pub fn ask(&mut self, action_id: &ActionId) -> Option<ControlCommand> {
        let rule = self.editor.text();
        if self.asked.as_deref() == Some(rule) {
            return None;
        }
        let rule = rule.to_owned();
        self.asked = Some(rule.clone());
        self.preview = None;
        Some(ControlCommand::PreviewRule(PreviewRule {
            action_id: action_id.clone(),
            rule,
        }))
    }
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
    /// True while text is being written in place of an answer.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        match &self.stage {
            Stage::Choose => false,
            Stage::Rule(draft) => draft.is_written,
            Stage::Note(_) | Stage::Edit(_) | Stage::Answer(_) => true,
        }
    }

    #[must_use]
    pub fn new(action_id: ActionId, typed_at: Option<u64>) -> Self {
        Self {
            action_id,
            guard: Guard::after(typed_at),
            scroll: 0,
            page: 10,
            seen_end: false,
            stage: Stage::Choose,
            mode: None,
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
