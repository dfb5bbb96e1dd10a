//! Formats a time for people on any host: `2026-11-20T03:12:07Z` (RFC 3339) reads the same in every time zone.

/// Formats `wall_ms`, milliseconds since 1970 (UTC), to the second. The calendar is Gregorian; the algorithm is Howard
/// Hinnant's `civil_from_days`.
pub(crate) fn second(wall_ms: u64) -> String {
    let seconds = wall_ms / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The year starts in March, so that a leap day is the last day of its year. 146,097 days are 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    #[test]
    fn moments() {
        for (wall_ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59Z"),
            (1_795_144_327_123, "2026-11-20T03:12:07Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
            (u64::MAX, "584556019-04-03T14:25:51Z"),
        ] {
            assert_eq!(super::second(wall_ms), text);
        }
    }
}
