//! Clocks. Only this module reads a clock; all other code gets a time from its caller.
//!
//! * *mono*: CLOCK_MONOTONIC, for limits and intervals. An administrator cannot set this clock; it begins anew with
//!   each boot.
//! * *boottime*: CLOCK_BOOTTIME, for deadlines that must hold across a suspend (`not-after`). This clock begins anew
//!   with each boot.
//! * *wall*: CLOCK_REALTIME, for people and event logs. This clock can jump, so no limit of a task depends on
//!   it.
//!
//! All functions return whole milliseconds, except [`wall_seconds`], [`mono_us`],
//! [`process_cpu_us`] and [`until`].

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns milliseconds of CLOCK_MONOTONIC.
pub fn mono_ms() -> u64 {
    ms(clock_gettime(ClockId::Monotonic))
}

/// Returns microseconds of CLOCK_MONOTONIC, the unit of systemd's own time stamps.
pub fn mono_us() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    unsigned(t.tv_sec) * 1_000_000 + unsigned(t.tv_nsec) / 1_000
}

/// Returns the processor time of all threads of this process, in microseconds.
pub fn process_cpu_us() -> u64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    unsigned(t.tv_sec) * 1_000_000 + unsigned(t.tv_nsec) / 1_000
}

/// Returns milliseconds of CLOCK_BOOTTIME, which is monotonic and also counts during a suspend.
pub fn boottime_ms() -> u64 {
    ms(clock_gettime(ClockId::Boottime))
}

/// Returns milliseconds since 1970 (UTC), or 0 if the clock is set earlier.
pub fn wall_ms() -> u64 {
    ms(realtime())
}

/// Returns seconds since 1970 (UTC) with a fraction, the form of RFC 18 event time stamps.
pub fn wall_seconds() -> f64 {
    let t = realtime();
    unsigned(t.tv_sec) as f64 + unsigned(t.tv_nsec) as f64 / 1e9
}

/// Returns the time until `deadline_ms` of CLOCK_MONOTONIC; zero after the deadline.
pub fn until(deadline_ms: u64) -> Duration {
    Duration::from_millis(deadline_ms.saturating_sub(mono_ms()))
}

#[cfg(not(feature = "fault-points"))]
fn realtime() -> Timespec {
    clock_gettime(ClockId::Realtime)
}

/// Reads the clock and adds the seconds that the file `clock` in the directory of the fault points contains. So a test
/// can move one node's clock, although all its nodes share the clock of the kernel.
#[cfg(feature = "fault-points")]
fn realtime() -> Timespec {
    let mut t = clock_gettime(ClockId::Realtime);
    let step = std::fs::read_to_string(format!("{}/clock", crate::fault::DIRECTORY));
    t.tv_sec += step.ok().and_then(|text| text.trim().parse::<i64>().ok()).unwrap_or(0);
    t
}

fn ms(t: Timespec) -> u64 {
    unsigned(t.tv_sec) * 1_000 + unsigned(t.tv_nsec) / 1_000_000
}

fn unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward() {
        let (mono, boot) = (mono_ms(), boottime_ms());
        assert!(mono_ms() >= mono);
        let cpu = process_cpu_us();
        assert!(cpu > 0 && process_cpu_us() >= cpu);
        assert!(boottime_ms() >= boot);
        assert!(boot >= mono, "boottime counts all that monotonic counts");
    }

    #[test]
    fn units_agree() {
        let mono = mono_ms();
        assert!((mono..=mono + 10_000).contains(&(mono_us() / 1_000)));
        let wall = wall_ms();
        assert!(wall > 1_600_000_000_000);
        assert!((wall_seconds() - wall as f64 / 1e3).abs() < 10.0);
    }

    #[test]
    fn a_deadline_that_passed_is_now() {
        assert_eq!(until(0), Duration::ZERO);
        let wait = until(mono_ms() + 60_000);
        assert!(wait > Duration::from_secs(30) && wait <= Duration::from_secs(60));
    }
}
