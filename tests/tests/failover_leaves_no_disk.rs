//! The process that made two hosts with a shared disk is killed: afterwards this machine has no loop device of theirs.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::failover::Failover;
use perilog_tests::{Cluster, wait_until};

const LIMIT: Duration = Duration::from_secs(60);
/// Path of the test [`hold_two_hosts`] in this program.
const HOLDER: &str = "failover_leaves_no_disk::hold_two_hosts";

/// Returns the backing files of this machine's loop devices.
fn backing_files() -> Result<String> {
    let mut files = String::new();
    for device in std::fs::read_dir("/sys/block")?.flatten() {
        files += &std::fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
    }
    Ok(files)
}

#[test]
fn when_its_process_is_killed() -> Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--exact", HOLDER, "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    let bed = lines.map_while(Result::ok).find_map(|line| Some(line.split_once("hosts in ")?.1.to_owned()));
    let bed = bed.context("no hosts")?;
    ensure!(backing_files()?.contains(&bed), "{}", backing_files()?);
    child.kill()?;
    child.wait()?;
    wait_until("the disk is detached", LIMIT, || Ok(!backing_files()?.contains(&bed)))
}

#[test]
#[ignore = "the process that the test above starts"]
fn hold_two_hosts() -> Result<()> {
    let failover = Failover::boot(Cluster::builder(1))?;
    println!("hosts in {}", failover.cluster().bed().name());
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
