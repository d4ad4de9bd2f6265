//! A scripted model on loopback that speaks Chat Completions, Responses and Anthropic Messages over
//! real HTTP, misbehaves on demand and keeps every request it was sent.
//!
//! ```
//! use agent_test_support::model_server::{ModelServer, Script, Turn};
//!
//! let server = ModelServer::start(
//!     Script::new()
//!         .turn(Turn::call("read", serde_json::json!({"path": "src/lib.rs"})))
//!         .turn(Turn::text("Done.")),
//! );
//! // point the client at `server.openai_url()` or `server.anthropic_url()`, then check
//! assert!(server.requests().is_empty());
//! ```
//!
//! It runs in its own threads, so that plain tests can use it, and stops when it is dropped. Turns
//! are played in the order of requests. [`Script`] has the file form.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "linked into tests only, where a broken script should stop the test"
)]

mod http;
mod script;
mod wire;

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use http::RecordedRequest;
pub use script::{Call, Fault, Script, Tokens, Turn};
pub use wire::Wire;

/// A running scripted server.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    script: Script,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<RecordedRequest>,
    answered_at: Vec<Instant>,
    connections: Vec<TcpStream>,
    hang_ups: usize,
    stopping: bool,
}

impl ModelServer {
    /// Starts a server on a free loopback port.
    pub fn start(script: Script) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free loopback port");
        let address = listener.local_addr().expect("the port just bound");
        let shared = Arc::new(Shared {
            script,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || accept(&listener, &accepting));
        Self {
            address,
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// The root, `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Base URL for the two OpenAI dialects.
    pub fn openai_url(&self) -> String {
        format!("{}/v1", self.url())
    }

    /// Base URL for the Anthropic dialect.
    pub fn anthropic_url(&self) -> String {
        self.url()
    }

    /// The base URL for a wire format.
    pub fn base_url(&self, wire: Wire) -> String {
        match wire {
            Wire::Chat | Wire::Responses => self.openai_url(),
            Wire::Anthropic => self.anthropic_url(),
        }
    }

    /// Every request so far, in order.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.lock().requests.clone()
    }

    /// Time at which the last byte of each response was handed to the kernel, in order.
    pub fn answered_at(&self) -> Vec<Instant> {
        self.shared.lock().answered_at.clone()
    }

    /// The bodies of the requests so far, as JSON.
    pub fn bodies(&self) -> Vec<serde_json::Value> {
        self.requests().iter().map(RecordedRequest::json).collect()
    }

    /// Waits until `count` requests have come; the test fails when they do not.
    pub fn wait_for_requests(&self, count: usize) -> Vec<RecordedRequest> {
        self.wait(
            |state| state.requests.len() >= count,
            &format!("{count} requests"),
        );
        self.requests()
    }

    /// Waits until a client has closed its connection before the response was complete.
    pub fn wait_for_hang_up(&self) {
        self.wait(|state| state.hang_ups > 0, "a client that hangs up");
    }

    fn wait(&self, reached: impl Fn(&State) -> bool, what: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut state = self.shared.lock();
        while !reached(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "the model server waited for {what} in vain"
            );
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .expect("no thread panicked")
                .0;
        }
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.stopping = true;
            for connection in &state.connections {
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
        self.shared.changed.notify_all();
        // Wakes the acceptor, which then sees that it is to stop.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn note_hang_up(&self) {
        self.lock().hang_ups += 1;
        self.changed.notify_all();
    }

    /// Sleeps, unless the server is stopped meanwhile.
    fn pause(&self, time: Duration) {
        let deadline = Instant::now() + time;
        let mut state = self.lock();
        while !state.stopping {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .expect("no thread panicked")
                .0;
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept() {
        let mut state = shared.lock();
        if state.stopping {
            return;
        }
        if let Ok(copy) = stream.try_clone() {
            state.connections.push(copy);
        }
        drop(state);
        let shared = Arc::clone(shared);
        std::thread::spawn(move || http::serve(stream, &shared));
    }
}
