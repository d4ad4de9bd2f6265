//! The tools of a session that is not opened, for whoever only wants to know.

use std::sync::Arc;

use agent_engine::{AuthorityPlace, Desk, OnAsk, SessionAuthority};
use agent_protocol::payload::tool::CatalogEntry;
use agent_tool_runtime::VisibilityContext;

use super::{Scratch, commands, open, rules};
use crate::app::App;
use crate::config::Config;
use crate::failure::{Failure, OrFail as _};

/// The catalogue a new session would record with these settings.
pub(crate) fn catalogue(app: &App, config: &Config) -> Result<Vec<CatalogEntry>, Failure> {
    let nowhere = app.project.root().join(".agent/sessions/none");
    let name = format!("catalogue-{}", std::process::id());
    let scratch = Scratch::new(&app.host.directories.state, &name).or_usage()?;
    let settings = commands::settings(app, config, &nowhere, &scratch)?;
    let mode = config.permissions.mode.value;
    let place = AuthorityPlace {
        home: app.home(),
        sandbox: commands::level(&settings),
        project: app.project.root().to_path_buf(),
        tree_is_dirty: Box::new(|| None),
        ask_timeout: None,
        command_timeout_ms: None,
        output_limit: None,
    };
    let authority = SessionAuthority::new(
        rules(app, config, None)?,
        mode,
        place,
        Arc::new(Desk::new(OnAsk::Deny)),
        Arc::clone(&app.host.clock),
    );
    let (registry, _) = open::registry(app, settings)?;
    let context = VisibilityContext {
        mode,
        ..VisibilityContext::default()
    };
    Ok(registry.catalogue(&context, &authority))
}
