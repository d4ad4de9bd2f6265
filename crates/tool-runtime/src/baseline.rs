//! Which version of each file this session has seen: a fold over the log, so that it survives a
//! restart.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_protocol::id::ToolCallId;
use agent_protocol::payload::tool::Baseline;
use agent_protocol::{Code, Payload};

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
    shown: Vec<Shown>,
}

/// A range of lines and the call whose observation has their text.
#[derive(Debug, Clone)]
struct Shown {
    range: String,
    call: Option<ToolCallId>,
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
            seen.baseline.sha256 == sha256 && seen.shown.iter().any(|shown| shown.range == range)
        })
    }

    /// Takes one recorded fact of `call` into account. Feed it the log in order to rebuild the state.
    pub fn apply(&self, call: Option<&ToolCallId>, payload: &Payload) {
        if let Payload::ToolResult(result) = payload
            && result.ok
        {
            for baseline in result.data.baselines.iter().flatten() {
                self.see(baseline);
            }
            let Some(baseline) = &result.data.baseline else {
                return;
            };
            // A call that says "unchanged" has no text itself: an earlier one has.
            let range = baseline.range.clone();
            let range = range.filter(|_| result.code != Code::FileUnchanged);
            self.see(baseline);
            if let (Some(range), Some(seen)) = (range, self.files().get_mut(&baseline.path)) {
                seen.shown.retain(|shown| shown.range != range);
                let call = call.cloned();
                seen.shown.push(Shown { range, call });
            }
        }
    }

    /// Keeps as shown only what the observations of calls have that the model's input `holds`. The
    /// versions stay known: whether a file changed since it was read does not depend on the input.
    pub fn keep_shown(&self, holds: impl Fn(&ToolCallId) -> bool) {
        for seen in self.files().values_mut() {
            seen.shown
                .retain(|shown| shown.call.as_ref().is_some_and(&holds));
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
    }

    fn files(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
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
        baselines.apply(None, &result("1", Some("1-5"), true));
        baselines.apply(None, &result("1", Some("6-9"), true));
        assert!(baselines.was_shown("a", "1", "1-5") && baselines.was_shown("a", "1", "6-9"));
        baselines.apply(None, &result("3", None, false));
        assert_eq!(baselines.latest("a").unwrap().sha256, "1");
        baselines.apply(None, &result("2", None, true));
        assert_eq!(baselines.latest("a").unwrap().sha256, "2");
        assert!(!baselines.was_shown("a", "1", "1-5") && !baselines.was_shown("a", "2", "1-5"));
    }

    #[test]
    fn what_the_input_no_longer_holds_may_be_shown_again() {
        let baselines = Baselines::default();
        let [first, second, third] = ["tc_1", "tc_2", "tc_3"].map(|id| id.parse().unwrap());
        baselines.apply(Some(&first), &result("1", Some("1-5"), true));
        baselines.apply(Some(&second), &result("1", Some("6-9"), true));
        let mut unchanged = result("1", Some("1-5"), true);
        if let Payload::ToolResult(result) = &mut unchanged {
            result.code = Code::FileUnchanged;
        }
        baselines.apply(Some(&third), &unchanged);
        baselines.keep_shown(|call| *call != first);
        assert!(
            !baselines.was_shown("a", "1", "1-5"),
            "the third has no text"
        );
        assert!(baselines.was_shown("a", "1", "6-9"));
        assert!(baselines.latest("a").is_some());
    }
}
