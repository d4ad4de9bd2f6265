//! `agent models`: which providers can be used, what their keys lack, and which model would work.

use agent_provider::catalog::BUILT_IN;
use agent_provider::config::{key_is_optional, key_variables, model_facts};
use agent_provider::local::find_local_servers;
use agent_provider::models::{CATALOGUE_DATE, ModelFacts, listed_models};
use agent_provider::routing::RouteSource;
use agent_provider::{Dialect, HostCredentials, ProviderConfig, Route, resolve_endpoint};
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::config::{self, Config, Place, SettingArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Table, Tone, visible};
use agent_runtime::keys;
use agent_runtime::models::{LOCAL_PATIENCE, base_url, provider_config, route};
use agent_text::words::tokens;

/// Show model providers, which API keys are set, and the model in use
///
/// Contacts only the usual ports of model servers on this machine. Keys are never printed.
#[derive(Args, Debug)]
pub(crate) struct ModelsArgs {
    /// Print one JSON object (docs/schemas/models.schema.json)
    #[arg(long)]
    json: bool,
    /// List the known models of providers without a key too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    settings: SettingArgs,
}

/// What `agent models --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ModelsOutput {
    /// What `agent run` would use.
    chosen: Option<ChosenModel>,
    /// Reason it could use none.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// What to do about the problem.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hints: Vec<String>,
    /// Those in the settings, then the built-in ones.
    providers: Vec<ProviderFound>,
    /// Model servers that answered on this machine.
    local_servers: Vec<ServerFound>,
    /// The day of the built-in prices, windows and limits.
    catalogue_date: &'static str,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ChosenModel {
    provider: String,
    model: String,
    /// command_line, environment, config, local_server or default.
    source: &'static str,
    /// In words.
    why: String,
    /// Models that go on when this one fails.
    fallbacks: Vec<String>,
    /// In tokens; null when it is not known.
    context_window: Option<u64>,
    max_output_tokens: Option<u64>,
    /// Null when they are not known.
    prices: Option<PricesShown>,
}

/// US dollars per million tokens.
#[derive(Debug, Serialize, JsonSchema)]
struct PricesShown {
    input: f64,
    output: f64,
    cached_input: Option<f64>,
    cache_write: Option<f64>,
    /// Of long requests, where those cost more.
    #[serde(skip_serializing_if = "Option::is_none")]
    long: Option<LongPricesShown>,
}

