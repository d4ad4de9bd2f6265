//! Step six: look from inside whether it holds. What is not seen here is not claimed.

use std::io;
use std::path::Path;

use rustix::net::{AddressFamily, Protocol, SocketType, socket};

use super::mounts::LANDLOCK_CANARY;
use super::namespaces::Membership;
use super::{Context, Failure};
use crate::plan::{Containment, Plan};
use crate::report::Layer;
use crate::syscalls::SELF_CHECK_PROTOCOL;

const STEP: &str = "self-check";

/// The layers in force. An expected one that is missing is a failure.
pub(super) fn inspect(plan: &Plan, before: &Membership) -> Result<Vec<Layer>, Failure> {
    let mut layers = Vec::new();
    let contained = plan.containment != Containment::Subreaper;
    if contained {
        layers.extend(if plan.containment == Containment::Namespaces {
            before.left()
        } else {
            Vec::new()
        });
        inspect_namespaces(plan, &mut layers)?;
    }
    let confined = plan.seccomp.is_some() || plan.landlock.is_some();
    if confined {
        inspect_status(plan, &mut layers)?;
        refuse_to_create(&plan.canary)?;
    }
    if plan.landlock.is_some() {
        if plan.containment == Containment::Namespaces {
            let flags = rustix::fs::OFlags::RDWR
                | rustix::fs::OFlags::NONBLOCK
                | rustix::fs::OFlags::CLOEXEC;
            let canary = rustix::fs::open(LANDLOCK_CANARY, flags, rustix::fs::Mode::empty());
            if canary.err() != Some(rustix::io::Errno::ACCESS) {
                return missing("Landlock");
            }
        }
        // Without mounts of our own the canary above was refused by Landlock alone.
        layers.push(Layer::Landlock);
    }
    for path in plan.mounts.protected.iter().filter(|_| contained) {
        refuse_to_change(path)?;
    }
    if inspect_execution(plan)? {
        layers.push(Layer::ProjectNotExecutable);
    }
    if inspect_view(plan)? {
        layers.push(Layer::MachineHidden);
    }
    if plan.seccomp.is_some() {
        let (family, protocol) = (
            AddressFamily::from_raw(libc::AF_VSOCK as u16),
            SELF_CHECK_PROTOCOL,
        );
        let probe = socket(
            family,
            SocketType::STREAM,
            Some(Protocol::from_raw(protocol)),
        );
        match probe {
            Err(rustix::io::Errno::PERM) => layers.push(Layer::Seccomp),
            Err(error) => return Err(error).at(STEP, "seccomp"),
            Ok(_) => return missing("seccomp"),
        }
    }
    if confined {
        layers.push(Layer::ResourceLimits);
    }
    layers.sort();
    layers.dedup();
    Ok(layers)
}

/// True if nothing of the project can be executed. Our own mounts show it themselves; bubblewrap's
/// cannot, and Landlock, which was seen to be in force, is what enforces it there.
fn inspect_execution(plan: &Plan) -> Result<bool, Failure> {
    let places = &plan.mounts.not_executable;
    if places.is_empty() {
        return Ok(false);
    }
    if plan.containment == Containment::Namespaces {
        for path in places {
            let flags = rustix::fs::statvfs(path).at(STEP, path.display())?.f_flag;
            if !flags.contains(rustix::fs::StatVfsMountFlags::NOEXEC) {
                return missing("no execution in the project");
            }
        }
    } else if (plan.landlock.as_ref()).is_none_or(|landlock| landlock.executable.is_none()) {
        return missing("no execution in the project");
    }
    Ok(true)
}

/// True if covered directories show nothing but what was put back there.
fn inspect_view(plan: &Plan) -> Result<bool, Failure> {
    let mounts = &plan.mounts;
    if !mounts.only_needed {
        return Ok(false);
    }
    let is_put_back = |path: &Path| {
        let readable = mounts.readable.iter().map(|(_, target)| target);
        let mut shown = readable.chain([&mounts.workspace]).chain(&mounts.writable);
        shown.any(|target| target.starts_with(path))
    };
    let covered = mounts.hidden_directories.iter();
    for path in covered.filter(|path| !mounts.readable.iter().any(|(_, target)| target == *path)) {
        // What cannot be listed shows nothing either.
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            if !is_put_back(&entry.path()) {
                return missing("hidden machine");
            }
        }
    }
    Ok(true)
}

