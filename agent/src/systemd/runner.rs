//! Checks whether a runner handles its signals and limits, by the kernel's view of its process (proc_pid_status(5)).

use std::fs;

/// Mask of the signals that a healthy runner handles at once: TERM, and the runner's own signal for "SIGKILL to the
/// script's group".
const TAKEN: u64 = 1 << (15 - 1) | 1 << (43 - 1);

/// Returns the reason why the runner with this pid handles no signals; `None`: the runner handles signals, or is gone.
pub(crate) fn deaf(pid: u32) -> Option<String> {
    let status = (pid != 0).then(|| fs::read_to_string(format!("/proc/{pid}/status")).ok())??;
    read(&status)
}

fn read(status: &str) -> Option<String> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let pending = field("ShdPnd:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    match field("State:")?.chars().next()? {
        'T' | 't' => Some("its runner is stopped (SIGSTOP, or a debugger)".to_owned()),
        'D' => Some("its runner hangs in the kernel (state D)".to_owned()),
        _ if pending & TAKEN != 0 => Some("its runner does not take the signals that were sent to it".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_hanging_or_signal_pending_runner_is_deaf() {
        for (state, pending, expect) in [
            ("S (sleeping)", "0000000000000000", None),
            ("R (running)", "0000000000010000", None),
            ("T (stopped)", "0000000000000000", Some("stopped")),
            ("D (disk sleep)", "0000000000000000", Some("state D")),
            ("S (sleeping)", "0000000000004000", Some("does not take")),
            ("S (sleeping)", "0000040000000000", Some("does not take")),
        ] {
            let said = read(&format!("Name:\tperilog-runner\nState:\t{state}\nSigPnd:\t0\nShdPnd:\t{pending}\n"));
            assert_eq!(said.is_some(), expect.is_some(), "{state} {pending}");
            assert!(said.unwrap_or_default().contains(expect.unwrap_or_default()), "{state} {pending}");
        }
        assert_eq!((read(""), deaf(0), deaf(std::process::id())), (None, None, None));
    }
}
