//! Compiles a policy and the machine's capabilities into a plan: every path resolved, every
//! existing protected name found, nothing left to decide inside.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::executable;
use crate::git_link::GitLink;
use crate::infer::Boundary;
use crate::launch::LaunchError;
use crate::pipeline::{PipelineReport, READ_FIRST};
use crate::plan::{Containment, LandlockPlan, LimitPlan, MountPlan, Plan, SeccompPlan};
use crate::policy::{Command, Execution, Mode, Network, Policy, WriteAccess};
use crate::probe::Capabilities;
use crate::protect_mounts::{ProtectMounts, named, protect_mounts, protected_dirs};
use crate::report::{EnforcementReport, Level};
use crate::secrets;
use crate::view::View;
use crate::watch::Watch;

/// Hidden on every machine: homes of other users, and sockets of running services.
const ALWAYS_HIDDEN: [&str; 4] = ["/home", "/root", "/run", "/var/run"];

const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/ptmx",
];

pub(crate) struct Compiled {
    pub(crate) plan: Plan,
    pub(crate) report: EnforcementReport,
    pub(crate) watch: Watch,
    pub(crate) pipeline: Option<PipelineReport>,
    /// Nothing where nothing confines.
    pub(crate) boundary: Option<Boundary>,
}

pub(crate) fn compile(
    policy: &Policy,
    capabilities: &Capabilities,
) -> Result<Compiled, LaunchError> {
    let level = match &policy.mode {
        Mode::Off { .. } => Level::None,
        Mode::Required => match capabilities.level() {
            Level::None => {
                return Err(LaunchError::Unavailable {
                    reason: capabilities.reasons().join("; "),
                });
            }
            level => level,
        },
    };
    let workspace = directory(&policy.workspace, "workspace")?;
    if workspace.parent().is_none() {
        return Err(problem("the workspace is the root directory"));
    }
    let cwd = directory(&policy.cwd, "working directory")?;
    let session_dir = directory(&policy.session_dir, "session directory")?;
    let private_tmp = directory(&policy.private_tmp, "private temporary directory")?;
    let mut writable = Vec::new();
    for path in &policy.writable {
        writable.push(directory(path, "writable directory")?);
    }
    if session_dir == workspace || writable.iter().any(|root| session_dir.starts_with(root)) {
        return Err(problem("the session directory would be writable"));
    }
    if private_tmp.starts_with(&workspace) || workspace.starts_with(&private_tmp) {
        return Err(problem(
            "the private temporary directory and the workspace overlap",
        ));
    }
    if !cwd.starts_with(&workspace)
        && !writable.iter().any(|root| cwd.starts_with(root))
        && level != Level::None
    {
        return Err(problem("the working directory lies outside the workspace"));
    }
    // In read-only mode the user's writable directories can still be read.
    let only_read = if policy.write_access == WriteAccess::ReadOnly {
        std::mem::take(&mut writable)
    } else {
        Vec::new()
    };
    let owner =
        std::fs::metadata(&workspace).map_err(|error| problem(&format!("workspace: {error}")))?;
    let uid = rustix::process::getuid().as_raw();
    // Without capabilities root is a stranger in another user's directory.
    let run_as =
        (level != Level::None && uid == 0 && owner.uid() != 0).then(|| (owner.uid(), owner.gid()));
    let uid = run_as.map_or(uid, |(uid, _)| uid);

    let git_link = GitLink::of(&workspace);
    if let Some(link) = git_link.as_ref().filter(|link| link.points_back)
        && policy.write_access.writes_git()
    {
        writable.push(link.common.clone());
    }
    // What cannot be written needs nothing kept.
    let dirs = if policy.write_access == WriteAccess::ReadOnly && level != Level::Partial {
        Vec::new()
    } else {
        protected_dirs(
            policy,
            &workspace,
            &session_dir,
            &writable,
            git_link.as_ref(),
        )
        .map_err(|error| problem(&format!("workspace: {error}")))?
    };
    let mounts = if policy.write_access == WriteAccess::ReadOnly {
        ProtectMounts::default()
    } else {
        protect_mounts(&dirs)
    };
    let named: Vec<PathBuf> = dirs.iter().flat_map(named).collect();
    let search_complete = dirs.iter().all(|(_, found)| found.complete);
    let partial = level == Level::Partial;
    let watch = Watch::before(dirs, &session_dir, policy, partial)
        .map_err(|error| problem(&format!("session directory: {error}")))?;

    let view = View::of(policy, &workspace, &closed(policy))
        .map_err(|error| problem(&format!("root directory: {error}")))?;
    let mut readable = readable(policy, &workspace);
    let confined_execution = policy.execution == Execution::NothingOfTheProject;
    if confined_execution && !level.may_run_unasked() {
        return Err(problem(
            "execution in the project cannot be prevented at this level",
        ));
    }
    // Where commands could have put something, now or earlier.
    let mut planted: Vec<PathBuf> = [workspace.clone()].into();
    planted.extend(only_read.iter().chain(&writable).cloned());
    let tools: Vec<PathBuf> = readable.iter().map(|(_, target)| target.clone()).collect();
    // What was opened is there to be read, unless programs are in it.
    let opened = view.opened.iter();
    let opened = opened.filter(|path| !tools.iter().any(|tool| tool.starts_with(path)));
    let mut not_executable = planted.clone();
    not_executable.extend(opened.cloned());
    let named_elsewhere = only_read.into_iter().chain(view.opened.iter().cloned());
    readable.extend(named_elsewhere.map(|path| (path.clone(), path)));
    if let Some(link) = &git_link
        && !writable.contains(&link.common)
    {
        readable.push((link.common.clone(), link.common.clone()));
    }
    let reported: Vec<PathBuf> = readable.iter().map(|(_, target)| target.clone()).collect();
    readable.extend(put_back_at(&view.needed, &workspace));
    readable.extend(view.of_network(policy));
    readable.sort_by(|left, right| left.1.cmp(&right.1));
    readable.dedup();
    let put_back: Vec<PathBuf> = readable
        .iter()
        .map(|(_, target)| target.clone())
        .chain([workspace.clone()])
        .chain(writable.iter().cloned())
        .collect();
    let hidden = hidden(policy, &workspace, &put_back, uid, &view.hidden);
    // What is covered needs no protection of its own and cannot be seen from inside.
    let mut protected = mounts.read_only;
    protected.retain(|path| {
        let mut covers = hidden.inside.iter();
        !covers.any(|cover| path.starts_with(cover) && path != cover)
    });
    // The session's directory shows that the user's places cannot be written; where it is covered
    // itself, the nearest place above that is not.
    let mut canary = session_dir;
    while hidden.inside.iter().any(|cover| canary.starts_with(cover)) && canary.pop() {}
    let namespaces = matches!(level, Level::Full | Level::NoLandlock | Level::Bubblewrap);
    let network_namespace = namespaces && policy.network == Network::Off;
    let writable_roots: Vec<PathBuf> = (policy.write_access != WriteAccess::ReadOnly)
        .then(|| workspace.clone())
        .into_iter()
        .chain(writable.iter().cloned())
        .collect();
    let temporary = if namespaces {
        PathBuf::from("/tmp")
    } else {
        private_tmp.clone()
    };
    let executable = confined_execution
        .then(|| executable::outside(&planted, &hidden.directories, &policy.environment, &tools));
    let landlock = match (&capabilities.landlock, level) {
        (_, Level::None) | (Err(_), _) => None,
        (Ok(abi), _) => Some(LandlockPlan {
            abi: *abi,
            readable: if view.is_narrow && namespaces {
                [&*view.system, &*put_back].concat()
            } else if namespaces {
                vec!["/".into()]
            } else {
                let all = [&*hidden.directories, &*hidden.files].concat();
                readable_without_mounts(&all, &readable, &workspace)
            },
            writable: writable_roots
                .iter()
                .cloned()
                .chain(DEVICES.iter().map(PathBuf::from))
                .chain(if namespaces {
                    vec![
                        "/tmp".into(),
                        "/var/tmp".into(),
                        "/dev/shm".into(),
                        "/dev/pts".into(),
                    ]
                } else {
                    vec![private_tmp.clone()]
                })
                .collect(),
            executable,
            refuse_tcp: !namespaces && policy.network == Network::Off,
        }),
    };
    let seccomp = (level != Level::None).then_some(SeccompPlan {
        internet: namespaces || policy.network == Network::Host,
        memory_files: capabilities.cgroup.is_ok() || policy.limits.memory.is_none(),
    });
    let limits = LimitPlan {
        processes: policy.limits.processes.map(u64::from),
        open_files: policy.limits.open_files,
        file_size: policy.limits.file_size,
        data: policy.limits.data,
        memory: policy.limits.memory,
    };
    let environment = environment(policy, &temporary, level);
    let is_free = environment.iter().all(|(name, _)| name != READ_FIRST.0);
    let reporting = (policy.report_pipeline && is_free)
        .then(|| PipelineReport::ask(&private_tmp, &temporary))
        .flatten();
    let (prelude, pipeline) = reporting.unzip();
    let boundary = (level != Level::None).then(|| Boundary {
        workspace: workspace.clone(),
        cwd: cwd.clone(),
        workspace_writable: policy.write_access != WriteAccess::ReadOnly,
        git_writable: policy.write_access.writes_git(),
        hidden: [&hidden.directories, &hidden.inside, &hidden.files]
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
        shown: put_back,
        writable: [
            writable_roots.clone(),
            vec![temporary.clone(), "/var/tmp".into(), "/dev".into()],
        ]
        .concat(),
        protected: if partial {
            named.clone()
        } else {
            protected.clone()
        },
        by_rule: (policy.protected.iter())
            .map(|path| workspace.join(path))
            .collect(),
        denied: policy.denied.clone(),
        home: stands_for_home(policy, &environment, &temporary),
        has_network: policy.network == Network::Host,
    });
    let plan = Plan {
        containment: match level {
            Level::Full | Level::NoLandlock => Containment::Namespaces,
            Level::Bubblewrap => Containment::Bubblewrap,
            Level::Partial | Level::None => Containment::Subreaper,
        },
        network_namespace,
        run_as,
        bubblewrap: capabilities.bubblewrap.clone().unwrap_or_default(),
        mounts: if namespaces {
            MountPlan {
                hidden_directories: hidden.directories,
                hidden_inside: hidden.inside,
                hidden_files: hidden.files,
                readable,
                private_tmp,
                workspace: workspace.clone(),
                workspace_writable: policy.write_access != WriteAccess::ReadOnly,
                writable,
                pins: mounts.pins,
                protected,
                replaced: policy.replaced.clone(),
                not_executable: if confined_execution {
                    let temporary = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
                    let there = |path: &PathBuf| path.is_dir() && !path.is_symlink();
                    let temporary = temporary.into_iter().filter(there);
                    not_executable.into_iter().chain(temporary).collect()
                } else {
                    Vec::new()
                },
                only_needed: view.is_narrow,
            }
        } else {
            MountPlan::default()
        },
        landlock,
        seccomp,
        limits: if level == Level::None {
            LimitPlan::default()
        } else {
            limits
        },
        canary,
        cwd: cwd.clone(),
        arguments: arguments(&policy.command),
        environment,
        prelude,
    };
    let report = EnforcementReport {
        level,
        layers: Vec::new(),
        landlock_abi: plan.landlock.as_ref().map(|landlock| landlock.abi),
        hidden: plan
            .mounts
            .hidden_directories
            .iter()
            .chain(&plan.mounts.hidden_inside)
            .chain(&plan.mounts.hidden_files)
            .cloned()
            .collect(),
        readable: if namespaces { reported } else { Vec::new() },
        writable: if level == Level::None {
            vec!["/".into()]
        } else {
            writable_roots
        },
        protected: if partial {
            named
        } else {
            plan.mounts.protected.clone()
        },
        protected_search_complete: search_complete,
        network: if level == Level::None {
            Network::Host
        } else {
            policy.network
        },
        limits: limit_facts(policy, level),
        environment_names: plan
            .environment
            .iter()
            .map(|(name, _)| name.to_string_lossy().into_owned())
            .collect(),
        cwd,
        uid,
        notes: notes(policy, capabilities, level, search_complete),
    };
    Ok(Compiled {
        plan,
        report,
        watch,
        pipeline,
        boundary,
    })
}

