//! From the parser's tree to a flat list of every simple command, wherever it stands.

mod record;
mod words;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use brush_parser::ast;

use super::analysis::{
    Analysis, Command, Directories, Place, Redirect, RedirectKind, RestsOn, Start, empty_command,
};
use super::inline_code::read_from_input;
use super::lookalike::look_alike;
use super::outcome::ends_in_plain_pipeline;
use super::parse::parse;
use super::prescan::prescan;
use super::subset;
use super::word::{Surroundings, Word};
use super::wrappers;

/// Substitutions in wrappers in substitutions: beyond this, "not understood".
pub(super) const MAX_DEPTH: usize = 8;

/// Finds every simple command of `script`. Never fails: what could not be read is said in the result.
pub fn analyse(script: &str, start: &Start<'_>) -> Analysis {
    analyse_parsed(script, parse(script).as_deref(), start)
}

/// The same for a script that was parsed.
pub(super) fn analyse_parsed(
    script: &str,
    parsed: Result<&ast::Program, &String>,
    start: &Start<'_>,
) -> Analysis {
    let asked = RefCell::new(Vec::new());
    let is_directory = |path: &Path| {
        let answer = (start.is_directory)(path);
        asked.borrow_mut().push((path.to_owned(), answer));
        answer
    };
    let start = &Start {
        directory: start.directory.clone(),
        home: start.home.clone(),
        is_directory: &is_directory,
    };
    let mut walker = Walker {
        start,
        surroundings: Surroundings {
            home: start.home.display().to_string(),
            variables: HashMap::from([
                ("HOME".to_owned(), start.home.display().to_string()),
                ("PWD".to_owned(), start.directory.display().to_string()),
            ]),
        },
        commands: Vec::new(),
        depth: 0,
        nested: false,
    };
    let mut state = Directories::Known(vec![start.directory.clone()]);
    let refusal = prescan(script).err();
    let mut ends_in_pipeline = false;
    let parse_error = match parsed {
        Ok(program) => {
            ends_in_pipeline = ends_in_plain_pipeline(script, program);
            for list in &program.complete_commands {
                walker.list(list, &mut state);
            }
            None
        }
        Err(why) => {
            walker.segments_of_text(script);
            Some(why.clone())
        }
    };
    let small = match &parse_error {
        None => small(script, start),
        Some(why) => Err(why.clone()),
    };
    Analysis {
        script: script.to_owned(),
        parse_error,
        refusal,
        commands: walker.commands,
        small,
        ends_in: state,
        ends_in_pipeline,
        rests_on: RestsOn {
            directory: start.directory.clone(),
            home: start.home.clone(),
            directories: asked.take(),
        },
    }
}

/// The commands of a script in the small language, whatever the parser says of it. The error is a clause that can
/// follow "because".
pub fn small(script: &str, start: &Start<'_>) -> Result<Vec<Command>, String> {
    if let Some(character) = look_alike(script) {
        return Err(format!(
            "it contains `{character}` (U+{:04X}), which looks like another character",
            u32::from(character)
        ));
    }
    let reading = subset::read(script).map_err(|outside| outside.to_string())?;
    subset::commands(&reading, start)
}

struct Walker<'a> {
    start: &'a Start<'a>,
    surroundings: Surroundings,
    commands: Vec<Command>,
    depth: usize,
    nested: bool,
}

