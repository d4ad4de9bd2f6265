//! A terminal that is not there: keys from a channel, bytes into a screen that understands them.

use std::io;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_tui::terminal::Console;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The far side of a [`FakeConsole`].
#[derive(Clone)]
pub(crate) struct Glass {
    parser: Arc<Mutex<vt100::Parser>>,
    raw: Arc<Mutex<Vec<u8>>>,
    entered: Arc<Mutex<bool>>,
    events: UnboundedSender<Event>,
}

pub(crate) struct FakeConsole {
    glass: Glass,
    events: UnboundedReceiver<Event>,
}

pub(crate) fn size(columns: u16, rows: u16) -> (NonZeroU16, NonZeroU16) {
    (
        NonZeroU16::new(rows).unwrap(),
        NonZeroU16::new(columns).unwrap(),
    )
}

pub(crate) fn console(columns: u16, rows: u16) -> (FakeConsole, Glass) {
    let (send, receive) = unbounded_channel();
    let (height, width) = size(columns, rows);
    let glass = Glass {
        parser: Arc::new(Mutex::new(vt100::Parser::new(height, width, 10_000))),
        raw: Arc::default(),
        entered: Arc::default(),
        events: send,
    };
    let console = FakeConsole {
        glass: glass.clone(),
        events: receive,
    };
    (console, glass)
}

impl Console for FakeConsole {
    fn enter(&mut self) -> io::Result<()> {
        *self.glass.entered.lock().unwrap() = true;
        Ok(())
    }

    fn leave(&mut self) -> io::Result<()> {
        *self.glass.entered.lock().unwrap() = false;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.glass.parser.lock().unwrap().process(bytes);
        self.glass.raw.lock().unwrap().extend_from_slice(bytes);
        Ok(())
    }

    fn size(&self) -> io::Result<(u16, u16)> {
        let (rows, columns) = self.glass.parser.lock().unwrap().screen().size();
        Ok((columns.get(), rows.get()))
    }

    async fn next_event(&mut self) -> Option<io::Result<Event>> {
        self.events.recv().await.map(Ok)
    }

    fn suspend(&mut self) {}
}

impl Glass {
    pub(crate) fn key(&self, code: KeyCode) {
        self.send(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }

    pub(crate) fn control(&self, letter: char) {
        self.send(Event::Key(KeyEvent::new(
            KeyCode::Char(letter),
            KeyModifiers::CONTROL,
        )));
    }

    pub(crate) fn send(&self, event: Event) {
        self.events.send(event).unwrap();
    }

    pub(crate) fn type_text(&self, text: &str) {
        for letter in text.chars() {
            self.key(KeyCode::Char(letter));
        }
    }

    /// The terminal changes its size, without moving what is on it.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let (height, width) = size(columns, rows);
        self.parser.lock().unwrap().set_size(height, width);
        self.send(Event::Resize(columns, rows));
    }

    pub(crate) fn screen(&self) -> String {
        self.parser.lock().unwrap().screen().contents()
    }

    /// Scrollback and screen, top to bottom.
    pub(crate) fn everything(&self) -> String {
        let mut parser = self.parser.lock().unwrap();
        let screen = parser.screen_mut();
        let rows = usize::from(screen.size().0.get());
        let columns = screen.size().1.get();
        let mut lines = Vec::new();
        let back = screen.scrollback_len();
        let mut at = back;
        while at > 0 {
            screen.set_scrollback(at);
            let take = at.min(rows);
            lines.extend(screen.rows(0, columns).take(take));
            at -= take;
        }
        screen.set_scrollback(0);
        lines.extend(screen.rows(0, columns));
        lines
            .iter()
            .map(|line| line.trim_end())
            .collect::<Vec<_>>()
            .join("\n")
    }

    pub(crate) fn raw(&self) -> Vec<u8> {
        self.raw.lock().unwrap().clone()
    }

    pub(crate) fn is_entered(&self) -> bool {
        *self.entered.lock().unwrap()
    }

    pub(crate) fn with_screen<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        look(self.parser.lock().unwrap().screen())
    }

    /// Waits until the screen shows `text`; the wait has an end, and then tells what was shown.
    pub(crate) async fn wait_for(&self, text: &str) {
        for _ in 0..2000 {
            if self.screen().contains(text) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never saw {text:?}; the screen is:\n{}", self.screen());
    }
}
