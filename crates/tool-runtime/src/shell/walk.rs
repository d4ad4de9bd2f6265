//! From the parser's tree to a flat list of every simple command, wherever it stands.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use brush_parser::ast;

use super::parse::parse;
use super::prescan::{Refusal, prescan};
use super::word::{Dynamic, Surroundings, Value, Word, expand_braces, nested_in_text, scan};
use super::wrappers::{self, Inner};

/// Substitutions in wrappers in substitutions: beyond this, "not understood".
const MAX_DEPTH: usize = 8;
/// More simple commands than this are not judged one by one.
pub(super) const MAX_COMMANDS: usize = 50;

/// Where a script begins.
pub struct Start<'a> {
    pub directory: PathBuf,
    pub home: PathBuf,
    /// Whether a path is a directory, if that is known; `cd` to one that exists cannot fail quietly.
    pub is_directory: &'a dyn Fn(&Path) -> Option<bool>,
}

/// The directories a command may be running in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Directories {
    Known(Vec<PathBuf>),
    Unknown,
}

impl Directories {
    fn union(&self, other: &Self) -> Self {
        let (Self::Known(left), Self::Known(right)) = (self, other) else {
            return Self::Unknown;
        };
        let mut all = left.clone();
        for directory in right {
            if !all.contains(directory) {
                all.push(directory.clone());
            }
        }
        if all.len() > MAX_DEPTH {
            Self::Unknown
        } else {
            Self::Known(all)
        }
    }
}

/// How a command stands in the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the script's own lists and pipelines.
    Plain,
    /// Started by the command with this index.
    Wrapped(usize),
    /// In a substitution, compound command, function or string that is run as a script.
    Nested,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedirectKind {
    Read,
    Write,
    Duplicate,
    HereDocument,
    HereString,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub kind: RedirectKind,
    pub target: Word,
    pub directories: Directories,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub name: String,
    /// Whether nothing in the value is decided at run time.
    pub literal: bool,
}

/// One simple command: assignments, words, redirects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub words: Vec<Word>,
    pub assignments: Vec<Assignment>,
    pub redirects: Vec<Redirect>,
    pub directories: Directories,
    pub place: Place,
    /// Why it cannot be said what this command starts, if so.
    pub opaque: Option<&'static str>,
    /// Another command is started by this one (see [`Place::Wrapped`]).
    pub wraps: bool,
    /// As a wrapper it is understood and adds nothing.
    pub transparent: bool,
    /// Arguments from standard input or from matches are appended when it runs.
    pub appended_arguments: bool,
}

/// All that is known about a script before it runs.
#[derive(Debug, Clone)]
pub struct Analysis {
    pub script: String,
    /// Why the script was not parsed, if it was not.
    pub parse_error: Option<String>,
    /// Set when the script was refused before parsing.
    pub refusal: Option<Refusal>,
    pub commands: Vec<Command>,
    /// What in the structure voids every proof, in order of appearance.
    pub voids: Vec<String>,
}

impl Analysis {
    /// Commands of the script's own lists and pipelines.
    pub fn plain_commands(&self) -> impl Iterator<Item = &Command> {
        self.commands
            .iter()
            .filter(|command| command.place == Place::Plain)
    }

    pub fn redirects(&self) -> impl Iterator<Item = &Redirect> {
        self.commands.iter().flat_map(|command| &command.redirects)
    }

    /// A person can be shown this script and no part of it is hidden.
    pub fn is_readable(&self) -> bool {
        !matches!(self.refusal, Some(Refusal::Deceptive { .. }))
    }
}

/// Finds every simple command of `script`. Never fails: what could not be read is said in the result.
pub fn analyse(script: &str, start: &Start<'_>) -> Analysis {
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
        voids: Vec::new(),
        depth: 0,
        nested: false,
    };
    let mut state = Directories::Known(vec![start.directory.clone()]);
    let refusal = prescan(script).err();
    let parse_error = match parse(script) {
        Ok(program) => {
            for list in &program.complete_commands {
                walker.list(list, &mut state);
            }
            walker.cross_check(script);
            None
        }
        Err(why) => {
            walker.void(why.clone());
            walker.segments_of_text(script);
            Some(why)
        }
    };
    Analysis {
        script: script.to_owned(),
        parse_error,
        refusal,
        commands: walker.commands,
        voids: walker.voids,
    }
}

struct Walker<'a> {
    start: &'a Start<'a>,
    surroundings: Surroundings,
    commands: Vec<Command>,
    voids: Vec<String>,
    depth: usize,
    nested: bool,
}

