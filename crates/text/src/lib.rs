//! Text from anywhere made safe to show, short enough to fit, and put into words.
//!
//! A leaf: every crate may use it, `sandbox` too, and it uses none of ours. [`invisible`] is the one table of
//! characters that show nothing or reorder others; [`escape`] writes them out for a terminal, a model and JSON;
//! [`width()`] counts columns; [`words`] puts numbers into words; [`nearest()`] finds what was probably meant; [`hex()`]
//! writes hashes; [`locale`] knows which locales read text as UTF-8.

pub mod escape;
pub mod hex;
pub mod invisible;
pub mod locale;
pub mod nearest;
pub mod width;
pub mod words;

pub use escape::{
    push_visible, visible, visible_excerpt, visible_line, visible_lines, write_json_fragment,
};
pub use hex::{hex, sha256_hex};
pub use invisible::{is_hidden, is_part_of_emoji};
pub use locale::reads_as_utf8;
pub use nearest::nearest;
pub use width::{clip, width};
pub use words::{brief, counted};
