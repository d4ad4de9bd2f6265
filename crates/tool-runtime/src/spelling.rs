//! What other programs call a tool and its fields, as data, and how a call in their words becomes
//! one of ours.
//!
//! Models were trained on other programs' tools. A call is put into our words before it is checked;
//! the log keeps both what was asked and what is run, and the gate decides about what is run. What
//! has no counterpart stays as it is, and the schema refuses it by its own name.

use agent_text::visible_excerpt;
use serde_json::{Map, Value};

/// A tool by names that other programs give it.
#[derive(Clone, Copy, Debug)]
pub struct Spelling {
    /// Our tool.
    pub tool: &'static str,
    /// Other names; letter case does not count. Our own name is always one of them.
    pub names: &'static [&'static str],
    /// A field that has to have this value, where one name is several tools.
    pub when: Option<(&'static str, &'static str)>,
    pub fields: &'static [Field],
    /// Values of our fields that these names stand for and our own name does not, unless given.
    pub implied: &'static [(&'static str, &'static str)],
    /// Values of our fields that a call by any name may leave out.
    pub filled: &'static [(&'static str, &'static str)],
}

/// What a field of another program is here.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub theirs: &'static str,
    pub ours: Ours,
}

/// How a value is taken over.
#[derive(Clone, Copy, Debug)]
pub enum Ours {
    /// As it is, under another name.
    Named(&'static str),
    /// Left out: it changes nothing here.
    Nothing,
    /// Left out if it is this; anything else is refused by the schema.
    NothingIf(&'static str),
    /// A word in place of another.
    Word(&'static str, &'static [(&'static str, &'static str)]),
    /// The larger of several numbers, up to a bound.
    Largest(&'static str, u64),
    /// A number; zero stands for no bound, and is left out.
    Bound(&'static str),
    /// A script, or the words of a command.
    Script(&'static str),
    /// First and last line, as the first line and how many.
    Lines(&'static str, &'static str),
    /// A list of things with fields of their own.
    Items(&'static str, &'static [Field]),
}

/// What a name means that no tool of ours has.
#[derive(Clone, Copy, Debug)]
pub struct Missing {
    pub names: &'static [&'static str],
    /// The end of a sentence that begins with `there is no tool …`.
    pub instead: &'static str,
}

/// Everything that is known of other programs' words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spellings {
    pub tools: &'static [Spelling],
    pub missing: &'static [Missing],
    /// The tool and field for a call whose arguments are no JSON but a text with this beginning.
    pub plain: Option<Plain>,
}

/// A tool that is also called with a plain text, directly or by a shell.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    pub tool: &'static str,
    pub field: &'static str,
    pub cwd_field: &'static str,
    /// The words by which a shell calls it.
    pub programs: &'static [&'static str],
    /// The line that the text begins with, and the line it ends with.
    pub begin: &'static str,
    pub end: &'static str,
}

/// A call in our words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Understood {
    pub(crate) tool: &'static str,
    pub(crate) input: Value,
}

impl Spellings {
    /// The call in our words, if another program's words for it are known. `own` is the name of our
    /// tool that is called; without it, the name is looked for among those of other programs.
    pub(crate) fn understand(
        &self,
        name: &str,
        own: Option<&str>,
        input: &Value,
    ) -> Option<Understood> {
        let fields = input.as_object()?;
        let fits = |one: &&Spelling| match own {
            Some(own) => one.tool == own && one.when.is_none(),
            None => {
                let is_it = |other: &&str| other.eq_ignore_ascii_case(name);
                let is_meant = |(field, value): (&str, &str)| {
                    fields.get(field).and_then(Value::as_str) == Some(value)
                };
                (is_it(&one.tool) || one.names.iter().any(is_it)) && one.when.is_none_or(is_meant)
            }
        };
        let spelling = self.tools.iter().find(fits)?;
        let chosen_by = spelling.when.map(|(field, _)| field);
        let mut ours = in_our_words(fields, spelling.fields, chosen_by);
        let implied = if own.is_none() { spelling.implied } else { &[] };
        for (field, value) in implied.iter().chain(spelling.filled) {
            ours.entry(*field).or_insert(Value::from(*value));
        }
        if let Some(called) = self.called_by_shell(fields, &ours) {
            return Some(called);
        }
        Some(Understood {
            tool: spelling.tool,
            input: Value::Object(ours),
        })
    }

