//! The proof that a script only reads, or runs only what rules cover.

use agent_text::reads_as_utf8;

use super::analysis::{Analysis, Command, Directories, Place, RedirectKind};
use super::inline_code::takes_code;
use super::programs;
pub(crate) use super::programs::tolerates_any_argument;
pub use super::programs::{PathUse, Use, names as program_names};
use super::word::{Value, Word};

/// Variables that change how output looks and nothing else.
const HARMLESS_VARIABLES: &[&str] = &[
    "RUST_BACKTRACE",
    "RUST_LOG",
    "NO_COLOR",
    "CARGO_TERM_COLOR",
    "CI",
    "LANG",
    "TZ",
    "FORCE_COLOR",
    "CLICOLOR",
    "COLUMNS",
    "TERM",
    "GOOS",
    "GOARCH",
    "CGO_ENABLED",
    "NODE_ENV",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
];

/// Variables that name a program, which these values do not start.
const PAGERS: &[&str] = &["PAGER", "GIT_PAGER", "GH_PAGER", "MANPAGER"];

/// Commands of the shell that set variables, evaluate words as code or change how the rest is read. What a
/// rule says about their name says nothing about that.
const SHELL_STATE: &[&str] = &[
    ".",
    "alias",
    "bind",
    "builtin",
    "caller",
    "compgen",
    "complete",
    "compopt",
    "declare",
    "dirs",
    "disown",
    "enable",
    "eval",
    "exec",
    "export",
    "fc",
    "getopts",
    "hash",
    "history",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "pushd",
    "read",
    "readarray",
    "readonly",
    "return",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "trap",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "wait",
];

/// True if a rule may speak for this command: it is no command of the shell that sets variables or evaluates
/// words. `test`, `[` and `printf` do either with some of their words, and are covered without those.
pub fn can_be_covered(command: &Command) -> bool {
    let Some(name) = command.words.first().and_then(Word::plain_text) else {
        return false;
    };
    match name {
        "test" | "[" | "printf" => is_table_reader(command),
        name => !changes_shell(name),
    }
}

/// True for a command of the shell that sets variables, evaluates words as code or changes how the rest is read.
pub(super) fn changes_shell(name: &str) -> bool {
    SHELL_STATE.contains(&name)
}

/// True if the variable may be set to this value: it changes how output looks and nothing else, also for the shell.
fn is_harmless(name: &str, value: &str) -> bool {
    match name {
        // Its value may be the name of any file.
        "TZ" => !value.starts_with([':', '/']) && !value.split('/').any(|part| part == ".."),
        "LANG" => reads_as_utf8(value),
        name if name.starts_with("LC_") => reads_as_utf8(value),
        name => HARMLESS_VARIABLES.contains(&name),
    }
}

/// Paths a proven script touches.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Proof {
    pub reads: Vec<PathUse>,
    /// Redirects into files. Empty for a script that only reads.
    pub writes: Vec<PathUse>,
    pub needs_sandbox: bool,
    /// True if some command is there because a rule covers it, not because the table knows it.
    pub by_rule: bool,
}

/// Proves that every command of the script is in the table or `covered`. The error is a clause that can
/// follow "because".
pub fn prove(
    analysis: &Analysis,
    covered: &mut dyn FnMut(&Command) -> bool,
) -> Result<Proof, String> {
    let commands = analysis.small.as_ref().map_err(Clone::clone)?;
    let mut proof = Proof::default();
    for (index, command) in commands.iter().enumerate() {
        if command.place == Place::Plain {
            prove_command(commands, index, command, covered, &mut proof)?;
        }
    }
    Ok(proof)
}

fn prove_command(
    commands: &[Command],
    index: usize,
    command: &Command,
    covered: &mut dyn FnMut(&Command) -> bool,
    proof: &mut Proof,
) -> Result<(), String> {
    for assignment in &command.assignments {
        let name = assignment.name.as_str();
        let value = assignment.value.as_deref();
        let harmless = value.is_some_and(|value| {
            is_harmless(name, value) || (PAGERS.contains(&name) && matches!(value, "cat" | ""))
        });
        if !harmless || command.words.is_empty() {
            return Err(format!("it sets the variable `{name}`"));
        }
    }
    prove_redirects(command, proof)?;
    if command.words.is_empty() {
        return Err("it has redirects without a command".to_owned());
    }
    if can_be_covered(command) && covered(command) {
        proof.by_rule = true;
        return Ok(());
    }
    if command.wraps {
        return prove_wrapper(commands, index, command, covered, proof);
    }
    if let Some(why) = command.opaque {
        return Err(why.to_owned());
    }
    match command.words.first().and_then(Word::plain_text) {
        // Behind a wrapper it goes nowhere, or nobody knows where.
        Some("cd") if command.place == Place::Plain => return prove_cd(command, proof),
        Some("set") if command.place == Place::Plain => return prove_set(command),
        Some("export") if command.place == Place::Plain => return prove_export(command),
        _ => {}
    }
    let reading = programs::judge(&command.words, &command.directories)?;
    if command.appended_arguments && !tolerates_any_argument(&command.words) {
        let names = appended_names(command);
        if names.is_empty() {
            return Err("arguments appended when it runs are not known".to_owned());
        }
        proof.reads.extend(names);
    }
    proof.needs_sandbox |= reading.needs_sandbox;
    proof.reads.extend(reading.paths);
    Ok(())
}

