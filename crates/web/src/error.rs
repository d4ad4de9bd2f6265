//! Reasons why there is no page.

use std::net::IpAddr;

/// Why nothing can be shown of an address. Nothing changed anywhere that we know of.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// A name leads to a machine that is not everybody's, and no rule opens it.
    #[error("`{host}` leads to {ip}, {kind} address; nothing was sent")]
    Private {
        host: String,
        ip: IpAddr,
        kind: &'static str,
    },
    /// No such name, or nobody who could say.
    #[error("the name `{host}` is not known: {reason}")]
    Unresolved { host: String, reason: String },
    /// No connection, or one that broke off.
    #[error("`{origin}` cannot be reached: {reason}")]
    Unreachable { origin: String, reason: String },
    /// It began, and did not come to its end.
    #[error("the answer of `{origin}` broke off: {reason}")]
    BrokeOff { origin: String, reason: String },
    #[error("`{origin}` answers with more than {limit} bytes")]
    TooLarge { origin: String, limit: usize },
    #[error("`{origin}` leads on more than {limit} times")]
    TooManyRedirects { origin: String, limit: usize },
    #[error("`{origin}` leads on to an address that {problem}")]
    BadRedirect { origin: String, problem: String },
    #[error("no whole answer within {seconds} s")]
    Timeout { seconds: u64 },
    /// Whoever asked does not want it any more.
    #[error("stopped")]
    Stopped,
    /// This process cannot ask anybody.
    #[error("cannot start to fetch: {reason}")]
    NotStarted { reason: String },
}
