//! The HTTP side: one request per connection, answered in chunks that can go wrong anywhere.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Shared;
use super::script::{Fault, Turn};
use super::wire::Wire;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// `POST`, mostly.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, byte for byte; empty when the script keeps none.
    pub body: Vec<u8>,
    /// Arrival of the request's first line.
    pub arrived_at: Instant,
}

impl RecordedRequest {
    /// The value of a header; the name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Serves one connection. Errors are the client's business: it may hang up whenever it likes.
pub(super) fn serve(stream: TcpStream, shared: &Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let Ok(request) = read_request(&stream) else {
        return;
    };
    if request.method == "GET" {
        let body = json!({"object": "list", "data": [{"id": "scripted-model", "object": "model"}]})
            .to_string();
        let _ = plain(&stream, 200, "application/json", &[], body.as_bytes());
        return;
    }
    let Some(wire) = Wire::of_path(&request.path) else {
        let _ = plain(
            &stream,
            404,
            "application/json",
            &[],
            b"{\"error\":{\"message\":\"no such path\"}}",
        );
        return;
    };
    let number = {
        let mut state = shared.lock();
        let mut kept = request.clone();
        if !shared.script.keeps_bodies() {
            kept.body = Vec::new();
        }
        state.requests.push(kept);
        state.requests.len() - 1
    };
    let turn = shared.script.answer(number, &request);
    shared.changed.notify_all();
    if answer(&stream, shared, wire, &turn, number, &request).is_err() {
        shared.note_hang_up();
    }
    shared.lock().answered_at.push(Instant::now());
}

fn read_request(stream: &TcpStream) -> io::Result<RecordedRequest> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let arrived_at = Instant::now();
    let mut words = line.split_whitespace();
    let (method, path) = (
        words.next().unwrap_or_default().to_owned(),
        words.next().unwrap_or_default().to_owned(),
    );
    let mut headers = Vec::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(RecordedRequest {
        method,
        path,
        headers,
        body,
        arrived_at,
    })
}