impl Walker<'_> {
    fn list(&mut self, list: &ast::CompoundList, state: &mut Directories) {
        for ast::CompoundListItem(and_or, separator) in &list.0 {
            let before = state.clone();
            if matches!(separator, ast::SeparatorOperator::Async) {
                let mut own = state.clone();
                self.and_or(and_or, &mut own);
            } else {
                self.and_or(and_or, state);
            }
            // A `cd` that may have failed leaves both possibilities for what comes next.
            if *state != before && !self.is_certain(state) {
                *state = state.union(&before);
            }
        }
    }

    fn is_certain(&self, state: &Directories) -> bool {
        match state {
            Directories::Known(directories) => directories
                .iter()
                .all(|directory| (self.start.is_directory)(directory) == Some(true)),
            Directories::Unknown => false,
        }
    }

    fn and_or(&mut self, and_or: &ast::AndOrList, state: &mut Directories) {
        let mut before = state.clone();
        self.pipeline(&and_or.first, state);
        for part in &and_or.additional {
            let (pipeline, after_failure) = match part {
                ast::AndOr::And(pipeline) => (pipeline, false),
                ast::AndOr::Or(pipeline) => (pipeline, true),
            };
            if after_failure {
                *state = state.union(&before);
            }
            before = state.clone();
            self.pipeline(pipeline, state);
        }
    }

    fn pipeline(&mut self, pipeline: &ast::Pipeline, state: &mut Directories) {
        if let [only] = pipeline.seq.as_slice() {
            self.command(only, state, None);
            return;
        }
        let mut printed = None;
        for (at, command) in pipeline.seq.iter().enumerate() {
            let mut own = state.clone();
            let first = self.commands.len();
            self.command(command, &mut own, printed.take());
            if at > 0 {
                for piped in self.commands.iter_mut().skip(first) {
                    piped.piped = true;
                }
            }
            printed = self.commands.get(first).and_then(printed_text);
        }
    }

    fn nested(&mut self, body: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.nested, true);
        self.depth += 1;
        if self.depth <= MAX_DEPTH {
            body(self);
        }
        self.depth -= 1;
        self.nested = outer;
    }

    /// `input` is what an `echo` or `printf` before the pipe prints, when that is known.
    fn command(&mut self, command: &ast::Command, state: &mut Directories, input: Option<String>) {
        match command {
            ast::Command::Simple(simple) => self.simple(simple, state, input),
            ast::Command::Compound(compound, redirects) => {
                self.nested(|walker| walker.compound(compound, state));
                self.redirects_of_compound(redirects.as_ref(), state);
            }
            ast::Command::Function(function) => {
                let ast::FunctionBody(body, redirects) = &function.body;
                let mut own = state.clone();
                self.nested(|walker| walker.compound(body, &mut own));
                self.redirects_of_compound(redirects.as_ref(), state);
                // `:(){ :|:& };:` is a function that starts itself twice.
                let name = function.fname.value.clone();
                let starts_itself = self
                    .commands
                    .iter()
                    .filter(|command| command.words.first().is_some_and(|w| w.sketch() == name))
                    .count();
                if starts_itself >= 2 {
                    self.record(Command {
                        opaque: Some(FORK_BOMB),
                        ..empty_command(state.clone())
                    });
                }
            }
            ast::Command::ExtendedTest(test, redirects) => {
                let mut words = Vec::new();
                collect_test_words(&test.expr, &mut words);
                for word in words {
                    self.word(&word.value, state);
                }
                self.redirects_of_compound(redirects.as_ref(), state);
            }
        }
    }

    fn redirects_of_compound(&mut self, list: Option<&ast::RedirectList>, state: &Directories) {
        let Some(ast::RedirectList(list)) = list else {
            return;
        };
        let redirects: Vec<Redirect> = list
            .iter()
            .filter_map(|redirect| self.redirect(redirect, state))
            .collect();
        self.record(Command {
            redirects,
            ..empty_command(state.clone())
        });
    }

    fn compound(&mut self, compound: &ast::CompoundCommand, state: &mut Directories) {
        use ast::CompoundCommand as Compound;
        let before = state.clone();
        match compound {
            Compound::Arithmetic(arithmetic) => self.text(&arithmetic.expr.value, state),
            Compound::ArithmeticForClause(clause) => {
                let expressions = [&clause.initializer, &clause.condition, &clause.updater];
                for expression in expressions.into_iter().flatten() {
                    self.text(&expression.value, state);
                }
                self.list(&clause.body.list, state);
            }
            Compound::BraceGroup(group) => self.list(&group.list, state),
            Compound::Subshell(subshell) => self.list(&subshell.list, &mut state.clone()),
            Compound::ForClause(clause) => {
                let values: Vec<Word> = clause
                    .values
                    .iter()
                    .flatten()
                    .map(|word| self.word(&word.value, state))
                    .collect();
                let name = clause.variable_name.clone();
                // Detection follows a loop over one word as it would an assignment.
                match values.as_slice() {
                    [only] if only.text().is_some() => {
                        let value = only.sketch().to_owned();
                        self.surroundings.variables.insert(name, value);
                    }
                    _ => {
                        self.surroundings.variables.remove(&name);
                    }
                }
                self.list(&clause.body.list, state);
            }
            Compound::CaseClause(clause) => {
                self.word(&clause.value.value, state);
                for item in &clause.cases {
                    for pattern in &item.patterns {
                        self.word(&pattern.value, state);
                    }
                    if let Some(list) = &item.cmd {
                        self.list(list, state);
                    }
                }
            }
            Compound::IfClause(clause) => {
                self.list(&clause.condition, state);
                self.list(&clause.then, state);
                for branch in clause.elses.iter().flatten() {
                    if let Some(condition) = &branch.condition {
                        self.list(condition, state);
                    }
                    self.list(&branch.body, state);
                }
            }
            Compound::WhileClause(clause) | Compound::UntilClause(clause) => {
                let condition = self.commands.len();
                self.list(&clause.0, state);
                let body = self.commands.len();
                self.list(&clause.1.list, state);
                if self.never_ends(condition..body) && only_starts(&clause.1.list) {
                    self.record(Command {
                        opaque: Some(FORK_BOMB),
                        ..empty_command(state.clone())
                    });
                }
            }
            Compound::Coprocess(coprocess) => {
                self.command(&coprocess.body, &mut state.clone(), None);
            }
        }
        // A branch or loop that moved may or may not have run.
        if *state != before && !matches!(compound, Compound::BraceGroup(_)) {
            *state = state.union(&before);
        }
    }

    /// True if a condition is one of those that never change.
    fn never_ends(&self, condition: Range<usize>) -> bool {
        match self.commands.get(condition) {
            Some([only]) => {
                let name = only.words.first().map(Word::sketch);
                matches!(name, Some("true" | ":" | "false" | "[" | "test")) && only.words.len() <= 3
            }
            _ => false,
        }
    }

    fn simple(
        &mut self,
        simple: &ast::SimpleCommand,
        state: &mut Directories,
        input: Option<String>,
    ) {
        let mut command = empty_command(state.clone());
        let prefix = simple.prefix.iter().flat_map(|prefix| &prefix.0);
        for item in prefix {
            self.item(item, state, &mut command, true);
        }
        if let Some(name) = &simple.word_or_name {
            self.push_word(&name.value, state, &mut command);
        }
        let suffix = simple.suffix.iter().flat_map(|suffix| &suffix.0);
        for item in suffix {
            self.item(item, state, &mut command, false);
        }
        if command.words.is_empty() {
            self.remember(simple);
        } else {
            self.forget(&command);
        }
        let mut here_documents = Vec::new();
        for redirect in &command.redirects {
            if matches!(
                redirect.kind,
                RedirectKind::HereDocument | RedirectKind::HereString
            ) {
                here_documents.push(redirect.target.sketch().to_owned());
            }
        }
        here_documents.extend(input);
        let index = self.finish(command, 0);
        // Text that a shell reads from its standard input is a script.
        if self.reads_script_from_input(index) {
            for script in here_documents {
                self.script(&script, state);
            }
        } else {
            for text in here_documents {
                self.code_from_input(index, &text, state);
            }
        }
        self.change_directory(index, state);
    }

    /// Text that an interpreter or `make` reads from its standard input is code.
    fn code_from_input(&mut self, first: usize, text: &str, state: &Directories) {
        let started: Vec<Vec<Word>> = self
            .commands
            .iter()
            .skip(first)
            .map(|command| command.words.clone())
            .collect();
        for words in started {
            let name = words.first().map(Word::sketch).unwrap_or_default();
            if matches!(name, "make" | "gmake") {
                for recipe in text.lines().filter(|line| line.starts_with('\t')) {
                    self.script(recipe.trim_start_matches(['\t', '@', '-', '+']), state);
                }
            } else if let Some(words) = read_from_input(&words, text) {
                let command = Command {
                    words,
                    place: Place::Nested,
                    ..empty_command(state.clone())
                };
                self.finish(command, 0);
            }
        }
    }

    fn reads_script_from_input(&self, first: usize) -> bool {
        self.commands
            .get(first..)
            .unwrap_or_default()
            .iter()
            .any(|command| {
                command
                    .words
                    .first()
                    .is_some_and(|word| wrappers::reads_scripts(word.sketch()))
            })
    }
}

