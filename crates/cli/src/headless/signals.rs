//! Ctrl-C, a closed terminal and SIGTERM during a headless run: the first one ends the session with the
//! facts of its turn written, a second Ctrl-C or SIGTERM ends the process. A terminal that closes tells
//! more than once, by the kernel and by the shell, and nobody is impatient there.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use agent_protocol::command::{ControlCommand, EndSession, InterruptReason, Peer};
use agent_runtime::Session;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Exit;

/// The signal that came first, if one did.
#[derive(Clone, Default)]
pub(super) struct Signals(Arc<Mutex<Option<InterruptReason>>>);

impl Signals {
    /// The exit code of a run that a signal ended before it had begun.
    pub(super) fn exit(&self) -> Option<Exit> {
        self.first().map(exit_of)
    }

    fn first(&self) -> Option<InterruptReason> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn exit_of(reason: InterruptReason) -> Exit {
    match reason {
        InterruptReason::User => Exit::Interrupted,
        InterruptReason::Timeout | InterruptReason::Terminated => Exit::Terminated,
    }
}

/// Watches on a thread of its own until the process ends.
pub(super) fn watch(session: &Arc<Session>, peer: &Peer) -> io::Result<Signals> {
    let signals = Signals::default();
    let (noted, session, peer) = (signals.clone(), Arc::downgrade(session), peer.clone());
    let scheduler = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let watched = {
        let _inside = scheduler.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        )
    };
    let (mut interrupts, mut terminations, mut hang_ups) = watched;
    let watch = async move {
        loop {
            let (reason, is_person) = tokio::select! {
                _ = interrupts.recv() => (InterruptReason::User, true),
                _ = terminations.recv() => (InterruptReason::Terminated, true),
                _ = hang_ups.recv() => (InterruptReason::Terminated, false),
            };
            if noted.first().is_some() {
                if is_person {
                    // The log is whole at every moment; what is open in it is repaired on resume.
                    std::process::exit(exit_of(reason) as i32);
                }
                continue;
            }
            *noted.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
            if let Some(session) = session.upgrade() {
                let end = ControlCommand::EndSession(EndSession { reason });
                // Ending twice is ending once.
                let _ = session.handle(end, &peer);
            }
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || scheduler.block_on(watch))?;
    Ok(signals)
}
