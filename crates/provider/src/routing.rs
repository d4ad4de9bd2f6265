//! Choice of the model that answers: the requested one, or the first fallback that can.
//!
//! Everything here is a value. The caller logs the facts and sends the request.

use std::fmt;
use std::time::Duration;

use crate::error::{ErrorKind, ModelError};
use crate::models::ModelFacts;

/// A model of a provider, `provider/model`. The model may contain further slashes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelRef {
    /// The provider's name in the configuration.
    pub provider: String,
    /// The provider's name of the model.
    pub model: String,
}

/// A text that names no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not of the form provider/model")]
pub struct ModelRefError {
    /// The text.
    pub text: String,
}

impl ModelRef {
    /// Reads `provider/model`.
    pub fn parse(text: &str) -> Result<Self, ModelRefError> {
        match text.trim().split_once('/') {
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => Ok(Self {
                provider: provider.to_owned(),
                model: model.to_owned(),
            }),
            _ => Err(ModelRefError {
                text: text.to_owned(),
            }),
        }
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.provider, self.model)
    }
}

/// Requirements of a task for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// It has to call tools.
    pub tools: bool,
    /// It has to see images.
    pub images: bool,
    /// It has to take in so many tokens.
    pub input_tokens: Option<u64>,
}

impl Needs {
    /// The names of what is needed, for logs.
    pub fn names(&self) -> Vec<&'static str> {
        let mut names = vec!["streaming"];
        names.extend(self.tools.then_some("tool_calls"));
        names.extend(self.images.then_some("images"));
        names
    }
}

/// Status of a candidate, as far as the caller knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CandidateStatus {
    /// True if its provider does not exist.
    pub unknown_provider: bool,
    /// Problem with its key, when one is needed and missing.
    pub missing_key: Option<MissingKey>,
    /// For how long its provider still refuses requests.
    pub limited_for: Option<Duration>,
    /// Facts about the model.
    pub facts: ModelFacts,
}

/// A key that is needed and cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingKey {
    /// Reason for the exclusion.
    pub reason: String,
    /// Action for the user.
    pub action: String,
}

impl MissingKey {
    /// A variable that is not set.
    pub fn variable(name: &str) -> Self {
        Self {
            reason: format!("{name} is not set"),
            action: format!("set {name}"),
        }
    }
}

/// Reason why a candidate is excluded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exclusion {
    /// There is no such provider.
    UnknownProvider,
    /// Its key is missing.
    MissingKey(MissingKey),
    /// Its provider refuses requests for so long.
    Limited(Duration),
    /// It cannot call tools.
    NoTools,
    /// It cannot see images.
    NoImages,
    /// Its window is this small.
    WindowTooSmall(u64),
    /// It was tried and failed.
    Failed(ErrorKind),
}

impl fmt::Display for Exclusion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownProvider => formatter.write_str("unknown provider"),
            Self::MissingKey(key) => write!(formatter, "missing key: {}", key.reason),
            Self::Limited(left) => write!(
                formatter,
                "rate limited for {} more seconds",
                left.as_secs()
            ),
            Self::NoTools => formatter.write_str("cannot call tools"),
            Self::NoImages => formatter.write_str("cannot see images"),
            Self::WindowTooSmall(window) => {
                write!(formatter, "context window of {window} tokens is too small")
            }
            Self::Failed(kind) => write!(formatter, "failed: {}", kind.as_str()),
        }
    }
}

/// A model that might answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Model and provider.
    pub target: ModelRef,
    /// Facts about it.
    pub facts: ModelFacts,
    /// Reason why it is excluded, if it is.
    pub excluded: Option<Exclusion>,
}

/// Source of the requested model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteSource {
    /// A flag.
    CommandLine,
    /// A variable.
    Environment,
    /// A configuration file.
    Config,
    /// A local server that was found.
    LocalServer,
    /// No model was requested: the first provider with a key.
    Default,
}

impl RouteSource {
    /// The word for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CommandLine => "command_line",
            Self::Environment => "environment",
            Self::Config => "config",
            Self::LocalServer => "local_server",
            Self::Default => "default",
        }
    }
}

/// A decision and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Requested model.
    pub requested: ModelRef,
    /// Source of the request.
    pub source: RouteSource,
    /// Requirements of the task.
    pub needs: Needs,
    /// The requested model and its fallbacks, in order.
    pub candidates: Vec<Candidate>,
    selected: Option<usize>,
}

/// A change of model in the middle of the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FallbackApplied {
    /// The model that failed.
    pub from: ModelRef,
    /// The model that goes on.
    pub to: ModelRef,
    /// The kind of failure.
    pub reason: ErrorKind,
}

