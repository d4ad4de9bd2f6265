//! Narrow view of the machine for a command that runs without approval: only what its programs need to start.
//! Everything else is covered, so that a name which leads elsewhere than it did when it was judged leads nowhere.

use std::ffi::{OsStr, OsString};
use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};

use crate::policy::{Network, Policy, ReadAccess};

/// Directories at the root that hold programs, or are made anew for every command.
const SYSTEM: [&str; 15] = [
    "bin", "dev", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "opt", "proc", "sbin", "snap",
    "sys", "tmp", "usr",
];

/// In `/etc`: what the dynamic linker, the C library and the programs that can be proven only to read
/// look at. A final star stands for any ending.
const SETTINGS: [&str; 25] = [
    "alternatives",
    "bat",
    "crypto-policies",
    "dotnet",
    "dpkg",
    "gemrc",
    "gitattributes",
    "gitconfig",
    "group",
    "ld-*",
    "ld.so.*",
    "locale.alias",
    "localtime",
    "magic*",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "perl*",
    "php*",
    "pki",
    "postgresql-common",
    "python*",
    "ssl",
    "terminfo",
    "timezone",
];

/// In `/var`: what `dpkg` knows about the programs of the system.
const PACKAGES: &str = "/var/lib/dpkg";

/// Made anew for every command, and empty.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// Beside a directory of programs: what these load.
const BESIDE_PROGRAMS: [&str; 6] = ["lib", "lib32", "lib64", "libexec", "share", "pyvenv.cfg"];

/// Paths to cover and paths to put back. Empty where the whole machine may be read.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) is_narrow: bool,
    pub(crate) hidden: Vec<PathBuf>,
    /// Covered paths that programs need.
    pub(crate) needed: Vec<PathBuf>,
    /// Paths that the policy names, resolved. Nothing in them may be executed.
    pub(crate) opened: Vec<PathBuf>,
    /// Paths that are not covered at all.
    pub(crate) system: Vec<PathBuf>,
}

impl View {
    /// What finds other machines, by the names that programs look for, because what is around them is covered.
    pub(crate) fn of_network(&self, policy: &Policy) -> Vec<(PathBuf, PathBuf)> {
        if !self.is_narrow || policy.network == Network::Off {
            return Vec::new();
        }
        let names = ["/etc/resolv.conf", "/etc/hosts"].map(PathBuf::from);
        let there = names.into_iter();
        there
            .filter_map(|name| Some((std::fs::canonicalize(&name).ok()?, name)))
            .collect()
    }

    /// `closed` is hidden from every command and stays so, unless the policy opens a path in it.
    pub(crate) fn of(policy: &Policy, workspace: &Path, closed: &[PathBuf]) -> io::Result<Self> {
        let ReadAccess::Needed { opened } = &policy.read_access else {
            return Ok(Self::default());
        };
        let mut view = Self {
            is_narrow: true,
            ..Self::default()
        };
        for entry in entries("/")? {
            let (path, name) = (entry.path(), entry.file_name());
            if SYSTEM.iter().any(|known| name == *known) {
                view.system.push(path);
            } else if entry.file_type()?.is_symlink() {
                // What it leads to is covered or not under its own name.
            } else if name == "var" {
                let below = entries("/var")?.into_iter().map(|entry| entry.path());
                let covered =
                    below.filter(|path| !TEMPORARY.iter().any(|own| path == Path::new(own)));
                view.hidden
                    .extend(covered.filter(|path| !path.is_symlink()));
            } else {
                view.hidden.push(path);
            }
        }
        let settings = entries("/etc").unwrap_or_default().into_iter();
        let settings = settings.filter(|entry| is_needed(&entry.file_name()));
        view.needed.extend(settings.map(|entry| entry.path()));
        view.needed.push(PACKAGES.into());
        view.needed.extend(programs(&policy.environment));
        let is_closed = |path: &Path| closed.iter().any(|closed| path.starts_with(closed));
        let is_covered = |path: &Path| {
            let mut covers = view.hidden.iter();
            covers.any(|cover| path.starts_with(cover)) || is_closed(path)
        };
        view.needed.retain(|path| {
            let real = std::fs::canonicalize(path);
            let place = path.parent().map(std::fs::canonicalize);
            let (Ok(real), Some(Ok(place))) = (real, place) else {
                return false;
            };
            is_covered(&place) && !is_closed(&real) && !workspace.starts_with(&real)
        });
        // Around the project only what could be seen otherwise.
        let surrounds = |path: &Path| workspace.starts_with(path);
        let around = policy.readable.iter().filter(|path| surrounds(path));
        let resolved = |path: &PathBuf| std::fs::canonicalize(path).ok();
        // A directory of the home directory that was opened is there, the home directory itself is not.
        let covers = closed.iter().filter(|closed| surrounds(closed));
        let covers: Vec<&PathBuf> = covers.collect();
        let is_cover = |path: &PathBuf| covers.iter().any(|cover| cover.starts_with(path));
        let opened = opened.iter().filter_map(resolved);
        let opened = opened.filter(|path| !surrounds(path) || !is_cover(path));
        let around = around.filter_map(resolved);
        let around = around.filter(|path| !is_closed(path));
        view.opened = opened
            .chain(around)
            .filter(|path| path.parent().is_some())
            .filter(|path| is_covered(path) || TEMPORARY.iter().any(|own| path.starts_with(own)))
            .collect();
        Ok(view)
    }
}

fn entries(directory: &str) -> io::Result<Vec<DirEntry>> {
    std::fs::read_dir(directory)?.collect()
}

fn is_needed(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    let mut known = SETTINGS.iter();
    known.any(|known| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *known,
    })
}

/// The directories of the `PATH`, with what programs in them load.
fn programs(environment: &[(OsString, OsString)]) -> Vec<PathBuf> {
    let path = environment.iter().find(|(name, _)| name == "PATH");
    let path = path.map(|(_, value)| std::env::split_paths(value));
    let mut found = Vec::new();
    for entry in path.into_iter().flatten().filter(|path| path.is_absolute()) {
        if let Some(parent) = entry.parent()
            && parent.parent().is_some()
            && (entry.ends_with("bin") || entry.ends_with("sbin"))
        {
            found.extend(BESIDE_PROGRAMS.map(|name| parent.join(name)));
        }
        found.push(entry);
    }
    found
}
