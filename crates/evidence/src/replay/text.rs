//! A session as a timeline for a terminal or a mail: one line per event that matters, wrapped to a
//! width, every character of it safe to print.

use std::borrow::Cow;
use std::io::{self, Write};

use agent_protocol::Timestamp;
use agent_protocol::payload::conversation::SessionParent;
use agent_protocol::status::VerificationStatus;

use super::card::{Answer, Card};
use super::claims::{conflicts, failures};
use super::entry::Entry;
use super::lineage::Lineage;
use super::read::Integrity;
use super::summary::Summary;
use super::timeline::Timeline;
use agent_history::describe::{Block, BlockKind, Level, Tone, phrases};
use agent_text::width::split_at_column;
use agent_text::{clip, counted, visible_line as line, visible_lines as lines, width};

/// Columns before the words of an entry: number, time, label.
const MARGIN: usize = 27;
/// Lines of an output, a diff and a message that are shown unless all is asked for.
const OUTPUT_LINES: usize = 10;
const DIFF_LINES: usize = 40;
const MESSAGE_LINES: usize = 40;

/// How the text is to look.
#[derive(Debug, Clone, Copy)]
pub struct TextForm {
    /// Columns of a line.
    pub width: usize,
    pub color: bool,
    /// Whether bookkeeping, facts and whole outputs are shown too.
    pub all: bool,
}

/// Writes a timeline entry by entry.
pub struct TextWriter<W> {
    out: W,
    form: TextForm,
    begun: Option<Timestamp>,
    /// Whether what is told now was inherited.
    is_inherited: bool,
    line: String,
}

impl<W: Write> TextWriter<W> {
    pub fn new(out: W, form: TextForm) -> Self {
        Self {
            out,
            form,
            begun: None,
            is_inherited: false,
            line: String::new(),
        }
    }

