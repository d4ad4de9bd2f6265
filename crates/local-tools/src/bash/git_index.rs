//! Git's index as a command sees it from which secrets are hidden. To git a tracked file that looks empty
//! is a change, and it would say so. In a copy of the index such files are marked as "assumed unchanged",
//! unless they really differ from what the index says of them; the copy is shown in place of the index.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Larger ones are left as they are.
const LARGEST: u64 = 256 << 20;

const ASSUME_UNCHANGED: u8 = 0x80;
const EXTENDED: u8 = 0x40;

/// Bytes of an entry about its file, before the name of the object: ten numbers of four bytes.
const STATUS: usize = 40;

/// A copy of the project's index in `folder`, and where it belongs; nothing if there is no index, if it
/// has none of the `hidden` files, or if it is of a kind that is not known.
pub(super) fn without_changes(
    project: &Path,
    hidden: &[PathBuf],
    folder: &Path,
) -> io::Result<Option<(PathBuf, PathBuf)>> {
    let Some(place) = index_of(project) else {
        return Ok(None);
    };
    let data = std::fs::symlink_metadata(&place)?;
    if !data.is_file() || data.len() > LARGEST {
        return Ok(None);
    }
    let mut bytes = std::fs::read(&place)?;
    let names: HashSet<&[u8]> = hidden
        .iter()
        .filter_map(|path| path.strip_prefix(project).ok())
        .map(|path| path.as_os_str().as_bytes())
        .collect();
    let below = |name: &[u8]| {
        let mut ends = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        names.contains(name)
            || ends.any(|(end, _)| name.get(..end).is_some_and(|above| names.contains(above)))
    };
    let is_unchanged = |name: &[u8], status: &[u8]| {
        let file = project.join(Path::new(std::ffi::OsStr::from_bytes(name)));
        let number = |at: usize| status.get(at..at + 4).map(be32);
        std::fs::symlink_metadata(file).is_ok_and(|now| {
            number(8) == Some(now.mtime() as u32) && number(36) == Some(now.size() as u32)
        })
    };
    let marked = mark(&mut bytes, &mut |name, status| {
        below(name) && is_unchanged(name, status)
    });
    if marked.unwrap_or(0) == 0 {
        return Ok(None);
    }
    let copy = folder.join("index");
    let mut file = std::fs::File::options()
        .write(true)
        .create_new(true)
        .open(&copy)?;
    file.write_all(&bytes)?;
    // The command may run as the user whose project it is.
    file.set_permissions(std::fs::Permissions::from_mode(0o444))?;
    Ok(Some((copy, place)))
}

/// The index of the repository whose work tree is the project.
fn index_of(project: &Path) -> Option<PathBuf> {
    let git = project.join(".git");
    let git = match std::fs::symlink_metadata(&git).ok()? {
        data if data.is_dir() => git,
        data if data.is_file() && data.len() < 8192 => {
            let text = std::fs::read_to_string(&git).ok()?;
            project.join(text.lines().next()?.strip_prefix("gitdir:")?.trim())
        }
        _ => return None,
    };
    std::fs::canonicalize(git.join("index")).ok()
}

