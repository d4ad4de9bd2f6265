//! The machine as values. Nothing here reads the environment, the home directory, the clock or the
//! system's randomness: the program that opens the runtime hands them in.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_protocol::Clock;
use agent_protocol::id::{IdMint, RuntimeId};
use agent_tool_runtime::{Tool, Tools};

use crate::error::{Context as _, OrFail as _, RuntimeError};
use crate::private;

/// Source of random bytes.
pub type Random = Arc<dyn Fn() -> io::Result<[u8; 32]> + Send + Sync>;

/// The machine as the process found it.
#[derive(Clone)]
pub struct Host {
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<IdMint>,
    /// For keys of this installation, which nobody may guess.
    pub random: Random,
    pub environment: Environment,
    pub directories: Directories,
    /// The directory the user works in.
    pub cwd: PathBuf,
    /// The user's home directory, which `~/` in rules and settings means.
    pub home: PathBuf,
    /// The machine's own name.
    pub name: String,
    /// Directory for what is thrown away again.
    pub temporary: PathBuf,
    /// Tools that sessions have besides the built-in ones.
    pub tools: Vec<Arc<dyn Tool>>,
}

impl Host {
    /// The tools that rules can name before a session is open.
    #[must_use]
    pub fn known_tools(&self) -> Tools {
        let further = self.tools.iter().map(|tool| tool.definition().clone());
        let ours = agent_local_tools::definitions().iter().cloned();
        ours.chain(further.map(Arc::new)).collect()
    }
}

/// The places that belong to the user, and the one that belongs to the administrator.
#[derive(Clone, Debug)]
pub struct Directories {
    pub user_config: PathBuf,
    pub managed_config: PathBuf,
    /// Chain anchors, trust decisions, this installation's id.
    pub state: PathBuf,
}

impl Directories {
    /// The user's places below one directory.
    #[must_use]
    pub fn below(home: &Path, managed_config: PathBuf) -> Self {
        Self {
            user_config: home.join("config.toml"),
            state: home.join("state"),
            managed_config,
        }
    }
}

/// The environment as it was when the process started.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// The value of a variable; an empty one counts as not set, as is the custom for switches.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
            .filter(|value| !value.is_empty())
    }

    /// The variables that are text.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        let variables = self.0.iter();
        variables.filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)))
    }

    /// Every variable.
    pub fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
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

impl Host {
    /// The id of this installation, made on first use.
    ///
    /// # Errors
    /// When it can be neither read nor made, or is not an id.
    pub fn runtime_id(&self) -> Result<RuntimeId, RuntimeError> {
        let file = self.directories.state.join("runtime_id");
        let doing = || {
            format!(
                "cannot use the id of this installation in `{}`",
                file.display()
            )
        };
        let text = self.kept(&file, || Ok(self.ids.mint::<RuntimeId>().to_string()));
        let text = text.with_context(doing).or_usage()?;
        text.trim().parse().with_context(doing).or_usage()
    }

    /// A secret of this installation, made on first use. Placeholders for masked values are made
    /// with it, so that nobody else can guess a value from its placeholder.
    ///
    /// # Errors
    /// When it can be neither read nor made.
    pub fn redaction_key(&self) -> Result<Vec<u8>, RuntimeError> {
        let file = self.directories.state.join("redaction_key");
        let doing = || format!("cannot use the redaction key in `{}`", file.display());
        let make = || Ok(agent_text::hex(&(self.random)()?));
        let key = self.kept(&file, make).with_context(doing).or_usage()?;
        Ok(key.into_bytes())
    }

    /// The same key for reading alone: some other key when there is none yet.
    #[must_use]
    pub fn known_redaction_key(&self) -> Vec<u8> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use agent_protocol::Timestamp;

    struct Still;

    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp::from_unix_millis(1_000)
        }
    }

    fn host_in(home: &Path) -> Host {
        Host {
            clock: Arc::new(Still),
            ids: Arc::new(IdMint::new(Arc::new(Still), 1)),
            random: Arc::new(|| Ok([7; 32])),
            environment: Environment::default(),
            directories: Directories::below(home, PathBuf::new()),
            cwd: home.to_path_buf(),
            home: home.to_path_buf(),
            name: String::new(),
            temporary: home.to_path_buf(),
            tools: Vec::new(),
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
