//! A second, independent opinion on how many simple commands a plain script has.
//!
//! This lexer knows quotes, comments and separators and nothing else. It is not used to find out what a
//! script does; it is used to disagree. When its count differs from the parser's, nothing is proven.

/// The number of simple commands, or `None` when the script is more than words, pipes and lists.
pub fn count_commands(script: &str) -> Option<usize> {
    let bytes = script.as_bytes();
    let mut at = 0;
    let mut count = 0;
    let mut in_word = false;
    let mut has_words = false;
    while let Some(&byte) = bytes.get(at) {
        let next = bytes.get(at + 1).copied();
        match byte {
            b'\\' if next == Some(b'\n') => at += 1,
            b'\\' => {
                next?;
                in_word = true;
                at += 1;
            }
            b'\'' => {
                at = find(bytes, at + 1, b'\'')?;
                in_word = true;
            }
            b'"' => {
                at = end_of_double_quotes(bytes, at + 1)?;
                in_word = true;
            }
            b'$' if next == Some(b'\'') => {
                at = end_of_ansi_quotes(bytes, at + 2)?;
                in_word = true;
            }
            // An exit code is a number.
            b'$' if next == Some(b'?') => {
                in_word = true;
                at += 1;
            }
            // A lone dollar is text; one that expands is beyond this lexer.
            b'$' if next.is_some_and(starts_expansion) => return None,
            b'`' | b'(' | b')' => return None,
            b'#' if !in_word => {
                while bytes.get(at + 1).is_some_and(|byte| *byte != b'\n') {
                    at += 1;
                }
            }
            b'<' if next == Some(b'<') && bytes.get(at + 2) != Some(&b'<') => return None,
            b'<' if next == Some(b'<') => {
                at += 2;
                has_words = true;
                in_word = false;
            }
            b'<' | b'>' => {
                // `2>&1`, `>&2`, `<&-`, `>|`, `>>`, `<>`: the second character belongs to the redirect.
                if matches!(next, Some(b'&' | b'|' | b'>')) {
                    at += 1;
                }
                has_words = true;
                in_word = false;
            }
            b'&' if next == Some(b'>') => {
                at += 1;
                if bytes.get(at + 1) == Some(&b'>') {
                    at += 1;
                }
                has_words = true;
                in_word = false;
            }
            b'&' if next != Some(b'&') => return None,
            b';' | b'\n' | b'|' | b'&' => {
                count += usize::from(has_words || in_word);
                (has_words, in_word) = (false, false);
                if matches!((byte, next), (b'&', Some(b'&')) | (b'|', Some(b'|' | b'&'))) {
                    at += 1;
                }
            }
            b' ' | b'\t' => {
                has_words |= in_word;
                in_word = false;
            }
            _ => in_word = true,
        }
        at += 1;
    }
    Some(count + usize::from(has_words || in_word))
}

pub(super) fn starts_expansion(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'_' | b'{' | b'(' | b'[' | b'@' | b'*' | b'#' | b'?' | b'$' | b'!' | b'-' | b'"'
        )
}

fn find(bytes: &[u8], from: usize, wanted: u8) -> Option<usize> {
    memchr::memchr(wanted, bytes.get(from..)?).map(|offset| from + offset)
}

fn end_of_double_quotes(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 1,
            b'`' => return None,
            b'$' if bytes
                .get(at + 1)
                .is_some_and(|byte| !matches!(byte, b'"' | b'?') && starts_expansion(*byte)) =>
            {
                return None;
            }
            _ => {}
        }
        at += 1;
    }
}

fn end_of_ansi_quotes(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match bytes.get(at)? {
            b'\'' => return Some(at),
            b'\\' => at += 1,
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_bash_would_run() {
        for (script, expected) in [
            ("", Some(0)),
            ("# only a comment", Some(0)),
            ("ls", Some(1)),
            ("ls -la; pwd", Some(2)),
            ("ls 2>&1 | wc -l && echo 'a;b' # ; c", Some(3)),
            ("date\nnode x", Some(2)),
            ("echo a#b;", Some(1)),
            ("ls \\\n -la", Some(1)),
            ("ls &>/dev/null || pwd", Some(2)),
            ("ls |& wc", Some(2)),
            ("echo \"a ; b\"", Some(1)),
            ("grep '$(x)' a", Some(1)),
            ("jq . <<< '{}'", Some(1)),
            ("ls & ls", None),
            ("echo $(ls)", None),
            ("echo \"`ls`\"", None),
            ("(ls)", None),
            ("cat <<E\nE\n", None),
            ("echo 'open", None),
            ("grep \"x$\" a", Some(1)),
            ("ls; echo $? \"=$?\"", Some(2)),
        ] {
            assert_eq!(count_commands(script), expected, "{script:?}");
        }
    }
}
