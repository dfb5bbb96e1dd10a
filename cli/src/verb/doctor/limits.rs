//! Checks of the daemon's limits on this host: the limits of the running process, or else of its unit.

use std::collections::HashMap;

use rustix::fs::inotify::{self, CreateFlags};
use rustix::io::Errno;

use super::{Finding, Role, shell};
use crate::text;

const ABOUT: &str = "limits";
/// Number of nodes that the checks assume if the controller knows fewer, or if their number is unknown.
const SOME_NODES: u64 = 1_000;
const MIB: u64 = 1024 * 1024;

/// A limit on a daemon's resources, such as its number of open files, with the least value that the daemon needs.
#[derive(Debug, Clone, Copy)]
struct Need {
    /// The limit's directive in a unit file, such as `LimitNOFILE`. systemd's property has the same name, with `Soft`
    /// appended for a resource limit (`LimitNOFILESoft`).
    directive: &'static str,
    /// The limit's line in /proc/PID/limits; `None` for a limit of the unit's control group.
    line: Option<&'static str>,
    what: &'static str,
    least: u64,
}

/// Returns the limits that a daemon needs. `nodes`: the number of nodes that the controller knows.
fn needs(role: Role, nodes: u64) -> [Need; 6] {
    let need = |directive, line, what, least| Need { directive, line, what, least };
    // Numbers of files, bytes of a file, threads, bytes of memory.
    let (files, file, threads, memory) = match role {
        // A task waits on its cgroup and sometimes has a few open files. Files of the spool are small, and so is the
        // agent.
        Role::Node => (1_024, 64 * MIB, 64, 64 * MIB),
        // A connection for each agent, and a second connection for half of them, in case old connections linger;
        // clients, the store, hooks. The store is one file. A connection takes 16 KiB (docs/performance.md), the state
        // of the node about as much.
        Role::Controller => (nodes + nodes / 2 + 1_024, 1_024 * MIB, 256, 128 * MIB + nodes * MIB / 16),
    };
    [
        need("LimitNOFILE", Some("Max open files"), "open files", files),
        need("LimitFSIZE", Some("Max file size"), "bytes in a file", file),
        need("LimitNPROC", Some("Max processes"), "processes and threads of its user", threads),
        // Stacks of threads and mapped files count, also unused ones.
        need("LimitAS", Some("Max address space"), "bytes of addresses", 1_024 * MIB + memory),
        need("TasksMax", None, "processes and threads", threads),
        need("MemoryMax", None, "bytes of memory", memory),
    ]
}

/// Checks the daemon's limits. `nodes`: the number of nodes that the controller knows; `None`: unknown.
pub(super) fn inspect(role: Role, nodes: Option<u64>, findings: &mut Vec<Finding>) {
    let unit = role.program();
    let nodes = nodes.unwrap_or(0).max(SOME_NODES);
    let needs = needs(role, nodes);
    let properties: Vec<String> = needs.iter().map(property).chain(["MainPID".to_owned()]).collect();
    let asked = ["show", &format!("{unit}.service"), "--property", &properties.join(",")];
    // The module `daemon` reports a systemctl that does not answer.
    let shown =
        shell::ask("systemctl", &asked).ok().filter(|output| output.ok).map(|output| output.stdout).unwrap_or_default();
    let shown: HashMap<&str, &str> = shown.lines().filter_map(|line| line.split_once('=')).collect();
    let pid = shown.get("MainPID").and_then(|pid| pid.parse::<u32>().ok()).filter(|pid| *pid > 0);
    let of_process = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/limits")).ok());
    let limit = |need: &Need| {
        let own = need.line.and_then(|line| soft(of_process.as_deref()?, line));
        own.or_else(|| number(shown.get(property(need).as_str())?))
    };
    if role == Role::Node {
        findings.push(inotify(pid.is_some(), || inotify::init(CreateFlags::CLOEXEC).map(drop)));
    }
    findings.extend(judge(unit, (role == Role::Controller).then_some(nodes), &needs, limit));
}

/// Checks that root has inotify instances left. The agent needs two, and shares root's limit with root's other
/// programs. `is_running`: the agent runs. `another`: tries to make one more instance.
fn inotify(is_running: bool, another: impl FnOnce() -> rustix::io::Result<()>) -> Finding {
    match another() {
        Ok(()) => Finding::ok(ABOUT, "root has inotify instances left"),
        Err(Errno::MFILE) => {
            let then = if is_running { "will fail at its next start" } else { "cannot start" };
            let what = format!("root has no inotify instance left: perilog-agent {then}");
            let todo =
                "echo 'fs.inotify.max_user_instances = 1024' >/etc/sysctl.d/60-perilog-inotify.conf; sysctl --system";
            Finding::wrong(ABOUT, what, todo)
        }
        Err(error) => Finding::skipped(ABOUT, format!("inotify: {error}")),
    }
}

fn property(need: &Need) -> String {
    format!("{}{}", need.directive, if need.line.is_some() { "Soft" } else { "" })
}

