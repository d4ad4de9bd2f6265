//! Owner and extended attributes of a file that is replaced by another.

use std::fs::File;
use std::io;

use rustix::fs::{Gid, Uid, XattrFlags};

use crate::Stamp;

/// Gives a new file the owner of the `old` one and, if it can be read, its extended attributes, access lists among
/// them. False if we may not set that owner; then the old file itself has to be written.
///
/// # Errors
/// When the owner of the new file cannot be read.
pub fn copy_metadata(new: &File, old: &Stamp, attributes: Option<&File>) -> io::Result<bool> {
    let own = Stamp::of_file(new)?;
    if (own.owner, own.group) != (old.owner, old.group) {
        let (owner, group) = (Uid::from_raw(old.owner), Gid::from_raw(old.group));
        if rustix::fs::fchown(new, Some(owner), Some(group)).is_err() {
            return Ok(false);
        }
    }
    if let Some(from) = attributes {
        copy_attributes(from, new);
    }
    Ok(true)
}

/// Copies extended attributes. One that may not be set is left out: only the system itself sets those.
fn copy_attributes(from: &File, to: &File) {
    let mut names = [0_u8; 4096];
    let Ok(length) = rustix::fs::flistxattr(from, &mut names[..]) else {
        return;
    };
    let names = names.get(..length).unwrap_or_default();
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0_u8; 64 << 10];
        if let Ok(length) = rustix::fs::fgetxattr(from, name, &mut value[..]) {
            let _ = rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty());
        }
    }
}
