//! One page of the network: an address goes in, and what was answered comes out, bounded in size and time.
//!
//! A host is looked up once, every number it may have is checked, and the connection goes to one of exactly those
//! numbers: a name that leads somewhere else a moment later leads nowhere. Another host is never followed to; who asks is
//! told where the page is said to be. Nothing is sent but the request itself: no cookie, no key, no referrer.
//!
//! Whether a host may be asked at all is decided before; this crate is told by [`Reach`]. It opens no file, starts no
//! process and keeps nothing.
//!
//! Start reading at [`Fetcher::fetch`]; [`markdown()`] makes a page readable.

mod error;
mod fetch;
mod markdown;
mod resolve;
mod tags;
mod text;

pub use error::FetchError;
pub use fetch::{Fetcher, Limits, Page, Reach};
pub use markdown::{Markdown, markdown};
pub use resolve::{Resolver, SystemResolver};
pub use text::decode;
