//! The machine as the process finds it. This is the only place that reads the environment, the
//! home directory, the clock and the system's randomness; everything below gets them as values.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use agent_protocol::id::IdMint;
use agent_protocol::{Clock, Timestamp};
use agent_runtime::{Directories, Environment, Host};
use anyhow::Context as _;

/// The one file an administrator owns. It is not moved by `AGENT_HOME`: otherwise setting a
/// variable would be enough to leave it.
const MANAGED_CONFIG: &str = "/etc/agent/config.toml";

/// The real clock.
struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_unix_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }
}

/// Reads the machine. `cwd` is the directory the user asked for, if any.
pub(crate) fn read(cwd: Option<&Path>) -> anyhow::Result<Host> {
    let environment: Environment = std::env::vars_os().collect();
    let started_in = std::env::current_dir().context("cannot determine the current directory")?;
    let cwd = match cwd {
        Some(asked) => {
            let asked = started_in.join(asked);
            let real = fs::canonicalize(&asked)
                .with_context(|| format!("cannot work in `{}`", asked.display()))?;
            if !real.is_dir() {
                anyhow::bail!("cannot work in `{}`: not a directory", asked.display());
            }
            real
        }
        None => started_in,
    };
    let directories = directories(&environment)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let seed = u64::from_le_bytes(random().context("cannot read random bytes from the system")?);
    Ok(Host {
        ids: Arc::new(IdMint::new(Arc::clone(&clock), seed)),
        clock,
        random: Arc::new(random),
        home: home(&environment),
        environment,
        directories,
        cwd,
        name: nix::unistd::gethostname()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        temporary: std::env::temp_dir(),
        tools: Vec::new(),
    })
}

/// The home directory by its variable, or by the user's entry in the system's list.
fn home(environment: &Environment) -> PathBuf {
    let by_entry = || directories::BaseDirs::new().map(|base| base.home_dir().to_path_buf());
    let by_variable = environment.get("HOME").map(PathBuf::from);
    by_variable
        .filter(|home| home.is_absolute())
        .or_else(by_entry)
        .unwrap_or_else(|| PathBuf::from("/"))
}

/// Bytes from the system's random source.
fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The user's directories: below `AGENT_HOME`, or where the platform has them.
fn directories(environment: &Environment) -> anyhow::Result<Directories> {
    let managed_config = PathBuf::from(MANAGED_CONFIG);
    if let Some(home) = environment.get("AGENT_HOME") {
        let home = std::path::absolute(home).context("cannot use `AGENT_HOME`")?;
        return Ok(Directories::below(&home, managed_config));
    }
    let platform = directories::ProjectDirs::from("", "", "agent")
        .context("cannot find the home directory: set HOME or AGENT_HOME")?;
    let state = platform
        .state_dir()
        .unwrap_or_else(|| platform.data_local_dir());
    Ok(Directories {
        user_config: platform.config_dir().join("config.toml"),
        state: state.to_path_buf(),
        managed_config,
    })
}

/// The name this program was called by, for what it says about itself; it decides nothing.
pub(crate) fn called_as() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let first = std::env::args_os().next();
        let name = first.as_deref().map(Path::new).and_then(Path::file_name);
        let is_plain = |name: &&str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
            !name.is_empty() && name.len() <= 64 && name.bytes().all(plain)
        };
        let name = name.and_then(|name| name.to_str()).filter(is_plain);
        name.unwrap_or("agent").to_owned()
    })
}

/// The file this program was started from.
pub(crate) fn own_file() -> Option<PathBuf> {
    fs::canonicalize(std::env::current_exe().ok()?).ok()
}

/// Whether the user's environment is content with colours. Apart from [`Host`], because errors
/// are printed even when the rest of the machine could not be read.
pub(crate) fn terminal_takes_colors() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    !refused && !dumb
}
