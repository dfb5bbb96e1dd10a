//! How busy the machine's processor cores are, by what the kernel counts (proc_stat(5)).

use anyhow::{Context, Result};
use perilog_tests::Stopwatch;

/// The kernel counts processor time in hundredths of a second (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;
/// Fields of a line of /proc/stat in which a core does nothing: idle, and waiting for a disk.
const IDLE: [usize; 2] = [3, 4];
/// Fields of a line of /proc/stat that count what the other fields contain, too: the time of guests.
const GUESTS: usize = 8;

/// Processor time of the whole machine at a moment.
#[derive(Debug)]
pub(crate) struct Processors {
    watch: Stopwatch,
    busy: f64,
}

impl Processors {
    pub(crate) fn start() -> Result<Self> {
        Ok(Self { watch: Stopwatch::start(), busy: busy()? })
    }

    /// Returns the seconds since the start, and how many cores were busy in the mean, by whatever the machine ran.
    pub(crate) fn elapsed(&self) -> Result<(f64, f64)> {
        let seconds = self.watch.elapsed().as_secs_f64();
        Ok((seconds, (busy()? - self.busy) / seconds.max(1.0 / TICKS_PER_SECOND)))
    }
}

/// Returns the processor time in seconds that the machine has used since it booted.
fn busy() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    read(&text).context("no line `cpu` in /proc/stat")
}

fn read(text: &str) -> Option<f64> {
    let fields = text.lines().find_map(|line| line.strip_prefix("cpu "))?.split_whitespace();
    let counted = fields.enumerate().take(GUESTS).filter(|(field, _)| !IDLE.contains(field));
    let ticks: f64 = counted.filter_map(|(_, ticks)| ticks.parse::<f64>().ok()).sum();
    Some(ticks / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_and_guests_do_not_count() {
        let stat = "cpu  100 20 30 9999 888 4 5 6 77 8\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 1\n";
        assert_eq!(read(stat), Some(1.65));
        assert_eq!(read("cpu0 1 1\n"), None);
    }
}
