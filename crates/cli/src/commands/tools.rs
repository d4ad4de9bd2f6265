//! `agent tools`: the tools there are, with everything that is known about them before any call.

use agent_protocol::payload::tool::CatalogEntry;
use agent_protocol::status::Mode;
use agent_tool_runtime::registry::catalogue_hash;
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::config::{self, SettingArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Table, Tone};

/// List the tools a model can use, with details of each
///
/// Every session records this catalogue. `unavailable` tools are not offered to the model, and
/// calls to them are refused.
#[derive(Args, Debug)]
pub(crate) struct ToolsArgs {
    /// Print one JSON object (docs/schemas/tools.schema.json)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingArgs,
}

/// What `agent tools --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ToolsOutput {
    mode: Mode,
    /// As in `tool.catalog.resolved`.
    catalog_hash: String,
    tools: Vec<CatalogEntry>,
}

pub(crate) fn run(arguments: &ToolsArgs, app: &App) -> Result<Exit, Failure> {
    let config = config::load(&app.host, &app.project, &arguments.settings)?;
    app.note_ignored_settings(&config);
    let mode = config.permissions.mode.value;
    let tools = agent_runtime::catalogue::catalogue(app, &config)?;
    let doing = "cannot print the catalogue";
    if arguments.json {
        let printed = ToolsOutput {
            mode,
            catalog_hash: catalogue_hash(&tools),
            tools,
        };
        app.output.json(&printed).context(doing)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["TOOL", "POLICY", "RUNS", "RISK", "DOES"]);
    for tool in &tools {
        let risks: Vec<&str> = tool.risk.iter().map(|risk| risk.as_str()).collect();
        let description = tool.description.as_deref().unwrap_or_default();
        let first = description
            .split_once(". ")
            .map_or(description, |(first, _)| first);
        table.row([
            tool.tool_name.clone(),
            tool.policy.to_string(),
            tool.concurrency.to_string(),
            risks.join(","),
            first.trim_end_matches('.').to_owned(),
        ]);
    }
    app.output.table(&table, Tone::Faint).context(doing)?;
    Ok(Exit::Done)
}
