//! Answers of the scripted model: calls that make sense, calls that do not, and server faults.

use std::time::Duration;

use agent_test_support::model_server::{Fault, Script, Turn};
use serde_json::{Value, json};

use crate::random::Random;

/// A turn of one to six answers; with `faults`, some of them misbehave.
pub(crate) fn any(random: &mut Random, faults: bool) -> Script {
    let mut script = Script::new();
    for _ in 0..random.below(6) {
        let mut answer = calls(random);
        if faults && random.once_in(2) {
            answer = misbehave(answer, random);
        }
        script = script.turn(answer);
    }
    // Whatever is asked beyond the script: retries and what comes after refused calls.
    script.otherwise(|_, _| Turn::text("Done what I could.").using(900, 9))
}

fn calls(random: &mut Random) -> Turn {
    let mut turn =
        Turn::text(*random.one_of(&["", "Let me look.", "Now the next step."])).using(500, 20);
    for _ in 0..=random.below(3) {
        let (name, input) = call(random);
        turn = turn.and_call(name, input);
    }
    turn
}

fn call(random: &mut Random) -> (&'static str, Value) {
    let file = format!("file-{}.txt", random.below(6));
    let number = random.below(1_000);
    match random.below(12) {
        0 | 1 => ("read", json!({"path": file})),
        2 => (
            "write",
            json!({"path": file, "content": format!("line {number}\n").repeat(20)}),
        ),
        3 => (
            "edit",
            json!({"path": file, "edits": [{"old_string": "line 1", "new_string": format!("line {number}")}]}),
        ),
        4 => ("grep", json!({"pattern": "line [0-9]+"})),
        5 => ("glob", json!({"pattern": "**/*.txt"})),
        6 => (
            "bash",
            json!({"command": format!("echo {number} >> made-by-command.txt"), "description": "A step"}),
        ),
        7 => (
            "bash",
            json!({"command": "seq 1 20000; exit 3", "description": "A step"}),
        ),
        8 => (
            "bash",
            json!({"command": "sleep 0.2; sleep 61.75 & echo started", "description": "A step"}),
        ),
        9 => (
            "bash",
            json!({"command": format!("rm -f {file}; touch {file}.new"), "description": "A step"}),
        ),
        10 => (
            "bash",
            json!({"command": "curl http://127.0.0.1:1/", "description": "A step", "network": true}),
        ),
        _ => ("no_such_tool", json!({"path": 1})),
    }
}

fn misbehave(turn: Turn, random: &mut Random) -> Turn {
    match random.below(9) {
        0 => turn.fault(Fault::CutAfterEvents(2)),
        1 => turn.fault(Fault::CutAfterBytes(90)),
        2 => turn.fault(Fault::GarbageAfterEvents(1)),
        3 => turn.fault(Fault::ErrorAfterEvents(1)),
        4 => turn.fault(Fault::CloseAtOnce),
        5 => turn.fault(Fault::NotHttp),
        6 => turn.fault(Fault::Drip(7, Duration::from_millis(1))),
        7 => Turn::error(429, "slow down").header("retry-after", "0"),
        _ => Turn::error(500, "out of order"),
    }
}
