//! Settings as the command line gives them; what they are and how layers meet is in the runtime.

use agent_protocol::status::{Mode, Thinking};
use agent_runtime::{Host, Project};
use agent_tui::KeyMap;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::failure::Failure;

pub(crate) use agent_runtime::config::*;

/// The flags that override settings, for every command that uses them.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SettingArgs {
    /// The model to use, as `provider/name` [env: AGENT_MODEL]
    #[arg(short, long, value_name = "PROVIDER/MODEL")]
    pub(crate) model: Option<String>,
    /// What may happen without asking [env: AGENT_MODE]
    #[arg(long, value_name = "MODE", value_parser = mode())]
    pub(crate) mode: Option<Mode>,
    /// How much the model may think, where it can be told
    #[arg(long, value_name = "LEVEL", value_parser = thinking())]
    pub(crate) thinking: Option<Thinking>,
    /// Stop a turn after this many model requests
    #[arg(long, value_name = "N")]
    pub(crate) max_steps: Option<u32>,
    /// Stop the session before it costs more than this, in US dollars
    #[arg(long, value_name = "USD", value_parser = amount, allow_negative_numbers = true)]
    pub(crate) max_cost: Option<f64>,
    /// Stop a turn after this long, such as `90s` or `5m`
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Span>,
    /// A flag of the commands that open the screen, and of no other.
    #[arg(skip)]
    pub(crate) plain: bool,
}

impl SettingArgs {
    fn overrides(&self) -> Overrides {
        Overrides {
            model: self.model.clone(),
            mode: self.mode,
            thinking: self.thinking,
            max_steps: self.max_steps,
            max_cost: self.max_cost,
            timeout: self.timeout.clone(),
            plain: self.plain,
        }
    }
}

/// Reads all layers of settings, flags included.
pub(crate) fn load(
    host: &Host,
    project: &Project,
    arguments: &SettingArgs,
) -> Result<Config, Failure> {
    let overrides = arguments.overrides();
    let config = agent_runtime::config::load(host, project, &overrides)?;
    key_map(&config)?;
    Ok(config)
}

/// The screen's keys, as the settings have them.
pub(crate) fn key_map(config: &Config) -> Result<KeyMap, Failure> {
    let chosen = config.keys.iter();
    let chosen = chosen.map(|(action, keys)| (action.as_str(), keys.value.0.as_slice()));
    KeyMap::with(chosen).map_err(|error| {
        let origin = config.keys.get(&error.action).map(|keys| &keys.origin);
        let cannot = match origin.map(|origin| &origin.place) {
            Some(Place::File { path, line, column }) => {
                format!(
                    "cannot load `{}`: line {line}, column {column}",
                    path.display()
                )
            }
            _ => "cannot use these keys".to_owned(),
        };
        let failure = Failure::usage(format!("{cannot}: {error}"));
        error.hint.into_iter().fold(failure, Failure::hint)
    })
}

/// One of the modes, with what completions and errors say about them.
fn mode() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(Mode::ALL.iter().map(|mode| mode.as_str()))
        .try_map(|word| word.parse::<Mode>())
}

fn thinking() -> impl TypedValueParser<Value = Thinking> {
    PossibleValuesParser::new(Thinking::ALL.iter().map(|level| level.as_str()))
        .try_map(|word| word.parse::<Thinking>())
}

/// An amount of money: `nan` and `inf` are numbers, and no limits.
fn amount(text: &str) -> Result<f64, String> {
    let parsed = text.parse::<f64>().ok();
    let usable = parsed.filter(|amount| amount.is_finite() && *amount >= 0.0);
    usable.ok_or_else(|| format!("`{text}` is not an amount such as `0.50` or `5`"))
}
