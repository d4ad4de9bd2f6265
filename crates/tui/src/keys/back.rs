//! `/rewind`, `/fork` and Esc Esc: back to before an earlier message.

use crate::state::cell::{CellKind, NoticeLevel};
use crate::ui::overlay::{Choices, Overlay, Picker};
use crate::ui::{Effect, Ui};

impl Ui {
    /// Lets the user choose a message, unless they have named one by its number.
    pub(super) fn go_back(
        &mut self,
        number: &str,
        choices: fn(Vec<(u64, String)>) -> Choices,
    ) -> Vec<Effect> {
        let cells = self.state.cells.iter();
        let messages = cells.filter_map(|cell| match &cell.kind {
            CellKind::User(user) => Some((cell.sequence, user.text.clone())),
            _ => None,
        });
        let messages: Vec<(u64, String)> = messages.collect();
        let count = messages.len();
        if count == 0 {
            self.hint("no earlier message");
            return Vec::new();
        }
        let choices = choices(messages);
        if !number.is_empty() {
            let place = number.parse::<usize>().ok();
            let place = place.filter(|place| (1..=count).contains(place));
            return match place {
                Some(place) => super::overlay::chosen(&choices, place - 1),
                None => {
                    let text = format!("name a message by its number, from 1 to {count}");
                    self.state.say(NoticeLevel::Error, text);
                    Vec::new()
                }
            };
        }
        let title = match choices {
            Choices::Rewind(_) => "go back to before a message",
            _ => "edit an earlier message in a fork",
        };
        self.overlay = Some(Overlay::Picker(Picker::new(title, choices)));
        Vec::new()
    }
}
