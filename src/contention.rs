//! Whether this thread has to share its CPU: the system took it away for long lately, for another to
//! run. Then nobody may keep a CPU only to look for work.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Between two observations: some timeslices of common schedulers (3 to 6 ms on Linux).
const PERIOD: Duration = Duration::from_millis(20);
/// Of the time that the thread wanted to run, the share that makes the CPU a shared one: one in so
/// much. Interrupts and the kernel's own threads take less.
const SHARE: u32 = 20;
/// Questions between two readings of the clock.
const EVERY: u32 = 16;

/// One thread's observations. Not shared: every field is a cell.
pub(crate) struct Contention {
    questions: Cell<u32>,
    /// When it was observed last, and the thread's CPU time then.
    last: Cell<Option<(Instant, Duration)>>,
    /// How long the thread has slept since.
    slept: Cell<Duration>,
    contended: Cell<bool>,
}

impl Contention {
    pub(crate) fn new() -> Self {
        Contention {
            questions: Cell::new(0),
            last: Cell::new(None),
            slept: Cell::new(Duration::ZERO),
            contended: Cell::new(false),
        }
    }

    /// The thread slept so long: it did not want to run.
    pub(crate) fn slept(&self, lasted: Duration) {
        self.slept.set(self.slept.get() + lasted);
    }

    /// Whether the CPU was taken away for long, the last time that this was observed.
    #[inline]
    pub(crate) fn is_felt(&self) -> bool {
        self.questions.set(self.questions.get().wrapping_add(1));
        if self.questions.get() % EVERY == 1 {
            self.observe(Instant::now(), cpu_time);
        }
        self.contended.get()
    }

    fn observe(&self, now: Instant, cpu: impl FnOnce() -> Option<Duration>) {
        let Some((then, cpu_then)) = self.last.get() else {
            return self.begin(now, cpu());
        };
        let passed = now.saturating_duration_since(then);
        if passed < PERIOD {
            return;
        }
        let cpu = cpu();
        let ran = cpu.unwrap_or(cpu_then).saturating_sub(cpu_then);
        let wanted = passed.saturating_sub(self.slept.get());
        self.contended
            .set(cpu.is_some() && wanted.saturating_sub(ran) > wanted.max(PERIOD / 4) / SHARE);
        self.begin(now, cpu);
    }

    fn begin(&self, now: Instant, cpu: Option<Duration>) {
        self.last.set(Some((now, cpu.unwrap_or_default())));
        self.slept.set(Duration::ZERO);
    }
}

/// The CPU time that this thread has had.
#[cfg(unix)]
fn cpu_time() -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills `time`, or fails.
    let got = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    (got == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Not known: the CPU counts as its own.
#[cfg(not(unix))]
fn cpu_time() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_felt_after_a_period_in_which_the_cpu_was_taken_away_for_long() {
        let ms = Duration::from_millis;
        let contention = Contention::new();
        let start = Instant::now();
        let felt = |at: u64, cpu: u64, slept: u64| {
            contention.slept(ms(slept));
            contention.observe(start + ms(at), || Some(ms(cpu)));
            contention.contended.get()
        };
        assert!(!felt(0, 7, 0), "what was before the first observation does not count");
        assert!(!felt(20, 27, 0), "it ran all the time");
        assert!(!felt(40, 32, 15), "it slept, and ran for the rest");
        assert!(felt(60, 42, 0), "it ran for half of the time");
        contention.observe(start + ms(70), || unreachable!("too soon"));
        assert!(felt(80, 45, 10), "it ran for a third of the time that it did not sleep");
        assert!(!felt(100, 65, 0));
    }
}
