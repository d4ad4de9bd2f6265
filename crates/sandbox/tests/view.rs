//! The part of the machine that a command sees which nobody looked at: the project, what programs need,
//! what was opened, and no more.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot set itself up should stop there"
)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use agent_sandbox::{
    Capabilities, Command, Execution, ExitStatus, Feature, Layer, Policy, ReadAccess, WriteAccess,
    prepare, probe,
};

/// In every file that is not for the command.
const MARK: &str = "not-for-it";

/// A place that is neither a home nor temporary, with a project, its neighbours and tools.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let place = Self { folder };
        for name in ["work/project", "session", "tmp", "opened"] {
            std::fs::create_dir_all(place.at(name)).unwrap();
        }
        for (name, text) in [
            ("work/project/own", "of-the-project"),
            ("work/neighbour/file", MARK),
            ("work/project.old/file", MARK),
            ("opened/one", "opened-one"),
            ("opened/other", MARK),
            ("opened/all/inner", "opened-all"),
            ("tools/bin/tool", "#!/bin/sh\ncat ${0%/bin/tool}/lib/text\n"),
            ("tools/lib/text", "text-of-the-tool"),
            ("tools/notes", MARK),
        ] {
            let file = place.at(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, format!("{text}\n")).unwrap();
            std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).unwrap();
        }
        // As if they had been swapped since the decision.
        symlink(
            place.at("work/neighbour/file"),
            place.at("work/project/link"),
        )
        .unwrap();
        symlink(place.at("work/neighbour"), place.at("work/project/dir")).unwrap();
        symlink("../neighbour/file", place.at("work/project/up")).unwrap();
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        std::fs::canonicalize(self.folder.path())
            .unwrap()
            .join(name)
    }

    fn policy(&self, script: &str, opened: &[&str]) -> Policy {
        let command = Command::Shell(script.as_bytes().to_vec());
        let (project, session, tmp) = (self.at("work/project"), self.at("session"), self.at("tmp"));
        let mut policy = Policy::new(&project, &session, &tmp, command);
        let path = format!("{}:/usr/bin:/bin", self.at("tools/bin").display());
        policy.environment = vec![
            ("PATH".into(), path.into()),
            ("BASE".into(), self.at("").into()),
        ];
        policy.write_access = WriteAccess::ReadOnly;
        policy.execution = Execution::NothingOfTheProject;
        policy.read_access = ReadAccess::Needed {
            opened: opened.iter().map(|name| self.at(name)).collect(),
        };
        policy
    }

    /// What a script prints, and whether the layer was seen to hold.
    fn run(&self, policy: &Policy, capabilities: &Capabilities) -> (String, bool) {
        let confined = prepare(policy, capabilities).unwrap();
        let holds = confined
            .report()
            .unwrap()
            .layers
            .contains(&Layer::MachineHidden);
        let output = Arc::new(Mutex::new(Vec::new()));
        let copy = Arc::clone(&output);
        let sink = move |_, bytes: &[u8]| copy.lock().unwrap().extend_from_slice(bytes);
        let finished = confined.start(Box::new(sink)).unwrap().wait(None, None);
        let text = String::from_utf8_lossy(&output.lock().unwrap()).into_owned();
        assert_eq!(finished.status, ExitStatus::Code(0), "{text}");
        (text, holds)
    }
}

/// Every level of this machine that runs commands unasked.
fn levels() -> Vec<Capabilities> {
    let scratch = tempfile::tempdir().unwrap();
    let here = probe(scratch.path());
    let all = [None, Some(Feature::Landlock), Some(Feature::UserNamespaces)];
    let all = all.map(|missing| {
        missing.map_or_else(|| here.clone(), |feature| here.clone().without(feature))
    });
    let found: Vec<_> = all
        .into_iter()
        .filter(|level| level.level().may_run_unasked())
        .collect();
    assert!(found.len() >= 2, "{:?}", here.reasons());
    found
}

const READS: &str = "cat link dir/file up ../neighbour/file ../project.old/file $BASE/work/neighbour/file; \
    cat /proc/self/root/$BASE/work/neighbour/file /proc/self/cwd/../neighbour/file /proc/1/root/$BASE/work/neighbour/file; \
    cat $BASE/opened/one $BASE/opened/other $BASE/opened/all/inner $BASE/opened/* $BASE/tools/notes $BASE/work/*/file; grep -rs for-it dir/ .. $BASE; grep -Rs for-it .; \
    (cd / && cat .$BASE/work/neighbour/file); (cd dir && cat file); find $BASE -type f -exec cat {} +; \
    find / -xdev -path /proc -prune -o -name 'file' -path '*neighbour*' -print; \
    exec 5<link && cat <&5; mapfile -t x < up; echo ${x[@]}; \
    cat own; true";

