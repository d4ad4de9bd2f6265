//! The state machine of a call against a second model, which keeps all steps and answers by looking through them.
#![allow(clippy::unwrap_used, reason = "a failure is the report")]

use agent_protocol::payload::permission::Effect;
use agent_protocol::{CallFault, CallState, CallStatus, CallStep, Phase, is_before_execution};
use proptest::prelude::*;

/// All steps of a call, in their order.
#[derive(Debug, Default)]
struct Model(Vec<CallStep>);

impl Model {
    /// Steps that count: nothing moves a call after its observation.
    fn counted(&self) -> &[CallStep] {
        let end = self
            .0
            .iter()
            .position(|step| *step == CallStep::Observation);
        &self.0[..end.map_or(self.0.len(), |end| end + 1)]
    }

    /// Steps since the last validation of a call that had not started.
    fn round(&self) -> &[CallStep] {
        let steps = self.counted();
        let start = steps.iter().position(|step| *step == CallStep::Start);
        let before = &steps[..start.unwrap_or(steps.len())];
        let validation = before
            .iter()
            .rposition(|step| matches!(step, CallStep::Validation { .. }));
        &steps[validation.map_or(0, |at| at + 1)..]
    }

    fn has(&self, step: CallStep) -> bool {
        self.counted().contains(&step)
    }

    fn end(&self) -> Option<CallStatus> {
        self.counted().iter().find_map(|step| match step {
            CallStep::Result(status) | CallStep::Failure { status, .. } => Some(*status),
            _ => None,
        })
    }

    fn decision(&self) -> Option<Effect> {
        self.round().iter().rev().find_map(|step| match step {
            CallStep::Decision(effect) => Some(*effect),
            _ => None,
        })
    }

    fn is_answered(&self) -> bool {
        let mut steps = self.round().iter();
        steps.any(|step| matches!(step, CallStep::Answer(_)))
    }

    fn is_allowed(&self) -> bool {
        let resolution = self.round().iter().rev().find_map(|step| match step {
            CallStep::Resolution(effect) => Some(*effect),
            _ => None,
        });
        match self.decision() {
            Some(Effect::Allow) => resolution != Some(Effect::Deny),
            Some(Effect::Ask) => resolution == Some(Effect::Allow) && self.is_answered(),
            _ => false,
        }
    }

    fn is_pending(&self) -> bool {
        self.round().contains(&CallStep::Question)
            && !self.has(CallStep::Start)
            && !self.has(CallStep::Observation)
            && self.end().is_none()
    }

    fn status(&self) -> CallStatus {
        let validation = self.counted().iter().rev().find_map(|step| match step {
            CallStep::Validation { ok } => Some(*ok),
            _ => None,
        });
        let asks = self.decision() == Some(Effect::Ask);
        match self.end() {
            Some(end) => end,
            None if self.has(CallStep::Start) => CallStatus::Running,
            None if self.is_allowed() => CallStatus::Allowed,
            None if asks || self.round().contains(&CallStep::Question) => {
                CallStatus::WaitingPermission
            }
            None if validation == Some(true) => CallStatus::Validated,
            None if validation == Some(false) || self.has(CallStep::Intent) => CallStatus::Proposed,
            None => CallStatus::Unknown,
        }
    }

    /// Faults whose rule can be told in a line; the step has not been taken yet.
    fn expected(&self, step: CallStep) -> Vec<CallFault> {
        let mut faults = Vec::new();
        if self.has(CallStep::Observation) {
            if step != CallStep::Progress {
                faults.push(CallFault::AfterObservation);
            }
            return faults;
        }
        if self.0.is_empty() && step != CallStep::Intent {
            faults.push(CallFault::IntentMissing);
        }
        let has_started = self.has(CallStep::Start);
        match step {
            CallStep::Intent if !self.0.is_empty() => faults.push(CallFault::IntentRepeated),
            CallStep::Start if !self.is_allowed() => {
                faults.push(CallFault::StartWithoutPermission);
            }
            CallStep::Result(_) if self.end().is_none() && !has_started => {
                faults.push(CallFault::ResultWithoutStart);
            }
            CallStep::Failure { phase, .. } if has_started == is_before_execution(phase) => {
                faults.push(CallFault::PhaseContradictsStart);
            }
            CallStep::Observation if self.end().is_none() => {
                faults.push(CallFault::ObservationWithoutEnd);
            }
            _ => {}
        }
        if matches!(step, CallStep::Result(_) | CallStep::Failure { .. }) && self.end().is_some() {
            faults.push(CallFault::EndRepeated);
        }
        faults
    }
}

