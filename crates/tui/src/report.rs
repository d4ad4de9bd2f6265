//! What the terminal is told beside the picture: what the program is doing, the title of its tab, and
//! that somebody is waited for. The sequences are made here alone, from these values; text in them is
//! encoded or cleaned, so that it can neither end a sequence nor begin another.
//!
//! The program status is OSC 7501, the Program Status Protocol, revision 0.4. Each report takes the
//! place of the one before; terminals that do not know it show nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::safe;
use crate::state::cell::{CellKind, clip};
use crate::ui::Ui;
use crate::ui::overlay::Overlay;

/// The most bytes of a title and of a message in a status report; terminals drop what is longer.
const TITLE_BYTES: usize = 192;
const MESSAGE_BYTES: usize = 512;
/// The most columns of the title of a tab.
const TAB_COLUMNS: usize = 80;
/// The most columns of a ring.
const RING_COLUMNS: usize = 100;

/// Something the terminal is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    Status(Status),
    /// There is no status any more.
    ClearStatus,
    /// The title of tab and window.
    Title(String),
    /// A notification, and the bell for terminals without any.
    Ring(String),
}

/// What the program is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub doing: Doing,
    /// What is worked on.
    pub title: Option<String>,
    /// What somebody has to know about it.
    pub message: Option<String>,
}

/// The states of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    Idle,
    Working,
    /// A call asks for permission.
    AsksPermission,
    /// Somebody has to answer something else.
    AsksQuestion,
    /// There is no key for any model.
    NeedsKey,
    Done,
    Failed,
}

impl Doing {
    fn words(self) -> &'static str {
        match self {
            Self::Idle => "state=idle",
            Self::Working => "state=working",
            Self::AsksPermission => "state=blocked:kind=permission",
            Self::AsksQuestion => "state=blocked:kind=question",
            Self::NeedsKey => "state=blocked:kind=auth",
            Self::Done => "state=done",
            Self::Failed => "state=error",
        }
    }

    /// The sign before the title of a tab.
    fn sign(self) -> &'static str {
        match self {
            Self::Idle => "",
            Self::Working => "… ",
            Self::AsksPermission | Self::AsksQuestion | Self::NeedsKey => "? ",
            Self::Done => "✓ ",
            Self::Failed => "✗ ",
        }
    }
}

impl Report {
    /// The bytes for the terminal.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let sequence = match self {
            Self::Status(status) => {
                let mut body = format!("{}:app=agent", status.doing.words());
                for (key, text, most) in [
                    ("title", &status.title, TITLE_BYTES),
                    ("msg", &status.message, MESSAGE_BYTES),
                ] {
                    let text = text.as_deref().map(safe::one_line).unwrap_or_default();
                    if !text.is_empty() {
                        let encoded = STANDARD.encode(clip(&text, most));
                        body.push_str(&format!(":{key}={encoded}"));
                    }
                }
                format!("\x1b]7501;{body}\x1b\\")
            }
            Self::ClearStatus => "\x1b]7501;state=clear:app=agent\x1b\\".to_owned(),
            Self::Title(title) => format!("\x1b]2;{}\x07", in_columns(title, TAB_COLUMNS)),
            Self::Ring(text) => format!("\x1b]9;{}\x07\x07", in_columns(text, RING_COLUMNS)),
        };
        sequence.into_bytes()
    }
}

/// The most bytes of a text for the clipboard: with its encoding what terminals take at least.
const COPY_BYTES: usize = 74_994;

/// The bytes that put `text` into the terminal's clipboard. tmux is given them twice: it keeps one for itself, where
/// it may, and hands the other on.
///
/// # Errors
/// When it is too long; the words for it.
pub fn copy(text: &str, is_inside_tmux: bool) -> Result<Vec<u8>, String> {
    if text.len() > COPY_BYTES {
        let (have, most) = (text.len(), COPY_BYTES);
        return Err(format!(
            "not copied: {have} bytes are more than a terminal's clipboard takes ({most})"
        ));
    }
    let copy = format!("\x1b]52;c;{}\x07", STANDARD.encode(text));
    let mut bytes = copy.clone().into_bytes();
    if is_inside_tmux {
        let escaped = copy.replace('\x1b', "\x1b\x1b");
        bytes.extend(format!("\x1bPtmux;{escaped}\x1b\\").into_bytes());
    }
    Ok(bytes)
}

/// What is said of a copy.
#[must_use]
pub fn copied(text: &str, what: &str, is_inside_tmux: bool) -> String {
    let size = agent_text::counted(text.chars().count() as u64, "character");
    let tmux = match is_inside_tmux {
        true => " (tmux needs `set-clipboard on`)",
        false => "",
    };
    format!("copied {what}, {size}, to the terminal's clipboard{tmux}")
}

