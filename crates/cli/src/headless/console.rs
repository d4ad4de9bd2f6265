//! A terminal during a headless run: the answer as it arrives, and one line below it that says what is
//! going on, replaced in place. Where there is no terminal, none of it happens.
//!
//! The answer is what the log has: pieces are printed once the log has taken them, each block when no
//! further text can change it.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use agent_history::describe;
use agent_protocol::id::{ModelRequestId, ToolCallId};
use agent_protocol::{Event, Payload};
use agent_text::clip;
use agent_text::words::seconds;
use agent_tui::markdown;
use agent_tui::surface::printed;
use agent_tui::theme::Theme;

use crate::app::App;
use crate::output::visible;

/// Time between two looks at the line; it changes once a second, and when something happens.
const TICK: Duration = Duration::from_millis(250);
/// Shortest work worth a line: less is over before it can be read.
const CALM: Duration = Duration::from_millis(500);
/// Answers are easier to read when their lines are not as wide as a wide terminal.
const WIDEST: usize = 100;

/// Terminal of a run, shared with the thread that keeps the line current.
pub(super) struct Console {
    shared: Arc<Shared>,
    ticker: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    over: Condvar,
}

/// The parts of the terminal that may be written to.
#[derive(Clone, Copy)]
pub(super) struct Shows {
    /// The answer is rendered and printed as it arrives.
    pub(super) answer: bool,
    /// The line is shown.
    pub(super) line: bool,
}

impl Shows {
    /// Everything that `app` may show on this process's own terminal.
    pub(super) fn on_terminal(app: &App, is_text: bool, is_quiet: bool) -> Self {
        let term = app.host.environment.get("TERM");
        let can_move = term.is_some_and(|term| !term.is_empty() && term != "dumb");
        Self {
            answer: is_text && can_move && io::stdout().is_terminal(),
            line: !is_quiet && can_move && io::stderr().is_terminal(),
        }
    }
}

struct State {
    shows: Shows,
    width: usize,
    theme: Theme,
    /// False where only characters are wanted.
    styled: bool,
    /// True while the line is on the terminal.
    drawn: bool,
    work: Vec<Work>,
    answer: Answer,
    is_over: bool,
}

/// Something that takes time.
struct Work {
    of: Of,
    label: String,
    since: Instant,
    /// The last line it printed.
    last: String,
}

#[derive(PartialEq)]
enum Of {
    Model,
    Call(ToolCallId),
    /// A pause before the model is asked again; its label says how long.
    Pause,
}

#[derive(Default)]
struct Answer {
    request: Option<ModelRequestId>,
    /// Text of this answer that was not printed yet.
    pending: String,
    /// True if some of this answer was printed.
    begun: bool,
    /// True if an answer was printed to its end, and nothing was asked after it.
    whole: bool,
    /// True if something was printed, so that the next block needs a gap.
    any: bool,
}

impl Console {
    /// Begins; the thread runs only where there is a line to keep current.
    pub(super) fn new(app: &App, shows: Shows) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                shows,
                width: app.output.width(),
                theme: crate::screen::theme(app),
                styled: app.output.has_color(),
                drawn: false,
                work: Vec::new(),
                answer: Answer::default(),
                is_over: false,
            }),
            over: Condvar::new(),
        });
        let ticking = Arc::clone(&shared);
        let ticker = shows.line.then(|| {
            let thread = thread::Builder::new().name("progress".to_owned());
            thread.spawn(move || ticking.tick()).ok()
        });
        Self {
            shared,
            ticker: ticker.flatten(),
        }
    }

    /// Takes in what was recorded.
    pub(super) fn listener(&self) -> impl FnMut(&Event) -> bool + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move |event| {
            let mut state = shared.lock();
            state.take(event);
            state.take_answer(event).is_ok()
        }
    }

    /// Printer of lines that stay, above the one that is replaced.
    pub(super) fn printer(&self) -> Printer {
        Printer(Arc::clone(&self.shared))
    }

    /// Takes the line away. Gives true if the last answer is on the terminal already.
    pub(super) fn end(mut self) -> bool {
        self.stop();
        self.shared.lock().answer.whole
    }

    fn stop(&mut self) {
        let mut state = self.shared.lock();
        state.is_over = true;
        state.clear();
        drop(state);
        self.shared.over.notify_all();
        if let Some(ticker) = self.ticker.take() {
            let _ = ticker.join();
        }
    }
}

/// Guard that leaves the terminal without the line, however the run ends.
impl Drop for Console {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Prints lines that stay.
pub(super) struct Printer(Arc<Shared>);

impl Printer {
    /// Prints `line` on standard error.
    pub(super) fn line(&self, line: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.clear();
        writeln!(io::stderr(), "{line}")?;
        state.draw();
        Ok(())
    }

