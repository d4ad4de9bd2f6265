//! Step two: what the file system looks like from inside.
//!
//! Trees that stay are cloned first, then everything is made read-only, places to hide are
//! covered, and the clones are put back. All of it by descriptor: a name is resolved once,
//! without following links.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
    move_mount, open_tree,
};

use super::{Context, Failure};
use crate::plan::MountPlan;

/// The devices every program may expect. Nothing else of the host's /dev is there.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// A FIFO that no Landlock rule mentions. A read-only mount lets it be opened for writing, so
/// the self-check can tell that Landlock is in force. (A device would not do: rules belong to
/// inodes, and every bind of a permitted device is that device.)
pub(super) const LANDLOCK_CANARY: &str = "/dev/.landlock-canary";

const EMPTY: &str = "/dev/.empty";
const COVERS: &str = "/dev/.covers";
/// A mount of its own, read-only: copies of it are too.
const NOTHING: &str = "/dev/.covers/nothing";

const READ_ONLY: u64 = 1;
const NO_SET_USER_ID: u64 = 2;
const NO_EXECUTION: u64 = 8;

pub(super) fn arrange(plan: &MountPlan, network_namespace: bool) -> Result<(), Failure> {
    // Mount points made here are for the user the command runs as, whatever the agent's umask.
    let umask = rustix::process::umask(Mode::from_raw_mode(0o022));
    let arranged = put_into_place(plan, network_namespace);
    rustix::process::umask(umask);
    arranged
}

fn put_into_place(plan: &MountPlan, network_namespace: bool) -> Result<(), Failure> {
    const STEP: &str = "mount";
    rustix::process::chdir("/").at(STEP, "/")?;
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .at(STEP, "/")?;

    let mut readable = Vec::new();
    for (source, target) in &plan.readable {
        readable.push((clone_at(source, READ_ONLY | NO_SET_USER_ID)?, target));
    }
    let mut replaced = Vec::new();
    for (source, target) in &plan.replaced {
        replaced.push((clone_at(source, READ_ONLY | NO_SET_USER_ID)?, target));
    }
    let restriction = if plan.workspace_writable {
        0
    } else {
        READ_ONLY
    };
    let workspace = clone_at(&plan.workspace, restriction | NO_SET_USER_ID)?;
    let mut writable = Vec::new();
    for path in &plan.writable {
        writable.push((clone_at(path, NO_SET_USER_ID)?, path));
    }
    let temporary = [
        clone_at(&plan.private_tmp, NO_SET_USER_ID)?,
        clone_at(&plan.private_tmp, NO_SET_USER_ID)?,
    ];
    let mut devices = Vec::new();
    for name in DEVICES {
        devices.push((clone_at(&Path::new("/dev").join(name), 0)?, name));
    }

    set_attributes(CWD, "/", READ_ONLY | NO_SET_USER_ID).at("make read-only", "/")?;

    let mut covers = Vec::new();
    let [temporary, variable_temporary] = temporary;
    attach(&temporary, Path::new("/tmp"))?;
    if std::fs::symlink_metadata("/var/tmp").is_ok_and(|data| data.is_dir()) {
        attach(&variable_temporary, Path::new("/var/tmp"))?;
    }
    devices_of_its_own(&devices)?;
    let nothing = open_place(Path::new(NOTHING)).at("hide", NOTHING)?;
    let put_back = |path: &Path| {
        let shown = plan.readable.iter().map(|(_, target)| target);
        let mut shown = shown.chain([&plan.workspace]).chain(&plan.writable);
        shown.any(|target| target.starts_with(path))
    };
    for (number, path) in plan.hidden_directories.iter().enumerate() {
        if put_back(path) {
            covers.extend(cover(path, number)?);
        } else {
            cover_with(path, &nothing)?;
        }
    }
    let empty = empty_file()?;

    for (tree, target) in &readable {
        // A link inside what was put back shows what it leads to, or does not.
        if target.is_symlink() {
            continue;
        }
        make_place(target, tree)?;
        attach(tree, target)?;
    }
    make_place(&plan.workspace, &workspace)?;
    attach(&workspace, &plan.workspace)?;
    for (tree, target) in &writable {
        make_place(target, tree)?;
        attach(tree, target)?;
    }
    for path in &plan.pins {
        bind_onto_itself(path, 0)?;
    }
    for path in &plan.protected {
        bind_onto_itself(path, READ_ONLY)?;
    }
    for (tree, target) in &replaced {
        attach(tree, target)?;
    }
    // With the mounts inside them; before they are covered in places, which changes nothing.
    for path in &plan.not_executable {
        let place = open_place(path).at("forbid execution in", path.display())?;
        set_attributes(&place, "", NO_EXECUTION).at("forbid execution in", path.display())?;
    }
    for path in &plan.hidden_inside {
        cover_with(path, &nothing)?;
    }
    for path in &plan.hidden_files {
        cover_with(path, &empty)?;
    }
    covers.extend(system_views(
        network_namespace,
        plan.hidden_directories.len(),
    )?);
    covers.push(PathBuf::from("/dev"));
    for path in covers {
        // Not recursive: what was put back inside keeps its own attributes.
        set_attributes_of(&path, READ_ONLY)?;
    }
    Ok(())
}

