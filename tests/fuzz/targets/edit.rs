//! The edit engine: whatever the file and the edits are, the result is what a byte-level oracle makes
//! of them, or the same refusal and no change. The first byte chooses the encoding (`0` to `4`, anything
//! else leaves the bytes as they are), the rest are the content and pairs of old and new text, with
//! a `\x1e` between them; an old text behind `*` is replaced everywhere.
#![no_main]

#[path = "../../../crates/local-tools/tests/it/oracle.rs"]
mod oracle;

use agent_local_tools::Encoding;
use agent_local_tools::edit::{Edit, plan};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let mut fields = rest.split(|byte| *byte == 0x1e);
    let content = content(*first, fields.next().unwrap_or_default());
    let texts: Vec<String> = fields.map(|field| String::from_utf8_lossy(field).into_owned()).collect();
    let edits: Vec<Edit> = texts
        .chunks_exact(2)
        .map(|pair| Edit {
            old: pair[0].strip_prefix('*').unwrap_or(&pair[0]).to_owned(),
            new: pair[1].clone(),
            replace_all: pair[0].starts_with('*'),
        })
        .collect();
    let encoding = Encoding::of(&content);
    let expected = oracle::edited(&content, encoding, &edits);
    let plan = match plan(&content, encoding, &edits) {
        Ok(plan) => plan,
        Err(problem) => {
            assert_eq!(Some(problem.code()), expected.err(), "{problem}");
            return;
        }
    };
    let after = plan.apply(&content);
    let expected = expected.unwrap_or_else(|code| panic!("{code} is made: {after:?}"));
    assert!(expected.is(&after, encoding), "{after:?} for {:?}", expected.bytes);
    let (mut left, mut right) = (0, 0);
    for (before_range, after_range) in plan.changes() {
        assert_eq!(content[left..before_range.start], after[right..after_range.start]);
        (left, right) = (before_range.end, after_range.end);
    }
    assert_eq!(content[left..], after[right..]);
});

fn content(encoding: u8, bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let wide = |encode: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(encode).collect();
    let (mark, rest): (&[u8], Vec<u8>) = match encoding {
        b'1' => (b"\xEF\xBB\xBF", bytes.to_vec()),
        b'2' => (b"\xFF\xFE", wide(u16::to_le_bytes)),
        b'3' => (b"\xFE\xFF", wide(u16::to_be_bytes)),
        // Recognised by a byte that is not UTF-8.
        b'4' => (b"\xFF", text.chars().filter_map(|letter| u8::try_from(letter).ok()).collect()),
        _ => (b"", bytes.to_vec()),
    };
    [mark, &rest].concat()
}
