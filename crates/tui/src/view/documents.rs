//! The short texts behind `/help`, `/context`, `/cost`, `/tools`, `/status` and `/why`.

use crate::commands::COMMANDS;
use crate::host::{Document, DocumentFormat};
use crate::keymap::KeyMap;
use crate::safe::one_line;
use crate::state::Facts;
use crate::state::cell::ToolCell;
use crate::ui::Ui;
use crate::ui::overlay::{Overlay, Reader, mode_in_words};
use agent_text::words::{money, tokens};

/// Keys and what they do, in groups. The same table is in the manual.
pub const KEYS: &[(&str, &[(&str, &str)])] = &[
    (
        "Writing",
        &[
            ("Enter", "send; while a turn runs: queue"),
            ("Ctrl-S", "steer: join the running turn at its next step"),
            ("Alt-Enter, Ctrl-J", "break the line (also \\ before Enter)"),
            ("Up, Down", "earlier prompts, from the first or last row"),
            ("Ctrl-R", "search earlier prompts"),
            ("Alt-Up", "edit the last queued message"),
            ("@", "attach a file (@a.rs:10-40), a directory or an image"),
            ("/", "commands"),
            (
                "!",
                "your own shell command; !network COMMAND asks for the network",
            ),
            ("Ctrl-G, Ctrl-X Ctrl-E", "open your editor"),
            (
                "Ctrl-A E B F W U K Y _",
                "as in a shell; Alt-B F D by words",
            ),
        ],
    ),
    (
        "Steering",
        &[
            ("Esc", "interrupt the turn"),
            ("Esc Esc", "go back to before an earlier message (/rewind)"),
            (
                "Shift-Tab",
                "cycle modes (skips full); a pending question is checked again",
            ),
            (
                "Alt-P",
                "the whole list of things to do, or its current item",
            ),
            ("Ctrl-T, PgUp", "transcript with details"),
            ("Ctrl-C", "clear, interrupt; twice: quit"),
            ("Ctrl-Z", "suspend"),
            ("Ctrl-L", "redraw the screen"),
        ],
    ),
    (
        ANSWERS,
        &[
            ("a", "allow once"),
            (
                "s",
                "don't ask again this session: this call; for an edit, all edits",
            ),
            ("w", "allow once, with network access"),
            (
                "r",
                "allow and save a rule (p project, u user, e change it, w wider)",
            ),
            (
                "a, s, w",
                "on a plan: approve it, and the mode that work goes on in",
            ),
            ("d", "deny"),
            ("n", "deny with a note to the model"),
            ("e", "edit first, then Enter allows the edited version"),
            ("q, Esc", "abort the turn"),
            (
                "Space, PgDn, PgUp, End",
                "scroll; scroll to the end to allow",
            ),
        ],
    ),
];

fn reader(title: &str, text: String, format: DocumentFormat) -> Overlay {
    Overlay::Reader(Reader::new(Document {
        title: title.to_owned(),
        text,
        format,
    }))
}

/// The group of keys that answer a question.
const ANSWERS: &str = "A question";

/// Keys and commands.
#[must_use]
pub fn help(bound: &KeyMap) -> Overlay {
    let mut text = String::new();
    for (group, keys) in KEYS {
        text.push_str(&format!("{group}\n"));
        for (key, meaning) in *keys {
            let key = bound.told(key, *group == ANSWERS);
            text.push_str(&format!("  {key:22} {meaning}\n"));
        }
        text.push('\n');
    }
    text.push_str("Commands\n");
    for command in COMMANDS {
        let name = format!("/{} {}", command.name, command.arguments);
        text.push_str(&format!("  {name:22} {}\n", command.about));
    }
    reader("help", text, DocumentFormat::Plain)
}