/// True if a loop's body starts jobs in the background and does nothing itself that would slow or
/// end it.
fn only_starts(body: &ast::CompoundList) -> bool {
    starts_jobs(body) && !pauses(body)
}

/// The lists that stand inside a chain as subshells or groups.
fn inner_lists(and_or: &ast::AndOrList) -> impl Iterator<Item = &ast::CompoundList> {
    let more = and_or.additional.iter().map(|part| match part {
        ast::AndOr::And(pipeline) | ast::AndOr::Or(pipeline) => pipeline,
    });
    std::iter::once(&and_or.first)
        .chain(more)
        .flat_map(|pipeline| &pipeline.seq)
        .filter_map(|command| match command {
            ast::Command::Compound(ast::CompoundCommand::Subshell(subshell), _) => {
                Some(&subshell.list)
            }
            ast::Command::Compound(ast::CompoundCommand::BraceGroup(group), _) => Some(&group.list),
            _ => None,
        })
}

fn starts_jobs(list: &ast::CompoundList) -> bool {
    list.0
        .iter()
        .any(|ast::CompoundListItem(and_or, separator)| {
            matches!(separator, ast::SeparatorOperator::Async)
                || inner_lists(and_or).any(starts_jobs)
        })
}

fn pauses(list: &ast::CompoundList) -> bool {
    const PAUSES: &[&str] = &["wait", "sleep", "break", "exit", "return", "read", "exec"];
    list.0
        .iter()
        .filter(|ast::CompoundListItem(_, separator)| {
            !matches!(separator, ast::SeparatorOperator::Async)
        })
        .any(|ast::CompoundListItem(and_or, _)| {
            let more = and_or.additional.iter().map(|part| match part {
                ast::AndOr::And(pipeline) | ast::AndOr::Or(pipeline) => pipeline,
            });
            let by_name = std::iter::once(&and_or.first)
                .chain(more)
                .flat_map(|pipeline| &pipeline.seq)
                .any(|command| match command {
                    ast::Command::Simple(simple) => simple
                        .word_or_name
                        .as_ref()
                        .is_some_and(|name| PAUSES.contains(&name.value.as_str())),
                    _ => false,
                });
            by_name || inner_lists(and_or).any(pauses)
        })
}

