//! Hint at a narrower tool: commands that do what one does. They run all the same; that there was a clearer way is a
//! fact of the record.

use agent_policy::shell::{Analysis, RedirectKind};

/// The tool that would have done, for a script that is one such command and nothing else.
pub(super) fn tool_hint(analysis: &Analysis) -> Option<&'static str> {
    let [command] = &*analysis.commands else {
        return None;
    };
    if command.wraps || command.appended_arguments {
        return None;
    }
    let words: Option<Vec<&str>> = command.words.iter().map(|word| word.text()).collect();
    let words = words?;
    let (program, arguments) = words.split_first()?;
    let writes_file = command.redirects.iter().any(|redirect| {
        redirect.kind == RedirectKind::Write && redirect.target.text() != Some("/dev/null")
    });
    let has_operand = arguments.iter().any(|word| !word.starts_with('-'));
    match *program {
        "echo" | "printf" | "cat" if writes_file => Some("write"),
        _ if writes_file => None,
        "cat" | "head" | "tail" | "nl" if has_operand => Some("read"),
        "grep" | "egrep" | "fgrep" | "rg" if has_operand => Some("grep"),
        "find" | "fd" if !arguments.contains(&"-delete") => Some("glob"),
        "sed" | "perl" if arguments.iter().any(|word| in_place(word)) => Some("edit"),
        _ => None,
    }
}

/// `-i`, `-i.bak`, `-pi`, `--in-place`.
fn in_place(word: &str) -> bool {
    let short = word.starts_with('-') && !word.starts_with("--");
    word.starts_with("--in-place") || short && word.split('.').next().unwrap_or("").contains('i')
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use agent_policy::shell::{Start, analyse};

    use super::tool_hint;

    fn check(script: &str, expected: Option<&str>) {
        let start = Start {
            directory: PathBuf::from("/project"),
            home: PathBuf::from("/home"),
            is_directory: &|_| None,
        };
        assert_eq!(tool_hint(&analyse(script, &start)), expected, "{script}");
    }

    #[test]
    fn a_lone_command_that_a_tool_would_do() {
        check("cat src/main.rs", Some("read"));
        check("head -n 20 README.md", Some("read"));
        check("grep -rn needle src", Some("grep"));
        check("find . -name '*.rs'", Some("glob"));
        check("sed -i s/a/b/ file", Some("edit"));
        check("sed -i.bak s/a/b/ file", Some("edit"));
        check("echo hello > file", Some("write"));
        check("cat > file <<EOF\nx\nEOF", Some("write"));
    }

    #[test]
    fn everything_else_is_a_command() {
        for script in [
            "cargo test",
            "cat a | wc -l",
            "cat",
            "find . -delete",
            "find . -name x -exec rm {} +",
            "sed -n 3p file",
            "echo hello",
            "echo hello > /dev/null",
            "grep x a > b",
            "git grep x",
        ] {
            check(script, None);
        }
    }
}
