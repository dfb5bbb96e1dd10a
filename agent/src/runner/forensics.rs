//! Forensics of a script past its limit, before the runner signals the script. The report shows the script's processes
//! as a tree, each with state, wait channel and kernel stack (if the kernel permits), then their command lines.
//!
//! A read of /proc can hang like the process that it shows: a command line lives in the process's memory, and a process
//! in disk sleep may hold the lock of that memory. So a thread reads everything, harmless parts first, and the runner
//! waits a bounded time for the thread.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::sync::mpsc::{self, SyncSender};
use std::thread;

use perilog_host::clock;
use perilog_host::process_stat::Stat;

use crate::descendants::{self, Descendants};

/// Maximum size in bytes of the report on a task's processes. The report travels in a frame, and people read it.
const MAX_BYTES: usize = 16 * 1024;
/// Maximum number of processes in the report.
const MAX_PROCESSES: usize = 64;
/// Maximum size in bytes of a command line in the report.
const MAX_COMMAND: usize = 256;
/// Maximum number of frames of a process's kernel stack in the report.
const MAX_STACK: usize = 16;
/// Maximum size in bytes of all stacks together, so that the report has room for the command lines after them.
const MAX_STACKS: usize = 8 * 1024;
/// Maximum time in milliseconds in which the runner gathers the report on a task's processes.
const WITHIN_MS: u64 = 2_000;

/// Result of an inspection of the task's processes.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) text: String,
    /// The process that most likely holds up the task, in one line: `4711 D mount in rpc_wait_bit_killable`.
    pub(crate) doing: String,
}

/// A piece of the report, which the inspecting thread sends to the runner.
enum Piece {
    Text(String),
    /// The line for [`Seen::doing`], which comes once the states of all processes are known.
    Doing(String),
}

/// Inspects the processes of the task: all that descend from the runner.
pub(crate) fn gather() -> Seen {
    // Room for all pieces: the thread never waits for the runner.
    let (pieces, gathered) = mpsc::sync_channel(2 * MAX_PROCESSES + 3);
    let thread = thread::Builder::new().name("forensics".to_owned()).spawn(move || send_tree(&pieces));
    if let Err(error) = thread {
        return Seen { text: format!("the processes could not be inspected: {error}"), doing: String::new() };
    }
    let Seen { mut text, mut doing } = Seen::default();
    let deadline = clock::mono_ms() + WITHIN_MS;
    loop {
        match gathered.recv_timeout(clock::until(deadline)) {
            Ok(Piece::Text(piece)) => text.push_str(&piece),
            Ok(Piece::Doing(line)) => doing = line,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let _ = writeln!(text, "(the rest could not be read within {}s)", WITHIN_MS / 1000);
                break;
            }
        }
        if text.len() > MAX_BYTES {
            text.truncate(crop(&text, MAX_BYTES).len());
            break;
        }
    }
    Seen { text, doing }
}

