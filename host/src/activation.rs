//! Sockets that systemd opened for us (sd_listen_fds(3)), by the name that their socket unit gives them (`FileDescriptorName=`).

use std::net::TcpListener;
use std::os::unix::net::UnixListener;

/// The sockets that we were given, each under its name; non-blocking and closed on exec.
#[derive(Debug, Default)]
pub struct Activated {
    tcp: Vec<(String, TcpListener)>,
    unix: Vec<(String, UnixListener)>,
}

/// Why the sockets cannot be taken over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ActivationError {}

/// Takes over all sockets of LISTEN_FDS. Gives none when there are none, or when called again.
pub fn listen_fds() -> Result<Activated, ActivationError> {
    todo!()
}

impl Activated {
    /// Takes the stream sockets of `name` that listen on TCP: none, one, or several (IPv4 and IPv6).
    pub fn take_tcp(&mut self, name: &str) -> Vec<TcpListener> {
        self.tcp
            .extract_if(.., |(n, _)| n == name)
            .map(|(_, listener)| listener)
            .collect()
    }

    /// Takes the local socket of `name`.
    pub fn take_unix(&mut self, name: &str) -> Option<UnixListener> {
        let at = self.unix.iter().position(|(n, _)| n == name)?;
        Some(self.unix.swap_remove(at).1)
    }
}
