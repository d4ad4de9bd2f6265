//! Memory of sockets, as reported by the kernel's `sock_diag` interface.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use super::descriptors::Descriptors;
use super::process::Process;
use super::{CloseLook, Kernel};

/// Kernel memory per socket without content.
const SOCKET: u64 = 4 << 10;
/// Least memory of a message, however short it is.
const MESSAGE: u64 = 1 << 10;
/// Memory that a message may take beyond the limit of its socket.
const EXCESS: u64 = 64 << 10;

/// Netlink protocol of `sock_diag`, its request type, and the types that end an answer.
const SOCK_DIAG: u32 = 4;
const BY_FAMILY: u16 = 20;
const ASK_FOR_ALL: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
const DONE: u16 = libc::NLMSG_DONE as u16;
const ERROR: u16 = libc::NLMSG_ERROR as u16;

pub(super) struct Sockets {
    diag: Option<OwnedFd>,
    /// True if all sockets that the kernel lists are the command's.
    own: bool,
}

/// The most that one half of a pair keeps of what the other sent.
fn most_of_pair(kernel: &Kernel) -> u64 {
    kernel.sent + EXCESS
}

/// The most that any socket holds.
fn most(kernel: &Kernel) -> u64 {
    most_of_pair(kernel) + kernel.received + kernel.tcp
}

impl Sockets {
    pub(super) fn new(own: bool) -> Self {
        let diag = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            std::num::NonZeroU32::new(SOCK_DIAG).map(Protocol::from_raw),
        );
        Self {
            diag: diag.ok(),
            own,
        }
    }

    /// The most that the sockets of these processes can hold.
    pub(super) fn bound(&self, processes: &[Process], kernel: &Kernel) -> u64 {
        let all = || processes.iter().map(|process| process.descriptors).sum();
        let number = if self.own { number() } else { None };
        number.unwrap_or_else(all).saturating_mul(most(kernel))
    }

    pub(super) fn held(&self, open: &Descriptors, kernel: &Kernel, look: &CloseLook) -> u64 {
        let descriptors = open.sockets.len() as u64 + open.unknown;
        let number = if self.own { number() } else { None };
        let number = number.unwrap_or(descriptors);
        let mut found = Tally::new(kernel);
        let all_seen = (QUERIES.iter()).all(|query| {
            let is_ours = |inode| self.own || open.sockets.contains(&inode);
            self.query(query, &is_ours, look, &mut found).is_ok()
        });
        let unseen = if all_seen {
            // Descriptors that cannot be inspected may be sockets of the machine's network.
            if self.own { 0 } else { open.unknown }
        } else {
            number.saturating_sub(found.number)
        };
        found.bytes + answers(self.own) + number * SOCKET + unseen.saturating_mul(most(kernel))
    }

    /// Lists all sockets of one kind.
    fn query(
        &self,
        query: &Query,
        is_ours: &dyn Fn(u64) -> bool,
        look: &CloseLook,
        found: &mut Tally,
    ) -> io::Result<()> {
        let diag = self.diag.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        send(diag, &query.message(), SendFlags::empty())?;
        let mut buffer = vec![0_u8; 64 << 10];
        loop {
            if look.is_over() {
                // The rest of this answer must not be taken for the next one.
                while recv(diag, &mut *buffer, RecvFlags::empty()).is_ok() {}
                return Err(io::ErrorKind::TimedOut.into());
            }
            let (length, _) = recv(diag, &mut *buffer, RecvFlags::empty())?;
            for (kind, message) in messages(buffer.get(..length).unwrap_or_default()) {
                match kind {
                    DONE => return Ok(()),
                    ERROR => return Err(io::ErrorKind::Unsupported.into()),
                    _ => {}
                }
                if let Some(socket) = query.answer(message).filter(|it| is_ours(it.inode)) {
                    found.add(&socket);
                }
            }
        }
    }
}

struct Tally {
    pair: u64,
    number: u64,
    bytes: u64,
}

impl Tally {
    fn new(kernel: &Kernel) -> Self {
        Self {
            pair: most_of_pair(kernel),
            number: 0,
            bytes: 0,
        }
    }

