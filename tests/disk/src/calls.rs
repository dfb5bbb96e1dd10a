//! Stands in for functions of the C library, in this program alone: each one carries out its call, and records the call
//! if it changed a file of the recorded directory. An fsync of such a file only counts: the disk is a model
//! (`perilog_disk::disk`).
//!
//! The linker prefers these functions to those of the C library for SQLite and for Rust's standard library, which are
//! linked into this program. rustix makes its system calls without the C library, so no call below meets itself.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use perilog_disk::record::Entry;
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;

struct Recorder {
    directory: PathBuf,
    record: OwnedFd,
    fails: Fails,
}

/// The sync that fails.
pub(crate) struct Fails {
    /// Name of the file whose syncs count; `None`: all count.
    pub(crate) of: Option<String>,
    /// Number of syncs until the one that fails, with that one; 0: it has failed, or none is to fail.
    pub(crate) number: u64,
}

/// The recorder; `None` until [`begin`].
static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);

fn recorder() -> MutexGuard<'static, Option<Recorder>> {
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records all calls from now on that change files in `directory`, and lets one sync fail.
pub(crate) fn begin(directory: &Path, record: OwnedFd, fails: Fails) {
    *recorder() = Some(Recorder { directory: directory.to_owned(), record, fails });
}

/// Records that the store acknowledged a batch.
pub(crate) fn acknowledged(batch: u64) {
    if let Some(recorder) = recorder().as_ref() {
        recorder.put(&Entry::Acknowledged { batch });
    }
}

impl Recorder {
    #[expect(clippy::expect_used, reason = "a record with a gap proves nothing")]
    fn put(&self, entry: &Entry<'_>) {
        let mut bytes = entry.to_string().into_bytes();
        if let Entry::Write { bytes: written, .. } = entry {
            bytes.extend_from_slice(written);
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let written = rustix::io::write(&self.record, rest).expect("the record has room");
            rest = &rest[written..];
        }
    }

    /// Returns the name of an open file; `None`: the file is outside of the directory, or has no name.
    fn name_of(&self, fd: BorrowedFd<'_>) -> Option<String> {
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
        let target = rustix::fs::readlink(link, Vec::new()).ok()?.into_string().ok()?;
        self.name(&target).filter(|name| !name.ends_with(" (deleted)"))
    }

    fn name(&self, path: &str) -> Option<String> {
        let name = Path::new(path).strip_prefix(&self.directory).ok()?.to_str()?;
        Some(if name.is_empty() { ".".to_owned() } else { name.to_owned() })
    }

    /// Counts a sync of a file; returns whether it fails.
    fn fails(&mut self, name: &str) -> bool {
        let Fails { of, number } = &mut self.fails;
        if of.as_ref().is_some_and(|of| of != name) {
            return false;
        }
        let fails = *number == 1;
        *number = number.saturating_sub(1);
        fails
    }
}

unsafe extern "C" {
    safe fn __errno_location() -> *mut c_int;
}

/// Returns what a function of the C library returns: the value, or -1 and `errno`.
fn returned<T: TryInto<isize>>(result: Result<T, Errno>) -> isize {
    match result {
        Ok(value) => value.try_into().unwrap_or(isize::MAX),
        Err(errno) => {
            let at = __errno_location();
            // SAFETY: `errno` of this thread lives as long as the thread.
            unsafe { *at = errno.raw_os_error() };
            -1
        }
    }
}

fn status(result: Result<(), Errno>) -> c_int {
    returned(result.map(|()| 0_isize)) as c_int
}

