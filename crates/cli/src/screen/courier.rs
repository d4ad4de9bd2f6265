//! Carries what the screen sends to whom it concerns: the control plane, the engine's work, the
//! machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_engine::{Control, ControlPlane, InterruptReason, Reply, SessionAuthority};
use agent_policy::gate::Rule;
use agent_protocol::command::{
    Acknowledgement, ControlAnswer, ControlCommand, RespondAction, SubmitTurn,
};
use agent_protocol::id::ThreadId;
use agent_protocol::payload::conversation::{
    ArtifactKind, InputPartKind, SessionChanges, SessionUpdated, TurnSource,
};
use agent_protocol::payload::permission::{
    ActionDecision, DecidedBy, GrantScope, PolicyChanged, PolicyChanges, SESSION_EDITS,
};
use agent_protocol::{Payload, Refs, Scope};
use agent_tool_runtime::{Journal, JournalError};
use agent_tui::{HostMessage, HostRequest, Input, Output};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::host::Host;
use super::session::Work;
use crate::app::App;
use crate::config::Config;
use crate::failure::Failure;
use agent_runtime::models;
use agent_runtime::rule_file::RuleFiles;
use agent_runtime::session::Workbench;

/// An image larger than this is not sent to a model.
const LARGEST_IMAGE: u64 = 20 << 20;

pub(super) struct Courier {
    plane: ControlPlane,
    app: Arc<App>,
    config: Arc<Config>,
    control: Arc<Control>,
    authority: Arc<SessionAuthority>,
    journal: Arc<dyn Journal>,
    thread_id: ThreadId,
    host: Arc<Host>,
    rules: RuleFiles,
    inputs: UnboundedSender<Input>,
    work: UnboundedSender<Work>,
    /// Whether the log has a turn that has not ended.
    turn_is_open: Arc<AtomicBool>,
}

impl Courier {
    pub(super) fn new(
        app: &Arc<App>,
        config: &Arc<Config>,
        bench: &Workbench,
        inputs: &UnboundedSender<Input>,
        work: UnboundedSender<Work>,
    ) -> Result<Self, Failure> {
        let turn_is_open = Arc::new(AtomicBool::new(bench.open_turn.is_some()));
        let told = Arc::clone(&turn_is_open);
        bench.writer.subscribe(move |appended| {
            match &appended.event.payload {
                Payload::TurnStarted(_) => told.store(true, Ordering::SeqCst),
                Payload::TurnCompleted(_) | Payload::TurnFailed(_) => {
                    told.store(false, Ordering::SeqCst);
                }
                _ => {}
            }
            true
        });
        Ok(Self {
            turn_is_open,
            plane: bench.plane(app)?,
            app: Arc::clone(app),
            config: Arc::clone(config),
            control: Arc::clone(&bench.control),
            authority: Arc::clone(&bench.authority),
            journal: Arc::clone(&bench.journal),
            thread_id: bench.thread_id.clone(),
            host: Arc::new(Host::new(app, config, bench)),
            rules: RuleFiles::new(app),
            inputs: inputs.clone(),
            work,
        })
    }

    pub(super) async fn carry(self, mut sent: UnboundedReceiver<Output>) {
        while let Some(output) = sent.recv().await {
            match output {
                Output::Command(command) => self.command(command),
                Output::Host(HostRequest::Shell { command }) => {
                    let _ = self.work.send(Work::Own(command));
                }
                Output::Host(HostRequest::Undo { to }) => {
                    let _ = self.work.send(Work::Undo(to));
                }
                Output::Host(request) => {
                    // Looking through files or asking servers may take a while; keys do not wait.
                    let (host, inputs) = (Arc::clone(&self.host), self.inputs.clone());
                    tokio::task::spawn_blocking(move || {
                        if let Some(answer) = host.answer(request) {
                            let _ = inputs.send(Input::Host(answer));
                        }
                    });
                }
            }
        }
    }

    fn say(&self, message: HostMessage) {
        let _ = self.inputs.send(Input::Host(message));
    }

    pub(super) fn command(&self, command: ControlCommand) {
        let answer = match command {
            ControlCommand::SubmitTurn(submit) => self.submit(submit),
            ControlCommand::InterruptTurn(interrupt) => {
                Ok(self.control.interrupt(&interrupt, InterruptReason::User))
            }
            ControlCommand::RespondAction(response) => Ok(self.respond(response)),
            ControlCommand::RemoveQueuedTurn(queued) => self.control.remove_queued(&queued.turn_id),
            ControlCommand::PromoteQueuedTurn(queued) => {
                let answer = self.control.promote_queued(&queued.turn_id);
                // When nothing runs, this is the user's word that it may.
                let _ = self.work.send(Work::Queue);
                answer
            }
            ControlCommand::SetModel(name) => self.set_model(&name),
            ControlCommand::Compact => {
                let _ = self.work.send(Work::Compact);
                Ok(accepted())
            }
            other => match self.plane.handle(other, TurnSource::Tui) {
                Ok(Reply::Answer(answer)) => Ok(answer),
                Ok(Reply::Unavailable { reason }) => {
                    return self.say(HostMessage::Problem(reason));
                }
                // The screen asks no questions: what it shows is in the log.
                Ok(_) => return,
                Err(error) => return self.say(HostMessage::Problem(error.to_string())),
            },
        };
        match answer {
            Ok(answer) => {
                if let (Acknowledgement::NoOp | Acknowledgement::Refused, Some(reason)) =
                    (answer.acknowledgement, answer.reason)
                {
                    self.say(HostMessage::Notice(reason));
                }
            }
            Err(error) => self.say(HostMessage::Problem(error.to_string())),
        }
    }

