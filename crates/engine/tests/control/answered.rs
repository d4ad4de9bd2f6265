//! Random scripts of answers and failures: reports name the model that answered and count the tokens
//! of each, as a ledger kept beside the models says.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use agent_engine::{Interrupt, Model};
use agent_evidence::audit::{Finding, Severity};
use agent_evidence::report::report;
use agent_provider::conversation::ModelRequest;
use agent_provider::dialect::Dialect;
use agent_provider::dialect::scripted::{ScriptedError, ScriptedUsage, Turn};
use agent_provider::error::ModelError;
use agent_provider::provider::{Provider, Signal};
use agent_provider::response::Response;
use agent_provider::{ScriptedProvider, Transcript};
use futures_util::future::BoxFuture;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::stage::{model, session_of};

/// What a server does with a request.
#[derive(Clone, Debug)]
enum Does {
    Says(Counts),
    Calls(Counts),
    /// The length limit cuts its answer inside a call.
    IsCut(Counts),
    /// Another model may do better.
    IsBusy,
    /// No other model would.
    Declines,
    /// The input is too long for it.
    IsTooSmall,
}

/// What it says it took, and who it says it is.
#[derive(Clone, Debug)]
struct Counts {
    input: Option<u64>,
    output: Option<u64>,
    served_by: Option<&'static str>,
}

/// What happens next in the session.
#[derive(Clone, Copy, Debug)]
enum Step {
    Turn,
    Compact,
    /// The user chooses the models in another order.
    Choose(usize),
}

/// One answer, as the server saw it.
#[derive(Clone, Debug)]
struct Entry {
    /// `provider/model`, as the server names it.
    model: String,
    input: Option<u64>,
    output: Option<u64>,
    served_by: Option<&'static str>,
    is_cut: bool,
    /// A summary, which is no answer to the user.
    is_aside: bool,
}

type Ledger = Arc<Mutex<Vec<Entry>>>;

/// A server that does one thing after the other, and says something when it has no more to do.
struct Server {
    name: String,
    does: Mutex<VecDeque<Does>>,
    ledger: Ledger,
}

impl Server {
    fn turn(does: &Does) -> (Turn, Option<&Counts>) {
        let call = |arguments: Value| {
            let call = json!({"name": "look", "arguments": arguments});
            vec![serde_json::from_value(call).unwrap()]
        };
        let fails = |status: u16, message: &str| Turn {
            error: Some(ScriptedError {
                status,
                message: message.to_owned(),
            }),
            ..Turn::default()
        };
        let said = Turn {
            text: "Said.".to_owned(),
            ..Turn::default()
        };
        let (turn, counts) = match does {
            Does::Says(counts) => (said, Some(counts)),
            Does::Calls(counts) => {
                let tool_calls = call(json!({}));
                (Turn { tool_calls, ..said }, Some(counts))
            }
            Does::IsCut(counts) => {
                let tool_calls = call(json!("{\"path\": \"a"));
                let stop = Some("max_tokens".to_owned());
                let turn = Turn {
                    tool_calls,
                    stop,
                    ..said
                };
                (turn, Some(counts))
            }
            Does::IsBusy => (fails(529, "overloaded"), None),
            Does::Declines => (fails(400, "this cannot be done"), None),
            Does::IsTooSmall => (fails(400, "maximum context length is 10 tokens"), None),
        };
        let usage = counts.map(|counts| ScriptedUsage {
            input: counts.input,
            output: counts.output,
            ..ScriptedUsage::default()
        });
        (Turn { usage, ..turn }, counts)
    }
}

impl Provider for Server {
    fn name(&self) -> &str {
        &self.name
    }

    fn dialect(&self) -> Dialect {
        Dialect::Scripted
    }

    fn exchange<'a>(
        &'a self,
        request: &'a ModelRequest,
        cancel: &'a CancellationToken,
        observe: &'a mut (dyn FnMut(Signal) + Send),
    ) -> BoxFuture<'a, Result<Response, ModelError>> {
        let otherwise = Does::Says(Counts {
            input: Some(1),
            output: Some(1),
            served_by: None,
        });
        let does = self.does.lock().unwrap().pop_front().unwrap_or(otherwise);
        Box::pin(async move {
            let (turn, counts) = Self::turn(&does);
            // Whatever place in the conversation it is asked for.
            let transcript = Transcript {
                turns: vec![turn; request.messages.len() + 1],
            };
            let played = ScriptedProvider::new(self.name.clone(), transcript);
            let mut response = played.exchange(request, cancel, observe).await?;
            let counts = counts.unwrap();
            response.model = counts.served_by.map(str::to_owned);
            let served = counts.served_by.unwrap_or(&request.model);
            let asked = format!("{:?}", request.messages);
            self.ledger.lock().unwrap().push(Entry {
                model: format!("{}/{served}", self.name),
                input: counts.input,
                output: counts.output,
                served_by: counts.served_by,
                is_cut: matches!(does, Does::IsCut(_)),
                is_aside: asked.contains("Summarise the conversation so far"),
            });
            Ok(response)
        })
    }
}