impl Walker<'_> {
    fn void(&mut self, why: impl Into<String>) {
        let why = why.into();
        if self.voids.len() < 8 && !self.voids.contains(&why) {
            self.voids.push(why);
        }
    }

    /// The independent lexer must agree on the number of commands.
    fn cross_check(&mut self, script: &str) {
        let found = self
            .commands
            .iter()
            .filter(|command| command.place == Place::Plain)
            .count();
        if found == 0 {
            self.void("there is no command in it");
        }
        if found > MAX_COMMANDS {
            self.void(format!(
                "it has {found} commands, more than the {MAX_COMMANDS} that are judged"
            ));
        }
        if continues_inside_a_word(script) {
            self.void("a word is continued on the next line");
        }
        if self.voids.is_empty() && super::count_commands(script) != Some(found) {
            self.void("two readings of the script disagree on its commands");
        }
    }

    fn list(&mut self, list: &ast::CompoundList, state: &mut Directories) {
        for ast::CompoundListItem(and_or, separator) in &list.0 {
            let before = state.clone();
            if matches!(separator, ast::SeparatorOperator::Async) {
                self.void("a part runs in the background");
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
        for command in &pipeline.seq {
            let mut own = state.clone();
            let first = self.commands.len();
            self.command(command, &mut own, printed.take());
            printed = self.commands.get(first).and_then(printed_text);
        }
    }

    fn nested(&mut self, body: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.nested, true);
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.void("it is nested deeper than is analysed");
        } else {
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
                self.void("it has compound commands, groups or subshells");
                self.nested(|walker| walker.compound(compound, state));
                self.redirects_of_compound(redirects.as_ref(), state);
            }
            ast::Command::Function(function) => {
                self.void("it defines a function");
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
                self.void("`[[ … ]]` may evaluate text as code");
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
                self.surroundings.variables.remove(&clause.variable_name);
                for word in clause.values.iter().flatten() {
                    self.word(&word.value, state);
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
                self.list(&clause.0, state);
                self.list(&clause.1.list, state);
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
        }
        self.change_directory(index, state);
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
                    .is_some_and(|word| wrappers::is_shell(word.sketch()))
            })
    }

    fn item(
        &mut self,
        item: &ast::CommandPrefixOrSuffixItem,
        state: &Directories,
        command: &mut Command,
        before_name: bool,
    ) {
        use ast::CommandPrefixOrSuffixItem as Item;
        match item {
            Item::IoRedirect(redirect) => {
                let redirect = self.redirect(redirect, state);
                command.redirects.extend(redirect);
            }
            Item::Word(word) => self.push_word(&word.value, state, command),
            Item::AssignmentWord(assignment, word) => {
                if !before_name {
                    if matches!(assignment.value, ast::AssignmentValue::Array(_)) {
                        self.void("it assigns an array");
                    }
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
                    literal: scalar && scanned.text().is_some(),
                });
            }
            Item::ProcessSubstitution(_, subshell) => {
                self.void("it has a process substitution");
                self.nested(|walker| walker.list(&subshell.list, &mut state.clone()));
                command.words.push(Word {
                    source: "<(…)".to_owned(),
                    value: Value::Dynamic {
                        why: Dynamic::CommandSubstitution,
                        sketch: super::word::UNKNOWN.to_string(),
                    },
                });
            }
        }
    }

    fn push_word(&mut self, source: &str, state: &Directories, command: &mut Command) {
        let word = self.word(source, state);
        // Detection looks at the words a brace expression stands for; the dynamic word stays in front of
        // them only as a reason not to prove anything.
        if let Value::Dynamic {
            why: Dynamic::Braces,
            ..
        } = word.value
        {
            self.void("it has a brace expansion");
            if let Some(words) = expand_braces(source) {
                command.words.extend(words.into_iter().map(Word::literal));
                return;
            }
        }
        command.words.push(word);
    }

    /// Scans a word and walks whatever would run to find its value.
    fn word(&mut self, source: &str, state: &Directories) -> Word {
        let scanned = scan(source, &self.surroundings);
        for script in &scanned.nested {
            self.void("it has a substitution");
            self.script(script, state);
        }
        scanned.word
    }

    /// Text that is expanded without being split into words.
    fn text(&mut self, text: &str, state: &Directories) {
        for script in nested_in_text(text, &self.surroundings) {
            self.void("it has a substitution");
            self.script(&script, state);
        }
    }

    fn script(&mut self, script: &str, state: &Directories) {
        self.nested(|walker| match parse(script) {
            Ok(program) => {
                let mut own = state.clone();
                for list in &program.complete_commands {
                    walker.list(list, &mut own);
                }
            }
            Err(why) => {
                walker.void(why);
                walker.segments_of_text(script);
            }
        });
    }

    fn segments_of_text(&mut self, script: &str) {
        for words in super::segments(script) {
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

    fn redirect(&mut self, redirect: &ast::IoRedirect, state: &Directories) -> Option<Redirect> {
        use ast::{IoFileRedirectKind as Kind, IoFileRedirectTarget as Target};
        let (kind, target) = match redirect {
            ast::IoRedirect::File(_, kind, target) => {
                let target = match target {
                    Target::Filename(word) | Target::Duplicate(word) => {
                        self.word(&word.value, state)
                    }
                    Target::Fd(descriptor) => Word::literal(descriptor.to_string()),
                    Target::ProcessSubstitution(_, subshell) => {
                        self.void("it has a process substitution");
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
                self.void("it has a here-document");
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

    fn record(&mut self, mut command: Command) -> usize {
        if self.nested && command.place == Place::Plain {
            command.place = Place::Nested;
        }
        self.commands.push(command);
        self.commands.len() - 1
    }

    /// Records a command and, behind it, whatever it would start.
    fn finish(&mut self, mut command: Command, depth: usize) -> usize {
        let name_is_dynamic = command
            .words
            .first()
            .is_some_and(|word| word.text().is_none());
        if name_is_dynamic {
            command.opaque = Some("the name of the program is not known");
        }
        let unwrapped = wrappers::unwrap(&command.words);
        let words = command.words.clone();
        if let Some(unwrapped) = &unwrapped {
            command.wraps = true;
            command.transparent = unwrapped.transparent;
            command
                .assignments
                .extend(unwrapped.assignments.iter().map(|text| Assignment {
                    name: text.split('=').next().unwrap_or_default().to_owned(),
                    literal: true,
                }));
        }
        let directories = command.directories.clone();
        let index = self.record(command);
        let Some(unwrapped) = unwrapped else {
            return index;
        };
        if depth >= MAX_DEPTH {
            self.mark_opaque(index, "it is wrapped deeper than is analysed");
            return index;
        }
        for inner in unwrapped.inner {
            match inner {
                Inner::Words(inner_words) if inner_words.len() < words.len() => {
                    let mut inner = empty_command(directories.clone());
                    inner.words = inner_words;
                    inner.place = Place::Wrapped(index);
                    inner.appended_arguments = unwrapped.appends_arguments;
                    self.finish(inner, depth + 1);
                }
                Inner::Words(_) => {}
                Inner::Script(script) => self.script(&script, &directories),
                Inner::Opaque(why) => self.mark_opaque(index, why),
            }
        }
        index
    }

    fn mark_opaque(&mut self, index: usize, why: &'static str) {
        if let Some(command) = self.commands.get_mut(index) {
            command.opaque.get_or_insert(why);
        }
    }

    fn remember(&mut self, simple: &ast::SimpleCommand) {
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
    fn forget(&mut self, command: &Command) {
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

    fn change_directory(&mut self, first: usize, state: &mut Directories) {
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

pub(crate) const FORK_BOMB: &str = "a function that starts itself more than once";

/// The directory after `cd …`. Anything but one literal directory is unknown.
fn moved(words: &[Word], from: &Directories, home: &Path) -> Directories {
    if words.first().map(Word::sketch) != Some("cd") {
        return Directories::Unknown;
    }
    let mut operands = words
        .iter()
        .skip(1)
        .filter(|word| !matches!(word.text(), Some("--" | "-P" | "-L")));
    let target = match (operands.next(), operands.next()) {
        (None, None) => return Directories::Known(vec![home.to_owned()]),
        (Some(word), None) => word.text().filter(|text| !text.starts_with('-')),
        _ => None,
    };
    match (target, from) {
        (Some(target), _) if target.starts_with('/') => {
            Directories::Known(vec![normalise(Path::new(target))])
        }
        (Some(target), Directories::Known(from)) if !target.is_empty() => Directories::Known(
            from.iter()
                .map(|directory| normalise(&directory.join(target)))
                .collect(),
        ),
        _ => Directories::Unknown,
    }
}

/// Takes `.` and `..` out by their names alone, as `cd` does.
pub(crate) fn normalise(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                result.pop();
            }
            other => result.push(other),
        }
    }
    result
}

fn empty_command(directories: Directories) -> Command {
    Command {
        words: Vec::new(),
        assignments: Vec::new(),
        redirects: Vec::new(),
        directories,
        place: Place::Plain,
        opaque: None,
        wraps: false,
        transparent: false,
        appended_arguments: false,
    }
}

/// `gi\` and `t` on the next line are one word to the shell and two to whoever reads them.
fn continues_inside_a_word(script: &str) -> bool {
    script.match_indices("\\\n").any(|(offset, _)| {
        script
            .get(..offset)
            .and_then(|before| before.chars().next_back())
            .is_some_and(|before| !before.is_whitespace())
    })
}

/// What `echo` or `printf` prints, when it is certain enough to be read as a script.
fn printed_text(command: &Command) -> Option<String> {
    let name = command.words.first()?.text()?;
    if !matches!(name, "echo" | "printf") {
        return None;
    }
    let words: Vec<&str> = command.words.iter().skip(1).map(Word::sketch).collect();
    Some(words.join(" ").replace("\\n", "\n"))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn analysed(script: &str) -> Analysis {
        analyse(
            script,
            &Start {
                directory: "/w".into(),
                home: "/home/u".into(),
                is_directory: &|path| Some(path.starts_with("/w")),
            },
        )
    }

    fn check(script: &str, expected: &[&str]) {
        let found: Vec<String> = analysed(script)
            .commands
            .iter()
            .filter(|command| !command.words.is_empty())
            .map(|command| {
                let words: Vec<&str> = command.words.iter().map(Word::sketch).collect();
                words.join(" ")
            })
            .collect();
        assert_eq!(found, expected, "{script}");
    }

    #[test]
    fn every_command_is_found() {
        check("ls -la && pwd | wc -l", &["ls -la", "pwd", "wc -l"]);
        check("echo \"a $(b)\"", &["b", "echo a \u{FFFC}"]);
        check("ls ${DIR:-$(node x.js)}", &["node x.js", "ls \u{FFFC}"]);
        check("if a; then b; else c; fi", &["a", "b", "c"]);
        check("f() { t apply; }; f", &["t apply", "f"]);
        check("(a; { b; })", &["a", "b"]);
        check("cat <<E\n$(x)\nE\n", &["x", "cat"]);
        check("bash <<'E'\nx y\nE\n", &["bash", "x y"]);
        check("echo 't apply' | sh", &["echo t apply", "sh", "t apply"]);
        check("cat <(a) >(b)", &["a", "b", "cat \u{FFFC} \u{FFFC}"]);
        check(
            "sudo env A=1 t apply",
            &["sudo env A=1 t apply", "env A=1 t apply", "t apply"],
        );
        check("bash -c 'a; b'", &["bash -c a; b", "a", "b"]);
        check("T=t; $T apply", &["t apply"]);
        check("{rm,-rf,/}", &["rm -rf /"]);
        check("[[ $(a) -eq 1 ]]", &["a"]);
        check("(( $(a) ))", &["a"]);
        check("x=$(a)", &["a"]);
        check("for f in $(a); do b $f; done", &["a", "b \u{FFFC}"]);
        check("case $(a) in x) b;; esac", &["a", "b"]);
        check("cat <<'E' 2>&1 | t apply\nfoo\nE\n", &["cat", "t apply"]);
        check("echo 'open; t apply", &["echo open", "t apply"]);
    }

    #[test]
    fn directories_are_followed() {
        for (script, expected) in [
            ("cd a && ls", vec!["/w/a"]),
            ("cd a; cd b; ls", vec!["/w/a/b"]),
            ("cd .. && ls", vec!["/"]),
            ("cd /x; ls", vec!["/x", "/w"]),
            ("cd ~ && ls", vec!["/home/u"]),
            ("(cd a); ls", vec!["/w"]),
            ("cd a | ls", vec!["/w"]),
        ] {
            let analysis = analysed(script);
            let last = analysis.commands.last().unwrap();
            let expected = Directories::Known(expected.into_iter().map(PathBuf::from).collect());
            assert_eq!(last.directories, expected, "{script}");
        }
        assert_eq!(
            analysed("cd $X && ls").commands.last().unwrap().directories,
            Directories::Unknown
        );
    }

    #[test]
    fn a_plain_script_has_nothing_that_voids_it() {
        for script in [
            "ls -la",
            "ls 2>&1 | wc",
            "a\nb # c",
            "cat < x",
            "jq . <<< '{}'",
        ] {
            assert_eq!(analysed(script).voids, Vec::<String>::new(), "{script}");
        }
        for script in [
            "ls &",
            "(ls)",
            "echo $(x)",
            "f() { ls; }",
            "cat <<E\nE\n",
            "",
            "# x",
        ] {
            assert!(!analysed(script).voids.is_empty(), "{script}");
        }
    }
}
