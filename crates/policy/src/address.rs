//! Addresses on the network: what a text names, and which machines are not everybody's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// The longest address that is taken.
const MOST_BYTES: usize = 2_000;

/// An `http` or `https` address, read as a browser reads it: escapes, odd spellings of numbers and letters of other
/// scripts are gone from its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebAddress {
    url: Url,
}

impl WebAddress {
    /// Reads an address; what stands behind `#` is the reader's own business and is dropped.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence without its first word.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MOST_BYTES {
            return Err(format!("is longer than {MOST_BYTES} bytes"));
        }
        let url = Url::parse(text).map_err(|error| format!("is no address: {error}"))?;
        Self::of(url)
    }

    /// The address that `target` means on the page at this one.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn join(&self, target: &str) -> Result<Self, String> {
        if target.len() > MOST_BYTES {
            return Err(format!("is longer than {MOST_BYTES} bytes"));
        }
        let joined = self.url.join(target);
        Self::of(joined.map_err(|error| format!("is no address: {error}"))?)
    }

    fn of(mut url: Url) -> Result<Self, String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("is `{}:`, not http or https", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("names a user or a password".to_owned());
        }
        url.set_fragment(None);
        // `docs.rs.` is the same machine as `docs.rs`, and rules name it without the dot.
        let host = url.host_str().unwrap_or_default();
        let bare = host.trim_end_matches('.').to_owned();
        if bare.is_empty() {
            return Err("names no host".to_owned());
        }
        if bare != host {
            let set = url.set_host(Some(&bare));
            set.map_err(|error| format!("is no address: {error}"))?;
        }
        Ok(Self { url })
    }

    /// The address as it is asked for.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The host in ASCII; an IPv6 address in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or_default()
    }

    /// Scheme, host and port, without the port that the scheme has anyway: what a grant holds for.
    #[must_use]
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// The address of the machine, where the host is one.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        match self.url.host()? {
            Host::Ipv4(ip) => Some(ip.into()),
            Host::Ipv6(ip) => Some(ip.into()),
            Host::Domain(_) => None,
        }
    }

    /// The kind of a machine that is not everybody's, if the host alone says that it is one.
    #[must_use]
    pub fn private_kind(&self) -> Option<&'static str> {
        let host = self.host();
        let is_local = host == "localhost" || host.ends_with(".localhost");
        match self.ip() {
            Some(ip) => private_kind(ip),
            None => is_local.then_some(LOOPBACK),
        }
    }
}

const LOOPBACK: &str = "this machine's own";
const PRIVATE: &str = "a private network's";
const LINK: &str = "a link-local";
const METADATA: &str = "a cloud's metadata";
const NOBODY: &str = "nobody's";

/// The kind of an address that is not everybody's, as in "… address"; nothing for one on the open internet.
#[must_use]
pub fn private_kind(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(ip) => private_v4(ip),
        IpAddr::V6(ip) => private_v6(ip),
    }
}

fn private_v4(ip: Ipv4Addr) -> Option<&'static str> {
    let kind = match ip.octets() {
        [127, ..] => LOOPBACK,
        [169, 254, 169, 254] | [168, 63, 129, 16] | [100, 100, 100, 200] | [192, 0, 0, 192] => {
            METADATA
        }
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => PRIVATE,
        // Behind a provider's own translation.
        [100, 64..=127, ..] => PRIVATE,
        [169, 254, ..] => LINK,
        // "This" host, special use, documentation, benchmarks, multicast, reserved.
        [0, ..]
        | [192, 0, 0, _]
        | [192, 0, 2, _]
        | [192, 88, 99, _]
        | [198, 18..=19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [224..=255, ..] => NOBODY,
        _ => return None,
    };
    Some(kind)
}

