//! Ctrl-C, a closed terminal and SIGTERM during a headless run: the first one ends the turn with its
//! facts written, a second Ctrl-C or SIGTERM ends the process. A terminal that closes tells more than
//! once, by the kernel and by the shell, and nobody is impatient there.

use std::io;

use agent_engine::{Interrupt, InterruptReason};
use tokio::signal::unix::{SignalKind, signal};

/// Watches until the runtime ends.
pub(super) fn watch(interrupt: &Interrupt) -> io::Result<()> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut hang_ups = signal(SignalKind::hangup())?;
    let interrupt = interrupt.clone();
    tokio::spawn(async move {
        loop {
            let (reason, is_person) = tokio::select! {
                _ = interrupts.recv() => (InterruptReason::User, true),
                _ = terminations.recv() => (InterruptReason::Terminated, true),
                _ = hang_ups.recv() => (InterruptReason::Terminated, false),
            };
            if interrupt.reason().is_some() {
                if !is_person {
                    continue;
                }
                // The log is whole at every moment; what is open in it is repaired on resume.
                std::process::exit(if reason == InterruptReason::User {
                    130
                } else {
                    143
                });
            }
            interrupt.raise(reason);
        }
    });
    Ok(())
}
