//! Questions and their answers: whatever happens around a question, an answer is applied or refused
//! with the reason, and the question is settled once.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use agent_engine::{Control, Interrupt, OnAsk, SessionAuthority, TurnEnd};
use agent_protocol::command::RespondAction;
use agent_protocol::id::ActionId;
use agent_protocol::payload::conversation::Budget;
use agent_protocol::payload::permission::ActionDecision;
use agent_protocol::reply::{Acknowledgement, ControlAnswer};
use agent_protocol::status::Mode;
use agent_protocol::{Event, Payload};
use agent_tool_runtime::Registry;
use proptest::prelude::*;
use serde_json::json;

use crate::stage::{Pretended, Session, TWO_STEPS, session_with};

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.register(Arc::new(Pretended::new())).unwrap();
    registry
}

fn answer(action_id: &ActionId, decision: ActionDecision) -> RespondAction {
    RespondAction {
        action_id: action_id.clone(),
        decision,
        ..RespondAction::default()
    }
}

fn has_started(events: &[Event]) -> bool {
    let is_start = |event: &Event| event.payload.type_name() == "tool.started";
    events.iter().any(is_start)
}

/// Whoever answers as soon as the question can be seen is heard.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_with_the_question_is_not_lost() {
    let script = TWO_STEPS.replace("look", "write");
    let mut session = session_with(&script, registry(), OnAsk::Interactive);
    let control = Arc::clone(&session.control);
    let answers: Arc<Mutex<Vec<Acknowledgement>>> = Arc::default();
    let noted = Arc::clone(&answers);
    session.subscribe(move |event| {
        if let (Payload::ActionRequired(_), Some(action)) = (&event.payload, &event.scope.action_id)
        {
            let answered = control.respond(answer(action, ActionDecision::AllowOnce), |_| {});
            noted.lock().unwrap().push(answered.acknowledgement);
        }
    });
    let turn = session.submit("Do it.");
    assert!(matches!(session.run(turn).await, TurnEnd::Completed(_)));
    assert_eq!(*answers.lock().unwrap(), [Acknowledgement::Accepted]);
    assert!(has_started(&session.events()));
}

/// A question that an earlier run left open takes answers as soon as its session is open again,
/// whenever the engine comes to it.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_a_question_of_an_earlier_run_is_not_lost() {
    let script = TWO_STEPS.replace("look", "write");
    let mut session = session_with(&script, registry(), OnAsk::Wait);
    let turn = session.submit("Do it.");
    assert!(matches!(session.run(turn.clone()).await, TurnEnd::LeftOpen));
    let mut session = session.restarted(TWO_STEPS, registry(), OnAsk::Interactive);
    let asked = |event: &Event| match event.payload {
        Payload::ActionRequired(_) => event.scope.action_id.clone(),
        _ => None,
    };
    let action = session.events().iter().find_map(asked).unwrap();
    let heard = session
        .control
        .respond(answer(&action, ActionDecision::AllowOnce), |_| {});
    assert_eq!(heard.acknowledgement, Acknowledgement::Accepted);
    let interrupt = Interrupt::new();
    let went_on = session
        .engine
        .continue_turn(turn, Budget::default(), &interrupt);
    assert!(matches!(went_on.await.unwrap(), TurnEnd::Completed(_)));
    assert!(has_started(&session.events()));
}

/// What somebody does while a question is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Act {
    Mode(Mode),
    Answer(ActionDecision),
    /// Lets others go first.
    Yield,
}

/// What settled a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum By {
    Mode(Mode),
    Answer(ActionDecision),
}

impl By {
    fn allows(self) -> bool {
        matches!(
            self,
            Self::Mode(Mode::AcceptEdits) | Self::Answer(ActionDecision::AllowOnce)
        )
    }
}

/// What an answer came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Heard {
    Applied,
    /// Too late, and this was first.
    Refused(By),
}

/// What happens to one question: a change between its judgement and its registration, then what each
/// of several people does, one act after the other.
#[derive(Clone, Debug)]
struct Round {
    early: Option<Mode>,
    people: Vec<Vec<Act>>,
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let mode = prop_oneof![
        3 => Just(Mode::Ask),
        1 => Just(Mode::AcceptEdits),
        1 => Just(Mode::ReadOnly)
    ];
    let decision = prop_oneof![Just(ActionDecision::AllowOnce), Just(ActionDecision::Deny)];
    let act = prop_oneof![
        3 => mode.clone().prop_map(Act::Mode),
        2 => decision.prop_map(Act::Answer),
        2 => Just(Act::Yield)
    ];
    let person = prop::collection::vec(act, 1..5);
    let round = (
        prop::option::weighted(0.2, mode),
        prop::collection::vec(person, 1..3),
    );
    let round = round.prop_map(|(early, people)| Round { early, people });
    prop::collection::vec(round, 1..8)
}

