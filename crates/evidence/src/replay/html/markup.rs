//! Text made into HTML that can do nothing: every character of it is shown, none is obeyed.

/// Text between tags or inside a quoted attribute. Characters that would hide or reorder what is
/// shown become escapes that can be read.
pub(super) fn escaped(out: &mut String, text: &str) {
    escape_plain(out, &agent_text::visible_lines(text));
}

fn escape_plain(out: &mut String, text: &str) {
    let mut rest = text;
    while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
        out.push_str(&rest[..at]);
        out.push_str(match rest.as_bytes()[at] {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'"' => "&quot;",
            _ => "&#39;",
        });
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

/// JSON inside a `script` element that is never run: no `<`, so the element cannot be left.
pub(super) fn json_data(out: &mut String, json: &str) {
    let mut rest = json;
    while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        out.push_str(&rest[..at]);
        let character = rest[at..].chars().next().unwrap_or('<');
        // Inside JSON these only stand in strings, where the escape means the same.
        out.push_str(&format!("\\u{:04x}", u32::from(character)));
        rest = &rest[at + character.len_utf8()..];
    }
    out.push_str(rest);
}

/// The few marks of Markdown that answers are full of: fenced code, inline code, bold, headings.
/// Links are not made: what a session says is not a place to go to.
pub(super) fn prose(out: &mut String, text: &str) {
    let text = agent_text::visible_lines(text.trim());
    let mut in_code = false;
    let mut is_first = true;
    for row in text.split('\n') {
        if row.trim_start().starts_with("```") {
            out.push_str(if in_code { "</pre>" } else { "<pre>" });
            in_code = !in_code;
            is_first = true;
            continue;
        }
        if !is_first {
            out.push('\n');
        }
        is_first = false;
        if in_code {
            escape_plain(out, row);
            continue;
        }
        let title = row.trim_start_matches('#');
        if row.len() > title.len() && row.len() - title.len() <= 4 && title.starts_with(' ') {
            out.push_str("<b>");
            spans(out, title.trim_start());
            out.push_str("</b>");
        } else {
            spans(out, row);
        }
    }
    if in_code {
        out.push_str("</pre>");
    }
}

/// One line with `code` and **bold**.
fn spans(out: &mut String, row: &str) {
    let mut rest = row;
    while let Some(at) = rest.find(['`', '*']) {
        let (mark, tag) = if rest[at..].starts_with('`') {
            ("`", "code")
        } else if rest[at..].starts_with("**") {
            ("**", "b")
        } else {
            escape_plain(out, &rest[..=at]);
            rest = &rest[at + 1..];
            continue;
        };
        let inside = &rest[at + mark.len()..];
        match inside.find(mark).filter(|end| *end > 0) {
            Some(end) => {
                escape_plain(out, &rest[..at]);
                out.push_str(&format!("<{tag}>"));
                escape_plain(out, &inside[..end]);
                out.push_str(&format!("</{tag}>"));
                rest = &inside[end + mark.len()..];
            }
            None => {
                escape_plain(out, &rest[..at + mark.len()]);
                rest = inside;
            }
        }
    }
    escape_plain(out, rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let mut out = String::new();
        prose(&mut out, text);
        assert_eq!(out, expected);
    }

    #[test]
    fn marks_become_tags_and_nothing_else_does() {
        check("see `a<b>` now", "see <code>a&lt;b&gt;</code> now");
        check("**so** it is", "<b>so</b> it is");
        check("2 * 3 ** 4 `", "2 * 3 ** 4 `");
        check("# One\ntwo", "<b>One</b>\ntwo");
        check(
            "a\n```rust\nlet x = \"1\";\n```\nb",
            "a<pre>let x = &quot;1&quot;;</pre>b",
        );
        check(
            "```\n</pre><script>",
            "<pre>&lt;/pre&gt;&lt;script&gt;</pre>",
        );
        check(
            "[x](javascript:alert(1)) \u{202e}evil",
            "[x](javascript:alert(1)) \\u{202e}evil",
        );
    }

    #[test]
    fn data_cannot_leave_its_element() {
        let mut out = String::new();
        json_data(&mut out, "{\"a\":\"</script><!--&\u{2028}\"}");
        assert_eq!(out, r#"{"a":"\u003c/script\u003e\u003c!--\u0026\u2028"}"#);
    }
}
