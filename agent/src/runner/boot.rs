//! The mark (file `boot-expected`) for which a script that announced a reboot waits. The agent writes the mark into the
//! task's directory once the controller knows of the reboot.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use perilog_core::task::BOOT_EXPECTED;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::directory::Directory;

/// Size in bytes of the buffer for file events: room for some dozen events, whose content does not matter.
const EVENTS: usize = 4096;

#[derive(Debug)]
pub(crate) struct Mark {
    inotify: OwnedFd,
}

impl Mark {
    /// Begins to watch the task's directory for the mark. The mark may be there already, so the caller checks for it
    /// after this call, and again whenever [`Self::fd`] is ready.
    pub(crate) fn watch(directory: &Directory) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&inotify, directory.path(), WatchFlags::MOVED_TO | WatchFlags::ONLYDIR)?;
        Ok(Self { inotify })
    }

    pub(crate) fn is_there(directory: &Directory) -> bool {
        directory.has(BOOT_EXPECTED)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Discards queued file events. They are only hints: [`Self::is_there`] looks for the mark itself.
    pub(crate) fn clear(&self) {
        let _nothing_more = rustix::io::read(&self.inotify, &mut [0; EVENTS]);
    }
}