fn plain(
    mut stream: &TcpStream,
    status: u16,
    kind: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> io::Result<()> {
    let mut head = format!(
        "HTTP/1.1 {status} Scripted\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    stream.flush()
}

fn answer(
    mut stream: &TcpStream,
    shared: &Shared,
    wire: Wire,
    turn: &Turn,
    number: usize,
    request: &RecordedRequest,
) -> io::Result<()> {
    for fault in &turn.faults {
        match fault {
            Fault::Delay(time) => shared.pause(*time),
            Fault::CloseAtOnce => return stream.shutdown(Shutdown::Both),
            Fault::NotHttp => return stream.write_all(b"\x00\x01\x02 this is not HTTP\r\n\r\n"),
            Fault::WebPage => {
                return plain(
                    stream,
                    200,
                    "text/html",
                    &turn.headers,
                    b"<!doctype html><title>Sign in</title>",
                );
            }
            _ => {}
        }
    }
    if turn.status != 0 && turn.status != 200 {
        let body = wire.error_body(turn.status, &turn.text);
        return plain(
            stream,
            turn.status,
            "application/json",
            &turn.headers,
            body.as_bytes(),
        );
    }
    let mut head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n".to_owned();
    if !turn
        .headers
        .iter()
        .any(|(name, _)| name == "x-request-id" || name == "request-id")
    {
        head.push_str(&format!("x-request-id: req_{number}\r\n"));
    }
    for (name, value) in &turn.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if turn.has(&Fault::Gzip) {
        head.push_str("content-encoding: gzip\r\n");
    }
    if turn.has(&Fault::ForeignEncoding) {
        head.push_str("content-encoding: br\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    let asked = request.json()["model"].clone();
    let asked = asked.as_str().unwrap_or("scripted-model");
    let model = turn.served_by.as_deref().unwrap_or(asked).to_owned();
    let mut body = Body {
        stream,
        shared,
        turn,
        sent: 0,
        held: turn.has(&Fault::Gzip).then(Vec::new),
    };
    if turn.has(&Fault::ByteOrderMark) {
        body.write("\u{feff}")?;
    }
    if turn.has(&Fault::Comments) {
        body.write(": scripted\n\n:\n\n")?;
    }
    let events = wire.events(turn, number, &model);
    for (count, (name, data)) in events.iter().enumerate() {
        for fault in &turn.faults {
            match fault {
                Fault::StallAfterEvents(after) if *after == count => return body.stall(),
                Fault::CutAfterEvents(after) if *after == count => {
                    return stream.shutdown(Shutdown::Both);
                }
                Fault::HalfCloseAfterEvents(after) if *after == count => {
                    stream.shutdown(Shutdown::Write)?;
                    return body.stall();
                }
                Fault::KeepAliveAfterEvents(after, pause) if *after == count => loop {
                    body.write(": still here\n\n")?;
                    shared.pause(*pause);
                },
                Fault::GarbageAfterEvents(after) if *after == count => {
                    body.write("data: {\"broken\": \u{fffd}\n\n")?
                }
                Fault::ErrorAfterEvents(after) if *after == count => {
                    let (name, data) = wire.error_event();
                    body.event(name.as_deref(), &data)?;
                    return body.end();
                }
                _ => {}
            }
        }
        if !body.event(name.as_deref(), data)? {
            return stream.shutdown(Shutdown::Both);
        }
    }
    if turn.has(&Fault::StallAtEnd) {
        return body.stall();
    }
    body.end()
}

/// A chunked body.
struct Body<'a> {
    stream: &'a TcpStream,
    shared: &'a Shared,
    turn: &'a Turn,
    sent: usize,
    /// Body collected so far when it is compressed; it is sent at the end.
    held: Option<Vec<u8>>,
}

impl Body<'_> {
    /// Writes an event; `false` when the script cuts the body inside it.
    fn event(&mut self, name: Option<&str>, data: &str) -> io::Result<bool> {
        let mut text = String::new();
        if self.turn.has(&Fault::Comments) {
            text.push_str(": keep-alive\n\n");
        }
        if let Some(name) = name {
            text.push_str(&format!("event: {name}\n"));
        }
        text.push_str(&format!("data: {data}\n\n"));
        let cut = self.turn.faults.iter().find_map(|fault| match fault {
            Fault::CutAfterBytes(after) => Some(*after),
            _ => None,
        });
        if let Some(cut) = cut
            && self.sent + text.len() > cut
        {
            let kept = text.as_bytes()[..cut - self.sent].to_vec();
            self.chunk(&kept)?;
            return Ok(false);
        }
        self.write(&text)?;
        Ok(true)
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        let text = if self.turn.has(&Fault::Crlf) {
            text.replace('\n', "\r\n")
        } else {
            text.to_owned()
        };
        self.sent += text.len();
        let drip = self.turn.faults.iter().find_map(|fault| match fault {
            Fault::Drip(bytes, pause) => Some(((*bytes).max(1), *pause)),
            _ => None,
        });
        match drip {
            None => self.chunk(text.as_bytes()),
            Some((bytes, pause)) => {
                for piece in text.as_bytes().chunks(bytes) {
                    self.chunk(piece)?;
                    if !pause.is_zero() {
                        self.shared.pause(pause);
                    }
                }
                Ok(())
            }
        }
    }

    fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(held) = &mut self.held {
            held.extend_from_slice(bytes);
            return Ok(());
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
        framed.extend_from_slice(bytes);
        framed.extend_from_slice(b"\r\n");
        self.stream.write_all(&framed)
    }

    fn end(&mut self) -> io::Result<()> {
        if let Some(held) = self.held.take() {
            self.chunk(&gzip(&held))?;
        }
        self.stream.write_all(b"0\r\n\r\n")
    }

    /// Waits for the client to hang up.
    fn stall(&mut self) -> io::Result<()> {
        self.stream
            .set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => Err(io::ErrorKind::ConnectionAborted.into()),
            _ => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// `bytes` in the form of gzip, in blocks that are not compressed: what matters is that the client
/// has to undo it.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let blocks: Vec<&[u8]> = bytes.chunks(0xffff).collect();
    for (number, block) in blocks.iter().enumerate() {
        let length = u16::try_from(block.len()).expect("a block is that small");
        file.push(u8::from(number + 1 == blocks.len()));
        file.extend_from_slice(&length.to_le_bytes());
        file.extend_from_slice(&(!length).to_le_bytes());
        file.extend_from_slice(block);
    }
    file.extend_from_slice(&crc32(bytes).to_le_bytes());
    let length = u32::try_from(bytes.len()).expect("a short body");
    file.extend_from_slice(&length.to_le_bytes());
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = sum & 1;
            sum = (sum >> 1) ^ (0xedb8_8320 * carry);
        }
    }
    !sum
}