fn judge(unit: &str, nodes: Option<u64>, needs: &[Need], limit: impl Fn(&Need) -> Option<u64>) -> Vec<Finding> {
    let for_nodes = nodes.map(|nodes| format!(", for {}", text::count(nodes, "node"))).unwrap_or_default();
    let low = needs.iter().filter_map(|need| Some((need, limit(need).filter(|limit| *limit < need.least)?)));
    let mut found: Vec<Finding> = low
        .map(|(Need { directive, what, least, .. }, limit)| {
            let what = format!("the limit of {unit} is {limit} {what}, but it needs {least}{for_nodes}");
            let todo = format!(
                "type systemctl edit {unit}, and set {directive}={least} or more in [Service]; then systemctl restart \
                 {unit}"
            );
            Finding::wrong(ABOUT, what, todo)
        })
        .collect();
    let unread: Vec<&str> = needs.iter().filter(|need| limit(need).is_none()).map(|need| need.directive).collect();
    if !unread.is_empty() {
        found.push(Finding::skipped(ABOUT, format!("{} of {unit} cannot be read", unread.join(", "))));
    } else if found.is_empty() {
        let files = needs.first().and_then(limit).unwrap_or(u64::MAX);
        let files = if files == u64::MAX { "any number of".to_owned() } else { files.to_string() };
        found.push(Finding::ok(
            ABOUT,
            format!("the limits of {unit} are high enough{for_nodes}: {files} open files, memory and processes"),
        ));
    }
    found
}

/// Returns the soft limit that /proc/PID/limits has in the line `line`, such as `Max open files` (proc(5)); `None`:
/// there is no such line, or no number in it.
fn soft(limits: &str, line: &str) -> Option<u64> {
    let rest = limits.lines().find_map(|found| found.strip_prefix(line))?;
    number(rest.split_whitespace().next()?)
}

/// Parses a limit of systemd or proc(5); `None`: the text is malformed. `u64::MAX` means no limit, which old systemd
/// writes as a number.
fn number(text: &str) -> Option<u64> {
    match text {
        "unlimited" | "infinity" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn limits_are_read_from_proc() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
            Max open files            4096                 524288               files\n\
            Max locked memory         8388608\n";
        let files = "Max open files";
        assert_eq!(
            (soft(text, files), soft("Max open files unlimited unlimited files", files), soft("", files)),
            (Some(4096), Some(u64::MAX), None)
        );
        assert_eq!(
            (number("infinity"), number("18446744073709551615"), number("[not set]")),
            (Some(u64::MAX), Some(u64::MAX), None)
        );
    }

    #[test]
    fn used_up_inotify_instances_name_the_sysctl() {
        let found = inotify(false, || Err(Errno::MFILE));
        assert!(found.level == Level::Wrong && found.todo.contains("fs.inotify.max_user_instances"), "{found:?}");
        assert_eq!(
            (inotify(true, || Ok(())).level, inotify(true, || Err(Errno::PERM)).level),
            (Level::Ok, Level::Skipped)
        );
    }

    #[test]
    fn what_is_needed_grows_with_the_nodes() {
        const PACKAGED: u64 = 131_072;
        for (role, nodes, directive, limit, level) in [
            (Role::Node, 0, "LimitNOFILE", 4_096, Level::Ok),
            (Role::Node, 65_536, "LimitNOFILE", 4_096, Level::Ok),
            (Role::Node, 0, "LimitNOFILE", 1_000, Level::Wrong),
            (Role::Controller, 1_000, "LimitNOFILE", 4_096, Level::Ok),
            (Role::Controller, 4_000, "LimitNOFILE", 4_096, Level::Wrong),
            // The package's value, for the largest cluster.
            (Role::Controller, 65_536, "LimitNOFILE", PACKAGED, Level::Ok),
            (Role::Controller, 16_000, "LimitNOFILE", 16_384, Level::Wrong),
            (Role::Node, 0, "MemoryMax", 16 * MIB, Level::Wrong),
            (Role::Controller, 1_000, "MemoryMax", 256 * MIB, Level::Ok),
            (Role::Controller, 10_000, "MemoryMax", 256 * MIB, Level::Wrong),
            (Role::Controller, 1_000, "TasksMax", 8, Level::Wrong),
            (Role::Controller, 1_000, "LimitFSIZE", MIB, Level::Wrong),
        ] {
            let of = |need: &Need| Some(if need.directive == directive { limit } else { u64::MAX });
            let found = judge("d", Some(nodes), &needs(role, nodes), of);
            let case = format!("{role:?} {nodes} {directive} {limit}: {found:?}");
            assert!(found.len() == 1 && found[0].level == level, "{case}");
            assert_eq!(found[0].todo.contains(&format!("{directive}=")), level == Level::Wrong, "{case}");
        }
        let found = judge("d", None, &needs(Role::Node, 0), |_| None);
        assert!(
            found.len() == 1 && found[0].level == Level::Skipped && found[0].what.contains("MemoryMax"),
            "{found:?}"
        );
    }
}
