//! sed scripts that print, delete and transform, and nothing else: no file written or read, nothing run.
//!
//! Where implementations of sed read a script differently (a delimiter inside brackets, what ends a
//! label), the script is refused.

/// True if every command of the script works on the pattern and hold space alone.
pub(in crate::shell) fn only_prints(script: &str) -> bool {
    let mut rest = script;
    let mut depth = 0usize;
    let mut any = false;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ';', '\n']);
        if rest.is_empty() {
            return any && depth == 0;
        }
        if let Some(after) = rest.strip_prefix('}') {
            let Some(outer) = depth.checked_sub(1) else {
                return false;
            };
            depth = outer;
            rest = after;
        } else {
            let Some((after, opens)) = command(rest) else {
                return false;
            };
            any = true;
            depth += usize::from(opens);
            rest = after;
            if opens {
                continue;
            }
        }
        // A command ends at a separator or with its group; anything else is not understood.
        let trimmed = rest.trim_start_matches([' ', '\t']);
        if !(trimmed.is_empty() || trimmed.starts_with([';', '\n', '}'])) {
            return false;
        }
    }
}

/// Reads one command with its addresses. The flag says that it opens a group.
fn command(text: &str) -> Option<(&str, bool)> {
    let mut rest = address(text)?;
    if rest.len() < text.len()
        && let Some(after) = rest.trim_start_matches(' ').strip_prefix(',')
    {
        let after = after.trim_start_matches(' ');
        let bounded = after.strip_prefix(['+', '~']).unwrap_or(after);
        let end = address(bounded)?;
        if end.len() == bounded.len() {
            return None;
        }
        rest = end;
    }
    let rest = rest
        .trim_start_matches([' ', '\t'])
        .trim_start_matches(['!', ' ']);
    let name = rest.chars().next()?;
    let after = rest.get(name.len_utf8()..)?;
    match name {
        '{' => Some((after, true)),
        'p' | 'P' | 'd' | 'D' | '=' | 'g' | 'G' | 'h' | 'H' | 'x' | 'n' | 'N' | 'z' => {
            Some((after, false))
        }
        'q' | 'Q' | 'l' => {
            let after = after.trim_start_matches(' ');
            Some((
                after.trim_start_matches(|digit: char| digit.is_ascii_digit()),
                false,
            ))
        }
        ':' | 'b' | 't' | 'T' => Some((label(after)?, false)),
        's' => {
            let (delimiter, body) = delimiter(after)?;
            let replacement = pattern(body, delimiter)?;
            let flags = until(replacement, delimiter)?;
            let known = |flag: char| "gpiImM".contains(flag) || flag.is_ascii_digit();
            Some((flags.trim_start_matches(known), false))
        }
        'y' => {
            let (delimiter, body) = delimiter(after)?;
            Some((until(until(body, delimiter)?, delimiter)?, false))
        }
        _ => None,
    }
}

/// A label of plain letters, as far as every sed agrees that it goes.
fn label(text: &str) -> Option<&str> {
    let text = text.trim_start_matches(' ');
    let after = text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let ends = after.is_empty() || after.starts_with([';', '\n', ' ', '}']);
    ends.then_some(after)
}

fn delimiter(text: &str) -> Option<(char, &str)> {
    let delimiter = text.chars().next()?;
    let is_usual = matches!(
        delimiter,
        '/' | '|' | '#' | ',' | '@' | ':' | '%' | '+' | '_' | '!' | '~' | '='
    );
    is_usual.then(|| (delimiter, text.get(1..).unwrap_or_default()))
}

fn address(text: &str) -> Option<&str> {
    if let Some(after) = text.strip_prefix('$') {
        return Some(after);
    }
    let (delimiter, body) = match text.strip_prefix('\\') {
        Some(own) => delimiter(own)?,
        None => match text.strip_prefix('/') {
            Some(body) => ('/', body),
            None => {
                let is_step = |c: char| c.is_ascii_digit() || c == '~';
                return Some(text.trim_start_matches(is_step));
            }
        },
    };
    Some(pattern(body, delimiter)?.trim_start_matches(['I', 'M']))
}

