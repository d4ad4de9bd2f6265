//! Text that cannot do anything to a terminal.

use std::io;

/// `text` in one line, with everything hidden written out.
pub(crate) fn visible(text: &str) -> String {
    agent_text::visible_line(text).into_owned()
}

/// The same for text of several lines: line breaks and tabs stay.
pub(crate) fn visible_text(text: &str) -> String {
    agent_text::visible(text.as_bytes())
}

/// JSON text with hidden characters as JSON's own escapes.
pub(super) fn json_safe(json: &str) -> String {
    let mut shown = Vec::with_capacity(json.len());
    // Writing into memory has no way to fail.
    let _ = agent_text::write_json_fragment(&mut shown, json);
    String::from_utf8(shown).unwrap_or_default()
}

/// Passes JSON on as [`json_safe`] would have it. A writer of JSON never cuts a character in two.
pub(super) struct JsonSafe<'a>(pub(super) &'a mut dyn io::Write);

impl io::Write for JsonSafe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        agent_text::write_json_fragment(self.0, text)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
