//! However the test process that made a bed ends, the machine is afterwards as before.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use perilog_tests::{Bed, wait_until};

const LIMIT: Duration = Duration::from_secs(60);
/// Path of the test [`hold_a_bed`] in this program.
const HOLDER: &str = "bed_leaves_nothing_behind::hold_a_bed";

/// Traces of a bed on this machine: its directory, cgroup and processes. Namespaces disappear with their last process.
struct Traces {
    directory: PathBuf,
    cgroup: PathBuf,
    /// Members of the bed's cgroup, processes that name the bed, and the children of these processes.
    processes: BTreeSet<Process>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    pid: String,
    parent: String,
    /// Start time, which tells the process from a later process with the same pid.
    started: String,
    command: String,
}

impl Traces {
    fn of(directory: &Path) -> Result<Self> {
        let cgroup = std::fs::read_to_string(directory.join("cgroup")).context("the bed's cgroup")?;
        let cgroup = PathBuf::from(cgroup.trim());
        let mut traces = Self { directory: directory.to_owned(), cgroup, processes: BTreeSet::new() };
        let find = ["-name", "cgroup.procs", "-exec", "cat", "{}", "+"];
        let members = String::from_utf8(Command::new("find").arg(&traces.cgroup).args(find).output()?.stdout)?;
        let all = processes()?;
        let of_it = |process: &&Process| members.lines().any(|pid| pid == process.pid) || traces.names(process);
        let mut found: Vec<Process> = all.iter().filter(of_it).cloned().collect();
        while let Some(process) = found.pop() {
            found.extend(all.iter().filter(|child| child.parent == process.pid).cloned());
            traces.processes.insert(process);
        }
        Ok(traces)
    }

    fn names(&self, process: &Process) -> bool {
        process.command.contains(&*self.directory.to_string_lossy())
    }

    /// Returns the traces of the bed that still exist, one text each.
    fn left(&self) -> Result<Vec<String>> {
        let paths = [&self.directory, &self.cgroup].into_iter().filter(|path| path.exists());
        let mut left: Vec<String> = paths.map(|path| path.display().to_string()).collect();
        for process in processes()? {
            let Process { pid, started, command, .. } = &process;
            let known = |known: &Process| known.pid == *pid && known.started == *started;
            if self.processes.iter().any(known) || self.names(&process) {
                left.push(format!("process {pid} {command}"));
            }
        }
        Ok(left)
    }
}

/// Returns all processes of this machine.
fn processes() -> Result<Vec<Process>> {
    let mut processes = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        // A process that ends meanwhile has no `stat`. The format is: pid (name) state parent ... started; only the
        // name may contain spaces.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((pid, fields)) = stat.split_once(" (").and_then(|(pid, rest)| Some((pid, rest.rsplit_once(") ")?.1)))
        else {
            continue;
        };
        let fields: Vec<&str> = fields.split(' ').collect();
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        processes.push(Process {
            pid: pid.to_owned(),
            parent: fields[1].to_owned(),
            started: fields[19].to_owned(),
            command: String::from_utf8_lossy(&command).replace('\0', " "),
        });
    }
    Ok(processes)
}

#[test]
fn when_it_is_dropped() -> Result<()> {
    let bed = Bed::builder().nodes(2).boot()?;
    let traces = Traces::of(bed.directory())?;
    // The bed's processes are the reaper, the hub and the hub's holder. Each node has two holders, systemd, journald
    // and D-Bus.
    assert!(traces.left()?.len() >= 2 + 3 + 2 * 5, "{:?}", traces.left());
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    assert!(!mounts.contains(bed.name()), "mounted for all to see: {mounts}");
    bed.node("n0")?.power_fail()?;
    drop(bed);
    assert_eq!(traces.left()?, [""; 0]);
    Ok(())
}

#[test]
fn when_a_node_of_it_holds_another_bed() -> Result<()> {
    let bed = Bed::builder().node("host").boot()?;
    if std::fs::read_to_string("/proc/self/mounts")?.lines().any(|mount| mount.starts_with("overlay / overlay ")) {
        println!("not here: / is an overlay, a node's is the second, and the kernel stacks no third");
        return Ok(());
    }
    let host = bed.node("host")?;
    host.write_script("/usr/local/bin/hold", std::fs::read(std::env::current_exe()?)?)?;
    let arguments = ["--exact", HOLDER, "--ignored", "--nocapture"];
    let command: Vec<&str> =
        ["systemd-run", "--pipe", "--wait", "/usr/local/bin/hold"].into_iter().chain(arguments).collect();
    let mut holder = host.spawn(&command)?;
    bed.wait_until("the bed on the node", LIMIT, || Ok(holder.output()?.stdout.contains("bed in ")))?;
    let traces = Traces::of(bed.directory())?;
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
fn a_killed_bed_and_reaper_leave_room_for_the_next_bed() -> Result<()> {
    let (child, traces) = hold("wait")?;
    let pid = child.id().to_string();
    let reaper = Command::new("pgrep").args(["-f", "reaper.sh", "-P", &pid]).output()?;
    let reaper = String::from_utf8(reaper.stdout)?;
    let status = Command::new("kill").args(["-KILL", &pid, reaper.trim()]).status()?;
    assert!(status.success(), "{reaper}");
    child.wait_with_output()?;
    wait_until("its processes are gone", LIMIT, || Ok(!traces.left()?.iter().any(|left| left.starts_with("process"))))?;
    Bed::builder().build()?;
    // A sweep of another test may have come first and may still be at work.
    wait_until("nothing is left", LIMIT, || Ok(traces.left()?.is_empty()))
}

fn kill(child: &Child, signal: &str) -> Result<()> {
    assert!(Command::new("kill").args(["-s", signal, &child.id().to_string()]).status()?.success());
    Ok(())
}

/// Starts this program again as a process that makes a bed; returns the process and the bed's traces on this machine.
/// The process panics if `how` is `panic`, and otherwise waits to be killed, at most a minute.
fn hold(how: &str) -> Result<(Child, Traces)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--exact", HOLDER, "--ignored", "--nocapture"])
        .env("HOLD", how)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    for line in lines {
        if let Some(directory) = line?.split_once("bed in ").map(|(_, directory)| directory.to_owned()) {
            let traces = Traces::of(Path::new(&directory))?;
            child.stdin.take(); // the closed pipe lets the child continue
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