fn effect() -> impl Strategy<Value = Effect> {
    prop_oneof![Just(Effect::Allow), Just(Effect::Ask), Just(Effect::Deny)]
}

fn phase() -> impl Strategy<Value = Phase> {
    proptest::sample::select(Phase::ALL.to_vec())
}

fn step() -> impl Strategy<Value = CallStep> {
    prop_oneof![
        Just(CallStep::Intent),
        any::<bool>().prop_map(|ok| CallStep::Validation { ok }),
        Just(CallStep::Args),
        effect().prop_map(CallStep::Decision),
        Just(CallStep::Request),
        Just(CallStep::Question),
        proptest::option::of(effect()).prop_map(CallStep::Answer),
        effect().prop_map(CallStep::Resolution),
        Just(CallStep::Start),
        Just(CallStep::Progress),
        Just(CallStep::Sandbox),
        Just(CallStep::Process),
        Just(CallStep::Result(CallStatus::Ok)),
        phase().prop_map(|phase| CallStep::Failure {
            status: CallStatus::Failed,
            phase
        }),
        Just(CallStep::Observation),
    ]
}

/// A call as the pipeline writes it: rounds of questions, an answer, and an end.
fn whole_call() -> impl Strategy<Value = Vec<CallStep>> {
    use CallStep::*;
    let checked = || vec![Validation { ok: true }, Args];
    let asked = move |answer| {
        let mut steps = checked();
        steps.extend([Decision(Effect::Ask), Request, Question]);
        steps.extend([Answer(Some(answer)), Resolution(answer)]);
        steps
    };
    (0..4_usize, 0..5_usize).prop_map(move |(rounds, ending)| {
        let mut steps = vec![Intent];
        for _ in 0..rounds {
            steps.extend(asked(Effect::Allow));
        }
        let failure = |phase| Failure {
            status: CallStatus::Failed,
            phase,
        };
        match ending {
            0 => steps.extend([Validation { ok: false }, failure(Phase::Validate)]),
            1 => {
                steps.extend(checked());
                steps.extend([Decision(Effect::Deny), failure(Phase::Permission)]);
            }
            2 => {
                steps.extend(asked(Effect::Deny));
                steps.push(failure(Phase::Permission));
            }
            3 => {
                steps.extend(asked(Effect::Allow));
                steps.extend([Start, Sandbox, Process, failure(Phase::Execute)]);
            }
            _ => {
                steps.extend(checked());
                steps.extend([Decision(Effect::Allow), Start, Progress]);
                steps.push(Result(CallStatus::Ok));
            }
        }
        steps.extend([Observation, Progress]);
        steps
    })
}

proptest! {
    #[test]
    fn the_machine_answers_as_the_model(steps in proptest::collection::vec(step(), 0..24)) {
        let mut state = CallState::default();
        let mut model = Model::default();
        for step in steps {
            let faults = state.step(step);
            for fault in model.expected(step) {
                prop_assert!(faults.contains(&fault), "{fault:?} is missing at {step:?} after {model:?}");
            }
            model.0.push(step);
            prop_assert_eq!(state.status(), model.status(), "{:?}", model);
            prop_assert_eq!(state.is_allowed(), model.is_allowed(), "{:?}", model);
            prop_assert_eq!(state.is_pending(), model.is_pending(), "{:?}", model);
            let awaits = model.is_pending() && !model.is_answered();
            prop_assert_eq!(state.awaits_answer(), awaits, "{:?}", model);
            prop_assert_eq!(state.has_started(), model.has(CallStep::Start));
            prop_assert_eq!(state.has_ended(), model.end().is_some());
            prop_assert_eq!(state.is_observed(), model.has(CallStep::Observation));
        }
    }

    #[test]
    fn a_call_as_the_pipeline_writes_it_breaches_nothing(steps in whole_call()) {
        let mut state = CallState::default();
        for step in &steps {
            prop_assert_eq!(state.step(*step), vec![], "{:?} of {:?}", step, steps);
        }
        prop_assert!(state.is_observed() && state.has_ended());
    }

    /// Missing events make an open call unknown, never an ended one, and a call never ends twice.
    #[test]
    fn doubt_and_later_steps_change_no_end(steps in proptest::collection::vec(step(), 0..24), more in step()) {
        let mut state = CallState::default();
        for step in steps {
            state.step(step);
        }
        let before = state.clone();
        state.doubt();
        prop_assert_eq!(state.status() == CallStatus::Unknown || before.status() == state.status(), true);
        prop_assert_eq!(state.has_ended(), before.has_ended());
        state.step(more);
        if before.has_ended() {
            prop_assert_eq!(state.status(), before.status());
        }
    }
}
