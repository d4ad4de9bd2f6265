//! Leftovers on the machine: processes of ours, mounts, temporary files.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::AGENT;

pub(crate) struct Leftovers {
    mounts: BTreeSet<String>,
    temporary: PathBuf,
}

impl Leftovers {
    /// `temporary` is a directory that only this run uses.
    pub(crate) fn now(temporary: PathBuf) -> Self {
        Self {
            mounts: mounts(),
            temporary,
        }
    }

    /// Everything that came since and is still there.
    pub(crate) fn what_is_new(&self) -> Vec<String> {
        let mounts = mounts();
        let mut left: Vec<String> = processes();
        left.extend(
            mounts
                .difference(&self.mounts)
                .map(|mount| format!("mount {mount}")),
        );
        let files = std::fs::read_dir(&self.temporary).expect("the temporary directory");
        left.extend(
            files
                .filter_map(Result::ok)
                .map(|entry| format!("file {}", entry.path().display())),
        );
        left
    }
}

/// Processes that run the binary, and what its commands left running.
fn processes() -> Vec<String> {
    let agent = std::fs::canonicalize(AGENT).expect("the binary");
    std::fs::read_dir("/proc")
        .expect("the kernel lists processes")
        .filter_map(Result::ok)
        .filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .bytes()
                .all(|byte| byte.is_ascii_digit())
        })
        .filter_map(|entry| {
            let runs = std::fs::read_link(entry.path().join("exe")).ok()?;
            let words = std::fs::read(entry.path().join("cmdline")).ok()?;
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            (runs == agent || words.trim() == "sleep 61.75")
                .then(|| format!("process {} {words}", entry.file_name().to_string_lossy()))
        })
        .collect()
}

fn mounts() -> BTreeSet<String> {
    let table = std::fs::read_to_string("/proc/self/mounts").expect("the kernel lists mounts");
    table.lines().map(str::to_owned).collect()
}