fn problem(text: &str) -> LaunchError {
    LaunchError::Policy {
        problem: text.to_owned(),
    }
}

fn directory(path: &Path, what: &str) -> Result<PathBuf, LaunchError> {
    let resolved = std::fs::canonicalize(path)
        .map_err(|error| problem(&format!("{what} `{}`: {error}", path.display())))?;
    if !resolved.is_dir() {
        return Err(problem(&format!(
            "{what} `{}` is not a directory",
            path.display()
        )));
    }
    Ok(resolved)
}

/// Paths that have to look empty, resolved, without those that lie below others.
struct Hidden {
    directories: Vec<PathBuf>,
    /// Inside something that is put back.
    inside: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

/// Hidden from every command with this policy, resolved.
fn closed(policy: &Policy) -> Vec<PathBuf> {
    let always = ALWAYS_HIDDEN.iter().map(PathBuf::from);
    always
        .chain(policy.home.clone())
        .chain(policy.hidden.iter().cloned())
        .filter_map(|path| std::fs::canonicalize(path).ok())
        .filter(|path| path.parent().is_some())
        .collect()
}

fn hidden(
    policy: &Policy,
    workspace: &Path,
    put_back: &[PathBuf],
    uid: u32,
    of_view: &[PathBuf],
) -> Hidden {
    let mut wanted: BTreeSet<PathBuf> = closed(policy).into_iter().collect();
    wanted.extend(of_view.iter().cloned());
    // A workspace that is or contains the home directory still must not show its secrets.
    if let Some(home) = policy
        .home
        .as_ref()
        .and_then(|home| std::fs::canonicalize(home).ok())
        && home.starts_with(workspace)
    {
        wanted.remove(&home);
        wanted.extend(secrets::below_home(&home));
    }
    if uid == 0 {
        wanted.extend(secrets::of_root().iter().cloned());
    }
    // The nearest of the directories above decides whether a path is still to be seen.
    let shown_by = |path: &Path| {
        path.ancestors()
            .skip(1)
            .find(|above| put_back.iter().any(|back| back == above))
            .map(Path::to_owned)
    };
    let hidden_by = |path: &Path| {
        path.ancestors()
            .skip(1)
            .find(|above| wanted.contains(*above))
            .map(Path::to_owned)
    };
    let mut hidden = Hidden {
        directories: Vec::new(),
        inside: Vec::new(),
        files: Vec::new(),
    };
    for path in &wanted {
        let (shown, covered) = (shown_by(path), hidden_by(path));
        let visible = match (&shown, &covered) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(shown), Some(covered)) => {
                shown.components().count() >= covered.components().count()
            }
        };
        if !visible || path == workspace {
            continue;
        }
        match (path.is_dir(), shown) {
            (true, Some(_)) => hidden.inside.push(path.clone()),
            (true, None) => hidden.directories.push(path.clone()),
            (false, _) => hidden.files.push(path.clone()),
        }
    }
    hidden
}

