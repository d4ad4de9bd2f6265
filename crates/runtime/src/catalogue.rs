//! Catalogue of a session that is not opened, for those who only want to know.

use std::sync::Arc;

use agent_engine::{AuthorityPlace, OnAsk, PendingApprovals, SessionAuthority};
use agent_protocol::payload::tool::CatalogEntry;
use agent_tool_runtime::VisibilityContext;

use crate::Runtime;
use crate::config::Config;
use crate::error::{OrFail as _, RuntimeError};
use crate::session::registry;
use crate::{Scratch, command_settings, rules};

/// The catalogue a new session would record with these settings.
pub fn catalogue(runtime: &Runtime, config: &Config) -> Result<Vec<CatalogEntry>, RuntimeError> {
    let nowhere = runtime.project.root().join(".agent/sessions/none");
    let name = format!("catalogue-{}", std::process::id());
    let scratch = Scratch::new(&runtime.host.directories.state, &name).or_usage()?;
    let settings = command_settings::settings(runtime, config, &nowhere, &scratch)?;
    let mode = config.permissions.mode.value;
    let place = AuthorityPlace {
        home: runtime.home(),
        sandbox: command_settings::level(&settings),
        tools: runtime.host.known_tools(),
        project: runtime.project.root().to_path_buf(),
        tree_is_dirty: Box::new(|| None),
        ask_timeout: None,
        command_timeout_ms: None,
        output_limit: None,
    };
    let authority = SessionAuthority::new(
        rules(runtime, config, None)?,
        mode,
        place,
        Arc::new(PendingApprovals::new(OnAsk::Deny)),
        Arc::clone(&runtime.host.clock),
    );
    let (registry, _) = registry(runtime, settings)?;
    let context = VisibilityContext {
        mode,
        ..VisibilityContext::default()
    };
    Ok(registry.catalogue(&context, &authority))
}
