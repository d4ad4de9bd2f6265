//! Running the built binary the way a user or a script would.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::project::TestProject;

/// One run that is being prepared. The environment is empty but for what a shell always has.
pub struct Run {
    command: Command,
    stdin: Option<Vec<u8>>,
}

impl Run {
    /// `binary` in the root of `project`. Tests pass `env!("CARGO_BIN_EXE_agent")`.
    #[must_use]
    pub fn new(binary: impl AsRef<Path>, project: &TestProject) -> Self {
        let mut command = Command::new(binary.as_ref());
        command
            .current_dir(project.root())
            .env_clear()
            .env("AGENT_HOME", project.home())
            .env("HOME", project.home())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TZ", "UTC")
            .env("LANG", "C.UTF-8");
        Self {
            command,
            stdin: None,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts in another directory.
    #[must_use]
    pub fn current_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Feeds `bytes` to standard input, which is empty otherwise.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Runs to the end.
    ///
    /// # Panics
    /// When the binary cannot be started.
    #[must_use]
    pub fn finish(mut self) -> RunOutput {
        let input = if self.stdin.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        };
        self.command
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self.command.spawn().expect("the binary starts");
        let feeder = self.stdin.zip(child.stdin.take()).map(|(bytes, mut pipe)| {
            // A binary that ends before it has read everything is a result, not a failure.
            std::thread::spawn(move || drop(pipe.write_all(&bytes)))
        });
        let output = child.wait_with_output().expect("the binary ends");
        if let Some(feeder) = feeder {
            feeder.join().expect("standard input was fed");
        }
        RunOutput { output }
    }
}

/// Exit status and output of a finished run.
pub struct RunOutput {
    pub output: Output,
}

impl RunOutput {
    /// The exit code, or 128 and the signal's number as a shell would say.
    #[must_use]
    pub fn code(&self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        let status = self.output.status;
        status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
    }

    /// Standard output as text.
    #[must_use]
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// Standard error as text.
    #[must_use]
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// Asserts the exit code, showing what was printed if it is another.
    ///
    /// # Panics
    /// When it is another.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(
            self.code(),
            code,
            "stdout:\n{}\nstderr:\n{}",
            self.stdout(),
            self.stderr()
        );
        self
    }

    /// Standard output as one JSON value.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.output.stdout)
            .unwrap_or_else(|error| panic!("{error} in:\n{}", self.stdout()))
    }
}
