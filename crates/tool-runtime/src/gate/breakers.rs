//! Circuit breakers: what no mode and no rule lets through.
//!
//! They look at everything detection found, whatever syntax it stood in, and would rather trip once too
//! often on something nobody needs.

use std::path::{Path, PathBuf};

use super::facts::Facts;
use super::rule::Bases;
use super::words::without_global_options;
use crate::shell::word::{UNKNOWN, Word};
use crate::shell::{Analysis, Command, Directories, FORK_BOMB, RedirectKind, normalise};

/// A breaker that tripped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tripped {
    /// Not in any mode.
    Deny(String),
    /// A person has to look, in every mode.
    Ask(String),
}

/// All breakers that trip on a script.
pub(super) fn tripped(analysis: &Analysis, bases: &Bases, facts: &dyn Facts) -> Vec<Tripped> {
    let mut found = Vec::new();
    for command in &analysis.commands {
        if command.opaque == Some(FORK_BOMB) {
            found.push(Tripped::Deny(
                "the script is a fork bomb: a function that starts itself more than once"
                    .to_owned(),
            ));
        }
        for redirect in &command.redirects {
            if redirect.kind == RedirectKind::Write && is_block_device(redirect.target.sketch()) {
                found.push(Tripped::Deny(format!(
                    "a redirect writes to the block device `{}`",
                    redirect.target.sketch()
                )));
            }
        }
        let words = without_global_options(&command.words);
        if let Some(name) = words.first().map(Word::sketch) {
            let name = name.rsplit('/').next().unwrap_or(name);
            found.extend(of_command(name, &words, command, bases, facts));
        }
    }
    // A bomb may be written so that the parser does not see a function.
    let squeezed: String = analysis
        .script
        .chars()
        .filter(|character| !character.is_whitespace())
        .collect();
    if squeezed.contains(":(){:|:&};:") {
        found.push(Tripped::Deny("the script is a fork bomb".to_owned()));
    }
    found.dedup();
    found
}

fn of_command(
    name: &str,
    words: &[Word],
    command: &Command,
    bases: &Bases,
    facts: &dyn Facts,
) -> Option<Tripped> {
    let arguments: Vec<&str> = words.iter().skip(1).map(Word::sketch).collect();
    let has_short = |letter: char| {
        arguments
            .iter()
            .any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(letter))
    };
    let has_long = |long: &str| arguments.contains(&long);
    match name {
        "rm" | "rmdir" | "unlink" | "shred" | "srm" | "trash" => {
            if let Some(device) = arguments.iter().find(|target| is_block_device(target)) {
                return Some(Tripped::Deny(format!(
                    "`{name}` writes to the block device `{device}`"
                )));
            }
            let recursive = has_short('r') || has_short('R') || has_long("--recursive");
            if !recursive {
                return None;
            }
            whole_tree(words, command, bases, facts, "a recursive delete")
        }
        "find" => {
            let deletes = has_long("-delete")
                || arguments
                    .windows(2)
                    .any(|pair| matches!(pair, ["-exec" | "-execdir", program] if program.ends_with("rm")));
            let limited = arguments.iter().any(|word| {
                matches!(
                    *word,
                    "-name"
                        | "-iname"
                        | "-empty"
                        | "-size"
                        | "-mmin"
                        | "-ipath"
                        | "-wholename"
                        | "-newermt"
                        | "-path"
                        | "-regex"
                        | "-mtime"
                        | "-newer"
                )
            });
            if !deletes || limited {
                return None;
            }
            whole_tree(words, command, bases, facts, "a recursive delete")
        }
        "chmod" | "chown" | "chgrp" if has_short('R') || has_long("--recursive") => {
            match whole_tree(
                words,
                command,
                bases,
                facts,
                "a recursive change of ownership or mode",
            ) {
                // Of the project itself it is a question, of what is above it never wanted.
                Some(Tripped::Deny(why)) => Some(Tripped::Ask(why)),
                other => other,
            }
        }
        "dd" => arguments
            .iter()
            .filter_map(|word| word.strip_prefix("of="))
            .find(|target| is_block_device(target))
            .map(|target| Tripped::Deny(format!("`dd` writes to the block device `{target}`"))),
        "tee" | "cp" | "mv" | "install" | "wipefs" | "badblocks" | "blkdiscard" | "parted"
        | "fdisk" | "sfdisk" | "sgdisk" => arguments
            .iter()
            .find(|target| is_block_device(target))
            .map(|target| Tripped::Deny(format!("`{name}` writes to the block device `{target}`"))),
        name if name.starts_with("mkfs") || name == "mkswap" => Some(Tripped::Deny(format!(
            "`{name}` makes a new file system on a device"
        ))),
        "git" => git(&arguments, facts),
        _ => None,
    }
}

