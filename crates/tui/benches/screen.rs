//! How fast the screen is: `cargo bench -p agent-tui`. Each line has the number and what it has to
//! stay below; the last column says whether it does.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints its table"
)]

#[path = "../tests/sample/mod.rs"]
mod sample;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent_protocol::Code;
use agent_protocol::payload::permission::Effect;
use agent_test_support::bench::{self, Table, is_measured};
use agent_tui::replay::{EventSource, Player};
use agent_tui::surface::Surface;
use agent_tui::terminal::Console;
use agent_tui::theme::Theme;
use agent_tui::ui::Ui;
use agent_tui::{Input, Settings, run_on, view};
use crossterm::event::{Event, KeyCode, KeyEvent};
use sample::Script;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::CancellationToken;

fn main() {
    let quick = !is_measured();
    let mut table = Table::new("screen");
    memory(&mut table, if quick { 50 } else { 5000 });
    open(&mut table, if quick { 1000 } else { 100_000 });
    frames(&mut table);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(key_latency(&mut table, if quick { 3 } else { 200 }));
    runtime.block_on(idle(&mut table, if quick { 10 } else { 2000 }));
    table.finish();
}

fn resident() -> f64 {
    bench::memory("self", "VmRSS:").unwrap_or_default() as f64 / 1_048_576.0
}

/// A call with output, a diff now and then, an answer: four cells.
fn turn(script: &mut Script, number: usize) {
    script.user(&format!("question {number}"));
    let call = script.intent(
        "bash",
        json!({"command": format!("cargo test case_{number}")}),
    );
    script
        .evaluated(&call, Effect::Allow, Some("bash(cargo test *)"))
        .started(&call, "bash", true);
    let output: String = (0..60)
        .map(|line| format!("test case_{number}_{line} ... ok and some more words\n"))
        .collect();
    script.output(&call, &output);
    script.observed(&call, "bash", Code::Ok, "60 passed", &output);
    script.says(&format!("Answer {number}.\n\n```rust\nfn answer() -> u32 {{ {number} }}\n```\n\nAnd a paragraph that is long enough to be wrapped on most screens there are."));
    script.completed(agent_protocol::status::VerificationStatus::Passed);
}

fn memory(table: &mut Table, cells: usize) {
    let before = resident();
    let mut ui = Ui::new(Settings::default());
    let mut number = 0;
    while ui.state.cells.len() < cells {
        let mut script = Script::default();
        turn(&mut script, number);
        for event in script.events {
            ui.input(Input::Event(event));
        }
        view::print_finished(&mut ui, 100, usize::MAX);
        number += 1;
    }
    table.amount(
        &format!("memory of {} cells", ui.state.cells.len()),
        resident() - before,
        "MB",
        40.0,
    );
}

fn session(events: usize) -> Vec<Arc<agent_protocol::Event>> {
    let mut script = Script::default();
    script.session();
    let mut number = 0;
    while script.events.len() < events {
        turn(&mut script, number);
        number += 1;
    }
    script.events
}

/// What of a long log is shown first.
const TAIL: usize = 512 * 1024;

fn open(table: &mut Table, count: usize) {
    let events = session(count);
    let lines = events.iter().map(|event| event.to_line().unwrap());
    let log = lines.collect::<Vec<_>>().join(&b'\n');
    let tail = log.len().saturating_sub(TAIL);
    let started = Instant::now();
    let mut ui = Ui::new(Settings::default());
    // As the screen does it: the end first, the rest behind it.
    let lines = log[tail..].split(|byte| *byte == b'\n');
    let parsed = lines.filter_map(|line| agent_protocol::Event::from_line(line).ok());
    ui.input(Input::Tail(parsed.map(Arc::new).collect()));
    let print = view::print_finished(&mut ui, 100, 1000);
    let mut bytes = Vec::new();
    Surface::new(100, 40, true).draw(&mut bytes, &print, &view::frame(&ui, 100, 40));
    table.amount(
        &format!("resume {} events: first frame", events.len()),
        millis(started),
        "ms",
        300.0,
    );

    let started = Instant::now();
    let mut player = Player::new(Box::new(events.clone()), None);
    player.advance();
    let frame = player.frame(100, 40, Theme::default());
    bytes.clear();
    Surface::new(100, 40, true).draw(&mut bytes, &[], &frame);
    table.amount(
        "replay: first frame, the end still being read",
        millis(started),
        "ms",
        300.0,
    );
    while player.is_moving() {
        player.advance();
    }
    table.amount("replay: at the end", millis(started), "ms", 1000.0);

    let started = Instant::now();
    player.seek(events.count() / 2);
    while player.is_moving() {
        player.advance();
    }
    std::hint::black_box(player.frame(100, 40, Theme::default()));
    table.amount("replay: back to the middle", millis(started), "ms", 50.0);

    let started = Instant::now();
    for _ in 0..100 {
        player.scroll(-10, 100, Theme::default());
        std::hint::black_box(player.frame(100, 40, Theme::default()));
    }
    table.amount(
        "replay: scroll by ten lines",
        millis(started) / 100.0,
        "ms",
        16.0,
    );
}

