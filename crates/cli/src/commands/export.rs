//! `agent export`: a session's events for other programs.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use agent_session::SessionDirectory;
use agent_session::export::{Exported, export_jsonl, export_portable};
use anyhow::Context as _;
use clap::{Args, ValueEnum};

use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::counted;

/// Write a session's events as JSON lines
///
/// `jsonl` is the log byte by byte. `portable` is what readers of the published Agent Runtime event
/// schema understand: camelCase, its classes only. No artifact is exported. Exit code 1 means that
/// some lines of the log are not events and could not be exported.
#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    /// Id, a beginning of it that only one session has, or `last`
    #[arg(value_name = "SESSION")]
    session: String,
    /// The form to write
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    format: Format,
    /// Write to this file instead of standard output; it is replaced when the export is whole
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Jsonl,
    Portable,
}

pub(crate) fn run(arguments: &ExportArgs, app: &App) -> Result<Exit, Failure> {
    let session = app.session(&arguments.session)?;
    let exported = match &arguments.output {
        Some(file) => to_file(&session, arguments.format, &app.host.cwd.join(file))?,
        None => {
            let stdout = io::stdout().lock();
            write(&session, arguments.format, &mut BufWriter::new(stdout))?
        }
    };
    if exported.left_out > 0 {
        let events = counted(exported.left_out, "event");
        app.output.note(&format!(
            "left out, because the portable form has no class for it: {events}"
        ));
    }
    if exported.unreadable > 0 {
        let lines = counted(exported.unreadable, "line");
        let failure = anyhow::anyhow!("{lines} of the log could not be exported: no event");
        return Err(
            Failure::from(failure).hint(format!("`agent audit {}` names them", session.id()))
        );
    }
    Ok(Exit::Done)
}

fn write(
    session: &SessionDirectory,
    format: Format,
    out: &mut dyn Write,
) -> Result<Exported, Failure> {
    let exported = match format {
        Format::Jsonl => export_jsonl(session, out),
        Format::Portable => export_portable(session, out),
    };
    exported
        .with_context(|| format!("cannot export session {}", session.id()))
        .or_fail()
}

/// Writes beside the target and renames, so that no half export ever has its name.
fn to_file(session: &SessionDirectory, format: Format, file: &Path) -> Result<Exported, Failure> {
    let doing = || format!("cannot write `{}`", file.display());
    let name = file.file_name().with_context(doing).or_usage()?;
    let mut draft_name = name.to_owned();
    draft_name.push(format!(".{}.part", std::process::id()));
    let draft = file.with_file_name(draft_name);
    let written = File::create_new(&draft)
        .with_context(doing)
        .or_usage()
        .and_then(|created| write(session, format, &mut BufWriter::new(created)));
    let exported = written.inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    })?;
    fs::rename(&draft, file).with_context(doing)?;
    Ok(exported)
}
