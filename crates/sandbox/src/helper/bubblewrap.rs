//! The same mounts by way of an installed `bwrap`, for systems that let only listed programs
//! make user namespaces.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;

use super::{Context, Failure, INSIDE_MARK};
use crate::plan::{Containment, Plan};

/// Path of this program inside.
const INSIDE: &str = "/run/agent-sandbox-helper";

/// Becomes `bwrap`, which starts this program again as the first process inside, with the
/// same socket as standard input.
pub(super) fn become_bubblewrap(
    plan: &Plan,
    control: &std::os::fd::OwnedFd,
) -> Result<(), Failure> {
    debug_assert_eq!(plan.containment, Containment::Bubblewrap);
    let itself = std::env::current_exe().at("start bubblewrap", "the helper's own file")?;
    rustix::stdio::dup2_stdin(control).at("start bubblewrap", "")?;
    let error = std::process::Command::new(&plan.bubblewrap)
        .args(arguments(plan, &itself))
        .env_clear()
        .exec();
    Err(error).at("start bubblewrap", plan.bubblewrap.display())
}

fn arguments(plan: &Plan, itself: &Path) -> Vec<OsString> {
    let mut all: Vec<OsString> = Vec::new();
    let mut add = |words: &[&OsStr]| all.extend(words.iter().map(OsString::from));
    for flag in [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--die-with-parent",
        "--as-pid-1",
    ] {
        add(&[flag.as_ref()]);
    }
    if plan.network_namespace {
        add(&["--unshare-net".as_ref()]);
    }
    let mounts = &plan.mounts;
    let text = |word: &'static str| OsStr::new(word);
    add(&[
        text("--cap-drop"),
        text("ALL"),
        text("--ro-bind"),
        text("/"),
        text("/"),
    ]);
    add(&[text("--bind"), mounts.private_tmp.as_ref(), text("/tmp")]);
    add(&[
        text("--bind"),
        mounts.private_tmp.as_ref(),
        text("/var/tmp"),
    ]);
    // A place below the private directory is already out of sight.
    let covered = |path: &Path| path.starts_with("/tmp") || path.starts_with("/var/tmp");
    let outside: Vec<&Path> = mounts
        .hidden_directories
        .iter()
        .map(|path| &**path)
        .filter(|path| !covered(path))
        .collect();
    for path in &outside {
        add(&[text("--tmpfs"), path.as_ref()]);
    }
    add(&[text("--dev"), text("/dev"), text("--proc"), text("/proc")]);
    for (source, target) in &mounts.readable {
        add(&[text("--ro-bind"), source.as_ref(), target.as_ref()]);
    }
    add(&[text("--ro-bind"), itself.as_ref(), text(INSIDE)]);
    let bind = if mounts.workspace_writable {
        "--bind"
    } else {
        "--ro-bind"
    };
    add(&[
        text(bind),
        mounts.workspace.as_ref(),
        mounts.workspace.as_ref(),
    ]);
    for path in mounts.writable.iter().chain(&mounts.pins) {
        add(&[text("--bind"), path.as_ref(), path.as_ref()]);
    }
    for path in &mounts.protected {
        add(&[text("--ro-bind"), path.as_ref(), path.as_ref()]);
    }
    for (source, target) in &mounts.replaced {
        add(&[text("--ro-bind"), source.as_ref(), target.as_ref()]);
    }
    for path in &mounts.hidden_inside {
        add(&[
            text("--tmpfs"),
            path.as_ref(),
            text("--remount-ro"),
            path.as_ref(),
        ]);
    }
    for path in mounts.hidden_files.iter().filter(|path| !covered(path)) {
        add(&[text("--ro-bind"), text("/dev/null"), path.as_ref()]);
    }
    for path in &outside {
        add(&[text("--remount-ro"), path.as_ref()]);
    }
    add(&[
        text("--chdir"),
        text("/"),
        text("--"),
        text(INSIDE),
        text(INSIDE_MARK),
    ]);
    all
}
