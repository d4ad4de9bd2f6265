//! `agent permissions test`: what other rules would have decided in a past session.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use agent_policy::gate::{Counts, Judged, NamesOnly, RecordedCall, SandboxLevel, backtest};
use agent_protocol::id::SessionId;
use agent_protocol::payload::permission::Effect;
use agent_protocol::status::Mode;
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::past::Past;
use crate::app::App;
use crate::config::{self, SandboxMode, SettingArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, Tone, visible};
use agent_runtime::OfflineGate;
use agent_text::counted;

/// Reasons that are told; the rest is rare.
const MOST_REASONS: usize = 10;

/// Test rules on a past session: what would be asked, allowed or denied
///
/// Reads only the log; paths are matched by name. Applies the rules of all layers and those of
/// --rules. Permissions granted during the session do not count. For a session imported from
/// another program, shows how often agent would have asked.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent permissions test last --rules stricter.toml
  agent import ~/.claude/projects/-home-me-app/0205f437.jsonl
  agent permissions test last --mode auto")]
pub(crate) struct TestArgs {
    /// A session: its number, title, id, or `last`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Also use the permission rules in this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    rules: Option<PathBuf>,
    /// Permission mode [default: the mode of the session's last call, or the current one for an
    /// imported session]
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
    /// The program whose record it is, if the session was imported.
    imported_from: Option<String>,
    mode: Mode,
    calls: u64,
    /// As it was. A call that a grant of the session let through counts as allowed. Of an imported
    /// session it is unknown.
    before: Option<CountsOutput>,
    /// With the rules that were tried.
    after: CountsOutput,
    /// Calls that a grant of the session let through then.
    allowed_by_grant: u64,
    /// The same, tool by tool.
    tools: Vec<ToolOutput>,
    /// Why calls would be asked about or denied, the most frequent first; what is different from call
    /// to call is left out of the words.
    reasons: Vec<ReasonOutput>,
    /// Calls that a person had refused and that would now run without a question.
    against_a_person: u64,
    changed: Vec<ChangedOutput>,
    /// The smallest set of allow rules that removes the questions still asked more than once.
    rules_to_add: Vec<RuleToAdd>,
    /// Calls that cannot be judged again: unknown tool, or an input that is not kept.
    skipped: u64,
    /// Imported calls of tools that this program does not have; they are among the skipped.
    unknown_tools: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ToolOutput {
    tool: String,
    allowed: u64,
    asked: u64,
    denied: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ReasonOutput {
    decision: Effect,
    reason: String,
    calls: u64,
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
    let past = Past::read(&session, app.project.root())?;
    let settings = SettingArgs {
        mode: arguments.mode.or(past.mode),
        ..SettingArgs::default()
    };
    let config = config::load(&app.host, &app.project, &settings)?;
    app.note_ignored_settings(&config);
    let rules = agent_runtime::rules(app, &config, arguments.rules.as_deref())?;
    // Whether this machine could enforce it now says nothing about then.
    let sandbox = match config.sandbox.mode.value {
        SandboxMode::Off => SandboxLevel::Off,
        SandboxMode::Required => SandboxLevel::Full,
    };
    let mode = config.permissions.mode.value;
    let judge = OfflineGate::with_sandbox(app, &config, rules, sandbox);
    let report = backtest(
        &past.calls,
        &judge.tools,
        &judge.gate,
        &judge.setting(mode),
        &NamesOnly,
    );

    let by_id: HashMap<&str, &RecordedCall> = past
        .calls
        .iter()
        .map(|call| (call.tool_call_id.as_str(), call))
        .collect();
    let judged = OfflineJudgement::of(&report.judged);
    let refused: HashSet<&str> = past
        .calls
        .iter()
        .filter(|call| call.answer == Some(Effect::Deny))
        .map(|call| call.tool_call_id.as_str())
        .collect();
    let against_a_person = judged
        .calls
        .iter()
        .filter(|call| call.decision == Effect::Allow && refused.contains(&*call.tool_call_id))
        .count() as u64;
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
        calls: past.count,
        before: match past.imported_from {
            Some(_) => None,
            None => Some(CountsOutput::of(report.before)),
        },
        imported_from: past.imported_from,
        after: judged.counts(),
        allowed_by_grant: past.allowed_by_grant,
        tools: judged.tools(),
        reasons: judged.reasons(),
        against_a_person,
        changed: changed.collect(),
        rules_to_add: to_add.collect(),
        skipped: report.skipped as u64 + past.without_input + past.foreign.values().sum::<u64>(),
        unknown_tools: past.foreign,
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

/// The calls as they would be decided, each once.
struct OfflineJudgement<'a> {
    calls: Vec<&'a Judged>,
}

impl<'a> OfflineJudgement<'a> {
    /// A call that names several files is what the strictest of its decisions is.
    fn of(judged: &'a [Judged]) -> Self {
        let weight = |decision: Effect| match decision {
            Effect::Allow => 0,
            Effect::Ask => 1,
            Effect::Deny => 2,
        };
        let mut calls: Vec<&Judged> = Vec::new();
        for call in judged {
            match calls.last_mut() {
                Some(last) if last.tool_call_id == call.tool_call_id => {
                    if weight(call.decision) > weight(last.decision) {
                        *last = call;
                    }
                }
                _ => calls.push(call),
            }
        }
        Self { calls }
    }

    fn counts(&self) -> CountsOutput {
        let count = |decision: Effect| {
            let calls = self.calls.iter();
            calls.filter(|call| call.decision == decision).count() as u64
        };
        CountsOutput {
            allowed: count(Effect::Allow),
            asked: count(Effect::Ask),
            denied: count(Effect::Deny),
        }
    }

    fn tools(&self) -> Vec<ToolOutput> {
        let mut tools: BTreeMap<&str, ToolOutput> = BTreeMap::new();
        for call in &self.calls {
            let tool = tools.entry(&call.tool).or_insert_with(|| ToolOutput {
                tool: call.tool.clone(),
                allowed: 0,
                asked: 0,
                denied: 0,
            });
            match call.decision {
                Effect::Allow => tool.allowed += 1,
                Effect::Ask => tool.asked += 1,
                Effect::Deny => tool.denied += 1,
            }
        }
        tools.into_values().collect()
    }

    fn reasons(&self) -> Vec<ReasonOutput> {
        let mut reasons: BTreeMap<(Effect, String), u64> = BTreeMap::new();
        for call in self
            .calls
            .iter()
            .filter(|call| call.decision != Effect::Allow)
        {
            *reasons
                .entry((call.decision, in_general(&call.reason)))
                .or_default() += 1;
        }
        let reasons = reasons
            .into_iter()
            .map(|((decision, reason), calls)| ReasonOutput {
                decision,
                reason,
                calls,
            });
        let mut reasons: Vec<ReasonOutput> = reasons.collect();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.calls));
        reasons.truncate(MOST_REASONS);
        reasons
    }
}

