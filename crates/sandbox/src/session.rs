//! The sandbox of one session: what the machine can enforce, and the launcher that is kept
//! from one command to the next.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::launch::{Confined, LaunchError, Prepared, helper};
use crate::launcher::Launcher;
use crate::policy::{Mode, Policy};
use crate::probe::{Capabilities, probe, survey};
use crate::report::Level;
use crate::running::{Running, Sink};

/// Confines one command after the other. What the machine can do is asked for cheaply at
/// first; the first command confirms it, and if it cannot be kept nothing is run.
#[derive(Debug)]
pub struct Sandbox {
    known: Mutex<Survey>,
    /// Started by the first command.
    launcher: Mutex<Option<Arc<Launcher>>>,
}

#[derive(Debug)]
struct Survey {
    capabilities: Capabilities,
    /// Directory in which to try out what was only surveyed; `None` once it is certain.
    unconfirmed: Option<PathBuf>,
    /// Level announced before it turned out not to hold.
    promised: Option<Level>,
}

impl Sandbox {
    /// Finds out what can be enforced with a few system calls. Where those cannot tell, a
    /// whole sandbox is built below `scratch` and taken down again.
    pub fn survey(scratch: &Path) -> Self {
        match survey() {
            Some(capabilities) => Self::new(capabilities, Some(scratch.to_owned())),
            None => Self::of(probe(scratch)),
        }
    }

    /// With these capabilities, taken as they are.
    pub fn of(capabilities: Capabilities) -> Self {
        Self::new(capabilities, None)
    }

    fn new(capabilities: Capabilities, unconfirmed: Option<PathBuf>) -> Self {
        Self {
            known: Mutex::new(Survey {
                capabilities,
                unconfirmed,
                promised: None,
            }),
            launcher: Mutex::default(),
        }
    }

    /// Capabilities as far as they are known now.
    pub fn capabilities(&self) -> Capabilities {
        self.known().capabilities.clone()
    }

    /// Builds the sandbox around a command that does not run yet.
    pub fn prepare(&self, policy: &Policy) -> Result<Confined, LaunchError> {
        let capabilities = self.usable(policy)?;
        let outcome = self.attempt(policy, &capabilities);
        let confined = matches!(policy.mode, Mode::Required);
        match outcome {
            Err(LaunchError::Step { .. }) if confined && self.correct() => {
                let capabilities = self.usable(policy)?;
                self.attempt(policy, &capabilities)
            }
            outcome => {
                if outcome.is_ok() && confined {
                    self.known().unconfirmed = None;
                }
                outcome
            }
        }
    }

    /// [`Sandbox::prepare`] and [`Confined::start`] in one, for callers that record nothing in
    /// between.
    pub fn spawn(&self, policy: &Policy, sink: Sink) -> Result<Running, LaunchError> {
        self.prepare(policy)?.start(sink)
    }

    /// The capabilities, unless the decision about this command was made with better ones.
    fn usable(&self, policy: &Policy) -> Result<Capabilities, LaunchError> {
        let known = self.known();
        let level = known.capabilities.level();
        match known.promised {
            Some(promised)
                if matches!(policy.mode, Mode::Required)
                    && promised.may_run_unasked()
                    && !level.may_run_unasked() =>
            {
                Err(LaunchError::Unavailable {
                    reason: format!(
                        "the session began with the level `{}`, which turned out not to hold: {}",
                        promised.name(),
                        known.capabilities.reasons().join("; ")
                    ),
                })
            }
            _ => Ok(known.capabilities.clone()),
        }
    }

    /// Probes after the survey proved wrong; false if this machine was probed already.
    fn correct(&self) -> bool {
        let mut known = self.known();
        let Some(scratch) = known.unconfirmed.take() else {
            return false;
        };
        known.promised = Some(known.capabilities.level());
        known.capabilities = probe(&scratch);
        true
    }

    fn attempt(
        &self,
        policy: &Policy,
        capabilities: &Capabilities,
    ) -> Result<Confined, LaunchError> {
        let prepared = Prepared::new(policy, capabilities)?;
        let mut kept = self.launcher.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(launcher) = kept.as_ref() {
            match prepared.fork(launcher) {
                Ok(spawned) => {
                    drop(kept);
                    return prepared.complete(spawned);
                }
                // The launcher was killed. Nothing was run, so a new one may try.
                Err(LaunchError::HelperGone) => {}
                Err(error) => return Err(error),
            }
        }
        let launcher = kept.insert(Arc::new(Launcher::start().map_err(helper)?));
        let spawned = prepared.fork(launcher)?;
        drop(kept);
        prepared.complete(spawned)
    }

    fn known(&self) -> MutexGuard<'_, Survey> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
