//! Sockets that systemd opened for this process (sd_listen_fds(3)), by the name in their socket unit
//! (`FileDescriptorName=`).
//!
//! libsystemd checks that the descriptors are open and closes them on exec; sd-listen-fds turns the numbers into owned
//! descriptors. A child may inherit the variables, but LISTEN_PID names this process, so the child does not take the
//! sockets for its own.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{AddressFamily, SocketType, sockopt};

/// Sockets that systemd passed to this process, each under its name; non-blocking and closed on exec.
#[derive(Debug, Default)]
pub struct Activated {
    tcp: Vec<(String, TcpListener)>,
    unix: Vec<(String, UnixListener)>,
}

/// The reason why the sockets cannot be taken over. The socket unit is wrong, or the program that started this process
/// is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ActivationError {
    #[error("the sockets that LISTEN_FDS names cannot be used: {0}")]
    Environment(String),
    #[error("activated socket `{name}`: {source}")]
    Socket { name: String, source: io::Error },
    #[error("activated socket `{name}` is not a listening TCP or Unix stream socket; see ListenStream= in its unit")]
    NotAListener { name: String },
}

/// Takes over all sockets of LISTEN_FDS. Returns an empty set if systemd passed none, or on a second call.
pub fn listen_fds() -> Result<Activated, ActivationError> {
    // Each descriptor has one owner: a second call must not create a second owner.
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let mut activated = Activated::default();
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(activated);
    }
    libsystemd::activation::receive_descriptors(false)
        .map_err(|error| ActivationError::Environment(error.to_string()))?;
    let sockets = sd_listen_fds::get().map_err(|error| ActivationError::Environment(error.to_string()))?;
    for (name, socket) in sockets {
        activated.adopt(name.unwrap_or_default(), socket.into_std())?;
    }
    Ok(activated)
}

impl Activated {
    /// Takes the TCP listeners named `name`: none, one, or several (IPv4 and IPv6).
    pub fn take_tcp(&mut self, name: &str) -> Vec<TcpListener> {
        self.tcp.extract_if(.., |(n, _)| n == name).map(|(_, listener)| listener).collect()
    }

    /// Takes the Unix socket named `name`; `None` if no such socket is left.
    pub fn take_unix(&mut self, name: &str) -> Option<UnixListener> {
        let at = self.unix.iter().position(|(n, _)| n == name)?;
        Some(self.unix.remove(at).1)
    }

    /// Returns the names of sockets that the daemon did not take: the socket unit names a socket that this version does
    /// not know.
    pub fn left(&self) -> Vec<&str> {
        let tcp = self.tcp.iter().map(|(name, _)| name.as_str());
        tcp.chain(self.unix.iter().map(|(name, _)| name.as_str())).collect()
    }

    fn adopt(&mut self, name: String, socket: OwnedFd) -> Result<(), ActivationError> {
        let failed = |source| ActivationError::Socket { name: name.clone(), source };
        let kind = sockopt::socket_type(&socket).map_err(|errno| failed(errno.into()))?;
        let listens = sockopt::socket_acceptconn(&socket).map_err(|errno| failed(errno.into()))?;
        let domain = sockopt::socket_domain(&socket).map_err(|errno| failed(errno.into()))?;
        if kind != SocketType::STREAM || !listens {
            return Err(ActivationError::NotAListener { name });
        }
        match domain {
            AddressFamily::INET | AddressFamily::INET6 => {
                let listener = TcpListener::from(socket);
                listener.set_nonblocking(true).map_err(failed)?;
                self.tcp.push((name, listener));
            }
            AddressFamily::UNIX => {
                let listener = UnixListener::from(socket);
                listener.set_nonblocking(true).map_err(failed)?;
                self.unix.push((name, listener));
            }
            _ => return Err(ActivationError::NotAListener { name }),
        }
        Ok(())
    }
}