fn prove_wrapper(
    commands: &[Command],
    index: usize,
    command: &Command,
    covered: &mut dyn FnMut(&Command) -> bool,
    proof: &mut Proof,
) -> Result<(), String> {
    let name = command.words.first().map(Word::sketch).unwrap_or_default();
    // `command -v` looks a name up and starts nothing.
    if name == "command"
        && let Some(["-v" | "-V", names @ ..]) = literal_words(command).as_deref()
        && names.iter().all(|name| !name.starts_with('-'))
    {
        return Ok(());
    }
    // A wrapper by a path may be anything that has its name.
    let is_bare_name = command
        .words
        .first()
        .and_then(Word::plain_text)
        .is_some_and(|name| !name.contains('/'));
    if !command.transparent || !is_bare_name {
        return Err(format!("`{name}` runs another program"));
    }
    let mut any = false;
    for (inner_index, inner) in commands.iter().enumerate() {
        if inner.place == Place::Wrapped(index) {
            prove_command(commands, inner_index, inner, covered, proof)?;
            any = true;
        }
    }
    if any {
        Ok(())
    } else {
        Err(format!("the command that `{name}` runs is not known"))
    }
}

fn literal_words(command: &Command) -> Option<Vec<&str>> {
    command.words.iter().skip(1).map(Word::text).collect()
}

/// `set -e` and its kin end a script sooner and do nothing else.
fn prove_set(command: &Command) -> Result<(), String> {
    let words = literal_words(command).unwrap_or_default();
    let mut words = words.iter();
    let mut any = false;
    while let Some(word) = words.next() {
        let letters = word.strip_prefix('-').unwrap_or_default();
        let fits = !letters.is_empty() && letters.bytes().all(|b| b"euo".contains(&b));
        let option_fits = !letters.contains('o') || words.next() == Some(&"pipefail");
        if !(fits && option_fits) {
            return Err("`set` changes how the shell reads the rest of the script".to_owned());
        }
        any = true;
    }
    if any {
        Ok(())
    } else {
        Err("`set` alone shows every variable".to_owned())
    }
}

/// `export NAME=value` of a variable that would be harmless in front of a command.
fn prove_export(command: &Command) -> Result<(), String> {
    let words = literal_words(command).unwrap_or_default();
    let harmless = |word: &&str| {
        word.split_once('=')
            .is_some_and(|(name, value)| is_harmless(name, value))
    };
    if !words.is_empty() && words.iter().all(harmless) {
        Ok(())
    } else {
        Err("it sets environment variables for other programs".to_owned())
    }
}

fn prove_cd(command: &Command, proof: &mut Proof) -> Result<(), String> {
    let operands: Vec<&Word> = command
        .words
        .iter()
        .skip(1)
        .filter(|word| !matches!(word.text(), Some("--" | "-P" | "-L")))
        .collect();
    match operands.as_slice() {
        [target] => match target.text() {
            Some(text) if !text.starts_with('-') && !text.is_empty() => {
                let target = path(text, Use::Metadata, &command.directories);
                proof.reads.push(target);
                Ok(())
            }
            _ => Err("the target of `cd` is not known".to_owned()),
        },
        _ => Err("`cd` leaves the project".to_owned()),
    }
}

fn prove_redirects(command: &Command, proof: &mut Proof) -> Result<(), String> {
    for redirect in &command.redirects {
        if matches!(
            redirect.kind,
            RedirectKind::Duplicate | RedirectKind::HereString | RedirectKind::HereDocument
        ) {
            continue;
        }
        let target = match &redirect.target.value {
            Value::Literal { text, .. } => text.as_str(),
            _ => return Err("the target of a redirect is not known".to_owned()),
        };
        match redirect.kind {
            RedirectKind::Duplicate | RedirectKind::HereString | RedirectKind::HereDocument => {}
            _ if matches!(target, "/dev/null" | "/dev/stdout" | "/dev/stderr") => {}
            _ if target.starts_with("/dev/") => {
                return Err(format!("a redirect opens the device `{target}`"));
            }
            RedirectKind::Read => {
                proof
                    .reads
                    .push(path(target, Use::Content, &redirect.directories));
            }
            RedirectKind::Write => {
                proof
                    .writes
                    .push(path(target, Use::Content, &redirect.directories));
            }
        }
    }
    Ok(())
}

