//! One shell word: the argument it becomes, or why that cannot be said.
//!
//! The source text of a word is not its value: quotes and backslashes go, globs and braces multiply,
//! expansions run code. A word is [`Value::Literal`] only if nothing can change it any more.

mod scanner;

use std::collections::HashMap;

use scanner::Scanner;

/// Stands in a sketch for a piece that only the running shell knows.
pub const UNKNOWN: char = '\u{FFFC}';

/// Reason the value of a word is decided by the running shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dynamic {
    CommandSubstitution,
    Parameter,
    Arithmetic,
    Braces,
    Locale,
    ExtendedGlob,
    OtherHome,
    Unfinished,
    /// `$?`: a number, whatever it is.
    ExitCode,
}

impl Dynamic {
    pub fn describe(self) -> &'static str {
        match self {
            Self::CommandSubstitution => "a command substitution",
            Self::Parameter => "a parameter expansion",
            Self::Arithmetic => "an arithmetic expansion",
            Self::Braces => "a brace expansion",
            Self::Locale => "a translated string",
            Self::ExtendedGlob => "an extended glob",
            Self::OtherHome => "another user's home directory",
            Self::Unfinished => "an unfinished quote",
            Self::ExitCode => "an exit code",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Exactly this argument. `plain` when the source had no quote, backslash or tilde in it.
    Literal { text: String, plain: bool },
    /// File names that match; quoted glob characters stand escaped in `pattern`.
    Glob { pattern: String },
    /// Unknown, with what is known of it: [`UNKNOWN`] where nothing is.
    Dynamic { why: Dynamic, sketch: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub source: String,
    pub value: Value,
}

impl Word {
    pub fn literal(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            source: text.clone(),
            value: Value::Literal { text, plain: true },
        }
    }

    /// A word by what is known of it.
    pub(crate) fn sketched(sketch: impl Into<String>) -> Self {
        let sketch = sketch.into();
        let source = sketch.replace(UNKNOWN, "…");
        let value = if sketch.contains(UNKNOWN) {
            Value::Dynamic {
                why: Dynamic::Parameter,
                sketch,
            }
        } else if sketch.contains(['*', '?']) {
            Value::Glob { pattern: sketch }
        } else {
            return Self::literal(sketch);
        };
        Self { source, value }
    }

    /// Any number of words that nobody has seen.
    pub fn unknown() -> Self {
        Self {
            source: "…".to_owned(),
            value: Value::Dynamic {
                why: Dynamic::Parameter,
                sketch: UNKNOWN.to_string(),
            },
        }
    }

    /// The argument, when it is certain.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Literal { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The argument, when it is certain and was written without quotes or backslashes.
    pub fn plain_text(&self) -> Option<&str> {
        match &self.value {
            Value::Literal { text, plain: true } => Some(text),
            _ => None,
        }
    }

    /// Known text of the argument; unknown pieces are [`UNKNOWN`].
    pub fn sketch(&self) -> &str {
        match &self.value {
            Value::Literal { text, .. } => text,
            Value::Glob { pattern } => pattern,
            Value::Dynamic { sketch, .. } => sketch,
        }
    }
}

/// Assumptions about the shell the word stands in. Used for sketches only.
#[derive(Debug, Default, Clone)]
pub struct Surroundings {
    pub home: String,
    pub variables: HashMap<String, String>,
}

/// A word together with the scripts that would run to find its value.
pub(super) struct Scanned {
    pub(super) word: Word,
    pub(super) nested: Vec<String>,
}

/// Reads the source text of one word as the parser delimited it.
pub(super) fn scan(source: &str, surroundings: &Surroundings) -> Scanned {
    let mut scanner = Scanner {
        characters: source.chars().collect(),
        at: 0,
        text: String::new(),
        plain: true,
        glob: false,
        dynamic: None,
        nested: Vec::new(),
        surroundings,
    };
    scanner.run();
    let value = match (scanner.dynamic, scanner.glob) {
        (Some(why), _) => Value::Dynamic {
            why,
            sketch: unescape_glob(&scanner.text),
        },
        (None, true) => Value::Glob {
            pattern: scanner.text,
        },
        (None, false) => Value::Literal {
            text: unescape_glob(&scanner.text),
            plain: scanner.plain,
        },
    };
    Scanned {
        word: Word {
            source: source.to_owned(),
            value,
        },
        nested: scanner.nested,
    }
}

/// The scripts inside text that is expanded but not split: here-documents, arithmetic, `${…}`.
pub(super) fn nested_in_text(text: &str, surroundings: &Surroundings) -> Vec<String> {
    let mut scanner = Scanner {
        characters: text.chars().collect(),
        at: 0,
        text: String::new(),
        plain: true,
        glob: false,
        dynamic: None,
        nested: Vec::new(),
        surroundings,
    };
    scanner.text_in_double_quotes(None);
    scanner.nested
}

/// The words a simple brace expression stands for: `{rm,-rf,/}` is three words. For detection only.
pub(super) fn expand_braces(source: &str) -> Option<Vec<String>> {
    let open = source.find('{')?;
    let close = source.rfind('}')?;
    let (prefix, rest) = source.split_at_checked(open)?;
    let inner = rest.get(1..close.checked_sub(open)?)?;
    let suffix = source.get(close + 1..)?;
    if !inner.contains(',') || inner.contains(['{', '}', '\'', '"', '\\', '$', '`']) {
        return None;
    }
    Some(
        inner
            .split(',')
            .map(|member| format!("{prefix}{member}{suffix}"))
            .filter(|word| !word.is_empty())
            .collect(),
    )
}

/// The words that an unquoted expansion becomes when what it expands to is known: `$X /` with
/// `X="rm -rf"` is three words. For detection only.
pub(super) fn split_expansion(word: &Word) -> Option<Vec<Word>> {
    let Value::Dynamic {
        why: Dynamic::Parameter,
        sketch,
    } = &word.value
    else {
        return None;
    };
    let is_split = sketch.contains(char::is_whitespace)
        && !sketch.contains(UNKNOWN)
        && !word.source.contains(['"', '\'']);
    is_split.then(|| {
        sketch
            .split_whitespace()
            .map(|part| Word {
                source: word.source.clone(),
                value: Value::Dynamic {
                    why: Dynamic::Parameter,
                    sketch: part.to_owned(),
                },
            })
            .collect()
    })
}

/// Inside `text` of a scanner, quoted glob characters are escaped so that a glob can be told from text.
fn unescape_glob(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => result.extend(characters.next()),
            other => result.push(other),
        }
    }
    result
}

fn escape_glob(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests;
