//! A project with sessions, one in ten on a disk that is nearly full.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use agent_test_support::project::TestProject;

use crate::AGENT;
use crate::random::Random;

const RULES: &str = "[permissions]\nallow = [\"bash(echo *)\", \"bash(seq *)\", \"bash(sleep *)\", \"write\", \"edit\"]\n\
                     ask = [\"bash(rm *)\"]\n";

pub(crate) struct Place {
    pub(crate) project: TestProject,
    /// Mount point of a small file system: the project's `.agent`.
    small_disk: Option<PathBuf>,
}

impl Place {
    pub(crate) fn new(random: &mut Random) -> Self {
        let project = TestProject::new();
        for number in 0..6 {
            project.write(format!("file-{number}.txt"), "line 1\nline 2\n");
        }
        let small_disk = random.once_in(10).then(|| mount(&project)).flatten();
        Self {
            project,
            small_disk,
        }
    }

    pub(crate) fn has_a_small_disk(&self) -> bool {
        self.small_disk.is_some()
    }

    /// Points the configuration to a server; every wait is short.
    pub(crate) fn use_server(&self, url: &str) {
        self.project.write_home(
            "config.toml",
            format!(
                "model = \"local/test-model\"\n[providers.local]\ndialect = \"openai-chat\"\nbase_url = \"{url}\"\n\
                 first_byte_timeout_ms = 2000\nidle_timeout_ms = 1000\nmax_attempts = 2\nmax_retry_ms = 2000\n"
            ),
        );
        self.project.write_home("rules.toml", RULES);
    }

    /// `agent` in this project, with the words of a program that runs it in front.
    pub(crate) fn command(&self, through: &[&str], arguments: &[&str]) -> Command {
        let words: Vec<&str> = through
            .iter()
            .copied()
            .chain([AGENT])
            .chain(arguments.iter().copied())
            .collect();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .current_dir(self.project.root())
            .env_clear()
            .env("AGENT_HOME", self.project.home())
            .env("HOME", self.project.home())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LANG", "C.UTF-8")
            .env("TMPDIR", std::env::temp_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    pub(crate) fn sessions(&self) -> Vec<String> {
        std::fs::read_dir(self.project.root().join(".agent/sessions"))
            .into_iter()
            .flatten()
            .filter_map(Result::ok)
            .filter(|entry| entry.path().join("events.jsonl").is_file())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// Findings of an audit of all sessions.
    pub(crate) fn audit(&self) -> Option<String> {
        self.sessions().iter().find_map(|session| {
            let output = self
                .command(&[], &["audit", session])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .output()
                .expect("agent starts");
            (!output.status.success()).then(|| {
                let kept = std::env::temp_dir().join(format!("soak-{session}.jsonl"));
                let log = self
                    .project
                    .root()
                    .join(".agent/sessions")
                    .join(session)
                    .join("events.jsonl");
                let _ = std::fs::copy(log, &kept);
                format!(
                    "{session} (its log is kept as {}):\n{}{}",
                    kept.display(),
                    String::from_utf8_lossy(&output.stdout),
                    String::from_utf8_lossy(&output.stderr)
                )
            })
        })
    }

    /// Gives the disk back; says how many sessions there were.
    pub(crate) fn finish(self) -> usize {
        let sessions = self.sessions().len();
        if let Some(disk) = &self.small_disk {
            let status = Command::new("umount").arg(disk).status();
            assert!(
                status.is_ok_and(|status| status.success()),
                "the small disk is in use"
            );
        }
        sessions
    }
}

/// 600 KB for `.agent`; nothing where mounting is not allowed.
fn mount(project: &TestProject) -> Option<PathBuf> {
    let directory = project.root().join(".agent");
    std::fs::create_dir_all(&directory).expect("a directory");
    Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=600k,mode=0755", "soak"])
        .arg(&directory)
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
        .then_some(directory)
}
