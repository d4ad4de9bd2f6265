//! `agent permissions explain`: what the gate would decide about a call, and why.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, BufRead as _, Read as _};
use std::path::PathBuf;

use agent_protocol::payload::permission::{
    ActionClass, CommandParse, DecisionSource, Effect, MatchedRule, ParsedCommand,
    PermissionEvaluated,
};
use agent_protocol::status::Mode;
use agent_tool_runtime::Subject;
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::origin_words;
use crate::app::App;
use crate::commands::sandbox::as_script;
use crate::config::{self, SettingArgs};
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};
use crate::output::{Output, Tone, visible};
use agent_runtime::OfflineGate;

/// A line of standard input longer than this is cut off, and then refused as no JSON.
const LINE_LIMIT: u64 = 64 << 20;

/// Show what would be decided about a call, and why, without running it
///
/// The exit code is 0 whatever the decision, and 2 if the call cannot be parsed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent permissions explain 'git log | head; rm -rf build'
  agent permissions explain git status
  agent permissions explain --tool edit --input '{\"path\": \"src/a.rs\"}' --json
  printf '%s\\n' '{\"tool\":\"bash\",\"input\":{\"command\":\"ls\"}}' |
    agent permissions explain --stdin")]
pub(crate) struct ExplainArgs {
    /// A shell command as for the bash tool; several words are a program and its arguments
    #[arg(
        value_name = "COMMAND",
        required_unless_present_any = ["tool", "stdin"],
        conflicts_with_all = ["tool", "stdin"]
    )]
    command: Vec<OsString>,
    /// Name of the tool
    #[arg(long, requires = "input", conflicts_with = "stdin")]
    tool: Option<String>,
    /// Input of the tool, a JSON object
    #[arg(long, value_name = "JSON", requires = "tool")]
    input: Option<String>,
    /// Read calls from standard input, one JSON object {"tool": …, "input": {…}, "mode": …} per
    /// line, and print one JSON object per line
    #[arg(long)]
    stdin: bool,
    /// Permission mode: read-only, plan, ask, accept-edits, auto, full [env: AGENT_MODE]
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// Also use the permission rules in this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    rules: Option<PathBuf>,
    /// Print one JSON object (docs/schemas/permissions-explain.schema.json)
    #[arg(long)]
    json: bool,
}

/// What `agent permissions explain --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Explained {
    decision: Effect,
    action_class: ActionClass,
    /// Facts about the call that a person would be shown.
    risk: Vec<String>,
    /// What decided.
    decision_source: DecisionSource,
    reason: String,
    /// Every rule that matches, also those that did not decide.
    matched: Vec<MatchedRule>,
    /// `null` for calls that are no commands.
    parse: Option<Parse>,
    mode: Mode,
    /// The rule that would stop the asking, if one is narrow enough to offer.
    suggested_rule: Option<String>,
}

/// How a script was understood.
#[derive(Debug, Serialize, JsonSchema)]
struct Parse {
    ok: bool,
    commands: Vec<ParsedCommand>,
    redirects: Vec<String>,
    /// Reason it is not proven that the script only reads; `null` when it is, and when rules cover
    /// what does more.
    why_not_proven: Option<String>,
    #[serde(skip)]
    read_only: bool,
}

/// A line of standard input.
#[derive(Deserialize)]
struct Line {
    tool: String,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    mode: Option<Mode>,
}

pub(crate) fn run(arguments: &ExplainArgs, app: &App) -> Result<Exit, Failure> {
    let mut explainer = Explainer::new(arguments, app)?;
    if arguments.stdin {
        explainer.lines()?;
        return Ok(Exit::Done);
    }
    let shell = explainer.judge.tools.shell().cloned();
    let about = |script: &str| match &shell {
        Some(shell) => (shell.name.clone(), shell.input_about(script)),
        None => (String::new(), json!({})),
    };
    let (tool, input) = match &*arguments.command {
        [script] => about(&script.to_string_lossy()),
        [_, ..] => about(&as_script(&arguments.command)),
        [] => {
            let text = arguments.input.as_deref().unwrap_or_default();
            let input = serde_json::from_str(text)
                .context("--input is not JSON")
                .or_usage()?;
            (arguments.tool.clone().unwrap_or_default(), input)
        }
    };
    let explained = explainer.explain(&tool, &input, None)?;
    if let [first, file, ..] = &*arguments.command
        && let Some(tool) = explainer.judge.tools.find(&first.to_string_lossy())
        && tool.subject == Subject::Write
    {
        let input = tool.input_about(&file.to_string_lossy()).to_string();
        let options = [
            "--tool".into(),
            first.clone(),
            "--input".into(),
            input.into(),
        ];
        app.output.note(&format!(
            "explaining a command of that name; for the tool, use: {}",
            as_script(&options)
        ));
    }
    let doing = "cannot print the decision";
    if arguments.json {
        app.output.json(&explained).context(doing)?;
    } else {
        let text = as_text(&explained, &app.output);
        app.output.print(&text).context(doing)?;
    }
    Ok(Exit::Done)
}

struct Explainer<'a> {
    app: &'a App,
    judge: OfflineGate,
    mode: Mode,
    /// The mode that each asked-for mode comes out as: managed settings may bound it.
    modes: HashMap<Mode, Mode>,
}

