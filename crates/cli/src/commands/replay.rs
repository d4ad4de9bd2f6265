//! `agent replay`: a past session told again. Runs nothing, changes nothing, opens no connection.

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use agent_evidence::audit::AuditReport;
use agent_evidence::replay::text::{self, TextForm, TextWriter};
use agent_evidence::replay::{Card, CardError, Entry, Integrity, Range, Streamed, Timeline, html};
use agent_evidence::replay::{Lineage, parent_of, replay_each, tell_inherited};
use agent_log::{AnchorStore, SessionDirectory};
use agent_protocol::id::ArtifactId;
use anyhow::Context as _;
use clap::{Args, ValueEnum};

use crate::app::App;
use crate::auditor::Auditor;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::file::to_file_or_stdout;
use crate::screen;

/// How much of an artifact is put into a page.
const SHOWN_ARTIFACT: u64 = 256 * 1024;

const EXAMPLES: &str = "Examples:
  agent replay last                          in the player, or as text
  agent replay last --call 3                 the audit card of the third call
  agent replay last --format html -o run.html   one file for a pull request
  agent replay last --to 120                 the session as of event 120
  agent replay last --format json | jq '.calls[] | .decision'";

/// Replay a past session from its record
///
/// Shows what was asked, decided, confined, run and changed, as recorded. Nothing is run again,
/// nothing is changed and no connection is opened. What the record does not show is `unknown`. A
/// fork is replayed from the start of the session it came from; inherited events are marked.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayArgs {
    /// A session: its number, title, id, `last`, or a session directory
    #[arg(value_name = "SESSION", default_value = "last")]
    session: String,
    /// Output format [default: the player on a terminal, else text]
    #[arg(long, value_name = "FORM")]
    format: Option<Form>,
    /// Show the audit card of one call: its number in the replay, its id, or a unique prefix of it
    #[arg(long, value_name = "CALL")]
    call: Option<String>,
    /// Show the session as of this event; in the player, start there
    #[arg(long, value_name = "SEQ", conflicts_with = "to")]
    at: Option<u64>,
    /// First event to show
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,
    /// Last event to show; later events are ignored
    #[arg(long, value_name = "SEQ")]
    to: Option<u64>,
    /// Also show bookkeeping events, facts and complete outputs
    #[arg(long)]
    all: bool,
    /// Also check the hash chain, anchor and artifacts; exit code 1 if any check fails
    #[arg(long)]
    verify: bool,
    /// Write to this file instead of standard output; it is replaced once the output is complete
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Tui,
    Text,
    Json,
    Html,
}

pub(crate) fn run(arguments: &ReplayArgs, app: &App) -> Result<Exit, Failure> {
    let session = app.session(&arguments.session)?;
    let range = Range {
        from: arguments.from,
        to: arguments.to.or(arguments.at),
    };
    if let (Some(from), Some(to)) = (range.from, range.to)
        && from > to
    {
        return Err(Failure::usage(format!(
            "event {from} comes after event {to}: nothing to show"
        )));
    }
    let form = arguments.format.unwrap_or_else(|| arguments.default_form());
    if let Some(call) = &arguments.call {
        card(arguments, app, &session, call, range, form)?;
    } else {
        match form {
            Form::Tui => return screen::replay(app, &session, arguments.at),
            Form::Text => as_text(arguments, app, &session, range)?,
            Form::Json => as_json(arguments, app, &session, range)?,
            Form::Html => as_html(arguments, app, &session, range)?,
        }
    }
    if !arguments.verify {
        return Ok(Exit::Done);
    }
    let report = audited(&session, &Auditor::new(app)?)?;
    if report.is_ok() {
        app.output
            .note("hash chain, anchor and artifacts are intact");
        return Ok(Exit::Done);
    }
    Err(Failure::from(anyhow::anyhow!(
        "the record of {} is not intact: {} findings",
        session.id(),
        report.errors
    ))
    .hint(format!("`agent audit {}` lists them", session.id())))
}

impl ReplayArgs {
    fn default_form(&self) -> Form {
        let on_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        let is_whole = self.output.is_none() && self.call.is_none() && self.to.is_none();
        if on_terminal && is_whole && self.from.is_none() && !self.all {
            Form::Tui
        } else {
            Form::Text
        }
    }

    fn text_form(&self, app: &App) -> TextForm {
        TextForm {
            // A file is read by somebody else, later: it gets the width everybody has.
            width: if self.output.is_some() {
                80
            } else {
                app.output.width()
            },
            color: self.output.is_none() && app.output.has_color(),
            all: self.all,
        }
    }
}

fn anchors(app: &App) -> AnchorStore {
    AnchorStore::new(&app.host.directories.state)
}

fn audited(session: &SessionDirectory, auditor: &Auditor) -> Result<AuditReport, Failure> {
    auditor
        .audit(session)
        .with_context(|| format!("cannot check session {}", session.id()))
        .or_usage()
}

fn doing(session: &SessionDirectory) -> impl Fn() -> String {
    let id = session.id().clone();
    move || format!("cannot replay session {id}")
}

