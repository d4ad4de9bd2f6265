//! What makes a script run programs, or give programs words, that stand nowhere in it as such.

use super::analysis::{Analysis, Command, RedirectKind};
use super::opaque::unknown_code;
use super::word::{UNKNOWN, Word};
use super::wrappers::{base_name, is_shell};

/// Variables of bash that give programs other names.
const TABLES: &[&str] = &["BASH_ALIASES", "BASH_CMDS", "BASH_FUNC_"];
/// Programs whose last word is a file that holds what another one held.
const COPIERS: &[&str] = &["cp", "install", "ln", "mv", "tee"];
/// Programs that run what a file by a certain name says.
const RECIPES: &[(&[&str], &[&str])] = &[
    (&["make", "gmake"], &["GNUmakefile", "Makefile", "makefile"]),
    (&["npm", "pnpm", "yarn", "bun"], &["package.json"]),
    (&["just"], &["justfile", "Justfile", ".justfile"]),
    (&["cmake"], &["CMakeLists.txt"]),
    (&["ninja"], &["build.ninja"]),
];

/// What makes a program another one than its name says, as a clause.
pub(super) fn renaming(analysis: &Analysis) -> Option<&'static str> {
    if TABLES.iter().any(|table| analysis.script.contains(table)) {
        return Some("it changes which programs names stand for");
    }
    let renames = |command: &Command| {
        let words = command.words.get(1..).unwrap_or_default();
        let texts = || words.iter().map(Word::sketch);
        match name_of(command) {
            "alias" => texts().any(|word| word.contains(['=', UNKNOWN])),
            "hash" => texts().any(|word| word.starts_with('-') && word.contains('p')),
            "enable" => texts().any(|word| word.starts_with('-') && word.contains('f')),
            _ => false,
        }
    };
    if analysis.commands.iter().any(renames) {
        return Some("it changes which programs names stand for");
    }
    let made: Vec<&str> = analysis.commands.iter().flat_map(made_by).collect();
    let is_made = |command: &Command| made.contains(&name_of(command));
    analysis
        .commands
        .iter()
        .any(is_made)
        .then_some("it runs a file that it makes")
}

/// What else is not known of the programs that it runs, as a clause.
pub(super) fn indirection(analysis: &Analysis) -> Option<&'static str> {
    let found = analysis
        .commands
        .iter()
        .chain(analysis.small.iter().flatten());
    let direct = found.filter_map(|command| command.opaque.or_else(|| unknown_code(command)));
    let unparsed = analysis
        .parse_error
        .as_ref()
        .map(|_| "it could not be parsed");
    direct
        .chain(unparsed)
        .chain(names_from_input(analysis))
        .chain(recipe(analysis))
        .next()
}

/// `echo rm x | xargs env`, `xargs -I{} sh -c {}`: a program that arrives when it runs.
fn names_from_input(analysis: &Analysis) -> Option<&'static str> {
    const EXEC: &[&str] = &["-exec", "-execdir", "-ok", "-okdir"];
    let arrives = |command: &Command| {
        let words: Vec<&str> = command.words.iter().map(Word::sketch).collect();
        match name_of(command) {
            "xargs" => {
                let rest = words.get(program_of_xargs(&words)..).unwrap_or_default();
                !rest.is_empty() && starts_input(rest, replacement(&words))
            }
            "parallel" => {
                let operands = words.iter().skip_while(|word| word.starts_with('-'));
                let rest: Vec<&str> = operands.skip(1).copied().collect();
                starts_input(&rest, Some("{}"))
            }
            "find" => words.iter().enumerate().any(|(at, word)| {
                let rest = words.get(at + 1..).unwrap_or_default();
                let end = rest.iter().position(|word| matches!(*word, ";" | "+"));
                let rest = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
                EXEC.contains(word) && starts_input(rest, Some("{}"))
            }),
            _ => false,
        }
    };
    analysis
        .commands
        .iter()
        .any(arrives)
        .then_some("what it starts arrives when it runs")
}

/// True if a program, or code for a shell, comes from words that are put in or behind these.
fn starts_input(words: &[&str], replaced: Option<&str>) -> bool {
    let is_replaced = |word: &str| replaced.is_some_and(|replaced| word.contains(replaced));
    let Some(program) = words.first() else {
        return true;
    };
    is_replaced(program)
        || words.iter().enumerate().any(|(at, word)| {
            let behind = words.get(at + 1..).unwrap_or_default();
            let name = base_name(word);
            if is_shell(name) {
                let code = behind
                    .iter()
                    .position(|flag| flag.starts_with('-') && flag.contains('c'));
                let script = code.and_then(|at| behind.get(at + 1));
                return script.is_none_or(|script| is_replaced(script));
            }
            STARTS_WORDS.contains(&name) && has_no_program(name, behind, &is_replaced)
        })
}

/// The place of the program among the words of `xargs`.
fn program_of_xargs(words: &[&str]) -> usize {
    let mut at = 1;
    while let Some(flag) = words.get(at).filter(|word| word.starts_with('-')) {
        let takes_next = match flag.strip_prefix("--") {
            Some(long) => matches!(
                long,
                "arg-file" | "delimiter" | "max-args" | "max-chars" | "max-lines" | "max-procs"
            ),
            None => flag.len() == 2 && flag.ends_with(['I', 'n', 'P', 'L', 's', 'd', 'a', 'E']),
        };
        at += 1 + usize::from(takes_next);
    }
    at
}

