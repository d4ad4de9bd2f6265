//! Which model does the work: from settings, variables and what runs on this machine to something
//! that can be asked.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use agent_engine::context::RequestSettings;
use agent_engine::{Model, Price};
use agent_protocol::Payload;
use agent_protocol::payload::model::{
    ModelChoice, RoutingCandidate, RoutingCandidatesResolved, RoutingDecided,
    RoutingSingleCandidate,
};
use agent_provider::catalog::{BUILT_IN, BuiltIn};
use agent_provider::config::{key_is_optional, key_variables, model_facts};
use agent_provider::cost;
use agent_provider::local::find_local_servers;
use agent_provider::models::ModelFacts;
use agent_provider::routing::{Candidate, Needs, RouteSource, Standing};
use agent_provider::{
    Dialect, Found, HttpProvider, ModelRef, Provider, ProviderConfig, ReasoningEffort, Route,
    ScriptedProvider, Transcript, resolve_endpoint,
};
use secrecy::SecretString;

use crate::app::App;
use crate::config::{Config, Layer, ProviderSettings};
use crate::failure::{Failure, OrFail as _};

/// How long a local server may take to list its models.
pub(crate) const LOCAL_PATIENCE: Duration = Duration::from_millis(300);

/// The models a session may use and the facts of their choice.
pub(crate) struct Chosen {
    /// In order of preference; never empty.
    pub(crate) models: Vec<Model>,
    /// Events that say how the choice came about.
    pub(crate) facts: Vec<Payload>,
}

/// Chooses the model, or says exactly what to set.
pub(crate) fn choose(app: &App, config: &Config) -> Result<Chosen, Failure> {
    let route = route(app, config)?;
    let usable = route
        .candidates
        .iter()
        .filter(|candidate| candidate.excluded.is_none());
    let models = usable
        .map(|candidate| model(app, config, candidate))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Chosen {
        models,
        facts: facts(&route),
    })
}

