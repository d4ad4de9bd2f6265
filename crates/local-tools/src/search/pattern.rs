//! From the model's pattern to a matcher, with errors that point at the place.

use agent_protocol::Code;
use agent_tool_runtime::ValidationFailure;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use regex_syntax::hir::{Class, Hir, HirKind};

/// Bounds on what a pattern may compile to; matching itself is linear in the text.
const MAX_COMPILED: usize = 10 << 20;

/// How letter case counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Case {
    /// Ignored unless the pattern has a capital letter.
    #[default]
    Smart,
    /// Counts.
    Sensitive,
    /// Is ignored.
    Insensitive,
}

/// A pattern that can be searched for.
pub(crate) struct Pattern {
    pub(crate) matcher: RegexMatcher,
    /// It could match a line break if `multiline` were on.
    pub(crate) wants_lines: bool,
}

/// Compiles `pattern`.
pub(crate) fn compile(
    pattern: &str,
    case: Case,
    multiline: bool,
) -> Result<Pattern, ValidationFailure> {
    let invalid = |message: String| {
        ValidationFailure::new(Code::SchemaInvalid, message.clone()).at("/pattern", message)
    };
    let parsed = regex_syntax::ParserBuilder::new()
        .multi_line(true)
        .utf8(false)
        .build()
        .parse(pattern);
    let tree = parsed.map_err(|error| invalid(place(&error)))?;
    let mut builder = RegexMatcherBuilder::new();
    builder
        .multi_line(true)
        .case_smart(case == Case::Smart)
        .case_insensitive(case == Case::Insensitive)
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED);
    if !multiline {
        builder.line_terminator(Some(b'\n'));
    }
    let matcher = builder.build(pattern).map_err(|error| match error.kind() {
        grep_regex::ErrorKind::NotAllowed(_) => {
            let message = "the pattern holds a line feed, and `multiline` is off: it cannot match across lines";
            ValidationFailure::new(Code::RuntimePreconditionFailed, message).at("/pattern", message)
        }
        _ => invalid(format!("the pattern cannot be used: {error}")),
    })?;
    Ok(Pattern {
        matcher,
        wants_lines: !multiline && may_break(&tree),
    })
}

/// Problem with a pattern, and the character it is at.
fn place(error: &regex_syntax::Error) -> String {
    let (what, span, pattern) = match error {
        regex_syntax::Error::Parse(error) => {
            (error.kind().to_string(), *error.span(), error.pattern())
        }
        regex_syntax::Error::Translate(error) => {
            (error.kind().to_string(), *error.span(), error.pattern())
        }
        other => return format!("the pattern is not a regular expression: {other}"),
    };
    let at = pattern
        .get(span.start.offset..span.end.offset)
        .unwrap_or_default();
    let column = pattern
        .get(..span.start.offset)
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    let at = if at.is_empty() {
        "at its end".to_owned()
    } else {
        format!("at character {column}, `{at}`")
    };
    format!("the pattern is not a regular expression: {what} {at}")
}

/// True if a part of the pattern other than a literal can match a line break.
fn may_break(tree: &Hir) -> bool {
    match tree.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Literal(_) => false,
        HirKind::Class(Class::Unicode(class)) => class
            .iter()
            .any(|range| (range.start()..=range.end()).contains(&'\n')),
        HirKind::Class(Class::Bytes(class)) => class
            .iter()
            .any(|range| (range.start()..=range.end()).contains(&b'\n')),
        HirKind::Repetition(repetition) => may_break(&repetition.sub),
        HirKind::Capture(capture) => may_break(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().any(may_break),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, expected: Result<bool, &str>) {
        let got = compile(pattern, Case::Smart, false).map(|pattern| pattern.wants_lines);
        match (got, expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{pattern}"),
            (Err(got), Err(expected)) => assert_eq!(got.message, expected),
            (got, _) => panic!("{pattern}: {:?}", got.map_err(|failure| failure.message)),
        }
    }

    #[test]
    fn errors_point_at_the_place() {
        check(
            "a(b",
            Err("the pattern is not a regular expression: unclosed group at character 2, `(`"),
        );
        check(
            "x{2,1}",
            Err(
                "the pattern is not a regular expression: invalid repetition count range, the start must be <= the end at character 2, `{2,1}`",
            ),
        );
        check(
            "[z-a]",
            Err(
                "the pattern is not a regular expression: invalid character class range, the start must be <= the end at character 2, `z-a`",
            ),
        );
        check(
            "é[",
            Err(
                "the pattern is not a regular expression: unclosed character class at character 2, `[`",
            ),
        );
        assert!(compile("(?:a{1000}){1000}{100}", Case::Smart, false).is_err());
    }

    #[test]
    fn what_needs_several_lines_is_said() {
        let feed =
            "the pattern holds a line feed, and `multiline` is off: it cannot match across lines";
        check("a\\nb", Err(feed));
        check("a\\s+b", Ok(true));
        check("a b", Ok(false));
        check("a.*b", Ok(false));
        check("(a|\\n)", Err(feed));
        check("[^a]b", Ok(true));
        assert!(!compile("a\\nb", Case::Smart, true).unwrap().wants_lines);
    }
}
