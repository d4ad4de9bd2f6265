//! What it takes to start, against `/bin/true`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent_test_support::bench::{Table, median};
use agent_test_support::model_server::{ModelServer, Script, Turn};

use crate::scenarios::project;
use crate::{AGENT, Options};

pub(crate) fn measure(options: &Options, table: &mut Table) {
    let rounds = options.rounds * 10;
    let mut nothing = Vec::new();
    let mut version = Vec::new();
    for _ in 0..rounds {
        nothing.push(time("/bin/true", &[]));
        version.push(time(AGENT, &["--version"]));
    }
    let nothing = median(nothing);
    table.ratio(
        "`agent --version`, to `/bin/true`",
        median(version),
        nothing,
        2.0,
    );
    let requests = median((0..rounds).map(|_| first_request()));
    table.ratio(
        "start to the first byte of the model request, to `/bin/true`",
        requests,
        nothing,
        12.0,
    );
    for (name, arguments) in [
        ("`agent --version`", &["--version"][..]),
        ("`agent run`, a hello", &["run", "Hello."]),
    ] {
        if let Some(count) = system_calls(arguments) {
            table.note(&format!("system calls of {name}"), &count.to_string());
        }
    }
}

fn time(program: &str, arguments: &[&str]) -> Duration {
    let start = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("the program starts");
    assert!(status.success());
    start.elapsed()
}

/// In a project and a home that are new, so that nothing was kept from an earlier run.
fn first_request() -> Duration {
    let server = ModelServer::start(Script::new().turn(Turn::text("Hello.")));
    let place = project(&server);
    let start = Instant::now();
    let mut child = command(&place, AGENT)
        .args(["run", "Hello."])
        .spawn()
        .expect("agent starts");
    let requests = server.wait_for_requests(1);
    child.wait().expect("its end");
    requests[0].arrived_at - start
}

/// All system calls of a run and its children; nothing where there is no `strace`.
fn system_calls(arguments: &[&str]) -> Option<u64> {
    let server = ModelServer::start(Script::new().turn(Turn::text("Hello.")));
    let place = project(&server);
    let summary = place.home().join("strace");
    let status = command(&place, "strace")
        .args(["-f", "-c", "-o"])
        .arg(&summary)
        .arg(AGENT)
        .args(arguments)
        .status()
        .ok()?;
    assert!(status.success());
    let summary = std::fs::read_to_string(summary).expect("a summary");
    let total = summary.lines().find(|line| line.ends_with("total"))?;
    total.split_whitespace().nth(3)?.parse().ok()
}

fn command(place: &agent_test_support::project::TestProject, program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(place.root())
        .env_clear()
        .env("AGENT_HOME", place.home())
        .env("HOME", place.home())
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}
