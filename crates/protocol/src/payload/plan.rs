//! The list of things to do that the model keeps, as a fact of a call's result.

use crate::record::{record, words};

words! {
    /// State of a thing to do.
    PlanState {
        Pending = "pending",
        InProgress = "in_progress",
        Done = "done",
        Dropped = "dropped",
    }
}

record! {
    /// A thing to do.
    PlanItem {
        text: String,
        state: PlanState,
    }
}

impl PlanItem {
    /// True if it is still to be done.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, PlanState::Pending | PlanState::InProgress)
    }

    /// The item as a line of a list, with a mark for its state.
    #[must_use]
    pub fn line(&self) -> String {
        let mark = match self.state {
            PlanState::Pending => "[ ]",
            PlanState::InProgress => "[>]",
            PlanState::Done => "[x]",
            PlanState::Dropped => "[-]",
        };
        format!("{mark} {}", self.text)
    }
}

/// How far a list is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanProgress<'a> {
    pub done: usize,
    /// Without those that were dropped.
    pub total: usize,
    /// The first item that is in progress, or else the first that is pending.
    pub current: Option<&'a PlanItem>,
}

impl<'a> PlanProgress<'a> {
    #[must_use]
    pub fn of(items: &'a [PlanItem]) -> Self {
        let count = |state| items.iter().filter(|item| item.state == state).count();
        let first = |state| items.iter().find(|item| item.state == state);
        Self {
            done: count(PlanState::Done),
            total: items.len() - count(PlanState::Dropped),
            current: first(PlanState::InProgress).or_else(|| first(PlanState::Pending)),
        }
    }

    /// The same as a sentence.
    #[must_use]
    pub fn in_words(self) -> String {
        let Self { done, total, .. } = self;
        match self.current {
            Some(item) if item.state == PlanState::InProgress => {
                format!("{done} of {total} done; now: {}", item.text)
            }
            Some(item) => format!("{done} of {total} done; next: {}", item.text),
            None if total == 0 => "nothing to do".to_owned(),
            None => format!("all {total} done"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(states: &[PlanState], expected: &str) {
        let item = |(number, state): (usize, &PlanState)| PlanItem {
            text: format!("step {}", number + 1),
            state: *state,
        };
        let items: Vec<PlanItem> = states.iter().enumerate().map(item).collect();
        assert_eq!(PlanProgress::of(&items).in_words(), expected, "{states:?}");
    }

    #[test]
    fn a_list_is_told_by_its_current_item() {
        use PlanState::{Done, Dropped, InProgress, Pending};
        check(&[], "nothing to do");
        check(&[Dropped], "nothing to do");
        check(&[Pending, Pending], "0 of 2 done; next: step 1");
        check(&[Done, Pending, InProgress], "1 of 3 done; now: step 3");
        check(&[Done, Dropped, Pending], "1 of 2 done; next: step 3");
        check(&[Done, Dropped, Done], "all 2 done");
    }
}
