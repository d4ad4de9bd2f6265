//! An audit as this machine can make it: with its anchors, its settings, and what the engine knows
//! about verifications and claims. `audit`, `replay` and `export` all look with these eyes.

use agent_engine::verification::{CheckRun, Runner, Shown, Track, checks_in, claims, recognise};
use agent_evidence::audit::{
    AuditError, AuditReport, Checks, JudgedCheck, ReadClaim, VerificationRun, audit_deleted,
    audit_with,
};
use agent_log::{AnchorStore, Redactor, SessionDirectory};
use agent_policy::shell::commands_behind_exit;
use agent_protocol::id::SessionId;

use crate::app::App;
use crate::config::{self, SettingArgs};
use crate::failure::{Failure, OrFail as _};
use agent_runtime::session::verification_patterns;

/// What an audit looks with.
pub(crate) struct Auditor {
    pub(crate) anchors: AnchorStore,
    /// Knows what should have been masked.
    pub(crate) redactor: Redactor,
    verification_patterns: Vec<Vec<String>>,
}

impl Auditor {
    /// Settings that cannot be read do not stop an audit: it then knows what is built in, and says
    /// so.
    pub(crate) fn new(app: &App) -> Result<Self, Failure> {
        let config = config::load(&app.host, &app.project, &SettingArgs::default());
        let config = config
            .inspect_err(|_| {
                app.output.note(
                    "cannot read the settings (see `agent doctor`): your own redaction patterns \
                     are not checked",
                );
            })
            .ok();
        let rules = app.redaction_rules(config.as_ref());
        Ok(Self {
            anchors: AnchorStore::new(&app.host.directories.state),
            redactor: Redactor::new(rules, &app.host.known_redaction_key()).or_usage()?,
            verification_patterns: config
                .as_ref()
                .map(verification_patterns)
                .unwrap_or_default(),
        })
    }

    pub(crate) fn audit(&self, session: &SessionDirectory) -> Result<AuditReport, AuditError> {
        let judge = |command: &str, exit_code: i32, statuses: Option<&[i32]>| {
            let found = checks_in(
                command,
                exit_code,
                statuses,
                None,
                &self.verification_patterns,
            );
            let judged = found.into_iter().map(|found| JudgedCheck {
                check: found.check,
                exit_code: found.exit_code,
            });
            judged.collect()
        };
        let verifies = |command: &str| {
            let judged: Vec<JudgedCheck> = judge(command, 0, None);
            !judged.is_empty()
        };
        let decides = |command: &str| {
            let mut behind = commands_behind_exit(command).into_iter();
            behind.any(|words| recognise(&words, &self.verification_patterns).is_some())
        };
        let checks = Checks {
            anchors: Some(&self.anchors),
            redactor: Some(&self.redactor),
            claims: Some(&read_claims),
            verifies: Some(&verifies),
            decides: Some(&decides),
            judge: Some(&judge),
        };
        audit_with(session, checks)
    }

    /// The audit of a session that only its anchor still knows.
    pub(crate) fn deleted(&self, id: &SessionId) -> Result<Option<AuditReport>, AuditError> {
        audit_deleted(id, &self.anchors)
    }
}

/// The claims in a text with what these runs show of them.
fn read_claims(text: &str, runs: &[VerificationRun]) -> Vec<ReadClaim> {
    let mut track = Track::default();
    for run in runs {
        let Some(evidence) = &run.evidence else {
            track.ran(&run.command, run.exit_code.unwrap_or(-1));
            continue;
        };
        let words: Vec<String> = run.command.split_whitespace().map(str::to_owned).collect();
        let words = evidence.check.as_ref().unwrap_or(&words);
        let kept = CheckRun::of(evidence, 0);
        track.verified(Shown {
            evidence_id: Some(evidence.evidence_id.clone()),
            command: run.command.clone(),
            check: kept.check.unwrap_or_default(),
            cwd: kept.cwd,
            // It is recorded as a verification, so something recognised it then.
            runner: recognise(words, &[]).unwrap_or(Runner::Configured),
            status: kept.status,
            reason: kept.reason,
            stale: run.stale,
        });
    }
    let judged = claims::judge(text, &track).into_iter();
    let read = judged.map(|judged| ReadClaim {
        text: judged.claim.sentence,
        verdict: judged.verdict,
        evidence_id: judged.run.and_then(|run| run.evidence_id),
    });
    read.collect()
}