/// The rule: a question is open until the first answer, or the first mode that does not ask. Acts are
/// those of all people, each with who did it.
fn expected(
    early: Option<Mode>,
    acts: &[(usize, Act)],
    people: usize,
) -> (Option<By>, Vec<Vec<Heard>>) {
    let settles = |mode: Mode| (mode != Mode::Ask).then_some(By::Mode(mode));
    let mut settled = early.and_then(settles);
    let mut heard = vec![Vec::new(); people];
    for (who, act) in acts {
        match (*act, settled) {
            (Act::Answer(_), Some(by)) => heard[*who].push(Heard::Refused(by)),
            (Act::Answer(decision), None) => {
                settled = Some(By::Answer(decision));
                heard[*who].push(Heard::Applied);
            }
            (Act::Mode(mode), None) => settled = settles(mode),
            (Act::Mode(_), Some(_)) | (Act::Yield, _) => {}
        }
    }
    (settled, heard)
}

/// Every order in which the acts of several people can come.
fn orders(people: &[Vec<Act>]) -> Vec<Vec<(usize, Act)>> {
    fn go(left: &[&[Act]], so_far: &mut Vec<(usize, Act)>, all: &mut Vec<Vec<(usize, Act)>>) {
        let mut ended = true;
        for who in 0..left.len() {
            let Some((act, rest)) = left[who].split_first() else {
                continue;
            };
            ended = false;
            let mut left = left.to_vec();
            left[who] = rest;
            so_far.push((who, *act));
            go(&left, so_far, all);
            so_far.pop();
        }
        if ended {
            all.push(so_far.clone());
        }
    }
    let people: Vec<&[Act]> = people.iter().map(Vec::as_slice).collect();
    let mut all = Vec::new();
    go(&people, &mut Vec::new(), &mut all);
    all
}

/// Everything that somebody can do something to.
#[derive(Clone)]
struct Handles {
    control: Arc<Control>,
    authority: Arc<SessionAuthority>,
}

impl Handles {
    fn of(session: &Session) -> Self {
        Self {
            control: Arc::clone(&session.control),
            authority: Arc::clone(&session.authority),
        }
    }

    fn set_mode(&self, mode: Mode) {
        let unrecorded = || Ok::<(), Infallible>(());
        self.authority.set_mode(mode, unrecorded).unwrap();
    }
}

/// The acts of one person, and what came of the answers.
fn act(handles: &Handles, action: &ActionId, acts: &[Act]) -> Vec<ControlAnswer> {
    let mut answers = Vec::new();
    for act in acts {
        match *act {
            Act::Mode(mode) => {
                handles.set_mode(mode);
            }
            Act::Answer(decision) => {
                answers.push(handles.control.respond(answer(action, decision), |_| {}))
            }
            Act::Yield => std::thread::yield_now(),
        }
    }
    answers
}

/// What an acknowledgement says; a reason that does not name what was first is none.
fn heard(answer: &ControlAnswer) -> Option<Heard> {
    let reason = answer.reason.as_deref().unwrap_or_default();
    if answer.acknowledgement == Acknowledgement::Accepted {
        return Some(Heard::Applied);
    }
    let named = [
        ("mode is accept-edits", By::Mode(Mode::AcceptEdits)),
        ("mode is read-only", By::Mode(Mode::ReadOnly)),
        ("answered: allow", By::Answer(ActionDecision::AllowOnce)),
        ("answered: deny", By::Answer(ActionDecision::Deny)),
    ];
    let by = named.iter().find(|(words, _)| reason.contains(words));
    by.map(|(_, by)| Heard::Refused(*by))
}

type Asked = (ActionId, Vec<Vec<Act>>);
type Answered = Vec<Vec<ControlAnswer>>;

/// Does to each question what its round says.
fn people(handles: &Handles, asked: impl Iterator<Item = Asked>, answered: &Sender<Answered>) {
    for (action, people) in asked {
        let all = std::thread::scope(|scope| {
            let acting: Vec<_> = people
                .iter()
                .map(|acts| scope.spawn(|| act(handles, &action, acts)))
                .collect();
            let all: Answered = acting
                .into_iter()
                .map(|acts| acts.join().unwrap())
                .collect();
            all
        });
        let settles = |act: &Act| !matches!(act, Act::Yield | Act::Mode(Mode::Ask));
        if !people.iter().flatten().any(settles) {
            // Nobody did anything that settles it; whether it was settled early is not known here.
            handles
                .control
                .respond(answer(&action, ActionDecision::Deny), |_| {});
        }
        if answered.send(all).is_err() {
            return;
        }
    }
}

