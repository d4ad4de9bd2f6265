//! Networks of commands: each has one to itself while it runs, though another had it before.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot set itself up should stop there"
)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use agent_sandbox::{Command, Detection, ExitStatus, Finished, Policy, Running, Sandbox, Sink};

struct Fixture {
    folder: tempfile::TempDir,
    sandbox: Sandbox,
}

type Text = Arc<Mutex<Vec<u8>>>;

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work", "session", "tmp"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let sandbox = Sandbox::survey(folder.path());
        Self { folder, sandbox }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, script: &str) -> (Running, Text) {
        let command = Command::Shell(script.as_bytes().to_vec());
        let (work, session, tmp) = (self.at("work"), self.at("session"), self.at("tmp"));
        let mut policy = Policy::new(&work, &session, &tmp, command);
        policy.environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
        let text = Text::default();
        let kept = Arc::clone(&text);
        let sink: Sink = Box::new(move |_, bytes| kept.lock().unwrap().extend_from_slice(bytes));
        (self.sandbox.spawn(&policy, sink).unwrap(), text)
    }

    fn run(&self, script: &str) -> (Finished, String) {
        let (running, text) = self.start(script);
        (running.wait(None, None), read(&text))
    }
}

fn read(text: &Text) -> String {
    String::from_utf8(text.lock().unwrap().clone()).unwrap()
}

fn wait_for(text: &Text, word: &str) {
    while !read(text).contains(word) {
        std::thread::yield_now();
    }
}

const LISTEN: &str = "exec python3 -c '
import os, socket, time
server = socket.socket()
server.bind((\"127.0.0.1\", 7123))
server.listen()
print(\"listening\", flush=True)
while not os.path.exists(\"stop\"): time.sleep(0.01)'";

const CONNECT: &str = "python3 -c '
import socket
try:
    socket.create_connection((\"127.0.0.1\", 7123), 2)
    print(\"met\")
except OSError:
    print(\"nobody\")'";

#[test]
fn commands_do_not_meet_at_once_or_one_after_the_other() {
    let fixture = Fixture::new();
    let (server, text) = fixture.start(LISTEN);
    wait_for(&text, "listening");
    // Within one command the loopback works: the control.
    let both = format!("({LISTEN}) & until {CONNECT} | grep met; do :; done");
    assert_eq!(fixture.run(&both).1, "listening\nmet\n");
    for _ in 0..8 {
        assert_eq!(fixture.run(CONNECT).1, "nobody\n");
    }
    std::fs::write(fixture.at("work/stop"), "").unwrap();
    assert_eq!(server.wait(None, None).status, ExitStatus::Code(0));
    for _ in 0..8 {
        assert_eq!(fixture.run(CONNECT).1, "nobody\n");
    }
}

#[test]
fn networks_are_used_again() {
    let fixture = Fixture::new();
    let mut networks = BTreeSet::new();
    for _ in 0..40 {
        let (finished, network) = fixture.run("readlink /proc/self/ns/net");
        assert_eq!(finished.status, ExitStatus::Code(0));
        networks.insert(network);
    }
    assert!(networks.len() < 20, "{networks:?}");
    let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
    assert!(!networks.contains(&format!("{}\n", ours.display())));
}

#[test]
fn a_port_is_free_for_the_next_command() {
    let fixture = Fixture::new();
    // The server's end closes first, so the kernel keeps the port for a minute in this network.
    let serve = "exec python3 -c '
import socket
server = socket.socket()
server.bind((\"127.0.0.1\", 7124))
server.listen()
client = socket.create_connection((\"127.0.0.1\", 7124))
other, _ = server.accept()
other.close()
client.recv(1)
client.close()
print(open(\"/proc/self/net/sockstat\").read().split(\" tw \")[1].split()[0])'";
    for _ in 0..10 {
        assert_eq!(fixture.run(serve).1, "1\n");
    }
}

#[test]
fn an_attempt_is_counted_for_the_command_that_made_it() {
    let fixture = Fixture::new();
    let attempts = |finished: &Finished| -> u64 {
        let found = finished.violations.iter();
        found
            .filter(|violation| violation.detection == Detection::KernelCounter)
            .map(|violation| violation.count)
            .sum()
    };
    // An address for documentation, which no one has; there is no way out to it either.
    let tries =
        "exec 2>/dev/null 3<>/dev/tcp/192.0.2.1/9; exec 2>/dev/null 3<>/dev/tcp/192.0.2.1/9";
    for _ in 0..10 {
        let both = [tries, "true"].map(|script| attempts(&fixture.run(script).0));
        assert_eq!((both[0] > 0, both[1]), (true, 0), "{both:?}");
    }
}

#[test]
fn what_names_the_devices_of_the_machine_is_out_of_sight() {
    let fixture = Fixture::new();
    let (_, found) = fixture.run(
        "for name in /sys/class/net/*; do case ${name##*/} in lo|\\*) ;; *) echo $name; esac; done; find /sys -path '*/net/*' -name address ! -path '*/lo/*'",
    );
    assert_eq!(found, "");
    let (_, size) = fixture.run("test -r /sys/devices/system/cpu/online && echo readable");
    assert_eq!(size, "readable\n");
    let (_, written) = fixture.run("touch /sys/new /sys/devices/new 2>/dev/null || echo refused");
    assert_eq!(written, "refused\n");
}

#[test]
fn a_launcher_that_is_killed_is_replaced() {
    let fixture = Fixture::new();
    let (running, text) = fixture.start("echo there; while [ ! -e stop ]; do sleep 0.01; done");
    wait_for(&text, "there");
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let parent = rustix::process::Pid::from_raw(parent.unwrap().trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(parent, rustix::process::Signal::KILL).unwrap();
    std::fs::write(fixture.at("work/stop"), "").unwrap();
    running.wait(None, None);
    for _ in 0..20 {
        let (finished, text) = fixture.run("echo again");
        assert_eq!(
            (finished.status, text.as_str()),
            (ExitStatus::Code(0), "again\n")
        );
    }
}

#[test]
fn the_end_of_the_first_command_in_a_network_is_heard_of() {
    let fixture = Fixture::new();
    let scripts = ["echo one; exec sleep 60", "echo two; exec sleep 60"];
    let started = scripts.map(|script| {
        let (running, text) = fixture.start(script);
        wait_for(&text, "o");
        let first = rustix::process::Pid::from_raw(running.pid().try_into().unwrap()).unwrap();
        rustix::process::kill_process(first, rustix::process::Signal::KILL).unwrap();
        running
    });
    for running in started {
        assert_ne!(running.wait(None, None).status, ExitStatus::Code(0));
    }
}
