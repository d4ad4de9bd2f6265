//! A control group of version 2 around one command, where the machine has delegated one to us: the
//! kernel then bounds memory and processes of the whole tree at once, instead of ours looking
//! every so often.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Access, access};

use crate::launch::LaunchError;
use crate::plan::LimitPlan;
use crate::probe::Finding;

/// Prefix of our groups' names, before the number of the process that made them.
const NAME: &str = "agent-";

/// The controllers that a group needs.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// A group with a command in it. Dropping it kills whatever is left inside and removes it.
#[derive(Debug)]
pub(crate) struct ControlGroup {
    path: PathBuf,
}

impl ControlGroup {
    /// Makes a group below `parent` with these limits and puts the process into it; what that
    /// process starts afterwards is in it too.
    pub(crate) fn around(pid: u32, parent: &Path, limits: &LimitPlan) -> Result<Self, LaunchError> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let place = parent.join(format!("{NAME}{}-{number}", std::process::id()));
        let failed = |step: &str, error: io::Error| LaunchError::Step {
            step: step.into(),
            target: place.display().to_string(),
            errno: error.raw_os_error().unwrap_or(0),
            error: error.to_string(),
        };
        fs::create_dir(&place).map_err(|error| failed("make a control group", error))?;
        let group = Self {
            path: place.clone(),
        };
        group
            .limit(limits)
            .map_err(|error| failed("limit a control group", error))?;
        group
            .write("cgroup.procs", u64::from(pid))
            .map_err(|error| failed("enter a control group", error))?;
        Ok(group)
    }

    fn limit(&self, limits: &LimitPlan) -> io::Result<()> {
        if let Some(processes) = limits.processes {
            // One more for the first process, which is ours.
            self.write("pids.max", processes.saturating_add(1))?;
        }
        if let Some(memory) = limits.memory {
            self.write("memory.max", memory)?;
            // Without swap accounting there is no such file and nothing to bound; without the
            // second the kernel ends the largest process instead of all of them.
            let _ = self.write("memory.swap.max", 0);
            let _ = self.write("memory.oom.group", 1);
        }
        Ok(())
    }

    fn write(&self, name: &str, value: u64) -> io::Result<()> {
        fs::write(self.path.join(name), value.to_string())
    }

    /// True if the kernel killed something in here for lack of memory.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        events
            .lines()
            .filter_map(|line| line.strip_prefix("oom_kill "))
            .any(|count| count.trim() != "0")
    }

    /// Ends everything inside.
    pub(crate) fn kill(&self) {
        // Kernels before 5.14 cannot; then what ends the command elsewhere has to do.
        let _ = self.write("cgroup.kill", 1);
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        self.kill();
        // One that is still busy is removed by the next agent that finds it.
        let _ = fs::remove_dir(&self.path);
    }
}

/// The group below which ours can be made, if there is one.
pub(crate) fn delegated() -> Finding<PathBuf> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| error.to_string());
    let is_root = rustix::process::getuid().is_root();
    let group = find(
        &read("/proc/self/cgroup")?,
        &read("/proc/self/mountinfo")?,
        is_root,
    )?;
    sweep(&group);
    Ok(group)
}

fn find(membership: &str, mounts: &str, is_root: bool) -> Finding<PathBuf> {
    let own = membership
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .ok_or("no version 2 hierarchy")?;
    let mut hierarchies = mounts.lines().filter_map(hierarchy).peekable();
    hierarchies
        .peek()
        .ok_or("the version 2 hierarchy is not mounted")?;
    let (mount, own) = hierarchies
        .find_map(|(root, mount)| Some((mount, Path::new(own).strip_prefix(root).ok()?)))
        .ok_or("our control group is outside the mounted hierarchy")?;
    // Our own group holds processes, and then the kernel lets it divide nothing, unless it is
    // the root. So a group beside it has to do. An ordinary user can write there only what was
    // delegated; root can write everywhere, and what belongs to the system's manager is not ours.
    let reach = if is_root { 1 } else { usize::MAX };
    let own = mount.join(own);
    let divided: Vec<&Path> = own
        .ancestors()
        .take(reach)
        .take_while(|group| group.starts_with(mount))
        .filter(|group| divides(group))
        .collect();
    if divided.is_empty() {
        return Err("memory and pids are not delegated to us".into());
    }
    divided
        .into_iter()
        .find(|group| is_ours(group))
        .map(Path::to_path_buf)
        .ok_or_else(|| "our control group is not writable".into())
}

/// Root and mount point, where a line of `mountinfo` is about the version 2 hierarchy.
fn hierarchy(line: &str) -> Option<(&Path, &Path)> {
    let (place, kind) = line.split_once(" - ")?;
    if kind.split(' ').next() != Some("cgroup2") {
        return None;
    }
    let mut fields = place.split(' ').skip(3);
    Some((Path::new(fields.next()?), Path::new(fields.next()?)))
}

