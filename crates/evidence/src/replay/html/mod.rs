//! A session as one HTML file that can be attached to anything: no request, no script but its own,
//! nothing in it that the session could make run.
//!
//! The file has what a reader scans (the timeline, one cell per call, what was decided) as plain
//! HTML, and what a reader opens (inputs, outputs, diffs, facts) as data that a small script turns
//! into text when it is asked for. So ten thousand events open at once, and without the script the
//! story can still be read.

mod cell;
mod head;
mod markup;

use std::io::{self, Write};

use agent_protocol::Timestamp;
use agent_protocol::id::ArtifactId;
use base64::Engine as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::entry::Entry;
use super::lineage::Lineage;
use super::streamed::Streamed;
use super::text::clock;
use crate::audit::AuditReport;
use agent_history::Description;
use agent_history::describe::{BlockKind, Kind, Level, Tone, phrases::span};
use cell::cell;
use head::{head, title};
use markup::{escaped, json_data, prose};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// What the page needs besides the entries.
pub struct Page<'a> {
    pub told: &'a Streamed<'a>,
    /// What an audit of the whole session found, if one was made.
    pub audit: Option<&'a AuditReport>,
    /// Reads an artifact as text that may be shown: bounded, and with secrets masked.
    pub artifact: &'a dyn Fn(&ArtifactId) -> Option<String>,
}

/// Writes the page.
///
/// # Errors
/// When it cannot be written.
pub fn write(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let summary = page.told.summary();
    let title = title(&summary);
    let mut html = String::with_capacity(64 * 1024);
    html.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.push_str(&format!(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src '{}'; script-src '{}'; img-src data:; base-uri 'none'; form-action 'none'; \
         require-trusted-types-for 'script'\">\n",
        hash(STYLE),
        hash(SCRIPT)
    ));
    html.push_str(
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>",
    );
    escaped(
        &mut html,
        &agent_text::clip(&agent_text::visible_line(&title), 80),
    );
    html.push_str(" · agent replay</title>\n<style>");
    html.push_str(STYLE);
    html.push_str("</style>\n</head>\n<body>\n");
    head(&mut html, page, &summary, &title);
    toolbar(&mut html, page);
    html.push_str("<main id=\"timeline\">\n");
    let mut sheet = Sheet { html, out };
    if let Some(lineage) = page.told.lineage() {
        past(&mut sheet, page, &lineage)?;
    }
    timeline(&mut sheet, page, summary.created_at)?;
    let html = &mut sheet.html;
    html.push_str("</main>\n");
    html.push_str(HELP);
    html.push_str("<script type=\"application/json\" id=\"data\">");
    data(&mut sheet, page, summary.created_at)?;
    let html = &mut sheet.html;
    html.push_str("</script>\n<script>");
    html.push_str(SCRIPT);
    html.push_str("</script>\n</body>\n</html>\n");
    sheet.write_out()?;
    sheet.out.flush()
}

/// The page as it is written: a piece of it, and where it goes.
struct Sheet<'a> {
    html: String,
    out: &'a mut dyn Write,
}

impl Sheet<'_> {
    fn write_out(&mut self) -> io::Result<()> {
        self.out.write_all(self.html.as_bytes())?;
        self.html.clear();
        Ok(())
    }

    /// Writes what there is once it is enough to be worth it.
    fn turn_over(&mut self) -> io::Result<()> {
        if self.html.len() > 96 * 1024 {
            self.write_out()?;
        }
        Ok(())
    }
}

/// Gives each entry to `tell` until it fails.
fn each_entry(page: &Page<'_>, mut tell: impl FnMut(&Entry) -> io::Result<()>) -> io::Result<()> {
    let mut written = Ok(());
    let told = page.told.each(|entry, _| {
        if written.is_ok() {
            written = tell(&entry);
        }
    });
    told.map_err(io::Error::other)?;
    written
}

const HELP: &str = "<p id=\"none\" hidden>Nothing here matches.</p>\n\
<dialog id=\"help\" aria-label=\"Keys\"><h2>Keys</h2><dl>\
<dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>next, previous entry</dd>\
<dt><kbd>Enter</kbd></dt><dd>open or close the entry</dd>\
<dt><kbd>n</kbd> <kbd>p</kbd></dt><dd>next, previous failure or refusal</dd>\
<dt><kbd>/</kbd></dt><dd>search; <kbd>Enter</kbd> goes to the next match</dd>\
<dt><kbd>1</kbd>–<kbd>9</kbd></dt><dd>switch a kind on or off</dd>\
<dt><kbd>e</kbd> <kbd>c</kbd></dt><dd>open all, close all</dd>\
<dt><kbd>g</kbd> <kbd>G</kbd></dt><dd>first, last entry</dd>\
<dt><kbd>t</kbd></dt><dd>light or dark</dd>\
<dt><kbd>Esc</kbd></dt><dd>clear the search</dd></dl>\
<form method=\"dialog\"><button>Close</button></form></dialog>\n";

fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let encoded = base64::engine::general_purpose::STANDARD.encode(digest);
    format!("sha256-{encoded}")
}

const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Conversation => "Conversation",
        Kind::Call => "Tools",
        Kind::Decision => "Decisions",
        Kind::Change => "Changes",
        Kind::Command => "Commands",
        Kind::Evidence => "Checks",
        Kind::Model => "Model",
        Kind::Problem => "Problems",
        Kind::Record => "Record",
    }
}

fn toolbar(html: &mut String, page: &Page<'_>) {
    let counts = &page.told.outline.kinds;
    html.push_str(
        "<nav class=\"tools\" aria-label=\"Filter and search\">\n\
         <div class=\"find\"><input id=\"search\" type=\"search\" placeholder=\"Search  /\" \
         aria-label=\"Search\" autocomplete=\"off\" spellcheck=\"false\">\
         <output id=\"count\" for=\"search\"></output>\
         <button id=\"open\" type=\"button\">Open all</button>\
         <button id=\"theme\" type=\"button\" aria-label=\"Light or dark\">◐</button>\
         <button id=\"keys\" type=\"button\" aria-label=\"Keys\">?</button></div>\n\
         <div class=\"kinds\" role=\"group\" aria-label=\"Kinds\">\n",
    );
    for kind in Kind::ALL {
        let on = !matches!(kind, Kind::Model | Kind::Record);
        html.push_str(&format!(
            "<button type=\"button\" data-kind=\"{}\" aria-pressed=\"{on}\">{} <b>{}</b></button>\n",
            kind.as_str(),
            kind_name(kind),
            counts.get(&kind).copied().unwrap_or_default()
        ));
    }
    html.push_str(
        "<button type=\"button\" id=\"failed\" aria-pressed=\"false\">Failures</button>\n\
         </div>\n</nav>\n",
    );
}

/// Writes the entries; a call is one cell where it was asked for.
fn timeline(sheet: &mut Sheet<'_>, page: &Page<'_>, begun: Option<Timestamp>) -> io::Result<()> {
    let mut open_turn = None;
    each_entry(page, |entry| {
        let html = &mut sheet.html;
        if entry.turn.is_some() && entry.turn != open_turn {
            if open_turn.is_some() {
                html.push_str("</section>\n");
            }
            open_turn = entry.turn;
            turn_begins(html, entry);
        }
        let call = entry.call.and_then(|number| {
            let outline = page.told.outline.calls.get(&number)?;
            Some((number, outline))
        });
        match call {
            Some((number, call)) if call.sequences.first() == Some(&entry.sequence) => {
                cell(html, page, number, entry, call, begun);
            }
            Some(_) => {}
            None => row(html, entry, begun),
        }
        sheet.turn_over()
    })?;
    let html = &mut sheet.html;
    if open_turn.is_some() {
        html.push_str("</section>\n");
    }
    for text in page.told.timeline.unfinished_texts() {
        html.push_str("<article class=\"row conversation\" data-k=\"conversation\"><span class=\"n\"></span><span class=\"l\">model, so far</span><div class=\"s\">");
        prose(html, text);
        html.push_str("</div></article>\n");
    }
    sheet.write_out()
}

/// Writes what belongs to the entries as one list: `[call, …]` for an event of a call, and
/// `[0, sequence, blocks]` for another that has something to open.
fn data(sheet: &mut Sheet<'_>, page: &Page<'_>, begun: Option<Timestamp>) -> io::Result<()> {
    sheet.html.push('[');
    let mut is_first = true;
    each_entry(page, |entry| {
        let item = match entry.call {
            Some(number) => event_data(number, entry, begun, page),
            None => match blocks_data(&entry.description, page) {
                Some(blocks) => json!([0, entry.sequence, blocks]),
                None => return Ok(()),
            },
        };
        if !std::mem::take(&mut is_first) {
            sheet.html.push(',');
        }
        json_data(&mut sheet.html, &item.to_string());
        sheet.turn_over()
    })?;
    sheet.html.push(']');
    Ok(())
}

