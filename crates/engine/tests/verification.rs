//! Random scripts of work, judged by the engine's fold and by a second, simple reading of the rule.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure is the report")]

use agent_engine::ThreadState;
use agent_engine::verification::failures::Failures;
use agent_protocol::id::{EvidenceId, ToolCallId, TurnId};
use agent_protocol::payload::conversation::{HistoryRollbackCompleted, TurnStarted};
use agent_protocol::payload::process::ProcessStarted;
use agent_protocol::payload::tool::{ToolArgs, ToolData, ToolResult};
use agent_protocol::payload::{SideEffect, SideEffectKind};
use agent_protocol::status::VerificationStatus;
use agent_protocol::{Event, Payload, Refs, Scope, Timestamp};
use proptest::prelude::*;
use serde_json::json;

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Edit,
    EditIgnored,
    Undo,
    NextTurn,
    /// A command that checks nothing and changes a file.
    Generate,
    Run(Check, Result),
    /// The same at the front of a pipeline whose last command succeeds.
    Piped(Check, Result),
    /// The same, changing a file itself.
    RunAndWrite(Check, Result),
    /// The script goes on afterwards: how the check ended is not kept.
    Hidden(Check),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    Tests,
    OneTest,
    Lint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Result {
    Passes,
    Fails,
}

impl Check {
    fn command(self) -> &'static str {
        match self {
            Self::Tests => "cargo test",
            Self::OneTest => "cargo test one",
            Self::Lint => "make lint",
        }
    }

    /// Whether a run of this one that passes says that `other` passes.
    fn covers(self, other: Self) -> bool {
        self == other || (self == Self::Tests && other == Self::OneTest)
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let check = prop_oneof![
        3 => Just(Check::Tests),
        1 => Just(Check::OneTest),
        2 => Just(Check::Lint)
    ];
    let result = prop_oneof![Just(Result::Passes), Just(Result::Fails)];
    let run = (check, result);
    let step = prop_oneof![
        4 => Just(Step::Edit),
        1 => Just(Step::EditIgnored),
        1 => Just(Step::Undo),
        1 => Just(Step::NextTurn),
        1 => Just(Step::Generate),
        6 => run.clone().prop_map(|(check, result)| Step::Run(check, result)),
        3 => run.clone().prop_map(|(check, result)| Step::Piped(check, result)),
        1 => run.clone().prop_map(|(check, result)| Step::RunAndWrite(check, result)),
        2 => run.prop_map(|(check, _)| Step::Hidden(check)),
    ];
    prop::collection::vec(step, 0..24)
}

/// The fold, fed with the events that such work leaves.
struct Folded {
    state: ThreadState,
    calls: u32,
}

impl Folded {
    fn tell(&mut self, call: Option<&ToolCallId>, payload: impl Into<Payload>) {
        let event = Event {
            event_id: Default::default(),
            timestamp: Timestamp::default(),
            sequence: 0,
            schema_version: "1".into(),
            runtime_id: Default::default(),
            session_id: Default::default(),
            scope: Scope {
                turn_id: Some(TurnId::default()),
                tool_call_id: call.cloned(),
                ..Scope::default()
            },
            payload: payload.into(),
            refs: Refs::default(),
            prev: String::new(),
        };
        self.state.apply(&event, &|_| None);
    }

    fn change(&mut self, ignored: bool) -> SideEffect {
        self.calls += 1;
        SideEffect {
            kind: SideEffectKind::Created,
            path: format!("file-{}", self.calls),
            sha256_after: Some(format!("sha256:{}", self.calls)),
            ignored: ignored.then_some(true),
            ..SideEffect::default()
        }
    }

    fn call(&mut self, command: Option<&str>, data: ToolData, effects: Vec<SideEffect>) {
        self.calls += 1;
        let call: ToolCallId = format!("call_{:026}", self.calls).parse().unwrap();
        if let Some(command) = command {
            let args = ToolArgs {
                safe_args: Some(json!({ "command": command })),
                ..ToolArgs::default()
            };
            self.tell(Some(&call), args);
            let started = ProcessStarted {
                cwd: "/project".into(),
                ..ProcessStarted::default()
            };
            self.tell(Some(&call), started);
        }
        let result = ToolResult {
            data,
            side_effects: effects,
            ..ToolResult::default()
        };
        self.tell(Some(&call), result);
        for run in self.state.turn.pending_verifications() {
            let record = run.record(EvidenceId::default(), false, Failures::default());
            self.tell(Some(&call), record);
        }
    }

