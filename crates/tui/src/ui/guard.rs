//! Keys typed for something else are no answers. A question takes a key only after a calm, and only
//! when nothing follows it: whoever goes on typing writes a message, for as long as it takes.

use crossterm::event::KeyEvent;

use super::overlay::Overlay;
use super::{Effect, Ui};

/// Nothing may have come for longer than this before a key that answers.
pub const CALM_MS: u64 = 400;
/// And nothing may come for this long after it.
pub const ALONE_MS: u64 = 250;
/// A key that goes round among choices takes effect when it has not been pressed again for this long.
pub const ROUND_MS: u64 = 1000;

/// Guard that stands before a question, by the screen's clock in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// When the question was first drawn.
    drawn_at: Option<u64>,
    /// When something was typed, pasted or sent last, also before the question was there.
    typed_at: Option<u64>,
    /// When the text was last moved by a key that does nothing else.
    moved_at: Option<u64>,
    /// The key that is an answer if nothing follows it, and when it came.
    held: Option<(KeyEvent, u64)>,
}

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Press {
    /// It is an answer, if nothing follows.
    Held,
    /// It is part of something else, and so is the key before it if that was held.
    Typed(Option<KeyEvent>),
}

impl Guard {
    /// Guard of a question that appears when the last key came at `typed_at`.
    #[must_use]
    pub fn after(typed_at: Option<u64>) -> Self {
        Self {
            typed_at,
            ..Self::default()
        }
    }

    /// The question is on the screen since `now`.
    pub fn drawn(&mut self, now: u64) {
        self.drawn_at.get_or_insert(now);
    }

    /// What is asked has changed: it has to be drawn, and a calm has to pass, before a key counts.
    pub fn renew(&mut self) {
        self.drawn_at = None;
        self.held = None;
    }

    /// Takes in a key that may be an answer.
    pub fn press(&mut self, key: KeyEvent, now: u64) -> Press {
        let is_calm = self.is_calm(now);
        match self.disturb(now) {
            None if is_calm => {
                self.held = Some((key, now));
                Press::Held
            }
            before => Press::Typed(before),
        }
    }

    /// Takes in a key that goes round among choices; false if it was typed for something else. Pressed again it
    /// goes on, and only where it stops counts.
    pub fn go_round(&mut self, key: KeyEvent, now: u64) -> bool {
        if self.held() != Some(key) && !self.is_calm(now) {
            return false;
        }
        self.typed_at = Some(now);
        self.held = Some((key, now + ROUND_MS - ALONE_MS));
        true
    }

    /// The key that was pressed, and waits to be an answer.
    #[must_use]
    pub fn held(&self) -> Option<KeyEvent> {
        self.held.map(|(key, _)| key)
    }

    /// Takes in something that is no answer. Gives back the key that is none either, because this
    /// followed it.
    pub fn disturb(&mut self, now: u64) -> Option<KeyEvent> {
        self.typed_at = Some(now);
        self.held.take().map(|(key, _)| key)
    }

    /// Takes in a key that moves the text. A mouse wheel sends such keys too.
    pub fn moved(&mut self, now: u64) -> Option<KeyEvent> {
        self.moved_at = Some(now);
        self.held.take().map(|(key, _)| key)
    }

    /// The key that nothing followed. The caller has checked that nothing waits to be read.
    pub fn ripe(&mut self, now: u64) -> Option<KeyEvent> {
        let (key, at) = self.held?;
        if now <= at + ALONE_MS {
            return None;
        }
        self.held = None;
        Some(key)
    }

    /// True if nobody has typed for a while, though the text may have been moved.
    #[must_use]
    pub fn is_quiet(&self, now: u64) -> bool {
        self.held.is_none()
            && later(self.drawn_at, self.typed_at).is_some_and(|at| now > at + CALM_MS)
    }

    /// True if a key at `now` may be an answer.
    #[must_use]
    pub fn is_calm(&self, now: u64) -> bool {
        self.since().is_some_and(|since| now > since + CALM_MS)
    }

    /// True if keys are no answer yet. While one is held the question looks as it did when it came.
    #[must_use]
    pub fn holds(&self, now: u64) -> bool {
        self.held.is_none() && !self.is_calm(now)
    }

    /// When a held key becomes an answer, or else keys begin to count.
    #[must_use]
    pub fn ends(&self) -> Option<u64> {
        match self.held {
            Some((_, at)) => Some(at + ALONE_MS + 1),
            None => self.since().map(|since| since + CALM_MS + 1),
        }
    }

    /// Since when nothing has come; nothing counts before the question was drawn.
    fn since(&self) -> Option<u64> {
        let since = later(self.drawn_at, self.typed_at)?;
        Some(since.max(self.moved_at.unwrap_or(0)))
    }
}