    /// The tool that takes a plain text by this name.
    pub(crate) fn plain_tool(&self, name: &str) -> Option<&'static str> {
        let plain = self.plain?;
        let is_it = plain.tool == name || plain.programs.contains(&name);
        is_it.then_some(plain.tool)
    }

    /// A text that is the whole of the arguments.
    pub(crate) fn plain_text(&self, tool: &str, arguments: &str) -> Option<Value> {
        let plain = self.plain.filter(|plain| plain.tool == tool)?;
        let text = match serde_json::from_str::<Value>(arguments) {
            Ok(Value::String(text)) => text,
            Ok(_) => return None,
            Err(_) => arguments.to_owned(),
        };
        text.contains(plain.begin)
            .then(|| Value::from(Map::from_iter([(plain.field.to_owned(), text.into())])))
    }

    /// A shell's command that does nothing but hand a text to the tool that takes it, perhaps from
    /// another directory.
    fn called_by_shell(
        &self,
        given: &Map<String, Value>,
        ours: &Map<String, Value>,
    ) -> Option<Understood> {
        let plain = self.plain?;
        let mut cwd = ours.get("cwd").and_then(Value::as_str).map(str::to_owned);
        let text = match given.get("command").and_then(Value::as_array) {
            Some(words) if words.len() == 2 => {
                let is_program = words[0]
                    .as_str()
                    .is_some_and(|word| plain.programs.contains(&word));
                words[1].as_str().filter(|_| is_program)?.to_owned()
            }
            _ => {
                let mut rest = ours.get("command")?.as_str()?.trim();
                if let Some(moved) = rest.strip_prefix("cd ") {
                    let (directory, after) = moved.split_once("&&")?;
                    let directory = unquoted(directory.trim())?;
                    cwd = Some(match cwd {
                        Some(from) if !directory.starts_with(['/', '~']) => {
                            format!("{from}/{directory}")
                        }
                        _ => directory,
                    });
                    rest = after.trim_start();
                }
                let program = plain.programs.iter().find(|program| {
                    let after = rest.strip_prefix(**program);
                    after.is_some_and(|after| after.starts_with([' ', '\n', '<', '\'', '"']))
                })?;
                let rest = rest.get(program.len()..)?.trim_start();
                match rest.strip_prefix("<<") {
                    Some(document) => here_document(document)?,
                    None => unquoted(rest)?,
                }
            }
        };
        let is_whole =
            text.trim_start().starts_with(plain.begin) && text.trim_end().ends_with(plain.end);
        is_whole.then(|| {
            let mut input = Map::new();
            put(plain.field, text.into(), &mut input);
            if let Some(cwd) = cwd {
                put(plain.cwd_field, cwd.into(), &mut input);
            }
            Understood {
                tool: plain.tool,
                input: input.into(),
            }
        })
    }

    /// The end of the sentence about a name that is known and has no tool here.
    pub(crate) fn instead_of(&self, name: &str) -> Option<&'static str> {
        let is_it = |one: &&Missing| {
            one.names
                .iter()
                .any(|other| other.eq_ignore_ascii_case(name))
        };
        self.missing.iter().find(is_it).map(|one| one.instead)
    }
}

/// The text of a here-document that nothing follows, as it is written: values that a shell would put
/// in are none in the text that is meant.
fn here_document(document: &str) -> Option<String> {
    let (word, body) = document.split_once('\n')?;
    let bare = unquoted(word.trim())?;
    let text = body.trim_end().strip_suffix(&*bare)?;
    let is_simple = text.ends_with('\n') && !text.lines().any(|line| line == bare);
    (is_simple && !bare.is_empty()).then(|| text.to_owned())
}

