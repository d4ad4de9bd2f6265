//! What the gate has to know about the machine, behind a seam, so that decisions are plain functions.

use std::borrow::Borrow;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::hash::Hash;
use std::path::{Component, Path, PathBuf};

use super::glob::expand;
use super::protected::is_secret;
use super::repository::{hook_named, program_named};
use super::toolchain::tool_named;
use crate::shell::normalise;

/// Facts about files. `None` always means "not known" and never makes a decision milder.
pub trait Facts {
    /// The path with every link followed, as the kernel would; what does not exist stays as named.
    fn resolve(&self, path: &Path) -> Option<PathBuf>;

    fn is_directory(&self, path: &Path) -> Option<bool>;

    /// True if there is something of that name, a link that leads nowhere included.
    fn exists(&self, path: &Path) -> Option<bool>;

    /// The files that a pattern of the shell stands for in `directory`, in which quoted signs stand behind a backslash.
    fn expand(&self, directory: &Path, pattern: &str) -> Option<Vec<PathBuf>>;

    /// Whether the project's git tree holds changes that are in no commit.
    fn tree_is_dirty(&self) -> Option<bool>;

    /// What a search through `directory` would come across; `None` also when there is too much of it.
    fn below(&self, directory: &Path) -> Option<Below>;

    /// The setting of a git repository by which git, run in `directory` only to read, would start a
    /// program that no setting of ours can take back.
    fn program_of_repository(&self, directory: &Path) -> Option<String>;

    /// The hook among these names that git, run in `directory`, would start, or the setting by which it may have others.
    fn hook_of_repository(&self, directory: &Path, names: &[&str]) -> Option<String>;

    /// The setting, in a file between `directory` and `root`, by which this program, run in `directory`, would be
    /// another one or start another one than the machine's own.
    fn tool_of_project(&self, program: &str, directory: &Path, root: &Path) -> Option<String>;

    /// Further names of a file (hard links), whose content changes with it; 0 where that is not known.
    fn other_names(&self, path: &Path) -> u64;

    /// `sha256:…` of a regular file.
    fn content_hash(&self, path: &Path) -> Option<String>;
}

/// What lies below a directory, as far as the gate cares.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Below {
    /// Files and directories whose names are those of secrets.
    pub secrets: Vec<PathBuf>,
    /// Where symbolic links lead that leave the directory; a loop leads to the root.
    pub links: Vec<PathBuf>,
    /// A name that is not one plain word: with blanks, quotes or signs in it, or a dash in front.
    pub odd: Option<PathBuf>,
}

/// Facts when nothing may be looked at: paths are taken by their names. For replays and back-tests.
#[derive(Debug, Default, Clone, Copy)]
pub struct NamesOnly;

impl Facts for NamesOnly {
    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        Some(normalise(path))
    }

    fn program_of_repository(&self, _directory: &Path) -> Option<String> {
        None
    }

    fn hook_of_repository(&self, _directory: &Path, _names: &[&str]) -> Option<String> {
        None
    }

    fn tool_of_project(&self, _program: &str, _directory: &Path, _root: &Path) -> Option<String> {
        None
    }

    fn other_names(&self, _path: &Path) -> u64 {
        0
    }

    fn is_directory(&self, _path: &Path) -> Option<bool> {
        None
    }

    fn exists(&self, _path: &Path) -> Option<bool> {
        None
    }

    fn expand(&self, _directory: &Path, _pattern: &str) -> Option<Vec<PathBuf>> {
        None
    }

    fn tree_is_dirty(&self) -> Option<bool> {
        None
    }

    fn below(&self, _directory: &Path) -> Option<Below> {
        None
    }

    fn content_hash(&self, _path: &Path) -> Option<String> {
        None
    }
}

/// Files that a pattern stands for, unless there are too many.
type Expanded = Option<Vec<PathBuf>>;

/// Facts that are looked up once, for one decision that asks for them many times.
pub(super) struct Remembered<'a> {
    facts: &'a dyn Facts,
    resolved: RefCell<HashMap<PathBuf, Option<PathBuf>>>,
    expanded: RefCell<HashMap<(PathBuf, String), Expanded>>,
    below: RefCell<HashMap<PathBuf, Option<Below>>>,
    dirty: OnceCell<Option<bool>>,
}

