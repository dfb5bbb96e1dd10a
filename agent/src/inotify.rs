//! inotify(7) as a stream of events: the kernel reports changes, so no timer is needed.

use std::io;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags};
pub use rustix::fs::inotify::{ReadFlags, WatchFlags};
use tokio::net::unix::pipe;

/// Size in bytes of the buffer of one read: dozens of events, or one with the longest name. The next read returns the
/// rest.
const BUFFER: usize = 4096;

/// An event. `watch` is the number from [`Inotify::add`], or -1 if the kernel's own queue overflowed
/// ([`ReadFlags::QUEUE_OVERFLOW`]).
#[derive(Debug, PartialEq, Eq)]
pub struct Happened {
    pub watch: i32,
    pub what: ReadFlags,
    /// The changed entry of a watched directory. `None`: the watched file or directory itself changed, or the name is
    /// no UTF-8, and so no name of perilog's.
    pub name: Option<String>,
}

/// An inotify instance: watches files and directories.
#[derive(Debug)]
pub struct Inotify {
    /// The descriptor, wrapped as a pipe: tokio has no other safe way to wait for such a descriptor.
    fd: pipe::Receiver,
}

impl Inotify {
    /// Creates an instance; needs a running tokio runtime with I/O.
    pub fn new() -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { fd: pipe::Receiver::from_owned_fd_unchecked(fd)? })
    }

    /// Watches a path for the events `what`. Returns the number of the watch, which is the same for the same inode.
    pub fn add(&self, path: &Path, what: WatchFlags) -> io::Result<i32> {
        Ok(inotify::add_watch(&self.fd, path, what)?)
    }

    /// Removes the watch of that number. Ignores an error, because the kernel may have removed the watch before.
    pub fn remove(&self, watch: i32) {
        let _gone_before = inotify::remove_watch(&self.fd, watch);
    }

    /// Waits for the next events. Cancel safe.
    pub async fn next(&self) -> io::Result<Vec<Happened>> {
        let mut buffer = [0; BUFFER];
        loop {
            self.fd.readable().await?;
            match self.fd.try_read(&mut buffer) {
                Ok(length) => return Ok(parse(&buffer[..length])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Parses `struct inotify_event`: watch, mask, cookie and length of the name, each of 32 bits; then the name, padded
/// with NUL. The kernel returns only whole events.
fn parse(mut bytes: &[u8]) -> Vec<Happened> {
    let mut all = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<16>() {
        let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = rest.len().min(word(12) as usize);
        let (name, after) = rest.split_at(length);
        let name = name.split(|b| *b == 0).next().filter(|name| !name.is_empty());
        all.push(Happened {
            watch: word(0).cast_signed(),
            what: ReadFlags::from_bits_retain(word(4)),
            name: name.and_then(|name| String::from_utf8(name.to_vec()).ok()),
        });
        bytes = after;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_of_a_directory_and_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let inotify = Inotify::new().unwrap();
        let watch = inotify.add(dir.path(), WatchFlags::CREATE | WatchFlags::MOVED_TO).unwrap();
        for name in ["a", "a name of more than sixteen bytes"] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        let seen = inotify.next().await.unwrap();
        let names: Vec<&str> = seen.iter().map(|event| event.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["a", "a name of more than sixteen bytes"]);
        assert!(seen.iter().all(|event| event.watch == watch && event.what.contains(ReadFlags::CREATE)));

        let file = inotify.add(&dir.path().join("a"), WatchFlags::MODIFY).unwrap();
        std::fs::write(dir.path().join("a"), "y").unwrap();
        let seen = inotify.next().await.unwrap();
        assert!(
            seen.iter()
                .all(|event| event.watch == file && event.name.is_none() && event.what.contains(ReadFlags::MODIFY))
        );
        inotify.remove(file);
        assert!(inotify.next().await.unwrap()[0].what.contains(ReadFlags::IGNORED));
    }
}
