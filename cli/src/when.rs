//! Times as an operator's clock shows them: local time with its zone, as RFC 3339 and `journalctl -o short-iso` write
//! it.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use perilog_core::Span;
use perilog_host::clock;

/// Formats a wall time (milliseconds since 1970) in local time, such as `2026-11-20T03:12:07+01:00`.
pub(crate) fn second(wall_ms: u64) -> String {
    shown(wall_ms, "%Y-%m-%dT%H:%M:%S%:z", &TimeZone::system())
}

/// Formats a wall time (milliseconds since 1970) in local time, such as
/// `2026-11-20T03:12:07.123+01:00`.
pub(crate) fn milli(wall_ms: u64) -> String {
    shown(wall_ms, "%Y-%m-%dT%H:%M:%S.%3f%:z", &TimeZone::system())
}

/// Formats the day of a wall time (milliseconds since 1970) in local time, such as `2026-11-20`.
pub(crate) fn day(wall_ms: u64) -> String {
    shown(wall_ms, "%Y-%m-%d", &TimeZone::system())
}

/// Formats a wall time as RFC 3339 in UTC, for programs: `2026-11-20T03:12:07Z`.
pub(crate) fn rfc3339(wall_ms: u64) -> String {
    shown(wall_ms, "%Y-%m-%dT%H:%M:%S%:z", &TimeZone::UTC)
}

/// Parses the value of `--since`: a length of time that has passed (`2h`; `infinity` for all time), a date, a date and
/// time of the local clock, `today` or `yesterday` (from midnight of the local clock), or RFC 3339. Returns the time in
/// milliseconds since 1970.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    if let Ok(span) = text.parse::<Span>() {
        return Ok(span.as_millis().map_or(0, |ms| clock::wall_ms().saturating_sub(ms)));
    }
    let days = match text {
        "today" => Some(0),
        "yesterday" => Some(1),
        _ => None,
    };
    if let Some(since_ms) = days.and_then(midnight) {
        return Ok(since_ms);
    }
    let local = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::system()).ok().map(|zoned| zoned.timestamp());
    let moment = text.parse::<Timestamp>().ok().or_else(local);
    let ms = moment.and_then(|moment| u64::try_from(moment.as_millisecond()).ok());
    ms.ok_or_else(|| {
        "expected a length of time such as 90s, 5m, 2h, 7d, or today, yesterday, a date (2026-11-20), or a date and \
         time (\"2026-11-20 03:12\")"
            .to_owned()
    })
}

/// Returns the midnight at which the local day `days` days ago began, in milliseconds since 1970.
fn midnight(days: i64) -> Option<u64> {
    let now = Timestamp::from_millisecond(i64::try_from(clock::wall_ms()).ok()?).ok()?;
    let day = now.to_zoned(TimeZone::system()).date().checked_sub(jiff::Span::new().days(days)).ok()?;
    u64::try_from(day.to_zoned(TimeZone::system()).ok()?.timestamp().as_millisecond()).ok()
}

/// Parses as [`parse`] does; returns the length of time from then until now.
pub(crate) fn ago(text: &str) -> Result<Span, String> {
    let since_ms = parse(text)?;
    Ok(if since_ms == 0 { Span::INFINITE } else { Span::from_millis(clock::wall_ms().saturating_sub(since_ms)) })
}

fn shown(wall_ms: u64, format: &str, zone: &TimeZone) -> String {
    let moment = i64::try_from(wall_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    // A time that has no date (after the year 9999) comes from a broken clock.
    let Some(zoned) = moment.map(|moment| moment.to_zoned(zone.clone())) else { return "?".to_owned() };
    let shown = zoned.strftime(format).to_string();
    // RFC 3339 has a letter for UTC, which the controller's own texts use, too.
    shown.strip_suffix("+00:00").map_or_else(|| shown.clone(), |time| format!("{time}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_shown_in_their_zone() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        assert_eq!(shown(1_795_144_327_123, "%Y-%m-%dT%H:%M:%S.%3f%:z", &berlin), "2026-11-20T04:12:07.123+01:00");
        assert_eq!(shown(1_795_144_327_123, "%Y-%m-%dT%H:%M:%S.%3f%:z", &TimeZone::UTC), "2026-11-20T03:12:07.123Z");
        assert_eq!(rfc3339(1_795_144_327_123), "2026-11-20T03:12:07Z");
        assert_eq!(rfc3339(u64::MAX), "?");
    }

    /// One grammar for every `--since`: lengths of time, dates, and the times that perilog shows.
    #[test]
    fn since_is_a_length_of_time_or_a_date() {
        let now_ms = clock::wall_ms();
        for (text, ms) in [
            ("90s", 90_000),
            ("5m", 300_000),
            ("5min", 300_000),
            ("2h", 7_200_000),
            ("1h30m", 5_400_000),
            ("3d", 259_200_000),
            ("1w", 604_800_000),
        ] {
            let since_ms = parse(text).unwrap();
            assert!((now_ms - ms..=clock::wall_ms() - ms).contains(&since_ms), "{text}");
        }
        assert_eq!((parse("infinity"), ago("infinity")), (Ok(0), Ok(Span::INFINITE)));
        assert_eq!(parse("2026-11-20T03:12:07Z"), Ok(1_795_144_327_000));
        assert_eq!(parse("2026-11-20T04:12:07.123+01:00"), Ok(1_795_144_327_123));
        assert_eq!(parse(&second(1_795_144_327_000)), Ok(1_795_144_327_000));
        assert_eq!(parse(&milli(1_795_144_327_123)), Ok(1_795_144_327_123));
        let day = parse("2026-11-20").unwrap();
        assert_eq!(parse("2026-11-20 03:12").unwrap() - day, (3 * 60 + 12) * 60_000);
        let midnight = parse(&self::day(clock::wall_ms())).unwrap();
        assert_eq!(parse("today"), Ok(midnight));
        let yesterday = parse("yesterday").unwrap();
        assert!((23 * 3_600_000..=25 * 3_600_000).contains(&(midnight - yesterday)), "{yesterday}");
        for text in ["", "yesterday-ish", "5y", "2026-13-01", "-1h"] {
            assert!(parse(text).unwrap_err().contains("such as 90s, 5m, 2h, 7d"), "{text}");
        }
    }
}
