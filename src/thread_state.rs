//! What another thread of this process does: whether it runs, and how long it has run. From the
//! operating system, where that can be had cheaply: on Linux.

use std::cell::Cell;
use std::time::Duration;

use crate::report::ThreadState;

/// A thread as the system numbers them; zero where it does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadNumber(pub(crate) u32);

impl ThreadNumber {
    pub(crate) fn mine() -> Self {
        thread_local! {
            static MINE: u32 = number();
        }
        // Out of reach only while this thread's own destructors run.
        ThreadNumber(MINE.try_with(|mine| *mine).unwrap_or(0))
    }

    /// The CPU time that the thread has used. None if it has ended, or if the system does not tell.
    #[cfg(target_os = "linux")]
    pub(crate) fn cpu_time(self) -> Option<Duration> {
        // As the kernel numbers the clocks of threads: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED.
        let clock = (!(self.0 as libc::clockid_t) << 3) | 6;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is valid for writing; a thread that is gone makes for an error.
        if self.0 == 0 || unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
            return None;
        }
        Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn cpu_time(self) -> Option<Duration> {
        None
    }

    /// What it does now. Reads a file, some 10 µs on Linux.
    #[cfg(target_os = "linux")]
    pub(crate) fn state(self) -> ThreadState {
        let read = || {
            let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", self.0)).ok()?;
            // The name before may hold anything.
            stat.rsplit_once(") ")?.1.chars().next()
        };
        match read() {
            Some('R') => ThreadState::Running,
            Some('S' | 'D') => ThreadState::Blocked,
            _ => ThreadState::Unknown,
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn state(self) -> ThreadState {
        ThreadState::Unknown
    }
}

/// As the system counts switches.
type Count = std::ffi::c_long;

/// Whether another thread ran on this one's CPU since this one asked before; it did not run for `gap`.
pub(crate) fn lost_cpu(gap: Duration) -> bool {
    thread_local! {
        static BEFORE: Cell<Option<Count>> = const { Cell::new(None) };
    }
    /// Where the system does not tell, it takes that long to be sure.
    const LONG: Duration = Duration::from_micros(250);
    let Some(now) = preemptions() else { return gap > LONG };
    BEFORE.with(|before| before.replace(Some(now)).is_some_and(|before| now != before))
}

/// How often this thread was made to leave its CPU to another.
#[cfg(target_os = "linux")]
fn preemptions() -> Option<Count> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is valid for writing; all zeros is a value of it as well.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) != 0 {
            return None;
        }
        usage.assume_init()
    };
    Some(usage.ru_nivcsw)
}

#[cfg(not(target_os = "linux"))]
fn preemptions() -> Option<Count> {
    None
}

#[cfg(target_os = "linux")]
fn number() -> u32 {
    // SAFETY: it cannot fail.
    unsafe { libc::gettid() as u32 }
}

#[cfg(not(target_os = "linux"))]
fn number() -> u32 {
    0
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[test]
    fn a_thread_that_runs_and_one_that_is_blocked_are_told_apart() {
        let mine = ThreadNumber::mine();
        assert_eq!(mine.state(), ThreadState::Running);
        let before = mine.cpu_time().unwrap();
        while mine.cpu_time().unwrap() == before {}
        let (number, parker) = (AtomicU32::new(0), parking::Parker::new());
        let unparker = parker.unparker();
        std::thread::scope(|scope| {
            let number = &number;
            scope.spawn(move || {
                number.store(ThreadNumber::mine().0, Relaxed);
                parker.park();
            });
            while ThreadNumber(number.load(Relaxed)).state() != ThreadState::Blocked {}
            unparker.unpark();
        });
        assert_eq!(ThreadNumber(0).cpu_time(), None);
    }
}