    /// True if a pause before the next attempt is shown in the line that is replaced.
    pub(super) fn shows_line(&self) -> bool {
        self.0.lock().shows.line
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(&self) {
        let mut state = self.lock();
        while !state.is_over {
            state.draw();
            state = self
                .over
                .wait_timeout(state, TICK)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

impl State {
    /// Takes in the work that `event` tells of.
    fn take(&mut self, event: &Event) {
        let call = event.scope.tool_call_id.clone().map(Of::Call);
        match (&event.payload, call) {
            (Payload::ModelRequested(requested), _) => {
                self.done(&Of::Pause);
                self.done(&Of::Model);
                self.begin(Of::Model, format!("waiting for {}", requested.model));
            }
            (Payload::ModelCompleted(_), _) => self.done(&Of::Model),
            (Payload::ModelFailed(failed), _) => {
                self.done(&Of::Model);
                if let Some(words) = failed.retry_in_words() {
                    self.begin(Of::Pause, words);
                }
            }
            (Payload::ToolIntent(_), Some(of)) => {
                self.begin(of, describe(event).line());
            }
            (Payload::ProcessOutput(output), Some(of)) => {
                let news = output.preview.as_deref().unwrap_or_default();
                let last = news.lines().rev().find(|line| !line.trim().is_empty());
                if let (Some(last), Some(work)) = (last, self.work(&of)) {
                    work.last = last.trim().to_owned();
                }
            }
            (Payload::ToolObservation(_), Some(of)) => self.done(&of),
            (Payload::TurnCompleted(_) | Payload::TurnFailed(_), _) => self.work.clear(),
            _ => return,
        }
        self.draw();
    }

    fn begin(&mut self, of: Of, label: String) {
        self.work.push(Work {
            of,
            label,
            since: Instant::now(),
            last: String::new(),
        });
    }

    fn done(&mut self, of: &Of) {
        self.work.retain(|work| work.of != *of);
    }

    fn work(&mut self, of: &Of) -> Option<&mut Work> {
        self.work.iter_mut().find(|work| work.of == *of)
    }

    /// Draws the line anew, or takes it away when nothing goes on.
    fn draw(&mut self) {
        if !self.shows.line || self.is_over {
            return;
        }
        // What began first is waited for longest; a pause has to be known at once.
        let pause = self.work.iter().find(|work| work.of == Of::Pause);
        let shown = pause.or_else(|| {
            let old = self.work.iter().filter(|work| work.since.elapsed() >= CALM);
            old.min_by_key(|work| work.since)
        });
        let Some(shown) = shown else {
            self.clear();
            return;
        };
        let others = match self.work.len() {
            1 => String::new(),
            count => format!(" (+{} more)", count - 1),
        };
        let line = shown.in_words(&others, self.columns().saturating_sub(1));
        // When standard error is gone there is nobody left to tell.
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
        let _ = io::stderr().flush();
        self.drawn = true;
    }

    /// The columns of the window as it is now.
    fn columns(&self) -> usize {
        let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
        let columns = size.map(|size| usize::from(size.ws_col));
        columns.filter(|columns| *columns > 0).unwrap_or(self.width)
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(io::stderr(), "\r\x1b[K");
            let _ = io::stderr().flush();
        }
    }

    fn take_answer(&mut self, event: &Event) -> io::Result<()> {
        if !self.shows.answer {
            return Ok(());
        }
        match &event.payload {
            Payload::ModelRequested(requested) => {
                // What a summary says is no part of the conversation.
                let is_answer = requested.purpose.is_none();
                self.answer.request = is_answer.then(|| requested.model_request_id.clone());
                self.answer.pending.clear();
                (self.answer.begun, self.answer.whole) = (false, false);
            }
            Payload::ModelDelta(delta) if self.is_answer(&delta.model_request_id) => {
                self.answer.pending.push_str(&delta.text);
                let finished = markdown::finished_prefix(&self.answer.pending);
                let rest = self.answer.pending.split_off(finished);
                let block = std::mem::replace(&mut self.answer.pending, rest);
                self.print_block(&block)?;
            }
            Payload::ModelCompleted(completed) if self.is_answer(&completed.model_request_id) => {
                let mut rest = std::mem::take(&mut self.answer.pending);
                if rest.is_empty() && !self.answer.begun {
                    rest = completed.text.clone().unwrap_or_default();
                }
                self.print_block(&rest)?;
                self.answer.whole = self.answer.begun;
            }
            Payload::ModelFailed(failed) if self.is_answer(&failed.model_request_id) => {
                self.answer.pending.clear();
                if std::mem::take(&mut self.answer.begun) {
                    self.print_block("*(the answer broke off here)*")?;
                    self.answer.begun = false;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn is_answer(&self, request: &ModelRequestId) -> bool {
        self.answer.request.as_ref() == Some(request)
    }

    /// Prints whole blocks, with a gap before them.
    fn print_block(&mut self, text: &str) -> io::Result<()> {
        if text.trim().is_empty() {
            return Ok(());
        }
        let columns = self.columns().min(WIDEST);
        let lines = markdown::render(text, columns, self.theme);
        self.clear();
        let mut out = Vec::new();
        if std::mem::replace(&mut self.answer.any, true) {
            out.push(b'\n');
        }
        printed(&mut out, &lines, self.styled);
        let mut stdout = io::stdout().lock();
        stdout.write_all(&out)?;
        stdout.flush()?;
        drop(stdout);
        self.answer.begun = true;
        self.draw();
        Ok(())
    }
}

impl Work {
    fn in_words(&self, others: &str, width: usize) -> String {
        let label = visible(&self.label);
        if self.of == Of::Pause {
            return clip(&format!("! {label}"), width);
        }
        let took = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let took = seconds(took);
        let last = visible(&self.last);
        if last.is_empty() {
            let room = width.saturating_sub(agent_text::width(&took) + others.len() + 3);
            return format!("· {}{others} {took}", clip(&label, room));
        }
        // A long command leaves room for what it says.
        let label = clip(&label, width / 2);
        clip(&format!("· {label}{others} {took} · {last}"), width)
    }
}
