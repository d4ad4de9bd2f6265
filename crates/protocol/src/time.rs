//! Time as the log writes it: RFC 3339, UTC, milliseconds.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Source of the current time. Only the binary implements this with the real clock; tests pass a
/// fixed one.
pub trait Clock: Send + Sync {
    /// The producer's time now. It may go backwards; nothing in the log depends on its order.
    fn now(&self) -> Timestamp;
}

/// A moment in UTC with millisecond precision, written as `2026-11-16T03:28:00.123Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp {
    unix_millis: i64,
}

impl Timestamp {
    /// The moment `millis` milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_unix_millis(millis: i64) -> Self {
        Self {
            unix_millis: millis,
        }
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_millis(self) -> i64 {
        self.unix_millis
    }

    /// Milliseconds from `earlier` to this moment; zero when the clock went backwards.
    #[must_use]
    pub const fn millis_since(self, earlier: Self) -> u64 {
        let span = self.unix_millis.saturating_sub(earlier.unix_millis);
        if span < 0 { 0 } else { span.unsigned_abs() }
    }

    /// Reads the form this crate writes, and any RFC 3339 time with `Z` or a numeric offset.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let number = |from: usize, to: usize| -> Option<i64> {
            let digits = bytes.get(from..to)?;
            digits.iter().try_fold(0i64, |value, byte| {
                byte.is_ascii_digit()
                    .then(|| value * 10 + i64::from(byte - b'0'))
            })
        };
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        let marks = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
        let marked = marks.iter().all(|&(at, mark)| bytes.get(at) == Some(&mark))
            && matches!(bytes.get(10), Some(b'T' | b't' | b' '));
        let in_range = (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && hour < 24
            && minute < 60
            && second <= 60;
        if !marked || !in_range {
            return None;
        }
        let mut at = 19;
        let mut millis = 0;
        if bytes.get(at) == Some(&b'.') {
            let digits = bytes[at + 1..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            if digits == 0 {
                return None;
            }
            for place in 0..3 {
                let digit = if place < digits {
                    number(at + 1 + place, at + 2 + place)?
                } else {
                    0
                };
                millis = millis * 10 + digit;
            }
            at += 1 + digits;
        }
        let offset_minutes = match bytes.get(at) {
            Some(b'Z' | b'z') if bytes.len() == at + 1 => 0,
            Some(sign @ (b'+' | b'-')) if bytes.len() == at + 6 && bytes[at + 3] == b':' => {
                let minutes = number(at + 1, at + 3)? * 60 + number(at + 4, at + 6)?;
                if *sign == b'+' { minutes } else { -minutes }
            }
            _ => return None,
        };
        let days = days_from_civil(year, month, day);
        let seconds = ((days * 24 + hour) * 60 + minute - offset_minutes) * 60 + second;
        Some(Self::from_unix_millis(seconds * 1000 + millis))
    }
}

impl Timestamp {
    /// The form this crate writes; nothing for a year it has no digits for. Every event has a time,
    /// and writing its digits by hand takes a tenth of what `write!` does.
    fn digits(self) -> Option<[u8; 24]> {
        let [year, month, day, hour, minute, second, millis] = self.parts();
        if !(0..=9999).contains(&year) {
            return None;
        }
        let mut text = *b"0000-00-00T00:00:00.000Z";
        for (place, width, value) in [
            (0, 4, year),
            (5, 2, month),
            (8, 2, day),
            (11, 2, hour),
            (14, 2, minute),
            (17, 2, second),
            (20, 3, millis),
        ] {
            let mut value = value;
            for digit in text[place..place + width].iter_mut().rev() {
                *digit = b'0' + u8::try_from(value % 10).unwrap_or(0);
                value /= 10;
            }
        }
        Some(text)
    }

    fn parts(self) -> [i64; 7] {
        let millis = self.unix_millis.rem_euclid(1000);
        let seconds = self.unix_millis.div_euclid(1000);
        let (days, second_of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil_from_days(days);
        let (hour, minute) = (second_of_day / 3600, second_of_day / 60 % 60);
        [year, month, day, hour, minute, second_of_day % 60, millis]
    }

    /// Appends the text to a line.
    pub(crate) fn push_to(self, out: &mut Vec<u8>) {
        match self.digits() {
            Some(text) => out.extend_from_slice(&text),
            None => out.extend_from_slice(self.to_string().as_bytes()),
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = self.digits() {
            return f.write_str(std::str::from_utf8(&text).unwrap_or_default());
        }
        let [year, month, day, hour, minute, second, millis] = self.parts();
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z"
        )
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            de::Error::invalid_value(de::Unexpected::Str(&text), &"an RFC 3339 time")
        })
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// Days since 1970-01-01 of a date of the proleptic Gregorian calendar (Howard Hinnant's method).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, millis: Option<i64>) {
        assert_eq!(
            Timestamp::parse(text).map(Timestamp::unix_millis),
            millis,
            "{text}"
        );
    }

    #[test]
    fn reads_rfc_3339() {
        check("1970-01-01T00:00:00.000Z", Some(0));
        check("2026-11-16T03:28:00.123Z", Some(1_794_799_680_123));
        check("2026-11-16T04:28:00.123456+01:00", Some(1_794_799_680_123));
        check("1969-12-31T23:59:59Z", Some(-1000));
        check("2000-02-29T00:00:00Z", Some(951_782_400_000));
        for bad in [
            "",
            "2026",
            "2026-13-01T00:00:00Z",
            "2026-11-16T03:28:00",
            "2026-11-16T03:28:00.Z",
            "2026-11-16T03:28:00Zx",
            "٢026-11-16T03:28:00Z",
        ] {
            check(bad, None);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_written_time_is_read_back(millis in -60_000_000_000_000i64..200_000_000_000_000) {
            let time = Timestamp::from_unix_millis(millis);
            proptest::prop_assert_eq!(Timestamp::parse(&time.to_string()), Some(time));
        }
    }
}
