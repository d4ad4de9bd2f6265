//! Which keys do what, where somebody may choose. A key that is bound stands for the usual key of its
//! action, and a usual key that is not bound any more does nothing; so whatever takes keys goes by the
//! usual ones. What is shown are the keys that are bound.

mod chord;

use crossterm::event::KeyEvent;

pub use chord::Chord;

/// Something a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Send,
    Newline,
    Steer,
    SearchPrompts,
    EditQueued,
    Editor,
    Help,
    Mode,
    Plan,
    Transcript,
    Suspend,
    Redraw,
    Allow,
    AllowSession,
    AllowNetwork,
    AllowRule,
    Deny,
    DenyNote,
    EditFirst,
    Abort,
}

/// Where a key is pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the composer.
    Writing,
    /// On a question.
    Answering,
    /// Wherever.
    Anywhere,
}

/// An action with its name in the settings, where it is done, its usual keys and what it is.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub action: Action,
    pub name: &'static str,
    pub place: Place,
    pub usual: &'static [&'static str],
    pub about: &'static str,
}

const fn known(
    action: Action,
    name: &'static str,
    place: Place,
    usual: &'static [&'static str],
    about: &'static str,
) -> Known {
    Known {
        action,
        name,
        place,
        usual,
        about,
    }
}

/// Every action whose key can be chosen.
pub const ACTIONS: &[Known] = &[
    known(
        Action::Send,
        "send",
        Place::Writing,
        &["enter"],
        "send; while a turn runs: queue",
    ),
    known(
        Action::Newline,
        "newline",
        Place::Writing,
        &["alt-enter", "ctrl-j"],
        "break the line",
    ),
    known(
        Action::Steer,
        "steer",
        Place::Writing,
        &["ctrl-s"],
        "join the running turn at its next step",
    ),
    known(
        Action::SearchPrompts,
        "search_prompts",
        Place::Writing,
        &["ctrl-r"],
        "search earlier prompts",
    ),
    known(
        Action::EditQueued,
        "edit_queued",
        Place::Writing,
        &["alt-up"],
        "edit the last queued message",
    ),
    known(
        Action::Help,
        "help",
        Place::Writing,
        &["?"],
        "keys and commands, when nothing is written",
    ),
    known(
        Action::Mode,
        "mode",
        Place::Writing,
        &["shift-tab"],
        "cycle modes, also on a question",
    ),
    known(
        Action::Plan,
        "plan",
        Place::Writing,
        &["alt-p"],
        "the whole list of things to do, or its current item",
    ),
    known(
        Action::Editor,
        "editor",
        Place::Anywhere,
        &["ctrl-g"],
        "open your editor",
    ),
    known(
        Action::Transcript,
        "transcript",
        Place::Anywhere,
        &["ctrl-t"],
        "transcript with details",
    ),
    known(
        Action::Suspend,
        "suspend",
        Place::Anywhere,
        &["ctrl-z"],
        "suspend",
    ),
    known(
        Action::Redraw,
        "redraw",
        Place::Anywhere,
        &["ctrl-l"],
        "redraw the screen",
    ),
    known(
        Action::Allow,
        "allow",
        Place::Answering,
        &["a"],
        "allow once",
    ),
    known(
        Action::AllowSession,
        "allow_session",
        Place::Answering,
        &["s"],
        "don't ask again this session",
    ),
    known(
        Action::AllowNetwork,
        "allow_network",
        Place::Answering,
        &["w"],
        "allow once, with network access",
    ),
    known(
        Action::AllowRule,
        "allow_rule",
        Place::Answering,
        &["r"],
        "allow and save a rule",
    ),
    known(Action::Deny, "deny", Place::Answering, &["d"], "deny"),
    known(
        Action::DenyNote,
        "deny_note",
        Place::Answering,
        &["n"],
        "deny with a note to the model",
    ),
    known(
        Action::EditFirst,
        "edit",
        Place::Answering,
        &["e"],
        "edit first",
    ),
    known(
        Action::Abort,
        "abort",
        Place::Answering,
        &["q"],
        "abort the turn",
    ),
];

