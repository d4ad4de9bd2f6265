//! The bytes of the inline screen, read by a terminal: inserting, scrolling, resizing, leaving.

use agent_tui::surface::Surface;
use agent_tui::view::Frame;
use ratatui::text::Line;

use crate::console::size;

struct Bench {
    surface: Surface,
    parser: vt100::Parser,
    bytes: usize,
}

impl Bench {
    fn new(columns: u16, rows: u16) -> Self {
        let (height, width) = size(columns, rows);
        Self {
            surface: Surface::new(columns, rows, false),
            parser: vt100::Parser::new(height, width, 1000),
            bytes: 0,
        }
    }

    fn draw(&mut self, print: &[&str], live: &[&str], cursor: Option<(u16, u16)>) {
        let lines = |texts: &[&str]| -> Vec<Line<'static>> {
            texts
                .iter()
                .map(|text| Line::from((*text).to_owned()))
                .collect()
        };
        let frame = Frame {
            lines: lines(live),
            cursor,
            ..Frame::default()
        };
        let mut out = Vec::new();
        self.surface.draw(&mut out, &lines(print), &frame);
        self.bytes = out.len();
        self.parser.process(&out);
    }

    fn resize(&mut self, columns: u16, rows: u16) {
        let (height, width) = size(columns, rows);
        self.parser.set_size(height, width);
        self.surface.resize(columns, rows);
    }

    fn check(&self, expected: &[&str]) {
        let (_, columns) = self.parser.screen().size();
        let rows: Vec<String> = self
            .parser
            .screen()
            .rows(0, columns.get())
            .map(|row| row.trim_end().to_owned())
            .collect();
        let used = rows
            .iter()
            .rposition(|row| !row.is_empty())
            .map_or(0, |last| last + 1);
        assert_eq!(rows[..used], *expected);
    }

    fn scrollback(&mut self) -> Vec<String> {
        let screen = self.parser.screen_mut();
        let (rows, columns) = screen.size();
        let mut lines = Vec::new();
        let mut at = screen.scrollback_len();
        while at > 0 {
            screen.set_scrollback(at);
            let take = at.min(usize::from(rows.get()));
            lines.extend(
                screen
                    .rows(0, columns.get())
                    .take(take)
                    .map(|row| row.trim_end().to_owned()),
            );
            at -= take;
        }
        screen.set_scrollback(0);
        lines
    }
}

#[test]
fn the_live_part_stays_below_what_is_printed() {
    let mut bench = Bench::new(20, 6);
    bench.draw(&[], &["> hi", "status"], Some((4, 0)));
    bench.check(&["> hi", "status"]);
    assert_eq!(bench.parser.screen().cursor_position(), (0, 4));
    bench.draw(&["one"], &["> hi", "status"], Some((4, 0)));
    bench.check(&["one", "> hi", "status"]);
    bench.draw(&["two", "three", "four"], &["> hi", "status"], Some((4, 0)));
    bench.check(&["one", "two", "three", "four", "> hi", "status"]);
    bench.draw(&["five", "six"], &["> hi", "status"], Some((4, 0)));
    bench.check(&["three", "four", "five", "six", "> hi", "status"]);
    assert_eq!(bench.scrollback(), ["one", "two"]);
    assert_eq!(bench.parser.screen().cursor_position(), (4, 4));
}

#[test]
fn more_than_a_screen_goes_to_the_scrollback_whole() {
    let mut bench = Bench::new(20, 5);
    bench.draw(&[], &["live"], None);
    let lines: Vec<String> = (0..50).map(|n| format!("line {n}")).collect();
    let texts: Vec<&str> = lines.iter().map(String::as_str).collect();
    bench.draw(&texts, &["live"], None);
    bench.check(&["line 46", "line 47", "line 48", "line 49", "live"]);
    assert_eq!(bench.scrollback(), lines[..46]);
}

#[test]
fn it_grows_and_shrinks_without_traces() {
    let mut bench = Bench::new(20, 4);
    bench.draw(&["past"], &["a"], None);
    bench.draw(&[], &["a", "b", "c", "d"], None);
    bench.check(&["a", "b", "c", "d"]);
    assert_eq!(bench.scrollback(), ["past"]);
    bench.draw(&[], &["x"], None);
    bench.check(&["x"]);
    bench.draw(&["done"], &["y", "z"], None);
    bench.check(&["done", "y", "z"]);
    assert_eq!(bench.scrollback(), ["past"]);
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    let mut bench = Bench::new(20, 4);
    bench.draw(&[], &["a", "b"], Some((1, 1)));
    assert!(bench.bytes > 0);
    bench.draw(&[], &["a", "b"], Some((1, 1)));
    assert_eq!(bench.bytes, 0);
    bench.draw(&[], &["a", "B"], Some((1, 1)));
    let one_row = bench.bytes;
    assert!(one_row > 0 && one_row < 60, "{one_row}");
}

