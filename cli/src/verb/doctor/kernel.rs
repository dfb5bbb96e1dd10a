//! Checks of the clock, and of kernel settings for a host that talks to many nodes. Findings name a setting as
//! sysctl(8) does. The checks skip settings that cannot be read, as in a container.

use std::path::Path;

use super::{Finding, shell};

/// Number of nodes that the checks assume if the controller knows fewer, or if their number is unknown.
const SOME_NODES: u64 = 1_000;

/// Checks whether the clock is synchronised. Certificates and log times depend on the clock; perilog's decisions do
/// not.
pub(super) fn clock(findings: &mut Vec<Finding>) {
    const ABOUT: &str = "clock";
    let output = shell::ask("timedatectl", &["show", "--property", "NTPSynchronized", "--value"]);
    findings.push(match output.as_ref().map(|output| (output.ok, output.stdout.trim())) {
        Ok((true, "yes")) => Finding::ok(ABOUT, "the clock is synchronised by NTP"),
        Ok((true, _)) => Finding::warning(
            ABOUT,
            "the clock is not synchronised by NTP: if it is far wrong, certificates are refused, and the times of \
             nodes do not match",
            "set up chrony or systemd-timesyncd; timedatectl",
        ),
        _ => Finding::skipped(ABOUT, "timedatectl does not show whether the clock is synchronised by NTP"),
    });
}

/// Checks the settings of the kernel that a controller with this many nodes needs, and adds the findings. `nodes`:
/// `None` if the number is unknown. `moves`: the controller has two hosts (`[failover]`), and listens by itself.
pub(super) fn for_many(nodes: Option<u64>, moves: bool, findings: &mut Vec<Finding>) {
    let read = |path: &str| std::fs::read_to_string(Path::new("/proc/sys").join(path)).ok()?.trim().parse::<u64>().ok();
    let nodes = nodes.unwrap_or(0).max(SOME_NODES);
    findings.push(somaxconn(read("net/core/somaxconn"), nodes, moves));
    findings.push(neighbours("ipv4", read("net/ipv4/neigh/default/gc_thresh3"), nodes));
    if Path::new("/proc/sys/net/ipv6").exists() {
        findings.push(neighbours("ipv6", read("net/ipv6/neigh/default/gc_thresh3"), nodes));
    }
}

/// Checks the length of the kernel's listen queue (net.core.somaxconn). After a power failure many agents dial at the
/// same moment, because the first dial of each has failed. `found`: the length; `None`: it cannot be read.
fn somaxconn(found: Option<u64>, nodes: u64, moves: bool) -> Finding {
    const ABOUT: &str = "backlog";
    let restart = match moves {
        true => "perilog-controller, where it runs; and the same file on the other host",
        false => "perilog-controller.socket",
    };
    match found {
        None => Finding::skipped(ABOUT, "net.core.somaxconn cannot be read here"),
        Some(found) if found < nodes.min(65_535) => Finding::warning(
            ABOUT,
            format!(
                "net.core.somaxconn is {found}: if {nodes} agents dial at once, the kernel drops some connections, and \
                 those agents dial again a second or more later"
            ),
            format!(
                "echo 'net.core.somaxconn = {}' >/etc/sysctl.d/60-perilog-connections.conf; sysctl --system; \
                 systemctl restart {restart}",
                nodes.next_power_of_two().min(65_535)
            ),
        ),
        Some(found) => {
            Finding::ok(ABOUT, format!("net.core.somaxconn is {found}, enough for {nodes} agents that dial at once"))
        }
    }
}

/// Checks that the kernel's neighbour table has room for all nodes: each node on the same segment needs an entry. Past
/// the limit, connections fail as if the node were dead. `family`: `ipv4` or `ipv6`. `found`: the limit; `None`: it
/// cannot be read.
fn neighbours(family: &str, found: Option<u64>, nodes: u64) -> Finding {
    const ABOUT: &str = "neighbours";
    let name = format!("net.{family}.neigh.default.gc_thresh3");
    let need = nodes + nodes / 4;
    match found {
        None => Finding::skipped(ABOUT, format!("{name} cannot be read here")),
        Some(found) if found < need => Finding::warning(
            ABOUT,
            format!(
                "{name} is {found}: with {nodes} nodes on this host's network the neighbour (ARP/NDP) table overflows"
            ),
            format!(
                "set gc_thresh1, 2 and 3 of net.{family}.neigh.default to {}, {} and {} in /etc/sysctl.d; sysctl \
                 --system",
                need.next_power_of_two() / 2,
                need.next_power_of_two(),
                need.next_power_of_two() * 2
            ),
        ),
        Some(found) => Finding::ok(ABOUT, format!("{name} is {found}, enough for {nodes} nodes")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_kernel_for_a_laptop_is_too_small_for_a_cluster() {
        assert_eq!(somaxconn(Some(4096), 4096, false).level, Level::Ok);
        let small = somaxconn(Some(4096), 10_000, false);
        assert!(small.level == Level::Warning && small.todo.contains("somaxconn = 16384"), "{small:?}");
        assert!(small.todo.ends_with("systemctl restart perilog-controller.socket"), "{small:?}");
        // On two hosts the socket stays off.
        let small = somaxconn(Some(4096), 10_000, true);
        assert!(small.todo.contains("systemctl restart perilog-controller, where it runs"), "{small:?}");
        assert_eq!(somaxconn(Some(65_535), 200_000, false).level, Level::Ok);
        assert_eq!(somaxconn(None, 1, false).level, Level::Skipped);
        let small = neighbours("ipv4", Some(1024), 1000);
        assert!(small.level == Level::Warning && small.todo.contains("to 1024, 2048 and 4096"), "{small:?}");
        assert_eq!(
            (neighbours("ipv4", Some(1250), 1000).level, neighbours("ipv6", None, 1).level),
            (Level::Ok, Level::Skipped)
        );
    }
}
