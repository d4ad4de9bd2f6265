//! The scenarios of the comparison with other agents, each against the floor client.

use std::fs;

use agent_test_support::bench::{Table, median};
use agent_test_support::model_server::{ModelServer, Script, Turn};
use agent_test_support::project::TestProject;
use serde_json::json;

use crate::floor::{Step, write_steps};
use crate::measure::{Cost, fdatasync, run};
use crate::{AGENT, Options};

/// A conversation, and what the floor does after each answer.
struct Scenario {
    name: &'static str,
    /// How many times the floor's time ours may take.
    limit: f64,
    /// How much memory, in megabytes.
    memory: f64,
    script: fn() -> Script,
    work: fn() -> Vec<Step>,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "one-turn hello",
        limit: 12.0,
        memory: 20.0,
        script: || Script::new().turn(Turn::text("Hello.")),
        work: Vec::new,
    },
    Scenario {
        name: "fix-a-test chain, sandboxed, logged, synced",
        limit: 9.0,
        memory: 30.0,
        script: six_rounds,
        work: || {
            vec![
                Step::Read("test.sh"),
                Step::Shell("sh test.sh"),
                Step::Shell("grep -rn 'sum()' ."),
                Step::Read("src/sum.sh"),
                Step::Replace("src/sum.sh", "$2 + 1", "$2"),
                Step::Shell("sh test.sh"),
            ]
        },
    },
    Scenario {
        name: "200 reads",
        limit: 30.0,
        memory: 40.0,
        script: || {
            many(
                "read",
                |number| json!({"path": "README.md", "offset": 1, "limit": number + 1}),
            )
        },
        work: || (0..CALLS).map(|_| Step::Read("README.md")).collect(),
    },
    Scenario {
        name: "200 sandboxed commands",
        limit: 5.0,
        memory: 40.0,
        script: || {
            many(
                "bash",
                |number| json!({"command": format!("echo {number}"), "description": "A step"}),
            )
        },
        work: || (0..CALLS).map(|_| Step::Shell("echo 1")).collect(),
    },
    Scenario {
        name: "50 MB of output, all kept",
        limit: 3.0,
        memory: 40.0,
        script: || {
            Script::new()
                .turn(Turn::call(
                    "bash",
                    json!({"command": FIFTY_MEGABYTES, "description": "A step"}),
                ))
                .turn(Turn::text("Long."))
        },
        work: || vec![Step::Shell(FIFTY_MEGABYTES)],
    },
    Scenario {
        name: "a streamed answer of 20,000 pieces",
        limit: 3.0,
        memory: 40.0,
        script: || {
            Script::new()
                .turn(Turn::text(&"All work and no play. ".repeat(20_000)).in_deltas_of(22))
        },
        work: Vec::new,
    },
];

const CALLS: usize = 200;
const FIFTY_MEGABYTES: &str =
    "yes 'a line of fifty characters, as they often come' | head -c 50000000";

/// What the runs may do without being asked.
const RULES: &str = "[permissions]\nallow = [\"bash(sh test.sh)\", \"bash(yes *)\", \"bash(echo *)\", \"edit(src/**)\"]\n";

fn six_rounds() -> Script {
    Script::new()
        .turn(Turn::call("read", json!({"path": "test.sh"})))
        .turn(Turn::call(
            "bash",
            json!({"command": "sh test.sh", "description": "A step"}),
        ))
        .turn(Turn::call(
            "grep",
            json!({"pattern": "sum\\(\\)", "mode": "lines"}),
        ))
        .turn(Turn::call("read", json!({"path": "src/sum.sh"})))
        .turn(Turn::call(
            "edit",
            json!({"path": "src/sum.sh", "edits": [{"old_string": "$2 + 1", "new_string": "$2"}]}),
        ))
        .turn(Turn::call(
            "bash",
            json!({"command": "sh test.sh", "description": "A step"}),
        ))
        .turn(Turn::text(
            "Fixed: `sum` added one too many. `sh test.sh` passes.",
        ))
}

/// The same tool again and again, never twice with the same input.
fn many(tool: &str, input: fn(usize) -> serde_json::Value) -> Script {
    (0..CALLS)
        .fold(Script::new(), |script, number| {
            script.turn(Turn::call(tool, input(number)))
        })
        .turn(Turn::text("Done."))
}

