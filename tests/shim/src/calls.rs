//! The functions of the C library in whose place the shim is: each one translates its arguments for `recorder`, and the
//! result for its caller.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd as _, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::recorder;

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

fn opened(result: Result<OwnedFd, Errno>) -> c_int {
    returned(result.map(|fd| fd.into_raw_fd() as isize)) as c_int
}

/// Returns the descriptor that a caller of the C library names; -1, which is none, becomes another number that is none.
fn file<'a>(fd: c_int) -> BorrowedFd<'a> {
    // SAFETY: the caller of the C library owns the descriptor during the call.
    unsafe { BorrowedFd::borrow_raw(if fd == -1 { c_int::MAX } else { fd }) }
}

/// Returns the text that a caller of the C library hands over.
fn text<'a>(text: *const c_char) -> &'a CStr {
    // SAFETY: the caller of the C library hands over a text that ends with a zero byte and lives during the call.
    unsafe { CStr::from_ptr(text) }
}

fn bytes<'a>(from: *const c_void, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller of the C library hands over `len` bytes that live during the call.
    unsafe { std::slice::from_raw_parts(from.cast(), len) }
}

fn flags(flags: c_int) -> OFlags {
    OFlags::from_bits_retain(flags as c_uint)
}

fn mode(mode: c_uint) -> Mode {
    Mode::from_bits_retain(mode & 0o7777)
}

/// open(2). Its third argument is there only where the caller gives one; on the platforms of this library an absent
/// argument is an arbitrary number, which the kernel ignores without `O_CREAT`.
#[unsafe(no_mangle)]
extern "C" fn open(path: *const c_char, how: c_int, bits: c_uint) -> c_int {
    opened(recorder::open(CWD, text(path), flags(how), mode(bits)))
}

#[unsafe(no_mangle)]
extern "C" fn open64(path: *const c_char, how: c_int, bits: c_uint) -> c_int {
    opened(recorder::open(CWD, text(path), flags(how), mode(bits)))
}

#[unsafe(no_mangle)]
extern "C" fn openat(at: c_int, path: *const c_char, how: c_int, bits: c_uint) -> c_int {
    opened(recorder::open(file(at), text(path), flags(how), mode(bits)))
}

#[unsafe(no_mangle)]
extern "C" fn openat64(at: c_int, path: *const c_char, how: c_int, bits: c_uint) -> c_int {
    opened(recorder::open(file(at), text(path), flags(how), mode(bits)))
}

#[unsafe(no_mangle)]
extern "C" fn write(fd: c_int, from: *const c_void, len: usize) -> isize {
    returned(recorder::write(file(fd), bytes(from, len), None))
}

#[unsafe(no_mangle)]
extern "C" fn pwrite(fd: c_int, from: *const c_void, len: usize, at: c_long) -> isize {
    returned(recorder::write(file(fd), bytes(from, len), Some(at as u64)))
}

#[unsafe(no_mangle)]
extern "C" fn pwrite64(fd: c_int, from: *const c_void, len: usize, at: c_long) -> isize {
    returned(recorder::write(file(fd), bytes(from, len), Some(at as u64)))
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate(fd: c_int, len: c_long) -> c_int {
    status(recorder::resize(file(fd), len as u64))
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate64(fd: c_int, len: c_long) -> c_int {
    status(recorder::resize(file(fd), len as u64))
}

#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    status(recorder::sync(file(fd)))
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    status(recorder::sync(file(fd)))
}

#[unsafe(no_mangle)]
extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    status(recorder::renamed((CWD, text(from)), (CWD, text(to)), false))
}

#[unsafe(no_mangle)]
extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    status(recorder::renamed((CWD, text(from)), (CWD, text(to)), true))
}

#[unsafe(no_mangle)]
extern "C" fn linkat(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, _flags: c_int) -> c_int {
    status(recorder::renamed((file(from_at), text(from)), (file(to_at), text(to)), true))
}

#[unsafe(no_mangle)]
extern "C" fn unlink(path: *const c_char) -> c_int {
    status(recorder::remove(CWD, text(path), AtFlags::empty()))
}

#[unsafe(no_mangle)]
extern "C" fn rmdir(path: *const c_char) -> c_int {
    status(recorder::remove(CWD, text(path), AtFlags::REMOVEDIR))
}

#[unsafe(no_mangle)]
extern "C" fn unlinkat(at: c_int, path: *const c_char, how: c_int) -> c_int {
    status(recorder::remove(file(at), text(path), AtFlags::from_bits_retain(how as c_uint)))
}

#[unsafe(no_mangle)]
extern "C" fn mkdir(path: *const c_char, bits: c_uint) -> c_int {
    status(recorder::make_directory(text(path), mode(bits)))
}