/// How the last question was settled, and whether its call started.
fn settled(events: &[Event]) -> (bool, bool) {
    let mut settled = events.iter().enumerate().rev();
    let (at, decision) = settled
        .find_map(|(at, event)| match &event.payload {
            Payload::ActionResolved(resolved) => Some((at, resolved.decision)),
            _ => None,
        })
        .unwrap();
    (
        decision == ActionDecision::AllowOnce,
        has_started(&events[at..]),
    )
}

async fn check(rounds: Vec<Round>) {
    let questions = rounds.len();
    // What was refused once is asked about again whatever the mode, so each call is another.
    let script: String = (0..questions)
        .map(|number| {
            let call = json!({"name": "write", "arguments": {"path": format!("{number}.txt")}});
            let calls = json!({"text": "Writing.", "tool_calls": [call]});
            format!("{calls}\n{}\n", json!({"text": "Done."}))
        })
        .collect();
    let mut session: Session = session_with(&script, registry(), OnAsk::Interactive);
    let (ask, asked) = channel::<Asked>();
    let (tell, told) = channel::<Answered>();
    let handles = Handles::of(&session);
    let acting = std::thread::spawn(move || people(&handles, asked.iter().take(questions), &tell));
    let round: Arc<Mutex<Option<Round>>> = Arc::default();
    let (handles, current) = (Handles::of(&session), Arc::clone(&round));
    session.subscribe(
        move |event| match (&event.payload, &event.scope.action_id) {
            (Payload::PermissionRequested(_), _) => {
                let early = current.lock().unwrap().as_ref().and_then(|now| now.early);
                if let Some(mode) = early {
                    handles.set_mode(mode);
                }
            }
            (Payload::ActionRequired(_), Some(action)) => {
                let people = current.lock().unwrap().take().unwrap().people;
                ask.send((action.clone(), people)).unwrap();
            }
            _ => {}
        },
    );
    for now in rounds {
        *round.lock().unwrap() = Some(now.clone());
        let turn = session.submit("Do it.");
        assert!(matches!(session.run(turn).await, TurnEnd::Completed(_)));
        let answers = told.recv().unwrap();
        let found: Vec<Vec<Heard>> = answers
            .iter()
            .map(|answers| {
                let heard =
                    |answer| heard(answer).unwrap_or_else(|| panic!("lost: {answer:?} in {now:?}"));
                answers.iter().map(heard).collect()
            })
            .collect();
        let (allowed, started) = settled(&session.events());
        let possible: HashSet<_> = orders(&now.people)
            .iter()
            .map(|acts| expected(now.early, acts, now.people.len()))
            .filter(|(by, heard)| by.is_some_and(By::allows) == allowed && *heard == found)
            .collect();
        assert!(!possible.is_empty(), "{allowed} {found:?} in {now:?}");
        // What was allowed and then denied by a mode before it began is not started.
        let acts = now.people.iter().flatten();
        let is_denied = acts
            .chain(&now.early.map(Act::Mode))
            .any(|act| *act == Act::Mode(Mode::ReadOnly));
        assert!(started == allowed || (allowed && is_denied), "{now:?}");
        Handles::of(&session).set_mode(Mode::Ask);
    }
    acting.join().unwrap();
}

/// Found by the property below: a mode settles the question before its answer comes, and others do in
/// between changes to the mode that asks.
#[tokio::test(flavor = "multi_thread")]
async fn modes_that_settle_one_question_after_the_other_are_told_apart() {
    let round = |people: &[&[Act]]| Round {
        early: None,
        people: people.iter().map(|acts| acts.to_vec()).collect(),
    };
    let answers = [
        Act::Mode(Mode::ReadOnly),
        Act::Answer(ActionDecision::AllowOnce),
    ];
    let edits = Act::Mode(Mode::AcceptEdits);
    let rounds = vec![
        round(&[&answers]),
        round(&[&[Act::Yield, edits], &[Act::Mode(Mode::Ask)]]),
        round(&[&[Act::Mode(Mode::Ask), Act::Yield, edits]]),
    ];
    check(rounds).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// The one who waits for the answer may be scheduled as it likes: what becomes of a question and
    /// of each answer follows from what people did, in an order that fits.
    #[test]
    fn no_answer_is_lost_whatever_changes_around_it(rounds in rounds()) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(check(rounds));
    }
}
