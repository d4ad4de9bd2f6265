//! Attempts to leave a network namespace that leads nowhere, as the kernel counts them.

use crate::plan::Plan;

/// Packets and connections that found no route since the namespace exists; nothing where the
/// command has no namespace of its own, because the counts are then those of the machine.
pub(super) fn without_route(plan: &Plan) -> Option<u64> {
    if !plan.network_namespace {
        return None;
    }
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/net/{name}"));
    let old = read("snmp").ok().and_then(|text| version_4(&text));
    let new = read("snmp6").ok().and_then(|text| version_6(&text));
    match (old, new) {
        (None, None) => None,
        (old, new) => Some(old.unwrap_or(0) + new.unwrap_or(0)),
    }
}

/// Two lines that begin with `Ip:`: the names, and the numbers in the same order.
fn version_4(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|name| name == "OutNoRoutes")?;
    numbers.split(' ').nth(at)?.parse().ok()
}

/// One name and one number on a line.
fn version_6(text: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    lines.find_map(|mut words| {
        (words.next()? == "Ip6OutNoRoutes").then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_are_found_by_name() {
        let text = "Ip: Forwarding OutNoRoutes ReasmTimeout\nIp: 1 5 0\nIcmp: InMsgs\nIcmp: 7\n";
        assert_eq!(version_4(text), Some(5));
        assert_eq!(version_4("Icmp: InMsgs\nIcmp: 7\n"), None);
        let text = "Ip6InReceives   \t3\nIp6OutNoRoutes   \t2\n";
        assert_eq!(version_6(text), Some(2));
        assert_eq!(version_6("Ip6InReceives 3\n"), None);
    }
}
