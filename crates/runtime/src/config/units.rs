//! Durations and sizes as people write them: `90s`, `5m`, `2h`, `30d`; `512 KB`, `2GB`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A length of time. Compares by length, prints as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    text: String,
    seconds: u64,
}

/// A number of bytes. Compares by size, prints as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    text: String,
    bytes: u64,
}

impl Span {
    pub fn minutes(minutes: u32) -> Self {
        Self {
            text: format!("{minutes}m"),
            seconds: u64::from(minutes) * 60,
        }
    }

    pub fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

impl Size {
    pub fn megabytes(megabytes: u32) -> Self {
        Self {
            text: format!("{megabytes}MB"),
            bytes: u64::from(megabytes) << 20,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl PartialOrd for Span {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.seconds.partial_cmp(&other.seconds)
    }
}

impl PartialOrd for Size {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.bytes.partial_cmp(&other.bytes)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [
            ("s", 1),
            ("m", 60),
            ("h", 3600),
            ("d", 86_400),
            ("w", 604_800),
        ];
        let seconds = scale(text, &units).ok_or_else(|| {
            format!("`{text}` is not a duration such as `90s`, `5m`, `2h` or `30d`")
        })?;
        Ok(Self {
            text: text.trim().to_owned(),
            seconds,
        })
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("B", 1), ("KB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30)];
        let bytes = scale(text, &units)
            .ok_or_else(|| format!("`{text}` is not a size such as `64KB`, `512MB` or `2GB`"))?;
        Ok(Self {
            text: text.trim().to_owned(),
            bytes,
        })
    }
}

/// Reads a whole number followed by one of `units`, in any case.
fn scale(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let (_, factor) = units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

macro_rules! as_text {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}

as_text!(Span);
as_text!(Size);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(span: &str, seconds: Option<u64>, size: &str, bytes: Option<u64>) {
        assert_eq!(
            span.parse::<Span>().ok().map(|s| s.seconds),
            seconds,
            "{span}"
        );
        assert_eq!(size.parse::<Size>().ok().map(|s| s.bytes), bytes, "{size}");
    }

    #[test]
    fn units_are_read() {
        check("90s", Some(90), "64KB", Some(65_536));
        check("5 m", Some(300), "2 gb", Some(2 << 30));
        check("30d", Some(2_592_000), "7B", Some(7));
    }

    #[test]
    fn what_is_not_clear_is_refused() {
        check("90", None, "64", None);
        check("-5m", None, "1.5GB", None);
        check("5 minutes", None, "KB", None);
        check(
            "99999999999999999999d",
            None,
            "18446744073709551615GB",
            None,
        );
    }
}
