//! The simple commands of a script in the small language, with the words they get and the directories
//! they may run in.
//!
//! A `cd` counts only where it is certain: what follows `&&` runs in the new directory, what follows `;` in
//! either. A loop is followed for each of its words. A variable has a value only if one place in the script
//! sets it.

use std::collections::HashMap;

use super::names;
use super::sites::{Sites, count_list};
use super::value::{Built, check_name, is_one_word, is_plain_cd, may_hold_secret, unescape};
use super::{Chain, Kind, Link, List, Node, Part, Pipeline, Reading, Redirection, Target, Text};
use crate::shell::analysis::{
    Assignment, Command, Directories, Place, Redirect, RedirectKind, Start, empty_command, moved,
};
use crate::shell::prove::changes_shell;
use crate::shell::word::{Dynamic, Value, Word};
use crate::shell::wrappers::{self, Inner};

/// More simple commands than this are not judged one by one.
const MAX_COMMANDS: usize = 50;
/// A loop over more words than this is followed for a word that is not known.
const MAX_VALUES: usize = 24;
/// Wrappers in wrappers.
const MAX_WRAPPERS: usize = 8;

/// The simple commands of a script in order, or why they cannot be told. The error is a clause that can
/// follow "because".
pub(in crate::shell) fn commands(
    reading: &Reading,
    start: &Start<'_>,
) -> Result<Vec<Command>, String> {
    let mut sites = HashMap::new();
    count_list(&reading.script.0, true, &mut sites);
    let mut flow = Flow {
        start,
        documents: &reading.documents,
        sites,
        bindings: HashMap::new(),
        commands: Vec::new(),
        piped: false,
        outputs: 0,
        conditions: 0,
        listed: None,
    };
    let here = Directories::Known(vec![start.directory.clone()]);
    flow.list(&reading.script.0, &here)?;
    if flow.commands.is_empty() {
        return Err("there is no command in it".to_owned());
    }
    Ok(flow.commands)
}

/// The value of a variable.
#[derive(Clone)]
enum Binding {
    Text(String),
    Unknown,
}

/// The directories after a command that succeeded or failed.
struct After {
    success: Directories,
    failure: Directories,
}

impl After {
    fn same(state: &Directories) -> Self {
        Self {
            success: state.clone(),
            failure: state.clone(),
        }
    }

    fn any(&self) -> Directories {
        self.success.union(&self.failure)
    }
}

struct Flow<'a> {
    start: &'a Start<'a>,
    documents: &'a [String],
    sites: HashMap<String, Sites>,
    bindings: HashMap<String, Binding>,
    commands: Vec<Command>,
    piped: bool,
    /// Number of substitutions around the current position.
    outputs: usize,
    /// Number of loop conditions around it.
    conditions: usize,
    /// The directories below which the names lie that come from the pipe.
    listed: Option<Vec<String>>,
}

