//! Programs that a git repository names in its configuration. Most settings can be overruled from
//! outside; a driver, a filter or an external diff cannot be taken back once it is named.
//!
//! The files are not parsed. A key of git's configuration stands at the beginning of a line or behind a
//! `]`, in plain letters, and nothing can be put inside it; so every word at such a place is taken for a
//! key. That finds more than git would, never less.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::facts::open_regular;

/// Keys, without their section, that name a program git runs when it only reads, or that lead to more
/// configuration or to another tree of files.
const KEYS: &[&str] = &[
    "clean",
    "command",
    "defaultkeycommand",
    "driver",
    "external",
    "process",
    "program",
    "smudge",
    "submodule",
    "submodulesummary",
    "textconv",
];

/// Keys of what git runs only when it commits or is asked to choose parts of a change.
const OF_COMMITS: &[&str] = &["cmd", "difffilter", "hookspath"];

/// Larger files are not looked at, and count as naming something.
const LARGEST: u64 = 1 << 20;
const LARGEST_INDEX: u64 = 256 << 20;
/// Further repositories below one that are looked at.
const MOST_REPOSITORIES: usize = 200;
const DEEPEST_INCLUDE: usize = 8;

/// The hook among `names` that git would start in `directory`, or the setting by which it may have others.
pub(super) fn hook_named(directory: &Path, names: &[&str]) -> Option<String> {
    look_for_hooks(directory, names).err()
}

fn look_for_hooks(directory: &Path, names: &[&str]) -> Clear {
    use std::os::unix::fs::PermissionsExt as _;
    let mut trees = trees_around(directory)?.into_iter();
    let root = trees.clone().next().map(|(tree, _)| tree);
    // What is no repository is passed over by git, and may still look like one here.
    trees.try_for_each(|(_, git)| {
        let root = root.as_deref().unwrap_or(directory);
        let common = first_line(&git.join("commondir"), "")?;
        let common = common.map_or_else(|| git.clone(), |common| git.join(common));
        for file in [common.join("config"), git.join("config.worktree")] {
            if let Some(key) = named_in(&file, OF_COMMITS, &git, None, DEEPEST_INCLUDE) {
                return Err(format!("`{key}` in `{}`", shown(&file, root)));
            }
        }
        let hooks = common.join("hooks");
        let runs = |name: &&&str| {
            let data = std::fs::metadata(hooks.join(name));
            data.is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
        };
        match names.iter().find(runs) {
            Some(hook) => Err(format!("the hook `{hook}`")),
            None => Ok(()),
        }
    })
}

/// Work trees around `directory`, the nearest first, each with its git directory.
fn trees_around(directory: &Path) -> Result<Vec<(PathBuf, PathBuf)>, String> {
    // Git does not begin in a directory that is not there; what may be made before it begins is looked
    // for where it would be.
    let mut known = directory.ancestors().map(std::fs::canonicalize);
    let real = known.find(|real| !matches!(real, Err(error) if is_absent(error)));
    let Some(Ok(directory)) = real else {
        return Err("a directory that cannot be looked at".to_owned());
    };
    let mut trees = Vec::new();
    for above in directory.ancestors() {
        if let Some(git) = git_directory(above)? {
            trees.push((above.to_owned(), git));
        }
    }
    Ok(trees)
}

/// The first such setting of a repository that git would find from `directory`, or would enter from
/// there. Where git looks at a file in a way that is not told here, that is a finding too.
pub(super) fn program_named(directory: &Path) -> Option<String> {
    look(directory).err()
}

type Clear = Result<(), String>;

