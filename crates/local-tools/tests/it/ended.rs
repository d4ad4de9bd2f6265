//! Random scripts of commands that end, are ended, or outlast their program: who ended each is in the
//! log once, and it is who did it first.

use std::collections::BTreeMap;
use std::sync::Barrier;

use agent_evidence::audit::Severity;
use agent_history::fold::{ExecutionEnvironment, Fold as _};
use agent_protocol::id::{ModelRequestId, ProcessId};
use agent_protocol::payload::process::TerminatedBy;
use agent_protocol::{Code, Event, Payload};
use agent_tool_runtime::{Cancel, CancelReason, ToolIntent};
use proptest::prelude::*;
use serde_json::json;

use crate::command::with;
use crate::stage::Stage;

/// Who asks a command in the background to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// By a call of `process_kill`.
    Model,
    /// By the same call, which no model made.
    Script,
    /// By the control plane.
    User,
}

/// How a command in the foreground ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    ByItself,
    Cancelled(CancelReason),
    TimeIsOver,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A command in the background, which waits to be told its end.
    Start,
    /// The one with this number, counted round, ends with this code.
    Ends(usize, i32),
    /// It ends itself by a signal.
    Dies(usize),
    IsKilled(usize, Who),
    /// By two at the same time.
    IsKilledTwice(usize, Who, Who),
    Foreground(How),
}

/// How a command ended, as the log says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Exit(i32),
    Signal(i32),
    /// And true if a call of a tool is named as the cause.
    By(TerminatedBy, bool),
    Lost,
}

impl Who {
    fn ends(self) -> End {
        match self {
            Self::Model => End::By(TerminatedBy::Model, true),
            Self::Script => End::By(TerminatedBy::User, true),
            Self::User => End::By(TerminatedBy::User, false),
        }
    }

    /// Asks it to end; false when it had ended.
    fn asks(self, stage: &Stage, process: &ProcessId) -> bool {
        let input = json!({"process_id": process});
        let intent = ToolIntent::new("process_kill", &input);
        let call = |intent| stage.call_with(&Cancel::new(), intent).code != Code::NoChange;
        match self {
            Self::Model => call(ToolIntent {
                model_request_id: Some(ModelRequestId::default()),
                ..intent
            }),
            Self::Script => call(intent),
            Self::User => stage.tools.processes.terminate(process),
        }
    }
}

/// A stage, and what the rule says of its commands: who is first to end one has ended it.
struct Told {
    stage: Stage,
    background: Vec<ProcessId>,
    /// What is possible, by command; nothing yet for one that runs.
    ends: BTreeMap<ProcessId, Vec<End>>,
    foreground: Vec<End>,
}

impl Told {
    fn take(&mut self, step: Step) {
        let pick = |number: usize| {
            let count = self.background.len();
            (count > 0).then(|| self.background[number % count].clone())
        };
        match step {
            Step::Start => self.start(),
            Step::Ends(number, code) => {
                if let Some(process) = pick(number) {
                    self.end(&process, &code.to_string(), End::Exit(code));
                }
            }
            Step::Dies(number) => {
                if let Some(process) = pick(number) {
                    self.end(&process, "die", End::Signal(9));
                }
            }
            Step::IsKilled(number, who) => {
                if let Some(process) = pick(number) {
                    let is_asked = who.asks(&self.stage, &process);
                    // Nobody waits for what the user asked for, so its end may not be there yet.
                    let known = self.ends.get_mut(&process).unwrap();
                    assert!(is_asked || !known.is_empty(), "it runs");
                    if known.is_empty() {
                        known.push(who.ends());
                    }
                }
            }
            Step::IsKilledTwice(number, one, other) => {
                if let Some(process) = pick(number) {
                    let start = Barrier::new(2);
                    let ask = |who: Who| {
                        start.wait();
                        who.asks(&self.stage, &process)
                    };
                    std::thread::scope(|scope| {
                        scope.spawn(|| ask(one));
                        ask(other);
                    });
                    let known = self.ends.get_mut(&process).unwrap();
                    if known.is_empty() {
                        known.extend([one.ends(), other.ends()]);
                    }
                }
            }
            Step::Foreground(how) => self.foreground(how),
        }
    }

    fn start(&mut self) {
        let number = self.background.len();
        let command = format!(
            "until [ -s end{number} ]; do sleep 0.01; done; read end < end{number}; \
             [ $end = die ] && kill -9 $$; exit $end"
        );
        let input = with(&command, json!({"background": true}));
        let started = self.stage.call("bash", &input);
        assert_eq!(started.code, Code::Ok, "{started:?}");
        let id = started.facts.data.process_id.unwrap();
        let process: ProcessId = id.parse().unwrap();
        self.ends.insert(process.clone(), Vec::new());
        self.background.push(process);
    }

    /// Tells it to end, and waits until it has.
    fn end(&mut self, process: &ProcessId, word: &str, end: End) {
        let number = self.background.iter().position(|known| known == process);
        self.stage
            .put(&format!("end{}", number.unwrap()), format!("{word}\n"));
        let input = json!({"process_id": process, "wait_ms": 60_000});
        let output = self.stage.call("process_output", &input);
        assert_eq!(output.facts.data.process_status.as_deref(), Some("ended"));
        let known = self.ends.get_mut(process).unwrap();
        if known.is_empty() {
            known.push(end);
        }
    }

