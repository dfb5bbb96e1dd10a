//! `systemd-analyze security` of the running systemd measures the exposure of the daemons: 0 is none, 10 is full. Each
//! unit lists the remaining exposure with the reason.

use anyhow::{Context, Result, ensure};
use perilog_tests::{Bed, Layer};

/// Maximum exposure of each unit, on the scale of `systemd-analyze security` (0 is none, 10 is full) in systemd 252. A
/// later systemd may count more.
const LIMITS: [(&str, f64); 4] = [
    ("perilog-controller.service", 1.5),
    ("perilog-agent.service", 2.1),
    ("perilog-shutdown.service", 1.7),
    ("perilog-backup.service", 0.9),
];

#[test]
fn the_figures_hold() -> Result<()> {
    let bed = Bed::builder().node("n0").layer(Layer::find()?).boot()?;
    let node = bed.node("n0")?;
    for (unit, limit) in LIMITS {
        let table = node.run(&["systemd-analyze", "--no-pager", "security", unit])?.ok()?;
        // The last line has an arrow, a title, the figure, a word and a face.
        let last = table.lines().rev().find(|line| line.contains("Overall exposure level")).context("no figure")?;
        let figure = last.split_whitespace().find_map(|word| word.parse::<f64>().ok()).context("no number")?;
        println!("{unit}: {figure}");
        ensure!(figure <= limit, "{unit}: {figure} is more than {limit}\n{table}");
    }
    // The daemons are the last processes to be killed when memory is short, so the daemons must not be the cause.
    for unit in ["perilog-controller.service", "perilog-agent.service"] {
        let bounds = node.systemctl(&["show", "--property=MemoryHigh,MemoryMax,TasksMax", unit])?;
        ensure!(bounds.lines().count() == 3 && !bounds.contains("infinity"), "{unit} may grow for ever: {bounds}");
        // systemd shows the property only of a service that has been started.
        let text = node.systemctl(&["cat", unit])?;
        ensure!(text.lines().any(|line| line.starts_with("WatchdogSec=")), "no watchdog ends {unit}: {text}");
    }
    Ok(())
}
