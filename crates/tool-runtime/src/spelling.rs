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
    /// First and last line.
    Lines(&'static str, &'static str),
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
    /// The call in our words, if it is in another program's. `is_own` is true of the names that our
    /// tools have.
    pub(crate) fn understand(
        &self,
        name: &str,
        input: &Value,
        is_own: impl Fn(&str) -> bool,
    ) -> Option<Understood> {
        let fields = input.as_object()?;
        let fits = |one: &&Spelling| {
            let is_named = one.tool == name
                || (!is_own(name) && one.names.iter().any(|other| other.eq_ignore_ascii_case(name)));
            let is_meant = |(field, value): (&str, &str)| {
                fields.get(field).and_then(Value::as_str) == Some(value)
            };
            is_named && one.when.is_none_or(is_meant)
        };
        let spelling = self.tools.iter().find(fits)?;
        let mut ours = Map::new();
        for (theirs, value) in fields {
            if spelling.when.is_some_and(|(field, _)| field == theirs) {
                continue;
            }
            match spelling.fields.iter().find(|field| field.theirs == theirs) {
                Some(field) => field.ours.take(theirs, value, fields, &mut ours),
                None => put(theirs, value.clone(), &mut ours),
            }
        }
        if spelling.tool != name {
            for (field, value) in spelling.implied {
                let value = Value::from(*value);
                ours.entry(*field).or_insert(value);
            }
        }
        if let Some(called) = self.called_by_shell(&ours) {
            return Some(called);
        }
        let input = Value::Object(ours);
        Some(Understood { tool: spelling.tool, input })
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

    /// A shell's script that does nothing but hand a text to the tool that takes it, perhaps from
    /// another directory.
    fn called_by_shell(&self, fields: &Map<String, Value>) -> Option<Understood> {
        let plain = self.plain?;
        let script = fields.get("command")?.as_str()?;
        let mut rest = script.trim();
        let mut cwd = fields.get("cwd").and_then(Value::as_str).map(str::to_owned);
        if let Some(moved) = rest.strip_prefix("cd ") {
            let (directory, after) = moved.split_once("&&")?;
            let directory = unquoted(directory.trim())?;
            cwd = Some(match cwd {
                Some(from) if !directory.starts_with(['/', '~']) => format!("{from}/{directory}"),
                _ => directory.to_owned(),
            });
            rest = after.trim_start();
        }
        let program = plain.programs.iter().find(|program| {
            let after = rest.strip_prefix(**program);
            after.is_some_and(|after| after.starts_with([' ', '\n', '<', '\'', '"']))
        })?;
        let rest = rest.get(program.len()..)?.trim_start();
        let text = match rest.strip_prefix("<<") {
            Some(document) => here_document(document)?,
            None => unquoted(rest)?.to_owned(),
        };
        let is_whole = text.trim_start().starts_with(plain.begin) && text.trim_end().ends_with(plain.end);
        is_whole.then(|| {
            let mut input = Map::new();
            input.insert(plain.field.to_owned(), text.into());
            if let Some(cwd) = cwd {
                input.insert(plain.cwd_field.to_owned(), cwd.into());
            }
            Understood { tool: plain.tool, input: input.into() }
        })
    }

    /// The end of the sentence about a name that is known and has no tool here.
    pub(crate) fn instead_of(&self, name: &str) -> Option<&'static str> {
        let is_it = |one: &&Missing| one.names.iter().any(|other| other.eq_ignore_ascii_case(name));
        self.missing.iter().find(is_it).map(|one| one.instead)
    }
}

/// The text of a here-document that nothing follows, as the shell would hand it on.
fn here_document(document: &str) -> Option<String> {
    let (word, body) = document.split_once('\n')?;
    let word = word.trim();
    let bare = unquoted(word)?;
    // Without quotes a shell puts values in: then the text is not what is written there.
    let is_literal = bare != word || !body.contains(['$', '`', '\\']);
    let body = body.trim_end();
    let text = body.strip_suffix(bare)?;
    let is_simple = text.ends_with('\n') && !text.lines().any(|line| line == bare);
    (is_literal && is_simple && !bare.is_empty()).then(|| text.to_owned())
}

/// One word of a script without its quotes; nothing if a shell would do anything else with it.
fn unquoted(word: &str) -> Option<&str> {
    let inside = |quote: char| word.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(text) = inside('\'') {
        return (!text.contains('\'')).then_some(text);
    }
    if let Some(text) = inside('"') {
        return (!text.contains(['"', '$', '`', '\\'])).then_some(text);
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%~".contains(c);
    word.chars().all(is_plain).then_some(word)
}

/// Our field wins over theirs where a call has both.
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
        let mut named = |name: &str, value: Value| {
            if name == theirs || !given.contains_key(name) {
                put(name, value, ours);
            } else if given.get(name) != Some(&value) {
                // Both are said, and differ: the schema names the one that it does not know.
                put(theirs, value, ours);
            }
        };
        match self {
            Self::Named(name) => named(name, value.clone()),
            Self::Nothing => {}
            Self::NothingIf(this) => {
                if value.to_string() != this {
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
                    Some((_, word)) => named(name, (*word).into()),
                    None => named(name, value.clone()),
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
                    named(name, value.clone());
                }
            }
            Self::Script(name) => match script_of(value) {
                Some(script) => named(name, script.into()),
                None => put(theirs, value.clone(), ours),
            },
            Self::Lines(first, count) => match value.as_array().map(Vec::as_slice) {
                Some([from, to]) => {
                    put(first, from.clone(), ours);
                    if let (Some(from), Some(to)) = (from.as_u64(), to.as_u64()) {
                        let lines = (to + 1).saturating_sub(from);
                        put(count, lines.into(), ours);
                    }
                }
                _ => put(theirs, value.clone(), ours),
            },
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
pub(crate) fn no_such_tool(name: &str, instead: Option<&str>, meant: Option<&str>, names: &[&str]) -> String {
    let shown = visible_excerpt(name, 100);
    if let Some(instead) = instead {
        return format!("there is no tool `{shown}` here: {instead}");
    }
    if let Some(meant) = meant {
        return format!("there is no tool `{shown}`; did you mean `{meant}`?");
    }
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("there is no tool `{shown}`; the tools are {}", names.join(", "))
}
