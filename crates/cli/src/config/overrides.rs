//! Settings from flags and variables. A flag stands for one key, so it has that key's type.

use agent_protocol::status::Mode;
use clap::Args;
use toml::Spanned;

use super::file::{LayerValues, Source};
use super::origin::Layer;
use super::sections::ConfigFile;
use crate::failure::Failure;
use crate::host::Environment;

/// The flags that override settings, for every command that uses them.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SettingArgs {
    /// The model to use, as `provider/name` [env: AGENT_MODEL]
    #[arg(long, value_name = "PROVIDER/MODEL")]
    pub(crate) model: Option<String>,
    /// How much may be done without asking: read-only, ask, accept-edits, auto, full
    /// [env: AGENT_MODE]
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<Mode>,
    /// End a turn after this many model requests
    #[arg(long, value_name = "N")]
    pub(crate) max_steps: Option<u32>,
    /// End a session before it costs more than this, in US dollars
    #[arg(long, value_name = "USD", value_parser = amount, allow_negative_numbers = true)]
    pub(crate) max_cost: Option<f64>,
    /// End a turn after this time: `90s`, `5m`
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<super::units::Span>,
    /// A flag of the commands that open the screen, and of no other.
    #[arg(skip)]
    pub(crate) plain: bool,
}

impl SettingArgs {
    /// The flags as a layer.
    pub(crate) fn layer(&self) -> LayerValues {
        let mut values = ConfigFile::default();
        values.model.default = spanned(self.model.clone());
        values.permissions.mode = spanned(self.mode);
        values.limits.max_steps = spanned(self.max_steps);
        values.limits.max_cost = spanned(self.max_cost);
        values.limits.turn_timeout = spanned(self.timeout.clone());
        values.ui.plain = spanned(self.plain.then_some(true));
        LayerValues {
            layer: Layer::CommandLine,
            values,
            trusted: true,
            source: Source::Names(vec![
                ("model.default", "--model"),
                ("permissions.mode", "--mode"),
                ("limits.max_steps", "--max-steps"),
                ("limits.max_cost", "--max-cost"),
                ("limits.turn_timeout", "--timeout"),
                ("ui.plain", "--plain"),
            ]),
        }
    }
}

/// The variables as a layer.
pub(crate) fn environment_layer(environment: &Environment) -> Result<LayerValues, Failure> {
    let mut values = ConfigFile::default();
    values.model.default = spanned(text(environment, "AGENT_MODEL")?);
    let mode = text(environment, "AGENT_MODE")?
        .map(|word| word.parse::<Mode>())
        .transpose()
        .map_err(|error| Failure::usage(format!("cannot use `AGENT_MODE`: {error}")))?;
    values.permissions.mode = spanned(mode);
    Ok(LayerValues {
        layer: Layer::Environment,
        values,
        trusted: true,
        source: Source::Names(vec![
            ("model.default", "AGENT_MODEL"),
            ("permissions.mode", "AGENT_MODE"),
        ]),
    })
}

fn text(environment: &Environment, name: &str) -> Result<Option<String>, Failure> {
    let as_text = |value: &std::ffi::OsStr| {
        value
            .to_str()
            .map(str::to_owned)
            .ok_or_else(|| Failure::usage(format!("cannot use `{name}`: it is not UTF-8")))
    };
    environment.get(name).map(as_text).transpose()
}

/// An amount of money: `nan` and `inf` are numbers, and no limits.
fn amount(text: &str) -> Result<f64, String> {
    let parsed = text.parse::<f64>().ok();
    let usable = parsed.filter(|amount| amount.is_finite() && *amount >= 0.0);
    usable.ok_or_else(|| format!("`{text}` is not an amount such as `0.50` or `5`"))
}

fn spanned<T>(value: Option<T>) -> Option<Spanned<T>> {
    value.map(|value| Spanned::new(0..0, value))
}