/// What the model is shown.
#[must_use]
pub fn context(facts: &Facts) -> Overlay {
    let context = &facts.context;
    let mut text = match (context.used, context.window) {
        (Some(used), Some(window)) => format!(
            "{} of {} tokens used ({}%)\n",
            tokens(used),
            tokens(window),
            context.percent().unwrap_or(0)
        ),
        (Some(used), None) => format!("{} tokens used; the window is unknown\n", tokens(used)),
        _ => "no model input yet\n".to_owned(),
    };
    if let Some(cached) = context.cached {
        text.push_str(&format!("{} of them were cached\n", tokens(cached)));
    }
    if !context.items.is_empty() {
        text.push_str("\nIn the input (estimates):\n");
    }
    for (source, count) in &context.items {
        text.push_str(&format!("  {:>8}  {source}\n", tokens(*count)));
    }
    if !context.omitted.is_empty() {
        text.push_str("\nLeft out:\n");
        for (source, reason) in &context.omitted {
            text.push_str(&format!("  {source}: {reason}\n"));
        }
    }
    reader("context", text, DocumentFormat::Plain)
}

/// Tokens and money.
#[must_use]
pub fn cost(facts: &Facts) -> Overlay {
    let amount = match (facts.cost, facts.cost_incomplete) {
        (Some(cost), false) => money(cost),
        (Some(cost), true) => format!(
            "at least {} (some requests have no known price)",
            money(cost)
        ),
        (None, _) => "unknown: this model has no price".to_owned(),
    };
    let text = format!(
        "requests   {}\ninput      {} tokens, {} of them cached\noutput     {} tokens\ncost       {amount}\n",
        facts.requests,
        tokens(facts.input_tokens),
        tokens(facts.cached_tokens),
        tokens(facts.output_tokens),
    );
    reader("cost of this session", text, DocumentFormat::Plain)
}

/// The catalogue.
#[must_use]
pub fn tools(facts: &Facts) -> Overlay {
    let mut text = String::new();
    for tool in &facts.tools {
        text.push_str(&format!(
            "{:14} {:12} {}\n",
            tool.name, tool.policy, tool.description
        ));
    }
    let title = match facts.mode {
        Some(mode) => format!("tools in mode {mode}"),
        None => "tools".to_owned(),
    };
    reader(&title, text, DocumentFormat::Plain)
}

/// Where things stand.
#[must_use]
pub fn status(ui: &Ui) -> Overlay {
    let facts = &ui.state.facts;
    let mut text = String::new();
    let mut row = |name: &str, value: String| text.push_str(&format!("{name:10} {value}\n"));
    row("version", ui.settings.version.clone());
    row(
        "session",
        facts
            .session_id
            .as_ref()
            .map_or("none yet".into(), ToString::to_string),
    );
    row("project", one_line(&ui.settings.cwd));
    if let Some(path) = &facts.working_directory {
        row("directory", path.clone());
    }
    row("branch", ui.branch.clone().unwrap_or_else(|| "none".into()));
    row(
        "model",
        facts.model.clone().unwrap_or_else(|| "none".into()),
    );
    if let Some(mode) = facts.mode {
        row("mode", format!("{mode}: {}", mode_in_words(mode)));
    }
    let sandbox = match (facts.sandbox, &facts.sandbox_detail) {
        (Some(sandbox), Some(detail)) => format!("{sandbox}: {detail}"),
        (Some(sandbox), None) => sandbox.to_string(),
        _ => "not known yet".into(),
    };
    row("sandbox", sandbox);
    row("events", (facts.last_sequence + 1).to_string());
    row("queue", facts.queue.len().to_string());
    reader("status", text, DocumentFormat::Plain)
}

/// How one call was decided.
#[must_use]
pub fn why(tool: &ToolCell) -> Overlay {
    let mut text = format!("{} {}\n\n", tool.tool, tool.target);
    for (number, step) in tool.chain.iter().enumerate() {
        text.push_str(&format!("{}. {step}\n", number + 1));
    }
    if let Some(call) = &tool.call_id {
        text.push_str(&format!("\ncall {call}\n"));
    }
    reader("why", text, DocumentFormat::Plain)
}
