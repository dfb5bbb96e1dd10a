//! Checks whether a runner handles its signals and limits, by the kernel's view of its process (proc_pid_status(5)),
//! and shows the process.

use std::fs;

use perilog_host::process_stat;

/// Mask of the signals that a healthy runner handles at once: TERM, and the runner's own signal for "SIGKILL to the
/// script's group".
const TAKEN: u64 = 1 << (15 - 1) | 1 << (43 - 1);

/// Returns the reason why the runner with this pid handles no signals; `None`: the runner handles signals, or is gone.
pub(crate) fn deaf(pid: u32) -> Option<String> {
    let status = (pid != 0).then(|| process_stat::read(pid, "status"))??;
    read(&status)
}

/// Returns a process as text for operators: `pid 467, state S, in request_wait_answer`; `None`: there is none. The
/// kernel function in which it waits is missing if the kernel does not show it to the agent (`CAP_SYS_PTRACE`).
pub(crate) fn shown(pid: u32) -> Option<String> {
    let status = (pid != 0).then(|| process_stat::read(pid, "status"))??;
    let state = status.lines().find_map(|line| line.strip_prefix("State:"))?.trim().chars().next()?;
    let waits = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    let waits = Some(waits.trim()).filter(|name| !matches!(*name, "" | "0")).map(|name| format!(", in {name}"));
    Some(format!("pid {pid}, state {state}{}", waits.unwrap_or_default()))
}

fn read(status: &str) -> Option<String> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let pending = field("ShdPnd:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    match field("State:")?.chars().next()? {
        'T' | 't' => Some("its runner is stopped (SIGSTOP, or a debugger)".to_owned()),
        'D' => Some("its runner hangs in the kernel (state D)".to_owned()),
        _ if pending & TAKEN != 0 => Some("its runner does not handle the signals that were sent to it".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_shown_with_its_state() {
        let own = shown(std::process::id()).unwrap();
        assert!(own.starts_with(&format!("pid {}, state ", std::process::id())), "{own}");
        assert_eq!(shown(0), None);
    }

    #[test]
    fn a_stopped_hanging_or_signal_pending_runner_is_deaf() {
        for (state, pending, expect) in [
            ("S (sleeping)", "0000000000000000", None),
            ("R (running)", "0000000000010000", None),
            ("T (stopped)", "0000000000000000", Some("stopped")),
            ("D (disk sleep)", "0000000000000000", Some("state D")),
            ("S (sleeping)", "0000000000004000", Some("does not handle")),
            ("S (sleeping)", "0000040000000000", Some("does not handle")),
        ] {
            let output = read(&format!("Name:\tperilog-runner\nState:\t{state}\nSigPnd:\t0\nShdPnd:\t{pending}\n"));
            assert_eq!(output.is_some(), expect.is_some(), "{state} {pending}");
            assert!(output.unwrap_or_default().contains(expect.unwrap_or_default()), "{state} {pending}");
        }
        assert_eq!((read(""), deaf(0), deaf(std::process::id())), (None, None, None));
    }
}
