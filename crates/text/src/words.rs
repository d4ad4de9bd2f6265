//! Numbers in words for people: counts, bytes, durations, tokens, money.

/// `1 turn`, `2 turns`.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// A number of bytes with two or three digits.
#[must_use]
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    let mut unit = "B";
    for next in ["KB", "MB", "GB", "TB"] {
        if value < 999.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" || value >= 9.95 {
        format!("{value:.0} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}

/// Milliseconds in words short enough for a status line.
#[must_use]
pub fn duration(millis: u64) -> String {
    match millis {
        0..1000 => format!("{millis}ms"),
        1000..10_000 => format!("{}.{}s", millis / 1000, millis % 1000 / 100),
        10_000..60_000 => format!("{}s", millis / 1000),
        60_000..3_600_000 => format!("{}m{:02}s", millis / 60_000, millis / 1000 % 60),
        _ => format!("{}h{:02}m", millis / 3_600_000, millis / 60_000 % 60),
    }
}

/// Time still running, in whole seconds.
#[must_use]
pub fn seconds(millis: u64) -> String {
    match millis {
        0..10_000 => format!("{}s", millis / 1000),
        _ => duration(millis),
    }
}

/// Time since something, in words.
#[must_use]
pub fn ago(millis: u64) -> String {
    const HOUR: u64 = 3_600_000;
    const DAY: u64 = 24 * HOUR;
    match millis {
        0..60_000 => "just now".to_owned(),
        60_000..HOUR => format!("{} min ago", millis / 60_000),
        HOUR..DAY => format!("{} h ago", millis / HOUR),
        _ => format!("{} ago", counted(millis / DAY, "day")),
    }
}

/// Tokens in words.
#[must_use]
pub fn tokens(count: u64) -> String {
    match count {
        0..1000 => count.to_string(),
        1000..1_000_000 => format!("{:.1}k", count as f64 / 1000.0),
        _ => format!("{:.1}M", count as f64 / 1_000_000.0),
    }
}

/// Money in words; small amounts keep two significant digits.
#[must_use]
pub fn money(amount: f64) -> String {
    if amount > 0.0 && amount < 0.01 {
        format!("${amount:.4}")
    } else {
        format!("${amount:.2}")
    }
}

/// The first `most` characters of a text, with `…` in place of the rest.
#[must_use]
pub fn brief(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_readable() {
        let shown: Vec<String> = [0, 999, 1000, 1536, 10 << 20, 3 << 40].map(bytes).into();
        assert_eq!(
            shown,
            ["0 B", "999 B", "1.0 KB", "1.5 KB", "10 MB", "3.0 TB"]
        );
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(counted(1, "turn"), "1 turn");
        assert_eq!(counted(0, "turn"), "0 turns");
        assert_eq!(duration(950), "950ms");
        assert_eq!(duration(1250), "1.2s");
        assert_eq!(duration(61_000), "1m01s");
        assert_eq!(seconds(3_900), "3s");
        assert_eq!(seconds(61_900), "1m01s");
        assert_eq!(ago(59_000), "just now");
        assert_eq!(ago(61_000), "1 min ago");
        assert_eq!(ago(7_300_000), "2 h ago");
        assert_eq!(ago(90_000_000), "1 day ago");
        assert_eq!(ago(900_000_000), "10 days ago");
        assert_eq!(tokens(12_345), "12.3k");
        assert_eq!(money(0.0042), "$0.0042");
    }
}
