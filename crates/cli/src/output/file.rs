//! Writing a result to a file or to standard output. A file is replaced when the whole of it is
//! there, so no half result ever has its name.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use agent_fs::{Dir, TempFile};
use anyhow::Context as _;

use crate::failure::{Failure, OrFail as _};

/// Gives `write` the place to write to: `file`, or standard output.
pub(crate) fn to_file_or_stdout<T>(
    file: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> Result<T, Failure>,
) -> Result<T, Failure> {
    match file {
        Some(file) => to_file(file, write),
        None => {
            let mut out = BufWriter::new(io::stdout().lock());
            let done = write(&mut out)?;
            out.flush().context("cannot print").or_fail()?;
            Ok(done)
        }
    }
}

fn to_file<T>(
    file: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let doing = || format!("cannot write `{}`", file.display());
    let name = file.file_name().with_context(doing).or_usage()?;
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut draft_name = name.to_owned();
    draft_name.push(format!(".{}.part", std::process::id()));
    let draft = Dir::open(folder)
        .and_then(|folder| TempFile::named(&folder, &draft_name, 0o666))
        .with_context(doing)
        .or_usage()?;
    let mut out = BufWriter::new(draft.file());
    let done = write(&mut out)?;
    out.flush().with_context(doing).or_fail()?;
    drop(out);
    draft.replace(name).with_context(doing)?;
    Ok(done)
}