/// Programs that start what their words say, and have none of their own.
const STARTS_WORDS: &[&str] = &[
    "builtin", "busybox", "chronic", "chroot", "command", "doas", "env", "eval", "exec", "ionice",
    "nice", "nohup", "npx", "setsid", "ssh", "stdbuf", "sudo", "time", "timeout", "toybox",
    "unshare",
];

/// True if nothing behind a wrapper is a program for it to start.
fn has_no_program(wrapper: &str, behind: &[&str], is_replaced: &dyn Fn(&str) -> bool) -> bool {
    let is_program = |word: &&&str| {
        let is_number = word
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b".smh".contains(&byte));
        !(word.starts_with('-') || word.contains('=') || is_replaced(word) || is_number)
    };
    let own = usize::from(matches!(wrapper, "chroot" | "ssh"));
    behind.iter().filter(is_program).count() <= own
}

/// Where words come from that a program gets when it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operands {
    /// The script, or names that a program lists.
    Script,
    /// A file, or whatever the call gets.
    Elsewhere,
}

/// Programs that print names of files, or what stands in the script.
const LISTS: &[&str] = &[
    "echo", "fd", "fdfind", "find", "git", "grep", "ls", "printf", "rg",
];

/// Where `rm` gets words from that do not stand behind it: `echo -rf / | xargs rm`, `f() { rm "$@"; }`.
pub(super) fn takes_input(analysis: &Analysis) -> Option<Operands> {
    let mut begins = None;
    let mut source = None;
    let mut found = None;
    for command in &analysis.commands {
        if !command.piped {
            begins = Some(name_of(command));
        }
        if name_of(command) == "xargs" {
            let words: Vec<&str> = command.words.iter().map(Word::sketch).collect();
            let options = words.get(..program_of_xargs(&words)).unwrap_or_default();
            let from_file = options
                .iter()
                .any(|word| word.starts_with("-a") || word.starts_with("--arg-file"));
            let is_listed = command.piped && begins.is_some_and(|name| LISTS.contains(&name));
            source = Some(match is_listed && !from_file {
                true => Operands::Script,
                false => Operands::Elsewhere,
            });
        }
        if command.appended_arguments && matches!(name_of(command), "dd" | "git") {
            found = found.max(Some(Operands::Script));
        }
        if !matches!(name_of(command), "rm" | "srm" | "rimraf") {
            continue;
        }
        if command.appended_arguments {
            found = found.max(source);
        }
        let many = |word: &Word| {
            word.text().is_none() && word.source.contains(['@', '*'])
                || word.source.starts_with('$')
        };
        if command.words.iter().skip(1).any(many) {
            found = found.max(Some(Operands::Script));
        }
    }
    found
}

/// The text that `xargs -I` replaces.
fn replacement<'a>(words: &[&'a str]) -> Option<&'a str> {
    for (at, word) in words.iter().enumerate() {
        match *word {
            "-I" | "--replace-str" => return words.get(at + 1).copied(),
            "-i" | "--replace" => return Some("{}"),
            _ => {}
        }
        let attached = word
            .strip_prefix("--replace=")
            .or_else(|| word.strip_prefix("-I"))
            .or_else(|| word.strip_prefix("-i"));
        if let Some(text) = attached.filter(|text| !text.is_empty()) {
            return Some(text);
        }
    }
    None
}

/// `cat > Makefile <<E …; make`, `echo … > x.cmake; cmake -P x.cmake`
fn recipe(analysis: &Analysis) -> Option<&'static str> {
    let made: Vec<&str> = analysis.commands.iter().flat_map(made_by).collect();
    let is_made = |file: &str| made.contains(&file);
    let runs = |command: &Command| {
        let mut words = command.words.iter().skip(1).map(Word::sketch);
        RECIPES.iter().any(|(programs, files)| {
            programs.contains(&name_of(command))
                && (files.iter().any(|file| is_made(file))
                    || words.any(|word| is_made(base_name(word))))
        })
    };
    analysis
        .commands
        .iter()
        .any(runs)
        .then_some("it runs what a file says that it writes")
}

/// The names of files that a command writes or makes.
fn made_by(command: &Command) -> Vec<&str> {
    let written = command
        .redirects
        .iter()
        .filter(|one| one.kind == RedirectKind::Write);
    let mut names: Vec<&str> = written.map(|one| base_name(one.target.sketch())).collect();
    let words = command.words.iter().skip(1).map(Word::sketch);
    match name_of(command) {
        "tee" => names.extend(words.map(base_name)),
        "dd" => names.extend(
            words
                .filter_map(|word| word.strip_prefix("of="))
                .map(base_name),
        ),
        name if COPIERS.contains(&name) => {
            names.extend(command.words.last().map(|word| base_name(word.sketch())))
        }
        _ => {}
    }
    names.retain(|name| !name.is_empty());
    names
}

fn name_of(command: &Command) -> &str {
    base_name(command.words.first().map(Word::sketch).unwrap_or_default())
}
