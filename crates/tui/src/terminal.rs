//! The real terminal: raw mode, keys, size, and giving everything back on every way out.

use std::cell::Cell;
use std::future::Future;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use crossterm::event::{Event, EventStream};
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use futures_util::StreamExt as _;

use crate::report::Report;

/// What the loop draws on. The second implementation is a test's.
pub trait Console: Send {
    /// Begin to take keys one by one.
    ///
    /// # Errors
    /// When there is no terminal.
    fn enter(&mut self) -> io::Result<()>;
    /// Give the terminal back as it was.
    ///
    /// # Errors
    /// When the terminal is gone.
    fn leave(&mut self) -> io::Result<()>;
    /// # Errors
    /// When the terminal is gone.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Columns and rows.
    ///
    /// # Errors
    /// When there is no terminal.
    fn size(&self) -> io::Result<(u16, u16)>;
    /// The next key, paste, resize or focus change; nothing when there will be none.
    fn next_event(&mut self) -> impl Future<Output = Option<io::Result<Event>>> + Send;
    /// Stop this process until the shell brings it back.
    fn suspend(&mut self);
}

/// Whether the terminal is in our hands, for the panic hook.
static ENTERED: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();
/// What other threads said when they panicked while the screen was on. It is printed when the screen
/// is off again: in the middle of a frame nobody could read it.
static LATER: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    /// Whether this thread is drawing right now.
    static DRAWING: Cell<bool> = const { Cell::new(false) };
}

/// Runs the screen's future and knows, on whatever thread it goes on, that this is the screen.
pub(crate) async fn as_screen<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        let before = DRAWING.replace(true);
        let polled = future.as_mut().poll(context);
        DRAWING.set(before);
        polled
    })
    .await
}

const ENTER: &str = "\x1b[22;2t\x1b[?2004h\x1b[?1004h";
const LEAVE: &str = "\x1b[?1004l\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[0m\x1b[23;2t";
/// After a panic nobody knows what was on: everything that could be is switched off. Leaving the
/// alternate screen is harmless where it was not entered.
const RESCUE: &str =
    "\x1b[?2026l\x1b[?1049l\x1b[?1004l\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[0m\x1b[23;2t\r\n\x1b[J";

/// Standard input and output.
#[derive(Default)]
pub struct RealConsole {
    events: Option<EventStream>,
}

impl RealConsole {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Console for RealConsole {
    fn enter(&mut self) -> io::Result<()> {
        HOOK.call_once(|| {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                if ENTERED.load(Ordering::SeqCst) && !DRAWING.get() {
                    let mut later = LATER.lock().unwrap_or_else(PoisonError::into_inner);
                    later.push(panic.to_string());
                    return;
                }
                rescue();
                previous(panic);
            }));
        });
        enable_raw_mode()?;
        ENTERED.store(true, Ordering::SeqCst);
        self.events = Some(EventStream::new());
        self.write(ENTER.as_bytes())
    }

    fn leave(&mut self) -> io::Result<()> {
        // The stream's thread must not take keys that are meant for whoever comes next.
        self.events = None;
        if ENTERED.swap(false, Ordering::SeqCst) {
            let written = self.write(LEAVE.as_bytes());
            disable_raw_mode()?;
            written?;
        }
        for said in std::mem::take(&mut *LATER.lock().unwrap_or_else(PoisonError::into_inner)) {
            self.write(format!("{}\n", crate::safe::content(&said)).as_bytes())?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }

    fn size(&self) -> io::Result<(u16, u16)> {
        crossterm::terminal::size().map(usual_for_unknown)
    }

    async fn next_event(&mut self) -> Option<io::Result<Event>> {
        match &mut self.events {
            Some(events) => events.next().await.map(|event| match event {
                Ok(Event::Resize(columns, rows)) => {
                    let (columns, rows) = usual_for_unknown((columns, rows));
                    Ok(Event::Resize(columns, rows))
                }
                other => other,
            }),
            None => std::future::pending().await,
        }
    }

    fn suspend(&mut self) {
        // To this thread, and not to the process: a signal to the process may stop another thread
        // first, and this one would take the terminal back before the shell has it.
        let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGTSTP);
    }
}

/// A terminal that nobody gave a size says 0, as some containers' and recorders' do.
pub(crate) fn usual_for_unknown((columns, rows): (u16, u16)) -> (u16, u16) {
    let or = |size: u16, usual: u16| if size == 0 { usual } else { size };
    (or(columns, 80), or(rows, 24))
}

impl Drop for RealConsole {
    fn drop(&mut self) {
        self.events = None;
        rescue();
    }
}

/// Gives the terminal back whatever happened, once.
fn rescue() {
    if ENTERED.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(RESCUE.as_bytes());
        let _ = out.write_all(&Report::ClearStatus.bytes());
        let _ = out.flush();
        let _ = disable_raw_mode();
    }
}
