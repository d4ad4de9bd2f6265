//! Which model does the work: from settings, variables and what runs on this machine to something
//! that can be asked.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_engine::context::RequestSettings;
use agent_engine::{Model, Price};
use agent_protocol::payload::model::{
    ModelChoice, RoutingCandidate, RoutingCandidatesResolved, RoutingDecided, RoutingNotPossible,
    RoutingSingleCandidate,
};
use agent_protocol::{Payload, Refs, Scope};
use agent_provider::catalog::{BUILT_IN, BuiltIn};
use agent_provider::config::model_facts;
use agent_provider::cost;
use agent_provider::local::find_local_servers;
use agent_provider::models::{ModelFacts, writes_patches};
use agent_provider::routing::{
    Candidate, CandidateStatus, Exclusion, MissingKey, Needs, RouteSource,
};
use agent_provider::{
    Dialect, HostCredentials, HttpProvider, ModelRef, Provider, ProviderConfig, ReasoningEffort,
    Route, ScriptedProvider, Transcript, resolve_endpoint,
};

use crate::Runtime;
use crate::config::{ApplyPatch, Config, Layer, ProviderSettings};
use crate::error::{Context as _, OrFail as _, RuntimeError, chain};
use crate::keys;
use crate::reach::unknown_provider_hints;
use crate::session::{self, OpenOptions};

/// How long a local server may take to list its models.
pub const LOCAL_PATIENCE: Duration = Duration::from_millis(300);

/// The models a session may use and the facts of their choice.
pub struct Chosen {
    /// In order of preference; never empty.
    pub models: Vec<Model>,
    /// Events that say how the choice came about.
    pub facts: Vec<Payload>,
}

/// Chooses the model, or says exactly what to set.
pub fn choose(runtime: &Runtime, config: &Config) -> Result<Chosen, RuntimeError> {
    chosen(runtime, config, &route(runtime, config)?)
}

/// The same for a session. When no model can be used, a session that exists already gets the facts
/// of that; a new one is not begun.
pub fn choose_for(
    runtime: &Runtime,
    config: &Config,
    wanted: &OpenOptions,
) -> Result<Chosen, RuntimeError> {
    let route = decide_default(runtime, config)?;
    if route.selected().is_none() && wanted.session.is_some() {
        record_not_possible(runtime, config, wanted, &route)?;
    }
    chosen(runtime, config, &possible(config, route)?)
}

fn chosen(runtime: &Runtime, config: &Config, route: &Route) -> Result<Chosen, RuntimeError> {
    let usable = route
        .candidates
        .iter()
        .filter(|candidate| candidate.excluded.is_none());
    let models = usable
        .map(|candidate| model(runtime, config, candidate))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Chosen {
        models,
        facts: facts(route),
    })
}

/// Chooses the model of this name, with the fallbacks of the settings.
pub fn choose_named(
    runtime: &Runtime,
    config: &Config,
    name: &str,
) -> Result<Chosen, RuntimeError> {
    let route = decide(runtime, config, parse(name)?, RouteSource::CommandLine)?;
    chosen(runtime, config, &possible(config, route)?)
}

