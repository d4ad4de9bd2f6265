//! What of a text that still comes in is finished: blocks that no further text can change, and lines of
//! the block that is open.

use pulldown_cmark::{Event, Parser};

use super::OPTIONS;

/// Places in a text before which everything is closed: the lines drawn for it are the same whatever
/// follows. A block is closed when the next one begins, code with each of its lines. What a
/// definition far below makes of a link is the one exception.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(Vec<(usize, usize)>);

impl Marks {
    /// The last place, and how many lines are before it.
    #[must_use]
    pub fn last(&self) -> (usize, usize) {
        self.0.last().copied().unwrap_or_default()
    }

    /// How many lines are drawn for what is before `place`.
    #[must_use]
    pub fn lines_before(&self, place: usize) -> usize {
        let before = self.0.partition_point(|(at, _)| *at <= place);
        self.0[..before].last().map_or(0, |(_, lines)| *lines)
    }

    pub(super) fn push(&mut self, place: usize, lines: usize) {
        if self.0.last().is_none_or(|(at, _)| *at < place) {
            self.0.push((place, lines));
        }
    }
}

/// How many bytes of `text`, from its start, are blocks that no further text can change. `text`
/// begins at the start of a block.
#[must_use]
pub fn finished_prefix(text: &str) -> usize {
    let seems = seems_finished(text);
    if seems == 0 {
        return 0;
    }
    // What looks like the beginning of a block may be a part of one: the parser knows.
    let mut depth = 0;
    let mut begins = 0;
    for (event, place) in Parser::new_ext(text, OPTIONS).into_offset_iter() {
        if depth == 0 && place.start < seems.saturating_add(1) {
            let line = text[..place.start].rfind('\n');
            begins = line.map_or(0, |newline| newline + 1);
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            _ => {}
        }
    }
    begins.min(seems)
}

/// The same, going by how each line begins.
fn seems_finished(text: &str) -> usize {
    let mut fence: Option<(u8, usize)> = None;
    let (mut finished, mut at) = (0, 0);
    let mut previous_blank = false;
    let mut in_list = false;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        if !line.ends_with('\n') {
            // A line that has only begun ends the block before it when whatever comes cannot
            // make it a part of that block.
            let may_go_on = trimmed.is_empty()
                || line.starts_with([' ', '\t'])
                || (in_list
                    && trimmed.starts_with(|c: char| "-*+".contains(c) || c.is_ascii_digit()));
            if fence.is_none() && previous_blank && !may_go_on {
                finished = at;
            }
            break;
        }
        let marker = trimmed.bytes().next().unwrap_or(0);
        let run = trimmed.bytes().take_while(|byte| *byte == marker).count();
        let is_fence = matches!(marker, b'`' | b'~') && run >= 3;
        match fence {
            Some((open, length)) => {
                if is_fence && marker == open && run >= length && trimmed.len() == run {
                    fence = None;
                }
            }
            None => {
                let item = is_list_item(trimmed);
                let indented = line.starts_with([' ', '\t']);
                // A blank line ends a block, unless a list goes on behind it.
                let goes_on = trimmed.is_empty() || indented || (in_list && item);
                if previous_blank && !goes_on {
                    finished = at;
                    in_list = false;
                }
                if item {
                    in_list = true;
                }
                if is_fence {
                    fence = Some((marker, run));
                }
            }
        }
        previous_blank = fence.is_none() && trimmed.is_empty();
        at += line.len();
    }
    finished
}

fn is_list_item(trimmed: &str) -> bool {
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    matches!(trimmed.as_bytes(), [b'-' | b'*' | b'+', b' ', ..])
        || (digits > 0 && matches!(trimmed.as_bytes().get(digits), Some(b'.' | b')')))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What has come of the next block tells that the one before is over.
    #[test]
    fn a_block_is_finished_when_the_next_one_begins() {
        for (text, finished) in [
            ("one\n\ntwo and mo", 5),
            ("one\n\n", 0),
            ("one\n\n  tw", 0),
            ("- one\n\n- tw", 0),
            ("- one\n\n2", 0),
            ("- one\n\nAfter", 7),
            ("```\na\n\nb", 0),
        ] {
            assert_eq!(finished_prefix(text), finished, "{text:?}");
        }
    }
}
