//! `$PERILOG_CONTROL`: the socket for a script's reports about itself. The runner serves the socket, so reports work
//! while the agent is down.
//!
//! The socket belongs to the user of the running script (mode 0600): connect(2) fails for other users, so they cannot
//! keep the runner busy. A process of an earlier script may run as another user. So the kernel names the peer
//! (SO_PEERCRED), and the runner accepts only root and the script's user. A report is a line of JSON
//! ([`crate::protocol`]); the caller acts on the report.

mod peer;

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use perilog_core::task::{Report, Start};

use crate::protocol::Reply;
use peer::Peer;

/// Maximum number of connections. A script has one or two; more wait in the kernel's backlog.
const MAX_PEERS: usize = 16;

/// Maximum number of connections that the runner accepts before it checks signals and limits again: a process that
/// connects in a loop must not delay the checks.
const ADMITTED_AT_ONCE: usize = MAX_PEERS;

/// Maximum length of a socket's path in bytes: sun_path without its NUL (unix(7)).
const MAX_PATH: usize = 107;

#[derive(Debug)]
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
    peers: Vec<Peer>,
    /// Whether accept(2) failed for lack of resources. Then the runner accepts no peer until the script ends, because a
    /// retry would loop.
    shut: bool,
}

impl Control {
    /// Opens the task's control socket. Replaces a socket that a killed runner left: only the process with the task's
    /// claim calls this function.
    pub(crate) fn open(run_dir: &Path, stem: &str, start: &Start) -> io::Result<Self> {
        let directory = run_dir.join("control");
        match fs::DirBuilder::new().mode(0o711).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let path = name(&directory, stem, start);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, path, peers: Vec::new(), shut: false })
    }

    /// Gives the socket file to the user of the script that begins.
    pub(crate) fn give_to(&self, uid: u32) -> io::Result<()> {
        std::os::unix::fs::chown(&self.path, Some(uid), None)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the listening socket while the runner accepts further peers; `None`: [`MAX_PEERS`] are connected, or
    /// accept(2) failed.
    pub(crate) fn open_listener(&self) -> Option<BorrowedFd<'_>> {
        (!self.shut && self.peers.len() < MAX_PEERS).then(|| self.listener.as_fd())
    }

    /// Returns the descriptors of all connected peers; their order stays until [`Self::sweep`].
    pub(crate) fn peers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.peers.iter().map(Peer::fd)
    }

    /// Accepts waiting connections, at most [`ADMITTED_AT_ONCE`] in one call. `user`: uid whose processes may report;
    /// root's processes always may.
    pub(crate) fn admit(&mut self, user: Option<u32>) {
        for _ in 0..ADMITTED_AT_ONCE {
            if self.peers.len() >= MAX_PEERS {
                return;
            }
            match self.listener.accept() {
                Ok((stream, _)) => self.peers.extend(Peer::admit(stream, user)),
                Err(error) => {
                    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
                    // Any other error is a lack of descriptors or memory, and the waiting peer would wake the runner
                    // again and again.
                    self.shut = !matches!(error.kind(), WouldBlock | ConnectionAborted | Interrupted);
                    return;
                }
            }
        }
    }

    /// Reads from one of [`Self::peers`] and answers each report; `handle` takes a report and returns the answer, or
    /// the reason of a refusal.
    pub(crate) fn serve(&mut self, peer: usize, handle: &mut dyn FnMut(Report) -> Result<Reply, String>) {
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.serve(handle);
        }
    }

    /// Informs the peers that wait for an announced reboot that the controller knows of the reboot.
    pub(crate) fn known(&mut self) {
        self.peers.iter_mut().for_each(Peer::known);
    }

    /// Removes peers that have disconnected.
    pub(crate) fn sweep(&mut self) {
        self.peers.retain(|peer| !peer.is_gone());
    }

    /// Disconnects all peers, because their user's script has ended.
    pub(crate) fn clear(&mut self) {
        self.peers.clear();
        self.shut = false;
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The directory's next user removes a leftover socket.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the path of the task's control socket in `directory`: `<stem>.sock`. If a long job id makes this path too
/// long for a socket, the file's name has only the part of the stem that distinguishes tasks.
fn name(directory: &Path, stem: &str, start: &Start) -> PathBuf {
    let path = directory.join(format!("{stem}.sock"));
    if path.as_os_str().len() <= MAX_PATH {
        return path;
    }
    directory.join(format!("{}-{}.sock", start.task.rank, start.task.action.tail()))
}
