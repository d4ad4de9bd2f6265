//! From the bytes of an answer to text.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// The most bytes in which a page may say how it is written.
const HEAD: usize = 1024;

/// The text of an answer and the name of its encoding: the one its mark says, else the declared one, else the one that
/// the page itself names. Bytes that mean nothing in it become `U+FFFD`.
#[must_use]
pub fn decode(bytes: &[u8], declared: Option<&str>, is_html: bool) -> (String, &'static str) {
    let named = |label: &str| Encoding::for_label(label.as_bytes());
    let encoding = Encoding::for_bom(bytes)
        .map(|(encoding, _)| encoding)
        .or_else(|| declared.and_then(named))
        .or_else(|| {
            let label = meta_charset(bytes).filter(|_| is_html)?;
            // A page whose own letters could be read is not in UTF-16.
            named(&label).map(Encoding::output_encoding)
        })
        .unwrap_or(match std::str::from_utf8(bytes) {
            Ok(_) => UTF_8,
            Err(_) => WINDOWS_1252,
        });
    let (text, used, _) = encoding.decode(bytes);
    (text.into_owned(), used.name())
}

/// The word behind `charset=` near the beginning.
fn meta_charset(bytes: &[u8]) -> Option<String> {
    let head = bytes.get(..bytes.len().min(HEAD))?.to_ascii_lowercase();
    let head = String::from_utf8_lossy(&head);
    let (_, rest) = head.split_once("charset")?;
    let rest = rest.trim_start().strip_prefix('=')?;
    let rest = rest.trim_start().trim_start_matches(['"', '\'']);
    let is_part = |sign: &char| sign.is_ascii_alphanumeric() || "-_:.+".contains(*sign);
    let label: String = rest.chars().take_while(is_part).collect();
    (!label.is_empty()).then_some(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_is_found_where_it_is_said() {
        let check = |bytes: &[u8], declared, expected: (&str, &str)| {
            let (text, encoding) = decode(bytes, declared, true);
            assert_eq!((text.as_str(), encoding), expected);
        };
        check("ä".as_bytes(), None, ("ä", "UTF-8"));
        check(b"\xe4", None, ("ä", "windows-1252"));
        check(b"\xe4", Some("utf-8"), ("\u{fffd}", "UTF-8"));
        check(b"\xbd", Some("iso-8859-15"), ("œ", "ISO-8859-15"));
        check(b"\xbd", Some("no-such"), ("½", "windows-1252"));
        check(b"\xef\xbb\xbf\xc3\xa4", Some("latin1"), ("ä", "UTF-8"));
        check(b"\xff\xfea\0", Some("utf-8"), ("a", "UTF-16LE"));
        let page = b"<meta charset='shift_jis'>\x82\xa0";
        check(page, None, ("<meta charset='shift_jis'>あ", "Shift_JIS"));
        let page = b"<meta http-equiv=x content=\"text/html; charset=utf-16\">\xc3\xa4";
        let (text, encoding) = decode(page, None, true);
        assert!(text.ends_with('ä') && encoding == "UTF-8");
        assert_eq!(
            decode(b"charset=shift_jis \xe4", None, false).1,
            "windows-1252"
        );
    }
}
