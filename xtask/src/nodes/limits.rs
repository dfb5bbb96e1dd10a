//! How many tests run at once on this machine: by its processor cores, its memory, and the kernel's limits.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::stages::print_line;

/// Environment variable: number of tests that run at once, instead of the number for this machine.
const AT_ONCE_VARIABLE: &str = "PERILOG_TESTS_AT_ONCE";
/// Number of tests that run at once for each processor core. A test waits four fifths of its time.
const PER_CORE: usize = 5;
/// Memory in MiB that one more test takes: five nodes with their daemons, or a browser.
const MIB_PER_TEST: usize = 512;
/// Greatest number of inotify instances that a test has in the mean, with those of its nodes' systemd, bus and daemons.
/// The kernel counts them for each user of the machine, and all nodes' root is one user.
const INSTANCES_PER_TEST: usize = 40;
const INSTANCES: &str = "/proc/sys/fs/inotify/max_user_instances";

/// Returns how many tests run at once, before this program is root.
pub(super) fn at_once() -> Result<usize> {
    if let Ok(text) = std::env::var(AT_ONCE_VARIABLE) {
        let number = text.parse().unwrap_or(0);
        ensure!(number > 0, "{AT_ONCE_VARIABLE}: not a number of tests: {text:?}");
        return Ok(number);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    Ok(choose(cores, available_mib(&memory).context("no MemAvailable in /proc/meminfo")?))
}

fn choose(cores: usize, available_mib: usize) -> usize {
    (cores * PER_CORE).min(available_mib / MIB_PER_TEST).max(1)
}

/// Returns the memory in MiB that programs may take, from the text of /proc/meminfo.
fn available_mib(text: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<usize>().ok().map(|kib| kib / 1024)
}

/// Raises the kernel's limit of inotify instances where it is too low for this many tests, and says so; needs root.
/// Returns how many tests may run at once: fewer, where the limit cannot be raised, as in some containers.
pub(super) fn raise(at_once: usize) -> Result<usize> {
    let path = Path::new(INSTANCES);
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {INSTANCES}"))?;
    let limit: usize = text.trim().parse().with_context(|| format!("{INSTANCES}: {text:?}"))?;
    let needed = at_once * INSTANCES_PER_TEST;
    if limit >= needed {
        return Ok(at_once);
    }
    if let Err(error) = std::fs::write(path, needed.to_string()) {
        let fewer = (limit / INSTANCES_PER_TEST).max(1);
        print_line(&format!(
            "fs.inotify.max_user_instances is {limit}, too few for {at_once} tests at once, and stays: {error}"
        ))?;
        return Ok(fewer);
    }
    print_line(&format!("fs.inotify.max_user_instances was {limit}, and is {needed} from now on"))?;
    Ok(at_once)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_bounds_what_cores_allow() {
        for (cores, mib, expected) in [(2, 24_000, 10), (16, 24_000, 46), (2, 2_048, 4), (1, 100, 1)] {
            assert_eq!(choose(cores, mib), expected, "{cores} cores, {mib} MiB");
        }
        assert_eq!(available_mib("MemTotal: 9 kB\nMemAvailable:   2097152 kB\n"), Some(2048));
        assert_eq!(available_mib("MemTotal: 9 kB\n"), None);
    }
}
