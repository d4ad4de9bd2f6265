//! The machine as the process finds it. This is the only place that reads the environment, the
//! home directory, the clock and the system's randomness; everything below gets them as values.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use agent_protocol::id::{IdMint, RuntimeId};
use agent_protocol::{Clock, Timestamp};
use anyhow::Context as _;

use crate::private;

/// The one file an administrator owns. It is not moved by `AGENT_HOME`: otherwise setting a
/// variable would be enough to leave it.
const MANAGED_CONFIG: &str = "/etc/agent/config.toml";

/// What the process was given.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<IdMint>,
    pub(crate) environment: Environment,
    pub(crate) directories: Directories,
    /// Where the command was started, or where `--cwd` points.
    pub(crate) cwd: PathBuf,
    /// The user's home directory, which `~/` in rules and settings means.
    pub(crate) home: PathBuf,
    /// What the machine calls itself.
    pub(crate) name: String,
    /// For what is thrown away again.
    pub(crate) temporary: PathBuf,
}

/// The places that belong to the user, and the one that belongs to the administrator.
#[derive(Clone, Debug)]
pub(crate) struct Directories {
    pub(crate) user_config: PathBuf,
    pub(crate) managed_config: PathBuf,
    /// Chain anchors, trust decisions, this installation's id.
    pub(crate) state: PathBuf,
}

/// The environment as it was when the process started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// The value of a variable; an empty one counts as not set, as is the custom for switches.
    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
            .filter(|value| !value.is_empty())
    }
}

impl Environment {
    /// The variables that are text, for whoever has to look at all of them.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        let variables = self.0.iter();
        variables.filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)))
    }

    /// Every variable.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl FromIterator<(OsString, OsString)> for Environment {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(variables: I) -> Self {
        Self(variables.into_iter().collect())
    }
}

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

impl Host {
    /// Reads the machine. `cwd` is the directory the user asked for, if any.
    pub(crate) fn read(cwd: Option<&Path>) -> anyhow::Result<Self> {
        let environment: Environment = std::env::vars_os().collect();
        let started_in =
            std::env::current_dir().context("cannot find out the current directory")?;
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
        let directories = Directories::find(&environment)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let seed = u64::from_le_bytes(random().context("cannot read the system's randomness")?);
        Ok(Self {
            ids: Arc::new(IdMint::new(Arc::clone(&clock), seed)),
            clock,
            home: home(&environment),
            environment,
            directories,
            cwd,
            name: nix::unistd::gethostname()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
            temporary: std::env::temp_dir(),
        })
    }

    /// The id of this installation, made on first use.
    pub(crate) fn runtime_id(&self) -> anyhow::Result<RuntimeId> {
        let file = self.directories.state.join("runtime_id");
        let doing = || {
            format!(
                "cannot use the id of this installation in `{}`",
                file.display()
            )
        };
        let text = self.kept(&file, || Ok(self.ids.mint::<RuntimeId>().to_string()));
        text.with_context(doing)?.trim().parse().with_context(doing)
    }

    /// A secret of this installation, made on first use. Placeholders for masked values are made
    /// with it, so that nobody else can guess a value from its placeholder.
    pub(crate) fn redaction_key(&self) -> anyhow::Result<Vec<u8>> {
        let file = self.directories.state.join("redaction_key");
        let doing = || format!("cannot use the redaction key in `{}`", file.display());
        let make = || Ok(random::<32>()?.map(|byte| format!("{byte:02x}")).concat());
        Ok(self.kept(&file, make).with_context(doing)?.into_bytes())
    }

    /// The same for whoever only looks and makes nothing: some other key when there is none yet.
    pub(crate) fn known_redaction_key(&self) -> Vec<u8> {
        let file = self.directories.state.join("redaction_key");
        fs::read(file).unwrap_or_else(|_| b"look".to_vec())
    }

    /// The text of a file of user state, which is made when there is none.
    fn kept(&self, file: &Path, make: impl Fn() -> io::Result<String>) -> io::Result<String> {
        match fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // It is not waited for until it is on disk, so a power cut may leave nothing in it.
            Ok(text) if text.is_empty() => fs::remove_file(file)?,
            other => return other,
        }
        private::draft_once(file, format!("{}\n", make()?).as_bytes())?;
        // Another process may have been first; what is in the file counts.
        fs::read_to_string(file)
    }
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

impl Directories {
    fn find(environment: &Environment) -> anyhow::Result<Self> {
        let managed_config = PathBuf::from(MANAGED_CONFIG);
        if let Some(home) = environment.get("AGENT_HOME") {
            let home = std::path::absolute(home).context("cannot use `AGENT_HOME`")?;
            return Ok(Self {
                user_config: home.join("config.toml"),
                state: home.join("state"),
                managed_config,
            });
        }
        let platform = directories::ProjectDirs::from("", "", "agent")
            .context("cannot find a home directory: set HOME or AGENT_HOME")?;
        let state = platform
            .state_dir()
            .unwrap_or_else(|| platform.data_local_dir());
        Ok(Self {
            user_config: platform.config_dir().join("config.toml"),
            state: state.to_path_buf(),
            managed_config,
        })
    }
}

/// Whether the user's environment is content with colours. Apart from [`Host`], because errors
/// are printed even when the rest of the machine could not be read.
pub(crate) fn terminal_takes_colors() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    !refused && !dumb
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_in(home: &Path) -> Host {
        let environment: Environment = [("AGENT_HOME".into(), home.as_os_str().to_owned())]
            .into_iter()
            .collect();
        Host {
            directories: Directories::find(&environment).unwrap(),
            environment,
            ..Host::read(None).unwrap()
        }
    }

    #[test]
    fn the_installation_keeps_its_id() {
        let home = tempfile::tempdir().unwrap();
        let first = host_in(home.path()).runtime_id().unwrap();
        let second = host_in(home.path()).runtime_id().unwrap();
        assert_eq!(first, second);
        assert!(first.as_str().starts_with("rt_"), "{first}");
        let left: Vec<_> = fs::read_dir(home.path().join("state")).unwrap().collect();
        assert_eq!(left.len(), 1, "no draft is left behind: {left:?}");
    }

    #[test]
    fn a_broken_id_is_an_error_not_a_new_id() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("state")).unwrap();
        fs::write(home.path().join("state/runtime_id"), "../x\n").unwrap();
        assert!(host_in(home.path()).runtime_id().is_err());
    }

    #[test]
    fn an_empty_variable_is_not_set() {
        let environment: Environment = [("NO_COLOR".into(), "".into())].into_iter().collect();
        assert_eq!(environment.get("NO_COLOR"), None);
    }
}
