//! The few programs whose operands are a little language of their own.
//!
//! Each check accepts a small, closed subset and refuses everything else.

mod awk;
mod jq;
mod sed;

pub(super) use awk::only_prints as awk_only_prints;
pub(super) use sed::only_prints as sed_only_prints;
use serde::Deserialize;

use super::programs::Arguments;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Check {
    Sed,
    Awk,
    Jq,
    Printf,
    Test,
    Date,
    Ps,
    GitFormat,
    GitConfig,
    Tar,
    Rustc,
    NoList,
}

impl Check {
    pub(super) fn holds(self, arguments: &Arguments) -> Result<(), String> {
        let texts = &arguments.texts;
        let holds = match self {
            Self::Sed => {
                let from_flags = arguments
                    .values
                    .iter()
                    .filter(|(flag, _)| matches!(flag.as_str(), "-e" | "--expression"))
                    .map(|(_, script)| script);
                let mut scripts = texts.iter().chain(from_flags).peekable();
                scripts.peek().is_some() && scripts.all(|script| sed::only_prints(script))
            }
            Self::Awk => texts
                .first()
                .is_some_and(|program| awk::only_prints(program)),
            // Modules, other files and the environment are read from wherever the program says.
            Self::Jq => texts
                .first()
                .is_some_and(|program| jq::looks_at_its_input_only(program)),
            // `-v` and `%n` assign a variable, and a subscript in its name is evaluated.
            Self::Printf => texts
                .first()
                .is_some_and(|text| !text.starts_with('-') && only_formats(text)),
            Self::Test => is_plain_test(texts),
            Self::Date => texts.iter().all(|text| text.starts_with('+')),
            Self::Ps => shows_no_environment(arguments),
            // A signature is checked by a program that the project's configuration names.
            Self::GitFormat => !arguments
                .values
                .iter()
                .any(|(_, value)| asks_for_signatures(value)),
            Self::GitConfig => reads_git_config(arguments),
            // `host:file` is fetched by a remote shell.
            Self::Tar => !arguments.values.iter().any(|(flag, value)| {
                matches!(flag.as_str(), "-f" | "--file") && value.contains(':')
            }),
            // `@FILE` stands for the arguments in that file.
            Self::NoList => {
                let values = arguments.values.iter().map(|(_, value)| value);
                let mut all = values.map(String::as_str).chain(arguments.paths());
                // A glob behind `--` is told with `./` in front.
                all.all(|text| {
                    let text = text.strip_prefix("./").unwrap_or(text);
                    !text.starts_with(['@', '*', '?', '[', '\\'])
                })
            }
            // `--print=KIND=FILE` writes the file.
            Self::Rustc => !arguments
                .values
                .iter()
                .any(|(_, value)| value.contains('=')),
        };
        if holds {
            Ok(())
        } else {
            Err(match self {
                Self::Sed => "the sed script does more than print, delete or substitute",
                Self::Awk => "the awk program does more than print fields",
                Self::Jq => "the program may read other files or the environment",
                Self::Printf => "printf assigns a variable",
                Self::Test => "the test uses an operator that is not known to be read-only",
                Self::Date => "it would set the date",
                Self::Ps => "it may show the environment of processes",
                Self::GitFormat => "the format makes git check signatures with another program",
                Self::GitConfig => "it may change git's configuration",
                Self::Tar => "the archive may be on another machine",
                Self::Rustc => "the output may go to a file",
                Self::NoList => "`@` in front of a file takes arguments from it",
            }
            .to_owned())
        }
    }
}

/// A format of printf in which each conversion prints its argument.
fn only_formats(format: &str) -> bool {
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            continue;
        }
        let conversion = characters.find(|next| !"-+ #0123456789.*'".contains(*next));
        if !conversion.is_some_and(|c| "%diouxXeEfFgGaAcsbqQ".contains(c)) {
            return false;
        }
    }
    true
}

/// `%G?`, also behind a sign, and every field that has a signature in its name.
fn asks_for_signatures(format: &str) -> bool {
    let by_letter = format.split('%').skip(1).any(|conversion| {
        conversion
            .trim_start_matches(['+', '-', ' '])
            .starts_with('G')
    });
    by_letter || format.contains("signature")
}

/// `ps e` and `ps -o environ` show the environment of other processes.
fn shows_no_environment(arguments: &Arguments) -> bool {
    let is_format = |text: &str| !text.contains("env");
    let mut format_follows = false;
    let texts_fit = arguments.texts.iter().all(|text| {
        if std::mem::take(&mut format_follows) {
            return is_format(text);
        }
        format_follows = text.ends_with('o');
        text.bytes().all(|byte| b"auxlfjwo".contains(&byte))
    });
    texts_fit && arguments.values.iter().all(|(_, value)| is_format(value))
}

/// A listing, or one key with its section and no value. A word without a dot may be a sub-command.
fn reads_git_config(arguments: &Arguments) -> bool {
    let lists = ["-l", "--list", "--get", "--get-all", "--get-regexp"];
    if lists.iter().any(|flag| arguments.has(flag)) {
        return arguments.texts.is_empty();
    }
    matches!(arguments.texts.as_slice(), [key] if key.contains('.'))
}

/// `-v` and `-R` evaluate subscripts, and a number that is not one could be evaluated too.
fn is_plain_test(texts: &[String]) -> bool {
    let texts: Vec<&str> = texts
        .iter()
        .map(String::as_str)
        .filter(|text| *text != "]")
        .collect();
    if texts.len() > 4 && !texts.iter().any(|text| matches!(*text, "-v" | "-R")) {
        let mut parts = texts.split(|text| matches!(*text, "-a" | "-o"));
        return parts.all(|part| !part.is_empty() && part.len() <= 4 && is_plain_part(part));
    }
    is_plain_part(&texts)
}

fn is_plain_part(texts: &[&str]) -> bool {
    const UNARY: &[&str] = &[
        "-e", "-f", "-d", "-r", "-w", "-x", "-s", "-L", "-h", "-n", "-z", "-p", "-S", "-b", "-c",
        "-g", "-u", "-k", "-O", "-G", "-t",
    ];
    const BINARY: &[&str] = &["=", "==", "!=", "<", ">", "-nt", "-ot", "-ef"];
    const NUMERIC: &[&str] = &["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];
    let texts = texts.strip_prefix(&["!"]).unwrap_or(texts);
    let is_integer = |text: &str| {
        text.trim_start_matches('-')
            .bytes()
            .all(|b| b.is_ascii_digit())
    };
    match texts {
        [] | [_] => true,
        [operator, _] => UNARY.contains(operator),
        [left, operator, right] => {
            BINARY.contains(operator)
                || (NUMERIC.contains(operator) && is_integer(left) && is_integer(right))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_evaluate_are_not_plain() {
        let check = |text: &str, expected: bool| {
            let texts: Vec<String> = text.split(' ').map(str::to_owned).collect();
            assert_eq!(is_plain_test(&texts), expected, "{text}");
        };
        check("-f a", true);
        check("! -d a ]", true);
        check("1 -eq 2 ]", true);
        check("a = b ]", true);
        check("-v a[$(x)]", false);
        check("a[0] -eq 1", false);
        check("-f a -a -f b ]", true);
        check("! -f a -o a = b -a 1 -lt 2", true);
        check("-f a -o -v a[$(x)]", false);
        check("-f a -a -a b", false);
    }
}
