//! Tests with the texts of RFC 23, and with texts that only perilog's parser refuses.

use proptest::prelude::*;

use super::{Span, age, elapsed};

const S: u64 = 1000;

#[test]
fn texts_that_are_durations() {
    #[rustfmt::skip]
    let table = [
        ("2ms", 2), ("0.1s", 100), ("30", 30 * S), ("1.2h", 4320 * S), ("5m", 300 * S), ("0s", 0), ("0", 0),
        ("5d", 432_000 * S),
        ("500ms", 500), (".5h", 1800 * S), ("1.", S), ("1.s", S), ("+5", 5 * S), ("1e3ms", S), ("1E+3ms", S),
        ("5e-1", 500), ("00005", 5 * S),
        ("0x10", 16 * S), ("0X10s", 16 * S), ("0x1d", 29 * S), ("0x2ms", 2), ("0x0", 0),
        // Rounded to whole milliseconds, but a positive duration stays positive.
        ("1.4ms", 1), ("1.5ms", 2), ("0.0001", 1), ("1e-400", 1), ("0e9", 0), ("0.000d", 0),
        // No digit of a whole number is lost.
        ("18446744073709551614ms", u64::MAX - 1), ("18446744073709551s", 18_446_744_073_709_551_000),
        ("9007199254740993", 9_007_199_254_740_993_000),
    ];
    for (text, millis) in table {
        let span = Span::parse(text).unwrap();
        assert_eq!(span.as_millis(), Some(millis), "{text:?}");
        assert_eq!(text.parse::<Span>(), Ok(span));
    }
    for text in ["inf", "INF", "Inf", "infinity", "INFINITY", "+inf"] {
        assert_eq!(Span::parse(text), Ok(Span::INFINITE), "{text:?}");
    }
}

#[test]
fn texts_that_are_refused_and_where() {
    #[rustfmt::skip]
    let table = [
        ("-1.", 0), ("-1", 0), ("-0", 0), ("-inf", 0), ("+-1", 1), ("++1", 1),
        ("1.0f", 3), ("1.0sec", 3), ("5 s", 1), ("5s ", 1), ("5M", 1), ("5mins", 1), ("5MS", 1), ("5S", 1), ("5s5", 1),
        ("5s30m", 1), ("5m30m", 1), ("1.5m30s", 3), ("5m30", 1), ("5m3.5s", 1), ("5m-3s", 1), ("5m 30s", 1), ("5mo", 1),
        ("NaNs", 0), ("nan", 0), ("infinites", 0), ("infd", 0), ("infs", 0), ("infinitys", 0), ("in", 0),
        ("", 0), ("s", 0), ("ms", 0), (" 5s", 0), (".", 0), (".s", 0), ("+", 1), ("e5", 0), (".e5", 0), ("1e", 1),
        ("1e+", 1), ("1.5e-s", 3),
        ("1_000", 1), ("1,5", 1), ("1.2.3", 3), ("5µs", 1), ("٣s", 0),
        // Hexadecimal numbers with a point or an exponent, and without a digit.
        ("0x", 1), ("0xs", 1), ("0x1.8", 3), ("0x1p3", 3), ("0x.8", 1),
        // Longer than perilog counts.
        ("1e400", 0), ("+1e400", 1), ("18446744073709551616ms", 0), ("18446744073709551615ms", 0),
        ("18446744073709552s", 0), ("213503982335d", 0), ("0x10000000000000000", 0),
    ];
    for (text, at) in table {
        let error = Span::parse(text).unwrap_err();
        assert_eq!((error.what, error.at), ("duration", at), "{text:?}: {error}");
    }
    let error = Span::parse("5y").unwrap_err().to_string();
    assert_eq!(error, "malformed duration \"5y\" at character 2: expected a length of time such as 90s, 5m, 2h, 7d");
}