/// The models one can name here: what the settings say, what there are keys for, what local servers
/// offer.
pub fn known(runtime: &Runtime, config: &Config) -> Vec<String> {
    let default = config.model.default.iter().map(|set| set.value.clone());
    let fallbacks = config.model.fallbacks.iter();
    let mut names: Vec<String> = default
        .chain(fallbacks.flat_map(|set| set.value.clone()))
        .collect();
    for built_in in BUILT_IN {
        if has_key(runtime, config, built_in) {
            let listed = agent_provider::models::listed_models(built_in.name);
            names.extend(listed.map(|model| format!("{}/{model}", built_in.name)));
        }
    }
    for server in find_local_servers(LOCAL_PATIENCE) {
        let provider = server.provider;
        let models = server.models.into_iter();
        names.extend(models.map(|model| format!("{provider}/{model}")));
    }
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// The model for side jobs, where one is set. One that cannot be asked is an error that stops nothing: the
/// turn's own model does the job then.
///
/// # Errors
/// When the model cannot be asked.
pub fn small(runtime: &Runtime, config: &Config) -> Result<Option<Model>, SmallModelUnused> {
    let Some(setting) = &config.model.small else {
        return Ok(None);
    };
    let made = parse(&setting.value).and_then(|target| {
        let candidate_status = |target: &ModelRef| candidate_status(runtime, config, target);
        let needs = Needs::default();
        let route = possible(
            config,
            Route::decide(target, &[], RouteSource::Config, needs, candidate_status),
        )?;
        let selected = route.selected().map(|it| model(runtime, config, it));
        selected.transpose()
    });
    made.map_err(|error| SmallModelUnused(chain(&error)))
}

/// The model for side jobs cannot be asked.
#[derive(Debug, thiserror::Error)]
#[error("`model.small` is not used: {0}")]
pub struct SmallModelUnused(String);

fn record_not_possible(
    runtime: &Runtime,
    config: &Config,
    wanted: &OpenOptions,
    route: &Route,
) -> Result<(), RuntimeError> {
    let parts = session::open_parts(runtime, config, wanted)?;
    let scope = Scope {
        thread_id: Some(parts.thread_id.clone()),
        ..Scope::default()
    };
    for fact in facts(route) {
        let recorded = parts.journal.append(&scope, fact, Refs::default());
        recorded.or_fail()?;
    }
    parts.guard().close()
}

/// The decision alone, without making anything that could be asked. Some candidate is selected.
pub fn route(runtime: &Runtime, config: &Config) -> Result<Route, RuntimeError> {
    possible(config, decide_default(runtime, config)?)
}

fn possible(config: &Config, route: Route) -> Result<Route, RuntimeError> {
    if route.selected().is_none() {
        let action = route.required_action();
        let failure = RuntimeError::usage(format!("no usable model: {action}"));
        let unknown = route
            .candidates
            .iter()
            .find(|candidate| candidate.excluded == Some(Exclusion::UnknownProvider));
        let hints = unknown.map(|candidate| {
            let (provider, model) = (&candidate.target.provider, &candidate.target.model);
            unknown_provider_hints(config, provider, model)
        });
        let failure = hints
            .into_iter()
            .flatten()
            .fold(failure, RuntimeError::hint);
        return Err(failure.hint("`agent demo` runs without a model"));
    }
    Ok(route)
}

fn decide_default(runtime: &Runtime, config: &Config) -> Result<Route, RuntimeError> {
    let (requested, source) = match &config.model.default {
        Some(setting) => {
            let source = match setting.origin.layer {
                Layer::CommandLine => RouteSource::CommandLine,
                Layer::Environment => RouteSource::Environment,
                _ => RouteSource::Config,
            };
            (parse(&setting.value)?, source)
        }
        None => discover(runtime, config)?,
    };
    decide(runtime, config, requested, source)
}

fn decide(
    runtime: &Runtime,
    config: &Config,
    requested: ModelRef,
    source: RouteSource,
) -> Result<Route, RuntimeError> {
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
    let candidate_status = |target: &ModelRef| candidate_status(runtime, config, target);
    Ok(Route::decide(
        requested,
        &fallbacks,
        source,
        needs,
        candidate_status,
    ))
}

fn parse(text: &str) -> Result<ModelRef, RuntimeError> {
    ModelRef::parse(text).map_err(|error| {
        RuntimeError::usage(error.to_string())
            .hint("for example `anthropic/claude-sonnet-4-5` or `ollama/qwen3`")
    })
}

/// Nobody asked for a model: the first provider whose key is set, then a server on this machine.
fn discover(runtime: &Runtime, config: &Config) -> Result<(ModelRef, RouteSource), RuntimeError> {
    for built_in in BUILT_IN {
        let listed = agent_provider::models::listed_models(built_in.name).next();
        if let (true, Some(model)) = (has_key(runtime, config, built_in), listed) {
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
    let config_file = runtime.short(&runtime.host.directories.user_config);
    Err(RuntimeError::usage(
        "no model is configured, no API key is set, and no local model server is running",
    )
    .hint(
        "set ANTHROPIC_API_KEY or OPENAI_API_KEY, enter a key with `agent config key PROVIDER`, or start a \
         local server such as `ollama serve`",
    )
    .hint(format!(
        "or name one: `--model ollama/qwen3`, or `model = \"ollama/qwen3\"` in {config_file}"
    ))
    .hint("`agent demo` runs without a model"))
}

fn candidate_status(runtime: &Runtime, config: &Config, target: &ModelRef) -> CandidateStatus {
    let settings = provider_config(config, &target.provider);
    let known = settings.is_some() || BuiltIn::named(&target.provider).is_some();
    let is_scripted =
        settings.as_ref().and_then(|settings| settings.dialect) == Some(Dialect::Scripted);
    let missing_key = if known && !is_scripted {
        let key = keys::find(runtime, config, &target.provider).err();
        key.or_else(|| keys::headers(runtime, config, &target.provider).err())
    } else {
        None
    };
    CandidateStatus {
        unknown_provider: !known,
        missing_key,
        limited_for: None,
        facts: model_facts(&target.provider, &target.model, settings.as_ref()),
    }
}

/// Whether requests to a built-in service would be sent with a key.
fn has_key(runtime: &Runtime, config: &Config, built_in: &BuiltIn) -> bool {
    !built_in.key_variables.is_empty()
        && matches!(keys::find(runtime, config, built_in.name), Ok(Some(_)))
}

pub fn provider_config(config: &Config, name: &str) -> Option<ProviderConfig> {
    config.providers.get(name).map(ProviderSettings::config)
}

/// The address in the variable of a built-in provider.
pub fn base_url(runtime: &Runtime, name: &str) -> Option<String> {
    let variable = BuiltIn::named(name)?.base_url_variable?;
    let value = runtime.host.environment.get(variable)?.to_str()?;
    Some(value.to_owned())
}

fn model(runtime: &Runtime, config: &Config, candidate: &Candidate) -> Result<Model, RuntimeError> {
    let target = &candidate.target;
    let settings = provider_config(config, &target.provider);
    let provider: Arc<dyn Provider> =
        match settings.as_ref().and_then(|set| set.transcript.as_deref()) {
            Some(transcript) => Arc::new(scripted(runtime, &target.provider, transcript)?),
            None => {
                let missing = |key: MissingKey| {
                    RuntimeError::usage(format!("{}: {}", target.provider, key.reason))
                        .hint(key.action)
                };
                let found = HostCredentials {
                    key: keys::find(runtime, config, &target.provider).map_err(missing)?,
                    base_url: base_url(runtime, &target.provider),
                    headers: keys::headers(runtime, config, &target.provider).map_err(missing)?,
                };
                let mut endpoint =
                    resolve_endpoint(&target.provider, settings.as_ref(), found).or_usage()?;
                let clock = Arc::clone(&runtime.host.clock);
                endpoint.retry.now = Some(Arc::new(move || clock.now().unix_millis() / 1_000));
                Arc::new(HttpProvider::new(endpoint).or_usage()?)
            }
        };
    Ok(with_settings(config, provider, target, &candidate.facts))
}

/// A provider that plays a transcript file.
fn scripted(
    runtime: &Runtime,
    name: &str,
    transcript: &Path,
) -> Result<ScriptedProvider, RuntimeError> {
    let path = runtime.host.cwd.join(transcript);
    let doing = || format!("cannot play the transcript `{}`", path.display());
    let text = std::fs::read_to_string(&path)
        .with_context(doing)
        .or_usage()?;
    let transcript = Transcript::parse(&text).with_context(doing).or_usage()?;
    Ok(ScriptedProvider::new(name, transcript))
}

/// A provider with what the settings say about requests.
pub fn with_settings(
    config: &Config,
    provider: Arc<dyn Provider>,
    target: &ModelRef,
    facts: &ModelFacts,
) -> Model {
    let set = &config.model;
    let limit = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
    // What a model thinks counts against its answer.
    let usual = match facts.reasoning {
        Some(true) => 32_768,
        _ => 16_384,
    };
    let default_output = facts
        .max_output_tokens
        .map_or(8_192, |most| limit(most).min(usual));
    let after =
        provider_config(config, &target.provider).and_then(|own| own.tool_choice_after_tool_result);
    let effort = set
        .reasoning_effort
        .as_ref()
        .and_then(|set| effort(&set.value));
    let prices = facts.prices;
    let price: Price = Arc::new(move |usage| {
        let (cost, source) = cost::cost(usage, prices.as_ref())?;
        Some((cost.dollars(), source.as_str()))
    });
    Model {
        provider,
        settings: RequestSettings {
            model: target.model.clone(),
            max_output_tokens: Some(
                set.max_output_tokens
                    .as_ref()
                    .map_or(default_output, |set| set.value),
            ),
            most_output_tokens: facts.max_output_tokens.map(limit),
            temperature: set.temperature.as_ref().map(|set| set.value),
            reasoning_effort: effort,
            tool_choice_after_tool_result: after.map(Into::into),
            window: facts.context_window,
            images: facts.images,
            takes_patches: match config.tools.apply_patch.value {
                ApplyPatch::Auto => writes_patches(&target.model),
                ApplyPatch::Always => true,
                ApplyPatch::Never => false,
            },
            ..RequestSettings::default()
        },
        price,
    }
}

fn effort(word: &str) -> Option<ReasoningEffort> {
    use ReasoningEffort::{High, Low, Medium, Minimal};
    [Minimal, Low, Medium, High]
        .into_iter()
        .find(|effort| effort.as_str() == word)
}

/// What a model is known to be able to do.
fn capabilities(facts: &ModelFacts) -> Vec<String> {
    let known = [
        ("tool_calls", facts.tools),
        ("images", facts.images),
        ("reasoning", facts.reasoning),
    ];
    let able = known.iter().filter(|(_, able)| *able == Some(true));
    able.map(|(name, _)| (*name).to_owned()).collect()
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
            capabilities: capabilities(&candidate.facts),
            excluded_reason: candidate.excluded.as_ref().map(ToString::to_string),
        })
        .collect();
    let mut facts: Vec<Payload> = Vec::new();
    let count = route.usable_count() as u64;
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
    } else {
        let excluded = |candidate: &Candidate| {
            let reason = candidate.excluded.as_ref()?;
            Some(format!("{}: {reason}", candidate.target))
        };
        let not_possible = RoutingNotPossible {
            missing: route.candidates.iter().filter_map(excluded).collect(),
            required_action: route.required_action(),
        };
        facts.push(not_possible.into());
    }
    facts
}