fn be32(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

/// Marks the entries that are `wanted`, and counts them; nothing if the index cannot be read to the end of
/// its entries. Git does not verify the checksum at its end.
fn mark(bytes: &mut [u8], wanted: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Option<usize> {
    if bytes.get(..4)? != b"DIRC" {
        return None;
    }
    let version = be32(bytes.get(4..8)?);
    let count = be32(bytes.get(8..12)?);
    if !(2..=4).contains(&version) {
        return None;
    }
    // The names of objects have 20 bytes, or 32 in a repository that uses the longer hash.
    let known = [20, 32].map(|hash| entries(bytes, version, count, hash));
    let entries = known.into_iter().flatten().next()?;
    let mut marked = 0;
    for entry in entries {
        let status = bytes.get(entry.start..entry.start + STATUS)?.to_vec();
        if wanted(&entry.name, &status) {
            *bytes.get_mut(entry.flags)? |= ASSUME_UNCHANGED;
            marked += 1;
        }
    }
    Some(marked)
}

struct Entry {
    start: usize,
    flags: usize,
    name: Vec<u8>,
}

/// The entries, if they are all there, in order, and followed by nothing that moves them elsewhere.
fn entries(bytes: &[u8], version: u32, count: u32, hash: usize) -> Option<Vec<Entry>> {
    let mut found: Vec<Entry> = Vec::new();
    let mut at = 12;
    let mut name: Vec<u8> = Vec::new();
    for _ in 0..count {
        let start = at;
        let flags = start + STATUS + hash;
        let extended = bytes.get(flags)? & EXTENDED != 0;
        at = flags + if extended { 4 } else { 2 };
        if version == 4 {
            let kept = name.len().checked_sub(varint(bytes, &mut at)?)?;
            name.truncate(kept);
        } else {
            name.clear();
        }
        let rest = bytes.get(at..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        name.extend(rest.get(..end)?);
        at += end + 1;
        if version != 4 {
            // Padded to a multiple of eight, with one to eight zeros.
            at = start + (at - 1 - start + 8) / 8 * 8;
        }
        let in_order = found.last().is_none_or(|last| last.name <= name);
        if name.is_empty() || !in_order {
            return None;
        }
        found.push(Entry {
            start,
            flags,
            name: name.clone(),
        });
    }
    // An index that shares its entries with another one, or a wrong guess about the hash.
    let end = bytes.len().checked_sub(hash)?;
    while at < end {
        let signature = bytes.get(at..at + 4)?;
        if signature == b"link" || !signature.iter().all(u8::is_ascii_alphabetic) {
            return None;
        }
        at = at
            .checked_add(8)?
            .checked_add(be32(bytes.get(at + 4..at + 8)?) as usize)?;
    }
    (at == end).then_some(found)
}

/// A number in the form in which version 4 says how much of the previous name is dropped.
fn varint(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut value = 0_usize;
    for round in 0..5 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if round > 0 {
            value = value.checked_add(1)?;
        }
        value = value
            .checked_mul(128)?
            .checked_add(usize::from(byte & 127))?;
        if byte & 128 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(project: &Path, index: Option<&Path>, arguments: &[&str]) -> String {
        let mut command = std::process::Command::new("git");
        command
            .args(["-c", "user.name=a", "-c", "user.email=a@example.org"])
            .args(arguments)
            .current_dir(project)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_OPTIONAL_LOCKS", "0");
        if let Some(index) = index {
            command.env("GIT_INDEX_FILE", index);
        }
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{arguments:?} {ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    }

    fn check(format: &str, version: &str) {
        let place = tempfile::tempdir().unwrap();
        let project = &std::fs::canonicalize(place.path()).unwrap();
        git(project, None, &["init", "-q", "--object-format", format]);
        std::fs::create_dir_all(project.join("sub/.ssh")).unwrap();
        let files = [
            ".env",
            "a",
            "changed.pem",
            "sub/.env",
            "sub/.ssh/x",
            "sub/plain",
            "z",
        ];
        for file in files {
            std::fs::write(project.join(file), "old\n").unwrap();
        }
        git(project, None, &["add", "."]);
        git(project, None, &["update-index", "--index-version", version]);
        git(project, None, &["commit", "-qm", "x"]);
        std::fs::write(project.join("changed.pem"), "changed\n").unwrap();
        let hidden = [".env", "changed.pem", "sub/.env", "sub/.ssh"].map(|name| project.join(name));
        let folder = tempfile::tempdir().unwrap();
        let (copy, of) = without_changes(project, &hidden, folder.path())
            .unwrap()
            .unwrap();
        assert_eq!(of, project.join(".git/index"));
        for file in [".env", "changed.pem", "sub/.env", "sub/.ssh/x", "sub/plain"] {
            std::fs::write(project.join(file), "").unwrap();
        }
        let status = git(project, Some(&copy), &["status", "--porcelain"]);
        assert_eq!(
            status, " M changed.pem\n M sub/plain\n",
            "{format} {version}"
        );
    }

    #[test]
    fn hidden_files_are_no_changes_and_changes_stay_changes() {
        for format in ["sha1", "sha256"] {
            for version in ["2", "4"] {
                check(format, version);
            }
        }
    }

    #[test]
    fn what_is_no_index_is_left_alone() {
        let mut yes = |_: &[u8], _: &[u8]| true;
        for text in [
            "",
            "DIRC",
            "DIRC\0\0\0\x02\0\0\0\x01",
            "PK\x03\x04xxxxxxxxxxxxxxxx",
        ] {
            assert_eq!(
                mark(&mut text.as_bytes().to_vec(), &mut yes),
                None,
                "{text:?}"
            );
        }
        let mut cut = b"DIRC\0\0\0\x02\0\0\0\x05".to_vec();
        cut.extend([7; 300]);
        assert_eq!(mark(&mut cut, &mut yes), None);
    }
}