/// Text after a regular expression. Refused when the delimiter might stand inside brackets.
fn pattern(text: &str, delimiter: char) -> Option<&str> {
    let after = until(text, delimiter)?;
    let expression = text.get(..text.len() - after.len() - delimiter.len_utf8())?;
    brackets_are_closed(expression).then_some(after)
}

/// True if no bracket expression is open at the end of this regular expression, whether or not a
/// backslash escapes inside brackets.
pub(super) fn brackets_are_closed(expression: &str) -> bool {
    [true, false].into_iter().all(|escapes| {
        let mut characters = expression.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '\\' => {
                    characters.next();
                }
                '[' if !bracket_closes(&mut characters, escapes) => return false,
                _ => {}
            }
        }
        true
    })
}

fn bracket_closes(
    characters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    escapes: bool,
) -> bool {
    characters.next_if_eq(&'^');
    characters.next_if_eq(&']');
    while let Some(character) = characters.next() {
        match character {
            ']' => return true,
            '\\' if escapes => {
                characters.next();
            }
            // `[:space:]`, `[.x.]` and `[=x=]` are closed by their own sign and bracket.
            '[' => {
                if let Some(sign) = characters.next_if(|next| matches!(next, ':' | '.' | '=')) {
                    let mut before = ' ';
                    if !characters.any(|next| {
                        let ends = before == sign && next == ']';
                        before = next;
                        ends
                    }) {
                        return false;
                    }
                }
            }
            _ => {}
        }
    }
    false
}

/// Text after the first `delimiter` that no backslash stands before, on the same line.
fn until(text: &str, delimiter: char) -> Option<&str> {
    let mut escaped = false;
    for (offset, character) in text.char_indices() {
        if character == '\n' {
            return None;
        }
        if escaped {
            escaped = false;
        } else if character == '\\' {
            escaped = true;
        } else if character == delimiter {
            return text.get(offset + character.len_utf8()..);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::only_prints;

    #[test]
    fn what_prints_deletes_and_transforms() {
        for script in [
            "10,30p",
            "$p",
            "/a/,/b/p",
            "5q",
            "/^#/d",
            "s/a/b/",
            "s|a/b|c|g",
            "1p;3p",
            "/x/!d",
            "1,+3p",
            "0,/x/d",
            "$=",
            "s/\\(a\\)/\\1/p",
            "2!p",
            "y/abc/xyz/",
            "/foo/{p;q}",
            "3{p;q;}",
            "/a/{/b/p}",
            "$!N;P;D",
            ":a;N;$!ba;s/\\n/ /g",
            "1~2p",
            "\\%a/b%p",
            "s/[^0-9]//g",
            "s/[[:space:]]*$//",
            "p\nd",
            "n;d",
            "l",
        ] {
            assert!(only_prints(script), "{script}");
        }
    }

    #[test]
    fn what_writes_runs_or_is_read_differently() {
        for script in [
            "2w out",
            "e id",
            "s/a/b/e",
            "s/a/b/w out",
            "s/a/b/gw out",
            "r /etc/passwd",
            "1e",
            "w x",
            "s/a/b/;e",
            "/x/w out",
            "p;w x",
            "",
            ";",
            "s/a/b",
            "{p",
            "p}",
            "1!e id",
            "s/a/b/\ne id",
            "W x",
            "R x",
            "a text",
            "s\na\nb\ne",
            "F",
            "{w out\n}",
            "/a/{p;w out\n}",
            "pw out",
            "s/a/b/ e",
            ":a w",
            "bx;w out",
            "v",
            // One sed takes the slash in brackets for the end, another one does not.
            "s/[/]a/p;s/w out/x/",
            "/[/]p;w out/p",
            "s/[]/x]/y/;p",
            "s/[[:space:]/]/w out/;p",
            "s/[\\]/]/;w out/",
            "s/a\nb/c/",
            "y/a/b/w",
            "l 5 w",
        ] {
            assert!(!only_prints(script), "{script}");
        }
    }
}