/// One word of a script without its quotes; nothing if a shell would do anything else with it.
fn unquoted(word: &str) -> Option<String> {
    let inside = |quote: char| word.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(text) = inside('\'') {
        let parts: Vec<&str> = text.split("'\\''").collect();
        let is_one = !parts.iter().any(|part| part.contains('\''));
        return is_one.then(|| parts.join("'"));
    }
    if let Some(text) = inside('"') {
        return (!text.contains(['"', '$', '`', '\\'])).then(|| text.to_owned());
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%~".contains(c);
    word.chars().all(is_plain).then(|| word.to_owned())
}

/// An object with the fields that are ours; the one that chose the tool is left out.
fn in_our_words(
    given: &Map<String, Value>,
    fields: &[Field],
    chosen_by: Option<&str>,
) -> Map<String, Value> {
    let mut ours = Map::new();
    for (theirs, value) in given {
        if chosen_by == Some(theirs) {
            continue;
        }
        match fields.iter().find(|field| field.theirs == theirs) {
            Some(field) => field.ours.take(theirs, value, given, &mut ours),
            None => put(theirs, value.clone(), &mut ours),
        }
    }
    ours
}

fn put(name: &str, value: Value, ours: &mut Map<String, Value>) {
    ours.insert(name.to_owned(), value);
}

impl Ours {
    fn take(
        self,
        theirs: &str,
        value: &Value,
        given: &Map<String, Value>,
        ours: &mut Map<String, Value>,
    ) {
        // An empty field says as much as none.
        if value.is_null() {
            return;
        }
        let named = |name: &str, value: Value, ours: &mut Map<String, Value>| {
            if name == theirs || !given.contains_key(name) {
                put(name, value, ours);
            } else if given.get(name) != Some(&value) {
                // Both are said, and differ: the schema names the one that it does not know.
                put(theirs, value, ours);
            }
        };
        match self {
            Self::Named(name) => named(name, value.clone(), ours),
            Self::Nothing => {}
            Self::NothingIf(this) => {
                let said = value.to_string();
                if said != this {
                    put(theirs, value.clone(), ours);
                }
            }
            Self::Word(name, words) => {
                let said = match value {
                    Value::String(word) => word.clone(),
                    other => other.to_string(),
                };
                match words.iter().find(|(word, _)| *word == said) {
                    Some((_, "")) => {}
                    Some((_, word)) => named(name, (*word).into(), ours),
                    None => named(name, value.clone(), ours),
                }
            }
            Self::Largest(name, most) => match value.as_u64() {
                Some(number) => {
                    let so_far = ours.get(name).and_then(Value::as_u64).unwrap_or(0);
                    put(name, number.max(so_far).min(most).into(), ours);
                }
                None => put(theirs, value.clone(), ours),
            },
            Self::Bound(name) => {
                if value.as_u64() != Some(0) {
                    named(name, value.clone(), ours);
                }
            }
            Self::Script(name) => match script_of(value) {
                Some(script) => named(name, script.into(), ours),
                None => put(theirs, value.clone(), ours),
            },
            Self::Lines(first, count) => match value.as_array().map(Vec::as_slice) {
                Some([from, to]) if from.is_u64() => {
                    let from = from.as_u64().unwrap_or_default().max(1);
                    put(first, from.into(), ours);
                    // -1 is the end of the file.
                    if let Some(to) = to.as_u64() {
                        put(count, to.saturating_sub(from - 1).into(), ours);
                    }
                }
                _ => put(theirs, value.clone(), ours),
            },
            Self::Items(name, fields) => {
                let item = |item: &Value| match item.as_object() {
                    Some(given) => Value::Object(in_our_words(given, fields, None)),
                    None => item.clone(),
                };
                let items = value.as_array().map(|items| items.iter().map(item));
                match items {
                    Some(items) => named(name, items.collect(), ours),
                    None => named(name, value.clone(), ours),
                }
            }
        }
    }
}

/// What a shell was given: a script, or words of which a shell's own script is one.
fn script_of(given: &Value) -> Option<String> {
    let words = match given {
        Value::String(script) => return Some(script.clone()),
        Value::Array(words) => words,
        _ => return None,
    };
    let words: Vec<&str> = words.iter().map(Value::as_str).collect::<Option<_>>()?;
    if let [shell, flag, script] = &*words {
        let name = shell.rsplit('/').next().unwrap_or(shell);
        let is_script = matches!(*flag, "-c" | "-lc" | "-cl" | "-ilc");
        if matches!(name, "bash" | "sh" | "zsh" | "dash") && is_script {
            return Some((*script).to_owned());
        }
    }
    let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    (!quoted.is_empty()).then(|| quoted.join(" "))
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The answer to a name that no tool has.
pub(crate) fn no_such_tool(
    name: &str,
    instead: Option<&str>,
    meant: Option<&str>,
    names: &[&str],
) -> String {
    let shown = visible_excerpt(name, 100);
    if let Some(instead) = instead {
        return format!("there is no tool `{shown}` here: {instead}");
    }
    if let Some(meant) = meant {
        return format!("there is no tool `{shown}`; did you mean `{meant}`?");
    }
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    format!(
        "there is no tool `{shown}`; the tools are {}",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests;
