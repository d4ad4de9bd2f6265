//! The way to a model server: TLS with the system's certificates, HTTP/2, proxies, and what a user
//! is told when a certificate is not trusted.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use agent_test_support::model_server::{ModelServer, Script, Turn, Wire};
use agent_test_support::project::TestProject;
use agent_test_support::run::Run;
use serde_json::Value;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::agent;

/// One whole answer of a Chat Completions server.
const ANSWER: &str = "data: {\"id\":\"r1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"It got here.\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/tls")
        .join(name)
}

/// Request as the TLS server saw it: the protocol agreed on, and the path.
type Seen = (String, String);

/// A server that speaks TLS and offers HTTP/2 alone. Its certificate is for `localhost` and
/// `model.test`, by an authority no system knows.
fn tls_server() -> (u16, Receiver<Seen>) {
    tls_server_with("server")
}

/// The same with a certificate by its name among the fixtures.
fn tls_server_with(certificate: &'static str) -> (u16, Receiver<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, seen) = channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(serve(listener, sender, certificate));
    });
    (port, seen)
}

async fn serve(listener: TcpListener, seen: Sender<Seen>, name: &str) {
    let certificate = std::fs::read(fixture(&format!("{name}.der"))).unwrap();
    let certificate = CertificateDer::from(certificate);
    let key = std::fs::read(fixture(&format!("{name}-key.der"))).unwrap();
    let key = PrivateKeyDer::Pkcs8(key.into());
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        // A client that does not trust the certificate leaves here.
        let Ok(stream) = acceptor.accept(stream).await else {
            continue;
        };
        let agreed = stream.get_ref().1.alpn_protocol().unwrap_or_default();
        let agreed = String::from_utf8_lossy(agreed).into_owned();
        let Ok(mut connection) = h2::server::handshake(stream).await else {
            continue;
        };
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let _ = seen.send((agreed.clone(), request.uri().path().to_owned()));
            let head = http::Response::builder()
                .header("content-type", "text/event-stream")
                .body(())
                .unwrap();
            let mut body = respond.send_response(head, false).unwrap();
            body.send_data(ANSWER.into(), true).unwrap();
        }
    }
}

/// A proxy for one connection: notes the first line, then answers itself or opens a tunnel to
/// `tunnel`, a port on this machine.
fn proxy(tunnel: Option<u16>) -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, asked) = channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut length = 0;
        let mut first = String::new();
        reader.read_line(&mut first).unwrap();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        sender.send(first.trim().to_owned()).unwrap();
        let mut stream = stream;
        match tunnel {
            None => {
                reader.read_exact(&mut vec![0; length]).unwrap();
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{ANSWER}",
                    ANSWER.len()
                )
                .unwrap();
            }
            Some(port) => {
                stream
                    .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    .unwrap();
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let (mut up, mut down) = (server.try_clone().unwrap(), stream.try_clone().unwrap());
                let back = std::thread::spawn(move || std::io::copy(&mut up, &mut down));
                let mut server = server;
                let _ = std::io::copy(&mut reader, &mut server);
                let _ = server.shutdown(std::net::Shutdown::Both);
                let _ = back.join();
            }
        }
    });
    (port, asked)
}

/// `agent run` with a model at `base_url`, and one attempt only.
fn run(project: &TestProject, base_url: &str) -> Run {
    project.write_home(
        "config.toml",
        format!(
            "model = \"far/m\"\n[providers.far]\nbase_url = \"{base_url}\"\nmax_attempts = 1\n"
        ),
    );
    agent(project, &["run", "--output", "json", "Say something."])
}

fn said(report: &Value) -> &str {
    report["final_text"].as_str().unwrap_or_default()
}

#[test]
fn http_2_is_spoken_over_tls_with_the_system_s_certificates() {
    let project = TestProject::new();
    let (port, seen) = tls_server();
    let ran = run(&project, &format!("https://localhost:{port}/v1"))
        .env("SSL_CERT_FILE", fixture("authority.pem"))
        .finish();
    assert_eq!(ran.code(), 0, "{}{}", ran.stdout(), ran.stderr());
    assert_eq!(said(&ran.json()), "It got here.", "{}", ran.stdout());
    let request = seen.try_recv().unwrap();
    assert_eq!(
        request,
        ("h2".to_owned(), "/v1/chat/completions".to_owned())
    );
}

