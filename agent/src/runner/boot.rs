//! Watch for the file `boot-expected`, for which a script that announced a reboot waits. The agent creates the file in
//! the task's directory once the controller's store contains the announcement.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use perilog_core::task::BOOT_EXPECTED;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::directory::Directory;

/// Size in bytes of the buffer for file events: room for some dozen events, whose content does not matter.
const EVENTS: usize = 4096;

/// Watch for the file `boot-expected` in a task's directory.
#[derive(Debug)]
pub(crate) struct Mark {
    inotify: OwnedFd,
}

impl Mark {
    /// Begins to watch the task's directory for the file `boot-expected`. The file may exist already, so the caller
    /// checks for it ([`Self::is_there`]) after this call, and again whenever [`Self::fd`] is ready.
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

    /// Discards queued file events. They are only hints: [`Self::is_there`] looks for the file itself.
    pub(crate) fn clear(&self) {
        let _nothing_more = rustix::io::read(&self.inotify, &mut [0; EVENTS]);
    }
}