#[test]
fn shown_in_one_form_and_stored_exactly() {
    #[rustfmt::skip]
    let table = [
        (0, "0s", "0s"), (1, "1ms", "1ms"), (99, "99ms", "99ms"), (100, "100ms", "100ms"), (999, "999ms", "999ms"),
        (1000, "1s", "1s"), (1500, "1.5s", "1500ms"), (42_050, "42s", "42050ms"), (59_999, "59.9s", "59999ms"),
        (60 * S, "1m", "60s"), (62 * S, "1m02s", "62s"), (3599 * S, "59m59s", "3599s"), (3600 * S, "1h", "3600s"),
        // Regression: a reason said "after 7.23747m".
        (434_248, "7m14s", "434248ms"), (4500 * S, "1h15m", "4500s"),
        (86_400 * S, "1d", "86400s"), (103_680 * S, "1d04h", "103680s"), (86_400_000 * S, "1000d", "86400000s"),
    ];
    for (millis, shown, exact) in table {
        let span = Span::from_millis(millis);
        assert_eq!((span.to_string().as_str(), span.to_exact().as_str()), (shown, exact));
        assert_eq!(Span::parse(exact), Ok(span));
        // An operator can type what perilog shows.
        let typed = Span::parse(shown).unwrap();
        assert!(typed <= span && typed.to_string() == shown, "{shown}");
    }
    assert_eq!((Span::INFINITE.to_string().as_str(), Span::INFINITE.to_exact().as_str()), ("infinity", "infinity"));
    assert_eq!(format!("{:>5}|{:<5}|", Span::from_secs(30), Span::from_secs(60)), "  30s|1m   |");
}

#[test]
fn lengths_of_time_are_short() {
    for (ms, expect) in [(0, "0s"), (59_999, "59s"), (252_000, "4m12s"), (7_380_000, "2h03m"), (273_600_000, "3d04h")] {
        assert_eq!(age(ms), expect, "{ms}");
    }
    for (ms, expect) in
        [(0, "0s"), (420, "420ms"), (4_260, "4.2s"), (59_999, "59.9s"), (60_000, "1m"), (434_248, "7m14s")]
    {
        assert_eq!(elapsed(ms), expect, "{ms}");
    }
}

#[test]
fn infinity_is_longer_than_all_and_has_no_length() {
    assert!(Span::ZERO < Span::from_secs(1) && Span::from_secs(1) < Span::INFINITE);
    assert_eq!(
        (Span::INFINITE.as_millis(), Span::INFINITE.as_duration(), Span::INFINITE.is_infinite()),
        (None, None, true)
    );
    assert_eq!(Span::from_secs(2).as_duration(), Some(std::time::Duration::from_secs(2)));
    assert_eq!((Span::from_secs(u64::MAX), Span::default().is_zero()), (Span::INFINITE, true));
}

#[test]
fn serde_reads_texts_and_numbers_of_seconds() {
    #[rustfmt::skip]
    let table = [
        ("\"1.5m\"", Some(90 * S)), ("90", Some(90 * S)), ("1.5", Some(1500)), ("0", Some(0)), ("0.0001", Some(1)),
        ("-1", None), ("-0.5", None), ("\"\"", None), ("\"5 s\"", None), ("null", None), ("[]", None), ("true", None),
        ("18446744073709551615", None), ("1e300", None),
    ];
    for (json, millis) in table {
        assert_eq!(serde_json::from_str::<Span>(json).ok().and_then(Span::as_millis), millis, "{json}");
    }
    assert_eq!(serde_json::from_str::<Span>("\"infinity\"").unwrap(), Span::INFINITE);
    assert_eq!(serde_json::to_string(&Span::from_millis(3_599_001)).unwrap(), "\"3599001ms\"");
}

/// Draws spans of every size, and the infinite span.
fn span() -> impl Strategy<Value = Span> {
    prop_oneof![(0..64_u32, any::<u64>()).prop_map(|(shift, n)| Span::from_millis(n >> shift)), Just(Span::INFINITE)]
}

proptest! {
    #[test]
    fn the_exact_text_reads_back(span in span()) {
        prop_assert_eq!(Span::parse(&span.to_exact()), Ok(span));
        prop_assert_eq!(serde_json::from_str::<Span>(&serde_json::to_string(&span).unwrap()).unwrap(), span);
    }

    #[test]
    fn the_shown_text_reads_back_to_its_last_unit(span in span()) {
        if let Some(millis) = span.as_millis() {
            let again = Span::parse(&span.to_string()).unwrap().as_millis().unwrap();
            let last = match millis {
                0..1000 => 1,
                1000..60_000 => 100,
                60_000..3_600_000 => S,
                3_600_000..86_400_000 => 60 * S,
                _ => 3600 * S,
            };
            prop_assert!(again <= millis && millis - again < last, "{millis} {again}");
        }
    }

    #[test]
    fn any_text_is_read_or_refused(any in ".{0,20}",
                                   near in "[+-]?(0x)?[0-9a-f.]{0,6}([eE][+-]?[0-9]{0,3})?(ms|min|[smhdw])?",
                                   more in "([0-9]{0,2}(ms|[smh]))?") {
        for text in [any, format!("{near}{more}"), near] {
            if let Err(error) = Span::parse(&text) {
                prop_assert!(error.at <= text.len() && text.is_char_boundary(error.at), "{text:?}");
            }
        }
    }
}
