//! Reading one layer: text in, typed values with their places out, or an error that names the
//! file, the line, the column and what was probably meant.

use std::io::{self, Read as _};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use toml::de::DeTable;

use super::origin::{Layer, Origin, Place};
use super::sections::ConfigFile;
use crate::error::{Context as _, OrFail as _, RuntimeError};
use agent_text::nearest;

/// More than any person writes; a larger file is a mistake or an attack.
const MAX_BYTES: u64 = 1 << 20;

/// One source of settings that was read.
pub struct LayerValues {
    pub layer: Layer,
    pub values: ConfigFile,
    /// Whether it may loosen anything. Always so for layers that cannot come with a repository.
    pub trusted: bool,
    pub source: Source,
}

/// What the spans of a layer's values refer to.
pub enum Source {
    /// A file and its text.
    File { path: Arc<Path>, text: String },
    /// Flags or variables by the key they set.
    Names(Vec<(&'static str, &'static str)>),
}

impl LayerValues {
    /// Where the value of `key` at `span` was written.
    pub fn origin(&self, key: &str, span: &Range<usize>) -> Origin {
        let place = match &self.source {
            Source::File { path, text } => {
                let (line, column) = line_and_column(text, span.start);
                let path = Arc::clone(path);
                Place::File { path, line, column }
            }
            Source::Names(names) => names
                .iter()
                .find(|(known, _)| *known == key)
                .map_or(Place::Code, |(_, name)| Place::Name(name)),
        };
        Origin {
            layer: self.layer,
            place,
        }
    }
}

/// The text of a settings file, or nothing when there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<String>, RuntimeError> {
    let doing = || format!("cannot read `{}`", path.display());
    let file = match agent_fs::open_regular(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(error).with_context(doing).or_usage(),
    };
    let mut bytes = Vec::new();
    // One byte past the cap tells "exactly full" from "too large" without asking for the size.
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(doing)
        .or_usage()?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("larger than {MAX_BYTES} bytes"))
            .with_context(doing)
            .or_usage();
    }
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|error| format!("byte {} is not UTF-8", error.utf8_error().valid_up_to() + 1))
        .with_context(doing)
        .or_usage()
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Understands the text of a settings file.
pub(super) fn parse(path: &Path, text: &str) -> Result<ConfigFile, RuntimeError> {
    toml::from_str(text).map_err(|error| explain(path, text, &error))
}

fn explain(path: &Path, text: &str, error: &toml::de::Error) -> RuntimeError {
    let span = error.span().unwrap_or(0..0);
    let (line, column) = line_and_column(text, span.start);
    let names = quoted(error.message());
    let says = |words: &str| error.message().contains(words);
    let (message, hint) = match names.as_slice() {
        [found, known @ ..] if error.message().starts_with("unknown field") => {
            let parent = parent_key(text, &span);
            let with_parent = |name: &str| match parent.as_str() {
                "" => name.to_owned(),
                parent => format!("{parent}.{name}"),
            };
            let hint = match (
                elsewhere(&parent, found, known),
                nearest(found, known.iter().copied()),
            ) {
                (Some(there), _) => format!("did you mean `{there}`?"),
                (None, Some(near)) => format!("did you mean `{}`?", with_parent(near)),
                (None, None) => format!("known here: {}", known.join(", ")),
            };
            (format!("unknown key `{}`", with_parent(found)), Some(hint))
        }
        [found, known @ ..] if says("unknown variant") || says("is not one of") => {
            let near = nearest(found, known.iter().copied());
            let hint = near.map(|near| format!("did you mean `{near}`?"));
            (in_words(error.message()), hint)
        }
        _ => (in_words(error.message()), None),
    };
    let failure = RuntimeError::usage(format!(
        "cannot load `{}`: line {line}, column {column}: {message}",
        path.display()
    ));
    hint.into_iter().fold(failure, RuntimeError::hint)
}