    fn submit(&self, mut submit: SubmitTurn) -> Result<ControlAnswer, JournalError> {
        self.attach(&mut submit)?;
        let waits_for_a_turn = self.turn_is_open.load(Ordering::SeqCst);
        let answer = self.control.submit(submit, TurnSource::Tui)?;
        if let (Acknowledgement::Queued, Some(turn_id), false) =
            (answer.acknowledgement, &answer.turn_id, waits_for_a_turn)
        {
            // The end of the last turn was on the screen when this was sent: it is the user's answer to
            // that end, and does not wait for another word.
            let _ = self.work.send(Work::Next(turn_id.clone()));
        }
        if let (Acknowledgement::Accepted, Some(turn_id)) =
            (answer.acknowledgement, &answer.turn_id)
        {
            let _ = self.work.send(Work::Turn(turn_id.clone()));
        }
        Ok(answer)
    }

    /// Images the user names go along with the text; what cannot is said and left out.
    fn attach(&self, submit: &mut SubmitTurn) -> Result<(), JournalError> {
        for part in &mut submit.parts {
            let Some(name) = part.name.as_deref().filter(|_| part.artifact.is_none()) else {
                continue;
            };
            let path = self.app.host.cwd.join(name);
            let length = std::fs::metadata(&path).map(|facts| facts.len());
            part.bytes = length.as_ref().copied().unwrap_or_default();
            if part.kind != InputPartKind::Image {
                continue;
            }
            let read = match length {
                Ok(length) if length > LARGEST_IMAGE => {
                    Err(format!("`{name}` is too large ({length} bytes)"))
                }
                Ok(_) => std::fs::read(&path).map_err(|error| format!("`{name}`: {error}")),
                Err(error) => Err(format!("`{name}`: {error}")),
            };
            match read {
                Ok(bytes) => {
                    let media_type = part.media_type.clone().unwrap_or_default();
                    let kept = self.journal.put_artifact(
                        &self.scope(),
                        ArtifactKind::UserInput,
                        &media_type,
                        &bytes,
                        "",
                    )?;
                    part.artifact = Some(kept.artifact_id);
                }
                Err(problem) => {
                    let text = format!("the image was not attached: {problem}");
                    self.say(HostMessage::Problem(text));
                }
            }
        }
        Ok(())
    }

    /// Saves the rule that comes with an answer, if one does, then passes the answer on. An answer
    /// whose rule cannot be saved holds this once, and says so.
    fn respond(&self, mut response: RespondAction) -> ControlAnswer {
        let asked = response
            .answer
            .as_ref()
            .and_then(|answer| answer.saved_rule.clone());
        let mut added = None;
        match asked.map(|rule| self.save_rule(&rule, response.scope)) {
            Some(Ok(rule)) => added = Some(rule),
            Some(Err(problem)) => {
                self.say(HostMessage::Problem(problem));
                response.decision = ActionDecision::AllowOnce;
                response.scope = GrantScope::Once;
                if let Some(answer) = &mut response.answer {
                    answer.saved_rule = None;
                }
            }
            None => {}
        }
        let answer = self.control.respond(response);
        // Other open questions are judged by it too; this one has its answer.
        if let Some(rules) = added {
            self.authority.add_rules(rules);
        }
        answer
    }

    fn save_rule(&self, rule: &str, scope: GrantScope) -> Result<Vec<Rule>, String> {
        let saved = match scope {
            GrantScope::Session if rule == SESSION_EDITS[0] => self
                .authority
                .session_edits()
                .map_err(|problem| problem.message)?,
            _ => vec![
                self.rules
                    .save(rule, scope)
                    .map_err(|error| error.to_string())?,
            ],
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
        self.record(changed).map_err(|error| error.to_string())?;
        for rule in &saved {
            self.host.rule_added(&rule.to_string());
        }
        Ok(saved)
    }

    /// The next turn asks this model. One that cannot be used is refused with what is missing.
    fn set_model(&self, name: &str) -> Result<ControlAnswer, JournalError> {
        let chosen = match models::choose_named(&self.app, &self.config, name) {
            Ok(chosen) => chosen,
            Err(failure) => {
                self.say(HostMessage::Problem(agent_runtime::chain(&failure)));
                return Ok(ControlAnswer::default());
            }
        };
        let updated = SessionUpdated {
            changed: SessionChanges {
                model: chosen.models.first().map(agent_engine::Model::name),
                ..SessionChanges::default()
            },
            reason: "chosen on the screen".to_owned(),
        };
        self.record(updated)?;
        let _ = self.work.send(Work::Models(chosen.models, chosen.facts));
        Ok(accepted())
    }

    fn scope(&self) -> Scope {
        Scope {
            thread_id: Some(self.thread_id.clone()),
            ..Scope::default()
        }
    }

    fn record(&self, fact: impl Into<Payload>) -> Result<(), JournalError> {
        self.journal
            .append(&self.scope(), fact.into(), Refs::default())
            .map(|_| ())
    }
}

fn accepted() -> ControlAnswer {
    ControlAnswer {
        acknowledgement: Acknowledgement::Accepted,
        ..ControlAnswer::default()
    }
}
