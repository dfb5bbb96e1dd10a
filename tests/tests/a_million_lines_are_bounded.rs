//! A script prints 1,000,000 lines: its status arrives, no daemon's memory grows, and the runner keeps the first and
//! the last lines.

use anyhow::{Context, Result};
use perilog_tests::{Cluster, Node};

const LINES: usize = 1_000_000;
/// Script body: prints a million lines, waits until the test creates /run/gate, and exits with 37.
const PRINTS: &str = "seq -f 'line %07.0f of many' 1000000\n[ -e /run/gate ] || touch /run/printed\n\
                      while [ ! -e /run/gate ]; do sleep 0.02; done\nexit 37";
const QUIET: &str = "while [ ! -e /run/gate ]; do sleep 0.02; done\nexit 0";
/// Maximum ratio of the runner's memory to that of a runner whose script prints nothing. The buffers (head, tail, lines
/// not yet in the journal) are some 300 KiB of 3 MiB, and the allocator rounds up.
const FACTOR: u64 = 2;

/// Returns the peak memory of a process on that node (VmHWM of proc(5)), in KiB.
fn peak_kib(node: &Node, pid: &str) -> Result<u64> {
    let line = node.sh(&format!("grep VmHWM /proc/{pid}/status"))?;
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).with_context(|| format!("a number: {line}"))
}

fn main_pid(node: &Node, unit: &str) -> Result<String> {
    node.sh(&format!("systemctl show --property=MainPID --value '{unit}'"))
}

#[test]
fn memory_does_not_grow_with_what_a_script_prints() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-gate", PRINTS).script("epilog", "10-gate", QUIET).boot()?;
    let node = cluster.node(0)?;
    let agent = main_pid(node, "perilog-agent")?;
    let mut quiet = cluster.start_perilog(&["run", "epilog", "--job", "quiet", "--nodes", "n0"])?;
    cluster.wait_begun("quiet", &[0])?;
    let quiet_kib = peak_kib(node, &main_pid(node, "perilog-task-epilog-*")?)?;
    let agent_kib = peak_kib(node, &agent)?;

    let mut prints = cluster.start_perilog(&["run", "prolog", "--job", "j", "--nodes", "n0"])?;
    cluster.bed().wait_until("all is printed", std::time::Duration::from_secs(300), || {
        Ok(node.try_read_file("/run/printed")?.is_some())
    })?;
    let runner = main_pid(node, "perilog-task-prolog-*")?;
    let printing_kib = peak_kib(node, &runner)?;
    assert!(printing_kib <= FACTOR * quiet_kib, "runner: {printing_kib} KiB, a quiet one {quiet_kib} KiB");
    // The kept output stays on the node until the controller has a copy: 32 KiB from each end, in whole lines.
    cluster.stop_controller()?;
    cluster.open_gates()?;
    let task = "/run/perilog/tasks/perilog-task-prolog-*";
    cluster.bed().wait_until("its outcome is written", std::time::Duration::from_secs(90), || {
        Ok(node.run(&["sh", "-c", &format!("test -e {task}/outcome.json")])?.success())
    })?;
    let kept = |part: &str| -> Result<Vec<usize>> {
        let text = node.sh(&format!("cat {task}/out.0.{part}"))?;
        assert!(text.len() > 31 * 1024 && text.len() <= 33 * 1024, "{part}: {} bytes", text.len());
        let number = |line: &str| line.strip_prefix("line ")?.strip_suffix(" of many")?.parse().ok();
        Ok(text.lines().filter(|line| !line.starts_with("[perilog: ")).map(|line| number(line).unwrap_or(0)).collect())
    };
    let (head, tail) = (kept("head")?, kept("tail")?);
    assert!(head.iter().copied().eq(1..=head.len()), "{head:?}");
    assert!(tail.iter().copied().eq(LINES + 1 - tail.len()..=LINES), "{tail:?}");
    cluster.start_controller()?;
    assert_eq!(cluster.wait_end(&mut prints)?, 1);
    cluster.wait_end(&mut quiet)?;
    let agent_after_kib = peak_kib(node, &agent)?;
    assert!(agent_after_kib <= FACTOR * agent_kib, "agent: {agent_after_kib} KiB, before {agent_kib} KiB");

    assert_eq!(cluster.outcome("j", "prolog", 0)?.1, "failed (exit 37)");
    cluster.assert_true("j", &["prolog"])?;
    cluster.assert_true("quiet", &["epilog"])?;
    Ok(())
}
