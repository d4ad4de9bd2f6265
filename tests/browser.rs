//! A real browser without a window, driven over its debugging pipe: what a page does is seen, not
//! guessed.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A headless Chromium with one page. It is ended when this is dropped.
pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Option<String>,
    next_id: u64,
    /// Events that came while an answer was waited for.
    events: VecDeque<Value>,
    /// Everything the page said went wrong, and every address it asked for.
    pub(crate) complaints: Vec<String>,
    pub(crate) requests: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts Chromium. Where there is none, says so and gives nothing; where one is required,
    /// fails.
    pub(crate) fn start() -> Option<Self> {
        let Some(program) = ["chromium", "chromium-browser", "google-chrome"]
            .into_iter()
            .find(|name| is_there(name))
        else {
            assert!(
                std::env::var_os("AGENT_REQUIRE_CHROMIUM").is_none(),
                "Chromium is required here and is missing"
            );
            println!("Chromium is not installed: the page was not opened in a browser");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        // The debugging pipe is descriptors 3 and 4; the shell moves ours there.
        let script = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh", program])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut browser = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            session: None,
            next_id: 0,
            events: VecDeque::new(),
            complaints: Vec::new(),
            requests: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network", "Audits"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.resize(1200, 900);
        Some(browser)
    }

    /// One command and its answer.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.input
            .write_all(format!("{message}\0").as_bytes())
            .unwrap();
        loop {
            let message = self.read();
            if message["id"] == id {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            self.take(message);
        }
    }

    fn read(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.output.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser ended");
        serde_json::from_slice(&bytes).unwrap()
    }

    fn take(&mut self, event: Value) {
        let params = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" | "Log.entryAdded" | "Audits.issueAdded" => {
                self.complaints.push(params.to_string());
            }
            "Runtime.consoleAPICalled" => self.complaints.push(params.to_string()),
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                self.requests.push(url.to_owned());
            }
            "Page.javascriptDialogOpening" => {
                self.complaints.push(format!("a dialog opened: {params}"));
            }
            _ => {}
        }
        self.events.push_back(event);
    }

    /// Opens a file, with or without a place in it, and waits until it is loaded.
    pub(crate) fn open(&mut self, file: &Path, place: &str) {
        self.events.clear();
        // Another document first: a new place alone would not load the page again.
        let url = format!("file://{}{place}", file.display());
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        self.wait_for("Page.loadEventFired");
        self.events.clear();
        self.complaints.clear();
        self.requests.clear();
        self.call("Page.navigate", json!({ "url": url }));
        self.wait_for("Page.loadEventFired");
    }

    fn wait_for(&mut self, method: &str) {
        loop {
            while let Some(event) = self.events.pop_front() {
                if event["method"] == method {
                    return;
                }
            }
            let event = self.read();
            self.take(event);
        }
    }

    /// Value of an expression; promises are waited for.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let answer = self.call(
            "Runtime.evaluate",
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true }),
        );
        assert!(
            answer.get("exceptionDetails").is_none(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// Presses and releases a key, as a person would.
    pub(crate) fn key(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            "Escape" => "",
            other => other,
        };
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            _ => 0,
        };
        let mut down = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code });
        if !text.is_empty() {
            down["text"] = text.into();
        }
        self.call("Input.dispatchKeyEvent", down);
        self.call(
            "Input.dispatchKeyEvent",
            json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }),
        );
    }

    /// Types a text where the focus is, and waits until the page has taken it in.
    pub(crate) fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false }),
        );
    }

    pub(crate) fn prefer(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        );
    }

    /// Screenshot as a PNG.
    pub(crate) fn screenshot(&mut self, file: &Path) {
        use base64::Engine as _;
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let data = shot["data"].as_str().unwrap();
        let bytes = base64::engine::general_purpose::STANDARD.decode(data);
        std::fs::write(file, bytes.unwrap()).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Closing the pipe ends the browser with all its processes.
        let close = json!({ "id": 0, "method": "Browser.close" });
        let _ = self.input.write_all(format!("{close}\0").as_bytes());
        let mut rest = Vec::new();
        while let Ok(count) = self.output.read_until(0, &mut rest) {
            if count == 0 {
                break;
            }
            rest.clear();
        }
        let _ = self.child.wait();
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