/// A reason without what it quotes, so that the same reason for other words is the same.
fn in_general(reason: &str) -> String {
    let mut general = String::new();
    for (index, part) in reason.split('`').enumerate() {
        if index > 0 {
            general.push('`');
        }
        general.push_str(if index % 2 == 1 { "…" } else { part });
    }
    general
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
    let mut text = match (&report.imported_from, &report.before) {
        (None, Some(before)) => format!(
            "{}: {}, in mode {}\nthen: {}\nnow:  {}\n",
            report.session_id,
            counted(report.calls, "decision"),
            report.mode,
            before.words(),
            report.after.words()
        ),
        (program, _) => imported_text(report, program.as_deref().unwrap_or_default(), output),
    };
    if report.allowed_by_grant > 0 {
        text.push_str(&format!(
            "{} of the allowed calls had a session grant, which this test ignores\n",
            report.allowed_by_grant
        ));
    }
    let unknown: u64 = report.unknown_tools.values().sum();
    if unknown > 0 {
        let each = report.unknown_tools.iter();
        let each: Vec<String> = each
            .map(|(tool, count)| format!("{tool} {count}"))
            .collect();
        let (calls, each) = (counted(unknown, "call"), each.join(", "));
        let words = format!("{calls} of tools that agent does not have: {each}");
        text.push_str(&format!("{}\n", output.wrap(&visible(&words), 2)));
    }
    if report.skipped > unknown {
        let report_skipped = report.skipped - unknown;
        let skipped = counted(report_skipped, "call");
        text.push_str(&format!("{skipped} cannot be evaluated again\n"));
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
        text.push_str("no repeated question could be answered by a narrow rule\n");
    } else {
        text.push_str("rules that would answer the repeated questions:\n");
    }
    for rule in &report.rules_to_add {
        let questions = counted(rule.questions, "question");
        text.push_str(&format!("  allow {} ({questions})\n", visible(&rule.rule)));
    }
    text
}

/// What would have become of another program's calls.
fn imported_text(report: &BacktestOutput, program: &str, output: &Output) -> String {
    let mut text = format!(
        "{}: {} imported from {}, decided as today in mode {}\nhere: {}\n",
        report.session_id,
        counted(report.calls, "call"),
        visible(program),
        report.mode,
        report.after.words()
    );
    for tool in &report.tools {
        let counts = CountsOutput {
            allowed: tool.allowed,
            asked: tool.asked,
            denied: tool.denied,
        };
        text.push_str(&format!(
            "  {:<14} {}\n",
            visible(&tool.tool),
            counts.words()
        ));
    }
    if !report.reasons.is_empty() {
        text.push_str("most common reasons:\n");
    }
    for reason in &report.reasons {
        let words = format!("{:>4} {}: {}", reason.calls, reason.decision, reason.reason);
        text.push_str(&format!("  {}\n", output.wrap(&visible(&words), 7)));
    }
    if report.against_a_person > 0 {
        let refused = counted(report.against_a_person, "call");
        text.push_str(&format!(
            "{refused} that you refused would now run without asking\n"
        ));
    }
    text
}

/// What a call is about, in a few words.
fn about(input: &Value) -> String {
    let text = |key: &str| input.get(key).and_then(Value::as_str);
    let words = text("command").or_else(|| text("path")).unwrap_or_default();
    format!("`{}`", agent_text::clip(&visible(words), 60))
}
