//! Model servers on this machine, found on their usual ports.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::catalog::BUILT_IN;

/// The most bytes of a model list that are read.
const LIST_CAP: u64 = 1024 * 1024;

/// A local server that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalServer {
    /// The built-in provider whose port it has.
    pub provider: &'static str,
    /// Its base URL.
    pub base_url: String,
    /// The models it offers, in its own order.
    pub models: Vec<String>,
}

/// Looks for model servers on the loopback ports of the built-in local providers. A port where
/// nothing listens costs microseconds; one that listens is given `patience` to list its models, and
/// is left out when it does not, since other programs use these ports too.
pub fn find_local_servers(patience: Duration) -> Vec<LocalServer> {
    let ports = BUILT_IN
        .iter()
        .filter_map(|provider| Some((provider.name, provider.base_url, provider.local_port?)));
    find_on(ports, patience)
}

fn find_on<'a>(
    ports: impl Iterator<Item = (&'static str, &'a str, u16)>,
    patience: Duration,
) -> Vec<LocalServer> {
    // A busy port must not make the others wait.
    std::thread::scope(|scope| {
        let probes: Vec<_> = ports
            .map(|(provider, base_url, port)| {
                scope.spawn(move || {
                    Some(LocalServer {
                        provider,
                        base_url: base_url.to_owned(),
                        models: list_models(port, patience)?,
                    })
                })
            })
            .collect();
        probes
            .into_iter()
            .filter_map(|probe| probe.join().ok().flatten())
            .collect()
    })
}

/// `GET /v1/models`, by hand: building an HTTP client would take longer than the question.
fn list_models(port: u16, patience: Duration) -> Option<Vec<String>> {
    let deadline = Instant::now() + patience;
    let mut stream =
        TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), patience)
            .ok()?;
    stream.set_write_timeout(Some(patience)).ok()?;
    // HTTP/1.0 keeps the answer free of chunks and closes the connection after it.
    stream.write_all(format!("GET /v1/models HTTP/1.0\r\nhost: 127.0.0.1:{port}\r\naccept: application/json\r\n\r\n").as_bytes()).ok()?;
    let mut answer = Vec::new();
    let mut piece = [0; 8 * 1024];
    loop {
        let left = deadline
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())?;
        stream.set_read_timeout(Some(left)).ok()?;
        match stream.read(&mut piece).ok()? {
            0 => break,
            read => answer.extend_from_slice(&piece[..read]),
        }
        if answer.len() as u64 > LIST_CAP {
            return None;
        }
        if let Some(models) = parse_list(&answer) {
            return Some(models);
        }
    }
    parse_list(&answer)
}

/// The ids in a model list; `None` while it is incomplete, or when it is none.
fn parse_list(answer: &[u8]) -> Option<Vec<String>> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    if head.split_whitespace().nth(1) != Some("200") {
        return None;
    }
    // A server that insists on chunks still sends one JSON object between its sizes.
    let body = &body[body.find('{')?..=body.rfind('}')?];
    let list: Value = serde_json::from_str(body).ok()?;
    let data = list.get("data")?.as_array()?;
    Some(
        data.iter()
            .filter_map(|model| model.get("id")?.as_str().map(str::to_owned))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const PATIENCE: Duration = Duration::from_millis(300);

    fn serve_once(answer: &'static [u8]) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer);
        });
        port
    }

    #[test]
    fn a_model_server_is_found_and_others_are_not() {
        let model = serve_once(b"HTTP/1.1 200 OK\r\n\r\n{\"object\":\"list\",\"data\":[{\"id\":\"a\"},{\"id\":\"b\"}]}");
        let chunked = serve_once(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n19\r\n{\"data\":[{\"id\":\"chunky\"}]}\r\n0\r\n\r\n");
        let page = serve_once(b"HTTP/1.1 200 OK\r\n\r\n<html></html>");
        let missing = serve_once(b"HTTP/1.1 404 Not HostCredentials\r\n\r\n{\"data\":[]}");
        let ports = [
            ("ollama", "u1", model),
            ("vllm", "u2", chunked),
            ("llamacpp", "u3", page),
            ("lmstudio", "u4", missing),
        ];
        let found = find_on(ports.into_iter(), PATIENCE);
        let found: Vec<(&str, &[String])> = found
            .iter()
            .map(|server| (server.provider, server.models.as_slice()))
            .collect();
        assert_eq!(
            found,
            [
                ("ollama", &["a".to_owned(), "b".to_owned()][..]),
                ("vllm", &["chunky".to_owned()][..])
            ]
        );
    }

    #[test]
    fn a_port_that_says_nothing_is_given_up_in_time() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let begin = Instant::now();
        assert_eq!(
            find_on(
                [("ollama", "u", port)].into_iter(),
                Duration::from_millis(50)
            ),
            []
        );
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
}
