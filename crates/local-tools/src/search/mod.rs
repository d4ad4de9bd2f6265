//! Searching the project: names with `glob`, content with `grep`.
//!
//! [`walk`] meets the files in parallel and counts what it leaves out by the [`rules`]; [`find`]
//! looks into them with ripgrep's searcher. Order and bounds come last, so that neither the number
//! of files nor the luck of the threads shows in the result.

mod find;
mod glob;
mod grep;
mod hide;
mod pattern;
mod rules;
mod scope;
pub(crate) mod walk;

pub(crate) use glob::GLOB;
pub use glob::listing;
pub(crate) use grep::GREP;
pub(crate) use scope::{Denied, denied_globs};
pub(crate) use walk::is_ignored;

use agent_protocol::Code;
use agent_tool_runtime::{Cancel, ValidationFailure};

use crate::path::Roots;
use find::{Search, Show};
use pattern::{Case, compile};
use scope::Scope;
use walk::Walk;

/// The whole of a `glob`, for benches.
pub(crate) fn count_files(
    roots: &Roots,
    pattern: &str,
    cancel: &Cancel,
) -> Result<u64, ValidationFailure> {
    let scope = Scope::new(roots, &|_| false, None, Some(("/pattern", pattern)), None)?;
    Ok(glob::list(whole(roots, &scope, cancel)?, &scope, 500).matched)
}

/// The whole of a `grep`, for benches.
pub(crate) fn count_matches(
    roots: &Roots,
    pattern: &str,
    lines: bool,
    cancel: &Cancel,
) -> Result<u64, ValidationFailure> {
    let scope = Scope::new(roots, &|_| false, None, None, None)?;
    let search = Search {
        matcher: compile(pattern, Case::Sensitive, false)?.matcher,
        show: if lines {
            Show::Lines { context: 0 }
        } else {
            Show::Files
        },
        limit: 250,
        multiline: false,
        journal: None,
    };
    let finding = search.run(whole(roots, &scope, cancel)?, &scope);
    Ok(if lines {
        finding.matches
    } else {
        finding.files
    })
}

fn whole<'a>(
    roots: &'a Roots,
    scope: &'a Scope,
    cancel: &'a Cancel,
) -> Result<Walk<'a>, ValidationFailure> {
    scope
        .walk(roots, &|_| false, cancel)
        .map_err(|error| ValidationFailure::new(Code::IoError, error.to_string()))
}