impl<'a> Explainer<'a> {
    fn new(arguments: &ExplainArgs, app: &'a App) -> Result<Self, Failure> {
        let config = config::load(&app.host, &app.project, &in_mode(arguments.mode))?;
        app.note_ignored_settings(&config);
        let rules = agent_runtime::rules(app, &config, arguments.rules.as_deref())?;
        app.note_unknown_tools(&rules);
        Ok(Self {
            app,
            judge: OfflineGate::new(app, &config, rules)?,
            mode: config.permissions.mode.value,
            modes: HashMap::new(),
        })
    }

    fn explain(
        &mut self,
        tool: &str,
        input: &Value,
        mode: Option<Mode>,
    ) -> Result<Explained, Failure> {
        if !input.is_object() {
            return Err(Failure::usage("the input is not a JSON object"));
        }
        let mode = match mode {
            Some(asked) => self.bounded(asked)?,
            None => self.mode,
        };
        Ok(Explained::of(self.judge.evaluate(tool, input, mode)?))
    }

    fn bounded(&mut self, asked: Mode) -> Result<Mode, Failure> {
        if let Some(mode) = self.modes.get(&asked) {
            return Ok(*mode);
        }
        let config = config::load(&self.app.host, &self.app.project, &in_mode(Some(asked)))?;
        let mode = config.permissions.mode.value;
        self.modes.insert(asked, mode);
        Ok(mode)
    }

    /// Each answer is out before the next line is read, so that a program can hold a conversation.
    fn lines(&mut self) -> Result<(), Failure> {
        let mut stdin = io::stdin().lock();
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            let read = stdin.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut line);
            if read.context("cannot read standard input").or_fail()? == 0 {
                break;
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            let explained = self.line(&line).map_err(|failure| Failure {
                error: failure
                    .error
                    .context(format!("cannot explain line {number}")),
                ..failure
            })?;
            let printed = self.app.output.json_line(&explained);
            printed.context("cannot print the decision")?;
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<Explained, Failure> {
        let line: Line = serde_json::from_slice(line)
            .context("it is not a JSON object with `tool` and `input`")
            .or_usage()?;
        self.explain(&line.tool, &line.input, line.mode)
    }
}

fn in_mode(mode: Option<Mode>) -> SettingArgs {
    SettingArgs {
        mode,
        ..SettingArgs::default()
    }
}

impl Explained {
    fn of(evaluated: PermissionEvaluated) -> Self {
        Self {
            decision: evaluated.decision,
            action_class: evaluated.action_class,
            risk: evaluated.risk,
            decision_source: evaluated.decision_source,
            reason: evaluated.reason,
            matched: evaluated.matched,
            parse: evaluated.parse.map(Parse::of),
            mode: evaluated.mode,
            suggested_rule: evaluated.suggested_rule,
        }
    }
}

impl Parse {
    fn of(parse: CommandParse) -> Self {
        Self {
            ok: parse.ok,
            commands: parse.commands,
            redirects: parse.redirects,
            why_not_proven: parse.why_not_proven,
            read_only: parse.read_only,
        }
    }
}

fn as_text(explained: &Explained, output: &Output) -> String {
    let tone = match explained.decision {
        Effect::Allow => Tone::Good,
        Effect::Ask => Tone::Warn,
        Effect::Deny => Tone::Bad,
    };
    let decision = output.paint(tone, explained.decision.as_str());
    let mut text = format!(
        "{decision}: {}\n",
        output.wrap(&visible(&explained.reason), 7)
    );
    let mut fact = |name: &str, value: String| {
        let value = output.wrap(&value, 12);
        text.push_str(&format!(
            "{} {value}\n",
            output.paint(Tone::Faint, &format!("{name:<11}"))
        ));
    };
    let source = explained.decision_source.as_str().replace('_', " ");
    fact(
        "decided by",
        format!("{source}, in mode {}", explained.mode),
    );
    fact("kind", explained.action_class.to_string());
    if !explained.risk.is_empty() {
        fact("facts", visible(&explained.risk.join("; ")));
    }
    for rule in &explained.matched {
        let on = match &rule.on {
            Some(on) => format!(", matches `{}`", visible(on)),
            None => String::new(),
        };
        let (effect, origin) = (rule.effect, origin_words(&rule.origin));
        fact(
            "rule",
            format!("{effect} {} ({origin}){on}", visible(&rule.rule)),
        );
    }
    if let Some(parse) = &explained.parse {
        if !parse.ok {
            fact("parse", "the script could not be parsed".to_owned());
        }
        for command in &parse.commands {
            fact("runs", command_words(command));
        }
        for redirect in &parse.redirects {
            fact("redirects", visible(redirect));
        }
        match &parse.why_not_proven {
            Some(why) => fact(
                "not proven",
                format!("that it is read-only: {}", visible(why)),
            ),
            None if parse.read_only => fact("proven", "that it is read-only".to_owned()),
            None => fact(
                "proven",
                "that rules allow every command in it that is not read-only".to_owned(),
            ),
        }
    }
    if explained.decision == Effect::Ask {
        match &explained.suggested_rule {
            Some(rule) => fact("to allow", format!("add the rule `{}`", visible(rule))),
            None => fact("to allow", "no rule is narrow enough to suggest".to_owned()),
        }
    }
    text
}

fn command_words(command: &ParsedCommand) -> String {
    let mut words = visible(&command.words.join(" "));
    if !command.wrappers.is_empty() {
        words.push_str(&format!(
            " (through {})",
            visible(&command.wrappers.join(", "))
        ));
    }
    if command.dynamic {
        words.push_str(" (some words are not known until it runs)");
    }
    words
}
