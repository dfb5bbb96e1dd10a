//! Settings for the kernel's watch over a silent connection.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// Settings by which the kernel watches a silent connection (tcp(7)). A heartbeat of the daemon would wake every node.
///
/// The kernel notices a peer whose host died after `idle` + `interval` * `count` (60 s) if this side is silent, and
/// after `user_timeout` if this side has unacknowledged data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// TCP_KEEPIDLE: the silence after which the kernel sends the first probe.
    pub idle: Duration,
    /// TCP_KEEPINTVL: the time between two probes.
    pub interval: Duration,
    /// TCP_KEEPCNT: the number of unanswered probes after which the connection is dead.
    pub count: u32,
    /// TCP_USER_TIMEOUT: how long sent data may stay unacknowledged.
    pub user_timeout: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(30),
            interval: Duration::from_secs(10),
            count: 3,
            user_timeout: Duration::from_secs(60),
        }
    }
}

impl Keepalive {
    /// Returns settings by which a peer whose host died is noticed within ten seconds: for the few connections of a
    /// node, not for the ten thousand of a controller. `random` spreads the first probe over four seconds, so that
    /// nodes whose connections fell silent together do not probe together.
    pub const fn brief(random: u64) -> Self {
        Self {
            idle: Duration::from_secs(3 + random % 4),
            interval: Duration::from_secs(1),
            count: 3,
            user_timeout: Duration::from_secs(10),
        }
    }

    /// Sets all options on a socket, and TCP_NODELAY: a frame must not wait for the next frame.
    pub(super) fn apply(&self, socket: impl AsFd) -> io::Result<()> {
        let socket = socket.as_fd();
        sockopt::set_tcp_nodelay(socket, true)?;
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, self.idle)?;
        sockopt::set_tcp_keepintvl(socket, self.interval)?;
        sockopt::set_tcp_keepcnt(socket, self.count)?;
        let user_timeout = u32::try_from(self.user_timeout.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(socket, user_timeout)?;
        Ok(())
    }
}
