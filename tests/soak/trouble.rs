//! Trouble during a turn.

use std::process::{Child, ExitStatus};
use std::time::Duration;

use agent_test_support::model_server::ModelServer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::conversation;
use crate::place::Place;
use crate::random::Random;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    ModelServer,
    Killed,
    Interrupted,
    Terminated,
    TerminalClosed,
    FullDisk,
    SlowDisk,
    ClockJumps,
}

impl Trouble {
    pub(crate) fn any(random: &mut Random, place: &Place) -> Self {
        if place.has_a_small_disk() {
            return Self::FullDisk;
        }
        match random.below(20) {
            0..=3 => Self::None,
            4..=8 => Self::ModelServer,
            9..=13 => Self::Killed,
            14 => Self::Interrupted,
            15 => Self::Terminated,
            16 => Self::TerminalClosed,
            17 => Self::SlowDisk,
            _ => Self::ClockJumps,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ModelServer => "model server misbehaves",
            Self::Killed => "`kill -9`",
            Self::Interrupted => "Ctrl-C",
            Self::Terminated => "SIGTERM",
            Self::TerminalClosed => "terminal closed",
            Self::FullDisk => "disk full",
            Self::SlowDisk => "slow disk",
            Self::ClockJumps => "clock jumps",
        }
    }

    /// The program that brings it about, if it takes one.
    fn through(self, random: &mut Random) -> Vec<&'static str> {
        match self {
            Self::SlowDisk => vec![
                "strace",
                "-f",
                "-qq",
                "-o",
                "/dev/null",
                "-e",
                "trace=fdatasync,fsync",
                "-e",
                "inject=fdatasync,fsync:delay_exit=20000",
            ],
            Self::ClockJumps => vec![
                "faketime",
                "-f",
                *random.one_of(&["-3d", "+2h", "-90s", "+400d"]),
            ],
            _ => Vec::new(),
        }
    }
}

/// Plays one turn; the exit code, or 128 and the signal's number.
pub(crate) fn play(place: &Place, trouble: &Trouble, random: &mut Random) -> i32 {
    let faults = *trouble == Trouble::ModelServer;
    let server = ModelServer::start(conversation::any(random, faults));
    place.use_server(&server.openai_url());
    let rules = place.project.home().join("rules.toml");
    let sessions = place.sessions();
    let mut arguments = vec!["run", "--rules", rules.to_str().expect("a plain path")];
    let again = (!sessions.is_empty() && random.once_in(2)).then(|| random.one_of(&sessions));
    if let Some(session) = again {
        arguments.extend(["--session", session]);
    }
    if random.once_in(4) {
        arguments.extend(["--on-ask", "allow"]);
    }
    arguments.extend(["--max-steps", "12", "Do something."]);
    let mut child = place
        .command(&trouble.through(random), &arguments)
        .spawn()
        .expect("agent starts; faketime and strace have to be installed");
    let ended = disturb(&mut child, *trouble, random);
    code(ended)
}

fn disturb(child: &mut Child, trouble: Trouble, random: &mut Random) -> ExitStatus {
    let signal = match trouble {
        Trouble::Killed => Signal::SIGKILL,
        Trouble::Interrupted => Signal::SIGINT,
        Trouble::Terminated => Signal::SIGTERM,
        Trouble::TerminalClosed => Signal::SIGHUP,
        _ => return child.wait().expect("its end"),
    };
    // When, not whether, is left to chance: from the first system calls to the last answer.
    std::thread::sleep(Duration::from_micros(random.below(150_000)));
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
    if child.try_wait().expect("its state").is_none() {
        let _ = kill(pid, signal);
    }
    child.wait().expect("its end")
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}