/// What a branch has in common with where it came from, in short and folded away: its numbers are
/// those of another session, so they lead nowhere here.
fn past(sheet: &mut Sheet<'_>, page: &Page<'_>, lineage: &Lineage) -> io::Result<()> {
    sheet.html.push_str("<details class=\"past\"><summary>");
    escaped(&mut sheet.html, &lineage.in_words());
    sheet.html.push_str("</summary>\n<ol>\n");
    let mut written = Ok(());
    page.told.each_inherited(|entry, _| {
        if entry.description.level == Level::Record || written.is_err() {
            return;
        }
        let html = &mut sheet.html;
        html.push_str(&format!("<li value=\"{}\"><b>", entry.sequence));
        escaped(html, &entry.description.label);
        html.push_str("</b> ");
        escaped(
            html,
            &agent_text::clip(&agent_text::visible_line(&entry.description.text), 400),
        );
        html.push_str("</li>\n");
        written = sheet.turn_over();
    });
    sheet.html.push_str("</ol></details>\n");
    written
}

fn turn_begins(html: &mut String, entry: &Entry) {
    let number = entry.turn.unwrap_or_default();
    html.push_str(&format!(
        "<section class=\"turn\"><h2 id=\"turn{number}\">Turn {number} <time>{}</time></h2>\n",
        clock(entry.timestamp)
    ));
}

/// One event outside of calls.
fn row(html: &mut String, entry: &Entry, begun: Option<Timestamp>) {
    let level = match entry.description.level {
        Level::Headline => "",
        Level::Detail => " detail",
        Level::Record => " record",
    };
    let tone = match entry.description.tone {
        Tone::Plain => "",
        Tone::Good => " good",
        Tone::Warn => " warn",
        Tone::Bad => " bad",
    };
    let kind = entry.description.kind.as_str();
    let who = match entry.class.as_ref() {
        "turn.submitted" => " you",
        "model.completed" if entry.description.kind == Kind::Conversation => " model",
        _ => "",
    };
    html.push_str(&format!(
        "<article class=\"row{level}{tone}{who}\" id=\"e{}\" data-k=\"{kind}\">",
        entry.sequence
    ));
    number(html, entry, begun);
    html.push_str("<span class=\"l\">");
    escaped(html, &entry.description.label);
    html.push_str("</span><div class=\"s\">");
    if who.is_empty() {
        escaped(html, &entry.description.text);
    } else {
        prose(html, &entry.description.text);
    }
    html.push_str("</div>");
    if has_more(&entry.description) {
        html.push_str("<details class=\"more\"><summary>more</summary></details>");
    }
    html.push_str("</article>\n");
}

fn number(html: &mut String, entry: &Entry, begun: Option<Timestamp>) {
    html.push_str(&format!(
        "<a class=\"n\" href=\"#e{0}\" title=\"{1}\">{0}</a>",
        entry.sequence,
        begun.map_or_else(String::new, |begun| format!(
            "+{}",
            span(entry.timestamp.millis_since(begun))
        ))
    ));
}

/// `[call, sequence, label, tone, level, class, says, milliseconds, blocks]`.
fn event_data(call: u64, entry: &Entry, begun: Option<Timestamp>, page: &Page<'_>) -> Value {
    json!([
        call,
        entry.sequence,
        agent_text::visible_line(&entry.description.label),
        entry.description.tone.as_str(),
        entry.description.level.as_str(),
        entry.class,
        agent_text::visible_lines(&entry.description.text),
        begun.map(|begun| entry.timestamp.millis_since(begun)),
        blocks_data(&entry.description, page).unwrap_or_else(|| json!([])),
    ])
}

/// True if an entry has something to open.
fn has_more(description: &Description) -> bool {
    !description.blocks.is_empty() || !description.facts.is_empty()
}

/// `[[kind, title, text, artifact], …]`.
fn blocks_data(description: &Description, page: &Page<'_>) -> Option<Value> {
    if !has_more(description) {
        return None;
    }
    let each = description.blocks_and_facts().map(|block| {
        let loaded;
        let text = match &block.artifact {
            Some(artifact) if block.text.is_empty() => {
                loaded = (page.artifact)(artifact)
                    .unwrap_or_else(|| "(the artifact is not here)".to_owned());
                loaded.as_str()
            }
            // A page has room for a whole diff.
            Some(artifact) if block.is_cut && block.kind == BlockKind::Diff => {
                loaded = (page.artifact)(artifact).unwrap_or_else(|| block.text.clone());
                loaded.as_str()
            }
            _ => block.text.as_str(),
        };
        json!([
            block.kind.as_str(),
            agent_text::visible_line(&block.title),
            agent_text::visible_lines(text),
            block.artifact.as_ref().map(|id| id.as_str()),
        ])
    });
    Some(each.collect::<Vec<_>>().into())
}
