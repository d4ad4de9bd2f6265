//! Programs of the same name: another well-known one is called `agent` too, and the shell runs the first it
//! finds.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use super::Check;
use crate::app::App;
use crate::host;

const NAME: &str = "name";

/// Programs that the shell finds under our name.
#[derive(Debug, Default)]
struct Found {
    /// Other programs before this one, and when this one is not there, all others.
    before: Vec<PathBuf>,
    /// Others that this one hides.
    after: Vec<PathBuf>,
    is_there: bool,
}

/// The programs that are called `name`, in the order of PATH; `own` is this one.
fn look(search: &[u8], name: &str, own: &Path) -> Found {
    let mut found = Found::default();
    for directory in search.split(|byte| *byte == b':') {
        let file = Path::new(std::ffi::OsStr::from_bytes(directory)).join(name);
        let is_program =
            file.is_absolute() && file.is_file() && access(&file, AccessFlags::X_OK).is_ok();
        if !is_program {
            continue;
        }
        let real = fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
        if real == own {
            found.is_there = true;
        } else if found.is_there {
            found.after.push(file);
        } else {
            found.before.push(file);
        }
    }
    found
}

fn here(app: &App) -> Option<(Found, PathBuf)> {
    let own = host::own_file()?;
    let search = app.host.environment.get("PATH").unwrap_or_default();
    Some((look(search.as_bytes(), host::called_as(), &own), own))
}

/// Advice on a second name.
fn second_name(app: &App, own: &Path) -> String {
    let folder = app.runtime.home().join(".local/bin");
    format!(
        "give this one a second name: `ln -s {} {}/my-agent`; it speaks of itself by the name it is called by",
        own.display(),
        folder.display()
    )
}

pub(super) fn name(app: &App) -> Check {
    let name = host::called_as();
    let Some((found, own)) = here(app) else {
        return Check::ok(NAME, format!("called as `{name}`"));
    };
    match (found.before.first(), found.after.first()) {
        (Some(other), _) => Check::warning(
            NAME,
            format!(
                "`{name}` in a shell runs `{}`, another program",
                other.display()
            ),
            second_name(app, &own),
        ),
        (None, Some(other)) => Check::warning(
            NAME,
            format!("this program hides another `{name}`: `{}`", other.display()),
            second_name(app, &own),
        ),
        (None, None) if found.is_there => {
            Check::ok(NAME, format!("`{name}` in a shell runs this program"))
        }
        (None, None) => Check::ok(
            NAME,
            format!(
                "this program is not in PATH, nor is another `{name}` ({})",
                own.display()
            ),
        ),
    }
}

/// Another program that the shell would run in place of this one, and how to live with it.
pub(crate) fn other_program(app: &App) -> Option<String> {
    let (found, own) = here(app)?;
    let other = found.before.first()?;
    Some(format!(
        "`{}` in a shell runs `{}`, another program: {}",
        host::called_as(),
        other.display(),
        second_name(app, &own)
    ))
}
