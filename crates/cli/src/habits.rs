//! What hands know from other programs: their flags get an answer that names ours, and flags that
//! stand before a command that would not see them are not passed over in silence.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, Error, FromArgMatches as _};

use crate::arguments::Arguments;
use crate::failure::Failure;

/// Flags of other programs, each with ours.
const FOREIGN: &[(&[&str], &str)] = &[
    (
        &[
            "--dangerously-skip-permissions",
            "--dangerously-bypass-approvals-and-sandbox",
            "--allow-dangerously-skip-permissions",
            "--yolo",
        ],
        "`--mode full` asks nothing; deny rules, circuit breakers and the sandbox still hold",
    ),
    (
        &["--full-auto", "--auto-approve"],
        "`--mode auto` runs commands without asking while they are fully sandboxed",
    ),
    (
        &[
            "--permission-mode",
            "--approval-mode",
            "--ask-for-approval",
            "--sandbox",
        ],
        "`--mode read-only`, `plan`, `ask`, `accept-edits`, `auto` or `full` says what may happen without asking",
    ),
    (
        &[
            "--allowedTools",
            "--allowed-tools",
            "--disallowedTools",
            "--disallowed-tools",
        ],
        "rules say what is allowed: `--rules FILE`, or `[permissions]` in the settings; see docs/permissions.md",
    ),
    (
        &["--output-format"],
        "`--output text`, `json` or `stream-json`",
    ),
    (
        &["--max-turns"],
        "`--max-steps N` stops a turn after N model requests",
    ),
    (&["--cd"], "`-C DIR` works in another directory"),
];

/// Reads the command line.
///
/// # Errors
/// When it is not one of ours, or asks for help.
pub(crate) fn parse(given: impl IntoIterator<Item = OsString>) -> Result<Arguments, Error> {
    let mut description = Arguments::command();
    let matches = description.try_get_matches_from_mut(given)?;
    if let Some(misplaced) = misplaced(&description, &matches) {
        return Err(description.error(ErrorKind::ArgumentConflict, misplaced));
    }
    Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut description))
}

/// Complaint about what stands before a command and would not be seen by it.
fn misplaced(description: &clap::Command, matches: &ArgMatches) -> Option<String> {
    let command = matches.subcommand_name()?;
    let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let argument = description
        .get_arguments()
        .find(|argument| !argument.is_global_set() && given(argument.get_id().as_str()))?;
    Some(match argument.get_long() {
        Some("print") => format!("`--print` goes with a prompt, not with the command `{command}`"),
        Some(long) => {
            format!("`--{long}` belongs behind the command: `agent {command} --{long} …`")
        }
        None => format!("a prompt and the command `{command}` do not go together"),
    })
}

/// An unknown flag that another program has.
pub(crate) fn explained(error: &Error) -> Option<Failure> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let flag = flag.split(['=', ' ']).next().unwrap_or_default();
    let (_, ours) = FOREIGN.iter().find(|(names, _)| names.contains(&flag))?;
    Some(Failure::usage(format!("unknown flag `{flag}`")).hint(*ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Arguments, Error> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn the_description_holds_together() {
        Arguments::command().debug_assert();
    }

    /// An example that is broken into two lines cannot be copied.
    #[test]
    fn every_example_fits_one_line() {
        fn look(command: &clap::Command, seen: &mut usize) {
            let pages = [command.get_after_help(), command.get_after_long_help()];
            for page in pages.into_iter().flatten().map(ToString::to_string) {
                for line in page.lines().filter(|line| line.starts_with("  ")) {
                    *seen += 1;
                    assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
                }
            }
            command
                .get_subcommands()
                .for_each(|command| look(command, seen));
        }
        let mut seen = 0;
        look(&Arguments::command(), &mut seen);
        assert!(seen > 50, "{seen}");
    }

    #[test]
    fn what_other_hands_type_is_understood() {
        let printed = read("agent -p -c -m a/b --output json hello").unwrap();
        assert!(printed.print);
        assert_eq!(printed.prompt.as_deref(), Some("hello"));
        assert!(read("agent exec hello").unwrap().command.is_some());
        assert!(read("agent --resume last").is_ok());
        assert!(read("agent -c -r 2").is_err());
        // An option of `run` alone says nothing about the screen.
        assert!(read("agent --output json hello").is_err());
    }

    #[test]
    fn a_flag_before_a_command_is_not_lost() {
        let error = read("agent --mode auto run x").unwrap_err().to_string();
        assert!(error.contains("`agent run --mode …`"), "{error}");
        let error = read("agent -p run x").unwrap_err().to_string();
        assert!(error.contains("`--print` goes with a prompt"), "{error}");
        assert!(read("agent -C . -q run x").is_ok());
    }

    #[test]
    fn no_flag_of_ours_is_called_foreign() {
        let description = Arguments::command();
        let commands = description.get_subcommands().chain([&description]);
        for argument in commands.flat_map(clap::Command::get_arguments) {
            let Some(long) = argument.get_long() else {
                continue;
            };
            let flag = format!("--{long}");
            let names = FOREIGN.iter().flat_map(|(names, _)| names.iter());
            assert!(!names.clone().any(|name| *name == flag), "{flag}");
        }
    }
}