/// The later of the two, once the first is there.
fn later(drawn_at: Option<u64>, typed_at: Option<u64>) -> Option<u64> {
    drawn_at.map(|drawn| drawn.max(typed_at.unwrap_or(0)))
}

impl Ui {
    /// The guard of the question on the screen, if there is one.
    #[must_use]
    pub fn guard(&self) -> Option<&Guard> {
        match (&self.overlay, &self.prompt) {
            (Some(Overlay::FirstRun(..) | Overlay::Trust(..) | Overlay::Mode(..)), _) => {
                Some(&self.start_guard)
            }
            (_, prompt) => prompt.as_ref().map(|prompt| &prompt.guard),
        }
    }

    fn guard_mut(&mut self) -> Option<&mut Guard> {
        match (&self.overlay, &mut self.prompt) {
            (Some(Overlay::FirstRun(..) | Overlay::Trust(..) | Overlay::Mode(..)), _) => {
                Some(&mut self.start_guard)
            }
            (_, prompt) => prompt.as_mut().map(|prompt| &mut prompt.guard),
        }
    }

    /// Something came in that answers no question. A key that was to be an answer, and is none
    /// because of this, goes on to where the rest goes.
    pub(crate) fn disturb(&mut self) {
        self.typed_at = Some(self.now);
        let now = self.now;
        let before = self.guard_mut().and_then(|guard| guard.disturb(now));
        if let Some(key) = before {
            self.type_on(key);
        }
    }

    /// What is asked has to be drawn again before it is answered, because the terminal was away.
    pub fn renew_guard(&mut self) {
        if let Some(guard) = self.guard_mut() {
            guard.renew();
        }
    }

    /// Gives the question on the screen the key that nothing followed, if there is one. Whoever
    /// calls this has looked that no key waits to be read.
    pub fn ripen(&mut self) -> Vec<Effect> {
        let now = self.now;
        let Some(key) = self.guard_mut().and_then(|guard| guard.ripe(now)) else {
            return self.look_again();
        };
        let mut effects = match &self.overlay {
            Some(Overlay::FirstRun(..) | Overlay::Trust(..) | Overlay::Mode(..)) => {
                self.start_key(key)
            }
            // It was meant for the question that something else covers now.
            Some(_) => Vec::new(),
            None => self.answer_key(key),
        };
        effects.extend(self.settle());
        effects
    }

    /// Whether the question on the screen takes no keys yet.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.guard().is_some_and(|guard| guard.holds(self.now))
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::KeyCode;

    use super::*;

    fn a() -> KeyEvent {
        KeyEvent::from(KeyCode::Char('a'))
    }

    #[test]
    fn a_key_alone_in_a_calm_is_an_answer() {
        let mut guard = Guard::after(None);
        assert_eq!(guard.press(a(), 10_000), Press::Typed(None), "not drawn");
        let mut guard = Guard::after(Some(900));
        guard.drawn(1000);
        assert!(guard.holds(1400) && !guard.holds(1401));
        assert_eq!(guard.press(a(), 1401), Press::Held);
        assert_eq!(guard.ends(), Some(1652));
        assert_eq!((guard.ripe(1651), guard.ripe(1652)), (None, Some(a())));
        assert_eq!(guard.ripe(9000), None, "once");
    }

    #[test]
    fn a_key_with_company_is_none() {
        let mut guard = Guard::after(None);
        guard.drawn(0);
        assert_eq!(guard.press(a(), 1000), Press::Held);
        assert_eq!(guard.press(a(), 1250), Press::Typed(Some(a())), "followed");
        assert_eq!(guard.press(a(), 1650), Press::Typed(None), "no calm before");
        assert_eq!(guard.ripe(9000), None);
        assert_eq!(guard.press(a(), 9000), Press::Held);
        assert_eq!(guard.moved(9100), Some(a()), "the wheel turned");
        assert!(guard.is_quiet(9450) && !guard.is_calm(9450));
        // However long somebody types, it is no answer.
        for now in (10_000..100_000).step_by(400) {
            guard.disturb(now);
            assert!(guard.holds(now + 400), "{now}");
        }
    }

    #[test]
    fn a_second_step_has_its_own_calm() {
        let mut guard = Guard::after(None);
        guard.drawn(0);
        assert_eq!(guard.press(a(), 1000), Press::Held);
        assert_eq!(guard.ripe(1300), Some(a()));
        guard.renew();
        assert_eq!(guard.press(a(), 2000), Press::Typed(None), "not drawn yet");
        guard.drawn(2010);
        assert_eq!(guard.press(a(), 2500), Press::Held);
    }
}