    fn foreground(&mut self, how: How) {
        let marker = format!("running{}", self.foreground.len());
        let cancel = Cancel::new();
        let (command, more) = match how {
            How::ByItself => ("exit 3".to_owned(), json!({})),
            How::Cancelled(_) => (format!("touch {marker}; exec sleep 600"), json!({})),
            How::TimeIsOver => ("exec sleep 600".to_owned(), json!({"timeout_ms": 50})),
        };
        let intent = ToolIntent::new("bash", &with(&command, more));
        let begun = self.stage.project().join(marker);
        std::thread::scope(|scope| {
            if let How::Cancelled(reason) = how {
                let cancel = &cancel;
                scope.spawn(move || {
                    while !begun.exists() {
                        std::thread::yield_now();
                    }
                    cancel.raise(reason);
                });
            }
            self.stage.call_with(&cancel, intent);
        });
        self.foreground.push(match how {
            How::ByItself => End::Exit(3),
            How::TimeIsOver | How::Cancelled(CancelReason::Timeout) => {
                End::By(TerminatedBy::Policy, false)
            }
            How::Cancelled(CancelReason::Interrupted) => End::By(TerminatedBy::User, false),
            How::Cancelled(CancelReason::Terminated) => End::By(TerminatedBy::Runtime, false),
        });
    }

    /// What a program that comes later finds: each command that runs is lost, or has just ended.
    fn crash(&self) {
        let events = self.stage.after_a_crash();
        let found = ends(&events);
        for (process, possible) in &self.ends {
            let found = &found[process];
            assert_eq!(found.len(), 1, "{process}: {found:?}");
            let is_told = found[0] == End::Lost || possible.contains(&found[0]);
            assert!(is_told, "{process}: {found:?}, not {possible:?}");
        }
        assert_eq!(running(&events), Vec::<ProcessId>::new());
    }

    /// What the program leaves when it ends in order.
    fn shut_down(mut self) {
        self.stage.tools.processes.shutdown();
        for possible in self.ends.values_mut() {
            if possible.is_empty() {
                possible.push(End::By(TerminatedBy::Runtime, false));
            }
        }
        let events = self.stage.events();
        let mut found = ends(&events);
        for (process, possible) in &self.ends {
            let found = found.remove(process).unwrap();
            let is_told = found.len() == 1 && possible.contains(&found[0]);
            assert!(is_told, "{process}: {found:?}, not {possible:?}");
        }
        // What is left ran in the foreground, one after the other; ids sort by time.
        let foreground: Vec<End> = found.into_values().flatten().collect();
        assert_eq!(foreground, self.foreground);
        assert_eq!(running(&events), Vec::<ProcessId>::new());
        // The calls are said to be a model's, and no model was asked here.
        let mut found = self.stage.audit().unwrap().findings;
        found.retain(|finding| {
            finding.severity == Severity::Error && finding.code != "intent_without_answer"
        });
        assert!(found.is_empty(), "{found:?}");
    }
}

/// How each command that was started ended, as often as the log says so.
fn ends(events: &[Event]) -> BTreeMap<ProcessId, Vec<End>> {
    let mut ends: BTreeMap<ProcessId, Vec<End>> = BTreeMap::new();
    for event in events {
        let (process, end) = match &event.payload {
            Payload::ProcessStarted(started) => {
                ends.entry(started.process_id.clone()).or_default();
                continue;
            }
            Payload::ProcessCompleted(completed) => {
                let end = match (completed.exit_code, completed.signal) {
                    (Some(code), None) => End::Exit(code),
                    (None, Some(signal)) => End::Signal(signal),
                    neither => panic!("{neither:?}"),
                };
                (&completed.process_id, end)
            }
            Payload::ProcessTerminated(ended) => {
                let cause = event.scope.causation_id.as_ref();
                let cause = events.iter().find(|event| Some(&event.event_id) == cause);
                let is_call = cause.is_some_and(|cause| match &cause.payload {
                    Payload::ToolStarted(started) => started.tool_name == "process_kill",
                    _ => false,
                });
                (&ended.process_id, End::By(ended.by, is_call))
            }
            Payload::ProcessFailed(failed) => {
                assert_eq!(failed.code, Some(Code::Lost), "{failed:?}");
                (failed.process_id.as_ref().unwrap(), End::Lost)
            }
            _ => continue,
        };
        ends.get_mut(process).unwrap().push(end);
    }
    ends
}

/// The commands that run, as the read model says.
fn running(events: &[Event]) -> Vec<ProcessId> {
    let mut environment = ExecutionEnvironment::default();
    for event in events {
        environment.fold(event);
    }
    environment.active.into_keys().collect()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = || prop_oneof![Just(Who::Model), Just(Who::Script), Just(Who::User)];
    let how = prop_oneof![
        Just(How::ByItself),
        Just(How::Cancelled(CancelReason::Interrupted)),
        Just(How::Cancelled(CancelReason::Terminated)),
        Just(How::Cancelled(CancelReason::Timeout)),
        Just(How::TimeIsOver),
    ];
    let number = || 0_usize..4;
    let step = prop_oneof![
        6 => Just(Step::Start),
        2 => (number(), 0..5).prop_map(|(number, code)| Step::Ends(number, code)),
        1 => number().prop_map(Step::Dies),
        4 => (number(), who()).prop_map(|(number, who)| Step::IsKilled(number, who)),
        2 => (number(), who(), who()).prop_map(|(number, one, other)| {
            Step::IsKilledTwice(number, one, other)
        }),
        2 => how.prop_map(Step::Foreground),
    ];
    prop::collection::vec(step, 1..10)
}

fn check(steps: &[Step]) {
    let mut told = Told {
        stage: Stage::new(),
        background: Vec::new(),
        ends: BTreeMap::new(),
        foreground: Vec::new(),
    };
    for step in steps {
        told.take(*step);
    }
    told.crash();
    told.shut_down();
}

#[test]
fn a_command_that_the_model_kills_is_ended_by_the_model() {
    check(&[Step::Start, Step::IsKilled(0, Who::Model)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn who_ended_a_command_is_told_once_and_rightly(steps in steps()) {
        check(&steps);
    }
}
