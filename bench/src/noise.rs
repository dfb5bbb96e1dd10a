//! Noise of the machine during a measurement: load, time that the hypervisor gave to others, and the spread of a loop
//! of constant work.

use anyhow::{Context, Result};
use perilog_host::clock;
use serde_json::{Value, json};

use perilog_bench::report::Table;
use perilog_bench::stats::{Samples, figure};

/// Number of steps of the calibration loop, a loop of constant work; all together take about half a millisecond.
const STEPS: u64 = 200_000;

/// Observation of noise, the other work that disturbs a measurement on this computer. It lasts from
/// [`begin`](Self::begin) to [`end`](Self::end).
#[derive(Debug)]
pub(crate) struct Noise {
    load: String,
    ticks: Ticks,
    loops: Samples,
    sum: u64,
}

#[derive(Debug, Clone, Copy)]
struct Ticks {
    busy: u64,
    steal: u64,
    all: u64,
}

impl Noise {
    pub(crate) fn begin() -> Result<Self> {
        Ok(Self { load: load()?, ticks: ticks()?, loops: Samples::default(), sum: 0 })
    }

    /// Runs the calibration loop, [`STEPS`] equal steps of arithmetic, once and records its time. Most benches call
    /// this between their own samples; the spread of the times shows how much other work disturbs this computer.
    pub(crate) fn calibrate(&mut self) {
        let began = clock::mono_us();
        let mut value = self.sum;
        for _ in 0..STEPS {
            // Without black_box, the compiler would make one multiplication of all steps.
            value = std::hint::black_box(
                value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407),
            );
        }
        self.sum = value;
        self.loops.push((clock::mono_us() - began) as f64 / 1000.0);
    }

    /// Ends the observation. Returns what it saw since its begin as JSON: load averages, shares of busy and stolen
    /// processor time, and the times of the loop that [`calibrate`](Self::calibrate) runs. Adds a note with these
    /// figures to the table.
    pub(crate) fn end(self, table: &mut Table) -> Result<Value> {
        let (now, then) = (ticks()?, self.ticks);
        let all = (now.all - then.all).max(1) as f64;
        let share = |now: u64, then: u64| (now.saturating_sub(then)) as f64 / all * 100.0;
        let (busy, steal) = (share(now.busy, then.busy), share(now.steal, then.steal));
        let spread = match self.loops.count() {
            0 => "the calibration loop would have disturbed it".to_owned(),
            n => format!(
                "the calibration loop's p99 is {} x its p50 (n {n})",
                figure(self.loops.quantile(0.99) / self.loops.median())
            ),
        };
        let after = load()?;
        table.note(&format!(
            "noise: load {} before, {after} after; all cores {busy:.0} % busy, {steal:.1} % stolen; {spread}",
            self.load
        ));
        Ok(json!({
            "load_before": self.load, "load_after": after, "busy_percent": busy, "steal_percent": steal,
            "loop_ms": self.loops.json(),
        }))
    }
}

/// Returns the three load averages of /proc/loadavg, as text.
fn load() -> Result<String> {
    let text = std::fs::read_to_string("/proc/loadavg").context("reading /proc/loadavg")?;
    Ok(text.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

fn ticks() -> Result<Ticks> {
    let text = std::fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    let line = text.lines().next().and_then(|line| line.strip_prefix("cpu ")).context("no cpu in /proc/stat")?;
    // user nice system idle iowait irq softirq steal; guest time is in user already
    let fields: Vec<u64> = line.split_whitespace().take(8).filter_map(|field| field.parse().ok()).collect();
    let all = fields.iter().sum();
    let idle: u64 = fields.iter().skip(3).take(2).sum();
    let steal = fields.get(7).copied().unwrap_or(0);
    Ok(Ticks { busy: all - idle - steal, steal, all })
}

/// Returns a description of this computer as JSON, for the head of a report: cores, memory, and the versions of kernel
/// and systemd.
pub(crate) fn machine() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim_start_matches([':', ' ', '\t']).trim().to_owned()
    };
    let kib: u64 =
        field(&read("/proc/meminfo"), "MemTotal").split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let systemd = std::process::Command::new("systemctl").arg("--version").output();
    let systemd = systemd.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    json!({
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "memory_gib": (kib as f64 / 1024.0 / 1024.0).round(),
        "kernel": read("/proc/sys/kernel/osrelease").split('-').next(),
        "systemd": systemd.split(' ').nth(1),
    })
}
