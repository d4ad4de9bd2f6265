//! The player: where steps and jumps lead, and what its panels show.

use std::collections::HashMap;
use std::sync::Arc;

use agent_protocol::id::{ArtifactId, ToolCallId};
use agent_protocol::payload::permission::Effect;
use agent_protocol::payload::tool::{ToolFailed, ToolResult};
use agent_protocol::payload::{SideEffect, SideEffectKind};
use agent_protocol::{ActionHappened, Code, Event, Phase, Scope};
use agent_tui::replay::{EventSource, Player};
use agent_tui::theme::Theme;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use insta::assert_snapshot;
use serde_json::json;

use crate::sample::{self, Script};

/// Events and the images they name.
struct Session {
    events: Vec<Arc<Event>>,
    artifacts: HashMap<ArtifactId, Vec<u8>>,
}

impl EventSource for Session {
    fn count(&self) -> u64 {
        self.events.len() as u64
    }

    fn read(&mut self, from: u64, most: usize) -> Result<Vec<Arc<Event>>, String> {
        self.events.read(from, most)
    }

    fn artifact(&self, id: &ArtifactId) -> Result<Vec<u8>, String> {
        let found = self.artifacts.get(id).cloned();
        found.ok_or_else(|| "it is not there".to_owned())
    }
}

fn image(session: &mut HashMap<ArtifactId, Vec<u8>>, number: u8, text: &str) -> ArtifactId {
    let id = ArtifactId::from_digest(&[number; 32]);
    session.insert(id.clone(), text.into());
    id
}

fn call_scope(call: &ToolCallId) -> Scope {
    Scope {
        tool_call_id: Some(call.clone()),
        ..Scope::default()
    }
}

/// The demonstration, then a second turn: a command that changes files, one that fails, and a
/// refusal.
fn session() -> Session {
    let mut artifacts = HashMap::new();
    let mut script: Script = sample::demo();
    script.user("And now the rest.");
    let call = script.intent("bash", json!({"command": "sh release.sh"}));
    script.evaluated(&call, Effect::Allow, None);
    script.started(&call, "bash", true);
    let before = image(&mut artifacts, 1, "version = 1\nname = \"a\"\n");
    let after = image(&mut artifacts, 2, "version = 2\nname = \"a\"\n");
    let effects = vec![
        SideEffect {
            kind: SideEffectKind::Modified,
            path: "Cargo.toml".into(),
            sha256_before: Some(before.hex().into()),
            sha256_after: Some(after.hex().into()),
            before_ref: Some(before),
            after_ref: Some(after),
            mode_before: Some(0o644),
            mode_after: Some(0o644),
            ..SideEffect::default()
        },
        SideEffect {
            kind: SideEffectKind::Created,
            path: "dist".into(),
            file_type: Some("directory".into()),
            mode_after: Some(0o755),
            ..SideEffect::default()
        },
        SideEffect {
            kind: SideEffectKind::Deleted,
            path: "old\u{1b}[31m.txt".into(),
            sha256_before: Some("ab".repeat(32)),
            ..SideEffect::default()
        },
    ];
    let result = ToolResult {
        ok: true,
        code: Code::Ok,
        side_effects: effects,
        ..ToolResult::default()
    };
    script.push(call_scope(&call), result);
    script.observed(&call, "bash", Code::Ok, "released", "");
    let call = script.intent("bash", json!({"command": "false"}));
    script.evaluated(&call, Effect::Allow, None);
    script.started(&call, "bash", true);
    let failed = ToolFailed {
        phase: Phase::Execute,
        code: Code::Timeout,
        message: "it took too long".into(),
        action_happened: ActionHappened::Unknown,
        ..ToolFailed::default()
    };
    script.push(call_scope(&call), failed);
    let call = script.intent("bash", json!({"command": "rm -rf /"}));
    script.evaluated(&call, Effect::Deny, Some("bash(rm -rf *)"));
    Session {
        events: script.events,
        artifacts,
    }
}

fn at(place: u64) -> Player {
    let mut player = Player::new(Box::new(session()), Some(place));
    settle(&mut player);
    player
}

