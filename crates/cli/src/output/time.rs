//! Moments as people read them: in their own time zone, to the minute.

use agent_protocol::Timestamp;
use jiff::tz::TimeZone;

/// `2026-11-16 04:12:09` in the machine's time zone.
pub(crate) fn local_second(moment: Timestamp) -> String {
    local(moment, "%Y-%m-%d %H:%M:%S")
}

fn local(moment: Timestamp, format: &str) -> String {
    match jiff::Timestamp::from_millisecond(moment.unix_millis()) {
        Ok(instant) => instant
            .to_zoned(TimeZone::system())
            .strftime(format)
            .to_string(),
        // Outside of the years a calendar has.
        Err(_) => moment.to_string(),
    }
}