/// Copies a tree of mounts, to be attached later.
fn clone_at(path: &Path, attributes: u64) -> Result<OwnedFd, Failure> {
    let place = open_place(path).at("open", path.display())?;
    clone_of(place.as_fd(), attributes).at("clone the mount of", path.display())
}

fn clone_of(place: BorrowedFd<'_>, attributes: u64) -> io::Result<OwnedFd> {
    let tree = open_tree(
        place,
        "",
        OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE,
    )?;
    if attributes != 0 {
        set_attributes(&tree, "", attributes)?;
    }
    Ok(tree)
}

fn open_place(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(
        CWD,
        path,
        flags,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    )?)
}

fn attach(tree: &OwnedFd, target: &Path) -> Result<(), Failure> {
    let place = open_place(target).at("open", target.display())?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", place, "", flags).at("mount", target.display())
}

/// Makes a path a mount of its own: it can no longer be renamed or removed, and may be
/// read-only.
fn bind_onto_itself(path: &Path, attributes: u64) -> Result<(), Failure> {
    let place = open_place(path).at("protect", path.display())?;
    let tree = clone_of(place.as_fd(), attributes).at("protect", path.display())?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&tree, "", place, "", flags).at("protect", path.display())
}

/// Covers a directory with an empty one in which something is put back. Already out of sight is
/// as good. The empty ones are folders of the file system at `/dev`, because a file system of its
/// own for each costs more than all the rest of the mounts.
fn cover(path: &Path, number: usize) -> Result<Option<PathBuf>, Failure> {
    match open_place(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.at("hide", path.display())?,
    };
    let empty = Path::new(COVERS).join(number.to_string());
    std::fs::create_dir(&empty).at("hide", path.display())?;
    let tree = clone_at(&empty, NO_SET_USER_ID)?;
    attach(&tree, path)?;
    Ok(Some(path.to_owned()))
}

/// Covers a directory or a file with a copy of a mount that is empty and read-only.
fn cover_with(path: &Path, empty: &OwnedFd) -> Result<(), Failure> {
    let place = match open_place(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.at("hide", path.display())?,
    };
    let tree = clone_of(empty.as_fd(), 0).at("hide", path.display())?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&tree, "", place, "", flags).at("hide", path.display())
}

fn temporary_file_system(path: &Path, options: &str) -> Result<(), Failure> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let options = std::ffi::CString::new(options)
        .map_err(io::Error::from)
        .at("hide", path.display())?;
    mount("tmpfs", path, "tmpfs", flags, Some(options.as_c_str())).at("hide", path.display())
}

/// Creates the place for a tree below a covered directory; elsewhere it exists.
fn make_place(target: &Path, tree: &OwnedFd) -> Result<(), Failure> {
    if std::fs::symlink_metadata(target).is_ok() {
        return Ok(());
    }
    let directory = rustix::fs::fstat(tree)
        .map(|data| rustix::fs::FileType::from_raw_mode(data.st_mode).is_dir())
        .at("create a mount point for", target.display())?;
    let parent = if directory {
        Some(target)
    } else {
        target.parent()
    };
    if let Some(parent) = parent {
        std::fs::create_dir_all(parent).at("create a mount point for", target.display())?;
    }
    if !directory {
        std::fs::write(target, "").at("create a mount point for", target.display())?;
    }
    Ok(())
}