/// The decision alone, without making anything that could be asked. Some candidate is selected.
pub(crate) fn route(app: &App, config: &Config) -> Result<Route, Failure> {
    let (requested, source) = match &config.model.default {
        Some(setting) => {
            let source = match setting.origin.layer {
                Layer::CommandLine => RouteSource::CommandLine,
                Layer::Environment => RouteSource::Environment,
                _ => RouteSource::Config,
            };
            (parse(&setting.value)?, source)
        }
        None => discover(app, config)?,
    };
    let fallbacks = match &config.model.fallbacks {
        Some(setting) => setting
            .value
            .iter()
            .map(|text| parse(text))
            .collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let needs = Needs {
        tools: true,
        ..Needs::default()
    };
    let standing = |target: &ModelRef| standing(app, config, target);
    let route = Route::decide(requested, &fallbacks, source, needs, standing);
    if route.selected().is_none() {
        let action = route.required_action();
        let failure = Failure::usage(format!("no model can be used: {action}"));
        return Err(failure.hint("`agent demo` shows a run without any model"));
    }
    Ok(route)
}

fn parse(text: &str) -> Result<ModelRef, Failure> {
    ModelRef::parse(text).map_err(|error| {
        Failure::usage(error.to_string())
            .hint("for example `anthropic/claude-sonnet-4-5` or `ollama/qwen3`")
    })
}

/// Nobody asked for a model: the first provider whose key is set, then a server on this machine.
fn discover(app: &App, config: &Config) -> Result<(ModelRef, RouteSource), Failure> {
    for built_in in BUILT_IN {
        let settings = provider_config(config, built_in.name);
        let has_key = !built_in.key_variables.is_empty()
            && key(app, built_in.name, settings.as_ref()).is_some();
        let listed = agent_provider::models::listed_models(built_in.name).next();
        if let (true, Some(model)) = (has_key, listed) {
            let target = ModelRef {
                provider: built_in.name.to_owned(),
                model: model.to_owned(),
            };
            return Ok((target, RouteSource::Default));
        }
    }
    for server in find_local_servers(LOCAL_PATIENCE) {
        if let Some(model) = server.models.first() {
            let target = ModelRef {
                provider: server.provider.to_owned(),
                model: model.clone(),
            };
            return Ok((target, RouteSource::LocalServer));
        }
    }
    let config_file = app.short(&app.host.directories.user_config);
    Err(Failure::usage("no model is configured, no key is set, and no local model server answers")
        .hint("set ANTHROPIC_API_KEY or OPENAI_API_KEY, or start a local server such as `ollama serve`")
        .hint(format!("or name one: `--model ollama/qwen3`, or `model = \"ollama/qwen3\"` in {config_file}"))
        .hint("`agent demo` shows a run without any model"))
}

fn standing(app: &App, config: &Config, target: &ModelRef) -> Standing {
    let settings = provider_config(config, &target.provider);
    let known = settings.is_some() || BuiltIn::named(&target.provider).is_some();
    let needs_key = known
        && !key_is_optional(&target.provider, settings.as_ref())
        && settings.as_ref().and_then(|settings| settings.dialect) != Some(Dialect::Scripted);
    let missing_key = (needs_key && key(app, &target.provider, settings.as_ref()).is_none())
        .then(|| {
            key_variables(&target.provider, settings.as_ref())
                .into_iter()
                .next()
        })
        .flatten();
    Standing {
        unknown_provider: !known,
        missing_key,
        limited_for: None,
        facts: model_facts(&target.provider, &target.model, settings.as_ref()),
    }
}

pub(crate) fn provider_config(config: &Config, name: &str) -> Option<ProviderConfig> {
    config.providers.get(name).map(ProviderSettings::config)
}

/// The key of a provider, and the variable it is in where it is in one. A key file and a key command
/// are the user's own settings; a project cannot name them.
fn key(
    app: &App,
    name: &str,
    settings: Option<&ProviderConfig>,
) -> Option<(SecretString, Option<String>)> {
    let from_variable = key_variables(name, settings)
        .into_iter()
        .find_map(|variable| {
            let value = app.host.environment.get(&variable)?.to_str()?;
            Some((SecretString::from(value), Some(variable)))
        });
    let from_file = || {
        let path = settings?.api_key_file.as_ref()?;
        let text = std::fs::read_to_string(app.host.cwd.join(path)).ok()?;
        Some((SecretString::from(text.trim()), None))
    };
    let from_command = || {
        let (program, arguments) = settings?.api_key_cmd.as_ref()?.split_first()?;
        let output = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout)
            .ok()
            .filter(|_| output.status.success())?;
        Some((SecretString::from(text.trim()), None))
    };
    from_variable.or_else(from_file).or_else(from_command)
}

/// The address in the variable of a built-in provider.
pub(crate) fn base_url(app: &App, name: &str) -> Option<String> {
    let variable = BuiltIn::named(name)?.base_url_variable?;
    let value = app.host.environment.get(variable)?.to_str()?;
    Some(value.to_owned())
}

/// Headers whose values are in variables.
fn headers(app: &App, settings: Option<&ProviderConfig>) -> Vec<(String, SecretString)> {
    let named = settings
        .into_iter()
        .flat_map(|settings| &settings.env_headers);
    named
        .filter_map(|(header, variable)| {
            let value = app.host.environment.get(variable)?.to_str()?;
            Some((header.clone(), SecretString::from(value)))
        })
        .collect()
}

fn model(app: &App, config: &Config, candidate: &Candidate) -> Result<Model, Failure> {
    let target = &candidate.target;
    let settings = provider_config(config, &target.provider);
    let provider: Arc<dyn Provider> =
        match settings.as_ref().and_then(|set| set.transcript.as_deref()) {
            Some(transcript) => Arc::new(scripted(app, &target.provider, transcript)?),
            None => {
                let found = Found {
                    key: key(app, &target.provider, settings.as_ref()),
                    base_url: base_url(app, &target.provider),
                    headers: headers(app, settings.as_ref()),
                };
                let endpoint =
                    resolve_endpoint(&target.provider, settings.as_ref(), found).or_usage()?;
                Arc::new(HttpProvider::new(endpoint).or_usage()?)
            }
        };
    Ok(with_settings(config, provider, target, &candidate.facts))
}

