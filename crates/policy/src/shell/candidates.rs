//! What a script could run besides the commands that were found in it.
//!
//! A deny rule or a circuit breaker holds unless the script is in the small language and does not match. A script
//! outside of it is taken as text: every end of every list of words in it is a candidate. Inside of it, so are only
//! the words of commands that may take them for code.

use std::path::PathBuf;

use super::analysis::{Analysis, Command, Directories, RedirectKind};
use super::indirect::{Operands, indirection, renaming, takes_input};
use super::mentions::{Places, lists};
use super::opaque::hands_over_plain_code;
use super::prescan::MAX_BYTES;
use super::prove::{is_table_reader, prove};
use super::subset;
use super::word::{UNKNOWN, Word};
use super::wrappers::{base_name, is_shell, only_starts};

/// Lists of words of which any end may be a command, and what is not known about the programs.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    pub(crate) lists: Vec<Vec<String>>,
    /// Reason the script may run programs or words that nobody can name before it runs, as a clause.
    pub(crate) indirect: Option<&'static str>,
    /// True if no program has to be what its name says.
    pub(crate) renames: bool,
    /// Where a program that a breaker watches gets words from that do not stand behind it.
    pub(crate) takes_input: Option<Operands>,
    /// The directories in which a candidate could run.
    pub(crate) directories: Vec<PathBuf>,
}

/// Longest command that is looked at.
const LONGEST: usize = 64;

impl Candidates {
    pub(crate) fn of(analysis: &Analysis) -> Self {
        let directories = directories(analysis);
        if prove(analysis, &mut |_| false).is_ok() {
            return Self {
                directories,
                ..Self::default()
            };
        }
        let (indirect, renames) = match renaming(analysis) {
            Some(why) => (Some(why), true),
            None => (indirection(analysis), false),
        };
        let takes_input = takes_input(analysis);
        let mut found = Finder {
            places: Places {
                home: analysis.rests_on.home.display().to_string(),
                here: analysis.rests_on.directory.display().to_string(),
            },
            taken: match (renames, indirect) {
                (true, _) => Taken::All,
                (false, Some(_)) => Taken::Printed,
                (false, None) if takes_input.is_some() => Taken::Printed,
                (false, None) => Taken::Code,
            },
            lists: Vec::new(),
        };
        match &analysis.small {
            Ok(small) => {
                let more = analysis.commands.iter();
                let is_new = |one: &&Command| small.iter().all(|known| known.words != one.words);
                let more: Vec<&Command> = more.filter(is_new).collect();
                small
                    .iter()
                    .chain(more)
                    .for_each(|command| found.command(command));
            }
            Err(_) => found.text(&analysis.script),
        }
        Self {
            lists: found.lists,
            indirect,
            renames,
            takes_input,
            directories,
        }
    }

    /// Every list of words that may be a command of a program with such a name.
    pub(crate) fn commands(
        &self,
        is_named: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = Vec<Word>> {
        self.starts().filter_map(move |(list, start, name)| {
            is_named(&name).then(|| {
                let end = list.len().min(start + LONGEST);
                let words = list.get(start + 1..end).unwrap_or_default();
                let mut command = vec![Word::literal(name)];
                command.extend(words.iter().map(Word::sketched));
                command
            })
        })
    }

    /// Every word that may name a program.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.starts().map(|(_, _, name)| name)
    }

    fn starts(&self) -> impl Iterator<Item = (&Vec<String>, usize, String)> {
        self.lists.iter().flat_map(|list| {
            let words = list.iter().enumerate();
            words.flat_map(move |(at, word)| {
                names(word).into_iter().map(move |name| (list, at, name))
            })
        })
    }
}

