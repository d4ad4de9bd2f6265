//! Answers as they stream in: what goes to the scrollback while they do is what is there at the end.

use agent_protocol::status::VerificationStatus;
use agent_tui::ui::Ui;
use agent_tui::{Input, view};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::frames::{show, ui_of, ui_with};
use crate::sample::Script;

fn printed(ui: &mut Ui, columns: usize) -> Vec<String> {
    let lines = view::print_finished(ui, columns, usize::MAX);
    let texts = lines
        .iter()
        .map(|line| line.to_string().trim_end().to_owned());
    texts.collect()
}

/// The scrollback of an answer that came in pieces, and how many lines of it were there before the end.
fn streamed(text: &str, pieces: &[usize], columns: usize) -> (Vec<String>, usize) {
    let mut script = Script::default();
    script.session().user("go");
    let id = script.request();
    let mut ui = ui_with(&script.events);
    let mut lines = printed(&mut ui, columns);
    let mut taken = script.events.len();
    let mut from = 0;
    for end in pieces.iter().copied().chain([text.len()]) {
        script.delta(&id, from, &text[from..end]);
        from = end;
        for event in &script.events[taken..] {
            ui.input(Input::Event(event.clone()));
        }
        taken = script.events.len();
        lines.extend(printed(&mut ui, columns));
        // What is printed is not on the live screen too.
        if let Some(last) = lines.last().filter(|line| line.contains("item 17")) {
            let live = show(&mut ui, u16::try_from(columns).unwrap(), 200).join("\n");
            assert!(!live.contains(last.as_str()), "{last}: {live}");
        }
    }
    let before = lines.len();
    script.answered(&id, text);
    script.completed(VerificationStatus::NotApplicable);
    for event in &script.events[taken..] {
        ui.input(Input::Event(event.clone()));
    }
    lines.extend(printed(&mut ui, columns));
    (lines, before)
}

fn at_once(text: &str, columns: usize) -> Vec<String> {
    let mut script = Script::default();
    script.session().user("go");
    let id = script.request();
    script.delta(&id, 0, text);
    script.answered(&id, text);
    script.completed(VerificationStatus::NotApplicable);
    printed(&mut ui_of(&script), columns)
}

/// Where `text` is cut, at characters.
fn cuts(text: &str, places: &[Index]) -> Vec<usize> {
    let mut cuts: Vec<usize> = places
        .iter()
        .map(|place| text.floor_char_boundary(place.index(text.len() + 1)))
        .collect();
    cuts.sort_unstable();
    cuts
}

const LINES: &[&str] = &[
    "",
    "",
    "A line of words that is rather long and has to be wrapped somewhere on a narrow screen.",
    "**bold *and* more** `code`",
    "- item",
    "- item with **more** words than fit on one line of a narrow screen",
    "  - nested",
    "    - deeper",
    "      text of the deeper one",
    "  text of the item",
    "* star",
    "1. one",
    "2. two",
    "   - in two",
    "10) ten",
    "- [ ] open",
    "-",
    "> quoted",
    "> - in a quote",
    ">",
    "# Heading",
    "===",
    "---",
    "| a | b |",
    "|---|---|",
    "| cell | another cell with words |",
    "```rust",
    "```",
    "~~~",
    "    fn indented() {}",
    "  ```",
    "  code in an item",
    "let x = \"a string",
    "\tlet tab = 1;",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Neither where the network cut the answer nor when it was drawn changes what is printed.
    #[test]
    fn what_is_printed_is_the_whole(
        lines in vec(select(LINES), 1..40),
        places in vec(any::<Index>(), 0..12),
        columns in 20usize..90,
    ) {
        let text = lines.join("\n");
        let (streamed, _) = streamed(&text, &cuts(&text, &places), columns);
        prop_assert_eq!(streamed, at_once(&text, columns), "{}", text);
    }
}

/// A list and a piece of code that are longer than any screen leave nothing out of reach while they
/// come in.
#[test]
fn long_blocks_go_to_the_scrollback_as_they_come() {
    let list: String = (0..200).map(|n| format!("- item {n}\n")).collect();
    let deep: String = (0..200).map(|n| format!("  - item {n}\n")).collect();
    let code: String = (0..200).map(|n| format!("let x{n} = {n};\n")).collect();
    for text in [
        list,
        format!("1. first\n{deep}"),
        format!("```rust\n{code}"),
        format!("- a\n\n  ```rust\n{}", code.replace("let", "  let")),
    ] {
        let cuts: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        let (lines, before) = streamed(&text, &cuts, 60);
        assert_eq!(lines, at_once(&text, 60));
        assert!(
            before + 4 > lines.len() && before > 195,
            "{before} of {}",
            lines.len()
        );
    }
}

/// A window that changes its width in the middle of a block leaves nothing out and says nothing twice.
#[test]
fn a_new_width_goes_on_where_the_old_one_was() {
    let text: String = (0..60)
        .map(|n| {
            format!("- item {n} with some words that need more than one row when it is narrow\n")
        })
        .collect();
    let mut script = Script::default();
    script.session().user("go");
    let id = script.request();
    let half = text.len() / 2;
    let half = text[..half].rfind('\n').unwrap() + 1;
    script.delta(&id, 0, &text[..half]);
    let mut ui = ui_of(&script);
    let mut lines = printed(&mut ui, 80);
    let taken = script.events.len();
    script.delta(&id, half, &text[half..]);
    script.answered(&id, &text);
    script.completed(VerificationStatus::NotApplicable);
    for event in &script.events[taken..] {
        ui.input(Input::Event(event.clone()));
    }
    lines.extend(printed(&mut ui, 40));
    let all = lines.join(" ");
    for n in 0..60 {
        assert_eq!(
            all.matches(&format!("item {n} with")).count(),
            1,
            "{n}: {all}"
        );
    }
}

/// Blocks in which nothing stands leave no trace, wherever the answer is cut.
#[test]
fn empty_blocks_change_no_gap() {
    let text =
        "* star\n  - nested\n* star\n-\n  ```\n* star\n>\n\n>\n  - nested\n\nA line\n\n* star";
    let whole = at_once(text, 40);
    for first in 0..=text.len() {
        for second in (first..=text.len()).step_by(3) {
            let (streamed, _) = streamed(text, &[first, second], 40);
            assert_eq!(streamed, whole, "{first} {second}");
        }
    }
}