/// Keys that always mean the same, and what.
const FIXED: &[(&str, &str)] = &[
    ("ctrl-c", "interrupts and quits"),
    ("esc", "interrupts and goes back"),
    ("tab", "completes"),
    ("up", "moves"),
    ("down", "moves"),
    ("left", "moves"),
    ("right", "moves"),
    ("home", "moves"),
    ("end", "moves"),
    ("pgup", "scrolls"),
    ("pgdn", "scrolls"),
    ("backspace", "deletes"),
    ("delete", "deletes"),
    ("ctrl-d", "deletes, and quits when nothing is written"),
    ("ctrl-a", "goes to the beginning of the line"),
    ("ctrl-e", "goes to the end of the line"),
    ("ctrl-b", "goes back one character"),
    ("ctrl-f", "goes forward one character"),
    ("ctrl-n", "goes to the next prompt"),
    ("ctrl-p", "goes to the previous prompt"),
    ("ctrl-w", "deletes a word"),
    ("ctrl-u", "deletes to the beginning of the line"),
    ("ctrl-k", "deletes to the end of the line"),
    ("ctrl-y", "puts back what was deleted"),
    ("ctrl-_", "undoes"),
    ("ctrl-x", "begins Ctrl-X Ctrl-E"),
    ("alt-b", "goes back one word"),
    ("alt-f", "goes forward one word"),
    ("alt-d", "deletes the next word"),
];

/// The same on a question. Enter allows nothing there, whatever somebody binds to it.
const FIXED_ANSWERING: &[(&str, &str)] = &[
    ("enter", "never answers a question"),
    ("space", "scrolls a question"),
    ("j", "scrolls a question"),
    ("k", "scrolls a question"),
    ("g", "scrolls a question"),
    ("G", "scrolls a question"),
];

/// The same for the key that edits, which also changes a rule before it is saved.
const FIXED_EDITING: &[(&str, &str)] = &[
    ("p", "saves a rule for the project"),
    ("u", "saves a rule for everywhere"),
    ("w", "widens a rule"),
];

/// What is wrong with a key map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct KeyError {
    /// The action as it was named, whose line is to be looked at.
    pub action: String,
    pub message: String,
    pub hint: Option<String>,
}

/// The keys of every action, in the order of [`ACTIONS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyMap(Vec<Vec<Chord>>);

impl Default for KeyMap {
    fn default() -> Self {
        Self(ACTIONS.iter().map(usual).collect())
    }
}

fn usual(known: &Known) -> Vec<Chord> {
    let chords = known.usual.iter();
    chords.filter_map(|key| Chord::parse(key).ok()).collect()
}