fn frames(table: &mut Table) {
    agent_tui::highlight::load();
    let mut ui = Ui::new(Settings {
        colors: agent_tui::ColorDepth::True,
        ..Settings::default()
    });
    let mut script = Script::default();
    turn(&mut script, 0);
    script.request();
    for event in &script.events {
        ui.input(Input::Event(event.clone()));
    }
    let text: String = (0..40)
        .map(|line| format!("let value_{line} = compute({line}); // with a comment\n"))
        .collect();
    ui.state
        .apply_live(&agent_tui::LiveText::Answer(format!("```rust\n{text}")));
    let mut surface = Surface::new(120, 40, true);
    let mut bytes = Vec::new();
    let started = Instant::now();
    for _ in 0..100 {
        let print = view::print_finished(&mut ui, 120, 1000);
        surface.draw(&mut bytes, &print, &view::frame(&ui, 120, 40));
        bytes.clear();
    }
    table.amount(
        "one frame, 40 lines of code streaming in",
        millis(started) / 100.0,
        "ms",
        8.0,
    );
}

fn millis(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1000.0
}

/// A console that knows when each written letter reached it.
struct Probe {
    keys: UnboundedReceiver<Event>,
    written: Arc<Mutex<(u64, Vec<u8>)>>,
}

impl Console for Probe {
    fn enter(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn leave(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut written = self.written.lock().unwrap();
        written.0 += 1;
        written.1.extend_from_slice(bytes);
        Ok(())
    }
    fn size(&self) -> io::Result<(u16, u16)> {
        Ok((100, 40))
    }
    async fn next_event(&mut self) -> Option<io::Result<Event>> {
        self.keys.recv().await.map(Ok)
    }
    fn suspend(&mut self) {}
}

/// Types while a command prints ten thousand lines a second.
async fn key_latency(table: &mut Table, count: usize) {
    let (keys, receive) = unbounded_channel();
    let (inputs, screen_inputs) = unbounded_channel();
    let (screen_outputs, _outputs) = unbounded_channel();
    let written: Arc<Mutex<(u64, Vec<u8>)>> = Arc::default();
    let probe = Probe {
        keys: receive,
        written: written.clone(),
    };
    let shutdown = CancellationToken::new();
    let screen = tokio::spawn(run_on(
        probe,
        Settings::default(),
        screen_inputs,
        screen_outputs,
        shutdown.clone(),
    ));
    let mut script = Script::default();
    script.user("go");
    let call = script.intent("bash", json!({"command": "yes"}));
    script
        .evaluated(&call, Effect::Allow, None)
        .started(&call, "bash", true);
    for event in script.events.drain(..) {
        inputs.send(Input::Event(event)).unwrap();
    }
    let flood = tokio::spawn({
        let (inputs, shutdown) = (inputs.clone(), shutdown.clone());
        async move {
            let mut tick = tokio::time::interval(Duration::from_millis(1));
            let text: String = (0..10)
                .map(|line| format!("line {line} of a flood of output\n"))
                .collect();
            let mut script = Script::default();
            while !shutdown.is_cancelled() {
                tick.tick().await;
                script.output(&call, &text);
                let event = script.events.pop().unwrap();
                let _ = inputs.send(Input::Event(event));
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut latencies = Vec::new();
    for number in 0..count {
        // A letter that is nowhere else on the screen.
        let letter = char::from_u32(0x4E00 + u32::try_from(number).unwrap()).unwrap();
        written.lock().unwrap().1.clear();
        let pressed = Instant::now();
        keys.send(Event::Key(KeyEvent::from(KeyCode::Char(letter))))
            .unwrap();
        loop {
            let seen = {
                let written = written.lock().unwrap();
                let text = String::from_utf8_lossy(&written.1).into_owned();
                text.contains(letter)
            };
            if seen || pressed.elapsed() > Duration::from_secs(2) {
                break;
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        latencies.push(millis(pressed));
        keys.send(Event::Key(KeyEvent::from(KeyCode::Backspace)))
            .unwrap();
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    latencies.sort_by(f64::total_cmp);
    table.amount(
        "key to frame while 10,000 lines/s stream in, median",
        latencies[latencies.len() / 2],
        "ms",
        16.0,
    );
    table.amount(
        "key to frame while 10,000 lines/s stream in, 99 of 100",
        latencies[latencies.len() * 99 / 100],
        "ms",
        16.0,
    );
    shutdown.cancel();
    let _ = screen.await;
    let _ = flood.await;
}

/// Nothing runs: nothing may be written and no processor time spent.
async fn idle(table: &mut Table, wait: u64) {
    let (_keys, receive) = unbounded_channel();
    let (_inputs, screen_inputs) = unbounded_channel();
    let (screen_outputs, _outputs) = unbounded_channel();
    let written: Arc<Mutex<(u64, Vec<u8>)>> = Arc::default();
    let probe = Probe {
        keys: receive,
        written: written.clone(),
    };
    let shutdown = CancellationToken::new();
    let screen = tokio::spawn(run_on(
        probe,
        Settings::default(),
        screen_inputs,
        screen_outputs,
        shutdown.clone(),
    ));
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (frames, ticks) = (written.lock().unwrap().0, processor_ticks());
    tokio::time::sleep(Duration::from_millis(wait)).await;
    let drawn = written.lock().unwrap().0 - frames;
    table.amount(
        "idle: frames",
        f64::from(u32::try_from(drawn).unwrap()),
        "",
        0.0,
    );
    table.amount(
        "idle: processor time",
        (processor_ticks() - ticks) * 10.0,
        "ms",
        0.0,
    );
    shutdown.cancel();
    let _ = screen.await;
}

fn processor_ticks() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let field = |at: usize| {
        fields
            .get(at)
            .and_then(|field| field.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    field(11) + field(12)
}
