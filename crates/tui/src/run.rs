//! The loop: keys and events in, frames and commands out. It sleeps until something happens, and
//! draws at most sixty times a second however much happens.

use std::io;
use std::time::Duration;

use crossterm::event::Event as TerminalEvent;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::host::{Exit, Input, Output, Settings};
use crate::report::{self, Report, Status};
use crate::surface::Surface;
use crate::terminal::{Console, RealConsole, as_screen};
use crate::ui::{Effect, Ui};
use crate::{highlight, plain, view};

/// The shortest time between two frames.
const FRAME: Duration = Duration::from_millis(16);
/// And after a key, which somebody waits for.
const KEY_FRAME: Duration = Duration::from_millis(4);
/// Inputs are taken in for this long before keys and the screen have their turn.
const DRAIN: Duration = Duration::from_millis(4);
/// Lines written to the scrollback at once.
const PRINT: usize = 1000;

/// Why the screen could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("cannot use this terminal")]
    Terminal { source: io::Error },
    #[error("cannot listen for signals")]
    Signals { source: io::Error },
}

/// Runs the screen on the real terminal until the user leaves, the other side is gone, or
/// `shutdown` is cancelled. The terminal is as before when this returns, also by a panic.
///
/// # Errors
/// When there is no terminal to use.
pub async fn run(
    settings: Settings,
    inputs: UnboundedReceiver<Input>,
    outputs: UnboundedSender<Output>,
    shutdown: CancellationToken,
) -> Result<Exit, RunError> {
    if settings.plain {
        return plain::run(settings, inputs, outputs, shutdown).await;
    }
    highlight::warm_up();
    let screen = run_on(RealConsole::new(), settings, inputs, outputs, shutdown);
    as_screen(screen).await
}

