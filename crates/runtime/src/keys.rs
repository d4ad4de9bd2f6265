//! Keys of model providers: where they come from, and why one cannot be had.
//!
//! A key is read when it is needed, told to everything that masks, and shown nowhere. A command
//! that prints one is run once per process: it may ask the user for a passphrase. A key that was entered in
//! the program is a file of the user's state that only the user can read; it counts last.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent_log::LateSecrets;
use agent_provider::config::{key_is_optional, key_variables};
use agent_provider::routing::MissingKey;
use secrecy::{ExposeSecret as _, SecretString};

use crate::Runtime;
use crate::config::{Config, Origin, Place, Setting};

/// The most bytes of a key that are read.
const LONGEST: u64 = 64 << 10;

/// How long a command may take to print a key; it may wait for a passphrase.
const COMMAND_PATIENCE: Duration = Duration::from_secs(120);

/// What this process knows about keys.
#[derive(Debug, Default)]
pub struct Keys {
    /// What commands printed.
    printed: Mutex<HashMap<Vec<String>, SecretString>>,
    /// Everything that is to be masked.
    secrets: LateSecrets,
}

/// A key and the variable it is in, where it is in one.
pub type Key = (SecretString, Option<String>);

impl Keys {
    /// What masks the keys that were found.
    pub fn secrets(&self) -> LateSecrets {
        self.secrets.clone()
    }

    /// Tells everything that masks what the settings of all providers hold or point to. Commands
    /// are not run for it.
    pub fn learn_settings(&self, runtime: &Runtime, config: &Config) {
        for name in entered(runtime) {
            if let Some(path) = place_of_entered(runtime, &name)
                && let Ok(text) = read(&path)
            {
                self.secrets.learn(&format!("{name}-key"), &text);
            }
        }
        let variable = |name: &str| runtime.host.environment.get(name)?.to_str();
        for (name, settings) in &config.providers {
            let own = settings.config();
            for variable_name in key_variables(name, Some(&own)) {
                if let Some(value) = variable(&variable_name) {
                    self.secrets.learn(&variable_name, value);
                }
            }
            for variable_name in own.env_headers.values() {
                if let Some(value) = variable(variable_name) {
                    self.secrets.learn(variable_name, value);
                }
            }
            for (header, value) in &own.headers {
                self.learn_header(header, value);
            }
            if let Some(path) = &own.api_key_file
                && let Ok(text) = read(&place_of(runtime, path))
            {
                self.secrets.learn(&format!("{name}-key"), &text);
            }
        }
    }

    /// A header may hold a key, with words such as `Bearer` before it; most hold none.
    fn learn_header(&self, header: &str, value: &str) {
        let name = header.to_ascii_lowercase();
        let words = ["auth", "key", "token", "secret", "cookie", "password"];
        if words.iter().any(|word| name.contains(word)) {
            let key = value.split_whitespace().next_back().unwrap_or(value);
            self.secrets.learn(&name, key);
        }
    }

    /// What `command` prints, now or earlier.
    fn print(&self, name: &str, command: &[String]) -> Result<SecretString, String> {
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = printed.get(command) {
            return Ok(key.clone());
        }
        let key = SecretString::from(run(command)?);
        self.secrets
            .learn(&format!("{name}-key"), key.expose_secret());
        printed.insert(command.to_vec(), key.clone());
        Ok(key)
    }
}

