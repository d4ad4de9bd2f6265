//! Writing to block devices, past every file system.

use std::path::Path;

use super::{Act, Ground, Tripped};
use crate::shell::prove::touched_paths;
use crate::shell::{Command, Directories, RedirectKind, normalise};

/// Programs that write to the device they are given, whatever their flags.
const WRITERS: &[&str] = &[
    "rm",
    "shred",
    "tee",
    "mv",
    "truncate",
    "wipefs",
    "badblocks",
    "blkdiscard",
    "parted",
    "fdisk",
    "sfdisk",
    "cfdisk",
    "gdisk",
    "sgdisk",
    "mke2fs",
    "mkswap",
    "tune2fs",
    "resize2fs",
    "e2fsck",
    "fsck",
    "debugfs",
    "cryptsetup",
    "pvcreate",
    "vgcreate",
    "mdadm",
    "hdparm",
    "nvme",
    "ddrescue",
    "partprobe",
    "losetup",
    "zpool",
    "mkdosfs",
];

/// Programs that write to their last operand.
const COPIERS: &[&str] = &["cp", "install", "rsync", "ln", "link", "scp"];

/// Flags with which those programs only show.
const SHOWS: &[(&str, &[&str])] = &[
    ("fdisk", &["-l", "--list"]),
    ("sfdisk", &["-l", "-d", "--list", "--dump"]),
    ("gdisk", &["-l"]),
    ("sgdisk", &["-p", "--print"]),
    ("parted", &["print", "-l", "--list"]),
    ("hdparm", &["-I", "-i"]),
    ("nvme", &["list", "smart-log", "id-ctrl"]),
    ("e2fsck", &["-n"]),
    ("fsck", &["-n", "-N"]),
    ("tune2fs", &["-l"]),
    ("wipefs", &["-n", "--no-act"]),
];

pub(super) fn of_redirects(command: &Command, ground: &Ground<'_>) -> Option<Tripped> {
    command
        .redirects
        .iter()
        .filter(|redirect| redirect.kind == RedirectKind::Write)
        .find(|redirect| is_device(redirect.target.sketch(), &redirect.directories, ground))
        .map(|redirect| {
            Tripped::Deny(format!(
                "a redirect writes to the block device `{}`",
                redirect.target.sketch()
            ))
        })
}

pub(super) fn of_command(act: &Act<'_>, ground: &Ground<'_>) -> Option<Tripped> {
    let name = act.name;
    if name.starts_with("mkfs") || matches!(name, "mkswap" | "mke2fs" | "newfs") {
        return Some(Tripped::Deny(format!(
            "`{name}` makes a new file system on a device"
        )));
    }
    let directories = &act.command.directories;
    let device = |text: &str| is_device(text, directories, ground);
    if name == "dd" {
        let target = act
            .texts()
            .filter_map(|word| word.strip_prefix("of="))
            .find(|target| device(target))?;
        return Some(Tripped::Deny(format!(
            "`dd` writes to the block device `{target}`"
        )));
    }
    let named = act.texts().find(|word| {
        let value = word.split_once('=').map_or(*word, |(_, value)| value);
        device(word) || device(value)
    })?;
    let shows = SHOWS
        .iter()
        .any(|(program, flags)| *program == name && flags.iter().any(|flag| act.has(flag)));
    let is_target = act
        .operands()
        .last()
        .is_some_and(|last| device(last.sketch()));
    if (WRITERS.contains(&name) && !shows) || (COPIERS.contains(&name) && is_target) {
        return Some(Tripped::Deny(format!(
            "`{name}` writes to the block device `{named}`"
        )));
    }
    // What a reader of the table does with it is a question of paths.
    let only_reads = touched_paths(act.command).1 || shows || COPIERS.contains(&name);
    (!only_reads).then(|| {
        Tripped::Ask(format!(
            "`{name}` is given the block device `{named}` and may write to it"
        ))
    })
}

fn is_device(text: &str, directories: &Directories, ground: &Ground<'_>) -> bool {
    let path = Path::new(text);
    if path.is_absolute() {
        return is_block_device(path, ground);
    }
    // Relative names only count where a command may be in /dev.
    match directories {
        Directories::Known(known) => known
            .iter()
            .filter(|directory| directory.starts_with("/dev"))
            .any(|directory| is_block_device(&directory.join(path), ground)),
        Directories::Unknown => false,
    }
}

fn is_block_device(path: &Path, ground: &Ground<'_>) -> bool {
    let by_name = |path: &Path| {
        const PREFIXES: &[&str] = &[
            "sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "dm-", "md", "loop",
            "mapper/", "nbd", "sr", "ram", "zd", "zram", "bcache", "drbd", "rbd", "pmem", "block/",
        ];
        path.strip_prefix("/dev")
            .ok()
            .and_then(Path::to_str)
            .is_some_and(|device| PREFIXES.iter().any(|prefix| device.starts_with(prefix)))
    };
    by_name(&normalise(path))
        || ground
            .facts
            .resolve(path)
            .is_some_and(|resolved| by_name(&resolved))
}
