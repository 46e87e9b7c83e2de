//! A clock that stands still. What runtimes let the clock decide (how often they look up from their
//! queues, when a slice or a turn is over) would be decided otherwise under valgrind, which is some fifty
//! times slower, and differently every time. With it, all polls are as short as can be.
//!
//! Where there is no such symbol to take the place of, the counts vary by some percent.

use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

static STANDS: AtomicBool = AtomicBool::new(false);

#[cfg(target_os = "linux")]
mod symbol {
    use std::sync::atomic::{AtomicU64, Ordering::*};

    use super::STANDS;

    /// In ns; before the clock stands, nothing yet.
    pub static NOW: AtomicU64 = AtomicU64::new(0);

    /// The C library's, which the standard library calls. Any other clock, and a clock that does not stand,
    /// is the kernel's.
    ///
    /// # Safety
    /// `time` is valid for a write.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn clock_gettime(
        clock: libc::clockid_t,
        time: *mut libc::timespec,
    ) -> libc::c_int {
        if clock != libc::CLOCK_MONOTONIC || !STANDS.load(Relaxed) {
            // SAFETY: the call writes one `timespec`.
            return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) } as libc::c_int;
        }
        let now = NOW.load(Relaxed);
        let (tv_sec, tv_nsec) = ((now / 1_000_000_000) as _, (now % 1_000_000_000) as _);
        // SAFETY: the caller's promise.
        unsafe { time.write(libc::timespec { tv_sec, tv_nsec }) };
        0
    }
}

/// The clock stands still from now on.
pub fn stop() {
    #[cfg(target_os = "linux")]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes one `timespec`.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) }, 0);
        symbol::NOW.store(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64, Relaxed);
        STANDS.store(true, Relaxed);
    }
}

/// So much time passes, at once if the clock stands.
#[allow(clippy::disallowed_methods)] // nothing waits for it
pub fn pass(time: Duration) {
    if !STANDS.load(Relaxed) {
        return std::thread::sleep(time);
    }
    #[cfg(target_os = "linux")]
    symbol::NOW.fetch_add(time.as_nanos() as u64, Relaxed);
}
