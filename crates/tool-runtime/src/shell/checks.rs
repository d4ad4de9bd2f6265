//! The few programs whose operands are a little language of their own.
//!
//! Each check accepts a small, closed subset and refuses everything else.

use serde::Deserialize;

use super::programs::Arguments;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Check {
    Sed,
    Awk,
    Yq,
    Jq,
    Printf,
    Test,
    Date,
    Ps,
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
                scripts.peek().is_some() && scripts.all(|script| only_prints_sed(script))
            }
            Self::Awk => texts
                .first()
                .is_some_and(|program| only_prints_awk(program)),
            Self::Yq => texts
                .first()
                .is_some_and(|text| !text.contains("load") && !text.contains("env")),
            // Modules are read from wherever the program says.
            Self::Jq => texts
                .first()
                .is_some_and(|text| !text.contains("import") && !text.contains("include")),
            // `-v` assigns a variable, and a subscript in its name is evaluated.
            Self::Printf => !texts.first().is_some_and(|text| text.starts_with('-')),
            Self::Test => is_plain_test(texts),
            Self::Date => texts.iter().all(|text| text.starts_with('+')),
            // `ps e` shows the environment of other processes.
            Self::Ps => texts
                .iter()
                .all(|text| text.bytes().all(|byte| b"auxlfjw".contains(&byte))),
        };
        if holds {
            Ok(())
        } else {
            Err(match self {
                Self::Sed => "the sed script does more than print, delete or substitute",
                Self::Awk => "the awk program does more than print fields",
                Self::Yq => "the expression may read other files or the environment",
                Self::Jq => "the program may load modules",
                Self::Printf => "printf assigns a variable",
                Self::Test => "the test is not one of the plain ones",
                Self::Date => "the date would be set",
                Self::Ps => "the processes' environment may be shown",
            }
            .to_owned())
        }
    }
}

/// Commands `p = d q Q` and `s` without `e` or `w`, with addresses, joined by `;`.
fn only_prints_sed(script: &str) -> bool {
    if script.contains('\n') || script.is_empty() {
        return false;
    }
    let mut rest = script;
    loop {
        rest = rest.trim_start_matches([' ', ';']);
        if rest.is_empty() {
            return true;
        }
        let Some(after) = sed_command(rest) else {
            return false;
        };
        rest = after.trim_start_matches(' ');
        if !rest.is_empty() && !rest.starts_with(';') {
            return false;
        }
    }
}

fn sed_command(text: &str) -> Option<&str> {
    let mut rest = sed_address(text)?;
    if let Some(after) = rest.strip_prefix(',') {
        let after = after.trim_start_matches(['+', '~']);
        let end = sed_address(after)?;
        if end.len() == after.len() {
            return None;
        }
        rest = end;
    }
    let rest = rest.trim_start_matches(' ').trim_start_matches('!');
    if let Some(after) = rest.strip_prefix(['p', '=', 'd']) {
        return Some(after);
    }
    if let Some(after) = rest.strip_prefix(['q', 'Q']) {
        return Some(after.trim_start_matches(|digit: char| digit.is_ascii_digit()));
    }
    let after = rest.strip_prefix('s')?;
    let delimiter = after
        .chars()
        .next()
        .filter(|delimiter| matches!(delimiter, '/' | '|' | '#' | ',' | '@' | ':' | '%' | '+'))?;
    let after = until(after.get(1..)?, delimiter)?;
    let after = until(after, delimiter)?;
    Some(after.trim_start_matches([
        'g', 'p', 'i', 'I', '1', '2', '3', '4', '5', '6', '7', '8', '9',
    ]))
}

fn sed_address(text: &str) -> Option<&str> {
    if let Some(after) = text.strip_prefix('$') {
        return Some(after);
    }
    if let Some(after) = text.strip_prefix('/') {
        let after = until(after, '/')?;
        return Some(after.strip_prefix('I').unwrap_or(after));
    }
    Some(text.trim_start_matches(|digit: char| digit.is_ascii_digit() || digit == '~'))
}

/// What follows the first `delimiter` that no backslash stands before.
fn until(text: &str, delimiter: char) -> Option<&str> {
    let mut escaped = false;
    for (offset, character) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if character == '\\' {
            escaped = true;
        } else if character == delimiter {
            return text.get(offset + character.len_utf8()..);
        }
    }
    None
}

