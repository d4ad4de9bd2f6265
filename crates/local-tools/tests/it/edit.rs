//! The edit engine against a byte-level oracle that shares no code with it.

use agent_local_tools::Encoding;
use agent_local_tools::edit::{Edit, plan};
use agent_protocol::Code;
use proptest::prelude::*;

use crate::oracle::edited;

fn edit(old: &str, new: &str, replace_all: bool) -> Edit {
    Edit {
        old: old.into(),
        new: new.into(),
        replace_all,
    }
}

fn run(content: &[u8], edits: &[Edit]) -> Result<Vec<u8>, Code> {
    plan(content, Encoding::of(content), edits)
        .map(|plan| plan.apply(content))
        .map_err(|problem| problem.code())
}

/// Text from few letters, so that matches, overlaps and near misses are common.
fn text() -> impl Strategy<Value = String> {
    let letters = vec!["a", "b", "\n", "\r\n", "\r", "\u{e9}", " "];
    prop::collection::vec(prop::sample::select(letters), 0..30).prop_map(|parts| parts.concat())
}

const ENCODINGS: [(Encoding, &[u8]); 5] = [
    (Encoding::Utf8, b""),
    (Encoding::Utf8Bom, b"\xEF\xBB\xBF"),
    (Encoding::Utf16Le, b"\xFF\xFE"),
    (Encoding::Utf16Be, b"\xFE\xFF"),
    (Encoding::Windows1252, b""),
];

proptest! {
    /// In any encoding, edits are what replacing units one by one would give.
    #[test]
    fn random_edits_equal_the_oracle(
        content in text(),
        texts in prop::collection::vec((text(), text(), any::<Option<(prop::sample::Index, prop::sample::Index)>>(), any::<bool>()), 1..3),
        (encoding, mark) in prop::sample::select(ENCODINGS.to_vec()),
    ) {
        // Windows-1252 is only recognised by a byte that is not UTF-8.
        let content = if encoding == Encoding::Windows1252 { format!("{content}\u{ff}") } else { content };
        let letters: Vec<char> = content.chars().collect();
        let edits: Vec<Edit> = texts.iter().map(|(old, new, part, replace_all)| {
            // Mostly a part of the content, so that it is found.
            let Some((left, right)) = part else { return edit(old, new, *replace_all) };
            let (left, right) = (left.index(letters.len() + 1), right.index(letters.len() + 1));
            let part: String = letters[left.min(right)..left.max(right)].iter().collect();
            edit(&if *replace_all { part } else { part.replace("\r\n", "\n") }, new, *replace_all)
        }).collect();
        let bytes = [mark, &encoding.encode(&content).unwrap()].concat();
        prop_assume!(Encoding::of(&bytes) == encoding);
        match (run(&bytes, &edits), edited(&bytes, encoding, &edits)) {
            (Ok(after), Ok(expected)) => prop_assert!(expected.is(&after, encoding), "{after:?} for {:?}", expected.bytes),
            (got, expected) => prop_assert_eq!(got.err(), expected.err()),
        }
    }

    /// Edits of one call are independent of their order.
    #[test]
    fn order_does_not_matter(content in text(), pairs in prop::collection::vec((text(), text()), 1..4)) {
        let mut edits: Vec<Edit> = pairs.iter().map(|(old, new)| edit(old, new, false)).collect();
        let forward = run(content.as_bytes(), &edits);
        edits.reverse();
        prop_assert_eq!(forward.ok(), run(content.as_bytes(), &edits).ok());
    }

    /// Outside the changed ranges every byte is the one that was there.
    #[test]
    fn the_rest_is_untouched(content in prop::collection::vec(any::<u8>(), 0..60), old in "[a-c]", new in "[a-c]{0,3}") {
        let encoding = Encoding::of(&content);
        if let Ok(plan) = plan(&content, encoding, &[edit(&old, &new, true)]) {
            let after = plan.apply(&content);
            let (mut left, mut right) = (0, 0);
            for (before_range, after_range) in plan.changes() {
                prop_assert_eq!(&content[left..before_range.start], &after[right..after_range.start]);
                (left, right) = (before_range.end, after_range.end);
            }
            prop_assert_eq!(&content[left..], &after[right..]);
        }
    }
}
