//! The parser behind its limits.

use std::panic::{AssertUnwindSafe, catch_unwind};

use brush_parser::{Parser, ParserOptions, ast::Program};

use super::prescan::prescan;

/// Parses one script. The error is a clause that can follow "because".
pub(super) fn parse(script: &str) -> Result<Program, String> {
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