fn settle(player: &mut Player) {
    player.advance();
    while player.is_moving() {
        player.advance();
    }
}

fn press(player: &mut Player, keys: &[&str]) {
    for key in keys {
        let code = match *key {
            "<enter>" => KeyCode::Enter,
            "<esc>" => KeyCode::Esc,
            "<tab>" => KeyCode::Tab,
            "<down>" => KeyCode::Down,
            "<pgdn>" => KeyCode::PageDown,
            "<pgup>" => KeyCode::PageUp,
            letter => KeyCode::Char(letter.chars().next().unwrap()),
        };
        let left = player.key(
            KeyEvent::new(code, KeyModifiers::NONE),
            80,
            Theme::default(),
        );
        assert!(!left, "{key}");
        settle(player);
    }
}

fn shown(player: &Player, columns: usize, rows: usize) -> String {
    let frame = player.frame(columns, rows, Theme::default());
    assert_eq!(frame.lines.len(), rows);
    let lines = frame.lines.iter().map(|line| {
        assert!(line.width() <= columns, "{line:?}");
        line.to_string().trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn both(player: &Player) -> String {
    format!(
        "{}\n{}\n{}",
        shown(player, 80, 24),
        "=".repeat(120),
        shown(player, 120, 40)
    )
}

/// The class of the event in view.
fn kind(player: &Player) -> String {
    let events = session().events;
    let at = usize::try_from(player.position()).unwrap();
    let event = at.checked_sub(1).map(|at| &events[at]);
    event.map_or_else(String::new, |event| event.payload.type_name().to_owned())
}

#[test]
fn every_jump_goes_there_and_back() {
    for (key, expected) in [
        ("c", "tool.intent"),
        ("t", "turn.started"),
        ("e", "tool.result"),
        ("d", "permission.evaluated"),
        ("f", "tool.failed"),
        ("p", "action.required"),
    ] {
        let mut player = at(0);
        press(&mut player, &[key]);
        assert_eq!(kind(&player), expected, "{key}");
        let first = player.position();
        press(&mut player, &["G", &key.to_uppercase()]);
        let last = player.position();
        let kind = kind(&player);
        // The answer to the only question is a place of its own.
        assert!(
            kind == expected || kind == "action.resolved",
            "{key}: {kind}"
        );
        while player.position() > first {
            let before = player.position();
            press(&mut player, &[&key.to_uppercase()]);
            assert!(player.position() < before, "{key} hangs at {before}");
        }
        assert_eq!(player.position(), first, "{key} from {last}");
        press(&mut player, &[&key.to_uppercase()]);
        assert_eq!(player.position(), first, "{key}: there is none before");
        assert!(shown(&player, 80, 24).contains("no earlier"), "{key}");
    }
}

#[test]
fn a_search_finds_text_in_events() {
    let mut player = at(0);
    press(
        &mut player,
        &["/", "R", "e", "l", "e", "a", "s", "e", ".", "s", "h"],
    );
    assert!(shown(&player, 80, 24).contains("search: Release.sh"));
    press(&mut player, &["<enter>"]);
    assert_eq!(kind(&player), "tool.intent");
    let first = player.position();
    press(&mut player, &["n"]);
    assert!(player.position() > first);
    press(&mut player, &["N"]);
    assert_eq!(player.position(), first);
    press(&mut player, &["/", "n", "o", "p", "e", "!", "<enter>"]);
    assert_eq!(player.position(), first);
    assert!(shown(&player, 80, 24).contains("no further event with `nope!`"));
}

#[test]
fn files_are_as_they_were_at_the_event() {
    let mut player = at(0);
    press(&mut player, &["o"]);
    assert!(shown(&player, 80, 24).contains("no file changed yet"));
    press(&mut player, &["e"]);
    assert_snapshot!("player_files", both(&player));
    press(&mut player, &["<enter>"]);
    assert!(shown(&player, 80, 24).contains("version = 2"));
    press(&mut player, &["<esc>", "x"]);
    let changes = shown(&player, 80, 24);
    assert!(changes.contains("version = 1") && changes.contains("version = 2"));
    press(&mut player, &["<esc>", "<down>", "<enter>"]);
    assert!(shown(&player, 80, 24).contains("A directory, mode 0755."));
    press(&mut player, &["<esc>", "<down>", "<enter>"]);
    assert!(shown(&player, 80, 24).contains("There is nothing at this path."));
    press(&mut player, &["<esc>", "h"]);
    assert!(
        shown(&player, 80, 24).contains("no file changed yet"),
        "back in time"
    );
    let all = player.frame(120, 40, Theme::default());
    assert!(!format!("{:?}", all.lines).contains('\u{1b}'));
}

#[test]
fn the_card_of_a_call_stands_beside_it() {
    let mut player = at(0);
    press(&mut player, &["i"]);
    assert!(shown(&player, 80, 24).contains("no call yet"));
    press(&mut player, &["p", "l"]);
    assert_snapshot!("player_card", both(&player));
    // What had not happened yet is not told.
    assert!(!shown(&player, 120, 40).contains("released"));
    press(&mut player, &["d"]);
    assert!(
        shown(&player, 120, 60).contains("bash call_6"),
        "{}",
        shown(&player, 120, 60)
    );
    press(&mut player, &["<esc>"]);
    assert!(!shown(&player, 120, 40).contains("call_6"));
}

#[test]
fn the_keys_are_one_key_away() {
    let mut player = at(3);
    press(&mut player, &["?"]);
    assert!(shown(&player, 80, 40).contains("audit card of the call"));
}

#[test]
fn the_start_shows_the_first_event_by_its_number() {
    let mut player = at(u64::MAX);
    let events = session().events;
    let last = events.len() - 1;
    assert!(shown(&player, 80, 24).contains(&format!("event {last} of {last} (100%)")));
    for key in ["g", "h", "["] {
        press(&mut player, &[key]);
        let shown = shown(&player, 80, 24);
        let first = format!(
            "event 0 of {last} (0%) · session.created · {}",
            events[0].timestamp
        );
        assert!(shown.contains(&first), "{key}: {shown}");
    }
    press(&mut player, &["l"]);
    let kind = events[1].payload.type_name();
    assert!(shown(&player, 80, 24).contains(&format!("event 1 of {last} (1%) · {kind} · ")));
}

#[test]
fn going_back_to_a_kept_state_tells_the_event_there() {
    // A state is kept every so many events; the place of one is a place like any other.
    let mut script: Script = sample::demo();
    while script.events.len() < 2100 {
        script.user("Once more.");
    }
    let events = script.events.clone();
    let mut player = Player::new(Box::new(script.events), None);
    settle(&mut player);
    for place in [2049, 2048, 2047_usize] {
        player.seek(place as u64);
        settle(&mut player);
        let event = &events[place - 1];
        let kind = event.payload.type_name();
        let shown = shown(&player, 100, 24);
        let said = format!(" · {kind} · {}", event.timestamp);
        assert!(shown.contains(&said), "{place}: {shown}");
    }
}

#[test]
fn the_card_scrolls_to_its_end_and_closes_before_the_player() {
    let mut player = at(0);
    press(&mut player, &["p", "l", "i"]);
    let top = shown(&player, 80, 24);
    assert!(top.contains("PgUp PgDn scroll · q closes it"), "{top}");
    press(&mut player, &["<pgdn>"]);
    assert_ne!(shown(&player, 80, 24), top);
    press(&mut player, &["<pgup>"]);
    assert_eq!(shown(&player, 80, 24), top);
    // All of it can be read, also where lines had to be folded, and no further than its end.
    let whole = shown(&player, 80, 200);
    let end = whole.lines().rev().skip(3).find(|line| !line.is_empty());
    press(&mut player, &["<pgdn>"; 40]);
    let bottom = shown(&player, 80, 24);
    assert!(bottom.contains(end.unwrap()), "{bottom}");
    press(&mut player, &["q"]);
    assert!(shown(&player, 80, 24).contains("q leaves"));
    press(&mut player, &["o", "q"]);
    let leaves = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
    assert!(player.key(leaves, 80, Theme::default()));
}
