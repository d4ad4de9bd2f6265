//! The policy worked out to the last path: what the helper carries out without deciding.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::wire::{Reader, Writer};

/// Mechanism that keeps the process tree of the command together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Containment {
    /// Our own namespaces; the helper becomes their first process.
    Namespaces,
    /// The helper starts `bwrap`, which starts the helper again as first process inside.
    Bubblewrap,
    /// The helper that `bwrap` started.
    InsideBubblewrap,
    /// No namespaces: the helper adopts orphans and hunts them down.
    Subreaper,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) containment: Containment,
    pub(crate) network_namespace: bool,
    /// Give up the root user for this one before anything else.
    pub(crate) run_as: Option<(u32, u32)>,
    pub(crate) bubblewrap: PathBuf,
    pub(crate) mounts: MountPlan,
    pub(crate) landlock: Option<LandlockPlan>,
    pub(crate) seccomp: Option<SeccompPlan>,
    pub(crate) limits: LimitPlan,
    /// A directory the user can write to and the command must not.
    pub(crate) canary: PathBuf,
    pub(crate) cwd: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Script that bash reads from standard input before the command.
    pub(crate) prelude: Option<Vec<u8>>,
}

/// Absolute paths, in the order in which they are mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MountPlan {
    /// Covered before anything is put back.
    pub(crate) hidden_directories: Vec<PathBuf>,
    /// Inside what is put back, so covered after it.
    pub(crate) hidden_inside: Vec<PathBuf>,
    pub(crate) hidden_files: Vec<PathBuf>,
    /// Paths bound back read-only, each with its mount point.
    pub(crate) readable: Vec<(PathBuf, PathBuf)>,
    pub(crate) private_tmp: PathBuf,
    pub(crate) workspace: PathBuf,
    pub(crate) workspace_writable: bool,
    pub(crate) writable: Vec<PathBuf>,
    /// Bound onto themselves so that they cannot be renamed; parents come first.
    pub(crate) pins: Vec<PathBuf>,
    /// Bound onto themselves read-only.
    pub(crate) protected: Vec<PathBuf>,
    /// Files shown in place of others, and where.
    pub(crate) replaced: Vec<(PathBuf, PathBuf)>,
    /// Mounts, of those above or of the temporary directories, from which nothing is executed.
    pub(crate) not_executable: Vec<PathBuf>,
    /// Nothing of the machine is left that is not named here or needed by programs.
    pub(crate) only_needed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LandlockPlan {
    pub(crate) abi: u32,
    pub(crate) readable: Vec<PathBuf>,
    pub(crate) writable: Vec<PathBuf>,
    /// Only directories from which programs may be executed; `None` allows all that can be read.
    pub(crate) executable: Option<Vec<PathBuf>>,
    /// Refuse TCP, because no network namespace does.
    pub(crate) refuse_tcp: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeccompPlan {
    /// True if internet sockets may be made; a network namespace makes that harmless.
    pub(crate) internet: bool,
    /// True if files in memory may be made: only a control group counts what they hold.
    pub(crate) memory_files: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LimitPlan {
    pub(crate) processes: Option<u64>,
    pub(crate) open_files: Option<u64>,
    pub(crate) file_size: Option<u64>,
    pub(crate) data: Option<u64>,
    pub(crate) memory: Option<u64>,
}

impl Plan {
    pub(crate) fn encode(&self) -> Writer {
        let mut out = Writer::with_tag(crate::message::PLAN);
        out.number(self.containment as u64)
            .flag(self.network_namespace);
        out.optional(
            self.run_as
                .map(|(uid, gid)| u64::from(uid) << 32 | u64::from(gid)),
        );
        out.path(&self.bubblewrap);
        let mounts = &self.mounts;
        out.paths(&mounts.hidden_directories)
            .paths(&mounts.hidden_inside)
            .paths(&mounts.hidden_files);
        out.list(&mounts.readable, |out, (source, target)| {
            out.path(source).path(target);
        });
        out.path(&mounts.private_tmp)
            .path(&mounts.workspace)
            .flag(mounts.workspace_writable);
        out.paths(&mounts.writable)
            .paths(&mounts.pins)
            .paths(&mounts.protected);
        out.list(&mounts.replaced, |out, (source, target)| {
            out.path(source).path(target);
        });
        out.paths(&mounts.not_executable).flag(mounts.only_needed);
        out.flag(self.landlock.is_some());
        if let Some(landlock) = &self.landlock {
            out.number(u64::from(landlock.abi))
                .paths(&landlock.readable)
                .paths(&landlock.writable);
            out.flag(landlock.executable.is_some())
                .paths(landlock.executable.as_deref().unwrap_or_default());
            out.flag(landlock.refuse_tcp);
        }
        out.optional(
            self.seccomp
                .map(|seccomp| u64::from(seccomp.internet) | u64::from(seccomp.memory_files) << 1),
        );
        let limits = &self.limits;
        out.optional(limits.processes)
            .optional(limits.open_files)
            .optional(limits.file_size);
        out.optional(limits.data).optional(limits.memory);
        out.path(&self.canary).path(&self.cwd);
        out.list(&self.arguments, |out, argument| {
            out.bytes(argument.as_bytes());
        });
        out.list(&self.environment, |out, (name, value)| {
            out.bytes(name.as_bytes()).bytes(value.as_bytes());
        });
        out.flag(self.prelude.is_some());
        if let Some(prelude) = &self.prelude {
            out.bytes(prelude);
        }
        out
    }

    pub(crate) fn decode(frame: &mut Reader) -> io::Result<Self> {
        Ok(Self {
            containment: match frame.number()? {
                0 => Containment::Namespaces,
                1 => Containment::Bubblewrap,
                2 => Containment::InsideBubblewrap,
                3 => Containment::Subreaper,
                _ => return Err(io::ErrorKind::InvalidData.into()),
            },
            network_namespace: frame.flag()?,
            run_as: frame
                .optional()?
                .map(|both| ((both >> 32) as u32, both as u32)),
            bubblewrap: frame.path()?,
            mounts: MountPlan {
                hidden_directories: frame.paths()?,
                hidden_inside: frame.paths()?,
                hidden_files: frame.paths()?,
                readable: frame.list(|frame| Ok((frame.path()?, frame.path()?)))?,
                private_tmp: frame.path()?,
                workspace: frame.path()?,
                workspace_writable: frame.flag()?,
                writable: frame.paths()?,
                pins: frame.paths()?,
                protected: frame.paths()?,
                replaced: frame.list(|frame| Ok((frame.path()?, frame.path()?)))?,
                not_executable: frame.paths()?,
                only_needed: frame.flag()?,
            },
            landlock: if frame.flag()? {
                Some(LandlockPlan {
                    abi: frame.number()? as u32,
                    readable: frame.paths()?,
                    writable: frame.paths()?,
                    executable: {
                        let restricted = frame.flag()?;
                        let paths = frame.paths()?;
                        restricted.then_some(paths)
                    },
                    refuse_tcp: frame.flag()?,
                })
            } else {
                None
            },
            seccomp: frame.optional()?.map(|flags| SeccompPlan {
                internet: flags & 1 != 0,
                memory_files: flags & 2 != 0,
            }),
            limits: LimitPlan {
                processes: frame.optional()?,
                open_files: frame.optional()?,
                file_size: frame.optional()?,
                data: frame.optional()?,
                memory: frame.optional()?,
            },
            canary: frame.path()?,
            cwd: frame.path()?,
            arguments: frame.list(Reader::os_string)?,
            environment: frame.list(|frame| Ok((frame.os_string()?, frame.os_string()?)))?,
            prelude: if frame.flag()? {
                Some(frame.bytes()?)
            } else {
                None
            },
        })
    }
}