#[test]
fn a_certificate_that_is_not_trusted_is_named_with_what_to_do() {
    let project = TestProject::new();
    let (port, seen) = tls_server();
    let base = format!("https://localhost:{port}/v1");
    let ran = run(&project, &base).finish();
    assert_eq!(ran.code(), 1, "{}{}", ran.stdout(), ran.stderr());
    assert!(seen.try_recv().is_err(), "nothing was sent");
    let sessions = project.root().join(".agent/sessions");
    let session = std::fs::read_dir(sessions)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let log = std::fs::read_to_string(session.path().join("events.jsonl")).unwrap();
    let failed = log
        .lines()
        .find(|line| line.contains(r#""type":"model.failed""#))
        .unwrap();
    let failed: Value = serde_json::from_str(failed).unwrap();
    assert_eq!(failed["payload"]["kind"], "tls");
    let hint = format!(
        "the certificate of {base} is not trusted: if a proxy inspects TLS, add its certificate to the system's store (or SSL_CERT_FILE)"
    );
    assert!(
        failed["payload"].to_string().contains(&hint),
        "{}",
        failed["payload"]
    );
}

#[test]
fn a_proxy_is_used_unless_it_is_said_not_to() {
    let project = TestProject::new();
    let (port, asked) = proxy(None);
    let address = format!("http://127.0.0.1:{port}");
    let ran = run(&project, "http://model.test/v1")
        .env("http_proxy", &address)
        .finish();
    assert_eq!(ran.code(), 0, "{}{}", ran.stdout(), ran.stderr());
    assert_eq!(said(&ran.json()), "It got here.");
    let first = asked.try_recv().unwrap();
    assert_eq!(first, "POST http://model.test/v1/chat/completions HTTP/1.1");

    let (port, asked) = proxy(None);
    let address = format!("http://127.0.0.1:{port}");
    let ran = run(&project, "http://model.test/v1")
        .env("http_proxy", &address)
        .env("no_proxy", "model.test")
        .finish();
    assert_eq!(ran.code(), 1, "{}", ran.stdout());
    assert!(
        asked.try_recv().is_err(),
        "it was told to go past the proxy"
    );
}

#[test]
fn tls_goes_through_the_tunnel_of_a_proxy() {
    let project = TestProject::new();
    let (server, seen) = tls_server();
    let (port, asked) = proxy(Some(server));
    let ran = run(&project, "https://model.test/v1")
        .env("https_proxy", format!("http://127.0.0.1:{port}"))
        .env("SSL_CERT_FILE", fixture("authority.pem"))
        .finish();
    assert_eq!(ran.code(), 0, "{}{}", ran.stdout(), ran.stderr());
    assert_eq!(asked.try_recv().unwrap(), "CONNECT model.test:443 HTTP/1.1");
    assert_eq!(seen.try_recv().unwrap().0, "h2");
}

/// What `openssl req -x509` makes is an authority, which no server may be; naming it does not help,
/// and the user is told what does.
#[test]
fn a_certificate_that_signs_itself_as_an_authority_is_told_apart() {
    let project = TestProject::new();
    let (port, seen) = tls_server_with("self-signed");
    let ran = run(&project, &format!("https://localhost:{port}/v1"))
        .env("SSL_CERT_FILE", fixture("self-signed.pem"))
        .finish();
    assert_eq!(ran.code(), 1, "{}{}", ran.stdout(), ran.stderr());
    assert!(seen.try_recv().is_err(), "nothing was sent");
    let report = ran.json();
    let error = report["error"].as_str().unwrap();
    assert!(
        error.contains("CA:TRUE") && error.contains("-addext basicConstraints=critical,CA:FALSE"),
        "{error}"
    );
}

#[test]
fn where_a_redirect_leads_is_told_without_what_may_be_secret() {
    let project = TestProject::new();
    let moved = Turn::error(307, "").header("location", "https://me:pw@new.test/v1?token=hidden");
    let server = ModelServer::start(Script::new().turn(moved));
    let ran = run(&project, &server.openai_url()).finish();
    assert_eq!(ran.code(), 1, "{}{}", ran.stdout(), ran.stderr());
    let report = ran.json();
    let error = report["error"].as_str().unwrap();
    assert!(
        error.contains("redirects to https://new.test/v1;") && error.contains("`base_url`"),
        "{error}"
    );
    assert_eq!(server.requests().len(), 1, "nothing went after it");
}

#[test]
fn a_server_that_wants_to_be_left_alone_says_for_how_long() {
    let project = TestProject::new();
    let limited = Turn::error(429, "slow down").header("retry-after", "5400");
    let server = ModelServer::start(Script::new().turn(limited));
    let ran = run(&project, &server.openai_url()).finish();
    assert_eq!(ran.code(), 1, "{}{}", ran.stdout(), ran.stderr());
    let report = ran.json();
    let error = report["error"].as_str().unwrap();
    assert!(error.contains("wait 90 minutes as requested"), "{error}");
}

#[test]
fn a_second_attempt_is_told_also_to_a_file() {
    let project = TestProject::new();
    let busy = Turn::error(503, "come back later").header("retry-after", "0");
    let script = Script::new().turn(busy).turn(Turn::text("Hello."));
    let server = ModelServer::start(script);
    let ran = crate::run::run(&project, &server, Wire::Chat, &["Say hello."]).finish();
    let ran = ran.expect_code(0);
    assert_eq!(ran.stdout(), "Hello.\n");
    let told = ran.stderr();
    let lines: Vec<&str> = told.lines().filter(|line| line.starts_with('!')).collect();
    assert_eq!(lines.len(), 1, "{told}");
    assert!(
        lines[0].ends_with(" is overloaded; retrying in 1 s (2 of 5)"),
        "{told}"
    );
}

/// A server that never ends fills neither memory nor disk.
#[test]
fn an_answer_without_an_end_is_cut_off() {
    for wire in Wire::ALL {
        let project = TestProject::new();
        let endless = Turn::text(&"and so on ".repeat(2 << 20)).in_deltas_of(1 << 20);
        let server = ModelServer::start(Script::new().turn(endless));
        let ran = crate::run::run(&project, &server, wire, &["--output", "json", "Go on."]);
        let ran = ran.finish();
        assert_eq!(ran.code(), 1, "{}", ran.stderr());
        let report = ran.json();
        assert_eq!(report["stop_reason"], "malformed", "{wire:?}");
        let error = report["error"].as_str().unwrap();
        assert!(error.contains("larger than 16777216 bytes"), "{error}");
        assert_eq!(server.requests().len(), 1, "the same would come again");
    }
}
