//! Which version of each file this session has seen: a fold over the log, so that it survives a
//! restart.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_protocol::Payload;
use agent_protocol::payload::tool::Baseline;

/// The last known version of every file the session read or wrote. Shared between the pipeline,
/// which feeds it every recorded fact, and the tools, which ask it.
#[derive(Debug, Default)]
pub struct Baselines {
    files: Mutex<HashMap<String, Seen>>,
}

#[derive(Debug, Clone)]
struct Seen {
    baseline: Baseline,
    /// The ranges of exactly this version whose text is still in the model's context.
    shown: Vec<String>,
}

impl Baselines {
    /// The version seen last.
    #[must_use]
    pub fn latest(&self, path: &str) -> Option<Baseline> {
        self.files().get(path).map(|seen| seen.baseline.clone())
    }

    /// Every file that was seen.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = self.files().keys().cloned().collect();
        paths.sort_unstable();
        paths
    }

    /// Whether the model still has the text of this range of this very version before it.
    #[must_use]
    pub fn was_shown(&self, path: &str, sha256: &str, range: &str) -> bool {
        self.files().get(path).is_some_and(|seen| {
            seen.baseline.sha256 == sha256 && seen.shown.iter().any(|shown| shown == range)
        })
    }

    /// Takes one recorded fact into account. Feed it the log in order to rebuild the state.
    pub fn apply(&self, payload: &Payload) {
        match payload {
            Payload::ToolResult(result) if result.ok => {
                if let Some(baseline) = &result.data.baseline {
                    self.see(baseline);
                }
            }
            // What was compacted away is no longer before the model, so it may be shown again.
            Payload::ContextCompactionCompleted(_) => {
                for seen in self.files().values_mut() {
                    seen.shown.clear();
                }
            }
            _ => {}
        }
    }

    fn see(&self, baseline: &Baseline) {
        let mut files = self.files();
        let seen = files.entry(baseline.path.clone()).or_insert_with(|| Seen {
            baseline: baseline.clone(),
            shown: Vec::new(),
        });
        if seen.baseline.sha256 != baseline.sha256 {
            seen.shown.clear();
        }
        seen.baseline = baseline.clone();
        if let Some(range) = &baseline.range
            && !seen.shown.contains(range)
        {
            seen.shown.push(range.clone());
        }
    }

    fn files(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use agent_protocol::payload::model::ContextCompactionCompleted;
    use agent_protocol::payload::tool::{ToolData, ToolResult};

    use super::*;

    fn result(sha256: &str, range: Option<&str>, ok: bool) -> Payload {
        ToolResult {
            ok,
            data: ToolData {
                baseline: Some(Baseline {
                    path: "a".into(),
                    sha256: sha256.into(),
                    range: range.map(Into::into),
                    ..Baseline::default()
                }),
                ..ToolData::default()
            },
            ..ToolResult::default()
        }
        .into()
    }

    #[test]
    fn the_last_version_counts_and_ranges_belong_to_it() {
        let baselines = Baselines::default();
        baselines.apply(&result("1", Some("1-5"), true));
        baselines.apply(&result("1", Some("6-9"), true));
        assert!(baselines.was_shown("a", "1", "1-5") && baselines.was_shown("a", "1", "6-9"));
        baselines.apply(&result("3", None, false));
        assert_eq!(baselines.latest("a").unwrap().sha256, "1");
        baselines.apply(&result("2", None, true));
        assert_eq!(baselines.latest("a").unwrap().sha256, "2");
        assert!(!baselines.was_shown("a", "1", "1-5") && !baselines.was_shown("a", "2", "1-5"));
    }

    #[test]
    fn what_was_compacted_away_may_be_shown_again() {
        let baselines = Baselines::default();
        baselines.apply(&result("1", Some("1-5"), true));
        baselines.apply(&ContextCompactionCompleted::default().into());
        assert!(!baselines.was_shown("a", "1", "1-5"));
        assert!(baselines.latest("a").is_some());
    }
}