/// Returns the descriptor that a caller of the C library names.
fn file<'a>(fd: c_int) -> BorrowedFd<'a> {
    // SAFETY: the caller of the C library owns the descriptor during the call.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

fn opened(path: &CStr, flags: c_int, mode: c_uint) -> c_int {
    let flags = OFlags::from_bits_retain(flags as c_uint);
    let recorder = recorder();
    let result = rustix::fs::open(path, flags, Mode::from_bits_retain(mode));
    if let (Ok(fd), Some(recorder)) = (&result, recorder.as_ref())
        && flags.intersects(OFlags::CREATE | OFlags::TRUNC)
        && let Some(name) = recorder.name_of(std::os::fd::AsFd::as_fd(fd))
    {
        recorder.put(&Entry::Open { name: &name, truncate: flags.contains(OFlags::TRUNC) });
    }
    returned(result.map(|fd| fd.into_raw_fd() as isize)) as c_int
}

fn written(fd: c_int, bytes: &[u8], at: Option<u64>) -> isize {
    let (recorder, fd) = (recorder(), file(fd));
    let name = recorder.as_ref().and_then(|recorder| recorder.name_of(fd));
    let place = at.or_else(|| name.as_ref().and_then(|_| rustix::fs::seek(fd, SeekFrom::Current(0)).ok()));
    let result = match at {
        Some(at) => rustix::io::pwrite(fd, bytes, at),
        None => rustix::io::write(fd, bytes),
    };
    if let (Ok(len), Some(recorder), Some(name), Some(at)) = (&result, recorder.as_ref(), name, place) {
        recorder.put(&Entry::Write { name: &name, at: at as usize, bytes: &bytes[..*len] });
    }
    returned(result)
}

fn resized(fd: c_int, len: c_long) -> c_int {
    let (recorder, fd) = (recorder(), file(fd));
    let result = rustix::fs::ftruncate(fd, len as u64);
    if let (Ok(()), Some(recorder)) = (&result, recorder.as_ref())
        && let Some(name) = recorder.name_of(fd)
    {
        recorder.put(&Entry::Size { name: &name, len: len as usize });
    }
    status(result)
}

fn synced(fd: c_int) -> c_int {
    let (mut recorder, fd) = (recorder(), file(fd));
    let Some(recorder) = recorder.as_mut() else { return status(rustix::fs::fsync(fd)) };
    let Some(name) = recorder.name_of(fd) else { return status(rustix::fs::fsync(fd)) };
    let failed = recorder.fails(&name);
    recorder.put(&Entry::Sync { name: &name, failed });
    status(if failed { Err(Errno::IO) } else { Ok(()) })
}

fn renamed(from: &CStr, to: &CStr) -> c_int {
    let recorder = recorder();
    let result = rustix::fs::rename(from, to);
    let name = |path: &CStr| recorder.as_ref()?.name(path.to_str().ok()?);
    if let (Ok(()), Some(recorder), Some(from), Some(to)) = (&result, recorder.as_ref(), name(from), name(to)) {
        recorder.put(&Entry::Rename { from: &from, to: &to });
    }
    status(result)
}

fn unlinked(path: &CStr) -> c_int {
    let recorder = recorder();
    let result = rustix::fs::unlink(path);
    if let (Ok(()), Some(recorder)) = (&result, recorder.as_ref())
        && let Some(name) = path.to_str().ok().and_then(|path| recorder.name(path))
    {
        recorder.put(&Entry::Unlink { name: &name });
    }
    status(result)
}

/// Returns the text that a caller of the C library hands over.
fn text<'a>(text: *const c_char) -> &'a CStr {
    // SAFETY: the caller of the C library hands over a text that ends with a zero byte and lives during the call.
    unsafe { CStr::from_ptr(text) }
}

fn bytes<'a>(from: *const c_void, len: usize) -> &'a [u8] {
    // SAFETY: the caller of the C library hands over `len` bytes that live during the call.
    unsafe { std::slice::from_raw_parts(from.cast(), len) }
}

/// open(2). Its third argument is there only where the caller gives one; on the platforms of this program an absent
/// argument is an arbitrary number, which the kernel ignores without `O_CREAT`.
#[unsafe(no_mangle)]
extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    opened(text(path), flags, mode & 0o7777)
}

#[unsafe(no_mangle)]
extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    opened(text(path), flags, mode & 0o7777)
}

#[unsafe(no_mangle)]
extern "C" fn write(fd: c_int, from: *const c_void, len: usize) -> isize {
    written(fd, bytes(from, len), None)
}

#[unsafe(no_mangle)]
extern "C" fn pwrite(fd: c_int, from: *const c_void, len: usize, at: c_long) -> isize {
    written(fd, bytes(from, len), Some(at as u64))
}

#[unsafe(no_mangle)]
extern "C" fn pwrite64(fd: c_int, from: *const c_void, len: usize, at: c_long) -> isize {
    written(fd, bytes(from, len), Some(at as u64))
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate(fd: c_int, len: c_long) -> c_int {
    resized(fd, len)
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate64(fd: c_int, len: c_long) -> c_int {
    resized(fd, len)
}

#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    synced(fd)
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    synced(fd)
}

#[unsafe(no_mangle)]
extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    renamed(text(from), text(to))
}

#[unsafe(no_mangle)]
extern "C" fn unlink(path: *const c_char) -> c_int {
    unlinked(text(path))
}
