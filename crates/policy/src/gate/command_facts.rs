//! What the commands of a script are, apart from any rule: their class, what they do to a git
//! repository, what no sandbox can give them, and how all of it is told.

use agent_protocol::payload::permission::{ActionClass, CommandParse, ParsedCommand};

use super::breakers::Tripped;
use super::words::without_global_options;
use crate::shell::prove::touched_paths;
use crate::shell::word::{Value, Word};
use crate::shell::{Analysis, Command, Place, RedirectKind};

pub(super) fn shown(words: &[Word]) -> String {
    let words: Vec<&str> = words.iter().map(|word| word.source.as_str()).collect();
    let mut text = words.join(" ");
    if text.len() > 200 {
        text = text.chars().take(197).collect::<String>() + "…";
    }
    text
}

/// Every command that either reading of the script found; one that both found, once.
pub(super) fn found_commands(analysis: &Analysis) -> impl Iterator<Item = &Command> {
    let small = analysis.small.as_deref().unwrap_or_default();
    let also_found = |command: &&Command| {
        !small.iter().any(|known| {
            known.words == command.words
                && known.directories == command.directories
                && known.redirects == command.redirects
                && known.appended_arguments == command.appended_arguments
        })
    };
    small
        .iter()
        .chain(analysis.commands.iter().filter(also_found))
}

/// Programs whose words are paths that they change.
const CHANGES_PATHS: &[&str] = &[
    "rm",
    "rmdir",
    "unlink",
    "shred",
    "mv",
    "cp",
    "ln",
    "install",
    "rsync",
    "tee",
    "touch",
    "mkdir",
    "mkfifo",
    "mknod",
    "chmod",
    "chown",
    "chgrp",
    "chattr",
    "setfacl",
    "truncate",
    "dd",
    "sed",
    "gsed",
    "patch",
    "tar",
    "unzip",
    "zip",
    "gzip",
    "gunzip",
    "xz",
    "zstd",
    "bzip2",
    "split",
    "csplit",
    "sponge",
    "ed",
    "ex",
    "vi",
    "vim",
    "nvim",
    "nano",
    "emacs",
    "curl",
    "wget",
    "scp",
    "git",
    "sqlite3",
    "openssl",
    "ssh-keygen",
    "find",
    "fd",
];

pub(super) fn takes_paths(command: &Command) -> bool {
    CHANGES_PATHS.contains(&name_of(command))
}

pub(super) fn name_of(command: &Command) -> &str {
    let name = command.words.first().map(Word::sketch).unwrap_or_default();
    name.rsplit('/').next().unwrap_or(name)
}

/// `git add .github/x` records a change that was already allowed; it makes none. A reader that is told to
/// write does.
pub(super) fn is_harmless_git(command: &Command) -> bool {
    let words = without_global_options(&command.words);
    let writes = words
        .iter()
        .any(|word| word.sketch().starts_with("--o") || word.sketch() == "-o");
    name_of(command) == "git"
        && words.get(1).is_some_and(|word| match word.sketch() {
            "add" | "commit" | "push" | "stage" => true,
            "diff" | "log" | "show" => !writes,
            _ => false,
        })
}

const GIT_READERS: &[&str] = &[
    "status",
    "log",
    "diff",
    "show",
    "blame",
    "ls-files",
    "ls-tree",
    "rev-parse",
    "rev-list",
    "describe",
    "shortlog",
    "cat-file",
    "grep",
    "for-each-ref",
    "show-ref",
    "ls-remote",
    "push",
    "version",
    "help",
    "archive",
    "bundle",
    "format-patch",
    "merge-base",
    "name-rev",
    "count-objects",
    "check-ignore",
    "whatchanged",
    "reflog",
    "var",
    "diff-tree",
    "range-diff",
    "cherry",
];

pub(super) fn writes_git(command: &Command) -> bool {
    if name_of(command) != "git" || touched_paths(command).1 {
        return false;
    }
    let words = without_global_options(&command.words);
    words
        .get(1)
        .is_none_or(|word| !GIT_READERS.contains(&word.sketch()))
}

/// Sub-commands of git that change its configuration.
pub(super) fn writes_git_config(command: &Command) -> Option<String> {
    if name_of(command) != "git" || touched_paths(command).1 {
        return None;
    }
    let words = without_global_options(&command.words);
    let sub = words.get(1)?.sketch();
    matches!(
        sub,
        "config"
            | "remote"
            | "init"
            | "submodule"
            | "hook"
            | "worktree"
            | "lfs"
            | "clone"
            | "maintenance"
    )
    .then(|| format!("git {sub}"))
}

