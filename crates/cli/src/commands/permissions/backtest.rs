//! `agent permissions test`: what other rules would have decided in a past session.

use std::collections::HashMap;
use std::path::PathBuf;

use agent_protocol::id::{ArtifactId, SessionId, ToolCallId};
use agent_protocol::payload::permission::{DecisionSource, Effect, PermissionEvaluated};
use agent_protocol::status::Mode;
use agent_protocol::{Event, Payload};
use agent_session::SessionDirectory;
use agent_tool_runtime::gate::{Counts, NamesOnly, RecordedCall, SandboxLevel, backtest};
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::app::App;
use crate::config::{self, SandboxMode, SettingArgs};
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::{Output, Tone, counted, visible};
use crate::workbench::{self, Judge};

/// Inputs larger than this are not judged again.
const INPUT_LIMIT: u64 = 16 << 20;

/// Try rules on a past session: what would have been asked, allowed, denied
///
/// Reads the log and looks at no file: paths are taken by their names. Rules of all layers hold, and
/// those of --rules. Grants given during the session do not count.
#[derive(Args, Debug)]
pub(crate) struct TestArgs {
    /// Id, a beginning of it that only one session has, or `last`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Use the permission rules in this file too
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    rules: Option<PathBuf>,
    /// Decide as in this mode; without it, as in the mode of the session's last call
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// Print one JSON object (docs/schemas/permissions-test.schema.json)
    #[arg(long)]
    json: bool,
}

