//! `agent export`: a session's events for other programs.

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use agent_evidence::export::{
    Contents, ExportError, Exported, PackError, export_evidence, export_jsonl, export_portable,
};
use agent_evidence::replay::Range;
use agent_evidence::report::report;
use agent_log::{AnchorStore, SessionDirectory};
use agent_tui::ExportForm;
use anyhow::Context as _;
use clap::{Args, ValueEnum};

use super::replay;
use crate::app::App;
use crate::auditor::Auditor;
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::file::to_file_or_stdout;
use agent_text::counted;

const EXAMPLES: &str = "Examples:
  agent export last > session.jsonl
  agent export last --format portable
  agent export last --format evidence -o evidence.tar.zst
  agent export last --format review -o review.md";

/// Export a session: its events, an evidence pack, or a review
///
/// `jsonl` is the log, byte for byte. `portable` follows the published Agent Runtime event schema:
/// camelCase, only its event classes. `evidence` packs the log, artifacts, report, audit, hashes
/// and instructions to check them; the same session always gives the same bytes. `review` is
/// Markdown in which every fact refers to its event. Secrets are masked in every format; a pack has
/// masked copies of outputs that contain one, unless `--with-raw`. Exit code 1: the export is
/// incomplete, because some lines of the log are not events, artifacts are missing, or the output
/// could not be written. Exit code 2: the log cannot be read.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// A session: its number, title, id, or `last`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    format: Format,
    /// Evidence pack: include file contents before and after changes
    #[arg(long)]
    with_images: bool,
    /// Evidence pack: include command outputs unmasked, with any secrets in them
    #[arg(long)]
    with_raw: bool,
    /// Write to this file instead of standard output; it is replaced once the export is complete
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Jsonl,
    Portable,
    /// A `tar.zst` archive of log, artifacts, report, audit and hashes
    Evidence,
    /// Markdown with an event reference for every fact
    Review,
}

pub(crate) fn run(arguments: &ExportArgs, app: &App) -> Result<Exit, Failure> {
    let session = app.session(&arguments.session)?;
    let is_pack = matches!(arguments.format, Format::Evidence);
    if is_pack && arguments.output.is_none() && io::stdout().is_terminal() {
        return Err(
            Failure::usage("refusing to write a binary archive to the terminal")
                .hint("use `-o evidence.tar.zst`"),
        );
    }
    let file = arguments
        .output
        .as_ref()
        .map(|file| app.host.cwd.join(file));
    if !is_pack && (arguments.with_images || arguments.with_raw) {
        let flag = if arguments.with_raw {
            "--with-raw"
        } else {
            "--with-images"
        };
        return Err(
            Failure::usage(format!("`{flag}` only works with evidence packs"))
                .hint("add `--format evidence`"),
        );
    }
    let export = Export {
        app,
        session: &session,
        file: file.as_deref(),
        with_images: arguments.with_images,
        with_raw: arguments.with_raw,
    };
    let notes = export.write(arguments.format)?;
    for note in notes {
        app.output.note(&note);
    }
    Ok(Exit::Done)
}

/// The folder in `.agent` that exports from the screen go to.
const EXPORTS: &str = "exports";

/// What [`beside`] wrote.
pub(crate) struct Beside {
    pub(crate) file: PathBuf,
    /// What the reader of the file has to know.
    pub(crate) notes: Vec<String>,
}

/// Writes the session to a file that is named after it, in the project's folder for exports.
pub(crate) fn beside(
    app: &App,
    session: &SessionDirectory,
    form: ExportForm,
) -> Result<Beside, Failure> {
    let (format, ending) = match form {
        ExportForm::Jsonl => (Some(Format::Jsonl), "jsonl"),
        ExportForm::Portable => (Some(Format::Portable), "portable.jsonl"),
        ExportForm::Review => (Some(Format::Review), "review.md"),
        ExportForm::Evidence => (Some(Format::Evidence), "evidence.tar.zst"),
        ExportForm::Html => (None, "html"),
    };
    let folder = app.project.agent_dir().join(EXPORTS);
    // A repository may bring a link of this name.
    if folder.is_symlink() {
        return Err(Failure::usage(format!(
            "`{}` is a link; nothing was written",
            folder.display()
        )));
    }
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create `{}`", folder.display()))?;
    let file = folder.join(format!("{}.{ending}", session.id()));
    let notes = match format {
        Some(format) => {
            let export = Export {
                app,
                session,
                file: Some(&file),
                with_images: false,
                with_raw: false,
            };
            export.write(format)?
        }
        None => {
            let integrity = replay::write_page(app, session, Range::default(), Some(&file))?;
            let broken = (!integrity.is_intact()).then(|| not_intact(&integrity.in_words()));
            broken.into_iter().collect()
        }
    };
    Ok(Beside { file, notes })
}

