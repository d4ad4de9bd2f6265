//! The places in a script that set a variable.

use std::collections::HashMap;

use super::{Kind, List, Node};

/// Count of assignments of a variable, and whether each is certain.
#[derive(Default)]
pub(super) struct Sites {
    pub(super) count: usize,
    pub(super) uncertain: bool,
}

pub(super) fn count_list(List(chains): &List, certain: bool, sites: &mut HashMap<String, Sites>) {
    for chain in chains {
        let certain_first = certain && chain.first.nodes.len() == 1;
        for node in &chain.first.nodes {
            count_node(node, certain_first, sites);
        }
        for (_, pipeline) in &chain.rest {
            for node in &pipeline.nodes {
                count_node(node, false, sites);
            }
        }
    }
}

fn count_node(node: &Node, certain: bool, sites: &mut HashMap<String, Sites>) {
    let mut site = |name: &str, certain: bool| {
        let entry = sites.entry(name.to_owned()).or_default();
        entry.count += 1;
        entry.uncertain |= !certain;
    };
    match &node.kind {
        Kind::Simple { assignments, words } => {
            for (name, _) in assignments {
                site(name, certain && words.is_empty());
            }
            if words.first().is_some_and(|word| word.source == "read") {
                for word in words.iter().skip(1) {
                    site(&word.source, false);
                }
            }
        }
        Kind::Subshell(list) => count_list(list, false, sites),
        Kind::For { name, body, .. } => {
            site(name, true);
            count_list(body, false, sites);
        }
        Kind::While { condition, body } => {
            count_list(condition, false, sites);
            count_list(body, false, sites);
        }
        Kind::If {
            branches,
            otherwise,
        } => {
            for (condition, body) in branches {
                count_list(condition, false, sites);
                count_list(body, false, sites);
            }
            if let Some(body) = otherwise {
                count_list(body, false, sites);
            }
        }
    }
}
