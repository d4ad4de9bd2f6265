//! The player on a terminal.

use crossterm::event::{Event as TerminalEvent, KeyEventKind};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{EventSource, Player};
use crate::highlight;
use crate::host::{Exit, Settings};
use crate::run::RunError;
use crate::surface::Surface;
use crate::terminal::{Console, RealConsole, as_screen};

/// Plays a session on the real terminal until the user leaves.
///
/// # Errors
/// When there is no terminal to use.
pub async fn replay(
    settings: Settings,
    source: Box<dyn EventSource>,
    at: Option<u64>,
    shutdown: CancellationToken,
) -> Result<Exit, RunError> {
    highlight::warm_up();
    as_screen(replay_on(
        RealConsole::new(),
        settings,
        source,
        at,
        shutdown,
    ))
    .await
}

/// The same on any console.
///
/// # Errors
/// When the console fails.
pub async fn replay_on<C: Console>(
    mut console: C,
    settings: Settings,
    source: Box<dyn EventSource>,
    at: Option<u64>,
    shutdown: CancellationToken,
) -> Result<Exit, RunError> {
    let terminal = |source| RunError::Terminal { source };
    let theme = settings.theme();
    let (columns, rows) = console.size().map_err(terminal)?;
    console.enter().map_err(terminal)?;
    let mut surface = Surface::new(columns, rows, settings.terminal_reflows);
    let mut player = Player::new(source, at.or(Some(0)));
    let mut bytes = Vec::new();
    match at {
        Some(_) => player.advance(),
        None => player.begin(),
    }
    let exit = loop {
        // Whether it goes on playing is part of the picture.
        let wake = if player.is_moving() {
            Some(Instant::now())
        } else {
            player.pause().map(|pause| Instant::now() + pause)
        };
        let (columns, rows) = surface.size();
        let frame = player.frame(usize::from(columns), usize::from(rows), theme);
        if let Some((top, above)) = frame.shown.transcript {
            (player.transcript.top, player.transcript.above) = (top, above);
        }
        bytes.clear();
        surface.draw(&mut bytes, &[], &frame);
        console.write(&bytes).map_err(terminal)?;
        let sleep = async {
            match wake {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break Exit::Ended,
            event = console.next_event() => match event {
                Some(Ok(TerminalEvent::Key(key))) if key.kind != KeyEventKind::Release => {
                    if player.key(key, usize::from(columns), theme) {
                        break Exit::Quit;
                    }
                }
                Some(Ok(TerminalEvent::Resize(columns, rows))) => surface.resize(columns, rows),
                Some(Ok(_)) => {}
                Some(Err(source)) => return Err(RunError::Terminal { source }),
                None => break Exit::Ended,
            },
            () = sleep => {
                if !player.is_moving() {
                    player.seek(player.position() + 1);
                }
            }
        }
        player.advance();
    };
    bytes.clear();
    surface.finish(&mut bytes);
    console.write(&bytes).map_err(terminal)?;
    console.leave().map_err(terminal)?;
    Ok(exit)
}
