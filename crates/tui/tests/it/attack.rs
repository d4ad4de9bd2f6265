//! Whatever model, tools and files say, the terminal gets characters and our own sequences only.

use agent_protocol::Code;
use agent_protocol::payload::permission::Effect;
use agent_protocol::status::{Status, VerificationStatus};
use agent_tui::surface::Surface;
use agent_tui::ui::overlay::{Overlay, Transcript};
use agent_tui::{Document, DocumentFormat, HostMessage, Input, SessionLine, view};
use serde_json::json;

use crate::frames::{press, ui_of};
use crate::sample::{Script, ask_command};

/// Our own vocabulary: colours, relative movement, erasing, and the modes we switch.
fn check_bytes(bytes: &[u8]) {
    let text = String::from_utf8(bytes.to_vec()).expect("only UTF-8 is written");
    let mut rest = text.as_str();
    while let Some(at) = rest.find(|c: char| c.is_control() || ('\u{80}'..'\u{a0}').contains(&c)) {
        let tail = &rest[at..];
        if tail.starts_with("\r") || tail.starts_with('\n') {
            rest = &tail[1..];
            continue;
        }
        if tail.starts_with("\x1b7") || tail.starts_with("\x1b8") {
            rest = &tail[2..];
            continue;
        }
        let body = tail
            .strip_prefix("\x1b[")
            .unwrap_or_else(|| panic!("{:?}", &tail[..tail.len().min(40)]));
        let end = body.find(|c: char| c.is_ascii_alphabetic()).unwrap();
        let (parameters, last) = (&body[..end], body.as_bytes()[end]);
        let modes = ["?2026", "?25", "?7", "?1049"];
        let known = match last {
            b'm' | b'A' | b'B' | b'C' | b'K' | b'J' | b'H' => {
                parameters.chars().all(|c| c.is_ascii_digit() || c == ';')
            }
            b'h' | b'l' => modes.contains(&parameters),
            _ => false,
        };
        assert!(known, "foreign sequence {:?}", &tail[..end + 3]);
        rest = &body[end + 1..];
    }
    for hidden in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}', '\u{200f}'] {
        assert!(
            !text.contains(hidden),
            "U+{:04X} got through",
            u32::from(hidden)
        );
    }
}

const EVIL: &str = "\x1b[2J\x1b[1;1H\x1b]0;owned\x07\x1b]52;c;ZXZpbA==\x07\x1b]8;;http://evil\x1b\\x\x1bPq#0\x1b\\\u{9b}2J\u{9d}0;t\u{9c}\u{90}x\u{9c}\x1b(0\x1bc\x0e\x0f\x05\x08\x08\u{202e}exe\u{2066}\u{200b}\u{feff}\u{200f}\rOVER\x0b\x0c\x7f\x1b[?1049h\x1b[6n\x1b[c";

#[test]
fn no_foreign_sequence_gets_out() {
    let mut script = Script::default();
    script.session().user(EVIL);
    script.says(&format!("{EVIL}\n\n# {EVIL}\n\n```{EVIL}\n{EVIL}\n```\n\n| {EVIL} |\n|---|\n| {EVIL} |\n\n[{EVIL}](http://{EVIL})\n\nend"));
    // Markdown has a way of its own to write any character.
    let referred: String = EVIL
        .chars()
        .map(|c| format!("&#{};", u32::from(c)))
        .collect();
    script.says(&format!("{referred}\n\n# {referred}\n\n| {referred} |\n|---|\n| {referred} |\n\n[{referred}](http://{referred})\n\nend"));
    let id = script.request();
    script.think(&id, EVIL);
    let call = script.intent(EVIL, json!({"command": EVIL}));
    script
        .evaluated(&call, Effect::Allow, Some(EVIL))
        .started(&call, EVIL, true);
    script.output(&call, &format!("{EVIL}\n{EVIL}"));
    let running = script.events.clone();
    script.observed(&call, EVIL, Code::ExitNonzero, EVIL, EVIL);
    let edit = script.intent("edit", json!({"path": EVIL}));
    script.edited(
        &edit,
        &format!(
            "--- a/{EVIL}\n+++ b/{EVIL}\n@@ -1 +1 @@\n-{}\n+{}\n",
            EVIL.replace('\n', ""),
            EVIL.replace('\n', "")
        ),
    );
    script.queued(EVIL);
    script.completed(VerificationStatus::Passed);
    script.user(EVIL).failed(Status::Failed, EVIL);
    let ask = script.intent("bash", json!({"command": EVIL}));
    script.user("x");
    let mut asked = ask_command(EVIL);
    asked.title = EVIL.into();
    asked.cwd = Some(EVIL.into());
    asked.risk_facts = vec![EVIL.into()];
    asked.suggested_rule = Some(EVIL.into());
    script.asks(&ask, asked);

    for events in [running, script.events.clone()] {
        for (columns, rows) in [(60u16, 20u16), (120, 40)] {
            let mut ui = crate::frames::ui_with(&events);
            ui.branch = Some(EVIL.into());
            let mut surface = Surface::new(columns, rows, true);
            let mut bytes = Vec::new();
            let print = view::print_finished(&mut ui, usize::from(columns), usize::MAX);
            surface.draw(
                &mut bytes,
                &print,
                &view::frame(&ui, usize::from(columns), usize::from(rows)),
            );
            ui.overlay = Some(Overlay::Transcript(Transcript {
                all_unfolded: true,
                ..Transcript::at_end()
            }));
            surface.draw(
                &mut bytes,
                &[],
                &view::frame(&ui, usize::from(columns), 500),
            );
            for message in [
                HostMessage::Document(Document {
                    title: EVIL.into(),
                    text: EVIL.into(),
                    format: DocumentFormat::Plain,
                }),
                HostMessage::Models(vec![EVIL.into()]),
                HostMessage::Sessions(vec![SessionLine {
                    session_id: "s".parse().unwrap(),
                    title: EVIL.into(),
                    detail: EVIL.into(),
                }]),
            ] {
                ui.input(Input::Host(message));
                surface.draw(
                    &mut bytes,
                    &[],
                    &view::frame(&ui, usize::from(columns), usize::from(rows)),
                );
            }
            ui.overlay = None;
            check_bytes(&bytes);
        }
    }
}

#[test]
fn file_names_and_notices_are_foreign_too() {
    let mut script = Script::default();
    script.session();
    let mut ui = ui_of(&script);
    press(&mut ui, &["@"]);
    ui.input(Input::Host(HostMessage::Files(vec![EVIL.into()])));
    ui.input(Input::Host(HostMessage::Preview {
        path: agent_tui::safe::one_line(EVIL),
        text: EVIL.into(),
    }));
    ui.input(Input::Host(HostMessage::Problem(EVIL.into())));
    ui.input(Input::Host(HostMessage::Branch(Some(EVIL.into()))));
    ui.terminal(&crossterm::event::Event::Paste(EVIL.into()));
    let mut surface = Surface::new(80, 24, true);
    let mut bytes = Vec::new();
    let print = view::print_finished(&mut ui, 80, usize::MAX);
    surface.draw(&mut bytes, &print, &view::frame(&ui, 80, 24));
    check_bytes(&bytes);
}