fn does() -> impl Strategy<Value = Does> {
    let number = || prop::option::weighted(0.8, 1_u64..1_000);
    let served_by = prop::option::of(prop_oneof![Just("m-dated"), Just("other")]);
    let counts = (number(), number(), served_by).prop_map(|(input, output, served_by)| Counts {
        input,
        output,
        served_by,
    });
    prop_oneof![
        3 => counts.clone().prop_map(Does::Says),
        4 => counts.clone().prop_map(Does::Calls),
        2 => counts.prop_map(Does::IsCut),
        3 => Just(Does::IsBusy),
        1 => Just(Does::Declines),
        1 => Just(Does::IsTooSmall),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => Just(Step::Turn),
        1 => Just(Step::Compact),
        1 => (0_usize..3).prop_map(Step::Choose),
    ];
    prop::collection::vec(step, 1..8)
}

/// The tokens of these answers by model, and of all.
fn totals<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> BTreeMap<String, (u64, u64)> {
    let mut totals: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for entry in entries {
        let (input, output) = totals.entry(entry.model.clone()).or_default();
        *input += entry.input.unwrap_or(0);
        *output += entry.output.unwrap_or(0);
    }
    totals
}

/// The last answer to the user.
fn last_answer(entries: &[Entry]) -> Option<&Entry> {
    let answers = |entry: &&Entry| !entry.is_aside && !entry.is_cut;
    entries.iter().rev().find(answers)
}

/// The model a turn is named by: the last that answered it, else the one it began with.
fn named(entries: &[Entry], began_with: &str) -> String {
    let last = last_answer(entries);
    last.map_or_else(|| began_with.to_owned(), |entry| entry.model.clone())
}

async fn check(scripts: Vec<Vec<Does>>, steps: Vec<Step>) {
    let ledger = Ledger::default();
    let servers: Vec<Model> = scripts
        .into_iter()
        .enumerate()
        .map(|(number, does)| {
            let server = Server {
                name: format!("server{number}"),
                does: Mutex::new(does.into()),
                ledger: Arc::clone(&ledger),
            };
            model(Arc::new(server), "m")
        })
        .collect();
    let mut session = session_of(servers.clone());
    let mut first = servers[0].name();
    let mut turns: Vec<(String, Vec<Entry>)> = Vec::new();
    for step in &steps {
        let before = ledger.lock().unwrap().len();
        match *step {
            Step::Turn => {
                let turn = session.submit("Do it.");
                session.run(turn).await;
                let entries = ledger.lock().unwrap()[before..].to_vec();
                turns.push((named(&entries, &first), entries));
            }
            Step::Compact => {
                let interrupt = Interrupt::new();
                session.engine.compact_now(&interrupt).await.unwrap();
            }
            Step::Choose(at) => {
                let mut order = servers.clone();
                order.rotate_left(at % servers.len());
                first = order[0].name();
                session.engine.set_models(order, Vec::new());
            }
        }
    }
    let entries = ledger.lock().unwrap().clone();
    let reported = report(&session.directory(), None).unwrap().to_json();
    let usage = &reported["usage"];
    let by_model: BTreeMap<String, (u64, u64)> = usage["models"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(model, tokens)| {
            let number = |what: &str| tokens[what].as_u64().unwrap();
            (model.clone(), (number("input"), number("output")))
        })
        .collect();
    assert_eq!(by_model, totals(&entries), "{usage:#}");
    let sum = |what: fn(&Entry) -> Option<u64>| entries.iter().filter_map(what).sum::<u64>();
    assert_eq!(usage["input"], sum(|entry| entry.input), "{usage:#}");
    assert_eq!(usage["output"], sum(|entry| entry.output), "{usage:#}");
    let told = reported["turns"].as_array().unwrap();
    assert_eq!(told.len(), turns.len());
    for (told, (model, entries)) in told.iter().zip(&turns) {
        assert_eq!(told["model"], model.as_str(), "{told:#}");
        let served_by = last_answer(entries).and_then(|entry| entry.served_by);
        assert_eq!(told["usage"]["model"].as_str(), served_by, "{told:#}");
        for (what, counted) in [
            (
                "input",
                entries.iter().filter_map(|entry| entry.input).sum(),
            ),
            (
                "output",
                entries.iter().filter_map(|entry| entry.output).sum::<u64>(),
            ),
        ] {
            let said = told["usage"][what].as_u64().unwrap_or(0);
            assert_eq!(said, counted, "{what} of {told:#}");
        }
    }
    if let Some((model, _)) = turns.last() {
        assert_eq!(usage["model"], model.as_str());
    }
    let audited = agent_evidence::audit::audit(&session.directory(), None).unwrap();
    let is_wrong = |finding: &&Finding| finding.severity != Severity::Note;
    let wrong: Vec<&Finding> = audited.findings.iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn reports_name_who_answered_and_count_whose_tokens(
        scripts in prop::collection::vec(prop::collection::vec(does(), 0..10), 1..4),
        steps in steps(),
    ) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(check(scripts, steps));
    }
}