impl KeyMap {
    /// The usual keys, with those of `chosen` in their place.
    ///
    /// # Errors
    /// When an action or a key is not known, or one key would mean two things.
    pub fn with<'a>(
        chosen: impl IntoIterator<Item = (&'a str, &'a [String])>,
    ) -> Result<Self, KeyError> {
        let mut map = Self::default();
        let mut changed = Vec::new();
        for (name, keys) in chosen {
            let error = |message: String, hint| KeyError {
                action: name.to_owned(),
                message,
                hint,
            };
            let Some(at) = ACTIONS.iter().position(|known| known.name == name) else {
                let names = ACTIONS.iter().map(|known| known.name);
                let hint = match agent_text::nearest(name, names.clone()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("known here: {}", names.collect::<Vec<_>>().join(", ")),
                };
                return Err(error(format!("unknown action `{name}`"), Some(hint)));
            };
            let chords = keys.iter().map(|key| Chord::parse(key));
            let chords: Vec<Chord> = chords
                .collect::<Result<_, _>>()
                .map_err(|message| error(message, None))?;
            if chords.is_empty() {
                return Err(error(format!("`{name}` needs a key"), None));
            }
            for chord in &chords {
                if let Err(message) = may_bind(&ACTIONS[at], *chord) {
                    return Err(error(message, None));
                }
            }
            map.0[at] = chords;
            changed.push(at);
        }
        for at in changed {
            map.no_conflict(at)?;
        }
        Ok(map)
    }

    fn no_conflict(&self, at: usize) -> Result<(), KeyError> {
        let known = &ACTIONS[at];
        for (other, chords) in self.0.iter().enumerate().filter(|(other, _)| *other != at) {
            let both = ACTIONS[other];
            // A letter that answers a question is only a letter in the composer.
            let apart = (known.place == Place::Answering) != (both.place == Place::Answering);
            let same = self.0[at].iter().find(|chord| chords.contains(chord));
            if let Some(chord) = same.filter(|_| !apart) {
                return Err(KeyError {
                    action: known.name.to_owned(),
                    message: format!(
                        "the key {chord} is bound to both `{}` and `{}`",
                        known.name, both.name
                    ),
                    hint: Some(format!("give `{}` another key too", both.name)),
                });
            }
        }
        Ok(())
    }

    /// What a key that was pressed at `place` means there, as the usual key; nothing if it has lost
    /// its meaning. While something is written, the actions of anywhere count too.
    #[must_use]
    pub fn usual(&self, place: Place, key: KeyEvent) -> Option<KeyEvent> {
        let chord = Chord::of(key);
        let here = || {
            let all = ACTIONS.iter().zip(&self.0);
            all.filter(|(known, _)| {
                known.place == place || (place == Place::Writing && known.place == Place::Anywhere)
            })
        };
        if let Some((known, _)) = here().find(|(_, chords)| chords.contains(&chord)) {
            let usual = usual(known);
            return match usual.contains(&chord) {
                true => Some(key),
                false => usual.first().map(|chord| chord.event()),
            };
        }
        let was_usual = here().any(|(known, _)| usual(known).contains(&chord));
        (!was_usual).then_some(key)
    }

    /// True if the key is bound to this action.
    #[must_use]
    pub fn is(&self, action: Action, key: KeyEvent) -> bool {
        self.chords(action).contains(&Chord::of(key))
    }

    /// The keys of an action, the first one first.
    #[must_use]
    pub fn chords(&self, action: Action) -> &[Chord] {
        let at = ACTIONS.iter().position(|known| known.action == action);
        at.and_then(|at| self.0.get(at)).map_or(&[], Vec::as_slice)
    }

    /// The first key of an action, as it is shown.
    #[must_use]
    pub fn shown(&self, action: Action) -> String {
        let first = self.chords(action).first();
        first.map(ToString::to_string).unwrap_or_default()
    }

    /// The bound keys in the place of usual ones in a list such as `Ctrl-T, PgUp`, which stands in the
    /// help about questions or elsewhere.
    #[must_use]
    pub fn told(&self, keys: &str, answering: bool) -> String {
        let mut told: Vec<String> = Vec::new();
        for key in keys.split(", ") {
            let mut known = ACTIONS.iter().zip(&self.0).filter(|(known, _)| {
                (known.place == Place::Answering) == answering || known.action == Action::Mode
            });
            let bound =
                known.find(|(known, _)| usual(known).iter().any(|chord| chord.to_string() == key));
            let keys: Vec<String> = match bound {
                Some((_, chords)) => chords.iter().map(ToString::to_string).collect(),
                None => vec![key.to_owned()],
            };
            for key in keys {
                if !told.contains(&key) {
                    told.push(key);
                }
            }
        }
        told.join(", ")
    }

    /// The key of an answer, by its usual letter.
    #[must_use]
    pub fn answer(&self, usual: &str) -> String {
        self.told(usual, true)
    }
}

