//! One pass over a word as bash would expand it: quotes, escapes, substitutions, patterns.

use super::{Dynamic, Surroundings, UNKNOWN, escape_glob, nested_in_text};
use crate::shell::is_deceptive;

pub(super) struct Scanner<'a> {
    pub(super) characters: Vec<char>,
    pub(super) at: usize,
    pub(super) text: String,
    pub(super) plain: bool,
    pub(super) glob: bool,
    pub(super) dynamic: Option<Dynamic>,
    pub(super) nested: Vec<String>,
    pub(super) surroundings: &'a Surroundings,
}

impl Scanner<'_> {
    pub(super) fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.at + ahead).copied()
    }

    pub(super) fn mark(&mut self, why: Dynamic) {
        // A substitution is the more telling reason and stays.
        if self.dynamic != Some(Dynamic::CommandSubstitution) {
            self.dynamic = Some(why);
        }
    }

    pub(super) fn push_quoted(&mut self, character: char) {
        if matches!(character, '*' | '?' | '[' | '\\') {
            self.text.push('\\');
        }
        self.text.push(character);
    }

    pub(super) fn run(&mut self) {
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
                '{' if self.may_be_braces() => {
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

    pub(super) fn tilde(&mut self) {
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

    pub(super) fn single_quotes(&mut self) {
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
    pub(super) fn text_in_double_quotes(&mut self, end: Option<char>) {
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

    pub(super) fn dollar_in_quotes(&mut self) {
        if matches!(self.peek(1), Some('\'' | '"')) {
            self.text.push('$');
            self.at += 1;
        } else {
            self.dollar();
        }
    }

    pub(super) fn dollar(&mut self) {
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
                self.push_output(&inner);
                self.nested.push(inner);
            }
            '{' => {
                let inner = self.balanced('{', '}');
                self.mark(Dynamic::Parameter);
                self.nested
                    .extend(nested_in_text(&inner, self.surroundings));
                match self.parameter(&inner) {
                    Some(known) => self.text.push_str(&escape_glob(&known)),
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
            '?' => {
                // A number cannot be a flag, a path or a pattern; any other reason weighs more.
                self.dynamic.get_or_insert(Dynamic::ExitCode);
                self.text.push(UNKNOWN);
                self.at += 2;
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
    pub(super) fn balanced(&mut self, open: char, close: char) -> String {
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

    pub(super) fn slice(&self, start: usize, end: usize) -> String {
        self.characters
            .get(start..end)
            .unwrap_or_default()
            .iter()
            .collect()
    }

    pub(super) fn backticks(&mut self) {
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
        self.mark(if finished {
            Dynamic::CommandSubstitution
        } else {
            Dynamic::Unfinished
        });
        self.push_output(&inner);
        self.nested.push(inner);
    }

    /// Output of a substitution, where that is known: the working directory.
    fn push_output(&mut self, script: &str) {
        let known = match script.trim() {
            "pwd" | "pwd -P" | "pwd -L" => self.surroundings.variables.get("PWD"),
            _ => None,
        };
        match known {
            Some(known) => self.text.push_str(&escape_glob(known)),
            None => self.text.push(UNKNOWN),
        }
    }

    /// The value of `${…}` as far as the variables at hand tell: defaults and checks for a variable that
    /// is set, and a slash taken off its end.
    fn parameter(&self, inner: &str) -> Option<String> {
        let end = inner
            .find(|character: char| !(character.is_ascii_alphanumeric() || character == '_'))
            .unwrap_or(inner.len());
        let (name, operator) = inner.split_at_checked(end)?;
        let value = self
            .surroundings
            .variables
            .get(name)
            .filter(|value| !value.is_empty())?;
        match operator {
            "" => Some(value.clone()),
            "%/" | "%%/" => Some(value.trim_end_matches('/').to_owned()),
            _ if operator
                .trim_start_matches(':')
                .starts_with(['-', '=', '?']) =>
            {
                Some(value.clone())
            }
            _ => None,
        }
    }

    pub(super) fn ansi_quotes(&mut self) {
        while let Some(character) = self.peek(0) {
            self.at += 1;
            match character {
                '\'' => return,
                '\\' => {
                    let Some(escape) = self.peek(0) else { break };
                    self.at += 1;
                    // Numbers are bytes to bash, cut to eight bits, and it keeps what it does not know.
                    let decoded = match escape {
                        'n' => Some('\n'),
                        't' => Some('\t'),
                        '\\' | '\'' | '"' | '?' => Some(escape),
                        _ => None,
                    };
                    // A control character in an argument is not something a person can read.
                    match decoded {
                        Some(character) if !is_deceptive(character) => {
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

    /// Without its closing bracket a `[` is text, above all the program of that name.
    pub(super) fn closes_later(&self) -> bool {
        self.characters
            .get(self.at..)
            .is_some_and(|rest| rest.contains(&']'))
    }

    /// `{}` and `HEAD@{1}` do not expand. Anything else with a comma or two dots somewhere behind the brace may,
    /// and how bash would take it apart is not worked out here.
    pub(super) fn may_be_braces(&self) -> bool {
        let rest = self.characters.get(self.at + 1..).unwrap_or_default();
        let separates =
            rest.contains(&',') || rest.windows(2).any(|pair| matches!(pair, ['.', '.']));
        let inside = rest.iter().take_while(|character| **character != '}');
        let mut previous = '{';
        let simple = inside.fold(true, |simple, character| {
            let parts = matches!(character, ',' | '{' | '\\' | '\'' | '"' | '$' | '`')
                || (*character == '.' && previous == '.');
            previous = *character;
            simple && !parts
        });
        let closes = rest.iter().filter(|character| **character == '}').count();
        rest.contains(&'}') && separates && !(simple && closes == 1)
    }
}

/// Characters that make an expansion of a dollar in front of them.
fn starts_expansion(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'_' | b'{' | b'(' | b'[' | b'@' | b'*' | b'#' | b'?' | b'$' | b'!' | b'-' | b'"'
        )
}