    fn add(&mut self, socket: &Socket) {
        self.number += 1;
        self.bytes += socket.held(self.pair);
    }
}

/// A family and a protocol of it.
struct Query {
    family: u8,
    protocol: u8,
}

const fn query(family: libc::c_int, protocol: libc::c_int) -> Query {
    Query {
        family: family as u8,
        protocol: protocol as u8,
    }
}

/// Every kind of socket that the filter allows, but for route sockets.
const QUERIES: [Query; 5] = [
    query(libc::AF_UNIX, 0),
    query(libc::AF_INET, libc::IPPROTO_TCP),
    query(libc::AF_INET6, libc::IPPROTO_TCP),
    query(libc::AF_INET, libc::IPPROTO_UDP),
    query(libc::AF_INET6, libc::IPPROTO_UDP),
];

impl Query {
    fn is_unix(&self) -> bool {
        i32::from(self.family) == libc::AF_UNIX
    }

    fn message(&self) -> Vec<u8> {
        const EVERY_STATE: u32 = u32::MAX;
        /// Peer, length of the queues, memory.
        const OF_PAIRS: u32 = 0x4 | 0x10 | 0x20;
        /// Memory.
        const OF_INTERNET: u8 = 1 << (MEMORY_OF_INTERNET - 1);
        let mut body = vec![self.family, self.protocol];
        if self.is_unix() {
            body.extend([0; 2]);
            for word in [EVERY_STATE, 0, OF_PAIRS, 0, 0] {
                body.extend(word.to_ne_bytes());
            }
        } else {
            body.extend([OF_INTERNET, 0]);
            body.extend(EVERY_STATE.to_ne_bytes());
            // Which socket: all of them.
            body.extend([0; 48]);
        }
        let mut message = Vec::new();
        message.extend((16 + body.len() as u32).to_ne_bytes());
        message.extend(BY_FAMILY.to_ne_bytes());
        message.extend(ASK_FOR_ALL.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        message
    }

    fn answer(&self, message: &[u8]) -> Option<Socket> {
        let (kind, inode, rest) = if self.is_unix() {
            (*message.get(1)?, word(message, 4)?, message.get(16..)?)
        } else {
            (0, word(message, 68)?, message.get(72..)?)
        };
        let mut socket = Socket {
            inode: inode.into(),
            is_packets: self.is_unix() && i32::from(kind) == libc::SOCK_SEQPACKET,
            // Only these can outlive their sender.
            has_sender: !self.is_unix(),
            ..Socket::default()
        };
        for (kind, value) in attributes(rest) {
            match (kind, self.is_unix()) {
                // One that is closed has no number any more.
                (PEER, true) => socket.has_sender = word(value, 0)? != 0,
                (QUEUES, true) => socket.unread = word(value, 0)?.into(),
                (MEMORY, true) | (MEMORY_OF_INTERNET, false) => {
                    let at = |number: usize| word(value, number * 4).map_or(0, u64::from);
                    // Received, sent, reserved, queued, options, not yet processed.
                    socket.accounted = at(0) + at(2).max(at(5)) + at(4) + at(6) + at(7);
                }
                _ => {}
            }
        }
        Some(socket)
    }
}

const PEER: u16 = 2;
const QUEUES: u16 = 4;
const MEMORY: u16 = 5;
const MEMORY_OF_INTERNET: u16 = 7;

#[derive(Debug, Default, PartialEq, Eq)]
struct Socket {
    inode: u64,
    /// Bytes that the kernel charges to it.
    accounted: u64,
    /// Bytes that it has not read.
    unread: u64,
    is_packets: bool,
    has_sender: bool,
}

impl Socket {
    /// Bytes held by a socket. Sent data is charged to the sender; once that is closed, unread data is charged to no
    /// one.
    fn held(&self, pair: u64) -> u64 {
        let left = match (self.has_sender, self.is_packets) {
            (true, _) => 0,
            // Packets may be empty.
            (false, true) => pair,
            (false, false) if self.unread == 0 => 0,
            (false, false) => pair.min(self.unread.saturating_mul(MESSAGE) + EXCESS),
        };
        self.accounted + left
    }
}

/// The messages in what was received, with their kinds.
fn messages(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    pieces(bytes, 16, |header| {
        let length = word(header, 0)? as usize;
        Some((length, half(header, 4)?))
    })
}

/// The attributes behind a message, with their kinds.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    pieces(bytes, 4, |header| {
        Some((half(header, 0)?.into(), half(header, 2)?))
    })
}

