//! The name this program was called by, in what it says about itself. Another program has the name
//! `agent` too, and whoever installed this one under a second name wants to read that name.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};

use crate::host;

const NAME: &str = "agent";

/// `text` with the name this program was called by in the commands it shows.
pub(crate) fn in_own_name(text: &str) -> Cow<'_, str> {
    renamed(text, host::called_as())
}

/// Prints what the parser has to say: help, or an error.
pub(crate) fn print(error: &clap::Error) -> io::Result<()> {
    let name = host::called_as();
    if name == NAME {
        return error.print();
    }
    let said = error.render();
    let shown = |is_terminal: bool| {
        let text = match is_terminal && host::terminal_takes_colors() {
            true => said.ansi().to_string(),
            false => said.to_string(),
        };
        renamed(&text, name).into_owned()
    };
    if error.use_stderr() {
        io::stderr().write_all(shown(io::stderr().is_terminal()).as_bytes())
    } else {
        io::stdout().write_all(shown(io::stdout().is_terminal()).as_bytes())
    }
}

/// A command line begins with the name: behind a quote, at the beginning of an indented line, behind
/// a pipe or inside `$(…)`. Other words are left alone.
fn renamed<'a>(text: &'a str, name: &str) -> Cow<'a, str> {
    if name == NAME || !text.contains(NAME) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(NAME) {
        let (before, after) = (&rest[..at], &rest[at + NAME.len()..]);
        out.push_str(before);
        let begins = ["`", "  ", "| ", "$("].iter().any(|end| out.ends_with(end));
        let ends = after.is_empty() || after.starts_with([' ', '`', '\n']);
        out.push_str(if begins && ends { name } else { NAME });
        rest = after;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_name_and_words_stay() {
        let check = |text: &str, expected: &str| assert_eq!(renamed(text, "cda"), expected);
        check("run `agent doctor` again", "run `cda doctor` again");
        check(
            "Examples:\n  agent run \"x\" || agent actions",
            "Examples:\n  cda run \"x\" || cda actions",
        );
        check(
            "--session \"$(agent fork last)\"",
            "--session \"$(cda fork last)\"",
        );
        check("an agent that `agents` know", "an agent that `agents` know");
        check(
            "the directory `.agent/sessions`",
            "the directory `.agent/sessions`",
        );
        check("no name", "no name");
    }
}