/// Privileges, other users, services: nothing a sandbox without them can give.
pub(super) fn needs_more_than_the_sandbox(analysis: &Analysis) -> Option<String> {
    const MORE: &[&str] = &[
        "sudo",
        "doas",
        "su",
        "pkexec",
        "runuser",
        "mount",
        "umount",
        "systemctl",
        "service",
        "docker",
        "podman",
        "crontab",
        "at",
        "modprobe",
        "insmod",
        "iptables",
        "nft",
        "shutdown",
        "reboot",
        "chroot",
        "nsenter",
        "unshare",
        "kill",
        "pkill",
        "killall",
    ];
    analysis
        .commands
        .iter()
        .map(name_of)
        .find(|name| MORE.contains(name))
        .map(|name| format!("`{name}` needs more than the sandbox gives"))
}

pub(super) fn class(analysis: &Analysis, trips: &[Tripped], read_only: bool) -> ActionClass {
    if read_only {
        let searches = analysis.plain_commands().any(|command| {
            matches!(
                name_of(command),
                "grep" | "egrep" | "fgrep" | "rg" | "ag" | "find" | "fd"
            )
        });
        return if searches {
            ActionClass::Search
        } else {
            ActionClass::Observe
        };
    }
    if !trips.is_empty() || analysis.commands.iter().any(is_dangerous) {
        ActionClass::Dangerous
    } else {
        ActionClass::Execute
    }
}

pub(super) fn is_dangerous(command: &Command) -> bool {
    let words = without_global_options(&command.words);
    let second = words.get(1).map(Word::sketch).unwrap_or_default();
    let has_flag = |letters: &str| {
        words.iter().skip(1).map(Word::sketch).any(|word| {
            word.starts_with('-')
                && !word.starts_with("--")
                && word.contains(|c| letters.contains(c))
        })
    };
    match name_of(command) {
        "rm" => has_flag("rRf") || words.iter().any(|word| word.sketch().starts_with("--r")),
        "sudo" | "doas" | "su" | "pkexec" | "dd" | "shred" | "wipefs" | "shutdown" | "reboot"
        | "mkswap" | "fdisk" | "parted" | "mount" | "umount" | "crontab" | "iptables" | "nft"
        | "kill" | "pkill" | "killall" | "chown" | "systemctl" | "eval" => true,
        "chmod" => has_flag("R"),
        "git" => {
            matches!(
                second,
                "reset" | "clean" | "rebase" | "filter-branch" | "filter-repo"
            ) || (second == "push"
                && words
                    .iter()
                    .any(|word| word.sketch().starts_with("--force") || word.sketch() == "-f"))
        }
        "find" => words.iter().any(|word| word.sketch() == "-delete"),
        name => name.starts_with("mkfs"),
    }
}

/// The parser's view for the log, bounded.
pub(super) fn parse_fact(
    analysis: &Analysis,
    read_only: bool,
    why: Option<&String>,
) -> CommandParse {
    const MOST_COMMANDS: usize = 50;
    const MOST_CHARACTERS: usize = 12_000;
    let mut left = MOST_CHARACTERS;
    let mut commands = Vec::new();
    for (index, command) in analysis.commands.iter().enumerate() {
        let has_inner = analysis
            .commands
            .iter()
            .skip(index + 1)
            .take(32)
            .any(|inner| inner.place == Place::Wrapped(index));
        if has_inner || command.words.is_empty() {
            continue;
        }
        let words: Vec<String> = command
            .words
            .iter()
            .take(64)
            .map(|word| {
                word.text()
                    .unwrap_or(&word.source)
                    .chars()
                    .take(400)
                    .collect()
            })
            .collect();
        let size: usize = words.iter().map(String::len).sum();
        if commands.len() == MOST_COMMANDS || size > left {
            break;
        }
        left -= size;
        commands.push(ParsedCommand {
            words,
            wrappers: wrappers_of(analysis, command),
            dynamic: command
                .words
                .iter()
                .any(|word| matches!(word.value, Value::Dynamic { .. })),
        });
    }
    let redirects = analysis
        .redirects()
        .take(MOST_COMMANDS)
        .map(|redirect| {
            let sign = match redirect.kind {
                RedirectKind::Read => "<",
                RedirectKind::Write => ">",
                RedirectKind::Duplicate => ">&",
                RedirectKind::HereDocument => return "<< …".to_owned(),
                RedirectKind::HereString => "<<<",
            };
            let target: String = redirect.target.source.chars().take(200).collect();
            format!("{sign} {target}")
        })
        .collect();
    CommandParse {
        ok: analysis.parse_error.is_none(),
        commands,
        redirects,
        read_only,
        why_not_proven: why.cloned(),
    }
}

pub(super) fn wrappers_of(analysis: &Analysis, command: &Command) -> Vec<String> {
    let mut wrappers = Vec::new();
    let mut place = command.place;
    while let Place::Wrapped(outer) = place
        && wrappers.len() < 8
    {
        let Some(outer) = analysis.commands.get(outer) else {
            break;
        };
        wrappers.insert(0, name_of(outer).to_owned());
        place = outer.place;
    }
    wrappers
}
