//! Frames as text: the same state at the three sizes everything has to work at.

use std::fmt::Write as _;
use std::sync::Arc;

use agent_protocol::Event;
use agent_tui::ui::Ui;
use agent_tui::{Input, Settings, view};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::sample::Script;

pub(crate) const SIZES: [(u16, u16); 3] = [(60, 20), (80, 24), (120, 40)];

pub(crate) fn settings() -> Settings {
    Settings {
        model: "scripted/demo".into(),
        cwd: "/project".into(),
        branch: Some("main".into()),
        version: "0.1.0".into(),
        ..Settings::default()
    }
}

/// A screen that has taken in the events.
pub(crate) fn ui_with(events: &[Arc<Event>]) -> Ui {
    let mut ui = Ui::new(settings());
    for event in events {
        ui.input(Input::Event(event.clone()));
    }
    ui.tick(12_300);
    ui
}

pub(crate) fn ui_of(script: &Script) -> Ui {
    ui_with(&script.events)
}

/// Types keys: words are typed letter by letter, `<enter>` and the like are named keys.
pub(crate) fn press(ui: &mut Ui, keys: &[&str]) -> Vec<agent_tui::ui::Effect> {
    let mut effects = Vec::new();
    for key in keys {
        let named = match *key {
            "<enter>" => Some(KeyCode::Enter),
            "<esc>" => Some(KeyCode::Esc),
            "<tab>" => Some(KeyCode::Tab),
            "<up>" => Some(KeyCode::Up),
            "<down>" => Some(KeyCode::Down),
            "<end>" => Some(KeyCode::End),
            "<pagedown>" => Some(KeyCode::PageDown),
            _ => None,
        };
        ui.tick(ui.now + 500);
        if let Some(code) = named {
            effects.extend(ui.key(KeyEvent::new(code, KeyModifiers::NONE)));
        } else if let Some(letter) = key.strip_prefix("C-") {
            let code = KeyCode::Char(letter.chars().next().unwrap());
            effects.extend(ui.key(KeyEvent::new(code, KeyModifiers::CONTROL)));
        } else {
            for letter in key.chars() {
                effects.extend(ui.key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE)));
            }
        }
        // Nothing follows for a while.
        ui.tick(ui.now + 300);
        effects.extend(ui.ripen());
    }
    effects
}

/// Draws once, as the loop does, and lets the guard of a question pass.
pub(crate) fn show(ui: &mut Ui, columns: u16, rows: u16) -> Vec<String> {
    let frame = view::frame(ui, usize::from(columns), usize::from(rows));
    ui.columns = usize::from(columns);
    ui.drawn(&frame.shown);
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal
        .draw(|drawn| {
            for (row, line) in (0u16..).zip(&frame.lines) {
                drawn.buffer_mut().set_line(0, row, line, columns);
            }
        })
        .unwrap();
    let buffer = terminal.backend().buffer().clone();
    let mut rows: Vec<String> = (0..buffer.area.height)
        .map(|y| {
            let mut row = String::new();
            let mut x = 0;
            while x < buffer.area.width {
                let symbol = buffer[(x, y)].symbol();
                row.push_str(symbol);
                x += u16::try_from(agent_text::width(symbol)).unwrap().max(1);
            }
            row.trim_end().to_owned()
        })
        .collect();
    rows.truncate(frame.lines.len());
    if let Some((x, y)) = frame.cursor {
        rows.push(format!("(cursor at column {x}, row {y})"));
    }
    rows
}

/// The frame at the three sizes, one below the other.
pub(crate) fn at_all_sizes(mut make: impl FnMut() -> Ui) -> String {
    let mut text = String::new();
    for (columns, rows) in SIZES {
        let mut ui = make();
        let lines = show(&mut ui, columns, rows);
        assert!(
            lines
                .iter()
                .filter(|line| !line.starts_with("(cursor"))
                .all(|line| agent_text::width(line) <= usize::from(columns)),
            "a line is too wide at {columns}x{rows}"
        );
        writeln!(text, "== {columns}x{rows}").unwrap();
        for line in lines {
            writeln!(text, "{line}").unwrap();
        }
    }
    text
}

/// Finished cells as they go to the scrollback, at the three sizes.
pub(crate) fn printed_at_all_sizes(script: &Script) -> String {
    let mut text = String::new();
    for (columns, _) in SIZES {
        let mut ui = ui_of(script);
        writeln!(text, "== {columns} columns").unwrap();
        for line in view::print_finished(&mut ui, usize::from(columns), usize::MAX) {
            assert!(line.width() <= usize::from(columns), "{line}");
            writeln!(text, "{}", line.to_string().trim_end()).unwrap();
        }
    }
    text
}
