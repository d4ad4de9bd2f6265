//! What throws away work that is in no commit, or rewrites commits others may have.

use std::path::{Path, PathBuf};

use super::{Act, Ground, Tripped};
use crate::shell::Directories;
use crate::shell::word::Word;

pub(super) fn of_command(act: &Act<'_>, ground: &Ground<'_>) -> Option<Tripped> {
    if act.name != "git" {
        return None;
    }
    let sub = act.arguments.first()?.sketch();
    if let Some(why) = always(sub, act) {
        return Some(Tripped::Ask(why.to_owned()));
    }
    let loses = loses_changes(sub, act, ground)?;
    match is_dirty(act, ground) {
        Some(false) => None,
        Some(true) => Some(Tripped::Ask(format!(
            "{loses}, and the working tree has uncommitted changes"
        ))),
        None => Some(Tripped::Ask(format!(
            "{loses}, and the working tree may have uncommitted changes"
        ))),
    }
}

/// However clean the tree is, these lose something that is in no commit, or in none that is left.
fn always(sub: &str, act: &Act<'_>) -> Option<&'static str> {
    let forced = act.short('f') || act.long("force");
    let pushes = |test: fn(&str) -> bool| act.texts().skip(1).any(test);
    match sub {
        "clean" if forced && (act.short('x') || act.short('X')) => {
            Some("`git clean -x` deletes ignored files, which git cannot restore")
        }
        "stash" if act.has("drop") || act.has("clear") => {
            Some("it deletes stashed changes, which are on no branch")
        }
        "push"
            if forced
                || act.long("force-with-lease")
                || act.long("mirror")
                || pushes(|word| word.starts_with('+')) =>
        {
            Some("`git push --force` rewrites history that others may have")
        }
        "push"
            if act.long("delete")
                || act.long("prune")
                || act.short('d')
                || pushes(|word| word.starts_with(':') && word.len() > 1) =>
        {
            Some("it deletes a branch on the server")
        }
        "reflog" if act.has("expire") || act.has("delete") => {
            Some("it deletes reflog entries, the record of old commits")
        }
        "gc" if act.texts().any(|word| {
            word.starts_with("--prune=") && !word.contains("ago") && !word.contains("week")
        }) =>
        {
            Some("it drops old commits")
        }
        "prune" if !(act.short('n') || act.long("dry-run")) => Some("it drops old commits"),
        "filter-branch" | "filter-repo" => Some("it rewrites history"),
        "update-ref" if act.short('d') || act.long("delete") || act.long("stdin") => {
            Some("it drops a branch")
        }
        "rm" if act.short('r')
            && act
                .operands()
                .skip(1)
                .any(|word| matches!(word.sketch(), "." | "./" | "*" | ":/" | ":/*")) =>
        {
            Some("it deletes every tracked file")
        }
        _ => None,
    }
}

fn loses_changes(sub: &str, act: &Act<'_>, ground: &Ground<'_>) -> Option<&'static str> {
    let forced = act.short('f') || act.long("force");
    let overwrites = "it overwrites files with committed versions";
    let paths: Vec<&str> = act.operands().skip(1).map(Word::sketch).collect();
    let creates = act.short('b') || act.short('B') || act.long("track");
    Some(match sub {
        "reset" if act.long("hard") || act.long("merge") || act.long("keep") => {
            "`git reset --hard` discards changes"
        }
        "clean" if forced || act.short('i') || act.long("interactive") => {
            "`git clean` deletes untracked files"
        }
        // A word with a path's signs, one that names something here, or a second one, is a path: `git checkout HEAD a`.
        "checkout"
            if forced
                || act.has("--")
                || act.long("ours")
                || act.long("theirs")
                || paths.iter().any(|path| {
                    path.starts_with('.')
                        || path.starts_with(':')
                        || path.contains(['*', '?', '['])
                        || !creates && is_there(path, act, ground)
                })
                || (paths.len() > 1 && !creates) =>
        {
            overwrites
        }
        "checkout" | "switch" if act.has("-B") || act.has("-C") || act.long("force-create") => {
            "it moves a branch away from its commits"
        }
        // Only what is staged: the files stay.
        "restore" if act.long("staged") && !act.long("worktree") && !act.short('W') => return None,
        "restore" if act.short('S') && !act.short('W') && !act.long("worktree") => return None,
        "restore" => overwrites,
        "checkout-index" if forced => overwrites,
        "read-tree" if act.long("reset") || act.short('u') => overwrites,
        "switch" if forced || act.long("discard-changes") => "it discards changes while switching",
        "rm" if forced => "`git rm -f` deletes files with their changes",
        "rebase" => "it rewrites history",
        "pull" if act.long("rebase") || act.short('r') || forced => "it rewrites history",
        "merge" | "am" | "cherry-pick" | "revert" if act.long("abort") => {
            "it restores older versions of files"
        }
        "commit" if act.long("amend") => "it rewrites the last commit",
        "update-ref" => "it moves or drops a branch",
        "branch"
            if act.short('D') || act.short('M') || (act.short('d') && act.short('f')) || forced =>
        {
            "it deletes or moves a branch that may not be merged"
        }
        "tag" if act.short('d') || forced || act.long("delete") => "it deletes or moves a tag",
        "submodule" if forced && (act.has("deinit") || act.has("update")) => {
            "it discards changes in submodules"
        }
        "worktree" if act.has("remove") && forced => "it deletes a worktree",
        _ => return None,
    })
}

/// Whether the tree that the command works on holds changes. That of the project is known; another
/// one's, in a directory with its own repository or by an option, is not.
fn is_dirty(act: &Act<'_>, ground: &Ground<'_>) -> Option<bool> {
    let names_another = act.command.words.iter().any(|word| {
        let text = word.sketch();
        text.starts_with("--git-dir") || text.starts_with("--work-tree")
    });
    let from = directories(act)?;
    let is_projects = |directory: &Path| {
        let root = &ground.bases.project;
        directory.starts_with(root)
            && directory
                .ancestors()
                .take_while(|ancestor| ancestor != root)
                .all(|ancestor| !has_own_repository(ancestor, ground))
    };
    if names_another || !from.iter().all(|directory| is_projects(directory)) {
        return None;
    }
    ground.facts.tree_is_dirty()
}

/// The directories in which git works, also behind `-C`.
fn directories(act: &Act<'_>) -> Option<Vec<PathBuf>> {
    let mut from = match &act.command.directories {
        Directories::Known(directories) => directories.clone(),
        Directories::Unknown => return None,
    };
    for pair in act.command.words.windows(2) {
        if let [flag, target] = pair
            && flag.text() == Some("-C")
        {
            let target = target.text()?;
            from.iter_mut().for_each(|directory| {
                *directory = crate::shell::normalise(&directory.join(target))
            });
        }
    }
    Some(from)
}

/// True if there is something of this name where git works, as far as that is known.
fn is_there(name: &str, act: &Act<'_>, ground: &Ground<'_>) -> bool {
    let places = directories(act).unwrap_or_default();
    let mut paths = places.iter().map(|directory| directory.join(name));
    paths.any(|path| ground.facts.exists(&path) == Some(true))
}

fn has_own_repository(directory: &Path, ground: &Ground<'_>) -> bool {
    let marker = directory.join(".git");
    ground.facts.is_directory(&marker) == Some(true) || ground.facts.content_hash(&marker).is_some()
}
