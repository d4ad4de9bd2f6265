//! From intent to observation: registry, gate, scheduler, result policy.
