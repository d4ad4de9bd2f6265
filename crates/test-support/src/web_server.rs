//! A server of pages on loopback that says exactly what a test wants it to say, byte by byte.
#![allow(
    clippy::unwrap_used,
    reason = "linked into tests only, where a broken script should stop the test"
)]

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// Answers each connection with what it was made with, and keeps what it was asked.
#[derive(Debug)]
pub struct WebServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl WebServer {
    /// A server that writes the whole answer itself, to the target of each request.
    pub fn new(
        answer: impl Fn(&str, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, kept) = (Arc::new(answer), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, kept) = (Arc::clone(&answer), Arc::clone(&kept));
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut head = Vec::new();
                    let mut byte = [0];
                    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                        head.push(byte[0]);
                    }
                    let head = String::from_utf8(head).unwrap();
                    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
                    let mut asked = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    asked.push(head);
                    drop(asked);
                    // Whoever has enough hangs up.
                    let _ = answer(&target, &mut stream);
                });
            }
        });
        Self { address, asked }
    }

    /// A server that says the status line and headers in `head`, the length and `body`.
    pub fn says(head: &str, body: &[u8]) -> Self {
        let (head, body) = (head.to_owned(), body.to_vec());
        Self::new(move |_, stream| say(stream, &head, &body))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The heads of all requests so far.
    pub fn asked(&self) -> Vec<String> {
        let asked = self.asked.lock();
        asked.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One answer with its length.
///
/// # Errors
/// When nobody listens any more.
pub fn say(stream: &mut TcpStream, head: &str, body: &[u8]) -> io::Result<()> {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {head}\r\nContent-Length: {length}\r\n\r\n"
    )?;
    stream.write_all(body)
}
