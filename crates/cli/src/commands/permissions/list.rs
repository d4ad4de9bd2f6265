//! `agent permissions list`: the rules in force and where each stands.

use std::path::{Path, PathBuf};

use agent_policy::gate::Rule;
use agent_protocol::payload::permission::{Effect, RuleOrigin};
use agent_protocol::status::Mode;
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::origin_words;
use crate::app::App;
use crate::config::{self, SettingArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Table, Tone, visible};

/// List the permission rules in effect, with file and line
///
/// Rules of an untrusted project are listed too, marked as ignored.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Also use the permission rules in this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    rules: Option<PathBuf>,
    /// Print one JSON object (docs/schemas/permissions-list.schema.json)
    #[arg(long)]
    json: bool,
}

/// What `agent permissions list --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RuleList {
    mode: Mode,
    /// Deny beats ask beats allow, whatever the order here.
    rules: Vec<ListedRule>,
    /// What a project that is not trusted tried to allow.
    ignored: Vec<ListedRule>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ListedRule {
    effect: Effect,
    /// `tool` or `tool(pattern)`.
    rule: String,
    origin: RuleOrigin,
}

pub(crate) fn run(arguments: &ListArgs, app: &App) -> Result<Exit, Failure> {
    let config = config::load(&app.host, &app.project, &SettingArgs::default())?;
    let rules = agent_runtime::rules(app, &config, arguments.rules.as_deref())?;
    app.note_unknown_tools(&rules);
    let mut rules: Vec<ListedRule> = rules.into_iter().map(ListedRule::of).collect();
    rules.sort_by_key(|rule| match rule.effect {
        Effect::Deny => 0,
        Effect::Ask => 1,
        Effect::Allow => 2,
    });
    let ignored = config.ignored_rules.iter().cloned().map(|mut rule| {
        rule.origin.file = rule.origin.file.map(|file| app.short(Path::new(&file)));
        ListedRule::of(rule)
    });
    let list = RuleList {
        mode: config.permissions.mode.value,
        rules,
        ignored: ignored.collect(),
    };
    let doing = "cannot print the rules";
    if arguments.json {
        app.output.json(&list).context(doing)?;
        return Ok(Exit::Done);
    }
    let head = format!("mode {}", list.mode);
    app.output.print(&head).context(doing)?;
    if list.rules.is_empty() && list.ignored.is_empty() {
        let words = "no rules; only the mode decides";
        app.output.print(words).context(doing)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["EFFECT", "RULE", "FROM"]);
    for rule in &list.rules {
        let effect = rule.effect.to_string();
        table.row([effect, visible(&rule.rule), origin_words(&rule.origin)]);
    }
    for rule in &list.ignored {
        let effect = format!("({})", rule.effect);
        table.row([effect, visible(&rule.rule), origin_words(&rule.origin)]);
    }
    app.output.table(&table, Tone::Faint).context(doing)?;
    if !list.ignored.is_empty() {
        app.output.note(
            "rules in parentheses are ignored: their file is not trusted (run \
             `agent config trust` to trust it)",
        );
    }
    Ok(Exit::Done)
}

impl ListedRule {
    fn of(rule: Rule) -> Self {
        Self {
            effect: rule.effect,
            rule: rule.text,
            origin: rule.origin,
        }
    }
}
