//! Whether this thread has to share its CPU: the system took it away lately, for another to run.
//! Then nobody may keep a CPU only to look for work.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long an observation counts: some timeslices of common schedulers (3 to 6 ms on Linux).
const PERIOD: Duration = Duration::from_millis(20);
/// Questions between two readings of the clock.
const EVERY: u32 = 16;

/// One thread's observations. Not shared: every field is a cell.
pub(crate) struct Contention {
    questions: Cell<u32>,
    last: Cell<Option<(Instant, u64)>>,
    contended: Cell<bool>,
}

impl Contention {
    pub(crate) fn new() -> Self {
        Contention { questions: Cell::new(0), last: Cell::new(None), contended: Cell::new(false) }
    }

    /// Whether the CPU was taken away within the last period or the one before.
    #[inline]
    pub(crate) fn is_felt(&self) -> bool {
        self.questions.set(self.questions.get().wrapping_add(1));
        if self.questions.get() % EVERY == 1 {
            self.observe(Instant::now(), involuntary_switches);
        }
        self.contended.get()
    }

    fn observe(&self, now: Instant, switches: impl FnOnce() -> u64) {
        match self.last.get() {
            Some((at, _)) if now.saturating_duration_since(at) < PERIOD => {}
            last => {
                let switches = switches();
                self.contended.set(last.is_some_and(|(_, before)| switches > before));
                self.last.set(Some((now, switches)));
            }
        }
    }
}

/// How often this thread lost its CPU to another.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn involuntary_switches() -> u64 {
    // SAFETY: `rusage` is plain data, and the call fills it.
    unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_nivcsw as u64
    }
}

/// The system does not tell it for one thread.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn involuntary_switches() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_felt_for_the_period_after_one_in_which_the_cpu_was_taken_away() {
        let contention = Contention::new();
        let start = Instant::now();
        let felt = |periods: u32, switches: u64| {
            contention.observe(start + PERIOD * periods, || switches);
            contention.contended.get()
        };
        assert!(!felt(0, 5), "what was before the first observation does not count");
        assert!(!felt(1, 5));
        assert!(felt(2, 6) && felt(3, 7));
        contention.observe(start + PERIOD * 3 + PERIOD / 2, || unreachable!("too soon"));
        assert!(!felt(4, 7));
    }
}
