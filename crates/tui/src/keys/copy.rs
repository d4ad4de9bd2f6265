//! `/copy`: an answer, a code block or an output into the clipboard.

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use crate::safe;
use crate::state::cell::{CellKind, NoticeLevel};
use crate::ui::{Effect, Ui};

impl Ui {
    pub(super) fn copy(&mut self, what: &str) -> Vec<Effect> {
        let mut cells = self.state.cells.iter().rev();
        let answer = |kind: &CellKind| match kind {
            CellKind::Assistant(said) if !said.text.trim().is_empty() => Some(said.text.clone()),
            _ => None,
        };
        let (found, what, none) = match what {
            "" | "answer" => {
                let found = cells.find_map(|cell| answer(&cell.kind));
                (found, "the last answer", "no answer yet")
            }
            "code" => {
                let found = cells.find_map(|cell| last_code(&answer(&cell.kind)?));
                (found, "the last code block", "no code block yet")
            }
            "output" => {
                let found = cells.find_map(|cell| match &cell.kind {
                    CellKind::Tool(tool) if !tool.detail.output.is_empty() => {
                        Some(tool.detail.output.clone())
                    }
                    _ => None,
                });
                (found, "the last output", "no output yet")
            }
            _ => {
                let text = "/copy takes nothing, `code` or `output`";
                self.state.say(NoticeLevel::Error, text);
                return Vec::new();
            }
        };
        let Some(text) = found else {
            self.hint(none);
            return Vec::new();
        };
        // What is pasted into a shell later has no escape sequences.
        let text = safe::content(text.trim_end());
        vec![Effect::Copy { text, what }]
    }
}

/// The text of the last code block.
fn last_code(text: &str) -> Option<String> {
    let mut code: Option<String> = None;
    let mut inside = false;
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => {
                code = Some(String::new());
                inside = true;
            }
            Event::End(TagEnd::CodeBlock) => inside = false,
            Event::Text(text) if inside => {
                code.get_or_insert_default().push_str(&text);
            }
            _ => {}
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_of_code_is_found() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(last_code(text).as_deref(), expected, "{text}");
        };
        check("no `code` here", None);
        check(
            "```sh\nls\n```\nand\n```\npwd\n\nid\n```\nend",
            Some("pwd\n\nid\n"),
        );
        check("1. so:\n   ```\n   a < b\n   ```\n", Some("a < b\n"));
    }
}