/// Whether some operand is the root, the home directory, the project or a directory above it.
fn whole_tree(
    words: &[Word],
    command: &Command,
    bases: &Bases,
    facts: &dyn Facts,
    what: &str,
) -> Option<Tripped> {
    let mut unknown = None;
    for word in words.iter().skip(1) {
        let text = word.sketch();
        if text.starts_with('-') {
            continue;
        }
        if text.contains(UNKNOWN) {
            unknown = Some(text.replace(UNKNOWN, "…"));
            continue;
        }
        for path in candidates(text, &command.directories) {
            let resolved = facts.resolve(&path).unwrap_or_else(|| path.clone());
            for path in [&path, &resolved] {
                if let Some(tree) = whole(path, bases) {
                    return Some(Tripped::Deny(format!("{what} of {tree}: `{text}`")));
                }
            }
        }
    }
    unknown.map(|text| {
        Tripped::Ask(format!(
            "{what} of a path that is only known when it runs: `{text}`"
        ))
    })
}

fn candidates(text: &str, directories: &Directories) -> Vec<PathBuf> {
    // `x/*` and `x/.*` mean everything in x.
    let mut base = text;
    while let Some(shorter) = base
        .strip_suffix("/*")
        .or_else(|| base.strip_suffix("/.*"))
        .or_else(|| base.strip_suffix("/{*,.*}"))
    {
        base = if shorter.is_empty() { "/" } else { shorter };
    }
    if matches!(base, "*" | ".*" | "./*") {
        base = ".";
    }
    let path = Path::new(base);
    if path.is_absolute() {
        return vec![normalise(path)];
    }
    match directories {
        Directories::Known(known) => known
            .iter()
            .map(|directory| normalise(&directory.join(path)))
            .collect(),
        Directories::Unknown => Vec::new(),
    }
}

fn whole(path: &Path, bases: &Bases) -> Option<&'static str> {
    const SYSTEM: &[&str] = &[
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/home",
        "/lib",
        "/lib64",
        "/opt",
        "/proc",
        "/root",
        "/run",
        "/sbin",
        "/srv",
        "/sys",
        "/usr",
        "/var",
        "/Users",
        "/Applications",
        "/System",
        "/Library",
    ];
    if path == Path::new("/") {
        Some("the root of the file system")
    } else if path == bases.home {
        Some("the home directory")
    } else if path == bases.project {
        Some("the project")
    } else if bases.project.starts_with(path) {
        Some("a directory that holds the project")
    } else if bases.home.starts_with(path) {
        Some("a directory that holds the home directory")
    } else if SYSTEM.iter().any(|system| path == Path::new(system)) {
        Some("a system directory")
    } else {
        None
    }
}

fn is_block_device(target: &str) -> bool {
    const PREFIXES: &[&str] = &[
        "sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "dm-", "md", "loop", "mapper/",
        "nbd", "sr", "ram",
    ];
    target.strip_prefix("/dev/").is_some_and(|device| {
        device != "shm"
            && !device.starts_with("stdin")
            && PREFIXES.iter().any(|prefix| device.starts_with(prefix))
    })
}

/// What throws away work that is in no commit, or rewrites commits others may have.
fn git(arguments: &[&str], facts: &dyn Facts) -> Option<Tripped> {
    let has = |flag: &str| arguments.contains(&flag);
    let short = |letter: char| {
        arguments
            .iter()
            .any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(letter))
    };
    let loses_changes = match arguments.first().copied()? {
        "reset" if has("--hard") || has("--merge") => "`git reset --hard` discards changes",
        "clean" if short('f') || has("--force") => "`git clean` deletes untracked files",
        "checkout" | "restore" if short('f') || has("--force") || has("--") || has(".") => {
            "it overwrites files with committed versions"
        }
        "switch" if short('f') || has("--discard-changes") || has("--force") => {
            "it discards changes while switching"
        }
        "stash" if has("drop") || has("clear") => "it deletes stashed changes",
        "rebase" | "filter-branch" | "filter-repo" => "it rewrites history",
        "commit" if has("--amend") => "it rewrites the last commit",
        "reflog" if has("expire") || has("delete") => "it deletes the record of old commits",
        "update-ref" | "gc" if has("-d") || has("--prune=now") => "it drops old commits",
        "push"
            if short('f')
                || arguments
                    .iter()
                    .any(|word| word.starts_with("--force") || *word == "--mirror") =>
        {
            return Some(Tripped::Ask(
                "`git push --force` rewrites history others may have".to_owned(),
            ));
        }
        "push" if has("--delete") || short('d') => {
            return Some(Tripped::Ask("it deletes a branch on the server".to_owned()));
        }
        "branch" if has("-D") => "it deletes a branch that may not be merged",
        "worktree" if has("remove") && (short('f') || has("--force")) => "it deletes a work tree",
        _ => return None,
    };
    match facts.tree_is_dirty() {
        Some(false) => None,
        Some(true) => Some(Tripped::Ask(format!(
            "{loses_changes}, and the tree holds changes that are in no commit"
        ))),
        None => Some(Tripped::Ask(format!(
            "{loses_changes}, and it is not known whether the tree holds changes that are in no commit"
        ))),
    }
}