    /// What follows was inherited from `parent`, until [`TextWriter::end_inherited`]. Its numbers are
    /// the parent's, and each is marked.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin_inherited(&mut self, parent: &SessionParent) -> io::Result<()> {
        self.is_inherited = true;
        let from = &parent.session_id;
        self.rule(&format!("── inherited from {from} "))
    }

    /// What follows is the session's own.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn end_inherited(&mut self, lineage: &Lineage) -> io::Result<()> {
        self.is_inherited = false;
        self.begun = None;
        self.rule("── this session ")?;
        self.line.clear();
        self.line.extend(std::iter::repeat_n(' ', MARGIN));
        let room = self.form.width.saturating_sub(MARGIN);
        let says = line(&lineage.in_words()).into_owned();
        self.wrapped(&says, room, MESSAGE_LINES)
    }

    fn rule(&mut self, title: &str) -> io::Result<()> {
        let rule = "─".repeat(self.form.width.saturating_sub(width(title)));
        writeln!(self.out, "\n{title}{rule}")
    }

    /// Tells one entry, if it matters enough.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        let begun = *self.begun.get_or_insert(entry.timestamp);
        if entry.description.level == Level::Record && !self.form.all {
            return Ok(());
        }
        if entry.class == "turn.submitted" {
            self.turn_line(entry)?;
        }
        let mark = if self.is_inherited { "‹" } else { "" };
        let number = format!("{mark}{}", entry.sequence);
        let time = if entry.description.level == Level::Headline || self.form.all {
            since(begun, entry.timestamp)
        } else {
            String::new()
        };
        let label = match entry.call {
            Some(call) => Cow::Owned(format!("{mark}#{call} {}", line(&entry.description.label))),
            None => line(&entry.description.label),
        };
        self.line.clear();
        let margin = format!(
            "{number:>5} {time:>7}  {}",
            self.painted(
                entry.description.tone,
                entry.description.level,
                &clip(&label, 12)
            )
        );
        self.line.push_str(&margin);
        let used = 15 + width(&clip(&label, 12));
        let gap = MARGIN.saturating_sub(used).max(1);
        self.line.extend(std::iter::repeat_n(' ', gap));
        let says = lines(&entry.description.text);
        let first = self.form.width.saturating_sub(used + gap);
        let most = if self.form.all {
            usize::MAX
        } else {
            MESSAGE_LINES
        };
        self.wrapped(says.trim_end(), first, most)?;
        for block in entry.description.blocks_and_facts() {
            self.block(&block)?;
        }
        Ok(())
    }

    /// Writes the line begun in `self.line` and what follows of `text`.
    fn wrapped(&mut self, text: &str, first: usize, most: usize) -> io::Result<()> {
        let width_left = self.form.width.saturating_sub(MARGIN).max(20);
        let mut room = first.max(20).min(width_left);
        let mut written = 0;
        let mut left_out = 0;
        for row in text.split('\n') {
            let mut rest = row;
            loop {
                if written >= most {
                    left_out += 1;
                    break;
                }
                let (piece, after) = break_at(rest, room);
                if written > 0 {
                    self.line.clear();
                    self.line.extend(std::iter::repeat_n(' ', MARGIN));
                }
                self.line.push_str(piece);
                self.end_line()?;
                written += 1;
                room = width_left;
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
        }
        if left_out > 0 {
            self.line.clear();
            self.line.extend(std::iter::repeat_n(' ', MARGIN));
            self.line.push_str(&format!("… {left_out} more lines"));
            self.end_line()?;
        }
        Ok(())
    }

    fn block(&mut self, block: &Block) -> io::Result<()> {
        let most = match block.kind {
            _ if self.form.all => usize::MAX,
            BlockKind::Output => OUTPUT_LINES,
            BlockKind::Diff => DIFF_LINES,
            BlockKind::Prose => MESSAGE_LINES,
            BlockKind::Json | BlockKind::Facts => return Ok(()),
        };
        let text = match &block.artifact {
            Some(artifact) if block.text.is_empty() => Cow::Owned(format!("(in {artifact})")),
            _ => lines(&block.text),
        };
        let columns = self.form.width.saturating_sub(MARGIN + 2).max(20);
        let rows: Vec<&str> = text.trim_end_matches('\n').split('\n').collect();
        // Of what a command printed: a few lines of the beginning, and the rest from the end.
        let tail = match block.is_printed && rows.len() > most {
            true => most - most / 3,
            false => 0,
        };
        let (head, end) = (most - tail, rows.len() - tail);
        for (at, row) in rows.iter().enumerate() {
            if at >= head && at < end {
                if at == head {
                    self.line.clear();
                    self.line.extend(std::iter::repeat_n(' ', MARGIN));
                    self.line
                        .push_str(&format!("│ … {} more lines", end - head));
                    self.end_line()?;
                }
                continue;
            }
            self.line.clear();
            self.line.extend(std::iter::repeat_n(' ', MARGIN));
            self.line.push_str("│ ");
            let row = clip(row, columns);
            let tone = match (block.kind, row.as_bytes().first()) {
                (BlockKind::Diff, Some(b'+')) => Tone::Good,
                (BlockKind::Diff, Some(b'-')) => Tone::Bad,
                _ => Tone::Plain,
            };
            let row = self.painted(tone, Level::Detail, &row).into_owned();
            self.line.push_str(&row);
            self.end_line()?;
        }
        if let Some(artifact) = block.artifact.as_ref().filter(|_| block.is_cut) {
            // Not clipped: half an id names nothing.
            self.line.clear();
            self.line.extend(std::iter::repeat_n(' ', MARGIN));
            self.line.push_str(&format!("└ all of it: {artifact}"));
            self.end_line()?;
        }
        Ok(())
    }

    fn turn_line(&mut self, entry: &Entry) -> io::Result<()> {
        let number = entry.turn.unwrap_or_default();
        let whose = if self.is_inherited { "inherited " } else { "" };
        let time = clock(entry.timestamp);
        self.rule(&format!("── {whose}turn {number} · {time} "))
    }

    fn end_line(&mut self) -> io::Result<()> {
        while self.line.ends_with(' ') {
            self.line.pop();
        }
        self.line.push('\n');
        self.out.write_all(self.line.as_bytes())
    }

    fn painted<'a>(&self, tone: Tone, level: Level, text: &'a str) -> Cow<'a, str> {
        if !self.form.color {
            return Cow::Borrowed(text);
        }
        let code = match (tone, level) {
            (Tone::Good, _) => "32",
            (Tone::Warn, _) => "33",
            (Tone::Bad, _) => "31",
            (Tone::Plain, Level::Headline) => "1",
            (Tone::Plain, Level::Record) => "2",
            (Tone::Plain, Level::Detail) => return Cow::Borrowed(text),
        };
        Cow::Owned(format!("\u{1b}[{code}m{text}\u{1b}[0m"))
    }

    /// The end: what had not ended, what it amounts to, and whether the record is whole.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self, timeline: &Timeline, integrity: &Integrity) -> io::Result<()> {
        for text in timeline.unfinished_texts() {
            self.line.clear();
            self.line
                .push_str(&format!("{:>13}  {:<12}", "", "model (so far)"));
            self.line.push(' ');
            self.wrapped(&lines(text), 20, MESSAGE_LINES)?;
        }
        let summary = timeline.summary();
        let at = timeline.models().next_sequence().checked_sub(1);
        let title = match at {
            Some(at) => format!("── as of event {at} "),
            None => "── no event ".into(),
        };
        self.rule(&title)?;
        for (name, value) in facts(&summary, integrity) {
            let value = line(&value).into_owned();
            self.line.clear();
            self.line.push_str(&format!("{name:<11} "));
            let columns = self.form.width.saturating_sub(12).max(20);
            let mut rest = value.as_str();
            loop {
                let (piece, after) = break_at(rest, columns);
                self.line.push_str(piece);
                self.end_line()?;
                rest = after;
                if rest.is_empty() {
                    break;
                }
                self.line.clear();
                self.line.extend(std::iter::repeat_n(' ', 12));
            }
        }
        self.out.flush()
    }
}

