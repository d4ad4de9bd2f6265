//! Settings from flags and variables. A flag stands for one key, so it has that key's type.

use agent_protocol::status::{Mode, Thinking};
use toml::Spanned;

use super::file::{LayerValues, Source};
use super::origin::Layer;
use super::sections::ConfigFile;
use super::units::Span;
use crate::error::RuntimeError;
use crate::host::Environment;

/// Values from the command line, which override settings.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The model, as `provider/name`.
    pub model: Option<String>,
    /// The ceiling on what happens without asking.
    pub mode: Option<Mode>,
    /// How much the model may think.
    pub thinking: Option<Thinking>,
    /// The most model requests of a turn.
    pub max_steps: Option<u32>,
    /// The most a session may cost, in US dollars.
    pub max_cost: Option<f64>,
    /// The longest time of a turn.
    pub timeout: Option<Span>,
    /// True for lines of words in place of a screen.
    pub plain: bool,
}

impl Overrides {
    /// The flags as a layer.
    pub fn layer(&self) -> LayerValues {
        let mut values = ConfigFile::default();
        values.model.default = spanned(self.model.clone());
        values.permissions.mode = spanned(self.mode);
        values.model.reasoning_effort = spanned(self.thinking.map(|level| level.to_string()));
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
                ("model.reasoning_effort", "--thinking"),
                ("limits.max_steps", "--max-steps"),
                ("limits.max_cost", "--max-cost"),
                ("limits.turn_timeout", "--timeout"),
                ("ui.plain", "--plain"),
            ]),
        }
    }
}

/// The variables as a layer.
pub(super) fn environment_layer(environment: &Environment) -> Result<LayerValues, RuntimeError> {
    let mut values = ConfigFile::default();
    values.model.default = spanned(text(environment, "AGENT_MODEL")?);
    let mode = text(environment, "AGENT_MODE")?
        .map(|word| word.parse::<Mode>())
        .transpose()
        .map_err(|error| RuntimeError::usage(format!("cannot use `AGENT_MODE`: {error}")))?;
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

fn text(environment: &Environment, name: &str) -> Result<Option<String>, RuntimeError> {
    let as_text = |value: &std::ffi::OsStr| {
        value
            .to_str()
            .map(str::to_owned)
            .ok_or_else(|| RuntimeError::usage(format!("cannot use `{name}`: it is not UTF-8")))
    };
    environment.get(name).map(as_text).transpose()
}

pub(super) fn spanned<T>(value: Option<T>) -> Option<Spanned<T>> {
    value.map(|value| Spanned::new(0..0, value))
}
