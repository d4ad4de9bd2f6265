//! Step four: Landlock, which holds even where the mount table has a mistake.

use std::io;
use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::{Context, Failure};
use crate::plan::LandlockPlan;

/// Write accesses that are granted: all but making devices.
fn writing(abi: ABI) -> BitFlags<AccessFs> {
    AccessFs::from_all(abi) & !(AccessFs::MakeChar | AccessFs::MakeBlock)
}

pub(super) fn restrict(plan: &LandlockPlan) -> Result<(), Failure> {
    apply(plan)
        .map_err(io::Error::other)
        .at("restrict with Landlock", format!("ABI {}", plan.abi))
}

fn apply(plan: &LandlockPlan) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let abi = known(plan.abi);
    // Everything this kernel knows has to be accepted: what was promised is what is applied.
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?;
    if plan.abi >= 6 {
        ruleset = ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    }
    if plan.refuse_tcp && plan.abi >= 4 {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
    }
    let mut created = ruleset.create()?;
    let (mut reads, mut writes) = (AccessFs::from_read(abi), writing(abi));
    let executable = plan.executable.as_deref().unwrap_or_default();
    if plan.executable.is_some() {
        reads &= !BitFlags::from(AccessFs::Execute);
        writes &= !BitFlags::from(AccessFs::Execute);
    }
    for (paths, access) in [
        (plan.readable.as_slice(), reads),
        (plan.writable.as_slice(), writes),
        (executable, AccessFs::from_read(abi)),
    ] {
        for path in paths {
            let metadata = match std::fs::metadata(path) {
                Ok(metadata) => metadata,
                // A device or directory that this machine does not have needs no rule.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            let access = if metadata.is_dir() {
                access
            } else {
                access & AccessFs::from_file(abi)
            };
            created = created.add_rule(PathBeneath::new(PathFd::new(path)?, access))?;
        }
    }
    let status = created.no_new_privs(true).restrict_self()?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        return Err("the kernel did not enforce the whole rule set".into());
    }
    Ok(())
}

/// The newest version that both the kernel and this program know.
fn known(abi: u32) -> ABI {
    match abi {
        0 => ABI::Unsupported,
        1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        6 => ABI::V6,
        7 => ABI::V7,
        8 => ABI::V8,
        _ => ABI::V9,
    }
}

/// A rule set with which the command can no longer signal the helper that watches over it.
/// Only needed where no pid namespace protects the helper.
pub(super) fn signal_scope(abi: u32) -> Option<OwnedFd> {
    if abi < 6 {
        return None;
    }
    let created = Ruleset::default()
        .scope(Scope::Signal)
        .ok()?
        .create()
        .ok()?;
    created.into()
}
