//! State of a process, from the kernel: reading never wakes the process.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Returns the processor time of all threads of a process, living and ended, in milliseconds. The kernel counts in
/// hundredths of a second.
pub(crate) fn cpu_ms(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    // The second field may contain spaces; the text after its bracket does not. utime and stime are fields 14 and 15.
    let rest = text.rsplit_once(") ").map(|(_, rest)| rest).context("a process without a name")?;
    let fields: Vec<u64> = rest.split(' ').skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    Ok(fields.iter().sum::<u64>() as f64 * 10.0)
}

/// Returns the processor time of all living threads of a process, in nanoseconds of the scheduler's own count. A thread
/// that ends takes its time along.
pub(crate) fn cpu_ns(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/task");
    let mut all = 0;
    for entry in std::fs::read_dir(&path).with_context(|| format!("reading {path}"))? {
        let file = entry.with_context(|| format!("reading {path}"))?.path().join("schedstat");
        // A thread may have ended since the directory was read.
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        all += text.split(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(all)
}

/// Memory of a process in KiB, with the kernel's names from smaps_rollup; `VmRSS` is from status.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) rss: u64,
    pub(crate) pss: u64,
    pub(crate) anonymous: u64,
}

impl Memory {
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))
        };
        let (rollup, status) = (read("smaps_rollup")?, read("status")?);
        Ok(Self {
            rss: field(&status, "VmRSS:").context("no VmRSS")?,
            pss: field(&rollup, "Pss:").context("no Pss")?,
            anonymous: field(&rollup, "Anonymous:").context("no Anonymous")?,
        })
    }

    pub(crate) fn json(self) -> Value {
        json!({"rss_kib": self.rss, "anonymous_kib": self.anonymous,
               "file_kib": self.rss.saturating_sub(self.anonymous), "pss_kib": self.pss})
    }
}

/// Returns how often each thread of a process has gone to sleep voluntarily, by thread id.
pub(crate) fn voluntary_switches(pid: u32) -> Result<BTreeMap<String, u64>> {
    let path = format!("/proc/{pid}/task");
    let mut switches = BTreeMap::new();
    for entry in std::fs::read_dir(&path).with_context(|| format!("reading {path}"))? {
        let thread = entry.with_context(|| format!("reading {path}"))?;
        let status = thread.path().join("status");
        let text = match std::fs::read_to_string(&status) {
            Ok(text) => text,
            // The process has ended since the directory was read.
            Err(error) if matches!(error.raw_os_error(), Some(2 | 3)) => continue,
            Err(error) => return Err(error).with_context(|| format!("reading {}", status.display())),
        };
        let count = field(&text, "voluntary_ctxt_switches:").context("no voluntary_ctxt_switches")?;
        switches.insert(thread.file_name().to_string_lossy().into_owned(), count);
    }
    Ok(switches)
}

/// Counts the context switches of all threads between two results of [`voluntary_switches`]. A thread that has ended in
/// between counts once: it has woken at least once.
pub(crate) fn switched(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> u64 {
    let lived = after.iter().map(|(thread, count)| count - before.get(thread).copied().unwrap_or(0));
    let ended = before.keys().filter(|thread| !after.contains_key(*thread)).count();
    lived.sum::<u64>() + ended as u64
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_and_cpu_time_of_this_process_are_read() {
        let me = std::process::id();
        let memory = Memory::of(me).unwrap();
        assert!(memory.rss > 500 && memory.anonymous > 0 && memory.pss <= memory.rss, "{memory:?}");
        assert!(voluntary_switches(me).unwrap().contains_key(&me.to_string()));
        assert!(cpu_ms(me).unwrap() >= 0.0 && cpu_ns(me).unwrap() > 0);
    }

    #[test]
    fn threads_that_came_and_went_count() {
        let sample = |threads: &[(&str, u64)]| threads.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        let (before, after) = (sample(&[("1", 10), ("2", 500)]), sample(&[("1", 11), ("3", 4)]));
        assert_eq!(switched(&before, &after), 1 + 4 + 1);
        assert_eq!(switched(&before, &before), 0);
    }
}