    fn take(&mut self, step: Step) {
        let exit = |result: Result| i32::from(result == Result::Fails);
        let ended = |exit_code: i32| ToolData {
            exit_code: Some(exit_code),
            ..ToolData::default()
        };
        match step {
            Step::Edit | Step::EditIgnored => {
                let change = self.change(step == Step::EditIgnored);
                self.call(None, ToolData::default(), vec![change]);
            }
            Step::Undo => {
                let change = self.change(false);
                let undone = HistoryRollbackCompleted {
                    files_restored: vec![change],
                    ..HistoryRollbackCompleted::default()
                };
                self.tell(None, undone);
            }
            Step::NextTurn => self.tell(None, TurnStarted::default()),
            Step::Generate => {
                let change = self.change(false);
                self.call(Some("./generate"), ended(0), vec![change]);
            }
            Step::Run(check, result) => {
                self.call(Some(check.command()), ended(exit(result)), Vec::new());
            }
            Step::RunAndWrite(check, result) => {
                let change = self.change(false);
                self.call(Some(check.command()), ended(exit(result)), vec![change]);
            }
            Step::Piped(check, result) => {
                let command = format!("{} 2>&1 | tail -20", check.command());
                let data = ToolData {
                    pipe_status: Some(vec![exit(result), 0]),
                    ..ended(0)
                };
                self.call(Some(&command), data, Vec::new());
            }
            Step::Hidden(check) => {
                let command = format!("{}; echo done", check.command());
                self.call(Some(&command), ended(0), Vec::new());
            }
        }
    }
}

/// The rule, read anew from the whole script.
fn expected(steps: &[Step]) -> VerificationStatus {
    let turn = steps.iter().rposition(|step| *step == Step::NextTurn);
    let turn = turn.map_or(0, |at| at + 1);
    let changes = |step: &Step| {
        matches!(
            step,
            Step::Edit | Step::Undo | Step::Generate | Step::RunAndWrite(..)
        )
    };
    let last_change = steps.iter().rposition(changes);
    // What a run changes comes before what it says.
    let is_fresh = |at: usize| last_change.is_none_or(|change| at >= change);
    let run = |at: usize| match steps[at] {
        Step::Run(check, result)
        | Step::Piped(check, result)
        | Step::RunAndWrite(check, result) => Some((check, Some(result))),
        Step::Hidden(check) => Some((check, None)),
        _ => None,
    };
    let runs: Vec<(usize, Check, Option<Result>)> = (0..steps.len())
        .filter_map(|at| run(at).map(|(check, result)| (at, check, result)))
        .collect();
    if !runs.iter().any(|(at, ..)| *at >= turn) {
        return if steps[turn..].iter().any(changes) {
            VerificationStatus::Unverified
        } else {
            VerificationStatus::NotApplicable
        };
    }
    let answered = |at: usize, check: Check| {
        runs.iter().any(|(later, by, result)| {
            *later > at && *result == Some(Result::Passes) && by.covers(check)
        })
    };
    let failed: Vec<usize> = runs
        .iter()
        .filter(|(at, check, result)| *result == Some(Result::Fails) && !answered(*at, *check))
        .map(|(at, ..)| *at)
        .collect();
    let hidden = runs.iter().any(|(at, check, result)| {
        let fails_later = runs
            .iter()
            .any(|(later, by, result)| later > at && by == check && *result == Some(Result::Fails));
        result.is_none() && *at >= turn && is_fresh(*at) && !answered(*at, *check) && !fails_later
    });
    let passed = runs
        .iter()
        .any(|(at, _, result)| *at >= turn && is_fresh(*at) && *result == Some(Result::Passes));
    if failed.iter().any(|at| is_fresh(*at)) {
        VerificationStatus::Failed
    } else if hidden {
        VerificationStatus::CouldNotBeJudged
    } else if !failed.is_empty() {
        VerificationStatus::Stale
    } else if passed {
        VerificationStatus::Passed
    } else {
        VerificationStatus::Stale
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_fold_follows_the_rule(steps in steps()) {
        let mut folded = Folded { state: ThreadState::default(), calls: 0 };
        for (at, step) in steps.iter().enumerate() {
            folded.take(*step);
            let found = folded.state.turn.verification.status();
            let so_far = &steps[..=at];
            prop_assert_eq!(found, expected(so_far), "{:?}", so_far);
        }
    }
}
