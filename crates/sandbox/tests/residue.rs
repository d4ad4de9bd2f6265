//! Residue of a long session. The test is alone in its program because it counts everything the
//! process has open.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set itself up should stop there"
)]

use std::time::{Duration, Instant};

use agent_sandbox::{Command, ExitStatus, Policy, Sandbox, probe};

/// The processes below `parent`, or below this one.
fn children(parent: &str) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task"));
    let lists = tasks.into_iter().flatten().map(|task| {
        let list = task.unwrap().path().join("children");
        std::fs::read_to_string(list).unwrap_or_default()
    });
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}

fn entries(path: impl AsRef<std::path::Path>) -> usize {
    std::fs::read_dir(path).unwrap().count()
}

#[test]
fn a_thousand_commands_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["work", "session", "tmp"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let [work, session, tmp] = ["work", "session", "tmp"].map(|name| folder.path().join(name));
    let script = "sleep 99 & (setsid sleep 99 &); echo > /tmp/left; rm /tmp/left";
    let command = Command::Shell(script.into());
    let mut policy = Policy::new(&work, &session, &tmp, command);
    policy.environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
    let sandbox = Sandbox::of(probe(folder.path()));
    let run = || {
        let running = sandbox.spawn(&policy, Box::new(|_, _| {})).unwrap();
        assert_eq!(running.wait(None, None).status, ExitStatus::Code(0));
    };
    let mounts = || {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.lines().count()
    };
    let state = || {
        let threads = entries("/proc/self/task");
        (entries("/proc/self/fd"), threads, mounts(), entries(&tmp))
    };
    run();
    let before = state();
    for _ in 0..1000 {
        run();
    }
    assert_eq!(state(), before);
    let launcher = children("self");
    assert_eq!(launcher.len(), 1, "only the launcher is ours");
    // The last ones may still be taking their mounts down. What stays in each network that is kept is
    // its launcher and the reserve of that.
    let limit = Instant::now() + Duration::from_secs(60);
    let networks = children(&launcher[0]);
    assert!((1..=6).contains(&networks.len()), "{networks:?}");
    let inside = || networks.iter().map(|network| children(network));
    while inside().any(|left| left.len() > 1) && Instant::now() < limit {
        std::thread::yield_now();
    }
    let reserves: Vec<String> = inside().flatten().collect();
    assert!(inside().all(|left| left.len() == 1), "{reserves:?}");
    drop(sandbox);
    assert_eq!(children("self").len(), 0);
    let all = || networks.iter().chain(&reserves);
    let is_there = |pid: &String| std::path::Path::new("/proc").join(pid).exists();
    while all().any(is_there) && Instant::now() < limit {
        std::thread::yield_now();
    }
    assert!(!all().any(is_there));
}
