//! Names of locales.

/// True for a locale in which text is UTF-8 or bytes. In Big5, GBK or Shift-JIS a quote or a backslash may be half of a
/// letter, so that a shell takes other signs of a script for its own than somebody who reads it as UTF-8.
pub fn reads_as_utf8(locale: &str) -> bool {
    let (_, charset) = locale.split_once('.').unwrap_or((locale, ""));
    let charset = charset.split('@').next().unwrap_or_default();
    matches!(locale, "" | "C" | "POSIX")
        || charset.eq_ignore_ascii_case("utf-8")
        || charset.eq_ignore_ascii_case("utf8")
}

#[cfg(test)]
mod tests {
    use super::reads_as_utf8;

    #[test]
    fn letters_of_other_charsets_may_hold_signs_of_the_shell() {
        for locale in ["", "C", "POSIX", "C.UTF-8", "C.utf8", "de_AT.UTF-8@euro"] {
            assert!(reads_as_utf8(locale), "{locale}");
        }
        for locale in ["zh_TW.BIG5", "ja_JP.SJIS", "zh_CN", "de_DE.ISO-8859-1", "x"] {
            assert!(!reads_as_utf8(locale), "{locale}");
        }
    }
}
