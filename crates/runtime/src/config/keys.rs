//! `[keys]`: keys by the action they do. Which actions there are is known to whoever shows a screen.

use std::collections::{BTreeMap, BTreeSet};

use super::origin::Setting;
use super::section::{Guard, Resolver};
use super::values::KeyNames;

/// The keys of every action any layer names.
pub(super) fn resolve(resolver: &mut Resolver<'_>) -> BTreeMap<String, Setting<KeyNames>> {
    let layers = resolver.layers;
    let names: BTreeSet<&String> = layers
        .iter()
        .flat_map(|layer| layer.values.keys.keys())
        .collect();
    let one = |name: &String| {
        let key = format!("keys.{name}");
        let keys = resolver.optional(&key, &Guard::Trusted, |file| file.keys.get(name))?;
        Some((name.clone(), keys))
    };
    names.into_iter().filter_map(one).collect()
}