/// Whether a key can stand for an action at all.
fn may_bind(known: &Known, chord: Chord) -> Result<(), String> {
    let answers = known.place == Place::Answering;
    let fixed = FIXED
        .iter()
        .chain(FIXED_ANSWERING.iter().filter(|_| answers))
        .chain(
            FIXED_EDITING
                .iter()
                .filter(|_| known.action == Action::EditFirst),
        );
    let mut fixed = fixed.filter_map(|(key, does)| Some((Chord::parse(key).ok()?, does)));
    if let Some((_, does)) = fixed.find(|(key, _)| *key == chord) {
        return Err(format!(
            "`{}` cannot be bound to {chord}, which {does}",
            known.name
        ));
    }
    let is_usual = usual(known).contains(&chord);
    match chord.character() {
        Some(_) if !answers && !is_usual => Err(format!(
            "`{}` cannot be bound to {chord}, which writes a character",
            known.name
        )),
        None if answers => Err(format!(
            "`{}` answers a question: bind it to a letter",
            known.name
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossterm::event::{KeyCode, KeyModifiers};

    fn map(chosen: &[(&str, &[&str])]) -> Result<KeyMap, KeyError> {
        let chosen: Vec<(&str, Vec<String>)> = chosen
            .iter()
            .map(|(name, keys)| (*name, keys.iter().map(|key| (*key).to_owned()).collect()))
            .collect();
        KeyMap::with(chosen.iter().map(|(name, keys)| (*name, keys.as_slice())))
    }

    fn key(text: &str) -> KeyEvent {
        Chord::parse(text).unwrap().event()
    }

    #[test]
    fn every_usual_key_is_one_and_none_means_two_things() {
        let names: Vec<&str> = ACTIONS.iter().map(|known| known.name).collect();
        let all: Vec<(&str, &[&str])> = ACTIONS.iter().map(|k| (k.name, k.usual)).collect();
        assert_eq!(map(&all), Ok(KeyMap::default()), "{names:?}");
        for known in ACTIONS {
            assert_eq!(usual(known).len(), known.usual.len(), "{}", known.name);
        }
    }

    #[test]
    fn a_bound_key_stands_for_the_usual_one() {
        let keys = map(&[("steer", &["f2", "ctrl-o"]), ("allow", &["y"])]).unwrap();
        let check = |place, pressed: &str, expected: Option<&str>| {
            assert_eq!(
                keys.usual(place, key(pressed)),
                expected.map(key),
                "{pressed}"
            );
        };
        check(Place::Writing, "f2", Some("ctrl-s"));
        check(Place::Writing, "ctrl-o", Some("ctrl-s"));
        check(Place::Writing, "ctrl-s", None);
        check(Place::Writing, "ctrl-r", Some("ctrl-r"));
        check(Place::Writing, "y", Some("y"));
        let crossed = map(&[("steer", &["ctrl-t"]), ("transcript", &["ctrl-s"])]).unwrap();
        assert_eq!(
            crossed.usual(Place::Writing, key("ctrl-t")),
            Some(key("ctrl-s"))
        );
        assert_eq!(
            crossed.usual(Place::Writing, key("ctrl-s")),
            Some(key("ctrl-t"))
        );
        check(Place::Answering, "y", Some("a"));
        check(Place::Answering, "a", None);
        check(Place::Answering, "d", Some("d"));
        check(Place::Answering, "f2", Some("f2"));
        assert_eq!(keys.told("Ctrl-S", false), "F2, Ctrl-O");
        assert_eq!(keys.answer("a"), "y");
        assert_eq!(keys.told("Ctrl-T, PgUp", false), "Ctrl-T, PgUp");
    }

    #[test]
    fn two_actions_can_change_places() {
        let keys = map(&[("send", &["alt-enter"]), ("newline", &["enter"])]).unwrap();
        let enter = KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE);
        assert_eq!(keys.usual(Place::Writing, enter), Some(key("alt-enter")));
        assert_eq!(keys.usual(Place::Writing, key("alt-enter")), Some(enter));
    }

    #[test]
    fn what_cannot_be_is_named() {
        let check = |chosen: &[(&str, &[&str])], message: &str, hint: Option<&str>| {
            let error = map(chosen).unwrap_err();
            assert_eq!(
                (error.message.as_str(), error.hint.as_deref()),
                (message, hint)
            );
        };
        check(
            &[("ster", &["f2"])],
            "unknown action `ster`",
            Some("did you mean `steer`?"),
        );
        check(
            &[("steer", &["ctrl-t"])],
            "the key Ctrl-T is bound to both `steer` and `transcript`",
            Some("give `transcript` another key too"),
        );
        check(
            &[("allow", &["enter"])],
            "`allow` cannot be bound to Enter, which never answers a question",
            None,
        );
        check(
            &[("allow", &["alt-enter"])],
            "`allow` answers a question: bind it to a letter",
            None,
        );
        check(
            &[("steer", &["x"])],
            "`steer` cannot be bound to x, which writes a character",
            None,
        );
        check(
            &[("steer", &["ctrl-c"])],
            "`steer` cannot be bound to Ctrl-C, which interrupts and quits",
            None,
        );
        check(&[("steer", &[])], "`steer` needs a key", None);
        assert!(map(&[("allow", &["d"])]).is_err());
        // Letters of a question are letters elsewhere.
        assert!(map(&[("deny", &["x"])]).is_ok());
    }
}
