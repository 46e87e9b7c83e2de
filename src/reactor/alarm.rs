//! Until when the driver sleeps, so that an earlier deadline wakes it, and a later one does not.
//! Knows no timers: the first deadline comes in as a closure.
//!
//! Who arms a timer writes the deadline, then reads the alarm; the driver writes the alarm, then
//! reads the deadlines. At least one of them sees the other.

use crate::sync::atomic::{AtomicU64, Ordering::*, fence};

/// Nobody sleeps in the reactor.
const AWAKE: u64 = 0;

pub(crate) struct Alarm(AtomicU64);

impl Alarm {
    pub(crate) fn new() -> Self {
        Alarm(AtomicU64::new(AWAKE))
    }

    /// The driver is about to sleep. Returns until when: the first deadline, unless that is before
    /// `not_before`.
    pub(crate) fn set(&self, not_before: u64, first: impl Fn() -> u64) -> u64 {
        let mut until = first().max(not_before);
        loop {
            debug_assert_ne!(until, AWAKE, "the driver sleeps until some moment");
            self.0.store(until, Relaxed);
            // Ordering A1: store-load; the alarm is set before the deadlines are read again. Pairs
            // with A2.
            fence(SeqCst);
            let again = first().max(not_before);
            if again >= until {
                return until;
            }
            until = again;
        }
    }

    /// The driver is awake.
    pub(crate) fn clear(&self) {
        self.0.store(AWAKE, Relaxed);
    }

    /// After a deadline was put in that is the first of its shard: whether the driver sleeps longer.
    #[must_use]
    pub(crate) fn is_late_for(&self, at: u64) -> bool {
        // Ordering A2: store-load; the deadline was written before the alarm is read. Pairs with A1.
        fence(SeqCst);
        at < self.0.load(Relaxed)
    }

    /// Whether somebody sleeps, or is about to.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed) != AWAKE
    }
}

#[cfg(all(test, not(paceline_loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_an_earlier_deadline_is_too_early_for_it() {
        let alarm = Alarm::new();
        assert!(!alarm.is_late_for(5) && !alarm.is_set());
        assert_eq!(alarm.set(1, || 10), 10);
        assert!(alarm.is_late_for(9) && !alarm.is_late_for(10) && alarm.is_set());
        assert_eq!(alarm.set(20, || 10), 20, "a rest between two wake-ups");
        alarm.clear();
        assert!(!alarm.is_late_for(9));
    }
}

#[cfg(all(test, paceline_loom))]
mod models {
    use super::*;
    use crate::sync::Arc;

    /// A timer armed while the driver goes to sleep: the driver sees it, or is woken for it.
    #[test]
    fn an_earlier_deadline_is_never_slept_through() {
        loom::model(|| {
            let shared = Arc::new((Alarm::new(), AtomicU64::new(100)));
            let armer = {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    shared.1.store(10, Relaxed);
                    shared.0.is_late_for(10)
                })
            };
            let until = shared.0.set(1, || shared.1.load(Relaxed));
            let woken = armer.join().unwrap();
            assert!(until == 10 || woken, "sleeps until {until}");
        });
    }
}
