//! Times as an operator's clock shows them: local time, in the format of systemd and journalctl.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use perilog_core::Span;
use perilog_host::clock;

/// Formats a wall time (milliseconds since 1970) in local time, such as `2026-11-20 03:12:07`.
pub(crate) fn second(wall_ms: u64) -> String {
    shown(wall_ms, "%Y-%m-%d %H:%M:%S", &TimeZone::system())
}

/// Formats a wall time (milliseconds since 1970) in local time, such as `2026-11-20 03:12:07.123`.
pub(crate) fn milli(wall_ms: u64) -> String {
    shown(wall_ms, "%Y-%m-%d %H:%M:%S.%3f", &TimeZone::system())
}

/// Formats the day of a wall time (milliseconds since 1970) in local time, such as `2026-11-20`.
pub(crate) fn day(wall_ms: u64) -> String {
    shown(wall_ms, "%Y-%m-%d", &TimeZone::system())
}

/// Formats a wall time as RFC 3339 in UTC, for programs: `2026-11-20T03:12:07Z`.
pub(crate) fn rfc3339(wall_ms: u64) -> String {
    shown(wall_ms, "%Y-%m-%dT%H:%M:%SZ", &TimeZone::UTC)
}

/// Parses a length of time that has passed (`2h`), a date, a date and time of the local clock, or RFC 3339. Returns
/// milliseconds since 1970.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    if let Ok(span) = text.parse::<Span>() {
        let ms = span.as_millis().ok_or("expected a time that has an end")?;
        return Ok(clock::wall_ms().saturating_sub(ms));
    }
    let local = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::system()).ok().map(|zoned| zoned.timestamp());
    let moment = text.parse::<Timestamp>().ok().or_else(local);
    let ms = moment.and_then(|moment| u64::try_from(moment.as_millisecond()).ok());
    ms.ok_or_else(|| {
        "expected a length of time (2h), a date (2026-11-20), or a date and time (\"2026-11-20 03:12\")".to_owned()
    })
}

fn shown(wall_ms: u64, format: &str, zone: &TimeZone) -> String {
    let moment = i64::try_from(wall_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    // Past the year 9999 a clock is broken, not early.
    moment.map_or_else(|| "?".to_owned(), |moment| moment.to_zoned(zone.clone()).strftime(format).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_shown_in_their_zone() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        assert_eq!(shown(1_795_144_327_123, "%Y-%m-%d %H:%M:%S.%3f", &berlin), "2026-11-20 04:12:07.123");
        assert_eq!(rfc3339(1_795_144_327_123), "2026-11-20T03:12:07Z");
        assert_eq!(rfc3339(u64::MAX), "?");
    }
}