/// A provider that plays a transcript file.
fn scripted(app: &App, name: &str, transcript: &Path) -> Result<ScriptedProvider, Failure> {
    let path = app.host.cwd.join(transcript);
    let doing = || format!("cannot play the transcript `{}`", path.display());
    let text = std::fs::read_to_string(&path)
        .map_err(|error| anyhow::Error::new(error).context(doing()))
        .or_usage()?;
    let transcript = Transcript::parse(&text)
        .map_err(|error| anyhow::Error::new(error).context(doing()))
        .or_usage()?;
    Ok(ScriptedProvider::new(name, transcript))
}

/// A provider with what the settings say about requests.
pub(crate) fn with_settings(
    config: &Config,
    provider: Arc<dyn Provider>,
    target: &ModelRef,
    facts: &ModelFacts,
) -> Model {
    let set = &config.model;
    let limit = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
    let default_output = facts
        .max_output_tokens
        .map_or(8_192, |most| limit(most).min(16_384));
    let after =
        provider_config(config, &target.provider).and_then(|own| own.tool_choice_after_tool_result);
    let effort = set
        .reasoning_effort
        .as_ref()
        .and_then(|set| effort(&set.value));
    let prices = facts.prices;
    let price: Price =
        Arc::new(move |usage| cost::cost(usage, prices.as_ref()).map(|(cost, _)| cost.dollars()));
    Model {
        provider,
        settings: RequestSettings {
            model: target.model.clone(),
            max_output_tokens: Some(
                set.max_output_tokens
                    .as_ref()
                    .map_or(default_output, |set| set.value),
            ),
            temperature: set.temperature.as_ref().map(|set| set.value),
            reasoning_effort: effort,
            tool_choice_after_tool_result: after.map(Into::into),
            window: facts.context_window,
            ..RequestSettings::default()
        },
        price,
        price_source: if prices.is_some() {
            "table".to_owned()
        } else {
            "unknown".to_owned()
        },
    }
}

fn effort(word: &str) -> Option<ReasoningEffort> {
    use ReasoningEffort::{High, Low, Medium, Minimal};
    [Minimal, Low, Medium, High]
        .into_iter()
        .find(|effort| effort.as_str() == word)
}

/// The routing facts of a choice, for the log.
fn facts(route: &Route) -> Vec<Payload> {
    let choice = |target: &ModelRef| ModelChoice {
        provider: target.provider.clone(),
        model: target.model.clone(),
    };
    let candidates: Vec<RoutingCandidate> = route
        .candidates
        .iter()
        .map(|candidate| RoutingCandidate {
            provider: candidate.target.provider.clone(),
            model: candidate.target.model.clone(),
            capabilities: Vec::new(),
            excluded_reason: candidate.excluded.as_ref().map(ToString::to_string),
        })
        .collect();
    let mut facts: Vec<Payload> = Vec::new();
    let count = candidates.len() as u64;
    facts.push(RoutingCandidatesResolved { candidates, count }.into());
    if let Some(selected) = route.selected() {
        if route.is_single_candidate() {
            let single = RoutingSingleCandidate {
                selected: choice(&selected.target),
                capability_gap: None,
            };
            facts.push(single.into());
        }
        let decided = RoutingDecided {
            requested: choice(&route.requested),
            selected: choice(&selected.target),
            reason: route.reason().to_owned(),
            source: route.source.as_str().to_owned(),
            candidate_count: count,
            fallback_chain: route.fallback_chain().into_iter().map(choice).collect(),
            limit_state: Some(route.limit_state().to_owned()),
        };
        facts.push(decided.into());
    }
    facts
}
