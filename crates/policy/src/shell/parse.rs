//! The parser behind its limits.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use brush_parser::{Parser, ParserOptions, ast::Program};

use super::prescan::prescan;

/// A parsed script, or a clause that can follow "because".
type Parsed = Result<Arc<Program>, String>;

/// Scripts that stay parsed.
const KEPT: usize = 4;

/// The scripts that were parsed last: what judges a command, what looks at how it ended and what folds the log read
/// the same text one after the other.
static LAST: Mutex<VecDeque<(String, Parsed)>> = Mutex::new(VecDeque::new());

static PARSES: AtomicU64 = AtomicU64::new(0);

/// The number of scripts this process has parsed: the most expensive step of judging a command.
#[must_use]
pub fn parses() -> u64 {
    PARSES.load(Ordering::Relaxed)
}

/// Parses one script, unless it is one of the last. The error is a clause that can follow "because".
pub(super) fn parse(script: &str) -> Parsed {
    let last = || LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let known = last().iter().find(|(text, _)| text == script).cloned();
    if let Some((_, parsed)) = known {
        return parsed;
    }
    PARSES.fetch_add(1, Ordering::Relaxed);
    let parsed = parse_anew(script).map(Arc::new);
    let mut last = last();
    last.truncate(KEPT - 1);
    last.push_front((script.to_owned(), parsed.clone()));
    parsed
}

fn parse_anew(script: &str) -> Result<Program, String> {
    prescan(script).map_err(|refusal| refusal.to_string())?;
    let options = ParserOptions {
        // `bash -c` starts with extended globs off.
        enable_extended_globbing: false,
        ..ParserOptions::default()
    };
    // The parser is not ours; a panic inside it is one more script that could not be understood.
    catch_unwind(AssertUnwindSafe(|| {
        Parser::new(script.as_bytes(), &options).parse_program()
    }))
    .map_err(|_| "the script could not be parsed".to_owned())?
    .map_err(|error| format!("the script could not be parsed: {error}"))
}
