//! Recording a command: what it starts in turn, what it makes unreadable, and what it changes for
//! the commands after it (variables, the directory).

use brush_parser::ast;

use super::{MAX_DEPTH, Walker};
use crate::shell::analysis::{Assignment, Command, Directories, Place, empty_command, moved};
use crate::shell::word::{Word, scan};
use crate::shell::wrappers::{self, Inner};

impl Walker<'_> {
    pub(super) fn record(&mut self, mut command: Command) -> usize {
        if self.nested && command.place == Place::Plain {
            command.place = Place::Nested;
        }
        self.commands.push(command);
        self.commands.len() - 1
    }

    /// Records a command and, behind it, whatever it would start.
    pub(super) fn finish(&mut self, mut command: Command, depth: usize) -> usize {
        let name_is_dynamic = command
            .words
            .first()
            .is_some_and(|word| word.text().is_none());
        if name_is_dynamic {
            command.opaque = Some("the program name is not known");
        }
        let unwrapped = wrappers::unwrap(&command.words);
        let words = command.words.clone();
        if let Some(unwrapped) = &unwrapped {
            command.wraps = true;
            command.transparent = unwrapped.transparent;
            command
                .assignments
                .extend(unwrapped.assignments.iter().map(|text| {
                    let (name, value) = text.split_once('=').unwrap_or((text, ""));
                    Assignment {
                        name: name.to_owned(),
                        value: Some(value.to_owned()),
                    }
                }));
        }
        let directories = command.directories.clone();
        let appended = command.appended_arguments;
        let index = self.record(command);
        let Some(unwrapped) = unwrapped else {
            return index;
        };
        if depth >= MAX_DEPTH {
            self.mark_opaque(index, "it is wrapped too deeply to analyse");
            return index;
        }
        for inner in unwrapped.inner {
            match inner {
                Inner::Words(inner_words) if inner_words.len() < words.len() => {
                    let mut inner = empty_command(directories.clone());
                    inner.words = inner_words;
                    inner.place = Place::Wrapped(index);
                    inner.appended_arguments = appended || unwrapped.appends_arguments;
                    self.finish(inner, depth + 1);
                }
                Inner::Words(_) => {}
                Inner::Script(script) => self.script(&script, &directories),
                Inner::Opaque(why) => self.mark_opaque(index, why),
            }
        }
        index
    }

    pub(super) fn mark_opaque(&mut self, index: usize, why: &'static str) {
        if let Some(command) = self.commands.get_mut(index) {
            command.opaque.get_or_insert(why);
        }
    }

    pub(super) fn remember(&mut self, simple: &ast::SimpleCommand) {
        for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
            if let ast::CommandPrefixOrSuffixItem::AssignmentWord(assignment, _) = item
                && let ast::AssignmentName::VariableName(name) = &assignment.name
            {
                let value = match &assignment.value {
                    ast::AssignmentValue::Scalar(word) if !assignment.append => {
                        scan(&word.value, &self.surroundings)
                            .word
                            .text()
                            .map(str::to_owned)
                    }
                    _ => None,
                };
                match value {
                    Some(value) => self.surroundings.variables.insert(name.clone(), value),
                    None => self.surroundings.variables.remove(name),
                };
            }
        }
    }

    /// `read`, `export`, `unset`, … may change any variable named in their words.
    pub(super) fn forget(&mut self, command: &Command) {
        let name = command.words.first().map(Word::sketch);
        if matches!(
            name,
            Some(
                "read"
                    | "export"
                    | "declare"
                    | "typeset"
                    | "local"
                    | "unset"
                    | "readonly"
                    | "mapfile"
                    | "readarray"
                    | "getopts"
                    | "printf"
                    | "eval"
                    | "source"
                    | "."
            )
        ) {
            self.surroundings.variables.retain(|variable, _| {
                !command
                    .words
                    .iter()
                    .any(|word| word.sketch().starts_with(variable.as_str()))
            });
        }
    }

    pub(super) fn change_directory(&mut self, first: usize, state: &mut Directories) {
        let Some(words) = self
            .commands
            .get(first..)
            .unwrap_or_default()
            .iter()
            .map(|command| &command.words)
            .find(|words| {
                words
                    .first()
                    .is_some_and(|word| matches!(word.sketch(), "cd" | "pushd" | "popd"))
            })
        else {
            return;
        };
        *state = moved(words, state, &self.start.home);
        let pwd = match state {
            Directories::Known(directories) => directories.first(),
            Directories::Unknown => None,
        };
        match pwd {
            Some(directory) => self
                .surroundings
                .variables
                .insert("PWD".to_owned(), directory.display().to_string()),
            None => self.surroundings.variables.remove("PWD"),
        };
    }
}
