//! One shell word: the argument it becomes, or why that cannot be said.
//!
//! The source text of a word is not its value: quotes and backslashes go, globs and braces multiply,
//! expansions run code. A word is [`Value::Literal`] only if nothing can change it any more.

use std::collections::HashMap;

use super::separators::starts_expansion;

/// Stands in a sketch for a piece that only the running shell knows.
pub const UNKNOWN: char = '\u{FFFC}';

/// Why the value of a word is decided by the running shell.
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

    /// What is known of the argument; unknown pieces are [`UNKNOWN`].
    pub fn sketch(&self) -> &str {
        match &self.value {
            Value::Literal { text, .. } => text,
            Value::Glob { pattern } => pattern,
            Value::Dynamic { sketch, .. } => sketch,
        }
    }
}

/// What the scanner may assume about the shell the word stands in. Used for sketches only.
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

struct Scanner<'a> {
    characters: Vec<char>,
    at: usize,
    text: String,
    plain: bool,
    glob: bool,
    dynamic: Option<Dynamic>,
    nested: Vec<String>,
    surroundings: &'a Surroundings,
}

impl Scanner<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.at + ahead).copied()
    }

    fn mark(&mut self, why: Dynamic) {
        // A substitution is the more telling reason and stays.
        if self.dynamic != Some(Dynamic::CommandSubstitution) {
            self.dynamic = Some(why);
        }
    }

    fn push_quoted(&mut self, character: char) {
        if matches!(character, '*' | '?' | '[' | '\\') {
            self.text.push('\\');
        }
        self.text.push(character);
    }

    fn run(&mut self) {
        self.tilde();
        while let Some(character) = self.peek(0) {
            match character {
                '\\' => {
                    self.plain = false;
                    match self.peek(1) {
                        Some('\n') => {}
                        Some(escaped) => self.push_quoted(escaped),
                        None => self.mark(Dynamic::Unfinished),
                    }
                    self.at += 2;
                }
                '\'' => {
                    self.plain = false;
                    self.at += 1;
                    self.single_quotes();
                }
                '"' => {
                    self.plain = false;
                    self.at += 1;
                    self.text_in_double_quotes(Some('"'));
                }
                '$' if self.peek(1) == Some('\'') => {
                    self.plain = false;
                    self.at += 2;
                    self.ansi_quotes();
                }
                '$' if self.peek(1) == Some('"') => {
                    self.mark(Dynamic::Locale);
                    self.at += 1;
                }
                '$' => self.dollar(),
                '`' => self.backticks(),
                '*' | '?' | '[' | '@' | '+' | '!' if self.peek(1) == Some('(') => {
                    self.mark(Dynamic::ExtendedGlob);
                    self.text.push(UNKNOWN);
                    self.at += 1;
                }
                '[' if !self.closes_later() => {
                    self.push_quoted('[');
                    self.at += 1;
                }
                '*' | '?' | '[' => {
                    self.glob = true;
                    self.text.push(character);
                    self.at += 1;
                }
                '{' if self.is_brace_expansion() => {
                    self.mark(Dynamic::Braces);
                    self.text.push(UNKNOWN);
                    self.at += 1;
                }
                other => {
                    self.text.push(other);
                    self.at += 1;
                }
            }
        }
    }

    fn tilde(&mut self) {
        if self.peek(0) != Some('~') {
            return;
        }
        self.plain = false;
        match self.peek(1) {
            None | Some('/') => {
                let home = self.surroundings.home.clone();
                home.chars()
                    .for_each(|character| self.push_quoted(character));
                self.at += 1;
            }
            Some(_) => {
                self.mark(Dynamic::OtherHome);
                self.text.push(UNKNOWN);
                self.at += 1;
            }
        }
    }

    fn single_quotes(&mut self) {
        while let Some(character) = self.peek(0) {
            self.at += 1;
            if character == '\'' {
                return;
            }
            self.push_quoted(character);
        }
        self.mark(Dynamic::Unfinished);
    }

    /// Until `end`, or to the end of the text for here-documents and the like.
    fn text_in_double_quotes(&mut self, end: Option<char>) {
        while let Some(character) = self.peek(0) {
            match character {
                _ if Some(character) == end => {
                    self.at += 1;
                    return;
                }
                '\\' => {
                    match self.peek(1) {
                        Some('\n') => {}
                        Some(escaped @ ('$' | '`' | '"' | '\\')) => self.push_quoted(escaped),
                        Some(other) => {
                            self.push_quoted('\\');
                            self.push_quoted(other);
                        }
                        None => self.mark(Dynamic::Unfinished),
                    }
                    self.at += 2;
                }
                '$' => self.dollar_in_quotes(),
                '`' => self.backticks(),
                other => {
                    self.push_quoted(other);
                    self.at += 1;
                }
            }
        }
        if end.is_some() {
            self.mark(Dynamic::Unfinished);
        }
    }

    fn dollar_in_quotes(&mut self) {
        if matches!(self.peek(1), Some('\'' | '"')) {
            self.text.push('$');
            self.at += 1;
        } else {
            self.dollar();
        }
    }

    fn dollar(&mut self) {
        let Some(next) = self.peek(1) else {
            self.text.push('$');
            self.at += 1;
            return;
        };
        match next {
            '(' => {
                let inner = self.balanced('(', ')');
                if let Some(arithmetic) = inner
                    .strip_prefix('(')
                    .and_then(|inner| inner.strip_suffix(')'))
                {
                    self.mark(Dynamic::Arithmetic);
                    self.nested
                        .extend(nested_in_text(arithmetic, self.surroundings));
                }
                // `$((` may also open a subshell, so the text is looked at as a script in any case.
                if self.dynamic != Some(Dynamic::Arithmetic) {
                    self.mark(Dynamic::CommandSubstitution);
                }
                self.nested.push(inner);
                self.text.push(UNKNOWN);
            }
            '{' => {
                let inner = self.balanced('{', '}');
                self.mark(Dynamic::Parameter);
                self.nested
                    .extend(nested_in_text(&inner, self.surroundings));
                match self.surroundings.variables.get(&inner) {
                    Some(known) => self.text.push_str(&escape_glob(known)),
                    None => self.text.push(UNKNOWN),
                }
            }
            '[' => {
                let inner = self.balanced('[', ']');
                self.mark(Dynamic::Arithmetic);
                self.nested
                    .extend(nested_in_text(&inner, self.surroundings));
                self.text.push(UNKNOWN);
            }
            next if next.is_ascii_alphabetic() || next == '_' => {
                self.at += 1;
                let mut name = String::new();
                while let Some(character) = self
                    .peek(0)
                    .filter(|character| character.is_ascii_alphanumeric() || *character == '_')
                {
                    name.push(character);
                    self.at += 1;
                }
                self.mark(Dynamic::Parameter);
                match self.surroundings.variables.get(&name) {
                    Some(known) => self.text.push_str(&escape_glob(known)),
                    None => self.text.push(UNKNOWN),
                }
            }
            next if u8::try_from(next).is_ok_and(starts_expansion) => {
                self.mark(Dynamic::Parameter);
                self.text.push(UNKNOWN);
                self.at += 2;
            }
            _ => {
                self.text.push('$');
                self.at += 1;
            }
        }
    }

    /// The text between `$(` and its `)`, quotes respected; leaves the position behind the end.
    fn balanced(&mut self, open: char, close: char) -> String {
        self.at += 2;
        let start = self.at;
        let mut depth = 1usize;
        while let Some(character) = self.peek(0) {
            match character {
                '\\' => self.at += 1,
                '\'' if open == '(' => {
                    while self.peek(1).is_some_and(|character| character != '\'') {
                        self.at += 1;
                    }
                    self.at += 1;
                }
                '"' if open == '(' => {
                    self.at += 1;
                    while let Some(inner) = self.peek(0).filter(|inner| *inner != '"') {
                        self.at += if inner == '\\' { 2 } else { 1 };
                    }
                }
                character if character == open => depth += 1,
                character if character == close => {
                    depth -= 1;
                    if depth == 0 {
                        let inner = self.slice(start, self.at);
                        self.at += 1;
                        return inner;
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
        self.mark(Dynamic::Unfinished);
        self.at = self.characters.len();
        self.slice(start, self.at)
    }

    fn slice(&self, start: usize, end: usize) -> String {
        self.characters
            .get(start..end)
            .unwrap_or_default()
            .iter()
            .collect()
    }

    fn backticks(&mut self) {
        self.at += 1;
        let mut inner = String::new();
        let mut finished = false;
        while let Some(character) = self.peek(0) {
            match (character, self.peek(1)) {
                ('`', _) => {
                    self.at += 1;
                    finished = true;
                    break;
                }
                ('\\', Some(escaped @ ('`' | '\\' | '$'))) => {
                    inner.push(escaped);
                    self.at += 2;
                }
                (other, _) => {
                    inner.push(other);
                    self.at += 1;
                }
            }
        }
        self.nested.push(inner);
        self.mark(if finished {
            Dynamic::CommandSubstitution
        } else {
            Dynamic::Unfinished
        });
        self.text.push(UNKNOWN);
    }

    fn ansi_quotes(&mut self) {
        while let Some(character) = self.peek(0) {
            self.at += 1;
            match character {
                '\'' => return,
                '\\' => {
                    let Some(escape) = self.peek(0) else { break };
                    self.at += 1;
                    let decoded = match escape {
                        'n' => Some('\n'),
                        't' => Some('\t'),
                        '\\' | '\'' | '"' | '?' => Some(escape),
                        'x' => self.number(16, 2),
                        'u' => self.number(16, 4),
                        'U' => self.number(16, 8),
                        '0'..='7' => {
                            self.at -= 1;
                            self.number(8, 3)
                        }
                        _ => None,
                    };
                    // A control character in an argument is not something a person can read.
                    match decoded {
                        Some(character) if !super::prescan::is_deceptive(character) => {
                            self.push_quoted(character);
                        }
                        Some(_) | None => {
                            self.mark(Dynamic::Unfinished);
                            self.text.push(UNKNOWN);
                        }
                    }
                }
                other => self.push_quoted(other),
            }
        }
        self.mark(Dynamic::Unfinished);
    }

    fn number(&mut self, radix: u32, most_digits: usize) -> Option<char> {
        let mut value = 0u32;
        let mut digits = 0;
        while let Some(digit) = self.peek(0).and_then(|digit| digit.to_digit(radix)) {
            if digits == most_digits {
                break;
            }
            value = value.checked_mul(radix)?.checked_add(digit)?;
            self.at += 1;
            digits += 1;
        }
        (digits > 0).then(|| char::from_u32(value)).flatten()
    }

    /// Without its closing bracket a `[` is text, above all the program of that name.
    fn closes_later(&self) -> bool {
        self.characters
            .get(self.at..)
            .is_some_and(|rest| rest.contains(&']'))
    }

    /// `{a,b}` and `{1..3}` expand, `{}` and `HEAD@{1}` do not.
    fn is_brace_expansion(&self) -> bool {
        let mut separator = false;
        let mut previous = '{';
        let mut depth = 1usize;
        let rest = self.characters.get(self.at + 1..).unwrap_or_default();
        for character in rest {
            match character {
                '{' => depth += 1,
                '}' if separator => return true,
                '}' => {
                    depth -= 1;
                    if depth == 0 {
                        return false;
                    }
                }
                ',' => separator = true,
                '.' if previous == '.' => separator = true,
                _ => {}
            }
            previous = *character;
        }
        false
    }
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
mod tests {
    use super::*;

    fn check(source: &str, expected: Value) {
        let surroundings = Surroundings {
            home: "/home/u".into(),
            variables: HashMap::from([("HOME".into(), "/home/u".into())]),
        };
        assert_eq!(scan(source, &surroundings).word.value, expected, "{source}");
    }

    fn literal(text: &str, plain: bool) -> Value {
        Value::Literal {
            text: text.into(),
            plain,
        }
    }

    #[test]
    fn quoting_is_removed_as_bash_does() {
        check("ls", literal("ls", true));
        check("l''s", literal("ls", false));
        check("fin\\d", literal("find", false));
        check("'a b'\"c\"", literal("a bc", false));
        check("\"\\.rs$\"", literal("\\.rs$", false));
        check("\"a\\$b\"", literal("a$b", false));
        check("'$(x)'", literal("$(x)", false));
        check("\\(", literal("(", false));
        check("{}", literal("{}", true));
        check("HEAD@{1}", literal("HEAD@{1}", true));
        check("stash@{0}", literal("stash@{0}", true));
        check("~/x", literal("/home/u/x", false));
        check("'*.rs'", literal("*.rs", false));
        check("$'a\\tb'", literal("a\tb", false));
        check("x$", literal("x$", true));
    }

    #[test]
    fn what_the_shell_decides_is_not_literal() {
        let dynamic = |why, sketch: &str| Value::Dynamic {
            why,
            sketch: sketch.into(),
        };
        check("$X/a", dynamic(Dynamic::Parameter, "\u{FFFC}/a"));
        check("\"$HOME\"", dynamic(Dynamic::Parameter, "/home/u"));
        check("${x:-$(y)}", dynamic(Dynamic::Parameter, "\u{FFFC}"));
        check(
            "\"a $(b)\"",
            dynamic(Dynamic::CommandSubstitution, "a \u{FFFC}"),
        );
        check("`b`", dynamic(Dynamic::CommandSubstitution, "\u{FFFC}"));
        check("$[1+1]", dynamic(Dynamic::Arithmetic, "\u{FFFC}"));
        check("'open", dynamic(Dynamic::Unfinished, "open"));
        check("~root/x", dynamic(Dynamic::OtherHome, "\u{FFFC}root/x"));
        check(
            "src/*.rs",
            Value::Glob {
                pattern: "src/*.rs".into(),
            },
        );
        check(
            "/bin/l?",
            Value::Glob {
                pattern: "/bin/l?".into(),
            },
        );
        check(
            "'*'*",
            Value::Glob {
                pattern: "\\**".into(),
            },
        );
    }

    #[test]
    fn nested_scripts_are_found_wherever_they_hide() {
        let surroundings = Surroundings::default();
        for (source, expected) in [
            ("\"a $(b \")\" c)\"", vec!["b \")\" c"]),
            ("${x:-$(y)}", vec!["y"]),
            ("$(( $(z) + 1 ))", vec!["z", "( $(z) + 1 )"]),
            ("`a \\`b\\``", vec!["a `b`"]),
            ("'$(no)'", vec![]),
        ] {
            assert_eq!(scan(source, &surroundings).nested, expected, "{source}");
        }
    }

    #[test]
    fn simple_braces_become_words() {
        assert_eq!(
            expand_braces("{rm,-rf,/}"),
            Some(vec!["rm".into(), "-rf".into(), "/".into()])
        );
        assert_eq!(expand_braces("{}"), None);
    }
}
