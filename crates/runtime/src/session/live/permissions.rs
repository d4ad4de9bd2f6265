//! What the user allows while a session is worked in: answers, the rules saved with them, and the mode.

use agent_policy::gate::Rule;
use agent_protocol::command::RespondAction;
use agent_protocol::payload::permission::{
    ActionDecision, DecidedBy, GrantScope, PolicyChanged, PolicyChanges, SESSION_EDITS,
};
use agent_protocol::reply::{
    AnswerCode, ControlAnswer, ControlError, ControlErrorCode, ControlNotice, Reply,
};
use agent_protocol::status::Mode;

use super::{LiveSession, lock, recorded, refused};

impl LiveSession {
    /// Passes an answer on, and saves the rule that comes with it. An answer whose rule cannot be saved holds
    /// this once, with a notice.
    pub(super) fn respond(&self, response: RespondAction) -> Result<ControlAnswer, ControlError> {
        let rule = response.answer.as_ref();
        let rule = rule.and_then(|answer| answer.saved_rule.clone());
        if rule.is_some() && !allows(response.decision) {
            // What is saved allows: it cannot be what somebody wants who says no.
            let reason = "only an answer that allows can save a rule; the question is still open";
            return Err(ControlError::new(ControlErrorCode::NotStarted, reason));
        }
        let mut added = None;
        let mut notices = Vec::new();
        let answer = self.control.respond(response, |response| {
            match rule.map(|rule| self.save_rule(&rule, response.scope)) {
                Some(Ok(rules)) => added = Some(rules),
                Some(Err(error)) => {
                    notices.push(ControlNotice {
                        code: AnswerCode::RuleNotSaved,
                        message: error.message,
                    });
                    response.decision = ActionDecision::AllowOnce;
                    response.scope = GrantScope::Once;
                    if let Some(answer) = &mut response.answer {
                        answer.saved_rule = None;
                    }
                }
                None => {}
            }
        });
        // Other open questions are judged by it too; this one has its answer.
        if let Some(rules) = added {
            self.authority.add_rules(rules);
        }
        Ok(ControlAnswer { notices, ..answer })
    }

    fn save_rule(&self, rule: &str, scope: GrantScope) -> Result<Vec<Rule>, ControlError> {
        let saved = match scope {
            GrantScope::Session if rule == SESSION_EDITS[0] => {
                let rules = self.authority.session_edits();
                rules.map_err(|problem| {
                    ControlError::new(ControlErrorCode::NotStarted, problem.message)
                })?
            }
            _ => vec![(self.rule_files.save(rule, scope)).map_err(|error| refused(&error))?],
        };
        let changed = PolicyChanged {
            scope,
            changed: PolicyChanges {
                rules_added: saved.iter().map(ToString::to_string).collect(),
                ..PolicyChanges::default()
            },
            by: DecidedBy::User,
            reason: "saved while answering a question".to_owned(),
        };
        recorded(self.append(changed))?;
        let mut rules = lock(&self.rules);
        for rule in &saved {
            rules.push('\n');
            rules.push_str(&rule.to_string());
        }
        Ok(saved)
    }

    pub(super) fn set_mode(&self, mode: Mode) -> Result<Reply, ControlError> {
        let changed = PolicyChanged {
            scope: GrantScope::Session,
            changed: PolicyChanges {
                mode: Some(mode),
                ..PolicyChanges::default()
            },
            by: DecidedBy::User,
            reason: "chosen by the user".to_owned(),
        };
        let record = || {
            self.append(changed)?;
            self.journal.sync()
        };
        recorded(self.authority.set_mode(mode, record))?;
        Ok(Reply::Answer(ControlAnswer::accepted()))
    }
}

/// True for an answer that lets its call run.
fn allows(decision: ActionDecision) -> bool {
    match decision {
        ActionDecision::AllowOnce | ActionDecision::AllowSession => true,
        ActionDecision::Deny | ActionDecision::Abort | ActionDecision::Answer => false,
    }
}
