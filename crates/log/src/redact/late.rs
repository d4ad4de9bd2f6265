//! Secrets that become known while a process runs: the key a command printed, a key file of a
//! provider that was chosen later. Whoever finds one out says so once, and everything masks it.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use memchr::memmem;

use super::plain_stretch;

/// Shorter values would be found everywhere.
const SHORTEST: usize = 8;

/// Secrets found out so far. Copies share them.
#[derive(Clone, Default)]
pub struct LateSecrets(Arc<RwLock<Vec<Late>>>);

struct Late {
    name: String,
    value: String,
    /// What of it JSON text holds unchanged; without any, every text is looked at.
    stretch: Option<String>,
}

impl LateSecrets {
    /// From now on `value` is masked, under `name`. Values too short to be told from ordinary text
    /// are not.
    pub fn learn(&self, name: &str, value: &str) {
        let value = value.trim();
        if value.len() < SHORTEST {
            return;
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.iter().any(|late| late.value == value) {
            return;
        }
        known.push(Late {
            name: name.to_owned(),
            value: value.to_owned(),
            stretch: plain_stretch(value).map(str::to_owned),
        });
        // The longest first, so that a value that contains another is masked whole.
        known.sort_by_key(|late| std::cmp::Reverse(late.value.len()));
    }

    /// True if one of them may occur in a text, or in text written as JSON.
    pub(super) fn suspects(&self, text: &[u8]) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().any(|late| match &late.stretch {
            Some(stretch) => memmem::find(text, stretch.as_bytes()).is_some(),
            None => true,
        })
    }

    pub(super) fn each(&self, told: &mut impl FnMut(&str, &str)) {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for late in known.iter() {
            told(&late.name, &late.value);
        }
    }

    /// Every place one of them occurs at, with its name.
    pub(super) fn find(&self, text: &str, mut found: impl FnMut(usize, usize, &str)) {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for late in known.iter() {
            for (start, value) in text.match_indices(late.value.as_str()) {
                found(start, start + value.len(), &late.name);
            }
        }
    }
}

impl fmt::Debug for LateSecrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never its values.
        formatter.write_str("LateSecrets")
    }
}