pub(crate) const FORK_BOMB: &str = "it starts copies of itself endlessly";

/// Output of `echo`, `printf` or a `cat` of a here-document, when it is certain enough to be read
/// as a script.
fn printed_text(command: &Command) -> Option<String> {
    match command.words.first()?.text()? {
        "echo" | "printf" => {
            let words: Vec<&str> = command.words.iter().skip(1).map(Word::sketch).collect();
            Some(words.join(" ").replace("\\n", "\n"))
        }
        "cat" | "tee" => {
            let documents: Vec<&str> = command
                .redirects
                .iter()
                .filter(|redirect| {
                    matches!(
                        redirect.kind,
                        RedirectKind::HereDocument | RedirectKind::HereString
                    )
                })
                .map(|redirect| redirect.target.sketch())
                .collect();
            (!documents.is_empty()).then(|| documents.join("\n"))
        }
        _ => None,
    }
}

fn collect_test_words<'a>(expression: &'a ast::ExtendedTestExpr, words: &mut Vec<&'a ast::Word>) {
    use ast::ExtendedTestExpr as Test;
    match expression {
        Test::And(left, right) | Test::Or(left, right) => {
            collect_test_words(left, words);
            collect_test_words(right, words);
        }
        Test::Not(inner) | Test::Parenthesized(inner) => collect_test_words(inner, words),
        Test::UnaryTest(_, word) => words.push(word),
        Test::BinaryTest(_, left, right) => words.extend([left, right]),
    }
}

#[cfg(test)]
mod tests;