/// Returns the beginning of `text`, at most `most` bytes and never half a character.
fn crop(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn send_tree(pieces: &SyncSender<Piece>) {
    let processes = descendants::of_runner();
    let shown = in_tree_order(&processes);
    let mut room = MAX_STACKS;
    // The most telling process is one that cannot be interrupted; without such a process, the deepest in the tree,
    // because the others wait for it.
    let mut most: Option<((bool, usize), String)> = None;
    for (pid, depth) in &shown {
        let stat = &processes[pid];
        let read = |what: &str| fs::read_to_string(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let indent = "  ".repeat(*depth);
        let channel = match read("wchan").trim() {
            "" | "0" => String::new(),
            channel => format!(" in {channel}"),
        };
        let line = format!("{pid} {} {}{channel}", stat.state, crate::output::one_line(&stat.command));
        let mut piece = format!("{indent}{line}\n");
        let priority = (stat.state == 'D', *depth);
        if most.as_ref().is_none_or(|(most, _)| priority > *most) {
            most = Some((priority, line));
        }
        for frame in read("stack").lines().take(MAX_STACK) {
            let line = format!("{indent}    {frame}\n");
            let Some(left) = room.checked_sub(line.len()) else { break };
            room = left;
            piece.push_str(&line);
        }
        if pieces.send(Piece::Text(piece)).is_err() {
            return;
        }
    }
    if let Some((_, line)) = most {
        let _ = pieces.send(Piece::Doing(line));
    }
    if processes.len() > shown.len() {
        let _ = pieces.send(Piece::Text(format!("({} more processes)\n", processes.len() - shown.len())));
    }
    for (pid, _) in &shown {
        let line = command_line(*pid);
        if !line.is_empty() && pieces.send(Piece::Text(format!("{pid}: {line}\n"))).is_err() {
            return;
        }
    }
}

/// Returns the command line of a process; empty for a process that has none, or has ended.
fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = bytes.split(|b| *b == 0).map(String::from_utf8_lossy).collect();
    crop(&crate::output::one_line(words.join(" ").trim()), MAX_COMMAND).to_owned()
}

/// Returns the command lines of the processes, as far as they can be read within [`WITHIN_MS`].
pub(crate) fn command_lines(pids: &[i32]) -> BTreeMap<i32, String> {
    let (lines, read) = mpsc::sync_channel(pids.len());
    let of = pids.to_vec();
    let thread = thread::Builder::new().name("forensics".to_owned()).spawn(move || {
        // The channel has room for all; the runner may have gone on without the rest.
        of.into_iter().all(|pid| lines.send((pid, command_line(pid))).is_ok())
    });
    let deadline = clock::mono_ms() + WITHIN_MS;
    let next = || read.recv_timeout(clock::until(deadline)).ok();
    let all = std::iter::from_fn(next).filter(|(_, line)| !line.is_empty());
    if thread.is_ok() { all.collect() } else { BTreeMap::new() }
}

/// Orders processes as a tree: parents before their children, each with its pid and its depth; at most
/// [`MAX_PROCESSES`].
fn in_tree_order(processes: &Descendants) -> Vec<(i32, usize)> {
    let mut shown = Vec::new();
    let is_root = |stat: &Stat| !processes.contains_key(&stat.parent);
    let mut stack: Vec<(i32, usize)> =
        processes.iter().rev().filter(|(_, s)| is_root(s)).map(|(pid, _)| (*pid, 0)).collect();
    while let Some((pid, depth)) = stack.pop() {
        if shown.len() == MAX_PROCESSES {
            break;
        }
        shown.push((pid, depth));
        stack.extend(processes.iter().rev().filter(|(_, s)| s.parent == pid).map(|(child, _)| (*child, depth + 1)));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_shown_from_its_roots() {
        let stat = |parent| Stat { command: String::new(), state: 'S', parent, start: 1 };
        let tree: Descendants =
            [(10, 1), (11, 10), (12, 10), (13, 11), (5, 1)].map(|(pid, parent)| (pid, stat(parent))).into();
        assert_eq!(in_tree_order(&tree), [(5, 0), (10, 0), (11, 1), (13, 2), (12, 1)]);
        let many: Descendants = (2..500).map(|pid| (pid, stat(pid - 1))).collect();
        assert_eq!(in_tree_order(&many).len(), MAX_PROCESSES);
    }

    #[test]
    fn descendants_are_seen_with_all_their_command_lines() {
        let sleep = || std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let children: Vec<_> = (0..20).map(|_| sleep()).collect();
        let pids: Vec<i32> = children.iter().map(|child| i32::try_from(child.id()).unwrap()).collect();
        // Other tests of this program may have children, too.
        let Seen { text, doing } = gather();
        let lines = command_lines(&pids);
        for mut child in children {
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(text.contains(&format!("{}: sleep 1000\n", child.id())), "{text}");
            // The child may still be starting, so its state varies.
            let line = text.lines().find(|line| line.starts_with(&format!("{} ", child.id())));
            assert!(line.is_some_and(|line| line.contains(" sleep")), "{text}");
        }
        assert_eq!(lines.values().filter(|line| *line == "sleep 1000").count(), pids.len(), "{lines:?}");
        assert!(text.lines().any(|line| line.trim_start() == doing), "{doing} of: {text}");
        assert!(text.len() <= MAX_BYTES, "{}", text.len());
    }
}
