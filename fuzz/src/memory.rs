//! Counts the memory that a thread has, and its peak.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Adds to the memory of this thread. A thread that is ending has no counters.
fn add(bytes: isize) {
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

const fn size(bytes: usize) -> isize {
    bytes.cast_signed()
}

// SAFETY: each call is handed to the system's allocator as it came; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(size(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(size(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        add(-size(layout.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        // Counts both blocks at once: a large block may move.
        add(size(new));
        add(-size(layout.size()));
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(block, layout, new) }
    }
}

/// Calls `work`; returns its result, and the most memory in bytes that this thread had meanwhile, beyond that before.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.get();
    PEAK.set(before);
    let result = work();
    (result, usize::try_from(PEAK.get() - before).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_freed_meanwhile_counts() {
        let (_, most) = peak(|| drop(std::hint::black_box(vec![0_u8; 10_000])));
        assert!((10_000..11_000).contains(&most), "{most}");
        let ((), most) = peak(|| {
            let mut grows = Vec::with_capacity(1000);
            grows.push(0_u8);
            grows.reserve_exact(2000);
            std::hint::black_box(&grows);
        });
        assert!((3000..3100).contains(&most), "{most}");
        assert_eq!(peak(|| ()).1, 0);
    }
}
