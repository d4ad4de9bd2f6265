//! The status line: what somebody chose to see there, as much of it as fits.

use agent_protocol::payload::process::SandboxStatus;
use agent_protocol::status::{Mode, Thinking};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::safe;
use crate::ui::Ui;
use agent_text::words::money;
use agent_text::{clip, width};

/// A part of the status line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusItem {
    Model,
    /// How much the model may think, where it is told.
    Thinking,
    Mode,
    Sandbox,
    Context,
    Cost,
    /// The state of the composer with vim keys, where it takes commands.
    Vim,
    Branch,
    Queue,
    /// Commands that run in the background.
    Background,
    /// The name of the project's directory.
    Project,
    /// What the session is called.
    Title,
}

impl StatusItem {
    pub const ALL: [Self; 12] = [
        Self::Model,
        Self::Thinking,
        Self::Mode,
        Self::Sandbox,
        Self::Context,
        Self::Cost,
        Self::Vim,
        Self::Branch,
        Self::Queue,
        Self::Background,
        Self::Project,
        Self::Title,
    ];

    /// What is there when nobody chose.
    pub const USUAL: [Self; 10] = [
        Self::Model,
        Self::Thinking,
        Self::Mode,
        Self::Sandbox,
        Self::Context,
        Self::Cost,
        Self::Vim,
        Self::Branch,
        Self::Queue,
        Self::Background,
    ];

    /// As it is written in the settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Thinking => "thinking",
            Self::Mode => "mode",
            Self::Sandbox => "sandbox",
            Self::Context => "context",
            Self::Cost => "cost",
            Self::Vim => "vim",
            Self::Branch => "branch",
            Self::Queue => "queue",
            Self::Background => "background",
            Self::Project => "project",
            Self::Title => "title",
        }
    }

    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|item| item.name() == word)
    }

    /// What it says now, if it has something to say.
    fn said(self, ui: &Ui) -> Option<(String, Style)> {
        let facts = &ui.state.facts;
        let (dim, warn) = (ui.theme.dim(), ui.theme.warn());
        Some(match self {
            Self::Model => {
                let model = facts.model.as_deref().unwrap_or("no model");
                (safe::one_line(model), dim)
            }
            Self::Thinking => match facts.thinking? {
                Thinking::Off => return None,
                level => (format!("thinking {level}"), dim),
            },
            Self::Mode => {
                let mode = facts.mode?;
                let style = if mode == Mode::Full { warn } else { dim };
                (mode.to_string(), style)
            }
            Self::Sandbox => match facts.sandbox? {
                SandboxStatus::Full => ("sandbox full".into(), dim),
                SandboxStatus::Partial => ("sandbox partial".into(), warn),
                SandboxStatus::Off => ("sandbox off".into(), warn),
                SandboxStatus::Unavailable => ("no sandbox".into(), warn),
            },
            Self::Context => {
                let percent = facts.context.percent()?;
                let style = if percent >= 85 { warn } else { dim };
                (format!("{percent}% context"), style)
            }
            Self::Cost => {
                let least = if facts.cost_incomplete { "≥" } else { "" };
                (format!("{least}{}", money(facts.cost?)), dim)
            }
            Self::Vim => {
                let vim = ui.composer.editor.vim.as_ref()?;
                vim.is_normal().then(|| ("vim normal".into(), dim))?
            }
            Self::Branch => (ui.branch.clone()?, dim),
            Self::Queue => match facts.queue.len() {
                0 => return None,
                count => (format!("{count} queued"), warn),
            },
            Self::Background => match facts.background.len() {
                0 => return None,
                count => (format!("{count} in background"), dim),
            },
            Self::Project => {
                let name = ui.settings.cwd.rsplit('/').next()?;
                (safe::one_line(name), dim)
            }
            Self::Title => (ui.state.title()?, dim),
        })
    }
}

/// The line, or the hint that takes its place: as many parts as fit, the first ones first.
pub(super) fn line(ui: &Ui, columns: usize) -> Line<'static> {
    if let Some((hint, _)) = &ui.hint {
        return Line::styled(clip(hint, columns), ui.theme.warn());
    }
    let dim = ui.theme.dim();
    let items = ui.settings.status.iter();
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut used = 0;
    for (text, style) in items.filter_map(|item| item.said(ui)) {
        let gap = if spans.is_empty() { "" } else { " · " };
        let part_width = width(gap) + width(&text);
        if used + part_width > columns && !spans.is_empty() {
            break;
        }
        spans.push(Span::styled(gap, dim));
        spans.push(Span::styled(clip(&text, columns), style));
        used += part_width;
    }
    Line::from(spans)
}
