//! The binary on a terminal: how long until something is there, in a new session and in one of
//! 100,000 events, and until one can go on. `cargo bench -p agent-cli --bench long`
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    reason = "a measurement that cannot go on should stop where it stands; the helpers are the tests'"
)]

#[path = "../../../tests/sample.rs"]
mod sample;
#[path = "../../../tests/screen/terminal.rs"]
mod terminal;

use std::time::{Duration, Instant};

use agent_test_support::bench::{Table, is_measured, median};
use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use agent_test_support::run::Run;

use terminal::Terminal;

const ROUNDS: usize = 5;
const AT_ONCE: Duration = Duration::from_millis(300);
const SIZE: (u16, u16) = (100, 40);

fn main() {
    let turns = if is_measured() { 100_000 / 13 } else { 20 };
    let server = ModelServer::start(Script::new().otherwise(|_, _| Turn::text("Done.")));
    let project = session_of(turns, &server);
    let short = session_of(1, &server);
    let mut table = Table::new("long: a session of 100,000 events");

    let version = timed(|| {
        let run = Run::new(env!("CARGO_BIN_EXE_agent"), &short).args(["--version"]);
        run.finish().expect_code(0);
    });
    let opened = timed(|| {
        let mut terminal = Terminal::start(&short, &[], SIZE);
        terminal.wait_for("local/m");
    });
    table.time(
        "a new session: first frame, against 1.5 times `agent --version` and 15 ms",
        opened,
        version.mul_f64(1.5) + Duration::from_millis(15),
    );
    let resumed = timed(|| {
        let mut terminal = Terminal::start(&project, &["resume", "last"], SIZE);
        terminal.wait_for("what is in the file?");
    });
    table.time("resume: first frame", resumed, AT_ONCE);
    let replayed = timed(|| {
        let mut terminal = Terminal::start(&project, &["replay", "last"], SIZE);
        terminal.wait_for("replay, nothing runs");
    });
    table.time("replay: first frame", replayed, AT_ONCE);
    let went_on = timed(|| go_on(&project));
    let baseline = timed(|| go_on(&short));
    table.compare(
        "one more turn, against that of a session of one",
        went_on,
        baseline,
    );
    table.finish();
}

fn session_of(turns: usize, server: &ModelServer) -> TestProject {
    let project = TestProject::new();
    project.write_home(
        "config.toml",
        format!(
            "model = \"local/m\"\n[providers.local]\ndialect = \"openai-chat\"\nbase_url = \"{}\"\n\
             [providers.local.models.m]\ncontext_window = 100000000\n",
            server.base_url(Wire::Chat)
        ),
    );
    let writer = sample::begin(&project, 1, "long");
    for _ in 0..turns {
        sample::turn(&writer);
    }
    sample::end(&writer);
    project
}

fn go_on(project: &TestProject) {
    Run::new(env!("CARGO_BIN_EXE_agent"), project)
        .args(["run", "--session", "last", "Go on."])
        .finish()
        .expect_code(0);
}

fn timed(mut measured: impl FnMut()) -> Duration {
    median((0..ROUNDS).map(|_| {
        let started = Instant::now();
        measured();
        started.elapsed()
    }))
}