/// Existing directories to put back, under the name by which programs look for them.
fn readable(policy: &Policy, workspace: &Path) -> Vec<(PathBuf, PathBuf)> {
    let resolver = (policy.network == Network::Host).then(|| PathBuf::from("/etc/resolv.conf"));
    let paths: Vec<PathBuf> = policy.readable.iter().cloned().chain(resolver).collect();
    put_back_at(&paths, workspace)
}

/// Source and mount point of each of `paths`.
fn put_back_at(paths: &[PathBuf], workspace: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut pairs: Vec<(PathBuf, PathBuf)> = Vec::new();
    for path in paths {
        let Ok(source) = std::fs::canonicalize(path) else {
            continue;
        };
        // The last component may be a link; the way to it has to be resolved.
        let target = match (path.parent().map(std::fs::canonicalize), path.file_name()) {
            (Some(Ok(parent)), Some(name)) if !path.ends_with("resolv.conf") => parent.join(name),
            _ => source.clone(),
        };
        if !target.starts_with(workspace) && !workspace.starts_with(&target) {
            pairs.push((source, target));
        }
    }
    pairs.sort_by(|left, right| left.1.cmp(&right.1));
    pairs.dedup();
    pairs
}

/// Without mounts nothing can be hidden, so everything else is named instead.
fn readable_without_mounts(
    hidden: &[PathBuf],
    readable: &[(PathBuf, PathBuf)],
    workspace: &Path,
) -> Vec<PathBuf> {
    let private = |path: &Path| {
        path == Path::new("/tmp")
            || hidden
                .iter()
                .any(|hidden| hidden.starts_with(path) || path.starts_with(hidden))
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir("/")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .flat_map(|path| {
            if !private(&path) {
                return vec![path];
            }
            // One more level: `/var` holds a hidden directory but is needed otherwise.
            let below = std::fs::read_dir(&path).into_iter().flatten();
            below
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| !private(path))
                .collect()
        })
        .filter(|path| {
            !path.starts_with("/tmp") && !path.starts_with("/home") && !path.starts_with("/root")
        })
        .collect();
    paths.extend(readable.iter().map(|(source, _)| source.clone()));
    paths.push(workspace.to_owned());
    paths
}

