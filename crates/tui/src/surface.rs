//! Frames into bytes. The live part is drawn at the bottom of what the terminal shows, with
//! relative movements only; finished lines are written above it as ordinary output, so that the
//! terminal's own scrollback, selection and search work on them.
//!
//! Nothing here reads or writes a terminal: bytes are appended to a buffer.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use unicode_width::UnicodeWidthStr as _;

use crate::view::Frame;

/// What is on the terminal, as far as we wrote it.
pub struct Surface {
    width: u16,
    height: u16,
    /// Whether the terminal breaks long lines anew when it gets narrower.
    reflows: bool,
    rows: Vec<Row>,
    /// Where the terminal's cursor is, counted from the first row of the live part.
    cursor_row: usize,
    cursor_column: usize,
    cursor_shown: bool,
    full: bool,
    /// The rows are not where we left them: draw everything.
    moved: bool,
    /// The drawn row the cursor stood in when the terminal began to change its size.
    stood: Option<usize>,
}

struct Row {
    line: Line<'static>,
    used: usize,
}

const BEGIN: &str = "\x1b[?2026h\x1b[?25l\x1b[?7l";
const END: &str = "\x1b[?7h\x1b[?2026l";
/// Clears this row and all below. The row itself goes first: a multiplexer takes "clear to the end"
/// from the first place of the screen for a cleared screen, and keeps a copy in its scrollback.
const CLEAR_BELOW: &str = "\x1b[0m\r\x1b[K\x1b7\x1b[1B\x1b[J\x1b8";
/// Clears the row the cursor stands at the first place of.
const CLEAR_ROW: &[u8; 7] = b"\x1b[0m\x1b[K";
/// Clears a full-screen view and goes to its first place.
const CLEAR_ALL: &str = "\x1b[0m\x1b[2J\x1b[H";

impl Surface {
    #[must_use]
    pub fn new(width: u16, height: u16, reflows: bool) -> Self {
        Self {
            width: width.max(1),
            height: height.max(1),
            reflows,
            rows: Vec::new(),
            cursor_row: 0,
            cursor_column: 0,
            cursor_shown: true,
            full: false,
            // What others left below is not ours.
            moved: true,
            stood: None,
        }
    }

    #[must_use]
    pub fn size(&self) -> (u16, u16) {
        (self.width, self.height)
    }

    /// Whether a full-screen view is on.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// The terminal has a new size.
    pub fn resize(&mut self, width: u16, height: u16) {
        let width = width.max(1);
        if self.reflows && !self.full {
            // Until something is drawn again, the rows are as wide as they were drawn, however
            // often the size changes meanwhile.
            let stood = *self.stood.get_or_insert(self.cursor_row);
            let columns = usize::from(width);
            let above: usize = self.rows[..stood.min(self.rows.len())]
                .iter()
                .map(|row| row.used.div_ceil(columns).max(1))
                .sum();
            self.cursor_row = above + self.cursor_column / columns;
        }
        (self.width, self.height) = (width, height.max(1));
        self.cursor_row = self.cursor_row.min(usize::from(self.height) - 1);
        self.moved = true;
    }

    /// Somebody else wrote to the terminal; the next frame is drawn whole where the cursor is now.
    pub fn forget(&mut self) {
        self.stood = None;
        self.rows.clear();
        (self.cursor_row, self.cursor_column) = (0, 0);
        self.full = false;
        self.moved = true;
    }

    /// Draw everything anew, with what is on the screen cleared.
    pub fn redraw(&mut self) {
        self.moved = true;
    }

