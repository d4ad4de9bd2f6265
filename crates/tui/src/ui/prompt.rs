//! The question on the screen: what has been seen of it and what is being answered.

use agent_protocol::command::{ControlCommand, RespondAction};
use agent_protocol::id::ActionId;
use agent_protocol::payload::permission::{ActionAnswer, ActionDecision, GrantScope};

use crate::compose::editor::Editor;
use crate::state::pending::Pending;

/// Keys are no answer until this long after the question was drawn.
pub const GUARD_MS: u64 = 300;
/// Somebody who goes on typing through the guard is not answering yet, up to this long.
pub const LONGEST_GUARD_MS: u64 = 1500;

/// The open question's state on the screen. It never starts on "allow".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    pub action_id: ActionId,
    /// When it was first drawn, in milliseconds of the screen's clock.
    pub drawn_at: Option<u64>,
    /// Keys before this moment belong to something else.
    guard_until: u64,
    pub scroll: usize,
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
    pub fn new(action_id: ActionId) -> Self {
        Self {
            action_id,
            drawn_at: None,
            guard_until: u64::MAX,
            scroll: 0,
            seen_end: false,
            stage: Stage::Choose,
        }
    }

    /// The question is on the screen since `now`.
    pub fn drawn(&mut self, now: u64) {
        if self.drawn_at.is_none() {
            self.drawn_at = Some(now);
            self.guard_until = now + GUARD_MS;
        }
    }

    /// Whether a key at `now` may be meant for this question. A key that is not prolongs the guard:
    /// it is part of something the user is still typing.
    pub fn takes_key(&mut self, now: u64) -> bool {
        if now >= self.guard_until {
            return true;
        }
        if let Some(drawn_at) = self.drawn_at {
            self.guard_until = (now + GUARD_MS).min(drawn_at + LONGEST_GUARD_MS);
        }
        false
    }

    /// When the guard ends, for whoever waits to redraw.
    #[must_use]
    pub fn guard_until(&self) -> Option<u64> {
        self.drawn_at.map(|_| self.guard_until)
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

/// What else a rule would allow, in words.
#[must_use]
pub fn explain_rule(rule: &str) -> String {
    let rule = rule.trim();
    let Some((tool, pattern)) = rule.strip_suffix(')').and_then(|rule| rule.split_once('(')) else {
        return format!("every call of {rule}, whatever its input");
    };
    match (tool, pattern.strip_suffix(" *")) {
        ("bash", Some(words)) => {
            format!("any command that begins with the words `{words}`, whatever follows")
        }
        ("bash", None) if pattern.contains('*') => {
            format!("any command whose words fit `{pattern}`")
        }
        ("bash", None) => format!("exactly the command `{pattern}`"),
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
    fn type_ahead_is_no_answer() {
        let mut prompt = Prompt::new(ActionId::default());
        assert!(!prompt.takes_key(10_000), "not drawn yet");
        prompt.drawn(1000);
        assert!(!prompt.takes_key(1100));
        assert!(!prompt.takes_key(1350), "still typing the same sentence");
        assert!(prompt.takes_key(1650));
        let mut typed_on = Prompt::new(ActionId::default());
        typed_on.drawn(0);
        for now in (100..1500).step_by(100) {
            assert!(!typed_on.takes_key(now));
        }
        assert!(typed_on.takes_key(1500), "it has an end");
        let mut patient = Prompt::new(ActionId::default());
        patient.drawn(0);
        assert!(patient.takes_key(300));
    }

    #[test]
    fn rules_are_explained() {
        let check = |rule: &str, part: &str| {
            assert!(explain_rule(rule).contains(part), "{}", explain_rule(rule));
        };
        check("bash(cargo test *)", "begins with the words `cargo test`");
        check("bash(ls)", "exactly the command `ls`");
        check("edit(src/**)", "edit of any file under src/");
        check("edit(src/a.rs)", "edit of src/a.rs");
        check("bash", "every call of bash");
    }
}
