//! The reader of patches and what places their hunks: whatever the text is, both end; what is placed
//! says all that it changes; lines that stay keep their bytes. The text up to `\x1e` is the file, the
//! rest the patch.
#![no_main]

use agent_local_tools::Encoding;
use agent_local_tools::apply_patch::{Action, LineKind, parse, place};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |byte| *byte == 0x1e);
    let content = parts.next().unwrap_or_default();
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let Ok(patch) = parse(&text) else { return };
    assert!(!patch.sections.is_empty());
    for section in &patch.sections {
        let Action::Update { hunks, .. } = &section.action else { continue };
        let encoding = Encoding::of(content);
        let Ok(placed) = place(content, encoding, hunks) else { continue };
        let (mut left, mut right) = (0, 0);
        for (before, after) in &placed.changes {
            assert_eq!(content[left..before.start], placed.after[right..after.start]);
            (left, right) = (before.end, after.end);
        }
        assert_eq!(content[left..], placed.after[right..]);
        let is_kept = |kind: LineKind| kind == LineKind::Kept;
        if hunks.iter().flat_map(|hunk| &hunk.lines).all(|line| is_kept(line.kind)) {
            assert_eq!(placed.after, content);
        }
    }
});