/// The summary as names and values; what is not known says so.
pub(super) fn facts(summary: &Summary, integrity: &Integrity) -> Vec<(&'static str, String)> {
    let unknown = || "unknown".to_owned();
    let mut facts = Vec::new();
    let session = summary.session_id.as_ref();
    facts.push(("session", session.map_or_else(unknown, ToString::to_string)));
    if let Some(title) = &summary.title {
        facts.push(("title", title.clone()));
    }
    if let Some(program) = &summary.imported_from {
        facts.push((
            "imported",
            format!("from {program}; what its record does not say is unknown"),
        ));
    }
    let when = match (summary.created_at, summary.last_event_at) {
        (Some(begun), Some(last)) => format!("{} to {}", clock(begun), clock(last)),
        _ => unknown(),
    };
    facts.push(("recorded", when));
    let status = summary.status;
    facts.push((
        "status",
        status.map_or_else(unknown, |status| status.as_str().replace('_', " ")),
    ));
    let turns: Vec<String> = summary
        .turns
        .iter()
        .map(|turn| turn.status.as_str().replace('_', " "))
        .collect();
    facts.push(("turns", counted_words(&turns)));
    let calls = summary.calls.iter();
    let calls: Vec<String> = calls
        .map(|(status, count)| format!("{count} {}", status.replace('_', " ")))
        .collect();
    facts.push((
        "calls",
        if calls.is_empty() {
            "none".into()
        } else {
            calls.join(", ")
        },
    ));
    facts.push(("decisions", decisions(summary)));
    if summary.violations > 0 {
        facts.push(("violations", summary.violations.to_string()));
    }
    let files = summary.files_changed.iter();
    let files: Vec<String> = files
        .map(|(path, file)| format!("{path} ({})", file.kind.as_str().replace('_', " ")))
        .collect();
    facts.push((
        "files",
        if files.is_empty() {
            "no change recorded".into()
        } else {
            files.join(", ")
        },
    ));
    facts.push(("verified", verification(summary)));
    if !summary.failures.is_empty() {
        facts.push(("failed", failures(summary)));
    }
    for claim in &summary.claims {
        facts.push(("claim", phrases::claim(claim)));
    }
    if let Some(claims) = conflicts(summary) {
        facts.push(("claims", claims));
    }
    facts.push(("tokens", tokens(summary)));
    facts.push(("cost", cost(summary)));
    facts.push(("open", open(summary)));
    if summary.missing_events > 0 {
        facts.push(("missing", counted(summary.missing_events, "event")));
    }
    facts.push(("integrity", integrity.in_words()));
    facts
}

fn counted_words(words: &[String]) -> String {
    let mut counts: Vec<(&String, u64)> = Vec::new();
    for word in words {
        match counts.iter_mut().find(|(have, _)| *have == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word, 1)),
        }
    }
    if counts.is_empty() {
        return "none".into();
    }
    let each = counts.iter().map(|(word, count)| format!("{count} {word}"));
    each.collect::<Vec<_>>().join(", ")
}

pub(crate) fn decisions(summary: &Summary) -> String {
    if summary.imported_from.is_some() {
        return "unknown: the session was imported".into();
    }
    let decisions = &summary.decisions;
    format!(
        "{} allowed, {} asked, {} denied",
        decisions.allow, decisions.ask, decisions.deny
    )
}

pub(crate) fn verification(summary: &Summary) -> String {
    match &summary.verification {
        None if summary.imported_from.is_some() => "unknown: the session was imported".into(),
        None => "unknown: no turn was completed".into(),
        Some(verification) => {
            let mut says = match verification.status {
                VerificationStatus::Unverified => {
                    "not run: files changed, and no check was run".into()
                }
                status => status.as_str().replace('_', " "),
            };
            if let Some(command) = &verification.command {
                says.push_str(&format!(": {command}"));
            }
            if let Some(code) = verification.exit_code {
                says.push_str(&format!(" (exit {code})"));
            }
            if let Some(reason) = &verification.reason {
                says.push_str(&format!("; {reason}"));
            }
            says
        }
    }
}

