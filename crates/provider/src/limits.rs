//! Rate limits and waits from response headers.

use std::time::Duration;

use crate::classify::parse_delay;

/// The state of a provider's limits as its headers tell it. Everything is optional everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RateLimits {
    /// Wait before the next request.
    pub retry_after: Option<Duration>,
    /// True if the server wants a retry at all (`x-should-retry`).
    pub should_retry: Option<bool>,
    /// Requests left in the current window.
    pub requests_remaining: Option<u64>,
    /// Tokens left in the current window.
    pub tokens_remaining: Option<u64>,
    /// Time until the emptier of the two windows is full again.
    pub reset_after: Option<Duration>,
}

impl RateLimits {
    /// Reads headers through `get`, which is given lower-case names. Times are compared with the
    /// server's own clock, in its `Date` header, and with `now`, in seconds since 1970, without one.
    pub fn from_headers<'a>(get: impl Fn(&str) -> Option<&'a str>, now: Option<i64>) -> Self {
        let date = get("date").and_then(parse_http_date).or(now);
        let retry_after = get("retry-after-ms")
            .and_then(|text| text.trim().parse::<u64>().ok())
            .map(Duration::from_millis)
            // Azure sends `retry-after-ms: 0` beside the seconds it means.
            .filter(|delay| !delay.is_zero())
            .or_else(|| get("retry-after").and_then(|text| parse_retry_after(text, date)));
        let number = |names: &[&str]| names.iter().find_map(|name| get(name)?.trim().parse().ok());
        let requests_remaining = number(&[
            "x-ratelimit-remaining-requests",
            "anthropic-ratelimit-requests-remaining",
            "x-ratelimit-remaining",
        ]);
        let tokens_remaining = number(&[
            "x-ratelimit-remaining-tokens",
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-input-tokens-remaining",
        ]);
        let reset = |names: &[&str]| names.iter().find_map(|name| parse_reset(get(name)?, date));
        let requests_reset = reset(&[
            "x-ratelimit-reset-requests",
            "anthropic-ratelimit-requests-reset",
        ]);
        let tokens_reset = reset(&[
            "x-ratelimit-reset-tokens",
            "anthropic-ratelimit-tokens-reset",
            "anthropic-ratelimit-input-tokens-reset",
        ]);
        let reset_after = match (requests_remaining, tokens_remaining) {
            (Some(0), Some(0)) => requests_reset.max(tokens_reset),
            (Some(0), _) => requests_reset,
            (_, Some(0)) => tokens_reset,
            _ => requests_reset.max(tokens_reset),
        };
        let should_retry = match get("x-should-retry").map(str::trim) {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => None,
        };
        Self {
            retry_after,
            should_retry,
            requests_remaining,
            tokens_remaining,
            reset_after,
        }
    }

    /// Wait before the next request: the one the server asked for, or the reset of an empty window.
    pub fn wait(&self) -> Option<Duration> {
        let empty = self.requests_remaining == Some(0) || self.tokens_remaining == Some(0);
        self.retry_after.or(self.reset_after.filter(|_| empty))
    }
}

/// Seconds, or a date.
fn parse_retry_after(text: &str, date: Option<i64>) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        // More than can be counted is still longer than anyone waits.
        let longest = (seconds > 0.0).then_some(Duration::MAX);
        return Duration::try_from_secs_f64(seconds).ok().or(longest);
    }
    span(date?, parse_http_date(text)?)
}

/// A span such as `6m0s` (OpenAI), or an RFC 3339 time (Anthropic).
fn parse_reset(text: &str, date: Option<i64>) -> Option<Duration> {
    parse_delay(text).or_else(|| span(date?, parse_rfc3339(text.trim())?))
}

