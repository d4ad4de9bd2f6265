//! A final text as sentences of words: without code blocks, quotations, and lists of what is wanted.

/// One sentence.
#[derive(Debug)]
pub(super) struct Sentence {
    /// As it was written.
    pub(super) text: String,
    pub(super) tokens: Vec<Token>,
    pub(super) is_question: bool,
}

/// A piece of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// In lower case.
    Word(String),
    /// What stood between backticks.
    Code(String),
    Mark(char),
}

impl Token {
    pub(super) fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            Self::Code(_) | Self::Mark(_) => None,
        }
    }
}

/// Words of a heading under which things are listed that are not so yet.
const WANTED: &[&str] = &[
    "criteria",
    "criterion",
    "acceptance",
    "goal",
    "goals",
    "todo",
    "todos",
    "plan",
    "next",
    "need",
    "needs",
    "needed",
    "should",
    "requirement",
    "requirements",
    "required",
    "checklist",
    "remaining",
    "expected",
    "want",
    "wanted",
    "when",
    "before",
    "after",
    "if",
    "until",
    "would",
    "definition",
    "to-do",
    "step",
    "steps",
    "instructions",
    "how",
];

/// The sentences of `text` that may state something.
pub(super) fn of(text: &str) -> Vec<Sentence> {
    let mut found = Vec::new();
    let mut fenced = false;
    let mut listing_wishes = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            fenced = !fenced;
            continue;
        }
        if fenced || trimmed.starts_with('>') {
            continue;
        }
        let is_item = is_list_item(trimmed);
        let is_heading = trimmed.starts_with('#') || trimmed.ends_with(':');
        if is_heading {
            let words = tokens(&trimmed.to_lowercase());
            let mut words = words.iter().filter_map(Token::word);
            listing_wishes = words.any(|word| WANTED.contains(&word));
        } else if !is_item && !trimmed.is_empty() {
            listing_wishes = false;
        }
        let is_open_box = trimmed.contains("[ ]");
        if is_open_box || (is_item && listing_wishes) {
            continue;
        }
        found.extend(split(&without_quotations(trimmed)).map(|part| sentence(&part)));
    }
    found.retain(|sentence| !sentence.tokens.is_empty());
    found
}

fn is_list_item(line: &str) -> bool {
    let bullet = line.starts_with("- ") || line.starts_with("* ") || line.starts_with("• ");
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    bullet || (number.len() < line.len() && number.starts_with(['.', ')']))
}

fn sentence(text: &str) -> Sentence {
    let shown = text
        .trim_start_matches(['-', '#', ' ', '✅', '✓', '•'])
        .trim_end_matches(['.', '!', ';', ' ']);
    Sentence {
        text: shown.to_owned(),
        tokens: tokens(&text.to_lowercase()),
        is_question: text.trim_end().ends_with('?'),
    }
}

/// The line without what it quotes and without marks of emphasis; code stays as it is.
fn without_quotations(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(next) = rest.chars().next() {
        let after = &rest[next.len_utf8()..];
        let end = match next {
            '"' => '"',
            '“' | '„' => '”',
            '«' => '»',
            '`' => '`',
            _ => {
                if next != '*' {
                    out.push(next);
                }
                rest = after;
                continue;
            }
        };
        match after.find(end) {
            Some(at) if end == '`' => {
                out.push('`');
                out.push_str(&after[..at]);
                out.push('`');
                rest = &after[at + 1..];
            }
            Some(at) => rest = &after[at + end.len_utf8()..],
            None => {
                out.push(next);
                rest = after;
            }
        }
    }
    out
}

/// Splits after a mark that ends a sentence; a dot inside `test.sh` is none.
fn split(line: &str) -> impl Iterator<Item = String> {
    let mut parts = Vec::new();
    let mut from = 0;
    let mut in_code = false;
    for (at, mark) in line.char_indices() {
        in_code ^= mark == '`';
        let end = at + mark.len_utf8();
        let ends = matches!(mark, '.' | '!' | '?' | ';') && !in_code;
        if ends
            && line[end..]
                .chars()
                .next()
                .is_none_or(|c| !c.is_alphanumeric() && c != '/')
        {
            parts.push(line[from..end].trim().to_owned());
            from = end;
        }
    }
    parts.push(line[from..].trim().to_owned());
    parts.into_iter().filter(|part| !part.is_empty())
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if next == '`'
            && let Some(close) = rest[1..].find('`')
        {
            tokens.push(Token::Code(rest[1..=close].trim().to_owned()));
            rest = &rest[close + 2..];
            continue;
        }
        let in_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '\'' | '’' | '-' | '/');
        if next.is_alphanumeric() {
            let end = rest.find(|c| !in_word(c)).unwrap_or(rest.len());
            let word = rest[..end].trim_end_matches(['-', '/', '\'', '’']);
            tokens.push(Token::Word(word.replace('’', "'")));
            rest = &rest[end..];
            continue;
        }
        if !next.is_whitespace() {
            tokens.push(Token::Mark(next));
        }
        rest = &rest[next.len_utf8()..];
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found: Vec<String> = of(text).into_iter().map(|one| one.text).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn what_is_not_said_is_left_out() {
        check("One. Two! See `a.b. c`.", &["One", "Two", "See `a.b. c`"]);
        check(
            "Run test.sh (v1.2). **Done.**",
            &["Run test.sh (v1.2)", "Done"],
        );
        check("He said \"all tests pass\" twice.", &["He said  twice"]);
        check("```\nall tests pass\n```\n> quoted\nend", &["end"]);
        check("- [ ] tests pass\n- [x] built", &["[x] built"]);
        check(
            "Acceptance criteria:\n- tests pass\n\nDone.",
            &["Acceptance criteria:", "Done"],
        );
        check("Changed:\n1. a\n2. b", &["Changed:", "1", "a", "2", "b"]);
    }
}