#[test]
fn a_smaller_terminal_leaves_the_past_alone() {
    let mut bench = Bench::new(30, 8);
    bench.draw(
        &["past one", "past two"],
        &["a live line", "> composer", "status"],
        Some((2, 1)),
    );
    bench.resize(14, 8);
    bench.draw(&[], &["a live line", "> composer", "status"], Some((2, 1)));
    bench.check(&[
        "past one",
        "past two",
        "a live line",
        "> composer",
        "status",
    ]);
    bench.resize(40, 8);
    bench.draw(&["past three"], &["> composer", "status"], Some((2, 0)));
    bench.check(&["past one", "past two", "past three", "> composer", "status"]);
}

/// Where the terminal breaks long lines anew, the rows above the cursor are counted as it shows
/// them.
#[test]
fn a_reflowing_terminal_is_counted_right() {
    let mut surface = Surface::new(20, 10, true);
    let frame = Frame {
        lines: vec![Line::from("0123456789012345"), Line::from("status")],
        cursor: Some((3, 1)),
        ..Frame::default()
    };
    let mut out = Vec::new();
    surface.draw(&mut out, &[], &frame);
    surface.resize(10, 10);
    out.clear();
    surface.draw(&mut out, &[], &frame);
    // The first row now takes two: the cursor has to go up by two.
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("\x1b[2A"), "{text:?}");
}

/// A window that is dragged changes its size more than once before a frame is due.
#[test]
fn sizes_that_follow_each_other_are_counted_once() {
    let up = |widths: &[u16]| {
        let mut surface = Surface::new(20, 10, true);
        let frame = Frame {
            lines: vec![Line::from("0123456789012345"), Line::from("status")],
            cursor: Some((3, 1)),
            ..Frame::default()
        };
        let mut out = Vec::new();
        surface.draw(&mut out, &[], &frame);
        for width in widths {
            surface.resize(*width, 10);
        }
        out.clear();
        surface.draw(&mut out, &[], &frame);
        let text = String::from_utf8(out).unwrap();
        let before = text.split("A\x1b[0m\r\x1b[K").next().unwrap();
        before.rsplit("\x1b[").next().unwrap().to_owned()
    };
    assert_eq!(up(&[10]), "2");
    assert_eq!(up(&[10, 9, 8]), "2");
    assert_eq!(up(&[10, 20]), "1");
    assert_eq!(up(&[4, 30, 10]), "2");
}

/// tmux keeps what was cleared behind the end of a row as a part of it, and breaks the row by it
/// when it gets narrower. A row cleared from its first place is as long as what is written then.
#[test]
fn a_row_that_was_longer_is_cleared_before_it_is_written() {
    let mut bench = Bench::new(30, 4);
    bench.draw(&[], &["a rather long line", "status"], None);
    let frame = Frame {
        lines: vec![Line::from("short"), Line::from("status")],
        ..Frame::default()
    };
    let mut out = Vec::new();
    bench.surface.draw(&mut out, &[], &frame);
    let text = String::from_utf8(out.clone()).unwrap();
    let (before, after) = text.split_once("short").unwrap();
    assert!(before.contains("\r\x1b[0m\x1b[K"), "{text:?}");
    assert!(!after.contains("\x1b[K"), "{text:?}");
    bench.parser.process(&out);
    bench.check(&["short", "status"]);
}

#[test]
fn what_others_left_below_is_gone() {
    let mut bench = Bench::new(20, 6);
    bench
        .parser
        .process(b"$ agent\r\nold old old old\r\nold\r\nold\x1b[2A\r");
    bench.draw(&["new"], &["> x", "status"], Some((2, 0)));
    bench.check(&["$ agent", "new", "> x", "status"]);
}

#[test]
fn full_screen_views_come_and_go() {
    let mut bench = Bench::new(20, 4);
    bench.draw(&["past"], &["live"], None);
    let mut out = Vec::new();
    let full = Frame {
        lines: vec![Line::from("overlay"); 4],
        full_screen: true,
        ..Frame::default()
    };
    bench.surface.draw(&mut out, &[], &full);
    bench.parser.process(&out);
    assert!(bench.parser.screen().alternate_screen());
    bench.check(&["overlay"; 4]);
    bench.draw(&["more"], &["live"], None);
    assert!(!bench.parser.screen().alternate_screen());
    bench.check(&["past", "more", "live"]);
}

#[test]
fn the_end_leaves_the_past_and_a_clean_line() {
    let mut bench = Bench::new(20, 6);
    bench.draw(&["past"], &["live", "> x", "status"], Some((3, 1)));
    let mut out = Vec::new();
    bench.surface.finish(&mut out);
    bench.parser.process(&out);
    bench.check(&["past"]);
    assert_eq!(bench.parser.screen().cursor_position(), (1, 0));
    assert!(!bench.parser.screen().hide_cursor());
}

#[test]
fn wide_characters_keep_their_place() {
    let mut bench = Bench::new(10, 4);
    bench.draw(&["漢字漢字漢"], &["é👩‍🔬x", "status"], None);
    bench.check(&["漢字漢字漢", "é👩‍🔬x", "status"]);
}
