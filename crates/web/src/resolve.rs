//! From the name of a host to the numbers of machines.

use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};

/// Knows which machines a name means. A test has one of its own.
pub trait Resolver: Send + Sync {
    /// All numbers of `host`. May take its time: it is called on a thread that is not waited for.
    ///
    /// # Errors
    /// When the name is not known.
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The one of this machine.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let found = (host, 0).to_socket_addrs()?;
        Ok(found.map(|address| address.ip()).collect())
    }
}