fn look(directory: &Path) -> Clear {
    // What is no repository is passed over by git, and may still look like one here.
    let mut trees = trees_around(directory)?;
    let Some((root, _)) = trees.first().cloned() else {
        return Ok(());
    };
    let first = trees.len();
    let mut at = 0;
    while let Some((tree, git)) = trees.get(at).cloned() {
        let mut repositories = vec![git.clone()];
        if let Some(common) = first_line(&git.join("commondir"), "")? {
            repositories.push(git.join(common));
        }
        for (number, repository) in repositories.clone().iter().enumerate() {
            // The tree of a submodule lies elsewhere by design.
            let bound = (at < first && number == 0).then_some(tree.as_path());
            look_at_settings(repository, bound, &root)?;
            modules(&repository.join("modules"), 0, &mut repositories)?;
        }
        for repository in &repositories {
            look_at_settings(repository, None, &root)?;
        }
        let mut below = gitlinks(&git)?;
        // Submodules that keep their repository in place.
        if let Ok(text) = read(&tree.join(".gitmodules")) {
            for line in text.lines() {
                if let Some((key, path)) = line.split_once('=')
                    && key.trim().eq_ignore_ascii_case("path")
                {
                    below.push(PathBuf::from(path.trim().trim_matches('"')));
                }
            }
        }
        for path in below {
            let tree = tree.join(path);
            let Some(git) = git_directory(&tree)? else {
                continue;
            };
            if trees.len() + repositories.len() > MOST_REPOSITORIES {
                return Err(TOO_MANY.to_owned());
            }
            if !trees.iter().any(|(_, known)| *known == git) {
                trees.push((tree, git));
            }
        }
        at += 1;
    }
    Ok(())
}

const TOO_MANY: &str = "too many repositories below this one to look at";

fn look_at_settings(repository: &Path, bound: Option<&Path>, root: &Path) -> Clear {
    for name in ["config", "config.worktree"] {
        let file = repository.join(name);
        if let Some(key) = named_in(&file, KEYS, repository, bound, DEEPEST_INCLUDE) {
            return Err(format!("`{key}` in `{}`", shown(&file, root)));
        }
    }
    Ok(())
}

fn shown(file: &Path, root: &Path) -> String {
    let shown = file.strip_prefix(root).unwrap_or(file);
    shown.display().to_string()
}

/// The git directory of a work tree, also where `.git` is a file that says where it is; and the directory
/// itself where it looks like one.
fn git_directory(tree: &Path) -> Result<Option<PathBuf>, String> {
    let git = tree.join(".git");
    if git.is_dir() {
        return Ok(Some(git));
    }
    if let Some(place) = first_line(&git, "gitdir: ")? {
        return Ok(Some(tree.join(place)));
    }
    let bare = is_there(&tree.join("HEAD"))
        && (is_there(&tree.join("commondir"))
            || tree.join("objects").is_dir() && tree.join("refs").is_dir());
    Ok(bare.then(|| tree.to_owned()))
}

/// A dangling link counts: git reads where such a `HEAD` points.
fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// Adds the repositories of submodules.
fn modules(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Clear {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        if found.len() >= MOST_REPOSITORIES || depth > DEEPEST_INCLUDE {
            return Err(TOO_MANY.to_owned());
        }
        let path = entry.path();
        if is_there(&path.join("HEAD")) {
            found.push(path.clone());
            modules(&path.join("modules"), depth + 1, found)?;
        } else if path.is_dir() {
            modules(&path, depth + 1, found)?;
        }
    }
    Ok(())
}

/// The mode of an entry that is a repository of its own.
const GITLINK: [u8; 4] = [0, 0, 0o340, 0];
/// Bytes of an entry in front of its flags.
const ENTRY_HEAD: usize = 60;

/// Paths at which the index of a repository has others, whether `.gitmodules` names them or not.
fn gitlinks(git: &Path) -> Result<Vec<PathBuf>, String> {
    let unread = || "an index that cannot be looked at".to_owned();
    let bytes = match read_bytes(&git.join("index"), LARGEST_INDEX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(_) => return Err(unread()),
    };
    // A split index keeps most entries in a file beside it.
    for entry in std::fs::read_dir(git).into_iter().flatten().flatten() {
        let is_shared = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(b"sharedindex.");
        if is_shared {
            let shared = read_bytes(&entry.path(), LARGEST_INDEX).map_err(|_| unread())?;
            if may_have_gitlinks(&shared) {
                return Err("a split index with repositories in it".to_owned());
            }
        }
    }
    if !may_have_gitlinks(&bytes) {
        return Ok(Vec::new());
    }
    read_gitlinks(&bytes).ok_or_else(unread)
}

fn may_have_gitlinks(index: &[u8]) -> bool {
    memchr::memmem::find(index, &GITLINK).is_some()
}

