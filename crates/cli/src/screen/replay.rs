//! A past session on the screen: the player gets the events and what they name, and nothing else.

use std::sync::Arc;

use agent_log::{ArtifactStore, LogIndex, SessionDirectory};
use agent_protocol::Event;
use agent_protocol::id::ArtifactId;
use agent_tui::replay::EventSource;
use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::{self, SettingArgs};
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};

/// The most bytes of an artifact that the player gets.
const IMAGE_LIMIT: u64 = 16 << 20;

/// Opens the player at the event `at`, or at the beginning.
pub(crate) fn replay(
    app: &App,
    session: &SessionDirectory,
    at: Option<u64>,
) -> Result<Exit, Failure> {
    let doing = || format!("cannot replay session {}", session.id());
    let log = session.index().with_context(doing).or_usage()?;
    let config = config::load(&app.host, &app.project, &SettingArgs::default())?;
    let settings = super::settings(app, &config);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .or_fail()?;
    let shutdown = CancellationToken::new();
    let past = Past {
        log,
        artifacts: session.artifacts().ok(),
    };
    let played = agent_tui::replay::replay(settings, Box::new(past), at, shutdown);
    runtime.block_on(played).with_context(doing).or_fail()?;
    Ok(Exit::Done)
}

/// The events of a session and the artifacts they name, only read, and only when they are shown.
struct Past {
    log: LogIndex,
    artifacts: Option<ArtifactStore>,
}

impl EventSource for Past {
    fn count(&self) -> u64 {
        self.log.count()
    }

    fn read(&mut self, from: u64, most: usize) -> Result<Vec<Arc<Event>>, String> {
        let events = self.log.read(from, most).map_err(|error| {
            let source = error.source.to_string();
            format!("{error}: {source}")
        })?;
        Ok(events.into_iter().map(Arc::new).collect())
    }

    fn artifact(&self, id: &ArtifactId) -> Result<Vec<u8>, String> {
        let artifacts = self.artifacts.as_ref().ok_or("no artifacts")?;
        artifacts
            .read(id, IMAGE_LIMIT)
            .map_err(|error| error.to_string())
    }
}