impl Route {
    /// Decides between `requested` and `fallbacks`; `status` tells what the caller knows of each.
    pub fn decide(
        requested: ModelRef,
        fallbacks: &[ModelRef],
        source: RouteSource,
        needs: Needs,
        status: impl Fn(&ModelRef) -> CandidateStatus,
    ) -> Self {
        let mut targets = vec![requested.clone()];
        for fallback in fallbacks {
            if !targets.contains(fallback) {
                targets.push(fallback.clone());
            }
        }
        let candidates: Vec<Candidate> = targets
            .into_iter()
            .map(|target| {
                let status = status(&target);
                let excluded = exclusion(&status, needs);
                Candidate {
                    target,
                    facts: status.facts,
                    excluded,
                }
            })
            .collect();
        let selected = candidates
            .iter()
            .position(|candidate| candidate.excluded.is_none());
        Self {
            requested,
            source,
            needs,
            candidates,
            selected,
        }
    }

    /// The model that answers, if any can.
    pub fn selected(&self) -> Option<&Candidate> {
        self.selected.and_then(|index| self.candidates.get(index))
    }

    /// Candidates that can answer.
    pub fn usable(&self) -> usize {
        self.candidates
            .iter()
            .filter(|candidate| candidate.excluded.is_none())
            .count()
    }

    /// Number of candidates that can serve; excluded ones are not counted.
    pub fn usable_count(&self) -> usize {
        let usable = self.candidates.iter();
        usable
            .filter(|candidate| candidate.excluded.is_none())
            .count()
    }

    /// True if there is no choice: all but one are excluded, or there is but one.
    pub fn is_single_candidate(&self) -> bool {
        self.usable_count() == 1
    }

    /// Reason for the selection: `requested` or `fallback`.
    pub fn reason(&self) -> &'static str {
        match self.selected {
            Some(0) => "requested",
            Some(_) => "fallback",
            None => "not_possible",
        }
    }

    /// Models that come after the selected one.
    pub fn fallback_chain(&self) -> Vec<&ModelRef> {
        let after = self
            .selected
            .map_or(self.candidates.len(), |index| index + 1);
        self.candidates[after..]
            .iter()
            .filter(|candidate| candidate.excluded.is_none())
            .map(|candidate| &candidate.target)
            .collect()
    }

    /// `limited` when some candidate is out because of a limit, else `ok`.
    pub fn limit_state(&self) -> &'static str {
        let limited = |candidate: &Candidate| {
            matches!(
                candidate.excluded,
                Some(
                    Exclusion::Limited(_)
                        | Exclusion::Failed(ErrorKind::RateLimit | ErrorKind::Quota)
                )
            )
        };
        if self.candidates.iter().any(limited) {
            "limited"
        } else {
            "ok"
        }
    }

    /// Action for the user when no model can answer.
    pub fn required_action(&self) -> String {
        let reasons: Vec<String> = self
            .candidates
            .iter()
            .filter_map(|candidate| {
                Some(format!(
                    "{}: {}",
                    candidate.target,
                    candidate.excluded.as_ref()?
                ))
            })
            .collect();
        let key = self
            .candidates
            .iter()
            .find_map(|candidate| match &candidate.excluded {
                Some(Exclusion::MissingKey(key)) => Some(key.action.clone()),
                _ => None,
            });
        format!(
            "{}; {}",
            reasons.join("; "),
            key.unwrap_or_else(|| "set another `model`".to_owned())
        )
    }

    /// The selected model failed for good: marks it and moves on to the next one that can, where
    /// another model could do better.
    pub fn fall_back(&mut self, error: &ModelError) -> Option<FallbackApplied> {
        let failed = self.selected?;
        let from = self.candidates[failed].target.clone();
        let window = self.candidates[failed].facts.context_window;
        self.candidates[failed].excluded = Some(Exclusion::Failed(error.kind));
        let next = self
            .candidates
            .iter()
            .enumerate()
            .skip(failed + 1)
            .position(|(_, candidate)| {
                let larger = error.kind != ErrorKind::ContextLength
                    || candidate.facts.context_window > window;
                candidate.excluded.is_none() && larger
            });
        self.selected = next
            .filter(|_| error.another_may_help())
            .map(|offset| failed + 1 + offset);
        let to = self.selected()?.target.clone();
        Some(FallbackApplied {
            from,
            to,
            reason: error.kind,
        })
    }
}