/// The programs that a word may name: without what is not known of it, and without a flag in front.
fn names(word: &str) -> Vec<String> {
    let known: String = word.chars().filter(|c| *c != UNKNOWN).collect();
    let Some(flag) = known.strip_prefix('-') else {
        return if known.is_empty() {
            Vec::new()
        } else {
            vec![known]
        };
    };
    // `-Irm` for a flag with its value, `-rm` for a recipe whose failure does not count or for `${x:-rm}`.
    let mut letters = flag.chars();
    let value = letters.next().map(|_| letters.as_str());
    let both = [Some(flag), value].into_iter().flatten();
    both.filter(|name| name.len() > 1 && !flag.starts_with('-'))
        .map(str::to_owned)
        .collect()
}

fn directories(analysis: &Analysis) -> Vec<PathBuf> {
    let mut all = vec![analysis.rests_on.directory.clone()];
    for command in &analysis.commands {
        if let Directories::Known(known) = &command.directories {
            for directory in known {
                if !all.contains(directory) {
                    all.push(directory.clone());
                }
            }
        }
    }
    all.truncate(8);
    all
}

/// The words of a script in the small language that may be code.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// Those of commands that are not known to take theirs for data.
    Code,
    /// What is printed as well, because something unknown is run.
    Printed,
    /// Any, because no program is what its name says.
    All,
}

struct Finder {
    places: Places,
    taken: Taken,
    lists: Vec<Vec<String>>,
}

impl Finder {
    fn text(&mut self, text: &str) {
        // A longer script is asked about as it is.
        let end = text.floor_char_boundary(4 * MAX_BYTES);
        self.lists
            .extend(lists(text.get(..end).unwrap_or_default(), &self.places));
    }

    fn command(&mut self, command: &Command) {
        for assignment in &command.assignments {
            let is_for_programs = !command.words.is_empty()
                || assignment
                    .name
                    .bytes()
                    .any(|byte| byte.is_ascii_uppercase())
                || self.taken != Taken::Code;
            if let Some(value) = assignment.value.as_deref().filter(|_| is_for_programs) {
                self.text(value);
            }
        }
        let takes_code = self.takes_code(command);
        // What a program reads goes to it, and may go on from there.
        if takes_code || self.taken != Taken::Code {
            for redirect in &command.redirects {
                if matches!(
                    redirect.kind,
                    RedirectKind::HereDocument | RedirectKind::HereString
                ) {
                    self.text(redirect.target.sketch());
                }
            }
        }
        if !takes_code {
            return;
        }
        let name = name_of(command);
        // The commands of a script in the small language were found, and are asked about themselves.
        if is_shell(name) && hands_over_plain_script(command) {
            return;
        }
        let words: Vec<&str> = command.words.iter().map(Word::sketch).collect();
        let behind = words.get(operands(&words)..).unwrap_or_default();
        self.lists
            .push(behind.iter().map(|word| (*word).to_owned()).collect());
        self.text(&behind.join(" "));
    }

    fn takes_code(&self, command: &Command) -> bool {
        let name = name_of(command);
        let prints = matches!(name, "echo" | "printf" | "cat" | "tee");
        match self.taken {
            Taken::All => true,
            Taken::Printed if prints => true,
            // What a wrapper starts was found, and is asked about itself.
            _ if command.wraps && command.opaque.is_none() && only_starts(name) => false,
            Taken::Printed | Taken::Code => !(is_table_reader(command) || takes_data(command)),
        }
    }
}

fn name_of(command: &Command) -> &str {
    base_name(command.words.first().map(Word::sketch).unwrap_or_default())
}

/// True for `sh -c SCRIPT` with a script in the small language.
fn hands_over_plain_script(command: &Command) -> bool {
    match command.words.as_slice() {
        [_, flag, script] => {
            matches!(flag.text(), Some("-c" | "-lc" | "-ec"))
                && script
                    .text()
                    .is_some_and(|script| subset::read(script).is_ok())
        }
        _ => false,
    }
}

