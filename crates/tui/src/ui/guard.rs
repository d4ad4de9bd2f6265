//! Keys pressed before a question could be read are no answers to it.

/// Keys are no answer until this long after the question was drawn.
pub const GUARD_MS: u64 = 300;
/// Somebody who goes on typing through the guard is not answering yet, up to this long.
pub const LONGEST_GUARD_MS: u64 = 1500;

/// Stands before a question for a moment, by the screen's clock in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// When the question was first drawn.
    drawn_at: Option<u64>,
    /// Keys before this moment belong to something else.
    until: u64,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            drawn_at: None,
            until: u64::MAX,
        }
    }
}

impl Guard {
    /// The question is on the screen since `now`.
    pub fn drawn(&mut self, now: u64) {
        if self.drawn_at.is_none() {
            self.drawn_at = Some(now);
            self.until = now + GUARD_MS;
        }
    }

    /// Whether a key at `now` may be meant for this question. A key that is not prolongs the guard:
    /// it is part of something the user is still typing.
    pub fn takes_key(&mut self, now: u64) -> bool {
        if now >= self.until {
            return true;
        }
        if let Some(drawn_at) = self.drawn_at {
            self.until = (now + GUARD_MS).min(drawn_at + LONGEST_GUARD_MS);
        }
        false
    }

    /// Whether keys are no answer yet.
    #[must_use]
    pub fn holds(&self, now: u64) -> bool {
        now < self.until
    }

    /// When it ends, for whoever waits to redraw.
    #[must_use]
    pub fn ends(&self) -> Option<u64> {
        self.drawn_at.map(|_| self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_ahead_is_no_answer() {
        let mut guard = Guard::default();
        assert!(!guard.takes_key(10_000), "not drawn yet");
        guard.drawn(1000);
        assert!(!guard.takes_key(1100));
        assert!(!guard.takes_key(1350), "still typing the same sentence");
        assert!(guard.takes_key(1650));
        let mut typed_on = Guard::default();
        typed_on.drawn(0);
        for now in (100..1500).step_by(100) {
            assert!(!typed_on.takes_key(now));
        }
        assert!(typed_on.takes_key(1500), "it has an end");
        let mut patient = Guard::default();
        patient.drawn(0);
        assert!(patient.takes_key(300));
    }
}