/// The section a key belongs to that was written outside of all of them.
fn elsewhere(parent: &str, key: &str, sections: &[&str]) -> Option<String> {
    if !parent.is_empty() {
        return None;
    }
    // A section that takes any name says nothing about this one.
    let is_its = |section: &&&str| takes(section, key) && !takes(section, "no-key-of-ours");
    let section = sections.iter().find(is_its)?;
    Some(format!("{section}.{key}"))
}

/// Whether a section knows a key, whatever its value has to be.
fn takes(section: &str, key: &str) -> bool {
    let probe = format!("[{section}]\n{key} = 0\n");
    match toml::from_str::<ConfigFile>(&probe) {
        Ok(_) => true,
        Err(error) => {
            let place = error.span().unwrap_or_default();
            !error.message().starts_with("unknown field") && parent_key(&probe, &place) == section
        }
    }
}

/// What the parser says, without the names of our types.
fn in_words(message: &str) -> String {
    let whole = "expected a whole number, 0 or more";
    message
        .replace('\n', "; ")
        .replace("expected u32", whole)
        .replace("expected u64", whole)
        .replace("expected f64", "expected a number")
}

/// The words between backticks, which is how serde names the keys it knows.
fn quoted(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
}

/// The dotted name of the innermost table around `span`.
fn parent_key(text: &str, span: &Range<usize>) -> String {
    let Ok(root) = DeTable::parse(text) else {
        return String::new();
    };
    let mut path = Vec::new();
    find(root.get_ref(), span, &mut path);
    path.pop();
    path.join(".")
}

/// Puts the names of the keys that lead to `span` into `path`.
fn find(table: &DeTable<'_>, span: &Range<usize>, path: &mut Vec<String>) -> bool {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        let here = key.span() == *span || value.span() == *span;
        if here
            || value
                .get_ref()
                .as_table()
                .is_some_and(|inner| find(inner, span, path))
        {
            return true;
        }
        path.pop();
    }
    false
}

/// Counted from 1; columns in characters.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, message: &str, hint: Option<&str>) {
        let failure = parse(Path::new("config.toml"), text)
            .map(|_| ())
            .unwrap_err();
        let expected = format!("cannot load `config.toml`: {message}");
        assert_eq!(failure.to_string(), expected);
        assert_eq!(failure.hints().first().map(String::as_str), hint);
        assert_eq!(failure.kind(), crate::ErrorKind::NotStarted);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_place() {
        check(
            "[limits]\nmax_steps = 3\nmax_stps = 4\n",
            "line 3, column 1: unknown key `limits.max_stps`",
            Some("did you mean `limits.max_steps`?"),
        );
        check(
            "[limts]\nmax_steps = 3\n",
            "line 1, column 2: unknown key `limts`",
            Some("did you mean `limits`?"),
        );
        check(
            "[providers.local]\nbase_ulr = \"x\"",
            "line 2, column 1: unknown key `providers.local.base_ulr`",
            Some("did you mean `providers.local.base_url`?"),
        );
        check(
            "mode = \"ask\"",
            "line 1, column 1: unknown key `mode`",
            Some("did you mean `permissions.mode`?"),
        );
    }

    #[test]
    fn a_key_that_is_like_nothing_gets_the_list() {
        let failure = parse(Path::new("c"), "[retention]\nzzzzzzzz = 1")
            .map(|_| ())
            .unwrap_err();
        assert_eq!(failure.hints(), ["known here: max_age, max_size"]);
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_named_with_its_place() {
        check(
            "[limits]\nmax_steps = \"many\"",
            "line 2, column 13: invalid type: string \"many\", expected a whole number, 0 or more",
            None,
        );
        check(
            "[permissions]\nmode = \"yolo\"",
            "line 2, column 8: unknown variant `yolo`, expected one of `read-only`, `plan`, `ask`, `accept-edits`, `auto`, `full`",
            None,
        );
        check(
            "[permissions]\nmode = \"aks\"",
            "line 2, column 8: unknown variant `aks`, expected one of `read-only`, `plan`, `ask`, `accept-edits`, `auto`, `full`",
            Some("did you mean `ask`?"),
        );
    }
}
