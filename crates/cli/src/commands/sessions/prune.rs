//! `agent sessions prune`: removes old artifacts, and says so in the log before the bytes go.

use agent_log::{PrunePlan, PrunePolicy, SessionDirectory, plan_prune, prune};
use agent_protocol::Timestamp;
use agent_protocol::id::{ArtifactId, SessionId};
use agent_protocol::payload::conversation::ArtifactKind;
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::config::{self, SettingArgs, Size, Span};
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::{Table, Tone};

/// Remove artifacts of old or large sessions
///
/// Without `--yes`, only shows what would be removed. Logs are never removed, and each removal is
/// recorded in the log of its session. Defaults come from the settings `retention.max_age` and
/// `retention.max_size`.
#[derive(Args, Debug)]
pub(crate) struct PruneArgs {
    /// Only these sessions
    #[arg(value_name = "SESSION")]
    sessions: Vec<String>,
    /// Remove artifacts of sessions not written for this long, such as `30d` or `12h`
    #[arg(long, value_name = "AGE")]
    older_than: Option<Span>,
    /// Remove the oldest artifacts of each session until it fits in this size, such as `100MB`
    #[arg(long, value_name = "SIZE")]
    max_size: Option<Size>,
    /// Also remove saved file contents, which undo needs
    #[arg(long)]
    before_images: bool,
    /// Do it, instead of only showing what would be removed
    #[arg(long)]
    yes: bool,
    /// Print one JSON object (docs/schemas/sessions-prune.schema.json)
    #[arg(long)]
    json: bool,
}

/// What `agent sessions prune --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PruneReport {
    /// Whether anything was removed, or only would be.
    removed: bool,
    /// The size of what was or would be removed.
    bytes: u64,
    sessions: Vec<PrunedSession>,
    /// Sessions that could not be pruned.
    failed: Vec<NotPruned>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct NotPruned {
    session_id: SessionId,
    why: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct PrunedSession {
    session_id: SessionId,
    bytes: u64,
    artifacts: Vec<PrunedArtifact>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct PrunedArtifact {
    artifact_id: ArtifactId,
    kind: ArtifactKind,
    bytes: u64,
    /// Why it goes, as the log says it.
    rule: String,
}

pub(super) fn run(arguments: &PruneArgs, app: &App) -> Result<Exit, Failure> {
    let policy = policy(arguments, app)?;
    let mut report = PruneReport {
        removed: arguments.yes,
        bytes: 0,
        sessions: Vec::new(),
        failed: Vec::new(),
    };
    for session in app.chosen_sessions(&arguments.sessions)? {
        // A directory in which no session ever began holds nothing, and one session that cannot be
        // pruned must not keep the others.
        if session.log_bytes().is_none() && !session.log_path().is_symlink() {
            continue;
        }
        match prune_one(&session, &policy, arguments.yes, app) {
            Ok(plan) if plan.expiring.is_empty() => {}
            Ok(plan) => {
                report.bytes += plan.bytes();
                report.sessions.push(PrunedSession::of(plan));
            }
            Err(failure) => {
                let why = failure.in_words();
                app.output.problem(&why);
                let session_id = session.id().clone();
                report.failed.push(NotPruned { session_id, why });
            }
        }
    }
    let exit = if report.failed.is_empty() {
        Exit::Done
    } else {
        Exit::Failed
    };
    let doing = "cannot print what was removed";
    if arguments.json {
        app.output.json(&report).context(doing)?;
        return Ok(exit);
    }
    if report.sessions.is_empty() {
        app.output.note("nothing to remove");
        return Ok(exit);
    }
    let mut table = Table::new(&["session", ">artifacts", ">bytes"]);
    for session in &report.sessions {
        table.row([
            session.session_id.to_string(),
            session.artifacts.len().to_string(),
            agent_text::words::bytes(session.bytes),
        ]);
    }
    app.output.table(&table, Tone::Heading).context(doing)?;
    let size = agent_text::words::bytes(report.bytes);
    let sum = if arguments.yes {
        format!("{size} removed; recorded in the logs")
    } else {
        format!("{size} would be removed; use `--yes` to remove it")
    };
    app.output.print(&sum).context(doing)?;
    Ok(exit)
}

/// Says what goes, and lets it go if that is wanted.
fn prune_one(
    session: &SessionDirectory,
    policy: &PrunePolicy,
    removes: bool,
    app: &App,
) -> Result<PrunePlan, Failure> {
    let doing = || format!("cannot prune session {}", session.id());
    let plan = plan_prune(session, policy).with_context(doing).or_fail()?;
    if removes && !plan.expiring.is_empty() {
        let env = app.session_env("agent sessions prune")?;
        prune(session, &plan, env).or_fail()?;
    }
    Ok(plan)
}

fn policy(arguments: &PruneArgs, app: &App) -> Result<PrunePolicy, Failure> {
    let settings = config::load(&app.host, &app.project, &SettingArgs::default())?;
    let retention = settings.retention;
    let age = arguments
        .older_than
        .clone()
        .or(retention.max_age.map(|age| age.value));
    let size = arguments
        .max_size
        .clone()
        .or(retention.max_size.map(|size| size.value));
    if age.is_none() && size.is_none() {
        return Err(Failure::usage("no limit is set")
            .hint("use `--older-than 30d` or `--max-size 100MB`, or set `[retention]`"));
    }
    let now = app.host.clock.now().unix_millis();
    let before = |age: &Span| {
        let millis = i64::try_from(age.duration().as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_unix_millis(now.saturating_sub(millis))
    };
    Ok(PrunePolicy {
        older_than: age.as_ref().map(before),
        keep_bytes: size.map(|size| size.bytes()),
        include_before_images: arguments.before_images,
    })
}

impl PrunedSession {
    fn of(plan: PrunePlan) -> Self {
        Self {
            bytes: plan.bytes(),
            session_id: plan.session_id,
            artifacts: plan
                .expiring
                .into_iter()
                .map(|expiring| PrunedArtifact {
                    artifact_id: expiring.artifact_id,
                    kind: expiring.kind,
                    bytes: expiring.bytes,
                    rule: expiring.rule,
                })
                .collect(),
        }
    }
}
