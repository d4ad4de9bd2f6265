//! Composer, menus, status line, overlays, first run, trust, replay.

use agent_tui::replay::Player;
use agent_tui::state::ToolLine;
use agent_tui::theme::Theme;
use agent_tui::ui::Ui;
use agent_tui::{
    Document, DocumentFormat, FirstRun, HostMessage, Input, SessionLine, Settings, Start,
    TrustQuestion,
};
use insta::assert_snapshot;

use crate::frames::{at_all_sizes, press, settings, ui_of};
use crate::sample::{self, Script};

fn idle() -> Ui {
    let mut script = Script::default();
    script.session();
    ui_of(&script)
}

fn typed(keys: &[&str]) -> Ui {
    let mut ui = idle();
    press(&mut ui, keys);
    ui
}

#[test]
fn composer() {
    assert_snapshot!("composer_empty", at_all_sizes(idle));
    let text = "Please look at the parser again, because the line numbers in its errors are off by one whenever";
    let two_lines = || typed(&[text, "C-j", "second line"]);
    assert_snapshot!("composer_lines", at_all_sizes(two_lines));
    let pasted = || {
        let mut ui = idle();
        ui.terminal(&crossterm::event::Event::Paste("line\n".repeat(5000)));
        ui
    };
    assert_snapshot!("composer_paste", at_all_sizes(pasted));
    assert_snapshot!("composer_commands", at_all_sizes(|| typed(&["/s"])));
    let files = || {
        let mut ui = typed(&["see @lib"]);
        ui.input(Input::Host(HostMessage::Files(vec![
            "src/lib.rs".into(),
            "src/library/mod.rs".into(),
        ])));
        ui.input(Input::Host(HostMessage::Preview {
            path: "src/lib.rs".into(),
            text: "//! The library.\n\npub mod a;\n".into(),
        }));
        ui
    };
    assert_snapshot!("composer_files", at_all_sizes(files));
    let search = || {
        let mut ui = Ui::new(Settings {
            history: vec!["explain src/lib.rs".into(), "run the tests".into()],
            ..settings()
        });
        press(&mut ui, &["C-r", "exp"]);
        ui
    };
    assert_snapshot!("composer_search", at_all_sizes(search));
    assert_snapshot!("composer_shell", at_all_sizes(|| typed(&["!git status"])));
}

#[test]
fn documents() {
    for command in ["/help", "/context", "/cost", "/status", "/mode", "/why"] {
        let make = || {
            let mut ui = ui_of(&sample::demo());
            press(&mut ui, &[command, " ", "<enter>"]);
            ui
        };
        let name = format!("document_{}", command.trim_start_matches('/'));
        assert_snapshot!(name, at_all_sizes(make));
    }
}

#[test]
fn tools() {
    let make = || {
        let mut ui = ui_of(&sample::demo());
        let tools = [
            ("read", "allow", "Reads a text file of the project"),
            (
                "bash",
                "ask",
                "Runs a command in the project's sandbox and returns its output with the exit code",
            ),
            ("write", "unavailable", "Writes a file"),
        ];
        let tools = tools.map(|(name, policy, description)| ToolLine {
            name: name.into(),
            policy: policy.into(),
            description: description.into(),
            fetches: false,
        });
        ui.input(Input::Host(HostMessage::Tools(tools.into())));
        ui
    };
    assert_snapshot!("document_tools", at_all_sizes(make));
}

#[test]
fn host_answers() {
    let with = |message: HostMessage| {
        move || {
            let mut ui = idle();
            ui.input(Input::Host(message.clone()));
            ui
        }
    };
    let diff = HostMessage::Document(Document {
        title: "changes of this session".into(),
        text: sample::DIFF.into(),
        format: DocumentFormat::Diff,
    });
    assert_snapshot!("host_diff", at_all_sizes(with(diff)));
    let sessions = HostMessage::Sessions(vec![
        SessionLine {
            session_id: "ses_a".parse().unwrap(),
            title: "fix the parser\x1b[2J".into(),
            detail: "yesterday 14:02, completed, 3 files".into(),
        },
        SessionLine {
            session_id: "ses_b".parse().unwrap(),
            title: "a very long title of a session that would not fit into the width of a small terminal at all".into(),
            detail: "2 weeks ago, interrupted".into(),
        },
    ]);
    assert_snapshot!("host_sessions", at_all_sizes(with(sessions)));
}

#[test]
fn transcript() {
    let make = || {
        let mut ui = ui_of(&sample::demo());
        press(&mut ui, &["C-t"]);
        ui
    };
    assert_snapshot!(at_all_sizes(make));
}

#[test]
fn full_screen() {
    let make = || {
        let mut ui = ui_of(&sample::demo());
        ui.settings.full_screen = true;
        ui
    };
    assert_snapshot!(at_all_sizes(make));
}

#[test]
fn first_run() {
    let make = || {
        Ui::new(Settings {
            start: Start::FirstRun(FirstRun {
                found: vec![
                    ("OPENAI_API_KEY in the environment".into(), false),
                    (
                        "a local server on 127.0.0.1:11434 (ollama), without a model".into(),
                        true,
                    ),
                ],
                to_set: vec!["export OPENAI_API_KEY=…".into(), "ollama pull qwen3".into()],
                notes: vec!["`agent` in a shell runs `/usr/bin/agent`, another program".into()],
            }),
            ..settings()
        })
    };
    assert_snapshot!(at_all_sizes(make));
}

#[test]
fn trust() {
    let make = || {
        Ui::new(Settings {
            start: Start::Trust(TrustQuestion {
                file: ".agent/config.toml".into(),
                is_change: true,
                diff: "--- trusted\n+++ now\n@@ -1,1 +1,3 @@\n mode = \"ask\"\n+allow bash(cargo test *)\n+allow bash(curl *)\n".into(),
            }),
            ..settings()
        })
    };
    assert_snapshot!(at_all_sizes(make));
}

/// What was never on the screen cannot be trusted, however small the screen is.
#[test]
fn a_small_screen_trusts_nothing_unread() {
    for (columns, rows) in [(20, 5), (20, 4), (8, 24), (20, 8), (60, 20)] {
        let mut ui = Ui::new(Settings {
            start: Start::Trust(TrustQuestion {
                file: ".agent/config.toml".into(),
                is_change: false,
                diff: "--- trusted\n+++ now\n@@ -0,0 +1 @@\n+allow bash(curl *)\n".into(),
            }),
            ..settings()
        });
        let mut seen = String::new();
        for _ in 0..40 {
            seen.push_str(&crate::frames::show(&mut ui, columns, rows).join(" "));
            ui.tick(ui.now + 1000);
            press(&mut ui, &["<down>"]);
        }
        press(&mut ui, &["<end>"]);
        crate::frames::show(&mut ui, columns, rows);
        let trusted = !press(&mut ui, &["t"]).is_empty();
        assert_eq!(trusted, seen.contains("curl"), "{columns}x{rows}: {seen}");
        assert_eq!(trusted, columns >= 20 && rows >= 8, "{columns}x{rows}");
    }
}

#[test]
fn replay() {
    let mut text = String::new();
    for at in [0, 20, 37] {
        let mut player = Player::new(Box::new(sample::demo().events), Some(at));
        while player.is_moving() {
            player.advance();
        }
        for line in player.frame(80, 24, Theme::default()).lines {
            text.push_str(line.to_string().trim_end());
            text.push('\n');
        }
    }
    assert_snapshot!(text);
}
