//! Bytes that are no text: an image, an archive or a program that a command printed.

use super::collector::Segment;

/// Shorter outputs are shown as they are.
const LEAST: usize = 64;

/// True if so much of an output is neither text nor a terminal's control sequence that nobody can
/// read it. Names that end in a NUL (`find -print0`) and texts in a one-byte encoding are text.
pub(super) fn is_noise(segments: &[Segment]) -> bool {
    let (mut all, mut nul, mut strange) = (0_usize, 0_usize, 0_usize);
    for segment in segments {
        all += segment.bytes.len();
        for chunk in segment.bytes.utf8_chunks() {
            strange += chunk.invalid().len();
            for byte in chunk.valid().bytes() {
                match byte {
                    0 => nul += 1,
                    b'\t' | b'\n' | b'\r' | 0x07 | 0x08 | 0x0c | 0x0e | 0x0f | 0x1b => {}
                    0x01..=0x1f | 0x7f => strange += 1,
                    _ => {}
                }
            }
        }
    }
    all >= LEAST && (strange > all / 10 || nul > all / 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: bool) {
        let segment = Segment {
            offset: 0,
            bytes: bytes.to_vec(),
            stderr: Vec::new(),
        };
        assert_eq!(is_noise(&[segment]), expected, "{bytes:?}");
    }

    #[test]
    fn texts_are_told_from_what_is_none() {
        check("plain text, and more of it\n".repeat(9).as_bytes(), false);
        check("Grüße, 你好, 👋\n".repeat(9).as_bytes(), false);
        check("\u{1b}[31mred\u{1b}[0m\r\n".repeat(9).as_bytes(), false);
        check(&b"./src/main.rs\0".repeat(9), false);
        check(&b"a word with \xe9 in Latin-1\n".repeat(9), false);
        check(b"\0\x01\x02", false);
        let every: Vec<u8> = (0..=255).collect();
        check(&every, true);
        check(
            &[b"\x7fELF\x02\x01\x01".to_vec(), vec![0; 200]].concat(),
            true,
        );
    }
}