    /// Appends what turns the terminal into `frame`, with `print` above it. Appends nothing when
    /// nothing changes.
    pub fn draw(&mut self, out: &mut Vec<u8>, print: &[Line<'static>], frame: &Frame) {
        let start = out.len();
        push(out, BEGIN);
        let empty = out.len();
        if frame.full_screen != self.full {
            self.switch(out, frame.full_screen);
        }
        if self.moved || (!print.is_empty() && !self.full) {
            if self.full {
                push(out, CLEAR_ALL);
            } else {
                self.move_to(out, 0);
                push(out, CLEAR_BELOW);
            }
            self.rows.clear();
            (self.cursor_row, self.cursor_column) = (0, 0);
            self.moved = false;
            self.stood = None;
        }
        if !self.full {
            for line in print {
                encode(out, line, self.width);
                push(out, "\r\n");
            }
        }
        self.draw_rows(out, &frame.lines);
        let changed = out.len() > empty;
        let target = frame
            .cursor
            .map(|(column, row)| (usize::from(column), usize::from(row)));
        let stands = (self.cursor_column, self.cursor_row);
        if !changed
            && target.is_some() == self.cursor_shown
            && target.is_none_or(|target| target == stands)
        {
            out.truncate(start);
            return;
        }
        if let Some((column, row)) = target {
            self.move_to(out, row);
            push(out, "\r");
            if column > 0 {
                push(out, &format!("\x1b[{column}C"));
            }
            self.cursor_column = column;
        }
        push(out, END);
        self.cursor_shown = target.is_some();
        if self.cursor_shown {
            push(out, "\x1b[?25h");
        }
    }

    fn draw_rows(&mut self, out: &mut Vec<u8>, lines: &[Line<'static>]) {
        for (number, line) in lines.iter().enumerate() {
            if self.rows.get(number).is_some_and(|row| row.line == *line) {
                continue;
            }
            if number >= self.rows.len() && number > 0 {
                // The row does not exist yet; a line feed makes it, scrolling if it must.
                self.move_to(out, number - 1);
                push(out, "\r\n");
                self.cursor_row = number;
            } else {
                self.move_to(out, number);
                push(out, "\r");
            }
            let begun = out.len();
            let used = encode(out, line, self.width);
            // A row that was longer is cleared from its first place, before it is written: tmux
            // counts what was cleared behind the end of a row as text when it breaks rows anew.
            if self.rows.get(number).is_some_and(|row| row.used > used) {
                out.splice(begun..begun, *CLEAR_ROW);
            }
            self.cursor_column = used;
            let row = Row {
                line: line.clone(),
                used,
            };
            match self.rows.get_mut(number) {
                Some(old) => *old = row,
                None => self.rows.push(row),
            }
        }
        if lines.len() < self.rows.len() {
            self.move_to(out, lines.len());
            push(out, CLEAR_BELOW);
            self.cursor_column = 0;
            self.rows.truncate(lines.len());
        }
    }

    fn move_to(&mut self, out: &mut Vec<u8>, row: usize) {
        if row < self.cursor_row {
            push(out, &format!("\x1b[{}A", self.cursor_row - row));
        } else if row > self.cursor_row {
            push(out, &format!("\x1b[{}B", row - self.cursor_row));
        }
        self.cursor_row = row;
    }

    fn switch(&mut self, out: &mut Vec<u8>, full: bool) {
        if full {
            // The live part goes first: nobody knows where it would be if the terminal changed its
            // size meanwhile. The terminal keeps the cursor, which is where it begins again.
            self.move_to(out, 0);
            push(out, CLEAR_BELOW);
            push(out, "\x1b[?1049h");
            push(out, CLEAR_ALL);
        } else {
            push(out, "\x1b[?1049l");
        }
        self.rows.clear();
        (self.cursor_row, self.cursor_column) = (0, 0);
        self.moved = !full;
        self.full = full;
    }

    /// Takes the live part off the screen and leaves the cursor where the next output belongs.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        push(out, BEGIN);
        if self.full {
            self.switch(out, false);
        }
        self.move_to(out, 0);
        push(out, CLEAR_BELOW);
        push(out, END);
        push(out, "\x1b[?25h");
        self.rows.clear();
        (self.cursor_row, self.cursor_column) = (0, 0);
        self.moved = true;
        self.cursor_shown = true;
    }
}

/// Appends `lines` as ordinary output, each with a line break, for a terminal that nothing else is drawn
/// on. Without `styled` they are characters alone.
pub fn printed(out: &mut Vec<u8>, lines: &[Line<'static>], styled: bool) {
    for line in lines {
        let width = u16::try_from(line.width()).unwrap_or(u16::MAX).max(1);
        if styled {
            encode(out, line, width);
        } else {
            let text: String = line
                .spans
                .iter()
                .map(|span| span.content.as_ref())
                .collect();
            let harmless = text.chars().filter(|character| is_harmless(*character));
            push(out, harmless.collect::<String>().trim_end());
        }
        out.push(b'\n');
    }
}

fn push(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

/// Writes one line and returns the columns it took. Only the symbols of the drawn cells are
/// written, so whatever a text holds, it cannot be anything but characters here.
fn encode(out: &mut Vec<u8>, line: &Line<'static>, width: u16) -> usize {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, 1));
    buffer.set_line(0, 0, line, width);
    let cells = buffer.content();
    let blank = |style: Style| {
        style.bg.is_none_or(|color| color == Color::Reset)
            && !style
                .add_modifier
                .intersects(Modifier::REVERSED | Modifier::UNDERLINED)
    };
    let used = cells
        .iter()
        .rposition(|cell| cell.symbol() != " " || !blank(cell.style()))
        .map_or(0, |last| last + cells[last].symbol().width().max(1));
    let mut current = Style::reset();
    let mut at = 0;
    while at < used.min(cells.len()) {
        let cell = &cells[at];
        let style = cell.style();
        if style != current {
            push_style(out, style);
            current = style;
        }
        let symbol = cell.symbol();
        for character in symbol.chars().filter(|character| is_harmless(*character)) {
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
        at += symbol.width().max(1);
    }
    if current != Style::reset() {
        push(out, "\x1b[0m");
    }
    used
}

/// The last wall: whatever the layers above let through, no control character gets out.
fn is_harmless(character: char) -> bool {
    !agent_text::invisible::acts_on_terminal(character)
}

fn push_style(out: &mut Vec<u8>, style: Style) {
    push(out, "\x1b[0");
    let modifiers = [
        (Modifier::BOLD, ";1"),
        (Modifier::DIM, ";2"),
        (Modifier::ITALIC, ";3"),
        (Modifier::UNDERLINED, ";4"),
        (Modifier::REVERSED, ";7"),
        (Modifier::CROSSED_OUT, ";9"),
    ];
    for (modifier, code) in modifiers {
        if style.add_modifier.contains(modifier) {
            push(out, code);
        }
    }
    push_color(out, style.fg, 30);
    push_color(out, style.bg, 40);
    push(out, "m");
}

fn push_color(out: &mut Vec<u8>, color: Option<Color>, base: u8) {
    let Some(color) = color else { return };
    let number = match color {
        Color::Reset => return,
        Color::Black => 0,
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::DarkGray => 60,
        Color::LightRed => 61,
        Color::LightGreen => 62,
        Color::LightYellow => 63,
        Color::LightBlue => 64,
        Color::LightMagenta => 65,
        Color::LightCyan => 66,
        Color::White => 67,
        Color::Indexed(index) => {
            push(out, &format!(";{};5;{index}", base + 8));
            return;
        }
        Color::Rgb(red, green, blue) => {
            push(out, &format!(";{};2;{red};{green};{blue}", base + 8));
            return;
        }
    };
    push(out, &format!(";{}", base + number));
}

#[cfg(test)]
mod tests;