/// Prices of a request with more input than `over` tokens.
#[derive(Debug, Serialize, JsonSchema)]
struct LongPricesShown {
    over: u64,
    input: f64,
    output: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ProviderFound {
    name: String,
    /// True if the settings say something about it; the others are built in.
    in_settings: bool,
    dialect: &'static str,
    /// Without a user name or password that is part of it.
    base_url: String,
    key: KeyStanding,
    /// Models that are known of it, by the settings and the built-in catalogue. It may have others.
    models: Vec<ModelFound>,
    /// Reason it cannot be used as it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Where the key of a provider is; never the key.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
enum KeyStanding {
    /// This variable holds it.
    InVariable {
        variable: String,
    },
    /// This file holds it.
    InFile {
        file: String,
    },
    /// A command prints it; it was not run for this list.
    FromCommand {
        program: String,
    },
    NotNeeded,
    /// One of these variables has to be set, or the file it should be in has to be readable.
    Missing {
        variables: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file: Option<String>,
    },
}

/// A model one can name.
#[derive(Debug, Serialize, JsonSchema)]
struct ModelFound {
    /// As `provider/model`.
    name: String,
    context_window: Option<u64>,
    max_output_tokens: Option<u64>,
    prices: Option<PricesShown>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ServerFound {
    provider: &'static str,
    base_url: String,
    models: Vec<String>,
}

pub(crate) fn run(arguments: &ModelsArgs, app: &App) -> Result<Exit, Failure> {
    let config = config::load(&app.host, &app.project, &arguments.settings)?;
    app.note_ignored_settings(&config);
    let report = report(app, &config);
    let doing = "cannot print the models";
    if arguments.json {
        app.output.json(&report).context(doing)?;
        return Ok(Exit::Done);
    }
    app.output
        .print(&chosen_text(&report, app))
        .context(doing)?;
    let mut table = Table::new(&["PROVIDER", "KEY", "DIALECT", "BASE URL"]);
    for provider in &report.providers {
        table.row([
            visible(&provider.name),
            visible(&match &provider.problem {
                Some(problem) => problem.clone(),
                None => provider.key.words(),
            }),
            provider.dialect.to_owned(),
            visible(&provider.base_url),
        ]);
    }
    app.output.table(&table, Tone::Faint).context(doing)?;
    app.output.print("").context(doing)?;
    let shown = models_table(&report, arguments.all);
    match shown {
        Some(table) => {
            app.output.table(&table, Tone::Faint).context(doing)?;
            let dated = format!(
                "Dollars per million tokens as of {CATALOGUE_DATE}; settings can say otherwise."
            );
            app.output.print(&dated).context(doing)?;
        }
        None => app
            .output
            .print("`agent models --all` lists the known models of every provider.")
            .context(doing)?,
    }
    app.output.print(&servers_text(&report)).context(doing)?;
    Ok(Exit::Done)
}

fn report(app: &App, config: &Config) -> ModelsOutput {
    let (chosen, problem, hints) = match route(app, config) {
        Ok(route) => (chosen(app, config, &route), None, Vec::new()),
        Err(error) => (
            None,
            Some(agent_runtime::chain(&error)),
            error.hints().to_vec(),
        ),
    };
    let own = config.providers.keys().map(String::as_str);
    let built_in = BUILT_IN
        .iter()
        .map(|provider| provider.name)
        .filter(|name| !config.providers.contains_key(*name));
    let servers = find_local_servers(LOCAL_PATIENCE).into_iter();
    ModelsOutput {
        chosen,
        problem,
        hints,
        providers: own
            .chain(built_in)
            .map(|name| provider(app, config, name))
            .collect(),
        local_servers: servers
            .map(|server| ServerFound {
                provider: server.provider,
                base_url: server.base_url,
                models: server.models,
            })
            .collect(),
        catalogue_date: CATALOGUE_DATE,
    }
}

fn chosen(app: &App, config: &Config, route: &Route) -> Option<ChosenModel> {
    let selected = route.selected()?;
    let fallbacks = route.fallback_chain();
    Some(ChosenModel {
        provider: selected.target.provider.clone(),
        model: selected.target.model.clone(),
        source: route.source.as_str(),
        why: why(app, config, route),
        fallbacks: fallbacks.iter().map(ToString::to_string).collect(),
        context_window: selected.facts.context_window,
        max_output_tokens: selected.facts.max_output_tokens,
        prices: prices(&selected.facts),
    })
}

fn why(app: &App, config: &Config, route: &Route) -> String {
    let asked = match (&config.model.default, route.source) {
        (Some(setting), _) => match &setting.origin.place {
            Place::File { path, line, .. } => format!("`{}`, line {line}", app.short(path)),
            Place::Name(name) => (*name).to_owned(),
            Place::Code => "the built-in settings".to_owned(),
        },
        (None, RouteSource::LocalServer) => {
            return "no model or key is set; this server is running on this machine".to_owned();
        }
        (None, _) => {
            return "no model is set; this is the first provider with a key".to_owned();
        }
    };
    let first = route.candidates.first();
    match first.and_then(|candidate| Some((candidate, candidate.excluded.as_ref()?))) {
        Some((candidate, reason)) => {
            format!(
                "fallback: `{}` (set by {asked}) cannot be used: {reason}",
                candidate.target
            )
        }
        None => format!("set by {asked}"),
    }
}

fn prices(facts: &ModelFacts) -> Option<PricesShown> {
    // A picodollar per token is a millionth of a dollar per million tokens.
    #[allow(clippy::cast_precision_loss)] // prices are far below 2^53
    let dollars = |picodollars: u64| picodollars as f64 / 1e6;
    facts.prices.map(|prices| PricesShown {
        input: dollars(prices.input),
        output: dollars(prices.output),
        cached_input: prices.cached_input.map(dollars),
        cache_write: prices.cache_write.map(dollars),
        long: prices.long.map(|long| LongPricesShown {
            over: long.over,
            input: dollars(prices.input * long.input_percent / 100),
            output: dollars(prices.output * long.output_percent / 100),
        }),
    })
}

fn provider(app: &App, config: &Config, name: &str) -> ProviderFound {
    let own = provider_config(config, name);
    let found = HostCredentials {
        base_url: base_url(app, name),
        ..HostCredentials::default()
    };
    let (dialect, base_url, problem) = match resolve_endpoint(name, own.as_ref(), found) {
        Ok(endpoint) => (endpoint.dialect, endpoint.shown_url(), None),
        Err(error) => {
            let dialect = own.as_ref().and_then(|own| own.dialect);
            let dialect = dialect.unwrap_or(Dialect::OpenAiChat);
            (dialect, String::new(), Some(error.to_string()))
        }
    };
    ProviderFound {
        name: name.to_owned(),
        in_settings: own.is_some(),
        dialect: dialect.as_str(),
        base_url,
        key: if dialect == Dialect::Scripted {
            KeyStanding::NotNeeded
        } else {
            key(app, name, own.as_ref())
        },
        models: known(name, own.as_ref()),
        problem,
    }
}

/// The models that settings and catalogue know of a provider.
fn known(name: &str, own: Option<&ProviderConfig>) -> Vec<ModelFound> {
    let mut names: Vec<&str> = own
        .iter()
        .flat_map(|own| own.models.keys().map(String::as_str))
        .collect();
    let listed =
        listed_models(name).filter(|model| own.is_none_or(|own| !own.models.contains_key(*model)));
    names.extend(listed.collect::<Vec<_>>());
    let found = names.into_iter().map(|model| {
        let facts = model_facts(name, model, own);
        ModelFound {
            name: format!("{name}/{model}"),
            context_window: facts.context_window,
            max_output_tokens: facts.max_output_tokens,
            prices: prices(&facts),
        }
    });
    found.collect()
}

/// In the order in which a run looks for it.
fn key(app: &App, name: &str, own: Option<&ProviderConfig>) -> KeyStanding {
    let variables = key_variables(name, own);
    let set = variables
        .iter()
        .find(|variable| app.host.environment.get(variable).is_some());
    if let Some(variable) = set {
        return KeyStanding::InVariable {
            variable: variable.clone(),
        };
    }
    let file = own.and_then(|own| own.api_key_file.as_ref());
    let shown = file.map(|file| file.display().to_string());
    if let (Some(file), Some(shown)) = (file, &shown)
        && std::fs::File::open(keys::place_of(app, file)).is_ok()
    {
        return KeyStanding::InFile {
            file: shown.clone(),
        };
    }
    let command = own.and_then(|own| own.api_key_cmd.as_ref()?.first());
    if let Some(program) = command {
        return KeyStanding::FromCommand {
            program: program.clone(),
        };
    }
    let entered = keys::place_of_entered(app, name).filter(|path| path.exists());
    if let Some(path) = entered.filter(|_| file.is_none()) {
        return KeyStanding::InFile {
            file: app.short(&path),
        };
    }
    if key_is_optional(name, own) {
        return KeyStanding::NotNeeded;
    }
    KeyStanding::Missing {
        variables,
        file: shown,
    }
}

impl KeyStanding {
    fn words(&self) -> String {
        match self {
            Self::InVariable { variable } => format!("in {variable}"),
            Self::InFile { file } => format!("in `{file}`"),
            Self::FromCommand { program } => format!("from `{program}`"),
            Self::NotNeeded => "not needed".to_owned(),
            Self::Missing {
                file: Some(file), ..
            } => format!("cannot read `{file}`"),
            // One name is enough to go on; the address beside it needs the room.
            Self::Missing { variables, .. } => {
                format!("set {}", variables.first().map_or("a key", String::as_str))
            }
        }
    }
}

/// The known models of the providers that have a key, or of all; nothing when there are none.
fn models_table(report: &ModelsOutput, all: bool) -> Option<Table> {
    let has_key = |provider: &&ProviderFound| {
        let missing = matches!(provider.key, KeyStanding::Missing { .. });
        all || provider.in_settings || !missing
    };
    let mut models = report
        .providers
        .iter()
        .filter(has_key)
        .flat_map(|provider| &provider.models)
        .peekable();
    models.peek()?;
    let mut table = Table::new(&["MODEL", ">WINDOW", ">OUTPUT", ">$ IN", ">CACHED", ">$ OUT"]);
    for model in models {
        let price = |price: Option<f64>| price.map(|it| it.to_string()).unwrap_or_default();
        let prices = model.prices.as_ref();
        table.row([
            visible(&model.name),
            model.context_window.map(tokens).unwrap_or_default(),
            model.max_output_tokens.map(tokens).unwrap_or_default(),
            price(prices.map(|prices| prices.input)),
            price(prices.and_then(|prices| prices.cached_input)),
            price(prices.map(|prices| prices.output)),
        ]);
    }
    Some(table)
}

impl PricesShown {
    fn words(&self) -> String {
        let mut words = format!("${} in, ", self.input);
        if let Some(cached) = self.cached_input {
            words.push_str(&format!("${cached} cached, "));
        }
        words.push_str(&format!("${} out per million tokens", self.output));
        if let Some(long) = &self.long {
            words.push_str(&format!(
                "; ${} in and ${} out in requests over {} tokens",
                long.input,
                long.output,
                tokens(long.over)
            ));
        }
        words
    }
}

fn chosen_text(report: &ModelsOutput, app: &App) -> String {
    let line = |name: &str, text: &str| format!("{name:<8} {}\n", app.output.wrap(text, 9));
    let mut text = String::new();
    match &report.chosen {
        Some(chosen) => {
            let name = visible(&format!("{}/{}", chosen.provider, chosen.model));
            text.push_str(&format!(
                "model    {}\n",
                app.output.paint(Tone::Good, &name)
            ));
            text.push_str(&line("why", &visible(&chosen.why)));
            if !chosen.fallbacks.is_empty() {
                text.push_str(&line("then", &visible(&chosen.fallbacks.join(", "))));
            }
            let window = match chosen.context_window {
                Some(tokens) => format!("{tokens} tokens"),
                None => "unknown".to_owned(),
            };
            text.push_str(&line("window", &window));
            if let Some(most) = chosen.max_output_tokens {
                text.push_str(&line("output", &format!("at most {most} tokens")));
            }
            let prices = match &chosen.prices {
                Some(prices) => prices.words(),
                None => "unknown".to_owned(),
            };
            text.push_str(&line("prices", &prices));
        }
        None => {
            let problem = report.problem.as_deref().unwrap_or("no usable model");
            text.push_str(&format!(
                "model    {}\n",
                app.output.paint(Tone::Bad, "none")
            ));
            text.push_str(&line("why", &visible(problem)));
            for hint in &report.hints {
                text.push_str(&line("hint", &visible(hint)));
            }
        }
    }
    text.push('\n');
    text
}

fn servers_text(report: &ModelsOutput) -> String {
    if report.local_servers.is_empty() {
        return "\nNo model server found on this machine (checked the usual ports).\n".to_owned();
    }
    let mut text = "\nOn this machine:\n".to_owned();
    for server in &report.local_servers {
        for model in &server.models {
            text.push_str(&format!("  {}/{}\n", server.provider, visible(model)));
        }
        if server.models.is_empty() {
            text.push_str(&format!("  {} (no models)\n", server.provider));
        }
    }
    text
}
