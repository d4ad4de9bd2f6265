//! Carries what the screen sends to the session, and what comes back to the screen. It has a thread of its
//! own: a command is recorded before it is answered, and keys do not wait for that.

use std::io;
use std::sync::Arc;
use std::thread;

use agent_protocol::command::{ControlCommand, Peer, PeerKind};
use agent_protocol::reply::{Acknowledgement, ControlError, ControlErrorCode, Reply, RulePreview};
use agent_runtime::{Pending, Session};
use agent_tui::{HostMessage, Input, Output};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::host::Host;
use crate::app::App;
use crate::config::Config;
use crate::failure::Failure;

#[derive(Clone)]
pub(super) struct Sender {
    session: Arc<Session>,
    host: Arc<Host>,
    inputs: UnboundedSender<Input>,
    /// Threads for what takes its time.
    threads: Handle,
}

impl Sender {
    pub(super) fn new(
        app: &Arc<App>,
        config: &Arc<Config>,
        session: &Arc<Session>,
        inputs: &UnboundedSender<Input>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            session: Arc::clone(session),
            host: Arc::new(Host::new(app, config, session)?),
            inputs: inputs.clone(),
            threads: Handle::current(),
        })
    }

    /// Sends what comes from the screen, in order, until the screen is gone.
    pub(super) fn start(self, mut sent: UnboundedReceiver<Output>) -> io::Result<()> {
        let carry = move || {
            while let Some(output) = sent.blocking_recv() {
                match output {
                    Output::Command(command) => self.command(command),
                    Output::Host(request) => {
                        // Looking through files or asking servers may take a while.
                        let (host, inputs) = (Arc::clone(&self.host), self.inputs.clone());
                        self.threads.spawn_blocking(move || {
                            if let Some(answer) = host.answer(request) {
                                let _ = inputs.send(Input::Host(answer));
                            }
                        });
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("sender".to_owned());
        thread.spawn(carry).map(|_| ())
    }

    pub(super) fn command(&self, command: ControlCommand) {
        if let ControlCommand::PreviewRule(asked) = &command {
            let asked = asked.clone();
            let preview = match self.session.handle(command, &peer()) {
                Ok(Reply::Rule(preview)) => *preview,
                Ok(_) => return,
                Err(error) => RulePreview {
                    rule: asked.rule.clone(),
                    problem: Some(error.message),
                    ..RulePreview::default()
                },
            };
            let told = HostMessage::Rule { asked, preview };
            let _ = self.inputs.send(Input::Host(told));
            return;
        }
        match self.session.dispatch(command, &peer()) {
            Pending::Ready(reply) => self.tell(reply),
            later @ Pending::Later(_) => {
                let sender = self.clone();
                self.threads
                    .spawn_blocking(move || sender.tell(later.wait()));
            }
        }
    }

    /// Shows what no event shows: that something was not done, and why.
    pub(super) fn tell(&self, reply: Result<Reply, ControlError>) {
        let say = |message| {
            let _ = self.inputs.send(Input::Host(message));
        };
        match reply {
            Ok(Reply::Answer(answer)) => {
                for notice in answer.notices {
                    say(HostMessage::Problem(notice.message));
                }
                if let (Acknowledgement::NoOp | Acknowledgement::Refused, Some(reason)) =
                    (answer.acknowledgement, answer.reason)
                {
                    say(HostMessage::Notice(reason));
                }
            }
            Ok(_) => {}
            // The user has left.
            Err(error) if error.code == ControlErrorCode::SessionEnded => {}
            Err(error) => say(problem(&error)),
        }
    }
}

/// The screen as a sender of commands.
pub(super) fn peer() -> Peer {
    Peer::new(PeerKind::Screen, "agent")
}

/// An error as the screen shows it.
pub(super) fn problem(error: &ControlError) -> HostMessage {
    let texts = std::iter::once(&error.message).chain(&error.hints);
    let texts: Vec<&str> = texts.map(String::as_str).collect();
    HostMessage::Problem(texts.join("; "))
}
