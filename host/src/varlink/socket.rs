//! Creation of the socket file.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Maximum number of clients that wait while the daemon is busy or all seats are taken. The kernel limits the number
/// to net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// The reason why the local socket cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    #[error("{}: another process listens here already", path.display())]
    InUse { path: PathBuf },
    #[error("{} exists and is not a socket, so it was not replaced. Move it away, then start the daemon again",
            path.display())]
    NotASocket { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Binds the local socket. Replaces a stale socket and refuses a live one; `mode` as for chmod(2), `group` a gid.
///
/// Follows a symbolic link: /run/perilog belongs to root, and a daemon that is not root has its socket in a directory
/// of its own.
///
/// Clients can connect only after mode and group are set: a bound socket refuses until listen(2).
pub fn bind(path: &Path, mode: u32, group: Option<u32>) -> Result<UnixListener, SocketError> {
    let path = &leads_to(path);
    let failed = |source| SocketError::Io { path: path.to_owned(), source };
    clear(path)?;
    let bound = || -> io::Result<UnixListener> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        if group.is_some() {
            chown(path, None, group)?;
        }
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode))?;
        net::listen(&socket, BACKLOG)?;
        Ok(socket.into())
    };
    bound().map_err(failed)
}

/// Returns the target of the link at `path`, whether or not the target exists; `path` itself if it is no link.
fn leads_to(path: &Path) -> PathBuf {
    match (std::fs::read_link(path), path.parent()) {
        (Ok(target), Some(parent)) => parent.join(target),
        _ => path.to_owned(),
    }
}

/// Removes the socket that a dead daemon left at `path`.
///
/// # Errors
/// [`SocketError`]: a daemon answers on the socket; `path` is no socket; or it cannot be examined, dialled or removed.
fn clear(path: &Path) -> Result<(), SocketError> {
    let failed = |source| SocketError::Io { path: path.to_owned(), source };
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(meta) if !meta.file_type().is_socket() => return Err(SocketError::NotASocket { path: path.to_owned() }),
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // A full queue also proves a live daemon.
        Ok(_) => return Err(SocketError::InUse { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(SocketError::InUse { path: path.to_owned() });
        }
        Err(error) => return Err(failed(error)),
    }
    std::fs::remove_file(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_file_has_its_mode_and_group_and_a_stale_one_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let gid = rustix::process::getgid().as_raw();
        for mode in [0o600, 0o660, 0o666] {
            let listener = bind(&path, mode, Some(gid)).unwrap();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode);
            assert!(matches!(bind(&path, mode, None), Err(SocketError::InUse { .. })));
            drop(listener);
        }
        let fresh = dir.path().join("file");
        fs::write(&fresh, "").unwrap();
        assert_eq!(fresh.metadata().unwrap().permissions().mode() & 0o077, 0o044, "the umask is what it was");
    }

    #[test]
    fn a_link_leads_to_the_socket_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("own")).unwrap();
        let name = dir.path().join("s");
        std::os::unix::fs::symlink("own/s", &name).unwrap();
        for _ in 0..2 {
            let listener = bind(&name, 0o666, None).unwrap();
            assert!(dir.path().join("own/s").symlink_metadata().unwrap().file_type().is_socket());
            UnixStream::connect(&name).unwrap();
            drop(listener);
        }
        assert_eq!(fs::read_link(&name).unwrap(), Path::new("own/s"));
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(bind(&path, 0o600, None), Err(SocketError::NotASocket { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        let error = bind(&dir.path().join("none/s"), 0o600, None).unwrap_err();
        assert!(error.to_string().contains("none/s: No such file"), "{error}");
    }
}
