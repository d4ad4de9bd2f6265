//! The floor: a client that sends the same requests and does the same work with nothing else.
//!
//! It has no log, no sandbox, no permissions and no JSON; it reads each answer to its end and does
//! the next step of a list that was made from a run of `agent`.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// One thing to do.
pub(crate) enum Step {
    /// Send the request with this body, which is kept in a file, and read the answer.
    Send(String),
    /// Read a file.
    Read(&'static str),
    /// Run a command and keep what it prints in a file.
    Shell(&'static str),
    /// Change a file.
    Replace(&'static str, &'static str, &'static str),
}

/// Writes the list that [`main`] plays.
pub(crate) fn write_steps(path: &Path, steps: &[Step]) {
    let lines: Vec<String> = steps
        .iter()
        .map(|step| match step {
            Step::Send(body) => format!("send\t{body}"),
            Step::Read(path) => format!("read\t{path}"),
            Step::Shell(command) => format!("shell\t{command}"),
            Step::Replace(path, from, to) => format!("replace\t{path}\t{from}\t{to}"),
        })
        .collect();
    fs::write(path, lines.join("\n")).expect("a list of steps");
}

/// `floor ADDRESS PATH STEPS`, in the project's directory.
pub(crate) fn main(arguments: &[String]) {
    let [address, path, steps] = arguments else {
        panic!("floor ADDRESS PATH STEPS");
    };
    let steps = fs::read_to_string(steps).expect("the list of steps");
    for line in steps.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        match words[..] {
            ["send", body] => send(address, path, &fs::read(body).expect("a body")),
            ["read", path] => drop(fs::read(path).expect("a file")),
            ["shell", command] => shell(command),
            ["replace", path, from, to] => {
                let text = fs::read_to_string(path).expect("a file");
                fs::write(path, text.replace(from, to)).expect("room");
            }
            _ => panic!("no step: {line}"),
        }
    }
}

const END: &[u8] = b"\r\n0\r\n\r\n";

fn send(address: &str, path: &str, body: &[u8]) {
    let mut stream = TcpStream::connect(address).expect("the server");
    stream.set_nodelay(true).expect("a socket");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("the server reads");
    stream.write_all(body).expect("the server reads");
    let mut buffer = [0; 64 * 1024];
    let mut last = Vec::new();
    loop {
        let read = stream.read(&mut buffer).expect("an answer");
        // The end of a chunked body; the server closes after it, but need not be waited for. It stands
        // on a line of its own: a header may end in a zero too.
        last.extend_from_slice(&buffer[read.saturating_sub(END.len())..read]);
        if read == 0 || last.ends_with(END) {
            return;
        }
        let keep = last.len().saturating_sub(END.len());
        last.drain(..keep);
    }
}

fn shell(command: &str) {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell");
    let mut output = child.stdout.take().expect("its output");
    let mut kept = File::create("../kept-output").expect("a file");
    io::copy(&mut output, &mut kept).expect("room");
    child.wait().expect("its end");
}