fn inspect_namespaces(plan: &Plan, layers: &mut Vec<Layer>) -> Result<(), Failure> {
    if rustix::process::getpid().as_raw_nonzero().get() != 1 {
        return missing("pid namespace");
    }
    if plan.containment == Containment::InsideBubblewrap {
        // Confinement by their effects: bubblewrap made them before this process began.
        layers.extend([
            Layer::UserNamespace,
            Layer::MountNamespace,
            Layer::PidNamespace,
            Layer::IpcNamespace,
        ]);
        layers.push(Layer::UtsNamespace);
    }
    let flags = rustix::fs::statvfs("/").at(STEP, "/")?.f_flag;
    if !flags.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        return missing("read-only root");
    }
    layers.push(Layer::ReadOnlyRoot);
    if plan.network_namespace {
        let interfaces = std::fs::read_to_string("/proc/net/dev").at(STEP, "/proc/net/dev")?;
        let names: Vec<&str> = interfaces
            .lines()
            .skip(2)
            .filter_map(|line| line.split(':').next())
            .map(str::trim)
            .collect();
        // Some kernels add tunnel placeholders to every namespace; none of them is up.
        if !names.contains(&"lo")
            || names.iter().any(|name| {
                name.starts_with("eth") || name.starts_with("en") || name.starts_with("wl")
            })
        {
            return missing("network namespace");
        }
        layers.push(Layer::NetworkNamespace);
    }
    let required = [
        Layer::UserNamespace,
        Layer::MountNamespace,
        Layer::PidNamespace,
        Layer::IpcNamespace,
    ];
    match required.iter().find(|layer| !layers.contains(layer)) {
        Some(layer) => missing(layer.name()),
        None => Ok(()),
    }
}

/// Capabilities and privileges as the kernel lists them.
fn inspect_status(plan: &Plan, layers: &mut Vec<Layer>) -> Result<(), Failure> {
    let status = std::fs::read_to_string("/proc/self/status").at(STEP, "/proc/self/status")?;
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
            .unwrap_or_default()
    };
    // Only a process that may drop capabilities can empty the bounding set; to others what
    // is in it is out of reach.
    let bounding =
        plan.containment == Containment::Namespaces || rustix::process::getuid().is_root();
    for name in ["CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd"]
        .iter()
        .take(if bounding { 5 } else { 4 })
    {
        if field(name).is_empty() || !field(name).trim_start_matches('0').is_empty() {
            return missing(name);
        }
    }
    layers.push(Layer::NoCapabilities);
    if field("NoNewPrivs") != "1" {
        return missing("no new privileges");
    }
    layers.push(Layer::NoNewPrivileges);
    if plan.seccomp.is_some() && field("Seccomp") != "2" {
        return missing("seccomp");
    }
    Ok(())
}

/// The session's own directory is a place where the user can write and the command must not.
fn refuse_to_create(directory: &Path) -> Result<(), Failure> {
    let name = directory.join(".sandbox-canary");
    let created = std::fs::File::options()
        .write(true)
        .create_new(true)
        .open(&name);
    if created.is_ok() {
        let _ = std::fs::remove_file(&name);
    }
    expect_refusal(created, "write outside")
}

fn refuse_to_change(path: &Path) -> Result<(), Failure> {
    let directory = match std::fs::symlink_metadata(path) {
        Ok(data) => data.is_dir(),
        // Out of the command's reach altogether, which root's places in another's project may be.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        Err(error) => return Err(error).at(STEP, path.display()),
    };
    if directory {
        return refuse_to_create(path);
    }
    expect_refusal(
        std::fs::File::options().append(true).open(path),
        "protected file",
    )
}

fn expect_refusal(result: io::Result<std::fs::File>, what: &str) -> Result<(), Failure> {
    match result {
        Ok(_) => missing(what),
        Err(_) => Ok(()),
    }
}

fn missing<T>(what: &str) -> Result<T, Failure> {
    Err(io::Error::other("not in force")).at(STEP, what)
}