/// What `agent permissions test --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BacktestOutput {
    session_id: SessionId,
    mode: Mode,
    calls: u64,
    /// As it was. A call that a grant of the session let through counts as allowed.
    before: CountsOutput,
    /// With the rules that were tried.
    after: CountsOutput,
    /// Calls that a grant of the session let through then.
    allowed_by_grant: u64,
    changed: Vec<ChangedOutput>,
    /// The smallest set of allow rules that removes the questions still asked more than once.
    rules_to_add: Vec<RuleToAdd>,
    /// Calls that cannot be judged again: unknown tool, or an input that is not kept.
    skipped: u64,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct CountsOutput {
    allowed: u64,
    asked: u64,
    denied: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ChangedOutput {
    tool_call_id: String,
    tool: String,
    input: Value,
    before: Effect,
    after: Effect,
    reason: String,
    /// A person had refused what would now run without a question.
    against_a_person: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RuleToAdd {
    rule: String,
    /// How many questions it would have answered.
    questions: u64,
}

pub(crate) fn run(arguments: &TestArgs, app: &App) -> Result<Exit, Failure> {
    let session = app.session(&arguments.session)?;
    let past = Past::read(&session)?;
    let settings = SettingArgs {
        mode: arguments.mode.or(past.mode),
        ..SettingArgs::default()
    };
    let config = config::load(&app.host, &app.project, &settings)?;
    app.note_ignored_settings(&config);
    let rules = workbench::rules(app, &config, arguments.rules.as_deref())?;
    // Whether this machine could enforce it now says nothing about then.
    let sandbox = match config.sandbox.mode.value {
        SandboxMode::Off => SandboxLevel::Off,
        SandboxMode::Required => SandboxLevel::Full,
    };
    let mode = config.permissions.mode.value;
    let judge = Judge::with_sandbox(app, &config, rules, sandbox);
    let report = backtest(&past.calls, &judge.gate, &judge.setting(mode), &NamesOnly);

    let by_id: HashMap<&str, &RecordedCall> = past
        .calls
        .iter()
        .map(|call| (call.tool_call_id.as_str(), call))
        .collect();
    let changed = report.changed.into_iter().map(|changed| {
        let call = by_id.get(changed.tool_call_id.as_str());
        ChangedOutput {
            tool: call.map(|call| call.tool.clone()).unwrap_or_default(),
            input: call.map(|call| call.input.clone()).unwrap_or_default(),
            tool_call_id: changed.tool_call_id,
            before: changed.before,
            after: changed.after,
            reason: changed.reason,
            against_a_person: changed.against_a_person,
        }
    });
    let to_add = report.rules_to_add.into_iter().map(|repeated| RuleToAdd {
        rule: repeated.rule,
        questions: repeated.questions as u64,
    });
    let printed = BacktestOutput {
        session_id: session.id().clone(),
        mode,
        calls: past.calls.len() as u64 + past.without_input,
        before: CountsOutput::of(report.before),
        after: CountsOutput::of(report.after),
        allowed_by_grant: past.allowed_by_grant,
        changed: changed.collect(),
        rules_to_add: to_add.collect(),
        skipped: report.skipped as u64 + past.without_input,
    };
    let doing = "cannot print the comparison";
    if arguments.json {
        app.output.json(&printed).context(doing)?;
    } else {
        let text = as_text(&printed, &app.output);
        app.output.print(&text).context(doing)?;
    }
    Ok(Exit::Done)
}

/// The decisions of a session.
#[derive(Default)]
struct Past {
    calls: Vec<RecordedCall>,
    /// Of the last decision.
    mode: Option<Mode>,
    allowed_by_grant: u64,
    without_input: u64,
}

/// What is known of a call before it was decided.
#[derive(Default)]
struct Proposed {
    tool: String,
    input: Option<Value>,
    input_ref: Option<ArtifactId>,
}

impl Past {
    fn read(session: &SessionDirectory) -> Result<Self, Failure> {
        let doing = || format!("cannot read session {}", session.id());
        let artifacts = session.artifacts().with_context(doing).or_usage()?;
        let stored = |id: &ArtifactId| -> Option<Value> {
            serde_json::from_slice(&artifacts.read(id, INPUT_LIMIT).ok()?).ok()
        };
        let mut past = Self::default();
        let mut proposed: HashMap<ToolCallId, Proposed> = HashMap::new();
        let mut decided: HashMap<ToolCallId, usize> = HashMap::new();
        for item in session.reader().with_context(doing).or_usage()? {
            let Some(event) = item.with_context(doing).or_usage()?.event else {
                continue;
            };
            let Some(call_id) = event.scope.tool_call_id.clone() else {
                continue;
            };
            match &event.payload {
                Payload::PermissionEvaluated(evaluated) => {
                    past.mode = Some(evaluated.mode);
                    // A call that was judged twice counts as it was judged first.
                    if decided.contains_key(&call_id) {
                        continue;
                    }
                    let known = proposed.remove(&call_id).unwrap_or_default();
                    let input = known.input.or_else(|| stored(known.input_ref.as_ref()?));
                    if let Some(input) = input {
                        decided.insert(call_id.clone(), past.calls.len());
                        past.decide(&call_id, known.tool, input, evaluated);
                    } else {
                        past.without_input += 1;
                    }
                }
                Payload::PermissionResolved(resolved)
                    if resolved.decision_source == DecisionSource::Human =>
                {
                    let index = decided.get(&call_id).copied();
                    if let Some(call) = index.and_then(|index| past.calls.get_mut(index)) {
                        call.answer = Some(resolved.decision);
                    }
                }
                _ => proposed.entry(call_id).or_default().take(&event),
            }
        }
        Ok(past)
    }

    fn decide(
        &mut self,
        call_id: &ToolCallId,
        tool: String,
        input: Value,
        evaluated: &PermissionEvaluated,
    ) {
        let granted = evaluated.decision_source == DecisionSource::SessionGrant;
        self.allowed_by_grant += u64::from(granted);
        self.calls.push(RecordedCall {
            tool_call_id: call_id.to_string(),
            tool,
            input,
            decision: evaluated.decision,
            answer: None,
        });
    }
}

impl Proposed {
    /// The input as validated counts more than the input as asked.
    fn take(&mut self, event: &Event) {
        match &event.payload {
            Payload::ToolIntent(intent) => {
                self.tool.clone_from(&intent.tool_name);
                self.input.clone_from(&intent.raw_input);
                self.input_ref.clone_from(&intent.raw_input_ref);
            }
            Payload::ToolArgs(args) => {
                self.input.clone_from(&args.safe_args);
                self.input_ref.clone_from(&args.args_ref);
            }
            _ => {}
        }
    }
}

impl CountsOutput {
    fn of(counts: Counts) -> Self {
        Self {
            allowed: counts.allowed as u64,
            asked: counts.asked as u64,
            denied: counts.denied as u64,
        }
    }

    fn words(self) -> String {
        format!(
            "{} allowed, {} asked, {} denied",
            self.allowed, self.asked, self.denied
        )
    }
}

fn as_text(report: &BacktestOutput, output: &Output) -> String {
    let mut text = format!(
        "{}: {}, in mode {}\nthen: {}\nnow:  {}\n",
        report.session_id,
        counted(report.calls, "decision"),
        report.mode,
        report.before.words(),
        report.after.words()
    );
    if report.allowed_by_grant > 0 {
        text.push_str(&format!(
            "{} of those allowed then had a grant of that session, which rules know nothing of\n",
            report.allowed_by_grant
        ));
    }
    if report.skipped > 0 {
        let skipped = counted(report.skipped, "call");
        text.push_str(&format!("{skipped} cannot be judged again\n"));
    }
    for changed in &report.changed {
        let tone = if changed.against_a_person {
            Tone::Bad
        } else {
            Tone::Heading
        };
        let change = format!("{} -> {}", changed.before, changed.after);
        let refused = if changed.against_a_person {
            "; you had refused it"
        } else {
            ""
        };
        let about = about(&changed.input);
        let words = format!("{} {about}: {}{refused}", changed.tool, changed.reason);
        let words = output.wrap(&visible(&words), 4);
        text.push_str(&format!("{} {words}\n", output.paint(tone, &change)));
    }
    if report.rules_to_add.is_empty() {
        text.push_str("no question would come twice that a narrow rule could answer\n");
    } else {
        text.push_str("rules that would answer the questions still repeated:\n");
    }
    for rule in &report.rules_to_add {
        let questions = counted(rule.questions, "question");
        text.push_str(&format!("  allow {} ({questions})\n", visible(&rule.rule)));
    }
    text
}

/// What a call is about, in a few words.
fn about(input: &Value) -> String {
    let text = |key: &str| input.get(key).and_then(Value::as_str);
    let words = text("command").or_else(|| text("path")).unwrap_or_default();
    format!("`{}`", crate::output::clip(&visible(words), 60))
}