/// The home directory inside and the user's, where the command has one of its own.
fn stands_for_home(
    policy: &Policy,
    environment: &[(OsString, OsString)],
    temporary: &Path,
) -> Option<(PathBuf, PathBuf)> {
    let (_, inside) = environment.iter().find(|(name, _)| name == "HOME")?;
    let inside = PathBuf::from(inside);
    let outside = std::fs::canonicalize(policy.home.as_ref()?).ok()?;
    inside.starts_with(temporary).then_some((inside, outside))
}

fn environment(policy: &Policy, temporary: &Path, level: Level) -> Vec<(OsString, OsString)> {
    let mut environment = policy.environment.clone();
    let own = (level != Level::None).then_some(temporary);
    // Without a home a shell takes `~` from the list of users, which may be another one.
    let home = own.map(|own| own.join("home")).or(policy.home.clone());
    for (name, value) in [("HOME", home), ("TMPDIR", own.map(Path::to_owned))] {
        if let Some(value) = value
            && !environment.iter().any(|(known, _)| known == name)
        {
            environment.push((name.into(), value.into()));
        }
    }
    environment
}

fn arguments(command: &Command) -> Vec<OsString> {
    match command {
        // The two dashes end bash's options: a command may itself begin with one.
        Command::Shell(bytes) => ["bash", "--noprofile", "--norc", "-c", "--"]
            .into_iter()
            .map(OsString::from)
            .chain([OsString::from_vec(bytes.clone())])
            .collect(),
        Command::Program { program, arguments } => [program.clone()]
            .into_iter()
            .chain(arguments.iter().cloned())
            .collect(),
    }
}

fn limit_facts(policy: &Policy, level: Level) -> Vec<(&'static str, u64)> {
    if level == Level::None {
        return Vec::new();
    }
    let limits = &policy.limits;
    [
        ("processes", limits.processes.map(u64::from)),
        ("open_files", limits.open_files),
        ("file_size", limits.file_size),
        ("data", limits.data),
        ("memory", limits.memory),
        ("free_disk", limits.free_disk),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

fn notes(
    policy: &Policy,
    capabilities: &Capabilities,
    level: Level,
    search_complete: bool,
) -> Vec<String> {
    let mut notes = match (&policy.mode, level) {
        (Mode::Off { reason }, _) => vec![format!("switched off: {reason}")],
        (_, Level::Full) => Vec::new(),
        _ => capabilities.reasons(),
    };
    if !search_complete && level != Level::None {
        notes.push("too many files to find every nested repository".into());
    }
    notes
}