impl<'a> Remembered<'a> {
    pub(super) fn new(facts: &'a dyn Facts) -> Self {
        Self {
            facts,
            resolved: RefCell::default(),
            expanded: RefCell::default(),
            below: RefCell::default(),
            dirty: OnceCell::new(),
        }
    }
}

/// What was found before under this key, or what is found now.
fn remembered<K, Q, V>(known: &RefCell<HashMap<K, V>>, key: &Q, find: impl FnOnce() -> V) -> V
where
    K: Borrow<Q> + Eq + Hash,
    Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
    V: Clone,
{
    if let Some(value) = known.borrow().get(key) {
        return value.clone();
    }
    let value = find();
    known.borrow_mut().insert(key.to_owned(), value.clone());
    value
}

impl Facts for Remembered<'_> {
    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        remembered(&self.resolved, path, || self.facts.resolve(path))
    }

    fn program_of_repository(&self, directory: &Path) -> Option<String> {
        self.facts.program_of_repository(directory)
    }

    fn hook_of_repository(&self, directory: &Path, names: &[&str]) -> Option<String> {
        self.facts.hook_of_repository(directory, names)
    }

    fn tool_of_project(&self, program: &str, directory: &Path, root: &Path) -> Option<String> {
        self.facts.tool_of_project(program, directory, root)
    }

    fn other_names(&self, path: &Path) -> u64 {
        self.facts.other_names(path)
    }

    fn is_directory(&self, path: &Path) -> Option<bool> {
        self.facts.is_directory(path)
    }

    fn exists(&self, path: &Path) -> Option<bool> {
        self.facts.exists(path)
    }

    fn expand(&self, directory: &Path, pattern: &str) -> Option<Vec<PathBuf>> {
        let key = (directory.to_owned(), pattern.to_owned());
        remembered(&self.expanded, &key, || {
            self.facts.expand(directory, pattern)
        })
    }

    fn tree_is_dirty(&self) -> Option<bool> {
        *self.dirty.get_or_init(|| self.facts.tree_is_dirty())
    }

    fn below(&self, directory: &Path) -> Option<Below> {
        remembered(&self.below, directory, || self.facts.below(directory))
    }

    fn content_hash(&self, path: &Path) -> Option<String> {
        self.facts.content_hash(path)
    }
}

/// Facts from the file system. Whether the tree is dirty takes a process to find out, so the caller
/// brings the answer.
pub struct DiskFacts<D: Fn() -> Option<bool>> {
    pub dirty: D,
}

/// Links in a row before a path is given up, as in the kernel.
const MAX_LINKS: usize = 40;
/// Names looked at below a directory before it is given up.
const MAX_BELOW: usize = 20_000;
/// Larger files are not hashed for a decision.
const MAX_HASHED: u64 = 64 * 1024 * 1024;