fn devices_of_its_own(devices: &[(OwnedFd, &str)]) -> Result<(), Failure> {
    const STEP: &str = "make devices";
    let dev = Path::new("/dev");
    temporary_file_system(dev, "mode=0755,size=1m")?;
    for (tree, name) in devices {
        let place = dev.join(name);
        std::fs::write(&place, "").at(STEP, name)?;
        attach(tree, &place)?;
    }
    rustix::fs::mknodat(
        CWD,
        LANDLOCK_CANARY,
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o666),
        0,
    )
    .at(STEP, LANDLOCK_CANARY)?;
    // Its mode must not be what refuses.
    rustix::fs::chmod(LANDLOCK_CANARY, Mode::from_raw_mode(0o666)).at(STEP, LANDLOCK_CANARY)?;
    for name in ["shm", "pts", ".covers"] {
        std::fs::create_dir(dev.join(name)).at(STEP, name)?;
    }
    std::fs::create_dir(NOTHING).at(STEP, NOTHING)?;
    bind_onto_itself(Path::new(NOTHING), READ_ONLY | NO_SET_USER_ID)?;
    temporary_file_system(&dev.join("shm"), "mode=1777,size=1g")?;
    mount(
        "devpts",
        "/dev/pts",
        "devpts",
        MountFlags::NOSUID | MountFlags::NOEXEC,
        Some(c"newinstance,ptmxmode=0666,mode=620,max=512"),
    )
    .at(STEP, "pts")?;
    for (name, target) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        std::os::unix::fs::symlink(target, dev.join(name)).at(STEP, name)?;
    }
    Ok(())
}

/// An empty file to put over others, a mount of its own.
fn empty_file() -> Result<OwnedFd, Failure> {
    std::fs::write(EMPTY, "").at("hide", EMPTY)?;
    bind_onto_itself(Path::new(EMPTY), READ_ONLY | NO_SET_USER_ID)?;
    open_place(Path::new(EMPTY)).at("hide", EMPTY)
}

/// `/proc` and `/sys` as they are in the new namespaces. Read-only, because a user who is
/// root outside needs no capability to write kernel settings there.
fn system_views(network_namespace: bool, number: usize) -> Result<Option<PathBuf>, Failure> {
    let plain = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", plain, None).at("mount", "/proc")?;
    // With the machine's network its read-only view stays, which says no more than the network does.
    if network_namespace {
        return narrow_system(number);
    }
    Ok(None)
}

/// Leaves of the host's `/sys` what programs look at to find out how large the machine is. The rest
/// names the machine's network devices.
fn narrow_system(number: usize) -> Result<Option<PathBuf>, Failure> {
    let mut kept = Vec::new();
    for name in ["/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm"] {
        let path = Path::new(name);
        if path.is_dir() {
            kept.push((clone_at(path, READ_ONLY | NO_SET_USER_ID)?, path));
        }
    }
    let covered = cover(Path::new("/sys"), number)?;
    for (view, path) in kept {
        make_place(path, &view)?;
        attach(&view, path)?;
    }
    Ok(covered)
}

/// Called when the kernel settings inside have been written.
pub(super) fn seal_proc() -> Result<(), Failure> {
    set_attributes_of(Path::new("/proc"), READ_ONLY)
}

fn set_attributes_of(path: &Path, attributes: u64) -> Result<(), Failure> {
    let place = open_place(path).at("make read-only", path.display())?;
    change_attributes(place.as_fd(), c"", attributes, libc::AT_EMPTY_PATH)
        .at("make read-only", path.display())
}

fn set_attributes(place: impl AsFd, path: &str, attributes: u64) -> io::Result<()> {
    let path = std::ffi::CString::new(path)?;
    change_attributes(
        place.as_fd(),
        &path,
        attributes,
        libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
    )
}

fn change_attributes(
    place: BorrowedFd<'_>,
    path: &std::ffi::CStr,
    attributes: u64,
    flags: libc::c_int,
) -> io::Result<()> {
    /// `struct mount_attr` of the kernel.
    #[repr(C)]
    struct Change {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let change = Change {
        set: attributes,
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    };
    // SAFETY: the descriptor is open, `path` ends in a null, and `change` is laid out as the
    // kernel's structure of the size given; the call only reads all three.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            place.as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const change,
            size_of::<Change>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