impl Flow<'_> {
    fn list(&mut self, List(chains): &List, from: &Directories) -> Result<Directories, String> {
        let mut state = from.clone();
        for chain in chains {
            state = self.chain(chain, &state)?.any();
        }
        Ok(state)
    }

    /// The directories after a condition, by how it came out.
    fn condition(&mut self, List(chains): &List, from: &Directories) -> Result<After, String> {
        let mut after = After::same(from);
        let mut state = from.clone();
        for chain in chains {
            after = self.chain(chain, &state)?;
            state = after.any();
        }
        Ok(after)
    }

    fn chain(&mut self, chain: &Chain, from: &Directories) -> Result<After, String> {
        let mut after = self.pipeline(&chain.first, from)?;
        for (link, pipeline) in &chain.rest {
            after = match link {
                Link::And => {
                    let next = self.pipeline(pipeline, &after.success)?;
                    After {
                        success: next.success,
                        failure: after.failure.union(&next.failure),
                    }
                }
                Link::Or => {
                    let next = self.pipeline(pipeline, &after.failure)?;
                    After {
                        success: after.success.union(&next.success),
                        failure: next.failure,
                    }
                }
            };
        }
        Ok(after)
    }

    fn pipeline(&mut self, pipeline: &Pipeline, from: &Directories) -> Result<After, String> {
        if let [only] = pipeline.nodes.as_slice() {
            let after = self.node(only, from)?;
            return Ok(if pipeline.negated {
                After {
                    success: after.failure,
                    failure: after.success,
                }
            } else {
                after
            });
        }
        let outer = self.piped;
        let mut members: Vec<Vec<Word>> = Vec::new();
        for (at, node) in pipeline.nodes.iter().enumerate() {
            self.piped = outer || at > 0;
            let before: Vec<&[Word]> = members.iter().map(Vec::as_slice).collect();
            self.listed = names::listed_below(&before).filter(|_| keeps_input(node));
            let first = self.commands.len();
            self.node(node, from)?;
            let is_simple = matches!(&node.kind, Kind::Simple { .. });
            let words = self
                .commands
                .get(first)
                .map(|command| command.words.clone());
            let passes_on = is_simple && keeps_input(node) && keeps_output(node);
            members.push(words.filter(|_| passes_on).unwrap_or_default());
        }
        self.listed = None;
        self.piped = outer;
        Ok(After::same(from))
    }

    fn node(&mut self, node: &Node, from: &Directories) -> Result<After, String> {
        match &node.kind {
            Kind::Simple { assignments, words } => {
                return self.simple(assignments, words, &node.redirections, from);
            }
            Kind::Subshell(list) => {
                self.list(list, from)?;
            }
            Kind::For { name, values, body } => self.for_loop(name, values, body, from)?,
            Kind::While { condition, body } => {
                self.conditions += 1;
                let after = self.condition(condition, from)?.any();
                self.conditions -= 1;
                let end = self.list(body, from)?;
                stays(&[&after, &end], from)?;
            }
            Kind::If {
                branches,
                otherwise,
            } => return self.if_clause(branches, otherwise.as_ref(), node, from),
        }
        self.redirections_alone(&node.redirections, from)?;
        Ok(After::same(from))
    }

    fn if_clause(
        &mut self,
        branches: &[(List, List)],
        otherwise: Option<&List>,
        node: &Node,
        from: &Directories,
    ) -> Result<After, String> {
        let mut state = from.clone();
        let mut end: Option<Directories> = None;
        let mut join = |more: Directories| {
            end = Some(match end.take() {
                Some(known) => known.union(&more),
                None => more,
            });
        };
        for (condition, body) in branches {
            let after = self.condition(condition, &state)?;
            let ended = self.list(body, &after.success)?;
            join(ended);
            state = after.failure;
        }
        let ended = match otherwise {
            Some(body) => self.list(body, &state)?,
            None => state,
        };
        join(ended);
        self.redirections_alone(&node.redirections, from)?;
        Ok(After::same(&end.unwrap_or_else(|| from.clone())))
    }

    fn for_loop(
        &mut self,
        name: &str,
        values: &[Text],
        body: &List,
        from: &Directories,
    ) -> Result<(), String> {
        check_name(name)?;
        let mut bindings = Vec::new();
        for value in values {
            let word = self.word(value, from)?;
            bindings.push(match word.value {
                Value::Literal { text, .. } => Binding::Text(text),
                Value::Glob { .. } | Value::Dynamic { .. } => Binding::Unknown,
            });
        }
        if bindings.len() > MAX_VALUES || !self.is_set_once(name) {
            bindings = vec![Binding::Unknown];
        }
        for binding in bindings {
            self.bindings.insert(name.to_owned(), binding);
            let end = self.list(body, from)?;
            stays(&[&end], from)?;
        }
        self.bindings.insert(name.to_owned(), Binding::Unknown);
        Ok(())
    }

    /// Redirections of a compound command, as a command without words.
    fn redirections_alone(
        &mut self,
        redirections: &[Redirection],
        from: &Directories,
    ) -> Result<(), String> {
        if redirections.is_empty() {
            return Ok(());
        }
        let redirects = self.redirects(redirections, from)?;
        self.record(Command {
            redirects,
            words: vec![Word::literal(":")],
            ..empty_command(from.clone())
        })?;
        Ok(())
    }

    fn simple(
        &mut self,
        assignments: &[(String, Text)],
        words: &[Text],
        redirections: &[Redirection],
        from: &Directories,
    ) -> Result<After, String> {
        let mut command = empty_command(from.clone());
        for word in words {
            let word = self.word(word, from)?;
            command.words.push(word);
        }
        let values: Vec<(String, Value)> = assignments
            .iter()
            .map(|(name, text)| Ok((name.clone(), self.assigned(text, from)?)))
            .collect::<Result<_, String>>()?;
        command.redirects = self.redirects(redirections, from)?;
        if command.words.is_empty() {
            for (name, value) in values {
                check_name(&name)?;
                let binding = match value {
                    Value::Literal { text, .. } if self.is_set_once(&name) && self.outputs == 0 => {
                        Binding::Text(text)
                    }
                    _ => Binding::Unknown,
                };
                self.bindings.insert(name, binding);
            }
            if !command.redirects.is_empty() {
                return Err("it has redirects without a command".to_owned());
            }
            return Ok(After::same(from));
        }
        let Some(name) = command.words.first().and_then(Word::plain_text) else {
            // It may be a command of the shell, which goes elsewhere or sets variables.
            return Err("the program name is quoted, escaped or not known".to_owned());
        };
        if name == "read" {
            return self.read_builtin(&command, &values, from);
        }
        command.assignments = values
            .into_iter()
            .map(|(name, value)| Assignment {
                name,
                value: match value {
                    Value::Literal { text, .. } => Some(text),
                    _ => None,
                },
            })
            .collect();
        command.piped = self.piped;
        if matches!(
            command.words.first().and_then(Word::plain_text),
            Some("pushd" | "popd")
        ) {
            return Err("the directory it changes to is not known".to_owned());
        }
        if let Some((outer, inner)) = names::split_exec(&command)? {
            self.record(outer)?;
            for command in inner {
                self.finish(command, 0)?;
            }
            return Ok(After::same(from));
        }
        // With input of its own it gets no names from the pipe.
        let takes_input = redirections
            .iter()
            .any(|one| !matches!(one.target, Target::Write(_) | Target::Duplicate(_)));
        if takes_input {
            self.listed = None;
        }
        let is_cd = command.words.first().and_then(Word::plain_text) == Some("cd");
        let target = is_cd
            .then(|| moved(&command.words, from, &self.start.home))
            .filter(|_| command.redirects.is_empty() && command.assignments.is_empty());
        let has_literal_target = is_plain_cd(&command.words);
        let uncertain = is_cd && !(command.redirects.is_empty() && command.assignments.is_empty());
        self.finish(command, 0)?;
        if !is_cd {
            return Ok(After::same(from));
        }
        if uncertain || !has_literal_target {
            return Err("the target of `cd` is not certain".to_owned());
        }
        Ok(After {
            success: target.unwrap_or(Directories::Unknown),
            failure: from.clone(),
        })
    }

    /// `read` sets variables to what nobody knows yet.
    fn read_builtin(
        &mut self,
        command: &Command,
        values: &[(String, Value)],
        from: &Directories,
    ) -> Result<After, String> {
        let only_separator = values.iter().all(|(name, value)| {
            name == "IFS" && matches!(value, Value::Literal { text, .. } if text.len() <= 1)
        });
        let mut names = 0;
        for word in command.words.iter().skip(1) {
            match word.plain_text() {
                Some("-r") if names == 0 => {}
                Some(name) => {
                    check_name(name)?;
                    self.bindings.insert(name.to_owned(), Binding::Unknown);
                    names += 1;
                }
                None => names = usize::MAX / 2,
            }
        }
        if !only_separator || names == 0 || names > 8 || self.conditions == 0 {
            return Err("`read` does more than set new variables".to_owned());
        }
        if !command.redirects.is_empty() {
            self.record(Command {
                words: vec![Word::literal(":")],
                ..command.clone()
            })?;
        }
        Ok(After::same(from))
    }

    fn is_set_once(&self, name: &str) -> bool {
        self.sites
            .get(name)
            .is_some_and(|sites| sites.count == 1 && !sites.uncertain)
    }

    fn record(&mut self, command: Command) -> Result<usize, String> {
        self.commands.push(command);
        if self.commands.len() > MAX_COMMANDS {
            return Err(format!("it has more than {MAX_COMMANDS} commands"));
        }
        Ok(self.commands.len() - 1)
    }

    /// The text of `$(cat <<'END' …)`.
    fn document_of(&self, list: &List) -> Option<String> {
        self.documents.get(list.document()?).cloned()
    }

    /// Records a command and, behind it, what a wrapper would start.
    fn finish(&mut self, mut command: Command, depth: usize) -> Result<(), String> {
        let unwrapped = wrappers::unwrap(&command.words);
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
        let runs_builtins = matches!(
            command.words.first().and_then(Word::text),
            Some("command" | "builtin")
        );
        let appended = command.appended_arguments;
        let below = command
            .appended_below
            .clone()
            .or_else(|| self.listed.clone().filter(|_| !appended));
        let piped = command.piped;
        let index = self.record(command)?;
        let Some(unwrapped) = unwrapped.filter(|unwrapped| unwrapped.transparent) else {
            return Ok(());
        };
        if depth >= MAX_WRAPPERS {
            return Err("it is wrapped too deeply to analyse".to_owned());
        }
        for inner in unwrapped.inner {
            if let Inner::Words(words) = inner {
                let name = words.first().and_then(Word::text);
                if runs_builtins && name.is_none_or(|name| name == "cd" || changes_shell(name)) {
                    return Err("a shell builtin is run through another command".to_owned());
                }
                let command = Command {
                    words,
                    place: Place::Wrapped(index),
                    appended_arguments: appended || unwrapped.appends_arguments,
                    appended_below: below
                        .clone()
                        .filter(|_| appended || unwrapped.appends_arguments),
                    piped,
                    ..empty_command(directories.clone())
                };
                self.finish(command, depth + 1)?;
            }
        }
        Ok(())
    }

    fn redirects(
        &mut self,
        redirections: &[Redirection],
        from: &Directories,
    ) -> Result<Vec<Redirect>, String> {
        let mut redirects = Vec::new();
        for Redirection { target } in redirections {
            let (kind, target) = match target {
                Target::Read(text) => (RedirectKind::Read, self.target(text, from)?),
                Target::Write(text) => (RedirectKind::Write, self.target(text, from)?),
                Target::HereString(text) => {
                    let value = self.assigned(text, from)?;
                    let source = text.source.clone();
                    (RedirectKind::HereString, Word { source, value })
                }
                Target::Duplicate(number) => {
                    (RedirectKind::Duplicate, Word::literal(number.to_string()))
                }
                Target::Document(index) => {
                    let body = self.documents.get(*index).cloned().unwrap_or_default();
                    (RedirectKind::HereDocument, Word::literal(body))
                }
            };
            redirects.push(Redirect {
                kind,
                target,
                directories: from.clone(),
            });
        }
        Ok(redirects)
    }

    fn target(&mut self, text: &Text, from: &Directories) -> Result<Word, String> {
        let word = self.word(text, from)?;
        match &word.value {
            Value::Literal { text, .. } if !text.is_empty() => Ok(word),
            _ => Err("the target of a redirect is not known".to_owned()),
        }
    }

    /// The value where no files are looked for: assignments and here-strings.
    fn assigned(&mut self, text: &Text, from: &Directories) -> Result<Value, String> {
        let word = self.word(text, from)?;
        Ok(match word.value {
            Value::Glob { pattern } => Value::Literal {
                text: unescape(&pattern),
                plain: false,
            },
            other => other,
        })
    }

    fn word(&mut self, text: &Text, from: &Directories) -> Result<Word, String> {
        let mut built = Built::default();
        for part in &text.parts {
            match part {
                Part::Plain(text) => built.push(text),
                Part::Quoted(text) => {
                    built.plain = false;
                    built.push(text);
                }
                Part::Star => built.glob('*'),
                Part::Question => built.glob('?'),
                Part::Home => {
                    built.plain = false;
                    built.push(&self.start.home.display().to_string());
                }
                Part::ExitCode => built.unknown(Dynamic::ExitCode),
                Part::Variable { name, quoted } => {
                    built.plain = false;
                    match self.bindings.get(name) {
                        Some(Binding::Text(value)) if *quoted || is_one_word(value) => {
                            built.push(value);
                        }
                        Some(_) => built.unknown(Dynamic::Parameter),
                        None if may_hold_secret(name) => {
                            return Err(format!("the variable `{name}` may hold a secret"));
                        }
                        None => built.unknown(Dynamic::Parameter),
                    }
                }
                Part::Output { list, quoted } => {
                    built.plain = false;
                    match self.document_of(list).filter(|_| *quoted) {
                        Some(body) => built.push(body.trim_end_matches('\n')),
                        None => {
                            // What it sets and where it goes ends with it.
                            let outer = self.bindings.clone();
                            let piped = std::mem::replace(&mut self.piped, false);
                            self.outputs += 1;
                            self.list(list, from)?;
                            self.outputs -= 1;
                            self.piped = piped;
                            self.bindings = outer;
                            built.unknown(Dynamic::CommandSubstitution);
                        }
                    }
                }
            }
        }
        Ok(Word {
            source: text.source.clone(),
            value: built.value(),
        })
    }
}

/// True if what comes from the pipe is what the command reads.
fn keeps_input(node: &Node) -> bool {
    let mut targets = node.redirections.iter().map(|one| &one.target);
    targets.all(|target| matches!(target, Target::Write(_) | Target::Duplicate(_)))
}

/// True if nothing but what the command says of itself goes into the pipe, and no errors.
fn keeps_output(node: &Node) -> bool {
    let mut targets = node.redirections.iter().map(|one| &one.target);
    !targets.any(|target| matches!(target, Target::Duplicate(_)))
}

/// A loop whose body moves somewhere may do so again from there.
fn stays(ends: &[&Directories], from: &Directories) -> Result<(), String> {
    if ends.iter().all(|end| *end == from) {
        Ok(())
    } else {
        Err("`cd` in a loop may go further each time".to_owned())
    }
}