fn card(
    arguments: &ReplayArgs,
    app: &App,
    session: &SessionDirectory,
    call: &str,
    range: Range,
    form: Form,
) -> Result<(), Failure> {
    let card = Card::read(session, call, range).map_err(|error| {
        let hint = match &error {
            CardError::NotFound { .. } | CardError::Ambiguous { .. } => {
                format!(
                    "`agent replay {} --format text` numbers the calls",
                    session.id()
                )
            }
            CardError::Replay(_) => format!("see `agent audit {}`", session.id()),
        };
        Failure::from(anyhow::Error::from(error))
            .exit(Exit::Usage)
            .hint(hint)
    })?;
    let file = arguments.file(app);
    to_file_or_stdout(file.as_deref(), |out| {
        let shown = match form {
            Form::Json => app.output.json_text(&card.to_json()).or_fail()?,
            Form::Text | Form::Tui => text::card(&card, arguments.text_form(app)),
            Form::Html => {
                return Err(Failure::usage("a card cannot be written as HTML").hint(
                    "use `--format text` or `--format json`; the page of the session links \
                        to each call",
                ));
            }
        };
        writeln!(out, "{}", shown.trim_end()).or_fail()
    })
}

fn as_text(
    arguments: &ReplayArgs,
    app: &App,
    session: &SessionDirectory,
    range: Range,
) -> Result<(), Failure> {
    let file = arguments.file(app);
    let integrity = to_file_or_stdout(file.as_deref(), |out| {
        let mut writer = TextWriter::new(out, arguments.text_form(app));
        if range.from.is_none() {
            tell_past(&mut writer, session)
                .context("cannot print the replay")
                .or_fail()?;
        }
        // The log is read to its end even if nobody reads what we print: an error is kept for then.
        let mut written = Ok(());
        let each = |entry: Entry, _| {
            if written.is_ok() {
                written = writer.entry(&entry);
            }
        };
        let told: (Timeline, Integrity) = replay_each(session, Some(&anchors(app)), range, each)
            .with_context(doing(session))
            .or_usage()?;
        written.context("cannot print the replay").or_fail()?;
        writer
            .finish(&told.0, &told.1)
            .context("cannot print the replay")
            .or_fail()?;
        Ok(told.1)
    })?;
    warn(&integrity, session, app);
    Ok(())
}

/// Tells what a branch has in common with the session it came from.
fn tell_past(writer: &mut TextWriter<impl Write>, session: &SessionDirectory) -> io::Result<()> {
    let Some(parent) = parent_of(session) else {
        return Ok(());
    };
    writer.begin_inherited(&parent)?;
    let mut written = Ok(());
    let told = tell_inherited(session, |entry, _| {
        if written.is_ok() {
            written = writer.entry(&entry);
        }
    });
    written?;
    writer.end_inherited(&Lineage { parent, told })
}

fn as_json(
    arguments: &ReplayArgs,
    app: &App,
    session: &SessionDirectory,
    range: Range,
) -> Result<(), Failure> {
    let told = Streamed::read(session, Some(&anchors(app)), range)
        .with_context(doing(session))
        .or_usage()?;
    let file = arguments.file(app);
    to_file_or_stdout(file.as_deref(), |out| {
        app.output
            .json_to(out, &told)
            .context("cannot print the replay")
            .or_fail()
    })?;
    warn(&told.integrity, session, app);
    Ok(())
}

fn as_html(
    arguments: &ReplayArgs,
    app: &App,
    session: &SessionDirectory,
    range: Range,
) -> Result<(), Failure> {
    let file = arguments.file(app);
    let integrity = write_page(app, session, range, file.as_deref())?;
    warn(&integrity, session, app);
    Ok(())
}

/// Writes the session as one page, and says whether its record is intact.
pub(crate) fn write_page(
    app: &App,
    session: &SessionDirectory,
    range: Range,
    file: Option<&Path>,
) -> Result<Integrity, Failure> {
    let told = Streamed::read(session, Some(&anchors(app)), range)
        .with_context(doing(session))
        .or_usage()?;
    // The log is masked already; artifacts that are shown beside it are masked with the same eyes.
    let auditor = Auditor::new(app)?;
    let report = audited(session, &auditor)?;
    let store = session.artifacts().ok();
    let artifact = |id: &ArtifactId| {
        let bytes = store.as_ref()?.read(id, SHOWN_ARTIFACT).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        Some(auditor.redactor.mask(&text).into_owned())
    };
    let page = html::Page {
        told: &told,
        audit: Some(&report),
        artifact: &artifact,
    };
    to_file_or_stdout(file, |out| {
        html::write(&page, out)
            .context("cannot write the page")
            .or_fail()
    })?;
    Ok(told.integrity)
}

fn warn(integrity: &Integrity, session: &SessionDirectory, app: &App) {
    if !integrity.is_intact() {
        app.output.problem(&format!(
            "the record is not intact: {}; see `agent audit {}`",
            integrity.in_words(),
            session.id()
        ));
    }
}

impl ReplayArgs {
    fn file(&self, app: &App) -> Option<PathBuf> {
        self.output.as_ref().map(|file| app.host.cwd.join(file))
    }
}
