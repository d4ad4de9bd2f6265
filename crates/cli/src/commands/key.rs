//! `agent config key`: keeps the key of a model provider, so that no variable has to be set for it.

use std::io::{self, IsTerminal as _, Read as _, Write as _};

use agent_provider::catalog::BUILT_IN;
use agent_runtime::keys;
use agent_runtime::reach::unknown_provider_hints;
use anyhow::Context as _;
use clap::Args;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::app::App;
use crate::config::{self, SettingArgs};
use crate::exit::Exit;
use crate::failure::{Failure, OrFail as _};

/// The most bytes of a key.
const LONGEST: u64 = 8_192;

/// Keep the API key of a provider in a file that only you can read
///
/// Asks for the key without showing it, or reads it from standard input. A variable, `api_key_file`
/// and `api_key_cmd` take precedence over it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent config key anthropic
  pass show work/openai | agent config key openai
  agent config key openai --remove")]
pub(crate) struct KeyArgs {
    /// The provider, such as `anthropic` or `openai`
    #[arg(value_name = "PROVIDER")]
    provider: String,
    /// Remove the key that was kept
    #[arg(long)]
    remove: bool,
}

/// Runs it.
pub(crate) fn run(arguments: &KeyArgs, app: &App) -> Result<Exit, Failure> {
    let name = arguments.provider.as_str();
    if arguments.remove {
        let removed = keys::forget(app, name)
            .context("cannot remove the key")
            .or_fail()?;
        app.output.note(&match removed {
            true => format!("the key of `{name}` is removed"),
            false => format!("no key of `{name}` was entered"),
        });
        return Ok(Exit::Done);
    }
    let config = config::load(&app.host, &app.project, &SettingArgs::default())?;
    let is_known = BUILT_IN.iter().any(|it| it.name == name) || config.providers.contains_key(name);
    if !is_known {
        let hints = unknown_provider_hints(&config, name, "MODEL");
        let unknown = Failure::usage(format!("unknown provider `{name}`"));
        return Err(hints.into_iter().fold(unknown, Failure::hint));
    }
    let key = read(name)?;
    let path = keys::enter(app, name, &key).or_usage()?;
    app.output
        .note(&format!("kept in `{}`, for you alone", app.short(&path)));
    Ok(Exit::Done)
}

fn read(name: &str) -> Result<String, Failure> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        let mut text = String::new();
        let read = stdin.lock().take(LONGEST).read_to_string(&mut text);
        read.context("cannot read the key").or_usage()?;
        return Ok(text);
    }
    let quiet = QuietTerminal::new()
        .context("cannot hide what is typed")
        .or_usage()?;
    let _ = write!(io::stderr(), "key of {name} (not shown): ");
    let typed = typed();
    drop(quiet);
    let _ = writeln!(io::stderr());
    match typed.context("cannot read the key").or_usage()? {
        Some(key) => Ok(key),
        None => Err(Failure::usage("nothing was kept").exit(Exit::Interrupted)),
    }
}

/// Words typed until Enter; nothing when they are given up.
fn typed() -> io::Result<Option<String>> {
    let mut key = Vec::new();
    for byte in io::stdin().lock().take(LONGEST).bytes() {
        match byte? {
            b'\r' | b'\n' => return Ok(Some(String::from_utf8_lossy(&key).into_owned())),
            // Ctrl-C, Ctrl-D, Esc.
            3 | 4 | 27 => return Ok(None),
            8 | 127 => {
                key.pop();
            }
            // Ctrl-U.
            21 => key.clear(),
            byte => key.push(byte),
        }
    }
    Ok(None)
}

/// Guard that shows again what is typed when dropped.
struct QuietTerminal(Termios);

impl QuietTerminal {
    fn new() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        quiet
            .local_modes
            .remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Flush, &quiet)?;
        Ok(Self(before))
    }
}

impl Drop for QuietTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}