pub(crate) fn tokens(summary: &Summary) -> String {
    let usage = &summary.usage;
    if summary.requests == 0 && usage.input == 0 && usage.output == 0 {
        if summary.imported_from.is_some() {
            return "unknown".into();
        }
        return "none: no model was asked".into();
    }
    let mut says = format!("{} in, {} out", usage.input, usage.output);
    if usage.cached_input > 0 {
        says.push_str(&format!(", {} of them cached", usage.cached_input));
    }
    if usage.uncounted_requests > 0 {
        says.push_str(&format!(
            "; {} uncounted",
            counted(usage.uncounted_requests, "request")
        ));
    }
    says
}

pub(crate) fn cost(summary: &Summary) -> String {
    let cost = &summary.cost;
    let currency = cost.currency.as_deref().unwrap_or("USD");
    match (cost.amount > 0.0, cost.unknown_requests) {
        (false, 0) if summary.imported_from.is_some() => "unknown".into(),
        (false, 0) if summary.requests == 0 => "none: no model was asked".into(),
        (false, 0) => "unknown".into(),
        (false, count) => format!("unknown for {}", counted(count, "request")),
        (true, 0) => format!("{:.4} {currency}", cost.amount),
        (true, count) => format!(
            "{:.4} {currency}, and unknown for {}",
            cost.amount,
            counted(count, "request")
        ),
    }
}

pub(super) fn open(summary: &Summary) -> String {
    let open = &summary.open;
    if open.is_nothing() {
        return "nothing".into();
    }
    let parts = [
        (open.turns, "turn"),
        (open.calls, "call"),
        (open.actions, "question"),
        (open.requests, "model request"),
        (open.processes, "command"),
    ];
    let each = parts.iter().filter(|(count, _)| *count > 0);
    let each = each.map(|(count, noun)| counted(*count, noun));
    let each = each.collect::<Vec<_>>().join(", ");
    if open.is_left {
        return format!("{each}: the log stops there, and nobody writes it now");
    }
    each
}

/// The audit card as text.
#[must_use]
pub fn card(card: &Card, form: TextForm) -> String {
    let mut text = format!("{} {}\n", card.tool_call_id, line(&card.tool_name));
    let columns = form.width.saturating_sub(4).max(30);
    let mut number = 0;
    let mut tell = |answer: &Answer, is_numbered: bool| {
        let mark = if is_numbered {
            number += 1;
            format!("{number:>2}")
        } else {
            " +".into()
        };
        let events: Vec<String> = answer.events.iter().map(ToString::to_string).collect();
        let places = match events.len() {
            0 => String::new(),
            1 => format!("  [event {}]", events.join("")),
            _ => format!("  [events {}]", events.join(", ")),
        };
        text.push_str(&format!("{mark}  {}{places}\n", answer.question));
        let said = answer.answer.as_deref().unwrap_or("unknown");
        let said = lines(said);
        for row in said.split('\n') {
            let mut rest = row;
            loop {
                let (piece, after) = break_at(rest, columns);
                text.push_str(&format!("    {piece}\n"));
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
        }
    };
    for answer in &card.answers {
        tell(answer, true);
    }
    for answer in &card.more {
        tell(answer, false);
    }
    text
}

/// Breaks a plain line at a space so that the first part fits; a long word is cut.
fn break_at(text: &str, columns: usize) -> (&str, &str) {
    if width(text) <= columns {
        return (text, "");
    }
    let (piece, after) = split_at_column(text, columns);
    if after.starts_with(' ') {
        return (piece, after.trim_start_matches(' '));
    }
    match piece.rfind(' ').filter(|at| *at > 0) {
        Some(at) => (&text[..at], text[at..].trim_start_matches(' ')),
        None => (piece, after),
    }
}

/// `+0.26s`, `+12m03s`, `+3h07m`.
fn since(begun: Timestamp, now: Timestamp) -> String {
    let millis = now.millis_since(begun);
    let seconds = millis / 1000;
    match seconds {
        0..60 => format!("+{seconds}.{:02}s", millis % 1000 / 10),
        60..3600 => format!("+{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("+{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// `2026-11-16 06:49:04 UTC`.
pub(super) fn clock(time: Timestamp) -> String {
    let text = time.to_string();
    match (text.get(..10), text.get(11..19)) {
        (Some(day), Some(second)) => format!("{day} {second} UTC"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_spaces_and_long_words_are_cut() {
        assert_eq!(break_at("one two three", 7), ("one two", "three"));
        assert_eq!(break_at("one two three", 8), ("one two", "three"));
        assert_eq!(break_at("unbreakable", 4), ("unbr", "eakable"));
        assert_eq!(break_at("漢字漢字", 5), ("漢字", "漢字"));
    }

    #[test]
    fn times_are_short() {
        let at = Timestamp::from_unix_millis;
        assert_eq!(since(at(0), at(260)), "+0.26s");
        assert_eq!(since(at(0), at(723_000)), "+12m03s");
        assert_eq!(since(at(0), at(11_220_000)), "+3h07m");
    }
}
