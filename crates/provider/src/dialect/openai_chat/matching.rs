//! Assignment of deltas to tool calls.
//!
//! By the book a delta has an index, and the first one of a call an id and a name as well. Servers
//! leave out any of the three, repeat them with every delta, number every call 0, or send a call
//! twice. What is certain decides; where nothing is, two calls are better than one call with the
//! arguments of two, and one call is better than the same call twice.

use crate::calls::{Calls, is_whole_json};

/// One entry of `tool_calls`.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallPiece<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
    /// Another entry came before it in the same delta.
    pub(super) is_later_entry: bool,
}

/// Sorts deltas into calls.
#[derive(Debug, Default)]
pub(super) struct Matching {
    /// A name that came once more after whole arguments, alone: arguments that follow it belong to
    /// another call of that tool.
    again: Option<String>,
}

impl Matching {
    /// The call that `piece` belongs to, which may be a new one, and whether its arguments add
    /// nothing to it.
    pub(super) fn place(&mut self, calls: &mut Calls, piece: CallPiece<'_>) -> (usize, bool) {
        let CallPiece {
            index, id, name, ..
        } = piece;
        let again = self.again.take();
        let known = match index {
            Some(index) => calls.by_wire_index(index),
            None if !id.is_empty() => calls.by_id(id),
            None => calls.last(),
        };
        let Some(at) = known.filter(|&at| !begins_another(calls, at, piece)) else {
            return (calls.begin(index, id, name), false);
        };
        let is_whole = is_whole_json(calls.arguments(at));
        if is_whole && id.is_empty() {
            match again {
                Some(name) if !piece.arguments.is_empty() => {
                    return (calls.begin(index, id, &name), false);
                }
                _ if !name.is_empty() && piece.arguments.is_empty() => {
                    self.again = Some(name.to_owned());
                }
                _ => {}
            }
        }
        calls.set_id_if_empty(at, id);
        calls.set_name_if_empty(at, name);
        (at, is_whole && piece.arguments == calls.arguments(at))
    }
}

/// True if `piece` begins another call although it could pass for more of the one at `at`.
fn begins_another(calls: &Calls, at: usize, piece: CallPiece<'_>) -> bool {
    let CallPiece {
        index,
        id,
        name,
        arguments,
        is_later_entry,
    } = piece;
    let (known_id, known_name, so_far) = (calls.wire_id(at), calls.name(at), calls.arguments(at));
    if !id.is_empty() && !known_id.is_empty() && id != known_id {
        // Some gateways make up an id for every delta: without a name, arguments that are not
        // whole go on.
        return !name.is_empty() || is_whole_json(so_far);
    }
    if !id.is_empty() {
        return false;
    }
    let is_other_name = !name.is_empty() && !known_name.is_empty() && name != known_name;
    let is_next_entry = is_later_entry && index.is_none() && !name.is_empty();
    // Servers that number every parallel call 0 and give no id: a name that comes with other
    // arguments after whole ones begins the next call.
    let is_next =
        !name.is_empty() && !arguments.is_empty() && arguments != so_far && is_whole_json(so_far);
    is_other_name || is_next_entry || is_next
}
