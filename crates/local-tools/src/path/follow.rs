//! Following a path name by name, links and `..` included.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use super::{Found, MAX_LINKS, PathProblem};

type Walked = Result<(PathBuf, Found), (PathBuf, PathProblem)>;

/// Follows `start` to a place without links. A failure says how far it came.
pub(super) fn follow(start: &Path, given: &str) -> Walked {
    let mut at = PathBuf::from("/");
    let mut found = Found::Directory;
    let mut links = 0;
    let mut todo: VecDeque<OsString> = names(start);
    while let Some(name) = todo.pop_front() {
        if name == ".." {
            at.pop();
            found = Found::Directory;
            continue;
        }
        let next = at.join(&name);
        let missing = |near| PathProblem::NotFound {
            missing: next.display().to_string(),
            near,
        };
        match fs::symlink_metadata(&next) {
            Ok(metadata) if metadata.is_symlink() => {
                links += 1;
                if links > MAX_LINKS {
                    return Err((
                        at,
                        PathProblem::Links {
                            given: given.to_owned(),
                        },
                    ));
                }
                let target = fs::read_link(&next).map_err(|source| {
                    (
                        at.clone(),
                        PathProblem::Lookup {
                            path: next.display().to_string(),
                            source,
                        },
                    )
                })?;
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                for name in names(&target).into_iter().rev() {
                    todo.push_front(name);
                }
            }
            Ok(metadata) => {
                found = found_kind(&metadata);
                if found != Found::Directory && !todo.is_empty() {
                    let problem = PathProblem::NotADirectory {
                        given: given.to_owned(),
                        path: next.display().to_string(),
                    };
                    return Err((next, problem));
                }
                at.push(true_name(&at, name, &metadata));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if todo.iter().any(|name| name == "..") {
                    return Err((next.clone(), missing(None)));
                }
                let place = todo
                    .iter()
                    .fold(next.clone(), |place, name| place.join(name));
                return Ok((place, Found::Missing));
            }
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NAMETOOLONG) => {
                let bytes = name.len();
                return Err((next, PathProblem::NameTooLong { bytes }));
            }
            Err(source) => {
                let path = next.display().to_string();
                return Err((next, PathProblem::Lookup { path, source }));
            }
        }
    }
    Ok((at, found))
}

fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}

pub(super) fn found_kind(metadata: &fs::Metadata) -> Found {
    use std::os::unix::fs::FileTypeExt;
    let kind = metadata.file_type();
    if kind.is_file() {
        Found::File
    } else if kind.is_dir() {
        Found::Directory
    } else if kind.is_fifo() {
        Found::Special("a named pipe")
    } else if kind.is_socket() {
        Found::Special("a socket")
    } else {
        Found::Special("a device")
    }
}

/// The name as the directory spells it. Where letter case does not matter, `.GIT` opens `.git`,
/// and every later decision has to see the latter.
fn true_name(directory: &Path, name: OsString, metadata: &fs::Metadata) -> OsString {
    let Some(text) = name.to_str() else {
        return name;
    };
    let swapped: String = text
        .chars()
        .map(|letter| {
            if letter.is_ascii_lowercase() {
                letter.to_ascii_uppercase()
            } else {
                letter.to_ascii_lowercase()
            }
        })
        .collect();
    let same_file =
        |other: &fs::Metadata| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino());
    if swapped == text
        || !fs::symlink_metadata(directory.join(&swapped)).is_ok_and(|other| same_file(&other))
    {
        return name;
    }
    let Ok(entries) = fs::read_dir(directory) else {
        return name;
    };
    let mut spelled = None;
    for entry in entries.flatten() {
        if entry.file_name() == name {
            return name;
        }
        if entry.file_name().to_string_lossy().to_lowercase() == text.to_lowercase() {
            spelled = Some(entry.file_name());
        }
    }
    spelled.unwrap_or(name)
}
