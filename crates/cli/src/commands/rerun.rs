//! `agent rerun`: the recorded answers of a model against today's build, rules and sandbox.

use std::path::PathBuf;
use std::sync::Arc;

use agent_protocol::id::SessionId;
use agent_protocol::payload::permission::{ActionDecision, Effect};
use agent_protocol::status::Mode;
use agent_protocol::{Code, id::RunId};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::app::App;
use crate::config::{self, SettingArgs};
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::{Tone, visible, visible_text};
use agent_runtime::rerun::{CallComparison, Recorded, RecordedCall, compare, copy_start, play};
use agent_text::{clip, counted};

/// The most columns an input gets.
const LONGEST: usize = 100;

/// Rerun a session from its recorded answers and show what differs
///
/// Use it to try changed rules, an upgrade or another machine: the model's answers come from the
/// log; decisions, sandbox and tools are current. It works in a temporary copy of the project as it
/// was when the session began; the project itself is only read. A question that a person answered
/// gets the same answer again, and is labelled. No model is contacted. Secrets are masked in the
/// log, so calls run with the masks. Imported sessions are refused: commands of another program are
/// never run here.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent rerun last
  agent rerun 0a3f --rules stricter.toml   what would these have changed?
  agent rerun last --keep /tmp/look        keep the copy
  agent rerun last --json | jq '.calls[] | select(.differs)'

Exit codes: 0 all results match, 1 some differ, 2 nothing was started.")]
pub(crate) struct RerunArgs {
    /// A session: its number, title, id, or `last`
    #[arg(value_name = "SESSION")]
    session: String,
    /// Also use the permission rules in this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    rules: Option<PathBuf>,
    /// Permission mode [default: the mode of the session's last call]
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// What to do with a question that was not answered in the session
    #[arg(long, value_name = "WHAT", default_value = "deny")]
    on_ask: OnAskThen,
    /// Create the copy here and keep it; the directory must not exist
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    keep: Option<PathBuf>,
    /// Print one JSON object (docs/schemas/rerun.schema.json)
    #[arg(long)]
    json: bool,
}

/// What to do with a question that was not answered in the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnAskThen {
    /// Refuse the call
    Deny,
    /// Allow the call; deny rules and circuit breakers still apply
    Allow,
}

/// What `agent rerun --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RerunOutput {
    session_id: SessionId,
    /// Whether every call came out as then.
    same: bool,
    mode: Mode,
    calls: Vec<RerunCall>,
    /// What the copy has otherwise than the project had then.
    not_rebuilt: Vec<NotRebuilt>,
    /// Where the copy is, if it was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<PathBuf>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RerunCall {
    tool_call_id: String,
    tool: String,
    input: Value,
    differs: bool,
    /// Not reached the second time.
    not_reached: bool,
    then: RerunSide,
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<RerunSide>,
    /// How the observation differs, without times, paths and ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    observation: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RerunSide {
    /// What the gate said.
    decision: Option<Effect>,
    /// What was decided in the end.
    outcome: Option<Effect>,
    reason: String,
    /// A person decided; the second time, the person's answer was played again.
    by_a_person: bool,
    code: Option<Code>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct NotRebuilt {
    path: String,
    reason: String,
}

pub(crate) fn run(arguments: &RerunArgs, app: &App) -> Result<Exit, Failure> {
    let session = app.session(&arguments.session)?;
    let recorded = Recorded::read(&session)?;
    if let Some(program) = &recorded.imported_from {
        // Its commands were never this program's to run.
        let id = session.id();
        return Err(Failure::usage(format!(
            "session {id} was imported from {program} and cannot be rerun; nothing was run"
        ))
        .hint(format!(
            "`agent permissions test {id}` shows what today's rules would decide"
        )));
    }
    if recorded.calls().is_empty() && recorded.prompts().is_empty() {
        return Err(Failure::usage(format!(
            "session {} has no model answers or calls to rerun",
            session.id()
        )));
    }
    let settings = SettingArgs {
        mode: arguments.mode.or(recorded.mode),
        ..SettingArgs::default()
    };
    // The rules are those of the project itself: trust is for a file at its place.
    let config = config::load(&app.host, &app.project, &settings)?;
    app.note_ignored_settings(&config);
    let rules = arguments.rules.as_ref().map(|file| app.host.cwd.join(file));
    let directory = match &arguments.keep {
        Some(asked) => app.host.cwd.join(asked),
        None => app
            .host
            .temporary
            .join(format!("agent-rerun-{}", app.host.ids.mint::<RunId>())),
    };
    let keep = arguments.keep.is_some();
    let copy = copy_start(app.project.root(), &session, &directory, keep)?;
    let inside = app.in_project(&copy.root);
    let on_ask = match arguments.on_ask {
        OnAskThen::Deny => ActionDecision::Deny,
        OnAskThen::Allow => ActionDecision::AllowOnce,
    };
    let config = Arc::new(config);
    let (now, notes) = play(&inside, &config, &recorded, rules.as_deref(), on_ask)?;
    for note in notes {
        app.output.note(&note);
    }
    let calls = compare(&recorded, &now, app.project.root(), &copy.root);
    let same = !calls.iter().any(CallComparison::differs);
    let doing = "cannot print the comparison";
    if recorded.compactions > 0 {
        app.output
            .note("the session was compacted; summaries are not replayed");
    }
    if arguments.json {
        let printed = RerunOutput {
            session_id: session.id().clone(),
            same,
            mode: config.permissions.mode.value,
            calls: calls.iter().map(RerunCall::of).collect(),
            not_rebuilt: copy
                .not_rebuilt
                .iter()
                .map(|refused| NotRebuilt {
                    path: refused.path.clone(),
                    reason: refused.reason.clone(),
                })
                .collect(),
            kept: keep.then(|| copy.root.clone()),
        };
        app.output.json(&printed).context(doing)?;
    } else {
        for refused in &copy.not_rebuilt {
            app.output.note(&format!(
                "the copy differs from the original: {}: {}",
                refused.path, refused.reason
            ));
        }
        app.output
            .print(&as_text(&calls, app))
            .context(doing)
            .or_fail()?;
        if keep {
            app.output
                .print(&format!("the copy is in `{}`", copy.root.display()))
                .context(doing)
                .or_fail()?;
        }
    }
    Ok(if same { Exit::Done } else { Exit::Failed })
}

