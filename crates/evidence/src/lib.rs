//! A session judged, told and exchanged: audit, replay, reports, export and import.
//!
//! Everything is computed from the log (`agent-log`) and what it means (`agent-history`), so that two
//! people with the same log get the same answer. Import alone writes, and only a new session.
//!
//! Where to start: [`audit::audit`] judges a log, [`replay::Timeline`] tells it, [`report::report`]
//! sums it up, [`review`] reads the findings in an answer, [`export`] gives it away and [`import`] takes another
//! program's record in.

pub mod audit;
pub mod compare;
pub mod export;
pub mod import;
pub mod replay;
pub mod report;
pub mod review;
mod sarif;
