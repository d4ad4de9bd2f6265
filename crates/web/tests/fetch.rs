//! The fetcher against a server on this machine that says exactly what a test wants it to say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failure is the report

use std::io::{self, Write as _};
use std::net::{IpAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent_policy::WebAddress;
use agent_test_support::web_server::{WebServer, say};
use agent_web::{FetchError, Fetcher, Limits, Page, Reach, Resolver};

/// An address at the server.
fn at(server: &WebServer, path: &str) -> WebAddress {
    WebAddress::parse(&format!("http://{}{path}", server.address())).unwrap()
}

/// An address at the server's port of another host.
fn named(server: &WebServer, host: &str, path: &str) -> WebAddress {
    let port = server.address().port();
    WebAddress::parse(&format!("http://{host}:{port}{path}")).unwrap()
}

/// Names mean what the test says, each time anew.
struct Names<F>(F);

impl<F: Fn(&str) -> Vec<IpAddr> + Send + Sync> Resolver for Names<F> {
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(self.0(host))
    }
}

fn limits() -> Limits {
    Limits {
        bytes: 100_000,
        time: Duration::from_secs(30),
        redirects: 3,
    }
}

fn fetcher(names: impl Fn(&str) -> Vec<IpAddr> + Send + Sync + 'static) -> Fetcher {
    Fetcher::new(Arc::new(Names(names)), limits())
}

fn nobody(host: &str) -> Vec<IpAddr> {
    panic!("`{host}` was looked up")
}

fn fetch(address: &WebAddress) -> Result<Page, FetchError> {
    fetcher(nobody).fetch(address, Reach::Private, |_| ())
}

#[test]
fn a_page_comes_as_it_is() {
    let server = WebServer::says(
        "200 OK\r\nContent-Type: Text/HTML; a=b; Charset=\"latin1\"",
        b"\xe4",
    );
    let page = fetch(&at(&server, "/a?b=c")).unwrap();
    assert_eq!((page.status, &page.bytes[..]), (200, &b"\xe4"[..]));
    assert_eq!(page.media_type.as_deref(), Some("text/html"));
    assert_eq!(page.charset.as_deref(), Some("latin1"));
    assert_eq!(page.machine, Some("127.0.0.1".parse().unwrap()));
    let asked = server.asked()[0].to_lowercase();
    assert!(asked.starts_with("get /a?b=c http/1.1\r\n"), "{asked}");
    for header in ["cookie:", "authorization:", "referer:"] {
        assert!(!asked.contains(header), "{asked}");
    }
    let server = WebServer::says("404 Not Found\r\nContent-Type: text/plain", b"gone");
    let page = fetch(&at(&server, "/")).unwrap();
    assert_eq!((page.status, &page.bytes[..]), (404, &b"gone"[..]));
}

#[test]
fn the_same_host_may_lead_on_and_another_is_only_named() {
    let there = WebServer::says("200 OK", b"there");
    let elsewhere = at(&there, "/x").url().to_string();
    let server = WebServer::new(move |path, stream| {
        let location = match path {
            "/1" => "/2",
            "/2" => "3?a=b#c",
            "/out" => elsewhere.as_str(),
            "/round" => "/round",
            "/file" => "file:///etc/passwd",
            "/user" => "http://a:b@docs.rs/",
            "/name" => "http://docs.rs/",
            _ => {
                return say(stream, "200 OK", b"here");
            }
        };
        say(stream, &format!("302 Found\r\nLocation: {location}"), b"")
    });
    let page = fetch(&at(&server, "/1")).unwrap();
    assert_eq!(page.bytes, b"here");
    assert_eq!(page.address, at(&server, "/3?a=b"));
    let from: Vec<String> = ["/1", "/2"]
        .map(|path| at(&server, path).url().to_string())
        .into();
    assert_eq!(page.redirects, from);
    // Another port is another server.
    let page = fetch(&at(&server, "/out")).unwrap();
    assert_eq!((page.elsewhere, page.status), (Some(at(&there, "/x")), 302));
    assert_eq!(there.asked().len(), 0);
    // So is another name: it is not even looked up.
    let page = fetch(&at(&server, "/name")).unwrap();
    assert_eq!(
        page.elsewhere,
        Some(WebAddress::parse("http://docs.rs/").unwrap())
    );
    assert!(matches!(
        fetch(&at(&server, "/round")),
        Err(FetchError::TooManyRedirects { limit: 3, .. })
    ));
    for path in ["/file", "/user"] {
        assert!(
            matches!(
                fetch(&at(&server, path)),
                Err(FetchError::BadRedirect { .. })
            ),
            "{path}"
        );
    }
}

#[test]
fn a_name_is_looked_up_once_and_led_to_exactly_there() {
    let server = WebServer::says("200 OK", b"x");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    // The second time it would lead elsewhere.
    let names = fetcher(move |host| {
        assert_eq!(host, "wiki.example");
        match count.fetch_add(1, Ordering::SeqCst) {
            0 => vec!["127.0.0.1".parse().unwrap()],
            _ => vec!["127.0.0.2".parse().unwrap()],
        }
    });
    let page = names.fetch(&named(&server, "wiki.example", "/"), Reach::Private, |_| ());
    assert_eq!(page.unwrap().machine, Some("127.0.0.1".parse().unwrap()));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let head = server.asked()[0].to_lowercase();
    assert!(
        head.contains(&format!("host: wiki.example:{}", server.address().port())),
        "{head}"
    );
}