/// The key of the provider `name`, nothing where none is needed, or what is wrong with it. A key
/// file and a key command are the user's own settings; a project cannot name them.
pub fn find(runtime: &Runtime, config: &Config, name: &str) -> Result<Option<Key>, MissingKey> {
    let settings = config.providers.get(name);
    let own = settings.map(|settings| settings.config());
    let variables = key_variables(name, own.as_ref());
    if let Some(key) = in_variable(runtime, &variables) {
        return Ok(Some(key));
    }
    let provider = settings.map(|settings| &settings.provider);
    let file = provider.and_then(|provider| provider.api_key_file.as_ref());
    let command = provider.and_then(|provider| provider.api_key_cmd.as_ref());
    let problem = match file.map(|file| (file, from_file(runtime, name, file))) {
        Some((_, Ok(key))) => return Ok(Some((key, None))),
        Some((file, Err(reason))) => Some((reason, "api_key_file", &file.origin)),
        None => None,
    };
    let problem = match command.map(|set| (set, runtime.keys.print(name, &set.value))) {
        Some((_, Ok(key))) => return Ok(Some((key, None))),
        Some((set, Err(reason))) => Some((reason, "api_key_cmd", &set.origin)),
        None => problem,
    };
    let entered = place_of_entered(runtime, name).filter(|path| path.exists());
    match (problem, entered) {
        (None, Some(path)) => from_place(runtime, name, &path, &path)
            .map(|key| Some((key, None)))
            .map_err(|reason| MissingKey {
                reason,
                action: format!("enter it again: `agent config key {name}`"),
            }),
        (Some((reason, setting, origin)), _) => Err(MissingKey {
            reason,
            action: format!(
                "fix `{setting}` under [providers.{name}]{}",
                written_at(runtime, origin)
            ),
        }),
        (None, None) if key_is_optional(name, own.as_ref()) => Ok(None),
        (None, None) => Err(MissingKey::variable(
            variables.first().map_or("its key", String::as_str),
        )),
    }
}

fn in_variable(runtime: &Runtime, variables: &[String]) -> Option<Key> {
    let (variable, value) = variables.iter().find_map(|variable| {
        let value = runtime.host.environment.get(variable)?.to_str()?.trim();
        (!value.is_empty()).then_some((variable, value))
    })?;
    runtime.keys.secrets.learn(variable, value);
    Some((value.into(), Some(variable.clone())))
}

/// The key of the provider `name` as far as it is there without running a command, and true if one would
/// be run for it.
pub fn at_hand(runtime: &Runtime, config: &Config, name: &str) -> (Option<Key>, bool) {
    let settings = config.providers.get(name);
    let own = settings.map(|settings| settings.config());
    let variables = key_variables(name, own.as_ref());
    if let Some(key) = in_variable(runtime, &variables) {
        return (Some(key), false);
    }
    let has_command = own.as_ref().is_some_and(|own| own.api_key_cmd.is_some());
    let has_file = own.as_ref().is_some_and(|own| own.api_key_file.is_some());
    if has_command && !has_file {
        return (None, true);
    }
    (find(runtime, config, name).ok().flatten(), false)
}

/// Directory of the keys that were entered in the program.
fn entered_keys(runtime: &Runtime) -> PathBuf {
    runtime.host.directories.state.join("keys")
}

/// Providers whose key was entered.
pub fn entered(runtime: &Runtime) -> Vec<String> {
    let entries = std::fs::read_dir(entered_keys(runtime));
    let entries = entries.into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_plain(name)).collect();
    names.sort_unstable();
    names
}

/// The file for the entered key of the provider `name`; none if the name cannot be that of a file.
pub fn place_of_entered(runtime: &Runtime, name: &str) -> Option<PathBuf> {
    is_plain(name).then(|| entered_keys(runtime).join(name))
}

fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    !name.is_empty() && name.len() <= 64 && name.bytes().all(plain)
}

/// A key that cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    #[error("that is not a key: a key is one word of visible ASCII characters")]
    NotAKey,
    #[error("no key can be kept for a provider of this name")]
    Name,
    #[error("cannot keep the key in `{path}`")]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// Keeps the key of the provider `name` in the user's state, where only the user can read it; from now on it
/// is masked everywhere.
///
/// # Errors
/// When it is no key, or cannot be written.
pub fn enter(runtime: &Runtime, name: &str, key: &str) -> Result<PathBuf, EnterError> {
    let text = key.trim();
    let is_key = (8..=8_192).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if !is_key {
        return Err(EnterError::NotAKey);
    }
    let path = place_of_entered(runtime, name).ok_or(EnterError::Name)?;
    runtime.keys.secrets.learn(&format!("{name}-key"), text);
    crate::private::replace(&path, format!("{text}\n").as_bytes()).map_err(|source| {
        EnterError::Write {
            path: path.clone(),
            source,
        }
    })?;
    Ok(path)
}