fn private_v6(ip: Ipv6Addr) -> Option<&'static str> {
    let words = ip.segments();
    let [.., high, low] = words;
    let inner = |high: u16, low: u16| {
        Ipv4Addr::from((u32::from(high) << 16 | u32::from(low)).to_be_bytes())
    };
    match words {
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(LOOPBACK),
        // An IPv4 address in other clothes: mapped, and as a translator (NAT64) or a tunnel (6to4) reaches it.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            private_v4(inner(high, low))
        }
        [0x2002, high, low, ..] => private_v4(inner(high, low)),
        [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254] => Some(METADATA),
        [0xfc00..=0xfdff, ..] | [0x64, 0xff9b, 1, ..] => Some(PRIVATE),
        [0xfe80..=0xfebf, ..] => Some(LINK),
        [0xfec0..=0xfeff, ..] => Some(PRIVATE),
        // Special use, with Teredo, whose other end is hidden in it; documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, ..] => Some(NOBODY),
        [0x2000..=0x3fff, ..] => None,
        _ => Some(NOBODY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let read = WebAddress::parse(text).map(|address| address.url().to_string());
        match (read, expected) {
            (Ok(read), Ok(expected)) => assert_eq!(read, expected, "{text}"),
            (Err(said), Err(expected)) => assert!(said.contains(expected), "{text}: {said}"),
            (read, expected) => panic!("{text}: {read:?}, not {expected:?}"),
        }
    }

    #[test]
    fn an_address_is_read_as_a_browser_does() {
        check("https://docs.rs/x#y", Ok("https://docs.rs/x"));
        check("HTTPS://Docs.RS.:443/", Ok("https://docs.rs/"));
        check("http://0x7f.1/", Ok("http://127.0.0.1/"));
        check("http://2130706433:80/", Ok("http://127.0.0.1/"));
        check("http://①②⑦.0.0.1/", Ok("http://127.0.0.1/"));
        check(
            "http://bücher.example/ä",
            Ok("http://xn--bcher-kva.example/%C3%A4"),
        );
        check(
            "http://раураl.example/",
            Ok("http://xn--l-7sba6dbr.example/"),
        );
        check("http://[::ffff:7f00:1]/", Ok("http://[::ffff:7f00:1]/"));
        check("ftp://docs.rs/", Err("`ftp:`, not http or https"));
        check("file:///etc/passwd", Err("`file:`"));
        check("docs.rs", Err("is no address"));
        check("http://a@docs.rs/", Err("a user or a password"));
        check("http://:x@docs.rs/", Err("a user or a password"));
        check("http:///", Err("is no address"));
        check("http://.../", Err("no"));
        check(&format!("http://a/{}", "x".repeat(2_000)), Err("longer"));
    }

    /// Each range by its first and last address, and what stands right beside it.
    #[test]
    fn machines_that_are_not_everybodys_are_known() {
        for (kind, addresses) in [
            (
                Some(LOOPBACK),
                "127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1",
            ),
            (
                Some(PRIVATE),
                "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.1 192.168.255.255 100.64.0.0 \
                 100.127.255.255 fc00:: fdff:ffff:: fec0::1 ::ffff:10.0.0.1 64:ff9b::10.0.0.1 64:ff9b:1::1 \
                 2002:c0a8:0101::",
            ),
            (
                Some(LINK),
                "169.254.0.1 169.254.255.255 fe80::1 febf:: ::ffff:169.254.1.1",
            ),
            (
                Some(METADATA),
                "169.254.169.254 168.63.129.16 100.100.100.200 192.0.0.192 fd00:ec2::254 ::ffff:169.254.169.254",
            ),
            (
                Some(NOBODY),
                "0.0.0.0 0.255.255.255 192.0.0.1 192.0.2.1 192.88.99.1 198.18.0.1 198.19.255.255 198.51.100.1 \
                 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 :: ::2 ::7f00:1 ff02::1 2001::1 \
                 2001:db8::1 3fff::1 100::1 4000::1 ::ffff:0.0.0.0",
            ),
            (
                None,
                "1.1.1.1 9.255.255.255 11.0.0.0 172.15.255.255 172.32.0.0 192.167.255.255 192.169.0.0 100.63.255.255 \
                 100.128.0.0 126.255.255.255 128.0.0.1 169.253.255.255 169.255.0.0 198.17.0.1 198.20.0.1 \
                 223.255.255.255 2606:4700::1111 2001:4860::8888 2a00:1450::1 64:ff9b::1.1.1.1 ::ffff:1.1.1.1 \
                 2002:0101:0101::",
            ),
        ] {
            for address in addresses.split_whitespace() {
                let ip = address.parse().unwrap();
                assert_eq!(private_kind(ip), kind, "{address}");
            }
        }
        let named = |text: &str| WebAddress::parse(text).unwrap().private_kind();
        assert_eq!(named("http://localhost:3000/"), Some(LOOPBACK));
        assert_eq!(named("http://a.LOCALHOST./"), Some(LOOPBACK));
        assert_eq!(named("http://[::ffff:127.0.0.1]/"), Some(LOOPBACK));
        assert_eq!(named("http://localhost.example/"), None);
    }
}