fn span(from: i64, to: i64) -> Option<Duration> {
    u64::try_from(to.saturating_sub(from))
        .ok()
        .map(Duration::from_secs)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, in seconds since 1970.
fn parse_http_date(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let mut words = text.split_once(", ")?.1.split(' ');
    let day: i64 = words.next()?.parse().ok()?;
    let month_name = words.next()?;
    let month = MONTHS.iter().position(|month| *month == month_name)? as i64 + 1;
    let year: i64 = words.next()?.parse().ok()?;
    Some(seconds(year, month, day)? + time_of_day(words.next()?)?)
}

/// `2026-03-01T12:00:00Z`, in seconds since 1970; offsets other than UTC are not used.
fn parse_rfc3339(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('T')?;
    let mut parts = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let time = time
        .strip_suffix('Z')
        .or_else(|| time.strip_suffix("+00:00"))?;
    Some(seconds(year, month, day)? + time_of_day(time)?)
}

fn time_of_day(text: &str) -> Option<i64> {
    let mut parts = text
        .split('.')
        .next()?
        .splitn(3, ':')
        .map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    hour.checked_mul(3_600)?
        .checked_add(minute.checked_mul(60)?)?
        .checked_add(second)
}

/// Midnight of a day of the Gregorian calendar, in seconds since 1970.
fn seconds(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Count years from March, so that the leap day is the last day of its year.
    let (year, month) = if month <= 2 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(days * 86_400)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&str, &'static str)]) -> RateLimits {
        read_at(headers, None)
    }

    fn read_at(headers: &[(&str, &'static str)], now: Option<i64>) -> RateLimits {
        let get = |name: &str| {
            let mut named = headers.iter().filter(|(key, _)| *key == name);
            named.next().map(|(_, value)| *value)
        };
        RateLimits::from_headers(get, now)
    }

    fn check(headers: &[(&str, &'static str)], wait: Option<u64>) {
        assert_eq!(
            read(headers).wait(),
            wait.map(Duration::from_millis),
            "{headers:?}"
        );
    }

    #[test]
    fn every_way_to_say_wait() {
        check(&[("retry-after", "3")], Some(3_000));
        check(
            &[("retry-after", "1"), ("retry-after-ms", "0")],
            Some(1_000),
        );
        check(
            &[("retry-after", "1"), ("retry-after-ms", "250")],
            Some(250),
        );
        check(
            &[
                ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
                ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT"),
            ],
            Some(30_000),
        );
        check(&[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], None);
        check(
            &[
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-tokens", "6m0s"),
                ("x-ratelimit-reset-requests", "1s"),
            ],
            Some(360_000),
        );
        check(
            &[
                ("date", "Sun, 01 Mar 2026 11:59:50 GMT"),
                ("anthropic-ratelimit-tokens-remaining", "0"),
                ("anthropic-ratelimit-tokens-reset", "2026-03-01T12:00:00Z"),
            ],
            Some(10_000),
        );
        check(
            &[
                ("x-ratelimit-remaining-tokens", "5"),
                ("x-ratelimit-reset-tokens", "6m0s"),
            ],
            None,
        );
        for nonsense in ["-4", "soon", "nan", "", "-inf"] {
            check(&[("retry-after", nonsense)], None);
        }
    }

    #[test]
    fn a_wait_beyond_counting_is_still_a_wait() {
        for endless in ["99999999999999999999999999", "inf", "1e300"] {
            let limits = read(&[("retry-after", endless)]);
            assert_eq!(limits.wait(), Some(Duration::MAX), "{endless}");
        }
    }

    #[test]
    fn our_own_clock_stands_in_for_the_servers() {
        let later = [("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")];
        let limits = read_at(&later, Some(784_111_777));
        assert_eq!(limits.wait(), Some(Duration::from_secs(30)));
        let past = read_at(&later, Some(784_111_999));
        assert_eq!(past.wait(), None);
    }

    #[test]
    fn dates_count_from_1970() {
        assert_eq!(parse_http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(
            parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(784_111_777)
        );
        assert_eq!(parse_rfc3339("2000-02-29T00:00:01Z"), Some(951_782_401));
    }
}
