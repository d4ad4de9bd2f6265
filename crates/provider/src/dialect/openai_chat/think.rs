//! `<think>…</think>` at the start of a text, as local models write their reasoning.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Splits a text stream into reasoning and answer.
#[derive(Debug, Default)]
pub(super) struct ThinkTags {
    state: State,
    /// Text that may turn out to be the beginning of a tag.
    pending: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Start,
    Inside,
    After,
}

/// A piece of text, sorted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Reasoning(String),
    Answer(String),
}

impl ThinkTags {
    /// A splitter for a server that never writes tags.
    pub(super) fn off() -> Self {
        Self {
            state: State::After,
            pending: String::new(),
        }
    }

    /// True if everything from here on is the answer.
    pub(super) fn is_past(&self) -> bool {
        self.state == State::After && self.pending.is_empty()
    }

    pub(super) fn push(&mut self, text: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        self.pending.push_str(text);
        if self.state == State::Start {
            let trimmed = self.pending.trim_start();
            if let Some(rest) = trimmed.strip_prefix(OPEN) {
                self.state = State::Inside;
                self.pending = rest.trim_start_matches('\n').to_owned();
            } else if OPEN.starts_with(trimmed) {
                return pieces;
            } else {
                self.state = State::After;
            }
        }
        if self.state == State::Inside {
            if let Some(at) = self.pending.find(CLOSE) {
                let after = self.pending[at + CLOSE.len()..]
                    .trim_start_matches('\n')
                    .to_owned();
                self.pending.truncate(at);
                let thought = std::mem::replace(&mut self.pending, after);
                push(&mut pieces, Piece::Reasoning, thought);
                self.state = State::After;
            } else {
                let keep = tail_that_may_close(&self.pending);
                let thought: String = self.pending.drain(..self.pending.len() - keep).collect();
                push(&mut pieces, Piece::Reasoning, thought);
            }
        }
        if self.state == State::After {
            push(
                &mut pieces,
                Piece::Answer,
                std::mem::take(&mut self.pending),
            );
        }
        pieces
    }

    /// The text ended; what was held back is what it looks like.
    pub(super) fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let rest = std::mem::take(&mut self.pending);
        push(
            &mut pieces,
            if self.state == State::Inside {
                Piece::Reasoning
            } else {
                Piece::Answer
            },
            rest,
        );
        pieces
    }
}

fn push(pieces: &mut Vec<Piece>, kind: fn(String) -> Piece, text: String) {
    if !text.is_empty() {
        pieces.push(kind(text));
    }
}

fn tail_that_may_close(text: &str) -> usize {
    (1..CLOSE.len())
        .rev()
        .find(|&length| text.ends_with(&CLOSE[..length]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[&str], reasoning: &str, answer: &str) {
        let mut tags = ThinkTags::default();
        let mut split: Vec<Piece> = pieces.iter().flat_map(|piece| tags.push(piece)).collect();
        split.extend(tags.finish());
        let (mut thought, mut said) = (String::new(), String::new());
        for piece in split {
            match piece {
                Piece::Reasoning(text) => thought.push_str(&text),
                Piece::Answer(text) => said.push_str(&text),
            }
        }
        assert_eq!(
            (thought.as_str(), said.as_str()),
            (reasoning, answer),
            "{pieces:?}"
        );
    }

    #[test]
    fn tags_are_found_wherever_they_are_cut() {
        check(&["<think>a", "b</think>\n\nc"], "ab", "c");
        check(&["\n<th", "ink>\na</", "think", ">c"], "a", "c");
        check(&["<think>only"], "only", "");
        check(&["<think></think>x"], "", "x");
    }

    #[test]
    fn other_text_stays_as_it_is() {
        check(&["a <think>b</think>"], "", "a <think>b</think>");
        check(&["<thin"], "", "<thin");
        check(&["<", "b>"], "", "<b>");
        check(&["<think>a</t", "b</think>c"], "a</tb", "c");
    }
}