fn as_text(calls: &[CallComparison], app: &App) -> String {
    let mut text = String::new();
    for (index, call) in calls.iter().enumerate() {
        let mark = if call.differs() {
            app.output.paint(Tone::Warn, "differs")
        } else {
            app.output.paint(Tone::Good, "same   ")
        };
        let what = format!("{} {}", call.then.tool, shown_input(&call.then));
        let room = app.output.width().saturating_sub(14).min(LONGEST);
        let what = clip(&visible(&what), room);
        text.push_str(&format!("{:>4} {mark} {what}\n", index + 1));
        text.push_str(&details(call));
    }
    let different = calls.iter().filter(|call| call.differs()).count();
    let sum = match different {
        0 => format!(
            "{}, all with the same result as recorded\n",
            counted(calls.len() as u64, "call")
        ),
        _ => format!(
            "{}, {different} with a different result\n",
            counted(calls.len() as u64, "call")
        ),
    };
    text.push_str(&sum);
    text
}

fn shown_input(call: &RecordedCall) -> String {
    let field = |name: &str| call.input.get(name).and_then(Value::as_str);
    let known = field("command")
        .or_else(|| field("path"))
        .or_else(|| field("pattern"));
    known.map_or_else(|| call.input.to_string(), str::to_owned)
}

fn details(call: &CallComparison) -> String {
    let mut text = String::new();
    let mut say = |line: String| text.push_str(&format!("             {}\n", visible(&line)));
    let Some(now) = &call.now else {
        say("it was not reached".to_owned());
        return text;
    };
    if now.by_a_person() && call.then.by_a_person() {
        say("asked; given the recorded answer".to_owned());
    }
    if call.decision_differs() {
        let (then, now_words) = (words(&call.then), words(now));
        say(format!("decision: {then}, now {now_words}"));
        if !now.reason.is_empty() {
            say(format!("because: {}", now.reason));
        }
    }
    if call.code_differs() {
        let (then, now) = call.codes();
        let word = |code: Option<Code>| code.map_or("none", Code::as_str);
        say(format!("code: {}, now {}", word(then), word(now)));
    }
    for line in call.text.iter().flat_map(|diff| diff.lines()) {
        text.push_str(&format!("             {}\n", visible_text(line)));
    }
    text
}

fn words(call: &RecordedCall) -> String {
    let word = |effect: Option<Effect>| effect.map_or("not decided", Effect::as_str);
    match (call.decision, call.outcome()) {
        (Some(Effect::Ask), outcome) if outcome != Some(Effect::Ask) => {
            let who = if call.by_a_person() {
                "a person"
            } else {
                "nobody could approve it"
            };
            format!("ask, then {} ({who})", word(outcome))
        }
        (decision, _) => word(decision).to_owned(),
    }
}

impl RerunCall {
    fn of(call: &CallComparison) -> Self {
        Self {
            tool_call_id: call.then.id.clone(),
            tool: call.then.tool.clone(),
            input: call.then.input.clone(),
            differs: call.differs(),
            not_reached: call.now.is_none(),
            then: RerunSide::of(&call.then),
            now: call.now.as_ref().map(RerunSide::of),
            observation: call.text.clone(),
        }
    }
}

impl RerunSide {
    fn of(call: &RecordedCall) -> Self {
        Self {
            decision: call.decision,
            outcome: call.outcome(),
            reason: call.reason.clone(),
            by_a_person: call.by_a_person(),
            code: call.code,
        }
    }
}
