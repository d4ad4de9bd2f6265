//! The searches without the pipeline around them, for the benches.

use std::path::Path;

use agent_tool_runtime::{Cancel, ValidationFailure};

use crate::path::Roots;
use crate::search::{count_files, count_matches};

/// Number of files beneath `root` that match `pattern`, listed as `glob` does.
///
/// # Errors
/// When the pattern or the directory is not usable.
pub fn glob(root: &Path, pattern: &str) -> Result<u64, ValidationFailure> {
    count_files(&roots(root)?, pattern, &Cancel::new())
}

/// Number of files, or with `lines` of lines, that match `pattern`, listed as `grep` does.
///
/// # Errors
/// When the pattern or the directory is not usable.
pub fn grep(root: &Path, pattern: &str, lines: bool) -> Result<u64, ValidationFailure> {
    count_matches(&roots(root)?, pattern, lines, &Cancel::new())
}

fn roots(root: &Path) -> Result<Roots, ValidationFailure> {
    Roots::open(root, None)
        .map_err(|error| ValidationFailure::new(agent_protocol::Code::IoError, error.to_string()))
}
