//! What the shim does at each call: it finds the file's name, lets the call fail or carries it out, and records it.

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::faults::{Call, Fault, Faults, Sync};
use crate::record::Entry;

/// The shim's settings, and the lock that makes a call and its entry one step.
struct Shim {
    directory: PathBuf,
    record: Option<OwnedFd>,
    state: Mutex<State>,
}

struct State {
    sync: Option<Sync>,
    faults: Option<Faults>,
}

/// Returns the shim of this process; `None`: the environment names no directory.
fn shim() -> Option<&'static Shim> {
    static SHIM: OnceLock<Option<Shim>> = OnceLock::new();
    SHIM.get_or_init(|| {
        let variable = |name: &str| std::env::var_os(format!("PERILOG_SHIM_{name}"));
        let record = variable("RECORD").map(|path| {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
            rustix::fs::open(Path::new(&path), flags, Mode::RUSR | Mode::WUSR).unwrap_or_else(|_| std::process::abort())
        });
        let sync = variable("FAILS").and_then(|text| Sync::parse(text.to_str()?));
        let faults = variable("FAULTS").map(|path| Faults::new(PathBuf::from(path)));
        let state = Mutex::new(State { sync, faults });
        Some(Shim { directory: PathBuf::from(variable("DIRECTORY")?), record, state })
    })
    .as_ref()
}

impl Shim {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an entry. A record with a gap proves nothing, so a failure ends the process.
    fn put(&self, entry: &Entry<'_>) {
        let Some(record) = &self.record else { return };
        let bytes = entry.bytes();
        if !matches!(rustix::io::write(record, &bytes), Ok(len) if len == bytes.len()) {
            std::process::abort();
        }
    }

    /// Returns the name of an open file; `None`: the file is outside of the directory, or has no name.
    fn name_of(&self, fd: BorrowedFd<'_>) -> Option<String> {
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let target = rustix::fs::readlink(link, Vec::new()).ok()?.into_string().ok()?;
        self.name(Path::new(&target)).filter(|name| !name.ends_with(" (deleted)"))
    }

    fn name(&self, path: &Path) -> Option<String> {
        let name = path.strip_prefix(&self.directory).ok()?.to_str()?;
        Some(if name.is_empty() { ".".to_owned() } else { name.to_owned() })
    }

    /// Returns the name of a path that begins at the directory `at`.
    fn name_at(&self, at: BorrowedFd<'_>, path: &CStr) -> Option<String> {
        let path = Path::new(path.to_str().ok()?);
        if path.is_absolute() {
            return self.name(path);
        }
        let parent = self.name_of(at)?;
        self.name(&self.directory.join(parent).join(path).components().collect::<PathBuf>())
    }
}

impl Shim {
    /// Carries out a call that is about the file `name`, and records the entry that `entry` makes of its result. The
    /// call fails instead if a fault is due.
    fn step<'a, T>(
        &self,
        call: Call,
        name: &'a str,
        act: impl FnOnce() -> Result<T, Errno>,
        entry: impl FnOnce(&T) -> Option<Entry<'a>>,
    ) -> Result<T, Errno> {
        let mut state = self.lock();
        match state.faults.as_mut().and_then(|faults| faults.strike(call)) {
            Some(Fault::Fails(errno)) => {
                self.put(&Entry::Failed { name, errno: errno.raw_os_error() });
                Err(errno)
            }
            _ => {
                let done = act()?;
                if let Some(entry) = entry(&done) {
                    self.put(&entry);
                }
                Ok(done)
            }
        }
    }
}

pub(crate) fn open(at: BorrowedFd<'_>, path: &CStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let act = || rustix::fs::openat(at, path, flags, mode);
    let Some(shim) = shim() else { return act() };
    let Some(name) = shim.name_at(at, path) else { return act() };
    let creates = flags.contains(OFlags::CREATE);
    let writes = creates || flags.intersects(OFlags::WRONLY | OFlags::RDWR);
    let is_change = flags.intersects(OFlags::CREATE | OFlags::TRUNC);
    let truncate = flags.contains(OFlags::TRUNC);
    shim.step(Call::Open { writes, creates }, &name, act, |_| {
        is_change.then_some(Entry::Open { name: &name, truncate })
    })
}