/// A session on its way to a file, or to standard output.
struct Export<'a> {
    app: &'a App,
    session: &'a SessionDirectory,
    file: Option<&'a Path>,
    with_images: bool,
    with_raw: bool,
}

impl Export<'_> {
    /// Writes it and gives what has to be said about it.
    fn write(&self, format: Format) -> Result<Vec<String>, Failure> {
        match format {
            Format::Jsonl => self.lines(export_jsonl),
            Format::Portable => self.lines(export_portable),
            Format::Evidence => self.evidence(),
            Format::Review => self.review(),
        }
    }

    fn lines(
        &self,
        export: fn(&SessionDirectory, &mut dyn Write) -> Result<Exported, ExportError>,
    ) -> Result<Vec<String>, Failure> {
        let session = self.session;
        let exported = to_file_or_stdout(self.file, |out| {
            export(session, out).map_err(|error| {
                // A log that cannot be read is what `audit` calls unreadable; nothing was written
                // that could be taken for an export.
                let exit = match &error {
                    ExportError::Write(_) => Exit::Failed,
                    ExportError::Read(_) | ExportError::Place(_) => Exit::Usage,
                };
                let failure = anyhow::Error::from(error)
                    .context(format!("cannot export session {}", session.id()));
                Failure::from(failure).exit(exit)
            })
        })?;
        if exported.unreadable > 0 {
            let lines = counted(exported.unreadable, "line");
            let failure = anyhow::anyhow!("{lines} of the log could not be exported: not an event");
            return Err(self.ask_audit(failure));
        }
        let left_out = (exported.left_out > 0).then(|| {
            let events = counted(exported.left_out, "event");
            format!("omitted, because the portable format has no class for it: {events}")
        });
        Ok(left_out.into_iter().collect())
    }

    fn evidence(&self) -> Result<Vec<String>, Failure> {
        let doing = || format!("cannot pack session {}", self.session.id());
        let auditor = Auditor::new(self.app)?;
        let found = auditor.audit(self.session).with_context(doing).or_usage()?;
        let packed = to_file_or_stdout(self.file, |out| {
            let contents = Contents {
                images: self.with_images,
                masked_by: (!self.with_raw).then_some(&auditor.redactor),
            };
            let packed =
                export_evidence(self.session, Some(&auditor.anchors), &found, contents, out);
            let unmaskable = matches!(packed, Err(PackError::Unmaskable { .. }));
            let packed = packed.with_context(doing).or_fail();
            packed.map_err(|failure| match unmaskable {
                true => failure.hint(
                    "set the variable to the value it had, or use `--with-raw` to pack outputs as \
                     they are",
                ),
                false => failure,
            })
        })?;
        if packed.missing > 0 {
            let missing = counted(packed.missing, "artifact");
            let failure = anyhow::anyhow!("{missing} of the log could not be packed");
            return Err(self.ask_audit(failure));
        }
        let left_out = (packed.left_out > 0).then(|| {
            format!(
                "omitted: {} of files before and after changes (use `--with-images` to include \
                 them)",
                counted(packed.left_out, "image")
            )
        });
        let masked = match (self.with_raw, packed.masked) {
            (true, _) => {
                "unmasked: command output is included as is, with any secrets in it".to_owned()
            }
            (false, 0) => "masked: nothing to mask in any artifact".to_owned(),
            (false, 1) => "masked: 1 artifact is a masked copy (use `--with-raw` to include the \
                 original)"
                .to_owned(),
            (false, count) => format!(
                "masked: {count} artifacts are masked copies (use `--with-raw` to include the \
                 originals)"
            ),
        };
        let broken = (!found.is_ok()).then(|| not_intact("see audit.json"));
        let notes = left_out.into_iter().chain([masked]).chain(broken);
        Ok(notes.collect())
    }

    fn review(&self) -> Result<Vec<String>, Failure> {
        let anchors = AnchorStore::new(&self.app.host.directories.state);
        let report = report(self.session, Some(&anchors))
            .with_context(|| format!("cannot review session {}", self.session.id()))
            .or_usage()?;
        to_file_or_stdout(self.file, |out| {
            out.write_all(report.to_review().as_bytes())
                .context("cannot print the review")
                .or_fail()
        })?;
        Ok(Vec::new())
    }

    fn ask_audit(&self, failure: anyhow::Error) -> Failure {
        let session = self.session.id();
        Failure::from(failure).hint(format!("`agent audit {session}` lists them"))
    }
}

fn not_intact(why: &str) -> String {
    format!("the record in it is not intact: {why}")
}