/// True if groups below this one can bound memory and processes.
fn divides(group: &Path) -> bool {
    let enabled = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
    CONTROLLERS
        .iter()
        .all(|name| enabled.split_ascii_whitespace().any(|word| word == *name))
}

/// True if groups can be made here, and processes moved into them from further down.
fn is_ours(group: &Path) -> bool {
    [group, &group.join("cgroup.procs")]
        .iter()
        .all(|path| access(*path, Access::WRITE_OK).is_ok())
}

/// Removes the empty groups of agents that were killed. A group in use cannot be removed.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name
            .to_str()
            .and_then(|name| name.strip_prefix(NAME))
            .and_then(|rest| rest.split_once('-'));
        if let Some((maker, _)) = maker
            && maker.parse::<u32>().is_ok()
            && !Path::new("/proc").join(maker).exists()
        {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that looks like a hierarchy: `app` divides memory and processes, `app/own` is
    /// the group of a process. Gone with the guard.
    struct Hierarchy {
        mount: PathBuf,
    }

    impl Hierarchy {
        fn new(name: &str, controllers: &str) -> Self {
            let mount = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            let app = mount.join("app");
            fs::create_dir_all(app.join("own")).unwrap();
            fs::write(app.join("cgroup.subtree_control"), controllers).unwrap();
            fs::write(app.join("cgroup.procs"), "").unwrap();
            fs::write(app.join("own/cgroup.subtree_control"), "").unwrap();
            Self { mount }
        }

        fn found(&self, is_root: bool, own: &str) -> Finding<PathBuf> {
            let membership = format!("5:cpu:/\n0::{own}\n");
            let mounts = format!(
                "24 1 0:5 / /proc rw - proc proc rw\n30 24 0:26 / {} rw,nosuid - cgroup2 cgroup2 rw\n",
                self.mount.display()
            );
            find(&membership, &mounts, is_root)
        }
    }

    impl Drop for Hierarchy {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.mount);
        }
    }

    #[test]
    fn a_group_that_is_delegated_is_found_and_no_other() {
        let delegated = Hierarchy::new("delegated", "cpu memory pids\n");
        let app = delegated.mount.join("app");
        assert_eq!(delegated.found(false, "/app/own"), Ok(app.clone()));
        assert_eq!(delegated.found(true, "/app"), Ok(app));
        // Root may write there, but it was not delegated to us.
        let taken = delegated.found(true, "/app/own");
        assert_eq!(taken, Err("memory and pids are not delegated to us".into()));
        let outside = delegated.found(false, "/../elsewhere");
        assert!(outside.is_err(), "{outside:?}");

        let partly = Hierarchy::new("partly", "cpu pids\n");
        let missing = partly.found(false, "/app/own");
        assert_eq!(
            missing,
            Err("memory and pids are not delegated to us".into())
        );
    }

    #[test]
    fn without_the_hierarchy_the_reason_is_given() {
        let no_member = find("3:memory:/\n", "", false);
        assert_eq!(no_member, Err("no version 2 hierarchy".into()));
        let not_mounted = find("0::/\n", "24 1 0:5 / /proc rw - proc proc rw\n", false);
        assert_eq!(
            not_mounted,
            Err("the version 2 hierarchy is not mounted".into())
        );
        let mounts = "30 24 0:26 /container /cg rw - cgroup2 cgroup2 rw\n";
        let elsewhere = find("0::/other\n", mounts, false);
        assert_eq!(
            elsewhere,
            Err("our control group is outside the mounted hierarchy".into())
        );
    }

    #[test]
    fn groups_of_killed_agents_are_removed() {
        let hierarchy = Hierarchy::new("swept", "memory pids\n");
        let app = hierarchy.mount.join("app");
        // No process has the number 0; this one is alive.
        let [stale, live] = [0, std::process::id()].map(|pid| app.join(format!("agent-{pid}-3")));
        for group in [&stale, &live] {
            fs::create_dir(group).unwrap();
        }
        sweep(&app);
        assert!(!stale.exists() && live.exists() && app.join("own").exists());
    }

    #[test]
    fn an_out_of_memory_kill_shows_in_the_groups_events() {
        let hierarchy = Hierarchy::new("events", "memory pids\n");
        let group = ControlGroup {
            path: hierarchy.mount.join("app"),
        };
        assert!(!group.ran_out_of_memory(), "no such file");
        for (count, expected) in [("0", false), ("2", true)] {
            let events = format!("low 0\nmax 7\noom 1\noom_kill {count}\noom_group_kill 0\n");
            fs::write(group.path.join("memory.events"), events).unwrap();
            assert_eq!(group.ran_out_of_memory(), expected);
        }
    }
}
