//! Reading of the script of one call, kept for whoever looks at the call again.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Analysis, Start, analyse};

/// The last analysis of a call's script.
#[derive(Debug, Default)]
pub struct Reading(Mutex<Option<Arc<Analysis>>>);

impl Reading {
    /// The analysis of `script`: the last one if it holds, or a new one.
    #[must_use]
    pub fn analyse(&self, script: &str, start: &Start<'_>) -> Arc<Analysis> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*last
            && known.script == script
            && known.holds(start)
        {
            return Arc::clone(known);
        }
        let analysis = Arc::new(analyse(script, start));
        *last = Some(Arc::clone(&analysis));
        analysis
    }
}