/// Programs whose words are names, texts and patterns, and never run.
const DATA: &[&str] = &[
    ":",
    "[",
    "base64",
    "basename",
    "break",
    "cat",
    "cd",
    "chgrp",
    "chmod",
    "chown",
    "cmp",
    "column",
    "comm",
    "continue",
    "cp",
    "curl",
    "cut",
    "date",
    "dd",
    "df",
    "diff",
    "dirname",
    "du",
    "echo",
    "egrep",
    "exit",
    "expr",
    "false",
    "fgrep",
    "file",
    "find",
    "fold",
    "grep",
    "head",
    "hostname",
    "id",
    "jq",
    "kill",
    "ln",
    "ls",
    "md5sum",
    "mkdir",
    "mkfifo",
    "mktemp",
    "mv",
    "nl",
    "od",
    "paste",
    "patch",
    "pgrep",
    "pkill",
    "popd",
    "printf",
    "ps",
    "pushd",
    "pwd",
    "readlink",
    "realpath",
    "return",
    "rm",
    "rmdir",
    "seq",
    "sha1sum",
    "sha256sum",
    "shred",
    "sleep",
    "stat",
    "strings",
    "tail",
    "tee",
    "test",
    "touch",
    "tr",
    "true",
    "truncate",
    "type",
    "uname",
    "uniq",
    "unlink",
    "wait",
    "wc",
    "which",
    "whoami",
    "xxd",
    "yes",
];

/// Sub-commands of the same kind.
const DATA_COMMANDS: &[(&str, &[&str])] = &[
    (
        "git",
        &[
            "add",
            "branch",
            "checkout",
            "cherry-pick",
            "commit",
            "merge",
            "mv",
            "notes",
            "reset",
            "restore",
            "rev-parse",
            "revert",
            "rm",
            "stash",
            "status",
            "switch",
            "tag",
        ],
    ),
    ("gh", &["gist", "issue", "label", "pr", "release"]),
];

/// Programs whose next words that are no flags name what they do themselves, and how many of these there may be.
const SUB_COMMANDS: &[(&str, usize)] = &[
    ("apt", 1),
    ("apt-get", 1),
    ("aws", 2),
    ("az", 2),
    ("brew", 1),
    ("bun", 1),
    ("cargo", 1),
    ("conda", 1),
    ("docker", 2),
    ("gcloud", 2),
    ("gh", 2),
    ("git", 1),
    ("gsutil", 1),
    ("helm", 1),
    ("hg", 1),
    ("kubectl", 1),
    ("npm", 1),
    ("nerdctl", 2),
    ("pip", 1),
    ("pip3", 1),
    ("pnpm", 1),
    ("podman", 2),
    ("poetry", 1),
    ("rclone", 1),
    ("svn", 1),
    ("terraform", 1),
    ("uv", 2),
    ("yarn", 1),
];

/// True for commands that take their words for data.
fn takes_data(command: &Command) -> bool {
    if command.opaque.is_some() {
        return false;
    }
    let name = name_of(command);
    let rest: Vec<&str> = command.words.iter().skip(1).map(Word::sketch).collect();
    match name {
        // A subscript in the name of a variable is evaluated.
        "printf" => !rest.first().is_some_and(|word| word.starts_with("-v")),
        "test" | "[" => !rest.contains(&"-v") && !rest.contains(&"-R"),
        _ if DATA.contains(&name) || hands_over_plain_code(command) => true,
        _ => DATA_COMMANDS.iter().any(|(program, commands)| {
            *program == name && rest.first().is_some_and(|word| commands.contains(word))
        }),
    }
}

/// The place behind the program and the words that only say what it does: `docker rm` runs no `rm`.
fn operands(words: &[&str]) -> usize {
    let name = base_name(words.first().copied().unwrap_or_default());
    let most = SUB_COMMANDS
        .iter()
        .find(|(program, _)| *program == name)
        .map_or(0, |(_, most)| *most);
    let said = words
        .iter()
        .skip(1)
        .take(most)
        .take_while(|word| {
            word.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
                && !word.starts_with('-')
        })
        .count();
    1 + said
}