/// A project with a failing test, and configuration that points to `server`.
pub(crate) fn project(server: &ModelServer) -> TestProject {
    let project = TestProject::new();
    let fixture =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/projects/sum");
    for file in ["README.md", "test.sh", "src/sum.sh"] {
        project.write(file, fs::read(fixture.join(file)).expect("the fixture"));
    }
    project.write_home(
        "config.toml",
        format!(
            "model = \"local/test-model\"\n[providers.local]\ndialect = \"openai-chat\"\nbase_url = \"{}\"\n\
             [providers.local.models.\"test-model\"]\ncontext_window = 8000000\n",
            server.openai_url()
        ),
    );
    project.write_home("rules.toml", RULES);
    project
}

/// One run of `agent` through a script.
pub(crate) fn ours(project: &TestProject) -> Cost {
    let rules = project.home().join("rules.toml");
    let rules = rules.to_str().expect("a plain path");
    run(
        project,
        &[
            AGENT,
            "run",
            "--rules",
            rules,
            "--max-steps",
            "5000",
            "Do the work.",
        ],
        0,
    )
}

pub(crate) fn measure(options: &Options, table: &mut Table) {
    for scenario in SCENARIOS {
        compare(scenario, options.rounds, table);
    }
    own_time_per_call(options, table);
}

fn compare(scenario: &Scenario, rounds: usize, table: &mut Table) {
    let mut floors = Vec::new();
    let mut runs = Vec::new();
    for _ in 0..rounds {
        let server = ModelServer::start((scenario.script)());
        let place = project(&server);
        runs.push(ours(&place));
        floors.push(floor(scenario, &server));
    }
    let wall = |costs: &[Cost]| median(costs.iter().map(|cost| cost.wall));
    table.ratio(scenario.name, wall(&runs), wall(&floors), scenario.limit);
    let peak = runs.iter().map(|cost| cost.peak).max().unwrap_or_default();
    table.amount(
        &format!("{}: memory at its peak", scenario.name),
        peak as f64 / 1024.0,
        "MB",
        scenario.memory,
    );
}

/// The floor's run with the requests that `recorded` was sent.
fn floor(scenario: &Scenario, recorded: &ModelServer) -> Cost {
    let server = ModelServer::start((scenario.script)());
    let place = project(&server);
    let mut work = (scenario.work)().into_iter();
    let mut steps = Vec::new();
    for (number, request) in recorded.requests().into_iter().enumerate() {
        let body = place.home().join(format!("body-{number}"));
        fs::write(&body, &request.body).expect("room");
        steps.push(Step::Send(body.to_str().expect("a plain path").to_owned()));
        steps.extend(work.next());
    }
    let list = place.home().join("steps");
    write_steps(&list, &steps);
    let address = server.url().replace("http://", "");
    let this = std::env::current_exe().expect("this program");
    run(
        &place,
        &[
            this.to_str().expect("a plain path"),
            "floor",
            &address,
            "/v1/chat/completions",
            list.to_str().expect("a plain path"),
        ],
        0,
    )
}

/// From the last byte of an answer to the first of the next request, less what the tool itself took.
fn own_time_per_call(options: &Options, table: &mut Table) {
    let mut own = Vec::new();
    let mut syncs = Vec::new();
    for _ in 0..options.rounds {
        let server = ModelServer::start(six_rounds());
        let place = project(&server);
        ours(&place);
        syncs.push(fdatasync(&place.home()));
        let tools = tool_times(&place);
        let requests = server.requests();
        let gaps = server
            .answered_at()
            .into_iter()
            .zip(requests.iter().skip(1))
            .map(|(answered, next)| next.arrived_at.saturating_duration_since(answered));
        own.extend(gaps.zip(tools).map(|(gap, tool)| gap.saturating_sub(tool)));
    }
    table.ratio(
        "own time per tool call of the chain, to one `fdatasync`",
        median(own),
        median(syncs),
        3.0,
    );
}

/// How long each tool itself ran, by the log, in whole milliseconds; what is shorter counts as ours.
fn tool_times(project: &TestProject) -> Vec<std::time::Duration> {
    log(project)
        .iter()
        .filter_map(|event| match &event.payload {
            agent_protocol::Payload::ToolObservation(observation) => {
                let milliseconds = observation.facts.duration_ms.unwrap_or_default();
                Some(std::time::Duration::from_millis(milliseconds))
            }
            _ => None,
        })
        .collect()
}

/// The events of the only session of `project`.
pub(crate) fn log(project: &TestProject) -> Vec<agent_protocol::Event> {
    fs::read(session(project).join("events.jsonl"))
        .expect("a log")
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| agent_protocol::Event::from_line(line).expect("an event"))
        .collect()
}

/// The directory of the only session of `project`.
pub(crate) fn session(project: &TestProject) -> std::path::PathBuf {
    fs::read_dir(project.root().join(".agent/sessions"))
        .expect("sessions")
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.join("events.jsonl").is_file())
        .expect("a session")
}
