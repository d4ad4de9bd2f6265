//! Commands that hand code to an interpreter: what that code runs stands in no word of the script.
//!
//! A deny rule is about what a script says it runs, also through code that it hands over. Code in another language, in
//! a file or from a pipe may run anything, so where there are such rules it counts like a shell script. Running a
//! program (`cargo test`, `make check`, `npm test`, `./tool`, `python -m pytest`) does not: what programs do in turn is
//! for the sandbox and for rules about paths.

use super::analysis::{Command, RedirectKind};
use super::checks::awk_only_prints;
use super::inline_code::{code_flags, is_awk};
use super::prove::is_table_reader;
use super::word::Word;
use super::wrappers::base_name;

/// Interpreters besides those whose code on the command line is looked through.
const MORE_INTERPRETERS: &[&str] = &[
    "R", "clojure", "elixir", "erl", "escript", "expect", "gnuplot", "groovy", "guile", "iex",
    "jshell", "m4", "nu", "ocaml", "octave", "pwsh", "racket", "sbcl", "scala", "swipl", "tclsh",
    "ts-node", "tsx", "wish",
];
/// Their flags for code.
const MORE_FLAGS: &[&str] = &["-c", "-e", "-E", "-eval", "-command"];
/// Variables by which a program loads code before its own.
const LOADING: &[&str] = &[
    "BASH_ENV",
    "ENV",
    "LD_AUDIT",
    "LD_PRELOAD",
    "PROMPT_COMMAND",
];
/// Endings of files that programs with sub-commands run like code.
const ENDINGS: &[&str] = &[".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"];

/// What is not known of a command that runs code, as a clause.
pub(super) fn unknown_code(command: &Command) -> Option<&'static str> {
    let loads = |name: &str| LOADING.contains(&name);
    if command.assignments.iter().any(|one| loads(&one.name)) {
        return Some("a variable has code loaded");
    }
    let (first, rest) = command.words.split_first()?;
    let name = base_name(first.sketch());
    let words: Vec<&str> = rest.iter().map(Word::sketch).collect();
    let found = match name {
        "make" | "gmake" => runs_given_makefile(&words),
        "enable" | "fc" => !words.is_empty(),
        "hash" => words.contains(&"-p"),
        "mapfile" | "readarray" | "complete" | "compgen" => {
            words.iter().any(|word| word.starts_with("-C"))
        }
        "bind" => words.contains(&"-x"),
        "deno" | "bun" => words.iter().any(|word| {
            *word == "eval" || *word == "-e" || ENDINGS.iter().any(|end| word.ends_with(end))
        }),
        "sed" | "gsed" => has_flag(&words, 'f', &["--file"]),
        name if is_awk(name) => !is_table_reader(command) && awk_may_start(&words),
        name => {
            let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
            // The digit of `m4` is part of its name.
            let is_known = MORE_INTERPRETERS.contains(&plain) || MORE_INTERPRETERS.contains(&name);
            let known = is_known.then_some(MORE_FLAGS);
            let flags = code_flags(name).or(known);
            flags.is_some_and(|flags| runs_code(flags, &words, gets_input(command)))
                && !runs_plain_code(plain, rest)
        }
    };
    found.then_some("it runs code whose commands are not known")
}

/// True for an interpreter with code in the script that starts nothing.
pub(super) fn hands_over_plain_code(command: &Command) -> bool {
    command.words.split_first().is_some_and(|(first, rest)| {
        let name = base_name(first.sketch());
        runs_plain_code(
            name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'),
            rest,
        )
    })
}

fn gets_input(command: &Command) -> bool {
    let mut kinds = command.redirects.iter().map(|one| &one.kind);
    command.piped
        || kinds.any(|kind| {
            matches!(
                kind,
                RedirectKind::Read | RedirectKind::HereString | RedirectKind::HereDocument
            )
        })
}