#[test]
fn no_name_leads_to_a_machine_that_is_not_everybodys() {
    let server = WebServer::says("200 OK", b"secret");
    for machine in [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "fd00::1",
        "fe80::1",
        "0.0.0.0",
        "64:ff9b::7f00:1",
    ] {
        let machine: IpAddr = machine.parse().unwrap();
        // One of several is enough: which of them is connected to is not ours to say.
        for all in [vec![machine], vec!["1.1.1.1".parse().unwrap(), machine]] {
            let names = fetcher(move |_| all.clone());
            let error = names.fetch(&named(&server, "evil.example", "/"), Reach::Public, |_| ());
            let error = error.unwrap_err();
            assert!(
                matches!(&error, FetchError::Private { ip, .. } if *ip == machine),
                "{error}"
            );
        }
    }
    // Nor does a number, however it is spelt.
    for host in ["127.0.0.1", "0x7f.1", "[::ffff:127.0.0.1]"] {
        let error = fetcher(nobody).fetch(&named(&server, host, "/"), Reach::Public, |_| ());
        assert!(matches!(error, Err(FetchError::Private { .. })), "{host}");
    }
    assert_eq!(server.asked().len(), 0);
    let names = fetcher(|_| Vec::new());
    let error = names.fetch(
        &named(&server, "nobody.example", "/"),
        Reach::Public,
        |_| (),
    );
    assert!(matches!(error, Err(FetchError::Unresolved { .. })));
}

/// A host that was allowed may not lead to the machine it names on the way either.
#[test]
fn a_name_that_leads_on_to_itself_is_looked_up_and_checked_again() {
    let server = WebServer::says("302 Found\r\nLocation: /again", b"");
    let asked = AtomicUsize::new(0);
    let names = fetcher(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => vec!["127.0.0.1".parse().unwrap()],
        _ => Vec::new(),
    });
    let error = names.fetch(&named(&server, "wiki.example", "/"), Reach::Private, |_| ());
    assert!(matches!(error, Err(FetchError::Unresolved { .. })));
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn an_endless_answer_ends() {
    let server = WebServer::new(|path, stream| {
        let head = match path {
            "/length" => "Content-Length: 99999999\r\n",
            "/pieces" => "Transfer-Encoding: chunked\r\n",
            _ => "",
        };
        write!(stream, "HTTP/1.1 200 OK\r\n{head}\r\n")?;
        loop {
            if path == "/pieces" {
                write!(stream, "400\r\n{}\r\n", "x".repeat(0x400))?;
            } else {
                stream.write_all(&[b'x'; 0x400])?;
            }
        }
    });
    for path in ["/length", "/pieces", "/close"] {
        let error = fetch(&at(&server, path)).unwrap_err();
        assert!(
            matches!(error, FetchError::TooLarge { limit: 100_000, .. }),
            "{path}: {error}"
        );
    }
}

/// The limit is on what comes out of it: 64 KiB here are 64 MiB.
#[test]
fn a_packed_answer_is_measured_unpacked() {
    // One stored block of deflate, of zeros, repeated: 1 MiB of zeros is about 1 KiB.
    let bomb = include_bytes!("zeros.gz");
    let head = "200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip";
    let server = WebServer::says(head, bomb);
    let error = fetch(&at(&server, "/")).unwrap_err();
    assert!(matches!(error, FetchError::TooLarge { .. }), "{error}");
    let server = WebServer::says(head, b"not gzip");
    let error = fetch(&at(&server, "/")).unwrap_err();
    assert!(matches!(error, FetchError::BrokeOff { .. }), "{error}");
}

#[test]
fn a_slow_answer_is_not_waited_for() {
    let (hold, held): (Sender<()>, Receiver<()>) = channel();
    let held = Mutex::new(held);
    let server = WebServer::new(move |path, stream| {
        if path == "/body" {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx")?;
        }
        // Nothing more until the test is over.
        let _ = held.lock().unwrap().recv();
        Ok(())
    });
    let impatient = Fetcher::new(
        Arc::new(Names(nobody)),
        Limits {
            time: Duration::from_millis(300),
            ..limits()
        },
    );
    for path in ["/head", "/body"] {
        let begun = Instant::now();
        let error = impatient.fetch(&at(&server, path), Reach::Private, |_| ());
        assert!(matches!(error, Err(FetchError::Timeout { .. })), "{path}");
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    // Whoever stops it does not wait either, before and while it runs.
    let error = fetcher(nobody).fetch(&at(&server, "/body"), Reach::Private, |stop| stop());
    assert!(matches!(error, Err(FetchError::Stopped)));
    let error = fetcher(nobody).fetch(&at(&server, "/body"), Reach::Private, |stop| {
        std::thread::spawn(stop);
    });
    assert!(matches!(error, Err(FetchError::Stopped)));
    drop(hold);
}

#[test]
fn nobody_there_and_half_an_answer_are_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = listener.local_addr().unwrap();
    drop(listener);
    let address = WebAddress::parse(&format!("http://{free}/")).unwrap();
    let error = fetch(&address).unwrap_err();
    assert!(matches!(&error, FetchError::Unreachable { .. }), "{error}");
    let server = WebServer::new(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
    });
    let error = fetch(&at(&server, "/")).unwrap_err();
    assert!(matches!(&error, FetchError::BrokeOff { .. }), "{error}");
    let server = WebServer::new(|_, stream| stream.write_all(b"hello\r\n\r\n"));
    let error = fetch(&at(&server, "/")).unwrap_err();
    assert!(matches!(&error, FetchError::Unreachable { .. }), "{error}");
}
