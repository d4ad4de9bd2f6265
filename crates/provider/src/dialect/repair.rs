//! Payloads that are not valid JSON, read as they were meant.
//!
//! Only looked at when a payload could not be read as it is, so that it costs nothing otherwise.

use serde_json::Value;

/// The payloads that `data` was meant to be, most likely one; `None` when nothing can be made of it.
pub(super) fn repaired(data: &[u8]) -> Option<Vec<Vec<u8>>> {
    let text = String::from_utf8_lossy(data);
    let text = replace_lone_surrogates(text.as_bytes()).unwrap_or(text.into_owned().into_bytes());
    // Reading it as a value takes the last of several fields of one name, as most readers do.
    if let Ok(value) = serde_json::from_slice::<Value>(&text) {
        return Some(vec![value.to_string().into_bytes()]);
    }
    // Servers that put one line end after each event make one event of them all.
    let lines: Vec<Vec<u8>> = text
        .split(|byte| *byte == b'\n')
        .map(|line| line.trim_ascii().to_vec())
        .filter(|line| !line.is_empty())
        .collect();
    let is_payload =
        |line: &Vec<u8>| line == b"[DONE]" || serde_json::from_slice::<Value>(line).is_ok();
    (lines.len() > 1 && lines.iter().all(is_payload)).then_some(lines)
}

/// Servers that cut text by UTF-16 units send half a pair as `\\ud83d`, which is not valid JSON.
/// Gives the payload with such halves replaced, or `None` when there are none.
fn replace_lone_surrogates(data: &[u8]) -> Option<Vec<u8>> {
    let unit = |at: usize| {
        let hex = data.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
    };
    let mut repaired = data.to_vec();
    let mut found = false;
    let mut at = 0;
    while let Some(step) = memchr::memchr(b'\\', &data[at..]) {
        at += step;
        match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => at += 12,
            (Some(0xd800..=0xdfff), _) => {
                repaired[at..at + 6].copy_from_slice(b"\\ufffd");
                found = true;
                at += 6;
            }
            _ => at = (at + 2).min(data.len()),
        }
    }
    found.then_some(repaired)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(data: &str, expected: Option<&str>) {
        let repaired =
            replace_lone_surrogates(data.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(repaired.as_deref(), expected, "{data}");
    }

    #[test]
    fn halves_of_surrogate_pairs_are_replaced_and_pairs_kept() {
        check(r#""a\ud83d""#, Some(r#""a\ufffd""#));
        check(r#""\ude00b""#, Some(r#""\ufffdb""#));
        check(r#""\ud83d\ude00""#, None);
        check(r#""\\ud83d""#, None);
        check(r#""\ud83d\ud83d\ude00""#, Some(r#""\ufffd\ud83d\ude00""#));
        check(r#""\"#, None);
    }

    fn check_repaired(data: &[u8], expected: Option<&[&str]>) {
        let repaired = repaired(data).map(|payloads| {
            let texts = payloads
                .into_iter()
                .map(|bytes| String::from_utf8(bytes).unwrap());
            texts.collect::<Vec<_>>()
        });
        let repaired: Option<Vec<&str>> = repaired
            .as_ref()
            .map(|payloads| payloads.iter().map(String::as_str).collect());
        assert_eq!(repaired.as_deref(), expected, "{}", data.escape_ascii());
    }

    #[test]
    fn payloads_are_read_as_they_were_meant() {
        check_repaired(br#"{"a":1,"a":2}"#, Some(&[r#"{"a":2}"#]));
        check_repaired(b"{\"a\":\"\xff\"}", Some(&["{\"a\":\"\u{fffd}\"}"]));
        check_repaired(
            b"{\"a\":1}\n{\"a\":2}\n[DONE]",
            Some(&[r#"{"a":1}"#, r#"{"a":2}"#, "[DONE]"]),
        );
        check_repaired(b"{\"a\":1}\n{\"a\":", None);
        check_repaired(b"{\"a\":", None);
    }
}