/// Reads versions 2 and 3; entries of version 4 share the beginnings of their names.
fn read_gitlinks(index: &[u8]) -> Option<Vec<PathBuf>> {
    use std::os::unix::ffi::OsStrExt as _;
    let number = |at: usize| Some(u32::from_be_bytes(index.get(at..at + 4)?.try_into().ok()?));
    let version = number(4)?;
    if !index.starts_with(b"DIRC") || !(2..=3).contains(&version) {
        return None;
    }
    let mut found = Vec::new();
    let mut at = 12;
    for _ in 0..number(8)? {
        let flags = *index.get(at + ENTRY_HEAD)?;
        let is_extended = version == 3 && flags & 0x40 != 0;
        let name = at + ENTRY_HEAD + if is_extended { 4 } else { 2 };
        let length = memchr::memchr(0, index.get(name..)?)?;
        if index.get(at + 24..at + 28)? == GITLINK {
            let path = std::ffi::OsStr::from_bytes(index.get(name..name + length)?);
            found.push(PathBuf::from(path));
        }
        // Entries are filled up with one to eight zeros.
        at += (name - at + length + 8) & !7;
    }
    Some(found)
}

/// The first of `keys` in a file, which may send git to others. `root` is the work tree where the file
/// may move it.
fn named_in(
    file: &Path,
    keys: &[&str],
    git: &Path,
    root: Option<&Path>,
    includes: usize,
) -> Option<String> {
    let text = match read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(_) => return Some("what cannot be looked at".to_owned()),
    };
    let folded = text.to_ascii_lowercase();
    let includes_more = folded.contains("include");
    for line in text.split(['\n', '\r']) {
        // Behind each `]`, because a section's name may hold one.
        let starts = [0]
            .into_iter()
            .chain(line.match_indices(']').map(|(at, _)| at + 1));
        for start in starts {
            let rest = line.get(start..).unwrap_or_default();
            let rest = rest
                .trim_start_matches(|letter: char| letter.is_whitespace() || letter == '\u{feff}');
            let end = rest
                .find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-')
                .unwrap_or(rest.len());
            let (key, value) = rest.split_at(end);
            let key = key.to_ascii_lowercase();
            if keys.contains(&key.as_str()) {
                return Some(key);
            }
            let value = value.trim_start().strip_prefix('=').unwrap_or_default();
            let value = value.trim().trim_matches('"');
            if key == "worktree" && root.is_some_and(|root| leaves(root, git, value)) {
                return Some(key);
            }
            if key == "path" && includes_more && !value.is_empty() {
                // The home directory of a command is empty.
                if value.starts_with("~/") {
                    continue;
                }
                let beside = file.parent().unwrap_or(Path::new("/")).join(value);
                if includes == 0 || value.contains(['\\', '%', '#', ';', '"', NO_TEXT]) {
                    return Some("include".to_owned());
                }
                if let Some(found) = named_in(&beside, keys, git, root, includes - 1) {
                    return Some(found);
                }
            }
        }
    }
    None
}

/// Whether the work tree would lie outside the one whose repository this is.
fn leaves(root: &Path, git: &Path, value: &str) -> bool {
    let resolved = (
        std::fs::canonicalize(git.join(value)),
        std::fs::canonicalize(root),
    );
    !matches!(resolved, (Ok(place), Ok(root)) if place.starts_with(&root))
}

fn is_absent(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

/// What stands for bytes that are no text.
const NO_TEXT: char = '\u{fffd}';

/// The path that a file holds behind `prefix`, if it is there. What git itself never writes, such as a
/// path that ends in a blank or goes on in the next line, is an error: git takes it as it is.
fn first_line(file: &Path, prefix: &str) -> Result<Option<String>, String> {
    let text = match read(file) {
        Ok(text) => text,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(_) => return Err(format!("`{}`, which cannot be looked at", file.display())),
    };
    let path = text.strip_prefix(prefix).map(|path| {
        let path = path.strip_suffix('\n').unwrap_or(path);
        path.strip_suffix('\r').unwrap_or(path)
    });
    let is_plain = |path: &&str| {
        !path.is_empty()
            && path.trim() == *path
            && !path.contains(|letter: char| letter.is_control() || letter == NO_TEXT)
    };
    match path.filter(is_plain) {
        Some(path) => Ok(Some(path.to_owned())),
        None => Err(format!(
            "`{}`, which is written in an unusual way",
            file.display()
        )),
    }
}

/// The text of a regular file that is not too large.
fn read(file: &Path) -> std::io::Result<String> {
    let bytes = read_bytes(file, LARGEST)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn read_bytes(file: &Path, largest: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(file, largest)?
        .take(largest)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