/// Pieces that begin with a header in which their length stands, padded to four bytes.
fn pieces(
    mut bytes: &[u8],
    header: usize,
    read: impl Fn(&[u8]) -> Option<(usize, u16)>,
) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind) = read(bytes)?;
        let content = bytes.get(header..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, content))
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let half = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(half))
}

/// Number of sockets in this network namespace.
fn number() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/net/sockstat").ok()?;
    let used = text
        .lines()
        .find_map(|line| line.strip_prefix("sockets: used "))?;
    used.trim().parse().ok()
}

/// Bytes waiting in route sockets, which the kernel reports only in a list of its own.
fn answers(own: bool) -> u64 {
    let text = std::fs::read_to_string("/proc/self/net/netlink").unwrap_or_default();
    let waiting = |line: &str| -> Option<u64> {
        let mut fields = line.split_ascii_whitespace().skip(4);
        let received: u64 = fields.next()?.parse().ok()?;
        Some(received + fields.next()?.parse::<u64>().ok()?)
    };
    let waiting = text.lines().skip(1).filter_map(waiting);
    waiting.filter(|_| own).sum()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;

    fn patient() -> CloseLook {
        CloseLook {
            processor: Duration::MAX,
            end: Instant::now() + Duration::from_secs(20),
        }
    }

    fn open(socket: &UnixStream) -> Descriptors {
        let mut open = Descriptors::default();
        let inode = rustix::fs::fstat(socket.as_fd()).unwrap().st_ino;
        open.sockets.insert(inode);
        open
    }

    /// A pair of which one half was sent as much as it takes.
    fn filled() -> (UnixStream, UnixStream, u64) {
        let (mut sender, receiver) = UnixStream::pair().unwrap();
        sender.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(number) = sender.write(&[1; 1000]) {
            sent += number as u64;
        }
        assert!(sent > 10_000);
        (sender, receiver, sent)
    }

    #[test]
    fn sent_data_counts_for_the_sender_or_the_remaining_receiver() {
        let (sockets, kernel) = (Sockets::new(false), Kernel::read());
        let (sender, receiver, sent) = filled();
        let held = |socket: &UnixStream| sockets.held(&open(socket), &kernel, &patient());
        assert!(held(&sender) >= sent, "{} of {sent}", held(&sender));
        assert!(held(&receiver) < sent, "{}", held(&receiver));
        drop(sender);
        assert!(held(&receiver) >= sent, "{} of {sent}", held(&receiver));
    }

    #[test]
    fn a_kernel_that_tells_nothing_is_taken_at_its_worst() {
        let kernel = Kernel::read();
        let silent = Sockets {
            diag: None,
            own: false,
        };
        let (_sender, receiver, _) = filled();
        let expected = most(&kernel) + SOCKET;
        assert_eq!(silent.held(&open(&receiver), &kernel, &patient()), expected);
        // So are those for which there was no time, and descriptors that cannot be inspected.
        let sockets = Sockets::new(false);
        let late = CloseLook {
            end: Instant::now(),
            ..patient()
        };
        assert_eq!(sockets.held(&open(&receiver), &kernel, &late), expected);
        let dear = CloseLook {
            processor: Duration::ZERO,
            ..patient()
        };
        assert_eq!(sockets.held(&open(&receiver), &kernel, &dear), expected);
        let mut open = Descriptors::default();
        open.unknown = 3;
        assert!(sockets.held(&open, &kernel, &patient()) >= 3 * most(&kernel));
    }

    #[test]
    fn answers_that_are_cut_short_are_no_answers() {
        let whole = Query::message(&QUERIES[0]);
        assert_eq!(messages(&whole).count(), 1);
        for end in 0..whole.len() {
            assert_eq!(messages(&whole[..end]).count(), 0);
            assert_eq!(QUERIES[1].answer(&whole[..end]), None);
        }
    }
}
