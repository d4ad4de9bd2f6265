//! What the user allows while a session is worked in: answers, the rules saved with them, and the mode.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};

use agent_policy::gate::{Rule, accept};
use agent_protocol::command::{PreviewRule, RespondAction};
use agent_protocol::payload::permission::{
    ActionDecision, DecidedBy, GrantScope, PolicyChanged, PolicyChanges, SESSION_EDITS,
};
use agent_protocol::reply::{
    AnswerCode, ControlAnswer, ControlError, ControlErrorCode, ControlNotice, Reply,
};
use agent_protocol::status::Mode;
use agent_protocol::{Event, Payload};
use serde_json::Value;

use super::{LiveSession, lock, recorded, refused};

/// The end of the log in which calls are looked for that a rule is tried on.
const RECENT: u64 = 1 << 20;
/// The most calls that are.
const MOST_CALLS: usize = 100;

impl LiveSession {
    /// Passes an answer on, and saves the rule and sets the mode that come with it. An answer whose rule cannot
    /// be saved holds this once, with a notice; one whose mode cannot be set denies.
    pub(super) fn respond(&self, response: RespondAction) -> Result<ControlAnswer, ControlError> {
        let answer = response.answer.as_ref();
        let rule = answer.and_then(|answer| answer.saved_rule.clone());
        let mode = answer.and_then(|answer| answer.mode);
        if (rule.is_some() || mode.is_some()) && !allows(response.decision) {
            // What is saved allows: it cannot be what somebody wants who says no.
            let reason = "only an answer that allows can save a rule or set the mode; the question is still open";
            return Err(ControlError::new(ControlErrorCode::NotStarted, reason));
        }
        let rule = match rule {
            Some(text) => Some(self.checked(&response, text)?),
            None => None,
        };
        let mut added = None;
        let mut notices = Vec::new();
        let answer = self.control.respond(response, |response| {
            if let (Some(Ok(rule)), Some(answer)) = (&rule, &mut response.answer) {
                // As it is saved, whatever it was written like.
                answer.saved_rule = Some(rule.clone());
            }
            match rule.map(|rule| self.save_rule(&rule?, response.scope)) {
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
            let set = mode.map(|mode| self.record_mode(mode, "chosen with an answer"));
            if let Some(Err(error)) = set {
                notices.push(ControlNotice {
                    code: AnswerCode::ModeNotSet,
                    message: format!("{}; the call is denied", error.message),
                });
                response.decision = ActionDecision::Deny;
            }
        });
        // Other open questions are judged by it too; this one has its answer.
        if let Some(rules) = added {
            self.authority.add_rules(rules);
        }
        Ok(ControlAnswer { notices, ..answer })
    }

    /// A rule that may be saved with this answer. One that is too broad, or does not answer the question, leaves it
    /// open; of a question that is not known here the answer to it says more.
    fn checked(
        &self,
        response: &RespondAction,
        rule: String,
    ) -> Result<Result<String, ControlError>, ControlError> {
        if response.scope == GrantScope::Session && rule == SESSION_EDITS[0] {
            return Ok(Ok(rule));
        }
        let error = |message: String| ControlError::new(ControlErrorCode::NotStarted, message);
        let tried = (self.authority).try_rule(&response.action_id, |trial| accept(trial, &rule));
        match tried {
            Some(Ok(rule)) => Ok(Ok(rule.text)),
            Some(Err(why)) => Err(error(format!(
                "the rule was not saved, and the question is still open. {why}"
            ))),
            None => Ok(Err(error(
                "the rule was not saved: the call it is for is not known yet".to_owned(),
            ))),
        }
    }

    /// What a rule would do if it were saved with the answer to this question.
    pub(super) fn preview_rule(&self, asked: &PreviewRule) -> Result<Reply, ControlError> {
        let preview = self.authority.try_rule(&asked.action_id, |trial| {
            let inputs = self.recent_inputs(&trial.request.tool.name);
            trial.preview(&asked.rule, &inputs)
        });
        let preview = preview.ok_or_else(|| {
            let reason = format!("there is no open question {}", asked.action_id);
            ControlError::new(ControlErrorCode::NotFound, reason)
        })?;
        Ok(Reply::Rule(Box::new(preview)))
    }

    /// What recent calls of a tool were about, the newest last. It is for examples: what cannot be read is none.
    fn recent_inputs(&self, tool: &str) -> Vec<Value> {
        let mut text = Vec::new();
        let read = File::open(self.directory.log_path()).and_then(|mut log| {
            let from = log.metadata()?.len().saturating_sub(RECENT);
            log.seek(SeekFrom::Start(from))?;
            log.read_to_end(&mut text)
        });
        if read.is_err() {
            return Vec::new();
        }
        let is_call = |line: &&[u8]| line.windows(13).any(|piece| piece == b"\"tool.intent\"");
        let lines = text.split(|byte| *byte == b'\n').rev().filter(is_call);
        let events = lines.filter_map(|line| Event::from_line(line).ok());
        let inputs = events.filter_map(|event| match event.payload {
            Payload::ToolIntent(intent) if intent.tool_name == tool => intent.input().cloned(),
            _ => None,
        });
        let mut inputs: Vec<Value> = inputs.take(MOST_CALLS).collect();
        inputs.reverse();
        inputs
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
        self.record_mode(mode, "chosen by the user")?;
        Ok(Reply::Answer(ControlAnswer::accepted()))
    }

    fn record_mode(&self, mode: Mode, reason: &str) -> Result<(), ControlError> {
        let changed = PolicyChanged {
            scope: GrantScope::Session,
            changed: PolicyChanges {
                mode: Some(mode),
                ..PolicyChanges::default()
            },
            by: DecidedBy::User,
            reason: reason.to_owned(),
        };
        let record = || {
            self.append(changed)?;
            self.journal.sync()
        };
        recorded(self.authority.set_mode(mode, record))
    }
}

/// True for an answer that lets its call run.
fn allows(decision: ActionDecision) -> bool {
    match decision {
        ActionDecision::AllowOnce | ActionDecision::AllowSession => true,
        ActionDecision::Deny | ActionDecision::Abort | ActionDecision::Answer => false,
    }
}