/// Removes the entered key of the provider `name`; false when there is none.
///
/// # Errors
/// When it cannot be removed.
pub fn forget(runtime: &Runtime, name: &str) -> std::io::Result<bool> {
    let Some(path) = place_of_entered(runtime, name) else {
        return Ok(false);
    };
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The provider whose keys begin like this one, where that is known.
#[must_use]
pub fn provider_of(key: &str) -> Option<&'static str> {
    // The longer beginnings first: `sk-` begins several.
    const BEGINNINGS: [(&str, &str); 7] = [
        ("sk-ant-", "anthropic"),
        ("sk-or-", "openrouter"),
        ("sk-proj-", "openai"),
        ("gsk_", "groq"),
        ("xai-", "xai"),
        ("AIza", "gemini"),
        ("sk-svcacct-", "openai"),
    ];
    let known = BEGINNINGS.iter().find(|(begin, _)| key.starts_with(begin));
    known.map(|(_, name)| *name)
}

/// The headers of a provider whose values are in variables, or the first variable that is not set.
pub fn headers(
    runtime: &Runtime,
    config: &Config,
    name: &str,
) -> Result<Vec<(String, SecretString)>, MissingKey> {
    let provider = config
        .providers
        .get(name)
        .map(|settings| &settings.provider);
    let Some(set) = provider.and_then(|provider| provider.env_headers.as_ref()) else {
        return Ok(Vec::new());
    };
    let header = |(header, variable): (&String, &String)| {
        let value = runtime.host.environment.get(variable).and_then(|value| {
            let value = value.to_str()?.trim();
            (!value.is_empty()).then_some(value)
        });
        let value = value.ok_or_else(|| MissingKey {
            reason: format!("{variable} is not set"),
            action: format!(
                "set {variable}, or change `env_headers` under [providers.{name}]{}",
                written_at(runtime, &set.origin)
            ),
        })?;
        runtime.keys.secrets.learn(variable, value);
        Ok((header.clone(), SecretString::from(value)))
    };
    set.value.iter().map(header).collect()
}

fn from_file(
    runtime: &Runtime,
    name: &str,
    file: &Setting<PathBuf>,
) -> Result<SecretString, String> {
    from_place(runtime, name, &place_of(runtime, &file.value), &file.value)
}

/// The key in a file, which an error calls as `shown`.
fn from_place(
    runtime: &Runtime,
    name: &str,
    path: &Path,
    shown: &Path,
) -> Result<SecretString, String> {
    let shown = shown.display();
    let text = read(path).map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    if text.is_empty() {
        return Err(format!("`{shown}` is empty"));
    }
    runtime.keys.secrets.learn(&format!("{name}-key"), &text);
    Ok(text.into())
}

/// Paths begin at the working directory, or at home when they say so.
pub fn place_of(runtime: &Runtime, path: &Path) -> PathBuf {
    match path.strip_prefix("~") {
        Ok(inside) => runtime.home().join(inside),
        Err(_) => runtime.host.cwd.join(path),
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let file = agent_fs::open_regular(path)?;
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

fn run(command: &[String]) -> Result<String, String> {
    let (program, arguments) = command.split_first().ok_or("it names no program")?;
    let failed = |what: String| format!("`{program}` {what}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    let (sender, printed) = channel();
    let output = child.stdout.take();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = output.map(|output| output.take(LONGEST).read_to_end(&mut bytes));
        let _ = sender.send(read.is_some_and(|read| read.is_ok()).then_some(bytes));
    });
    let bytes = match printed.recv_timeout(COMMAND_PATIENCE) {
        Ok(bytes) => bytes,
        Err(RecvTimeoutError::Timeout) => {
            let _ = child.kill();
            let _ = child.wait();
            let waited = COMMAND_PATIENCE.as_secs();
            return Err(failed(format!("printed no key within {waited} seconds")));
        }
        Err(RecvTimeoutError::Disconnected) => None,
    };
    let status = child
        .wait()
        .map_err(|error| failed(format!("cannot be waited for: {error}")))?;
    if !status.success() {
        return Err(failed(format!("failed ({status})")));
    }
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or_else(|| failed("printed something that is not text".to_owned()))?;
    match text.trim() {
        "" => Err(failed("printed nothing".to_owned())),
        key => Ok(key.to_owned()),
    }
}

fn written_at(runtime: &Runtime, origin: &Origin) -> String {
    match &origin.place {
        Place::File { path, line, .. } => format!(" (`{}`, line {line})", runtime.short(path)),
        Place::Name(_) | Place::Code => String::new(),
    }
}