/// write(2) at the file's offset, or pwrite(2) at `at`.
pub(crate) fn write(fd: BorrowedFd<'_>, bytes: &[u8], at: Option<u64>) -> Result<usize, Errno> {
    let act = |bytes: &[u8]| match at {
        Some(at) => rustix::io::pwrite(fd, bytes, at),
        None => rustix::io::write(fd, bytes),
    };
    let Some((shim, name)) = shim().and_then(|shim| Some((shim, shim.name_of(fd)?))) else { return act(bytes) };
    let mut state = shim.lock();
    let fault = state.faults.as_mut().and_then(|faults| faults.strike(Call::Write));
    let bytes = match fault {
        Some(Fault::Fails(errno)) => {
            shim.put(&Entry::Failed { name: &name, errno: errno.raw_os_error() });
            return Err(errno);
        }
        Some(Fault::Short(number)) => &bytes[..bytes.len().min(1 + number as usize % bytes.len().max(1))],
        None => bytes,
    };
    let written = act(bytes)?;
    // The kernel moves the offset behind what it wrote, also for a file that is open for appending.
    let place = match at {
        Some(at) => at,
        None => rustix::fs::seek(fd, SeekFrom::Current(0))?.saturating_sub(written as u64),
    };
    shim.put(&Entry::Write { name: &name, at: place as usize, bytes: &bytes[..written] });
    Ok(written)
}

pub(crate) fn resize(fd: BorrowedFd<'_>, len: u64) -> Result<(), Errno> {
    let act = || rustix::fs::ftruncate(fd, len);
    let Some((shim, name)) = shim().and_then(|shim| Some((shim, shim.name_of(fd)?))) else { return act() };
    shim.step(Call::Resize, &name, act, |()| Some(Entry::Size { name: &name, len: len as usize }))
}

pub(crate) fn sync(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let Some((shim, name)) = shim().and_then(|shim| Some((shim, shim.name_of(fd)?))) else {
        return rustix::fs::fsync(fd);
    };
    let mut state = shim.lock();
    let errno = match state.faults.as_mut().and_then(|faults| faults.strike(Call::Sync)) {
        Some(Fault::Fails(errno)) => Some(errno),
        _ => state.sync.as_mut().is_some_and(|sync| sync.fails(&name)).then_some(Errno::IO),
    };
    shim.put(&Entry::Sync { name: &name, failed: errno.is_some() });
    errno.map_or(Ok(()), Err)
}

/// rename(2) and link(2): calls with two names.
pub(crate) fn renamed(
    (from_at, from): (BorrowedFd<'_>, &CStr),
    (to_at, to): (BorrowedFd<'_>, &CStr),
    links: bool,
) -> Result<(), Errno> {
    let act = || match links {
        true => rustix::fs::linkat(from_at, from, to_at, to, AtFlags::empty()),
        false => rustix::fs::renameat(from_at, from, to_at, to),
    };
    let Some(shim) = shim() else { return act() };
    let (Some(from), Some(to)) = (shim.name_at(from_at, from), shim.name_at(to_at, to)) else { return act() };
    let entry = match links {
        true => Entry::Link { from: &from, to: &to },
        false => Entry::Rename { from: &from, to: &to },
    };
    shim.step(Call::Name, &to, act, |()| Some(entry))
}

/// unlink(2) and rmdir(2).
pub(crate) fn remove(at: BorrowedFd<'_>, path: &CStr, flags: AtFlags) -> Result<(), Errno> {
    let act = || rustix::fs::unlinkat(at, path, flags);
    let Some((shim, name)) = shim().and_then(|shim| Some((shim, shim.name_at(at, path)?))) else { return act() };
    shim.step(Call::Name, &name, act, |()| Some(Entry::Unlink { name: &name }))
}

pub(crate) fn make_directory(path: &CStr, mode: Mode) -> Result<(), Errno> {
    let act = || rustix::fs::mkdir(path, mode);
    let Some((shim, name)) = shim().and_then(|shim| Some((shim, shim.name_at(rustix::fs::CWD, path)?))) else {
        return act();
    };
    shim.step(Call::Name, &name, act, |()| Some(Entry::Directory { name: &name }))
}