fn in_columns(text: &str, columns: usize) -> String {
    agent_text::clip(&safe::one_line(text), columns)
}

/// What is going on here.
#[must_use]
pub fn status(ui: &Ui) -> Status {
    let asked = ui.current();
    let doing = match (&ui.overlay, asked) {
        (Some(Overlay::FirstRun(..)), _) => Doing::NeedsKey,
        (Some(Overlay::Trust(..) | Overlay::Mode(..)), _) => Doing::AsksQuestion,
        (_, Some(pending)) if pending.is_permission() => Doing::AsksPermission,
        (_, Some(_)) => Doing::AsksQuestion,
        (_, None) if ui.state.works() => Doing::Working,
        (_, None) => ended(ui),
    };
    Status {
        doing,
        title: ui.state.title(),
        message: asked.map(|pending| pending.title.clone()),
    }
}

/// How the last turn ended, until somebody presses a key.
fn ended(ui: &Ui) -> Doing {
    if !ui.is_news {
        return Doing::Idle;
    }
    let mut cells = ui.state.cells.iter().rev();
    match cells.find_map(|cell| match &cell.kind {
        CellKind::TurnEnd(end) => Some(end),
        _ => None,
    }) {
        Some(end) if end.cancelled => Doing::Idle,
        Some(end) if end.problem.is_some() => Doing::Failed,
        _ => Doing::Done,
    }
}

/// The title of the tab: a sign of what is going on, what is worked on, and where.
#[must_use]
pub fn tab_title(ui: &Ui) -> String {
    let project = ui.settings.cwd.rsplit('/').next().unwrap_or_default();
    let sign = status(ui).doing.sign();
    match ui.state.title() {
        Some(title) => format!("{sign}{} · {project}", agent_text::clip(&title, 40)),
        None => format!("{sign}agent {project}").trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(report: Report, expected: &str) {
        assert_eq!(String::from_utf8(report.bytes()).unwrap(), expected);
    }

    fn status(doing: Doing) -> Report {
        Report::Status(Status {
            doing,
            title: None,
            message: None,
        })
    }

    #[test]
    fn a_copy_is_encoded_bounded_and_passed_through_tmux() {
        let bytes = |text: &str, tmux| String::from_utf8(copy(text, tmux).unwrap()).unwrap();
        assert_eq!(bytes("hi\x1b", false), "\x1b]52;c;aGkb\x07");
        assert_eq!(
            bytes("hi", true),
            "\x1b]52;c;aGk=\x07\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\"
        );
        assert!(copy(&"x".repeat(COPY_BYTES), false).unwrap().len() < 100_010);
        assert!(copy(&"x".repeat(COPY_BYTES + 1), false).is_err());
    }

    #[test]
    fn every_state_has_its_bytes() {
        for (doing, words) in [
            (Doing::Idle, "idle"),
            (Doing::Working, "working"),
            (Doing::AsksPermission, "blocked:kind=permission"),
            (Doing::AsksQuestion, "blocked:kind=question"),
            (Doing::NeedsKey, "blocked:kind=auth"),
            (Doing::Done, "done"),
            (Doing::Failed, "error"),
        ] {
            check(
                status(doing),
                &format!("\x1b]7501;state={words}:app=agent\x1b\\"),
            );
        }
        check(Report::ClearStatus, "\x1b]7501;state=clear:app=agent\x1b\\");
        check(
            Report::Status(Status {
                doing: Doing::Working,
                title: Some("fix".into()),
                message: Some("Upgraded 12 packages".into()),
            }),
            "\x1b]7501;state=working:app=agent:title=Zml4:msg=VXBncmFkZWQgMTIgcGFja2FnZXM=\x1b\\",
        );
    }

    /// Foreign text can neither end a sequence nor make it longer than terminals take.
    #[test]
    fn text_stays_text() {
        let evil = "a\x07b\x1b\\c\u{9c}d\n\x1b]52;c;eA==\x07";
        for report in [Report::Title(evil.into()), Report::Ring(evil.into())] {
            let bytes = String::from_utf8(report.bytes()).unwrap();
            let inside = &bytes[4..bytes.trim_end_matches('\x07').len()];
            assert!(!inside.contains(|c: char| c.is_control()), "{bytes:?}");
        }
        let long = Report::Status(Status {
            doing: Doing::AsksPermission,
            title: Some("é".repeat(5000)),
            message: Some(evil.repeat(5000)),
        });
        let bytes = long.bytes();
        assert!(bytes.len() < 4096);
        let inside = &bytes[2..bytes.len() - 2];
        assert!(inside.iter().all(|byte| (0x20..0x7f).contains(byte)));
    }
}
