//! The published shapes of `--json` outputs, made from the types that are printed.
//! `AGENT_UPDATE_DOCS=1 cargo test -p agent-cli schemas` writes them anew.

use std::path::Path;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;

use crate::commands::{
    actions, audit, call, config, diff, doctor, fork, import, models, permissions, rerun, review,
    sandbox, sessions, tools, undo, why,
};
use crate::headless::RunReport;

/// File name under `docs/schemas/`, without `.schema.json`, and the schema.
fn all() -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("actions", of::<actions::ActionsOutput>()),
        ("audit", of::<audit::AuditOutput>()),
        ("audit-all", of::<audit::AuditAllOutput>()),
        ("call", of::<call::CallOutput>()),
        ("config-path", of::<config::ConfigPath>()),
        ("config-show", of::<config::ConfigShow>()),
        ("config-trust", of::<config::ConfigTrust>()),
        ("diff", of::<diff::DiffOutput>()),
        ("doctor", of::<doctor::DoctorReport>()),
        ("fork", of::<fork::ForkOutput>()),
        ("import", of::<import::ImportOutput>()),
        ("models", of::<models::ModelsOutput>()),
        (
            "permissions-explain",
            of::<permissions::explain::Explained>(),
        ),
        ("permissions-list", of::<permissions::list::RuleList>()),
        (
            "permissions-test",
            of::<permissions::backtest::BacktestOutput>(),
        ),
        ("portable-event", agent_evidence::export::portable_schema()),
        ("rerun", of::<rerun::RerunOutput>()),
        ("replay", agent_evidence::replay::json::schema()),
        ("replay-card", agent_evidence::replay::json::card_schema()),
        ("report", agent_evidence::report::schema()),
        ("review", of::<review::ReviewOutput>()),
        ("run", of::<RunReport>()),
        ("sandbox-check", of::<sandbox::CheckOutput>()),
        ("sessions-list", of::<sessions::list::SessionList>()),
        ("sessions-prune", of::<sessions::prune::PruneReport>()),
        ("sessions-show", of::<sessions::show::SessionShow>()),
        ("sessions-size", of::<sessions::size::SessionSizes>()),
        ("tools", of::<tools::ToolsOutput>()),
        ("undo", of::<undo::UndoOutput>()),
        ("why", of::<why::WhyOutput>()),
    ]
}

fn of<T: JsonSchema>() -> serde_json::Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

#[test]
fn the_schemas_are_current_and_compile() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    for (name, schema) in all() {
        let file = directory.join(format!("{name}.schema.json"));
        let mut text = serde_json::to_string_pretty(&schema).unwrap();
        text.push('\n');
        if std::env::var_os("AGENT_UPDATE_DOCS").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        let found = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            found == text,
            "{name} is not current; run AGENT_UPDATE_DOCS=1 cargo test -p agent-cli schemas"
        );
        jsonschema::options().offline().build(&schema).unwrap();
    }
}
