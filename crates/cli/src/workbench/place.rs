//! The facts of the place a session works in, as the model is told them.

use std::path::Path;

use agent_engine::prompt::{Environment, Instruction, Preamble};
use sha2::{Digest as _, Sha256};

use crate::app::App;
use crate::config::Config;

/// Instructions and environment for the model.
pub(crate) fn preamble(app: &App, config: &Config, sandbox: &str) -> Preamble {
    let environment = Environment {
        operating_system: operating_system(),
        project_root: app.project.root().display().to_string(),
        cwd: app.host.cwd.display().to_string(),
        date: app.host.clock.now().to_string().chars().take(10).collect(),
        git: git_state(app.project.root()),
        shell: "bash, without start-up files, standard input closed".to_owned(),
        sandbox: sandbox.to_owned(),
    };
    let user = app.host.directories.user_config.with_file_name("AGENTS.md");
    let user_text = std::fs::read_to_string(user).ok();
    Preamble::new(
        &environment,
        instructions(app, config),
        user_text.as_deref(),
    )
}

/// `AGENTS.md` (or what the settings name) from the project root down to the current directory; in
/// each directory the first that exists counts.
fn instructions(app: &App, config: &Config) -> Vec<Instruction> {
    let root = app.project.root();
    let inside = app.host.cwd.strip_prefix(root).unwrap_or(Path::new(""));
    let mut directory = root.to_path_buf();
    let mut found = Vec::new();
    let mut look = |directory: &Path| {
        for name in &config.context.instruction_files.value {
            let path = directory.join(name);
            if let Ok(text) = std::fs::read_to_string(&path) {
                let relative = path.strip_prefix(root).unwrap_or(&path);
                let sha256 = format!("sha256:{}", hex(&Sha256::digest(text.as_bytes())));
                found.push(Instruction {
                    path: relative.display().to_string(),
                    text,
                    sha256,
                });
                break;
            }
        }
    };
    look(&directory);
    for component in inside.components() {
        directory.push(component);
        look(&directory);
    }
    found
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn operating_system() -> String {
    let name = std::fs::read_to_string("/etc/os-release")
        .ok()
        .and_then(|text| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
            Some(line.trim_matches('"').to_owned())
        });
    format!(
        "{} ({})",
        name.unwrap_or_else(|| std::env::consts::OS.to_owned()),
        std::env::consts::ARCH
    )
}

/// The branch, read from the files of the repository: starting git would take longer than all the
/// rest of our start-up.
pub(crate) fn branch(root: &Path) -> Option<String> {
    let head = std::fs::read_to_string(root.join(".git/HEAD")).ok()?;
    let head = head.trim();
    Some(match head.strip_prefix("ref: refs/heads/") {
        Some(branch) => branch.to_owned(),
        None => head.chars().take(12).collect(),
    })
}

fn git_state(root: &Path) -> Option<String> {
    Some(format!("on {}", branch(root)?))
}
