//! The picture in the README: the demo on a real terminal, at the moment it asks about its edit.
//! `AGENT_UPDATE_DOCS=1 cargo test -p agent-cli --test behaviour picture` draws it anew.

use std::fmt::Write as _;

use agent_test_support::project::TestProject;

use crate::screen::terminal::Terminal;

const PICTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/demo.svg");
const SIZE: (u16, u16) = (96, 34);
const CELL: (u32, u32) = (8, 17);
const MARGIN: u32 = 12;
const PAPER: &str = "#16181d";
const INK: &str = "#d6d9df";

/// The sixteen colours a terminal has names for.
const NAMED: [&str; 16] = [
    "#16181d", "#e0626d", "#7fc97f", "#e0b465", "#6aa5e8", "#c58be0", "#5fc3c9", "#d6d9df",
    "#8a909c", "#f0858f", "#9fe09f", "#f0cf8a", "#8fbef5", "#d9abef", "#86dde2", "#ffffff",
];

#[test]
fn the_picture_is_what_the_demo_shows() {
    let project = TestProject::new();
    let mut terminal = Terminal::start(&project, &["demo", "--directory", "sum"], SIZE);
    terminal.question("$ sh test.sh").keys("a");
    terminal.question("src/sum.sh");
    let (drawn, shown) = terminal.with_screen(|screen| (draw(screen), screen.contents()));
    terminal.keys("q");
    if std::env::var_os("AGENT_UPDATE_DOCS").is_some() {
        std::fs::write(PICTURE, drawn).unwrap();
        return;
    }
    let kept = words(&std::fs::read_to_string(PICTURE).unwrap());
    for line in shown.lines().map(masked).filter(|line| !line.is_empty()) {
        assert!(
            kept.contains(&line),
            "docs/demo.svg is not current ({line:?} is not in it); run AGENT_UPDATE_DOCS=1 cargo test -p agent-cli --test behaviour picture"
        );
    }
}

/// The lines of a picture, without what differs from run to run.
fn words(picture: &str) -> Vec<String> {
    let texts = picture.split("<text ").skip(1);
    texts
        .map(|text| {
            let text = text.split("</text>").next().unwrap_or_default();
            let mut line = String::new();
            for part in text.split("<tspan").skip(1) {
                let part = part.split_once('>').map_or("", |(_, rest)| rest);
                line.push_str(part.split("</tspan>").next().unwrap_or_default());
            }
            let plain = line
                .replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&amp;", "&");
            masked(&plain)
        })
        .collect()
}

/// Without what differs from run to run, which is how long things took, and without layout.
pub(crate) fn masked(line: &str) -> String {
    let is_time = |word: &str| {
        let number = word.trim_end_matches(['m', 's']);
        number.len() < word.len() && number.parse::<f64>().is_ok()
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_unit = |word: &&str| matches!(word.trim_end_matches([';', ',']), "ms" | "s");
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let is_span = |at: usize| is_number(words[at]) && words.get(at + 1).is_some_and(is_unit);
    (0..words.len())
        .filter(|at| !is_time(words[*at]))
        .filter(|at| !(is_span(*at) || *at > 0 && is_span(at - 1)))
        .map(|at| words[at])
        .collect()
}

pub(crate) fn draw(screen: &vt100::Screen) -> String {
    let (rows, columns) = screen.size();
    let (rows, columns) = (rows.get(), columns.get());
    let (width, height) = (
        u32::from(columns) * CELL.0 + 2 * MARGIN,
        u32::from(rows) * CELL.1 + 2 * MARGIN,
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"13\">\n\
         <title>agent on a terminal</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{PAPER}\"/>\n"
    );
    for row in 0..rows {
        let (behind, text) = line(screen, row, columns);
        svg.push_str(&behind);
        if !text.is_empty() {
            let y = MARGIN + u32::from(row) * CELL.1 + CELL.1 * 3 / 4;
            let _ = writeln!(svg, "<text y=\"{y}\" xml:space=\"preserve\">{text}</text>");
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// One row: what is behind the letters, and runs of letters that look alike.
fn line(screen: &vt100::Screen, row: u16, columns: u16) -> (String, String) {
    let (mut behind, mut text) = (String::new(), String::new());
    let mut column = 0;
    while column < columns {
        let start = column;
        let style = style_at(screen, row, column);
        let mut letters = String::new();
        while column < columns && style_at(screen, row, column) == style {
            let cell = screen.cell(row, column);
            match cell.map(vt100::Cell::contents) {
                None | Some("") => letters.push(' '),
                Some(shown) => letters.push_str(shown),
            }
            let wide = cell.is_some_and(vt100::Cell::is_wide);
            column += if wide { 2 } else { 1 };
        }
        let x = MARGIN + u32::from(start) * CELL.0;
        let long = u32::from(column - start) * CELL.0;
        if let Some(paper) = &style.paper {
            let y = MARGIN + u32::from(row) * CELL.1;
            let high = CELL.1;
            let _ = writeln!(
                behind,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{long}\" height=\"{high}\" fill=\"{paper}\"/>"
            );
        }
        if letters.trim().is_empty() {
            continue;
        }
        let bold = if style.bold {
            " font-weight=\"bold\""
        } else {
            ""
        };
        let letters = letters
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let ink = &style.ink;
        let _ = write!(
            text,
            "<tspan x=\"{x}\" textLength=\"{long}\" fill=\"{ink}\"{bold}>{letters}</tspan>"
        );
    }
    (behind, text)
}

#[derive(PartialEq)]
struct Style {
    ink: String,
    paper: Option<String>,
    bold: bool,
}

fn style_at(screen: &vt100::Screen, row: u16, column: u16) -> Style {
    let Some(cell) = screen.cell(row, column) else {
        return Style {
            ink: INK.into(),
            paper: None,
            bold: false,
        };
    };
    let (mut ink, mut paper) = (
        color(cell.fgcolor()).unwrap_or_else(|| INK.into()),
        color(cell.bgcolor()),
    );
    if cell.inverse() {
        let behind = paper.unwrap_or_else(|| PAPER.into());
        paper = Some(std::mem::replace(&mut ink, behind));
    }
    if cell.dim() {
        ink = NAMED[8].into();
    }
    Style {
        ink,
        paper,
        bold: cell.bold(),
    }
}

fn color(color: vt100::Color) -> Option<String> {
    match color {
        vt100::Color::Default => None,
        vt100::Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
        vt100::Color::Idx(index @ 0..=15) => Some(NAMED[usize::from(index)].into()),
        vt100::Color::Idx(index @ 16..=231) => {
            let step = |part: u8| if part == 0 { 0 } else { 55 + part * 40 };
            let index = index - 16;
            let (red, green, blue) = (step(index / 36), step(index / 6 % 6), step(index % 6));
            Some(format!("#{red:02x}{green:02x}{blue:02x}"))
        }
        vt100::Color::Idx(index) => {
            let grey = 8 + (index - 232) * 10;
            Some(format!("#{grey:02x}{grey:02x}{grey:02x}"))
        }
    }
}
