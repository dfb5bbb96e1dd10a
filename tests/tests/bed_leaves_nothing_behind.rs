//! However the process ends that made a bed, the machine is as it was before.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use perilog_tests::{Bed, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

/// What this machine can see of a bed that is up.
struct Traces {
    directory: PathBuf,
    cgroup: PathBuf,
    /// `net:[4026532333]` and the like, of all its processes but none of ours.
    namespaces: BTreeSet<PathBuf>,
}

impl Traces {
    fn of(directory: &Path) -> Result<Self> {
        let cgroup = std::fs::read_to_string(directory.join("cgroup")).context("the bed's cgroup")?;
        let cgroup = PathBuf::from(cgroup.trim());
        let own: BTreeSet<_> = namespaces("self").collect();
        let members =
            Command::new("find").arg(&cgroup).args(["-name", "cgroup.procs", "-exec", "cat", "{}", "+"]).output()?;
        let pids = String::from_utf8(members.stdout)?;
        let theirs = pids.lines().flat_map(namespaces).filter(|namespace| !own.contains(namespace));
        Ok(Self { directory: directory.to_owned(), namespaces: theirs.collect(), cgroup })
    }

    /// What is left of it.
    fn left(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for path in [&self.directory, &self.cgroup].into_iter().filter(|path| path.exists()) {
            left.push(path.display().to_string());
        }
        let name = self.directory.file_name().context("a name")?.to_string_lossy();
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let pid = entry.file_name().to_string_lossy().into_owned();
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command);
            let lives_there = namespaces(&pid).any(|namespace| self.namespaces.contains(&namespace));
            if pid.parse::<u32>().is_ok() && (lives_there || command.contains(&*name)) {
                left.push(format!("process {pid} {command}"));
            }
        }
        Ok(left)
    }
}

fn namespaces(pid: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let directory = format!("/proc/{pid}/ns");
    ["mnt", "net", "pid", "uts", "ipc", "cgroup"]
        .into_iter()
        .filter_map(move |kind| std::fs::read_link(format!("{directory}/{kind}")).ok())
}

#[test]
fn when_it_is_dropped() -> Result<()> {
    let bed = Bed::builder().nodes(2).boot()?;
    let traces = Traces::of(bed.directory())?;
    assert!(traces.namespaces.len() >= 2 * 6 && traces.left()?.len() > 2, "{:?}", traces.left());
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    assert!(!mounts.contains(bed.name()), "mounted for all to see: {mounts}");
    bed.node("n0")?.power_fail()?;
    drop(bed);
    assert_eq!(traces.left()?, [""; 0]);
    Ok(())
}

#[test]
fn when_its_process_panics() -> Result<()> {
    let (child, traces) = hold("panic")?;
    ends(child, &traces)
}

#[test]
fn when_its_process_is_interrupted() -> Result<()> {
    let (child, traces) = hold("wait")?;
    kill(&child, "INT")?;
    ends(child, &traces)
}

#[test]
fn when_its_process_is_killed() -> Result<()> {
    let (child, traces) = hold("wait")?;
    kill(&child, "KILL")?;
    ends(child, &traces)
}

#[test]
fn when_its_process_and_its_reaper_are_killed_once_there_is_a_next_bed() -> Result<()> {
    let (child, traces) = hold("wait")?;
    let pid = child.id().to_string();
    let reaper = Command::new("pgrep").args(["-f", "reaper.sh", "-P", &pid]).output()?;
    let reaper = String::from_utf8(reaper.stdout)?;
    let status = Command::new("kill").args(["-KILL", &pid, reaper.trim()]).status()?;
    assert!(status.success(), "{reaper}");
    child.wait_with_output()?;
    wait_until("its processes are gone", LIMIT, || Ok(!traces.left()?.iter().any(|left| left.starts_with("process"))))?;
    Bed::builder().build()?;
    assert_eq!(traces.left()?, [""; 0]);
    Ok(())
}

fn kill(child: &Child, signal: &str) -> Result<()> {
    assert!(Command::new("kill").args(["-s", signal, &child.id().to_string()]).status()?.success());
    Ok(())
}

/// This program again, as a process that holds a bed.
fn hold(how: &str) -> Result<(Child, Traces)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--exact", "hold_a_bed", "--ignored", "--nocapture"])
        .env("HOLD", how)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    for line in lines {
        if let Some(directory) = line?.split_once("bed in ").map(|(_, directory)| directory.to_owned()) {
            let traces = Traces::of(Path::new(&directory))?;
            child.stdin.take(); // go on
            return Ok((child, traces));
        }
    }
    anyhow::bail!("no bed")
}

fn ends(mut child: Child, traces: &Traces) -> Result<()> {
    child.wait()?;
    wait_until("nothing is left", LIMIT, || Ok(traces.left()?.is_empty()))
        .with_context(|| format!("{:?}", traces.left()))
}

#[test]
#[ignore = "the process that the tests above start"]
fn hold_a_bed() -> Result<()> {
    let bed = Bed::builder().nodes(2).boot()?;
    println!("bed in {}", bed.directory().display());
    std::io::stdin().read_line(&mut String::new())?;
    match std::env::var("HOLD").as_deref() {
        Ok("panic") => panic!("as asked"),
        _ => bed.wait_until("the end of this process", LIMIT, || Ok(false)),
    }
}