/// True for code behind a flag, in a file, or from standard input.
fn runs_code(flags: &[&str], words: &[&str], gets_input: bool) -> bool {
    for word in words {
        let flag = word.split_once('=').map_or(*word, |(flag, _)| flag);
        let bundled =
            |flag: &&str| flag.len() == 2 && !word.starts_with("--") && word.ends_with(&flag[1..]);
        match *word {
            "-m" | "--module" | "--version" | "-V" | "-v" | "--help" | "-h" => return false,
            "-" => return true,
            _ if word.starts_with('-') => {
                if flags.contains(&flag) || flags.iter().any(bundled) {
                    return true;
                }
            }
            // The value of a flag before it counts for a file: it would take a table of each one's flags to know.
            _ => return true,
        }
    }
    gets_input
}

/// Modules of Python that start nothing.
const PLAIN_MODULES: &[&str] = &[
    "base64",
    "collections",
    "csv",
    "datetime",
    "glob",
    "hashlib",
    "itertools",
    "json",
    "math",
    "pathlib",
    "random",
    "re",
    "statistics",
    "sys",
    "textwrap",
    "time",
    "tomllib",
];
/// Names in Python that lead to other modules, to attributes by a text, or to code in a text.
const PYTHON_LEADS: &[&str] = &[
    "Formatter",
    "attrgetter",
    "breakpoint",
    "builtins",
    "compile",
    "delattr",
    "eval",
    "exec",
    "get_field",
    "getattr",
    "globals",
    "help",
    "locals",
    "methodcaller",
    "modules",
    "os",
    "popen",
    "setattr",
    "system",
    "vars",
];
/// The same in JavaScript.
const NODE_LEADS: &[&str] = &[
    "Function",
    "Proxy",
    "Reflect",
    "constructor",
    "eval",
    "global",
    "globalThis",
    "import",
    "module",
    "process",
    "require",
    "this",
    "with",
];

/// True for `python -c CODE` and `node -e CODE` with code that stands in the script and reaches nothing which starts a
/// program: `print(json.load(sys.stdin))`.
fn runs_plain_code(interpreter: &str, words: &[Word]) -> bool {
    let [flag, code, ..] = words else {
        return false;
    };
    let Some(code) = code.text() else {
        return false;
    };
    match (interpreter, flag.text()) {
        ("python", Some("-c")) => {
            let lines = || code.split(['\n', ';']).map(str::trim);
            let imports = lines().filter_map(|line| line.strip_prefix("import "));
            let all_plain = imports
                .flat_map(|names| names.split(','))
                .all(|name| PLAIN_MODULES.contains(&name.trim()));
            let from = lines().any(|line| line.starts_with("from "));
            let imports = code.matches("import").count();
            let at_start = lines().filter(|line| line.starts_with("import ")).count();
            all_plain && !from && imports == at_start && reaches_none(code, PYTHON_LEADS)
        }
        ("node", Some("-e" | "-p" | "-pe")) => {
            !code.contains(['[', '`', '\\']) && reaches_none(code, NODE_LEADS)
        }
        _ => false,
    }
}

/// True if no name in the code is one of these or begins like something hidden. Texts count as code, which only finds
/// more.
fn reaches_none(code: &str, leads: &[&str]) -> bool {
    code.is_ascii()
        && code
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$'))
            .all(|name| !leads.contains(&name) && !name.starts_with('_'))
}

/// A makefile that is named, or code in the place of one; without it `make` runs what the project calls its own.
fn runs_given_makefile(words: &[&str]) -> bool {
    has_flag(words, 'f', &["--file", "--makefile", "--eval"])
        || has_flag(words, 'E', &[])
        || words
            .iter()
            .any(|word| word.starts_with("SHELL=") || word.starts_with(".SHELLFLAGS="))
}

