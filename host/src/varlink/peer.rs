//! The peer on the other end of the local socket.

use std::io;

use tokio::net::UnixStream;

use crate::process_stat;

/// Credentials of the peer at the time of its connect(2), from the kernel (SO_PEERCRED, unix(7)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCred {
    pub uid: u32,
    /// Gid of the peer's primary group.
    pub gid: u32,
    /// The pid; 0 if the process lives in a PID namespace that this process cannot see.
    pub pid: i32,
    /// Supplementary groups; empty if the process is gone already.
    pub groups: Vec<u32>,
}

impl PeerCred {
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let cred = stream.peer_cred()?;
        let (uid, pid) = (cred.uid(), cred.pid().unwrap_or(0));
        Ok(Self { uid, gid: cred.gid(), pid, groups: groups_of(pid, uid) })
    }

    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Returns the supplementary groups of the process `pid`; none if the process has ended or does not run as `uid`. If
/// the pid was reused since the connect, the groups are those of another process of the same user. That is harmless:
/// the user could have connected from that process as well.
fn groups_of(pid: i32, uid: u32) -> Vec<u32> {
    let status = match pid {
        1.. => process_stat::read(pid, "status").unwrap_or_default(),
        _ => return Vec::new(),
    };
    groups_in(&status, uid).unwrap_or_default()
}

/// Returns the supplementary groups in the text of /proc/PID/status (proc_pid_status(5)). `None` if the effective uid
/// of the process is not `uid`, or a line is missing or malformed.
fn groups_in(status: &str, uid: u32) -> Option<Vec<u32>> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let effective: u32 = field("Uid:")?.split_whitespace().nth(1)?.parse().ok()?;
    let groups = field("Groups:")?.split_whitespace().map_while(|gid| gid.parse().ok()).collect();
    (effective == uid).then_some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_count_only_for_the_same_user() {
        let status = "Name:\tx\nUid:\t1\t7\t1\t1\nGid:\t1\t1\t1\t1\nGroups:\t4 24 1000 \nNStgid:\t1\n";
        assert_eq!(groups_in(status, 7), Some(vec![4, 24, 1000]));
        assert_eq!(groups_in(status, 1), None, "the effective user counts");
        assert_eq!(groups_in("Uid:\t0\t0\t0\t0\nGroups:\t\n", 0), Some(vec![]));
        assert_eq!(groups_in("", 0), None);
        assert!(groups_of(0, 0).is_empty() && groups_of(-1, 0).is_empty() && groups_of(i32::MAX, 0).is_empty());
    }
}