fn exclusion(status: &CandidateStatus, needs: Needs) -> Option<Exclusion> {
    if status.unknown_provider {
        return Some(Exclusion::UnknownProvider);
    }
    if let Some(key) = &status.missing_key {
        return Some(Exclusion::MissingKey(key.clone()));
    }
    if let Some(left) = status.limited_for {
        return Some(Exclusion::Limited(left));
    }
    if needs.tools && status.facts.tools == Some(false) {
        return Some(Exclusion::NoTools);
    }
    if needs.images && status.facts.images == Some(false) {
        return Some(Exclusion::NoImages);
    }
    match (status.facts.context_window, needs.input_tokens) {
        (Some(window), Some(needed)) if needed > window => Some(Exclusion::WindowTooSmall(window)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(text: &str) -> ModelRef {
        ModelRef::parse(text).unwrap()
    }

    fn status(target: &ModelRef) -> CandidateStatus {
        let mut status = CandidateStatus::default();
        match target.provider.as_str() {
            "nokey" => status.missing_key = Some(MissingKey::variable("NO_KEY")),
            "unheard" => status.unknown_provider = true,
            "busy" => status.limited_for = Some(Duration::from_secs(9)),
            "dumb" => status.facts.tools = Some(false),
            "small" => status.facts.context_window = Some(100),
            "large" => status.facts.context_window = Some(1_000),
            _ => {}
        }
        status
    }

    fn decide(requested: &str, fallbacks: &[&str]) -> Route {
        let fallbacks: Vec<ModelRef> = fallbacks.iter().map(|text| model(text)).collect();
        let needs = Needs {
            tools: true,
            images: false,
            input_tokens: None,
        };
        Route::decide(
            model(requested),
            &fallbacks,
            RouteSource::Config,
            needs,
            status,
        )
    }

    #[test]
    fn names_are_split_at_the_first_slash() {
        assert_eq!(model("openrouter/z-ai/glm").model, "z-ai/glm");
        for text in ["", "gpt-4o", "/x", "x/"] {
            assert!(ModelRef::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_first_that_can_is_selected_and_the_others_say_why_not() {
        let route = decide(
            "nokey/a",
            &["unheard/b", "busy/c", "dumb/d", "ok/e", "ok/f", "ok/e"],
        );
        let reasons: Vec<Option<String>> = route
            .candidates
            .iter()
            .map(|c| c.excluded.as_ref().map(ToString::to_string))
            .collect();
        assert_eq!(
            reasons,
            [
                Some("missing key: NO_KEY is not set".to_owned()),
                Some("unknown provider".to_owned()),
                Some("rate limited for 9 more seconds".to_owned()),
                Some("cannot call tools".to_owned()),
                None,
                None
            ]
        );
        assert_eq!(route.selected().unwrap().target, model("ok/e"));
        assert_eq!(
            (route.reason(), route.limit_state(), route.usable()),
            ("fallback", "limited", 2)
        );
        assert_eq!(route.fallback_chain(), [&model("ok/f")]);
    }

    #[test]
    fn one_candidate_is_a_fact_and_none_is_an_instruction() {
        let route = decide("ok/a", &[]);
        assert!(route.is_single_candidate() && route.reason() == "requested");
        let route = decide("nokey/a", &[]);
        assert_eq!(route.selected(), None);
        assert_eq!(
            route.required_action(),
            "nokey/a: missing key: NO_KEY is not set; set NO_KEY"
        );
    }

    #[test]
    fn a_failure_moves_on_where_another_model_could_do_better() {
        let mut route = decide("ok/a", &["ok/b"]);
        let applied = route
            .fall_back(&ModelError::new(ErrorKind::ServerError, "x"))
            .unwrap();
        assert_eq!(
            (applied.from, applied.to, applied.reason),
            (model("ok/a"), model("ok/b"), ErrorKind::ServerError)
        );
        assert_eq!(route.reason(), "fallback");
        assert_eq!(
            route.fall_back(&ModelError::new(ErrorKind::ServerError, "x")),
            None
        );
        assert_eq!(route.selected(), None);
        for kind in [
            ErrorKind::Cancelled,
            ErrorKind::Refused,
            ErrorKind::BadRequest,
        ] {
            assert_eq!(
                decide("ok/a", &["ok/b"]).fall_back(&ModelError::new(kind, "x")),
                None,
                "{kind:?}"
            );
        }
    }

    #[test]
    fn a_full_window_needs_a_larger_one() {
        let full = ModelError::new(ErrorKind::ContextLength, "x");
        assert_eq!(decide("large/a", &["small/b"]).fall_back(&full), None);
        assert_eq!(
            decide("small/a", &["large/b"]).fall_back(&full).unwrap().to,
            model("large/b")
        );
    }
}