/// The same on any console.
///
/// # Errors
/// When the console fails.
pub async fn run_on<C: Console>(
    mut console: C,
    settings: Settings,
    mut inputs: UnboundedReceiver<Input>,
    outputs: UnboundedSender<Output>,
    shutdown: CancellationToken,
) -> Result<Exit, RunError> {
    let mut signals = Signals::new()?;
    let mut screen = Screen::open(&mut console, settings)?;
    let mut wake;
    let exit = loop {
        screen.draw_if_due(&mut console)?;
        wake = screen.next_wake();
        let sleep = async {
            match wake {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let effects = tokio::select! {
            biased;
            number = signals.next() => break Exit::Signal(number),
            () = shutdown.cancelled() => break Exit::Ended,
            event = console.next_event() => match event {
                Some(Ok(event)) => screen.terminal(&event),
                Some(Err(source)) => return Err(RunError::Terminal { source }),
                None => break Exit::Ended,
            },
            input = inputs.recv() => match input {
                Some(input) => screen.inputs(input, &mut inputs),
                None => break Exit::Ended,
            },
            // Keys were looked for first: nothing followed the one that waits to be an answer.
            () = sleep => {
                screen.tick();
                screen.ui.ripen()
            }
        };
        if let Some(exit) = screen.perform(effects, &mut console, &outputs)? {
            break exit;
        }
    };
    screen.close(&mut console)?;
    Ok(exit)
}

/// Signals that end the screen.
pub(crate) struct Signals(Vec<(i32, Signal)>);

impl Signals {
    fn new() -> Result<Self, RunError> {
        let mut signals = Self::ending()?;
        signals.listen(SignalKind::interrupt())?;
        Ok(signals)
    }

    /// Those that never mean anything else.
    pub(crate) fn ending() -> Result<Self, RunError> {
        let mut signals = Self(Vec::new());
        signals.listen(SignalKind::terminate())?;
        signals.listen(SignalKind::hangup())?;
        Ok(signals)
    }

    fn listen(&mut self, kind: SignalKind) -> Result<(), RunError> {
        let listening = signal(kind).map_err(|source| RunError::Signals { source })?;
        self.0.push((kind.as_raw_value(), listening));
        Ok(())
    }

    /// The number of the next one.
    pub(crate) async fn next(&mut self) -> i32 {
        std::future::poll_fn(|context| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// The state on the screen and when it was last drawn.
struct Screen {
    ui: Ui,
    surface: Surface,
    started: Instant,
    drawn_at: Option<Instant>,
    dirty: bool,
    /// A key has not been answered yet.
    is_awaited: bool,
    /// The title and the status the terminal was told last.
    title: String,
    status: Option<Status>,
    bytes: Vec<u8>,
}

impl Screen {
    fn open<C: Console>(console: &mut C, settings: Settings) -> Result<Self, RunError> {
        let terminal = |source| RunError::Terminal { source };
        let (columns, rows) = console.size().map_err(terminal)?;
        console.enter().map_err(terminal)?;
        let surface = Surface::new(columns, rows, settings.terminal_reflows);
        let mut ui = Ui::new(settings);
        ui.columns = usize::from(columns);
        Ok(Self {
            ui,
            surface,
            started: Instant::now(),
            drawn_at: None,
            dirty: true,
            is_awaited: false,
            title: String::new(),
            status: None,
            bytes: Vec::new(),
        })
    }

    fn tick(&mut self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.ui.tick(now);
        self.dirty = true;
    }

    fn terminal(&mut self, event: &TerminalEvent) -> Vec<Effect> {
        self.tick();
        self.is_awaited = true;
        if let TerminalEvent::Resize(columns, rows) = event {
            self.surface.resize(*columns, *rows);
            self.ui.columns = usize::from(*columns);
        }
        self.ui.terminal(event)
    }

    /// Takes in `first` and what else is there already, for a bounded time.
    fn inputs(&mut self, first: Input, more: &mut UnboundedReceiver<Input>) -> Vec<Effect> {
        self.tick();
        let until = Instant::now() + DRAIN;
        let mut effects = self.ui.input(first);
        let mut count = 0u32;
        while let Ok(input) = more.try_recv() {
            effects.extend(self.ui.input(input));
            count += 1;
            if count.is_multiple_of(64) && Instant::now() >= until {
                break;
            }
        }
        effects
    }

    /// How long after the last frame the next one may come.
    fn apart(&self) -> Duration {
        if self.is_awaited { KEY_FRAME } else { FRAME }
    }

    fn draw_if_due<C: Console>(&mut self, console: &mut C) -> Result<(), RunError> {
        let apart = self.apart();
        let due = self.drawn_at.is_none_or(|drawn| drawn.elapsed() >= apart);
        if !self.dirty || !due {
            return Ok(());
        }
        self.dirty = false;
        self.is_awaited = false;
        let (columns, rows) = self.surface.size();
        let (columns, rows) = (usize::from(columns), usize::from(rows));
        let mut frame = view::frame(&self.ui, columns, rows);
        let mut print = Vec::new();
        // Under a full-screen view nothing is printed: it waits until the view is left.
        if !frame.full_screen {
            print = view::print_finished(&mut self.ui, columns, PRINT);
            if !print.is_empty() {
                frame = view::frame(&self.ui, columns, rows);
            }
        }
        // More is waiting to be printed than one frame takes.
        self.dirty = print.len() >= PRINT;
        self.bytes.clear();
        self.surface.draw(&mut self.bytes, &print, &frame);
        self.report();
        if !self.bytes.is_empty() {
            console
                .write(&self.bytes)
                .map_err(|source| RunError::Terminal { source })?;
        }
        self.drawn_at = Some(Instant::now());
        let guarded = self.ui.is_guarded();
        self.ui
            .tick(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX));
        self.ui.drawn(&frame.shown);
        // The guard may have ended while the frame was on its way.
        self.dirty |= guarded && !self.ui.is_guarded();
        Ok(())
    }

    /// Tells the terminal what has changed since it was told last.
    fn report(&mut self) {
        if self.ui.settings.tab_title {
            let title = report::tab_title(&self.ui);
            if title != self.title {
                let told = Report::Title(title.clone());
                self.bytes.extend(told.bytes());
                self.title = title;
            }
        }
        if self.ui.settings.program_status {
            let status = report::status(&self.ui);
            if self.status.as_ref() != Some(&status) {
                self.bytes.extend(Report::Status(status.clone()).bytes());
                self.status = Some(status);
            }
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let frame = self.dirty.then(|| {
            self.drawn_at
                .map_or_else(Instant::now, |drawn| drawn + self.apart())
        });
        let change = self
            .ui
            .next_wake()
            .map(|millis| self.started + Duration::from_millis(millis));
        [frame, change].into_iter().flatten().min()
    }

    fn perform<C: Console>(
        &mut self,
        effects: Vec<Effect>,
        console: &mut C,
        outputs: &UnboundedSender<Output>,
    ) -> Result<Option<Exit>, RunError> {
        let terminal = |source| RunError::Terminal { source };
        for effect in effects {
            let output = match effect {
                Effect::Command(command) => Output::Command(command),
                Effect::Host(request) => Output::Host(request),
                Effect::Exit(exit) => return Ok(Some(exit)),
                Effect::Redraw => {
                    self.surface.redraw();
                    continue;
                }
                Effect::Notify(text) => {
                    console
                        .write(&Report::Ring(text).bytes())
                        .map_err(terminal)?;
                    continue;
                }
                Effect::Copy { text, what } => {
                    let is_inside_tmux = self.ui.settings.is_inside_tmux;
                    match report::copy(&text, is_inside_tmux) {
                        Ok(bytes) => {
                            console.write(&bytes).map_err(terminal)?;
                            self.ui.hint(report::copied(&text, what, is_inside_tmux));
                        }
                        Err(too_long) => self.ui.hint(too_long),
                    }
                    continue;
                }
                Effect::Suspend => {
                    self.release(console).map_err(terminal)?;
                    console.suspend();
                    self.take_back(console).map_err(terminal)?;
                    continue;
                }
                Effect::ExternalEditor => {
                    self.edit(console).map_err(terminal)?;
                    continue;
                }
            };
            if outputs.send(output).is_err() {
                return Ok(Some(Exit::Ended));
            }
        }
        Ok(None)
    }

    fn edit<C: Console>(&mut self, console: &mut C) -> io::Result<()> {
        let Some(editor) = self.ui.settings.external_editor.clone() else {
            self.ui.hint("no editor is set");
            return Ok(());
        };
        self.release(console)?;
        let saved = editor(&self.ui.text_for_editor());
        self.take_back(console)?;
        self.ui.text_from_editor(saved);
        Ok(())
    }

    fn release<C: Console>(&mut self, console: &mut C) -> io::Result<()> {
        self.bytes.clear();
        self.surface.finish(&mut self.bytes);
        if self.status.take().is_some() {
            self.bytes.extend(Report::ClearStatus.bytes());
        }
        console.write(&self.bytes)?;
        console.leave()
    }

    fn take_back<C: Console>(&mut self, console: &mut C) -> io::Result<()> {
        console.enter()?;
        let (columns, rows) = console.size()?;
        self.surface.forget();
        self.surface.resize(columns, rows);
        self.ui.columns = usize::from(columns);
        self.title.clear();
        self.ui.renew_guard();
        self.dirty = true;
        Ok(())
    }

    fn close<C: Console>(&mut self, console: &mut C) -> Result<(), RunError> {
        let terminal = |source| RunError::Terminal { source };
        // What is finished belongs into the scrollback, also when the end came quickly.
        let columns = usize::from(self.surface.size().0);
        self.ui.closing = true;
        loop {
            let print = view::print_finished(&mut self.ui, columns, PRINT);
            if print.is_empty() {
                break;
            }
            self.bytes.clear();
            self.surface
                .draw(&mut self.bytes, &print, &view::Frame::default());
            console.write(&self.bytes).map_err(terminal)?;
        }
        self.release(console).map_err(terminal)
    }
}