#[test]
fn nothing_else_of_the_machine_is_there() {
    for level in levels() {
        let place = Place::new();
        let (text, holds) = place.run(&place.policy(READS, &[]), &level);
        assert!(holds, "{:?}", level.level());
        assert!(!text.contains(MARK), "{:?}: {text}", level.level());
        assert!(!text.contains("opened-"), "{:?}: {text}", level.level());
        assert!(text.contains("of-the-project"), "{text}");
        // The same without the view, so that a script which shows nothing is noticed.
        let mut policy = place.policy(READS, &[]);
        policy.read_access = ReadAccess::Machine;
        let (text, holds) = place.run(&policy, &level);
        // Below a home directory it is hidden from every command.
        let in_a_home = ["/home", "/root"]
            .iter()
            .any(|home| place.at("").starts_with(home));
        assert!(!holds, "{text}");
        assert_eq!(text.matches(MARK).count() > 20, !in_a_home, "{text}");
    }
}

#[test]
fn what_was_opened_is_there_and_nothing_beside_it() {
    for level in levels() {
        let place = Place::new();
        let (text, _) = place.run(&place.policy(READS, &["opened/one", "opened/all"]), &level);
        assert!(
            text.contains("opened-one") && text.contains("opened-all"),
            "{text}"
        );
        assert!(!text.contains(MARK), "{:?}: {text}", level.level());
        // Also what surrounds the project, and not what is hidden from everybody.
        let mut policy = place.policy(
            "cat ../neighbour/file; cat ../project.old/file; true",
            &["work"],
        );
        policy.hidden = vec![place.at("work/project.old")];
        let (text, _) = place.run(&policy, &level);
        assert_eq!(text.matches(MARK).count(), 1, "{:?}: {text}", level.level());
        // What is opened is there to be read, not to be executed.
        let script = "$BASE/opened/run executed; head -c 4 $BASE/opened/run; echo read";
        std::fs::copy("/bin/echo", place.at("opened/run")).unwrap();
        let (text, _) = place.run(&place.policy(script, &["opened/run"]), &level);
        assert!(text.contains("ELFread"), "{text}");
        assert!(!text.contains("executed\n"), "{:?}: {text}", level.level());
    }
}

#[test]
fn programs_start_and_load_what_lies_beside_them() {
    for level in levels() {
        let place = Place::new();
        let script = "tool && id -un && ls -l own && date +%Y && git --version && awk 'BEGIN { print 1 }' && \
                      perl -e 'print 2' && test -r /etc/passwd && echo done";
        let mut policy = place.policy(script, &[]);
        // As for tools below a home directory, which is hidden.
        policy.readable = vec![place.at("tools/bin"), place.at("tools/lib")];
        let (text, _) = place.run(&policy, &level);
        assert!(
            text.contains("text-of-the-tool"),
            "{:?}: {text}",
            level.level()
        );
        assert!(text.contains("done"), "{:?}: {text}", level.level());
    }
}

/// Settings of the machine and what is kept in `/var` are nobody's work, and nothing that programs need.
#[test]
fn of_settings_only_what_programs_look_at_is_there() {
    for level in levels() {
        let place = Place::new();
        let script = "for f in /etc/hosts /etc/fstab /etc/login.defs /etc/shadow /etc/ssh /etc/cron.d /var/log /var/spool \
                      /var/cache /var/backups /srv /mnt /media /boot; do \
                      find $f -mindepth 1 2>/dev/null; test -s $f -a -f $f && echo $f; done; \
                      mkdir /etc/new; touch /var/new /srv/new; true";
        let (text, _) = place.run(&place.policy(script, &[]), &level);
        // The place itself may lie in one of these.
        let (own, lines) = (place.at(""), text.lines().map(std::path::Path::new));
        let seen: Vec<_> = lines
            .filter(|line| line.is_absolute() && !own.starts_with(line) && !line.starts_with(&own))
            .collect();
        assert!(seen.is_empty(), "{:?}: {seen:?}", level.level());
    }
}
