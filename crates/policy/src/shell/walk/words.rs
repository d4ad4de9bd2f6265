//! The parts of a simple command: words, assignments, redirects, and the scripts that hide in them.

use brush_parser::ast;

use super::{MAX_DEPTH, Walker};
use crate::shell::analysis::{
    Assignment, Command, Directories, Place, Redirect, RedirectKind, empty_command,
};
use crate::shell::parse::parse;
use crate::shell::segments;
use crate::shell::word::{
    Dynamic, UNKNOWN, Value, Word, expand_braces, nested_in_text, scan, split_expansion,
};

impl Walker<'_> {
    pub(super) fn item(
        &mut self,
        item: &ast::CommandPrefixOrSuffixItem,
        state: &Directories,
        command: &mut Command,
        before_name: bool,
    ) {
        use ast::CommandPrefixOrSuffixItem as Item;
        match item {
            Item::IoRedirect(redirect) => {
                // `<&-x` closes a descriptor, and what stands behind it is a word.
                if let ast::IoRedirect::File(
                    _,
                    _,
                    ast::IoFileRedirectTarget::Duplicate(target)
                    | ast::IoFileRedirectTarget::Filename(target),
                ) = redirect
                    && hides_a_word(redirect, &target.value)
                {
                    command.words.push(Word {
                        source: target.value.clone(),
                        value: Value::Dynamic {
                            why: Dynamic::Unfinished,
                            sketch: UNKNOWN.to_string(),
                        },
                    });
                }
                let redirect = self.redirect(redirect, state);
                command.redirects.extend(redirect);
            }
            Item::Word(word) => self.push_word(&word.value, state, command),
            Item::AssignmentWord(assignment, word) => {
                if !before_name {
                    self.push_word(&word.value, state, command);
                    return;
                }
                let scanned = self.word(&word.value, state);
                let name = match &assignment.name {
                    ast::AssignmentName::VariableName(name) => name.clone(),
                    ast::AssignmentName::ArrayElementName(name, _) => format!("{name}[…]"),
                };
                let scalar = matches!(assignment.value, ast::AssignmentValue::Scalar(_));
                command.assignments.push(Assignment {
                    name,
                    value: scanned.text().filter(|_| scalar).map(str::to_owned),
                });
            }
            Item::ProcessSubstitution(_, subshell) => {
                self.nested(|walker| walker.list(&subshell.list, &mut state.clone()));
                command.words.push(Word {
                    source: "<(…)".to_owned(),
                    value: Value::Dynamic {
                        why: Dynamic::CommandSubstitution,
                        sketch: UNKNOWN.to_string(),
                    },
                });
            }
        }
    }

    pub(super) fn push_word(&mut self, source: &str, state: &Directories, command: &mut Command) {
        let word = self.word(source, state);
        // Detection looks at the words a brace expression stands for; the dynamic word stays in front of
        // them only as a reason not to prove anything.
        if let Value::Dynamic {
            why: Dynamic::Braces,
            ..
        } = word.value
            && let Some(words) = expand_braces(source)
        {
            let words = words.iter().map(|word| scan(word, &self.surroundings).word);
            command.words.extend(words);
            return;
        }
        match split_expansion(&word) {
            Some(words) => command.words.extend(words),
            None => command.words.push(word),
        }
    }

    /// Scans a word and walks whatever would run to find its value.
    pub(super) fn word(&mut self, source: &str, state: &Directories) -> Word {
        let scanned = scan(source, &self.surroundings);
        for script in &scanned.nested {
            self.script(script, state);
        }
        scanned.word
    }

    /// Text that is expanded without being split into words.
    pub(super) fn text(&mut self, text: &str, state: &Directories) {
        for script in nested_in_text(text, &self.surroundings) {
            self.script(&script, state);
        }
    }

    pub(super) fn script(&mut self, script: &str, state: &Directories) {
        self.nested(|walker| match parse(script) {
            Ok(program) => {
                let mut own = state.clone();
                for list in &program.complete_commands {
                    walker.list(list, &mut own);
                }
            }
            Err(_) => walker.segments_of_text(script),
        });
    }

    pub(super) fn segments_of_text(&mut self, script: &str) {
        for words in segments(script) {
            let mut command = empty_command(Directories::Unknown);
            command.words = words
                .into_iter()
                .skip_while(|word| is_keyword(word) || is_assignment(word))
                .map(Word::literal)
                .collect();
            command.place = Place::Nested;
            if !command.words.is_empty() {
                self.nested(|walker| {
                    walker.finish(command, MAX_DEPTH - 2);
                });
            }
        }
    }

    pub(super) fn redirect(
        &mut self,
        redirect: &ast::IoRedirect,
        state: &Directories,
    ) -> Option<Redirect> {
        use ast::{IoFileRedirectKind as Kind, IoFileRedirectTarget as Target};
        let (kind, target) = match redirect {
            ast::IoRedirect::File(_, kind, target) => {
                let target = match target {
                    Target::Filename(word) | Target::Duplicate(word) => {
                        self.word(&word.value, state)
                    }
                    Target::Fd(descriptor) => Word::literal(descriptor.to_string()),
                    Target::ProcessSubstitution(_, subshell) => {
                        self.nested(|walker| walker.list(&subshell.list, &mut state.clone()));
                        return None;
                    }
                };
                let is_descriptor = target.text().is_some_and(|text| {
                    text == "-"
                        || text
                            .trim_end_matches('-')
                            .bytes()
                            .all(|b| b.is_ascii_digit())
                });
                let kind = match kind {
                    Kind::Read => RedirectKind::Read,
                    Kind::DuplicateInput | Kind::DuplicateOutput if is_descriptor => {
                        RedirectKind::Duplicate
                    }
                    Kind::DuplicateInput => RedirectKind::Read,
                    Kind::Write
                    | Kind::Append
                    | Kind::Clobber
                    | Kind::ReadAndWrite
                    | Kind::DuplicateOutput => RedirectKind::Write,
                };
                (kind, target)
            }
            ast::IoRedirect::OutputAndError(word, _) => {
                (RedirectKind::Write, self.word(&word.value, state))
            }
            ast::IoRedirect::HereString(_, word) => {
                (RedirectKind::HereString, self.word(&word.value, state))
            }
            ast::IoRedirect::HereDocument(_, document) => {
                if document.requires_expansion {
                    self.text(&document.doc.value, state);
                }
                (
                    RedirectKind::HereDocument,
                    Word::literal(document.doc.value.clone()),
                )
            }
        };
        Some(Redirect {
            kind,
            target,
            directories: state.clone(),
        })
    }
}

/// A target of `<&` or `>&` that begins with a dash or a digit and is more than that.
fn hides_a_word(redirect: &ast::IoRedirect, target: &str) -> bool {
    use ast::IoFileRedirectKind as Kind;
    let duplicates = matches!(
        redirect,
        ast::IoRedirect::File(_, Kind::DuplicateInput | Kind::DuplicateOutput, _)
    );
    let behind_digits = target.trim_start_matches(|c: char| c.is_ascii_digit());
    duplicates
        && behind_digits.len() > 1
        && target.starts_with(|c: char| c == '-' || c.is_ascii_digit())
}

fn is_keyword(word: &str) -> bool {
    matches!(
        word,
        "if" | "then" | "else" | "elif" | "while" | "until" | "do" | "time" | "!" | "coproc"
    )
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name
                .chars()
                .all(|character| character.is_ascii_alphanumeric() || character == '_')
    })
}