fn path(text: &str, usage: Use, directories: &Directories) -> PathUse {
    PathUse {
        text: text.to_owned(),
        is_glob: false,
        usage,
        directories: directories.clone(),
    }
}

/// The directories below which the files lie whose names are appended, to a program that does nothing but read
/// them whatever they are called.
fn appended_names(command: &Command) -> Vec<PathUse> {
    let Some(usage) = programs::use_of_names(&command.words) else {
        return Vec::new();
    };
    let below = command.appended_below.iter().flatten();
    below
        .map(|directory| path(directory, usage, &command.directories))
        .collect()
}

/// True if the table knows the command as a reader with these words.
pub(crate) fn is_table_reader(command: &Command) -> bool {
    programs::judge(&command.words, &command.directories).is_ok()
}

/// Every path a command may touch, for detection: exact when the table knows the command, otherwise each
/// word that could be a path. The flag says which.
pub fn touched_paths(command: &Command) -> (Vec<PathUse>, bool) {
    let name = command.words.first().map(Word::sketch).unwrap_or_default();
    if let Ok(mut reading) = programs::judge(&command.words, &command.directories) {
        if !tolerates_any_argument(&command.words) {
            reading.paths.extend(appended_names(command));
        }
        return (reading.paths, true);
    }
    if name == "cd" {
        let mut proof = Proof::default();
        let known = prove_cd(command, &mut proof).is_ok();
        return (proof.reads, known);
    }
    if matches!(
        name,
        "echo" | "printf" | "true" | "false" | ":" | "test" | "[" | "export"
    ) {
        return (Vec::new(), true);
    }
    let mut paths = Vec::new();
    let takes_code = takes_code(name);
    for word in command.words.iter().skip(1) {
        let text = word.sketch();
        let is_glob = matches!(word.value, Value::Glob { .. });
        // To git this is the commit at hand, not the file of that name.
        if name == "git" && text == "HEAD" {
            continue;
        }
        let mut parts = path_parts(text);
        if takes_code {
            parts.extend(paths_in_code(text));
        }
        for part in parts {
            paths.push(PathUse {
                text: part.to_owned(),
                is_glob,
                usage: Use::Content,
                directories: command.directories.clone(),
            });
        }
    }
    for text in targets_in_directory(name, command) {
        paths.push(path(&text, Use::Content, &command.directories));
    }
    (paths, false)
}

/// `mv a docs` and `cp -t docs a` make `docs/a`.
fn targets_in_directory(name: &str, command: &Command) -> Vec<String> {
    if !matches!(name, "mv" | "cp" | "ln" | "install" | "rsync") {
        return Vec::new();
    }
    let texts: Vec<&str> = command.words.iter().skip(1).map(Word::sketch).collect();
    let named = texts.windows(2).find_map(|pair| match pair {
        ["-t" | "--target-directory", directory] => Some(*directory),
        _ => None,
    });
    let attached = texts
        .iter()
        .find_map(|text| text.strip_prefix("--target-directory="));
    let operands: Vec<&str> = texts
        .iter()
        .copied()
        .filter(|text| !text.starts_with('-'))
        .collect();
    let Some(directory) = named.or(attached).or(operands.last().copied()) else {
        return Vec::new();
    };
    operands
        .iter()
        .filter(|operand| **operand != directory)
        .filter_map(|operand| operand.trim_end_matches('/').rsplit('/').next())
        .map(|last| format!("{}/{last}", directory.trim_end_matches('/')))
        .collect()
}

/// Possible paths in the text of a program: `open(".env")`, `print > "out"`.
fn paths_in_code(text: &str) -> impl Iterator<Item = &str> {
    const MOST: usize = 200;
    text.split(|character: char| {
        character.is_whitespace() || "'\"`()[]{},;<>|&=+:".contains(character)
    })
    .filter(|part| part.len() > 1 && (part.contains(['.', '/']) || part.starts_with("id_")))
    .take(MOST)
}

/// `--file=a`, `if=a`, `@a`, `rev:a`, `-Ia`: the word and what may stand for a path in it.
fn path_parts(text: &str) -> Vec<&str> {
    if text.is_empty() || text.contains("://") || text.contains(char::is_whitespace) {
        return Vec::new();
    }
    let mut parts = Vec::new();
    if !text.starts_with('-') {
        parts.push(text);
    }
    for separator in ['=', '@', ':'] {
        if let Some((before, rest)) = text.split_once(separator) {
            parts.push(rest);
            parts.extend(rest.strip_prefix('@'));
            // `-v .env:/app/.env` names two.
            parts.extend((separator == ':').then_some(before));
        }
    }
    if text.starts_with('-') && !text.starts_with("--") && text.len() > 2 {
        parts.extend(text.get(2..));
    }
    parts.retain(|part| !part.is_empty());
    parts
}