/// Prints and counts, no redirect, no pipe, no call but a few pure functions.
fn only_prints_awk(program: &str) -> bool {
    const FUNCTIONS: &[&str] = &[
        "length", "substr", "toupper", "tolower", "index", "int", "sub", "gsub", "split",
        "sprintf", "match", "print", "printf", "if", "while", "for", "in", "NR", "NF", "FNR",
    ];
    const FORBIDDEN: &[&str] = &[
        "ARGV", "ARGC", "system", "getline", "close", "fflush", "function", "func", "include",
        "load", "eval",
    ];
    let has_regex = program.contains('/');
    if program.contains(['@', '`', '\n']) || (has_regex && program.contains('"')) {
        // With both a regular expression and a string in it, where a string begins is anyone's guess.
        return false;
    }
    let characters: Vec<char> = program.chars().collect();
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(&character) = characters.get(at) {
        match character {
            '"' => {
                at += 1;
                while let Some(&inner) = characters.get(at).filter(|inner| **inner != '"') {
                    at += if inner == '\\' { 2 } else { 1 };
                }
                if at >= characters.len() {
                    return false;
                }
            }
            '{' => depth += 1,
            '}' => match depth.checked_sub(1) {
                Some(outer) => depth = outer,
                None => return false,
            },
            '|' if depth > 0 || characters.get(at + 1) != Some(&'|') => return false,
            '|' => at += 1,
            '>' if depth > 0 => return false,
            character if character.is_ascii_alphabetic() || character == '_' => {
                let start = at;
                while characters
                    .get(at + 1)
                    .is_some_and(|next| next.is_ascii_alphanumeric() || *next == '_')
                {
                    at += 1;
                }
                let name: String = characters
                    .get(start..=at)
                    .unwrap_or_default()
                    .iter()
                    .collect();
                let mut next = at + 1;
                while characters.get(next) == Some(&' ') {
                    next += 1;
                }
                let is_call = characters.get(next) == Some(&'(');
                if FORBIDDEN.contains(&name.as_str())
                    || (is_call && !has_regex && !FUNCTIONS.contains(&name.as_str()))
                {
                    return false;
                }
            }
            _ => {}
        }
        at += 1;
    }
    depth == 0
}

/// `-v` and `-R` evaluate subscripts, and a number that is not one could be evaluated too.
fn is_plain_test(texts: &[String]) -> bool {
    const UNARY: &[&str] = &[
        "-e", "-f", "-d", "-r", "-w", "-x", "-s", "-L", "-h", "-n", "-z", "-p", "-S", "-b", "-c",
        "-g", "-u", "-k", "-O", "-G", "-t",
    ];
    const BINARY: &[&str] = &["=", "==", "!=", "<", ">", "-nt", "-ot", "-ef"];
    const NUMERIC: &[&str] = &["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];
    let texts: Vec<&str> = texts
        .iter()
        .map(String::as_str)
        .filter(|text| *text != "]")
        .collect();
    let texts = texts.strip_prefix(&["!"]).unwrap_or(&texts);
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
    fn sed_prints_and_nothing_else() {
        for script in [
            "10,30p",
            "$p",
            "/a/,/b/p",
            "5q",
            "/^#/d",
            "s/a/b/",
            "s|a/b|c|g",
            "1p;3p",
            "/x/!d",
            "1,+3p",
            "$=",
            "s/\\(a\\)/\\1/p",
            "2!p",
        ] {
            assert!(only_prints_sed(script), "{script}");
        }
        for script in [
            "2w out",
            "e id",
            "s/a/b/e",
            "s/a/b/w out",
            "s/a/b/gw out",
            "r /etc/passwd",
            "1e",
            "w x",
            "s/a/b/;e",
            "/x/w out",
            "p;w x",
            "",
            "s/a/b",
            "{p}",
            "1!e id",
            "s/a/b/\ne id",
            "W x",
            "R x",
            "a text",
            "y/a/b/",
            "s\na\nb\ne",
            "F",
        ] {
            assert!(!only_prints_sed(script), "{script}");
        }
    }

    #[test]
    fn awk_prints_and_nothing_else() {
        for program in [
            "{print $1}",
            "NR==5",
            "NR>3 && NR<9 {print $2, $NF}",
            "/fn/ {print $1}",
            "{sum += $1} END {print sum}",
            "{print length($0)}",
            "{printf \"%s\\n\", $1}",
            "END{print NR}",
            "!seen[$0]++",
            "BEGIN{FS=\",\"} {print $2}",
        ] {
            assert!(only_prints_awk(program), "{program}");
        }
        for program in [
            "BEGIN{system(\"id\")}",
            "{print > \"x\"}",
            "{print | \"sh\"}",
            "BEGIN{\"id\" | getline x}",
            "/\"/ {print > \"x\"}",
            "{print $1 > $2}",
            "@load \"x\"",
            "function f(){}",
            "{ \"date\" | getline }",
            "/}/ {print > f}",
            "/{}/ {print > f}",
            "BEGIN { f = \"system\"; @f(\"id\") }",
            "{print \"open}",
            "BEGIN{ARGV[1]=\"x\";ARGC=2}{print}",
            "{ system (\"id\") }",
        ] {
            assert!(!only_prints_awk(program), "{program}");
        }
    }

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
    }
}