impl<D: Fn() -> Option<bool>> Facts for DiskFacts<D> {
    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        let mut links = 0;
        resolve(path, &mut links)
    }

    fn is_directory(&self, path: &Path) -> Option<bool> {
        Some(path.is_dir())
    }

    fn exists(&self, path: &Path) -> Option<bool> {
        Some(std::fs::symlink_metadata(path).is_ok())
    }

    fn expand(&self, directory: &Path, pattern: &str) -> Option<Vec<PathBuf>> {
        expand(directory, pattern)
    }

    fn tree_is_dirty(&self) -> Option<bool> {
        (self.dirty)()
    }

    fn below(&self, directory: &Path) -> Option<Below> {
        let mut below = Below::default();
        let mut waiting = vec![directory.to_owned()];
        let mut seen = 0;
        while let Some(place) = waiting.pop() {
            // What cannot be listed is not searched either.
            let Ok(entries) = std::fs::read_dir(&place) else {
                continue;
            };
            for entry in entries.flatten() {
                seen += 1;
                if seen > MAX_BELOW {
                    return None;
                }
                let path = entry.path();
                if below.odd.is_none() && !is_plain_name(&entry.file_name()) {
                    below.odd = Some(path.clone());
                }
                let kind = entry.file_type().ok()?;
                if kind.is_symlink() {
                    let target = self.resolve(&path).unwrap_or_else(|| PathBuf::from("/"));
                    if !target.starts_with(directory) {
                        below.links.push(target);
                    }
                } else if path.strip_prefix(directory).is_ok_and(is_secret) {
                    below.secrets.push(path);
                } else if kind.is_dir() {
                    waiting.push(path);
                }
            }
        }
        Some(below)
    }

    fn program_of_repository(&self, directory: &Path) -> Option<String> {
        program_named(directory)
    }

    fn hook_of_repository(&self, directory: &Path, names: &[&str]) -> Option<String> {
        hook_named(directory, names)
    }

    fn tool_of_project(&self, program: &str, directory: &Path, root: &Path) -> Option<String> {
        tool_named(program, directory, root)
    }

    fn other_names(&self, path: &Path) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        let data = std::fs::symlink_metadata(path).ok();
        let file = data.filter(std::fs::Metadata::is_file);
        file.map_or(0, |file| file.nlink().saturating_sub(1))
    }

    fn content_hash(&self, path: &Path) -> Option<String> {
        let file = open_regular(path, MAX_HASHED).ok()?;
        let hashed = agent_fs::hash(&file).ok()?;
        Some(format!("sha256:{}", hashed.sha256))
    }
}

/// Opens a regular file that is not too large, and no pipe: its writer may never come, or not be meant for us.
pub(super) fn open_regular(path: &Path, largest: u64) -> std::io::Result<std::fs::File> {
    let fits = |data: std::fs::Metadata| match data.is_file() && data.len() <= largest {
        true => Ok(()),
        false => Err(std::io::Error::from(std::io::ErrorKind::InvalidData)),
    };
    fits(std::fs::metadata(path)?)?;
    // What it is may change in between.
    let file = agent_fs::open_regular(path)?;
    fits(file.metadata()?)?;
    Ok(file)
}

/// True if a name is one word to `xargs` and no flag.
pub fn is_plain_name(name: &std::ffi::OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    !bytes.starts_with(b"-")
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_graphic() && !b"\"'\\".contains(byte) || *byte >= 0x80)
}

fn resolve(path: &Path, links: &mut usize) -> Option<PathBuf> {
    let mut result = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::ParentDir => {
                result.pop();
            }
            Component::Normal(name) => {
                let next = result.join(name);
                match std::fs::read_link(&next) {
                    Ok(target) => {
                        *links += 1;
                        if *links > MAX_LINKS {
                            return None;
                        }
                        result = resolve(&result.join(target), links)?;
                    }
                    Err(_) => result = next,
                }
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_as_the_kernel_does() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/x.pem"), "x").unwrap();
        std::os::unix::fs::symlink("a/b", root.join("link")).unwrap();
        std::os::unix::fs::symlink("nowhere/y", root.join("dangling")).unwrap();
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
        let facts = DiskFacts { dirty: || None };
        let resolve = |path: &str| facts.resolve(&root.join(path));
        assert_eq!(resolve("link/../x.pem"), Some(root.join("a/x.pem")));
        assert_eq!(resolve("dangling"), Some(root.join("nowhere/y")));
        assert_eq!(resolve("new/file"), Some(root.join("new/file")));
        assert_eq!(resolve("loop"), None);
        std::fs::write(root.join("a/b/.env"), "x").unwrap();
        assert_eq!(
            facts.below(&root.join("a")),
            Some(Below {
                secrets: vec![root.join("a/x.pem"), root.join("a/b/.env")],
                links: Vec::new(),
                odd: None,
            })
        );
        assert_eq!(
            facts.below(&root.join("a/b")).map(|below| below.secrets),
            Some(vec![root.join("a/b/.env")])
        );
        std::os::unix::fs::symlink("..", root.join("a/b/up")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("a/b/out")).unwrap();
        let mut links = facts.below(&root.join("a/b")).unwrap().links;
        links.sort();
        assert_eq!(links, [PathBuf::from("/etc"), root.join("a")]);
        assert_eq!(
            facts.expand(&root, "a/*.pem"),
            Some(vec![root.join("a/x.pem")])
        );
    }
}
