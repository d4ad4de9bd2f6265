//! The slash commands: one table for the menu, the help and the dispatch.

/// A command one can type after `/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    pub name: &'static str,
    pub arguments: &'static str,
    pub about: &'static str,
    pub does: Does,
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    Help,
    Model,
    Thinking,
    Mode,
    Plan,
    Permissions,
    Sandbox,
    AddDirectory,
    ChangeDirectory,
    Context,
    Compact,
    Cost,
    Diff,
    Init,
    Review,
    Undo,
    Resume,
    Fork,
    Replay,
    Why,
    Tools,
    Processes,
    Status,
    Export,
    Theme,
    Transcript,
    Copy,
    Rewind,
    Clear,
    Quit,
}

const fn command(
    name: &'static str,
    arguments: &'static str,
    about: &'static str,
    does: Does,
) -> Command {
    Command {
        name,
        arguments,
        about,
        does,
    }
}

/// Every command, in the order of the menu.
pub const COMMANDS: &[Command] = &[
    command("help", "", "keys and commands", Does::Help),
    command("model", "[provider/model]", "choose the model", Does::Model),
    command(
        "thinking",
        "[level]",
        "choose how much the model may think",
        Does::Thinking,
    ),
    command(
        "mode",
        "[mode]",
        "set what may happen without asking",
        Does::Mode,
    ),
    command(
        "plan",
        "[request]",
        "change nothing until you approve a plan",
        Does::Plan,
    ),
    command(
        "permissions",
        "",
        "show permission rules and where they come from",
        Does::Permissions,
    ),
    command(
        "sandbox",
        "",
        "show what the sandbox enforces",
        Does::Sandbox,
    ),
    command(
        "add-dir",
        "PATH",
        "let a directory outside the project be read in this session",
        Does::AddDirectory,
    ),
    command(
        "cd",
        "[directory]",
        "run commands, and begin relative paths, in a directory of the project",
        Does::ChangeDirectory,
    ),
    command(
        "context",
        "",
        "show what the model sees, and how full its context is",
        Does::Context,
    ),
    command("compact", "", "summarise older history now", Does::Compact),
    command(
        "cost",
        "",
        "show tokens and cost of this session",
        Does::Cost,
    ),
    command("diff", "", "show all changes of this session", Does::Diff),
    command(
        "undo",
        "[event]",
        "undo the last turn's file changes",
        Does::Undo,
    ),
    command("resume", "", "open a past session", Does::Resume),
    command(
        "rewind",
        "[number]",
        "go back to before an earlier message, files and conversation together",
        Does::Rewind,
    ),
    command(
        "fork",
        "[number]",
        "fork before an earlier message; files stay as they are",
        Does::Fork,
    ),
    command("replay", "", "replay this session", Does::Replay),
    command(
        "init",
        "",
        "write AGENTS.md, the instructions for agents here",
        Does::Init,
    ),
    command(
        "review",
        "[branch | commit SHA]",
        "review uncommitted changes, those since a branch, or a commit",
        Does::Review,
    ),
    command("why", "[call]", "explain how a call was decided", Does::Why),
    command(
        "tools",
        "",
        "list the tools and what each may do in this mode",
        Does::Tools,
    ),
    command(
        "ps",
        "[number | stop number]",
        "list background commands, show the output of one, stop it",
        Does::Processes,
    ),
    command(
        "status",
        "",
        "show session, model, mode, sandbox, branch",
        Does::Status,
    ),
    command(
        "export",
        "[form]",
        "write the session to a file: jsonl, portable, html, review, evidence",
        Does::Export,
    ),
    command(
        "theme",
        "[auto|dark|light|none]",
        "choose the colours",
        Does::Theme,
    ),
    command(
        "transcript",
        "",
        "show the full transcript",
        Does::Transcript,
    ),
    command(
        "copy",
        "[code|output]",
        "copy the last answer, its last code block, or the last output",
        Does::Copy,
    ),
    command("clear", "", "start a new session", Does::Clear),
    command("quit", "", "leave", Does::Quit),
];

/// The commands that begin with `word`, or else contain it; the one that is `word` comes first.
pub fn matching(word: &str) -> impl Iterator<Item = &'static Command> {
    let begins = |command: &&Command| command.name.starts_with(word);
    let any_begins = COMMANDS.iter().any(|command| begins(&command));
    let mut found: Vec<&'static Command> = COMMANDS
        .iter()
        .filter(|command| {
            if any_begins {
                begins(command)
            } else {
                command.name.contains(word)
            }
        })
        .collect();
    found.sort_by_key(|command| command.name != word);
    found.into_iter()
}

/// Splits `/name arguments`; an error names the nearest command.
///
/// # Errors
/// When there is no such command.
pub fn parse(line: &str) -> Result<(&'static Command, &str), String> {
    let line = line.trim().trim_start_matches('/');
    let (name, arguments) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match COMMANDS.iter().find(|command| command.name == name) {
        Some(command) => Ok((command, arguments.trim())),
        None => {
            let shown = crate::safe::one_line(name);
            let hint = match matching(name).next() {
                Some(near) if !name.is_empty() => format!("; did you mean /{}?", near.name),
                _ => "; /help lists the commands".to_owned(),
            };
            Err(format!("unknown command /{shown}{hint}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_by_name() {
        assert_eq!(
            parse("/model a/b").map(|(c, a)| (c.does, a)),
            Ok((Does::Model, "a/b"))
        );
        assert_eq!(
            parse("/quit").map(|(c, a)| (c.does, a)),
            Ok((Does::Quit, ""))
        );
        assert_eq!(
            parse("/mod"),
            Err("unknown command /mod; did you mean /model?".into())
        );
        assert_eq!(
            parse("/zzz"),
            Err("unknown command /zzz; /help lists the commands".into())
        );
    }

    #[test]
    fn the_menu_narrows() {
        let names = |word: &str| {
            matching(word)
                .map(|command| command.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names("re"), ["resume", "rewind", "replay", "review"]);
        assert_eq!(names("mode"), ["mode", "model"]);
        assert_eq!(names("box"), ["sandbox"]);
        assert_eq!(names("").len(), COMMANDS.len());
    }
}