/// A letter in a bundle of flags, or a long flag with or without a value.
fn has_flag(words: &[&str], letter: char, long: &[&str]) -> bool {
    words.iter().any(|word| match word.strip_prefix('-') {
        Some(rest) if rest.starts_with('-') => {
            long.contains(&word.split_once('=').map_or(*word, |(flag, _)| flag))
        }
        Some(rest) => rest.contains(letter),
        None => false,
    })
}

/// An awk program in a file, or one in which something is started.
fn awk_may_start(words: &[&str]) -> bool {
    const LOADS: &[&str] = &["--file", "--exec", "--include", "--load", "--source"];
    let in_file = words
        .iter()
        .any(|word| LOADS.contains(&word.split_once('=').map_or(*word, |(flag, _)| flag)))
        || words.iter().any(|word| {
            let short = ["-f", "-E", "-i", "-l", "-e"];
            !word.starts_with("--") && short.iter().any(|flag| word.starts_with(flag))
        });
    in_file
        || words
            .iter()
            .filter(|word| !word.starts_with('-') && !awk_only_prints(word))
            .any(|word| word.contains("system") || word.contains(['|', '@']))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::unknown_code;
    use crate::shell::{Start, analyse};

    fn check(script: &str, expected: bool) {
        let start = Start {
            directory: PathBuf::from("/project"),
            home: PathBuf::from("/home"),
            is_directory: &|_| None,
        };
        let analysis = analyse(script, &start);
        let found = analysis
            .commands
            .iter()
            .any(|command| unknown_code(command).is_some());
        assert_eq!(found, expected, "{script}");
    }

    #[test]
    fn code_is_not_known_and_a_program_is_run() {
        for script in [
            "python3 x.py",
            "python3.12 -c 'eval(x)'",
            "python3 -Bc 'x'",
            "python3 - < x",
            "cat x | python3",
            "python3 < x",
            "env A=1 node x.js",
            "node --eval=x",
            "node -pe this.x",
            "perl -ne x",
            "perl -e x",
            "ruby x.rb",
            "php -r x",
            "tclsh x",
            "echo x | m4",
            "expect -c x",
            "R -e x",
            "Rscript x.R",
            "tsx x.ts",
            "deno run x.ts",
            "bun x.ts",
            "awk -f x.awk",
            "awk 'BEGIN{c=\"r\" \"m\"; system(c)}'",
            "awk '{print | c}' a",
            "sed -f x.sed a",
            "sed -nf x a",
            "make -f x",
            "make -sf x",
            "make --eval=x",
            "make SHELL=x",
            "BASH_ENV=x bash --version",
            "hash -p ./x ls",
            "mapfile -C x a",
            "enable -f ./x y",
            "sudo python3 x.py",
            "(lua x.lua)",
            "python3 -c 'import os; os.system(\"x\")'",
            "python3 -c 'import json,os; print(1)'",
            "python3 -c 'import sys; sys.modules[\"o\"+\"s\"]'",
            "python3 -c 'if 1: import os'",
            "python3 -c '().__class__'",
            "python3 -c 'from os import path'",
            "python3 -c \"$x\"",
            "node -e 'require(\"child_process\")'",
            "node -e '(x=>x)[\"con\"+\"structor\"](\"x\")()'",
            "node -p 'process.env'",
        ] {
            check(script, true);
        }
        for script in [
            "python3 -m pytest",
            "python3 -c 'print(\"rm x\")'",
            "python3 -c 'import json,sys; print(json.load(sys.stdin)[\"a\"])'",
            "node -e 'console.log(\"rm x\")'",
            "node -p '1+1'",
            "python3 --version",
            "node -v",
            "python3",
            "make",
            "make check",
            "make -j4 test",
            "cargo test",
            "npm test",
            "./x.sh",
            "go run .",
            "bun install",
            "deno fmt",
            "awk '{print $1}' a",
            "awk -F: '{print > \"x\"}' a",
            "sed -i s/a/b/ a",
            "sed -n 1p file",
            "hash -r",
            "mapfile -t x",
        ] {
            check(script, false);
        }
    }
}
