//! From placeholders back to what they stand for, in whatever process.
//!
//! A tag is made from the secret and a key of this installation, so a secret that is met again gets
//! the tag it had: whoever made a placeholder, looking through what the secret stood in finds it.

use std::ops::Range;
use std::sync::PoisonError;

use super::{MARK, Redactor, TAG_DIGITS};

/// A placeholder whose secret is nowhere to be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("nobody knows any more what `{placeholder}` stands for")]
pub struct Unresolved {
    pub placeholder: String,
}

/// No placeholder is longer than this.
const LONGEST: usize = 400;

impl Redactor {
    /// `text` with every placeholder replaced by the secret it stands for; nothing when there is
    /// none in it. Secrets that this process has not met are looked for in `sources`, which are
    /// read only as far as needed. A text of that form that stands for no known secret is taken as
    /// it is only when `literal` has it, too: what a file says itself is its own.
    ///
    /// The result is for matching and for files; it is never written to the log, shown or sent.
    ///
    /// # Errors
    /// When there is a placeholder whose secret was not found.
    pub fn resolve(
        &self,
        text: &str,
        literal: &[u8],
        sources: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<Option<String>, Unresolved> {
        let places = placeholders(text);
        if places.is_empty() {
            return Ok(None);
        }
        let is_certain = |place: &Range<usize>| {
            let placeholder = &text[place.clone()];
            // Short tags of older logs may stand for several; all sources are asked for those.
            tag_of(placeholder).len() >= TAG_DIGITS && self.secret_of(placeholder).is_some()
        };
        while !places.iter().all(is_certain) {
            let Some(source) = sources.next() else {
                break;
            };
            // Looking for them makes them known.
            drop(self.secrets_in(&source));
        }
        let mut original = String::with_capacity(text.len());
        let mut done = 0;
        for place in places {
            let placeholder = &text[place.clone()];
            original.push_str(&text[done..place.start]);
            match self.secret_of(placeholder) {
                Some(secret) => original.push_str(&secret),
                None if memchr::memmem::find(literal, placeholder.as_bytes()).is_some() => {
                    original.push_str(placeholder);
                }
                None => {
                    return Err(Unresolved {
                        placeholder: placeholder.to_owned(),
                    });
                }
            }
            done = place.end;
        }
        original.push_str(&text[done..]);
        Ok(Some(original))
    }

    /// Whether what this placeholder stands for would be masked here too. `rule` is what it was masked by;
    /// older logs say no more than that.
    #[must_use]
    pub fn masks_again(&self, rule: &str, placeholder: Option<&str>) -> bool {
        if self.patterns.iter().any(|pattern| pattern.name == rule) {
            return true;
        }
        let mut is_named = false;
        let mut meet = |name: &str, value: &str| {
            is_named |= name == rule;
            // Naming it makes it known.
            drop(self.placeholder(name, value));
        };
        for (name, value) in &self.values {
            meet(name, value);
        }
        self.late.each(&mut meet);
        placeholder.map_or(is_named, |placeholder| {
            self.secret_of(placeholder).is_some()
        })
    }

    /// The one secret among those met whose tag begins as this placeholder says.
    fn secret_of(&self, placeholder: &str) -> Option<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(secret) = seen.secrets.get(placeholder) {
            return Some(secret.clone());
        }
        let tag = tag_of(placeholder);
        let mut matching = seen.tags.range(tag.to_owned()..);
        let mut next = || matching.next().filter(|(whole, _)| whole.starts_with(tag));
        match (next(), next()) {
            (Some((_, secret)), None) => Some(secret.clone()),
            _ => None,
        }
    }
}

fn tag_of(placeholder: &str) -> &str {
    let tag = placeholder.rsplit_once(':').map_or("", |(_, tag)| tag);
    tag.trim_end_matches(']')
}

/// Everything in `text` that has the form of a placeholder.
#[must_use]
pub fn placeholders(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (start, _) in text.match_indices(MARK) {
        let rest = &text[start..text.floor_char_boundary(start + LONGEST)];
        let Some(end) = rest.find(']') else {
            continue;
        };
        let placeholder = &rest[..=end];
        let tag = tag_of(placeholder);
        let is_tag = matches!(tag.len(), 4 | 8 | 16 | TAG_DIGITS | 64)
            && tag
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let has_rule = placeholder.len() > MARK.len() + tag.len() + 2;
        if is_tag && has_rule && !placeholder.contains('\n') {
            found.push(start..start + end + 1);
        }
    }
    found
}
